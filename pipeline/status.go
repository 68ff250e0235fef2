package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// Journals is where the journals of builds are read.
type Journals interface {
	Entries(ctx context.Context, jobID string, after int64) ([]step.Entry, error)
}

// Read is the account of a build as its journal tells it now; a build that no
// worker has claimed yet is queued.
func Read(ctx context.Context, from Journals, job string) (report.Build, error) {
	fold, err := foldOf(ctx, from, job)
	if err != nil {
		return report.Build{}, err
	}
	if fold.from.IsZero() {
		return report.Build{ID: job, State: report.Queued}, nil
	}
	return fold.Report(time.Now()), nil
}

// OpenFindings are what the newest review of a build's own diff left open.
func OpenFindings(ctx context.Context, from Journals, job string) ([]finding.Entry, error) {
	fold, err := foldOf(ctx, from, job)
	if err != nil || fold.reviewed() == nil {
		return nil, err
	}
	return fold.reviewed().Open, nil
}

// foldOf is the state of a build as its journal tells it now.
func foldOf(ctx context.Context, from Journals, job string) (*Fold, error) {
	entries, err := from.Entries(ctx, job, 0)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", job, err)
	}
	fold := NewFold()
	for _, e := range entries {
		fold.Add(e)
	}
	return fold, nil
}

// GiveUp says in public that no worker takes the build up any more, and why.
// What it holds is kept in its journal and refs.
func GiveUp(ctx context.Context, from Journals, f Forge, req Request, cause error) error {
	b, err := Read(ctx, from, req.Build)
	if err != nil {
		return err
	}
	b.ID, b.State, b.Title, b.Ticket = req.Build, report.NeedsHuman, req.title(), req.Ticket.Number
	b.Cause = "the build was given up: " + cause.Error()
	b.Prefix = req.Prefix
	b.Next = b.Typed("resume", "")
	comment := req.Comment
	comment.Body = report.Comment(b)
	if _, err := f.EnsureComment(ctx, comment); err != nil {
		return fmt.Errorf("say that the build is given up: %w", err)
	}
	if req.Follow != nil {
		for _, t := range req.Follow.Threads {
			if _, err := answerIn(ctx, f, req, b, t); err != nil {
				return fmt.Errorf("say in a thread that the build is given up: %w", err)
			}
		}
	}
	if req.Trigger == (forge.Subject{}) {
		return nil
	}
	return f.React(ctx, req.Trigger, "confused")
}
