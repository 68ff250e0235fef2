package graph

import (
	"fmt"
	"slices"
)

// Standing is how far an issue is, as an edit has to know it.
type Standing int

// The standings.
const (
	Pending Standing = iota // not started: it may be changed
	Busy                    // started, or finished and not landed
	Landed
	Dead // failed or skipped: it will not land
)

// A Waiver lets an issue run although one of its dependencies did not land.
type Waiver struct {
	IssueName string `json:"issue_name"`
	DependsOn string `json:"depends_on"`
}

// An Edit changes the part of a graph that has not started.
type Edit struct {
	Remove []string // gone; nothing may depend on them afterwards
	Skip   []string // stay in the graph and will not run
	Update []Issue  // what is set replaces what the issue of that name has; an empty list of dependencies is one that is set
	Add    []Issue
	Waive  []Waiver
}

// A State is what an edit is checked against.
type State struct {
	Of   func(name string) Standing // of the issues in the graph
	Used func(name string) bool     // an issue that is no longer in the graph had that name
}

// Apply returns the graph after the edit, new issues numbered. An edit that
// names what it may not touch, leaves something hanging or makes a circle is an
// *Error with every problem.
func (g *Graph) Apply(e Edit, s State) (*Graph, error) {
	var bad Error
	problem := func(format string, args ...any) { bad.Problems = append(bad.Problems, fmt.Sprintf(format, args...)) }
	pending := func(what, name string) bool {
		_, known := g.index[name]
		switch {
		case !known:
			problem("%s %q: there is no such issue", what, name)
		case s.Of(name) != Pending:
			problem("%s %q: it has started or ended; only issues that have not started may be changed", what, name)
		default:
			return true
		}
		return false
	}
	dying := map[string]bool{} // will not land because of this edit
	for _, name := range e.Remove {
		dying[name] = pending("remove", name)
	}
	for _, name := range e.Skip {
		dying[name] = pending("skip", name)
	}
	waived := map[Waiver]bool{}
	for _, w := range e.Waive {
		waived[w] = true
	}
	issues := slices.DeleteFunc(slices.Clone(g.issues), func(is Issue) bool { return slices.Contains(e.Remove, is.Name) })
	touched := map[string]bool{}
	for _, u := range e.Update {
		if !pending("update", u.Name) {
			continue
		}
		if dying[u.Name] || touched[u.Name] {
			problem("update %q: it is changed twice", u.Name)
			continue
		}
		touched[u.Name] = true
		i := slices.IndexFunc(issues, func(is Issue) bool { return is.Name == u.Name })
		issues[i] = issues[i].with(u)
	}
	for _, is := range e.Add {
		if _, known := g.index[is.Name]; known || s.Used(is.Name) {
			problem("add %q: the name was used before; take another", is.Name)
			continue
		}
		is.Number = 0
		touched[is.Name] = true
		issues = append(issues, is)
	}
	for _, is := range issues {
		for _, d := range is.DependsOn {
			switch _, known := g.index[d]; {
			case slices.Contains(e.Remove, d):
				problem("%q still depends on %q, which is removed: give it other dependencies", is.Name, d)
			case touched[is.Name] && known && (dying[d] || s.Of(d) == Dead) && !waived[Waiver{is.Name, d}]:
				problem("%q depends on %q, which will not land: leave the dependency out, or waive it", is.Name, d)
			}
		}
	}
	for _, w := range e.Waive {
		i := slices.IndexFunc(issues, func(is Issue) bool { return is.Name == w.IssueName })
		_, old := g.index[w.IssueName]
		switch {
		case i < 0 || old && s.Of(w.IssueName) != Pending || dying[w.IssueName]:
			problem("waive %q: it is no issue that waits", w.IssueName)
		case !slices.Contains(issues[i].DependsOn, w.DependsOn):
			problem("waive %q: it does not depend on %q", w.IssueName, w.DependsOn)
		case !dying[w.DependsOn] && s.Of(w.DependsOn) != Dead:
			problem("waive %q: %q has not failed, wait for it", w.IssueName, w.DependsOn)
		}
	}
	if len(bad.Problems) > 0 {
		return nil, &bad
	}
	return grown(issues, g.last)
}

// with is the issue with what is set in u. Name and number stay.
func (i Issue) with(u Issue) Issue {
	set := func(to *string, from string) {
		if from != "" {
			*to = from
		}
	}
	set(&i.Title, u.Title)
	set(&i.Description, u.Description)
	set(&i.Complexity, u.Complexity)
	set(&i.TestingStrategy, u.TestingStrategy)
	if len(u.AcceptanceCriteria) > 0 {
		i.AcceptanceCriteria = u.AcceptanceCriteria
	}
	if u.DependsOn != nil {
		i.DependsOn = u.DependsOn
	}
	if u.Provides != nil {
		i.Provides = u.Provides
	}
	if u.FilesToCreate != nil {
		i.FilesToCreate = u.FilesToCreate
	}
	if u.FilesToModify != nil {
		i.FilesToModify = u.FilesToModify
	}
	if u.Guidance != (Guidance{}) {
		i.Guidance = u.Guidance
	}
	return i
}

// Split returns the graph with sub-issues in the place of the parent: they have
// its dependencies beside their own, and what depended on it depends on all of
// them. Sub-issues may depend on each other and on what the parent depended on.
func (g *Graph) Split(parent string, subs []Issue, used func(name string) bool) (*Graph, error) {
	old, ok := g.Issue(parent)
	if !ok {
		return nil, &Error{Problems: []string{fmt.Sprintf("split %q: there is no such issue", parent)}}
	}
	var bad Error
	var names []string
	for _, sub := range subs {
		names = append(names, sub.Name)
		if _, known := g.index[sub.Name]; known || used(sub.Name) {
			bad.Problems = append(bad.Problems, fmt.Sprintf("sub-issue %q: the name was used before; take another", sub.Name))
		}
	}
	var issues []Issue
	for _, is := range g.issues {
		if is.Name == parent {
			continue
		}
		if slices.Contains(is.DependsOn, parent) {
			is.DependsOn = append(slices.DeleteFunc(slices.Clone(is.DependsOn), func(d string) bool { return d == parent }), names...)
		}
		issues = append(issues, is)
	}
	for _, sub := range subs {
		for _, d := range sub.DependsOn {
			if !slices.Contains(names, d) && !slices.Contains(old.DependsOn, d) {
				bad.Problems = append(bad.Problems, fmt.Sprintf("sub-issue %q depends on %q, which is neither beside it nor a dependency of %q", sub.Name, d, parent))
			}
		}
		sub.Number, sub.ParentName = 0, parent
		sub.DependsOn = slices.Clone(sub.DependsOn)
		for _, d := range old.DependsOn {
			if !slices.Contains(sub.DependsOn, d) {
				sub.DependsOn = append(sub.DependsOn, d)
			}
		}
		issues = append(issues, sub)
	}
	if len(subs) == 0 {
		bad.Problems = append(bad.Problems, fmt.Sprintf("split %q: there are no sub-issues", parent))
	}
	if len(bad.Problems) > 0 {
		return nil, &bad
	}
	return grown(issues, g.last)
}
