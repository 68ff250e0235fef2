package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

// try is what a call does once: it costs a share of what it may.
type try struct {
	permille int64
	ends     string // well, transient, fatal
}

// bill is what agents really cost, whoever was told.
type bill struct {
	mu      sync.Mutex
	calls   map[string][]int64 // by key: what each run of the call cost, its tries together
	closers int64              // the part of the roles that end a build
	// A call came back with an error. It is not recorded: its process charges
	// what it cost, the next one its reserve, and together these may be more
	// than the budget. What is really spent may not.
	refused bool
}

func (b *bill) total() (sum int64) {
	for _, runs := range b.calls {
		for _, cost := range runs {
			sum += cost
		}
	}
	return sum
}

// TestBudgetHoldsThroughAnyKills has builds of random calls, side by side and
// killed at random appends, and holds the journal against the bill.
func TestBudgetHoldsThroughAnyKills(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		budget := &agent.Budget{
			Micros: rapid.Int64Range(1, 3000).Draw(rt, "budget"), PerCall: rapid.Int64Range(0, 300).Draw(rt, "per call"),
			Closers: []string{"git"}, MaxCalls: rapid.SampledFrom([]int{0, 7}).Draw(rt, "max calls"),
		}
		budget.Closing = rapid.Int64Range(0, budget.Micros).Draw(rt, "closing")
		ends := []string{"well", "well", "well", "transient", "transient"}
		if rapid.Bool().Draw(rt, "some are fatal") {
			ends = append(ends, "fatal")
		}
		log, spent := new(steptest.Log), &bill{calls: map[string][]int64{}}
		for process := range rapid.IntRange(1, 6).Draw(rt, "processes") {
			var asks []string
			tries := map[string][]try{}
			for range rapid.IntRange(1, 8).Draw(rt, "asks") {
				key := fmt.Sprintf("place-%d/%s", rapid.IntRange(0, 9).Draw(rt, "place"), rapid.SampledFrom([]string{"coder", "qa", "git"}).Draw(rt, "role"))
				if _, known := tries[key]; known {
					continue
				}
				asks = append(asks, key)
				for range 5 {
					tries[key] = append(tries[key], try{
						rapid.SampledFrom([]int64{0, 0, 1, 300, 999, 1000}).Draw(rt, "cost"), rapid.SampledFrom(ends).Draw(rt, "end"),
					})
				}
			}
			kill := rapid.IntRange(0, 20).Draw(rt, "dies at append")
			spent.run(t, log, unread(budget), rapid.IntRange(1, 4).Draw(rt, "slots"), kill, asks, tries)
			spent.check(rt, log, budget, process)
		}
	})
}

var errKilled = errors.New("kill -9")

// run is one process: it reads the journal, asks everything at once and dies at
// an append.
func (b *bill) run(t *testing.T, log *steptest.Log, budget *agent.Budget, slots, kill int, asks []string, tries map[string][]try) {
	var mu sync.Mutex
	done := map[string]int{}
	agents := agenttest.New(func(_ context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		mu.Lock()
		now := tries[c.Step][done[c.Step]]
		done[c.Step]++
		first := done[c.Step] == 1
		mu.Unlock()
		r := agenttest.JSON(reply{Word: "hi"})
		r.CostMicros = c.BudgetMicros * now.permille / 1000
		b.mu.Lock()
		defer b.mu.Unlock()
		if first {
			b.calls[c.Step] = append(b.calls[c.Step], 0)
		}
		b.calls[c.Step][len(b.calls[c.Step])-1] += r.CostMicros
		if c.Role == "git" {
			b.closers += r.CostMicros
		}
		switch now.ends {
		case "transient":
			return r, transient(0)
		case "fatal":
			return r, fatal
		}
		return r, nil
	})
	log.Refuse = func(context.Context, queue.Entry) error {
		mu.Lock()
		defer mu.Unlock()
		if kill--; kill < 0 {
			return errKilled
		}
		return nil
	}
	crew := crewOn(t, log, agents)
	crew.Budget, crew.Slots, crew.Limits.Backoff = budget, agent.NewSlots(slots), 0
	var all sync.WaitGroup
	for _, key := range asks {
		all.Go(func() {
			place, role, _ := strings.Cut(key, "/")
			_, err := askAt(t.Context(), crew, place, agenttest.Desk{}, named(role))
			_, failed := errors.AsType[*agent.Failure](err)
			mu.Lock()
			if done[key] > 0 && (errors.Is(err, agent.ErrBudget) || errors.Is(err, agent.ErrFatal)) {
				b.refused = true
			}
			mu.Unlock()
			if err != nil && !failed && !errors.Is(err, agent.ErrBudget) && !errors.Is(err, agent.ErrFatal) && !errors.Is(err, errKilled) {
				t.Errorf("%s: %v", key, err)
			}
		})
	}
	all.Wait()
}

// check compares the journal with the bill.
func (b *bill) check(t *rapid.T, log *steptest.Log, budget *agent.Budget, process int) {
	entries, err := log.Entries(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	var recorded, vanished int64
	open, calls := map[string]int64{}, 0
	for _, e := range entries {
		if e.Kind == queue.Call {
			runs := b.calls[e.Key]
			if last := runs[len(runs)-1]; e.CostMicros != last {
				t.Fatalf("process %d: %s is recorded with a cost of %d, and it cost %d", process, e.Key, e.CostMicros, last)
			}
			recorded += e.CostMicros
			delete(open, e.Key)
			continue
		}
		var r struct {
			Call           string
			Reserve, Spent int64
		}
		if err := json.Unmarshal(e.Outcome, &r); err != nil {
			t.Fatal(err)
		}
		if r.Spent == 0 {
			calls++
			vanished += open[r.Call] // for good
		}
		open[r.Call] = r.Spent + r.Reserve
	}
	for _, micros := range open {
		vanished += micros
	}
	real := b.total()
	switch {
	case real > budget.Micros:
		t.Fatalf("process %d: %d are spent of %d", process, real, budget.Micros)
	case real-b.closers > budget.Micros-budget.Closing:
		t.Fatalf("process %d: %d of %d are spent, and %d were for closers", process, real-b.closers, budget.Micros, budget.Closing)
	case recorded > real || real > recorded+vanished:
		t.Fatalf("process %d: %d are recorded, %d vanished, and %d are spent", process, recorded, vanished, real)
	case !b.refused && recorded+vanished > budget.Micros:
		t.Fatalf("process %d: %d are recorded and %d vanished of %d", process, recorded, vanished, budget.Micros)
	case budget.MaxCalls > 0 && calls > budget.MaxCalls:
		t.Fatalf("process %d: %d calls of %d", process, calls, budget.MaxCalls)
	}
}
