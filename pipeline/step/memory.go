package step

import (
	"context"
	"slices"
	"sync"

	"github.com/slipway-dev/slipway/queue"
)

// Memory is the log of one job that ends with the process. The zero value is
// empty and ready; its methods may be called from many goroutines.
type Memory struct {
	mu      sync.Mutex
	attempt int64
	entries []queue.Entry
}

// Open claims the job and opens its journal: who had it before can append no more.
func (m *Memory) Open(ctx context.Context, o Options) (*Journal, error) {
	m.mu.Lock()
	m.attempt++
	lease := &queue.Lease{Job: queue.Job{ID: "memory"}, Attempt: m.attempt}
	m.mu.Unlock()
	return Open(ctx, memoryLog{m}, lease, o)
}

// Entries returns what is recorded so far, in order.
func (m *Memory) Entries() []Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries)
}

// memoryLog is a Memory as a Journal sees it.
type memoryLog struct{ *Memory }

func (m memoryLog) Append(_ context.Context, l *queue.Lease, e queue.Entry) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.Attempt != m.attempt {
		return 0, queue.ErrLost
	}
	e.Seq = int64(len(m.entries)) + 1
	m.entries = append(m.entries, e)
	return e.Seq, nil
}

func (m memoryLog) Entries(_ context.Context, _ string, after int64) ([]queue.Entry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.entries[min(int(after), len(m.entries)):]), nil
}

// IsChoice reports whether the entry records what timing decided.
func IsChoice(e Entry) bool { return e.Kind == queue.Choice }

// IsCall reports whether the entry records a call of an agent or of the
// engine's commands.
func IsCall(e Entry) bool { return e.Kind == queue.Call }
