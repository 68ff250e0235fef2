package app

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/queue"
)

// day is the window of the daily limits. It slides: what was used counts for
// the 24 hours that follow.
const day = 24 * time.Hour

// daily is the agent.Day of one installation. What its builds have used is in
// the store, so that every process counts the same. What a call took stays
// taken for the day when the process dies before it gives the rest back.
type daily struct {
	store interface {
		Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (wait time.Duration, err error)
	}
	tenant string // the installation; empty: builds of a terminal
	limits config.Limits
}

// A portion is one of the three things that a day has a limit of.
type portion struct {
	bucket string
	n      int64 // of the bucket's units
	most   int64 // 0 means no bound
	bound  string
	limit  string // most, for people
}

func (p portion) window() queue.Limit { return queue.Limit{{Max: p.most, Per: day}} }

// portions are what a use needs of each limit that is set.
func (d daily) portions(u agent.Use) []portion {
	tenant := d.tenant
	if tenant == "" {
		tenant = "local"
	}
	l := d.limits
	all := []portion{
		{"budget/usd/" + tenant, u.Micros, int64(l.USDPerDay), "limits.usd_per_day", "$" + l.USDPerDay.String()},
		{"budget/calls/" + tenant, u.Calls, int64(l.CallsPerDay), "limits.calls_per_day", strconv.Itoa(l.CallsPerDay) + " calls"},
		{"budget/milliseconds/" + tenant, u.Time.Milliseconds(), int64(l.MinutesPerDay) * time.Minute.Milliseconds(),
			"limits.minutes_per_day", strconv.Itoa(l.MinutesPerDay) + " minutes"},
	}
	set := all[:0]
	for _, p := range all {
		if p.most > 0 {
			set = append(set, p)
		}
	}
	return set
}

// Take implements agent.Day.
func (d daily) Take(ctx context.Context, u agent.Use) error {
	portions := d.portions(u)
	for i, p := range portions {
		err := d.take(ctx, p)
		if err == nil {
			continue
		}
		for _, taken := range portions[:i] {
			if _, back := d.store.Take(context.WithoutCancel(ctx), taken.bucket, -taken.n, nil); back != nil {
				err = errors.Join(err, back)
			}
		}
		return err
	}
	return nil
}

func (d daily) take(ctx context.Context, p portion) error {
	if p.n > p.most {
		return &agent.BudgetError{Bound: p.bound, Limit: p.limit} // no day has so much
	}
	wait, err := d.store.Take(ctx, p.bucket, p.n, p.window())
	if err != nil {
		return fmt.Errorf("ask for %s: %w", p.bound, err)
	}
	if wait > 0 {
		return &agent.BudgetError{Bound: p.bound, Limit: p.limit, Reset: time.Now().Add(wait)}
	}
	return nil
}

// Settle implements agent.Day. What was used beyond what was taken, which some
// runtimes cannot keep an agent from, is taken now. Where the day has not so
// much left, more than half of what it has is.
func (d daily) Settle(ctx context.Context, taken, used agent.Use) error {
	var failed error
	more := d.portions(agent.Use{Micros: used.Micros - taken.Micros, Calls: used.Calls - taken.Calls, Time: used.Time - taken.Time})
	for _, p := range more {
		p.n = min(p.n, p.most)
		limit := p.window()
		if p.n < 0 {
			limit = queue.Limit{{Per: used.Time}} // it was taken before the try
		}
		for p.n != 0 {
			wait, err := d.store.Take(ctx, p.bucket, p.n, limit)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("settle %s: %w", p.bound, err))
			}
			if err != nil || wait == 0 {
				break
			}
			p.n /= 2
		}
	}
	return failed
}
