package queuetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

var claimCases = []testCase{
	{"a lease says whose it is and how long", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Payload: []byte(`{"n":1}`)})
		before := job(t, o.Store, "a").Created
		l := claim(t, o.Store, "w", "a", "k")
		if l.Attempt != 1 || l.Job.Attempt != 1 || l.Worker != "w" || l.Job.Worker != "w" || l.Job.State != queue.Running ||
			l.Crashes != 0 || l.Seen != 0 || string(l.Job.Payload) != `{"n":1}` {
			t.Errorf("lease %+v", l)
		}
		if d := l.Until.Sub(before); d < o.Lease || d > o.Lease+time.Minute {
			t.Errorf("it lasts %v, want %v", d, o.Lease)
		}
		if j := wantState(t, o.Second(t), "a", queue.Running); j.Worker != "w" || j.Attempt != 1 {
			t.Errorf("others see %+v", j)
		}
		none(t, o.Store, "w", "k")
	}},
	{"kinds match exactly", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "local/a"})
		none(t, o.Store, "w", "local/", "local", "local/A", "local/a/", "%")
		none(t, o.Store, "w")
		claim(t, o.Store, "w", "a", "x", "local/a")
	}},
	{"the highest priority of a tenant first, then the oldest", func(t *testing.T, o Opened) {
		for i, p := range []int{0, 5, -1, 5, 0} {
			put(t, o.Store, queue.Job{ID: fmt.Sprint(i), Kind: "k", Priority: p})
		}
		for _, id := range []string{"1", "3", "0", "4", "2"} {
			claim(t, o.Store, "w", id, "k")
		}
	}},
	{"the order holds across the kinds of one claim", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "old", Kind: "b"})
		put(t, o.Store, queue.Job{ID: "new", Kind: "a"})
		put(t, o.Store, queue.Job{ID: "urgent", Kind: "a", Priority: 1})
		for _, id := range []string{"urgent", "old", "new"} {
			claim(t, o.Store, "w", id, "a", "b")
		}
	}},
	{"sixty jobs of one tenant do not delay another's first", func(t *testing.T, o Opened) {
		for i := range 60 {
			put(t, o.Store, queue.Job{ID: fmt.Sprint("busy-", i), Kind: "k", Tenant: "busy", Priority: 9})
		}
		claim(t, o.Store, "w", "busy-0", "k")
		put(t, o.Store, queue.Job{ID: "other", Kind: "k", Tenant: "other"})
		claim(t, o.Store, "w", "other", "k")
		claim(t, o.Store, "w", "busy-1", "k")
	}},
	{"the tenant with the fewest running, then the least recently served", func(t *testing.T, o Opened) {
		for i := range 3 {
			for _, tenant := range []string{"a", "b", "c"} {
				put(t, o.Store, queue.Job{ID: fmt.Sprint(tenant, i), Kind: "k", Tenant: tenant})
			}
		}
		leases := map[string]*queue.Lease{}
		for range 3 {
			l, err := o.Store.Claim(t.Context(), "w", "k")
			must(t, err)
			leases[l.Job.Tenant] = l
		}
		if len(leases) != 3 {
			t.Fatalf("three claims served %d tenants", len(leases))
		}
		must(t, o.Store.Done(t.Context(), leases["b"]))
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "b1", "k"))) // the fewest running
		must(t, o.Store.Done(t.Context(), leases["c"]))
		claim(t, o.Store, "w", "c1", "k") // b and c run none; c was served longer ago
		claim(t, o.Store, "w", "b2", "k")
	}},
	{"a tenant whose keys are all busy does not hold up the others", func(t *testing.T, o Opened) {
		for i := range 40 {
			tenant := fmt.Sprint("t", i)
			for j := range 2 {
				put(t, o.Store, queue.Job{ID: fmt.Sprint(tenant, "-", j), Kind: "k", Tenant: tenant, Key: tenant})
			}
		}
		for range 40 {
			_, err := o.Store.Claim(t.Context(), "w", "k")
			must(t, err)
		}
		none(t, o.Store, "w", "k")
		put(t, o.Store, queue.Job{ID: "last", Kind: "k", Tenant: "t39", Key: "free"})
		claim(t, o.Store, "w", "last", "k")
	}},
	{"jobs of one kind and key run one at a time, in their order", func(t *testing.T, o Opened) {
		for _, id := range []string{"1", "2", "3"} {
			put(t, o.Store, queue.Job{ID: id, Kind: "k", Key: "o/r#1", Tenant: id})
		}
		other := o.Second(t)
		for _, id := range []string{"1", "2", "3"} {
			l := claim(t, o.Store, "w", id, "k")
			none(t, other, "w2", "k")
			must(t, o.Store.Done(t.Context(), l))
		}
	}},
	{"a key blocks neither another kind nor the empty key", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "build", Kind: "build", Key: "o/r#1"})
		put(t, o.Store, queue.Job{ID: "cancel", Kind: "delivery", Key: "o/r#1"})
		put(t, o.Store, queue.Job{ID: "x", Kind: "build"})
		put(t, o.Store, queue.Job{ID: "y", Kind: "build"})
		claim(t, o.Store, "w", "build", "build")
		claim(t, o.Store, "w", "cancel", "delivery")
		claim(t, o.Store, "w", "x", "build")
		claim(t, o.Store, "w", "y", "build")
	}},
	{"a job does not start before its time", func(t *testing.T, o Opened) {
		now := put(t, o.Store, queue.Job{ID: "now", Kind: "k"}).Created
		put(t, o.Store, queue.Job{ID: "later", Kind: "k", NotBefore: now.Add(time.Hour), Priority: 1})
		claim(t, o.Store, "w", "now", "k")
		o.Advance(59 * time.Minute)
		must(t, o.Store.Send(t.Context(), "later", queue.Signal{ID: "1"}))
		l, err := o.Store.Claim(t.Context(), "w", "k")
		must(t, err)
		if l.Job.ID != "now" {
			t.Fatalf("claimed %s, want the expired job", l.Job.ID)
		}
		none(t, o.Store, "w", "k")
		o.Advance(2 * time.Minute)
		claim(t, o.Store, "w2", "now", "k") // abandoned first
		claim(t, o.Store, "w2", "later", "k")
	}},
	{"an expired lease is taken over, and its holder has lost", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Key: "x"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k", Key: "x"})
		old := claim(t, o.Store, "w1", "a", "k")
		other := o.Second(t)
		o.Advance(o.Lease - time.Second)
		none(t, other, "w2", "k")
		o.Advance(2 * time.Second)
		l := claim(t, other, "w2", "a", "k")
		if l.Attempt != 2 || l.Crashes != 1 {
			t.Errorf("attempt %d and crashes %d, want 2 and 1", l.Attempt, l.Crashes)
		}
		ctx := t.Context()
		_, err := o.Store.Extend(ctx, old)
		wantErr(t, "Extend", err, queue.ErrLost)
		_, err = o.Store.Append(ctx, old, entry("late"))
		wantErr(t, "Append", err, queue.ErrLost)
		wantErr(t, "Park", o.Store.Park(ctx, old, time.Time{}, nil), queue.ErrLost)
		wantErr(t, "Bury", o.Store.Bury(ctx, old, nil), queue.ErrLost)
		wantErr(t, "Done", o.Store.Done(ctx, old), queue.ErrLost)
		must(t, other.Done(ctx, l))
		wantErr(t, "Done twice", other.Done(ctx, l), queue.ErrLost)
		wantState(t, o.Store, "a", queue.Done)
	}},
	{"an expired lease that nobody claimed extends, appends and settles", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Key: "x"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "other", Key: "x"})
		l := claim(t, o.Store, "w1", "a", "k")
		o.Advance(10 * o.Lease)
		claim(t, o.Second(t), "w2", "b", "other") // a claim of other kinds takes nothing away
		_, err := o.Store.Append(t.Context(), l, entry("1"))
		must(t, err)
		before := l.Until
		extend(t, o.Store, l)
		if !l.Until.After(before.Add(9 * o.Lease)) {
			t.Errorf("Until went from %v to %v", before, l.Until)
		}
		none(t, o.Second(t), "w3", "k")
		o.Advance(2 * o.Lease)
		must(t, o.Store.Done(t.Context(), l))
	}},
	{"no job of the key starts while an expired lease is not taken over", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Key: "x"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k", Key: "x", Priority: 9})
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "b", "k")))
		put(t, o.Store, queue.Job{ID: "c", Kind: "k", Key: "x", Priority: 9})
		first := claim(t, o.Store, "w", "c", "k")
		o.Advance(2 * o.Lease)
		claim(t, o.Store, "w", "c", "k")
		none(t, o.Store, "w", "k")
		wantErr(t, "Done", o.Store.Done(t.Context(), first), queue.ErrLost)
	}},
	{"the lease of a dead process is free within two seconds", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		claim(t, o.Store, "w1", "a", "k")
		none(t, o.Second(t), "w2", "k")
		s := o.Crash(t)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for {
			l, err := s.Claim(ctx, "w3", "k")
			if err == nil {
				if l.Attempt != 2 || l.Crashes != 1 {
					t.Errorf("attempt %d and crashes %d, want 2 and 1", l.Attempt, l.Crashes)
				}
				return
			}
			wantErr(t, "Claim", err, queue.ErrEmpty)
			must(t, s.Wait(ctx, "k"))
		}
	}},
	{"a worker that restarts under its name takes its own leases over", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		old := claim(t, o.Store, "w", "a", "k")
		s := o.Crash(t)
		claim(t, s, "w", "a", "k")
		_, err := s.Extend(t.Context(), old)
		wantErr(t, "Extend", err, queue.ErrLost)
	}},
	{"crashes in a row are counted until a call or an effect is recorded or the job settles", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		crash := func(want int) {
			t.Helper()
			o.Advance(o.Lease + time.Second)
			l = claim(t, o.Store, "w", "a", "k")
			if l.Crashes != want {
				t.Fatalf("crashes = %d, want %d", l.Crashes, want)
			}
		}
		crash(1)
		crash(2)
		_, err := o.Store.Append(t.Context(), l, entry("1"))
		must(t, err)
		crash(0)
		_, err = o.Store.Append(t.Context(), l, queue.Entry{Key: "budget/2", Kind: queue.Choice})
		must(t, err)
		crash(1) // what it was about to do is no progress
		must(t, o.Store.Park(t.Context(), l, time.Unix(1, 0), nil))
		l = claim(t, o.Store, "w", "a", "k")
		if l.Crashes != 0 || l.Job.Retries != 0 {
			t.Fatalf("after a wait: crashes %d and retries %d, want 0 and 0", l.Crashes, l.Job.Retries)
		}
		crash(1)
	}},
	{"a job that always crashes is buried in the end", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Key: "x"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k", Key: "x"})
		for i := range 9 {
			if l := claim(t, o.Store, "w", "a", "k"); l.Crashes != i {
				t.Fatalf("crashes = %d, want %d", l.Crashes, i)
			}
			o.Advance(o.Lease + time.Second)
		}
		claim(t, o.Store, "w", "b", "k") // its key is free again
		if j := wantState(t, o.Store, "a", queue.Buried); !strings.Contains(j.Cause, "9 times") {
			t.Errorf("cause %q", j.Cause)
		}
	}},
	{"of eight workers each job has one at a time", func(t *testing.T, o Opened) {
		const jobs, keys = 80, 7
		for i := range jobs {
			put(t, o.Store, queue.Job{ID: fmt.Sprint(i), Kind: "k", Key: fmt.Sprint("key-", i%keys), Tenant: fmt.Sprint(i % 3)})
		}
		var mu sync.Mutex
		busy, done := map[string]bool{}, map[string]int{}
		finished := func() bool { mu.Lock(); defer mu.Unlock(); return len(done) == jobs }
		stores := []queue.Store{o.Store, o.Second(t)}
		var wg sync.WaitGroup
		for i := range 8 {
			s := stores[i%2]
			wg.Go(func() {
				for !finished() {
					l, err := s.Claim(t.Context(), fmt.Sprintf("client %d", i%2), "k")
					if errors.Is(err, queue.ErrEmpty) {
						err = s.Wait(t.Context(), "k")
						if err == nil {
							continue
						}
					}
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					if busy[l.Job.Key] {
						t.Errorf("two jobs of key %s run together", l.Job.Key)
					}
					busy[l.Job.Key] = true
					done[l.Job.ID]++
					mu.Unlock()
					_, err = s.Append(t.Context(), l, entry("ran"))
					mu.Lock()
					busy[l.Job.Key] = false
					mu.Unlock()
					if err := errors.Join(err, s.Done(t.Context(), l)); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		for id, n := range done {
			if n != 1 {
				t.Errorf("job %s ran %d times", id, n)
			}
		}
	}},
}

var settleCases = []testCase{
	{"a delivery is forgotten a week after it was handled, a build is not, nor what is open", func(t *testing.T, o Opened) {
		for _, kind := range []string{"delivery", "build"} {
			put(t, o.Store, queue.Job{ID: kind, Kind: kind, Key: "o/r#1", Once: kind})
			l := claim(t, o.Store, "w", kind, kind)
			_, err := o.Store.Append(t.Context(), l, entry("step"))
			must(t, err)
			must(t, o.Store.Done(t.Context(), l))
		}
		began := wantState(t, o.Store, "delivery", queue.Done).Created
		put(t, o.Store, queue.Job{ID: "waits", Kind: "delivery", NotBefore: began.Add(30 * 24 * time.Hour)})
		o.Advance(6 * 24 * time.Hour)
		none(t, o.Store, "w", "delivery")
		wantState(t, o.Store, "delivery", queue.Done)
		o.Advance(2 * 24 * time.Hour)
		none(t, o.Store, "w", "delivery")
		wantState(t, o.Store, "build", queue.Done)
		_, err := o.Store.Entries(t.Context(), "delivery", 0)
		wantErr(t, "the journal of a forgotten delivery", err, queue.ErrUnknown)
		wantState(t, o.Store, "waits", queue.Queued)
	}},
	{"done and buried are final", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k"})
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "a", "k")))
		must(t, o.Store.Bury(t.Context(), claim(t, o.Store, "w", "b", "k"), errors.New("no such repository")))
		o.Advance(100 * o.Lease)
		none(t, o.Store, "w", "k")
		if j := wantState(t, o.Store, "a", queue.Done); j.Cause != "" || j.Worker != "" {
			t.Errorf("done: %+v", j)
		}
		if j := wantState(t, o.Store, "b", queue.Buried); j.Cause != "no such repository" || j.Worker != "" {
			t.Errorf("buried: %+v", j)
		}
	}},
	{"parked until a time", func(t *testing.T, o Opened) {
		now := put(t, o.Store, queue.Job{ID: "a", Kind: "k"}).Created
		l := claim(t, o.Store, "w", "a", "k")
		must(t, o.Store.Park(t.Context(), l, now.Add(time.Minute), nil))
		if j := wantState(t, o.Store, "a", queue.Parked); j.NotBefore.Sub(now).Round(time.Second) != time.Minute || j.Cause != "" {
			t.Errorf("parked: %+v", j)
		}
		none(t, o.Store, "w", "k")
		_, err := o.Store.Append(t.Context(), l, entry("late"))
		wantErr(t, "Append after Park", err, queue.ErrLost)
		o.Advance(61 * time.Second)
		if l := claim(t, o.Store, "w", "a", "k"); l.Attempt != 2 || l.Job.Retries != 0 || l.Crashes != 0 {
			t.Errorf("lease %+v", l)
		}
	}},
	{"parked without a time waits for a signal alone", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), time.Time{}, nil))
		o.Advance(10_000 * time.Hour)
		none(t, o.Store, "w", "k")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1", Kind: "approve"}))
		claim(t, o.Store, "w", "a", "k")
	}},
	{"a signal wakes a job parked until a time", func(t *testing.T, o Opened) {
		now := put(t, o.Store, queue.Job{ID: "a", Kind: "k"}).Created
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), now.Add(time.Hour), nil))
		must(t, o.Second(t).Send(t.Context(), "a", queue.Signal{ID: "1", Kind: "cancel"}))
		claim(t, o.Store, "w", "a", "k")
	}},
	{"parked until the past is claimable at once", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), time.Unix(1, 0), nil))
		claim(t, o.Store, "w", "a", "k")
	}},
	{"a verdict stays until a job is finished", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		for i, cause := range []string{"no luck", "another"} {
			l := claim(t, o.Store, "w", "a", "k")
			if want := []string{"", "no luck"}[i]; l.Job.Verdict.Cause != want || l.Job.Verdict.Since.IsZero() != (want == "") {
				t.Errorf("claim %d has the verdict %+v", i+1, l.Job.Verdict)
			}
			must(t, o.Store.Park(t.Context(), l, l.Until.Add(-time.Hour), queue.Untold(errors.New(cause), errors.New("502"))))
		}
		j := wantState(t, o.Second(t), "a", queue.Queued)
		if j.Verdict.Cause != "no luck" || j.Verdict.Since.Before(j.Created) || j.Verdict.Since.After(j.Updated) || j.Retries != 2 ||
			j.Cause != "another; and nobody could be told: 502" {
			t.Errorf("job %+v", j)
		}
		must(t, o.Store.Park(t.Context(), claim(t, o.Store, "w", "a", "k"), j.Created, nil)) // of a worker that drains
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1", Kind: "steer"}))
		l := claim(t, o.Store, "w", "a", "k")
		if l.Job.Verdict != j.Verdict {
			t.Errorf("the verdict is %+v, was %+v", l.Job.Verdict, j.Verdict)
		}
		must(t, o.Store.Bury(t.Context(), l, errors.New("no luck")))
		if j := wantState(t, o.Store, "a", queue.Buried); j.Verdict != (queue.Verdict{}) {
			t.Errorf("buried with the verdict %+v", j.Verdict)
		}
	}},
	{"a reopening signal lifts a verdict, whenever it comes", func(t *testing.T, o Opened) {
		judge := func(l *queue.Lease) {
			t.Helper()
			must(t, o.Store.Park(t.Context(), l, l.Until.Add(time.Hour), queue.Untold(errors.New("no luck"), errors.New("502"))))
		}
		for when, lift := range map[string]func(id string, reopen func()){
			"parked": func(id string, reopen func()) {
				judge(claim(t, o.Store, "w", id, id))
				reopen()
			},
			"while it is told of": func(id string, reopen func()) {
				judge(claim(t, o.Store, "w", id, id))
				must(t, o.Store.Send(t.Context(), id, queue.Signal{ID: "wake"}))
				l := claim(t, o.Store, "w", id, id)
				reopen()
				judge(l)
			},
			"while it is told of for the first time": func(id string, reopen func()) {
				l := claim(t, o.Store, "w", id, id)
				reopen()
				judge(l)
			},
		} {
			id := strings.ReplaceAll(when, " ", "-")
			put(t, o.Store, queue.Job{ID: id, Kind: id})
			lift(id, func() { must(t, o.Store.Send(t.Context(), id, queue.Signal{ID: "1", Kind: "resume", Reopen: true})) })
			if l := claim(t, o.Store, "w", id, id); l.Job.Verdict != (queue.Verdict{}) || l.Crashes != 0 {
				t.Errorf("%s: claimed with %+v", when, l)
			}
		}
	}},
	{"a cause counts as a retry and is kept", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		for i := range 3 {
			l := claim(t, o.Store, "w", "a", "k")
			if l.Job.Retries != i || l.Job.Cause != "" {
				t.Fatalf("retries %d and cause %q, want %d and none", l.Job.Retries, l.Job.Cause, i)
			}
			must(t, o.Store.Park(t.Context(), l, l.Job.Updated.Add(time.Second), errors.New("502 from GitHub")))
			if j := wantState(t, o.Store, "a", queue.Parked); j.Retries != i+1 || j.Cause != "502 from GitHub" {
				t.Fatalf("parked: %+v", j)
			}
			o.Advance(2 * time.Second)
		}
	}},
	{"a signal not yet returned makes a parked job claimable at once", func(t *testing.T, o Opened) {
		now := put(t, o.Store, queue.Job{ID: "a", Kind: "k"}).Created
		l := claim(t, o.Store, "w", "a", "k")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1"}))
		extend(t, o.Store, l)
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "2"}))
		must(t, o.Store.Park(t.Context(), l, now.Add(time.Hour), nil))
		l = claim(t, o.Store, "w", "a", "k")
		extend(t, o.Store, l)
		must(t, o.Store.Park(t.Context(), l, now.Add(time.Hour), nil))
		wantState(t, o.Store, "a", queue.Parked)
	}},
}
