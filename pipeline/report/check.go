package report

import "strings"

// GitHub refuses a check run's summary above 65,535 bytes and cuts its text
// there in silence.
const checkLimit = 65_535

// CheckOutput is what a check run says. Summary and text are at most 65,535
// bytes each and end with a line that says so where they had to be cut.
func CheckOutput(b Build) (title, summary, text string) {
	head := page{{text: badEnd(b)}, {text: para(b.Summary, 2000)}, {text: spent(b)}, {text: places(b)}, commandTable(b)}
	head = append(head, failures(b)...)
	head = append(head, debtTable(b.Debt))
	body := append(page{requirementTable(b), issueTable(b), skippedList(b), keptTable(b)}, notes(b, 20), section{text: footer(b)})
	return headline(b), strings.TrimLeft(head.limited(checkLimit, bytes), "\n"), body.limited(checkLimit, bytes)
}

// Conclusion is the check run's conclusion for a final build, and empty for
// one that is still at work or waits. Success is only for a build whose must-have
// criteria all passed, and never when another commit was judged than the one
// that was published.
func Conclusion(b Build) string {
	switch b.State {
	case Queued, Running, WaitingApproval, WaitingAnswer, WaitingCI:
		return ""
	case Planned:
		return "neutral" // nothing ran that could have passed
	case Succeeded, SucceededWithDebt:
		judged := b.Verification == nil || b.Verification.Commit == "" || b.Head == "" || b.Verification.Commit == b.Head
		if b.Success && judged {
			return "success"
		}
		return "neutral"
	case TimedOut:
		return "timed_out"
	case Canceled:
		return "cancelled"
	case NeedsHuman:
		return "action_required"
	}
	return "failure" // also a state that nobody knows
}

// ExitCode is what a terminal's build exits with: 0 succeeded, with or without
// debt, or planned; 1 failed, or has not ended; 3 needs a person; 4 cancelled; 6 timed out.
func ExitCode(b Build) int {
	switch b.State {
	case Succeeded, SucceededWithDebt, Planned:
		return 0
	case NeedsHuman:
		return 3
	case Canceled:
		return 4
	case TimedOut:
		return 6
	}
	return 1
}
