package coding

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// consult asks the Issue Advisor how it goes on after a round that ended so.
func (w *work) consult(ctx context.Context, ended string) (Decision, error) {
	// Work that no iteration came to judge, because its Coder failed or was not
	// done, is tested here: it may be accepted, and never unseen.
	if w.changed() && w.seen.testedAt != w.tree.Head() {
		if _, err := w.test(ctx, w.key()+"/commands"); err != nil {
			return Decision{}, err
		}
	}
	var tested *evidence.Result
	if w.seen.testedAt != "" {
		tested = &w.seen.tested
	}
	diff, err := w.diff(ctx)
	if err != nil {
		return Decision{}, err
	}
	known := w.task.Background()
	decision, err := agent.Ask(ctx, w.crew, agent.Place{Key: w.key(), Work: w.tree}, IssueAdvisor, Impasse{
		Issue: w.issue, GivenUp: w.givenUp, Spec: w.task.Spec, Ended: ended, Tried: w.tried,
		Review: w.seen.review, QA: w.seen.qa, Evidence: tested, Diff: diff,
		Notes: known.Notes, Memory: known.Memory.forAdvisor(w.issue), Steering: known.Steering,
		Earlier: w.advice, CanSplit: w.task.CanSplit, Unacceptable: w.unacceptable(),
		Last: len(w.advice)+1 == w.task.MaxAdvisorInvocations,
	})
	if err != nil {
		return Decision{}, err
	}
	w.advice = append(w.advice, Advice{IssueName: w.issue.Name, Invocation: len(w.advice) + 1, Decision: decision})
	return decision, nil
}

// follow carries a decision out. Not ended means another round.
func (w *work) follow(d Decision) (result Result, ended bool) {
	switch d.Action {
	case RetryModified:
		w.concede(d)
		w.direct(d, "The criteria were relaxed: "+d.ModificationJustification)
		return Result{}, false
	case RetryApproach:
		w.direct(d, d.NewApproach)
		return Result{}, false
	case Split:
		return w.split(d), true
	case AcceptWithDebt:
		if why := w.unacceptable(); why != "" {
			return w.result(report.FailedEscalated, fmt.Sprintf("it cannot be accepted with debt: %s; %s", why, d.reason())), true
		}
		w.settle(d)
		return w.completed(), true
	case EscalateToReplan:
	}
	return w.result(report.FailedEscalated, d.reason()), true
}

// reason is why the Issue Advisor gave the issue up.
func (d Decision) reason() string {
	return cmp.Or(d.EscalationReason, d.Rationale, d.Summary, d.FailureDiagnosis, "the Issue Advisor gave no reason")
}

// severity rates the debt that a decision makes.
func (d Decision) severity() debt.Severity { return cmp.Or(debt.Severity(d.DebtSeverity), debt.High) }

// direct keeps what a decision tells the Coder.
func (w *work) direct(d Decision, how string) {
	for _, change := range d.ApproachChanges {
		how += "\n- " + change
	}
	if d.FailureDiagnosis != "" {
		how += "\nWhy it failed before: " + d.FailureDiagnosis
	}
	w.directions = append(w.directions, how)
}

// concede replaces the criteria by the decision's. What a criterion asked for
// and no longer does is debt: it was relaxed if a new criterion serves one of
// the same criteria of the PRD, or else it was dropped, whether the decision says so
// or passes over it.
func (w *work) concede(d Decision) {
	before, after := w.issue.AcceptanceCriteria, slices.Clone(d.ModifiedCriteria)
	taken := make([]bool, len(after))
	for i, c := range after {
		if k := find(before, c.Text); k >= 0 {
			after[i], taken[i] = before[k], true // with the ids that it served
		}
	}
	for _, c := range before {
		if holds(after, c.Text) {
			continue
		}
		item := debt.Item{
			Type: debt.DroppedCriterion, Severity: d.severity(), IssueName: w.issue.Name, Criterion: c.Text,
			FollowUp: "decide whether it is still wanted",
		}
		to := -1
		if !slices.ContainsFunc(d.DroppedCriteria, func(text string) bool { return holds([]graph.Criterion{c}, text) }) {
			to = successor(c, after, taken)
		}
		if to < 0 {
			item.Justification = fmt.Sprintf("dropped%s: %s", serving(c.PRDIDs), d.ModificationJustification)
			w.dropped = append(w.dropped, c)
		} else {
			taken[to] = true
			item.Justification = fmt.Sprintf("relaxed%s to %q: %s", serving(c.PRDIDs), after[to].Text, d.ModificationJustification)
		}
		w.conceded = append(w.conceded, item)
		w.givenUp = append(w.givenUp, c.Text)
	}
	w.issue.AcceptanceCriteria, w.relaxed = after, true
}

