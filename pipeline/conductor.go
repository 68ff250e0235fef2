package pipeline

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"github.com/sourcegraph/conc/panics"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// conductor runs the issue graph: it decides what starts, what lands, what is
// split and when failures are dealt with, one decision at a time, each recorded
// before it is acted on. What it knows is the fold; its only own state is which
// goroutines it has started.
type conductor struct {
	fold    *Fold
	journal *step.Journal
	conf    config.Repo
	hands   hands
	log     *slog.Logger
}

// hands do what the conductor decides on. Each call ends with the entry of the
// journal that says what came of it. An error is one that stops the build.
type hands interface {
	code(ctx context.Context, is graph.Issue) error // ends with kept
	land(ctx context.Context) error                 // the open landing; ends with advanced
	replan(ctx context.Context) error               // the open replan; ends with replanned
}

// work is what the fold says can be done now.
type work struct {
	stopped bool
	resume  []graph.Issue // started earlier, not ended
	open    string        // key of a landing that was chosen and has not ended
	ready   []string      // approved, not landed, by number
	split   []graph.Issue // to be split
	failed  []string      // failures that nothing was decided about
	replan  string        // key of a replan that was chosen and has not ended
	head    string        // the integration branch
	next    int           // number of the next landing
	replans int           // choices made
	asked   int           // of those, how often the Replanner was
	splits  int
}

// finished says which lane, landing or replan ended.
type finished struct {
	key   string
	err   error
	panic *panics.Recovered
}

// running are the goroutines at work, by the key of what they do.
type running struct {
	keys   map[string]bool
	broke  map[string]bool // lanes that ended because the budget did
	ended  chan finished
	launch func(key string, fn func(context.Context) error)
}

// lanes counts the issues at work.
func (r *running) lanes() (n int) {
	for key := range r.keys {
		if strings.HasPrefix(key, "issue-") {
			n++
		}
	}
	return n
}

// run returns when nothing can run any more. The end of ctx stops the lanes;
// its cause is what run returns.
func (c *conductor) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	now := &running{keys: map[string]bool{}, broke: map[string]bool{}, ended: make(chan finished)}
	now.launch = func(key string, fn func(context.Context) error) {
		if !now.keys[key] && !now.broke[key] {
			now.keys[key] = true
			go func() {
				one := finished{key: key}
				one.panic = panics.Try(func() { one.err = fn(ctx) })
				now.ended <- one
			}()
		}
	}
	var failed error
	for {
		grown, early := c.journal.Grown(), false
		if failed == nil {
			failed = c.decide(ctx, now)
			if early = errors.Is(failed, step.ErrNotYet); early {
				failed = nil
			}
			if failed != nil {
				stop(failed)
			}
		}
		if len(now.keys) == 0 && !early {
			return failed
		}
		var idle <-chan struct{}
		if len(now.keys) == 0 {
			idle = ctx.Done()
		}
		var one finished
		select {
		case one = <-now.ended:
		case <-grown: // in a replay
			continue
		case <-idle:
			return context.Cause(ctx)
		}
		delete(now.keys, one.key)
		switch {
		case failed != nil:
		case one.panic != nil:
			failed = one.panic.AsError() // the job's boundary reports it; the others end first
			stop(failed)
		case errors.Is(one.err, agent.ErrBudget):
			// What is paid for goes on to its end.
			now.broke[one.key] = true
			failed = c.give(ctx, one)
		case one.err != nil:
			failed = one.err
			stop(failed)
		}
	}
}

// give ends a lane that the budget ended, and with it the build's starts. Nobody
// takes the lane up again, whatever the budget is by then: the work of the build
// has been verified without it.
func (c *conductor) give(ctx context.Context, lane finished) error {
	spent := stopped{State: report.NeedsHuman, Cause: lane.err.Error(), Budget: true}
	_, err := step.Choose(ctx, c.journal, c.fold.key(keyStop), spent)
	if err == nil {
		_, err = step.Choose(ctx, c.journal, c.fold.key(keyGiven(lane.key)), given{Cause: lane.err.Error()})
	}
	return err
}

// decide does everything that can be done now: what was chosen before a crash
// first, then the gates in their order, then what may start.
func (c *conductor) decide(ctx context.Context, now *running) error {
	if cause := c.fold.hopeless(c.conf.Pipeline.FailureAbortRatio); cause != "" && c.fold.stopping() == nil {
		_, err := step.Decide(ctx, c.journal, c.fold.key(keyStop), stopped{State: report.Failed, Cause: cause})
		if err != nil {
			return err
		}
	}
	w := c.fold.work()
	for _, is := range w.resume {
		now.launch(is.Key(), func(ctx context.Context) error { return c.hands.code(ctx, is) })
	}
	if w.replan != "" && !w.stopped {
		now.launch(w.replan, c.hands.replan)
	}
	if err := c.land(ctx, &w, now); err != nil {
		return err
	}
	if len(w.split) > 0 && !w.stopped && w.replan == "" { // a decision is about the graph that was shown
		return c.split(ctx, w.split, now)
	}
	if len(w.failed) > 0 && w.open == "" && len(w.ready) == 0 && w.replan == "" && !w.stopped {
		return c.replan(ctx, w, now)
	}
	if w.replan != "" {
		return nil // nothing pending starts while it may be changed
	}
	for now.lanes() < c.conf.Limits.MaxParallelIssues {
		start, head := c.fold.frontier() // which comes next depends on what runs
		if len(start) == 0 {
			break
		}
		is := start[0]
		if _, err := step.Decide(ctx, c.journal, c.fold.key(keyStart(is.Key())), started{Base: head}); err != nil {
			return err
		}
		now.launch(is.Key(), func(ctx context.Context) error { return c.hands.code(ctx, is) })
	}
	return nil
}

// land chooses a landing of everything that is ready. With barriers between
// levels it waits until nothing is in flight and nothing could be.
func (c *conductor) land(ctx context.Context, w *work, now *running) error {
	barred := c.conf.Pipeline.Barrier == "level" && (now.lanes() > 0 || w.replan == "" && c.fold.mayStart())
	if w.open == "" && len(w.ready) > 0 && !barred {
		w.open = keyLand(w.next)
		if _, err := step.Decide(ctx, c.journal, c.fold.key(w.open), landing{Issues: w.ready, Base: w.head}); err != nil {
			return err
		}
	}
	if w.open != "" {
		now.launch(w.open, c.hands.land)
	}
	return nil
}

// split puts sub-issues in the place of those whose work is to be cut smaller.
func (c *conductor) split(ctx context.Context, parents []graph.Issue, now *running) error {
	for _, is := range parents {
		choice := split{Refused: c.fold.unsplittable(is.Name, c.conf.Pipeline.MaxSplits)}
		if _, err := step.Decide(ctx, c.journal, c.fold.key(keySplit(is.Key())), choice); err != nil {
			return err
		}
	}
	return c.decide(ctx, now)
}

// replan chooses to deal with the failures: the Replanner is asked, or where it
// may not be the rule is that the rest goes on.
func (c *conductor) replan(ctx context.Context, w work, now *running) error {
	key := keyReplan(w.replans + 1)
	asked := c.conf.Pipeline.EnableReplanning && w.asked < c.conf.Pipeline.MaxReplans
	if _, err := step.Decide(ctx, c.journal, c.fold.key(key), replanning{Failed: w.failed, Asked: asked}); err != nil {
		return err
	}
	now.launch(key, c.hands.replan)
	return nil
}
