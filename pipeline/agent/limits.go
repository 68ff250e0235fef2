package agent

import (
	"context"
	"errors"
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

// ErrBudget refuses a call that could pass the build's budget.
var ErrBudget = errors.New("the build's budget does not cover another agent call")

// A Budget bounds what a build spends. A call starts only if what is spent and
// all reserves stay within Micros; its reserve is replaced by its real cost.
type Budget struct {
	Micros  int64 // the whole build, in micro-dollars; 0 means no bound
	PerCall int64 // the reserve of one call

	mu       sync.Mutex
	spent    int64
	reserved int64
}

// Spend charges what was spent before, when a journal is read again.
func (b *Budget) Spend(micros int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent += micros
}

type reserve struct {
	budget *Budget
	micros int64
}

func (b *Budget) reserve() (reserve, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.Micros > 0 && b.spent+b.reserved+b.PerCall > b.Micros {
		return reserve{}, ErrBudget
	}
	b.reserved += b.PerCall
	return reserve{budget: b, micros: b.PerCall}, nil
}

func (r reserve) settle(cost int64) {
	r.budget.mu.Lock()
	defer r.budget.mu.Unlock()
	r.budget.reserved -= r.micros
	r.budget.spent += cost
}
