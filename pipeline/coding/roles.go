package coding

import (
	"embed"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

//go:embed prompts/*.md
var prompts embed.FS

// Assignment is what the Coder gets, at every iteration in full.
type Assignment struct {
	Issue      graph.Issue  // its criteria are those that hold now
	GivenUp    []string     // texts of criteria that are no longer asked for
	Spec       string       // the Issue Writer's text
	Notes      []graph.Note // what earlier issues left open
	Memory     Memory
	Steering   []string // what people said to the running build, oldest first
	Round      int      // 1 for the first; each decision of the Issue Advisor to try again starts one
	Iteration  int      // of the round
	Directions []string // the Issue Advisor's guidance, oldest first
	Feedback   string   // what was wrong with the last iteration; empty at the first
}

// Submission is the Coder's answer.
type Submission struct {
	FilesChanged []string `json:"files_changed"`
	Summary      string   `json:"summary"`
	Complete     bool     `json:"complete"`
	TestsPassed  *bool    `json:"tests_passed,omitempty"` // the Coder's word; the engine runs its own
	TestSummary  string   `json:"test_summary,omitempty"`
	Learnings    []string `json:"learnings,omitempty"`
	Interfaces   []string `json:"interfaces,omitempty"`
}

// Change is what QA and the Code Reviewer judge.
type Change struct {
	Issue       graph.Issue // its criteria are those that hold now
	GivenUp     []string    // texts of criteria that are no longer asked for
	Spec        string
	Summary     string          // the Coder's own words
	Diff        string          // since the issue's base; long ones are cut, and say so
	Evidence    evidence.Result // the engine's own runs
	BugPatterns []BugPattern    // for the reviewer
}

// QAResult is QA's answer. The tests that it wrote are in its worktree.
type QAResult struct {
	Passed       bool          `json:"passed"`
	Summary      string        `json:"summary"`
	TestFailures []TestFailure `json:"test_failures,omitempty"`
	CoverageGaps []string      `json:"coverage_gaps,omitempty"`

	absent bool // QA did not answer
}

// A TestFailure is one failed test.
type TestFailure struct {
	TestName string `json:"test_name"`
	File     string `json:"file,omitempty"`
	Error    string `json:"error"`
	Expected string `json:"expected,omitempty"`
	Actual   string `json:"actual,omitempty"`
}

// ReviewResult is the Code Reviewer's answer. Blocking is for security, crash
// and data loss.
type ReviewResult struct {
	Approved  bool              `json:"approved"`
	Blocking  bool              `json:"blocking"`
	Summary   string            `json:"summary"`
	Findings  []finding.Finding `json:"findings,omitempty"`
	DebtItems []Shortfall       `json:"debt_items,omitempty"`

	absent bool // no reviewer answered
}

// A Shortfall is what a reviewer or the Issue Advisor lets pass but does not
// want forgotten.
type Shortfall struct {
	Type          debt.Type     `json:"type,omitempty"` // empty means missing_functionality
	Severity      debt.Severity `json:"severity"`
	Criterion     string        `json:"criterion,omitempty"`
	Justification string        `json:"justification"`
	FollowUp      string        `json:"follow_up,omitempty"`
}

// Verdicts is what the QA Synthesizer gets.
type Verdicts struct {
	Issue    graph.Issue
	GivenUp  []string
	QA       QAResult
	Review   ReviewResult
	Evidence evidence.Result
	Earlier  []string // the feedback of earlier iterations
}

// Synthesis is the QA Synthesizer's answer.
type Synthesis struct {
	Action         Action          `json:"action"`
	Summary        string          `json:"summary"`
	Stuck          bool            `json:"stuck"`
	Contradictions []Contradiction `json:"contradictions,omitempty"`
}

// A Contradiction is a point where QA and the reviewer disagree.
type Contradiction struct {
	QA       string `json:"qa"`
	Review   string `json:"review"`
	Decision string `json:"decision"`
}

// Action is what follows a round of judgement.
type Action string

// The actions.
const (
	Fix     Action = "fix"
	Approve Action = "approve"
	Block   Action = "block"
)

// The coding roles.
var (
	Coder = agent.Role[Assignment, Submission]{
		Name:   "coder",
		Tools:  []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep},
		Prompt: agent.Load(prompts, "coder", "shared"),
	}
	QA = agent.Role[Change, QAResult]{
		Name:   "qa",
		Tools:  []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep},
		Prompt: agent.Load(prompts, "qa", "shared"),
		Fallback: func(_ Change, err error) (QAResult, error) {
			return QAResult{absent: true, Summary: "QA did not answer: " + err.Error()}, nil // fails closed: not passed
		},
	}
	Reviewer = agent.Role[Change, ReviewResult]{
		Name:   "code_reviewer",
		Tools:  []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
		Prompt: agent.Load(prompts, "code_reviewer", "shared"),
		Check:  checkReview,
	}
	Synthesizer = agent.Role[Verdicts, Synthesis]{
		Name:   "qa_synthesizer",
		Prompt: agent.Load(prompts, "qa_synthesizer", "shared"),
		Check: func(_ Verdicts, s Synthesis) []string {
			switch s.Action {
			case Fix, Approve, Block:
				return nil
			}
			return []string{fmt.Sprintf("action %q: use fix, approve or block", s.Action)}
		},
		Fallback: func(v Verdicts, _ error) (Synthesis, error) { return synthesize(v), nil },
	}
)

// checkReview wants a verdict that is one, and debt that can be counted.
func checkReview(_ Change, r ReviewResult) (problems []string) {
	if r.Approved && r.Blocking {
		problems = append(problems, "approved and blocking are both true: a blocking change cannot be approved")
	}
	for i, s := range r.DebtItems {
		where := fmt.Sprintf("debt_items[%d]", i)
		problems = append(problems, checkType(where, s.Type)...)
		problems = append(problems, checkSeverity(where+".severity", s.Severity)...)
	}
	return problems
}

// checkType wants a type of debt that a role may name.
func checkType(where string, t debt.Type) []string {
	switch t {
	case "", debt.MissingFeature, debt.DroppedCriterion, debt.UnmetCriterion, debt.UnverifiedCriteria, debt.ReviewFinding:
		return nil
	}
	return []string{fmt.Sprintf("%s.type is %q, which is none of those listed", where, t)}
}

func checkSeverity(where string, s debt.Severity) []string {
	switch s {
	case debt.High, debt.Medium, debt.Low:
		return nil
	}
	return []string{fmt.Sprintf("%s is %q: use high, medium or low", where, s)}
}

// synthesize is the rule that decides when the Synthesizer does not answer.
func synthesize(v Verdicts) Synthesis {
	s := Synthesis{Action: Fix, Summary: feedback(v.Evidence, v.Review, &v.QA)}
	switch {
	case v.Review.Blocking:
		s.Action = Block
	case v.QA.Passed && v.Review.Approved && v.Evidence.Passed():
		s.Action = Approve
	}
	return s
}
