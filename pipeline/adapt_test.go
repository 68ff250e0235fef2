package pipeline

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// fails makes issues that nothing can be done about: stubborn reviewers, and an
// Issue Advisor that gives up.
func (w *world) fails(names ...string) {
	w.when("code_reviewer", func(_ context.Context, c runtime.Call) (any, error) {
		if slices.Contains(names, w.nameOf(c.Step)) {
			return coding.ReviewResult{Summary: "not like this"}, nil
		}
		return nil, nil
	})
	for _, name := range names {
		w.advise(name, escalate)
	}
}

// twoGoals is a PRD whose second criterion may be given up.
func twoGoals(context.Context, runtime.Call) (any, error) {
	return plan.PRD{Title: "The thing", ValidatedDescription: "d", Size: plan.Trivial, AcceptanceCriteria: []plan.Criterion{
		{ID: "ac-1", Text: "the thing is done", MustHave: true}, {ID: "ac-2", Text: "the thing shines"},
	}}, nil
}

// owed is an item of debt that a build has to have.
type owed struct {
	kind        debt.Type
	issue, text string
}

const giveUp = "it cannot be done like this" // what escalate says

// What becomes of a, which failed, of b and c, which need it, of shine, which
// nobody must have, and of z, which has nothing to do with all that.
func TestTheReplannersDecisions(t *testing.T) {
	b := issue("b", nil, "a")
	b.AcceptanceCriteria = append(b.AcceptanceCriteria, graph.Criterion{Text: "b is fast", PRDIDs: []string{"ac-1"}})
	shine := issue("shine", nil, "b")
	shine.AcceptanceCriteria[0].PRDIDs = []string{"ac-2"}
	for name, c := range map[string]struct {
		conf     string
		decision *ReplanDecision // nil: the Replanner says this, or crashes
		says     string
		landed   []string
		skipped  []string
		told     []string // whose Coders hear of the failure
		asked    int
		owes     []owed
		note     string
	}{
		"continue, and b does without": {
			decision: &ReplanDecision{Action: Continue, Waived: []graph.Waiver{{IssueName: "b", DependsOn: "a"}}},
			landed:   []string{"b", "c", "shine", "z"}, told: []string{"b", "c", "shine"}, asked: 1,
			owes: []owed{{debt.FailedWork, "a", giveUp}}, note: "continue",
		},
		"continue without what needs it": {
			decision: &ReplanDecision{Action: Continue},
			landed:   []string{"z"}, skipped: []string{"b", "c", "shine"}, asked: 1,
			owes: []owed{{debt.SkippedWork, "b", giveUp}, {debt.SkippedWork, "c", giveUp}, {debt.SkippedWork, "shine", giveUp}}, note: "continue",
		},
		"remove and point elsewhere": {
			decision: &ReplanDecision{Action: ModifyDAG, RemovedIssueNames: []string{"b"}, UpdatedIssues: []IssueUpdate{
				{Name: "c", DependsOn: []string{"z"}}, {Name: "shine", DependsOn: []string{"c"}},
			}},
			landed: []string{"c", "shine", "z"}, skipped: []string{"b"}, told: []string{"c", "shine"}, asked: 1,
			owes: []owed{{debt.SkippedWork, "b", "removed by the Replanner"}}, note: "modify_dag; changed c, shine; removed b",
		},
		"fewer criteria": {
			says: `{"action":"modify_dag","rationale":"because","summary":"s","updated_issues":[
				{"name":"b","depends_on":[],"acceptance_criteria":[{"text":"b is done","prd_ids":["ac-1"]}]}]}`,
			landed: []string{"b", "c", "shine", "z"}, told: []string{"b", "c"}, asked: 1,
			owes: []owed{{debt.DroppedCriterion, "b", "b is fast"}}, note: "changed b",
		},
		"another way to do it": {
			decision: &ReplanDecision{Action: ModifyDAG, NewIssues: []graph.Issue{sub("a-by-hand")}, UpdatedIssues: []IssueUpdate{
				{Name: "b", DependsOn: []string{"a-by-hand"}},
			}},
			landed: []string{"a-by-hand", "b", "c", "shine", "z"}, told: []string{"a-by-hand", "b", "c"}, asked: 1,
			owes: []owed{{debt.FailedWork, "a", giveUp}}, note: "added a-by-hand; changed b",
		},
		"a smaller scope": {
			decision: &ReplanDecision{Action: ReduceScope, SkippedIssueNames: []string{"shine"}, Waived: []graph.Waiver{{IssueName: "b", DependsOn: "a"}}},
			landed:   []string{"b", "c", "z"}, skipped: []string{"shine"}, told: []string{"b"}, asked: 1,
			owes: []owed{{debt.SkippedWork, "shine", "skipped by the Replanner: because"}}, note: "reduce_scope; skipped shine",
		},
		"not worth going on": {
			decision: &ReplanDecision{Action: Abort},
			landed:   []string{"z"}, skipped: []string{"b", "c", "shine"}, asked: 1,
			owes: []owed{{debt.SkippedWork, "b", "gave the build up: because"}}, note: "abort",
		},
		"it crashes": {
			landed: []string{"z"}, skipped: []string{"b", "c", "shine"}, asked: 1,
			owes: []owed{{debt.SkippedWork, "b", giveUp}}, note: "continue (the Replanner gave no usable decision: it fell over)",
		},
		"switched off": {
			conf:   "pipeline: {enable_replanning: false}",
			landed: []string{"z"}, skipped: []string{"b", "c", "shine"},
			owes: []owed{{debt.SkippedWork, "b", giveUp}}, note: "continue (the Replanner was not asked)",
		},
		"none left": {
			conf:   "pipeline: {max_replans: 0}",
			landed: []string{"z"}, skipped: []string{"b", "c", "shine"},
			owes: []owed{{debt.SkippedWork, "c", giveUp}}, note: "continue (the Replanner was not asked)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil, "z"), b, issue("c", nil, "b"), shine, issue("z", nil))
			w.configure(c.conf)
			w.checks("true")
			w.when("pm", twoGoals)
			w.when("verifier", func(context.Context, runtime.Call) (any, error) {
				return Judgement{Summary: "s", CriteriaResults: []CriterionResult{judged("ac-1", true), judged("ac-2", true)}}, nil
			})
			w.fails("a")
			w.when("replan", func(context.Context, runtime.Call) (any, error) {
				if c.says != "" {
					return json.RawMessage(c.says), nil
				}
				return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
			})
			if c.decision != nil {
				w.replans(*c.decision)
			}
			final := w.must(report.SucceededWithDebt)
			for _, is := range final.Issues {
				want := report.FailedEscalated
				switch {
				case slices.Contains(c.landed, is.Name):
					want = report.Completed
				case slices.Contains(c.skipped, is.Name):
					want = report.Skipped
				}
				if is.Outcome != want || (w.file(final, is.Name+".txt") != "") != (want == report.Completed) {
					t.Errorf("%s is %s (%s), want %s", is.Name, is.Outcome, is.Detail, want)
				}
			}
			if len(final.Issues) < len(c.landed)+len(c.skipped)+1 {
				t.Errorf("issues %v", final.Issues)
			}
			for _, name := range append([]string{"z"}, c.landed...) {
				told := slices.ContainsFunc(w.prompts("coder", name), func(p string) bool { return strings.Contains(p, giveUp) })
				if want := slices.Contains(c.told, name); name == "z" && told || want && !told {
					t.Errorf("the Coder of %s is told of the failure: %v", name, told)
				}
			}
			for _, o := range c.owes {
				w.owes(final, o.kind, o.issue, o.text)
			}
			if n := w.asked("replan"); n != c.asked {
				t.Errorf("the Replanner was asked %d times, want %d", n, c.asked)
			}
			if !slices.ContainsFunc(final.Notes, func(n string) bool { return strings.Contains(n, c.note) }) {
				t.Errorf("no note says %q: %q", c.note, final.Notes)
			}
			w.startedOnWhatHadLanded()
			w.onlyTested()
		})
	}
}

