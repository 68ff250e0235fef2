package batch

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// doing is what a task does.
type doing = func(context.Context, *Control) (string, error)

// tasks makes one task of each function; its type is its place.
func tasks(runs ...doing) (tasks []Task[string]) {
	for i, r := range runs {
		tasks = append(tasks, Task[string]{Type: fmt.Sprintf("lens-%d", i), Transcript: fmt.Sprintf("slot-%d.jsonl", i), Run: r})
	}
	return tasks
}

func says(text string) doing {
	return func(context.Context, *Control) (string, error) { return text, nil }
}

// takes works for so long, or until its ctx ends.
func takes(d time.Duration, text string) doing {
	return func(ctx context.Context, _ *Control) (string, error) {
		select {
		case <-time.After(d):
			return text, nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// recorder keeps events and checks them against the final records.
type recorder struct{ events []Event }

func (r *recorder) emit(e Event) { r.events = append(r.events, e) } // calls do not overlap: the race detector watches

func (r *recorder) states(slot int) (states []State) {
	for _, e := range r.events {
		if e.Slot == slot {
			states = append(states, e.State)
		}
	}
	return states
}

func check[T any](t interface {
	Helper()
	Errorf(string, ...any)
}, events []Event, got Result[T]) {
	t.Helper()
	last := map[int]Event{}
	for _, e := range events {
		if e.Seq != last[e.Slot].Seq+1 {
			t.Errorf("slot %d: event %d comes after %d", e.Slot, e.Seq, last[e.Slot].Seq)
		}
		last[e.Slot] = e
	}
	for i, s := range got.Slots {
		if s.Slot != i || last[i].Record != s.Record {
			t.Errorf("slot %d: the last event is %+v, the record %+v", i, last[i].Record, s.Record)
		}
	}
	r := got.Receipt
	if r.Planned != len(got.Slots) || r.Planned != r.Completed+r.Failed+r.TimedOut+r.Canceled+r.Skipped {
		t.Errorf("the receipt does not add up: %+v", r)
	}
}

func TestTheNinthStartsWhenTheFirstEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex
		started := map[int]time.Duration{}
		var runs []doing
		for i := range 12 {
			runs = append(runs, func(ctx context.Context, c *Control) (string, error) {
				mu.Lock()
				started[i] = time.Since(begin)
				mu.Unlock()
				return takes(time.Duration(i+1)*time.Second, fmt.Sprint(i))(ctx, c)
			})
		}
		var r recorder
		got := Run(t.Context(), Options{MaxConcurrency: DefaultConcurrency, Emit: r.emit}, tasks(runs...))
		check(t, r.events, got)
		for i := range 12 {
			want := time.Duration(max(0, i-7)) * time.Second
			if started[i] != want || got.Slots[i].Output != fmt.Sprint(i) {
				t.Errorf("slot %d started after %v, want %v; output %q", i, started[i], want, got.Slots[i].Output)
			}
		}
		if got.Status != Completed || !got.Receipt.Whole() {
			t.Errorf("%s, %+v", got.Status, got.Receipt)
		}
	})
}

func TestResultsComeInTheOrderOfTheTasks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := Run(t.Context(), Options{MaxConcurrency: 3}, tasks(takes(3*time.Second, "slow"), takes(2*time.Second, "mid"), takes(time.Second, "fast")))
		for i, want := range []string{"slow", "mid", "fast"} {
			if s := got.Slots[i]; s.Output != want || s.Type != fmt.Sprintf("lens-%d", i) || s.Transcript != fmt.Sprintf("slot-%d.jsonl", i) {
				t.Errorf("slot %d: %+v", i, s)
			}
		}
	})
}

func TestOneSlotTouchesNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("bad output")
		var r recorder
		got := Run(t.Context(), Options{MaxConcurrency: 2, Timeout: 10 * time.Second, Emit: r.emit}, tasks(
			func(context.Context, *Control) (string, error) { return "half", broken },
			func(context.Context, *Control) (string, error) { panic("no such lens") },
			takes(time.Minute, "never"),
			func(context.Context, *Control) (string, error) { return "", fmt.Errorf("no budget: %w", ErrSkipped) },
			func(context.Context, *Control) (string, error) { runtime.Goexit(); return "", nil },
			takes(9*time.Second, "in time"),
			says("fine"),
		))
		check(t, r.events, got)
		for i, want := range []struct {
			state State
			err   string
		}{
			{Failed, "bad output"}, {Failed, "panic: no such lens"}, {TimedOut, ErrTimeout.Error()}, {Skipped, "no budget: skipped"},
			{Failed, "the task did not return"}, {Completed, ""}, {Completed, ""},
		} {
			if s := got.Slots[i]; s.State != want.state || !strings.HasPrefix(s.Error, want.err) || (s.Error == "") != (want.err == "") {
				t.Errorf("slot %d: %s %q, want %s %q", i, s.State, s.Error, want.state, want.err)
			}
		}
		if want := (Receipt{Planned: 7, Completed: 2, Failed: 3, TimedOut: 1, Skipped: 1}); got.Receipt != want || got.Status != Failed {
			t.Errorf("%s, %+v", got.Status, got.Receipt)
		}
		if !errors.Is(got.Slots[0].Err, broken) || !errors.Is(got.Slots[2].Err, ErrTimeout) {
			t.Errorf("errors %v and %v", got.Slots[0].Err, got.Slots[2].Err)
		}
		if stack := fmt.Sprint(got.Slots[1].Err); !strings.Contains(stack, "batch_test.go") {
			t.Errorf("the panic lost its stack: %s", stack)
		}
	})
}

func TestCancelStartsNothingThatIsQueued(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop := errors.New("/cancel")
		ctx, cancel := context.WithCancelCause(t.Context())
		var r recorder
		touched := func(context.Context, *Control) (string, error) {
			t.Error("a queued slot was started")
			return "", nil
		}
		time.AfterFunc(5*time.Second, func() { cancel(stop) })
		got := Run(ctx, Options{MaxConcurrency: 2, Timeout: time.Hour, Emit: r.emit}, tasks(
			takes(time.Second, "before"), takes(time.Minute, "never"), takes(time.Minute, "never"), touched, touched,
		))
		check(t, r.events, got)
		if want := (Receipt{Planned: 5, Completed: 1, Canceled: 4}); got.Receipt != want || got.Status != Canceled || got.Receipt.Whole() {
			t.Errorf("%s, %+v", got.Status, got.Receipt)
		}
		for i, want := range [][]State{
			{Queued, Starting, Running, Completed}, {Queued, Starting, Running, Canceled}, {Queued, Starting, Running, Canceled},
			{Queued, Canceled}, {Queued, Canceled},
		} {
			if !slices.Equal(r.states(i), want) {
				t.Errorf("slot %d: %v, want %v", i, r.states(i), want)
			}
			if i > 0 && !errors.Is(got.Slots[i].Err, stop) {
				t.Errorf("slot %d: %v", i, got.Slots[i].Err)
			}
		}
	})
}

// What was finished in spite of a cancel is finished.
func TestFinishedInSpiteOfCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := Run(ctx, Options{}, tasks(func(context.Context, *Control) (string, error) { cancel(); return "done", nil }, says("never")))
	if got.Slots[0].State != Completed || got.Slots[0].Output != "done" || got.Slots[1].State != Canceled {
		t.Errorf("%+v", got.Slots)
	}
}

func TestAllAreQueuedBeforeTheFirstStarts(t *testing.T) {
	var r recorder
	Run(t.Context(), Options{MaxConcurrency: 4, Emit: r.emit}, tasks(says("a"), says("b"), says("c")))
	for i, e := range r.events[:3] {
		if e.State != Queued || e.Slot != i {
			t.Errorf("event %d: %+v", i, e)
		}
	}
}

func TestCapBelowOneIsOne(t *testing.T) {
	for _, limit := range []int{0, -3} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Now()
			Run(t.Context(), Options{MaxConcurrency: limit}, tasks(takes(time.Second, ""), takes(time.Second, ""), takes(time.Second, "")))
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("cap %d: took %v, want one after the other", limit, took)
			}
		})
	}
}

func TestWaitingForAPersonAndSpending(t *testing.T) {
	no := errors.New("/reject")
	var r recorder
	got := Run(t.Context(), Options{Emit: r.emit}, tasks(
		func(_ context.Context, c *Control) (string, error) {
			c.Spend(Usage{Input: 1, CacheRead: 5}, 10)
			c.Spend(Usage{Output: 2}, 20)
			return "", c.Await(func() error { return no })
		},
		func(_ context.Context, c *Control) (string, error) {
			c.Spend(Usage{Input: 3, CacheWrite: 7}, 30)
			panic("after it was paid for")
		},
	))
	check(t, r.events, got)
	if want := []State{Queued, Starting, Running, WaitingApproval, Running, Failed}; !slices.Equal(r.states(0), want) {
		t.Errorf("states %v, want %v", r.states(0), want)
	}
	if !errors.Is(got.Slots[0].Err, no) || got.Slots[0].CostMicros != 30 || got.Slots[1].CostMicros != 30 {
		t.Errorf("%+v", got.Slots)
	}
	if want := (Usage{Input: 4, Output: 2, CacheRead: 5, CacheWrite: 7}); got.Usage != want || got.CostMicros != 60 {
		t.Errorf("%+v, %d", got.Usage, got.CostMicros)
	}
}

