package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

// named is the reader under another name: the role whose money it is.
func named(name string) agent.Role[question, reply] {
	r := reader()
	r.Name = name
	return r
}

// priced answers every call; the cost is that of its key's place, else of
// "every".
func priced(costs map[string]int64) *agenttest.Agents {
	return agenttest.New(func(_ context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		place, _, _ := strings.Cut(c.Step, "/")
		cost, known := costs[place]
		if !known {
			cost = costs["every"]
		}
		r := agenttest.JSON(reply{Word: "hi"})
		r.CostMicros = cost
		return r, nil
	})
}

// ceilings is what each call was allowed to cost.
func ceilings(agents *agenttest.Agents) (all []int64) {
	for _, c := range agents.Calls() {
		all = append(all, c.BudgetMicros)
	}
	return all
}

func TestBudget(t *testing.T) {
	closing := &agent.Budget{Micros: 100, PerCall: 20, Closing: 40, Closers: []string{"verifier", "git"}}
	for name, c := range map[string]struct {
		budget   *agent.Budget
		costs    map[string]int64 // by place
		asks     string           // place/role, each in turn; a ! marks those that are refused
		ceilings []int64
		refusal  string
	}{
		"no bound": {
			budget: &agent.Budget{}, costs: map[string]int64{"every": 1 << 40}, asks: "a/r b/r c/r", ceilings: []int64{0, 0, 0},
		},
		"the first reserve has to fit": {
			budget: &agent.Budget{Micros: 39, PerCall: 40}, asks: "!a/r",
			refusal: "the budget does not cover another agent call: limits.usd_per_build is $0.000039",
		},
		"a reserve that fits to the last micro-dollar": {
			budget: &agent.Budget{Micros: 40, PerCall: 40}, asks: "a/r", ceilings: []int64{40},
		},
		"what was spent counts": {
			budget: &agent.Budget{Micros: 100, PerCall: 40}, costs: map[string]int64{"every": 40},
			asks: "a/r b/r !c/r", ceilings: []int64{40, 40},
		},
		"the bound has the name that a person knows it by": {
			budget: &agent.Budget{Micros: 1_500_000, PerCall: 2_000_000, Bound: "the budget asked for"}, asks: "!a/r",
			refusal: "the budget does not cover another agent call: the budget asked for is $1.5",
		},
		"later a role reserves half more than its dearest call": {
			budget: &agent.Budget{Micros: 1000, PerCall: 40}, costs: map[string]int64{"a": 10, "b": 5, "c": 21, "d": 100, "e": 1},
			asks: "a/r b/r c/r x/other d/r e/r f/r", ceilings: []int64{40, 15, 15, 40, 32, 40, 40},
		},
		"half of an odd cost is rounded up": {
			budget: &agent.Budget{Micros: 1000, PerCall: 40}, costs: map[string]int64{"every": 1}, asks: "a/r b/r", ceilings: []int64{40, 2},
		},
		"a role without a price keeps its first reserve": {
			budget: &agent.Budget{Micros: 1000, PerCall: 40}, asks: "a/r b/r", ceilings: []int64{40, 40},
		},
		"the closing reserve is for closers": {
			budget: closing, costs: map[string]int64{"every": 20},
			asks: "a/r b/r c/r !d/r e/verifier f/git !g/git", ceilings: []int64{20, 20, 20, 20, 20},
			refusal: "the budget does not cover another agent call: limits.usd_per_build is $0.0001, of which $0.00004 are kept for verifying and publishing",
		},
		"a closer that was early leaves the reserve whole": {
			budget: closing, costs: map[string]int64{"every": 20},
			asks: "a/r e/verifier c/r !d/r g/git h/git", ceilings: []int64{20, 20, 20, 20, 20},
		},
		"calls are counted, whatever they cost": {
			budget: &agent.Budget{MaxCalls: 2}, asks: "a/r b/r !c/r", ceilings: []int64{0, 0},
			refusal: "the budget does not cover another agent call: pipeline.max_agents_per_build is 2 calls",
		},
		"a fake price of half a dollar": {
			budget: &agent.Budget{Micros: 5_000_000, PerCall: 500_000, Closing: 1_000_000, Closers: []string{"git"}}, costs: map[string]int64{"every": 500_000},
			asks:     "a/r b/r c/r d/r e/r f/r g/r h/r !i/r j/git k/git !l/git",
			ceilings: slices.Repeat([]int64{500_000}, 10),
		},
	} {
		t.Run(name, func(t *testing.T) {
			// Once in one go, and once with a process for each call: what is read
			// from the journal has to be what was known before.
			for _, restarts := range []bool{false, true} {
				log, agents := new(steptest.Log), priced(c.costs)
				crew := crewOn(t, log, agents)
				crew.Budget = unread(c.budget)
				for _, ask := range strings.Fields(c.asks) {
					if restarts {
						crew = crewOn(t, log, agents)
						crew.Budget = unread(c.budget)
					}
					place, refused := strings.CutPrefix(ask, "!")
					place, role, _ := strings.Cut(place, "/")
					_, err := askAt(t.Context(), crew, place, agenttest.Desk{}, named(role))
					if errors.Is(err, agent.ErrBudget) != refused || !refused && err != nil {
						t.Fatalf("restarts %v: %s: %v", restarts, ask, err)
					}
					if refused && c.refusal != "" && role != "git" && err.Error() != c.refusal {
						t.Errorf("%s: %q, want %q", ask, err, c.refusal)
					}
				}
				if got := ceilings(agents); !slices.Equal(got, c.ceilings) {
					t.Errorf("restarts %v: ceilings %v, want %v", restarts, got, c.ceilings)
				}
			}
		})
	}
}

