package queuetest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

var journalCases = []testCase{
	{"a step comes back as it was recorded", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		in := queue.Entry{
			Key: "issue-07/round-2/iter-1/coder", Kind: queue.Effect, Input: "sha256:00", Outcome: json.RawMessage(`{"text":"ü \" <&>"}`),
			Commit: "c0ffee", CostMicros: 123_456_789_012, Tokens: queue.Tokens{Input: 1, Output: 2, CacheRead: 3, CacheWrite: 4},
			Duration: 1500 * time.Millisecond, Runtime: "claude_code", Model: "sonnet", Credential: "did:key:z6Mk",
			At: time.Date(2026, 3, 1, 12, 0, 0, 123_000_000, time.UTC),
		}
		seq, err := o.Store.Append(t.Context(), l, in)
		must(t, err)
		in.Seq = seq
		for _, s := range []queue.Store{o.Store, o.Second(t)} {
			got, err := s.Entries(t.Context(), "a", 0)
			must(t, err)
			if len(got) != 1 || fmt.Sprintf("%+v", got[0]) != fmt.Sprintf("%+v", in) {
				t.Errorf("got  %+v\nwant %+v", got, in)
			}
		}
	}},
	{"a step without an outcome or a time", func(t *testing.T, o Opened) {
		created := put(t, o.Store, queue.Job{ID: "a", Kind: "k"}).Created
		_, err := o.Store.Append(t.Context(), claim(t, o.Store, "w", "a", "k"), queue.Entry{Key: "start", Kind: queue.Choice})
		must(t, err)
		got, err := o.Store.Entries(t.Context(), "a", 0)
		must(t, err)
		if len(got) != 1 || got[0].Outcome != nil || got[0].At.Before(created.Add(-time.Second)) {
			t.Errorf("got %+v", got)
		}
	}},
	{"entries after a number, in order, of this job only", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k"})
		a, b := claim(t, o.Store, "w", "a", "k"), claim(t, o.Store, "w", "b", "k")
		var seqs []int64
		for i := range 4 {
			seq, err := o.Store.Append(t.Context(), a, entry(fmt.Sprint(i)))
			must(t, err)
			seqs = append(seqs, seq)
			_, err = o.Store.Append(t.Context(), b, entry(fmt.Sprint(i)))
			must(t, err)
		}
		got, err := o.Store.Entries(t.Context(), "a", seqs[1])
		must(t, err)
		if len(got) != 2 || got[0].Seq != seqs[2] || got[0].Key != "2" || got[1].Seq != seqs[3] || got[1].Key != "3" {
			t.Errorf("after %d: %+v", seqs[1], got)
		}
		got, err = o.Store.Entries(t.Context(), "a", seqs[3])
		if err != nil || len(got) != 0 {
			t.Errorf("after the last: %v, %v", got, err)
		}
	}},
	{"no journal without a job", func(t *testing.T, o Opened) {
		_, err := o.Store.Entries(t.Context(), "a", 0)
		wantErr(t, "Entries", err, queue.ErrUnknown)
	}},
	{"a key is recorded once, also by a later lease", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		_, err := o.Store.Append(t.Context(), l, entry("1"))
		must(t, err)
		again := entry("1")
		again.Outcome = json.RawMessage(`"another"`)
		_, err = o.Store.Append(t.Context(), l, again)
		wantErr(t, "same lease", err, queue.ErrRecorded)
		o.Advance(o.Lease + time.Second)
		_, err = o.Store.Append(t.Context(), claim(t, o.Store, "w2", "a", "k"), again)
		wantErr(t, "next lease", err, queue.ErrRecorded)
		got, err := o.Store.Entries(t.Context(), "a", 0)
		must(t, err)
		if len(got) != 1 || string(got[0].Outcome) != `{"of":"1"}` {
			t.Errorf("journal %+v, want the first outcome alone", got)
		}
	}},
	{"a step without a key is refused", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		if _, err := o.Store.Append(t.Context(), claim(t, o.Store, "w", "a", "k"), queue.Entry{Kind: queue.Call}); err == nil {
			t.Error("it was accepted")
		}
	}},
	{"outcomes of any size come back whole", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		var want []json.RawMessage
		for i, size := range []int{32<<10 - 2, 32<<10 - 1, 40 << 10, 40 << 10, 1 << 20} {
			out := json.RawMessage(`"` + strings.Repeat("x", size) + `"`) // two quotes more
			_, err := o.Store.Append(t.Context(), l, queue.Entry{Key: fmt.Sprint(i), Kind: queue.Call, Outcome: out})
			must(t, err)
			want = append(want, out)
		}
		got, err := o.Crash(t).Entries(t.Context(), "a", 0)
		must(t, err)
		if len(got) != len(want) {
			t.Fatalf("got %d entries, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i].Outcome, want[i]) {
				t.Errorf("outcome %d: got %d bytes, want %d", i, len(got[i].Outcome), len(want[i]))
			}
		}
	}},
	{"sixteen writers of one journal lose nothing, and one wins each shared key", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		l := claim(t, o.Store, "w", "a", "k")
		const writers, steps = 16, 8
		var mu sync.Mutex
		acked, won := map[string]int64{}, map[string]int{}
		stores := []queue.Store{o.Store, o.Second(t)}
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range steps {
					for _, key := range []string{fmt.Sprintf("w%d/%d", w, i), fmt.Sprintf("shared/%d", i)} {
						seq, err := stores[w%2].Append(t.Context(), l, entry(key))
						if err != nil && !errors.Is(err, queue.ErrRecorded) {
							t.Errorf("append %s: %v", key, err)
							return
						}
						if err == nil {
							mu.Lock()
							acked[key] = seq
							won[key]++
							mu.Unlock()
						}
					}
				}
			})
		}
		wg.Wait()
		got, err := o.Crash(t).Entries(t.Context(), "a", 0)
		must(t, err)
		if len(got) != writers*steps+steps {
			t.Errorf("journal has %d steps, want %d", len(got), writers*steps+steps)
		}
		last := int64(0)
		for _, e := range got {
			if e.Seq <= last || acked[e.Key] != e.Seq || won[e.Key] != 1 {
				t.Errorf("step %s has number %d after %d, acknowledged as %d to %d writers", e.Key, e.Seq, last, acked[e.Key], won[e.Key])
			}
			last = e.Seq
		}
	}},
}

