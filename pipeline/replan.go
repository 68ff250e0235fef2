package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// ReplanAction is what the Replanner does about failures.
type ReplanAction string

// The actions of the Replanner.
const (
	Continue    ReplanAction = "continue"
	ModifyDAG   ReplanAction = "modify_dag"
	ReduceScope ReplanAction = "reduce_scope"
	Abort       ReplanAction = "abort"
)

// A ReplanDecision is the Replanner's answer. It may name pending issues only.
type ReplanDecision struct {
	Action            ReplanAction   `json:"action"`
	Rationale         string         `json:"rationale"`
	UpdatedIssues     []IssueUpdate  `json:"updated_issues,omitempty"`
	RemovedIssueNames []string       `json:"removed_issue_names,omitempty"`
	SkippedIssueNames []string       `json:"skipped_issue_names,omitempty"`
	NewIssues         []graph.Issue  `json:"new_issues,omitempty"`
	Waived            []graph.Waiver `json:"waived,omitempty"` // dependencies that an issue runs without
	Summary           string         `json:"summary"`
}

// An IssueUpdate changes an issue by name: what is set replaces what the issue
// has. An empty list of dependencies is one that is set.
type IssueUpdate struct {
	Name               string            `json:"name"`
	Title              string            `json:"title,omitempty"`
	Description        string            `json:"description,omitempty"`
	AcceptanceCriteria []graph.Criterion `json:"acceptance_criteria,omitempty"`
	DependsOn          []string          `json:"depends_on,omitzero"`
	Provides           []string          `json:"provides,omitzero"`
	FilesToCreate      []string          `json:"files_to_create,omitzero"`
	FilesToModify      []string          `json:"files_to_modify,omitzero"`
	Complexity         string            `json:"estimated_complexity,omitempty"`
	TestingStrategy    string            `json:"testing_strategy,omitempty"`
	Guidance           *graph.Guidance   `json:"guidance,omitempty"`
}

// issue is the update as an edit of the graph has it.
func (u IssueUpdate) issue() graph.Issue {
	is := graph.Issue{
		Name: u.Name, Title: u.Title, Description: u.Description, AcceptanceCriteria: u.AcceptanceCriteria,
		DependsOn: u.DependsOn, Provides: u.Provides, FilesToCreate: u.FilesToCreate, FilesToModify: u.FilesToModify,
		Complexity: u.Complexity, TestingStrategy: u.TestingStrategy,
	}
	if u.Guidance != nil {
		is.Guidance = *u.Guidance
	}
	return is
}

// updates are the changed issues as an edit of the graph has them.
func (d ReplanDecision) updates() (issues []graph.Issue) {
	for _, u := range d.UpdatedIssues {
		issues = append(issues, u.issue())
	}
	return issues
}

// edit is the decision as a change of the graph.
func (d ReplanDecision) edit() graph.Edit {
	return graph.Edit{
		Remove: d.RemovedIssueNames, Skip: d.SkippedIssueNames, Update: d.updates(), Add: d.NewIssues, Waive: d.Waived,
	}
}

// String is what was decided, for the report's notes; n counts the replans.
func (r replanned) String(n int) string {
	text := fmt.Sprintf("Replan %d after %s failed: %s", n, strings.Join(r.Failed, ", "), r.Decision.Action)
	for _, change := range []struct {
		what  string
		names []string
	}{
		{"added", namesOf(r.Decision.NewIssues)}, {"changed", namesOf(r.Decision.updates())},
		{"removed", r.Decision.RemovedIssueNames}, {"skipped", r.Decision.SkippedIssueNames},
	} {
		if len(change.names) > 0 {
			text += "; " + change.what + " " + strings.Join(change.names, ", ")
		}
	}
	if why := strings.TrimSpace(r.Decision.Summary); why != "" {
		text += ". " + why
	}
	if r.Note != "" {
		text += " (" + r.Note + ")"
	}
	return text
}

func namesOf(issues []graph.Issue) (names []string) {
	for _, is := range issues {
		names = append(names, is.Name)
	}
	return names
}

// Setback is what the Replanner gets: the whole state, and what failed.
type Setback struct {
	PRD      plan.PRD
	Design   plan.Architecture
	Failed   []Failed
	Issues   []Standing        // all of them
	Debt     []debt.Item       // so far
	Memory   coding.Memory     // what the build learned
	Advice   []coding.Advice   // what the Issue Advisor decided before
	Earlier  []EarlierDecision // of the Replanner
	Steering []string
	Left     int // how often the Replanner may be asked after this

	check func(ReplanDecision) []string
}

// A Failed issue, and what is known of why.
type Failed struct {
	Issue   graph.Issue    `json:"issue"`
	Outcome report.Outcome `json:"outcome"`
	Cause   string         `json:"cause"`
	Ref     string         `json:"ref,omitempty"` // where its work is kept
	Below   []string       `json:"dependents,omitempty"`
}

// Standing is one issue and where it stands.
type Standing struct {
	Name      string            `json:"name"`
	Title     string            `json:"title"`
	Outcome   report.Outcome    `json:"outcome"`
	DependsOn []string          `json:"depends_on,omitempty"`
	Criteria  []graph.Criterion `json:"acceptance_criteria,omitempty"` // of pending ones
	Summary   string            `json:"summary,omitempty"`
}

// An EarlierDecision is one that the Replanner, or the rule in its place, made.
type EarlierDecision struct {
	Failed   []string       `json:"failed"`
	Decision ReplanDecision `json:"decision"`
}

