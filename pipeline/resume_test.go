package pipeline

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// ending makes the first Coder of b end the build so; a has landed then.
type ending struct {
	state report.State
	cause string
	play  func(ctx context.Context, w *world) (any, error)
}

var endings = map[string]ending{
	"cancelled": {report.Canceled, "cancelled by mira", func(ctx context.Context, w *world) (any, error) {
		w.signals <- Signal{ID: "cancel-" + w.segment(), Kind: CancelSignal, Body: []byte(`{"by":{"login":"mira"}}`)}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}},
	"needs a person": {report.NeedsHuman, "no credit", func(context.Context, *world) (any, error) {
		return nil, &runtime.Error{Class: runtime.Fatal, Reason: "402: no credit"}
	}},
	"timed out": {report.TimedOut, "limit of", func(ctx context.Context, _ *world) (any, error) {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}},
	"with debt": {report.SucceededWithDebt, "", func(context.Context, *world) (any, error) {
		return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
	}},
}

func (w *world) segment() string { return fmt.Sprint(w.fold().segment) }

// endsIn is a build of a, and of b after it, which ends so as long as b's
// Coder is asked in one of the segments.
func endsIn(t *testing.T, how string, segments ...string) *world {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	w.configure("pipeline: {max_coding_iterations: 1, enable_issue_advisor: false, enable_replanning: false, enable_review: false}")
	w.checks("true")
	w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
		if w.nameOf(c.Step) == "b" && slices.Contains(segments, w.segment()) {
			return endings[how].play(ctx, w)
		}
		return nil, nil
	})
	return w
}

// late stops the claim when b is about to begin, and leaves the next one three
// seconds of the build's time.
func (w *world) late() {
	w.t.Helper()
	w.killedBefore("start/issue-02")
	w.engine.Defaults.Limits.BuildTimeout = time.Since(w.fold().since) + 3*time.Second
}

// What landed stays and nothing of it is asked again; what ended badly is tried
// anew on the same branch; the account is of both.
func TestResumeOfAnEndedBuild(t *testing.T) {
	for how, end := range endings {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := endsIn(t, how, "1")
			limit := w.engine.Defaults.Limits.BuildTimeout
			if how == "timed out" {
				w.late()
			}
			first := w.must(end.state)
			if !strings.Contains(first.Cause, end.cause) || w.file(first, "a.txt") == "" || w.outcome(first, "b").Merge != "" {
				t.Fatalf("cause %q, issues %+v", first.Cause, first.Issues)
			}
			if end.cause != "" && first.Next == "" {
				t.Error("nothing says what to type next")
			}
			if len(first.Debt) == 0 {
				t.Error("what is missing is no debt")
			}
			keys, asked := w.log.Keys(), len(w.agents.Steps())
			if again := w.must(end.state); again.Head != first.Head || len(w.log.Keys()) != len(keys) {
				t.Errorf("an ended build goes on by itself: %v", w.log.Keys()[len(keys):])
			}
			w.engine.Defaults.Limits.BuildTimeout = limit
			w.say("r-1", ResumeSignal, Said{By: forge.Person{Login: "mira"}})
			w.before = append(w.before, w.before[0]) // delivered twice
			second := w.must(report.Succeeded)
			if second.Branch != first.Branch || len(second.Debt) != 0 || !second.Success {
				t.Errorf("branch %s, was %s; debt %v", second.Branch, first.Branch, second.Debt)
			}
			for _, name := range []string{"a", "b"} {
				if w.file(second, name+".txt") == "" || w.outcome(second, name).Outcome != report.Completed {
					t.Errorf("%s is %+v", name, w.outcome(second, name))
				}
			}
			w.git("merge-base", "--is-ancestor", first.Head, second.Head) // fails the test where it is none
			for _, s := range w.agents.Steps()[asked:] {
				if !strings.HasPrefix(s, "g2/") || slices.Contains(keys, strings.TrimPrefix(s, "g2/")) && w.nameOf(s) == "a" {
					t.Errorf("%s was asked", s)
				}
			}
			if second.AgentCalls <= first.AgentCalls || w.outcome(second, "a").Merge != w.outcome(first, "a").Merge {
				t.Errorf("%d calls, %d before", second.AgentCalls, first.AgentCalls)
			}
			keys = w.log.Keys()
			if w.must(report.Succeeded); len(w.log.Keys()) != len(keys) || w.segment() != "2" {
				t.Errorf("the resume that is delivered again is heard again: %v", w.log.Keys()[len(keys):])
			}
			w.onlyTested()
		})
	}
}

