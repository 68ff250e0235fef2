package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// inBubble runs a test with a store whose clock, like every timer, is virtual:
// an hour of back-off takes no time.
func inBubble(t *testing.T, test func(t *testing.T, s *queue.SQLite)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := openIn(t, dir)
		test(t, s)
	})
}

func openIn(t *testing.T, dir string) *queue.SQLite {
	t.Helper()
	s, err := queue.OpenSQLite(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func put(t *testing.T, s queue.Store, id string) {
	t.Helper()
	if _, added, err := s.Put(t.Context(), queue.Job{ID: id, Kind: "k"}); err != nil || !added {
		t.Fatalf("Put(%s): %v, %v", id, added, err)
	}
}

func send(t *testing.T, s queue.Store, job string, g queue.Signal) {
	t.Helper()
	if err := s.Send(t.Context(), job, g); err != nil {
		t.Fatal(err)
	}
}

func lookUp(t *testing.T, s queue.Store, id string) queue.Job {
	t.Helper()
	jobs, err := s.List(t.Context(), queue.Query{IDs: []string{id}})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("List(%s): %v, %v", id, jobs, err)
	}
	return jobs[0]
}

// work starts a worker; what it returns drains the worker and waits for it.
func work(t *testing.T, w *queue.Worker) (drain func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func worker(s queue.Store, run func(context.Context, *queue.Task) error) *queue.Worker {
	return &queue.Worker{
		Store: s, Name: "w", Log: slog.New(slog.DiscardHandler),
		Slots: []queue.Slot{{Kinds: []string{"k"}, N: 2, Run: run}},
	}
}

func TestWorkerSettles(t *testing.T) {
	broken := errors.New("the repository is gone")
	for _, c := range []struct {
		name    string
		results []error // one for each run; then nil
		state   queue.State
		runs    int
		retries int
		cause   string
		atLeast time.Duration
		atMost  time.Duration
	}{
		{"done at once", nil, queue.Done, 1, 0, "", 0, time.Second},
		{"done after two failures", []error{broken, broken}, queue.Done, 3, 2, "", 7 * time.Second, 20 * time.Second},
		{"buried after eight retries", slices.Repeat([]error{broken}, 9), queue.Buried, 9, 8,
			"given up after 8 retries: " + broken.Error(), 10 * time.Minute, 25 * time.Minute},
		{"never", []error{fmt.Errorf("build: %w", queue.Never(broken))}, queue.Buried, 1, 0, "build: " + broken.Error(), 0, time.Second},
		{"never, without a cause", []error{queue.Never(nil)}, queue.Buried, 1, 0, "failed for good", 0, time.Second},
		{"later, not charged", []error{queue.Later(bubbleTime.Add(time.Minute), nil)}, queue.Done, 2, 0, "", time.Minute, time.Minute + 2*time.Second},
		{"one's turn, not charged", []error{fmt.Errorf("write: %w", queue.Turn(bubbleTime.Add(time.Minute), broken))}, queue.Done, 2, 0, "", time.Minute, time.Minute + 2*time.Second},
		{"the store was away, not charged", slices.Repeat([]error{fmt.Errorf("record: %w", queue.ErrAway)}, 9), queue.Done, 10, 0, "", 45 * time.Second, 56 * time.Second},
		{"later, charged", []error{queue.Later(bubbleTime.Add(time.Minute), broken)}, queue.Done, 2, 1, "", time.Minute, time.Minute + 2*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				var runs int
				ended := make(chan struct{})
				start := time.Now()
				put(t, s, "a")
				drain := work(t, worker(s, func(_ context.Context, task *queue.Task) error {
					runs++
					if runs == c.runs {
						close(ended)
					}
					if runs <= len(c.results) {
						return c.results[runs-1]
					}
					return nil
				}))
				<-ended
				took := time.Since(start)
				synctest.Wait() // it settles; a drain now would hand it back
				drain()
				j := lookUp(t, s, "a")
				if j.State != c.state || runs != c.runs || j.Retries != c.retries || j.Cause != c.cause {
					t.Errorf("%s after %d runs and %d retries, cause %q; want %s, %d, %d, %q",
						j.State, runs, j.Retries, j.Cause, c.state, c.runs, c.retries, c.cause)
				}
				if took < c.atLeast || took > c.atMost {
					t.Errorf("it took %v, want %v to %v", took, c.atLeast, c.atMost)
				}
			})
		})
	}
}

