// Package queuetest holds every back end of package queue to the promises of
// queue.Store. A back end's test calls Run with a way to open it.
package queuetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// Opened is an empty store and the hooks that the suite needs. What a factory
// opens, it also closes, with t.Cleanup.
type Opened struct {
	Store queue.Store
	// Lease is how long a lease lasts by the store's clock.
	Lease time.Duration
	// Advance moves the clock of every client of the store forward. Nothing
	// else moves it by more than real time.
	Advance func(d time.Duration)
	// Second opens another client of the same data, as another process would.
	Second func(t *testing.T) queue.Store
	// Crash ends Store as if its process had been killed, and opens the data
	// again.
	Crash func(t *testing.T) queue.Store
}

// Run runs the suite.
func Run(t *testing.T, open func(t *testing.T) Opened) {
	groups := []struct {
		name  string
		cases []testCase
	}{
		{"put", putCases},
		{"claim", claimCases},
		{"settle", settleCases},
		{"signal", signalCases},
		{"journal", journalCases},
		{"limit", limitCases},
		{"wait", waitCases},
		{"list", listCases},
	}
	for _, g := range groups {
		t.Run(g.name, func(t *testing.T) {
			for _, c := range g.cases {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					c.run(t, open(t))
				})
			}
		})
	}
	t.Run("any order of calls keeps the invariants", func(t *testing.T) { runModel(t, open(t)) })
}

type testCase struct {
	name string
	run  func(t *testing.T, o Opened)
}

// put adds a job that must be new.
func put(t *testing.T, s queue.Store, j queue.Job) queue.Job {
	t.Helper()
	open, added, err := s.Put(t.Context(), j)
	if err != nil || !added || open.ID != j.ID {
		t.Fatalf("Put(%s) = %s, added %v, %v; want it added", j.ID, open.ID, added, err)
	}
	return open
}

// claim leases the job that must come next.
func claim(t *testing.T, s queue.Store, worker, id string, kinds ...string) *queue.Lease {
	t.Helper()
	l, err := s.Claim(t.Context(), worker, kinds...)
	if err != nil {
		t.Fatalf("Claim by %s: %v; want job %s", worker, err, id)
	}
	if l.Job.ID != id {
		t.Fatalf("Claim by %s = job %s, want %s", worker, l.Job.ID, id)
	}
	return l
}

// none checks that nothing can be claimed.
func none(t *testing.T, s queue.Store, worker string, kinds ...string) {
	t.Helper()
	if l, err := s.Claim(t.Context(), worker, kinds...); !errors.Is(err, queue.ErrEmpty) {
		t.Fatalf("Claim by %s = %+v, %v; want ErrEmpty", worker, l, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("%s: got error %v, want %v", what, got, want)
	}
}

// extend renews a lease and returns the ids of the signals that came with it.
func extend(t *testing.T, s queue.Store, l *queue.Lease) []string {
	t.Helper()
	signals, err := s.Extend(t.Context(), l)
	must(t, err)
	ids := []string{}
	for _, g := range signals {
		ids = append(ids, g.ID)
	}
	return ids
}

// job reads a job that must exist.
func job(t *testing.T, s queue.Store, id string) queue.Job {
	t.Helper()
	jobs, err := s.List(t.Context(), queue.Query{IDs: []string{id}})
	must(t, err)
	if len(jobs) != 1 {
		t.Fatalf("List(%s) returned %d jobs", id, len(jobs))
	}
	return jobs[0]
}

func wantState(t *testing.T, s queue.Store, id string, want queue.State) queue.Job {
	t.Helper()
	j := job(t, s, id)
	if j.State != want {
		t.Fatalf("job %s is %s, want %s", id, j.State, want)
	}
	return j
}

func entry(key string) queue.Entry {
	return queue.Entry{Key: key, Kind: queue.Call, Outcome: json.RawMessage(fmt.Sprintf(`{"of":%q}`, key))}
}

// waits begins a Wait and reports when it returns.
func waits(ctx context.Context, s queue.Store, topics ...string) <-chan error {
	done := make(chan error, 1)
	go func() { done <- s.Wait(ctx, topics...) }()
	return done
}
