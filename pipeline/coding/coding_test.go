package coding

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// Each case is a whole loop: what everybody answers, how the commands end, and
// what has to come of it.
func TestLoop(t *testing.T) {
	redAlways := func(string) evidence.Result { return red }
	fixable := answer{out: ReviewResult{
		Summary:  "One error is lost.",
		Findings: []finding.Finding{{Severity: "high", Path: "csv.go", StartLine: 3, Title: "Flush is not checked"}},
	}}
	cases := map[string]struct {
		flagged bool
		script  script
		outcome func(commit string) evidence.Result

		want   Result // without Debt, Faults and Files
		debt   []debt.Item
		faults string // the patterns
		tested int
		steps  string // of the agents, without the common prefix; empty: not looked at
	}{
		"approved at once": {
			script: script{"coder": {done}, "code_reviewer": {approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			tested: 1, steps: "iter-1/coder iter-1/code_reviewer",
		},
		"approved after one fix": {
			script: script{"coder": {done}, "code_reviewer": {fixable, approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done."},
			tested: 2, steps: "iter-1/coder iter-1/code_reviewer iter-2/coder iter-2/code_reviewer",
			faults: "Flush is not checked",
		},
		"red commands are never approved": {
			script:  script{"coder": {done}, "code_reviewer": {approve}},
			outcome: redAlways,
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: `go test ./...` failed with exit code 1:",
			},
			tested: 3,
			faults: strings.Repeat("go test ./...: --- FAIL: TestX | ", 2) + "go test ./...: --- FAIL: TestX",
		},
		"red once, then green": {
			script: script{"coder": {done}, "code_reviewer": {approve}},
			outcome: func(commit string) evidence.Result {
				if commit == "base+issue-07" {
					return red
				}
				return green
			},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done."},
			tested: 2,
			faults: "go test ./...: --- FAIL: TestX",
		},
		"no reviewer, green commands": {
			script: script{"coder": {done}, "code_reviewer": {gone}},
			want:   Result{Outcome: report.CompletedWithDebt, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			debt: []debt.Item{{
				Type: debt.WaivedReview, Severity: debt.High, IssueName: "csv-writer",
				Justification: "no reviewer read this change: it crashed", FollowUp: "review it before merging",
			}},
			tested: 1,
		},
		"no reviewer, red commands": {
			script:  script{"coder": {done}, "code_reviewer": {gone}},
			outcome: redAlways,
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: `go test ./...` failed with exit code 1:",
			},
			tested: 3,
			faults: strings.Repeat("go test ./...: --- FAIL: TestX | ", 2) + "go test ./...: --- FAIL: TestX",
		},
		"no reviewer, no commands": {
			script:  script{"coder": {done}, "code_reviewer": {gone}},
			outcome: func(string) evidence.Result { return none },
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: The reviewer asks for changes: The review failed: it crashed",
			},
			tested: 3,
		},
		"a block is never handed on": {
			script: script{"coder": {done}, "code_reviewer": {block}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: The reviewer blocks this change: It deletes the data.", Blocked: true,
			},
			tested: 3,
			faults: strings.Repeat("It deletes the data. | ", 2) + "It deletes the data.",
		},
		"a block gets its chance of a fix": {
			script: script{"coder": {done}, "code_reviewer": {block, approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done."},
			tested: 2,
			faults: "It deletes the data.",
		},
		"no commands found": {
			script:  script{"coder": {done}, "code_reviewer": {approve}},
			outcome: func(string) evidence.Result { return none },
			want:    Result{Outcome: report.CompletedWithDebt, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			debt: []debt.Item{{
				Type: debt.UnverifiedCriteria, Severity: debt.High, IssueName: "csv-writer",
				Justification: "no command to build or test with was found; looked at go.mod, Makefile",
				FollowUp:      "name the commands in .github/slipway.yml",
			}},
			tested: 1,
		},
		"a flaky command": {
			script:  script{"coder": {done}, "code_reviewer": {approve}},
			outcome: func(string) evidence.Result { return flaky },
			want:    Result{Outcome: report.CompletedWithDebt, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			debt: []debt.Item{{
				Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: "csv-writer",
				Justification: `"go test ./..." failed and then passed on the same commit`, FollowUp: "find out why it is not stable",
			}},
			tested: 1,
		},
		"what the reviewer lets pass is debt, only of the last verdict": {
			script: script{"coder": {done}, "code_reviewer": {
				{out: ReviewResult{Summary: "No.", DebtItems: []Shortfall{{Severity: debt.High, Justification: "answered by the next iteration"}}}},
				{out: ReviewResult{Approved: true, Summary: "Yes.", DebtItems: []Shortfall{
					{Severity: debt.Low, Justification: "no nested fields", FollowUp: "decide"},
					{Type: debt.UnmetCriterion, Severity: debt.High, Criterion: "exit code 2", Justification: "it is 1"},
				}}},
			}},
			want: Result{Outcome: report.CompletedWithDebt, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done."},
			debt: []debt.Item{
				{Type: debt.UnmetCriterion, Severity: debt.High, IssueName: "csv-writer", Criterion: "exit code 2", Justification: "it is 1"},
				{Type: debt.MissingFeature, Severity: debt.Low, IssueName: "csv-writer", Justification: "no nested fields", FollowUp: "decide"},
			},
			tested: 2,
			faults: "No.",
		},
		"two iterations that change nothing": {
			script: script{"coder": {unedited}},
			want:   Result{Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base", Iterations: 2, Summary: "Nothing to do.", Cause: "stuck: two iterations changed nothing"},
		},
		"idle iterations that are not in a row do not count": {
			script: script{"coder": {unedited, done, unedited, done}, "code_reviewer": {refuse("a"), refuse("b"), approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 4, Summary: "Done."},
			tested: 3,
			faults: "a | b",
		},
		"two crashes of the coder": {
			script: script{"coder": {gone}, "retry_advisor": {gone}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base", Iterations: 2,
				Cause: "stuck: two iterations changed nothing; last: The previous attempt gave no usable answer: it crashed",
			},
		},
		"a coder that runs out of time goes on from its own work": {
			script: script{"coder": {{edit: true, err: gone.err}, {edit: true, err: gone.err}, done}, "retry_advisor": {gone}, "code_reviewer": {approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done."},
			tested: 1,
		},
		"work that the coder calls incomplete is not judged": {
			script: script{"coder": {{out: Submission{Summary: "Half."}, edit: true}, done}, "code_reviewer": {approve}},
			want:   Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done."},
			tested: 1, steps: "iter-1/coder iter-2/coder iter-2/code_reviewer",
		},
		"out of iterations": {
			script: script{"coder": {done}, "code_reviewer": {refuse("a"), refuse("b"), refuse("c"), refuse("d"), refuse("e")}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 5), Changed: true, Iterations: 5, Summary: "Done.",
				Cause: "not approved after 5 iterations; last: The reviewer asks for changes: e",
			},
			tested: 5,
			faults: "a | b | c | d | e",
		},
		"the same feedback but for its numbers": {
			script: script{"coder": {done}, "code_reviewer": {refuse("line 3 fails after 1.5 s"), refuse("Line 14 fails after 2 s"), refuse("line  7 fails after 0.1 s")}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: The reviewer asks for changes: line  7 fails after 0.1 s",
			},
			tested: 3,
			faults: "line # fails after # s | Line # fails after # s | line # fails after # s",
		},
		"flagged: QA's tests become part of the issue": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaPass}, "qa_synthesizer": {decide(Approve, "All agree.")}},
			want:    Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07-qa-1", Changed: true, Iterations: 1, Summary: "Done."},
			tested:  2,
		},
		"flagged: QA without tests of its own": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {{out: qaPass.out}}, "qa_synthesizer": {decide(Approve, "All agree.")}},
			want:    Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			tested:  1,
		},
		"flagged: the synthesizer cannot overrule red commands": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaPass}, "qa_synthesizer": {decide(Approve, "Fine by me.")}},
			outcome: func(commit string) evidence.Result {
				if strings.Contains(commit, "qa") {
					return red // QA's tests show it
				}
				return green
			},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base+issue-07+issue-07-qa-1+issue-07+issue-07-qa-2+issue-07+issue-07-qa-3", Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: Fine by me.",
			},
			tested: 6,
			faults: strings.Repeat("go test ./...: --- FAIL: TestX | ", 2) + "go test ./...: --- FAIL: TestX",
		},
		"flagged: nor a reviewer who blocks": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {block}, "qa": {qaPass}, "qa_synthesizer": {decide(Approve, "Fine by me.")}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base+issue-07+issue-07-qa-1+issue-07+issue-07-qa-2+issue-07+issue-07-qa-3", Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: Fine by me.", Blocked: true,
			},
			tested: 6,
			faults: strings.Repeat("It deletes the data. | ", 2) + "It deletes the data.",
		},
		"flagged: approval against QA is debt": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaFail}, "qa_synthesizer": {decide(Approve, "Not asked for.")}},
			want:    Result{Outcome: report.CompletedWithDebt, Rounds: 1, Commit: "base+issue-07", Changed: true, Iterations: 1, Summary: "Done."},
			debt: []debt.Item{{
				Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: "csv-writer",
				Justification: "QA did not pass it (One does not hold.); it was approved all the same: Not asked for.",
				FollowUp:      "look at what QA reported before merging",
			}},
			tested: 1,
		},
		"flagged: the synthesizer calls it stuck": {
			flagged: true,
			script: script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaFail}, "qa_synthesizer": {
				decide(Fix, "Mend the empty case."), {out: Synthesis{Action: Fix, Summary: "It comes back each time.", Stuck: true}},
			}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Summary: "Done.", Cause: "stuck: It comes back each time.",
			},
			tested: 2,
			faults: "TestEmpty: panic | TestEmpty: panic",
		},
		"flagged: without a synthesizer the rule approves": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaPass}, "qa_synthesizer": {gone}},
			want:    Result{Outcome: report.Completed, Rounds: 1, Commit: "base+issue-07+issue-07-qa-1", Changed: true, Iterations: 1, Summary: "Done."},
			tested:  2,
		},
		"flagged: without a synthesizer and QA the rule does not": {
			flagged: true,
			script:  script{"coder": {done}, "code_reviewer": {approve}, "qa": {gone}, "qa_synthesizer": {gone}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Rounds: 1, Commit: "base" + strings.Repeat("+issue-07", 3), Changed: true, Iterations: 3, Summary: "Done.",
				Cause: "stuck: the same feedback came 3 times: QA did not pass it: QA did not answer: issue-07/round-1/iter-3/qa: it crashed",
			},
			tested: 3,
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.script)
			b.site.outcome = c.outcome
			b.task.Issue.Guidance.NeedsDeeperQA = c.flagged
			got := b.run(t)
			items, faults := got.Debt, patterns(got)
			got.Debt, got.Faults, got.Files = nil, nil, nil
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
			if !slices.Equal(items, c.debt) {
				t.Errorf("debt %+v\nwant %+v", items, c.debt)
			}
			if faults != c.faults {
				t.Errorf("faults %q, want %q", faults, c.faults)
			}
			if len(b.site.tested) != c.tested {
				t.Errorf("the engine tested %v, want %d runs", b.site.tested, c.tested)
			}
			steps := strings.ReplaceAll(strings.Join(b.agents.Steps(), " "), "issue-07/round-1/", "")
			if c.steps != "" && steps != c.steps {
				t.Errorf("steps %q, want %q", steps, c.steps)
			}

			// The same journal again: nobody is asked, nothing is run, all is equal.
			asked, tested := len(b.agents.Calls()), len(b.site.tested)
			again := b.run(t)
			again.Debt, again.Faults, again.Files = nil, nil, nil
			if !reflect.DeepEqual(again, got) {
				t.Errorf("replayed %+v\nfirst    %+v", again, got)
			}
			if len(b.agents.Calls()) != asked || len(b.site.tested) != tested {
				t.Errorf("the replay asked %v and tested %v", b.agents.Steps()[asked:], b.site.tested[tested:])
			}
		})
	}
}