var limitCases = []testCase{
	{"an empty limit always has room", func(t *testing.T, o Opened) {
		for range 3 {
			if wait, err := o.Store.Take(t.Context(), "b", 1_000_000, nil); wait != 0 || err != nil {
				t.Errorf("Take = %v, %v", wait, err)
			}
		}
	}},
	{"a window slides exactly, and every rate must have room", func(t *testing.T, o Opened) {
		const unit = time.Minute // so that what a slow machine takes does not count
		limit := queue.Limit{{Max: 2, Per: unit}, {Max: 5, Per: 60 * unit}}
		stores := []queue.Store{o.Store, o.Second(t)}
		began := time.Now()
		for i, c := range []struct {
			after time.Duration // since the step before
			n     int64
			room  bool
			wait  time.Duration
		}{
			{0, 2, true, 0},                        // 0: 2
			{0, 1, false, unit},                    // the short rate is full
			{2 * unit / 5, 1, false, 3 * unit / 5}, // still
			{3 * unit / 5, 1, true, 0},             // 1: 3 in the long one
			{0, 2, false, unit},                    // all or nothing
			{0, 1, true, 0},                        // 4
			{2 * unit, 2, false, 57 * unit},        // 3: the long rate has room for one
			{0, 1, true, 0},                        // 5
			{10 * unit, 1, false, 47 * unit},       // 13: the first two leave at 60
			{46 * unit, 1, false, unit},            // 59
			{unit, 2, true, 0},                     // 60
			{unit / 2, 2, false, unit / 2},         // 60.5: both rates say 61
			{unit / 2, 2, true, 0},                 // 61
			{unit / 2, 1, false, 3 * unit / 2},     // 61.5: the long rate says 63, the short one 62
		} {
			o.Advance(c.after)
			wait, err := stores[i%2].Take(t.Context(), "b", c.n, limit)
			must(t, err)
			// The clock may also move by itself; not by more than the test takes.
			if c.room != (wait == 0) || wait > c.wait || wait < c.wait-time.Since(began) {
				t.Fatalf("step %d: wait %v, want %v", i, wait, c.wait)
			}
		}
	}},
	{"a closed bucket gives nobody anything until its time", func(t *testing.T, o Opened) {
		const unit = time.Minute // so that what a slow machine takes does not count
		limit := queue.Limit{{Max: 5, Per: unit}}
		began := time.Now()
		second := o.Second(t)
		take := func(s queue.Store, bucket string, n int64, limit queue.Limit, want time.Duration) {
			t.Helper()
			wait, err := s.Take(t.Context(), bucket, n, limit)
			must(t, err)
			// The clock may also move by itself; not by more than the test takes.
			if (wait > 0) != (want > 0) || wait > want || wait < want-time.Since(began) {
				t.Fatalf("Take(%s, %d, %v) = %v, want %v", bucket, n, limit, wait, want)
			}
		}
		take(o.Store, "b", 0, nil, 0)
		take(o.Store, "b", 5, limit, 0)
		take(o.Store, "b", 0, nil, 0) // full, but not closed
		take(o.Store, "b", 1, queue.Closed(30*unit), 0)
		take(second, "b", 1, queue.Closed(10*unit), 0) // does not open it earlier
		for _, s := range []queue.Store{o.Store, second} {
			take(s, "b", 1, limit, 30*unit)
			take(s, "b", 0, nil, 30*unit)
			take(s, "b", -100, nil, 0) // nor does giving back
			take(s, "b", 0, nil, 30*unit)
			take(s, "other", 0, nil, 0)
			take(s, "other", 1, limit, 0)
		}
		o.Advance(20 * unit)
		take(second, "b", 1, limit, 10*unit)
		o.Advance(10 * unit)
		take(second, "b", 0, nil, 0)
		take(o.Store, "b", 5, limit, 0)
		take(second, "b", 1, limit, unit) // as if it had never been closed
		take(second, "b", 1, queue.Closed(60*unit), 0)
		take(o.Store, "b", 1, limit, 60*unit)
	}},
	{"buckets are apart", func(t *testing.T, o Opened) {
		limit := queue.Limit{{Max: 1, Per: time.Hour}}
		for _, bucket := range []string{"a", "b", ""} {
			if wait, err := o.Store.Take(t.Context(), bucket, 1, limit); wait != 0 || err != nil {
				t.Errorf("Take(%q) = %v, %v", bucket, wait, err)
			}
		}
	}},
	{"what could never fit is an error", func(t *testing.T, o Opened) {
		limit := queue.Limit{{Max: 9, Per: time.Hour}, {Max: 3, Per: time.Second}}
		if wait, err := o.Store.Take(t.Context(), "b", 4, limit); err == nil {
			t.Errorf("Take(4) = %v, want an error", wait)
		}
		if wait, err := o.Store.Take(t.Context(), "b", 0, limit); wait != 0 || err != nil {
			t.Errorf("Take(0) = %v, %v", wait, err)
		}
	}},
	{"what is given back can be taken again, and nothing more", func(t *testing.T, o Opened) {
		const max, per = 6, time.Minute
		stores := []queue.Store{o.Store, o.Second(t)}
		for i, c := range []struct {
			after time.Duration // since the step before
			n     int64
			age   time.Duration // of what is given back
			room  bool
			wait  time.Duration
		}{
			{n: -3, room: true}, // nothing is taken: nothing comes of it
			{n: 6, room: true},
			{n: 1, wait: time.Minute},
			{n: -2, room: true}, // 0 s: 4
			{n: 3, wait: time.Minute},
			{n: 2, room: true}, // 0 s: 6
			{after: 10 * time.Second, n: -4, age: 10 * time.Second, room: true}, // 0 s: 2
			{n: 4, room: true}, // 10 s: 4
			{after: 10 * time.Second, n: -3, age: 15 * time.Second, room: true}, // 0 s: 0, and no more are so old
			{n: 3, wait: 50 * time.Second},
			{n: 2, room: true},                                                 // 20 s: 2
			{after: 10 * time.Second, n: -3, age: 5 * time.Second, room: true}, // the newest first: 20 s: 0, 10 s: 3
			{n: 5, wait: 40 * time.Second},
			{n: 3, room: true},                                // 30 s: 3
			{n: -100, age: 10 * time.Second, room: true},      // more than was taken: 10 s: 0
			{n: 4, wait: time.Minute},                         // the others count on
			{n: 3, room: true},                                // 30 s: 6
			{after: time.Minute, n: -6, age: per, room: true}, // they have left the window
			{n: 6, room: true},
			{n: 1, wait: time.Minute},
		} {
			o.Advance(c.after)
			limit := queue.Limit{{Max: max, Per: per}}
			if c.n < 0 {
				limit = queue.Limit{{Per: c.age}}
			}
			wait, err := stores[i%2].Take(t.Context(), "b", c.n, limit)
			must(t, err)
			if c.room != (wait == 0) || (c.wait-wait).Abs() > 300*time.Millisecond {
				t.Fatalf("step %d: wait %v, want %v", i, wait, c.wait)
			}
		}
	}},
	{"nothing that is given back makes an old unit young", func(t *testing.T, o Opened) {
		limit := queue.Limit{{Max: 100, Per: time.Hour}}
		for range 90 { // each takes ten and uses one, for an hour and a half
			wait, err := o.Store.Take(t.Context(), "b", 10, limit)
			must(t, err)
			if wait != 0 {
				t.Fatalf("wait %v, and only 60 an hour are used", wait)
			}
			o.Advance(time.Minute)
			_, err = o.Store.Take(t.Context(), "b", -9, queue.Limit{{Per: time.Minute}})
			must(t, err)
		}
	}},
	{"what is given back comes from its bucket alone", func(t *testing.T, o Opened) {
		limit := queue.Limit{{Max: 2, Per: time.Hour}}
		for _, bucket := range []string{"a", "b"} {
			_, err := o.Store.Take(t.Context(), bucket, 2, limit)
			must(t, err)
		}
		_, err := o.Store.Take(t.Context(), "a", -2, nil)
		must(t, err)
		for bucket, room := range map[string]bool{"a": true, "b": false} {
			if wait, err := o.Store.Take(t.Context(), bucket, 2, limit); room != (wait == 0) || err != nil {
				t.Errorf("Take(%q) = %v, %v", bucket, wait, err)
			}
		}
	}},
	{"what was taken outlives a crash", func(t *testing.T, o Opened) {
		limit := queue.Limit{{Max: 1, Per: time.Hour}}
		_, err := o.Store.Take(t.Context(), "b", 1, limit)
		must(t, err)
		if wait, err := o.Crash(t).Take(t.Context(), "b", 1, limit); wait == 0 || err != nil {
			t.Errorf("Take = %v, %v; want to wait", wait, err)
		}
	}},
	{"sixteen at the same time get no more than there is", func(t *testing.T, o Opened) {
		stores := []queue.Store{o.Store, o.Second(t)}
		var mu sync.Mutex
		got := 0
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for range 3 {
					wait, err := stores[i%2].Take(t.Context(), "b", 2, queue.Limit{{Max: 21, Per: time.Hour}})
					if err != nil {
						t.Error(err)
						return
					}
					if wait == 0 {
						mu.Lock()
						got += 2
						mu.Unlock()
					}
				}
			})
		}
		wg.Wait()
		if got != 20 {
			t.Errorf("%d were taken, want 20", got)
		}
	}},
}
