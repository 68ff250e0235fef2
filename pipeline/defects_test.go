package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// Each test here is named after a defect that published systems of this kind
// have, and fails when this one has it too.

// stubborn makes an issue's reviewer ask for changes for ever.
func (w *world) stubborn(names ...string) {
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" && slices.Contains(names, w.nameOf(c.Step)) {
			w.reviews++
			return coding.ReviewResult{Summary: "not like this: " + strings.Repeat("x", w.reviews)}, nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// advise makes the Issue Advisor decide so about an issue, one decision after
// the other.
func (w *world) advise(name string, decisions ...coding.Decision) {
	before := w.answer
	asked := 0
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "issue_advisor" && w.nameOf(c.Step) == name {
			d := decisions[min(asked, len(decisions)-1)]
			asked++
			d.FailureDiagnosis, d.FailureCategory, d.Rationale, d.Summary = "it is hard", "approach", "because", "s"
			return d, nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// replans makes the Replanner decide so, one decision after the other.
func (w *world) replans(decisions ...ReplanDecision) {
	before := w.answer
	asked := 0
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "replan" {
			d := decisions[min(asked, len(decisions)-1)]
			asked++
			d.Rationale, d.Summary = "because", "s"
			return d, nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// escalate is the advice that an issue be given up.
var escalate = coding.Decision{Action: coding.EscalateToReplan, EscalationReason: "it cannot be done like this"}

// sub is a sub-issue, or one that a replan or a fix adds.
func sub(name string, after ...string) graph.Issue {
	is := issue(name, nil, after...)
	is.Guidance.RiskRationale = "small"
	return is
}

func TestDefectSplitSubIssuesNeverRun(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	w.stubborn("a")
	w.advise("a", coding.Decision{Action: coding.Split, SubIssues: []graph.Issue{sub("a-one"), sub("a-two", "a-one")}, SplitRationale: "two things"})
	b := w.must(report.Succeeded)
	for _, name := range []string{"a-one", "a-two", "b"} {
		if w.file(b, name+".txt") == "" {
			t.Errorf("%s did not land", name)
		}
	}
	if got := w.outcome(b, "a"); got.Outcome != report.FailedNeedsSplit || w.file(b, "a.txt") != "" {
		t.Errorf("a is %s", got.Outcome)
	}
	if got := w.outcome(b, "b"); !slices.Equal(got.DependsOn, []string{"a-one", "a-two"}) {
		t.Errorf("b depends on %v", got.DependsOn)
	}
	one := w.outcome(b, "a-one")
	if one.Number != 3 || one.ParentName != "a" {
		t.Errorf("a-one: %+v", one)
	}
	if kept := w.outcome(b, "a"); w.ref(kept.Ref) != kept.Commit {
		t.Error("what was tried before the split is not kept")
	}
}

func TestDefectRetryContinuesASpentCounter(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\npipeline: {max_coding_iterations: 2}\n")
	w.commit()
	w.advise("a", coding.Decision{Action: coding.RetryApproach, NewApproach: "do it upside down"})
	reviews := 0
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" {
			reviews++
			return coding.ReviewResult{Approved: reviews == 4, Summary: "no " + strings.Repeat("x", reviews)}, nil
		}
		return before(ctx, c)
	}
	b := w.must(report.Succeeded)
	if got := w.outcome(b, "a"); got.Iterations != 4 {
		t.Errorf("%d iterations, want two rounds of two", got.Iterations)
	}
}

func TestDefectBlockedCodeIsMerged(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.advise("a", coding.Decision{Action: coding.AcceptWithDebt, DebtSeverity: "low"})
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" && w.nameOf(c.Step) == "a" {
			return coding.ReviewResult{Blocking: true, Summary: "it loses data"}, nil
		}
		return before(ctx, c)
	}
	w.replans(ReplanDecision{Action: Continue})
	b := w.must(report.SucceededWithDebt)
	if w.file(b, "a.txt") != "" {
		t.Error("what was blocked is on the branch")
	}
	if got := w.outcome(b, "a"); got.Outcome != report.FailedEscalated {
		t.Errorf("a is %s", got.Outcome)
	}
	w.owes(b, debt.FailedWork, "a", "")
}

func TestDefectGuidanceIsMissingFromThePrompt(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.advise("a", coding.Decision{Action: coding.RetryApproach, NewApproach: "walk the tree from the leaves"})
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" {
			return coding.ReviewResult{Approved: strings.Contains(c.Step, "/round-2/iter-2/"), Summary: "no " + c.Step}, nil
		}
		return before(ctx, c)
	}
	w.must(report.Succeeded)
	prompts := w.prompts("coder", "a")
	for i, p := range prompts[len(prompts)-2:] {
		if !strings.Contains(p, "walk the tree from the leaves") {
			t.Errorf("iteration %d of the second round is not told the new approach", i+1)
		}
	}
}