// startedOnWhatHadLanded wants each issue to have begun on the integration
// branch as it was then.
func (w *world) startedOnWhatHadLanded() {
	w.t.Helper()
	entries, err := w.log.Entries(w.t.Context(), "job", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	var pin pinned
	head := ""
	for _, e := range entries {
		key, _ := cutSegment(e.Key)
		var s started
		var a advanced
		switch {
		case key == keyPin:
			err = json.Unmarshal(e.Outcome, &pin)
			head = pin.BaseSHA
		case strings.HasPrefix(key, "start/"):
			if err = json.Unmarshal(e.Outcome, &s); s.Base != head {
				w.t.Errorf("%s begins on %.8s, the integration branch is %.8s", e.Key, s.Base, head)
			}
		case strings.HasPrefix(key, "land/") && strings.HasSuffix(key, "/advanced"):
			err = json.Unmarshal(e.Outcome, &a)
			head = a.Head
		}
		if err != nil {
			w.t.Fatalf("%s: %v", e.Key, err)
		}
	}
}

func TestTheNextReplannerSeesWhatWasDecided(t *testing.T) {
	w := newWorld(t, issue("a", nil, "z"), issue("b", nil, "a"), issue("z", nil))
	w.fails("a", "a-again")
	w.when("code_reviewer", func(_ context.Context, c runtime.Call) (any, error) {
		if w.nameOf(c.Step) == "z" {
			return coding.ReviewResult{Approved: true, Summary: "good", DebtItems: []coding.Shortfall{{Severity: debt.Low, Justification: "z is slow"}}}, nil
		}
		return nil, nil
	})
	w.replans(
		ReplanDecision{Action: ModifyDAG, NewIssues: []graph.Issue{sub("a-again")}, UpdatedIssues: []IssueUpdate{{Name: "b", DependsOn: []string{"a-again"}}}},
		ReplanDecision{Action: Continue},
	)
	b := w.must(report.SucceededWithDebt)
	prompts := w.prompts("replan", "")
	if len(prompts) != 2 {
		t.Fatalf("the Replanner was asked %d times", len(prompts))
	}
	for _, want := range []string{`<data name="earlier decisions">`, "z is slow", giveUp, "This is the last time"} {
		if !strings.Contains(prompts[1], want) {
			t.Errorf("the second prompt does not say %q", want)
		}
	}
	if strings.Contains(prompts[0], "earlier decisions") || !strings.Contains(prompts[0], "z is slow") || !strings.Contains(prompts[0], "You may be asked 1 more time.") {
		t.Errorf("the first prompt:\n%s", prompts[0])
	}
	w.owes(b, debt.SkippedWork, "b", "a-again, which did not land")
}

// While the Replanner is asked about a, q goes on and lands; p, which q lets
// start, does not. r ends later than q: its landing is chosen by a conductor
// that has seen q land.
func TestNothingPendingStartsWhileTheReplannerIsAsked(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("p", nil, "q"), issue("q", nil), issue("r", nil))
	w.fails("a")
	chosen, first, second := w.until("replan-1"), w.until("land/0001/advanced"), w.until("land/0002")
	w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
		switch w.nameOf(c.Step) {
		case "q":
			return nil, await(ctx, chosen)
		case "r":
			return nil, await(ctx, first)
		}
		return nil, nil
	})
	w.when("replan", func(ctx context.Context, _ runtime.Call) (any, error) {
		return ReplanDecision{Action: Continue, Rationale: "r", Summary: "s"}, await(ctx, second)
	})
	b := w.must(report.SucceededWithDebt)
	keys := w.log.Keys()
	p := w.outcome(b, "p")
	if p.Outcome != report.Completed || slices.Index(keys, "start/issue-04") < slices.Index(keys, "replan-1/kept") {
		t.Errorf("p is number %d, %s; steps %v", p.Number, p.Outcome, keys)
	}
}

