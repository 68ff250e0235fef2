package pipeline

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A watch holds every entry of a saga's journal against what may follow what.
// It outlives processes. Entries reach it one at a time.
type watch struct {
	wrong error // the first
	after string

	segment int
	stood   map[string]report.Outcome // after the entry before
	numbers map[string]int
	owners  map[int]string
	graph   *graph.Graph
	specs   map[string]graph.Issue // of what started, as it was then
	owed    []debt.Item
	heads   []string       // of the integration branch, oldest first
	landed  map[string]int // which of them was the first to hold an issue
	open    string
	replan  string
	stopped bool

	saw map[string]int // what happened, so that nobody believes in what never does
}

func newWatch() *watch {
	return &watch{
		segment: 1, stood: map[string]report.Outcome{}, numbers: map[string]int{}, owners: map[int]string{},
		specs: map[string]graph.Issue{}, landed: map[string]int{}, saw: map[string]int{},
	}
}

func (w *watch) fail(format string, args ...any) {
	if w.wrong == nil {
		w.wrong = fmt.Errorf("after "+w.after+": "+format, args...)
	}
}

// next are the outcomes that may follow one within a segment.
var next = map[report.Outcome][]report.Outcome{
	report.Pending:          {report.InProgress, report.Skipped},
	report.InProgress:       {report.Landing, report.FailedNeedsSplit, report.FailedEscalated, report.FailedUnrecoverable},
	report.Landing:          {report.Completed, report.CompletedWithDebt, report.FailedEscalated},
	report.FailedNeedsSplit: {report.FailedEscalated}, // its parts cannot take its place
}

// see looks at the fold after an entry was added to it.
func (w *watch) see(s *saga, e step.Entry) {
	f := s.fold
	f.mu.Lock()
	defer f.mu.Unlock()
	key, segment := cutSegment(e.Key)
	w.after = e.Key
	if f.err != nil {
		w.fail("the journal cannot be read: %v", f.err)
	}
	if n := len(w.heads); n == 0 || w.heads[n-1] != f.head {
		w.heads = append(w.heads, f.head)
	}
	if f.graph == nil {
		return
	}
	again := segment > w.segment
	if again {
		w.segment, w.owed = segment, nil
		w.saw["resume"]++
	}
	w.graphed(f, again)
	w.moved(f, again)
	w.chosen(s, key)
	w.reachable(f)
	w.owes(f)
	w.open, w.replan, w.stopped = f.open, f.replan, f.stop != nil
}

// graphed looks at the shape: no circle, no orphan, no issue lost, no number
// given twice, and no edit of what has started.
func (w *watch) graphed(f *Fold, again bool) {
	if f.graph == w.graph && !again {
		return
	}
	w.graph = f.graph
	w.shaped(f.graph.Issues())
	for name, number := range w.numbers {
		if s := f.issues[name]; s == nil || s.issue.Number != number || f.byKey[s.issue.Key()] != s {
			w.fail("%s, number %d, is lost", name, number)
		}
	}
	if len(f.order) != len(f.issues) || len(f.byKey) != len(f.issues) {
		w.fail("%d issues, %d in order, %d by number", len(f.issues), len(f.order), len(f.byKey))
	}
	for _, s := range f.order {
		name := s.issue.Name
		if owner, taken := w.owners[s.issue.Number]; taken && owner != name || s.issue.Number < 1 {
			w.fail("%s has the number of %s, %d", name, owner, s.issue.Number)
		}
		w.numbers[name], w.owners[s.issue.Number] = s.issue.Number, name
		is, in := f.graphIssue(name)
		if !in && !s.split && s.skipped == "" {
			w.fail("%s left the graph, and nothing says why", name)
		}
		for _, d := range is.DependsOn {
			if _, known := f.graphIssue(d); !known {
				w.fail("%s depends on %s, which is not in the graph", name, d)
			}
		}
		w.unedited(f, s)
	}
}

// shaped wants a graph without circles and orphans: again and again what needs
// nothing that is left is taken away, until nothing is left.
func (w *watch) shaped(left []graph.Issue) {
	for len(left) > 0 {
		rest := slices.DeleteFunc(slices.Clone(left), func(is graph.Issue) bool {
			return !slices.ContainsFunc(left, func(o graph.Issue) bool { return slices.Contains(is.DependsOn, o.Name) })
		})
		if len(rest) == len(left) {
			w.fail("a circle in %v", namesOf(left))
			return
		}
		left = rest
	}
}

// unedited wants an issue that started to be as it was then. Where a dependency
// that it runs without is tried again and split, the parts are named instead.
func (w *watch) unedited(f *Fold, s *issueState) {
	was, known := w.specs[s.issue.Name]
	if !known || s.outcome() == report.Pending {
		delete(w.specs, s.issue.Name) // to be tried again, and so no longer in flight
		return
	}
	is := s.issue
	runsWithout := func(name string) bool { return slices.Contains(s.waived, name) }
	for _, d := range was.DependsOn {
		if f.issues[d].split && runsWithout(d) {
			is.DependsOn = slices.DeleteFunc(slices.Clone(is.DependsOn), runsWithout)
			was.DependsOn = slices.DeleteFunc(slices.Clone(was.DependsOn), runsWithout)
		}
	}
	if !reflect.DeepEqual(was, is) {
		w.fail("%s was edited after it started:\n%+v\n%+v", is.Name, was, s.issue)
	}
}

