// Package review looks for faults in a change: many narrow agents, called
// lenses, each look for one kind, others try to refute what they found, and what
// survives counts.
//
// Promises: every changed path is in the manifest, reviewed or skipped for a
// reason; every changed line of a reviewed file is shown to every lens that reads
// file by file; a lens that did not answer is told of and touches no other, so a
// review that is not whole cannot be taken for one that found nothing; no claim
// counts that nobody tried to refute, and none is lost that was made; on one
// journal the same review comes out, however often it is run.
package review

import (
	"context"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/repo"
)

// Site is where a change is reviewed.
type Site interface {
	// Changed lists every path that differs between two commits, by path. A
	// renamed file is deleted and added.
	Changed(ctx context.Context, base, head string) ([]repo.Change, error)
	// Patch is git's unified diff of the two, with renames found. It is never cut:
	// where it is too large to be had, that is an error.
	Patch(ctx context.Context, base, head string) (string, error)
	// File is the content of a file in a commit. One that is not there is
	// fs.ErrNotExist.
	File(ctx context.Context, commit, path string) ([]byte, error)
	// Files are the contents of several, in their order, nil for those that are not
	// there.
	Files(ctx context.Context, commit string, paths []string) ([][]byte, error)
	// Desk is a worktree at a commit, made when a call needs it. All agents of a
	// review read it and none writes.
	Desk(name, commit string) agent.Workspace
}

// A Target is the change to be reviewed.
type Target struct {
	Key        string // prefix of its journal keys, such as verify-1/review
	Base, Head string // commits
	Goal       string // what the change is for, untrusted; see Criteria
	// Criteria are what the change has to make true. With neither goal nor
	// criteria the lens that compares the change with them is left out.
	Criteria []string
	Evidence evidence.Result // the engine's own runs on Head, if there were any
	// Before are the same runs on Base: what fails on Head alone is a finding. Nil
	// where nobody compares.
	Before *evidence.Result
	// Guide is how the repository wants to be reviewed, by the base's word.
	Guide string
	// Earlier is the last review, if there was one. Its findings are looked at
	// again: each is fixed or still open. If it had the same base, only what
	// changed since its head is new, unless Full.
	Earlier *Result
	Full    bool
	// Dismissed are the findings of the last review that people closed since, and
	// Reopened the ids of those that they had closed and opened again.
	Dismissed []Dismissal
	Reopened  []string
}

// A Dismissal is a finding that a person closed.
type Dismissal struct {
	ID string `json:"id"` // of the finding
	By string `json:"by"` // login
}

// Options say how a review is done and what of it counts.
type Options struct {
	Lenses         []Lens        // nil: the default ones
	MaxConcurrency int           // slots at work at once; 0 means batch.DefaultConcurrency. The crew's own slots bound it too
	Timeout        time.Duration // of each slot, with the wait for a slot of the crew; 0 means none
	Ignore         []string      // paths not to be reviewed: patterns of path.Match, for a path, its last part, or a directory above it
	Only           []string      // likewise, of the paths that are; none: all
	Audit          bool          // one more agent looks for what all lenses missed
	Inert          bool          // no agent runs a command: the code is of somebody whom nobody trusts
	Severity       finding.Severity
	MinConfidence  int // per cent
	// Over lets no agent start any more and stops those at work; what is known by
	// then is the result. Enough does so with the lenses alone, so that there is time
	// to verify what they found.
	Over, Enough Stop
	// Refused is told that no call can work, as where the money of a provider is
	// spent; it has to see to it that all is over. Nil: that is Run's error.
	Refused func(cause error)
	// Emit hears the events of the batches <key>/lenses and <key>/verifiers, the
	// latter when the former has ended, then those of the audit. It may be nil.
	Emit func(batch.Event)
}

// A Stop ends work when its channel is closed; a nil one never is. Why is asked
// after that, for people.
type Stop struct {
	Closed <-chan struct{}
	Why    func() string
}

// A Result is what a review found.
type Result struct {
	Base string `json:"base"`
	Head string `json:"head"`
	// Since is the head of the last review, where only what came after it is new.
	Since string `json:"since,omitempty"`
	// Severity and MinConfidence are those that Open goes by.
	Severity      finding.Severity `json:"severity,omitempty"`
	MinConfidence int              `json:"min_confidence,omitempty"`
	// Findings are all that were claimed, with their verdicts: those of the
	// earlier review first, then by lens and place.
	Findings []finding.Entry `json:"findings,omitempty"`
	// Open are those of them that count by Options.Severity and MinConfidence.
	Open       []finding.Entry `json:"open,omitempty"`
	Incomplete []Incomplete    `json:"incomplete,omitempty"`
	Lenses     []string        `json:"lenses,omitempty"` // names of those that were to look
	Manifest   Manifest        `json:"manifest"`
	Todos      []Todo          `json:"todos,omitempty"`    // that the change adds
	Untested   []string        `json:"untested,omitempty"` // code that it changes, where it changes no test at all
	Status     batch.State     `json:"status"`             // of the slots of this review, lenses and verifiers
	Receipt    batch.Receipt   `json:"receipt"`            // likewise
}

// Incomplete is a slot that did not do its work.
type Incomplete struct {
	Slot   string      `json:"slot"`
	Lens   string      `json:"lens,omitempty"` // empty: it was to verify findings, which are uncertain now
	Head   string      `json:"head"`           // the commit that it was to look at
	State  batch.State `json:"state"`
	Reason string      `json:"reason"`
}

// Clean reports that there is nothing to act on and that this is known: nothing
// is open, and nothing that should have been looked at was not.
func (r Result) Clean() bool { return len(r.Open) == 0 && r.Whole() }

