package pipeline

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/step"
)

// listen records what people say to the running build.
func (b *build) listen(ctx context.Context, stop context.CancelCauseFunc) {
	signals := b.Signals
	for {
		grown := b.journal.Grown()
		if grown != nil && !b.fold.stopping().mayFinish() { // in a replay the script may have said so
			stop(errStopped)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-grown:
		case s, open := <-signals:
			if !open {
				signals = nil
				continue
			}
			if err := b.hear(ctx, s); err != nil {
				stop(err) // what is not recorded is said again to the next claim
				return
			}
			if s := b.fold.stopping(); !s.mayFinish() { // a spent budget lets what runs end
				stop(errStopped)
				return
			}
		}
	}
}

// hear records a signal once. A resume of a build that has ended, or that was
// stopped and given up before it could say so, begins its next segment.
func (b *build) hear(ctx context.Context, s Signal) error {
	if b.fold.hasHeard(s.ID) {
		return nil
	}
	h := heard{Kind: s.Kind}
	if err := json.Unmarshal(s.Body, &h.Said); err != nil {
		b.log.WarnContext(ctx, "a signal has an unreadable body", "signal", s.ID, "kind", s.Kind, "error", err)
	}
	var err error
	if s.Kind == ResumeSignal && (b.fold.isDone() || b.fold.stopping() != nil) {
		_, err = step.Choose(ctx, b.journal, b.fold.nextSegment(keyResume), resumed{Signal: s.ID, By: h.Said.By, Repo: h.Said.Repo})
	} else {
		_, err = step.Choose(ctx, b.journal, b.fold.key(keySignal(s.ID)), h)
	}
	if err != nil {
		return fmt.Errorf("record the signal %s: %w", s.ID, err)
	}
	return nil
}