// patterns are those of a result's faults.
func patterns(r Result) string {
	var all []string
	for _, f := range r.Faults {
		all = append(all, f.Pattern)
	}
	return strings.Join(all, " | ")
}

func TestFeedbackNamesWhatTheEngineAndQASaw(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaFail, qaPass}, "qa_synthesizer": {decide(Fix, "Mend the empty case."), decide(Approve, "Mended.")}}).flagged()
	b.site.outcome = func(commit string) evidence.Result {
		if commit == "base+issue-07" {
			return red
		}
		return green
	}
	if r := b.run(t); !r.Done() || r.Iterations != 2 {
		t.Fatalf("%+v", r)
	}
	second := b.prompts("coder")[1]
	for _, want := range []string{"Mend the empty case.", "`go test ./...` failed with exit code 1", "--- FAIL: TestX", "TestEmpty", "expected nothing, got a panic"} {
		wantIn(t, second, want)
	}
	wantIn(t, b.prompts("code_reviewer")[0], "diff base..base+issue-07")
	synth := b.prompts("qa_synthesizer")
	wantIn(t, synth[0], "One does not hold.")
	wantIn(t, synth[1], "Mend the empty case.") // the earlier feedback
}

// QA and the reviewer wait for each other here: one after the other would hang.
func TestQAWorksBesideTheReviewer(t *testing.T) {
	b := newBench(nil)
	var both sync.WaitGroup
	both.Add(2)
	dirs := make(chan string, 2)
	b.agents = agenttest.New(func(_ context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		switch c.Role {
		case "qa", "code_reviewer":
			dirs <- c.Role + " in " + c.Dir
			both.Done()
			both.Wait()
			if c.Role == "qa" {
				b.site.edit(c.Dir)
				return agenttest.JSON(qaPass.out), nil
			}
			return agenttest.JSON(approve.out), nil
		case "coder":
			b.site.edit(c.Dir)
			return agenttest.JSON(done.out), nil
		}
		return agenttest.JSON(decide(Approve, "Good.").out), nil
	})
	if r := b.flagged().run(t); !r.Done() {
		t.Fatalf("%+v", r)
	}
	where := []string{<-dirs, <-dirs}
	slices.Sort(where)
	if want := []string{"code_reviewer in issue-07", "qa in issue-07-qa-1"}; !slices.Equal(where, want) {
		t.Errorf("%v, want %v: neither may see the other's half-written tree", where, want)
	}
}

