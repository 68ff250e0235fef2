package pipeline

import (
	"slices"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/report"
)

// The stream says once that a build waits, for what and what to type, and once
// that it goes on.
func TestGateEvents(t *testing.T) {
	running := report.Build{ID: "b-1", State: report.Running}
	plan := report.Build{ID: "b-1", State: report.WaitingApproval, Gate: &report.Gate{Kind: report.PlanGate, Hash: "0123456789abcdef"}}
	revised := plan
	revised.Gate = &report.Gate{Kind: report.PlanGate, Hash: "fedcba9876543210"}
	ci := report.Build{ID: "b-1", State: report.WaitingCI}
	for name, c := range map[string]struct {
		before, now report.Build
		want        Event
		types       []string
	}{
		"at work":          {running, running, Event{}, nil},
		"the first entry":  {report.Build{}, running, Event{}, nil},
		"a plan waits":     {running, plan, Event{Event: "gate", Build: "b-1", Key: "waiting_approval", State: "waiting", Detail: "approval of the plan 0123456789ab"}, []string{"slipway approve b-1 0123456789ab", "slipway revise b-1 TEXT", "slipway reject b-1 [TEXT]"}},
		"it still waits":   {plan, plan, Event{}, nil},
		"another waits":    {plan, revised, Event{Event: "gate", Build: "b-1", Key: "waiting_approval", State: "waiting", Detail: "approval of the plan fedcba987654"}, []string{"slipway approve b-1 fedcba987654", "slipway revise b-1 TEXT", "slipway reject b-1 [TEXT]"}},
		"it goes on":       {plan, running, Event{Event: "gate", Build: "b-1", Key: "waiting_approval", State: "over"}, nil},
		"CI is waited for": {running, ci, Event{Event: "gate", Build: "b-1", Key: "waiting_ci", State: "waiting", Detail: "the checks of what it pushed"}, []string{"slipway cancel b-1"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, changed := gateEvent(c.before, c.now)
			types := got.Type
			got.Type, c.want.Type = nil, nil
			if changed != (c.want.Event != "") || got.Key != c.want.Key || got.State != c.want.State || got.Detail != c.want.Detail || got.Build != c.want.Build || !slices.Equal(types, c.types) {
				t.Errorf("%+v %v, want %+v %v", got, types, c.want, c.types)
			}
		})
	}
}

// Which signals a build has a use for, wherever it stands.
func TestRefusal(t *testing.T) {
	plan, question := &report.Gate{Kind: report.PlanGate}, &report.Gate{Kind: report.QuestionGate}
	taken := map[string][]string{}
	for _, signal := range []string{ApproveSignal, ReviseSignal, RejectSignal, AnswerSignal, SteerSignal, CancelSignal, ResumeSignal} {
		for name, b := range map[string]report.Build{
			"at work": {State: report.Running}, "at a plan": {State: report.WaitingApproval, Gate: plan},
			"at a question": {State: report.WaitingAnswer, Gate: question}, "failed": {State: report.Failed},
			"succeeded": {State: report.Succeeded}, "with debt": {State: report.SucceededWithDebt}, "planned": {State: report.Planned},
		} {
			if Refusal(b, signal, Said{}) == "" {
				taken[name] = append(taken[name], signal)
			}
		}
	}
	for name, want := range map[string][]string{
		"at work": {SteerSignal, CancelSignal, ResumeSignal}, "at a plan": {ApproveSignal, ReviseSignal, RejectSignal, SteerSignal, CancelSignal, ResumeSignal},
		"at a question": {AnswerSignal, SteerSignal, CancelSignal, ResumeSignal}, "failed": {SteerSignal, CancelSignal, ResumeSignal},
		"succeeded": {SteerSignal, CancelSignal}, "with debt": {SteerSignal, CancelSignal}, "planned": {SteerSignal, CancelSignal},
	} {
		if !slices.Equal(taken[name], want) {
			t.Errorf("%s: takes %v, want %v", name, taken[name], want)
		}
	}
}
