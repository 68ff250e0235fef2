package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// builds is the queue as a comparison of an installation sees it.
type builds struct {
	queue.Store
	tenant string
}

// Start queues a build that no other keeps from running.
func (b builds) Start(ctx context.Context, r pipeline.Request) error {
	payload, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode the request: %w", err)
	}
	_, _, err = b.Put(ctx, queue.Job{ID: r.Build, Kind: r.Kind(), Key: r.Build, Tenant: b.tenant, Payload: payload})
	return err
}

// Tell sends a signal; what a build that has ended has no use for is dropped.
func (b builds) Tell(ctx context.Context, build string, s pipeline.Signal) error {
	err := b.Send(ctx, build, queue.Signal{
		ID: s.ID, Kind: s.Kind, Body: s.Body, Reopen: s.Kind == pipeline.ResumeSignal || s.Kind == pipeline.PublishSignal,
	})
	if errors.Is(err, queue.ErrFinished) {
		return nil
	}
	return err
}

// GivenUp is why a build is buried.
func (b builds) GivenUp(ctx context.Context, build string) (cause string, err error) {
	jobs, err := b.List(ctx, queue.Query{IDs: []string{build}, Limit: 1})
	if err != nil || len(jobs) == 0 || jobs[0].State != queue.Buried {
		return "", err
	}
	return jobs[0].Cause, nil
}
