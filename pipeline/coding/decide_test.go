package coding

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

var (
	header = graph.Criterion{Text: "prints a header", PRDIDs: []string{"ac-1"}}
	quotes = graph.Criterion{Text: "quotes every field", PRDIDs: []string{"ac-2", "ac-3"}}
	fast   = graph.Criterion{Text: "writes 1 GB in 1 s", PRDIDs: []string{"ac-4"}}
	slower = graph.Criterion{Text: "writes 1 GB in 9 s", PRDIDs: []string{"ac-4"}}
	bare   = graph.Criterion{Text: "logs nothing"}
)

// stuckOnce is a reviewer who refuses until the first round is stuck.
func stuckOnce(then ...answer) []answer {
	return append([]answer{refuse("no"), refuse("no"), refuse("no")}, then...)
}

func dropped(c graph.Criterion, justification string) debt.Item {
	return debt.Item{
		Type: debt.DroppedCriterion, Severity: debt.High, IssueName: "csv-writer", Criterion: c.Text,
		Justification: justification, FollowUp: "decide whether it is still wanted",
	}
}

// Each case is what the Issue Advisor decides after a round that got stuck, and
// what comes of it.
func TestDecisions(t *testing.T) {
	work := func(n int) string { return "base" + strings.Repeat("+issue-07", n) }
	redAlways := func(string) evidence.Result { return red }
	noted := func(d Decision, invocation int) Advice {
		return Advice{IssueName: "csv-writer", Invocation: invocation, Decision: d}
	}
	gap := Shortfall{Type: debt.UnmetCriterion, Severity: debt.Low, Criterion: "writes 1 GB in 1 s", Justification: "it takes 2 s", FollowUp: "profile it"}
	relax := Decision{
		Action: RetryModified, ModifiedCriteria: []graph.Criterion{{Text: " prints a header ", PRDIDs: []string{}}, slower},
		DroppedCriteria: []string{"logs nothing"}, ModificationJustification: "this disk is slow",
	}
	onlyRelax := Decision{Action: RetryModified, DebtSeverity: "low", ModifiedCriteria: []graph.Criterion{header, slower}, ModificationJustification: "this disk is slow"}
	otherwise := Decision{Action: RetryApproach, NewApproach: "Use encoding/csv.", ApproachChanges: []string{"return the error of Flush"}, FailureDiagnosis: "quoting by hand"}
	accept := Decision{Action: AcceptWithDebt, Rationale: "good enough to land", DebtSeverity: "medium", MissingFunctionality: []Shortfall{gap, {Justification: "no BOM"}}}
	bareAccept := Decision{Action: AcceptWithDebt, Rationale: "good enough to land"}
	escalate := Decision{Action: EscalateToReplan, EscalationReason: "record has no Fields"}
	split := Decision{Action: Split, SplitRationale: "two things", SubIssues: halves()}

	cases := map[string]struct {
		criteria    []graph.Criterion
		invocations int // 0 means 1
		flagged     bool
		script      script
		outcome     func(commit string) evidence.Result

		want Result // without Faults and Files; Summary is Done.
		seen func(t *testing.T, b *bench)
	}{
		"relaxed, dropped, passed over": {
			criteria: []graph.Criterion{header, quotes, fast, bare},
			script:   script{"coder": {done}, "code_reviewer": stuckOnce(approve), "issue_advisor": {advice(relax)}},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(4), Iterations: 4, Rounds: 2,
				Criteria: []graph.Criterion{header, slower}, Dropped: []graph.Criterion{quotes, bare}, Advice: []Advice{noted(relax, 1)},
				Debt: []debt.Item{
					dropped(quotes, "dropped (ac-2, ac-3): this disk is slow"),
					dropped(fast, `relaxed (ac-4) to "writes 1 GB in 9 s": this disk is slow`),
					dropped(bare, "dropped: this disk is slow"),
				},
			},
			seen: func(t *testing.T, b *bench) {
				for _, role := range []string{"coder", "code_reviewer"} {
					all := b.prompts(role)
					wantIn(t, all[2], "writes 1 GB in 1 s")
					criteria, rest, _ := strings.Cut(all[3], "no longer asked for")
					wantIn(t, criteria, "writes 1 GB in 9 s")
					for _, gone := range []string{"writes 1 GB in 1 s", "quotes every field", "logs nothing"} {
						wantNotIn(t, criteria, gone)
						wantIn(t, rest, gone)
					}
				}
				wantIn(t, b.prompts("coder")[3], "The criteria were relaxed: this disk is slow")
			},
		},
		"a criterion that was only relaxed is debt": {
			criteria: []graph.Criterion{header, fast},
			script:   script{"coder": {done}, "code_reviewer": stuckOnce(approve), "issue_advisor": {advice(onlyRelax)}},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(4), Iterations: 4, Rounds: 2,
				Criteria: []graph.Criterion{header, slower}, Advice: []Advice{noted(onlyRelax, 1)},
				Debt: []debt.Item{{
					Type: debt.DroppedCriterion, Severity: debt.Low, IssueName: "csv-writer", Criterion: fast.Text,
					Justification: `relaxed (ac-4) to "writes 1 GB in 9 s": this disk is slow`, FollowUp: "decide whether it is still wanted",
				}},
			},
		},
		"QA and the synthesizer see the relaxed criteria": {
			criteria: []graph.Criterion{header, fast}, flagged: true,
			script: script{
				"coder": {done}, "code_reviewer": {approve}, "qa": {qaFail, {out: qaPass.out}}, "issue_advisor": {advice(onlyRelax)},
				"qa_synthesizer": {{out: Synthesis{Action: Fix, Summary: "Too slow.", Stuck: true}}, decide(Approve, "Yes.")},
			},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(2), Iterations: 2, Rounds: 2,
				Criteria: []graph.Criterion{header, slower}, Advice: []Advice{noted(onlyRelax, 1)},
				Debt: []debt.Item{{
					Type: debt.DroppedCriterion, Severity: debt.Low, IssueName: "csv-writer", Criterion: fast.Text,
					Justification: `relaxed (ac-4) to "writes 1 GB in 9 s": this disk is slow`, FollowUp: "decide whether it is still wanted",
				}},
			},
			seen: func(t *testing.T, b *bench) {
				for _, role := range []string{"qa", "qa_synthesizer"} {
					criteria, _, _ := strings.Cut(b.prompts(role)[1], "no longer asked for")
					wantIn(t, criteria, "writes 1 GB in 9 s")
					wantNotIn(t, criteria, "writes 1 GB in 1 s")
				}
			},
		},
		"relaxed in vain": {
			criteria: []graph.Criterion{header, fast},
			script:   script{"coder": {done}, "code_reviewer": {refuse("no")}, "issue_advisor": {advice(onlyRelax)}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Commit: work(6), Iterations: 6, Rounds: 2, Cause: "stuck: the same feedback came 3 times: The reviewer asks for changes: no",
				Criteria: []graph.Criterion{header, slower}, Advice: []Advice{noted(onlyRelax, 1)},
			},
		},
		"another approach, seen at every iteration of a fresh budget": {
			script: script{
				"coder": {done}, "issue_advisor": {advice(otherwise)},
				"code_reviewer": {refuse("a"), refuse("b"), refuse("c"), refuse("c"), refuse("d"), refuse("c"), refuse("c"), refuse("e"), refuse("f"), approve},
			},
			want: Result{Outcome: report.Completed, Commit: work(10), Iterations: 10, Rounds: 2, Advice: []Advice{noted(otherwise, 1)}},
			seen: func(t *testing.T, b *bench) {
				for i, p := range b.prompts("coder") {
					for _, want := range []string{"Use encoding/csv.", "- return the error of Flush", "quoting by hand"} {
						if strings.Contains(p, want) != (i >= 5) {
							t.Errorf("call %d: %q is in the prompt: %v", i+1, want, i < 5)
						}
					}
				}
				wantIn(t, b.prompts("coder")[5], "The reviewer asks for changes: d") // what the round before ended with
				wantIn(t, b.prompts("coder")[6], "iteration 2 of round 2")
			},
		},
		"split": {
			criteria: []graph.Criterion{header, {Text: "quotes", PRDIDs: []string{"ac-2"}}},
			script:   script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(split)}},
			want: Result{
				Outcome: report.FailedNeedsSplit, Commit: work(3), Iterations: 3, Rounds: 1, Cause: "split into header, quotes: two things",
				Advice: []Advice{noted(split, 1)}, SubIssues: inherited(halves()),
			},
		},
		"split, and a part of it is lost": {
			criteria: []graph.Criterion{header, quotes, fast},
			script:   script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(split)}},
			want: Result{
				Outcome: report.FailedNeedsSplit, Commit: work(3), Iterations: 3, Rounds: 1, Cause: "split into header, quotes: two things",
				Advice: []Advice{noted(split, 1)}, SubIssues: inherited(halves()),
				Debt: []debt.Item{
					dropped(quotes, "none of header, quotes serves it (ac-3): two things"),
					dropped(fast, "none of header, quotes serves it (ac-4): two things"),
				},
			},
		},
		"relaxed, then split: what was given up stays debt": {
			criteria: []graph.Criterion{header, {Text: "quotes", PRDIDs: []string{"ac-2"}}, fast}, invocations: 2,
			script: script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(Decision{
				Action: RetryModified, ModifiedCriteria: []graph.Criterion{header, {Text: "quotes", PRDIDs: []string{}}}, ModificationJustification: "this disk is slow",
			}), advice(split)}},
			want: Result{
				Outcome: report.FailedNeedsSplit, Commit: work(6), Iterations: 6, Rounds: 2, Cause: "split into header, quotes: two things",
				Criteria: []graph.Criterion{header, {Text: "quotes", PRDIDs: []string{"ac-2"}}}, Dropped: []graph.Criterion{fast},
				Advice: []Advice{noted(Decision{
					Action: RetryModified, ModifiedCriteria: []graph.Criterion{header, {Text: "quotes", PRDIDs: []string{}}}, ModificationJustification: "this disk is slow",
				}, 1), noted(split, 2)},
				SubIssues: inherited(halves()),
				Debt:      []debt.Item{dropped(fast, "dropped (ac-4): this disk is slow")},
			},
		},
		"accepted with debt for each gap": {
			script: script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(accept)}},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(3), Iterations: 3, Rounds: 1, Advice: []Advice{noted(accept, 1)},
				Debt: []debt.Item{
					{Type: debt.MissingFeature, Severity: debt.Medium, IssueName: "csv-writer", Justification: "no BOM"},
					{Type: debt.UnmetCriterion, Severity: debt.Low, IssueName: "csv-writer", Criterion: fast.Text, Justification: "it takes 2 s", FollowUp: "profile it"},
				},
			},
		},
		"accepted without a gap is debt all the same": {
			script: script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(bareAccept)}},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(3), Iterations: 3, Rounds: 1, Advice: []Advice{noted(bareAccept, 1)},
				Debt: []debt.Item{{
					Type: debt.MissingFeature, Severity: debt.High, IssueName: "csv-writer", FollowUp: "look at it before merging",
					Justification: "accepted unapproved (good enough to land); still open: The reviewer asks for changes: no",
				}},
			},
		},
		"accepted against findings and QA, which become debt": {
			flagged: true,
			script: script{
				"coder": {done}, "qa": {{out: qaFail.out}}, "issue_advisor": {advice(accept)},
				"code_reviewer": {{out: ReviewResult{Summary: "No.", Findings: []finding.Finding{
					{Severity: "critical", Path: "csv.go", StartLine: 3, Title: "Flush", Suggestion: "check it"}, {Severity: "odd", Title: "x"}, {Severity: "medium", Title: "y"},
				}}}},
				"qa_synthesizer": {{out: Synthesis{Action: Fix, Summary: "Stuck.", Stuck: true}}},
			},
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(1), Iterations: 1, Rounds: 1, Advice: []Advice{noted(accept, 1)},
				Debt: []debt.Item{
					{Type: debt.ReviewFinding, Severity: debt.High, IssueName: "csv-writer", Justification: "csv.go:3: Flush", File: "csv.go", FollowUp: "check it"},
					{Type: debt.MissingFeature, Severity: debt.Medium, IssueName: "csv-writer", Justification: "no BOM"},
					{Type: debt.ReviewFinding, Severity: debt.Medium, IssueName: "csv-writer", Justification: "y"},
					{Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: "csv-writer", Justification: "QA did not pass it (One does not hold.); it was accepted all the same: good enough to land", FollowUp: "look at what QA reported before merging"},
					{Type: debt.UnmetCriterion, Severity: debt.Low, IssueName: "csv-writer", Criterion: fast.Text, Justification: "it takes 2 s", FollowUp: "profile it"},
					{Type: debt.ReviewFinding, Severity: debt.Low, IssueName: "csv-writer", Justification: "x"},
				},
			},
		},
		"accepted work that no reviewer read": {
			script:  script{"coder": {{edit: true, out: Submission{Summary: "Done.", FilesChanged: []string{"csv.go"}}}}, "issue_advisor": {advice(bareAccept)}},
			outcome: func(string) evidence.Result { return flaky },
			want: Result{
				Outcome: report.CompletedWithDebt, Commit: work(3), Iterations: 3, Rounds: 1, Advice: []Advice{noted(bareAccept, 1)},
				Debt: []debt.Item{
					{
						Type: debt.MissingFeature, Severity: debt.High, IssueName: "csv-writer", FollowUp: "look at it before merging",
						Justification: "accepted unapproved (good enough to land); still open: You said that the work is not complete: Done.",
					},
					{Type: debt.WaivedReview, Severity: debt.High, IssueName: "csv-writer", Justification: "no reviewer read the last commit of this change", FollowUp: "review it before merging"},
					{Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: "csv-writer", Justification: `"go test ./..." failed and then passed on the same commit`, FollowUp: "find out why it is not stable"},
				},
			},
			seen: func(t *testing.T, b *bench) {
				if want := []string{work(3)}; !slices.Equal(b.site.tested, want) {
					t.Errorf("the engine tested %v, want %v", b.site.tested, want)
				}
				wantIn(t, b.prompts("issue_advisor")[0], "test passed, after it had failed once")
			},
		},
		"blocked work cannot be accepted": {
			script: script{"coder": {done}, "code_reviewer": {block}, "issue_advisor": {advice(accept)}},
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(3), Iterations: 3, Rounds: 1, Blocked: true, Advice: []Advice{noted(accept, 1)},
				Cause: "it cannot be accepted with debt: the last verdict blocks it: It deletes the data.; good enough to land",
			},
			seen: func(t *testing.T, b *bench) {
				wantIn(t, b.prompts("issue_advisor")[0], "the last verdict blocks it: It deletes the data.")
			},
		},
		"work blocked before its coder failed cannot be accepted": {
			script: script{"coder": {done, {edit: true, err: gone.err}}, "retry_advisor": {gone}, "code_reviewer": {block}, "issue_advisor": {advice(accept)}},
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(4), Iterations: 4, Rounds: 1, Blocked: true, Advice: []Advice{noted(accept, 1)},
				Cause: "it cannot be accepted with debt: the last verdict blocks it: It deletes the data.; good enough to land",
			},
		},
		"work whose commands fail cannot be accepted": {
			script:  script{"coder": {done}, "code_reviewer": {approve}, "issue_advisor": {advice(accept)}},
			outcome: redAlways,
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(3), Iterations: 3, Rounds: 1, Advice: []Advice{noted(accept, 1)},
				Cause: "it cannot be accepted with debt: `go test ./...` fails; good enough to land",
			},
		},
		"nor can work whose commands nobody ran yet": {
			script:  script{"coder": {{edit: true, out: Submission{Summary: "Done."}}}, "issue_advisor": {advice(accept)}},
			outcome: redAlways,
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(3), Iterations: 3, Rounds: 1, Advice: []Advice{noted(accept, 1)},
				Cause: "it cannot be accepted with debt: `go test ./...` fails; good enough to land",
			},
		},
		"nothing cannot be accepted": {
			script: script{"coder": {{out: Submission{Summary: "Done.", Complete: true}}}, "issue_advisor": {advice(accept)}},
			want: Result{
				Outcome: report.FailedEscalated, Commit: "base", Iterations: 2, Rounds: 1, Advice: []Advice{noted(accept, 1)},
				Cause: "it cannot be accepted with debt: nothing was changed; good enough to land",
			},
			seen: func(t *testing.T, b *bench) {
				wantIn(t, b.prompts("issue_advisor")[0], "Nothing was changed so far.")
			},
		},
		"escalated": {
			script: script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(escalate)}},
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(3), Iterations: 3, Rounds: 1, Cause: "record has no Fields", Advice: []Advice{noted(escalate, 1)},
			},
		},
		"no advisor answers": {
			script: script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {gone}},
			want: Result{
				Outcome: report.FailedEscalated, Commit: work(3), Iterations: 3, Rounds: 1,
				Cause: "stuck: the same feedback came 3 times: The reviewer asks for changes: no; the Issue Advisor did not answer: issue-07/round-1/issue_advisor: it crashed",
				Advice: []Advice{noted(Decision{
					Action:           EscalateToReplan,
					EscalationReason: "stuck: the same feedback came 3 times: The reviewer asks for changes: no; the Issue Advisor did not answer: issue-07/round-1/issue_advisor: it crashed",
				}, 1)},
			},
		},
		"a retry by the last decision that fails": {
			invocations: 2,
			script:      script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {advice(otherwise), advice(otherwise)}},
			want: Result{
				Outcome: report.FailedUnrecoverable, Commit: work(9), Iterations: 9, Rounds: 3, Cause: "stuck: the same feedback came 3 times: The reviewer asks for changes: no",
				Advice: []Advice{noted(otherwise, 1), noted(otherwise, 2)},
			},
			seen: func(t *testing.T, b *bench) {
				asked := b.prompts("issue_advisor")
				wantNotIn(t, asked[0], "your last decision")
				wantNotIn(t, asked[0], "earlier decisions")
				wantIn(t, asked[1], "your last decision on this issue: choose accept_with_debt or escalate_to_replan")
				wantIn(t, asked[1], `"new_approach": "Use encoding/csv."`)
				wantIn(t, asked[1], `"round": 2`)
			},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.script).advised(max(c.invocations, 1), c.criteria...)
			b.site.outcome = c.outcome
			b.task.Issue.Guidance = graph.Guidance{NeedsDeeperQA: c.flagged, ReviewFocus: "errors", RiskRationale: "known ground"}
			b.task.Issue.TestingStrategy, b.task.Issue.TargetRepo = "a table", "o/other"
			c.want.Summary, c.want.Changed = "Done.", c.want.Commit != "base"
			plain := func(r Result) Result {
				r.Faults, r.Files = nil, nil
				return r
			}
			first := b.run(t)
			if got, want := asJSON(t, plain(first)), asJSON(t, c.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if first.Blocked && first.Done() {
				t.Error("a blocked change may land")
			}
			if c.seen != nil {
				c.seen(t, b)
			}
			asked := len(b.agents.Calls())
			if again := b.run(t); !reflect.DeepEqual(again, first) || len(b.agents.Calls()) != asked {
				t.Errorf("replayed %+v, asking %v", again, b.agents.Steps()[asked:])
			}
		})
	}
}

