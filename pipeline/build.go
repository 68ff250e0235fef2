// Package pipeline is what a build is: from a goal to a verified branch with an
// honest account. Engine.Run walks the phases
//
//	plan ∥ init → [gates] → execute → verify ⇄ fix → finalize → publish
//
// over a journal. Run it again on the same journal, after a crash at any
// instant, and it arrives at the same result without repeating a recorded call
// or a comment, branch, pull request or check that is there already.
package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// An Engine is what all builds of one process share.
type Engine struct {
	State    string // state directory
	Box      *sandbox.Box
	Slots    *agent.Slots
	Runtime  func(ctx context.Context, name string) (runtime.Runtime, error)
	Only     string                                                 // the runtime of every role, whatever is configured; empty: as configured
	Record   func(build string, rt runtime.Runtime) runtime.Runtime // lets rt work and records what it does, or plays what was recorded; nil: neither
	Defaults config.Repo                                            // the layers under the repository's own file
	Shared   bool                                                   // other machines may take up a build that this one leaves: its commits go to the remote
	CIGrace  time.Duration                                          // until then no check of a pushed commit is missing yet; 0 means ci.DefaultGrace
	Log      *slog.Logger

	once sync.Once
	room chan struct{} // for engine commands
}

// testing is the room for engine commands of all builds. A compiler uses every
// core by itself, and those that start together on a cold cache would all
// compile the same: half as many as there are cores run at a time.
func (e *Engine) testing() chan struct{} {
	e.once.Do(func() { e.room = make(chan struct{}, max(goruntime.GOMAXPROCS(0)/2, 1)) })
	return e.room
}

// A Job is one claim of a build.
type Job struct {
	Request  Request
	Forge    Forge
	Open     func(ctx context.Context, o step.Options) (*step.Journal, error)
	Before   []Signal // what was said before this claim
	Signals  <-chan Signal
	Extend   func(ctx context.Context) error // renews the claim, right before an effect
	Day      agent.Day                       // what all builds of the installation share; nil: no bound
	Draining <-chan struct{}                 // closed: finish running calls, start none
	Builds   Builds                          // the others, for comparisons and their contenders

	// Subagents hears how the slots of batches stand, which no journal tells. It
	// may be nil; calls overlap.
	Subagents func(SlotEvent)
}

// A Signal is something said to a running build.
type Signal struct {
	ID   string
	Kind string
	Body json.RawMessage
}

// build is one claim at work.
type build struct {
	*Engine
	Job
	log     *slog.Logger
	fold    *Fold
	journal *step.Journal
	mirror  *repo.Mirror
	sharing *sharing // nil: no other machine takes the build up
	crew    *agent.Crew
	site    *site
	conf    config.Repo
	live    live
	spoken  spoken
	paper   paper
}

// errStopped ends the work of a build that is to be wrapped up: cancelled, out
// of time. The journal says which.
var errStopped = errors.New("the build was stopped")

// Run takes the build to its end and returns its account. An error means that
// the build has not ended: it waits (a *Waiting), the claim was lost, the process
// drains, or something failed that may work later. Run again goes on where this
// one was.
func (e *Engine) Run(ctx context.Context, job Job) (report.Build, error) {
	if len(job.Request.Targets) > 0 {
		return e.compare(ctx, job)
	}
	b, track, err := e.open(ctx, job)
	if err != nil {
		return report.Build{}, err
	}
	for _, s := range job.Before {
		if err := b.hear(ctx, s); err != nil {
			return report.Build{}, err
		}
	}
	if b.fold.isDone() {
		b.tidy(ctx) // the claim that ended it may have died before it did
		return b.fold.Report(time.Now()), b.tellEnded(ctx)
	}
	if shut := b.shut(); shut != nil {
		return report.Build{}, shut
	}
	if err := b.lookAtCI(ctx); err != nil {
		return report.Build{}, err
	}
	following, stopFollowing := context.WithCancel(ctx)
	var follower sync.WaitGroup
	follower.Go(func() { track.run(following) })
	defer follower.Wait()
	defer stopFollowing()

	defer b.leave(ctx)
	err = b.work(ctx)
	stopFollowing() // the last word on the comment is ours
	follower.Wait()
	var final report.Build
	if err == nil {
		final, err = b.publish(ctx)
	}
	if _, waits := errors.AsType[*Waiting](err); waits {
		track.edit(ctx)
	}
	if err != nil {
		return final, err
	}
	b.tidy(ctx)
	return final, b.tellEnded(ctx)
}

