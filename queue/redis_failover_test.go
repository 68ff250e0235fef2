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

// The master dies and a Sentinel promotes its replica, while a task runs that has
// a step to record. It goes on, the step is recorded once, what the replica had is
// there, and a signal is heard by way of the new master.
func TestATaskOutlastsAFailOver(t *testing.T) {
	t.Parallel()
	ofRedis, ofSentinel := rulesOfTheDocs(t)
	args := append([]string{"--repl-diskless-sync-delay", "0", "--user"}, ofRedis...)
	master, replica := queuetest.StartRedis(t, args...), queuetest.StartRedis(t, args...)
	replica.Follow(master)
	sentinel := queuetest.StartSentinel(t, master.Port(),
		"sentinel down-after-milliseconds "+queuetest.SentinelMaster+" 1000",
		"user "+strings.Join(ofSentinel, " "))
	queuetest.AwaitReplica(t, sentinel)
	url := "redis+sentinel://slipway:PASSWORD@" + sentinel + "/0?master_name=" + queuetest.SentinelMaster +
		"&sentinel_username=slipway&sentinel_password=PASSWORD"

	began, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	server := openRedis(t, url, t.TempDir())
	run := func(ctx context.Context, task *queue.Task) error {
		if attempt := task.Lease().Attempt; attempt != 1 {
			ended <- fmt.Errorf("attempt %d began", attempt)
			return nil
		}
		ended <- outlast(ctx, server, task, began, goOn)
		return nil
	}
	ctx, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	defer workers.Wait()
	defer stop()
	for i := range 2 { // whoever has the job has a rival
		w := &queue.Worker{
			Store: openRedis(t, url, t.TempDir()), Name: fmt.Sprint("worker-", i), Log: slog.New(slog.DiscardHandler),
			Slots:     []queue.Slot{{Kinds: []string{"long"}, Run: run}},
			Heartbeat: time.Hour, // a signal comes by the bell or not at all
		}
		workers.Go(func() { _ = w.Run(ctx) })
	}
	if _, _, err := server.Put(t.Context(), queue.Job{ID: "a", Kind: "long"}); err != nil {
		t.Fatal(err)
	}
	<-began
	const others = 20
	for i := range others {
		put(t, server, fmt.Sprint("other-", i))
	}
	direct := master.Client()
	defer direct.Close() //nolint:errcheck // opened to look at
	if err := direct.Wait(t.Context(), 1, 5*time.Second).Err(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	master.Kill()
	close(goOn)
	for {
		err := server.Send(t.Context(), "a", queue.Signal{ID: "enough", Kind: "cancel"})
		if err == nil {
			break
		}
		if time.Since(killed) > 30*time.Second {
			t.Fatal(err)
		}
	}
	t.Logf("after %v the store takes signals again", time.Since(killed))
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	t.Logf("after %v the task has ended", time.Since(killed))
	entries, err := server.Entries(t.Context(), "a", 0)
	if err != nil || len(entries) != 2 || entries[0].Key != "before" || entries[1].Key != "after" {
		t.Errorf("journal %+v, %v; want both steps once", entries, err)
	}
	for i := range others {
		lookUp(t, server, fmt.Sprint("other-", i))
	}
}

// outlast records a step, waits, records another and waits for a signal.
func outlast(ctx context.Context, s queue.Store, task *queue.Task, began chan<- struct{}, goOn <-chan struct{}) error {
	step := func(key string) error {
		_, err := s.Append(ctx, task.Lease(), queue.Entry{Key: key, Kind: queue.Call})
		return err
	}
	if err := step("before"); err != nil {
		return err
	}
	close(began)
	<-goOn
	if err := step("after"); err != nil {
		return err
	}
	select {
	case g := <-task.Signals():
		if g.ID != "enough" {
			return fmt.Errorf("signal %+v", g)
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(10 * time.Second):
		return errors.New("the signal was not heard")
	}
}

// Where a claim is lost, somebody else gets the job, and the same attempt of it.
// Only one of them can do anything with it.
func TestALostClaimFencesItsWorker(t *testing.T) {
	r := queuetest.StartRedis(t)
	a, b := openRedis(t, r.URL(), t.TempDir()), openRedis(t, r.URL(), t.TempDir())
	put(t, a, "x")
	var lost *queue.Lease
	r.Forget(func() {
		var err error
		if lost, err = a.Claim(t.Context(), "a", "k"); err != nil {
			t.Fatal(err)
		}
	})
	l, err := b.Claim(t.Context(), "b", "k")
	if err != nil || l.Attempt != lost.Attempt {
		t.Fatalf("%+v, %v; want the attempt that was lost", l, err)
	}
	_, appended := a.Append(t.Context(), lost, queue.Entry{Key: "theirs", Kind: queue.Call})
	_, extended := a.Extend(t.Context(), lost)
	for what, err := range map[string]error{
		"append": appended, "extend": extended,
		"done": a.Done(t.Context(), lost), "park": a.Park(t.Context(), lost, time.Time{}, nil), "bury": a.Bury(t.Context(), lost, nil),
	} {
		if !errors.Is(err, queue.ErrLost) {
			t.Errorf("%s: %v, want that the lease is lost", what, err)
		}
	}
	if _, err := b.Append(t.Context(), l, queue.Entry{Key: "ours", Kind: queue.Call}); err != nil {
		t.Error(err)
	}
	if err := b.Done(t.Context(), l); err != nil {
		t.Error(err)
	}
}
