package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// Agents say how this process runs agents, beside what configuration says.
type Agents struct {
	Runtime    string              // runs every role, whatever is configured; empty: as configured
	Command    []string            // the program of runtime "command", with its arguments
	Readable   []string            // what that program may read, beside the worktree
	Recordings []runtime.Recording // what runtime "replay" plays
	Strict     bool                // it plays a recording only to the input that was recorded
	Record     string              // directory to record every call in; empty: per build, where the configuration says so
	Environ    []string            // where keys of model providers are looked for, as os.Environ
	Bridge     []string            // the program, with arguments, that CLIs start to reach the agent tool: slipway mcp --socket
}

// NewEngine makes the engine that this process runs its builds on.
func NewEngine(conf config.Server, agents Agents, log *slog.Logger) (*pipeline.Engine, error) {
	if err := os.MkdirAll(conf.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Mode(conf.Sandbox), StateDir: filepath.Join(conf.StateDir, "sandbox")})
	if err != nil {
		return nil, fmt.Errorf("set up the sandbox: %w", err)
	}
	prices, err := pricesOf(conf)
	if err != nil {
		return nil, err
	}
	defaults := conf.Repo.Over(config.Defaults())
	runtimes := &runtimes{agents: agents, box: box, prices: prices, cache: map[string]runtime.Runtime{}}
	engine := &pipeline.Engine{
		State: conf.StateDir, Box: box, Slots: agent.NewSlots(defaults.Limits.MaxParallelAgents),
		Runtime: runtimes.get, Only: agents.Runtime, Defaults: defaults, Log: log,
		Shared: conf.RedisURL != "",
	}
	if conf.Record {
		engine.Record = func(build string, rt runtime.Runtime) runtime.Runtime {
			return runtime.Record(rt, recordingsOf(conf.StateDir, build), secretsOf(agents.Environ)...)
		}
	}
	return engine, nil
}

// A Claim is a build in this process's hands: the task that the queue gave it,
// what was asked, and where the result goes.
type Claim struct {
	Engine   *pipeline.Engine
	Store    queue.Store
	Task     *queue.Task
	Request  pipeline.Request
	Forge    pipeline.Forge
	Draining <-chan struct{} // closed: running agent calls finish, none starts; may be nil

	Subagents func(pipeline.SlotEvent) // hears how subagents stand; may be nil
}

// Build runs the build until it has ended or cannot go on now.
func (c Claim) Build(ctx context.Context) (report.Build, error) {
	ear := listen(c.Task)
	job, err := c.job(ctx, ear)
	if err != nil {
		return report.Build{}, ear.handBack(err)
	}
	final, err := c.Engine.Run(ctx, job)
	return final, ear.handBack(err)
}

// Plan is Build, no further than the plan. The account is final only where no
// plan could be made.
func (c Claim) Plan(ctx context.Context) (plan.Result, report.Build, error) {
	ear := listen(c.Task)
	job, err := c.job(ctx, ear)
	if err != nil {
		return plan.Result{}, report.Build{}, ear.handBack(err)
	}
	made, account, err := c.Engine.Plan(ctx, job)
	return made, account, ear.handBack(err)
}

// job makes the task of the queue a job of the pipeline.
func (c Claim) job(ctx context.Context, ear *ear) (pipeline.Job, error) {
	if err := c.Engine.Box.Reap(ctx); err != nil {
		return pipeline.Job{}, fmt.Errorf("end what a dead worker left running: %w", err)
	}
	return pipeline.Job{
		Request: c.Request, Forge: c.Forge, Subagents: c.Subagents, Before: ear.before, Signals: ear.coming, Extend: c.Task.Extend, Draining: c.Draining,
		Day:    daily{store: c.Store, tenant: c.Task.Job.Tenant, limits: c.Engine.Defaults.Limits},
		Builds: builds{Store: c.Store, tenant: c.Task.Job.Tenant},
		Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
			return step.Open(ctx, c.Store, c.Task.Lease(), o)
		},
	}, nil
}

// handBack turns what is no failed try into a wait without a worker: for a
// person or for CI as long as that takes, and where the process drains until
// whoever comes next.
func handBack(err error) error {
	if w, ok := errors.AsType[*pipeline.Waiting](err); ok {
		return queue.Later(w.Until, nil)
	}
	if errors.Is(err, agent.ErrDraining) {
		return queue.Later(time.Now(), nil)
	}
	return err
}