// inherited are the parts as they come out: with what the issue has.
func inherited(parts []graph.Issue) []graph.Issue {
	for i := range parts {
		parts[i].ParentName, parts[i].Number = "csv-writer", 0
		parts[i].TestingStrategy, parts[i].TargetRepo = "a table", "o/other"
		parts[i].Guidance = graph.Guidance{ReviewFocus: "errors", RiskRationale: "known ground"}
	}
	return parts
}

func TestPartsKeepWhatTheySay(t *testing.T) {
	own := graph.Guidance{EstimatedScope: "small", RiskRationale: "mine"}
	w := &work{issue: graph.Issue{Name: "whole", TestingStrategy: "whole", TargetRepo: "o/whole", Guidance: graph.Guidance{NeedsDeeperQA: true, RiskRationale: "whole"}}}
	for name, c := range map[string]struct{ part, want graph.Issue }{
		"all its own": {
			graph.Issue{Name: "p", TestingStrategy: "own", TargetRepo: "o/own", Guidance: own, Number: 9, ParentName: "x"},
			graph.Issue{Name: "p", TestingStrategy: "own", TargetRepo: "o/own", Guidance: own, ParentName: "whole"},
		},
		"a rationale and nothing else": {
			graph.Issue{Name: "p", Guidance: graph.Guidance{RiskRationale: "mine"}},
			graph.Issue{Name: "p", TestingStrategy: "whole", TargetRepo: "o/whole", Guidance: graph.Guidance{NeedsDeeperQA: true, RiskRationale: "mine"}, ParentName: "whole"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := w.inherit(c.part); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got  %+v\nwant %+v", got, c.want)
			}
		})
	}
}

