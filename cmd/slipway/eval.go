package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/eval"
	"github.com/slipway-dev/slipway/pipeline/results"
)

// evalFlags are the flags of slipway eval.
type evalFlags struct {
	buildFlags
	model, results, run string
	cases, targets      []string
	repeat, concurrency int

	resume, failed, errors bool
}

func newEval(o *options) *cobra.Command {
	f := &evalFlags{}
	cmd := &cobra.Command{
		Use:   "eval SUITE.yaml",
		Short: "Measure reviews on changes whose faults are known",
		Long: `Eval reviews each case of a suite as slipway review would, in a temporary
repository, and compares what was found with what is there: precision, recall and
F1 with their intervals, by language, by lens and by kind of fault. Nothing of a
case is executed.

A suite names targets (a runtime and models), variants (configurations) and cases.
This version reviews: cases of kind review, with the grader finding_match. Anything
else in a suite is refused. With --runtime one target takes the place of the
suite's: what it says of recordings does not count then.

What came out is a bundle for each target and variant, below .slipway/results of
the repository that you are in, else below the state directory. Progress is on
standard error. Ctrl-C stops the reviews that run and keeps those that ended.

The exit code is 0, or 1 below the threshold, 6 when runs are missing (the budget
is spent, or what surrounds a review failed), 130 after Ctrl-C, 2 usage, 5
environment.`,
		Example: `  slipway eval testdata/review/suite.yaml
  slipway eval suite.yaml --runtime claude_code --model sonnet --budget 20
  slipway eval suite.yaml --case go-mailer-attempts --record recordings
  slipway eval suite.yaml --resume
  slipway eval suite.yaml --retry-errors --run 2026-03-01T12-00-00.007Z --json`,
		Args: func(_ *cobra.Command, args []string) error { return f.check(args) },
		RunE: func(cmd *cobra.Command, args []string) error { return o.runEval(cmd.Context(), f, args[0]) },
	}
	f.agents(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.model, "model", "", "the model of every role, with --runtime (default from configuration)")
	flags.StringSliceVar(&f.cases, "case", nil, "only these cases, by id")
	flags.StringSliceVar(&f.targets, "target", nil, "only these targets of the suite, by name")
	flags.IntVar(&f.repeat, "repeat", 0, "runs of each case (default from the suite)")
	flags.IntVar(&f.concurrency, "max-concurrency", 0, "cases at a time (default from the suite)")
	flags.StringVar(&f.budget, "budget", "", "what all of it may cost, in US dollars (default from the suite)")
	flags.StringVar(&f.results, "results", "", "directory that bundles are kept in")
	flags.BoolVar(&f.resume, "resume", false, "go on with an evaluation that was stopped")
	flags.BoolVar(&f.failed, "rerun-failed", false, "go on, and run again what did not pass")
	flags.BoolVar(&f.errors, "retry-errors", false, "go on, and run again what ended as infra_error")
	flags.StringVar(&f.run, "run", "", "the timestamp of the evaluation to go on with (default: the newest of the suite)")
	return cmd
}

func (f *evalFlags) check(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("eval wants one suite file, and got %d arguments", len(args))
	}
	modes := 0
	for _, on := range []bool{f.resume, f.failed, f.errors} {
		if on {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("--resume, --rerun-failed and --retry-errors: give one of them")
	case f.run != "" && modes == 0:
		return errors.New("--run names an evaluation to go on with: give --resume, --rerun-failed or --retry-errors, too")
	case modes > 0 && (len(f.cases) > 0 || f.repeat > 0):
		return errors.New("--case and --repeat are for a new evaluation: one that is taken up keeps its own")
	case f.model != "" && f.runtime == "":
		return errors.New("--model wants --runtime: whose model it is")
	case f.runtime != "" && len(f.targets) > 0:
		return errors.New("--target and --runtime: give one of them; the latter is a target of its own")
	case f.repeat < 0 || f.repeat > 100:
		return fmt.Errorf("--repeat: want 1 to 100, got %d", f.repeat)
	case f.concurrency < 0 || f.concurrency > 64:
		return fmt.Errorf("--max-concurrency: want 1 to 64, got %d", f.concurrency)
	}
	return nil
}

// again is what of an earlier evaluation is taken up.
func (f *evalFlags) again() eval.Again {
	switch {
	case f.resume:
		return eval.Resume
	case f.failed:
		return eval.Failed
	case f.errors:
		return eval.Errors
	}
	return eval.Fresh
}

// evaluation is the suite as the flags want it run.
func (f *evalFlags) evaluation(file string, conf config.Server) (app.Evaluation, error) {
	suite, err := eval.Read(file)
	if err != nil {
		return app.Evaluation{}, err
	}
	l, err := f.agentsOf()
	if err != nil {
		return app.Evaluation{}, err
	}
	if err := f.narrow(&suite); err != nil {
		return app.Evaluation{}, err
	}
	suite.Repeat = cmp.Or(f.repeat, suite.Repeat)
	suite.MaxConcurrency = cmp.Or(f.concurrency, suite.MaxConcurrency)
	if f.budget != "" {
		budget, err := config.ParseUSD(f.budget)
		if err != nil {
			return app.Evaluation{}, fmt.Errorf("--budget %s: %w", f.budget, err)
		}
		suite.Budget = eval.Money(budget)
	}
	record := l.Record
	if record != "" && (len(suite.Targets) > 1 || len(suite.Variants) > 1 || suite.Repeat > 1) {
		return app.Evaluation{}, errors.New("--record: a case is recorded once: name one --target, and leave out repeats and further variants")
	}
	if record != "" {
		if record, err = filepath.Abs(record); err != nil {
			return app.Evaluation{}, fmt.Errorf("--record: %w", err)
		}
	}
	root, err := f.root(conf)
	return app.Evaluation{
		Suite: suite, Record: record,
		Agents:  app.Agents{Command: l.Command, Readable: l.Readable, Environ: os.Environ(), Bridge: bridge()},
		Options: eval.Options{Root: root, EvalPath: evalPath(file), Again: f.again(), Timestamp: f.run},
	}, err
}

