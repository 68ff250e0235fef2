package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"mvdan.cc/sh/v3/shell"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// buildFlags are the flags of verbs that run agents.
type buildFlags struct {
	repo, goal, goalFile, base string
	maxParallel                int
	budget, approval           string
	planOnly, fast             bool
	issueFile                  string
	noVerify                   bool
	runtime                    string
	agentCommand               string
	recordings, record         string
}

func (f *buildFlags) agents(cmd *cobra.Command) {
	f.runtimes(cmd)
	cmd.Flags().StringVar(&f.record, "record", "", "directory to record every agent call in")
}

// runtimes are the flags that say how agents are run.
func (f *buildFlags) runtimes(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.runtime, "runtime", "", "how agents are run: claude_code, open_code, codex, native, command or replay (default from configuration)")
	flags.StringVar(&f.agentCommand, "agent-command", "", "the program of runtime command, with its arguments")
	flags.StringVar(&f.recordings, "recordings", "", "what runtime replay plays: a txtar file or a directory of JSON files")
}

func newBuild(o *options) *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "build --repo DIR (--goal TEXT | --goal-file FILE | --issue-file FILE)",
		Short: "Build a goal in a local repository, without GitHub",
		Long: `Build plans the goal, codes it in worktrees of its own, reviews, merges and
verifies it. The result is a branch slipway/<build>-<slug> in the repository and
report.md in the state directory. Your checkout, branch and git status stay as
they are.

With --approval plan nothing is coded before you approved the plan: this process
stays and shows what to type in another terminal. --issue-file skips planning and
builds the one issue that a JSON file describes: its name, title, description and
acceptance_criteria, each with a text; also the files and the guidance of a plan.

Ctrl-C once lets running agent calls finish and keeps the build for resume;
twice stops them. The exit code is 0 for a build that succeeded (with debt or
without), 1 failed, 3 needs a person, 4 cancelled, 6 timed out, 2 usage, 5 environment.`,
		Example: `  slipway build --repo . --goal "Add a --version flag"
  slipway build --repo . --goal-file ticket.md --runtime command --agent-command 'python3 agent.py' --json
  slipway build --repo . --goal-file ticket.md --approval plan --budget 12.50
  slipway build --repo . --issue-file issue.json --no-verify`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBuild(cmd.Context(), o, f) },
	}
	f.goals(cmd)
	f.agents(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.planOnly, "plan-only", false, "end when the plan is made")
	flags.BoolVar(&f.fast, "fast", false, "a plan of one level, coder and reviewer, one verification")
	flags.StringVar(&f.budget, "budget", "", "what the build may spend, in US dollars (default from configuration)")
	flags.StringVar(&f.approval, "approval", "", "plan: nothing is coded before the plan is approved; or never (default from configuration)")
	flags.StringVar(&f.issueFile, "issue-file", "", "JSON file of one issue, which is built as it stands")
	flags.BoolVar(&f.noVerify, "no-verify", false, "with --issue-file: no agent judges the criteria at the end")
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
	request, err := f.request()
	if err != nil {
		return l, err
	}
	if f.repo == "" {
		return l, errors.New("--repo is required: for example --repo . for the repository you are in")
	}
	dir, err := findRepo(f.repo)
	if err != nil {
		return l, err
	}
	if f.maxParallel < 0 {
		return l, errors.New("--max-parallel: give a number of at least 1")
	}
	l, err = f.agentsOf()
	if err != nil {
		return l, err
	}
	request.Repo = localRepo(dir)
	l.Dir, l.Request = dir, request
	return l, nil
}

// request is what the flags ask for, in no repository yet.
func (f *buildFlags) request() (pipeline.Request, error) {
	r := pipeline.Request{
		Build: newBuildID(), Base: f.base, MaxParallel: f.maxParallel,
		PlanOnly: f.planOnly, Fast: f.fast, Approval: f.approval, Unverified: f.noVerify,
	}
	if f.approval != "" && f.approval != "plan" && f.approval != "never" {
		return r, fmt.Errorf("--approval %s: give plan or never", f.approval)
	}
	if f.budget != "" {
		budget, err := config.ParseUSD(f.budget)
		if err != nil {
			return r, fmt.Errorf("--budget %s: %w", f.budget, err)
		}
		r.Budget = int64(budget)
	}
	var err error
	if f.issueFile == "" {
		if f.noVerify {
			return r, errors.New("--no-verify goes with --issue-file: what was planned is always verified")
		}
		r.Goal, err = f.readGoal()
		return r, err
	}
	switch {
	case f.goal != "" || f.goalFile != "":
		return r, errors.New("--issue-file says what is to be built: leave --goal and --goal-file out")
	case f.planOnly:
		return r, errors.New("--issue-file and --plan-only: an issue that is given is not planned")
	}
	text, err := os.ReadFile(f.issueFile)
	if err != nil {
		return r, fmt.Errorf("--issue-file: %w", err)
	}
	given, err := plan.Single(text)
	if err != nil {
		return r, fmt.Errorf("--issue-file %s: %w", f.issueFile, err)
	}
	r.Given, r.Goal = &given, given.PRD.Title+"\n\n"+given.PRD.ValidatedDescription
	return r, nil
}

// findRepo is the real path of a repository that somebody named.
func findRepo(named string) (string, error) {
	dir, err := filepath.Abs(named)
	if err != nil {
		return "", err
	}
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		return "", fmt.Errorf("--repo: %w", err)
	}
	return dir, checkRepo(dir)
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