// bubbleTime is when every bubble starts.
var bubbleTime = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestAPanicIsBuriedWithItsStack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		put(t, s, "b")
		var log bytes.Buffer
		after := make(chan struct{})
		w := worker(s, func(_ context.Context, task *queue.Task) error {
			if task.Job.ID == "a" {
				var none *queue.Job
				return errors.New(none.ID)
			}
			close(after)
			return nil
		})
		w.Slots[0].N = 1
		w.Log = slog.New(slog.NewTextHandler(&log, nil))
		drain := work(t, w)
		<-after
		drain()
		if j := lookUp(t, s, "a"); j.State != queue.Buried || !strings.Contains(j.Cause, "nil pointer") || strings.Contains(j.Cause, ".go:") {
			t.Errorf("job is %s, cause %q", j.State, j.Cause)
		}
		if !strings.Contains(log.String(), "worker_test.go:") {
			t.Errorf("the log has no stack: %s", log.String())
		}
	})
}

func TestSignalsArriveWithinASecondAndInOrder(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s, other := openIn(t, dir), openIn(t, dir)
		put(t, s, "a")
		send(t, other, "a", queue.Signal{ID: "before"})
		got := make(chan string)
		drain := work(t, worker(s, func(ctx context.Context, task *queue.Task) error {
			for g := range task.Signals() {
				got <- g.ID
				if g.ID == "last" {
					break
				}
			}
			return nil
		}))
		defer drain()
		if id := <-got; id != "before" {
			t.Fatalf("got %s first", id)
		}
		for i, from := range []*queue.SQLite{s, other, s, other} {
			start := time.Now()
			want := fmt.Sprint("s", i)
			send(t, from, "a", queue.Signal{ID: want})
			if id := <-got; id != want {
				t.Fatalf("got %s, want %s", id, want)
			}
			if d := time.Since(start); d > time.Second {
				t.Errorf("it took %v", d)
			}
		}
		// A reader that is slow holds up nothing, and misses nothing.
		var want []string
		for i := range 50 {
			want = append(want, fmt.Sprint("burst", i))
			send(t, other, "a", queue.Signal{ID: want[i]})
		}
		time.Sleep(2 * time.Minute) // virtual; many leases long
		send(t, other, "a", queue.Signal{ID: "last"})
		var all []string
		for len(all) < 51 {
			all = append(all, <-got)
		}
		if !slices.Equal(all, append(want, "last")) {
			t.Errorf("got %v", all)
		}
		if j := lookUp(t, s, "a"); j.Attempt != 1 {
			t.Errorf("attempt %d, want 1: the lease was lost meanwhile", j.Attempt)
		}
	})
}

func TestASignalThatATaskDidNotTakeWakesItAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		send(t, s, "a", queue.Signal{ID: "old"}) // never taken, and no reason to run again
		runs := make(chan int64)
		var heard []string
		drain := work(t, worker(s, func(ctx context.Context, task *queue.Task) error {
			runs <- task.Job.Attempt
			if task.Job.Attempt == 1 {
				send(t, s, "a", queue.Signal{ID: "new"})
				return errors.Join(task.Extend(ctx), queue.Later(time.Time{}, nil))
			}
			heard = append(heard, (<-task.Signals()).ID, (<-task.Signals()).ID)
			return queue.Later(time.Time{}, nil)
		}))
		defer drain()
		if first, second := <-runs, <-runs; first != 1 || second != 2 {
			t.Errorf("runs %d and %d", first, second)
		}
		select {
		case n := <-runs:
			t.Errorf("run %d without a new signal", n)
		case <-time.After(time.Minute):
		}
		if !slices.Equal(heard, []string{"old", "new"}) {
			t.Errorf("heard %v", heard)
		}
		if j := lookUp(t, s, "a"); j.State != queue.Parked {
			t.Errorf("job is %s", j.State)
		}
	})
}

func TestASignalFromBeforeTheClaimIsNoReasonToRunAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		send(t, s, "a", queue.Signal{ID: "old"})
		runs := make(chan int64)
		drain := work(t, worker(s, func(_ context.Context, task *queue.Task) error {
			runs <- task.Job.Attempt
			return queue.Later(time.Time{}, nil)
		}))
		defer drain()
		<-runs
		select {
		case n := <-runs:
			t.Errorf("run %d", n)
		case <-time.After(time.Minute):
		}
	})
}

