package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// A build that waits is parked and holds no worker, uncharged, until its time or
// a signal; a failure is charged.
func TestABuildThatWaitsHoldsNoWorker(t *testing.T) {
	later := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	for name, c := range map[string]struct {
		err     error
		due     time.Time // zero: a signal alone wakes it
		retries int
	}{
		"for a person":          {&pipeline.Waiting{State: report.WaitingAnswer}, time.Time{}, 0},
		"for a person, a while": {&pipeline.Waiting{State: report.WaitingApproval, Until: later}, later, 0},
		"for CI, wrapped":       {fmt.Errorf("run: %w", &pipeline.Waiting{State: report.WaitingCI, Until: later}), later, 0},
		"for a disk":            {errors.New("the disk is full"), time.Now(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := queue.OpenSQLite(t.Context(), t.TempDir())
			must(t, err)
			_, _, err = store.Put(t.Context(), queue.Job{ID: "b-1", Kind: pipeline.KindBuild})
			must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			worker := queue.Worker{Store: store, Name: "w", Log: slog.New(slog.DiscardHandler), Slots: []queue.Slot{{
				Kinds: []string{pipeline.KindBuild}, Run: func(context.Context, *queue.Task) error { return handBack(c.err) },
			}}}
			worked := make(chan error, 1)
			go func() { worked <- worker.Run(ctx) }()
			var job queue.Job
			for job.State != queue.Parked {
				jobs, err := store.List(t.Context(), queue.Query{IDs: []string{"b-1"}})
				must(t, err)
				job = jobs[0]
				must(t, store.Wait(t.Context(), "nothing"))
			}
			stop()
			must(t, <-worked)
			must(t, store.Close())
			if job.Retries != c.retries || job.Worker != "" {
				t.Errorf("the job: %+v", job)
			}
			if exact := c.retries == 0; exact && !job.NotBefore.Equal(c.due) || !exact && !job.NotBefore.After(c.due) {
				t.Errorf("it is due at %s, want %s", job.NotBefore, c.due)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
