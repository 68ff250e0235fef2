package coding

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/evidence"
)

// feedback is what the Coder is told to mend: what the engine saw first, then
// what the judges said. qa is nil on the default path.
func feedback(tested evidence.Result, review ReviewResult, qa *QAResult) string {
	var b strings.Builder
	for _, c := range tested.Commands {
		if !c.Passed {
			fmt.Fprintf(&b, "`%s` failed with exit code %d:\n%s\n", c.Line, c.Exit, c.Output)
		}
	}
	switch {
	case review.Blocking:
		fmt.Fprintf(&b, "The reviewer blocks this change: %s\n", review.Summary)
	case !review.Approved:
		fmt.Fprintf(&b, "The reviewer asks for changes: %s\n", review.Summary)
	}
	if !review.Approved {
		for _, f := range review.Findings {
			fmt.Fprintf(&b, "- %s\n", f)
		}
	}
	if qa != nil && !qa.Passed {
		fmt.Fprintf(&b, "QA did not pass it: %s\n", qa.Summary)
		for _, f := range qa.TestFailures {
			fmt.Fprintf(&b, "- %s (%s): %s", f.TestName, f.File, f.Error)
			if f.Expected != "" || f.Actual != "" {
				fmt.Fprintf(&b, "; expected %s, got %s", f.Expected, f.Actual)
			}
			b.WriteByte('\n')
		}
		for _, g := range qa.CoverageGaps {
			fmt.Fprintf(&b, "- not covered: %s\n", g)
		}
	}
	return strings.TrimSpace(b.String())
}

// changing is what differs between two runs that say the same: numbers,
// addresses, durations.
var changing = regexp.MustCompile(`(?i)0x[0-9a-f]+|[0-9]+(\.[0-9]+)?`)

// constant is a text on one line without what changes from run to run.
func constant(s string) string {
	return strings.Join(strings.Fields(changing.ReplaceAllString(s, "#")), " ")
}

// fingerprint is equal for two feedbacks that say the same.
func fingerprint(s string) string { return constant(strings.ToLower(s)) }

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