// shut is the gate at which the build still waits, or nothing.
func (b *build) shut() error {
	gate := b.fold.waiting()
	hash, _ := b.fold.unchecked()
	if gate == nil || hash != "" || time.Now().After(gate.Expires) {
		return nil
	}
	return &Waiting{State: b.fold.stateNow(), Until: gate.Expires}
}

// lookAtCI sees whether a build that waits for CI waits still, before anything is
// set up for it.
func (b *build) lookAtCI(ctx context.Context) (err error) {
	at := b.fold.checksNow()
	if !at.waiting || b.fold.stopping() != nil {
		return nil
	}
	if err = b.configure(ctx); err != nil {
		return err
	}
	_, err = b.observe(ctx, at)
	return err
}

// Plan goes no further than the plan. Where none can be made the build ends as
// it does in Run, and its account is in another final state than planned.
func (e *Engine) Plan(ctx context.Context, job Job) (plan.Result, report.Build, error) {
	job.Request.PlanOnly = true
	account, err := e.Run(ctx, job)
	if err != nil || account.State != report.Planned {
		return plan.Result{}, account, err
	}
	b, _, err := e.open(ctx, job)
	if err != nil {
		return plan.Result{}, account, err
	}
	return b.fold.result(), account, nil
}

// open reads the journal and says in it what the build is about.
func (e *Engine) open(ctx context.Context, job Job) (*build, *tracker, error) {
	b := &build{Engine: e, Job: job, fold: NewFold(), log: e.Log.With("build", job.Request.Build)}
	track := newTracker(b.track)
	b.live.told = func(e batch.Event) {
		track.nudge()
		if job.Subagents != nil {
			job.Subagents(NewSlotEvent(job.Request.Build, e))
		}
	}
	var err error
	if b.mirror, err = e.Mirror(ctx, job.Request.Repo); err != nil {
		return nil, nil, err
	}
	if e.Shared && job.Request.Repo.Installation != 0 {
		b.sharing = newSharing(b)
	}
	b.journal, err = job.Open(ctx, step.Options{
		Has:      b.has,
		Before:   b.shareCommits,
		Recorded: func(entry step.Entry) { b.fold.Add(entry); b.spoken.tell(); track.nudge() },
	})
	if err == nil {
		err = errors.Join(b.fold.unread(), b.fetchShared(ctx))
	}
	if err != nil {
		return nil, nil, err
	}
	begin := begun{
		Build: job.Request.Build, Repo: job.Request.Repo.String(), Ticket: job.Request.Ticket.Number,
		Title: job.Request.title(), Requester: job.Request.By.Login, Prefix: job.Request.Prefix, Comment: job.Request.Comment.URL,
		Targets: job.Request.Targets,
	}
	if f := job.Request.Follow; f != nil {
		begin.Pull, begin.Work = f.Pull.Number, f.Work
	}
	if c := job.Request.Contender; c != nil {
		begin.Target = c.Target
	}
	_, err = step.Choose(ctx, b.journal, keyBegin, begin)
	return b, track, err
}

// leave removes this claim's directory: the next claim makes its own.
func (b *build) leave(ctx context.Context) {
	if b.site != nil {
		b.site.close(ctx)
	}
}

// tidy removes what no later claim needs.
func (b *build) tidy(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, dir := range []string{b.workDir(), filepath.Join(b.State, "homes", b.Request.Build)} {
		if err := repo.RemoveAll(ctx, dir); err != nil {
			b.log.WarnContext(ctx, "the build left files behind", "dir", dir, "error", err)
		}
	}
	b.unshare(ctx)
}

