package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/queue"
)

// localReview is what a terminal's review is about.
type localReview struct {
	Base    string         `json:"base"`
	Head    string         `json:"head,omitempty"`
	FailOn  string         `json:"fail_on,omitempty"`
	SARIF   string         `json:"sarif,omitempty"` // where the findings go, absolute
	Request review.Request `json:"request"`
}

// severities are those that a flag may name.
var severities = []string{"critical", "high", "medium", "low"}

// reviewFlags are the flags of slipway review.
type reviewFlags struct {
	buildFlags
	head, severity, failOn, sarif, bench string
	focus                                []string
}

func newReview(o *options) *cobra.Command {
	f := &reviewFlags{}
	cmd := &cobra.Command{
		Use:   "review --repo DIR --base BRANCH [PATH...]",
		Short: "Review what a branch changes, without GitHub",
		Long: `Review has agents look at what the checked-out branch changes since it left the
base: many narrow ones, called lenses, each look for one kind of fault, and others
try to refute what they found. The engine runs the repository's own commands on
both sides. Nothing is written to the repository; uncommitted work is not looked
at. PATHs are patterns of what is to be looked at; without them it is everything.

Ctrl-C once stops the agents and shows what is verified by then; twice stops at
once and keeps the review for resume. The exit code is 0 when nothing at or above
--fail-on is open, 1 when something is, 3 when the review could not be done, 4
cancelled, 6 when not everything was looked at, 2 usage, 5 environment.

With --reviewbench the change is a pull request as the benchmark of that name
hands it out: diff.patch and pr.json in the directory or in its folder pr, and the
checkout in its folder repo. Nothing of it is executed. The findings go to the file
that RB_OUT names, and the exit code is 0 once they are there.`,
		Example: `  slipway review --repo . --base main
  slipway review --repo . --base main --focus security,tests src/
  slipway review --repo . --base main --json --fail-on high
  slipway review --repo . --base main --sarif findings.sarif
  RB_OUT=findings.json slipway review --reviewbench /work`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.bench != "" {
				return o.runReviewBench(cmd.Context(), f, args)
			}
			l, err := f.local(args)
			if err != nil {
				return err
			}
			return o.runReview(cmd.Context(), l)
		},
	}
	f.agents(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.repo, "repo", "", "the repository (required)")
	flags.StringVar(&f.base, "base", "", "branch that the change is to be merged into (required)")
	flags.StringVar(&f.head, "head", "", "branch that is reviewed (default: the one checked out)")
	flags.StringSliceVar(&f.focus, "focus", nil, "lenses that look, by name (default from configuration)")
	flags.StringVar(&f.severity, "severity", "", "the least severity that counts: critical, high, medium or low (default from configuration)")
	flags.StringVar(&f.failOn, "fail-on", "", "the least severity of an open finding for exit code 1 (default: every open finding)")
	flags.StringVar(&f.sarif, "sarif", "", "file to write the open findings to, as SARIF 2.1.0")
	flags.StringVar(&f.bench, "reviewbench", "", "review the pull request of ReviewBench in this directory, and write the file that RB_OUT names")
	return cmd
}

// local checks the flags and makes the review that they describe.
func (f *reviewFlags) local(paths []string) (localBuild, error) {
	switch {
	case f.repo == "":
		return localBuild{}, errors.New("--repo is required: for example --repo . for the repository you are in")
	case f.base == "":
		return localBuild{}, errors.New("--base is required: the branch that the change is to be merged into, for example --base main")
	}
	if err := f.checkSeverities(); err != nil {
		return localBuild{}, err
	}
	dir, err := findRepo(f.repo)
	if err != nil {
		return localBuild{}, err
	}
	l, err := f.agentsOf()
	if err != nil {
		return l, err
	}
	r := &localReview{Base: f.base, Head: f.head, FailOn: f.failOn, Request: review.Request{
		Review: newReviewID(), Repo: localRepo(dir), Full: true, Focus: f.focus, Severity: f.severity, Paths: paths,
	}}
	if f.sarif != "" {
		if r.SARIF, err = filepath.Abs(f.sarif); err != nil {
			return l, fmt.Errorf("--sarif: %w", err)
		}
		if _, err := os.Stat(filepath.Dir(r.SARIF)); err != nil {
			return l, fmt.Errorf("--sarif: %w", err)
		}
	}
	l.Dir, l.Review = dir, r
	return l, nil
}

