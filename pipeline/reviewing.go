package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// ReviewRequest is what starts a review, for callers that know no more of it.
type ReviewRequest = review.Request

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

	// Earlier is the last review of the same pull request that ended, and nil
	// where there was none.
	Earlier func(ctx context.Context) (*review.Result, error)
	// Again queues a review of the pull request at that head, once.
	Again func(ctx context.Context, head string) error
	// Mend queues a follow-up build of what is open, once. It may be nil where
	// nothing is to be mended.
	Mend func(ctx context.Context, open []finding.Entry) error
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
	return v.halt(ctx, reviewStopped{State: report.ReviewCanceled, Cause: by("cancelled", saidBy(s))})
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
		err := v.halt(context.WithoutCancel(ctx), reviewStopped{State: report.ReviewPartial, Cause: fmt.Sprintf("the review ran into its limit of %s", limit)})
		if err != nil {
			stop(err)
		}
	})
	defer deadline.Stop()
	if v.fold.stopping() != nil { // a claim before this one was told
		v.closing.Do(func() { close(v.over) })
	}
	seen, err := v.commandsRun(ctx)
	if err != nil {
		return err
	}
	target, err := v.change(ctx, seen)
	if err != nil {
		return err
	}
	options, err := v.options(ctx)
	if err != nil {
		return err
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
	if !pin.Pull.Fork { // else none is run
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

// pin fetches both sides and settles what is compared: the head as it is now
// with the commit at which it left its base. Configuration is the default
// branch's, lenses and instructions are the base's.
func (v *reviewing) pin(ctx context.Context) (reviewPinned, error) {
	pull, err := v.Forge.Pull(ctx, v.Request.Pull)
	if err != nil {
		return reviewPinned{}, err
	}
	cred, err := v.Forge.Credential(ctx)
	if err != nil {
		return reviewPinned{}, fmt.Errorf("get a credential for git: %w", err)
	}
	remote := repo.Remote{URL: cred.URL, User: cred.User, Token: cred.Token}
	owners, err := v.Forge.OwnersFile(ctx)
	if err != nil {
		return reviewPinned{}, err
	}
	p := reviewPinned{Pull: pull, Owners: string(owners)}
	if p.BaseTip, err = v.mirror.Fetch(ctx, remote, pull.Base); err != nil {
		return p, err
	}
	if p.Pull.HeadSHA, err = v.mirror.Fetch(ctx, remote, headRef(pull)); err != nil {
		return p, err
	}
	if p.BaseSHA, err = v.mirror.MergeBase(ctx, p.BaseTip, p.Pull.HeadSHA); err != nil {
		return p, err
	}
	p.ConfigSHA = p.BaseTip
	if v.Request.Pull > 0 { // a local repository's checked-out branch is not a default branch
		if p.ConfigSHA, err = v.mirror.Fetch(ctx, remote, ""); err != nil {
			return p, err
		}
	}
	// A later review begins where this one ends, also after a force push.
	if err = v.mirror.SetRef(ctx, "refs/slipway/"+v.Request.Review+"/head", p.Pull.HeadSHA, repo.Any); err != nil {
		return p, err
	}
	p.Earlier, err = v.Earlier(ctx)
	return p, err
}

func headRef(p forge.Pull) string {
	if p.Ref != "" {
		return p.Ref
	}
	return fmt.Sprintf("refs/pull/%d/head", p.Number)
}

// commandsRun is what the engine's commands show: on the head, and, where they
// fail there, on the base. Of a fork nothing is executed. They have a third of
// the review's time, so that they cannot keep the agents from theirs.
func (v *reviewing) commandsRun(ctx context.Context) (reviewEvidence, error) {
	return step.Do(ctx, v.journal, reviewCommands, func(ctx context.Context) (reviewEvidence, error) {
		pin := v.fold.pinned()
		if pin.Pull.Fork {
			return reviewEvidence{Unrun: "the change is from a fork, whose code is not executed"}, nil
		}
		limited, cancel := context.WithTimeoutCause(ctx, v.conf.Review.Timeout/3, errSlowCommands)
		defer cancel()
		go func() {
			select {
			case <-v.over:
				cancel()
			case <-limited.Done():
			}
		}()
		out := reviewEvidence{}
		var err error
		out.Head, err = v.site.test(limited, "head", pin.Pull.HeadSHA)
		if err == nil && !out.Head.Passed() {
			out.Base = new(evidence.Result)
			*out.Base, err = v.site.test(limited, "base", pin.BaseSHA)
		}
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case limited.Err() != nil:
			why := fmt.Sprintf("they did not end within %s", v.conf.Review.Timeout/3)
			if s := v.fold.stopping(); s != nil {
				why = s.Cause
			}
			return reviewEvidence{Unrun: why, Late: true}, nil
		case err != nil:
			return out, fmt.Errorf("run the commands: %w", err)
		case out.Head.None:
			out.Unrun = "none is configured, and none was found"
		}
		return out, nil
	})
}

var errSlowCommands = errors.New("the commands took too long")

// change is what is reviewed. Where the last review was not whole, or
// its commits are gone, all is looked at again.
func (v *reviewing) change(ctx context.Context, seen reviewEvidence) (review.Target, error) {
	pin := v.fold.pinned()
	t := review.Target{
		Key: "review", Base: pin.BaseSHA, Head: pin.Pull.HeadSHA, Goal: strings.TrimSpace(pin.Pull.Title + "\n\n" + pin.Pull.Body),
		Evidence: seen.Head, Before: seen.Base, Earlier: pin.Earlier, Full: v.Request.Full,
	}
	if v.Request.Pull == 0 {
		t.Goal = v.Request.Goal // two branches ask for nothing
	}
	if e := pin.Earlier; e != nil && (!e.Whole() || !v.mirror.Has(ctx, e.Head)) {
		t.Full = true
	}
	guide, err := v.mirror.File(ctx, pin.BaseTip, guideFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, err
	}
	t.Guide = string(guide[:min(len(guide), maxGuide)])
	return t, nil
}

// guideFile is where a repository says how it wants to be reviewed.
const guideFile = "REVIEW.md"

// maxGuide bounds what of it the agents are told, in bytes.
const maxGuide = 16 << 10

// options say who looks, and at what. A lens that does not exist is the asker's
// mistake, and ends the review.
func (v *reviewing) options(ctx context.Context) (review.Options, error) {
	c, r := v.conf.Review, v.Request
	all, err := v.lenses(ctx)
	if err != nil {
		return review.Options{}, err
	}
	wanted := r.Focus
	if len(wanted) == 0 {
		wanted = c.Lenses
	}
	lenses, err := review.Choose(all, wanted)
	if err != nil {
		return review.Options{}, &initError{what: "the review cannot begin", err: err}
	}
	o := review.Options{
		Lenses: lenses, MaxConcurrency: max(1, min(v.conf.Pipeline.MaxConcurrency, v.Defaults.Pipeline.MaxConcurrency)),
		Ignore: v.conf.Paths.Ignore, Only: r.Paths, Severity: finding.Severity(c.Severity), MinConfidence: c.MinConfidence,
		Audit: true, Inert: v.fold.pinned().Pull.Fork, Emit: v.emit, Over: v.over,
		OverWhy: func() string {
			if s := v.fold.stopping(); s != nil {
				return s.Cause
			}
			return "the review was stopped"
		},
	}
	if r.Severity != "" {
		o.Severity = finding.Severity(r.Severity)
	}
	return o, nil
}

// emit tells who listens how a slot stands.
func (v *reviewing) emit(e batch.Event) {
	if v.Heard != nil {
		v.Heard(NewSlotEvent(v.Request.Review, e))
	}
}

// lenses are the default ones and the repository's own, by the base's word.
func (v *reviewing) lenses(ctx context.Context) ([]review.Lens, error) {
	all := review.Lenses()
	files, err := v.mirror.List(ctx, v.fold.pinned().BaseTip, review.LensDir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f, ".md") {
			continue
		}
		text, err := v.mirror.File(ctx, v.fold.pinned().BaseTip, f)
		if err != nil {
			return nil, err
		}
		l, err := review.Own(f, string(text))
		if err != nil {
			return nil, &config.Error{Origin: f, Problems: []config.Problem{{Text: err.Error()}}}
		}
		all = append(all, l)
	}
	return all, nil
}