func TestDecisionsThatCannotBeCarriedOutAreRefused(t *testing.T) {
	impasse := Impasse{CanSplit: true, Issue: graph.Issue{Name: "whole", DependsOn: []string{"record", "record"}, AcceptanceCriteria: []graph.Criterion{header, fast}}}
	whole := impasse
	whole.CanSplit = false
	modified := func(change func(*Decision)) Decision {
		d := Decision{Action: RetryModified, ModifiedCriteria: []graph.Criterion{header}, ModificationJustification: "so"}
		change(&d)
		return d
	}
	parts := func(change func([]graph.Issue) []graph.Issue) Decision {
		return Decision{Action: Split, SubIssues: change(halves())}
	}
	for name, c := range map[string]struct {
		in   Impasse
		d    Decision
		want string // in the problems; empty: none
	}{
		"no action":           {impasse, Decision{}, `action is "": use retry_modified`},
		"unknown action":      {impasse, Decision{Action: "give_up"}, `action is "give_up"`},
		"unknown category":    {impasse, Decision{Action: EscalateToReplan, FailureCategory: "bad luck"}, "failure_category"},
		"unknown severity":    {impasse, Decision{Action: EscalateToReplan, DebtSeverity: "severe"}, "debt_severity"},
		"too sure":            {impasse, Decision{Action: EscalateToReplan, Confidence: 80}, "confidence is 80"},
		"escalation":          {impasse, Decision{Action: EscalateToReplan, Confidence: 0.8, FailureCategory: "scope", DebtSeverity: "low"}, ""},
		"approach without":    {impasse, Decision{Action: RetryApproach, NewApproach: " "}, "new_approach is empty"},
		"a gap of no type":    {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{Justification: "x"}}}, ""},
		"a gap of odd type":   {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{Type: "waived_review"}}}, "missing_functionality[0].type"},
		"a gap oddly rated":   {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{}, {Severity: "huge"}}}, "missing_functionality[1].severity"},
		"one passed over":     {impasse, modified(func(*Decision) {}), ""},
		"everything dropped":  {impasse, modified(func(d *Decision) { d.ModifiedCriteria = nil }), "modified_acceptance_criteria is empty"},
		"nothing relaxed":     {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, fast} }), "no criterion is relaxed or dropped"},
		"one merely added":    {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, fast, quotes} }), "no criterion is relaxed or dropped"},
		"no reason":           {impasse, modified(func(d *Decision) { d.ModificationJustification = "" }), "modification_justification is empty"},
		"an empty criterion":  {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, {Text: " "}} }), "modified_acceptance_criteria[1].text"},
		"a criterion twice":   {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, header} }), "modified_acceptance_criteria[1].text"},
		"dropping a ghost":    {impasse, modified(func(d *Decision) { d.DroppedCriteria = []string{"is pink"} }), "dropped_criteria[0] is none"},
		"dropped and kept":    {impasse, modified(func(d *Decision) { d.DroppedCriteria = []string{header.Text} }), "dropped_criteria[0] is in modified"},
		"a split":             {impasse, parts(func(p []graph.Issue) []graph.Issue { return p }), ""},
		"a part of a split":   {whole, parts(func(p []graph.Issue) []graph.Issue { return p }), "cannot be split"},
		"a split in one":      {impasse, parts(func(p []graph.Issue) []graph.Issue { return p[:1] }), "at least two"},
		"parts of one name":   {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name, p[1].DependsOn = p[0].Name, nil; return p }), `"header" is used twice`},
		"the issue's name":    {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name = "whole"; return p }), "the name of the issue itself"},
		"a hostile name":      {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name = "../etc"; return p }), `"../etc"`},
		"a circle":            {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"quotes"}; return p }), "in a circle: header, quotes"},
		"on the issue itself": {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"whole"}; return p }), `depends on "whole"`},
		"on a stranger":       {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"other"}; return p }), `depends on "other"`},
		"on a dependency":     {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"record"}; return p }), ""},
		"its own numbers":     {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].Number, p[1].Number = 1, 1; return p }), ""},
		"no criteria":         {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].AcceptanceCriteria = nil; return p }), `"header" has no acceptance criterion`},
		"an empty one":        {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].AcceptanceCriteria = []graph.Criterion{{}}; return p }), `"header" has no acceptance criterion`},
	} {
		t.Run(name, func(t *testing.T) {
			problems := strings.Join(IssueAdvisor.Check(c.in, c.d), "\n")
			if c.want == "" && problems != "" || !strings.Contains(problems, c.want) {
				t.Errorf("problems %q, want %q", problems, c.want)
			}
		})
	}
}

func TestARefusedSplitIsRepaired(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": stuckOnce(approve), "issue_advisor": {
		advice(Decision{Action: Split, SubIssues: halves()}), advice(Decision{Action: RetryApproach, NewApproach: "as one"}),
	}}).advised(1, header)
	b.task.CanSplit = false
	if r := b.run(t); r.Outcome != report.Completed || len(r.Advice) != 1 || r.Advice[0].Decision.Action != RetryApproach {
		t.Errorf("%+v", r)
	}
	if steps := b.agents.Steps(); !slices.Contains(steps, "issue-07/round-1/issue_advisor/repair-1") {
		t.Errorf("steps %v", steps)
	}
	wantIn(t, b.prompts("issue_advisor")[0], "This issue cannot be split.")
}
