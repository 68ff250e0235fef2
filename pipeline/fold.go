package pipeline

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Fold is the state of a build, made of its journal and of nothing else: the
// conductor decides by it, a crashed build finds itself again in it, and
// readers in other processes see the same. It may be used by many goroutines.
type Fold struct {
	mu sync.Mutex

	begun    begun
	from, to time.Time            // first and last entry
	ends     map[string]time.Time // when a stage ended
	pin      *pinned
	init     *initialised
	plan     *plan.Result
	prd      string // of the plan, as Markdown
	design   string // likewise the architecture
	graph    *graph.Graph
	order    []*issueState          // by number
	issues   map[string]*issueState // by name
	byKey    map[string]*issueState // by issue-NN
	head     string                 // the integration branch
	landings int                    // choices made
	open     string                 // key of the landing that was chosen and has not ended
	landing  landing                // what it is about
	landAt   time.Time              // when it was chosen
	stop     *stopped
	verified *verified
	final    *finalized
	pushed   *pushed
	pull     *pulled
	checks   *checked
	comments *commented
	end      *ended
	costs    map[report.Cost]int64 // by role, runtime and model
	calls    map[report.Cost]int
	cost     int64
	err      error // the first entry that could not be read
}

// issueState is one issue as far as the journal tells.
type issueState struct {
	issue      graph.Issue
	startedAt  time.Time
	base       string
	kept       *kept
	merge      string // the commit that landed it
	mergeDebt  []debt.Item
	rejected   string // why it did not land
	skipped    string // why it will not run
	iterations int
	cost       int64
	ended      time.Time
}

// NewFold is the state of a build that has not begun.
func NewFold() *Fold {
	return &Fold{
		ends:   map[string]time.Time{},
		issues: map[string]*issueState{}, byKey: map[string]*issueState{},
		costs: map[report.Cost]int64{}, calls: map[report.Cost]int{},
	}
}

// Add takes the next entry of the journal.
func (f *Fold) Add(e step.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from.IsZero() {
		f.from = e.At
	}
	f.to = e.At
	f.charge(e)
	f.clock(e)
	if err := f.apply(e); err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("read %s: %w", e.Key, err))
	}
}

// clock notes when stages end.
func (f *Fold) clock(e step.Entry) {
	switch e.Key {
	case keyPlan:
		f.ends["plan"] = e.At
	case keyInit:
		f.ends["init"] = e.At
	case keyJudged:
		f.ends["verify"] = e.At
	case keyFinalize:
		f.ends["finalize"] = e.At
	case keyComment:
		f.ends["publish"] = e.At
	}
	if first(e.Key) == keyVerify && f.ends["execute"].IsZero() {
		f.ends["execute"] = e.At.Add(-e.Duration)
	}
}

// charge counts agent calls: they are the entries that a runtime answered.
func (f *Fold) charge(e step.Entry) {
	if is := f.byKey[first(e.Key)]; is != nil {
		is.cost += e.CostMicros
		var iteration int
		if _, err := fmt.Sscanf(e.Key, first(e.Key)+"/round-1/iter-%d/", &iteration); err == nil {
			is.iterations = max(is.iterations, iteration)
		}
	}
	if e.Runtime == "" {
		return
	}
	line := report.Cost{Role: roleOf(e.Key), Runtime: e.Runtime, Model: e.Model}
	f.costs[line] += e.CostMicros
	f.calls[line]++
	f.cost += e.CostMicros
}

