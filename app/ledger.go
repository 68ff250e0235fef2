package app

import (
	"context"
	"fmt"
	"math"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/queue"
)

// ledger is what is known of the findings of a pull request when it is reviewed:
// by its last review, or, where nobody reviewed it, by the build that opened it, so
// that what that said on its lines keeps its number and is not said again. It is
// nil where nobody looked yet, and of a local repository.
func ledger(ctx context.Context, store queue.Store, r forge.Repo, pull forge.Pull) (*review.Result, error) {
	if pull.Number == 0 {
		return nil, nil //nolint:nilnil // a local repository has no earlier review
	}
	found, err := lastReview(ctx, store, r, pull.Number)
	if found != nil || err != nil || pull.Ticket == 0 {
		return found, err
	}
	builds, err := buildsOf(ctx, store, r, pull)
	if err != nil {
		return nil, err
	}
	for _, j := range builds { // newest first
		req, err := request(j)
		if err != nil {
			return nil, err
		}
		if req.Follow != nil { // its own change is a part of the pull request's
			continue
		}
		account, err := pipeline.Read(ctx, store, j.ID)
		if err != nil || account.Pull == nil || account.Pull.Number != pull.Number {
			return nil, err // it opened another, which was closed since
		}
		return pipeline.OwnReview(ctx, store, j.ID)
	}
	return nil, nil //nolint:nilnil // nobody looked yet
}

// lastReview is what the newest review of a pull request found that ended and
// found something out; nil where there is none. The repository may have had another
// name or owner then.
func lastReview(ctx context.Context, store queue.Store, r forge.Repo, pull int) (*review.Result, error) {
	found, err := newestResult(ctx, store, queue.Query{Key: review.Key(r, pull)}, func(review.Request) bool { return true })
	if found != nil || err != nil || r.ID == 0 {
		return found, err
	}
	return newestResult(ctx, store, queue.Query{}, func(of review.Request) bool { return of.Pull == pull && of.Repo.ID == r.ID })
}

// newestResult is of the newest review that the query selects and that fits.
func newestResult(ctx context.Context, store queue.Store, q queue.Query, fits func(review.Request) bool) (*review.Result, error) {
	q.Kinds, q.Limit = []string{review.Kind}, math.MaxInt32
	jobs, err := store.List(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("look for earlier reviews: %w", err)
	}
	for _, j := range jobs { // newest first
		of, err := reviewRequest(j)
		if err != nil {
			return nil, err
		}
		if !j.State.Finished() || !fits(of) {
			continue
		}
		found, err := pipeline.ReadResult(ctx, store, j.ID)
		if found != nil || err != nil {
			return found, err
		}
	}
	return nil, nil //nolint:nilnil // the first review of a pull request has none before it
}

// buildsOf are the builds of the ticket of one of our pull requests, newest first.
// The repository may have had another name or owner then, and another one may have
// had its name.
func buildsOf(ctx context.Context, store queue.Store, r forge.Repo, pull forge.Pull) ([]queue.Job, error) {
	for _, key := range []string{fmt.Sprintf("%s#%d", r, pull.Ticket), ""} {
		jobs, err := store.List(ctx, queue.Query{Kinds: pipeline.Kinds(), Key: key, Limit: math.MaxInt32})
		if err != nil {
			return nil, fmt.Errorf("look for builds of %s#%d: %w", r, pull.Ticket, err)
		}
		var found []queue.Job
		for _, j := range jobs {
			req, err := request(j)
			if err != nil {
				return nil, err
			}
			if req.Repo.ID == r.ID && req.Ticket.Number == pull.Ticket {
				found = append(found, j)
			}
		}
		if len(found) > 0 || r.ID == 0 {
			return found, nil
		}
	}
	return nil, nil
}

// findings are what is open on a pull request: by its last review, or, where
// nobody reviewed it, by what the newest build on one of ours left of its own.
func (a *App) findings(ctx context.Context, r forge.Repo, pull forge.Pull) ([]finding.Entry, error) {
	found, err := lastReview(ctx, a.store, r, pull.Number)
	if err != nil {
		return nil, err
	}
	if found == nil && pull.Ticket != 0 {
		builds, err := buildsOf(ctx, a.store, r, pull)
		if err != nil || len(builds) == 0 {
			return nil, err
		}
		if found, err = pipeline.OwnReview(ctx, a.store, builds[0].ID); err != nil {
			return nil, err
		}
	}
	if found == nil {
		return nil, nil
	}
	return found.Open, nil
}
