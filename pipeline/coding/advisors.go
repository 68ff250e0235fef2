package coding

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// The roles that say how it goes on.
var (
	IssueAdvisor = agent.Role[Impasse, Decision]{
		Name:   "issue_advisor",
		Tools:  []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
		Prompt: agent.Load(prompts, "issue_advisor", "shared"),
		Check:  checkDecision,
		Fallback: func(in Impasse, err error) (Decision, error) {
			return Decision{
				Action:           EscalateToReplan,
				EscalationReason: fmt.Sprintf("%s; the Issue Advisor did not answer: %v", in.Ended, err),
			}, nil
		},
	}
	RetryAdvisor = agent.Role[Breakdown, RetryAdvice]{
		Name:   "retry_advisor",
		Tools:  []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
		Prompt: agent.Load(prompts, "retry_advisor", "shared"),
		Check:  checkRetry,
		Fallback: func(Breakdown, error) (RetryAdvice, error) {
			return RetryAdvice{ShouldRetry: true}, nil // plainly
		},
	}
)

func checkRetry(_ Breakdown, a RetryAdvice) []string {
	problems := checkConfidence(a.Confidence)
	switch {
	case a.ShouldRetry && blank(a.Strategy):
		problems = append(problems, "strategy is empty: say what the next attempt does otherwise")
	case !a.ShouldRetry && blank(a.Diagnosis):
		problems = append(problems, "diagnosis is empty: say why another attempt would not help")
	}
	return problems
}

// checkDecision wants what the action needs to be carried out.
func checkDecision(in Impasse, d Decision) []string {
	problems := checkConfidence(d.Confidence)
	switch d.FailureCategory {
	case "", "environment", "logic", "dependency", "approach", "scope":
	default:
		problems = append(problems, fmt.Sprintf("failure_category is %q: use environment, logic, dependency, approach or scope", d.FailureCategory))
	}
	if d.DebtSeverity != "" {
		problems = append(problems, checkSeverity("debt_severity", debt.Severity(d.DebtSeverity))...)
	}
	switch d.Action {
	case RetryModified:
		return append(problems, checkModified(in.Issue.AcceptanceCriteria, d)...)
	case RetryApproach:
		if blank(d.NewApproach) {
			problems = append(problems, "new_approach is empty: it is what the Coder is told")
		}
	case Split:
		return append(problems, checkSplit(in, d.SubIssues)...)
	case AcceptWithDebt:
		for i, gap := range d.MissingFunctionality {
			where := fmt.Sprintf("missing_functionality[%d]", i)
			problems = append(problems, checkType(where, gap.Type)...)
			if gap.Severity != "" {
				problems = append(problems, checkSeverity(where+".severity", gap.Severity)...)
			}
		}
	case EscalateToReplan:
	default:
		problems = append(problems, fmt.Sprintf("action is %q: use %s, %s, %s, %s or %s",
			d.Action, RetryModified, RetryApproach, Split, AcceptWithDebt, EscalateToReplan))
	}
	return problems
}

// checkModified wants criteria that are left, that differ, and whose dropped
// ones can be told from the rest.
func checkModified(now []graph.Criterion, d Decision) (problems []string) {
	if len(d.ModifiedCriteria) == 0 {
		problems = append(problems, "modified_acceptance_criteria is empty: list every criterion as it stands from now on; to give all of them up, choose another action")
	}
	if blank(d.ModificationJustification) {
		problems = append(problems, "modification_justification is empty: people read it beside the debt")
	}
	for i, c := range d.ModifiedCriteria {
		if blank(c.Text) || holds(d.ModifiedCriteria[:i], c.Text) {
			problems = append(problems, fmt.Sprintf("modified_acceptance_criteria[%d].text is empty or there twice", i))
		}
	}
	for i, text := range d.DroppedCriteria {
		switch {
		case !holds(now, text):
			problems = append(problems, fmt.Sprintf("dropped_criteria[%d] is none of the issue's criteria: quote one verbatim", i))
		case holds(d.ModifiedCriteria, text):
			problems = append(problems, fmt.Sprintf("dropped_criteria[%d] is in modified_acceptance_criteria too", i))
		}
	}
	if !slices.ContainsFunc(now, func(c graph.Criterion) bool { return !holds(d.ModifiedCriteria, c.Text) }) {
		problems = append(problems, "no criterion is relaxed or dropped: use retry_approach to try again with the same ones")
	}
	return problems
}

// checkSplit wants parts that can take the issue's place in the graph.
func checkSplit(in Impasse, parts []graph.Issue) (problems []string) {
	if !in.CanSplit {
		return []string{"action is split, but this issue cannot be split: choose another action"}
	}
	if len(parts) < 2 {
		problems = append(problems, "sub_issues: a split needs at least two")
	}
	nodes := make([]graph.Issue, 0, len(parts)+len(in.Issue.DependsOn))
	for _, p := range parts {
		if p.Name == in.Issue.Name {
			problems = append(problems, fmt.Sprintf("sub-issue %q has the name of the issue itself", p.Name))
		}
		if len(p.AcceptanceCriteria) == 0 || slices.ContainsFunc(p.AcceptanceCriteria, func(c graph.Criterion) bool { return blank(c.Text) }) {
			problems = append(problems, fmt.Sprintf("sub-issue %q has no acceptance criterion or an empty one", p.Name))
		}
		p.Number = 0
		nodes = append(nodes, p)
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(in.Issue.DependsOn))) {
		nodes = append(nodes, graph.Issue{Name: name}) // a part may stand on what the issue stands on
	}
	_, err := graph.New(nodes)
	if bad, ok := errors.AsType[*graph.Error](err); ok {
		for _, p := range bad.Problems {
			problems = append(problems, "sub_issues: "+p)
		}
		problems = append(problems, fmt.Sprintf("a sub-issue may depend on other sub-issues and on %q", in.Issue.DependsOn))
	}
	return problems
}

func checkConfidence(c float64) []string {
	if c < 0 || c > 1 {
		return []string{fmt.Sprintf("confidence is %g: use 0 to 1", c)}
	}
	return nil
}

func blank(s string) bool { return strings.TrimSpace(s) == "" }

// holds reports whether a criterion of the list has the text.
func holds(list []graph.Criterion, text string) bool { return find(list, text) >= 0 }

// find is the index of the criterion with the text, or -1.
func find(list []graph.Criterion, text string) int {
	return slices.IndexFunc(list, func(c graph.Criterion) bool { return strings.TrimSpace(c.Text) == strings.TrimSpace(text) })
}