// moved looks at where the issues stand.
func (w *watch) moved(f *Fold, again bool) {
	for _, s := range f.order {
		name, now := s.issue.Name, s.outcome()
		was, known := w.stood[name]
		w.stood[name] = now
		if _, noted := w.landed[name]; s.merge != "" && !noted {
			w.landed[name] = len(w.heads) - 1
		}
		switch {
		case !known && now != report.Pending && now != report.Skipped: // skipped: what it depends on is
			w.fail("%s came into being as %s", name, now)
		case !known || was == now:
		case again && now == report.Pending && was != report.Completed && was != report.CompletedWithDebt:
		case !slices.Contains(next[was], now):
			w.fail("%s was %s and is %s", name, was, now)
		default:
			w.saw[string(now)]++
		}
	}
}

// chosen looks at the conductor's choices.
func (w *watch) chosen(s *saga, key string) {
	f, p := s.fold, s.conf.Pipeline
	head, rest, _ := strings.Cut(key, "/")
	switch {
	case head == "start":
		w.started(s, f.byKey[rest])
	case head == "land" && !strings.Contains(rest, "/"):
		if w.open != "" || f.landing.Base != f.head || len(f.landing.Issues) == 0 {
			w.fail("a landing of %v on %s, where the head is %s and %q is open", f.landing.Issues, f.landing.Base, f.head, w.open)
		}
		for _, o := range f.order {
			if o.outcome() != report.Landing && slices.Contains(f.landing.Issues, o.issue.Name) {
				w.fail("%s is %s, and what lands is %v", o.issue.Name, o.outcome(), f.landing.Issues)
			}
			if p.Barrier == "level" && o.outcome() == report.InProgress {
				w.fail("a landing, while %s is in flight", o.issue.Name)
			}
		}
	case head == "split":
		if f.splits > p.MaxSplits {
			w.fail("%d splits of %d", f.splits, p.MaxSplits)
		}
		if f.byKey[rest].split {
			w.saw["split"]++
		}
	case strings.HasPrefix(head, "replan-") && rest == "":
		if w.replan != "" || w.stopped || f.asked > p.MaxReplans || f.replanAsked && !p.EnableReplanning || len(f.failures) == 0 {
			w.fail("a replan about %v while %q is open, with %d of %d asked", f.failures, w.replan, f.asked, p.MaxReplans)
		}
		for _, name := range f.failures {
			if o := f.issues[name]; !o.failed() || o.dealt {
				w.fail("a replan about %s, which is %s", name, o.outcome())
			}
		}
	case strings.HasPrefix(head, "replan-"):
		last := f.history[len(f.history)-1]
		switch {
		case last.Note == "":
			w.saw["answered "+string(last.Decision.Action)]++
		case strings.Contains(last.Note, "could not be carried out"):
			w.saw["overtaken"]++
		}
	case strings.HasPrefix(head, "fix-") && len(f.fixes[len(f.fixes)-1].Issues) > 0:
		w.saw["fixes"]++
	}
}

// started wants an issue that starts to have what it needs.
func (w *watch) started(s *saga, o *issueState) {
	f, is := s.fold, o.issue
	w.specs[is.Name] = is
	if w.stopped || w.replan != "" || o.merge != "" || o.kept != nil || o.skipped != "" {
		w.fail("%s starts: stopped %v, replan %q", is.Name, w.stopped, w.replan)
	}
	if _, in := f.graphIssue(is.Name); !in {
		w.fail("%s starts and is not in the graph", is.Name)
	}
	base := len(w.heads) - 1
	for base >= 0 && w.heads[base] != o.base {
		base--
	}
	if base < 0 {
		w.fail("%s starts on %s, which was never the head", is.Name, o.base)
	}
	for _, d := range is.DependsOn {
		switch at, landed := w.landed[d]; {
		case landed && at <= base:
		case slices.Contains(o.waived, d):
			w.saw["start without a dependency"]++
		default:
			w.fail("%s starts on %s, which does not hold %s", is.Name, o.base, d)
		}
	}
	running := 0
	for _, o := range f.order {
		if o.outcome() == report.InProgress {
			running++
		}
	}
	if running > s.conf.Limits.MaxParallelIssues {
		w.fail("%d issues run", running)
	}
}

// codes wants what is worked on to have started, and not to have ended.
func (w *watch) codes(f *Fold, is graph.Issue) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if o := f.issues[is.Name]; o.outcome() != report.InProgress {
		w.fail("%s is worked on, and it is %s", is.Name, o.outcome())
	}
}

