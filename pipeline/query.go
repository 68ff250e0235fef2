package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
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

// working is when the limit on the build's time began to run: with its segment,
// or anew when a person let it go on.
func (f *Fold) working() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return later(f.since, f.letGo)
}

// key is a key in the present segment.
func (f *Fold) key(k string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.segment == 1 {
		return k
	}
	return fmt.Sprintf("g%d/%s", f.segment, k)
}

// nextSegment is a key in the segment after the present one.
func (f *Fold) nextSegment(k string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("g%d/%s", f.segment+1, k)
}

// hasPlanAt reports whether the plan of that key is the one at hand.
func (f *Fold) hasPlanAt(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan != nil && f.planKey == key
}

// estimateKey is the key of the estimate of the plan at hand. It has no segment:
// what the calls after the plan cost does not make it another plan.
func (f *Fold) estimateKey() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return keyEstimate(f.planKey)
}

// unread says what of the journal could not be read. A build does not go on by
// a state that lacks something.
func (f *Fold) unread() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
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

// segmentNow is the number of the segment: 1, and one more for each resume.
func (f *Fold) segmentNow() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.segment
}

// pullState is how the pull request says that the build ended.
func (f *Fold) pullState() report.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pull == nil {
		return ""
	}
	return f.pull.As
}

// pullText is what the pull request is called by now, or else the text.
func (f *Fold) pullText(or PullText) PullText {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pull == nil {
		return or
	}
	return cmp.Or(f.pull.Text, or)
}

// waiting is the gate that the build is at, or nil.
func (f *Fold) waiting() *report.Gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gate
}

// stateNow is what people are told of the build's state.
func (f *Fold) stateNow() report.State { return f.Report(time.Now()).State }

// gateKey is the key under which a gate is opened: a hash may come again.
func (f *Fold) gateKey(hash string) string {
	f.mu.Lock()
	n := f.gates
	f.mu.Unlock()
	return f.key(fmt.Sprintf("%s-%d", keyGate(hash), n+1))
}

// unchecked is the hash that a person approved and nobody checked yet, and the
// key of the check.
func (f *Fold) unchecked() (hash, key string) {
	f.mu.Lock()
	hash, n := f.approval, f.approvals
	f.mu.Unlock()
	if hash == "" {
		return "", ""
	}
	return hash, f.key(fmt.Sprintf("%s-%d", keyApproved(hash), n+1))
}

func (f *Fold) hasApproved(hash string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.approved == hash
}

func (f *Fold) hasHeard(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard[id]
}

func (f *Fold) revisions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.revise)
}

func (f *Fold) answered() []plan.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.answers)
}

// steered is what people said to the running build.
func (f *Fold) steered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steering)
}

// round is the round of verification that comes next, or goes on.
func (f *Fold) round() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.fixes) + f.moved + 1
}

// isJudged reports whether the verification of that round is settled.
func (f *Fold) isJudged(round int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verified != nil && f.judged >= round
}

// isVerified reports whether the last word on the criteria is said.
func (f *Fold) isVerified() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verified != nil && f.verified.Final
}

// unfinished is what the newest verification found open.
func (f *Fold) unfinished() Unfinished {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := Unfinished{PRD: f.plan.PRD}
	for _, c := range f.verified.Verification.Criteria {
		if !c.Passed {
			in.Open = append(in.Open, CriterionResult{PRDID: c.ID, Evidence: c.Evidence, IssueName: c.IssueName})
		}
	}
	for _, c := range f.verified.Verification.Commands {
		in.Evidence.Commands = append(in.Evidence.Commands, evidence.CommandResult{Name: c.Name, Line: c.Line, Passed: c.Passed, Flaky: c.Flaky, Exit: c.Exit, Output: c.Output})
	}
	if r := f.verified.Review; r != nil {
		for _, e := range r.Open {
			in.Findings = append(in.Findings, e.Finding)
		}
	}
	in.Evidence.None = len(in.Evidence.Commands) == 0
	for _, s := range f.order {
		in.Issues = append(in.Issues, Standing{Name: s.issue.Name, Title: s.issue.Title, Outcome: s.outcome()})
		if s.outcome() == report.CompletedWithDebt {
			in.Notes = append(in.Notes, s.debtNote())
		}
	}
	return in
}

// unfixable says why a plan of fixes cannot be carried out.
func (f *Fold) unfixable(p FixPlan) (problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, is := range p.FixIssues {
		if len(is.AcceptanceCriteria) == 0 || is.Title == "" || is.Description == "" {
			problems = append(problems, fmt.Sprintf("fix_issues[%d] (%s): title, description and acceptance_criteria are needed", i, is.Name))
		}
		for _, d := range is.DependsOn {
			if !slices.ContainsFunc(p.FixIssues, func(o graph.Issue) bool { return o.Name == d }) {
				problems = append(problems, fmt.Sprintf("fix_issues[%d] (%s): it may depend on other fixes alone, not on %q", i, is.Name, d))
			}
		}
	}
	for i, d := range p.DebtItems {
		if d.Type != debt.UnmetCriterion && d.Type != debt.ReviewFinding || d.Justification == "" || d.Severity.Check() != nil {
			problems = append(problems, fmt.Sprintf("debt_items[%d]: type unmet_acceptance_criterion or review_finding, severity high, medium or low, and a justification are needed", i))
		}
	}
	if len(p.FixIssues)+len(p.DebtItems) == 0 {
		problems = append(problems, "fix_issues and debt_items are both empty: what is open has to be in one of them")
	}
	if len(p.FixIssues) > 0 {
		_, err := f.graph.Apply(graph.Edit{Add: p.FixIssues}, f.state())
		if bad, ok := errors.AsType[*graph.Error](err); ok {
			problems = append(problems, bad.Problems...)
		}
	}
	return problems
}

// adoptions is how often other people's commits were taken in.
func (f *Fold) adoptions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adopted
}

// written are the commits that the build put on its branch, or may have.
func (f *Fold) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(slices.Clone(f.wrote), f.head)
}

// branch is the one that an earlier segment wrote, or nothing.
func (f *Fold) branch() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.published
}

func (f *Fold) isPinned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pin != nil
}

func (f *Fold) isInitialised() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init != nil
}

// tests are the engine's commands.
func (f *Fold) tests() evidence.Commands {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init.Commands
}

// reviewed is the newest review of the build's diff, or nil.
func (f *Fold) reviewed() *review.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.review
}
