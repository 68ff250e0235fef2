package pipeline

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// parts are the sub-issues of is; some can not take its place.
func (s *saga) parts(d *rand.Rand, is graph.Issue) []graph.Issue {
	a, b := issue(is.Name+"-a", nil), issue(is.Name+"-b", nil)
	if d.IntN(2) == 0 {
		b.DependsOn = []string{a.Name}
	}
	if n := len(is.DependsOn); n > 0 && d.IntN(2) == 0 {
		a.DependsOn = []string{is.DependsOn[d.IntN(n)]}
	}
	parts := []graph.Issue{b, a}
	if d.IntN(100) >= s.odds.wild {
		return parts
	}
	switch d.IntN(6) {
	case 0:
		return nil
	case 1:
		parts[0].Name = is.Name
	case 2:
		parts[0].Name = "i0"
	case 3:
		parts[0].Name = a.Name
	case 4:
		parts[1].DependsOn, parts[0].DependsOn = []string{b.Name}, []string{a.Name}
	case 5:
		parts[0].DependsOn = append(parts[0].DependsOn, "i1", "ghost")
	}
	return parts
}

// mend are the fixes of a round, if they can be carried out.
func (s *saga) mend(n int) fixes {
	key := s.fold.key(keyFix(n))
	d := s.dice(key)
	var p FixPlan
	for i := range 1 + d.IntN(2) {
		is := issue(strings.ReplaceAll(fmt.Sprintf("%s-%d", key, i), "/", "-"), nil)
		if i > 0 && d.IntN(2) == 0 {
			is.DependsOn = []string{p.FixIssues[0].Name}
		}
		p.FixIssues = append(p.FixIssues, is)
	}
	if d.IntN(100) < s.odds.wild {
		p.FixIssues[0].Name = "i0"
	}
	if bad := s.fold.unfixable(p); len(bad) > 0 {
		return fixes{Note: "no fixes: " + bad[0]}
	}
	return fixes{Issues: p.FixIssues}
}

// propose is an answer of the Replanner, made of what it is shown. Most touch
// what may be touched.
func (s *saga) propose(key string, failures []string) ReplanDecision {
	d := s.dice(key)
	r := ReplanDecision{Action: ModifyDAG, Rationale: "of " + key, Summary: "s"}
	in, graphed := s.fold.setback(failures), issuesOf(s.fold)
	var pending, alive, dead []Standing
	for _, is := range in.Issues {
		switch {
		case !slices.ContainsFunc(graphed, func(o graph.Issue) bool { return o.Name == is.Name }):
		case is.Outcome == report.Pending:
			pending, alive = append(pending, is), append(alive, is)
		case is.Outcome == report.InProgress, is.Outcome == report.Landing, is.Outcome == report.Completed, is.Outcome == report.CompletedWithDebt:
			alive = append(alive, is)
		default:
			dead = append(dead, is)
		}
	}
	isDead := func(name string) bool {
		return slices.ContainsFunc(dead, func(o Standing) bool { return o.Name == name })
	}
	switch d.IntN(12) {
	case 0:
		r.Action = Abort
		return r
	case 1, 2, 3:
		r.Action = Continue
	case 4, 5:
		r.Action = ReduceScope
	}
	change := r.Action == ModifyDAG
	if change && d.IntN(2) == 0 {
		is := issue(strings.ReplaceAll("new-"+key, "/", "-"), nil)
		if len(alive) > 0 {
			is.DependsOn = []string{alive[d.IntN(len(alive))].Name}
		}
		r.NewIssues = append(r.NewIssues, is)
	}
	for _, is := range pending {
		update := IssueUpdate{Name: is.Name}
		if (change || r.Action == ReduceScope) && d.IntN(8) == 0 {
			if d.IntN(2) == 0 {
				r.SkippedIssueNames = append(r.SkippedIssueNames, is.Name)
			} else {
				r.RemovedIssueNames = append(r.RemovedIssueNames, is.Name)
			}
			continue
		}
		for _, name := range is.DependsOn {
			switch lost := isDead(name) || slices.Contains(r.RemovedIssueNames, name); {
			case lost && isDead(name) && d.IntN(3) == 0:
				r.Waived = append(r.Waived, graph.Waiver{IssueName: is.Name, DependsOn: name})
				fallthrough
			case !lost:
				update.DependsOn = append(update.DependsOn, name)
			}
		}
		if change && d.IntN(2) == 0 {
			if len(r.NewIssues) > 0 && d.IntN(2) == 0 {
				update.DependsOn = append(update.DependsOn, r.NewIssues[0].Name)
			}
			if update.DependsOn == nil {
				update.DependsOn = []string{} // none is something to say
			}
			if d.IntN(3) == 0 {
				update.AcceptanceCriteria = []graph.Criterion{{Text: "less", PRDIDs: []string{"ac-2"}}}
			}
			r.UpdatedIssues = append(r.UpdatedIssues, update)
		}
	}
	if d.IntN(100) < s.odds.wild {
		s.spoil(d, &r, in.Issues)
	}
	return r
}

// spoil makes a decision one that often cannot be carried out.
func (s *saga) spoil(d *rand.Rand, r *ReplanDecision, all []Standing) {
	one, other := all[d.IntN(len(all))], all[d.IntN(len(all))]
	switch d.IntN(9) {
	case 0:
		r.Action = "retry"
	case 1:
		r.RemovedIssueNames = append(r.RemovedIssueNames, one.Name)
	case 2:
		r.SkippedIssueNames = append(r.SkippedIssueNames, one.Name)
	case 3:
		r.UpdatedIssues = append(r.UpdatedIssues, IssueUpdate{Name: one.Name, DependsOn: []string{other.Name}})
	case 4:
		r.UpdatedIssues = append(r.UpdatedIssues, IssueUpdate{Name: one.Name, Title: "other"}, IssueUpdate{Name: "ghost"})
	case 5:
		r.NewIssues = append(r.NewIssues, issue(one.Name, nil, other.Name))
	case 6:
		r.NewIssues = append(r.NewIssues, issue("Bad Name", nil, "ghost"), graph.Issue{Name: "empty"})
	case 7:
		r.Waived = append(r.Waived, graph.Waiver{IssueName: one.Name, DependsOn: other.Name})
	case 8:
		r.RemovedIssueNames = append(r.RemovedIssueNames, namesOf(s.plan)...)
	}
}

func issuesOf(f *Fold) []graph.Issue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.graph.Issues()
}