// Replanner decides what becomes of a build after failures. It fails safe: the
// rest goes on.
var Replanner = agent.Role[Setback, ReplanDecision]{
	Name: "replan", Tools: []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep, runtime.Bash},
	Prompt: agent.Load(prompts, "replan"), Check: checkReplan, Repairs: 1,
}

// checkReplan wants a decision that can be carried out.
func checkReplan(in Setback, d ReplanDecision) []string {
	switch d.Action {
	case Continue, Abort, ModifyDAG, ReduceScope:
	default:
		return []string{fmt.Sprintf("action %q: use continue, modify_dag, reduce_scope or abort", d.Action)}
	}
	return in.check(d)
}

// replan settles the open replan: by the Replanner where it is asked and gives a
// decision that can be carried out, else the rest goes on.
func (b *build) replan(ctx context.Context) error {
	key, failures, asked := b.fold.replanning()
	key = b.fold.key(key)
	out := replanned{Failed: failures, Decision: ReplanDecision{Action: Continue}, Note: "the Replanner was not asked"}
	if asked {
		at := agent.Place{Key: key, Work: b.site.Open(treeName("replan", key), b.fold.integrated())}
		decision, err := agent.Ask(ctx, b.crew, at, Replanner, b.setback(failures))
		failure, failed := errors.AsType[*agent.Failure](err)
		switch {
		case failed:
			out.Note = "the Replanner gave no usable decision: " + failure.Reason
		case err != nil:
			return err
		default:
			out.Decision, out.Note = decision, ""
		}
	}
	_, err := step.Effect(ctx, b.journal, keySettled(key), func(context.Context) (replanned, error) { return out, nil })
	return errors.Join(err, b.checkpoint())
}

// setback gathers what the Replanner is told.
func (b *build) setback(failures []string) Setback {
	in := b.fold.setback(failures)
	in.Left = b.conf.Pipeline.MaxReplans - b.fold.replansAsked()
	if b.conf.Pipeline.EnableLearning {
		in.Memory = b.fold.whole()
	}
	in.check = b.fold.impossible
	return in
}

// replanning is the replan that was chosen and has not ended.
func (f *Fold) replanning() (key string, failures []string, asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.replan, f.failures, f.replanAsked
}

func (f *Fold) replansAsked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked
}

func (f *Fold) setback(failures []string) Setback {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := Setback{PRD: f.plan.PRD, Design: f.plan.Architecture, Debt: f.ledger().Items(), Steering: slices.Clone(f.steering)}
	for _, name := range failures {
		s := f.issues[name]
		one := Failed{Issue: s.issue, Outcome: s.outcome(), Cause: s.why(), Below: f.graph.Downstream(name)}
		if s.kept != nil {
			one.Ref = s.kept.Ref
		}
		in.Failed = append(in.Failed, one)
	}
	for _, s := range f.order {
		line := Standing{Name: s.issue.Name, Title: s.issue.Title, Outcome: s.outcome(), DependsOn: s.issue.DependsOn}
		switch {
		case line.Outcome == report.Pending:
			line.Criteria = s.issue.AcceptanceCriteria
		case s.kept != nil:
			line.Summary = s.kept.Result.Summary
		}
		in.Issues = append(in.Issues, line)
		if s.kept != nil {
			in.Advice = append(in.Advice, s.kept.Result.Advice...)
		}
	}
	for _, r := range f.history {
		in.Earlier = append(in.Earlier, EarlierDecision{Failed: r.Failed, Decision: r.Decision})
	}
	return in
}

// impossible says why a decision cannot be carried out as things stand. While
// the Replanner is asked nothing pending starts and nothing is split, so what is
// possible stays so, unless it needs what runs and fails meanwhile.
func (f *Fold) impossible(d ReplanDecision) (problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch d.Action {
	case Continue:
		if len(d.UpdatedIssues)+len(d.NewIssues)+len(d.RemovedIssueNames)+len(d.SkippedIssueNames) > 0 {
			problems = append(problems, "continue changes nothing but waived: use modify_dag for other changes")
		}
	case ReduceScope:
		if len(d.UpdatedIssues)+len(d.NewIssues) > 0 {
			problems = append(problems, "reduce_scope only removes or skips: use modify_dag to add or change issues")
		}
		for _, name := range slices.Concat(d.RemovedIssueNames, d.SkippedIssueNames) {
			if id := f.mustServe(name); id != "" {
				problems = append(problems, fmt.Sprintf("reduce_scope: %q serves %s, which is a must-have", name, id))
			}
		}
	case Abort:
		return nil
	}
	for i, is := range d.NewIssues {
		if len(is.AcceptanceCriteria) == 0 || is.Title == "" || is.Description == "" {
			problems = append(problems, fmt.Sprintf("new_issues[%d] (%s): title, description and acceptance_criteria are needed", i, is.Name))
		}
	}
	_, err := f.graph.Apply(d.edit(), f.state())
	if bad, ok := errors.AsType[*graph.Error](err); ok {
		problems = append(problems, bad.Problems...)
	}
	return problems
}

// mustServe is a must-have criterion that the issue serves, if there is one.
func (f *Fold) mustServe(name string) string {
	s := f.issues[name]
	if s == nil {
		return ""
	}
	for _, c := range s.issue.AcceptanceCriteria {
		for _, must := range f.plan.PRD.AcceptanceCriteria {
			if must.MustHave && slices.Contains(c.PRDIDs, must.ID) {
				return must.ID
			}
		}
	}
	return ""
}
