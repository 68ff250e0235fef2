package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// How entries of the journal change the graph: a plan, a start, a split, a
// landing, a replan, a round of fixes.

func (f *Fold) planned(e step.Entry) error {
	f.plan, f.planText, f.planKey = nil, nil, e.Key
	if err := json.Unmarshal(e.Outcome, &f.plan); err != nil {
		return err
	}
	g := &graph.Graph{} // of a plan in which nothing is to be coded
	if len(f.plan.Issues) > 0 {
		var err error
		if g, err = graph.New(f.plan.Issues); err != nil {
			return err
		}
	}
	f.prd, f.design = f.plan.PRD.Markdown(), f.plan.Architecture.Markdown()
	f.order, f.issues, f.byKey = nil, map[string]*issueState{}, map[string]*issueState{}
	f.regraph(g)
	return nil
}

// regraph makes g the graph: issues that it brings are new ones, those that
// changed are taken over.
func (f *Fold) regraph(g *graph.Graph) {
	f.graph = g
	for _, is := range g.Issues() {
		s := f.issues[is.Name]
		if s == nil {
			s = &issueState{}
			f.order = append(f.order, s)
			f.issues[is.Name], f.byKey[is.Key()] = s, s
		}
		s.issue, s.document = is, nil
	}
	slices.SortFunc(f.order, func(a, b *issueState) int { return a.issue.Number - b.issue.Number })
}

func (f *Fold) start(e step.Entry) error {
	s := f.byKey[strings.TrimPrefix(e.Key, "start/")]
	if s == nil {
		return errors.New("it starts an issue that is not in the plan")
	}
	var r started
	if err := json.Unmarshal(e.Outcome, &r); err != nil {
		return err
	}
	s.base, s.startedAt, s.document = r.Base, e.At, nil
	return nil
}

// divide puts sub-issues in the place of an issue, or makes it a failure.
func (f *Fold) divide(e step.Entry) error {
	s := f.byKey[strings.TrimPrefix(e.Key, "split/")]
	var r split
	if err := json.Unmarshal(e.Outcome, &r); err != nil {
		return err
	}
	if s == nil || s.kept == nil {
		return errors.New("it splits an issue that has not ended")
	}
	s.document = nil
	if r.Refused != "" {
		s.rejected = r.Refused
		return nil
	}
	g, err := f.graph.Split(s.issue.Name, s.kept.Result.SubIssues, f.used)
	if err != nil {
		return err
	}
	s.split = true
	f.splits++
	f.scope = append(f.scope, s.kept.Result.Debt...)
	f.regraph(g)
	parts := namesOf(s.kept.Result.SubIssues)
	for _, o := range f.order {
		if slices.Contains(o.waived, s.issue.Name) {
			o.waived = append(o.waived, parts...) // who runs without the whole runs without its parts
		}
	}
	for _, sub := range s.kept.Result.SubIssues {
		f.issues[sub.Name].waived = slices.Clone(s.waived) // they have its dependencies
		f.issues[sub.Name].told = append(slices.Clone(s.told), graph.Note{
			FromIssue: s.issue.Name, Kind: graph.FailureNote, Expected: s.issue.Title,
			Delivered: "it was split: " + s.kept.Result.Cause, Ref: s.kept.Ref,
		})
	}
	return nil
}

// used reports whether an issue, also one that left the graph, has the name.
func (f *Fold) used(name string) bool { return f.issues[name] != nil }

func (f *Fold) advance(e step.Entry) error {
	var r advanced
	if err := json.Unmarshal(e.Outcome, &r); err != nil {
		return err
	}
	f.open, f.head = "", r.Head
	f.came = append(f.came, r)
	for _, l := range r.Landed {
		s := f.issues[l.Name]
		s.merge, s.mergeDebt, s.document = l.Merge, l.Debt, nil
		f.remember(s)
	}
	for _, x := range r.Rejected {
		s := f.issues[x.Name]
		s.rejected, s.document = x.Cause, nil
		f.fail(s, x.Cause)
	}
	f.health(r)
	return nil
}

