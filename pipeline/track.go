package pipeline

import (
	"context"
	"time"

	"github.com/slipway-dev/slipway/pipeline/report"
)

// commentEvery is the shortest time between two edits of a tracking comment.
const commentEvery = 10 * time.Second

// tracker keeps the tracking comment up to date while a run is at work. Its edits
// describe the present: one that fails is dropped, the next says more.
type tracker struct {
	edit  func(ctx context.Context) // makes the comment say how the run stands now
	dirty chan struct{}
}

func newTracker(edit func(ctx context.Context)) *tracker {
	return &tracker{edit: edit, dirty: make(chan struct{}, 1)}
}

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

// track makes the comment say how the build stands now.
func (b *build) track(ctx context.Context) {
	comment := b.Request.Comment
	if comment.Marker == "" || b.Request.Contender != nil {
		return // nobody watches a comment, or the comparison's
	}
	now := b.fold.Report(time.Now())
	now.Batches = b.live.now()
	comment.Body = report.Comment(now)
	if _, err := b.Forge.EnsureComment(ctx, comment); err != nil && ctx.Err() == nil {
		b.log.WarnContext(ctx, "an edit of the tracking comment was dropped", "error", err)
	}
}