func TestASecondResumeIsAnotherSegment(t *testing.T) {
	w := endsIn(t, "cancelled", "1", "2")
	w.must(report.Canceled)
	w.say("r-1", ResumeSignal, Said{})
	w.must(report.Canceled)
	w.say("r-2", ResumeSignal, Said{})
	b := w.must(report.Succeeded)
	coders := 0
	for _, s := range w.agents.Steps() {
		if strings.HasSuffix(s, "issue-02/round-1/iter-1/coder") {
			coders++
		}
	}
	if w.segment() != "3" || coders != 3 || w.file(b, "b.txt") == "" {
		t.Errorf("segment %s, b's Coder was asked %d times", w.segment(), coders)
	}
}

// A build of which nothing landed keeps its plan.
func TestResumeOfABuildOfWhichNothingLanded(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.configure("pipeline: {enable_issue_advisor: false, enable_replanning: false}")
	w.when("coder", func(_ context.Context, c runtime.Call) (any, error) {
		if !strings.HasPrefix(c.Step, "g2/") {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
		}
		return nil, nil
	})
	first := w.must(report.Failed)
	if first.Branch != "" || first.Next == "" {
		t.Errorf("branch %q, next %q", first.Branch, first.Next)
	}
	w.say("r-1", ResumeSignal, Said{})
	b := w.must(report.Succeeded)
	if w.file(b, "a.txt") == "" || w.asked("sprint_planner") != 1 || w.asked("pm") != 1 {
		t.Errorf("steps %v", w.agents.Steps())
	}
}

// A resume of what needs none looks again and changes nothing.
func TestResumeOfABuildThatSucceeded(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	first := w.must(report.Succeeded)
	coders := w.asked("coder")
	w.say("r-1", ResumeSignal, Said{})
	second := w.must(report.Succeeded)
	if second.Head != first.Head || second.Branch != first.Branch || w.asked("coder") != coders || !second.Success {
		t.Errorf("head %s on %s, was %s on %s", second.Head, second.Branch, first.Head, first.Branch)
	}
	if branches := w.git("branch", "--list", "slipway/*"); strings.Count(branches, "slipway/") != 1 {
		t.Errorf("branches:\n%s", branches)
	}
}

// What the calls of the first segment cost says nothing new about a plan that
// passed: a resume comes to no gate of its own.
func TestResumeIsNotAskedAboutTheBudget(t *testing.T) {
	w := endsIn(t, "needs a person", "1")
	w.configure("pipeline: {enable_review: false}\nlimits: {usd_per_build: 0.52, usd_per_call: 0.05}")
	w.issues[1].Guidance.NeedsDeeperQA = true // so that the plan seems to take more calls than it does
	w.when("qa", func(context.Context, runtime.Call) (any, error) {
		return coding.QAResult{Passed: true, Summary: "good"}, nil
	})
	w.when("qa_synthesizer", func(context.Context, runtime.Call) (any, error) {
		return coding.Synthesis{Action: coding.Approve, Summary: "good"}, nil
	})
	w.priced(func(c runtime.Call) int64 {
		if c.Step == "issue-01/round-1/iter-1/coder" {
			return 250_000
		}
		return 10
	})
	w.must(report.NeedsHuman)
	w.say("r-1", ResumeSignal, Said{})
	w.must(report.Succeeded)
}

// Killed around every append of the second segment, the build ends the same.
func TestLostLeaseAtEveryStepOfAResume(t *testing.T) {
	resumed := func(t *testing.T) *world {
		w := endsIn(t, "needs a person", "1")
		w.must(report.NeedsHuman)
		w.say("r-1", ResumeSignal, Said{})
		return w
	}
	undisturbed := resumed(t)
	before := len(undisturbed.log.Keys())
	whole := undisturbed.must(report.Succeeded)
	tree := undisturbed.git("rev-parse", whole.Branch+"^{tree}")
	for _, key := range undisturbed.log.Keys()[before:] {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := resumed(t)
			w.killedBefore(key)
			b := w.must(report.Succeeded)
			if got := w.git("rev-parse", b.Branch+"^{tree}"); got != tree || b.Branch != whole.Branch {
				t.Errorf("the tree on %s is %s, want %s", b.Branch, got, tree)
			}
			if w.segment() != "2" || len(b.Debt) != 0 {
				t.Errorf("segment %s, debt %v", w.segment(), b.Debt)
			}
		})
	}
}

// commitInKey is what of a key differs between two runs.
var commitInKey = regexp.MustCompile(`[0-9a-f]{12}`)

