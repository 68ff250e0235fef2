package pipeline

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// What the conductor asks of the fold. Each answer is true at the instant it
// is given; only the conductor's own goroutine makes choices, so what it reads
// before a choice still holds when the choice is recorded.

// work returns what can be done now.
func (f *Fold) work() work {
	f.mu.Lock()
	defer f.mu.Unlock()
	w := work{open: f.open, head: f.head, next: f.landings + 1, replan: f.replan, stopped: f.stop != nil}
	for _, s := range f.order {
		switch s.outcome() {
		case report.InProgress:
			if !s.broke {
				w.resume = append(w.resume, s.issue)
			}
		case report.Landing:
			if f.open == "" {
				w.ready = append(w.ready, s.issue.Name)
			}
		case report.FailedNeedsSplit:
			if !s.split {
				w.split = append(w.split, s.issue)
			}
		case report.FailedEscalated, report.FailedUnrecoverable:
			if !s.dealt {
				w.failed = append(w.failed, s.issue.Name)
			}
		}
	}
	w.replans, w.asked, w.splits = f.replans, f.asked, f.splits
	if f.stop != nil && !f.stop.mayFinish() {
		w.resume = nil
	}
	return w
}

// frontier returns what may start, the most urgent first, and the head of the
// integration branch that it starts from. It looks at every issue, which is a
// waste where no lane is free.
func (f *Fold) frontier() (start []graph.Issue, head string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stop != nil {
		return nil, f.head
	}
	return f.graph.Frontier(
		func(n string) bool { s := f.issues[n]; return !s.startedAt.IsZero() || s.skipped != "" },
		func(n string) bool { return f.issues[n].outcome() == report.InProgress },
		func(n, dependency string) bool {
			return f.issues[dependency].merge != "" || slices.Contains(f.issues[n].waived, dependency)
		},
	), f.head
}

// mayStart reports whether anything may.
func (f *Fold) mayStart() bool {
	start, _ := f.frontier()
	return len(start) > 0
}

// unsplittable says why the sub-issues of an issue cannot take its place, or
// nothing.
func (f *Fold) unsplittable(name string, limit int) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.issues[name]
	switch {
	case s.issue.ParentName != "":
		return "a sub-issue cannot be split again"
	case f.splits >= limit:
		return fmt.Sprintf("%d issues were split already, which is the limit", f.splits)
	}
	if _, err := f.graph.Split(name, s.kept.Result.SubIssues, f.used); err != nil {
		return err.Error()
	}
	return ""
}

// hopeless says why the build is not worth going on with, or nothing: too many
// of the issues that ended can never land. One that was split or escalated is
// none of them.
func (f *Fold) hopeless(ratio float64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended, lost := 0, 0
	for _, s := range f.issues {
		if s.kept == nil {
			continue
		}
		switch s.outcome() {
		case report.FailedUnrecoverable:
			lost++
			ended++
		case report.FailedNeedsSplit:
		default:
			ended++
		}
	}
	if ended < 4 || float64(lost) < ratio*float64(ended) {
		return ""
	}
	return fmt.Sprintf("%d of %d issues failed", lost, ended)
}

func (f *Fold) result() plan.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.plan
}

func (f *Fold) issue(name string) graph.Issue {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.issues[name].issue
}

// base is the commit that an issue started on.
func (f *Fold) base(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.issues[name].base
}

// commit is the last commit of an issue that ended.
func (f *Fold) commit(name string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.issues[name].kept.Result.Commit
}

// opened is the landing that was chosen and has not ended.
func (f *Fold) opened() (key string, l landing, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.landing, f.landAt
}

// landedOn returns the landed issues that said they touch one of the files.
func (f *Fold) landedOn(files []string) []graph.Issue {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []graph.Issue
	for _, s := range f.order {
		if s.merge != "" && overlap(s.issue.Files(), files) {
			out = append(out, s.issue)
		}
	}
	return out
}

// notes are what the issues upstream of name left open or failed to deliver,
// and what replans told it and those that it builds on.
func (f *Fold) notes(name string) []graph.Note {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []graph.Note
	add := func(notes ...graph.Note) {
		for _, n := range notes {
			if !slices.ContainsFunc(out, func(o graph.Note) bool { return o.FromIssue == n.FromIssue && o.Kind == n.Kind }) {
				out = append(out, n)
			}
		}
	}
	for _, n := range f.graph.Lineage(name) {
		s := f.issues[n]
		add(s.told...)
		switch {
		case s.issue.Name == name:
		case s.failed() || s.outcome() == report.Skipped:
			add(f.failureNote(s))
		case s.outcome() == report.CompletedWithDebt:
			add(s.debtNote())
		}
	}
	return out
}

// missed is every note about what did not land as planned, for those who judge
// the whole.
func (f *Fold) missed() (notes []graph.Note) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.order {
		switch s.outcome() {
		case report.CompletedWithDebt:
			notes = append(notes, s.debtNote())
		case report.FailedEscalated, report.FailedUnrecoverable, report.Skipped:
			notes = append(notes, f.failureNote(s))
		}
	}
	return notes
}

// neighbours tells, one line each, of the issues that an issue builds on or
// shares files with.
func (f *Fold) neighbours(name string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	me := f.issues[name].issue
	mine := me.Files()
	var out []string
	for _, s := range f.order {
		switch is := &s.issue; {
		case is.Name == name:
		case slices.Contains(me.DependsOn, is.Name):
			out = append(out, fmt.Sprintf("%s (landed before this one): %s", is.Name, is.Title))
		case overlap(is.Files(), mine):
			out = append(out, fmt.Sprintf("%s (touches the same files): %s", is.Name, is.Title))
		}
	}
	return out
}

// overlap reports whether two lists of files have one in common.
func overlap(a, b []string) bool {
	return slices.ContainsFunc(a, func(file string) bool { return slices.Contains(b, file) })
}

// stopping says how the execution was ended before its time, or nil.
func (f *Fold) stopping() *stopped {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.stop
}

// landedIssues and missing tell the Verifier what there is and what is not.
func (f *Fold) landedIssues() (there []graph.Issue, missing []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.order {
		is := s.issue
		if s.merge != "" {
			there = append(there, is)
			continue
		}
		missing = append(missing, fmt.Sprintf("%s: %s (%s)", is.Name, is.Title, s.outcome()))
	}
	return there, missing
}

// merges returns the merge commits of the issues that serve each criterion of
// the PRD, and the first issue that does.
func (f *Fold) merges() (commits map[string][]string, issue map[string]string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	commits, issue = map[string][]string{}, map[string]string{}
	for _, s := range f.order {
		is := s.issue
		if s.merge == "" {
			continue
		}
		for _, c := range s.acceptance() {
			for _, id := range c.PRDIDs {
				if !slices.Contains(commits[id], s.merge) {
					commits[id] = append(commits[id], s.merge)
				}
				if issue[id] == "" {
					issue[id] = is.Name
				}
			}
		}
	}
	return commits, issue
}
