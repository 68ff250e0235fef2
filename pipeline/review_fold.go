package pipeline

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// The keys of a review's journal, beside those of its agents, which are below
// review/.
const (
	reviewBegin    = "begin"           // choice, reviewBegun
	reviewPin      = "pin"             // effect, reviewPinned
	reviewStop     = "stop"            // choice, reviewStopped: no agent goes on
	reviewChecking = "publish/begun"   // effect, nothing: the check run is there
	reviewCommands = "commands"        // call, reviewEvidence
	reviewFound    = "found"           // effect, reviewResult
	reviewEnd      = "end"             // choice, reviewStopped: how it ends, before anybody is told
	reviewMoved    = "publish/moved"   // effect, reviewMove
	reviewPost     = "publish/review"  // effect, reviewPosted
	reviewAnswers  = "publish/answers" // effect, reviewAnswered
	reviewCheck    = "publish/check"   // effect, nothing
	reviewComment  = "publish/comment" // effect, nothing
	reviewMend     = "publish/mend"    // effect, reviewMended: the follow-up is queued
	reviewDone     = "done"            // effect, nothing
)

// reviewBegun is what the review is about, for readers that have only the
// journal.
type reviewBegun struct {
	Review    string `json:"review"`
	Repo      string `json:"repo"`
	Pull      int    `json:"pull,omitempty"`
	Requester string `json:"requester,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
}

// reviewPinned is what is reviewed. Nothing in it changes afterwards.
type reviewPinned struct {
	Pull      forge.Pull     `json:"pull"`
	BaseTip   string         `json:"base_tip"`                // of the base branch
	BaseSHA   string         `json:"base_sha"`                // where the change begins
	ConfigSHA string         `json:"config_sha"`              // of the default branch
	Owners    string         `json:"owners_config,omitempty"` // text of the owner's OwnersFile
	Earlier   *review.Result `json:"earlier,omitempty"`
	Allowed   string         `json:"allowed_by,omitempty"` // who lets the code of this fork's commit be run

	Dismissed []review.Dismissal `json:"dismissed,omitempty"` // of its findings, by their threads
	Reopened  []string           `json:"reopened,omitempty"`
	Unheard   string             `json:"unheard,omitempty"` // why it is not known how its threads stand
}

// inert reports that nothing of the change may be executed: it is of somebody whom
// nobody trusts.
func (p reviewPinned) inert() bool { return p.Pull.Fork && p.Allowed == "" }

// reviewStopped says why no agent goes on.
type reviewStopped struct {
	State report.ReviewState `json:"state"`
	Cause string             `json:"cause"`
}

// reviewEvidence is what the engine's commands show. Base is nil where nobody
// had to look.
type reviewEvidence struct {
	Head  evidence.Result  `json:"head"`
	Base  *evidence.Result `json:"base,omitempty"`
	Unrun string           `json:"unrun,omitempty"` // why nothing was run
	Late  bool             `json:"late,omitempty"`  // it should have been
}

// reviewResult is what was found, and how much of it is said on lines.
type reviewResult struct {
	review.Result
	MaxFindings int `json:"max_findings"`
}

// reviewMove is where the head is when the review is published.
type reviewMove struct {
	Head     string `json:"head,omitempty"` // empty: where it was
	Requeued bool   `json:"requeued,omitempty"`
}

// reviewPosted is the review that the forge has. Said are the ids of the findings
// that it tells of.
type reviewPosted struct {
	URL    string   `json:"url,omitempty"`
	Said   []string `json:"said,omitempty"`
	Unsaid string   `json:"unsaid,omitempty"` // why its remarks are on no lines
}

// reviewAnswered is what came of telling threads that their finding is fixed.
type reviewAnswered struct {
	Unresolved string `json:"unresolved,omitempty"` // why a thread was not resolved
}

// reviewMended is what came of handing the open findings on.
type reviewMended struct {
	Deferred bool `json:"deferred,omitempty"`
}

// ReviewFold folds the journal of a review into its account. Its methods may be
// called from several goroutines.
type ReviewFold struct {
	mu         sync.Mutex // owns what follows
	from, to   time.Time
	begun      reviewBegun
	pin        *reviewPinned
	stop       *reviewStopped
	seen       *reviewEvidence
	found      *reviewResult
	end        *reviewStopped
	moved      reviewMove
	posted     reviewPosted
	answered   reviewAnswered
	mended     reviewMended
	done       bool
	rounds     map[string]bool
	costs      map[report.Cost]int64
	calls      map[report.Cost]int
	unreadable error
}

// NewReviewFold is the fold of an empty journal.
func NewReviewFold() *ReviewFold {
	return &ReviewFold{rounds: map[string]bool{}, costs: map[report.Cost]int64{}, calls: map[report.Cost]int{}}
}

// Add takes the next entry.
func (f *ReviewFold) Add(e step.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.from.IsZero() {
		f.from = e.At
	}
	f.to = e.At
	if e.Runtime != "" {
		line := report.Cost{Role: roleOf(e.Key), Runtime: e.Runtime, Model: e.Model}
		f.costs[line] += e.CostMicros
		f.calls[line]++
	}
	if err := f.apply(e); err != nil {
		f.unreadable = errors.Join(f.unreadable, fmt.Errorf("read %s: %w", e.Key, err))
	}
}

func (f *ReviewFold) apply(e step.Entry) error {
	switch e.Key {
	case reviewBegin:
		return json.Unmarshal(e.Outcome, &f.begun)
	case reviewPin:
		return json.Unmarshal(e.Outcome, &f.pin)
	case reviewStop:
		return json.Unmarshal(e.Outcome, &f.stop)
	case reviewCommands:
		return json.Unmarshal(e.Outcome, &f.seen)
	case reviewFound:
		return json.Unmarshal(e.Outcome, &f.found)
	case reviewEnd:
		return json.Unmarshal(e.Outcome, &f.end)
	case reviewMoved:
		return json.Unmarshal(e.Outcome, &f.moved)
	case reviewPost:
		if err := json.Unmarshal(e.Outcome, &f.posted); err != nil {
			return err
		}
		f.say()
	case reviewAnswers:
		return json.Unmarshal(e.Outcome, &f.answered)
	case reviewMend:
		return json.Unmarshal(e.Outcome, &f.mended)
	case reviewDone:
		f.done = true
	default:
		f.rounds[e.Key] = true
	}
	return nil
}

// say marks what was said in public. The caller holds mu.
func (f *ReviewFold) say() {
	if f.found == nil {
		return
	}
	for _, all := range [][]finding.Entry{f.found.Findings, f.found.Open} {
		for i := range all {
			if e := &all[i]; slices.Contains(f.posted.Said, e.ID) {
				e.Posted = true
			}
		}
	}
}

func (f *ReviewFold) isPinned() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.pin != nil }
func (f *ReviewFold) isFound() bool  { f.mu.Lock(); defer f.mu.Unlock(); return f.found != nil }
func (f *ReviewFold) isEnded() bool  { f.mu.Lock(); defer f.mu.Unlock(); return f.end != nil }
func (f *ReviewFold) isDone() bool   { f.mu.Lock(); defer f.mu.Unlock(); return f.done }

func (f *ReviewFold) began() time.Time { f.mu.Lock(); defer f.mu.Unlock(); return f.from }

func (f *ReviewFold) pinned() reviewPinned { f.mu.Lock(); defer f.mu.Unlock(); return *f.pin }

// earlier are the findings of the last review.
func (f *ReviewFold) earlier() []finding.Entry {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil || f.pin.Earlier == nil {
		return nil
	}
	return f.pin.Earlier.Findings
}

// pinnedHead is the reviewed commit, empty before it is known.
func (f *ReviewFold) pinnedHead() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return ""
	}
	return f.pin.Pull.HeadSHA
}

func (f *ReviewFold) stopping() *reviewStopped { f.mu.Lock(); defer f.mu.Unlock(); return f.stop }

// result is what was found, with what of it was said; nil before that is known.
func (f *ReviewFold) result() *review.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found == nil {
		return nil
	}
	return &f.found.Result
}

// Report is the account at an instant.
func (f *ReviewFold) Report(now time.Time) report.Review {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := report.Review{
		ID: f.begun.Review, State: report.ReviewRunning, Repo: f.begun.Repo, Pull: f.begun.Pull, Requester: f.begun.Requester, Prefix: f.begun.Prefix,
		Started: f.from, Elapsed: now.Sub(f.from), Moved: f.moved.Head, Requeued: f.moved.Requeued, Deferred: f.mended.Deferred, ReviewURL: f.posted.URL,
		Findings: nil, Stages: f.stages(),
	}
	if f.done || f.found != nil {
		r.Elapsed = f.to.Sub(f.from)
	}
	f.price(&r)
	if p := f.pin; p != nil {
		r.Title, r.URL, r.Base, r.BaseSHA, r.Head, r.Fork = p.Pull.Title, p.Pull.URL, p.Pull.Base, p.BaseSHA, p.Pull.HeadSHA, p.Pull.Fork
		r.Allowed = p.Allowed
	}
	if f.seen != nil {
		r.Commands, r.Unrun = commandsOf(f.seen.Head), f.seen.Unrun
		if f.seen.Base != nil {
			r.BaseCommands = commandsOf(*f.seen.Base)
		}
		if f.seen.Late {
			r.Gaps = append(r.Gaps, report.Gap{Agent: "commands", State: "timed_out", Reason: f.seen.Unrun})
		}
	}
	for _, note := range []string{f.unheard(), f.posted.Unsaid, f.answered.Unresolved} {
		if note != "" {
			r.Notes = append(r.Notes, note)
		}
	}
	f.tell(&r)
	f.conclude(&r)
	return r
}

func (f *ReviewFold) unheard() string {
	if f.pin == nil {
		return ""
	}
	return f.pin.Unheard
}

func (f *ReviewFold) price(r *report.Review) {
	for line, micros := range f.costs {
		calls := f.calls[line]
		line.Micros, line.Calls = micros, calls
		r.Costs = append(r.Costs, line)
		r.CostMicros += micros
		r.AgentCalls += calls
	}
	slices.SortFunc(r.Costs, func(a, b report.Cost) int {
		return cmp.Or(cmp.Compare(b.Micros, a.Micros), strings.Compare(a.Role, b.Role), strings.Compare(a.Model, b.Model))
	})
}

// tell puts what was found into the account.
func (f *ReviewFold) tell(r *report.Review) {
	found := f.found
	if found == nil {
		return
	}
	r.MaxFindings = found.MaxFindings
	tellReview(r, found.Result)
}

// tellReview puts what a review found into its account.
func tellReview(r *report.Review, found review.Result) {
	r.Severity, r.Confidence = string(found.Severity), found.MinConfidence
	r.Findings = slices.Clone(found.Findings)
	for _, p := range found.Manifest {
		r.Files = append(r.Files, report.ReviewedFile{Path: p.Path, Skipped: string(p.Skipped)})
		if isInstruction(p.Path) {
			r.Instructions = append(r.Instructions, p.Path)
		}
	}
	for _, gap := range found.Incomplete {
		r.Gaps = append(r.Gaps, report.Gap{Agent: gap.Slot, State: string(gap.State), Reason: gap.Reason})
	}
	for _, t := range found.Todos {
		r.Todos = append(r.Todos, report.ReviewTodo(t))
	}
	r.Untested, r.Agents, r.Since = found.Untested, found.Receipt.Planned, found.Since
}

// conclude says how the review ended, and what to type.
func (f *ReviewFold) conclude(r *report.Review) {
	if f.end == nil {
		return
	}
	r.State, r.Cause = f.end.State, f.end.Cause
	if r.State == report.ReviewCompleted {
		return
	}
	r.Next = report.Build{Ticket: r.Pull, Prefix: r.Prefix}.Typed("review", "")
	if r.Pull == 0 {
		r.Next = "slipway review --repo . --base " + r.Base
	}
}

// ending is how a review ends that has done what it can. Broken is why it could
// not be done at all, if that is so.
func (f *ReviewFold) ending(broken string) reviewStopped {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case broken != "":
		return reviewStopped{State: report.ReviewFailed, Cause: broken}
	case f.stop != nil && (f.stop.State == report.ReviewCanceled || f.found == nil):
		return *f.stop
	case f.stop != nil && f.stop.State == report.ReviewFailed && f.found.Manifest.Reviewed() == 0:
		return *f.stop // nobody looked at anything
	}
	r, late := report.Review{State: report.ReviewCompleted}, ""
	if f.seen != nil && f.seen.Late {
		late = f.seen.Unrun
	}
	f.tell(&r)
	switch {
	case r.Whole() && late == "":
		return reviewStopped{State: report.ReviewCompleted}
	case f.stop != nil && len(r.Gaps) > 0:
		return reviewStopped{State: report.ReviewPartial, Cause: f.stop.Cause}
	}
	return reviewStopped{State: report.ReviewPartial, Cause: incomplete(r, late)}
}

// incomplete says in one line what is missing of a review. Late is why its commands
// did not end, if that is so.
func incomplete(r report.Review, late string) string {
	if len(r.Gaps) > 0 {
		g := r.Gaps[0]
		return fmt.Sprintf("%d of its agents did not finish; %s %s: %s", len(r.Gaps), g.Agent, strings.ReplaceAll(g.State, "_", " "), g.Reason)
	}
	if late != "" {
		return "the commands did not end: " + late
	}
	return "not every file that should be was looked at"
}

// stages are the phases, for people who wait.
func (f *ReviewFold) stages() []report.Stage {
	done := []bool{f.pin != nil, f.seen != nil, f.rounds["review/lenses"], f.found != nil, f.done}
	var out []report.Stage
	running := false
	for i, name := range []string{"fetch", "commands", "lenses", "verify", "publish"} {
		s := report.Stage{Name: name, State: "pending"}
		switch {
		case done[i] || f.found != nil && i < 4:
			s.State = "done"
		case !running:
			s.State, running = "running", true
		}
		if name == "lenses" && s.State == "running" {
			answered := 0
			for key := range f.rounds {
				if strings.HasPrefix(key, "review/") && strings.HasSuffix(key, "/"+review.LensRole) {
					answered++
				}
			}
			s.Detail = fmt.Sprintf("%d answered", answered)
		}
		out = append(out, s)
	}
	return out
}

// ReadReview is the account of a review as its journal tells it now; one that no
// worker has claimed yet is queued.
func ReadReview(ctx context.Context, from Journals, job string) (report.Review, error) {
	fold, err := foldReview(ctx, from, job)
	if err != nil {
		return report.Review{}, err
	}
	if fold.began().IsZero() {
		return report.Review{ID: job, State: report.ReviewQueued}, nil
	}
	return fold.Report(time.Now()), nil
}

// ReadResult is what a review found, with what of it was said in public; nil where
// it found nothing out.
func ReadResult(ctx context.Context, from Journals, job string) (*review.Result, error) {
	fold, err := foldReview(ctx, from, job)
	if err != nil {
		return nil, err
	}
	return fold.result(), nil
}

func foldReview(ctx context.Context, from Journals, job string) (*ReviewFold, error) {
	entries, err := from.Entries(ctx, job, 0)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", job, err)
	}
	fold := NewReviewFold()
	for _, e := range entries {
		fold.Add(e)
	}
	return fold, fold.unreadable
}