func TestASignalThatArrivesAsTheRunReturnsIsNotLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		slow := &slowStore{Store: s, held: make(chan struct{}), release: make(chan struct{})}
		runs := make(chan int64, 2)
		drain := work(t, worker(slow, func(_ context.Context, task *queue.Task) error {
			runs <- task.Job.Attempt
			if task.Job.Attempt == 1 {
				slow.arm()
				send(t, s, "a", queue.Signal{ID: "late"})
				<-slow.held // the heartbeat has it, but has not brought it
			}
			return queue.Later(time.Time{}, nil)
		}))
		defer drain()
		<-runs
		<-slow.held
		synctest.Wait() // the run has returned
		close(slow.release)
		select {
		case <-runs:
		case <-time.After(time.Minute):
			t.Error("the job waits for a signal that was sent")
		}
	})
}

// slowStore holds up the answer to one Extend.
type slowStore struct {
	queue.Store
	armed         atomic.Bool
	held, release chan struct{}
}

func (s *slowStore) arm() { s.armed.Store(true) }

func (s *slowStore) Extend(ctx context.Context, l *queue.Lease) ([]queue.Signal, error) {
	// Let the call outlive the run, like one whose answer is under way.
	signals, err := s.Store.Extend(context.WithoutCancel(ctx), l)
	if len(signals) > 0 && s.armed.CompareAndSwap(true, false) {
		close(s.held)
		<-s.release
	}
	return signals, err
}

func TestAJobClaimedDuringADrainIsHandedBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		ctx, cancel := context.WithCancel(t.Context())
		w := worker(claimStore{s, cancel}, func(context.Context, *queue.Task) error {
			t.Error("it was run")
			return nil
		})
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		if j := lookUp(t, s, "a"); j.State != queue.Queued || j.Attempt != 1 || j.Retries != 0 {
			t.Errorf("job is %s after %d claims and %d retries, want queued, 1 and 0", j.State, j.Attempt, j.Retries)
		}
	})
}

// claimStore calls a function when a claim succeeds.
type claimStore struct {
	queue.Store
	claimed func()
}

func (c claimStore) Claim(ctx context.Context, worker string, kinds ...string) (*queue.Lease, error) {
	l, err := c.Store.Claim(ctx, worker, kinds...)
	if err == nil {
		c.claimed()
	}
	return l, err
}

func TestALostLeaseEndsTheTask(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		put(t, s, "a")
		cut := &cutStore{Store: s}
		started, cause := make(chan struct{}), make(chan error, 1)
		drain := work(t, worker(cut, func(ctx context.Context, task *queue.Task) error {
			if task.Job.Attempt > 1 {
				return nil
			}
			close(started)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			if err := task.Extend(context.WithoutCancel(ctx)); !errors.Is(err, queue.ErrLost) {
				t.Errorf("Extend: %v, want ErrLost", err)
			}
			return nil // must not settle what another has
		}))
		defer drain()
		<-started
		cut.set(errors.New("connection refused")) // the store is away for longer than a lease
		time.Sleep(time.Minute)
		select {
		case err := <-cause:
			t.Fatalf("the task ended (%v) though its lease may yet extend", err)
		default:
		}
		l, err := s.Claim(t.Context(), "other", "k")
		if err != nil {
			t.Fatal(err)
		}
		cut.set(nil)
		if err := <-cause; !errors.Is(err, queue.ErrLost) {
			t.Errorf("cause %v, want ErrLost", err)
		}
		synctest.Wait()
		if j := lookUp(t, s, "a"); j.State != queue.Running || j.Worker != "other" {
			t.Errorf("job is %s at %q, want running at the other", j.State, j.Worker)
		}
		if err := s.Done(t.Context(), l); err != nil {
			t.Error(err)
		}
	})
}

func TestAnOutageOfTheStoreCostsNoWork(t *testing.T) {
	for name, c := range map[string]struct{ away, ahead time.Duration }{
		"long":                          {4*queue.LeaseTime + 100*time.Millisecond, 0},
		"with a clock that is behind":   {queue.LeaseTime + 2*time.Second, -4 * time.Second},
		"with a clock that is in front": {queue.LeaseTime + 2*time.Second, 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				put(t, s, "a")
				cut := &cutStore{Store: s}
				started, finish := make(chan struct{}), make(chan struct{})
				drain := work(t, worker(skewed{cut, c.ahead}, func(ctx context.Context, task *queue.Task) error {
					started <- struct{}{}
					<-finish
					return ctx.Err()
				}))
				<-started
				cut.set(errors.New("connection refused"))
				time.Sleep(c.away)
				cut.set(nil) // the worker's next claim comes long before its heartbeat
				select {
				case <-started:
					t.Fatal("the worker took its own job over")
				case <-time.After(3 * queue.LeaseTime):
				}
				close(finish)
				synctest.Wait()
				drain()
				if j := lookUp(t, s, "a"); j.State != queue.Done || j.Attempt != 1 {
					t.Errorf("job is %s after %d claims, want done after one", j.State, j.Attempt)
				}
			})
		})
	}
}

