package app

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/queue"
)

func openStore(t *testing.T, dir string) *queue.SQLite {
	t.Helper()
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(dir, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

func TestDailyLimits(t *testing.T) {
	all := config.Limits{USDPerDay: 10, CallsPerDay: 3, MinutesPerDay: 60}
	call := agent.Use{Micros: 4, Calls: 1, Time: 20 * time.Minute}
	type turn struct {
		take  agent.Use
		used  *agent.Use // settled with; nil: the call still runs
		bound string     // that refuses the take; empty: none
		limit string
		never bool // no time would bring room
	}
	for name, c := range map[string]struct {
		limits config.Limits
		turns  []turn
	}{
		"no bound": {config.Limits{}, []turn{{take: agent.Use{Micros: 1 << 50, Calls: 1 << 50, Time: 1 << 50}}}},
		"reserves of running calls count": {all, []turn{
			{take: call}, {take: call}, {take: call, bound: "limits.usd_per_day", limit: "$0.00001"},
		}},
		"what was not used is given back": {all, []turn{
			{take: call, used: &agent.Use{Micros: 1, Calls: 1}}, {take: call, used: &agent.Use{Micros: 1, Calls: 1}},
			{take: agent.Use{Micros: 8, Calls: 1, Time: time.Hour}},
			{take: agent.Use{Micros: 1}, bound: "limits.usd_per_day", limit: "$0.00001"},
		}},
		"calls have a bound of their own, and a refusal takes nothing": {config.Limits{USDPerDay: 10, CallsPerDay: 2}, []turn{
			{take: agent.Use{Micros: 1, Calls: 1}}, {take: agent.Use{Micros: 1, Calls: 1}},
			{take: agent.Use{Micros: 8, Calls: 1}, bound: "limits.calls_per_day", limit: "2 calls"},
			{take: agent.Use{Micros: 8}},
		}},
		"a call that did not start gives all back": {all, []turn{
			{take: call, used: &agent.Use{}}, {take: agent.Use{Micros: 10, Calls: 3, Time: time.Hour}},
		}},
		"minutes have a bound of their own": {all, []turn{
			{take: agent.Use{Micros: 1, Calls: 1, Time: 50 * time.Minute}},
			{take: agent.Use{Micros: 1, Calls: 1, Time: 11 * time.Minute}, bound: "limits.minutes_per_day", limit: "60 minutes"},
			{take: agent.Use{Micros: 1, Calls: 1, Time: 10 * time.Minute}},
		}},
		"more than a day has": {all, []turn{
			{take: agent.Use{Micros: 11}, bound: "limits.usd_per_day", limit: "$0.00001", never: true},
		}},
		"what was used beyond the reserve counts": {all, []turn{
			{take: call, used: &agent.Use{Micros: 6, Calls: 1, Time: 61 * time.Minute}},
			{take: agent.Use{Time: 31 * time.Minute}, bound: "limits.minutes_per_day", limit: "60 minutes"}, {take: agent.Use{Time: 9 * time.Minute}},
			{take: agent.Use{Micros: 5}, bound: "limits.usd_per_day", limit: "$0.00001"}, {take: agent.Use{Micros: 4}},
		}},
		"as far as the day has it": {all, []turn{
			{take: call, used: &agent.Use{Micros: 100, Calls: 1, Time: 20 * time.Minute}},
			{take: agent.Use{Micros: 4}, bound: "limits.usd_per_day", limit: "$0.00001"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d := daily{store: openStore(t, t.TempDir()), tenant: "7", limits: c.limits}
			for i, turn := range c.turns {
				err := d.Take(t.Context(), turn.take)
				refusal, refused := errors.AsType[*agent.BudgetError](err)
				if refused != (turn.bound != "") || !refused && err != nil {
					t.Fatalf("turn %d: %v", i, err)
				}
				if refused {
					in := time.Until(refusal.Reset)
					if refusal.Bound != turn.bound || refusal.Limit != turn.limit || refusal.Reset.IsZero() != turn.never {
						t.Errorf("turn %d: %v", i, err)
					}
					if !turn.never && (in < day-time.Minute || in > day) {
						t.Errorf("turn %d: there is room in %v", i, in)
					}
				}
				if turn.used != nil {
					if err := d.Settle(t.Context(), turn.take, *turn.used); err != nil {
						t.Fatal(err)
					}
				}
			}
		})
	}
}

func TestInstallationsAndTheTerminalHaveDaysOfTheirOwn(t *testing.T) {
	store := openStore(t, t.TempDir())
	for _, tenant := range []string{"7", "8", ""} {
		d := daily{store: store, tenant: tenant, limits: config.Limits{USDPerDay: 10}}
		if err := d.Take(t.Context(), agent.Use{Micros: 10}); err != nil {
			t.Errorf("tenant %q: %v", tenant, err)
		}
		if err := d.Take(t.Context(), agent.Use{Micros: 1}); !errors.Is(err, agent.ErrBudget) {
			t.Errorf("tenant %q: %v, want ErrBudget", tenant, err)
		}
	}
}

// Two processes of an installation share its day: together they get no more
// than there is, and all of it.
func TestProcessesShareADay(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	started := 0
	var all sync.WaitGroup
	for range 2 {
		d := daily{store: openStore(t, dir), tenant: "7", limits: config.Limits{USDPerDay: 100}}
		for range 4 {
			all.Go(func() {
				for range 10 {
					take := agent.Use{Micros: 15}
					err := d.Take(t.Context(), take)
					if errors.Is(err, agent.ErrBudget) {
						continue
					}
					if err == nil {
						err = d.Settle(context.WithoutCancel(t.Context()), take, agent.Use{Micros: 5})
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					started++
					mu.Unlock()
				}
			})
		}
	}
	all.Wait()
	d := daily{store: openStore(t, dir), tenant: "7", limits: config.Limits{USDPerDay: 100}}
	left := int64(100 - 5*started)
	if err := d.Take(t.Context(), agent.Use{Micros: left + 1}); !errors.Is(err, agent.ErrBudget) {
		t.Errorf("after %d calls more than %d is left: %v", started, left, err)
	}
	if left > 0 {
		if err := d.Take(t.Context(), agent.Use{Micros: left}); err != nil {
			t.Errorf("after %d calls there is not %d left: %v", started, left, err)
		}
	}
}