func TestDefectAcceptanceWithoutDebt(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.stubborn("a")
	w.advise("a", coding.Decision{Action: coding.AcceptWithDebt, MissingFunctionality: []coding.Shortfall{
		{Type: debt.MissingFeature, Severity: debt.Medium, Justification: "the third case is not handled"},
	}})
	b := w.must(report.SucceededWithDebt)
	if w.file(b, "a.txt") == "" || w.outcome(b, "a").Outcome != report.CompletedWithDebt {
		t.Errorf("a is %+v", w.outcome(b, "a"))
	}
	w.owes(b, debt.MissingFeature, "a", "the third case is not handled")
}

func TestDefectRelaxedCriteriaAreReportedAsCompleted(t *testing.T) {
	a := issue("a", nil)
	a.AcceptanceCriteria = append(a.AcceptanceCriteria, graph.Criterion{Text: "a is fast", PRDIDs: []string{"ac-1"}})
	w := newWorld(t, a)
	w.advise("a", coding.Decision{
		Action: coding.RetryModified, ModifiedCriteria: a.AcceptanceCriteria[:1], DroppedCriteria: []string{"a is fast"},
		ModificationJustification: "nobody measured it",
	})
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" {
			return coding.ReviewResult{Approved: strings.Contains(c.Step, "/round-2/"), Summary: "no " + c.Step}, nil
		}
		return before(ctx, c)
	}
	b := w.must(report.SucceededWithDebt)
	got := w.outcome(b, "a")
	if got.Outcome != report.CompletedWithDebt || !slices.Equal(got.Criteria, []string{"a is done"}) {
		t.Errorf("a: %+v", got)
	}
	w.owes(b, debt.DroppedCriterion, "a", "a is fast")
	prompts := w.prompts("coder", "a")
	_, criteria, _ := strings.Cut(prompts[len(prompts)-1], `<data name="acceptance criteria">`)
	if criteria, _, _ = strings.Cut(criteria, "</data>"); !strings.Contains(criteria, "a is done") || strings.Contains(criteria, "a is fast") {
		t.Errorf("the Coder is asked for %s", criteria)
	}
}

func TestDefectDebtNotesDoNotReachCoders(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"), issue("c", nil, "b"))
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" && w.nameOf(c.Step) == "a" {
			return coding.ReviewResult{Approved: true, Summary: "good enough", DebtItems: []coding.Shortfall{
				{Severity: debt.Low, Justification: "the empty case is left out"},
			}}, nil
		}
		if c.Role == "code_reviewer" {
			return coding.ReviewResult{Approved: strings.Contains(c.Step, "/iter-2/"), Summary: "no " + c.Step}, nil
		}
		return nil, nil
	}
	w.must(report.SucceededWithDebt)
	for _, name := range []string{"b", "c"} { // c depends on a by way of b
		for i, p := range w.prompts("coder", name) {
			if !strings.Contains(p, "the empty case is left out") {
				t.Errorf("the Coder of %s is not told at iteration %d", name, i+1)
			}
		}
	}
}

func TestDefectNotesGoToIssuesThatAreThenSkipped(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"), issue("c", nil, "b"))
	w.stubborn("a")
	w.advise("a", escalate)
	w.replans(ReplanDecision{
		Action: ModifyDAG, SkippedIssueNames: []string{"b"}, NewIssues: []graph.Issue{sub("b-by-hand")},
		UpdatedIssues: []IssueUpdate{{Name: "c", DependsOn: []string{"b-by-hand"}}},
	})
	b := w.must(report.SucceededWithDebt)
	for _, name := range []string{"b-by-hand", "c"} {
		prompts := w.prompts("coder", name)
		if len(prompts) == 0 || !strings.Contains(prompts[0], "it cannot be done like this") {
			t.Errorf("the Coder of %s, which took a dependent's place, is not told of the failure", name)
		}
	}
	w.owes(b, debt.SkippedWork, "b", "")
}

