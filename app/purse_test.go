package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
)

// TestPurseWaitsForWhatOthersGiveBack has eight calls of a dollar each ask for a
// purse of three, in which each uses a tenth: none is refused, and what is held never
// exceeds what there is.
func TestPurseWaitsForWhatOthersGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPurse(3e6, "budget_usd")
		ends := make(chan error, 8)
		for range 8 {
			go func() {
				err := p.Take(t.Context(), agent.Use{Micros: 1e6})
				time.Sleep(time.Minute) // the call
				p.mu.Lock()
				if p.used+p.open > p.most {
					t.Errorf("%d used and %d held of %d", p.used, p.open, p.most)
				}
				p.mu.Unlock()
				ends <- errors.Join(err, p.Settle(t.Context(), agent.Use{Micros: 1e6}, agent.Use{Micros: 1e5}))
			}()
		}
		for range 8 {
			if err := <-ends; err != nil {
				t.Error(err)
			}
		}
		if p.used != 8e5 || p.open != 0 {
			t.Errorf("%d used, %d held", p.used, p.open)
		}
	})
}

// TestPurseThatIsEmpty refuses, and says so by the name that people know.
func TestPurseThatIsEmpty(t *testing.T) {
	p := newPurse(1e6, "budget_usd")
	use := agent.Use{Micros: 2e6} // more than there is: it gets what there is
	if err := p.Take(t.Context(), use); err != nil {
		t.Fatal(err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := p.Take(stopped, use); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is stopped while it waits: %v", err)
	}
	if err := p.Settle(t.Context(), use, agent.Use{Micros: 9e5}); err != nil {
		t.Fatal(err)
	}
	err := p.Take(t.Context(), use)
	refused, ok := errors.AsType[*agent.BudgetError](err)
	if !ok || refused.Bound != "budget_usd" || refused.Limit != "$1" {
		t.Errorf("%v", err)
	}
}
