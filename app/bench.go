package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// A Bench is where changes are reviewed that are on no branch of anybody's: the
// cases of an evaluation, the pull requests of a benchmark. It has a directory and
// a store of its own, and nothing of what it does outlives them.
type Bench struct {
	dir   string
	store *queue.SQLite
	purse *purse
}

// OpenBench sets a bench up in an empty directory. All of its reviews together may
// cost that much, in micro-dollars; bound is what people call that.
func OpenBench(ctx context.Context, dir string, most int64, bound string) (*Bench, error) {
	store, err := queue.OpenSQLite(ctx, filepath.Join(dir, "store"))
	if err != nil {
		return nil, fmt.Errorf("open the bench's store: %w", err)
	}
	return &Bench{dir: dir, store: store, purse: newPurse(most, bound)}, nil
}

// Close ends the store. The directory is its maker's.
func (b *Bench) Close() error { return b.store.Close() }

// A Panel is agents who review on a bench. Reviews may run at the same time.
type Panel struct {
	bench  *Bench
	engine *pipeline.Engine

	mu    sync.Mutex
	plays map[string]runtime.Runtime // by review: what it plays instead of asking anybody
	keeps map[string]string          // by review: the directory in which it is recorded
}

// Panel sets agents up, by a configuration of which the state directory and the
// address of a store do not count.
func (b *Bench) Panel(conf config.Server, agents Agents, log *slog.Logger) (*Panel, error) {
	conf.StateDir, conf.RedisURL, conf.Record = b.dir, "", false
	engine, err := NewEngine(conf, agents, log)
	if err != nil {
		return nil, err
	}
	p := &Panel{bench: b, engine: engine, plays: map[string]runtime.Runtime{}, keeps: map[string]string{}}
	secrets := secretsOf(agents.Environ)
	engine.Record = func(id string, rt runtime.Runtime) runtime.Runtime {
		p.mu.Lock()
		defer p.mu.Unlock()
		if play := p.plays[id]; play != nil {
			rt = play
		}
		if dir := p.keeps[id]; dir != "" {
			rt = runtime.Record(rt, dir, secrets...)
		}
		return rt
	}
	return p, nil
}

// A Change is what a panel reviews: two refs of a stage. Nothing of it is executed,
// as of a fork's pull request: whoever hands it in may not be trusted.
type Change struct {
	Review     string // names it on its bench; it must be new
	Repo       string // names the repository, in the account and among mirrors
	Stage      *repo.Stage
	Base, Head string // refs
	Goal       string // what it is for; may be empty
	Focus      []string
	Severity   string // with Focus as in a review's request

	Recordings []runtime.Recording // what is played instead of asking agents; nil: they are asked
	Record     string              // directory to record the calls in; empty: none
}

// Review reviews a change to its end. An error says that it could not be done, or
// that ctx has ended; the account is what is known of it then.
func (p *Panel) Review(ctx context.Context, c Change) (report.Review, error) {
	if err := p.prepare(c); err != nil {
		return report.Review{}, err
	}
	name := forge.Repo{Owner: "bench", Name: c.Repo}
	mirror, err := p.engine.Mirror(ctx, name)
	if err != nil {
		return report.Review{}, err
	}
	kind := "local/" + c.Review
	if _, _, err := p.bench.store.Put(ctx, queue.Job{ID: c.Review, Kind: kind}); err != nil {
		return report.Review{}, fmt.Errorf("queue the review: %w", err)
	}
	var final report.Review
	err = queue.RunOne(ctx, p.bench.store, "bench", kind, func(working context.Context, t *queue.Task) (err error) {
		final, err = ReviewClaim{
			Engine: p.engine, Store: p.bench.store, Task: t, Day: p.bench.purse,
			Request: review.Request{Review: c.Review, Repo: name, Full: true, Goal: c.Goal, Focus: c.Focus, Severity: c.Severity},
			Forge:   pipeline.LocalReview{Dir: c.Stage.Dir(), Mirror: mirror, Base: c.Base, Head: c.Head, Inert: true},
		}.Review(working)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return queue.Later(time.Now(), nil) // who interrupts waits for nothing
		}
		return queue.Never(err) // a case is tried again by name only
	})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil { // what it has cost is told all the same
		known, rerr := pipeline.ReadReview(context.WithoutCancel(ctx), p.bench.store, c.Review)
		return known, errors.Join(err, rerr)
	}
	return final, nil
}

// prepare says what the review plays, and where it is recorded.
func (p *Panel) prepare(c Change) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Record != "" {
		p.keeps[c.Review] = c.Record
	}
	if c.Recordings == nil {
		return nil
	}
	play, err := runtime.NewReplay(c.Recordings, runtime.ReplayOptions{})
	p.plays[c.Review] = play
	return err
}

// Transcripts is the directory of what was said in a review.
func (p *Panel) Transcripts(review string) string {
	return filepath.Join(p.engine.State, "transcripts", review)
}

// Hide returns what replaces the secrets of an environment in a text.
func Hide(environ []string) func(text string) string {
	var secret []string
	for _, entry := range environ {
		if len(secretsOf([]string{entry})) > 0 {
			secret = append(secret, entry)
		}
	}
	return runtime.NewRedactor(secret).Text
}
