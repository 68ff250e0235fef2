package pipeline

import (
	"context"
	"time"

	"github.com/slipway-dev/slipway/pipeline/report"
)

// commentEvery is the shortest time between two edits of a tracking comment.
const commentEvery = 10 * time.Second

// tracker keeps the tracking comment up to date while the build runs. Its edits
// describe the present: one that fails is dropped, the next says more.
type tracker struct {
	build *build
	dirty chan struct{}
}

func newTracker(b *build) *tracker { return &tracker{build: b, dirty: make(chan struct{}, 1)} }

// nudge tells that there is something new to say.
func (t *tracker) nudge() {
	select {
	case t.dirty <- struct{}{}:
	default:
	}
}

// run edits until ctx ends.
func (t *tracker) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.dirty:
		}
		t.edit(ctx)
		if pause(ctx, commentEvery) != nil {
			return
		}
	}
}

// edit makes the comment say how the build stands now.
func (t *tracker) edit(ctx context.Context) {
	comment := t.build.Request.Comment
	if comment.Marker == "" {
		return // nobody watches a comment
	}
	now := t.build.fold.Report(time.Now())
	now.Batches = t.build.live.now()
	comment.Body = report.Comment(now)
	if _, err := t.build.Forge.EnsureComment(ctx, comment); err != nil && ctx.Err() == nil {
		t.build.log.WarnContext(ctx, "an edit of the tracking comment was dropped", "error", err)
	}
}
