package queue_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

func openRedis(t testing.TB, url, dir string) *queue.Redis {
	t.Helper()
	s, err := queue.OpenRedis(t.Context(), queue.RedisOptions{URL: url, Dir: dir, Log: slog.New(slog.DiscardHandler)})
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

// soon claims as a worker does until there is something.
func soon(t testing.TB, s queue.Store, within time.Duration, kind string) *queue.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		l, err := s.Claim(ctx, "parent", kind)
		if err == nil {
			return l
		}
		if errors.Is(err, queue.ErrEmpty) {
			err = s.Wait(ctx, kind)
		}
		if err != nil {
			t.Fatalf("nothing was claimed within %v: %v", within, err)
		}
	}
}

func TestRedisTakeoverAfterKill9(t *testing.T) {
	for name, c := range map[string]struct {
		apart  bool // on another host: no directory is shared
		within time.Duration
	}{
		"on the same host":  {false, 2 * time.Second},
		"from another host": {true, queue.LeaseTime + 2*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			r := queuetest.StartRedis(t)
			s := openRedis(t, r.URL(), dir)
			if c.apart {
				dir = t.TempDir()
			}
			if _, _, err := s.Put(t.Context(), queue.Job{ID: "a", Kind: "journal"}); err != nil {
				t.Fatal(err)
			}
			lines, _, _, kill := startWith(t, childRole+"=hold", childURL+"="+r.URL(), childDir+"="+dir, childName+"=child")
			if !lines.Scan() || lines.Text() != "held" {
				t.Fatalf("the child said %q", lines.Text())
			}
			if l, err := s.Claim(t.Context(), "parent", "journal"); !errors.Is(err, queue.ErrEmpty) {
				t.Fatalf("Claim = %v, %v while the child lives", l, err)
			}
			kill()
			if l := soon(t, s, c.within, "journal"); l.Attempt != 2 || l.Crashes != 1 {
				t.Errorf("attempt %d and crashes %d, want 2 and 1", l.Attempt, l.Crashes)
			}
		})
	}
}

// A process that was stopped and comes back after its lease was taken over can
// change nothing any more.
func TestRedisFencesAWorkerThatWasStopped(t *testing.T) {
	t.Parallel()
	r := queuetest.StartRedis(t)
	s := openRedis(t, r.URL(), t.TempDir())
	if _, _, err := s.Put(t.Context(), queue.Job{ID: "a", Kind: "journal"}); err != nil {
		t.Fatal(err)
	}
	lines, in, process, _ := startWith(t, childRole+"=hold", childURL+"="+r.URL(), childDir+"="+t.TempDir(), childName+"=child")
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the child said %q", lines.Text())
	}
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l := soon(t, s, queue.LeaseTime+2*time.Second, "journal")
	_, err := s.Append(t.Context(), l, queue.Entry{Key: "mine", Kind: queue.Call})
	if err == nil {
		err = process.Signal(syscall.SIGCONT)
	}
	if err == nil {
		_, err = io.WriteString(in, "go on\n")
	}
	if err != nil {
		t.Fatal(err)
	}
	if !lines.Scan() || lines.Text() != "true true true" {
		t.Errorf("append, extend and done were fenced off: %s", lines.Text())
	}
	entries, err := s.Entries(t.Context(), "a", 0)
	if err != nil || len(entries) != 1 || entries[0].Key != "mine" {
		t.Errorf("journal %+v, %v; want the new worker's step alone", entries, err)
	}
	if err := s.Done(t.Context(), l); err != nil {
		t.Error(err)
	}
}

// Redis is killed again and again while deliveries pour in: each that was
// acknowledged is there, once.
func TestWhatRedisAcknowledgedSurvivesItsKill9(t *testing.T) {
	r := queuetest.StartRedis(t)
	s := openRedis(t, r.URL(), t.TempDir())
	const kills = 20
	ctx, stop := context.WithCancel(t.Context())
	var mu sync.Mutex
	var acked []string
	progress := make(chan struct{})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				if _, _, err := s.Put(ctx, queue.Job{ID: id, Kind: "delivery", Payload: []byte(`{"n":1}`)}); err != nil {
					continue // GitHub was told
				}
				mu.Lock()
				acked = append(acked, id)
				mu.Unlock()
				select {
				case progress <- struct{}{}:
				default:
				}
			}
		})
	}
	for range kills {
		for range 40 {
			<-progress
		}
		r.Kill()
		r.Start()
	}
	<-progress
	stop()
	all.Wait()
	jobs, err := s.List(t.Context(), queue.Query{Kinds: []string{"delivery"}, Limit: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]int{}
	for _, j := range jobs {
		there[j.ID]++
	}
	for _, id := range acked {
		if there[id] != 1 {
			t.Errorf("%s was acknowledged and is there %d times", id, there[id])
		}
	}
	t.Logf("%d deliveries were acknowledged over %d ends of Redis", len(acked), kills)
}

// While Redis is away for more than a lease nobody can renew theirs. When it is
// back, who works goes on: nobody takes the job, and nobody's work is thrown away.
func TestNobodyIsTakenOverForRedisBeingAway(t *testing.T) {
	for name, c := range map[string]struct{ leave, back func(*queuetest.Redis) }{
		"it stood still":   {(*queuetest.Redis).Stop, (*queuetest.Redis).Continue},
		"it was not there": {(*queuetest.Redis).Kill, (*queuetest.Redis).Start},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := queuetest.StartRedis(t)
			ctx, stop := context.WithCancel(t.Context())
			began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
			run := func(ctx context.Context, task *queue.Task) error {
				if attempt := task.Lease().Attempt; attempt != 1 {
					ended <- fmt.Errorf("attempt %d began", attempt)
					return nil
				}
				close(began)
				select {
				case <-goOn:
				case <-ctx.Done():
					ended <- context.Cause(ctx)
				}
				return nil
			}
			var workers sync.WaitGroup
			defer workers.Wait()
			defer stop()
			var s *queue.Redis
			for i := range 2 { // whoever has the job has a rival
				s = openRedis(t, r.URL(), t.TempDir())
				w := &queue.Worker{
					Store: s, Name: fmt.Sprint("worker-", i), Log: slog.New(slog.DiscardHandler),
					Slots: []queue.Slot{{Kinds: []string{"long"}, Run: run}},
				}
				workers.Go(func() { _ = w.Run(ctx) })
			}
			if _, _, err := s.Put(t.Context(), queue.Job{ID: "a", Kind: "long"}); err != nil {
				t.Fatal(err)
			}
			<-began
			c.leave(r)
			<-time.After(queue.LeaseTime + 2*time.Second)
			c.back(r)
			<-time.After(5 * time.Second) // long enough for a rival
			close(goOn)
			for {
				jobs, err := s.List(t.Context(), queue.Query{IDs: []string{"a"}})
				if err != nil {
					t.Fatal(err)
				}
				if jobs[0].State == queue.Done {
					break
				}
				select {
				case err := <-ended:
					t.Fatal(err)
				case <-time.After(100 * time.Millisecond):
				}
			}
			select {
			case err := <-ended:
				t.Error(err)
			default:
			}
		})
	}
}
