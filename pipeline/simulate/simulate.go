// Package simulate runs a plan through the real conductor, graph, journal and
// git with agents that only take their time, and compares how long it took with
// how long it would have taken had everything but the agents been free.
//
// Promises: all that it writes is below one directory that Close removes;
// nothing leaves the machine; equal plans fail in the same places; the bound is
// computed from the calls that were made, in the order in which the conductor
// takes issues, so a ratio above 1 is the engine's own time.
package simulate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// Options say how a plan is run.
type Options struct {
	MaxParallelIssues int    // lanes; 0 is 8
	Barrier           string // none or level; empty is none
	Dir               string // for what is temporary; empty is memory where there is enough, else the system's
	Log               *slog.Logger
}

// A Result is what a simulation took. Times are milliseconds.
type Result struct {
	Name  string       `json:"name"`
	State report.State `json:"state"`
	// From the moment the plan and the repository were ready to the last
	// landing, or to the end of the last lane when that came later.
	MakespanMS int64 `json:"makespan_ms"`
	// The same calls in the same lanes with everything else free.
	BoundMS int64 `json:"bound_ms"`
	// The longest path, or the work spread over all lanes: no order beats it.
	LowerBoundMS int64   `json:"lower_bound_ms"`
	Ratio        float64 `json:"ratio"` // makespan ÷ bound
	AgentCalls   int     `json:"agent_calls"`
	OwnCPUMS     int64   `json:"own_cpu_ms"`   // of this process, user and system, over the whole build, also what was before a stop
	GitCPUMS     int64   `json:"git_cpu_ms"`   // likewise of the git processes
	Merges       int     `json:"merges"`       // issues that landed
	MaxParallel  int     `json:"max_parallel"` // agents at work at a time
	Lanes        []Lane  `json:"-"`            // for Gantt, by number
}

// A Lane is what happened to one issue.
type Lane struct {
	Number int
	Name   string
	Bars   []Bar // by start
}

// A Bar is a stretch of time since the beginning of the execution.
type Bar struct {
	Kind     BarKind
	From, To time.Duration
}

// BarKind says what took the time of a Bar.
type BarKind string

// The kinds of Bar, from the longest to the one drawn over it.
const (
	InLane  BarKind = "lane"    // from the start to the end of the issue's lane
	Landing BarKind = "landing" // from there until it has landed
	Coding  BarKind = "coder"
	Judging BarKind = "reviewer" // reviewer, QA, synthesizer
	Mending BarKind = "merger"
	Advice  BarKind = "advisor"
)

const (
	defaultLanes  = 8
	maxIterations = 5
	buildID       = "b-simulation"
	// The tree without files, which every git knows without having it.
	emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
)

// A Simulation is one plan in a directory of its own. Run may be called again
// after it was stopped, and goes on where it was; it must not be called twice
// at a time.
type Simulation struct {
	plan    Plan
	options Options
	dir     string
	graph   *graph.Graph
	agents  *agents
	store   *queue.SQLite
	engine  *pipeline.Engine
	request pipeline.Request
	forge   pipeline.Local

	own, git time.Duration // CPU of every Run so far
}

// Run simulates a plan and leaves nothing behind.
func Run(ctx context.Context, p Plan, o Options) (_ Result, err error) {
	s, err := Open(ctx, p, o)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return s.Run(ctx)
}

// Open sets up a simulation: an empty repository, a store and an engine.
func Open(ctx context.Context, p Plan, o Options) (_ *Simulation, err error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if o.MaxParallelIssues == 0 {
		o.MaxParallelIssues = defaultLanes
	}
	if o.Barrier == "" {
		o.Barrier = "none"
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Simulation{plan: p, options: o}
	if s.graph, err = graph.New(p.graph()); err != nil {
		return nil, err
	}
	s.agents = newAgents(p, s.graph)
	if o.Dir == "" {
		o.Dir = scratch()
	}
	if s.dir, err = os.MkdirTemp(o.Dir, "slipway-simulate-"); err != nil {
		return nil, fmt.Errorf("set up the simulation: %w", err)
	}
	if err := s.setUp(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("set up the simulation: %w", err), s.Close())
	}
	return s, nil
}

// scratch is where a simulation works unless it is told otherwise. In memory it
// measures the engine and git; what a disk adds is another question.
func scratch() string {
	const memory, enough = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if err := syscall.Statfs(memory, &fs); err != nil || int64(fs.Bavail)*fs.Bsize < enough {
		return os.TempDir()
	}
	probe, err := os.MkdirTemp(memory, "slipway-")
	if err != nil {
		return os.TempDir()
	}
	if err := os.Remove(probe); err != nil {
		return os.TempDir()
	}
	return memory
}