// narrow leaves the targets and cases that the flags name.
func (f *evalFlags) narrow(s *eval.Suite) error {
	if f.runtime != "" {
		if err := config.CheckRuntime(f.runtime); err != nil {
			return fmt.Errorf("--runtime: %w", err)
		}
		t := eval.Target{Name: f.runtime, Runtime: f.runtime}
		if f.model != "" {
			t.Name, t.Models = f.runtime+":"+f.model, map[string]string{"default": f.model}
		}
		if f.recordings != "" {
			var err error
			if t.Recordings, err = filepath.Abs(f.recordings); err != nil {
				return fmt.Errorf("--recordings: %w", err)
			}
		}
		s.Targets = []eval.Target{t}
	}
	if len(f.targets) > 0 {
		var kept []eval.Target
		for _, name := range f.targets {
			t, err := s.Target(name)
			if err != nil {
				return fmt.Errorf("--target: %w", err)
			}
			kept = append(kept, t)
		}
		s.Targets = kept
	}
	if len(s.Targets) == 0 {
		return fmt.Errorf("%s names no target: give --runtime", s.File)
	}
	if err := s.Keep(f.cases); err != nil {
		return fmt.Errorf("--case: %w", err)
	}
	return nil
}

// root is where bundles are kept: in the repository that one is in, else in the
// state directory.
func (f *evalFlags) root(conf config.Server) (string, error) {
	if f.results != "" {
		return filepath.Abs(f.results)
	}
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	top := topOf(here)
	if top == "" {
		return filepath.Join(conf.StateDir, "results"), nil
	}
	own := filepath.Join(top, ".slipway", "results")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return "", environment(err)
	}
	ignore := filepath.Join(own, ".gitignore")
	if _, err := os.Stat(ignore); errors.Is(err, os.ErrNotExist) {
		if err := os.WriteFile(ignore, []byte("*\n"), 0o644); err != nil {
			return "", environment(err)
		}
	}
	return own, nil
}

// topOf is the top of the git repository that a directory is in; empty where it is
// in none.
func topOf(dir string) string {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// evalPath names a suite wherever its repository is checked out.
func evalPath(file string) string {
	whole, err := filepath.Abs(file)
	if err != nil {
		return filepath.ToSlash(file)
	}
	if top := topOf(filepath.Dir(whole)); top != "" {
		if rel, err := filepath.Rel(top, whole); err == nil {
			return filepath.ToSlash(rel)
		}
	}
	return filepath.Base(whole)
}

// runEval runs a suite and prints what came out.
func (o *options) runEval(ctx context.Context, f *evalFlags, file string) error {
	conf, err := o.load()
	if err != nil {
		return err
	}
	e, err := f.evaluation(file, conf)
	if err != nil {
		return err
	}
	e.Options.Heard = o.heardOf
	running, done := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGHUP)
	defer done()
	all, err := e.Run(running, conf, o.logger())
	if _, mistaken := errors.AsType[*config.Error](err); mistaken {
		return err
	}
	if len(all) == 0 && err != nil {
		return environment(err)
	}
	if perr := o.printEval(all); perr != nil {
		return perr
	}
	return endOf(running, all, err)
}

// evalRow is one line of eval --json: a run that ended.
type evalRow struct {
	Event   string        `json:"event"` // row
	Took    int64         `json:"took_ms"`
	Bundle  string        `json:"bundle"`
	Row     results.Row   `json:"row"`
	Grading *eval.Grading `json:"grading,omitempty"`
}

// evalDone is its last line for a bundle.
type evalDone struct {
	Event string `json:"event"` // done
	eval.Summary
}

// heardOf tells of a run that has ended.
func (o *options) heardOf(p eval.Progress) {
	if o.json {
		row := evalRow{Event: "row", Took: p.Took.Milliseconds(), Bundle: p.Dir, Row: p.Row}
		if p.Row.State != results.InfraError {
			row.Grading = &p.Grading
		}
		_ = json.NewEncoder(os.Stdout).Encode(row) // a reader that went away is told nothing more
		return
	}
	said := p.Row.Display["result"]
	if p.Row.State == results.InfraError {
		said = oneLine(p.Row.Cause)
	}
	fmt.Fprintf(os.Stderr, "%4d/%d  %-11s  %-40s  %s  %s\n", p.Done, p.All, p.Row.State, p.Row.TestID, said, p.Took.Round(10*time.Millisecond))
}

func (o *options) printEval(all []eval.Summary) error {
	for _, s := range all {
		if o.json {
			if err := json.NewEncoder(os.Stdout).Encode(evalDone{"done", s}); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("%s\n", s.Text())
	}
	return nil
}

// endOf is the exit code of an evaluation.
func endOf(ctx context.Context, all []eval.Summary, err error) error {
	const goOn = "go on with the same command and --resume"
	switch {
	case ctx.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("stopped; what ended is kept: " + goOn)}
	case errors.Is(err, eval.ErrBudget):
		return &exitError{code: 6, err: fmt.Errorf("%w: %s, and a larger --budget", err, goOn)}
	case err != nil:
		return environment(err)
	}
	code := 0
	for _, s := range all {
		if len(s.Below) > 0 {
			return &exitError{code: 1}
		}
		if !s.Complete {
			code = 6
		}
	}
	if code != 0 {
		return &exitError{code: code, err: errors.New("some runs measured nothing: run them again with --retry-errors")}
	}
	return nil
}
