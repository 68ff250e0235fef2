package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// A foreground is a terminal's process that stays with one build until it ends,
// also while the build waits for a person and nobody works on it.
type foreground struct {
	store     queue.Store
	build     string
	stop      func()      // hands the build back
	resting   atomic.Bool // nobody works on the build in this process
	elsewhere atomic.Bool // another process took the build up, and it ended there
}

func (f *foreground) kind() string { return "local/" + f.build }

// run is queue.RunOne, also for a build that waits as it begins.
func (f *foreground) run(ctx context.Context, work func(context.Context, *queue.Task) error) error {
	name := workerName()
	for {
		err := queue.RunOne(ctx, f.store, name, f.kind(), func(ctx context.Context, t *queue.Task) error {
			f.resting.Store(false)
			err := work(ctx, t)
			f.resting.Store(err != nil)
			return err
		})
		if !errors.Is(err, queue.ErrEmpty) {
			return err
		}
		state, lerr := f.state(ctx)
		if lerr != nil {
			return lerr
		}
		if state != queue.Parked && state != queue.Queued { // what was queued was woken since
			return err
		}
		if f.store.Wait(ctx, f.kind()) != nil {
			return context.Cause(ctx)
		}
	}
}

// mind ends what run could wait for in vain, until ctx ends: with the first
// Ctrl-C, which has nothing to finish where nothing runs, and when the build
// ended in another process.
func (f *foreground) mind(ctx context.Context, draining <-chan struct{}) {
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-draining:
			if f.resting.Load() {
				f.stop()
			}
			return
		case <-look.C:
			if !f.resting.Load() {
				continue
			}
			if state, err := f.state(ctx); err == nil && state.Finished() && f.resting.Load() {
				f.elsewhere.Store(true)
				f.stop()
				return
			}
		}
	}
}

// state is where the build's job stands; empty where there is none.
func (f *foreground) state(ctx context.Context) (queue.State, error) {
	jobs, err := f.store.List(ctx, queue.Query{IDs: []string{f.build}, Limit: 1})
	if err != nil || len(jobs) == 0 {
		return "", err
	}
	return jobs[0].State, nil
}