func TestWhatStopsTheBuildStopsTheLoop(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*agent.Crew)
		want   error
	}{
		"the provider refuses every call": {func(c *agent.Crew) {
			target := c.Target
			c.Target = func(role string) (agent.Target, error) {
				broke, err := target(role)
				broke.Runtime = agenttest.New(func(context.Context, runtime.Call, func(runtime.Event)) (runtime.Result, error) {
					return runtime.Result{}, &runtime.Error{Class: runtime.Fatal, Reason: "no credit"}
				})
				return broke, err
			}
		}, agent.ErrFatal},
		"the budget is gone": {func(c *agent.Crew) { c.Budget = &agent.Budget{Micros: 1, PerCall: 2} }, agent.ErrBudget},
		"the process drains": {func(c *agent.Crew) {
			closed := make(chan struct{})
			close(closed)
			c.Draining = closed
		}, agent.ErrDraining},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(script{"coder": {done}})
			crew := b.crew(t)
			c.change(crew)
			if _, err := Run(t.Context(), crew, b.site, b.task); !errors.Is(err, c.want) || len(b.log.Keys()) != 0 {
				t.Errorf("error %v, stored %v", err, b.log.Keys())
			}
		})
	}
}

// No role is too small to stop the build: a provider that refuses it refuses
// them all.
func TestAFatalErrorOfAnyRoleStopsTheLoop(t *testing.T) {
	fatal := answer{err: &runtime.Error{Class: runtime.Fatal, Reason: "no credit"}}
	for role, recorded := range map[string]int{"coder": 0, "retry_advisor": 1, "code_reviewer": 5, "qa_synthesizer": 6, "issue_advisor": 17} {
		t.Run(role, func(t *testing.T) {
			b := newBench(script{
				"coder": {gone, done}, "retry_advisor": {retry}, "code_reviewer": {refuse("no")}, "qa": {{out: qaPass.out}},
				"qa_synthesizer": {decide(Fix, "No.")}, "issue_advisor": {advice(Decision{Action: AcceptWithDebt})},
			}).flagged().advised(1)
			b.task.MaxIterations = 4
			b.script[role] = []answer{fatal}
			_, err := Run(t.Context(), b.crew(t), b.site, b.task)
			if !errors.Is(err, agent.ErrFatal) {
				t.Errorf("error %v, want %v", err, agent.ErrFatal)
			}
			if keys := b.log.Keys(); len(keys) != recorded {
				t.Errorf("%d records, want %d: %v", len(keys), recorded, keys)
			}
		})
	}
}

