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
		Number:             1,
	}
	seen := evidence.Result{Commands: []evidence.CommandResult{
		{Name: "build", Line: "go build ./...", Passed: true, Elapsed: time.Second},
		{Name: "test", Line: "go test ./...", Exit: 1, Output: "--- FAIL: TestWriteCSV", Elapsed: 2 * time.Second},
	}}
	change := Change{Issue: issue, Spec: "## Goal\nWrite CSV.", Summary: "Done.", Diff: "+func WriteCSV() {}", Evidence: seen}

	t.Run("coder", func(t *testing.T) {
		agenttest.Prompt(t, Coder, Assignment{
			Issue: issue, Spec: change.Spec, Iteration: 2, Feedback: "`go test ./...` failed",
			Notes: []graph.Note{{FromIssue: "record", Kind: graph.DebtNote, Expected: "Fields()", Delivered: "nothing"}},
		}, 1350)
	})
	t.Run("qa", func(t *testing.T) { agenttest.Prompt(t, QA, change, 1200) })
	t.Run("code_reviewer", func(t *testing.T) { agenttest.Prompt(t, Reviewer, change, 1500) })
	t.Run("qa_synthesizer", func(t *testing.T) {
		agenttest.Prompt(t, Synthesizer, Verdicts{
			Issue: issue, QA: QAResult{Summary: "One test fails."}, Evidence: seen, Earlier: []string{"Nothing was changed."},
			Review: ReviewResult{Summary: "Fine but for one.", Findings: []finding.Finding{{Severity: "high", Title: "Flush"}}},
		}, 1100)
	})
}

func TestPromptWithoutCommandsSaysSo(t *testing.T) {
	_, prompt := render(t, Reviewer, Change{Evidence: evidence.Result{None: true}})
	wantIn(t, prompt, "The engine found no command to build or test with.")
}
