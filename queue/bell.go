package queue

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// A bell wakes the waiters of a topic. A topic that rang while nobody listened,
// before the first Wait of a loop or between two, wakes the next one that comes.
type bell struct {
	mu     sync.Mutex
	topics map[string]*topic // those with waiters, and those that were missed
}

type topic struct {
	waiters []*waiter
	missed  bool
}

type waiter struct {
	topics []string
	rung   chan struct{} // holds one
}

// maxMissed bounds the memory of rings that nobody ever came for.
const maxMissed = 4096

func newBell() *bell { return &bell{topics: map[string]*topic{}} }

func (b *bell) listen(topics []string) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := &waiter{topics: topics, rung: make(chan struct{}, 1)}
	for _, name := range topics {
		t := b.topic(name)
		if t.missed {
			t.missed = false
			w.wake()
		}
		t.waiters = append(t.waiters, w)
	}
	return w
}

func (b *bell) leave(w *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, name := range w.topics {
		t := b.topic(name)
		t.waiters = slices.DeleteFunc(t.waiters, func(o *waiter) bool { return o == w })
		if len(t.waiters) == 0 && !t.missed {
			delete(b.topics, name)
		}
	}
}

func (b *bell) ring(topics ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.topics) > maxMissed {
		maps.DeleteFunc(b.topics, func(_ string, t *topic) bool { return len(t.waiters) == 0 })
	}
	for _, name := range topics {
		t := b.topic(name)
		t.missed = len(t.waiters) == 0
		for _, w := range t.waiters {
			w.wake()
		}
	}
}

func (b *bell) topic(name string) *topic {
	t := b.topics[name]
	if t == nil {
		t = &topic{}
		b.topics[name] = t
	}
	return t
}

func (w *waiter) wake() {
	select {
	case w.rung <- struct{}{}:
	default:
	}
}

// waitAtMost is when a waiter on kinds comes back in any case: a job falls due,
// a lease runs out or a worker dies without anybody ringing.
const waitAtMost = time.Second

// wait is Store's Wait; it also ends when the store is closing.
func (b *bell) wait(ctx context.Context, closing <-chan struct{}, kinds []string) error {
	var tick <-chan time.Time
	if slices.ContainsFunc(kinds, func(k string) bool { return !strings.HasPrefix(k, SignalsOf("")) }) {
		timer := time.NewTimer(waitAtMost)
		defer timer.Stop()
		tick = timer.C
	}
	w := b.listen(kinds)
	defer b.leave(w)
	select {
	case <-w.rung:
		return nil
	case <-tick:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closing:
		return errClosed
	}
}

// ringAll wakes every waiter: rings may have been missed.
func (b *bell) ringAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.topics {
		for _, w := range t.waiters {
			w.wake()
		}
	}
}
