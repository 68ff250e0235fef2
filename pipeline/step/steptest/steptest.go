// Package steptest keeps a journal in memory, for tests of what runs on one.
// It fences like a store does: only the newest lease can append.
package steptest

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// A Log is a step.Log of one job. The zero value is empty and ready.
type Log struct {
	// Refuse, if set, may turn an append into an error.
	Refuse func(ctx context.Context, e queue.Entry) error

	mu      sync.Mutex
	attempt int64
	entries []queue.Entry
}

// Claim takes the job: a lease given before can append no more.
func (l *Log) Claim() *queue.Lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.attempt++
	return &queue.Lease{Job: queue.Job{ID: "job"}, Attempt: l.attempt}
}

// Open claims the job and opens its journal.
func (l *Log) Open(t testing.TB, o step.Options) *step.Journal {
	t.Helper()
	j, err := step.Open(t.Context(), l, l.Claim(), o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// Append records e, unless the lease is not the newest or the key is there.
func (l *Log) Append(ctx context.Context, lease *queue.Lease, e queue.Entry) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	if l.Refuse != nil {
		if err := l.Refuse(ctx, e); err != nil {
			return 0, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease.Attempt != l.attempt {
		return 0, queue.ErrLost
	}
	if slices.ContainsFunc(l.entries, func(known queue.Entry) bool { return known.Key == e.Key }) {
		return 0, queue.ErrRecorded
	}
	e.Seq = int64(len(l.entries)) + 1
	l.entries = append(l.entries, e)
	return e.Seq, nil
}

// Entries returns what was appended after seq.
func (l *Log) Entries(_ context.Context, _ string, after int64) ([]queue.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.entries[min(after, int64(len(l.entries))):]), nil
}

// Keys returns the stored keys in order.
func (l *Log) Keys() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var keys []string
	for _, e := range l.entries {
		keys = append(keys, e.Key)
	}
	return keys
}
