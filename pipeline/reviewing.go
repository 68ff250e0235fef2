package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// ReviewRequest is what starts a review, for callers that know no more of it.
type ReviewRequest = review.Request

// ReviewAllowance is whose word lets a fork's commit be run, likewise.
type ReviewAllowance = review.Allowance

// The names by which a review is known outside.
const (
	KindReview      = review.Kind
	ReviewCheckName = review.CheckName
)

// ReviewID names the review that a delivery starts.
func ReviewID(delivery string) string { return review.RunID(delivery) }

// ReviewKey and ReviewOnce are the queue's values of a review's job.
func ReviewKey(r forge.Repo, pull int) string { return review.Key(r, pull) }

// ReviewOnce is the queue's value of which one unfinished review may have.
func ReviewOnce(r forge.Repo, pull int, head string) string { return review.Once(r, pull, head) }

// A ReviewJob is one claim of a review.
type ReviewJob struct {
	Request  review.Request
	Forge    review.Forge
	Open     func(ctx context.Context, o step.Options) (*step.Journal, error)
	Before   []Signal // what was said before this claim
	Signals  <-chan Signal
	Extend   func(ctx context.Context) error // renews the claim, right before an effect
	Day      agent.Day                       // what all runs of the installation share; nil: no bound
	Draining <-chan struct{}                 // closed: finish running calls, start none

	// Earlier is the last review of the same pull request that ended, or what the
	// build that opened it found in it; nil where nobody looked yet.
	Earlier func(ctx context.Context, pull forge.Pull) (*review.Result, error)
	// Again queues a review of the pull request at that head, once.
	Again func(ctx context.Context, head string) error
	// Mend queues a follow-up build of what is open, once. It is deferred where
	// another build works on the branch. It may be nil where nothing is to be mended.
	Mend func(ctx context.Context, open []finding.Entry) (deferred bool, err error)
	// Heard is told how the slots of batches stand. It may be nil; calls overlap.
	Heard func(SlotEvent)
}

// reviewing is one claim of a review at work.
type reviewing struct {
	*Engine
	ReviewJob
	log     *slog.Logger
	fold    *ReviewFold
	journal *step.Journal
	mirror  *repo.Mirror
	site    *site
	conf    config.Repo
	crew    *agent.Crew

	over    chan struct{} // closed when no agent may go on
	closing sync.Once
}

// Review takes a review to its end and returns its account. An error means that
// it has not ended: the claim was lost, the process drains, or something failed
// that may work later. Review again goes on where this one was.
func (e *Engine) Review(ctx context.Context, job ReviewJob) (report.Review, error) {
	v := &reviewing{
		Engine: e, ReviewJob: job, fold: NewReviewFold(), log: e.Log.With("review", job.Request.Review), over: make(chan struct{}),
	}
	track := newTracker(v.track)
	if err := v.open(ctx, track.nudge); err != nil {
		return report.Review{}, err
	}
	for _, s := range job.Before {
		if err := v.hear(ctx, s); err != nil {
			return report.Review{}, err
		}
	}
	if v.fold.isDone() {
		v.tidy(ctx)
		return v.fold.Report(time.Now()), nil
	}
	following, stopFollowing := context.WithCancel(ctx)
	var follower sync.WaitGroup
	follower.Go(func() { track.run(following) })
	defer follower.Wait()
	defer stopFollowing()

	err := v.work(ctx)
	stopFollowing() // the last word on the comment is ours
	follower.Wait()
	if err == nil {
		err = v.publish(ctx)
	}
	if v.site != nil {
		v.site.close(ctx)
	}
	if err != nil {
		return report.Review{}, err
	}
	v.tidy(ctx)
	return v.fold.Report(time.Now()), nil
}

// open reads the journal and says in it what the review is about.
func (v *reviewing) open(ctx context.Context, nudge func()) error {
	var err error
	if v.mirror, err = v.Mirror(ctx, v.Request.Repo); err != nil {
		return err
	}
	v.journal, err = v.Open(ctx, step.Options{
		Has:      v.mirror.Has,
		Recorded: func(entry step.Entry) { v.fold.Add(entry); nudge() },
	})
	if err != nil {
		return err
	}
	r := v.Request
	_, err = step.Choose(ctx, v.journal, reviewBegin, reviewBegun{
		Review: r.Review, Repo: r.Repo.String(), Pull: r.Pull, Requester: r.By.Login, Prefix: r.Prefix,
	})
	return err
}