// cutStore is a store whose connection a test can cut.
type cutStore struct {
	queue.Store
	mu  sync.Mutex
	err error
}

func (c *cutStore) set(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *cutStore) get() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *cutStore) Extend(ctx context.Context, l *queue.Lease) ([]queue.Signal, error) {
	if err := c.get(); err != nil {
		return nil, err
	}
	return c.Store.Extend(ctx, l)
}

func (c *cutStore) Claim(ctx context.Context, worker string, kinds ...string) (*queue.Lease, error) {
	if err := c.get(); err != nil {
		return nil, err
	}
	return c.Store.Claim(ctx, worker, kinds...)
}

func TestDrainHandsBackUncharged(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		for _, id := range []string{"stops", "fails", "finishes", "waits"} {
			put(t, s, id)
		}
		var started sync.WaitGroup
		started.Add(4)
		w := worker(s, func(ctx context.Context, task *queue.Task) error {
			started.Done()
			<-ctx.Done()
			if !errors.Is(context.Cause(ctx), queue.ErrDraining) {
				t.Errorf("cause %v, want ErrDraining", context.Cause(ctx))
			}
			time.Sleep(time.Minute) // its agents take their time; the lease must not run out
			switch task.Job.ID {
			case "finishes":
				return nil
			case "waits":
				return queue.Later(time.Time{}, nil)
			case "stops":
				return ctx.Err()
			}
			return errors.New("signal: killed")
		})
		w.Slots[0].N = 8
		drain := work(t, w)
		started.Wait()
		put(t, s, "left alone")
		synctest.Wait()
		drain()
		for id, want := range map[string]queue.State{
			"stops": queue.Queued, "fails": queue.Queued, "finishes": queue.Done, "waits": queue.Parked,
		} {
			if j := lookUp(t, s, id); j.State != want || j.Retries != 0 || j.Cause != "" || j.Attempt != 1 {
				t.Errorf("%s: %s, %d retries, cause %q, attempt %d; want %s", id, j.State, j.Retries, j.Cause, j.Attempt, want)
			}
		}
	})
}

func TestAJobThatKeepsCrashingIsGivenUp(t *testing.T) {
	for _, crashed := range []struct {
		name string
		f    func(context.Context, *queue.Task) error
	}{
		{"nobody to tell", nil},
		{"told", func(context.Context, *queue.Task) error { return nil }},
		{"telling panics", func(context.Context, *queue.Task) error { panic("x") }},
	} {
		t.Run(crashed.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				put(t, s, "a")
				crashFiveTimes(t, s)
				var told *queue.Lease
				why := ""
				w := worker(s, func(context.Context, *queue.Task) error {
					t.Error("it ran once more")
					return nil
				})
				if crashed.f != nil {
					w.Slots[0].GivenUp = func(ctx context.Context, task *queue.Task, cause error) error {
						told, why = task.Lease(), cause.Error()
						return crashed.f(ctx, task)
					}
				}
				drain := work(t, w)
				for lookUp(t, s, "a").State == queue.Running {
					time.Sleep(time.Second)
				}
				drain()
				if j := lookUp(t, s, "a"); j.State != queue.Buried || !strings.Contains(j.Cause, "crashed 5 times") {
					t.Errorf("job is %s, cause %q", j.State, j.Cause)
				}
				if crashed.f != nil && (told == nil || told.Crashes != 5 || !strings.Contains(why, "crashed 5 times")) {
					t.Errorf("GivenUp was called with %+v, %q", told, why)
				}
			})
		})
	}
}

