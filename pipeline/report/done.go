package report

import (
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// DoneEvent is the last line of `slipway build --json`, and the answer of
// everything that waits for a build: what a script needs to know of it, in the
// same fields whatever became of it. Summary ends with the cause of a bad end.
// Text is as it was recorded; whoever shows it escapes it.
type DoneEvent struct {
	Event        string           `json:"event"` // done
	State        State            `json:"state"`
	Success      bool             `json:"success"`
	Summary      string           `json:"summary"`
	Build        string           `json:"build"`
	Branch       string           `json:"branch"`
	Head         string           `json:"head"`
	Pull         *Pull            `json:"pull"`
	Issues       IssueCounts      `json:"issues"`
	Debt         []debt.Item      `json:"debt"`
	Checks       []DoneCheck      `json:"checks"`
	Comments     int              `json:"comments"`
	Verification DoneVerification `json:"verification"`
	CostUSD      USD              `json:"cost_usd"`
	AgentCalls   int              `json:"agent_calls"`
	ElapsedMS    int64            `json:"elapsed_ms"`
}

// IssueCounts counts the issues that ended, by how.
type IssueCounts struct {
	Completed         int `json:"completed"`
	CompletedWithDebt int `json:"completed_with_debt"`
	Failed            int `json:"failed"`
	Skipped           int `json:"skipped"`
}

// DoneCheck is a check run as it was read back.
type DoneCheck struct {
	Name       string `json:"name"`
	Conclusion string `json:"conclusion"`
	HeadSHA    string `json:"head_sha"`
}

// DoneVerification is the judgement of the published commit. Where nobody
// judged, it did not pass and has no criteria.
type DoneVerification struct {
	Passed   bool            `json:"passed"`
	Criteria []DoneCriterion `json:"criteria"`
}

// DoneCriterion is one judged criterion. One that nobody could verify did not
// pass.
type DoneCriterion struct {
	ID        string `json:"id"`
	Passed    bool   `json:"passed"`
	Evidence  string `json:"evidence"`
	IssueName string `json:"issue_name"`
}

// USD is an amount in micro-dollars that JSON shows in dollars.
type USD int64

// MarshalJSON prints the exact decimal number, 1.25 for 1,250,000.
func (u USD) MarshalJSON() ([]byte, error) {
	n, sign := uint64(u), ""
	if u < 0 {
		n, sign = -n, "-"
	}
	out := sign + strconv.FormatUint(n/1_000_000, 10)
	if rest := n % 1_000_000; rest > 0 {
		out += "." + strings.TrimRight(pad(int64(rest), 6), "0")
	}
	return []byte(out), nil
}

// Done is the done-event of a build.
func Done(b Build) DoneEvent {
	e := DoneEvent{
		Event: "done", State: b.State, Success: b.Success, Summary: b.Summary,
		Build: b.ID, Branch: b.Branch, Head: b.Head, Pull: b.Pull,
		Debt: append([]debt.Item{}, b.Debt...), Checks: []DoneCheck{}, Comments: b.Comments,
		Verification: DoneVerification{Criteria: []DoneCriterion{}},
		CostUSD:      USD(b.CostMicros), AgentCalls: b.AgentCalls, ElapsedMS: b.Elapsed.Milliseconds(),
	}
	for _, is := range b.Issues {
		switch o := is.Outcome; {
		case o == Completed:
			e.Issues.Completed++
		case o == CompletedWithDebt:
			e.Issues.CompletedWithDebt++
		case o.failed():
			e.Issues.Failed++
		case o == Skipped:
			e.Issues.Skipped++
		}
	}
	for _, c := range b.Checks {
		e.Checks = append(e.Checks, DoneCheck{Name: c.Name, Conclusion: c.Conclusion, HeadSHA: c.HeadSHA})
	}
	if v := b.Verification; v != nil {
		e.Verification.Passed = v.Passed
		for _, c := range v.Criteria {
			e.Verification.Criteria = append(e.Verification.Criteria, DoneCriterion{
				ID: c.ID, Passed: c.Passed && c.Verified, Evidence: c.Evidence, IssueName: c.IssueName,
			})
		}
	}
	return e
}