// unread is a budget with the same bounds that has read nothing yet.
func unread(b *agent.Budget) *agent.Budget {
	return &agent.Budget{
		Micros: b.Micros, Bound: b.Bound, PerCall: b.PerCall, Closing: b.Closing, Closers: b.Closers, MaxCalls: b.MaxCalls, Day: b.Day,
	}
}

func TestReserveIsInTheJournalBeforeTheCall(t *testing.T) {
	log := new(steptest.Log)
	agents := agenttest.New(func(context.Context, runtime.Call, func(runtime.Event)) (runtime.Result, error) {
		if keys := log.Keys(); !slices.Equal(keys, []string{"budget/one/reader"}) {
			t.Errorf("when the call starts the journal has %v", keys)
		}
		return agenttest.JSON(reply{Word: "hi"}), nil
	})
	crew := crewOn(t, log, agents)
	crew.Budget = &agent.Budget{Micros: 100, PerCall: 40}
	for range 2 { // the second time it is recorded, and reserves nothing
		if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); err != nil {
			t.Fatal(err)
		}
	}
	entries := crew.Journal.Entries()
	if len(entries) != 2 || entries[0].Kind != queue.Choice || string(entries[0].Outcome) != `{"call":"one/reader","reserve":40}` {
		t.Errorf("entries %+v", entries)
	}
}

func TestCallWhoseReserveCannotBeRecordedDoesNotStart(t *testing.T) {
	log := &steptest.Log{Refuse: func(context.Context, queue.Entry) error { return queue.ErrLost }}
	agents := play(t)
	crew := crewOn(t, log, agents)
	day := &ledger{}
	crew.Budget = &agent.Budget{Micros: 100, PerCall: 40, Day: day}
	if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); !errors.Is(err, queue.ErrLost) {
		t.Errorf("error %v", err)
	}
	if len(agents.Calls()) != 0 || day.used != (agent.Use{}) {
		t.Errorf("asked %v, took %+v", agents.Steps(), day.used)
	}
}

