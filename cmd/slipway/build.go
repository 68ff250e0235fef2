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
	"strings"
	"time"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/queue"
)

// buildFlags are the flags of verbs that run agents.
type buildFlags struct {
	repo, goal, goalFile, base string
	maxParallel                int
	runtime                    string
	agentCommand               string
	recordings, record         string
}

func (f *buildFlags) agents(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.runtime, "runtime", "", "how agents are run: claude_code, command or replay (default from configuration)")
	flags.StringVar(&f.agentCommand, "agent-command", "", "the program of runtime command, with its arguments")
	flags.StringVar(&f.recordings, "recordings", "", "what runtime replay plays: a txtar file or a directory of JSON files")
	flags.StringVar(&f.record, "record", "", "directory to record every agent call in")
}

func newBuild(o *options) *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build --repo DIR (--goal TEXT | --goal-file FILE)",
		Short: "Build a goal in a local repository, without GitHub",
		Long: `Build plans the goal, codes it in worktrees of its own, reviews, merges and
verifies it. The result is a branch slipway/<build>-<slug> in the repository and
report.md in the state directory. Your checkout, branch and git status stay as
they are.

Ctrl-C once lets running agent calls finish and keeps the build for resume;
twice stops them. The exit code is 0 for a build that succeeded (with debt or
without), 1 failed, 3 needs a person, 4 cancelled, 6 timed out, 2 usage, 5 environment.`,
		Example: `  slipway build --repo . --goal "Add a --version flag"
  slipway build --repo . --goal-file ticket.md --runtime command --agent-command 'python3 agent.py' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBuild(cmd.Context(), o, f) },
	}
	f.goals(cmd)
	f.agents(cmd)
	return cmd
}

func (f *buildFlags) goals(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "the repository (required)")
	flags.StringVar(&f.goal, "goal", "", "what is to be built")
	flags.StringVar(&f.goalFile, "goal-file", "", "file that says what is to be built; its first line is the title")
	flags.StringVar(&f.base, "base", "", "branch to build on (default: the repository's current one)")
	flags.IntVar(&f.maxParallel, "max-parallel", 0, "issues at a time (default from configuration)")
}

func runBuild(ctx context.Context, o *options, f *buildFlags) error {
	local, err := f.local()
	if err != nil {
		return err
	}
	return o.runLocal(ctx, local)
}

// local checks the flags and makes the build that they describe.
func (f *buildFlags) local() (localBuild, error) {
	var l localBuild
	goal, err := f.readGoal()
	if err != nil {
		return l, err
	}
	if f.repo == "" {
		return l, errors.New("--repo is required: for example --repo . for the repository you are in")
	}
	dir, err := filepath.Abs(f.repo)
	if err != nil {
		return l, err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return l, fmt.Errorf("--repo: %w", err)
	}
	if err := checkRepo(dir); err != nil {
		return l, err
	}
	if f.maxParallel < 0 {
		return l, errors.New("--max-parallel: give a number of at least 1")
	}
	l, err = f.agentsOf()
	if err != nil {
		return l, err
	}
	l.Dir, l.Request = dir, pipeline.Request{Build: newBuildID(), Goal: goal, Base: f.base, MaxParallel: f.maxParallel, Repo: localRepo(dir)}
	return l, nil
}

// checkRepo wants the top of a git repository, or a bare one. Any other
// directory is a slip of the person who typed it.
func checkRepo(dir string) error {
	for _, mark := range []string{".git", "HEAD"} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			return nil
		}
	}
	for up := filepath.Dir(dir); up != filepath.Dir(up); up = filepath.Dir(up) {
		if _, err := os.Stat(filepath.Join(up, ".git")); err == nil {
			return fmt.Errorf("--repo: %s is inside a git repository; name its top: --repo %s", dir, up)
		}
	}
	return fmt.Errorf("--repo: %s is not a git repository; make it one with git init and a first commit, or name another", dir)
}

// agentsOf is what the flags say of agents. Files that the agent's command line
// names are taken from here, and their directories made readable to it: the
// program runs elsewhere, in a sandbox.
func (f *buildFlags) agentsOf() (localBuild, error) {
	l := localBuild{Runtime: f.runtime, Recordings: f.recordings, Record: f.record}
	switch {
	case f.runtime == "command" && f.agentCommand == "":
		return l, errors.New("--agent-command is required with --runtime command: name the program, for example --agent-command 'node agent.mjs'")
	case f.runtime == "replay" && f.recordings == "":
		return l, errors.New("--recordings is required with --runtime replay: name a txtar file or a directory of JSON files")
	}
	words, err := shell.Fields(f.agentCommand, nil)
	if err != nil {
		return l, fmt.Errorf("--agent-command: %w", err)
	}
	for i, word := range words {
		if _, err := os.Stat(word); err != nil || (i == 0 && !strings.Contains(word, "/")) {
			continue
		}
		if words[i], err = filepath.Abs(word); err != nil {
			return l, fmt.Errorf("--agent-command: %w", err)
		}
		l.Readable = append(l.Readable, filepath.Dir(words[i]))
	}
	if len(words) > 0 {
		if _, err := sandbox.LookPath(words[0], os.Environ()); err != nil {
			return l, fmt.Errorf("--agent-command: the program is not there: %w", err)
		}
	}
	l.Command = words
	return l, nil
}

// localBuild is the payload of a terminal's job: enough to resume it.
type localBuild struct {
	Dir        string           `json:"dir"`
	Runtime    string           `json:"runtime,omitempty"`
	Command    []string         `json:"agent_command,omitempty"`
	Readable   []string         `json:"readable,omitempty"` // what the agent's program may read
	Recordings string           `json:"recordings,omitempty"`
	Record     string           `json:"record,omitempty"`
	Request    pipeline.Request `json:"request"`
}

func (f *buildFlags) readGoal() (string, error) {
	switch {
	case f.goal != "" && f.goalFile != "":
		return "", errors.New("--goal and --goal-file: give one of them")
	case f.goalFile != "":
		text, err := os.ReadFile(f.goalFile)
		if err != nil {
			return "", fmt.Errorf("--goal-file: %w", err)
		}
		f.goal = string(text)
	}
	if strings.TrimSpace(f.goal) == "" {
		return "", errors.New("--goal is required: say what is to be built")
	}
	return f.goal, nil
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
	if l.Runtime != "" {
		if err := config.CheckRuntime(l.Runtime); err != nil {
			return nil, fmt.Errorf("--runtime: %w", err)
		}
	}
	agents := app.Agents{Runtime: l.Runtime, Command: l.Command, Readable: l.Readable, Record: l.Record, Environ: os.Environ()}
	if l.Recordings != "" {
		var err error
		if agents.Recordings, err = readRecordings(l.Recordings); err != nil {
			return nil, fmt.Errorf("--recordings: %w", err)
		}
	}
	engine, err := app.NewEngine(conf, agents, o.logger())
	return engine, environment(err)
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
	return o.withStore(ctx, func(store *queue.SQLite, conf config.Server) error {
		view := newView(o, l.Request.Build)
		var final report.Build
		err := o.claimLocal(ctx, conf, store, l, view, func(ctx context.Context, c app.Claim) (err error) {
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
// which no server does, and has do work on it while the view shows its journal.
func (o *options) claimLocal(ctx context.Context, conf config.Server, store queue.Store, l localBuild, view *view, do func(context.Context, app.Claim) error) error {
	engine, err := o.engineFor(conf, l)
	if err != nil {
		return err
	}
	payload, err := json.Marshal(l)
	if err != nil {
		return err
	}
	build := l.Request.Build
	if _, _, err := store.Put(ctx, queue.Job{ID: build, Kind: "local/" + build, Payload: payload}); err != nil {
		return environment(err)
	}
	mirror, err := engine.Mirror(ctx, l.Request.Repo)
	if err != nil {
		return environment(err)
	}
	stopped, draining, done := interrupts(ctx)
	defer done()
	running, stop := context.WithCancel(stopped)
	defer stop()
	shown := make(chan struct{})
	go func() {
		defer close(shown)
		view.follow(running, store)
	}()
	err = queue.RunOne(running, store, workerName(), "local/"+build, func(ctx context.Context, t *queue.Task) error {
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
	switch {
	case err == nil:
		return nil
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