func TestDefectFatalErrorIsSwallowed(t *testing.T) {
	for _, role := range []string{"coder", "code_reviewer", "issue_advisor", "replan", "verifier", "integration_tester"} {
		t.Run(role, func(t *testing.T) {
			a, b := issue("a", nil), issue("b", nil)
			a.Guidance.TouchesInterfaces, b.Guidance.TouchesInterfaces = true, true
			w := newWorld(t, a, b)
			if role == "issue_advisor" || role == "replan" {
				w.stubborn("a")
			}
			if role == "replan" {
				w.advise("a", escalate)
			}
			before := w.answer
			w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
				if c.Role == role {
					return nil, &runtime.Error{Class: runtime.Fatal, Reason: "402: no credit"}
				}
				if before != nil {
					return before(ctx, c)
				}
				return nil, nil
			}
			final, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case role == "verifier": // what landed is published, unverified
				if final.Success || !strings.Contains(final.Verification.Criteria[0].Evidence, "402: no credit") {
					t.Errorf("%s, success %v, %+v", final.State, final.Success, final.Verification)
				}
			case final.State != report.NeedsHuman || !strings.Contains(final.Cause, "402: no credit"):
				t.Errorf("%s: %s", final.State, final.Cause)
			}
		})
	}
}

func TestDefectReplanAddsAFailedNameOrAGhost(t *testing.T) {
	for name, bad := range map[string]ReplanDecision{
		"the failed name again":    {Action: ModifyDAG, NewIssues: []graph.Issue{sub("a")}},
		"a ghost dependency":       {Action: ModifyDAG, NewIssues: []graph.Issue{sub("d", "nobody")}},
		"a circle":                 {Action: ModifyDAG, NewIssues: []graph.Issue{sub("d", "e"), sub("e", "d")}},
		"a dependent left hanging": {Action: ModifyDAG, RemovedIssueNames: []string{"b"}},
		"what has landed":          {Action: ModifyDAG, SkippedIssueNames: []string{"z"}},
		"scope that must be":       {Action: ReduceScope, SkippedIssueNames: []string{"c", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, issue("a", nil, "z"), issue("b", nil, "a"), issue("c", nil, "b"), issue("z", nil))
			w.stubborn("a")
			w.advise("a", escalate)
			w.replans(bad)
			b := w.must(report.SucceededWithDebt)
			if n := w.asked("replan"); n != 2 {
				t.Errorf("the Replanner was asked %d times, want once and one repair", n)
			}
			for _, name := range []string{"b", "c"} {
				if got := w.outcome(b, name); got.Outcome != report.Skipped {
					t.Errorf("%s is %s", name, got.Outcome)
				}
				w.owes(b, debt.SkippedWork, name, "did not land")
			}
			if len(b.Issues) != 4 {
				t.Errorf("%d issues", len(b.Issues))
			}
		})
	}
}

func TestDefectReviewerFailsOpen(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: "it crashed"}
		}
		return nil, nil
	}
	b := w.must(report.SucceededWithDebt)
	w.owes(b, debt.WaivedReview, "a", "no reviewer read this change")
}

func TestDefectTwoSplitsTripTheAbort(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil))
	w.stubborn("a", "b", "c", "d")
	for _, name := range []string{"a", "b", "c", "d"} {
		w.advise(name, coding.Decision{Action: coding.Split, SubIssues: []graph.Issue{sub(name + "-one"), sub(name + "-two")}, SplitRationale: "r"})
	}
	b := w.must(report.Succeeded)
	if w.file(b, "d-two.txt") == "" {
		t.Error("the sub-issues did not land")
	}
}

func TestDefectAbortDropsFinishedSiblings(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil, "a"))
	w.stubborn("a")
	w.advise("a", escalate)
	w.replans(ReplanDecision{Action: Abort})
	b := w.must(report.SucceededWithDebt)
	if w.file(b, "b.txt") == "" {
		t.Error("what was finished was not published")
	}
	if b.Success && !strings.Contains(b.Cause, "gave the build up") {
		t.Errorf("cause %q", b.Cause)
	}
	w.owes(b, debt.SkippedWork, "c", "the build stopped")
}