func TestVanishedCallKeepsItsReserve(t *testing.T) {
	log := new(steptest.Log)
	kill := errors.New("kill -9")
	log.Refuse = func(_ context.Context, e queue.Entry) error {
		if e.Kind == queue.Call {
			return kill // the process dies before the result is recorded
		}
		return nil
	}
	agents := priced(map[string]int64{"every": 10})
	budget := &agent.Budget{Micros: 100, PerCall: 30, MaxCalls: 5}
	run := func(key string) error {
		crew := crewOn(t, log, agents)
		crew.Budget = unread(budget)
		_, err := askAt(t.Context(), crew, key, agenttest.Desk{}, reader())
		return err
	}
	for range 2 {
		if err := run("one"); !errors.Is(err, kill) {
			t.Fatal(err)
		}
	}
	log.Refuse = nil
	if err := run("one"); err != nil { // 30 + 30 vanished, 30 fit
		t.Fatal(err)
	}
	if want := []string{"budget/one/reader", "budget/one/reader/2", "budget/one/reader/3", "one/reader"}; !slices.Equal(log.Keys(), want) {
		t.Errorf("the journal has %v, want %v", log.Keys(), want)
	}
	// 30 + 30 + 10 are charged: 15 fit, and after them 15, and no more.
	for _, key := range []string{"two", "three"} {
		if err := run(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	// 90 are charged, and five calls were started.
	if err := run("four"); !errors.Is(err, agent.ErrBudget) || !strings.Contains(err.Error(), "max_agents_per_build") {
		t.Errorf("a sixth call: %v", err)
	}
	budget.MaxCalls = 0
	if err := run("four"); !errors.Is(err, agent.ErrBudget) || !strings.Contains(err.Error(), "usd_per_build") {
		t.Errorf("beyond the budget: %v", err)
	}
}

// A record whose commit is gone counts as not recorded, and so does its cost.
func TestCallWhoseCommitIsLostKeepsItsReserve(t *testing.T) {
	log := new(steptest.Log)
	agents := priced(map[string]int64{"every": 10})
	run := func(key, commit string, has func(context.Context, string) bool) error {
		crew := agenttest.Crew(log.Open(t, step.Options{Has: has}), agents)
		crew.Budget = &agent.Budget{Micros: 70, PerCall: 30}
		_, err := askAt(t.Context(), crew, key, &desk{commits: []string{commit}}, writer())
		return err
	}
	lost := func(_ context.Context, commit string) bool { return commit != "c1" }
	if err := errors.Join(run("one", "c1", nil), run("one", "c2", lost)); err != nil {
		t.Fatal(err)
	}
	// 30 + 10 are charged: 15 fit twice, then no more.
	if err := errors.Join(run("two", "c3", lost), run("three", "c4", lost)); err != nil {
		t.Fatal(err)
	}
	if err := run("four", "c5", lost); !errors.Is(err, agent.ErrBudget) {
		t.Errorf("error %v, want ErrBudget", err)
	}
}

func TestCallWaitsWhileOthersHoldWhatItNeeds(t *testing.T) {
	for name, c := range map[string]struct {
		cost int64 // of the call that runs
		want error
	}{
		"and starts when they gave enough back": {20, nil},
		"and is refused when they did not":      {50, agent.ErrBudget},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				agents := agenttest.New(func(_ context.Context, call runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
					r := agenttest.JSON(reply{Word: "free"})
					if call.Step == "one/first" {
						<-release
						r.CostMicros = c.cost
					}
					return r, nil
				})
				crew := crewOn(t, new(steptest.Log), agents)
				crew.Budget = &agent.Budget{Micros: 100, PerCall: 60}
				var both sync.WaitGroup
				both.Go(func() {
					if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, named("first")); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				both.Go(func() {
					if _, err := askAt(t.Context(), crew, "two", agenttest.Desk{}, reader()); !errors.Is(err, c.want) {
						t.Errorf("%v, want %v", err, c.want)
					}
				})
				synctest.Wait()
				if n := len(agents.Calls()); n != 1 {
					t.Errorf("%d calls run beside each other", n)
				}
				close(release)
				both.Wait()
			})
		})
	}
}

func TestCallThatWaitsForMoneyCanBeStopped(t *testing.T) {
	stop := errors.New("the maintainer said /cancel")
	for name, want := range map[string]error{"cancelled": stop, "draining": agent.ErrDraining, "a panic beside it": nil} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release, draining := make(chan struct{}), make(chan struct{})
				agents := agenttest.New(func(_ context.Context, call runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
					if call.Step == "one/reader" {
						<-release
						if name == "a panic beside it" {
							panic("broken")
						}
					}
					return agenttest.JSON(reply{Word: "hi"}), nil
				})
				crew := crewOn(t, new(steptest.Log), agents)
				crew.Budget, crew.Draining = &agent.Budget{Micros: 100, PerCall: 60, Closing: 10, Closers: []string{"git"}}, draining
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				var both sync.WaitGroup
				both.Go(func() {
					defer func() { _ = recover() }() // as an issue's lane does
					if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				both.Go(func() {
					_, err := askAt(ctx, crew, "two", agenttest.Desk{}, reader())
					if name == "a panic beside it" {
						want = agent.ErrBudget // its reserve is not known to be unspent
					}
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				})
				synctest.Wait()
				switch name {
				case "cancelled":
					cancel(stop)
				case "draining":
					close(draining)
				}
				synctest.Wait()
				close(release)
				both.Wait()
			})
		})
	}
}

