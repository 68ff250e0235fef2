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
	w := work{open: f.open, head: f.head, next: f.landings + 1}
	for _, s := range f.order {
		switch s.outcome() {
		case report.InProgress:
			w.resume = append(w.resume, s.issue)
		case report.Landing:
			if f.open == "" {
				w.ready = append(w.ready, s.issue.Name)
			}
		}
	}
	if f.stop != nil {
		w.resume = nil
		return w
	}
	w.start = f.graph.Frontier(
		func(n string) bool { s := f.issues[n]; return !s.startedAt.IsZero() || s.skipped != "" },
		func(n string) bool { return f.issues[n].merge != "" },
		func(n string) bool { return f.issues[n].outcome() == report.InProgress },
	)
	return w
}

// hopeless says why the build is not worth going on with, or nothing: too many
// of the issues that ended can never land.
func (f *Fold) hopeless(ratio float64) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ended, lost := 0, 0
	for _, s := range f.issues {
		if s.kept == nil {
			continue
		}
		ended++
		if s.outcome() == report.FailedUnrecoverable {
			lost++
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

// notes are what the issues upstream of name left open.
func (f *Fold) notes(name string) []graph.Note {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []graph.Note
	for _, s := range f.order {
		is := s.issue
		if s.outcome() != report.CompletedWithDebt || !slices.Contains(f.graph.Downstream(is.Name), name) {
			continue
		}
		note := graph.Note{FromIssue: is.Name, Kind: graph.DebtNote, Expected: is.Title, Delivered: s.kept.Result.Summary, Ref: s.kept.Ref}
		for _, d := range slices.Concat(s.kept.Result.Debt, s.mergeDebt) {
			note.Items = append(note.Items, string(d.Type)+": "+d.Justification)
		}
		out = append(out, note)
	}
	return out
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
		for _, c := range is.AcceptanceCriteria {
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

// began is when the build began: the time of its first entry.
func (f *Fold) began() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.from
}

// isDone reports whether the build's last word is said.
func (f *Fold) isDone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end != nil
}

func (f *Fold) hasPlan() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan != nil
}

// integrated is the head of the integration branch.
func (f *Fold) integrated() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// pinned is the base of the build.
func (f *Fold) pinned() pinned {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.pin
}

// template is the repository's pull request template, if it has one.
func (f *Fold) template() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init.Template
}
