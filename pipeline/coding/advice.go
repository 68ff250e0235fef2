package coding

import "github.com/slipway-dev/slipway/pipeline/graph"

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