func TestCallThatCannotStartReservesNothing(t *testing.T) {
	log := new(steptest.Log)
	crew := crewOn(t, log, play(t, turn{json: `{"word":"hi"}`}))
	crew.Budget = &agent.Budget{Micros: 100, PerCall: 60, MaxCalls: 1}
	broken := errors.New("no space")
	if _, err := askAt(t.Context(), crew, "one", &desk{prepare: broken}, reader()); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	home := crew.Home
	crew.Home = func(string) (string, error) { return "", broken }
	if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
	crew.Home = home
	full := &agent.BudgetError{Bound: "limits.usd_per_day", Limit: "$200", Reset: time.Date(2026, 5, 1, 12, 30, 0, 0, time.UTC)}
	crew.Budget.Day = &ledger{full: full}
	_, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader())
	if want := "the budget does not cover another agent call: limits.usd_per_day is $200; there may be room again at 2026-05-01 12:30 UTC"; !errors.Is(err, agent.ErrBudget) || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	if keys := log.Keys(); len(keys) != 0 {
		t.Errorf("stored %v", keys)
	}
	crew.Budget.Day = nil
	if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); err != nil {
		t.Errorf("after three calls that did not start: %v", err)
	}
}

func TestCallThatIsNotRecorded(t *testing.T) {
	for name, c := range map[string]struct {
		cost    int64
		err     error
		cancel  bool
		charged int64 // in this process
	}{
		"is charged what it reports":                        {cost: 7, err: fatal, charged: 7},
		"and nothing when it reports nothing":               {err: fatal, charged: 0},
		"its reserve when it was cut off":                   {err: context.Canceled, cancel: true, charged: 40},
		"what it reports when it was cut off and could say": {cost: 7, err: context.Canceled, cancel: true, charged: 7},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(steptest.Log)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			agents := agenttest.New(func(_ context.Context, call runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
				if call.Step != "one/reader" {
					return agenttest.JSON(reply{Word: "hi"}), nil
				}
				if c.cancel {
					cancel()
				}
				return runtime.Result{CostMicros: c.cost}, c.err
			})
			// fits is whether the budget has room for another call of so much.
			fits := func(crew *agent.Crew, micros int64) bool {
				crew.Budget.PerCall = micros
				_, err := askAt(t.Context(), crew, fmt.Sprintf("for-%d", micros), agenttest.Desk{}, named("other"))
				if err != nil && !errors.Is(err, agent.ErrBudget) {
					t.Fatal(err)
				}
				return err == nil
			}
			crew := crewOn(t, log, agents)
			crew.Budget = &agent.Budget{Micros: 100, PerCall: 40}
			if _, err := askAt(ctx, crew, "one", agenttest.Desk{}, reader()); err == nil {
				t.Fatal("no error")
			}
			if fits(crew, 101-c.charged) || !fits(crew, 100-c.charged) {
				t.Errorf("it is not charged %d", c.charged)
			}
			again := crewOn(t, log, agents)
			again.Budget = &agent.Budget{Micros: 100}
			if fits(again, 61) || !fits(again, 60) {
				t.Error("after a restart it is not charged its reserve of 40")
			}
		})
	}
}

func TestFurtherTriesAreBoundedToo(t *testing.T) {
	over := turn{err: transient(0), cost: 30}
	free := turn{err: transient(0)}
	good := turn{json: `{"word":"hi"}`, cost: 30}
	for name, c := range map[string]struct {
		budget int64
		turns  []turn
		want   error
		keys   []string
		after  int64 // charged to the budget after a restart
	}{
		"tries that cost nothing share a reserve": {
			40, []turn{free, free, good}, nil, []string{"budget/one/reader", "one/reader"}, 30,
		},
		"a try that cost something is charged at once": {
			100, []turn{over, over, good}, nil, []string{"budget/one/reader", "budget/one/reader/2", "budget/one/reader/3", "one/reader"}, 90,
		},
		"there is no try beyond the budget": {
			99, []turn{over, over}, agent.ErrBudget, []string{"budget/one/reader", "budget/one/reader/2"}, 70,
		},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(steptest.Log)
			agents := play(t, c.turns...)
			crew := crewOn(t, log, agents)
			crew.Budget = &agent.Budget{Micros: c.budget, PerCall: 40}
			if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if !slices.Equal(log.Keys(), c.keys) || len(agents.Calls()) != len(c.turns) {
				t.Errorf("%d tries, the journal has %v; want %v", len(agents.Calls()), log.Keys(), c.keys)
			}
			for _, fits := range []bool{false, true} { // one more than is left, and what is left
				again := crewOn(t, log, priced(nil))
				again.Budget = &agent.Budget{Micros: 1000, PerCall: 1000 - c.after}
				if !fits {
					again.Budget.PerCall++
				}
				if _, err := askAt(t.Context(), again, "two", agenttest.Desk{}, named("other")); (err == nil) != fits {
					t.Errorf("%d of 1000 after %v: %v", again.Budget.PerCall, log.Keys(), err)
				}
			}
		})
	}
}