// TestBurialIsTold looks at every way to the grave but the crashes.
func TestBurialIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		run  func(context.Context, *queue.Task) error
		want string // empty: it is not buried
	}{
		"never":   {func(context.Context, *queue.Task) error { return queue.Never(errors.New("no such repository")) }, "no such repository"},
		"panic":   {func(context.Context, *queue.Task) error { panic("boom") }, "boom"},
		"retries": {func(context.Context, *queue.Task) error { return errors.New("502") }, "given up after 8 retries: 502"},
		"done":    {func(context.Context, *queue.Task) error { return nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				put(t, s, "a")
				told := make(chan string, 2)
				w := worker(s, c.run)
				w.Slots[0].GivenUp = func(_ context.Context, _ *queue.Task, cause error) error {
					told <- cause.Error()
					return nil
				}
				drain := work(t, w)
				for !lookUp(t, s, "a").State.Finished() {
					time.Sleep(time.Second)
				}
				drain()
				close(told)
				got := ""
				for cause := range told {
					got += cause
				}
				if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
					t.Errorf("told %q, want %q", got, c.want)
				}
			})
		})
	}
}

func crashFiveTimes(t *testing.T, s queue.Store) {
	t.Helper()
	for range 5 {
		if _, err := s.Claim(t.Context(), "crashing", "k"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(queue.LeaseTime + time.Second)
	}
}

// A job is not buried before somebody was told, unless that will never work. It
// is not run again for that.
func TestABurialThatNobodyCouldBeToldOf(t *testing.T) {
	away := errors.New("GitHub is away")
	third := func(n int) error {
		if n < 3 {
			return away
		}
		return nil
	}
	for name, c := range map[string]struct {
		crashes bool
		result  error // nil panics
		untold  func(n int) error
		told    int // how often telling was tried
		runs    int
		within  time.Duration
	}{
		"told the third time": {false, queue.Never(errors.New("no such repository")), third, 3, 1, time.Minute},
		"told when its turn came": {false, queue.Never(errors.New("no such repository")), func(n int) error {
			if n < 2 {
				return fmt.Errorf("comment: %w", queue.Turn(time.Now().Add(time.Hour), away))
			}
			return nil
		}, 2, 1, time.Hour + time.Minute},
		"told by nobody that is there": {false, queue.Never(errors.New("no such repository")), func(int) error { return queue.Never(away) }, 1, 1, time.Minute},
		"after all retries":            {false, errors.New("502"), third, 3, 9, time.Hour},
		"a panic":                      {false, nil, third, 3, 1, time.Minute},
		"its worker's crashes":         {true, nil, third, 3, 0, 3 * time.Minute},
		"crashes, and when its turn came": {true, nil, func(n int) error {
			if n < 3 {
				return queue.Turn(time.Now().Add(time.Hour), away)
			}
			return nil
		}, 3, 0, 2*time.Hour + 3*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				put(t, s, "a")
				runs, told, start := 0, 0, time.Now()
				if c.crashes {
					crashFiveTimes(t, s)
				}
				w := worker(s, func(context.Context, *queue.Task) error {
					if runs++; c.result == nil {
						panic("boom")
					}
					return c.result
				})
				var causes []string
				w.Slots[0].GivenUp = func(_ context.Context, _ *queue.Task, cause error) error {
					told++
					causes = append(causes, cause.Error())
					return c.untold(told)
				}
				drain := work(t, w)
				for !lookUp(t, s, "a").State.Finished() {
					time.Sleep(time.Second)
				}
				took := time.Since(start)
				drain()
				j := lookUp(t, s, "a")
				if j.State != queue.Buried || told != c.told || runs != c.runs || took > c.within || j.Verdict != (queue.Verdict{}) {
					t.Errorf("job is %s after %d runs and %d tries to tell in %s: %+v", j.State, runs, told, took, j)
				}
				if causes = slices.Compact(causes); len(causes) != 1 || !strings.HasPrefix(j.Cause, causes[0]) {
					t.Errorf("it was to be told %q, and is buried for %q", causes, j.Cause)
				}
			})
		})
	}
}