// killedBefore runs the build until it would append the entry, and wants no call
// that was recorded to be asked by whoever goes on.
func (w *world) killedBefore(key string) {
	w.t.Helper()
	dead, hear := false, w.log.Refuse
	w.log.Refuse = func(ctx context.Context, e queue.Entry) error {
		var err error
		if hear != nil {
			err = hear(ctx, e)
		}
		if dead = dead || commitInKey.ReplaceAllString(e.Key, "") == commitInKey.ReplaceAllString(key, ""); dead {
			return queue.ErrLost
		}
		return err
	}
	if _, err := w.run(); !errors.Is(err, queue.ErrLost) {
		w.t.Fatalf("%v, want ErrLost", err)
	}
	w.log.Refuse = hear
	known, asked := w.log.Keys(), len(w.agents.Steps())
	w.t.Cleanup(func() {
		for _, again := range w.agents.Steps()[asked:] {
			if slices.Contains(known, again) {
				w.t.Errorf("%s was asked again", again)
			}
		}
	})
}

// A landing that a cancel cut off leaves nothing behind. What was finished lands
// after a resume without being coded again.
func TestCancelDuringALanding(t *testing.T) {
	w := newWorld(t, issue("a", []string{"list"}), issue("b", []string{"list"}))
	w.checks("true")
	w.write("list", "top\n")
	w.commit()
	w.code["a"], w.code["b"] = appendTo("list", "from a"), appendTo("list", "from b")
	w.when("merger", func(ctx context.Context, c runtime.Call) (any, error) {
		if w.segment() == "2" {
			return merged(c.Dir, "list", "top\nfrom a\nfrom b\n")
		}
		w.signals <- Signal{ID: "s", Kind: CancelSignal, Body: []byte(`{}`)}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	first := w.must(report.Canceled)
	landed, left := w.outcome(first, "a"), w.outcome(first, "b")
	if landed.Merge == "" {
		landed, left = left, landed
	}
	if landed.Merge == "" || left.Merge != "" || left.Outcome != report.Skipped || w.ref(left.Ref) != left.Commit {
		t.Fatalf("landed %+v, not landed %+v", landed, left)
	}
	w.owes(first, debt.SkippedWork, left.Name, "the build stopped before it landed")
	coders := w.asked("coder")
	w.say("r-1", ResumeSignal, Said{})
	b := w.must(report.Succeeded)
	if got := w.file(b, "list"); got != "top\nfrom a\nfrom b\n" || len(b.Debt) != 0 {
		t.Errorf("list is %q, debt %v", got, b.Debt)
	}
	if n := w.asked("coder"); n != coders {
		t.Errorf("%d Coders were asked for what was finished", n-coders)
	}
	w.onlyTested()
}

func TestCancelDuringTheVerification(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.configure("pipeline: {enable_review: false}")
	w.when("verifier", func(ctx context.Context, _ runtime.Call) (any, error) {
		if w.segment() == "2" {
			return nil, nil
		}
		w.signals <- Signal{ID: "s", Kind: CancelSignal, Body: []byte(`{}`)}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	first := w.must(report.Canceled)
	if w.file(first, "a.txt") == "" || first.Success || w.asked("git") != 0 {
		t.Errorf("the cancelled build: %+v", first)
	}
	w.owes(first, debt.UnverifiedCriteria, "a", "the build stopped before it was verified: cancelled")
	w.say("r-1", ResumeSignal, Said{})
	if b := w.must(report.Succeeded); len(b.Debt) != 0 || b.Head != first.Head {
		t.Errorf("debt %v", b.Debt)
	}
}

// What the Replanner gave up stays given up; what a failure took with it is
// tried again.
func TestResumeKeepsTheReplannersDecisions(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"), issue("c", nil), issue("d", nil, "c"))
	w.configure("pipeline: {enable_review: false}")
	w.fails("a")
	w.when("code_reviewer", func(context.Context, runtime.Call) (any, error) {
		if w.segment() == "2" {
			return coding.ReviewResult{Approved: true, Summary: "good"}, nil
		}
		return nil, nil
	})
	hold := w.until("replan-1")
	w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
		if w.nameOf(c.Step) == "c" {
			return nil, await(ctx, hold) // d is pending when the Replanner decides
		}
		return nil, nil
	})
	w.replans(ReplanDecision{Action: ModifyDAG, SkippedIssueNames: []string{"d"}})
	first := w.must(report.SucceededWithDebt)
	w.owes(first, debt.SkippedWork, "d", "skipped by the Replanner")
	w.owes(first, debt.SkippedWork, "b", "it depends on a")
	w.say("r-1", ResumeSignal, Said{})
	b := w.must(report.SucceededWithDebt)
	if w.file(b, "a.txt") == "" || w.file(b, "b.txt") == "" || w.file(b, "d.txt") != "" || len(b.Debt) != 1 {
		t.Errorf("debt %+v", b.Debt)
	}
	w.owes(b, debt.SkippedWork, "d", "skipped by the Replanner")
}