func TestDefectIntegrationFailureGatesNothing(t *testing.T) {
	a, b := issue("a", nil), issue("b", nil)
	a.Guidance.TouchesInterfaces = true
	w := newWorld(t, a, b)
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\npipeline: {barrier: level}\n") // both land at once
	w.commit()
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		switch c.Role {
		case "integration_tester":
			return IntegrationResult{Summary: "they do not fit", FailureDetails: []IntegrationFail{{TestName: "TestBoth", Error: "a calls b with one argument too many"}}}, nil
		case "merger":
			return Merged{Summary: "I see nothing to mend"}, nil
		}
		return nil, nil
	}
	w.replans(ReplanDecision{Action: Continue})
	got := w.must(report.SucceededWithDebt)
	if w.file(got, "a.txt") != "" || w.file(got, "b.txt") == "" {
		t.Error("what the Integration Tester refused is on the branch, or what it was not about is not")
	}
	w.owes(got, debt.UnmergedWork, "a", "one argument too many")
}

func TestDefectFailedBranchIsDeleted(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.stubborn("a")
	w.advise("a", escalate)
	w.replans(ReplanDecision{Action: Continue})
	b := w.must(report.SucceededWithDebt)
	lost := w.outcome(b, "a")
	if lost.Ref == "" || w.ref(lost.Ref) != lost.Commit {
		t.Errorf("the failed branch is not kept: %+v", lost)
	}
	if !slices.ContainsFunc(b.Kept, func(r report.Ref) bool { return r.Ref == lost.Ref }) {
		t.Errorf("the report does not name it: %v", b.Kept)
	}
}

func TestDefectDescriptionIsNotShownToTheCoder(t *testing.T) {
	a := issue("a", nil)
	a.Description = "The queue drops what comes while it grows."
	w := newWorld(t, a)
	before := 0
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" {
			before++
			return coding.ReviewResult{Approved: before == 3, Summary: strings.Repeat("no ", before)}, nil
		}
		return nil, nil
	}
	w.must(report.Succeeded)
	for i, p := range w.prompts("coder", "a") {
		if !strings.Contains(p, a.Description) {
			t.Errorf("iteration %d does not show the description", i+1)
		}
	}
}

// verdicts makes the Verifier judge ac-1 so, one verdict after the other.
func (w *world) verdicts(passed ...bool) {
	before := w.answer
	asked := 0
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "verifier" {
			p := passed[min(asked, len(passed)-1)]
			asked++
			return Judgement{Summary: "s", CriteriaResults: []CriterionResult{{PRDID: "ac-1", Passed: p, Evidence: "thing.go:3"}}}, nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// fixes makes the Fix Generator answer so.
func (w *world) fixes(p FixPlan) {
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == "fix_generator" {
			return p, nil
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

func TestDefectFixCycleDiscardsEarlierDebt(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role == "code_reviewer" && w.nameOf(c.Step) == "a" {
			return coding.ReviewResult{Approved: true, Summary: "ok", DebtItems: []coding.Shortfall{{Severity: debt.Low, Justification: "no docs"}}}, nil
		}
		return nil, nil
	}
	w.verdicts(false, true)
	w.fixes(FixPlan{FixIssues: []graph.Issue{sub("fix-thing")}, Summary: "one fix"})
	b := w.must(report.SucceededWithDebt)
	w.owes(b, debt.MissingFeature, "a", "no docs")
	for _, name := range []string{"a", "b", "fix-thing"} {
		if w.file(b, name+".txt") == "" || w.outcome(b, name).Merge == "" {
			t.Errorf("%s is not part of the result", name)
		}
	}
	if !b.Success || len(b.Debt) != 1 {
		t.Errorf("success %v, debt %v", b.Success, b.Debt)
	}
}

func TestDefectFinalizeDeletesTheCheckpoint(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.code["a"] = func(dir string) error {
		return errors.Join(
			os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o644),
			os.WriteFile(filepath.Join(dir, "coverage.out"), nil, 0o644),
		)
	}
	b := w.must(report.Succeeded)
	if w.file(b, "coverage.out") != "" {
		t.Error("the artefact is there: finalize did nothing")
	}
	if text, err := os.ReadFile(filepath.Join(w.engine.State, "builds", "b-1", "state.json")); err != nil || !strings.Contains(string(text), `"completed": ["a"]`) {
		t.Errorf("the state document after finalize: %v\n%s", err, text)
	}
	if again := w.must(report.Succeeded); again.Head != b.Head {
		t.Error("the build that is read again is another one")
	}
}
