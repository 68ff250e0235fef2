package pipeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// ledger is every compromise so far. It only grows within a segment, so what is
// not decided yet is no part of it.
func (f *Fold) ledger() *debt.Ledger {
	l := &f.owed
	if f.counted {
		return l
	}
	f.counted = true
	l.Reset()
	if f.pin != nil {
		l.Record(slices.DeleteFunc(slices.Clone(f.pin.Owed), func(it debt.Item) bool { return slices.Contains(f.paid(), it) })...)
	}
	l.Record(f.unmerged()...)
	if f.plan == nil {
		return l
	}
	l.Record(f.plan.Debt...)
	l.Record(f.scope...)
	for _, s := range f.order {
		l.Record(s.debt(f.lost(s))...)
	}
	if f.verified != nil && (f.verified.Final || f.stop != nil && f.judged > len(f.fixes)+f.moved) {
		l.Record(f.verified.Debt...)
	}
	return l
}

// paid is what is known to be paid off of the debt of before.
func (f *Fold) paid() []debt.Item {
	if f.verified == nil {
		return nil
	}
	return f.verified.Paid
}

// lost says why an issue that has not ended never will, or nothing. What was at
// work when the build stopped may still end: how it did is known when what
// landed is verified.
func (f *Fold) lost(s *issueState) string {
	if f.stop == nil || s.split {
		return ""
	}
	switch s.outcome() {
	case report.Pending, report.FailedNeedsSplit:
		return "the build stopped before it landed: " + f.stop.Cause
	case report.InProgress, report.Landing:
		if !f.ends["execute"].IsZero() {
			return "the build stopped before it landed: " + f.stop.Cause
		}
	}
	return ""
}

// debt is what one issue leaves open; lost is why it never ended.
func (s *issueState) debt(lost string) []debt.Item {
	item := debt.Item{Severity: debt.High, IssueName: s.issue.Name}
	switch s.outcome() {
	case report.Completed, report.CompletedWithDebt:
		if len(s.mergeDebt) == 0 {
			return s.kept.Result.Debt // nobody changes it
		}
		return slices.Concat(s.kept.Result.Debt, s.mergeDebt)
	case report.FailedUnrecoverable, report.FailedEscalated:
		item.Type, item.Justification = debt.FailedWork, s.why()
		if s.kept.Result.Done() { // it was finished, and could not be merged
			item.Type = debt.UnmergedWork
		}
		if s.kept.Ref != "" {
			item.FollowUp = "its work is kept at " + s.kept.Ref
		}
	case report.Skipped:
		item.Type, item.Justification = debt.SkippedWork, s.skipped
	case report.Pending, report.InProgress, report.Landing, report.FailedNeedsSplit:
		if lost == "" {
			return nil
		}
		item.Type, item.Justification = debt.SkippedWork, lost
	}
	return []debt.Item{item}
}

// Report is the account of the build as of the newest entry. now is the time
// for which a build that still runs is accounted.
func (f *Fold) Report(now time.Time) report.Build {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := report.Build{
		ID: f.begun.Build, State: report.Running, Title: f.begun.Title, Repo: f.begun.Repo,
		Ticket: f.begun.Ticket, Requester: f.begun.Requester, Prefix: f.begun.Prefix, CommentURL: f.begun.Comment, Started: f.from, Elapsed: now.Sub(f.from),
		CostMicros: f.cost, Costs: f.costLines(), Debt: f.ledger().Items(), Estimate: f.estimated, Permits: f.permitLines(),
	}
	for _, n := range f.calls {
		b.AgentCalls += n
	}
	if f.pin != nil {
		b.Base, b.BaseSHA, b.Closes = f.pin.Base, f.pin.BaseSHA, f.pin.Default && f.begun.Ticket > 0
	}
	if f.begun.Pull > 0 {
		b.Follows, b.Paid = &report.Follow{Pull: f.begun.Pull, Work: string(f.begun.Work)}, f.paid()
	}
	if f.plan != nil {
		b.PRD, b.Architecture = f.prd, f.design
		b.Issues = make([]report.Issue, 0, len(f.order))
		for _, s := range f.order {
			line, keep := s.line(now, f.lost(s) != "")
			b.Issues = append(b.Issues, line)
			if keep != nil {
				b.Kept = append(b.Kept, *keep)
			}
		}
	}
	b.Target, b.Contenders = f.begun.Target, f.contest.rows
	if h := f.contest.held; h != nil {
		b.Held = h.Held
	}
	if c := f.contest.chosen; c != nil && b.Target != "" {
		b.Notes = append(b.Notes, fmt.Sprintf("Built on %s; %s among the results of several targets.", b.Target, by("chosen", c.By)))
	}
	if f.verified != nil {
		b.Verification = &f.verified.Verification
	}
	if f.final != nil {
		if f.final.Note != "" {
			b.Notes = append(b.Notes, f.final.Note)
		}
	}
	if f.pushed != nil {
		b.Branch, b.Head = f.pushed.Branch, f.pushed.Head
	}
	if f.pull != nil && f.pull.Pull.Number > 0 {
		b.Pull = &report.Pull{Number: f.pull.Pull.Number, Draft: f.pull.Pull.Draft, URL: f.pull.Pull.URL}
		if f.pull.Read {
			b.Debt = f.pull.Debt // what people are shown is what counts
		}
	}
	if f.checked != nil {
		for _, c := range f.checked.Checks {
			b.Checks = append(b.Checks, report.Check{Name: c.Name, Conclusion: c.Conclusion, HeadSHA: c.HeadSHA, URL: c.URL})
		}
	}
	if f.comments != nil {
		b.Comments = f.comments.Comments
	}
	for i, r := range f.history {
		b.Notes = append(b.Notes, r.String(i+1))
	}
	b.Notes = append(b.Notes, f.ciNotes()...)
	switch {
	case f.stop != nil:
		b.Cause = f.stop.Cause
	case f.ciNow.waiting:
		b.State = report.WaitingCI
	case f.gate != nil:
		b.Gate, b.State = f.gate, report.WaitingApproval
		if f.gate.Kind == report.QuestionGate {
			b.State = report.WaitingAnswer
		}
	}
	if f.end != nil {
		b.State, b.Success, b.Summary, b.Cause, b.Next = f.end.State, f.end.Success, f.end.Summary, f.end.Cause, f.end.Next
		b.Elapsed = f.to.Sub(f.from)
	}
	if len(f.begun.Targets) == 0 { // else the work is others'
		b.Stages = f.stages(now)
	}
	return b
}

