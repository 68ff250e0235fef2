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
	// Earlier is the last review, if there was one. Its findings are looked at
	// again: each is fixed or still open. If it had the same base, only what
	// changed since its head is new.
	Earlier *Result
}

// Options say how a review is done and what of it counts.
type Options struct {
	Lenses         []Lens        // nil: the default ones
	MaxConcurrency int           // slots at work at once; 0 means batch.DefaultConcurrency. The crew's own slots bound it too
	Timeout        time.Duration // of each slot, with the wait for a slot of the crew; 0 means none
	Ignore         []string      // paths not to be reviewed: patterns of path.Match, for a path, its last part, or a directory above it
	Severity       finding.Severity
	MinConfidence  int // per cent
	// Emit hears the events of the batches <key>/lenses and <key>/verifiers, the
	// latter when the former has ended. It may be nil.
	Emit func(batch.Event)
}

// A Result is what a review found.
type Result struct {
	Base string `json:"base"`
	Head string `json:"head"`
	// Findings are all that were claimed, with their verdicts: those of the
	// earlier review first, then by lens and place.
	Findings []finding.Entry `json:"findings,omitempty"`
	// Open are those of them that count by Options.Severity and MinConfidence.
	Open       []finding.Entry `json:"open,omitempty"`
	Incomplete []Incomplete    `json:"incomplete,omitempty"`
	Manifest   Manifest        `json:"manifest"`
	Status     batch.State     `json:"status"`  // of the slots of this review, lenses and verifiers
	Receipt    batch.Receipt   `json:"receipt"` // likewise
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
func (r Result) Clean() bool {
	return len(r.Open) == 0 && len(r.Incomplete) == 0 && r.Receipt.Whole() &&
		!slices.ContainsFunc(r.Manifest, func(p Path) bool { return p.Skipped == Unreadable })
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
	lenses := r.lensSlots()
	remarks, looked, err := ask(ctx, r, "lenses", lenses)
	if err != nil {
		return Result{}, err
	}
	l, err := r.gather(ctx, lenses, remarks)
	if err != nil {
		return Result{}, err
	}
	shards := r.shards(l.active)
	verdicts, verified, err := ask(ctx, r, "verifiers", shards)
	if err != nil {
		return Result{}, err
	}
	if err := r.settle(ctx, l.active, shards, verdicts, verified); err != nil {
		return Result{}, err
	}

	result := Result{
		Base: t.Base, Head: t.Head, Findings: l.entries(), Manifest: s.manifest,
		Status:  batch.StatusOf(slices.Concat(looked.records(), verified.records())),
		Receipt: sum(looked.Receipt, verified.Receipt),
	}
	for _, e := range result.Findings {
		if e.Counts(o.Severity, o.MinConfidence) {
			result.Open = append(result.Open, e)
		}
	}
	if s.incremental { // what nobody looked at then, nobody looks at now
		for _, gap := range t.Earlier.Incomplete {
			if gap.Lens != "" {
				result.Incomplete = append(result.Incomplete, gap)
			}
		}
	}
	result.Incomplete = append(result.Incomplete, gaps(t.Head, lenses, looked)...)
	result.Incomplete = append(result.Incomplete, gaps(t.Head, shards, verified)...)
	return result, nil
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
}
