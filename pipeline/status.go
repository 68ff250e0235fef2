package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// Journals is where the journals of builds are read.
type Journals interface {
	Entries(ctx context.Context, jobID string, after int64) ([]step.Entry, error)
}

// Read is the account of a build as its journal tells it now; a build that no
// worker has claimed yet is queued.
func Read(ctx context.Context, from Journals, job string) (report.Build, error) {
	fold, begun, err := folded(ctx, from, job)
	if err != nil {
		return report.Build{}, err
	}
	contenders := fold.contending()
	if len(contenders) == 0 {
		return accountOf(fold, begun, job), nil
	}
	var all []standing
	for _, c := range contenders {
		account, err := Read(ctx, from, c.Build)
		if err != nil {
			return report.Build{}, err
		}
		all = append(all, standing{build: c.Build, target: c.Target, account: account})
	}
	return fold.compared(all, time.Now()), nil
}

func accountOf(fold *Fold, begun bool, job string) report.Build {
	if !begun {
		return report.Build{ID: job, State: report.Queued}
	}
	return fold.Report(time.Now())
}

// OwnReview is the newest review of a build's own diff, with what of it was said
// on its draft; nil where there was none. Of a comparison it is the chosen build's.
func OwnReview(ctx context.Context, from Journals, job string) (*review.Result, error) {
	fold, _, err := folded(ctx, from, job)
	if err == nil && len(fold.contending()) > 0 && fold.chosen().Build != "" {
		fold, _, err = folded(ctx, from, fold.chosen().Build)
	}
	if err != nil {
		return nil, err
	}
	return fold.reviewed(), nil
}

// Home is the repository of a build as it is reached now: where it was resumed
// last, or where it was asked for. A repository gets other names and owners, and
// the App other installations.
func Home(ctx context.Context, from Journals, req Request) (forge.Repo, error) {
	fold, _, err := folded(ctx, from, req.Build)
	if err != nil || fold.home == (forge.Repo{}) {
		return req.Repo, err
	}
	return fold.home, nil
}

// Resumed is where the last signal that let a build go on leads it, or where it
// was asked for.
func Resumed(req Request, signals []Signal) forge.Repo {
	home := req.Repo
	for _, s := range signals {
		var said Said
		if (s.Kind == ResumeSignal || s.Kind == PublishSignal) && json.Unmarshal(s.Body, &said) == nil && said.Repo != (forge.Repo{}) {
			home = said.Repo
		}
	}
	return home
}

func folded(ctx context.Context, from Journals, job string) (fold *Fold, begun bool, err error) {
	entries, err := from.Entries(ctx, job, 0)
	if err != nil {
		return nil, false, fmt.Errorf("read the journal of %s: %w", job, err)
	}
	fold = NewFold()
	for _, e := range entries {
		fold.Add(e)
	}
	return fold, len(entries) > 0, nil
}

// GivenUp is the account of a build that the queue has buried for that cause: its
// journal knows nothing of it, and would say for ever that it runs.
func GivenUp(b report.Build, cause string) report.Build {
	if b.State.Final() {
		return b // what came after its end failed
	}
	why := "the build was given up: " + cause
	if b.Cause != "" {
		why = b.Cause + "; " + why
	}
	b.State, b.Cause, b.Gate, b.Permits = report.NeedsHuman, why, nil, nil
	b.Next = b.Typed("resume", "")
	b.Stages = slices.Clone(b.Stages)
	for i, s := range b.Stages {
		if s.State == "running" {
			b.Stages[i].State = "failed"
		}
	}
	return b
}

// GiveUp says in public that no worker takes the build up any more, and why.
// What it holds is kept in its journal and refs.
func GiveUp(ctx context.Context, from Journals, f Forge, req Request, cause error) error {
	if req.Contender != nil {
		return nil // its comparison sees it, and tells
	}
	b, err := Read(ctx, from, req.Build)
	if err != nil {
		return err
	}
	b.Title, b.Ticket, b.Prefix = req.title(), req.Ticket.Number, req.Prefix
	b = GivenUp(b, cause.Error())
	comment := req.Comment
	comment.Body = report.Comment(b)
	if _, err := f.EnsureComment(ctx, comment); err != nil {
		return fmt.Errorf("say that the build is given up: %w", err)
	}
	if err := notify(ctx, f, req.Comment, "end=given-up", b); err != nil {
		return err
	}
	if b.Head != "" { // what it pushed is there, and nothing else would say that it is not whole
		if _, err := f.EnsureCheck(ctx, checkOf(b)); err != nil && !errors.Is(err, forge.ErrRefused) {
			return fmt.Errorf("say in a check that the build is given up: %w", err)
		}
	}
	if req.Follow != nil {
		for _, t := range req.Follow.Threads {
			if _, err := answerIn(ctx, f, req, b, t); err != nil {
				return fmt.Errorf("say in a thread that the build is given up: %w", err)
			}
		}
		for i := range req.Follow.Findings {
			if _, err := answerFinding(ctx, f, req, b, i); err != nil {
				return fmt.Errorf("say under a remark that the build is given up: %w", err)
			}
		}
	}
	if req.Trigger == (forge.Subject{}) {
		return nil
	}
	return f.React(ctx, req.Trigger, "confused")
}
