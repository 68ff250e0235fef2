package durability_test

import (
	"fmt"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// The issues of overhaul by number. Nothing but the order of the decisions gives
// numbers, and that is fixed: dig-harbour, which is split, waits for the issue
// that the Replanner adds, and the fix for everything.
const (
	addAlpha     = 1 + iota // lands with debt
	addBeta                 // changes the line that add-alpha changes: for the Merger
	cutCanal                // fails, is escalated, and gives way to build-lock
	digHarbour              // is stuck, and split
	buildLock               // added by the Replanner, with deeper QA
	harbourNorth            // a part of dig-harbour
	harbourSouth            // likewise
	writeIndex              // the fix for what the first verification finds
)

// lanes bounds how much of an overhaul goes on at a time.
type lanes int

const (
	oneLane   lanes = 1
	manyLanes lanes = 8
)

// overhaul is a build in which everything happens that can: a split, a replan, a
// conflict, a verification that fails, a finding, debt. Files are written whole,
// with what belongs there in the end, so that whatever timing decides the same
// tree comes out.
func overhaul(n lanes) script {
	s := script{
		settings: "limits:\n  usd_per_call: 0.01\n",
		server:   fmt.Sprintf("repository:\n  limits:\n    max_parallel_issues: %d\n    max_parallel_agents: %[1]d\n", n),
	}
	s.planOverhaul()
	s.codeOverhaul()
	s.landOverhaul()
	s.verifyOverhaul()
	s.say("publish/git", pipeline.PullText{Title: "List the ships", Summary: "Overhauls the list."}, nil)
	return s
}

// wanted are the criteria of the PRD and the issue that each is planned for.
var wanted = []struct{ id, issue string }{
	{"ac-1", "add-alpha"}, {"ac-2", "add-beta"}, {"ac-3", "cut-canal"}, {"ac-4", "dig-harbour"},
}

func work(name, prdID string, after ...string) graph.Issue {
	return graph.Issue{
		Name: name, Title: "Do " + name, Description: "Do it.", DependsOn: after,
		AcceptanceCriteria: []graph.Criterion{{Text: name + " is done", PRDIDs: []string{prdID}}},
	}
}

func (s *script) planOverhaul() {
	prd := plan.PRD{Title: "List the ships", ValidatedDescription: "The list is complete.", Size: "small"}
	sprint := plan.Sprint{Rationale: "One part each."}
	for _, w := range wanted {
		prd.AcceptanceCriteria = append(prd.AcceptanceCriteria, plan.Criterion{ID: w.id, Text: w.issue + " is there", MustHave: true})
		is := work(w.issue, w.id)
		if w.issue == "dig-harbour" {
			is.DependsOn = []string{"cut-canal"}
		}
		sprint.Issues = append(sprint.Issues, is)
	}
	s.say("plan/pm", prd, nil)
	s.say("plan/rev-1/architect", plan.Architecture{Summary: "Text files.", FileChangesOverview: "list.txt and others"}, nil)
	s.say("plan/rev-1/tech_lead", plan.Review{Approved: true, Summary: "Good."}, nil)
	s.say("plan/sprint-1/sprint_planner", sprint, nil)
}

func (s *script) codeOverhaul() {
	s.spec(addAlpha)
	s.code(addAlpha, map[string]string{"list.txt": "first\nalpha\nlast\n"})
	s.approve(addAlpha, coding.Shortfall{Severity: debt.Low, Justification: "alpha has no captain yet"})
	s.spec(addBeta)
	s.code(addBeta, map[string]string{"list.txt": "first\nalpha\nbeta\nlast\n"})
	s.approve(addBeta)

	s.spec(cutCanal)
	s.say("issue-03/round-1/iter-1/coder", coding.Submission{}, nil)
	s.find("issue-03/round-1/iter-1/coder").Error = &runtime.RecordedError{Class: runtime.Refused, Reason: "there is no water"}
	s.say("issue-03/round-1/iter-1/retry_advisor", coding.RetryAdvice{Diagnosis: "There is no water.", Confidence: 0.9}, nil)
	s.say("issue-03/round-1/issue_advisor", coding.Decision{
		Action: coding.EscalateToReplan, FailureCategory: "approach", Confidence: 0.9, EscalationReason: "a canal needs water",
	}, nil)
	lock := work("build-lock", "ac-3")
	lock.Guidance.NeedsDeeperQA = true
	s.say("replan-1/replan", pipeline.ReplanDecision{
		Action: pipeline.ModifyDAG, Rationale: "A lock does it.", Summary: "A lock instead.",
		NewIssues: []graph.Issue{lock}, UpdatedIssues: []pipeline.IssueUpdate{{Name: "dig-harbour", DependsOn: []string{"build-lock"}}},
	}, nil)
	s.spec(buildLock)
	s.code(buildLock, map[string]string{"lock.txt": "gates\n"})
	s.approve(buildLock)
	s.say("issue-05/round-1/iter-1/qa", coding.QAResult{Passed: true, Summary: "It holds."}, nil)
	s.say("issue-05/round-1/iter-1/qa_synthesizer", coding.Synthesis{Action: coding.Approve, Summary: "Both agree."}, nil)

	s.spec(digHarbour)
	for iteration := 1; iteration <= 2; iteration++ { // after two without a change it is stuck
		s.say(fmt.Sprintf("issue-04/round-1/iter-%d/coder", iteration), coding.Submission{Summary: "It is too large.", Complete: true}, nil)
	}
	s.say("issue-04/round-1/issue_advisor", coding.Decision{
		Action: coding.Split, FailureCategory: "scope", Confidence: 0.9, SplitRationale: "Two halves.",
		SubIssues: []graph.Issue{work("harbour-north", "ac-4"), work("harbour-south", "ac-4")},
	}, nil)
	for number, name := range map[int]string{harbourNorth: "north.txt", harbourSouth: "south.txt", writeIndex: "index.txt"} {
		s.spec(number)
		s.code(number, map[string]string{name: "done\n"})
		s.approve(number)
	}
}

func (s *script) spec(issue int) {
	s.say(fmt.Sprintf("issue-%02d/issue_writer", issue), plan.Spec{Spec: "Do it.", Success: true}, nil)
}

func (s *script) code(issue int, files map[string]string) {
	s.say(fmt.Sprintf("issue-%02d/round-1/iter-1/coder", issue), coding.Submission{Summary: "Done.", Complete: true}, files)
}

func (s *script) approve(issue int, but ...coding.Shortfall) {
	s.say(fmt.Sprintf("issue-%02d/round-1/iter-1/code_reviewer", issue), coding.ReviewResult{Approved: true, Summary: "Good.", DebtItems: but}, nil)
}

// landOverhaul answers for every landing that timing can make.
func (s *script) landOverhaul() {
	merged := map[string]string{"list.txt": "first\nalpha\nbeta\nlast\n"}
	var together []string
	for _, number := range []int{addAlpha, addBeta, buildLock, harbourNorth, harbourSouth} {
		one := fmt.Sprintf("%02d", number)
		for depth := 1; depth <= 2; depth++ {
			s.say(fmt.Sprintf("issue-%s/merge-%d/merger", one, depth), pipeline.Merged{Success: true, NeedsIntegrationTest: true, Summary: "Kept both."}, merged)
		}
		for _, others := range together {
			together = append(together, others+"+"+one)
		}
		together = append(together, one)
	}
	for landing := 1; landing <= 6; landing++ {
		for _, issues := range together {
			s.say(fmt.Sprintf("land/%04d/%s/integration_tester", landing, issues), pipeline.IntegrationResult{Passed: true, Summary: "They fit."}, nil)
		}
	}
}

// verifyOverhaul finds the index missing, then there. A lens finds something too
// small to be mended, and its claim is judged in both rounds.
func (s *script) verifyOverhaul() {
	for round := 1; round <= 2; round++ {
		judged := pipeline.Judgement{Summary: "Looked at."}
		for _, w := range wanted {
			judged.CriteriaResults = append(judged.CriteriaResults, pipeline.CriterionResult{
				PRDID: w.id, Passed: round == 2 || w.issue != "dig-harbour", Evidence: "the files",
			})
		}
		at := fmt.Sprintf("verify-%d", round)
		s.say(at+"/verifier", judged, nil)
		for _, l := range review.Lenses() {
			remarks := review.Remarks{Findings: []review.Remark{}}
			if l.Name == "correctness" && round == 1 {
				remarks.Findings = append(remarks.Findings, review.Remark{Finding: finding.Finding{
					Severity: finding.Low, Path: "lock.txt", StartLine: 1, Title: "One gate", Claim: "A lock has two gates.",
				}})
			}
			s.say(at+"/review/"+l.Name+"/lens", remarks, nil)
		}
		s.say(at+"/review/verify-01/review_verifier", review.Verdicts{Verdicts: []review.Verdict{
			{ID: "f1", Verdict: finding.Confirmed, Confidence: 90, Reason: "There is one."},
		}}, nil)
	}
	s.say("verify-1/fix_generator", pipeline.FixPlan{FixIssues: []graph.Issue{work("write-index", "ac-4")}, Summary: "An index."}, nil)
}
