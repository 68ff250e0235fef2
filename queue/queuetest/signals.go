package queuetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

var signalCases = []testCase{
	{"each signal comes once on a lease, in order, as it was sent", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k"})
		other := o.Second(t)
		must(t, other.Send(t.Context(), "a", queue.Signal{ID: "early", Kind: "steer", Body: []byte(`{"text":"ü"}`)}))
		must(t, other.Send(t.Context(), "b", queue.Signal{ID: "early", Kind: "cancel"}))
		l := claim(t, o.Store, "w", "a", "k")
		got, err := o.Store.Extend(t.Context(), l)
		must(t, err)
		if len(got) != 1 || got[0].Kind != "steer" || string(got[0].Body) != `{"text":"ü"}` || got[0].Sent.IsZero() || got[0].Reopen {
			t.Fatalf("got %+v", got)
		}
		var want []string
		for i := range 10 {
			id := fmt.Sprint("s", i)
			must(t, other.Send(t.Context(), "a", queue.Signal{ID: id}))
			want = append(want, id)
		}
		if got := extend(t, o.Store, l); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := extend(t, o.Store, l); len(got) != 0 {
			t.Errorf("again: %v", got)
		}
	}},
	{"a signal id counts once for a job", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		var wg sync.WaitGroup
		for _, s := range []queue.Store{o.Store, o.Second(t), o.Store} {
			wg.Go(func() {
				if err := s.Send(t.Context(), "a", queue.Signal{ID: "same"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := extend(t, o.Store, l); len(got) != 1 {
			t.Errorf("got %v, want one", got)
		}
		must(t, o.Store.Done(t.Context(), l))
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "same", Reopen: true}))
		wantState(t, o.Store, "a", queue.Done)
	}},
	{"a new lease gets every signal again: the old one may have died with them", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1"}))
		extend(t, o.Store, l)
		o.Advance(o.Lease + time.Second)
		l = claim(t, o.Store, "w", "a", "k")
		if got := extend(t, o.Store, l); !slices.Equal(got, []string{"1"}) {
			t.Errorf("got %v, want 1", got)
		}
	}},
	{"signals outlive a crash", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1"}))
		s := o.Crash(t)
		if got := extend(t, s, claim(t, s, "w", "a", "k")); !slices.Equal(got, []string{"1"}) {
			t.Errorf("got %v, want 1", got)
		}
	}},
	{"nobody is there to hear", func(t *testing.T, o Opened) {
		wantErr(t, "unknown job", o.Store.Send(t.Context(), "a", queue.Signal{ID: "1"}), queue.ErrUnknown)
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		if err := o.Store.Send(t.Context(), "a", queue.Signal{Kind: "cancel"}); err == nil {
			t.Error("a signal without id was accepted")
		}
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "a", "k")))
		wantErr(t, "finished job", o.Store.Send(t.Context(), "a", queue.Signal{ID: "1"}), queue.ErrFinished)
	}},
	{"a reopening signal puts a finished job back, with fresh counters", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), time.Unix(1, 0), errors.New("x")))
		l := claim(t, o.Store, "w", "a", "k")
		_, err := o.Store.Append(t.Context(), l, entry("1"))
		must(t, err)
		must(t, o.Store.Bury(t.Context(), l, errors.New("budget")))
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "r", Kind: "resume", Reopen: true}))
		wantState(t, o.Store, "a", queue.Queued)
		l = claim(t, o.Store, "w", "a", "k")
		if l.Attempt != 3 || l.Job.Retries != 0 || l.Crashes != 0 || l.Job.Cause != "" {
			t.Errorf("lease %+v", l)
		}
		if got, err := o.Store.Entries(t.Context(), "a", 0); err != nil || len(got) != 1 {
			t.Errorf("journal: %v, %v; want the one step", got, err)
		}
		must(t, o.Store.Done(t.Context(), l)) // claimed because of the signal, not to be claimed for it again
		wantState(t, o.Store, "a", queue.Done)
	}},
	{"a job buried for its crashes starts anew when reopened", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		for range 9 {
			claim(t, o.Store, "w", "a", "k")
			o.Advance(o.Lease + time.Second)
		}
		none(t, o.Store, "w", "k")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "r", Reopen: true}))
		if l := claim(t, o.Store, "w", "a", "k"); l.Crashes != 0 {
			t.Errorf("crashes %d, want 0", l.Crashes)
		}
	}},
	{"a job does not reopen while another has its once value", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Once: "x"})
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "a", "k")))
		put(t, o.Store, queue.Job{ID: "b", Kind: "k", Once: "x"})
		reopening := queue.Signal{ID: "r", Reopen: true}
		wantErr(t, "Send", o.Store.Send(t.Context(), "a", reopening), queue.ErrOpen)
		wantState(t, o.Store, "a", queue.Done)
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "b", "k")))
		must(t, o.Store.Send(t.Context(), "a", reopening)) // the refused one was not delivered
		claim(t, o.Store, "w", "a", "k")
	}},
	{"a reopening signal that comes too late for the run is not lost", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		for i, settle := range []func(*queue.Lease) error{
			func(l *queue.Lease) error { return o.Store.Done(t.Context(), l) },
			func(l *queue.Lease) error { return o.Store.Bury(t.Context(), l, errors.New("x")) },
		} {
			l := claim(t, o.Store, "w", "a", "k")
			extend(t, o.Store, l)
			must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: fmt.Sprint(i), Reopen: true}))
			must(t, settle(l))
			wantState(t, o.Store, "a", queue.Queued)
		}
		l := claim(t, o.Store, "w", "a", "k")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "seen", Reopen: true}))
		extend(t, o.Store, l)
		must(t, o.Store.Done(t.Context(), l))
		wantState(t, o.Store, "a", queue.Done)
	}},
}