// Batches inside a batch, each cap of one: nobody waits for somebody who waits.
func TestBatchesInBatchesDoNotDeadlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := func(ctx context.Context, _ *Control) (string, error) {
			got := Run(ctx, Options{MaxConcurrency: 1}, tasks(takes(time.Second, "x"), takes(time.Second, "y")))
			return got.Slots[0].Output + got.Slots[1].Output, nil
		}
		got := Run(t.Context(), Options{MaxConcurrency: 1}, tasks(inner, inner, inner))
		for i, s := range got.Slots {
			if s.Output != "xy" {
				t.Errorf("slot %d: %+v", i, s)
			}
		}
	})
}

func TestNoTasks(t *testing.T) {
	got := Run[string](t.Context(), Options{}, nil)
	if want := (Result[string]{Type: ResultType, Status: Completed, Slots: []Slot[string]{}}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

func TestStatusOf(t *testing.T) {
	for want, states := range map[State][][]State{
		WaitingApproval: {{Completed, Running, WaitingApproval, Canceled, Failed}},
		Running:         {{Completed, Running}, {Canceled, Queued}, {Failed, Starting}},
		Canceled:        {{Failed, Canceled, Completed}},
		Failed:          {{Completed, Failed}, {Completed, TimedOut}, {Skipped}},
		Completed:       {{Completed, Completed}, {}},
	} {
		for _, states := range states {
			var records []Record
			for _, s := range states {
				records = append(records, Record{State: s})
			}
			if got := StatusOf(records); got != want {
				t.Errorf("%v: %s, want %s", states, got, want)
			}
		}
	}
}

// Whatever the tasks do and whenever the batch is cancelled, the account adds up.
func TestTheAccountAlwaysAddsUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 20).Draw(rt, "tasks")
		limit := rapid.IntRange(-1, 6).Draw(rt, "cap")
		timeout := time.Duration(rapid.IntRange(0, 8).Draw(rt, "timeout")) * time.Second
		cancelAt := time.Duration(rapid.IntRange(0, 30).Draw(rt, "cancel")) * time.Second
		type plan struct {
			ends string
			dur  time.Duration
		}
		plans := make([]plan, n)
		for i := range plans {
			plans[i] = plan{
				rapid.SampledFrom([]string{"well", "error", "panic", "skip"}).Draw(rt, "ends"),
				time.Duration(rapid.IntRange(0, 10).Draw(rt, "takes")) * time.Second,
			}
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if cancelAt > 0 {
				defer time.AfterFunc(cancelAt, cancel).Stop()
			}
			var mu sync.Mutex
			working, spent := 0, int64(0)
			var runs []doing
			for i, p := range plans {
				runs = append(runs, func(ctx context.Context, c *Control) (string, error) {
					mu.Lock()
					working++
					if working > max(limit, 1) {
						t.Errorf("%d at work under a cap of %d", working, limit)
					}
					spent += int64(i)
					mu.Unlock()
					c.Spend(Usage{Input: int64(i)}, int64(i))
					defer func() { mu.Lock(); working--; mu.Unlock() }()
					if _, err := takes(p.dur, "")(ctx, c); err != nil {
						return "", err
					}
					switch p.ends {
					case "error":
						return "", errors.New("broken")
					case "panic":
						panic("broken")
					case "skip":
						return "", ErrSkipped
					}
					return fmt.Sprint(i), nil
				})
			}
			var r recorder
			got := Run(ctx, Options{MaxConcurrency: limit, Timeout: timeout, Emit: r.emit}, tasks(runs...))
			check(t, r.events, got)
			if got.CostMicros != spent || got.Usage.Input != spent {
				t.Errorf("cost %d, usage %+v, spent %d", got.CostMicros, got.Usage, spent)
			}
			for i, s := range got.Slots {
				if !s.State.Final() || s.State == Completed && s.Output != fmt.Sprint(i) || (s.State == Completed) != (s.Err == nil) {
					t.Errorf("slot %d: %+v", i, s)
				}
			}
			if got.Receipt.Whole() != (got.Status == Completed) {
				t.Errorf("status %s with %+v", got.Status, got.Receipt)
			}
		})
	})
}