func (f *reviewFlags) checkSeverities() error {
	for flag, value := range map[string]string{"--severity": f.severity, "--fail-on": f.failOn} {
		if value != "" && !slices.Contains(severities, value) {
			return fmt.Errorf("%s %s: give %s", flag, value, strings.Join(severities, ", "))
		}
	}
	return nil
}

// newReviewID names a review of a terminal.
func newReviewID() string {
	id := make([]byte, 4)
	_, _ = rand.Read(id) // never fails
	return "r-" + hex.EncodeToString(id)
}

// isReview tells a review's job from a build's.
func isReview(j queue.Job) bool { return strings.HasPrefix(j.ID, "r-") }

// runReview runs a terminal's review to its end.
func (o *options) runReview(ctx context.Context, l localBuild) error {
	return o.withStore(ctx, func(store queue.Store, conf config.Server) error {
		r := l.Review
		view := newReviewView(o, r.Request.Review)
		var final report.Review
		err := o.claimLocal(ctx, conf, store, l, view.follow, func(ctx context.Context, c app.Claim) error {
			mirror, err := c.Engine.Mirror(ctx, r.Request.Repo)
			if err != nil {
				return err
			}
			settled := make(chan struct{})
			defer close(settled)
			go func() {
				select {
				case <-c.Draining: // what is verified is shown
					_ = store.Send(ctx, c.Task.Job.ID, newSignal(pipeline.CancelSignal, json.RawMessage(`{}`))) // it may have ended
				case <-settled:
				}
			}()
			final, err = app.ReviewClaim{
				Engine: c.Engine, Store: store, Task: c.Task, Request: r.Request, Heard: view.slot,
				Forge: pipeline.LocalReview{Dir: l.Dir, Mirror: mirror, Base: r.Base, Head: r.Head},
			}.Review(ctx)
			return err
		})
		if err != nil {
			return err
		}
		dir := filepath.Join(conf.StateDir, "builds", final.ID)
		if r.SARIF != "" {
			if err := copyFile(filepath.Join(dir, "review.sarif"), r.SARIF); err != nil {
				return environment(fmt.Errorf("--sarif: %w", err))
			}
		}
		if err := view.finish(ctx, store, final, filepath.Join(dir, "review.md")); err != nil {
			return environment(err)
		}
		if code := report.ReviewExit(final, r.FailOn); code != 0 {
			return &exitError{code: code}
		}
		return nil
	})
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// reviewStatus prints where a review stands.
func (o *options) reviewStatus(ctx context.Context, store queue.Store, j queue.Job) error {
	r, err := pipeline.ReadReview(ctx, store, j.ID)
	if err != nil {
		return environment(err)
	}
	if o.json {
		text, err := report.ReviewJSON(r)
		if err != nil {
			return err
		}
		_, err = fmt.Printf("%s\n", text)
		return err
	}
	fmt.Println(report.ReviewStatus(r))
	if j.Cause != "" {
		fmt.Printf("\nqueue: %s, %s\n", j.State, j.Cause)
	}
	return nil
}

// listedReview is a review as a line of slipway list.
func listedReview(ctx context.Context, store queue.Store, j queue.Job) (listed, error) {
	r, err := pipeline.ReadReview(ctx, store, j.ID)
	line := listed{Build: j.ID, State: report.State(r.State), Repo: r.Repo, Ticket: r.Pull, Title: report.ReviewTitle(r), Cost: report.USD(r.CostMicros), Created: j.Created}
	return line, environment(err)
}

// logReview prints a review's journal as it was written.
func (o *options) logReview(ctx context.Context, store queue.Store, j queue.Job, follow bool) error {
	v := newReviewView(o, j.ID)
	v.live = v.live && follow
	v.catchUp(ctx, store)
	for follow && !v.fold.Report(time.Now()).State.Final() {
		if err := store.Wait(ctx, queue.SignalsOf(j.ID)); err != nil {
			return nil //nolint:nilerr // Ctrl-C ends following; that is no failure
		}
		v.catchUp(ctx, store)
	}
	v.erase()
	return nil
}