// ground is the site as this review sees it: agents find the base's instructions
// in their worktree, whatever the change makes of them.
func (v *reviewing) ground() review.Site {
	return pullSite{reviewSite: reviewSite{v.site}, mirror: v.mirror, base: v.fold.pinned().BaseTip, from: v.fold.pinned().BaseSHA}
}

// pullSite is a reviewSite whose desks have the instruction files of the base.
type pullSite struct {
	reviewSite
	mirror     *repo.Mirror
	base, from string // commits: the tip, and where the change begins
}

// Desk names a worktree that nobody writes to.
func (s pullSite) Desk(name, commit string) agent.Workspace {
	return &honestDesk{Workspace: s.reviewSite.Desk(name, commit), site: s, commit: commit}
}

// honestDesk is a worktree of a change without what the change tells agents.
type honestDesk struct {
	agent.Workspace
	site   pullSite
	commit string
	done   bool
}

// Prepare makes the worktree. It is called by one goroutine at a time.
func (d *honestDesk) Prepare(ctx context.Context) error {
	if err := d.Workspace.Prepare(ctx); err != nil || d.done {
		return err
	}
	changed, err := d.site.mirror.Changed(ctx, d.site.from, d.commit)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(d.Dir())
	if err != nil {
		return fmt.Errorf("put the base's instructions in place: %w", err)
	}
	defer func() { _ = root.Close() }() // nothing is buffered
	for _, c := range changed {
		if !isInstruction(c.Path) {
			continue
		}
		if err := d.restore(ctx, root, c.Path); err != nil {
			return fmt.Errorf("put the base's %s in place: %w", c.Path, err)
		}
	}
	d.done = true
	return nil
}

func (d *honestDesk) restore(ctx context.Context, root *os.Root, path string) error {
	text, err := d.site.mirror.File(ctx, d.site.base, path)
	gone := errors.Is(err, os.ErrNotExist)
	if err != nil && !gone {
		return err
	}
	name := filepath.FromSlash(path)
	if err := root.RemoveAll(name); err != nil || gone {
		return err
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return root.WriteFile(name, text, 0o644)
}

// isInstruction reports whether a file tells Slipway or agents what to do.
func isInstruction(path string) bool {
	if path == ConfigFile || path == ".github/copilot-instructions.md" {
		return true
	}
	for _, dir := range []string{review.LensDir, ".claude", ".codex", ".cursor", ".opencode", ".gemini"} {
		if strings.HasPrefix(path, dir+"/") || strings.Contains(path, "/"+dir+"/") {
			return true
		}
	}
	return slices.Contains([]string{guideFile, "AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md", ".cursorrules", ".mcp.json", "opencode.json"}, filepath.Base(path))
}
