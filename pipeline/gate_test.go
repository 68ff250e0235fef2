package pipeline

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

func withApproval(r *Request) { r.Approval = "plan" }

// asked counts the calls of a role.
func (w *world) asked(role string) (n int) {
	for _, c := range w.agents.Calls() {
		if c.Role == role {
			n++
		}
	}
	return n
}

func TestNothingIsCodedBeforeThePlanIsApproved(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	gate := w.waits(report.WaitingApproval)
	if again := w.waits(report.WaitingApproval); again.Hash != gate.Hash || again.Since != gate.Since {
		t.Errorf("a second claim opens another gate: %v, %v", gate, again)
	}
	if w.asked("coder") != 0 || w.asked("sprint_planner") != 1 {
		t.Errorf("asked: %v", w.agents.Steps())
	}
	w.say("1", ApproveSignal, Said{Hash: "0000000"})
	w.say("2", ApproveSignal, Said{Hash: gate.Hash[:6]})
	w.waits(report.WaitingApproval)
	w.say("3", ApproveSignal, Said{Hash: gate.Hash[:12]})
	w.must(report.Succeeded)
	if w.asked("coder") != 1 || w.asked("sprint_planner") != 1 {
		t.Errorf("asked: %v", w.agents.Steps())
	}
}

// ticketed is a local forge whose ticket people may edit.
type ticketed struct {
	Local
	ticket *forge.Ticket
}

func (f ticketed) Ticket(context.Context) (forge.Ticket, error) { return *f.ticket, nil }

func TestAnApprovalOfWhatMovedIsRefused(t *testing.T) {
	for name, move := range map[string]func(w *world, ticket *forge.Ticket){
		"the ticket was edited": func(_ *world, ticket *forge.Ticket) { ticket.Body = "something else" },
		"the base moved":        func(w *world, _ *forge.Ticket) { w.write("new", "x"); w.commit() },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, issue("a", nil))
			ticket := forge.Ticket{Number: 7, Title: "The thing", Body: "well"}
			w.ask = func(r *Request) {
				withApproval(r)
				r.Ticket = forge.Ticket{Number: 7, Title: "The thing", Body: "well"}
			}
			mirror, err := w.engine.Mirror(t.Context(), worldRepo())
			if err != nil {
				t.Fatal(err)
			}
			f := ticketed{Local{Dir: w.dir, Mirror: mirror}, &ticket}
			w.forge = f
			gate := w.waits(report.WaitingApproval)
			move(w, &ticket)
			request := Request{Build: "b-1", Repo: worldRepo()}
			w.ask(&request)
			if refusal, err := w.engine.Approval(t.Context(), &w.log, f, request, gate.Hash); err != nil || !strings.Contains(refusal, "since the plan was made") {
				t.Errorf("the person is told %q, %v", refusal, err)
			}
			w.say("1", ApproveSignal, Said{Hash: gate.Hash}) // sent in spite of it
			if again := w.waits(report.WaitingApproval); !strings.Contains(again.Reason, "since the plan was made") {
				t.Errorf("the gate says %q", again.Reason)
			}
			if w.asked("coder") != 0 {
				t.Error("the plan was built")
			}
		})
	}
}

func TestARevisedPlanIsMadeAnew(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		switch c.Role {
		case "pm":
			return plan.PRD{Title: "The thing", Size: "small", AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "it is done", MustHave: true}}}, nil
		case "architect":
			return plan.Architecture{Summary: "as ever"}, nil
		case "tech_lead":
			return plan.Review{Approved: true, Summary: "good"}, nil
		case "sprint_planner":
			if strings.Contains(c.Prompt, "do b first") {
				w.issues = append(w.issues[:1:1], issue("b", nil))
				w.issues[0].DependsOn = []string{"b"}
			}
		}
		return nil, nil
	}
	first := w.waits(report.WaitingApproval)
	w.say("1", ReviseSignal, Said{Text: "do b first"})
	second := w.waits(report.WaitingApproval)
	if second.Hash == first.Hash {
		t.Fatal("another plan has the same hash")
	}
	if n := w.asked("pm"); n != 1 {
		t.Errorf("the Product Manager was asked %d times", n)
	}
	for _, role := range []string{"architect", "tech_lead", "sprint_planner"} {
		calls := 0
		for _, c := range w.agents.Calls() {
			if c.Role == role && strings.Contains(c.Prompt, "do b first") {
				calls++
			}
		}
		if calls != 1 {
			t.Errorf("%s was told of the revision %d times", role, calls)
		}
	}
	w.say("2", ApproveSignal, Said{Hash: first.Hash})
	w.waits(report.WaitingApproval) // of a plan that is no longer the one
	w.say("3", ApproveSignal, Said{Hash: second.Hash})
	b := w.must(report.Succeeded)
	if a, b := w.outcome(b, "a"), w.outcome(b, "b"); b.Number != 1 || a.Number != 2 {
		t.Errorf("b has number %d and a has %d: they were not numbered anew", b.Number, a.Number)
	}
}

