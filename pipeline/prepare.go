package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// ConfigFile is where a repository configures Slipway. It is read from the
// default branch alone.
const ConfigFile = ".github/slipway.yml"

// OwnersRepo is the repository in which an owner configures all the others: by
// OwnersFile on its default branch, which lies below their own files.
const (
	OwnersRepo = ".github"
	OwnersFile = "slipway.yml"
)

// OwnersOrigin names the file of an owner where a value is from it.
func OwnersOrigin(owner string) string {
	return OwnersFile + " of " + owner + "/" + OwnersRepo
}

// prepare pins the base, reads the configuration and sets up this claim's
// clone and crew. What an earlier claim of the build left is removed: it is not
// trusted and nobody uses it.
func (b *build) prepare(ctx context.Context) error {
	if err := repo.RemoveAll(ctx, b.workDir()); err != nil {
		return fmt.Errorf("remove what an earlier claim left: %w", err)
	}
	if err := os.MkdirAll(b.workDir(), 0o700); err != nil {
		return fmt.Errorf("make the build's directory: %w", err)
	}
	if !b.fold.isPinned() {
		_, err := step.Effect(ctx, b.journal, b.fold.key(keyPin), func(ctx context.Context) (pinned, error) {
			return thrice(ctx, b.log, b.pin)
		})
		if err != nil {
			return err
		}
	}
	var err error
	if err = b.configure(ctx); err != nil {
		return err
	}
	if f := b.Request.Follow; f != nil && f.Work == FixCI {
		b.conf.Pipeline.CheckCI = true // it was asked for
	}
	if b.Request.MaxParallel > 0 {
		b.conf.Limits.MaxParallelIssues = min(b.Request.MaxParallel, b.conf.Limits.MaxParallelIssues)
	}
	if err := b.settleIn(ctx); err != nil {
		return err
	}
	targets, err := b.targets(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx) // a check that was cut short says nothing of the agents
	}
	if err != nil {
		return &initError{what: "the agents cannot be run", err: err}
	}
	b.crew = b.hire(targets)
	return nil
}

// targets resolves every role before the first one is asked: a missing CLI or
// log-in is told at once, not when the first reviewer is due. That of a fallback
// too, which is no fallback without.
func (b *build) targets(ctx context.Context) (map[string]agent.Target, error) {
	targets := map[string]agent.Target{}
	for _, role := range roles {
		var err error
		if targets[role], err = b.target(ctx, b.conf, b.Request.Build, role); err != nil {
			return nil, err
		}
	}
	return targets, nil
}

// target resolves one role of a run.
func (e *Engine) target(ctx context.Context, conf config.Repo, run, role string) (agent.Target, error) {
	chain, err := conf.Resolve(e.Only, role)
	if err != nil {
		return agent.Target{}, err
	}
	var made []agent.Target
	for _, t := range chain {
		rt, err := e.Runtime(ctx, t.Runtime)
		if err != nil {
			return agent.Target{}, err
		}
		if e.Record != nil {
			rt = e.Record(run, rt)
		}
		made = append(made, agent.Target{Runtime: rt, Name: t.Runtime, Model: t.Model, Effort: t.Effort})
	}
	first := made[0]
	first.Fallbacks = made[1:]
	return first, nil
}

// Configuration is what a build of the repository would go by now: its file on
// the default branch over its owner's over the layers below. A bad one is a
// *config.Error.
func (e *Engine) Configuration(ctx context.Context, f Forge, r forge.Repo) (config.Repo, error) {
	mirror, err := e.Mirror(ctx, r)
	if err != nil {
		return config.Repo{}, err
	}
	cred, err := f.Credential(ctx)
	if err != nil {
		return config.Repo{}, fmt.Errorf("get a credential for git: %w", err)
	}
	remote := remoteOf(cred)
	standard, err := mirror.DefaultBranch(ctx, remote)
	if err != nil {
		return config.Repo{}, err
	}
	trunk, err := mirror.Fetch(ctx, remote, standard)
	if err != nil {
		return config.Repo{}, err
	}
	owners, err := f.OwnersFile(ctx)
	if err != nil {
		return config.Repo{}, err
	}
	return e.configured(ctx, mirror, r, pinned{ConfigSHA: trunk, Owners: string(owners)})
}

// configure reads the configuration that the build has pinned.
func (b *build) configure(ctx context.Context) (err error) {
	b.conf, err = b.configured(ctx, b.mirror, b.Request.Repo, b.fold.pinned())
	if c := b.Request.Contender; c != nil {
		b.conf = b.conf.On(c.Target)
	}
	return err
}

// configured is the repository's file at the pinned commit over the layers below
// it.
func (e *Engine) configured(ctx context.Context, mirror *repo.Mirror, r forge.Repo, at pinned) (config.Repo, error) {
	text, err := mirror.File(ctx, at.ConfigSHA, ConfigFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return config.Repo{}, err
	}
	return e.Layered(Files{Own: text, Owners: []byte(at.Owners), Owner: r.Owner})
}

// Files configure a repository. The text is empty where there is no such file.
type Files struct {
	Own    []byte // ConfigFile of the repository
	Owners []byte // OwnersFile of its owner
	Owner  string // whose that is
}