// line is one issue of the report, and where its work is kept if it did not land.
func (s *issueState) line(now time.Time, lost bool) (report.Issue, *report.Ref) {
	l := report.Issue{
		Number: s.issue.Number, Name: s.issue.Name, Title: s.issue.Title, Outcome: s.outcome(),
		DependsOn: s.issue.DependsOn, Flagged: s.issue.Guidance.NeedsDeeperQA, RiskRationale: s.issue.Guidance.RiskRationale,
		Iterations: s.iterations, Merge: s.merge, CostMicros: s.cost, Detail: cmp.Or(s.rejected, s.skipped),
		ParentName: s.issue.ParentName, Files: s.issue.Files(), Criteria: s.criteria(),
	}
	if !s.startedAt.IsZero() {
		end := s.ended
		if end.IsZero() {
			end = now
		}
		l.Elapsed = end.Sub(s.startedAt)
	}
	if lost && !l.Outcome.Final() {
		l.Outcome, l.Detail = report.Skipped, "the build stopped before it landed"
	}
	if s.kept == nil {
		return l, nil
	}
	l.Commit, l.Ref = s.kept.Result.Commit, s.kept.Ref
	l.Detail = cmp.Or(l.Detail, s.kept.Result.Cause, s.kept.Result.Summary)
	if s.merge == "" && s.kept.Ref != "" {
		return l, &report.Ref{IssueName: l.Name, Ref: l.Ref, Commit: l.Commit, Why: l.Detail}
	}
	return l, nil
}

// acceptance are the issue's criteria as they stand: the Issue Advisor may have
// relaxed them.
func (s *issueState) acceptance() []graph.Criterion {
	if s.kept != nil && len(s.kept.Result.Criteria) > 0 {
		return s.kept.Result.Criteria
	}
	return s.issue.AcceptanceCriteria
}

func (s *issueState) criteria() (texts []string) {
	for _, c := range s.acceptance() {
		texts = append(texts, c.Text)
	}
	return texts
}

func (f *Fold) costLines() []report.Cost {
	var out []report.Cost
	for line, micros := range f.costs {
		calls := f.calls[line]
		line.Micros, line.Calls = micros, calls
		out = append(out, line)
	}
	slices.SortFunc(out, func(a, b report.Cost) int {
		return cmp.Or(cmp.Compare(b.Micros, a.Micros), strings.Compare(a.Role, b.Role), strings.Compare(a.Model, b.Model))
	})
	return out
}

// stages tells the phases in their order. A stage begins where the one before
// it ended; the first that has not ended is the one that runs.
func (f *Fold) stages(now time.Time) []report.Stage {
	// A build that failed with a plan still verifies what landed.
	stopped := f.stop != nil && (f.stop.State != report.Failed || f.plan == nil)
	var out []report.Stage
	begins, running, halted := f.since, false, false
	for _, name := range []string{"plan", "init", "execute", "verify", "finalize", "publish"} {
		s := report.Stage{Name: name, State: "pending"}
		ended, done := f.ends[name]
		beside := name == "init" // the plan and the repository are prepared beside each other
		switch {
		case done && (name != "publish" || f.pushed != nil):
			s.State, s.Elapsed = "done", ended.Sub(begins)
		case stopped && name != "publish" && !halted: // where it stopped
			s.State, halted = f.halted(name), true
		case f.end != nil, stopped && name != "publish":
			s.State = "skipped"
		case f.gate != nil && name != "plan" && !beside: // nothing goes on before somebody answered
		case !running || beside:
			s.State, s.Elapsed, running = "running", now.Sub(begins), true
		}
		if done && name != "plan" {
			begins = later(begins, later(ended, f.ends["plan"]))
		}
		if name == "execute" && f.graph != nil {
			s.Detail = fmt.Sprintf("%d of %s", f.settled(), report.Count(len(f.issues), "issue"))
		}
		out = append(out, s)
	}
	return out
}

// halted is the state of the stage in which a build stopped.
func (f *Fold) halted(stage string) string {
	begun := slices.ContainsFunc(f.order, func(s *issueState) bool { return !s.startedAt.IsZero() })
	switch {
	case stage == "execute" && !begun:
		return "skipped" // a person ended it before
	case f.stop.State == report.Canceled:
		return "stopped"
	}
	return "failed"
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// settled counts the issues that have ended.
func (f *Fold) settled() int {
	n := 0
	for _, s := range f.issues {
		if s.outcome().Final() {
			n++
		}
	}
	return n
}

// first is the first part of a key: the issue of an issue's steps.
func first(key string) string {
	head, _, _ := strings.Cut(key, "/")
	return head
}

// roleOf is the role that a call's key names: its last part that is no repair.
func roleOf(key string) string {
	parts := strings.Split(key, "/")
	last := len(parts) - 1
	if last > 0 && strings.HasPrefix(parts[last], "repair-") {
		last--
	}
	return parts[last]
}
