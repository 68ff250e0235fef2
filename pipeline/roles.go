package pipeline

import (
	"embed"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

//go:embed prompts/*.md
var prompts embed.FS

// Overlap is what the Merger gets: a tree that git made of two lines of work
// on the same files, with conflict markers where git could not decide.
type Overlap struct {
	PRD          plan.PRD
	Architecture plan.Architecture
	Issue        graph.Issue   // whose branch is being merged
	Landed       []graph.Issue // landed issues that touched the same files
	Conflicts    []string      // files with conflict markers
	Shared       []string      // files that both sides changed, conflicting or not
	Diff         string        // what the branch changes; long ones are cut, and say so
	Feedback     string        // why the first try was not accepted
	Broken       string        // what fails in a merge that is made already, and is to be mended
}

// Merged is the Merger's answer. The resolution is in its worktree.
type Merged struct {
	Success              bool         `json:"success"`
	ConflictResolutions  []Resolution `json:"conflict_resolutions,omitempty"`
	NeedsIntegrationTest bool         `json:"needs_integration_test,omitempty"`
	Summary              string       `json:"summary"`
}

// Integration is what the Integration Tester gets: issues that were merged, on a
// commit on which the engine's commands pass.
type Integration struct {
	PRD          plan.PRD
	Architecture plan.Architecture
	Issues       []graph.Issue
	Evidence     evidence.Result
	Diff         string // what the merge brings; long ones are cut, and say so
}

// IntegrationResult is the Integration Tester's answer. The tests that it wrote
// are in its worktree.
type IntegrationResult struct {
	Passed         bool              `json:"passed"`
	TestsWritten   []string          `json:"tests_written,omitempty"` // files
	TestsRun       int               `json:"tests_run,omitempty"`
	TestsPassed    int               `json:"tests_passed,omitempty"`
	TestsFailed    int               `json:"tests_failed,omitempty"`
	FailureDetails []IntegrationFail `json:"failure_details,omitempty"`
	Summary        string            `json:"summary"`
}

// An IntegrationFail is one test that failed.
type IntegrationFail struct {
	TestName string `json:"test_name"`
	Error    string `json:"error"`
	File     string `json:"file,omitempty"`
}

// Verdict is why it did not pass, in one line.
func (r IntegrationResult) Verdict() string {
	for _, f := range r.FailureDetails {
		return fmt.Sprintf("%s: %s", f.TestName, f.Error)
	}
	return r.Summary
}

// Unfinished is what the Fix Generator gets: what a verification found open.
type Unfinished struct {
	PRD      plan.PRD
	Open     []CriterionResult // criteria that did not pass
	Findings []finding.Finding // that the review confirmed
	Evidence evidence.Result
	Issues   []Standing   // all of them: a name is used once
	Notes    []graph.Note // what did not land as planned
	Diff     string       // of the whole build; long ones are cut, and say so
	Left     int          // rounds of fixes after this one

	check func(FixPlan) []string
}

// FixPlan is the Fix Generator's answer.
type FixPlan struct {
	FixIssues []graph.Issue `json:"fix_issues"`
	DebtItems []debt.Item   `json:"debt_items,omitempty"` // what is not worth a fix, and why
	Summary   string        `json:"summary"`
}

// A Resolution says how one file was brought together.
type Resolution struct {
	File     string `json:"file"`
	Strategy string `json:"resolution_strategy"`
}

// Finished is what the Verifier gets: the whole work on its final commit.
type Finished struct {
	PRD      plan.PRD
	Issues   []graph.Issue   // those that landed
	Missing  []string        // one line for each issue that did not land
	Notes    []graph.Note    // what the issues left open or failed to deliver
	Evidence evidence.Result // the engine's own runs on this commit
}

// Judgement is the Verifier's answer.
type Judgement struct {
	CriteriaResults []CriterionResult `json:"criteria_results"`
	Summary         string            `json:"summary"`
}

// A CriterionResult is the verdict on one criterion of the PRD.
type CriterionResult struct {
	PRDID     string `json:"prd_id"`
	Passed    bool   `json:"passed"`
	Evidence  string `json:"evidence"` // file and line, test name, or command output that shows it
	IssueName string `json:"issue_name,omitempty"`
}

// Account is what the git role gets to write the pull request's words from.
type Account struct {
	PRD    plan.PRD
	Landed []string // one line each
	Debt   []string
}

// PullText is the git role's answer.
type PullText struct {
	Title   string `json:"title"`   // at most 72 characters
	Summary string `json:"summary"` // one paragraph
}

// The roles of landing, verifying and publishing.
var (
	Merger = agent.Role[Overlap, Merged]{
		Name: "merger", Tools: []runtime.Tool{runtime.Bash, runtime.Read, runtime.Glob, runtime.Grep, runtime.Edit},
		Prompt: agent.Load(prompts, "merger"),
	}
	Verifier = agent.Role[Finished, Judgement]{
		Name: "verifier", Tools: []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
		Prompt: agent.Load(prompts, "verifier", "shared"), Check: checkJudgement,
	}
	IntegrationTester = agent.Role[Integration, IntegrationResult]{
		Name: "integration_tester", Tools: []runtime.Tool{runtime.Bash, runtime.Read, runtime.Write, runtime.Glob, runtime.Grep},
		Prompt: agent.Load(prompts, "integration_tester", "shared"),
		Fallback: func(_ Integration, err error) (IntegrationResult, error) {
			return IntegrationResult{Summary: "it did not answer: " + err.Error()}, nil // fails closed: not passed
		},
	}
	FixGenerator = agent.Role[Unfinished, FixPlan]{
		Name: "fix_generator", Model: "verifier", Tools: []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
		Prompt: agent.Load(prompts, "fix_generator", "shared"),
		Check:  func(in Unfinished, p FixPlan) []string { return in.check(p) },
	}
	Git = agent.Role[Account, PullText]{
		Name: "git", Prompt: agent.Load(prompts, "git"),
		Check: func(_ Account, t PullText) []string {
			if t.Title == "" || len([]rune(t.Title)) > 72 {
				return []string{"title has to have 1 to 72 characters"}
			}
			return nil
		},
	}
)

// roles lists the model keys of all roles that a build asks.
var roles = []string{
	plan.ProductManager.Name, plan.Architect.Name, plan.TechLead.Name, plan.SprintPlanner.Name, plan.IssueWriter.Name,
	coding.Coder.Name, coding.QA.Name, coding.Reviewer.Name, coding.Synthesizer.Name,
	coding.RetryAdvisor.Name, coding.IssueAdvisor.Name,
	Merger.Name, IntegrationTester.Name, Replanner.Name, Verifier.Name, review.LensRole, ci.Fixer.Name, Git.Name,
}

// checkJudgement wants a verdict on every criterion.
func checkJudgement(in Finished, out Judgement) (problems []string) {
	judged := map[string]bool{}
	for _, r := range out.CriteriaResults {
		judged[r.PRDID] = true
	}
	for _, c := range in.PRD.AcceptanceCriteria {
		if !judged[c.ID] {
			problems = append(problems, fmt.Sprintf("criteria_results has no entry with prd_id %q", c.ID))
		}
	}
	return problems
}
