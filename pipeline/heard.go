package pipeline

import (
	"encoding/json"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// What people say to a build, and the gates at which it waits for them, as the
// journal records it.

// hear takes what a person said. What does not fit where the build stands is
// recorded and changes nothing.
func (f *Fold) hear(e step.Entry) error {
	var h heard
	if err := json.Unmarshal(e.Outcome, &h); err != nil {
		return err
	}
	f.heard[strings.TrimPrefix(e.Key, "signal/")] = true
	f.move(h.Said.Repo)
	who := h.Said.By.Login
	if h.Kind == PublishSignal {
		f.release(h, e.At)
		return nil
	}
	if f.end != nil || f.stop != nil && (h.Kind != CancelSignal || !f.stop.mayFinish()) {
		return nil
	}
	if p := f.permitNamed(firstWord(h.Said)); p != nil && (h.Kind == ApproveSignal || h.Kind == RejectSignal) {
		p.consent, p.by = allowed, who
		if h.Kind == RejectSignal {
			p.consent = refused
		}
		return nil
	}
	atPlan := f.gate != nil && f.gate.Kind == report.PlanGate
	atChoice := f.gate != nil && f.gate.Kind == report.ChoiceGate
	switch h.Kind {
	case CancelSignal:
		f.stop = &stopped{State: report.Canceled, Cause: because(by("cancelled", who), h.Said.Text)}
		f.gate = nil
	case RejectSignal:
		if atPlan {
			f.stop = &stopped{State: report.Canceled, Cause: because(by("the plan was rejected", who), h.Said.Text)}
			f.gate = nil
		}
		if atChoice {
			f.stop = &stopped{State: report.Canceled, Cause: because(by("every result was rejected", who), h.Said.Text)}
			f.gate = nil
		}
	case ApproveSignal:
		if atChoice {
			f.choose(h)
		} else if atPlan && len(h.Said.Hash) >= minHash && strings.HasPrefix(f.gate.Hash, strings.ToLower(h.Said.Hash)) {
			f.approval = f.gate.Hash
		}
	case ReviseSignal:
		if atPlan {
			f.revise = append(f.revise, h.Said.Text)
			f.gate, f.approval, f.letGo = nil, "", e.At
		}
	case AnswerSignal:
		if f.gate != nil && f.gate.Kind == report.QuestionGate {
			f.answers = append(f.answers, plan.Answer{Questions: f.gate.Questions, Text: h.Said.Text})
			f.gate, f.letGo = nil, e.At
		}
	case SteerSignal:
		f.steering = append(f.steering, h.Said.Text)
	}
	return nil
}

// move notes where the build was resumed.
func (f *Fold) move(to forge.Repo) {
	if to != (forge.Repo{}) {
		f.begun.Repo, f.home = to.String(), to
	}
}

// firstWord is what an approval or a rejection names.
func firstWord(s Said) string {
	word, _, _ := strings.Cut(strings.TrimSpace(s.Hash+" "+s.Text), " ")
	return strings.TrimSpace(word)
}

func by(what, who string) string {
	if who == "" {
		return what
	}
	return what + " by " + who
}

func because(what, why string) string {
	if why = strings.TrimSpace(why); why == "" {
		return what
	}
	return what + ": " + why
}

// wait opens a gate, or takes what the check of an approval said.
func (f *Fold) wait(e step.Entry) error {
	if strings.Contains(strings.TrimPrefix(e.Key, "gate/"), "/approved") {
		var a approved
		if err := json.Unmarshal(e.Outcome, &a); err != nil {
			return err
		}
		f.approvals++
		if f.gate != nil && a.Refused != "" {
			f.gate.Reason = "The approval was refused: " + a.Refused
		} else if f.gate != nil {
			f.approved, f.gate, f.letGo = f.approval, nil, e.At
		}
		f.approval = ""
		return nil
	}
	var o opened
	if err := json.Unmarshal(e.Outcome, &o); err != nil {
		return err
	}
	f.gates++
	f.gate = &o.Gate
	return nil
}
