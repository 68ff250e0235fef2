package pipeline

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
)

func TestPrompts(t *testing.T) {
	prd := plan.PRD{
		Title: "Let export write CSV", ValidatedDescription: "export is to write CSV on request.", Size: "small",
		AcceptanceCriteria: []plan.Criterion{
			{ID: "ac-1", Text: "export --format csv prints a header line", MustHave: true},
			{ID: "ac-2", Text: "export --format xml exits with code 2", MustHave: true},
		},
	}
	issue := graph.Issue{Name: "csv-writer", Title: "Write records as CSV", Description: "Add WriteCSV.", Number: 1}

	t.Run("merger", func(t *testing.T) {
		agenttest.Prompt(t, Merger, Overlap{
			PRD: prd, Issue: issue, Landed: []graph.Issue{{Name: "since-flag", Title: "Add --since", Number: 2}},
			Conflicts: []string{"cmd/export.go"}, Shared: []string{"cmd/export.go", "export/json.go"},
			Diff: "+func WriteCSV() {}", Feedback: "a conflict marker is left in cmd/export.go",
		}, 1300)
	})
	t.Run("verifier", func(t *testing.T) {
		agenttest.Prompt(t, Verifier, Finished{
			PRD: prd, Issues: []graph.Issue{issue}, Missing: []string{"format-flag: failed_unrecoverable"},
			Evidence: evidence.Result{Commands: []evidence.CommandResult{
				{Name: "test", Line: "go test ./...", Passed: true, Output: "ok export", Elapsed: time.Second},
			}},
		}, 1200)
	})
	t.Run("git", func(t *testing.T) {
		agenttest.Prompt(t, Git, Account{PRD: prd, Landed: []string{"Write records as CSV"}, Debt: []string{"the exit code is 1"}}, 700)
	})
}