func TestRevisionsHaveALimit(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\npipeline: {max_plan_revisions: 1}\n")
	w.commit()
	w.waits(report.WaitingApproval)
	w.say("1", ReviseSignal, Said{Text: "otherwise"})
	w.waits(report.WaitingApproval)
	w.say("2", ReviseSignal, Said{Text: "once more"})
	if gate := w.waits(report.WaitingApproval); !strings.Contains(gate.Reason, "the limit") {
		t.Errorf("the gate says %q", gate.Reason)
	}
	if n := w.asked("sprint_planner"); n != 2 {
		t.Errorf("planned %d times", n)
	}
}

func TestARejectedPlanEndsTheBuild(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	w.waits(report.WaitingApproval)
	w.say("1", RejectSignal, Said{By: forge.Person{Login: "mira"}, Text: "not now"})
	if b := w.must(report.Canceled); b.Cause != "the plan was rejected by mira: not now" || b.Next == "" {
		t.Errorf("cause %q, next %q", b.Cause, b.Next)
	}
}

func TestCancelAtAGate(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	w.waits(report.WaitingApproval)
	w.say("1", CancelSignal, Said{By: forge.Person{Login: "mira"}})
	if b := w.must(report.Canceled); b.Cause != "cancelled by mira" {
		t.Errorf("cause %q", b.Cause)
	}
}

func TestAPlanThatCostsMoreThanTheBudgetIsAskedAbout(t *testing.T) {
	for name, c := range map[string]struct {
		asked int64
		waits bool
	}{
		"as configured":                  {0, true},
		"who named a budget has decided": {500_000, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil))
			w.ask = func(r *Request) { r.Budget = c.asked }
			w.write(".github/slipway.yml", "commands: {test: sh check.sh}\nlimits: {usd_per_build: 0.5, usd_per_call: 0.05}\n")
			w.commit()
			agents := w.agents
			w.engine.Runtime = func(context.Context, string) (runtime.Runtime, error) {
				return agenttest.New(func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
					r, err := agents.Run(ctx, c, emit)
					r.CostMicros = 40_000
					return r, err
				}), nil
			}
			if !c.waits {
				w.must(report.NeedsHuman)
				return
			}
			gate := w.waits(report.WaitingApproval)
			told := w.fold().Report(time.Now()).Estimate
			if told == nil || told.Micros <= 500_000 || !strings.Contains(gate.Reason, "budget") {
				t.Errorf("gate %+v with estimate %+v", gate, told)
			}
		})
	}
}

func TestAQuestionIsAnswered(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	rounds := 0
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role != "pm" {
			return nil, nil
		}
		rounds++
		prd := plan.PRD{Title: "The thing", Size: plan.Trivial, AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "it is done", MustHave: true}}}
		if rounds <= 3 {
			prd.Questions = []string{fmt.Sprintf("Which colour, %d?", rounds)}
		}
		return prd, nil
	}
	gate := w.waits(report.WaitingAnswer)
	if len(gate.Questions) != 1 || gate.Questions[0] != "Which colour, 1?" {
		t.Errorf("questions %v", gate.Questions)
	}
	w.say("1", AnswerSignal, Said{Text: "a dark blue"})
	w.waits(report.WaitingAnswer)
	w.say("2", AnswerSignal, Said{Text: "or green"})
	b := w.must(report.Succeeded) // a third question is the build's own to answer
	if last := w.agents.Calls()[2]; !strings.Contains(last.Prompt, "Which colour, 1?") || !strings.Contains(last.Prompt, "a dark blue") || !strings.Contains(last.Prompt, "or green") {
		t.Errorf("the Product Manager does not see the answers:\n%s", last.Prompt)
	}
	if !strings.Contains(b.PRD, "Which colour, 3?") {
		t.Error("the question that nobody answered is not among the assumptions")
	}
}

func TestAGateThatNobodyOpensExpires(t *testing.T) {
	f := NewFold()
	f.gate = &report.Gate{Kind: report.PlanGate, Hash: "h", Expires: time.Now().Add(-time.Hour)}
	b := &build{fold: f}
	if b.shut() != nil {
		t.Error("an expired gate keeps the build waiting")
	}
	synctest.Test(t, func(t *testing.T) {
		f.gate.Expires = time.Now().Add(time.Hour)
		if b.shut() == nil {
			t.Error("the gate is open")
		}
		time.Sleep(2 * time.Hour)
		if b.shut() != nil {
			t.Error("the gate did not expire")
		}
	})
}

func TestAnExpiredApprovalNeedsAPerson(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = withApproval
	w.engine.Defaults.Pipeline.ApprovalExpiry = time.Nanosecond
	b := w.must(report.NeedsHuman)
	if !strings.Contains(b.Cause, "nobody approved the plan within 1ns") || b.Next == "" {
		t.Errorf("cause %q, next %q", b.Cause, b.Next)
	}
}

func TestPlanOnlyStopsAtThePlan(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.ask = func(r *Request) { r.PlanOnly, r.Approval = true, "plan" }
	b := w.must(report.Planned)
	if len(b.Issues) != 1 || b.Branch != "" || w.asked("coder") != 0 {
		t.Errorf("build %+v", b)
	}
}
