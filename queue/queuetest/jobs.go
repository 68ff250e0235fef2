package queuetest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

var putCases = []testCase{
	{"a job comes back as it was put", func(t *testing.T, o Opened) {
		in := queue.Job{
			ID: "delivery/1?x=%20", Kind: "delivery", Key: "o/r#1", Once: "o/r#1@build", Tenant: "77", Priority: -3,
			NotBefore: time.Now().Add(240 * time.Hour), Payload: json.RawMessage(`{"text":"ü\u0000 <&>"}`),
			State: queue.Done, Attempt: 9, Retries: 9, Worker: "nobody", Cause: "ignored",
		}
		put(t, o.Store, in)
		got := wantState(t, o.Store, in.ID, queue.Queued)
		if got.Created.IsZero() || got.Updated.IsZero() {
			t.Errorf("created %v and updated %v, want both set", got.Created, got.Updated)
		}
		if d := got.NotBefore.Sub(in.NotBefore).Abs(); d > time.Millisecond {
			t.Errorf("NotBefore moved by %v", d)
		}
		want := in
		want.State, want.Attempt, want.Retries, want.Worker, want.Cause = queue.Queued, 0, 0, "", ""
		want.NotBefore, want.Created, want.Updated = got.NotBefore, got.Created, got.Updated
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
	}},
	{"a known id adds nothing, also when the job is finished", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Tenant: "first"})
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "a", "k")))
		open, added, err := o.Second(t).Put(t.Context(), queue.Job{ID: "a", Kind: "k", Tenant: "second"})
		if err != nil || added || open.Tenant != "first" || open.State != queue.Done {
			t.Errorf("Put = %+v, %v, %v; want the finished job", open, added, err)
		}
	}},
	{"a once value is taken until its job is finished", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k", Once: "o/r#1"})
		refused := func(when string) {
			t.Helper()
			open, added, err := o.Store.Put(t.Context(), queue.Job{ID: "b", Kind: "other", Once: "o/r#1"})
			if err != nil || added || open.ID != "a" {
				t.Fatalf("%s: Put = %s, %v, %v; want a, not added", when, open.ID, added, err)
			}
		}
		refused("queued")
		l := claim(t, o.Store, "w", "a", "k")
		refused("running")
		must(t, o.Store.Park(t.Context(), l, time.Time{}, nil))
		refused("parked")
		must(t, o.Store.Send(t.Context(), "a", queue.Signal{ID: "1", Kind: "go"}))
		must(t, o.Store.Bury(t.Context(), claim(t, o.Store, "w", "a", "k"), nil))
		put(t, o.Store, queue.Job{ID: "b", Kind: "other", Once: "o/r#1"})
	}},
	{"an empty once value is no value", func(t *testing.T, o Opened) {
		put(t, o.Store, queue.Job{ID: "a", Kind: "k"})
		put(t, o.Store, queue.Job{ID: "b", Kind: "k"})
	}},
	{"of sixteen that put one once value at the same time one adds", func(t *testing.T, o Opened) {
		stores := []queue.Store{o.Store, o.Second(t)}
		var wg sync.WaitGroup
		added := make([]bool, 16)
		ids := make([]string, 16)
		for i := range added {
			wg.Go(func() {
				open, ok, err := stores[i%2].Put(t.Context(), queue.Job{ID: fmt.Sprint("job-", i), Kind: "k", Once: "same"})
				if err != nil {
					t.Error(err)
				}
				added[i], ids[i] = ok, open.ID
			})
		}
		wg.Wait()
		first := slices.Index(added, true)
		if first < 0 || slices.Contains(added[first+1:], true) {
			t.Fatalf("added: %v, want exactly one", added)
		}
		for _, id := range ids {
			if id != ids[first] {
				t.Errorf("Put returned %s, want %s", id, ids[first])
			}
		}
	}},
	{"a job without id or kind is refused", func(t *testing.T, o Opened) {
		for _, j := range []queue.Job{{Kind: "k"}, {ID: "a"}} {
			if _, added, err := o.Store.Put(t.Context(), j); err == nil || added {
				t.Errorf("Put(%+v) = %v, %v; want an error", j, added, err)
			}
		}
	}},
	{"what was put outlives a crash", func(t *testing.T, o Opened) {
		for i := range 20 {
			put(t, o.Store, queue.Job{ID: fmt.Sprint(i), Kind: "k"})
		}
		s := o.Crash(t)
		for i := range 20 {
			claim(t, s, "w", fmt.Sprint(i), "k")
		}
	}},
}