// Layered is a repository's own file over its owner's over the layers below.
// The error of a bad one is a *config.Error, which names the file.
func (e *Engine) Layered(files Files) (config.Repo, error) {
	owners, err := config.Parse(files.Owners, OwnersOrigin(files.Owner))
	if err != nil {
		return config.Repo{}, err
	}
	own, err := config.Parse(files.Own, ConfigFile)
	if err != nil {
		return config.Repo{}, err
	}
	conf := own.Over(owners.Over(e.Defaults))
	if e.Only != "" {
		return conf, nil // resolved otherwise, and checked there
	}
	return conf, conf.Check()
}

// settleIn makes this claim's directory and clone.
func (b *build) settleIn(ctx context.Context) error {
	var err error
	b.site, err = b.newSite(ctx, b.mirror, b.Request.Repo, b.Request.Build, b.log)
	if err == nil {
		b.site.by = b.Request.By
	}
	return err
}

// newSite makes the directory and the clone of one claim of a run.
func (e *Engine) newSite(ctx context.Context, mirror *repo.Mirror, r forge.Repo, run string, log *slog.Logger) (*site, error) {
	dir, err := os.MkdirTemp(filepath.Join(e.State, "work", run), "claim-")
	if err != nil {
		return nil, fmt.Errorf("make the run's directory: %w", err)
	}
	clone, err := mirror.Clone(ctx, filepath.Join(dir, "clone"))
	if err != nil {
		return nil, err
	}
	return &site{
		mirror: mirror, clone: clone,
		runner: &evidence.Runner{Box: e.Box, Cache: filepath.Join(e.State, "caches", r.Owner, r.Name)},
		dir:    dir, homes: filepath.Join(e.State, "homes", run),
		build: run, log: log, testing: e.testing(),
	}, nil
}

// workDir is where the claims of this build have their directories.
func (b *build) workDir() string { return filepath.Join(b.State, "work", b.Request.Build) }

// hire makes the crew that the build's agents belong to. One call may not use
// more than the build or the day has.
func (b *build) hire(targets map[string]agent.Target) *agent.Crew {
	limits, day := b.conf.Limits, b.Defaults.Limits // the day's bounds are the server's
	budget := &agent.Budget{
		Micros: int64(limits.USDPerBuild), Closers: []string{Verifier.Name, Git.Name},
		MaxCalls: b.conf.Pipeline.MaxAgentsPerBuild, Day: b.Day,
	}
	if asked := b.Request.Budget; asked > 0 && asked < budget.Micros {
		budget.Micros, budget.Bound = asked, "the budget asked for"
		if b.Request.Contender != nil {
			budget.Bound = "the target's share of the budget"
		}
	}
	budget.Closing = min(2*int64(limits.USDPerCall), budget.Micros/4)
	budget.PerCall = min(int64(limits.USDPerCall), budget.Micros-budget.Closing)
	if day.USDPerDay > 0 {
		budget.PerCall = min(budget.PerCall, int64(day.USDPerDay))
	}
	return &agent.Crew{
		Journal: b.journal, Slots: b.Slots, Budget: budget, Limits: callLimits(b.conf, day), Draining: b.Draining, Log: b.log,
		Delegation:  b.delegation(),
		Readable:    []string{b.site.clone.GitDir()},
		Transcripts: filepath.Join(b.State, "transcripts", b.Request.Build),
		Target: func(model string) (agent.Target, error) {
			t, ok := targets[model]
			if !ok {
				return t, fmt.Errorf("model key %s has no runtime", model)
			}
			return t, nil
		},
		// Each role of an issue has its own: what a coder leaves in its home, a
		// hook of its CLI for one, must not be there when its reviewer starts.
		Home: func(key string) (string, error) {
			home := filepath.Join(b.site.homes, homeOf(key))
			return home, os.MkdirAll(home, 0o700)
		},
	}
}

// callLimits bound each call of a run. One may not take longer than the day has.
func callLimits(conf config.Repo, day config.Limits) agent.Limits {
	bounds := agent.DefaultLimits()
	bounds.Timeout, bounds.MaxTurns = conf.Pipeline.AgentTimeout, conf.Pipeline.AgentMaxTurns
	if day.MinutesPerDay > 0 {
		bounds.Timeout = min(bounds.Timeout, time.Duration(day.MinutesPerDay)*time.Minute)
	}
	return bounds
}

// homeOf names the HOME of a call: one for each role of an issue, and one for
// each slot of a batch, whose calls run at the same time.
func homeOf(key string) string {
	key, _ = cutSegment(key)
	if role := roleOf(key); role != review.LensRole && role != review.Verifier.Name && !isSubagent(key) {
		return filepath.Join(first(key), role)
	}
	key, _, _ = strings.Cut(key, "/repair-")
	return filepath.FromSlash(key)
}

// remote is the repository as git reaches it now.
func (b *build) remote(ctx context.Context) (repo.Remote, error) {
	c, err := b.Forge.Credential(ctx)
	if err != nil {
		return repo.Remote{}, fmt.Errorf("get a credential for git: %w", err)
	}
	return remoteOf(c), nil
}

func remoteOf(c forge.Credential) repo.Remote {
	return repo.Remote{URL: c.URL, User: c.User, Token: c.Token, CAFile: c.CAFile}
}

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
