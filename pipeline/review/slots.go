package review

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/step"
)

func newRun(crew *agent.Crew, at Site, t Target, o Options, s survey) *run {
	if o.Lenses == nil {
		o.Lenses = Lenses()
	}
	if o.MaxConcurrency == 0 {
		o.MaxConcurrency = batch.DefaultConcurrency
	}
	name := strings.ReplaceAll(t.Key, "/", "-")
	return &run{
		crew: crew, site: at, target: t, options: o, survey: s,
		desk: &desk{Workspace: at.Desk(name, t.Head)}, texts: map[string][]string{}, missed: map[string]bool{},
	}
}

// desk lets the calls of several slots share a worktree: one of them makes it.
type desk struct {
	agent.Workspace
	mu sync.Mutex // held while it is made
}

func (d *desk) Prepare(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Workspace.Prepare(ctx)
}

// A slot is one call of a batch.
type slot[In, Out any] struct {
	name string
	lens string // empty for a verifier
	role agent.Role[In, Out]
	in   In
}

// lensSlots plans who looks at what: each lens at the whole of a small change,
// and at every chunk of a large one, unless it judges how the parts fit.
func (r *run) lensSlots() []slot[Subject, Remarks] {
	t, parts := r.target, cut(r.survey.files)
	var slots []slot[Subject, Remarks]
	for _, l := range r.options.Lenses {
		if l.Name == intent && t.Goal == "" && len(t.Criteria) == 0 {
			continue
		}
		in := r.subject()
		in.Brief = l.brief
		if l.Whole && len(parts) > 1 {
			in.Outline = outline(r.survey.files)
			slots = append(slots, slot[Subject, Remarks]{l.Name, l.Name, inert(r.options, l.role), in})
			continue
		}
		in.Parts = len(parts)
		for i, text := range parts {
			in.Part, in.Diff = i+1, text
			name := l.Name
			if len(parts) > 1 {
				name = fmt.Sprintf("%s/chunk-%02d", l.Name, i+1)
			}
			slots = append(slots, slot[Subject, Remarks]{name, l.Name, inert(r.options, l.role), in})
		}
	}
	return slots
}

// auditSlots is the one agent that is told what all others found.
func (r *run) auditSlots(l *ledger) []slot[Subject, Remarks] {
	parts := cut(r.survey.files)
	if !r.options.Audit || len(parts) == 0 {
		return nil
	}
	in := r.subject()
	for _, c := range l.active {
		if c.Verdict != finding.Rejected {
			in.Known = append(in.Known, c.String())
		}
	}
	if len(parts) > 1 {
		in.Outline = outline(r.survey.files)
	} else {
		in.Diff = parts[0]
	}
	return []slot[Subject, Remarks]{{auditor.Name, auditor.Name, inert(r.options, auditor.role), in}}
}

// subject is what all lenses are told.
func (r *run) subject() Subject {
	t := r.target
	return Subject{Goal: t.Goal, Criteria: t.Criteria, Guide: t.Guide, Parts: 1, Part: 1, Incremental: r.survey.incremental, Evidence: t.Evidence}
}

// inert takes from a role what could run the code that is reviewed, where the
// options want that.
func inert[In, Out any](o Options, role agent.Role[In, Out]) agent.Role[In, Out] {
	if o.Inert {
		role.Tools = readTools
	}
	return role
}

// outline names the files of a large change and the places of their hunks.
func outline(files []*gitdiff.File) string {
	var b strings.Builder
	for i, f := range files {
		if b.Len() > chunkBytes {
			fmt.Fprintf(&b, "[and %d further files]\n", len(files)-i)
			break
		}
		name := f.NewName
		switch {
		case f.IsDelete:
			name = f.OldName + " (deleted)"
		case f.IsNew:
			name += " (new)"
		case f.OldName != f.NewName:
			name += " (was " + f.OldName + ")"
		}
		fmt.Fprintln(&b, name)
		for _, h := range f.TextFragments {
			fmt.Fprintln(&b, " ", h.Header())
		}
	}
	return b.String()
}

// A round is how the slots of one batch ended. Limits of time and money have a
// part in that, so it is recorded as a choice before anybody acts on it.
type round struct {
	Slots   []ended       `json:"slots"`
	Receipt batch.Receipt `json:"receipt"`
}

type ended struct {
	State  batch.State `json:"state"`
	Reason string      `json:"reason,omitempty"`
}

func (r round) records() []batch.Record {
	var records []batch.Record
	for _, s := range r.Slots {
		records = append(records, batch.Record{State: s.State})
	}
	return records
}

