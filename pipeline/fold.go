package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Fold is the state of a build, made of its journal and of nothing else: the
// conductor decides by it, a crashed build finds itself again in it, and
// readers in other processes see the same. It may be used by many goroutines.
type Fold struct {
	mu sync.Mutex

	begun    begun
	home     forge.Repo           // where it was resumed last; zero before
	segment  int                  // 1, and one more for each resume of an ended build
	from, to time.Time            // first and last entry
	since    time.Time            // first entry of the segment
	ends     map[string]time.Time // when a stage ended
	pin      *pinned
	init     *initialised
	brought  *brought // of a follow-up

	heard     map[string]bool // ids of the signals that were recorded
	steering  []string
	answers   []plan.Answer
	revise    []string     // what people wanted changed in the plan, oldest first
	gate      *report.Gate // where the build waits
	gates     int          // that were opened
	approval  string       // a hash that was approved and is not checked yet
	approvals int          // that were checked
	approved  string       // the hash of the plan that may be built

	permits []*permitted // subagents that a person is asked about, oldest first

	letGo time.Time // when a gate was opened last: waiting for a person costs no time

	plan         *plan.Result
	planKey      string
	estimated    *report.Estimate
	planText     json.RawMessage // of the state document
	documentSize int             // of the last state document, in bytes
	prd          string          // of the plan, as Markdown
	design       string          // likewise the architecture
	graph        *graph.Graph
	order        []*issueState          // by number
	issues       map[string]*issueState // by name, also those that left the graph
	byKey        map[string]*issueState // by issue-NN
	memory       coding.Memory
	head         string     // the integration branch
	landings     int        // choices made
	open         string     // key of the landing that was chosen and has not ended
	landing      landing    // what it is about
	landAt       time.Time  // when it was chosen
	came         []advanced // what came of each
	owed         debt.Ledger
	counted      bool     // owed is as of the newest entry
	replans      int      // choices made, in this segment
	asked        int      // of those, how often the Replanner was
	replan       string   // key of the one that was chosen and has not ended
	failures     []string // what it is about
	replanAsked  bool     // whether the Replanner is
	history      []replanned
	splits       int
	scope        []debt.Item // what decisions dropped
	fixes        []fixes     // one for each round of fixes, in this segment

	stop      *stopped
	verified  *verified
	review    *review.Result // the newest
	judged    int            // the round of verification that is settled
	final     *finalized
	pushed    *pushed
	pull      *pulled
	checked   *checked
	comments  *commented
	end       *ended
	published string       // the branch that an earlier segment wrote
	wrote     []string     // commits that the build put, or may have put, on its branch
	adopted   int          // how often other people's commits were taken in, in this segment
	moved     int          // how often the head moved after it was verified, in this segment
	ciNow     checksOf     // of the pushed commit
	ciFixes   []ci.Attempt // in this segment

	contest contest

	costs     map[report.Cost]int64 // by role, runtime and model
	calls     map[report.Cost]int
	cost      int64
	spentTime time.Duration // of agent calls
	err       error         // the first entry that could not be read
}

// issueState is one issue as far as the journal tells.
type issueState struct {
	issue      graph.Issue // as edits left it
	startedAt  time.Time
	base       string
	kept       *kept
	merge      string // the commit that landed it
	mergeDebt  []debt.Item
	rejected   string       // why it did not land, or was not split
	split      bool         // sub-issues took its place
	dealt      bool         // a failure about which a replan decided
	skipped    string       // why it will not run
	givenUp    bool         // by a decision of the Replanner, which stands
	broke      bool         // the budget ended its lane
	waived     []string     // dependencies that it runs without
	told       []graph.Note // what replans tell it, beside what lies upstream
	iterations int
	cost       int64
	ended      time.Time
	document   json.RawMessage // its part of the state document; nil when it changed
}

// NewFold is the state of a build that has not begun.
func NewFold() *Fold {
	return &Fold{
		segment: 1, ends: map[string]time.Time{}, heard: map[string]bool{},
		issues: map[string]*issueState{}, byKey: map[string]*issueState{},
		memory: coding.Memory{Interfaces: map[string]coding.Interface{}},
		costs:  map[report.Cost]int64{}, calls: map[report.Cost]int{},
	}
}

// Add takes the next entry of the journal.
func (f *Fold) Add(e step.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from.IsZero() {
		f.from, f.since = e.At, e.At
	}
	f.to = e.At
	segment := 0
	if e.Key, segment = cutSegment(e.Key); segment > f.segment {
		f.reopen(segment, e.At)
	}
	f.charge(e)
	f.clock(e)
	if err := f.apply(e); err != nil {
		f.err = errors.Join(f.err, fmt.Errorf("read %s: %w", e.Key, err))
	}
}