// What a call has set aside stays its own, whatever closers draw meanwhile.
func TestFurtherTryThatNeedsNothingMoreIsNotRefused(t *testing.T) {
	var crew *agent.Crew
	tries := 0
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		r := agenttest.JSON(reply{Word: "hi"})
		if c.Role == "git" {
			r.CostMicros = 30
			return r, nil
		}
		if tries++; tries > 1 {
			return r, nil
		}
		for _, key := range []string{"two", "three"} {
			if _, err := askAt(ctx, crew, key, agenttest.Desk{}, named("git")); err != nil {
				t.Error(err)
			}
		}
		return runtime.Result{}, transient(0)
	})
	crew = crewOn(t, new(steptest.Log), agents)
	crew.Budget = &agent.Budget{Micros: 100, PerCall: 30, Closing: 40, Closers: []string{"git"}}
	if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); err != nil || tries != 2 {
		t.Errorf("%v after %d tries", err, tries)
	}
}

// ledger is a Day that writes down what is taken and used.
type ledger struct {
	mu    sync.Mutex
	full  error // what Take answers
	takes []agent.Use
	used  agent.Use // taken and not given back
}

func (l *ledger) Take(_ context.Context, u agent.Use) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full != nil {
		return l.full
	}
	l.takes = append(l.takes, u)
	l.used = agent.Use{Micros: l.used.Micros + u.Micros, Calls: l.used.Calls + u.Calls, Time: l.used.Time + u.Time}
	return nil
}

func (l *ledger) Settle(ctx context.Context, taken, used agent.Use) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = agent.Use{
		Micros: l.used.Micros + used.Micros - taken.Micros, Calls: l.used.Calls + used.Calls - taken.Calls, Time: l.used.Time + used.Time - taken.Time,
	}
	return ctx.Err()
}

func TestDayIsTakenBeforeEachTryAndSettledAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		day := &ledger{}
		tries := 0
		agents := agenttest.New(func(context.Context, runtime.Call, func(runtime.Event)) (runtime.Result, error) {
			if tries++; len(day.takes) != tries {
				t.Errorf("try %d: taken %v", tries, day.takes)
			}
			<-time.After(time.Minute)
			if tries == 1 {
				return runtime.Result{CostMicros: 3}, transient(0)
			}
			r := agenttest.JSON(reply{Word: "hi"})
			r.CostMicros = 50 // more than it was allowed
			return r, nil
		})
		crew := crewOn(t, new(steptest.Log), agents)
		crew.Budget = &agent.Budget{PerCall: 40, Day: day}
		crew.Limits.Timeout, crew.Limits.Backoff = 45*time.Minute, 10*time.Hour
		if _, err := askAt(t.Context(), crew, "one", agenttest.Desk{}, reader()); err != nil {
			t.Fatal(err)
		}
		want := []agent.Use{{Micros: 40, Calls: 1, Time: 45 * time.Minute}, {Micros: 40, Time: 45 * time.Minute}}
		if !slices.Equal(day.takes, want) {
			t.Errorf("taken %+v, want %+v", day.takes, want)
		}
		if want := (agent.Use{Micros: 53, Calls: 1, Time: 2 * time.Minute}); day.used != want {
			t.Errorf("used %+v, want %+v", day.used, want)
		}
	})
}

func TestRoleMayHaveAModelKeyAndRepairsOfItsOwn(t *testing.T) {
	r := reader()
	r.Model, r.Repairs = "verifier", 1
	agents := play(t, turn{text: "one"}, turn{text: "two"})
	crew := crewOn(t, new(steptest.Log), agents)
	target, asked := crew.Target, []string{}
	crew.Target = func(model string) (agent.Target, error) {
		asked = append(asked, model)
		return target(model)
	}
	_, err := ask(t, crew, r)
	failure, ok := errors.AsType[*agent.Failure](err)
	if !ok || failure.Key != "plan/reader" || !strings.Contains(failure.Reason, "after 2 turns") {
		t.Errorf("error %v", err)
	}
	if !slices.Equal(asked, []string{"verifier", "verifier"}) || agents.Calls()[0].Role != "reader" {
		t.Errorf("asked for the models of %v, as role %s", asked, agents.Calls()[0].Role)
	}
}
