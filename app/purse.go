package app

import (
	"context"
	"strconv"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/agent"
)

// A purse is the agent.Day of a bench: one amount for all of its reviews. A call
// takes half as much again as the dearest one before it cost, at first all that its
// review gives it, and waits while others hold what it needs: most give a part of it
// back. Whoever holds something waits for nothing, since reviewers ask no subagents.
type purse struct {
	most  int64  // below zero: there is no bound
	bound string // what people call it

	mu      sync.Mutex // holds what follows
	used    int64
	open    int64             // held by calls at work
	dearest int64             // of the calls that ended
	holds   map[int64][]int64 // what is held, by what was asked for
	settled chan struct{}     // closed, and made anew, when a call gives up what it held
}

func newPurse(most int64, bound string) *purse {
	return &purse{most: most, bound: bound, holds: map[int64][]int64{}, settled: make(chan struct{})}
}

// Take implements agent.Day.
func (p *purse) Take(ctx context.Context, u agent.Use) error {
	for {
		settled, err := p.take(u.Micros)
		if settled == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-settled:
		}
	}
}

// take takes what a call needs, or returns what to wait for.
func (p *purse) take(asked int64) (settled <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.most < 0 {
		return nil, nil
	}
	need := min(asked, p.most)
	if p.dearest > 0 {
		need = min(need, p.dearest+(p.dearest+1)/2)
	}
	switch {
	case p.used+p.open+need <= p.most && p.used < p.most:
		p.open += need
		p.holds[asked] = append(p.holds[asked], need)
		return nil, nil
	case p.open == 0:
		return nil, &agent.BudgetError{Bound: p.bound, Limit: "$" + strconv.FormatFloat(float64(p.most)/1e6, 'f', -1, 64)}
	}
	return p.settled, nil
}

// Settle implements agent.Day. Of calls that asked for the same it does not matter
// whose hold is given back: their sum is right.
func (p *purse) Settle(_ context.Context, taken, used agent.Use) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.holds[taken.Micros]
	if len(held) == 0 {
		return nil // nothing was taken
	}
	p.open -= held[0]
	p.holds[taken.Micros] = held[1:]
	p.used += used.Micros
	p.dearest = max(p.dearest, used.Micros)
	close(p.settled)
	p.settled = make(chan struct{})
	return nil
}
