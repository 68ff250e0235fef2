package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// dry is a day's budget that is spent while it says so.
type dry func() bool

func (d dry) Take(context.Context, agent.Use) error {
	if d() {
		return &agent.BudgetError{Bound: "limits.usd_per_day", Limit: "$200", Reset: time.Date(2026, 5, 6, 7, 8, 0, 0, time.UTC)}
	}
	return nil
}

func (d dry) Settle(context.Context, agent.Use, agent.Use) error { return nil }

// spentAround is a build of a and b whose budget is spent when b's Coder is to
// be asked, while a's reviewer is at work. There is room again for what ends the
// build.
func spentAround(t *testing.T) *world {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.checks("true")
	w.configure("pipeline: {enable_review: false}")
	var spent atomic.Bool
	w.day = dry(func() bool { return spent.Load() && !slices.Contains(w.log.Keys(), "verify-1/commands") })
	reading, stopped := make(chan struct{}), w.until("stop")
	var once atomic.Bool
	w.when("code_reviewer", func(ctx context.Context, _ runtime.Call) (any, error) {
		if once.Swap(true) {
			return nil, nil
		}
		spent.Store(true)
		close(reading)
		return nil, await(ctx, stopped)
	})
	w.when("issue_writer", func(ctx context.Context, c runtime.Call) (any, error) {
		if w.nameOf(c.Step) == "b" && !once.Load() {
			return nil, await(ctx, reading)
		}
		return nil, nil
	})
	return w
}

// ranDry wants what finished to be there, verified, and the rest to be told.
func (w *world) ranDry(b report.Build) {
	w.t.Helper()
	if !strings.Contains(b.Cause, "limits.usd_per_day is $200; there may be room again at 2026-05-06 07:08 UTC") || b.Next == "" {
		w.t.Errorf("cause %q, next %q", b.Cause, b.Next)
	}
	if w.file(b, "a.txt") == "" || w.file(b, "b.txt") != "" {
		w.t.Error("what was finished is not published, or what was not is")
	}
	if v := b.Verification; v == nil || len(v.Criteria) != 1 || !v.Criteria[0].Passed || len(v.Commands) != 1 || !v.Commands[0].Passed {
		w.t.Errorf("the verification: %+v", b.Verification)
	}
	w.owes(b, debt.SkippedWork, "b", "the build stopped before it landed")
	if len(b.Debt) != 1 {
		w.t.Errorf("debt %+v", b.Debt)
	}
}

func TestWhatIsAtWorkFinishesWhenTheBudgetIsSpent(t *testing.T) {
	w := spentAround(t)
	w.ranDry(w.must(report.NeedsHuman))
	w.onlyTested()
}

// Killed around every append after the budget was spent, the build ends the
// same.
func TestLostLeaseAfterTheBudgetWasSpent(t *testing.T) {
	undisturbed := spentAround(t)
	undisturbed.must(report.NeedsHuman)
	keys := undisturbed.log.Keys()
	finished := slices.Index(keys, "issue-01/round-1/iter-1/code_reviewer")
	for _, key := range keys[finished+1:] {
		if strings.HasPrefix(key, "stop/") {
			continue // this one may as well come before a is finished
		}
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := spentAround(t)
			w.killedBefore(key)
			w.ranDry(w.must(report.NeedsHuman))
		})
	}
}

// A signal to a build whose budget is spent does not cut off what is paid for,
// unless it is a cancel.
func TestSignalsAfterTheBudgetWasSpent(t *testing.T) {
	for kind, ends := range map[string]report.State{SteerSignal: report.NeedsHuman, CancelSignal: report.Canceled} {
		t.Run(kind, func(t *testing.T) {
			w := spentAround(t)
			play := w.answer
			w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
				v, err := play(ctx, c)
				if c.Step != "issue-01/round-1/iter-1/code_reviewer" || err != nil {
					return v, err
				}
				for _, id := range []string{"s-1", "s-2"} { // once the second is taken, the first was dealt with
					select {
					case w.signals <- Signal{ID: id, Kind: kind, Body: []byte(`{"text":"now"}`)}:
					case <-ctx.Done():
						return nil, context.Cause(ctx)
					}
				}
				return v, nil
			}
			b := w.must(ends)
			if ends == report.NeedsHuman {
				w.ranDry(b)
			} else if w.file(b, "a.txt") != "" || w.asked("verifier") != 0 {
				t.Error("what was running when it was cancelled went on")
			}
		})
	}
}

// A budget that is spent when fixes are to be named leaves what is open as debt.
func TestTheBudgetIsSpentBeforeAFix(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.configure("pipeline: {enable_review: false}")
	w.verdicts(false)
	w.mends()
	var spent atomic.Bool
	w.day = dry(spent.Load)
	w.when("verifier", func(context.Context, runtime.Call) (any, error) {
		spent.Store(true)
		return nil, nil
	})
	b := w.must(report.NeedsHuman)
	if w.file(b, "a.txt") == "" || w.asked("fix_generator") != 0 {
		t.Error("what landed is not published, or a fix was paid for")
	}
	w.owes(b, debt.UnmetCriterion, "a", "thing.go:3")
}