// decide takes the decision about failures.
func (f *Fold) decide(e step.Entry) error {
	var r replanned
	if err := json.Unmarshal(e.Outcome, &r); err != nil {
		return err
	}
	f.replan, f.failures = "", nil
	if f.stop != nil {
		// Nothing starts any more: how the build ends, and what it owes, is said.
		f.history = append(f.history, r.overtaken("the build had stopped"))
		return nil
	}
	if c := r.Decision.Action; c != Continue && c != Abort {
		if err := f.edit(r); err != nil {
			// What runs may fail or be split after the decision was checked and
			// before it was recorded. The rest goes on, as it does without one.
			r = r.overtaken(err.Error())
		}
	}
	f.history = append(f.history, r)
	for _, name := range r.Failed {
		f.issues[name].dealt, f.issues[name].document = true, nil
	}
	d := r.Decision
	if d.Action == Abort {
		f.stop = &stopped{State: report.Failed, Cause: because("the Replanner gave the build up", d.Rationale)}
		return nil
	}
	for _, w := range d.Waived {
		s := f.issues[w.IssueName]
		s.waived, s.document = append(s.waived, w.DependsOn), nil
	}
	f.skipDependents()
	return nil
}

// overtaken is the decision where it could not be carried out any more.
func (r replanned) overtaken(why string) replanned {
	return replanned{
		Failed: r.Failed, Decision: ReplanDecision{Action: Continue, Rationale: r.Decision.Rationale},
		Note: fmt.Sprintf("%s was decided, and could not be carried out: %s", r.Decision.Action, why),
	}
}

// edit applies what a replan changes, and records what it gives up.
func (f *Fold) edit(r replanned) error {
	d := r.Decision
	before := map[string]graph.Issue{}
	for _, is := range f.graph.Issues() {
		before[is.Name] = is
	}
	g, err := f.graph.Apply(d.edit(), f.state())
	if err != nil {
		return err
	}
	f.regraph(g)
	for _, name := range d.SkippedIssueNames {
		f.issues[name].skipped, f.issues[name].givenUp = because("skipped by the Replanner", d.Rationale), true
	}
	for _, name := range d.RemovedIssueNames {
		f.issues[name].skipped, f.issues[name].document = because("removed by the Replanner", d.Rationale), nil
	}
	var notes []graph.Note
	for _, name := range r.Failed {
		notes = append(notes, f.failureNote(f.issues[name]))
	}
	for _, is := range slices.Concat(d.NewIssues, d.updates()) {
		f.issues[is.Name].told = append(f.issues[is.Name].told, notes...)
	}
	for _, u := range d.UpdatedIssues {
		f.scope = append(f.scope, dropped(before[u.Name], f.issues[u.Name].issue, d.Rationale)...)
	}
	return nil
}

// dropped is the debt of criteria that an update left out.
func dropped(before, after graph.Issue, why string) (items []debt.Item) {
	for _, c := range before.AcceptanceCriteria {
		if !slices.ContainsFunc(after.AcceptanceCriteria, func(o graph.Criterion) bool { return o.Text == c.Text }) {
			items = append(items, debt.Item{
				Type: debt.DroppedCriterion, Severity: debt.High, IssueName: before.Name, Criterion: c.Text,
				Justification: because("the Replanner changed the criteria", why),
			})
		}
	}
	return items
}

// skipDependents marks what can never start: its dependency failed, that was
// dealt with, and nobody waived it.
func (f *Fold) skipDependents() {
	for changed := true; changed; {
		changed = false
		for _, s := range f.order {
			if is, in := f.graph.Issue(s.issue.Name); in && s.outcome() == report.Pending {
				for _, name := range is.DependsOn {
					if d := f.issues[name]; d.gone() && !slices.Contains(s.waived, name) {
						s.skipped, s.document = fmt.Sprintf("it depends on %s, which did not land: %s", name, d.why()), nil
						changed = true
						break
					}
				}
			}
		}
	}
}

// mend takes the issues that a round of fixes adds.
func (f *Fold) mend(e step.Entry) error {
	var x fixes
	if err := json.Unmarshal(e.Outcome, &x); err != nil {
		return err
	}
	f.fixes = append(f.fixes, x)
	f.scope = append(f.scope, x.Debt...)
	if len(x.Issues) == 0 {
		if f.verified != nil {
			f.verified.Final, f.ends["verify"] = true, e.At
		}
		return nil
	}
	delete(f.ends, "execute")
	g, err := f.graph.Apply(graph.Edit{Add: x.Issues}, f.state())
	if err != nil {
		return err
	}
	f.regraph(g)
	return nil
}

// state is what an edit of the graph is checked against.
func (f *Fold) state() graph.State {
	return graph.State{
		Used: f.used,
		Of: func(name string) graph.Standing {
			switch f.issues[name].outcome() {
			case report.Pending:
				return graph.Pending
			case report.InProgress, report.Landing, report.FailedNeedsSplit: // its parts are to take its place
				return graph.Busy
			case report.Completed, report.CompletedWithDebt:
				return graph.Landed
			}
			return graph.Dead
		},
	}
}
