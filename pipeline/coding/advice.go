package coding

import (
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

// AdvisorAction is what the Issue Advisor does about an issue that is stuck.
type AdvisorAction string

// The actions of the Issue Advisor.
const (
	RetryModified    AdvisorAction = "retry_modified"
	RetryApproach    AdvisorAction = "retry_approach"
	Split            AdvisorAction = "split"
	AcceptWithDebt   AdvisorAction = "accept_with_debt"
	EscalateToReplan AdvisorAction = "escalate_to_replan"
)

// A Decision is the Issue Advisor's answer. Which fields count depends on the
// action.
type Decision struct {
	Action           AdvisorAction `json:"action"`
	FailureDiagnosis string        `json:"failure_diagnosis"`
	FailureCategory  string        `json:"failure_category"` // environment, logic, dependency, approach, scope
	Rationale        string        `json:"rationale"`
	Confidence       float64       `json:"confidence"` // 0 to 1
	Summary          string        `json:"summary"`

	// retry_modified
	ModifiedCriteria          []graph.Criterion `json:"modified_acceptance_criteria,omitempty"`
	DroppedCriteria           []string          `json:"dropped_criteria,omitempty"` // texts of the issue's criteria, verbatim
	ModificationJustification string            `json:"modification_justification,omitempty"`

	// retry_approach
	NewApproach     string   `json:"new_approach,omitempty"`
	ApproachChanges []string `json:"approach_changes,omitempty"`

	// split
	SubIssues      []graph.Issue `json:"sub_issues,omitempty"`
	SplitRationale string        `json:"split_rationale,omitempty"`

	// accept_with_debt
	MissingFunctionality []Shortfall `json:"missing_functionality,omitempty"`
	DebtSeverity         string      `json:"debt_severity,omitempty"` // of gaps that name none

	// escalate_to_replan
	EscalationReason       string `json:"escalation_reason,omitempty"`
	DAGImpact              string `json:"dag_impact,omitempty"`
	SuggestedRestructuring string `json:"suggested_restructuring,omitempty"`
	DownstreamImpact       string `json:"downstream_impact,omitempty"`
}

// An Advice is one decision on an issue, kept as the build's history.
type Advice struct {
	IssueName  string   `json:"issue_name"`
	Invocation int      `json:"invocation"` // 1 for the first
	Decision   Decision `json:"decision"`
}

// Impasse is what the Issue Advisor gets: an issue whose round ended without
// approval.
type Impasse struct {
	Issue        graph.Issue // its criteria are those that hold now
	GivenUp      []string    // texts of criteria that are no longer asked for
	Spec         string
	Ended        string           // how the last round did
	Tried        []Tried          // every round, oldest first
	Review       *ReviewResult    // the last one; nil when no change was judged
	QA           *QAResult        // likewise; nil on the default path
	Evidence     *evidence.Result // of the newest commit; nil when nothing was changed
	Diff         string           // since the issue's base
	Notes        []graph.Note
	Memory       Memory
	Steering     []string
	Earlier      []Advice
	CanSplit     bool
	Unacceptable string // why accept_with_debt would not be followed; empty: it would
	Last         bool   // no further decision is asked for
}

// Tried is one round: what the Coder was told after each iteration, and how it
// ended.
type Tried struct {
	Round    int      `json:"round"`
	Feedback []string `json:"feedback"`
	Ended    string   `json:"ended"`
}

// Breakdown is what the Retry Advisor gets: a call of the Coder that failed.
type Breakdown struct {
	Issue      graph.Issue
	GivenUp    []string
	Spec       string
	Reason     string   // of the failure
	Directions []string // the Issue Advisor's guidance, oldest first
	Earlier    []string // the feedback of the round's iterations before
	Diff       string   // since the issue's base, with what the failed call left
}

// RetryAdvice is the Retry Advisor's answer.
type RetryAdvice struct {
	ShouldRetry     bool    `json:"should_retry"`
	Diagnosis       string  `json:"diagnosis"`
	Strategy        string  `json:"strategy,omitempty"`         // what the next attempt does otherwise
	ModifiedContext string  `json:"modified_context,omitempty"` // what it should know beside
	Confidence      float64 `json:"confidence"`                 // 0 to 1
}

// words is the feedback with the advice behind it.
func (a RetryAdvice) words(feedback string) string {
	for _, part := range []struct{ label, text string }{
		{"What went wrong", a.Diagnosis}, {"Go on like this", a.Strategy}, {"To know", a.ModifiedContext},
	} {
		if part.text != "" {
			feedback += fmt.Sprintf("\n%s: %s", part.label, part.text)
		}
	}
	return feedback
}