// reopen begins the next segment: what ended badly is to be tried again, what
// landed or is finished stays, and so does what people and the Replanner decided.
func (f *Fold) reopen(segment int, at time.Time) {
	f.segment, f.since, f.ends = segment, at, map[string]time.Time{}
	if f.pushed != nil {
		f.published = f.pushed.Branch
	}
	f.judged, f.adopted, f.moved, f.ciNow, f.ciFixes = 0, 0, 0, checksOf{}, nil
	f.stop, f.verified, f.final, f.pushed, f.pull, f.checked, f.comments, f.end = nil, nil, nil, nil, nil, nil, nil, nil
	f.open, f.replan, f.replans, f.asked, f.fixes = "", "", 0, 0, nil
	f.gate, f.approval = nil, ""
	f.contest.held, f.contest.rows = nil, nil
	if f.brought != nil && f.brought.Cause != "" {
		f.brought = nil
	}
	if f.plan != nil {
		f.ends["plan"] = at
	}
	if f.init != nil {
		f.ends["init"] = at
	}
	for _, s := range f.order {
		switch s.outcome() {
		case report.Pending, report.Completed, report.CompletedWithDebt, report.Landing, report.FailedNeedsSplit:
			continue
		}
		if _, in := f.graphIssue(s.issue.Name); in && !s.givenUp {
			*s = issueState{issue: s.issue, told: s.told, cost: s.cost, waived: s.waived}
		}
	}
	f.skipDependents() // of what stays given up
}

func (f *Fold) graphIssue(name string) (graph.Issue, bool) {
	if f.graph == nil {
		return graph.Issue{}, false
	}
	return f.graph.Issue(name)
}

// clock notes when stages end.
func (f *Fold) clock(e step.Entry) {
	switch e.Key {
	case keyInit:
		f.ends["init"] = e.At
	case keyFinalize:
		f.ends["finalize"] = e.At
	case keyComment:
		f.ends["publish"] = e.At
	}
	if isPlan(e.Key) {
		f.ends["plan"] = e.At
	}
	if strings.HasPrefix(e.Key, "verify-") {
		if f.ends["execute"].IsZero() {
			f.ends["execute"] = e.At.Add(-e.Duration)
		}
	}
}

// isPlan reports whether the key is of a plan that is kept, a revised one too.
func isPlan(key string) bool {
	return key == keyPlan || strings.HasPrefix(key, "plan/revision-") && strings.HasSuffix(key, "/kept")
}

// charge counts agent calls: they are the entries that a runtime answered.
func (f *Fold) charge(e step.Entry) {
	if is := f.byKey[first(e.Key)]; is != nil {
		is.cost += e.CostMicros
		var round, iteration int
		if n, _ := fmt.Sscanf(e.Key, first(e.Key)+"/round-%d/iter-%d/coder", &round, &iteration); n == 2 && roleOf(e.Key) == coding.Coder.Name && !strings.Contains(e.Key, "/repair-") && !isSubagent(e.Key) {
			is.iterations++
		}
	}
	if e.Runtime == "" {
		return
	}
	f.settlePermits(e.Key)
	line := report.Cost{Role: roleOf(e.Key), Runtime: e.Runtime, Model: e.Model}
	f.costs[line] += e.CostMicros
	f.calls[line]++
	f.cost += e.CostMicros
	f.spentTime += e.Duration
}