// Close ends the simulation and removes its directory.
func (s *Simulation) Close() error {
	var err error
	if s.store != nil {
		err = s.store.Close()
	}
	if err = errors.Join(err, os.RemoveAll(s.dir)); err != nil {
		return fmt.Errorf("remove the simulation: %w", err)
	}
	return nil
}

func (s *Simulation) setUp(ctx context.Context) error {
	state := filepath.Join(s.dir, "state")
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.None, StateDir: filepath.Join(state, "sandbox")})
	if err != nil {
		return err
	}
	if s.store, err = queue.OpenSQLite(ctx, filepath.Join(state, "store")); err != nil {
		return err
	}
	s.engine = &pipeline.Engine{
		State: state, Box: box, Only: "simulated", Defaults: s.configuration(), Log: s.options.Log,
		// A lane has two calls at a time at most: lanes are the only limit.
		Slots:   agent.NewSlots(2 * s.options.MaxParallelIssues),
		Runtime: func(context.Context, string) (runtime.Runtime, error) { return s.agents, nil },
	}
	given := plan.Result{PRD: plan.PRD{Title: "Simulation", Size: plan.Trivial}, Issues: s.plan.graph()}
	s.request = pipeline.Request{
		Build: buildID, Repo: forge.Repo{Owner: "local", Name: "simulation"}, Goal: "Simulation of " + s.plan.Name, Given: &given, Unverified: true,
	}
	if s.forge.Mirror, err = s.engine.Mirror(ctx, s.request.Repo); err != nil {
		return err
	}
	s.forge.Dir = filepath.Join(s.dir, "repository.git")
	return s.begin(ctx)
}

// begin makes the repository that is built on: a branch main with one empty
// commit.
func (s *Simulation) begin(ctx context.Context) error {
	if _, err := repo.Open(ctx, s.forge.Dir); err != nil {
		return err
	}
	commit, err := s.forge.Mirror.CommitTree(ctx, emptyTree, nil, repo.Commit{Message: "Begin", Time: time.Unix(0, 0)})
	if err != nil {
		return err
	}
	return s.forge.Mirror.Push(ctx, repo.Remote{URL: s.forge.Dir}, commit, "main", "")
}

// configuration has every phase off that is not about the graph, and bounds
// that no plan meets.
func (s *Simulation) configuration() config.Repo {
	c := config.Defaults()
	c.Limits.MaxParallelIssues, c.Limits.MaxParallelAgents = s.options.MaxParallelIssues, 2*s.options.MaxParallelIssues
	c.Limits.BuildTimeout = 24 * time.Hour
	c.Limits.USDPerBuild = 0
	c.Pipeline.MaxCodingIterations = maxIterations
	c.Pipeline.MaxAgentsPerBuild = 1_000_000
	c.Pipeline.Barrier = s.options.Barrier
	c.Pipeline.EnableReview, c.Pipeline.CheckCI, c.Pipeline.EnableIntegrationTesting = false, false, false
	return c
}

// Run runs the build to its end. When ctx ends before, the error is its cause,
// and what is in the journal stays.
func (s *Simulation) Run(ctx context.Context) (Result, error) {
	payload, err := json.Marshal(s.request)
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	if _, _, err := s.store.Put(ctx, queue.Job{ID: buildID, Kind: pipeline.KindBuild, Payload: payload}); err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	own, git := cpu(syscall.RUSAGE_SELF), cpu(syscall.RUSAGE_CHILDREN)
	var final report.Build
	err = queue.RunOne(ctx, s.store, "simulation", pipeline.KindBuild, func(working context.Context, t *queue.Task) (err error) {
		final, err = s.engine.Run(working, pipeline.Job{
			Request: s.request, Forge: s.forge, Extend: t.Extend,
			Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
				return step.Open(ctx, s.store, t.Lease(), o)
			},
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return queue.Later(time.Now(), nil)
		}
		return queue.Never(err) // nothing here gets better by waiting
	})
	s.own += cpu(syscall.RUSAGE_SELF) - own
	s.git += cpu(syscall.RUSAGE_CHILDREN) - git
	switch {
	case ctx.Err() != nil:
		return Result{}, context.Cause(ctx)
	case err != nil:
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	entries, err := s.store.Entries(ctx, buildID, 0)
	if err != nil {
		return Result{}, fmt.Errorf("simulate: %w", err)
	}
	r, err := s.account(entries, final)
	if err != nil {
		return Result{}, fmt.Errorf("simulate: compute the bound: %w", err)
	}
	r.OwnCPUMS, r.GitCPUMS = s.own.Milliseconds(), s.git.Milliseconds()
	return r, nil
}

// cpu is the CPU time of this process or of the children that it waited for.
func cpu(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0 // the kernel knows both values of who
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