func (f *Fold) apply(e step.Entry) error {
	issue := f.byKey[first(e.Key)]
	switch {
	case e.Key == keyBegin:
		return json.Unmarshal(e.Outcome, &f.begun)
	case e.Key == keyInit:
		return json.Unmarshal(e.Outcome, &f.init)
	case e.Key == keyPin:
		if err := json.Unmarshal(e.Outcome, &f.pin); err != nil {
			return err
		}
		f.head = f.pin.BaseSHA
		return nil
	case e.Key == keyPlan:
		return f.planned(e)
	case strings.HasPrefix(e.Key, "start/"):
		return f.start(e)
	case issue != nil && e.Key == keyKept(first(e.Key)):
		issue.ended = e.At
		if err := json.Unmarshal(e.Outcome, &issue.kept); err != nil {
			return err
		}
		if !issue.kept.Result.Done() {
			f.skipBelow(issue.issue.Name)
		}
		return nil
	case strings.HasPrefix(e.Key, "land/") && strings.Count(e.Key, "/") == 1:
		f.landings++
		f.open, f.landAt = e.Key, e.At
		f.landing = landing{}
		return json.Unmarshal(e.Outcome, &f.landing)
	case f.open != "" && e.Key == keyAdvanced(f.open):
		return f.advance(e)
	case e.Key == keyStop:
		return json.Unmarshal(e.Outcome, &f.stop)
	case e.Key == keyJudged:
		return json.Unmarshal(e.Outcome, &f.verified)
	case e.Key == keyFinalize:
		if err := json.Unmarshal(e.Outcome, &f.final); err != nil {
			return err
		}
		f.head = f.final.Head
		return nil
	case e.Key == keyPush:
		return json.Unmarshal(e.Outcome, &f.pushed)
	case e.Key == keyPull:
		return json.Unmarshal(e.Outcome, &f.pull)
	case e.Key == keyCheck:
		return json.Unmarshal(e.Outcome, &f.checks)
	case e.Key == keyComment:
		return json.Unmarshal(e.Outcome, &f.comments)
	case e.Key == keyDone:
		return json.Unmarshal(e.Outcome, &f.end)
	}
	return nil
}

func (f *Fold) planned(e step.Entry) error {
	if err := json.Unmarshal(e.Outcome, &f.plan); err != nil {
		return err
	}
	g, err := graph.New(f.plan.Issues)
	if err != nil {
		return err
	}
	f.graph, f.prd, f.design = g, f.plan.PRD.Markdown(), f.plan.Architecture.Markdown()
	for _, is := range g.Issues() {
		s := &issueState{issue: is}
		f.order = append(f.order, s)
		f.issues[is.Name], f.byKey[is.Key()] = s, s
	}
	return nil
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
	s.base, s.startedAt = r.Base, e.At
	return nil
}

func (f *Fold) advance(e step.Entry) error {
	var r advanced
	if err := json.Unmarshal(e.Outcome, &r); err != nil {
		return err
	}
	f.open, f.head = "", r.Head
	for _, l := range r.Landed {
		f.issues[l.Name].merge, f.issues[l.Name].mergeDebt = l.Merge, l.Debt
	}
	for _, x := range r.Rejected {
		f.issues[x.Name].rejected = x.Cause
		f.skipBelow(x.Name)
	}
	return nil
}

// skipBelow marks everything that needs a failed issue: it cannot be built on
// work that is not there.
func (f *Fold) skipBelow(name string) {
	for _, d := range f.graph.Downstream(name) {
		if s := f.issues[d]; s.startedAt.IsZero() && s.skipped == "" {
			s.skipped = fmt.Sprintf("it depends on %s, which did not land", name)
		}
	}
}

// outcome is where an issue stands.
func (s *issueState) outcome() report.Outcome {
	switch {
	case s.merge != "" && len(s.kept.Result.Debt)+len(s.mergeDebt) > 0:
		return report.CompletedWithDebt
	case s.merge != "":
		return report.Completed
	case s.rejected != "":
		return report.FailedEscalated
	case s.kept != nil && !s.kept.Result.Done():
		return report.FailedUnrecoverable
	case s.skipped != "":
		return report.Skipped
	case s.kept != nil:
		return report.Landing
	case !s.startedAt.IsZero():
		return report.InProgress
	}
	return report.Pending
}

// ledger is every compromise so far. Once the execution has stopped, what
// never ran or never ended is part of it.
func (f *Fold) ledger() *debt.Ledger {
	var l debt.Ledger
	if f.plan == nil {
		return &l
	}
	l.Record(f.plan.Debt...)
	for _, s := range f.order {
		is := &s.issue
		switch s.outcome() {
		case report.Completed, report.CompletedWithDebt:
			l.Record(s.kept.Result.Debt...)
			l.Record(s.mergeDebt...)
		case report.FailedUnrecoverable:
			item := debt.Item{Type: debt.FailedWork, Severity: debt.High, IssueName: is.Name, Justification: s.kept.Result.Cause}
			if s.kept.Ref != "" {
				item.FollowUp = "its last commit is kept at " + s.kept.Ref
			}
			l.Record(item)
		case report.FailedEscalated:
			l.Record(debt.Item{
				Type: debt.UnmergedWork, Severity: debt.High, IssueName: is.Name,
				Justification: s.rejected, FollowUp: "its work is kept at " + s.kept.Ref,
			})
		case report.Skipped:
			l.Record(debt.Item{Type: debt.SkippedWork, Severity: debt.High, IssueName: is.Name, Justification: s.skipped})
		case report.Pending, report.InProgress, report.Landing:
			if f.stop != nil {
				l.Record(debt.Item{
					Type: debt.SkippedWork, Severity: debt.High, IssueName: is.Name, Justification: "the build stopped before it landed: " + f.stop.Cause,
				})
			}
		}
	}
	if f.verified != nil {
		l.Record(f.verified.Debt...)
	}
	return &l
}