// successor is the index of the criterion that takes the place of c, or -1:
// the first that takes no other's and serves one of the same criteria of the
// PRD, or none like c.
func successor(c graph.Criterion, after []graph.Criterion, taken []bool) int {
	for i, n := range after {
		same := len(c.PRDIDs) == 0 && len(n.PRDIDs) == 0
		if !taken[i] && (same || slices.ContainsFunc(n.PRDIDs, func(id string) bool { return slices.Contains(c.PRDIDs, id) })) {
			return i
		}
	}
	return -1
}

// serving names criteria of the PRD, if there are any.
func serving(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return " (" + strings.Join(ids, ", ") + ")"
}

// split is the result of an issue whose place its parts take. Criteria of the
// PRD that the issue served and no part does are debt, as is what was conceded.
func (w *work) split(d Decision) Result {
	var all debt.Ledger
	all.Record(w.conceded...)
	served := map[string]bool{}
	var names []string
	parts := slices.Clone(d.SubIssues)
	for i := range parts {
		parts[i] = w.inherit(parts[i])
		names = append(names, parts[i].Name)
		for _, c := range parts[i].AcceptanceCriteria {
			for _, id := range c.PRDIDs {
				served[id] = true
			}
		}
	}
	why := cmp.Or(d.SplitRationale, d.reason())
	for _, c := range w.issue.AcceptanceCriteria {
		var lost []string
		for _, id := range c.PRDIDs {
			if !served[id] {
				lost = append(lost, id)
			}
		}
		if lost != nil {
			all.Record(debt.Item{
				Type: debt.DroppedCriterion, Severity: d.severity(), IssueName: w.issue.Name, Criterion: c.Text,
				Justification: fmt.Sprintf("none of %s serves it%s: %s", strings.Join(names, ", "), serving(lost), why),
				FollowUp:      "decide whether it is still wanted",
			})
		}
	}
	r := w.result(report.FailedNeedsSplit, fmt.Sprintf("split into %s: %s", strings.Join(names, ", "), why))
	r.SubIssues, r.Debt = parts, all.Items()
	return r
}

// inherit gives a part what the issue has and the part leaves open. Guidance
// that says no more than its rationale is left open.
func (w *work) inherit(part graph.Issue) graph.Issue {
	part.Number, part.ParentName = 0, w.issue.Name
	part.TestingStrategy = cmp.Or(part.TestingStrategy, w.issue.TestingStrategy)
	part.TargetRepo = cmp.Or(part.TargetRepo, w.issue.TargetRepo)
	if rationale := part.Guidance.RiskRationale; part.Guidance == (graph.Guidance{RiskRationale: rationale}) {
		part.Guidance = w.issue.Guidance
		part.Guidance.RiskRationale = cmp.Or(rationale, w.issue.Guidance.RiskRationale)
	}
	return part
}

// unacceptable says why the work cannot land with debt, or nothing.
func (w *work) unacceptable() string {
	switch {
	case !w.changed():
		return "nothing was changed"
	case w.block != nil:
		return "the last verdict blocks it: " + firstLine(w.block.Summary)
	}
	for _, c := range w.seen.tested.Commands {
		if !c.Passed {
			return fmt.Sprintf("`%s` fails", c.Line)
		}
	}
	return ""
}

// settle turns what is missing in work that lands unapproved into debt: what
// the decision names and what the judges found, or at the least the last word.
func (w *work) settle(d Decision) {
	name := w.issue.Name
	for _, gap := range d.MissingFunctionality {
		w.debt.Record(gap.item(name, d.severity()))
	}
	if len(d.MissingFunctionality) == 0 {
		w.debt.Record(debt.Item{
			Type: debt.MissingFeature, Severity: d.severity(), IssueName: name,
			Justification: fmt.Sprintf("accepted unapproved (%s); still open: %s", d.reason(), firstLine(w.feedback)),
			FollowUp:      "look at it before merging",
		})
	}
	if w.seen.readAt != w.tree.Head() {
		w.debt.Record(debt.Item{
			Type: debt.WaivedReview, Severity: debt.High, IssueName: name,
			Justification: "no reviewer read the last commit of this change", FollowUp: "review it before merging",
		})
		w.debt.Record(EvidenceDebt(name, w.seen.tested)...)
		return
	}
	if !w.seen.review.Approved {
		for _, f := range w.seen.review.Findings {
			w.debt.Record(overruled(name, f))
		}
	}
	if qa := w.seen.qa; qa != nil && !qa.Passed {
		w.debt.Record(w.untested(*qa, "it was accepted all the same: "+d.reason()))
	}
	w.accept()
}

// overruled is a finding that nobody answered.
func overruled(issue string, f finding.Finding) debt.Item {
	severity := debt.Low
	switch f.Severity {
	case "critical", "high":
		severity = debt.High
	case "medium":
		severity = debt.Medium
	}
	return debt.Item{
		Type: debt.ReviewFinding, Severity: severity, IssueName: issue, File: f.Path,
		Justification: f.String(), FollowUp: f.Suggestion,
	}
}