// hear records that somebody stopped the review. It understands nothing else.
func (v *reviewing) hear(ctx context.Context, s Signal) error {
	if s.Kind != CancelSignal || v.fold.isDone() {
		return nil
	}
	var said Said
	if err := json.Unmarshal(s.Body, &said); err != nil {
		v.log.WarnContext(ctx, "a cancel cannot be read", "error", err) // it is one all the same
	}
	return v.halt(ctx, reviewStopped{State: report.ReviewCanceled, Cause: because(by("cancelled", said.By.Login), said.Text)})
}

// halt records that no agent may go on, and why; the first word counts.
func (v *reviewing) halt(ctx context.Context, s reviewStopped) error {
	if !v.fold.isFound() { // afterwards there is nothing to stop
		if _, err := step.Choose(ctx, v.journal, reviewStop, s); err != nil {
			return fmt.Errorf("record that the review is stopped: %w", err)
		}
	}
	v.closing.Do(func() { close(v.over) })
	return nil
}

// haltOr is halt, or stops this claim where that cannot be recorded.
func (v *reviewing) haltOr(ctx context.Context, stop context.CancelCauseFunc, s reviewStopped) {
	if err := v.halt(context.WithoutCancel(ctx), s); err != nil {
		stop(err)
	}
}

// work is everything before anything is published: prepare, commands, agents. It
// ends with the choice of how the review ends.
func (v *reviewing) work(ctx context.Context) error {
	if v.fold.isEnded() {
		return nil
	}
	broken := ""
	if !v.fold.isFound() {
		err := v.looking(ctx)
		if cause := stopCause(err); cause != nil {
			err, broken = nil, cause.Cause
		}
		if err != nil {
			return err
		}
	}
	_, err := step.Choose(ctx, v.journal, reviewEnd, v.fold.ending(broken))
	return err
}

// looking looks and listens.
func (v *reviewing) looking(ctx context.Context) error {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var listener sync.WaitGroup
	listener.Go(func() { v.listen(working, stop) })
	defer listener.Wait()
	defer stop(nil)
	return v.look(working, stop)
}

// listen records what people say to the running review.
func (v *reviewing) listen(ctx context.Context, stop context.CancelCauseFunc) {
	for {
		select {
		case <-ctx.Done():
			return
		case s, open := <-v.Signals:
			if !open {
				return
			}
			if err := v.hear(ctx, s); err != nil {
				stop(err) // what is not recorded is said again to the next claim
				return
			}
		}
	}
}

// look pins the change and has it looked at. Who stops the review before there is
// anything to look at gets one that found nothing.
func (v *reviewing) look(ctx context.Context, stop context.CancelCauseFunc) error {
	setting, stopSetting := context.WithCancelCause(ctx)
	defer stopSetting(nil)
	go func() {
		select {
		case <-v.over:
			stopSetting(errReviewOver)
		case <-setting.Done():
		}
	}()
	err := v.prepare(setting)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case setting.Err() != nil:
		return nil
	case err != nil:
		return err
	}
	limit := v.conf.Review.Timeout
	deadline := time.AfterFunc(time.Until(v.fold.began().Add(limit)), func() {
		v.haltOr(ctx, stop, reviewStopped{State: report.ReviewPartial, Cause: fmt.Sprintf("the review ran into its limit of %s", limit)})
	})
	defer deadline.Stop()
	if v.fold.stopping() != nil { // a claim before this one was told
		v.closing.Do(func() { close(v.over) })
	}
	seen, err := v.commandsRun(ctx)
	if err != nil {
		return err
	}
	options, err := v.options(ctx)
	if err != nil {
		return err
	}
	target, err := v.change(ctx, seen, options.Lenses)
	if err != nil {
		return err
	}
	// What lenses found counts for nothing until it is verified.
	share := limit * 3 / 4
	enough, cancel := context.WithDeadline(ctx, v.fold.began().Add(share))
	defer cancel()
	options.Enough = review.Stop{Closed: enough.Done(), Why: func() string {
		return fmt.Sprintf("it ran into its limit of %s: the rest of the review's %s is for verifying what was found", share, limit)
	}}
	options.Refused = func(cause error) {
		v.haltOr(ctx, stop, reviewStopped{State: report.ReviewFailed, Cause: cause.Error()})
	}
	found, err := review.Run(ctx, v.crew, v.ground(), target, options)
	if err != nil {
		return err
	}
	_, err = step.Effect(ctx, v.journal, reviewFound, func(context.Context) (reviewResult, error) {
		return reviewResult{Result: found, MaxFindings: v.conf.Review.MaxFindings}, nil
	})
	return err
}