// What nobody could be told of is told by whichever worker is there, for a week;
// then it is buried all the same. A resume in between makes it run again.
func TestAVerdictOutlivesItsWorker(t *testing.T) {
	const day = 24 * time.Hour
	for name, c := range map[string]struct {
		reopen bool
		after  time.Duration
		want   queue.State
		runs   int
	}{
		"six days on":  {false, 6 * day, queue.Parked, 0},
		"a week on":    {false, 7*day + time.Hour, queue.Buried, 0},
		"by a resume":  {true, 6 * day, queue.Done, 1},
		"resumed late": {true, 8 * day, queue.Done, 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) {
				s := openIn(t, dir)
				put(t, s, "a")
				crashFiveTimes(t, s)
				runs, told := 0, 0
				aWhile := func() {
					w := worker(s, func(context.Context, *queue.Task) error { runs++; return nil })
					w.Slots[0].GivenUp = func(context.Context, *queue.Task, error) error {
						told++
						return errors.New("502")
					}
					drain := work(t, w)
					time.Sleep(time.Second)
					drain()
				}
				aWhile()
				j, before := lookUp(t, s, "a"), told
				if j.State != queue.Parked || before != 1 || !strings.Contains(j.Verdict.Cause, "crashed 5 times") {
					t.Fatalf("after %d tries to tell: %+v", told, j)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(c.after)
				s = openIn(t, dir)
				if c.reopen {
					send(t, s, "a", queue.Signal{ID: "1", Kind: "resume", Reopen: true})
				}
				aWhile()
				if j := lookUp(t, s, "a"); j.State != c.want || runs != c.runs || (told > before) == c.reopen {
					t.Errorf("after %d runs and %d tries to tell, %d before: %+v", runs, told, before, j)
				}
			})
		})
	}
}

func TestWorkerIsRefusedWithoutANameOrWork(t *testing.T) {
	run := func(context.Context, *queue.Task) error { return nil }
	for name, w := range map[string]*queue.Worker{
		"no name":  {Slots: []queue.Slot{{Kinds: []string{"k"}, Run: run}}},
		"no kinds": {Name: "w", Slots: []queue.Slot{{Run: run}}},
		"no run":   {Name: "w", Slots: []queue.Slot{{Kinds: []string{"k"}}}},
	} {
		if err := w.Run(t.Context()); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestRunOne(t *testing.T) {
	broken := errors.New("broken")
	cases := []struct {
		name  string
		run   func(ctx context.Context, stop context.CancelFunc, task *queue.Task) error
		want  error
		state queue.State
	}{
		{"done", func(context.Context, context.CancelFunc, *queue.Task) error { return nil }, nil, queue.Done},
		{"waits, then done", func(_ context.Context, _ context.CancelFunc, task *queue.Task) error {
			if task.Job.Attempt == 1 {
				return queue.Later(time.Now().Add(time.Minute), nil)
			}
			return nil
		}, nil, queue.Done},
		{"never", func(context.Context, context.CancelFunc, *queue.Task) error { return queue.Never(broken) }, broken, queue.Buried},
		{"stopped", func(ctx context.Context, stop context.CancelFunc, _ *queue.Task) error {
			stop()
			<-ctx.Done()
			return ctx.Err()
		}, context.Canceled, queue.Queued},
		{"stopped while it waits", func(_ context.Context, stop context.CancelFunc, _ *queue.Task) error {
			time.AfterFunc(time.Minute, stop)
			return queue.Later(time.Time{}, nil)
		}, context.Canceled, queue.Parked},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *queue.SQLite) {
				put(t, s, "a")
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				err := queue.RunOne(ctx, s, "w", "k", func(ctx context.Context, task *queue.Task) error { return c.run(ctx, stop, task) })
				if !errors.Is(err, c.want) || c.want == nil && err != nil {
					t.Errorf("got %v, want %v", err, c.want)
				}
				if j := lookUp(t, s, "a"); j.State != c.state || j.Retries != 0 {
					t.Errorf("job is %s after %d retries, want %s", j.State, j.Retries, c.state)
				}
			})
		})
	}
	t.Run("nothing to claim", func(t *testing.T) {
		inBubble(t, func(t *testing.T, s *queue.SQLite) {
			if err := queue.RunOne(t.Context(), s, "w", "local/a", nil); !errors.Is(err, queue.ErrEmpty) {
				t.Errorf("got %v, want ErrEmpty", err)
			}
		})
	})
}

func TestSlotsBoundWhatRunsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *queue.SQLite) {
		for i := range 9 {
			put(t, s, fmt.Sprint(i))
		}
		var mu sync.Mutex
		running, most, ran := 0, 0, make(chan struct{}, 9)
		w := worker(s, func(ctx context.Context, task *queue.Task) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			time.Sleep(time.Minute)
			mu.Lock()
			running--
			mu.Unlock()
			ran <- struct{}{}
			return nil
		})
		w.Slots[0].N = 3
		drain := work(t, w)
		for range 9 {
			<-ran
		}
		drain()
		if most != 3 {
			t.Errorf("%d ran at once, want 3", most)
		}
	})
}