func (f *Fold) apply(e step.Entry) error {
	issue := f.byKey[first(e.Key)]
	if issue != nil {
		issue.document = nil
	}
	if e.Runtime == "" && !strings.HasPrefix(e.Key, agent.ReserveKey) {
		f.counted = false
	}
	switch {
	case e.Key == keyBegin:
		return json.Unmarshal(e.Outcome, &f.begun)
	case e.Key == keyInit:
		return json.Unmarshal(e.Outcome, &f.init)
	case e.Key == keyPin:
		if err := json.Unmarshal(e.Outcome, &f.pin); err != nil {
			return err
		}
		f.head = f.pin.from()
		return nil
	case e.Key == keyBring:
		if err := json.Unmarshal(e.Outcome, &f.brought); err != nil {
			return err
		}
		f.head = f.brought.Head
		return nil
	case isPlan(e.Key):
		return f.planned(e)
	case strings.HasPrefix(e.Key, "plan/") && strings.HasSuffix(e.Key, "/estimate"):
		f.estimated = nil
		return json.Unmarshal(e.Outcome, &f.estimated)
	case e.Key == keyResume:
		var r resumed
		err := json.Unmarshal(e.Outcome, &r)
		f.heard[r.Signal] = true
		f.move(r.Repo)
		return err
	case strings.HasPrefix(e.Key, "signal/"):
		return f.hear(e)
	case strings.HasPrefix(e.Key, keyPermit("")):
		return f.want(e)
	case strings.HasPrefix(e.Key, "gate/"):
		return f.wait(e)
	case strings.HasPrefix(e.Key, "start/"):
		return f.start(e)
	case issue != nil && e.Key == keyKept(first(e.Key)):
		issue.ended = e.At
		if err := json.Unmarshal(e.Outcome, &issue.kept); err != nil {
			return err
		}
		f.learn(issue)
		return nil
	case strings.HasPrefix(e.Key, "split/"):
		return f.divide(e)
	case strings.HasPrefix(e.Key, "land/") && strings.Count(e.Key, "/") == 1:
		f.landings++
		f.open, f.landAt = e.Key, e.At
		f.landing = landing{}
		return json.Unmarshal(e.Outcome, &f.landing)
	case f.open != "" && e.Key == keyAdvanced(f.open):
		return f.advance(e)
	case strings.HasPrefix(e.Key, "replan-") && !strings.Contains(e.Key, "/"):
		var r replanning
		if err := json.Unmarshal(e.Outcome, &r); err != nil {
			return err
		}
		f.replans++
		if r.Asked {
			f.asked++
		}
		f.replan, f.failures, f.replanAsked = e.Key, r.Failed, r.Asked
		return nil
	case f.replan != "" && e.Key == keySettled(f.replan):
		return f.decide(e)
	case strings.HasPrefix(e.Key, "fix-"):
		return f.mend(e)
	case e.Key == keyStop:
		if f.stop != nil { // a person's cancel came first
			return nil
		}
		return json.Unmarshal(e.Outcome, &f.stop)
	case strings.HasPrefix(e.Key, keyGiven("")):
		if s := f.byKey[strings.TrimPrefix(e.Key, keyGiven(""))]; s != nil {
			s.broke = true
		}
		return nil
	case strings.HasPrefix(e.Key, "verify-") && e.Key == keySettled(first(e.Key)):
		f.verified = nil
		if _, err := fmt.Sscanf(e.Key, "verify-%d/", &f.judged); err != nil {
			return err
		}
		if err := json.Unmarshal(e.Outcome, &f.verified); err != nil {
			return err
		}
		if f.verified.Review != nil {
			f.review = f.verified.Review
		}
		if f.verified.Final {
			f.ends["verify"] = e.At
		}
		return nil
	case e.Key == keyFinalize:
		if err := json.Unmarshal(e.Outcome, &f.final); err != nil {
			return err
		}
		f.head = f.final.Head
		return nil
	case e.Key == keyPush:
		return f.push(e)
	case strings.HasPrefix(e.Key, "ci-"):
		return f.gateCI(e)
	case strings.HasPrefix(e.Key, "publish/adopt-"):
		var a adopted
		if err := json.Unmarshal(e.Outcome, &a); err != nil {
			return err
		}
		f.adopted++
		f.wrote, f.head = append(f.wrote, f.head), a.Head
		if len(a.Conflicts) == 0 { // else the head is what it was, and verified
			f.verified = nil
			f.moved++
		}
		return nil
	case e.Key == keyPull, e.Key == keyPullEnd:
		f.pull = nil
		return json.Unmarshal(e.Outcome, &f.pull)
	case e.Key == keyReview:
		return f.said(e)
	case e.Key == keyCheck:
		return json.Unmarshal(e.Outcome, &f.checked)
	case e.Key == keyComment:
		return json.Unmarshal(e.Outcome, &f.comments)
	case e.Key == keyContenders, e.Key == keyContest, e.Key == keyHeld, strings.HasPrefix(e.Key, keyTold("")):
		return f.compete(e)
	case e.Key == keyDone:
		return json.Unmarshal(e.Outcome, &f.end)
	}
	return nil
}

// said takes that the open findings were said on the draft, where they were.
func (f *Fold) said(e step.Entry) error {
	address := ""
	if err := json.Unmarshal(e.Outcome, &address); err != nil || address == "" || f.review == nil {
		return err
	}
	for i := range f.review.Open {
		f.review.Open[i].Posted = true
	}
	for i := range f.review.Findings {
		id := f.review.Findings[i].ID
		f.review.Findings[i].Posted = slices.ContainsFunc(f.review.Open, func(o finding.Entry) bool { return o.ID == id })
	}
	return nil
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
	case s.kept != nil && s.kept.Result.Done():
		return report.Landing
	case s.kept != nil:
		return s.kept.Result.Outcome
	case s.skipped != "":
		return report.Skipped
	case !s.startedAt.IsZero():
		return report.InProgress
	}
	return report.Pending
}

// failed reports whether the issue ended without its work, for good.
func (s *issueState) failed() bool {
	o := s.outcome()
	return o == report.FailedEscalated || o == report.FailedUnrecoverable
}

// gone reports whether the issue will not land, and whatever needs it knows.
func (s *issueState) gone() bool { return s.outcome() == report.Skipped || s.failed() && s.dealt }

// why is the reason of an issue that did not land.
func (s *issueState) why() string {
	switch {
	case s.rejected != "":
		return s.rejected
	case s.kept != nil:
		return s.kept.Result.Cause
	}
	return s.skipped
}