var errReviewOver = errors.New("the review was stopped")

// prepare pins the change, reads the configuration and sets up this claim's
// clone and crew.
func (v *reviewing) prepare(ctx context.Context) error {
	if err := repo.RemoveAll(ctx, v.workDir()); err != nil {
		return fmt.Errorf("remove what an earlier claim left: %w", err)
	}
	if err := os.MkdirAll(v.workDir(), 0o700); err != nil {
		return fmt.Errorf("make the review's directory: %w", err)
	}
	if !v.fold.isPinned() {
		_, err := step.Effect(ctx, v.journal, reviewPin, func(ctx context.Context) (reviewPinned, error) {
			return thrice(ctx, v.log, v.pin)
		})
		if err != nil {
			return err
		}
	}
	if err := v.beginCheck(ctx); err != nil {
		return err
	}
	var err error
	pin := v.fold.pinned()
	if v.conf, err = v.configured(ctx, v.mirror, v.Request.Repo, pinned{ConfigSHA: pin.ConfigSHA, Owners: pin.Owners}); err != nil {
		return err
	}
	if v.site, err = v.newSite(ctx, v.mirror, v.Request.Repo, v.Request.Review, v.log); err != nil {
		return err
	}
	if !pin.inert() { // else none is run
		if v.site.commands, err = commandsFor(ctx, v.mirror, v.workDir(), v.conf, pin.BaseSHA); err != nil {
			return err
		}
	}
	lens, err := v.target(ctx, v.conf, v.Request.Review, review.LensRole)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return &initError{what: "the agents cannot be run", err: err}
	}
	v.crew = v.hire(lens)
	return nil
}

// hire makes the crew of the review's agents.
func (v *reviewing) hire(lens agent.Target) *agent.Crew {
	limits, day := v.conf.Limits, v.Defaults.Limits // the day's bounds are the server's
	budget := &agent.Budget{
		Micros: int64(limits.USDPerBuild), PerCall: min(int64(limits.USDPerCall), int64(limits.USDPerBuild)),
		MaxCalls: v.conf.Pipeline.MaxAgentsPerBuild, Day: v.Day,
	}
	if day.USDPerDay > 0 {
		budget.PerCall = min(budget.PerCall, int64(day.USDPerDay))
	}
	return &agent.Crew{
		Journal: v.journal, Slots: v.Slots, Budget: budget, Limits: callLimits(v.conf, day), Draining: v.Draining, Log: v.log,
		Readable:    []string{v.site.clone.GitDir()},
		Transcripts: filepath.Join(v.State, "transcripts", v.Request.Review),
		Target:      func(string) (agent.Target, error) { return lens, nil },
		Home: func(key string) (string, error) {
			home := filepath.Join(v.site.homes, homeOf(key))
			return home, os.MkdirAll(home, 0o700)
		},
	}
}

func (v *reviewing) workDir() string { return filepath.Join(v.State, "work", v.Request.Review) }

// tidy removes what no later claim needs.
func (v *reviewing) tidy(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for _, dir := range []string{v.workDir(), filepath.Join(v.State, "homes", v.Request.Review)} {
		if err := repo.RemoveAll(ctx, dir); err != nil {
			v.log.WarnContext(ctx, "the review left files behind", "dir", dir, "error", err)
		}
	}
}