func TestACancelledBuildStopsTheLoop(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	agents := agenttest.New(func(context.Context, runtime.Call, func(runtime.Event)) (runtime.Result, error) {
		cancel(enough)
		return runtime.Result{}, ctx.Err()
	})
	b := newBench(nil)
	crew := agenttest.Crew(b.log.Open(t, step.Options{}), agents)
	if _, err := Run(ctx, crew, b.site, b.task); !errors.Is(err, enough) || len(b.log.Keys()) != 0 {
		t.Errorf("error %v, stored %v", err, b.log.Keys())
	}
}

func TestReviewsThatAreNoVerdictAreRepaired(t *testing.T) {
	for name, bad := range map[string]ReviewResult{
		"approved and blocking": {Approved: true, Blocking: true},
		"debt of no severity":   {Approved: true, DebtItems: []Shortfall{{Justification: "x"}}},
		"debt of unknown type":  {Approved: true, DebtItems: []Shortfall{{Type: "laziness", Severity: debt.Low, Justification: "x"}}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(script{"coder": {done}, "code_reviewer": {{out: bad}, approve}})
			if r := b.run(t); !r.Done() || len(r.Debt) != 0 {
				t.Errorf("%+v", r)
			}
			if steps := b.agents.Steps(); !slices.Contains(steps, "issue-07/round-1/iter-1/code_reviewer/repair-1") {
				t.Errorf("steps %v", steps)
			}
		})
	}
}
