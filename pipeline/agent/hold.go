package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Day bounds what all builds of an installation use in any 24 hours.
type Day interface {
	// Take takes what one try of a call may use, all of it or nothing. A
	// *BudgetError says which bound has no room, and when it has.
	Take(ctx context.Context, u Use) error
	// Settle replaces what was taken by what was used.
	Settle(ctx context.Context, taken, used Use) error
}

// Use is what a try of a call needs of a Day.
type Use struct {
	Micros int64 // micro-dollars
	Calls  int64 // 1 for the first try, 0 for a further one
	Time   time.Duration
}

// A hold is what one call has of the budget while it runs. It belongs to the
// goroutine of the call.
type hold struct {
	crew   *Crew
	call   string
	role   string
	micros int64 // the reserve of one try, which is its ceiling too
	held   int64 // what of the budget's charge is for this call
	spent  int64 // by the tries that ended
	count  int   // 1 when the budget has counted the call
	begun  bool  // a try was let start
	atWork bool  // a try has started and not ended
	over   bool  // nothing is held any more
	taken  Use   // of the day, by the try at work
}

// hold makes the hold of a call that has not started.
func (c *Crew) hold(call runtime.Call) *hold {
	role := call.Role
	if c.depth > 0 { // what a subagent costs says nothing of the role that it is named after
		role = toolName + " " + role
	}
	return &hold{crew: c, call: call.Step, role: role}
}

// begin sets aside what the next try may cost and returns when it may start.
// The reserve of a call is in the journal then. What earlier tries cost counts
// at once, and the next one may cost as much as the first.
func (h *hold) begin(ctx context.Context, timeout time.Duration) error {
	more, err := h.charge(ctx)
	if err != nil {
		return err
	}
	if day := h.crew.Budget.Day; day != nil {
		need := Use{Micros: h.micros, Time: timeout}
		if !h.begun {
			need.Calls = 1
		}
		if err := day.Take(ctx, need); err != nil {
			return err
		}
		h.taken = need
	}
	h.begun = true
	if more && h.crew.Budget.bounded() {
		if err := h.choose(ctx); err != nil {
			h.settleDay(ctx, Use{})
			return err
		}
	}
	h.atWork = true
	return nil
}

// charge makes room for the next try. It reports whether that took more than
// the call has already. A first try waits while calls that run hold what it
// needs: most give back a part. A further try holds something itself, and two
// of them would wait for each other, so it is refused.
func (h *hold) charge(ctx context.Context) (more bool, err error) {
	b := h.crew.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.recall(h.crew.Journal); err != nil {
		return false, err
	}
	for {
		if !h.begun {
			if b.MaxCalls > 0 && b.calls >= b.MaxCalls {
				return false, &BudgetError{Bound: "pipeline.max_agents_per_build", Limit: fmt.Sprintf("%d calls", b.MaxCalls)}
			}
			h.micros = b.reserveOf(h.role)
		}
		need := h.spent + h.micros - h.held
		if b.Micros == 0 || need <= max(b.room(h.role), 0) { // nothing more always fits
			b.charged += need
			b.open += need
			h.held += need
			if !h.begun {
				b.calls++
				h.count = 1
			}
			return !h.begun || need > 0, nil
		}
		// What the agent that asks a subagent holds itself is open until the
		// subagent has answered.
		if h.begun || h.crew.depth > 0 || need > b.room(h.role)+b.open {
			return false, b.spentOut(h.role)
		}
		settled := b.settled
		b.mu.Unlock()
		err := h.wait(ctx, settled)
		b.mu.Lock()
		if err != nil {
			return false, err
		}
	}
}

func (h *hold) wait(ctx context.Context, settled <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-h.crew.Draining:
		return ErrDraining
	case <-settled:
		return nil
	}
}

// choose records the reserve. A number is never used twice, so a choice that
// failed may be in the journal all the same.
func (h *hold) choose(ctx context.Context) error {
	b := h.crew.Budget
	b.mu.Lock()
	b.reserves[h.call]++
	n := b.reserves[h.call]
	b.mu.Unlock()
	key := ReserveKey + h.call
	if n > 1 {
		key += fmt.Sprintf("/%d", n)
	}
	_, err := step.Choose(ctx, h.crew.Journal, key, reserved{Call: h.call, Reserve: h.micros, Spent: h.spent})
	return err
}

// end takes what a try cost. One that was cut off before it could say has cost
// its reserve, for all we know.
func (h *hold) end(ctx context.Context, cost int64, took time.Duration) {
	if cost == 0 && ctx.Err() != nil {
		cost = h.micros
	}
	h.spent += cost
	h.atWork = false
	h.settleDay(ctx, Use{Micros: cost, Calls: h.taken.Calls, Time: took})
}

// settleTimeout bounds the settling of a day's bounds after a cancel.
const settleTimeout = 10 * time.Second

// settleDay gives back what a try did not use. Where that fails, or the process
// dies before, it stays taken for the day.
func (h *hold) settleDay(ctx context.Context, used Use) {
	day := h.crew.Budget.Day
	if day == nil {
		return
	}
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	if err := day.Settle(settle, h.taken, used); err != nil {
		h.crew.Log.WarnContext(ctx, "what a call did not use stays taken from the day's limits", "key", h.call, "error", err)
	}
}

// record replaces the reserve by the cost that is in the journal now.
func (h *hold) record(cost int64) {
	b := h.crew.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	b.highest[h.role] = max(b.highest[h.role], cost)
	b.give(h, cost)
}

// drop replaces the reserve of a call that is not recorded by what its tries
// cost: all of it for one that panicked. Where no try was let start, there was
// no call. After record it does nothing.
func (h *hold) drop() {
	b := h.crew.Budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if h.over {
		return
	}
	if !h.begun {
		b.calls -= h.count
	}
	if h.atWork {
		h.spent += h.micros
	}
	b.give(h, h.spent)
}

// give ends a hold. The caller holds mu.
func (b *Budget) give(h *hold, cost int64) {
	b.charged += cost - h.held
	b.open -= h.held
	h.over = true
	if b.settled != nil {
		close(b.settled)
		b.settled = make(chan struct{})
	}
}