// Whole reports that all was looked at that should have been.
func (r Result) Whole() bool {
	return len(r.Incomplete) == 0 && r.Receipt.Whole() &&
		!slices.ContainsFunc(r.Manifest, func(p Path) bool { return slices.Contains(missing, p.Skipped) })
}

// LookedBy reports whether all of the lenses were to look.
func (r Result) LookedBy(lenses []Lens) bool {
	return !slices.ContainsFunc(lenses, func(l Lens) bool { return !slices.Contains(r.Lenses, l.Name) })
}

// Run reviews the target. A lens that fails is in the Result; the error is one
// that stops the build: ctx's cause, agent.ErrDraining, agent.ErrFatal, or a
// failure of the journal, the repository or the worktree.
func Run(ctx context.Context, crew *agent.Crew, at Site, t Target, o Options) (Result, error) {
	s, err := look(ctx, at, t, o)
	if err != nil {
		return Result{}, err
	}
	r := newRun(crew, at, t, o, s)
	l := &ledger{}
	if err := r.recall(ctx, l); err != nil {
		return Result{}, err
	}
	if err := r.search(ctx, l, lensRound, "verify", r.lensSlots()); err != nil {
		return Result{}, err
	}
	if audit := r.auditSlots(l); len(audit) > 0 {
		if err := r.search(ctx, l, "audit", "audit-verify", audit); err != nil {
			return Result{}, err
		}
	}
	l.state(facts(s, t))
	return r.result(l), nil
}

// lensRound is the round in which the lenses look at the change.
const lensRound = "lenses"

// search has slots look at the change and others refute what they claim, with
// what earlier reviews left when it is the first search.
func (r *run) search(ctx context.Context, l *ledger, round, verifier string, slots []slot[Subject, Remarks]) error {
	remarks, looked, err := ask(ctx, r, round, slots)
	if err != nil {
		return err
	}
	if err := r.gather(ctx, l, slots, remarks); err != nil {
		return err
	}
	if round == lensRound {
		r.miss(slots, looked)
	}
	judged := l.unjudged()
	shards := r.shards(verifier, judged)
	name := "verifiers"
	if round != lensRound {
		name = round + "-verifiers"
	}
	verdicts, verified, err := ask(ctx, r, name, shards)
	if err != nil {
		return err
	}
	if err := r.settle(ctx, judged, shards, verdicts, verified); err != nil {
		return err
	}
	r.records = append(r.records, slices.Concat(looked.records(), verified.records())...)
	r.receipt = sum(r.receipt, sum(looked.Receipt, verified.Receipt))
	r.gaps = slices.Concat(r.gaps, gaps(r.target.Head, slots, looked), gaps(r.target.Head, shards, verified))
	return nil
}

// result is what came of it all.
func (r *run) result(l *ledger) Result {
	t, s := r.target, r.survey
	result := Result{
		Base: t.Base, Head: t.Head, Severity: r.options.Severity, MinConfidence: r.options.MinConfidence, Findings: l.entries(), Manifest: r.manifest(), Todos: todos(s), Untested: untested(s),
		Status: batch.StatusOf(r.records), Receipt: r.receipt,
	}
	number(result.Findings)
	for _, l := range r.options.Lenses {
		result.Lenses = append(result.Lenses, l.Name)
	}
	for _, e := range result.Findings {
		if e.Counts(r.options.Severity, r.options.MinConfidence) {
			result.Open = append(result.Open, e)
		}
	}
	if s.incremental {
		result.Since = t.Earlier.Head
		// What nobody looked at then, nobody looks at now.
		for _, gap := range t.Earlier.Incomplete {
			if gap.Lens != "" {
				result.Incomplete = append(result.Incomplete, gap)
			}
		}
	}
	result.Incomplete = append(result.Incomplete, r.gaps...)
	return result
}

// miss takes in which parts of the change no lens looked at. Where none is shown
// the parts one by one, whoever judges the whole has looked at them.
func (r *run) miss(slots []slot[Subject, Remarks], done round) {
	parted, whole, seen := false, false, map[int]bool{}
	for i, s := range slots {
		completed := done.Slots[i].State == batch.Completed
		if s.in.Diff == "" {
			whole = whole || completed
			continue
		}
		parted, seen[s.in.Part] = true, seen[s.in.Part] || completed
	}
	if !parted && whole {
		return
	}
	for i, text := range cut(r.survey.files) {
		if seen[i+1] {
			continue
		}
		for name := range parsePatch(text).byName {
			r.missed[name] = true
		}
	}
}

// manifest is the survey's, without the claim that somebody looked at what nobody
// did.
func (r *run) manifest() Manifest {
	all := slices.Clone(r.survey.manifest)
	for i, p := range all {
		if p.Skipped == "" && r.missed[p.Path] {
			all[i].Skipped = Unreached
		}
	}
	return all
}

// number names the findings that people are told of. A number is never given to
// another one.
func number(all []finding.Entry) {
	last := 0
	for _, e := range all {
		last = max(last, e.Number)
	}
	for i := range all {
		if e := &all[i]; e.Number == 0 && e.Verdict != finding.Rejected {
			last++
			e.Number = last
		}
	}
}

// run is one review under way, owned by Run's goroutine but for the desk.
type run struct {
	crew    *agent.Crew
	site    Site
	target  Target
	options Options
	survey  survey
	desk    *desk
	texts   map[string][]string // lines of files by commit and path, nil where there is none

	missed  map[string]bool // paths that the lenses were to look at, and none did
	records []batch.Record  // of all slots so far
	receipt batch.Receipt   // likewise
	gaps    []Incomplete    // likewise
}
