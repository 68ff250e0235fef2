package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/pipeline/simulate"
)

// simulateFlags are the flags of simulate.
type simulateFlags struct {
	random  int
	seed    uint64
	save    string
	gantt   string
	options simulate.Options
}

func newSimulate(o *options) *cobra.Command {
	f := &simulateFlags{}
	cmd := &cobra.Command{
		Use:   "simulate (PLAN.json | --random N)",
		Short: "Run a plan with agents that only take their time, and measure the engine",
		Long: `Simulate takes a plan through the real conductor, graph, journal and git. Its
agents are synthetic: each takes the time that the plan says, writes a small file
and answers. It prints how long that took beside how long the same calls take in
the same number of lanes when everything else costs nothing.

A plan is {"name": …, "issues": [{"name": …, "depends_on": [ … ], "coder_ms": 400,
"reviewer_ms": 140}, …]}. An issue may also have iterations, fail_probability
(with the plan's seed), advisor (what the Issue Advisor decides, in order), files
(shared ones meet in the Merger), qa_ms, synthesizer_ms, merger_ms and advisor_ms.

Everything happens in a temporary directory, which is removed at the end and
after Ctrl-C. Nothing is asked of a model, and nothing leaves this machine.`,
		Example: `  slipway simulate plan.json
  slipway simulate --random 48 --seed 7 --json --gantt out.svg
  slipway simulate --random 48 --seed 7 --barrier level
  slipway simulate --random 12 --save plan.json`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return runSimulate(cmd.Context(), o, f, args) },
	}
	flags := cmd.Flags()
	flags.IntVar(&f.random, "random", 0, "make a random plan of so many issues")
	flags.Uint64Var(&f.seed, "seed", 1, "of the random plan; the same seed gives the same plan")
	flags.StringVar(&f.save, "save", "", "write the plan to this file")
	flags.IntVar(&f.options.MaxParallelIssues, "max-parallel-issues", 8, "issues at a time")
	flags.StringVar(&f.options.Barrier, "barrier", "none", "none, or level: nothing starts before its whole level before it has landed")
	flags.StringVar(&f.options.Dir, "dir", "", "where to make the temporary directory (default: in memory where there are 2 GB, else the system's)")
	flags.StringVar(&f.gantt, "gantt", "", "draw what happened into this SVG file")
	return cmd
}

func (f *simulateFlags) check(args []string) error {
	switch {
	case f.random == 0 && len(args) != 1:
		return fmt.Errorf("simulate wants one plan file, or --random N, and got %d arguments", len(args))
	case f.random != 0 && len(args) > 0:
		return errors.New("--random: give it or a plan file, not both")
	case f.random < 0 || f.random > simulate.MaxIssues:
		return fmt.Errorf("--random: want 1 to %d, got %d", simulate.MaxIssues, f.random)
	case f.options.MaxParallelIssues < 1 || f.options.MaxParallelIssues > 64:
		return fmt.Errorf("--max-parallel-issues: want 1 to 64, got %d", f.options.MaxParallelIssues)
	case f.options.Barrier != "none" && f.options.Barrier != "level":
		return fmt.Errorf("--barrier: want none or level, got %q", f.options.Barrier)
	}
	return nil
}

// plan reads or makes the plan, and writes it where it is wanted.
func (f *simulateFlags) plan(args []string) (p simulate.Plan, err error) {
	if f.random > 0 {
		p = simulate.Random(f.random, f.seed)
	} else {
		text, err := os.ReadFile(args[0])
		if err != nil {
			return p, err
		}
		if p, err = simulate.Read(bytes.NewReader(text)); err != nil {
			return p, fmt.Errorf("%s: %w", args[0], err)
		}
	}
	if f.save == "" {
		return p, nil
	}
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return p, err
	}
	if err := os.WriteFile(f.save, append(text, '\n'), 0o644); err != nil {
		return p, environment(fmt.Errorf("--save: %w", err))
	}
	return p, nil
}

func runSimulate(ctx context.Context, o *options, f *simulateFlags, args []string) error {
	plan, err := f.plan(args)
	if err != nil {
		return err
	}
	ctx, done := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGHUP)
	defer done()
	f.options.Log = o.logger()
	result, err := simulate.Run(ctx, plan, f.options)
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted, err: errors.New("the simulation was stopped; nothing of it is kept")}
	}
	if err != nil {
		return environment(err)
	}
	if f.gantt != "" {
		if err := draw(f.gantt, result); err != nil {
			return environment(fmt.Errorf("--gantt: %w", err))
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(result)
	}
	fmt.Printf(`%s  %s

makespan      %8d ms
bound         %8d ms   ratio %.3f
lower bound   %8d ms
agent calls   %8d      at a time at most %d
merges        %8d
own CPU       %8d ms
git's CPU     %8d ms
`, result.Name, result.State, result.MakespanMS, result.BoundMS, result.Ratio, result.LowerBoundMS,
		result.AgentCalls, result.MaxParallel, result.Merges, result.OwnCPUMS, result.GitCPUMS)
	return nil
}

func draw(file string, r simulate.Result) error {
	var picture bytes.Buffer
	if err := simulate.Gantt(&picture, r); err != nil {
		return err
	}
	return os.WriteFile(file, picture.Bytes(), 0o644)
}