// ask runs the slots as one batch, or reads what they answered when the journal
// has it. What a slot that did not complete would have answered is zero.
func ask[In, Out any](ctx context.Context, r *run, name string, slots []slot[In, Out]) ([]Out, round, error) {
	key := r.target.Key + "/" + name
	recorded, known, err := step.Get[round](r.crew.Journal, key)
	if err != nil {
		return nil, round{}, err
	}
	if known {
		answers, err := answered(ctx, r, slots, recorded)
		return answers, recorded, err
	}
	if len(slots) == 0 {
		return nil, round{}, nil
	}

	// What stops the build stops the batch. Draining does not: calls that run go on.
	open, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	enough := Stop{}
	if name == lensRound {
		enough = r.options.Enough
	}
	finished := make(chan struct{})
	defer close(finished)
	go func() {
		select {
		case <-r.options.Over.Closed:
			cancel(&overError{r.options.Over.Why})
		case <-enough.Closed:
			cancel(&overError{enough.Why})
		case <-finished:
		}
	}()
	stops := make([]error, len(slots))
	tasks := make([]batch.Task[Out], len(slots))
	for i, s := range slots {
		tasks[i] = batch.Task[Out]{Type: s.kind(), Transcript: s.place(r).Key + "/" + s.role.Name, Run: func(slotCtx context.Context, _ *batch.Control) (Out, error) {
			out, err := agent.Ask(slotCtx, r.crew, s.place(r), s.role, s.in)
			_, failed := errors.AsType[*agent.Failure](err)
			switch {
			case err == nil, failed:
			case slotCtx.Err() != nil:
				if over, ok := errors.AsType[*overError](context.Cause(slotCtx)); ok {
					err = over // whatever it was about to do
				}
			case errors.Is(err, agent.ErrBudget):
				err = fmt.Errorf("%w: %w", batch.ErrSkipped, err)
			case errors.Is(err, agent.ErrDraining):
				stops[i] = err
			case errors.Is(err, agent.ErrFatal) && r.options.Refused != nil:
				r.options.Refused(err)
			default:
				stops[i] = err
				cancel(err)
			}
			return out, err
		}}
	}
	o := batch.Options{Batch: key, MaxConcurrency: r.options.MaxConcurrency, Timeout: r.options.Timeout, Emit: r.options.Emit}
	got := batch.Run(open, o, tasks)
	if ctx.Err() != nil {
		return nil, round{}, context.Cause(ctx)
	}
	if cause := context.Cause(open); cause != nil {
		if _, over := errors.AsType[*overError](cause); !over {
			return nil, round{}, cause
		}
	}
	if err := errors.Join(stops...); err != nil {
		return nil, round{}, err
	}

	done := round{Receipt: got.Receipt}
	answers := make([]Out, len(slots))
	for i, s := range got.Slots {
		done.Slots = append(done.Slots, ended{State: s.State, Reason: s.Error})
		if s.State == batch.Completed {
			answers[i] = s.Output
		}
	}
	done, err = step.Choose(ctx, r.crew.Journal, key, done)
	return answers, done, err
}

// overError ends the slots of a review, and not the review.
type overError struct{ why func() string }

// Error says why it is over.
func (e *overError) Error() string { return e.why() }

// answered reads what the completed slots of a recorded round said. The others
// are not asked again: they may answer this time, and everything after would be
// another review.
func answered[In, Out any](ctx context.Context, r *run, slots []slot[In, Out], recorded round) ([]Out, error) {
	if len(recorded.Slots) != len(slots) {
		return nil, fmt.Errorf("the journal has %d slots of %s, and there are %d", len(recorded.Slots), r.target.Key, len(slots))
	}
	answers := make([]Out, len(slots))
	for i, s := range slots {
		if recorded.Slots[i].State != batch.Completed {
			continue
		}
		var err error
		if answers[i], err = agent.Ask(ctx, r.crew, s.place(r), s.role, s.in); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

func (s slot[In, Out]) place(r *run) agent.Place {
	return agent.Place{Key: r.target.Key + "/" + s.name, Work: r.desk}
}

// kind is the subagent type of a slot: its lens, or its role.
func (s slot[In, Out]) kind() string {
	if s.lens != "" {
		return s.lens
	}
	return s.role.Name
}

// gaps are the slots that did not do their work.
func gaps[In, Out any](head string, slots []slot[In, Out], r round) []Incomplete {
	var out []Incomplete
	for i, s := range r.Slots {
		if s.State != batch.Completed {
			out = append(out, Incomplete{Slot: slots[i].name, Lens: slots[i].lens, Head: head, State: s.State, Reason: s.Reason})
		}
	}
	return out
}

func sum(a, b batch.Receipt) batch.Receipt {
	return batch.Receipt{
		Planned: a.Planned + b.Planned, Completed: a.Completed + b.Completed, Failed: a.Failed + b.Failed,
		TimedOut: a.TimedOut + b.TimedOut, Canceled: a.Canceled + b.Canceled, Skipped: a.Skipped + b.Skipped,
	}
}