// reachable wants every issue that waits to wait for something that may come.
func (w *watch) reachable(f *Fold) {
	if f.stop != nil {
		return
	}
	for _, s := range f.order {
		if s.outcome() != report.Pending {
			continue
		}
		for _, d := range s.issue.DependsOn {
			if f.issues[d].gone() && !slices.Contains(s.waived, d) {
				w.fail("%s waits for %s, which is %s", s.issue.Name, d, f.issues[d].outcome())
			}
		}
	}
}

// owes wants the debt to grow only.
func (w *watch) owes(f *Fold) {
	now := f.ledger().Items()
	for _, item := range w.owed {
		if !slices.Contains(now, item) {
			w.fail("a debt vanished: %+v", item)
		}
	}
	w.owed = now
}

// proposed counts the Replanner's answers that cannot be carried out.
func (w *watch) proposed(f *Fold, bad []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(bad) > 0 {
		w.saw["refused"]++
	}
}

// end looks at a build whose end was reached.
func (w *watch) end(s *saga) {
	f := s.fold
	w.after = "the end"
	if len(s.tasks) > 0 {
		w.fail("%d tasks are left", len(s.tasks))
	}
	account := f.Report(time.Now())
	for _, o := range f.order {
		name, now := o.issue.Name, o.outcome()
		switch {
		case f.stop == nil && !now.Final(), now == report.InProgress, now == report.Landing, f.stop == nil && o.failed() && !o.dealt:
			w.fail("%s is %s, dealt with %v", name, now, o.dealt)
		case now == report.FailedNeedsSplit && o.split:
			if !slices.ContainsFunc(f.order, func(part *issueState) bool { return part.issue.ParentName == name }) {
				w.fail("%s was split, and there are no parts", name)
			}
		case o.merge == "":
			if !slices.ContainsFunc(account.Debt, func(d debt.Item) bool { return d.IssueName == name }) {
				w.fail("%s is %s, and no debt says so", name, now)
			}
		}
	}
	w.documents(f, account)
}

// documents wants the state document to tell the same as the report.
func (w *watch) documents(f *Fold, account report.Build) {
	text, err := f.document()
	if err != nil {
		w.fail("%v", err)
		return
	}
	var d struct {
		V          int
		Issues     []issueDocument
		Levels     [][]string
		Pending    []string
		InFlight   []string `json:"in_flight"`
		Completed  []string
		Failed     []string
		Split      []string
		Skipped    []string
		Debt       []debt.Item `json:"accumulated_debt"`
		Git        gitDocument
		ReplanedAs []replanned `json:"replan_history"`
	}
	if err := json.Unmarshal(text, &d); err != nil {
		w.fail("the state document: %v\n%s", err, text)
		return
	}
	listed := map[string]report.Outcome{}
	for outcome, names := range map[report.Outcome][]string{
		report.Pending: d.Pending, report.InProgress: d.InFlight, report.Completed: d.Completed,
		report.FailedEscalated: d.Failed, report.FailedNeedsSplit: d.Split, report.Skipped: d.Skipped,
	} {
		for _, name := range names {
			listed[name] = outcome
		}
	}
	lists := len(d.Pending) + len(d.InFlight) + len(d.Completed) + len(d.Failed) + len(d.Split) + len(d.Skipped)
	if d.V != documentVersion || len(d.Issues) != len(account.Issues) || lists != len(d.Issues) || len(listed) != lists {
		w.fail("the state document lists %d of %d issues:\n%s", lists, len(account.Issues), text)
		return
	}
	for i, is := range d.Issues {
		line, want := account.Issues[i], is.Status
		if f.lost(f.issues[is.Spec.Name]) != "" && !is.Status.Final() {
			want = report.Skipped // which is what people are told
		}
		if is.Spec.Name != line.Name || want != line.Outcome || is.Merge != line.Merge || is.Commit != line.Commit {
			w.fail("the state document has %+v, the report %+v", is, line)
		}
		list := map[report.Outcome]report.Outcome{
			report.CompletedWithDebt: report.Completed, report.FailedUnrecoverable: report.FailedEscalated,
		}
		if of, as := list[is.Status]; as && listed[line.Name] != of || !as && listed[line.Name] != is.Status {
			w.fail("%s is %s, and listed as %s", line.Name, is.Status, listed[line.Name])
		}
	}
	if !slices.Equal(d.Debt, account.Debt) || d.Git.Head != f.head || len(d.ReplanedAs) != len(f.history) {
		w.fail("the state document has debt %+v, the report %+v", d.Debt, account.Debt)
	}
	if got, want := slices.Sorted(slices.Values(slices.Concat(d.Levels...))), slices.Sorted(maps.Keys(levelled(f))); !slices.Equal(got, want) {
		w.fail("levels of %v, and the graph has %v", got, want)
	}
}

func levelled(f *Fold) map[string]bool {
	names := map[string]bool{}
	for _, is := range f.graph.Issues() {
		names[is.Name] = true
	}
	return names
}
