package agent

import "context"

// Slots bound how many agents run at once in one worker.
type Slots struct{ free chan struct{} }

// NewSlots makes n slots, at least one.
func NewSlots(n int) *Slots { return &Slots{free: make(chan struct{}, max(n, 1))} }

func (s *Slots) take(ctx context.Context, draining <-chan struct{}) (release func(), err error) {
	select {
	case <-draining:
		return nil, ErrDraining
	default:
	}
	select {
	case s.free <- struct{}{}:
	case <-draining:
		return nil, ErrDraining
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if ctx.Err() != nil { // both were ready: a call that is not wanted takes no slot
		<-s.free
		return nil, context.Cause(ctx)
	}
	return func() { <-s.free }, nil
}