// promptly checks that something takes less than the second after which a Wait
// may return by itself. One of three tries is enough: machines are busy at times.
func promptly(t *testing.T, do func(try int)) {
	t.Helper()
	var took time.Duration
	for try := range 3 {
		start := time.Now()
		do(try)
		if took = time.Since(start); took < 800*time.Millisecond {
			return
		}
	}
	t.Errorf("it took %v", took)
}

var waitCases = []testCase{
	{"a put of this client ends a wait at once, also one that begins right after", func(t *testing.T, o Opened) {
		promptly(t, func(try int) {
			for i := range 6 { // all in the time of one
				done := waits(t.Context(), o.Store, "other", "k")
				put(t, o.Store, queue.Job{ID: fmt.Sprint(try, "-", i), Kind: "k"})
				must(t, <-done)
			}
		})
	}},
	{"a put of another client ends a wait within a second", func(t *testing.T, o Opened) {
		other := o.Second(t)
		promptly(t, func(i int) {
			done := waits(t.Context(), o.Store, "k")
			put(t, other, queue.Job{ID: fmt.Sprint(i), Kind: "k"})
			must(t, <-done)
			claim(t, o.Store, "w", fmt.Sprint(i), "k")
		})
	}},
	{"a signal ends a wait for signals, whoever sends it", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		for _, sender := range []queue.Store{o.Store, o.Second(t)} {
			promptly(t, func(i int) {
				done := waits(t.Context(), o.Store, queue.SignalsOf("a"))
				must(t, sender.Send(t.Context(), "a", queue.Signal{ID: fmt.Sprintf("%p-%d", sender, i)}))
				must(t, <-done)
			})
		}
		if got := extend(t, o.Store, l); len(got) < 2 {
			t.Errorf("got %v, want what both sent", got)
		}
	}},
	{"a signal that wakes a parked job ends a wait for its kind", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), time.Time{}, nil))
		promptly(t, func(i int) {
			done := waits(t.Context(), o.Store, "k")
			must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: fmt.Sprint(i)}))
			must(t, <-done)
		})
	}},
	{"a wait comes back for a job that falls due and a lease that ends", func(t *testing.T, o Opened) {
		now := put(t, o.Store, queue.Job{ID: "a", Kind: "k"}).Created
		put(t, o.Store, queue.Job{ID: "b", Kind: "k", NotBefore: now.Add(time.Hour)})
		claim(t, o.Store, "w1", "a", "k")
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		done := waits(ctx, o.Store, "k")
		o.Advance(2 * time.Hour)
		must(t, <-done)
		claim(t, o.Store, "w2", "a", "k")
		claim(t, o.Store, "w2", "b", "k")
	}},
	{"a wait ends with its context", func(t *testing.T, o Opened) {
		ctx, cancel := context.WithCancel(t.Context())
		done := waits(ctx, o.Store, queue.SignalsOf("a"))
		cancel()
		wantErr(t, "Wait", <-done, context.Canceled)
	}},
}