var listCases = []testCase{
	{"a query selects by every field, newest first", func(t *testing.T, o Opened) {
		for _, j := range []queue.Job{
			{ID: "1", Kind: "build", Key: "r#1", Once: "r#1"},
			{ID: "2", Kind: "local/x", Key: "r#1"},
			{ID: "3", Kind: "local/y", Once: "r#3"},
			{ID: "4", Kind: "local"},
			{ID: "5", Kind: "delivery", Key: "r#1"},
		} {
			put(t, o.Store, j)
		}
		must(t, o.Store.Done(t.Context(), claim(t, o.Store, "w", "1", "build")))
		put(t, o.Store, queue.Job{ID: "6", Kind: "build", Once: "r#1"})
		for _, c := range []struct {
			name string
			q    queue.Query
			want string
		}{
			{"everything", queue.Query{}, "6 5 4 3 2 1"},
			{"ids", queue.Query{IDs: []string{"2", "6", "none"}}, "6 2"},
			{"kind is exact", queue.Query{Kinds: []string{"local"}}, "4"},
			{"kind prefix", queue.Query{Kinds: []string{"local/"}}, "3 2"},
			{"kinds together", queue.Query{Kinds: []string{"local/", "delivery"}}, "5 3 2"},
			{"once, finished too", queue.Query{Once: "r#1"}, "6 1"},
			{"key", queue.Query{Key: "r#1"}, "5 2 1"},
			{"unfinished", queue.Query{Unfinished: true}, "6 5 4 3 2"},
			{"all fields", queue.Query{IDs: []string{"1", "6"}, Kinds: []string{"build"}, Once: "r#1", Unfinished: true}, "6"},
			{"limit", queue.Query{Limit: 2}, "6 5"},
			{"nothing", queue.Query{Key: "r#9"}, ""},
		} {
			jobs, err := o.Store.List(t.Context(), c.q)
			must(t, err)
			var ids []string
			for _, j := range jobs {
				ids = append(ids, j.ID)
			}
			if got := strings.Join(ids, " "); got != c.want {
				t.Errorf("%s: got %q, want %q", c.name, got, c.want)
			}
		}
	}},
	{"a hundred when no limit is given", func(t *testing.T, o Opened) {
		var wg sync.WaitGroup
		for i := range 105 {
			wg.Go(func() {
				if _, _, err := o.Store.Put(t.Context(), queue.Job{ID: fmt.Sprint(i), Kind: "k"}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		jobs, err := o.Store.List(t.Context(), queue.Query{})
		must(t, err)
		if len(jobs) != 100 {
			t.Errorf("got %d jobs, want 100", len(jobs))
		}
	}},
	{"many jobs of kinds that are not equally many, each once", func(t *testing.T, o Opened) {
		const all = 700
		kind := func(i int) string {
			switch {
			case i < 30:
				return "old"
			case i%7 == 0:
				return "seldom"
			}
			return "often"
		}
		for i := range all {
			put(t, o.Store, queue.Job{ID: fmt.Sprint(i), Kind: kind(i)})
		}
		for _, c := range []struct {
			kinds []string
			limit int
		}{{nil, all}, {nil, all * 2}, {nil, 399}, {[]string{"often", "seldom"}, all}, {[]string{"seldom", "old"}, all}, {[]string{"old", "often"}, 205}} {
			var want []string
			for i := all - 1; i >= 0 && len(want) < c.limit; i-- {
				if c.kinds == nil || slices.Contains(c.kinds, kind(i)) {
					want = append(want, fmt.Sprint(i))
				}
			}
			jobs, err := o.Store.List(t.Context(), queue.Query{Kinds: c.kinds, Limit: c.limit})
			must(t, err)
			var got []string
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d of %v: got %d jobs, want %d\n%v\n%v", c.limit, c.kinds, len(got), len(want), got, want)
			}
		}
	}},
}
