package coding

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

func TestPrompts(t *testing.T) {
	issue := graph.Issue{
		Name: "csv-writer", Title: "Write records as CSV", Description: "Add WriteCSV in export/csv.go.",
		AcceptanceCriteria: []graph.Criterion{{Text: "WriteCSV prints a header", PRDIDs: []string{"ac-1"}}},
		FilesToCreate:      []string{"export/csv.go"},
		TestingStrategy:    "A table",
		Guidance:           graph.Guidance{NeedsNewTests: true, ReviewFocus: "errors of the writer", RiskRationale: "A new file without callers."},
		DependsOn:          []string{"record"},
		Number:             1,
	}
	seen := evidence.Result{Commands: []evidence.CommandResult{
		{Name: "build", Line: "go build ./...", Passed: true, Elapsed: time.Second},
		{Name: "test", Line: "go test ./...", Exit: 1, Output: "--- FAIL: TestWriteCSV", Elapsed: 2 * time.Second},
	}}
	change := Change{Issue: issue, Spec: "## Goal\nWrite CSV.", Summary: "Done.", Diff: "+func WriteCSV() {}", Evidence: seen}
	var (
		notes      = []graph.Note{{FromIssue: "record", Kind: graph.DebtNote, Expected: "Fields()", Delivered: "nothing"}}
		relaxed    = []string{"WriteCSV prints a header in the reader's language"}
		steering   = []string{"Leave the reader alone."}
		directions = []string{"Write through encoding/csv.\n- return the error of Flush"}
		review     = ReviewResult{Summary: "Fine but for one.", Findings: []finding.Finding{{Severity: "high", Title: "Flush"}}}
		memory     = Memory{
			Conventions:     &Conventions{FromIssue: "record", Learnings: []string{"Tests are tables"}},
			FailurePatterns: []FailurePattern{{IssueName: "xml-writer", Title: "Write XML", Cause: "stuck"}},
			BugPatterns:     []BugPattern{{Pattern: "Flush is not checked", Frequency: 2, Modules: []string{"export"}}},
			Interfaces:      map[string]Interface{"record": {Exports: []string{"record.Record"}, Files: []string{"record/record.go"}}},
			BuildHealth:     &BuildHealth{Landed: []string{"record"}, Passing: []string{"go test ./..."}, DebtItems: 1},
		}
	)

	t.Run("coder", func(t *testing.T) {
		agenttest.Prompt(t, Coder, Assignment{
			Issue: issue, GivenUp: relaxed, Spec: change.Spec, Notes: notes, Memory: memory.forCoder(issue), Steering: steering,
			Round: 2, Iteration: 2, Directions: directions, Feedback: "`go test ./...` failed",
		}, 1900)
	})
	t.Run("qa", func(t *testing.T) { agenttest.Prompt(t, QA, change, 1200) })
	t.Run("code_reviewer", func(t *testing.T) {
		change := change
		change.GivenUp, change.BugPatterns = relaxed, memory.BugPatterns
		agenttest.Prompt(t, Reviewer, change, 1650)
	})
	t.Run("qa_synthesizer", func(t *testing.T) {
		agenttest.Prompt(t, Synthesizer, Verdicts{
			Issue: issue, QA: QAResult{Summary: "One test fails."}, Evidence: seen, Earlier: []string{"Nothing was changed."},
			Review: review,
		}, 1100)
	})
	t.Run("retry_advisor", func(t *testing.T) {
		agenttest.Prompt(t, RetryAdvisor, Breakdown{
			Issue: issue, Spec: change.Spec, Reason: "no answer within 45 minutes", Directions: directions,
			Earlier: []string{"Nothing was changed."}, Diff: change.Diff,
		}, 1100)
	})
	t.Run("issue_advisor", func(t *testing.T) {
		agenttest.Prompt(t, IssueAdvisor, Impasse{
			Issue: issue, GivenUp: relaxed, Spec: change.Spec, Ended: "stuck: Flush",
			Tried:  []Tried{{Round: 1, Feedback: []string{"Nothing was changed."}, Ended: "stuck"}, {Round: 2, Feedback: []string{"Flush"}, Ended: "stuck: Flush"}},
			Review: &review, QA: &QAResult{Summary: "One test fails."}, Evidence: &seen, Diff: change.Diff,
			Notes: notes, Memory: memory.forAdvisor(issue), Steering: steering,
			Earlier:      []Advice{{IssueName: issue.Name, Invocation: 1, Decision: Decision{Action: RetryApproach, NewApproach: "Use encoding/csv"}}},
			Unacceptable: "`go test ./...` fails", Last: true,
		}, 3500)
	})
}

func TestPromptWithoutCommandsSaysSo(t *testing.T) {
	_, prompt := render(t, Reviewer, Change{Evidence: evidence.Result{None: true}})
	wantIn(t, prompt, "The engine found no command to build or test with.")
}