// Mirror opens the bot's own copy of a repository.
func (e *Engine) Mirror(ctx context.Context, r forge.Repo) (*repo.Mirror, error) {
	m, err := repo.Open(ctx, filepath.Join(e.State, "mirrors", r.Owner, r.Name+".git"))
	if err != nil {
		return nil, fmt.Errorf("open the mirror of %s: %w", r, err)
	}
	return m, nil
}

// work is everything before publish. What ends a build early is recorded as
// its stop, and is no error here.
func (b *build) work(ctx context.Context) error {
	for {
		err := b.workOnce(ctx)
		waiting, ok := errors.AsType[*Waiting](err)
		if !ok {
			return err
		}
		// Somebody may have answered after the gate was looked at.
		if b.shut() != nil {
			return waiting
		}
	}
}

func (b *build) workOnce(ctx context.Context) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var listener sync.WaitGroup
	listener.Go(func() { b.listen(working, stop) })
	defer listener.Wait()
	defer stop(nil)

	err := b.phases(working, stop)
	if cause := stopCause(err); cause != nil {
		err = b.halt(ctx, *cause)
	}
	if errors.Is(err, errStopped) {
		err = nil
	}
	if err == nil && b.site != nil {
		err = b.wrapUp(ctx)
	}
	return err
}

// halt records that the build is stopped.
func (b *build) halt(ctx context.Context, s stopped) error {
	if _, err := step.Choose(ctx, b.journal, b.fold.key(keyStop), s); err != nil {
		return fmt.Errorf("record that the build is stopped: %w", err)
	}
	return errStopped
}

// stopCause says how an error ends the build for good, or nil when it does not.
func stopCause(err error) *stopped {
	if failure, ok := errors.AsType[*agent.Failure](err); ok {
		return &stopped{State: report.Failed, Cause: failure.Error()}
	}
	if bad, ok := errors.AsType[*graph.Error](err); ok {
		return &stopped{State: report.Failed, Cause: bad.Error()}
	}
	if bad, ok := errors.AsType[*config.Error](err); ok {
		return &stopped{State: report.NeedsHuman, Cause: bad.Error()}
	}
	if bad, ok := errors.AsType[*initError](err); ok {
		return &stopped{State: report.NeedsHuman, Cause: bad.Error()}
	}
	if errors.Is(err, syscall.ENOSPC) {
		return &stopped{State: report.NeedsHuman, Cause: "the disk of the server is full: " + err.Error()}
	}
	if errors.Is(err, agent.ErrFatal) || errors.Is(err, agent.ErrBudget) {
		return &stopped{State: report.NeedsHuman, Cause: err.Error(), Budget: errors.Is(err, agent.ErrBudget)}
	}
	return nil
}

// phases runs plan ∥ init, the gates, and the rounds of execute and verify.
func (b *build) phases(ctx context.Context, stop context.CancelCauseFunc) error {
	if err := b.prepare(ctx); err != nil {
		return err
	}
	// What is finished lands also where the budget is spent.
	if stop := b.fold.stopping(); !stop.mayFinish() || stop != nil && !b.fold.hasPlan() {
		return errStopped
	}
	limit := b.conf.Limits.BuildTimeout
	deadline := time.AfterFunc(time.Until(b.fold.working().Add(limit)), func() {
		stop(b.halt(context.WithoutCancel(ctx), stopped{State: report.TimedOut, Cause: fmt.Sprintf("the build ran into its limit of %s", limit)}))
	})
	defer deadline.Stop()
	var planErr, initErr error
	var both sync.WaitGroup
	both.Go(func() { planErr = b.gated(ctx) })
	both.Go(func() { initErr = b.initialise(ctx) })
	both.Wait()
	if initErr != nil { // the plan is kept
		return errors.Join(initErr, planErr)
	}
	if planErr != nil || b.Request.PlanOnly {
		return planErr
	}
	if err := b.bring(ctx); err != nil {
		return err
	}
	return b.rounds(ctx)
}
