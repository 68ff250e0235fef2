package pipeline

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
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
	t.Run("replan", func(t *testing.T) {
		agenttest.Prompt(t, Replanner, Setback{
			PRD: prd, Design: plan.Architecture{Summary: "One writer for each format."},
			Failed: []Failed{{Issue: issue, Outcome: report.FailedEscalated, Cause: "the library cannot quote", Below: []string{"format-flag"}, Ref: "refs/slipway/b-1/01-csv-writer"}},
			Issues: []Standing{{Name: "csv-writer", Title: "Write records as CSV", Outcome: report.FailedEscalated}, {Name: "format-flag", Title: "Add --format", Outcome: report.Pending, DependsOn: []string{"csv-writer"}}},
			Debt:   []debt.Item{{Type: debt.FailedWork, Severity: debt.High, IssueName: "csv-writer", Justification: "the library cannot quote"}},
			Left:   1, check: func(ReplanDecision) []string { return nil },
		}, 3000)
	})
	t.Run("integration_tester", func(t *testing.T) {
		agenttest.Prompt(t, IntegrationTester, Integration{
			PRD: prd, Architecture: plan.Architecture{Summary: "One writer for each format."}, Issues: []graph.Issue{issue}, Diff: "+func WriteCSV() {}",
			Evidence: evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test ./...", Passed: true}}},
		}, 3000)
	})
	t.Run("fix_generator", func(t *testing.T) {
		agenttest.Prompt(t, FixGenerator, Unfinished{
			PRD: prd, Open: []CriterionResult{{PRDID: "ac-2", Evidence: "it exits with 1"}}, Diff: "+func WriteCSV() {}",
			Evidence: evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test ./...", Passed: true}}},
			Issues:   []Standing{{Name: "csv-writer", Title: "Write records as CSV", Outcome: report.Completed}}, Left: 1,
			check: func(FixPlan) []string { return nil },
		}, 3000)
	})
	t.Run("git", func(t *testing.T) {
		agenttest.Prompt(t, Git, Account{PRD: prd, Landed: []string{"Write records as CSV"}, Debt: []string{"the exit code is 1"}}, 700)
	})
}
