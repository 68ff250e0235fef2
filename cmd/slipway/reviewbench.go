package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// benchOf is what the flags say of a benchmark's pull request.
func (f *reviewFlags) benchOf(paths []string) (app.ReviewBench, error) {
	if f.repo != "" || f.base != "" || f.head != "" || f.failOn != "" || f.sarif != "" || len(paths) > 0 {
		return app.ReviewBench{}, errors.New("--reviewbench says what is reviewed and where the findings go: leave out --repo, --base, --head, --fail-on, --sarif and paths")
	}
	if err := f.checkSeverities(); err != nil {
		return app.ReviewBench{}, err
	}
	b, err := app.ReadReviewBench(f.bench, os.Environ())
	if err != nil {
		return b, fmt.Errorf("--reviewbench: %w", err)
	}
	b.Focus, b.Severity = f.focus, f.severity
	return b, nil
}

// runReviewBench answers a benchmark. A review that is not whole answers with what
// it has, and says so: the benchmark takes a run with one answer missing for none.
func (o *options) runReviewBench(ctx context.Context, f *reviewFlags, paths []string) error {
	b, err := f.benchOf(paths)
	if err != nil {
		return err
	}
	l, err := f.agentsOf()
	if err != nil {
		return err
	}
	conf, err := o.load()
	if err != nil {
		return err
	}
	agents, err := agentsFor(l)
	if err != nil {
		return err
	}
	if model := os.Getenv("RB_CONFIG_MODEL"); model != "" {
		layer, err := config.Parse(fmt.Appendf(nil, "models:\n  default: %q\n", model), "RB_CONFIG_MODEL")
		if err != nil {
			return err
		}
		conf.Repo = layer.Over(conf.Repo)
		fmt.Fprintf(os.Stderr, "model=%s\n", oneLine(model)) // the contract wants settings told
	}
	running, done := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGHUP)
	defer done()
	final, unsaid, err := b.Run(running, conf, agents, o.logger())
	switch {
	case running.Err() != nil:
		return &exitError{code: exitInterrupted, err: errors.New("the review was stopped; nothing was written")}
	case err != nil && final.ID != "":
		return &exitError{code: 3, err: err}
	case err != nil:
		return environment(err)
	}
	fmt.Fprintf(os.Stderr, "%s; the findings are in %s\n", report.ReviewTitle(final), b.Out)
	for _, g := range final.Gaps {
		fmt.Fprintf(os.Stderr, "not looked at: %s %s, %s\n", printable(g.Agent), g.State, oneLine(g.Reason))
	}
	for _, e := range unsaid {
		fmt.Fprintf(os.Stderr, "has no line at the head, and was left out: %s\n", oneLine(e.String()))
	}
	return nil
}