// What is split while the Replanner is asked is split afterwards: the decision
// is about the graph that the Replanner was shown.
func TestNothingIsSplitWhileTheReplannerIsAsked(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("x", nil), issue("y", nil, "a"))
	w.fails("a", "x")
	w.advise("x", coding.Decision{Action: coding.Split, SubIssues: []graph.Issue{sub("x-one"), sub("x-two")}, SplitRationale: "two things"})
	chosen, ended := w.until("replan-1"), w.until("issue-02/kept")
	w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
		if w.nameOf(c.Step) == "x" {
			return nil, await(ctx, chosen)
		}
		return nil, nil
	})
	w.when("replan", func(ctx context.Context, _ runtime.Call) (any, error) {
		return ReplanDecision{Action: ModifyDAG, Rationale: "r", Summary: "s", UpdatedIssues: []IssueUpdate{{Name: "y", DependsOn: []string{"x"}}}}, await(ctx, ended)
	})
	b := w.must(report.SucceededWithDebt)
	if n := w.asked("replan"); n != 1 {
		t.Errorf("the Replanner was asked %d times", n)
	}
	if y := w.outcome(b, "y"); y.Outcome != report.Completed || !slices.Equal(y.DependsOn, []string{"x-one", "x-two"}) {
		t.Errorf("y is %s and depends on %v", y.Outcome, y.DependsOn)
	}
	if keys := w.log.Keys(); slices.Index(keys, "split/issue-02") < slices.Index(keys, "replan-1/kept") {
		t.Errorf("x was split meanwhile: %v", keys)
	}
}

