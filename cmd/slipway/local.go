package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// localBuild is the payload of a terminal's job: enough to resume it.
type localBuild struct {
	Dir        string           `json:"dir"`
	Runtime    string           `json:"runtime,omitempty"`
	Command    []string         `json:"agent_command,omitempty"`
	Readable   []string         `json:"readable,omitempty"` // what the agent's program may read
	Recordings string           `json:"recordings,omitempty"`
	Record     string           `json:"record,omitempty"`
	Request    pipeline.Request `json:"request,omitzero"`
	Review     *localReview     `json:"review,omitempty"` // what is asked for, where it is no build
}

// id names the run.
func (l localBuild) id() string {
	if l.Review != nil {
		return l.Review.Request.Review
	}
	return l.Request.Build
}

// repo is what it is about.
func (l localBuild) repo() forge.Repo {
	if l.Review != nil {
		return l.Review.Request.Repo
	}
	return l.Request.Repo
}

// newBuildID names a build of a terminal.
func newBuildID() string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	return "b-" + hex.EncodeToString(id)
}

// localRepo names a local repository: two of the same name differ by their path.
func localRepo(dir string) forge.Repo {
	sum := sha256.Sum256([]byte(dir))
	return forge.Repo{Owner: "local-" + hex.EncodeToString(sum[:4]), Name: filepath.Base(dir)}
}

// engineFor is the engine with the agents that a local build names.
func (o *options) engineFor(conf config.Server, l localBuild) (*pipeline.Engine, error) {
	agents, err := agentsFor(l)
	if err != nil {
		return nil, err
	}
	engine, err := app.NewEngine(conf, agents, o.logger())
	return engine, environment(err)
}

// agentsFor are the agents that a local build names.
func agentsFor(l localBuild) (app.Agents, error) {
	if l.Runtime != "" {
		if err := config.CheckRuntime(l.Runtime); err != nil {
			return app.Agents{}, fmt.Errorf("--runtime: %w", err)
		}
	}
	agents := app.Agents{Runtime: l.Runtime, Command: l.Command, Readable: l.Readable, Record: l.Record, Environ: os.Environ(), Bridge: bridge()}
	if l.Recordings != "" {
		var err error
		if agents.Recordings, err = readRecordings(l.Recordings); err != nil {
			return app.Agents{}, fmt.Errorf("--recordings: %w", err)
		}
	}
	return agents, nil
}

func readRecordings(path string) ([]runtime.Recording, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return runtime.ReadRecordings(os.DirFS(path))
	}
	archive, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return runtime.ReadArchive(archive)
}

// runLocal runs a terminal's build to its end.
func (o *options) runLocal(ctx context.Context, l localBuild) error {
	return o.withStore(ctx, func(store queue.Store, conf config.Server) error {
		view := newView(o, l.Request.Build)
		var final report.Build
		err := o.claimLocal(ctx, conf, store, l, view.follow, func(ctx context.Context, c app.Claim) (err error) {
			c.Subagents = view.slot
			final, err = c.Build(ctx)
			return err
		})
		if err != nil {
			return err
		}
		view.finish(ctx, store, final, filepath.Join(conf.StateDir, "builds", l.Request.Build, "report.md"))
		if code := report.ExitCode(final); code != 0 {
			return &exitError{code: code}
		}
		return nil
	})
}

// claimLocal puts the build's job unless it is there, claims it by its own kind,
// which no server does, and has do work on it while show shows its journal.
func (o *options) claimLocal(ctx context.Context, conf config.Server, store queue.Store, l localBuild, show func(context.Context, queue.Store), do func(context.Context, app.Claim) error) error {
	engine, err := o.engineFor(conf, l)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(l)
	if err != nil {
		return err
	}
	build := l.id()
	if _, _, err := store.Put(ctx, queue.Job{ID: build, Kind: "local/" + build, Payload: payload}); err != nil {
		return environment(err)
	}
	mirror, err := engine.Mirror(ctx, l.repo())
	if err != nil {
		return environment(err)
	}
	said := finishing
	if l.Review != nil {
		said = showing
	}
	stopped, draining, done := interrupts(ctx, said)
	defer done()
	running, stop := context.WithCancel(stopped)
	defer stop()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		show(running, store)
	}()
	fg := &foreground{store: store, build: build, stop: stop}
	fg.resting.Store(true)
	minded := make(chan struct{})
	go func() {
		defer close(minded)
		fg.mind(running, draining)
	}()
	err = fg.run(running, func(ctx context.Context, t *queue.Task) error {
		err := do(ctx, app.Claim{
			Engine: engine, Store: store, Task: t, Request: l.Request,
			Forge: pipeline.Local{Dir: l.Dir, Mirror: mirror}, Draining: draining,
		})
		if err != nil && closed(draining) {
			stop() // handed back, and not to be claimed again by us
		}
		return err
	})
	stop()
	<-shown
	<-minded
	switch {
	case err == nil:
		return nil
	case fg.elsewhere.Load():
		return fmt.Errorf("build %s was taken up by another process and has ended; see: slipway status %s", build, build)
	case closed(draining) || ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: fmt.Errorf("the build is kept; go on with: slipway resume %s", build)}
	case errors.Is(err, queue.ErrEmpty):
		return fmt.Errorf("build %s is run by another process, or has ended; see: slipway status %s", build, build)
	}
	return environment(err)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func workerName() string { return fmt.Sprintf("terminal-%d-%d", os.Getpid(), time.Now().UnixNano()) }