// Report is the account of the build as of the newest entry. now is the time
// for which a build that still runs is accounted.
func (f *Fold) Report(now time.Time) report.Build {
	f.mu.Lock()
	defer f.mu.Unlock()
	b := report.Build{
		ID: f.begun.Build, State: report.Running, Title: f.begun.Title, Repo: f.begun.Repo,
		Ticket: f.begun.Ticket, Requester: f.begun.Requester, Started: f.from, Elapsed: now.Sub(f.from),
		CostMicros: f.cost, Costs: f.costLines(), Debt: f.ledger().Items(),
	}
	for _, n := range f.calls {
		b.AgentCalls += n
	}
	if f.pin != nil {
		b.Base, b.BaseSHA, b.Closes = f.pin.Base, f.pin.BaseSHA, f.pin.Default && f.begun.Ticket > 0
	}
	if f.plan != nil {
		b.PRD, b.Architecture = f.prd, f.design
		b.Issues = make([]report.Issue, 0, len(f.order))
		for _, s := range f.order {
			line, keep := s.line(now, f.stop != nil)
			b.Issues = append(b.Issues, line)
			if keep != nil {
				b.Kept = append(b.Kept, *keep)
			}
		}
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
	if f.checks != nil {
		for _, c := range f.checks.Checks {
			b.Checks = append(b.Checks, report.Check{Name: c.Name, Conclusion: c.Conclusion, HeadSHA: c.HeadSHA, URL: c.URL})
		}
	}
	if f.comments != nil {
		b.Comments = f.comments.Comments
	}
	if f.stop != nil {
		b.Cause = f.stop.Cause
	}
	if f.end != nil {
		b.State, b.Success, b.Summary, b.Cause, b.Next = f.end.State, f.end.Success, f.end.Summary, f.end.Cause, f.end.Next
		b.Elapsed = f.to.Sub(f.from)
	}
	b.Stages = f.stages(now)
	return b
}

// line is one issue of the report, and where its work is kept if it did not land.
func (s *issueState) line(now time.Time, stopped bool) (report.Issue, *report.Ref) {
	l := report.Issue{
		Number: s.issue.Number, Name: s.issue.Name, Title: s.issue.Title, Outcome: s.outcome(),
		DependsOn: s.issue.DependsOn, Flagged: s.issue.Guidance.NeedsDeeperQA, RiskRationale: s.issue.Guidance.RiskRationale,
		Iterations: s.iterations, Merge: s.merge, CostMicros: s.cost, Detail: cmp.Or(s.rejected, s.skipped),
	}
	if !s.startedAt.IsZero() {
		end := s.ended
		if end.IsZero() {
			end = now
		}
		l.Elapsed = end.Sub(s.startedAt)
	}
	if stopped && (l.Outcome == report.Pending || l.Outcome == report.InProgress || l.Outcome == report.Landing) {
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
	begins, running := f.from, false
	for _, name := range []string{"plan", "init", "execute", "verify", "finalize", "publish"} {
		s := report.Stage{Name: name, State: "pending"}
		ended, done := f.ends[name]
		beside := name == "init" // the plan and the repository are prepared beside each other
		switch {
		case done:
			s.State, s.Elapsed = "done", ended.Sub(begins)
		case f.end != nil, stopped && name != "publish":
			s.State = "skipped"
		case !running || beside:
			s.State, s.Elapsed, running = "running", now.Sub(begins), true
		}
		if done && name != "plan" {
			begins = later(begins, later(ended, f.ends["plan"]))
		}
		if name == "execute" && f.graph != nil {
			s.Detail = fmt.Sprintf("%d of %d issues", f.settled(), len(f.issues))
		}
		out = append(out, s)
	}
	return out
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
		switch s.outcome() {
		case report.Pending, report.InProgress, report.Landing:
		default:
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