// A decision that was possible when it was made may be impossible when it is
// recorded: what ran meanwhile has failed. The rest goes on then.
func TestADecisionThatTimeOvertook(t *testing.T) {
	w, _ := manyIssues(t, 3)
	failed := coding.Result{Outcome: report.FailedEscalated, Cause: giveUp, Commit: strings.Repeat("b", 40)}
	w.add(keyStart("issue-01"), started{})
	w.add(keyStart("issue-02"), started{})
	w.add(keyKept("issue-01"), kept{Name: "part-0000", Result: failed})
	w.add(keyReplan(1), replanning{Failed: []string{"part-0000"}, Asked: true})
	decision := ReplanDecision{Action: ModifyDAG, UpdatedIssues: []IssueUpdate{{Name: "part-0002", DependsOn: []string{"part-0001"}}}}
	if problems := w.fold.impossible(decision); len(problems) > 0 {
		t.Fatal(problems)
	}
	w.add(keyKept("issue-02"), kept{Name: "part-0001", Result: failed})
	w.add(keySettled(keyReplan(1)), replanned{Failed: []string{"part-0000"}, Decision: decision})
	start, _ := w.fold.frontier()
	if next := w.fold.work(); next.replan != "" || len(start) != 1 || start[0].Name != "part-0002" || !slices.Equal(next.failed, []string{"part-0001"}) {
		t.Errorf("what comes next: %+v", next)
	}
	if notes := w.fold.Report(w.at).Notes; len(notes) != 1 || !strings.Contains(notes[0], "continue") || !strings.Contains(notes[0], "could not be carried out") {
		t.Errorf("notes %q", notes)
	}
}

func TestSplitsThatCannotBe(t *testing.T) {
	parts := func(names ...string) coding.Decision {
		d := coding.Decision{Action: coding.Split, SplitRationale: "two things"}
		for _, name := range names {
			d.SubIssues = append(d.SubIssues, sub(name))
		}
		return d
	}
	for name, c := range map[string]struct {
		conf     string
		advice   map[string]coding.Decision
		lost     string // the issue that is escalated
		why      string
		landed   []string
		advisors int
	}{
		"no more splits": {
			conf:   "pipeline: {max_splits: 1}\nlimits: {max_parallel_issues: 1}",
			advice: map[string]coding.Decision{"a": parts("a-one", "a-two"), "b": parts("b-one", "b-two")},
			lost:   "b", why: "1 issues were split already, which is the limit", landed: []string{"a-one", "a-two"}, advisors: 2,
		},
		"a part of a part": {
			advice: map[string]coding.Decision{"a": parts("a-one", "a-two"), "a-one": parts("a-one-one", "a-one-two")},
			lost:   "a-one", why: "this issue cannot be split", landed: []string{"a-two", "b"}, advisors: 4, // one, and one with two repairs
		},
		"a name that is taken": {
			advice: map[string]coding.Decision{"a": parts("a-one", "b")},
			lost:   "a", why: "the name was used before", landed: []string{"b"}, advisors: 1,
		},
		"switched off": {
			conf:   "pipeline: {max_splits: 0}",
			advice: map[string]coding.Decision{"a": parts("a-one", "a-two")},
			lost:   "a", why: "this issue cannot be split", landed: []string{"b"}, advisors: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil), issue("b", nil))
			w.configure(c.conf)
			for name, d := range c.advice {
				w.fails(name)
				w.advise(name, d)
			}
			w.replans(ReplanDecision{Action: Continue})
			b := w.must(report.SucceededWithDebt)
			if got := w.outcome(b, c.lost); got.Outcome != report.FailedEscalated || !strings.Contains(got.Detail, c.why) {
				t.Errorf("%s is %s: %s", c.lost, got.Outcome, got.Detail)
			}
			w.owes(b, debt.FailedWork, c.lost, c.why)
			for _, name := range c.landed {
				if w.file(b, name+".txt") == "" {
					t.Errorf("%s did not land", name)
				}
			}
			if n := w.asked("issue_advisor"); n != c.advisors {
				t.Errorf("the Issue Advisor was asked %d times, want %d", n, c.advisors)
			}
			if n := w.asked("replan"); n != 1 || !strings.Contains(w.prompts("replan", "")[0], c.why) {
				t.Errorf("the Replanner was asked %d times", n)
			}
		})
	}
}
