package agent

import (
	"context"
	"sync"
)

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

// A seat is the slot that a running call has. While its agent waits for others
// that need slots too, it is lent to them: parents that kept theirs would wait
// for each other.
type seat struct {
	slots *Slots

	mu      sync.Mutex
	release func() // nil while it is lent
	lent    int    // batches that the agent waits for
	over    bool
}

// sit takes a slot for a call.
func (s *Slots) sit(ctx context.Context, draining <-chan struct{}) (*seat, error) {
	release, err := s.take(ctx, draining)
	if err != nil {
		return nil, err
	}
	return &seat{slots: s, release: release}, nil
}

// lend gives the slot to others until the matching reclaim.
func (s *seat) lend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lent++
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// reclaim takes a slot again when the last batch has ended. What runs already
// goes on while the process drains.
func (s *seat) reclaim(ctx context.Context) error {
	s.mu.Lock()
	s.lent--
	last := s.lent == 0
	s.mu.Unlock()
	if !last {
		return nil
	}
	release, err := s.slots.take(ctx, nil)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || s.lent > 0 || s.release != nil { // nobody needs it now
		release()
		return nil
	}
	s.release = release
	return nil
}

// leave ends the call.
func (s *seat) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	if s.release != nil {
		s.release()
		s.release = nil
	}
}
