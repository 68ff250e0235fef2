package pipeline

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"

	"github.com/sourcegraph/conc/panics"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// conductor runs the issue graph: it decides what starts and what lands, one
// decision at a time, each recorded before it is acted on. What it knows is the
// fold; its only own state is which goroutines it has started.
type conductor struct {
	given bool // the plan was: its descriptions are the specs
	crew  *agent.Crew
	fold  *Fold
	site  *site
	conf  config.Repo
	log   *slog.Logger
}

// work is what the fold says can be done now.
type work struct {
	resume []graph.Issue // started earlier, not ended
	open   string        // key of a landing that was chosen and has not ended
	ready  []string      // approved, not landed, by number
	start  []graph.Issue // the frontier, most urgent first
	head   string        // the integration branch
	next   int           // number of the next landing
}

// finished says which lane or landing ended.
type finished struct {
	key   string
	err   error
	panic *panics.Recovered
}

// run returns when nothing can run any more. The end of ctx stops the lanes;
// its cause is what run returns.
func (c *conductor) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	running, ended := map[string]bool{}, make(chan finished)
	launch := func(key string, fn func(context.Context) error) {
		if !running[key] {
			running[key] = true
			go func() {
				one := finished{key: key}
				one.panic = panics.Try(func() { one.err = fn(ctx) })
				ended <- one
			}()
		}
	}
	var failed error
	for {
		if failed == nil {
			if failed = c.decide(ctx, running, launch); failed != nil {
				stop(failed)
			}
		}
		if len(running) == 0 {
			return failed
		}
		one := <-ended
		delete(running, one.key)
		if one.panic != nil && failed == nil {
			failed = one.panic.AsError() // the job's boundary reports it; the others end first
			stop(failed)
		}
		if one.err != nil && failed == nil {
			failed = one.err
			stop(failed)
		}
	}
}

// decide starts everything that can start: first what was chosen before a
// crash, then by new choices.
func (c *conductor) decide(ctx context.Context, running map[string]bool, launch func(string, func(context.Context) error)) error {
	if cause := c.fold.hopeless(c.conf.Pipeline.FailureAbortRatio); cause != "" {
		if _, err := step.Choose(ctx, c.crew.Journal, keyStop, stopped{State: report.Failed, Cause: cause}); err != nil {
			return err
		}
	}
	w := c.fold.work()
	for _, is := range w.resume {
		launch(is.Key(), func(ctx context.Context) error { return c.lane(ctx, is) })
	}
	if w.open == "" && len(w.ready) > 0 {
		w.open = keyLand(w.next)
		if _, err := step.Choose(ctx, c.crew.Journal, w.open, landing{Issues: w.ready, Base: w.head}); err != nil {
			return err
		}
	}
	if w.open != "" {
		launch(w.open, c.land)
	}
	for _, is := range w.start {
		lanes := 0
		for key := range running {
			if strings.HasPrefix(key, "issue-") {
				lanes++
			}
		}
		if lanes >= c.conf.Limits.MaxParallelIssues {
			break
		}
		if _, err := step.Choose(ctx, c.crew.Journal, keyStart(is.Key()), started{Base: w.head}); err != nil {
			return err
		}
		launch(is.Key(), func(ctx context.Context) error { return c.lane(ctx, is) })
	}
	return nil
}

// lane takes one issue from its base to its last commit. Only what stops the
// whole build is an error; a panic fails the issue.
func (c *conductor) lane(ctx context.Context, is graph.Issue) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.log.ErrorContext(ctx, "panic in an issue's lane", "issue", is.Name, "panic", r, "stack", string(debug.Stack()))
			err = c.keep(ctx, is, coding.Result{Outcome: report.FailedUnrecoverable, Commit: c.fold.base(is.Name), Cause: fmt.Sprintf("internal error: %v", r)})
		}
	}()
	defer c.site.settle(ctx, is.Key())
	base := c.fold.base(is.Name)
	here := c.site.of(is)
	spec, err := c.spec(ctx, here, is)
	if err != nil {
		return err
	}
	result, err := coding.Run(ctx, c.crew, here, coding.Task{
		Key: is.Key(), Issue: is, Spec: spec, Base: base, MaxIterations: c.conf.Pipeline.MaxCodingIterations,
		Background: func() coding.Background { return coding.Background{Notes: c.fold.notes(is.Name)} },
	})
	if err != nil {
		return err
	}
	return c.keep(ctx, is, result)
}

// spec is what the Coder is told of the issue beside its plan.
func (c *conductor) spec(ctx context.Context, here *issueSite, is graph.Issue) (string, error) {
	if c.given {
		return "", nil
	}
	draft := plan.Draft{
		Issue: is, PRD: c.fold.result().PRD, Architecture: c.fold.result().Architecture, Neighbours: c.fold.neighbours(is.Name),
	}
	at := agent.Place{Key: is.Key(), Work: here.Open(is.Key()+"-spec", c.fold.base(is.Name))}
	out, err := agent.Ask(ctx, c.crew, at, plan.IssueWriter, draft)
	return out.Spec, err
}

// keep records how the loop ended and holds its last commit by a ref, landed
// or not.
func (c *conductor) keep(ctx context.Context, is graph.Issue, r coding.Result) error {
	_, err := step.Effect(ctx, c.crew.Journal, keyKept(is.Key()), func(ctx context.Context) (kept, error) {
		k := kept{Name: is.Name, Result: r}
		if r.Changed {
			k.Ref = c.site.ref(is.Slug())
			if err := c.site.hold(ctx, k.Ref, r.Commit); err != nil {
				return k, err
			}
		}
		return k, nil
	})
	return err
}
