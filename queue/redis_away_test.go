package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// A talk is a log that a test reads while it is written.
type talk struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *talk) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *talk) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Redis goes away, or takes nothing more, while a worker has a step to record
// and the inbox a delivery: the step waits, and the delivery is refused.
func TestAStepOutlastsARedisThatTakesNothing(t *testing.T) {
	configure := func(name, value string) func(*testing.T, *queuetest.Redis) {
		return func(t *testing.T, r *queuetest.Redis) {
			c := r.Client()
			defer c.Close() //nolint:errcheck // nothing is left to send
			if err := c.ConfigSet(t.Context(), name, value).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	kill := func(_ *testing.T, r *queuetest.Redis) { r.Kill() }
	restart := func(_ *testing.T, r *queuetest.Redis) {
		r.Kill()
		r.Start()
	}
	for name, c := range map[string]struct {
		args        []string
		leave, back func(*testing.T, *queuetest.Redis)
		late        bool // it acknowledges what comes before it finds out
		says        string
	}{
		"killed":             {leave: kill, back: restart, says: "refused"},
		"out of memory":      {leave: configure("maxmemory", "1"), back: configure("maxmemory", "0"), says: "OOM "},
		"without a replica":  {leave: configure("min-replicas-to-write", "1"), back: configure("min-replicas-to-write", "0"), says: "NOREPLICAS "},
		"ended by full disk": {leave: func(_ *testing.T, r *queuetest.Redis) { r.FillDisk() }, back: restart, says: "refused"},
		"with a full disk": {
			args:  []string{"--appendfsync", "everysec"},
			leave: func(_ *testing.T, r *queuetest.Redis) { r.FillDisk() }, back: func(_ *testing.T, r *queuetest.Redis) { r.FreeDisk() },
			late: true, says: "MISCONF ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := queuetest.StartRedis(t, c.args...)
			var log talk
			s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: r.URL(), Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close() //nolint:errcheck // nothing is left to settle
			put(t, s, "a")
			l, err := s.Claim(t.Context(), "w", "k")
			if err != nil {
				t.Fatal(err)
			}
			c.leave(t, r)
			acknowledged := 0
			refused := deliver(t, s, "delivery-0")
			for ; refused == nil; refused = deliver(t, s, fmt.Sprint("delivery-", acknowledged)) {
				acknowledged++
			}
			if !errors.Is(refused, queue.ErrAway) && !errors.Is(refused, context.DeadlineExceeded) {
				t.Errorf("a delivery was refused with %v, want that the store is away", refused)
			}
			if acknowledged > 0 && !c.late {
				t.Errorf("%d deliveries were acknowledged", acknowledged)
			}
			recorded := make(chan error)
			go func() {
				_, err := s.Append(t.Context(), l, queue.Entry{Key: "paid", Kind: queue.Call})
				recorded <- err
			}()
			short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, err := s.Append(short, l, queue.Entry{Key: "impatient", Kind: queue.Call}); err == nil || errors.Is(err, queue.ErrLost) {
				t.Errorf("Append meanwhile: %v, want that it cannot be recorded", err)
			}
			for !strings.Contains(log.String(), c.says) {
				select {
				case err := <-recorded:
					t.Fatalf("Append = %v before Redis said %q: %s", err, c.says, log.String())
				case <-time.After(10 * time.Millisecond):
				}
			}
			c.back(t, r)
			if err := <-recorded; err != nil {
				t.Fatal(err)
			}
			wantPaidOnce(t, s, l)
			there, err := s.List(t.Context(), queue.Query{Kinds: []string{"delivery"}, Limit: 10_000})
			if err != nil || len(there) != acknowledged {
				t.Errorf("%d deliveries are there, %v; want the %d that were acknowledged", len(there), err, acknowledged)
			}
		})
	}
}

// wantPaidOnce checks that the step "paid" alone is in the journal of a lease's job,
// and that the lease holds.
func wantPaidOnce(t *testing.T, s queue.Store, l *queue.Lease) {
	t.Helper()
	entries, err := s.Entries(t.Context(), l.Job.ID, 0)
	if err != nil || len(entries) != 1 || entries[0].Key != "paid" {
		t.Errorf("journal %+v, %v; want the one step", entries, err)
	}
	if err := s.Done(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// deliver puts a delivery, for which GitHub waits only so long.
func deliver(t *testing.T, s queue.Store, id string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _, err := s.Put(ctx, queue.Job{ID: id, Kind: "delivery"})
	return err
}
