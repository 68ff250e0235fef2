package pipeline

import (
	"cmp"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

// The fold keeps the build's memory at the gates: as it is made of the journal,
// it survives a resume.

// learn takes what the work on an issue taught, when it ended.
func (f *Fold) learn(s *issueState) {
	r := s.kept.Result
	for _, fault := range r.Faults {
		i := slices.IndexFunc(f.memory.BugPatterns, func(p coding.BugPattern) bool { return p.Pattern == fault.Pattern })
		if i < 0 {
			f.memory.BugPatterns = append(f.memory.BugPatterns, coding.BugPattern{Pattern: fault.Pattern})
			i = len(f.memory.BugPatterns) - 1
		}
		p := &f.memory.BugPatterns[i]
		p.Frequency++
		for _, m := range fault.Modules {
			if !slices.Contains(p.Modules, m) {
				p.Modules = append(slices.Clone(p.Modules), m)
			}
		}
	}
	slices.SortStableFunc(f.memory.BugPatterns, func(a, b coding.BugPattern) int { return cmp.Compare(b.Frequency, a.Frequency) })
	f.memory.BugPatterns = f.memory.BugPatterns[:min(len(f.memory.BugPatterns), coding.MaxBugPatterns)]
	if !r.Done() {
		f.fail(s, r.Cause)
		return
	}
	if f.memory.Conventions == nil && len(r.Learnings) > 0 {
		f.memory.Conventions = &coding.Conventions{FromIssue: s.issue.Name, Learnings: r.Learnings}
	}
}

// fail remembers a failure.
func (f *Fold) fail(s *issueState, cause string) {
	all := append(f.memory.FailurePatterns, coding.FailurePattern{IssueName: s.issue.Name, Title: s.issue.Title, Cause: cause})
	f.memory.FailurePatterns = slices.Clone(all[max(0, len(all)-coding.MaxFailurePatterns):])
}

// remember takes what a landed issue offers to others.
func (f *Fold) remember(s *issueState) {
	r := s.kept.Result
	f.memory.Interfaces[s.issue.Name] = coding.Interface{Exports: r.Interfaces, Files: r.Files, TestStatus: r.TestSummary}
}

// health is how the build stands after a landing.
func (f *Fold) health(a advanced) {
	h := &coding.BuildHealth{Passing: a.Passing, Failing: a.Failing, DebtItems: f.ledger().Len()}
	for _, s := range f.order {
		switch {
		case s.merge != "":
			h.Landed = append(h.Landed, s.issue.Name)
		case s.failed():
			h.Failed = append(h.Failed, s.issue.Name)
		}
	}
	f.memory.BuildHealth = h
}

// known is the memory as an issue's agents are told it: of interfaces, those of
// its dependencies.
func (f *Fold) known(name string) coding.Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.memory
	m.BugPatterns = slices.Clone(m.BugPatterns)
	m.Interfaces = map[string]coding.Interface{}
	if is, in := f.graphIssue(name); in {
		for _, d := range is.DependsOn {
			if i, ok := f.memory.Interfaces[d]; ok {
				m.Interfaces[d] = i
			}
		}
	}
	return m
}

// whole is all that the build learned, for the agents that steer it.
func (f *Fold) whole() coding.Memory {
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.memory
	m.BugPatterns = slices.Clone(m.BugPatterns)
	m.Interfaces = map[string]coding.Interface{}
	for name, i := range f.memory.Interfaces {
		m.Interfaces[name] = i
	}
	return m
}

// failureNote tells others of an issue that did not land.
func (f *Fold) failureNote(s *issueState) graph.Note {
	note := graph.Note{FromIssue: s.issue.Name, Kind: graph.FailureNote, Expected: s.issue.Title, Delivered: "nothing landed: " + s.why()}
	if s.kept != nil {
		note.Ref = s.kept.Ref
	}
	return note
}

// debtNote tells others what a landed issue lacks.
func (s *issueState) debtNote() graph.Note {
	r := s.kept.Result
	note := graph.Note{FromIssue: s.issue.Name, Kind: graph.DebtNote, Expected: s.issue.Title, Delivered: r.Summary, Ref: s.kept.Ref}
	for _, d := range slices.Concat(r.Debt, s.mergeDebt) {
		note.Items = append(note.Items, strings.TrimSuffix(string(d.Type)+": "+d.Justification, ": "))
	}
	return note
}