// What was set aside for the end pays the Verifier and the pull request's
// words: the account is in whole and the cost table adds up.
func TestTheClosingReservePaysForTheEnd(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil))
	w.configure("limits: {usd_per_call: 0.5, max_parallel_issues: 1}")
	w.ask = func(r *Request) { r.Budget = 4_000_000 }
	w.priced(func(runtime.Call) int64 { return 500_000 })
	b := w.must(report.NeedsHuman)
	if b.CostMicros > 4_000_000 || w.asked("verifier") != 1 || w.asked("git") != 1 || b.Branch == "" {
		t.Errorf("cost %d, Verifier asked %d times, branch %q", b.CostMicros, w.asked("verifier"), b.Branch)
	}
	if v := b.Verification; v == nil || !v.Criteria[0].Verified {
		t.Errorf("the verification: %+v", b.Verification)
	}
	var table int64
	for _, line := range b.Costs {
		table += line.Micros
	}
	if table != b.CostMicros || !strings.Contains(b.Cause, "the budget asked for is $4, of which $1 are kept for verifying and publishing") {
		t.Errorf("the table adds up to %d of %d; cause %q", table, b.CostMicros, b.Cause)
	}
}

// A plan that could not be made is not made by whoever publishes that.
func TestAPlanThatFailedIsNotMadeAgainAfterACrash(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.when("sprint_planner", func(context.Context, runtime.Call) (any, error) {
		return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
	})
	w.killedBefore("publish/comment")
	asked := len(w.agents.Steps())
	if b := w.must(report.Failed); !strings.Contains(b.Cause, "it fell over") {
		t.Errorf("cause %q", b.Cause)
	}
	if more := w.agents.Steps()[asked:]; len(more) != 0 {
		t.Errorf("asked again: %v", more)
	}
}

// A fast build has one level of so many issues, a Coder and a reviewer for each,
// and one verification, whatever the plan says of QA and the verification finds.
func TestFastMode(t *testing.T) {
	flagged := issue("a", nil)
	flagged.Guidance.NeedsDeeperQA, flagged.Guidance.TouchesInterfaces = true, true
	w := newWorld(t, flagged, issue("b", nil))
	w.ask = func(r *Request) { r.Fast = true }
	w.configure("pipeline: {max_tasks: 2, barrier: level}")
	plans := 0
	w.when("sprint_planner", func(_ context.Context, c runtime.Call) (any, error) {
		switch plans++; {
		case plans > 1 && strings.Contains(c.Prompt, "at most 2"):
			return nil, nil
		case plans > 1:
			t.Errorf("the planner is not told of the limit:\n%s", c.Prompt)
		}
		return plan.Sprint{Issues: []graph.Issue{flagged, issue("b", nil, "a"), issue("c", nil)}, Rationale: "r"}, nil
	})
	w.verdicts(false)
	w.mends()
	b := w.must(report.SucceededWithDebt)
	asked := map[string]int{}
	for _, c := range w.agents.Calls() {
		asked[c.Role]++
	}
	want := map[string]int{"pm": 1, "sprint_planner": 2, "coder": 2, "code_reviewer": 2, "verifier": 1, "git": 1}
	if fmt.Sprint(asked) != fmt.Sprint(want) || b.Success {
		t.Errorf("asked %v, want %v", asked, want)
	}
	w.owes(b, debt.UnmetCriterion, "a", "thing.go:3")
}

// An issue that is given is built as it is on a branch of its own.
func TestSingleIssueMode(t *testing.T) {
	for name, unverified := range map[string]bool{"verified": false, "nobody is to verify": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.configure("pipeline: {enable_review: false}")
			text, err := json.Marshal(issue("given", nil))
			if err != nil {
				t.Fatal(err)
			}
			given, err := plan.Single(text)
			if err != nil {
				t.Fatal(err)
			}
			w.ask = func(r *Request) { r.Given, r.Unverified = &given, unverified }
			w.write("unsaved.txt", "mine")
			before := w.git("rev-parse", "HEAD", "--abbrev-ref", "HEAD") + w.git("status", "--porcelain")
			want := report.Succeeded
			if unverified {
				want = report.SucceededWithDebt
			}
			b := w.must(want)
			if w.file(b, "given.txt") == "" || w.file(b, "unsaved.txt") != "" {
				t.Errorf("the branch %s is not the issue's", b.Branch)
			}
			if after := w.git("rev-parse", "HEAD", "--abbrev-ref", "HEAD") + w.git("status", "--porcelain"); after != before {
				t.Errorf("the checkout was %q and is %q", before, after)
			}
			if asked := w.asked("verifier") == 0; asked != unverified || w.asked("pm")+w.asked("sprint_planner")+w.asked("issue_writer") != 0 {
				t.Errorf("asked %v", w.agents.Steps())
			}
			if unverified {
				w.owes(b, debt.UnverifiedCriteria, "given", "no verification was asked for")
			}
		})
	}
}
