package pipeline

import "github.com/slipway-dev/slipway/pipeline/report"

// Refusal says why a build as it stands has no use for a signal of that kind,
// in words for the person who sent it, or nothing. Whether the build has ended
// is the queue's to know.
func Refusal(b report.Build, signal string, said Said) string {
	switch signal {
	case ApproveSignal, ReviseSignal, RejectSignal:
		if len(b.Permits) > 0 && signal != ReviseSignal {
			return permitRefusal(b, signal, firstWord(said))
		}
		if b.Gate != nil && b.Gate.Kind == report.ChoiceGate && signal != ReviseSignal {
			return ""
		}
		if b.Gate == nil || b.Gate.Kind != report.PlanGate {
			return "no plan of this build waits for an approval"
		}
	case AnswerSignal:
		if b.Gate == nil || b.Gate.Kind != report.QuestionGate {
			return "no agent of this build has asked anything"
		}
	case ResumeSignal:
		switch b.State {
		case report.Succeeded, report.SucceededWithDebt:
			return "the build succeeded, so there is nothing to resume"
		case report.Planned:
			return "no more than a plan was asked for, so there is nothing to resume"
		}
	}
	return ""
}
