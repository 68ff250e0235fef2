package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// A ReviewClaim is a review in this process's hands.
type ReviewClaim struct {
	Engine   *pipeline.Engine
	Store    queue.Store
	Task     *queue.Task
	Request  review.Request
	Forge    review.Forge
	Draining <-chan struct{}          // closed: running agent calls finish, none starts; may be nil
	Heard    func(pipeline.SlotEvent) // is told how agents stand; may be nil

	// Day bounds what is spent, in the place of the installation's day; may be nil.
	Day agent.Day
	// Mend queues a follow-up of what is open; nil where that is never asked for.
	Mend func(ctx context.Context, open []finding.Entry) (deferred bool, err error)
}

// Review runs the review until it has ended or cannot go on now.
func (c ReviewClaim) Review(ctx context.Context) (report.Review, error) {
	if err := c.Engine.Box.Reap(ctx); err != nil {
		return report.Review{}, fmt.Errorf("end what a dead worker left running: %w", err)
	}
	ear := listen(c.Task)
	if c.Day == nil {
		c.Day = daily{store: c.Store, tenant: c.Task.Job.Tenant, limits: c.Engine.Defaults.Limits}
	}
	final, err := c.Engine.Review(ctx, pipeline.ReviewJob{
		Request: c.Request, Forge: c.Forge, Before: ear.before, Signals: ear.coming, Extend: c.Task.Extend, Draining: c.Draining, Heard: c.Heard,
		Day: c.Day,
		Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
			return step.Open(ctx, c.Store, c.Task.Lease(), o)
		},
		Earlier: func(ctx context.Context, pull forge.Pull) (*review.Result, error) {
			return ledger(ctx, c.Store, c.Request.Repo, pull)
		},
		Again: c.again, Mend: c.Mend,
	})
	return final, ear.handBack(err)
}

// again queues a review of the head that the pull request has meanwhile. Its id
// derives from this one's: a worker that dies after it queues nothing twice.
func (c ReviewClaim) again(ctx context.Context, head string) error {
	next := c.Request
	sum := sha256.Sum256([]byte(c.Request.Review + "@" + head))
	next.Review, next.Requeued, next.Full = "r-"+hex.EncodeToString(sum[:6]), true, false
	next.Marker = c.Request.MarkerOf(next.Review)
	payload, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	_, _, err = c.Store.Put(ctx, queue.Job{
		ID: next.Review, Kind: review.Kind, Key: c.Task.Job.Key, Once: review.Once(c.Request.Repo, c.Request.Pull, head),
		Tenant: c.Task.Job.Tenant, Payload: payload,
	})
	return err
}

// review runs one review of a pull request.
func (a *App) review(ctx context.Context, t *queue.Task) error {
	req, err := reviewRequest(t.Job)
	if err != nil {
		return err
	}
	hub := a.hub.ForRepo(req.Repo, req.Pull)
	defer hub.Close(context.WithoutCancel(ctx))
	final, err := ReviewClaim{
		Engine: a.engine, Store: a.store, Task: t, Request: req, Forge: hub,
		Mend: func(ctx context.Context, open []finding.Entry) (bool, error) { return a.handlers.Mend(ctx, req, open) },
	}.Review(ctx)
	if err != nil {
		return shutOut(err)
	}
	a.log.InfoContext(ctx, "review ended", "review", req.Review, "state", final.State, "cost_micros", final.CostMicros)
	return nil
}

// giveUpReview says on the pull request that a review is buried.
func (a *App) giveUpReview(ctx context.Context, t *queue.Task, cause error) error {
	req, err := reviewRequest(t.Job)
	if err != nil {
		return err
	}
	hub := a.hub.ForRepo(req.Repo, req.Pull)
	defer hub.Close(context.WithoutCancel(ctx))
	return shutOut(pipeline.GiveUpReview(ctx, a.store, hub, req, cause))
}

// reviewed is where a review stands now.
func (a *App) reviewed(ctx context.Context, job queue.Job) (report.Review, error) {
	return pipeline.ReadReview(ctx, a.store, job.ID)
}

func reviewRequest(job queue.Job) (review.Request, error) {
	var req review.Request
	if err := json.Unmarshal(job.Payload, &req); err != nil {
		return req, queue.Never(fmt.Errorf("read the review's request: %w", err))
	}
	return req, nil
}
