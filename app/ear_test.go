package app

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// What a person says while a build that waits, or has ended, is on its way out
// is heard by the next claim, which comes at once.
func TestNothingSaidOnTheWayOutIsMissed(t *testing.T) {
	for name, result := range map[string]error{
		"it waits":     &pipeline.Waiting{State: report.WaitingApproval, Until: time.Now().Add(time.Hour)},
		"it has ended": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, err := queue.OpenSQLite(t.Context(), t.TempDir())
			must(t, err)
			_, _, err = store.Put(t.Context(), queue.Job{ID: "b-1", Kind: pipeline.KindBuild})
			must(t, err)
			ctx, stop := context.WithCancel(t.Context())
			heard := make(chan []string, 2)
			claims := 0
			worker := queue.Worker{Store: store, Name: "w", Log: slog.New(slog.DiscardHandler), Slots: []queue.Slot{{
				Kinds: []string{pipeline.KindBuild}, Run: func(ctx context.Context, task *queue.Task) error {
					ear := listen(task)
					var ids []string
					for _, s := range ear.before {
						ids = append(ids, s.ID)
					}
					heard <- ids
					if claims++; claims > 1 {
						return ear.handBack(nil)
					}
					must(t, store.Send(ctx, "b-1", queue.Signal{ID: "approved", Kind: pipeline.ApproveSignal}))
					must(t, task.Extend(ctx)) // it is on its way to whoever listens, and nobody does
					taken := time.Now().Add(50 * time.Millisecond)
					for time.Now().Before(taken) {
						must(t, task.Extend(ctx))
					}
					return ear.handBack(result)
				},
			}}}
			worked := make(chan error, 1)
			go func() { worked <- worker.Run(ctx) }()
			if first := <-heard; len(first) > 0 {
				t.Errorf("before anything was said: %v", first)
			}
			select {
			case second := <-heard:
				if !slices.Equal(second, []string{"approved"}) {
					t.Errorf("the next claim hears %v", second)
				}
			case <-time.After(10 * time.Second):
				t.Error("it sleeps on")
			}
			stop()
			must(t, <-worked)
			must(t, store.Close())
		})
	}
}
