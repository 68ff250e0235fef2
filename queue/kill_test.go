package queue_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// The test binary is also the process that gets killed.
const (
	childRole = "SLIPWAY_QUEUE_TEST_CHILD"
	childDir  = "SLIPWAY_QUEUE_TEST_DIR"
	childName = "SLIPWAY_QUEUE_TEST_NAME"
	childURL  = "SLIPWAY_QUEUE_TEST_REDIS" // of a Redis, if it is one
	childKind = "SLIPWAY_QUEUE_TEST_KIND"  // of the job that it claims; empty: journal
)

// child runs until it is killed. A line on its standard output acknowledges
// what the store has acknowledged.
func child(role string) int {
	ctx := context.Background()
	if role == "visit" {
		if err := visit(ctx, os.Getenv(childDir), os.Getenv(childName)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if role == "worker" || role == "intake" {
		if err := serveInChaos(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	s, err := openChild(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	name := os.Getenv(childName)
	kind := cmp.Or(os.Getenv(childKind), "journal")
	l, err := s.Claim(ctx, name, kind)
	for errors.Is(err, queue.ErrEmpty) {
		if err = s.Wait(ctx, kind); err == nil {
			l, err = s.Claim(ctx, name, kind)
		}
	}
	if err == nil && role == "write" {
		err = writeForEver(ctx, s, l, name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("held")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed, or to go on
	_, late := s.Append(ctx, l, queue.Entry{Key: "late", Kind: queue.Call})
	_, extended := s.Extend(ctx, l)
	fmt.Println(errors.Is(late, queue.ErrLost), errors.Is(extended, queue.ErrLost), errors.Is(s.Done(ctx, l), queue.ErrLost))
	return 0
}

func openChild(ctx context.Context) (queue.Store, error) {
	if url := os.Getenv(childURL); url != "" {
		return queue.OpenRedis(ctx, queue.RedisOptions{URL: url, Dir: os.Getenv(childDir), Log: slog.New(slog.DiscardHandler)})
	}
	return queue.OpenSQLite(ctx, os.Getenv(childDir))
}

// visit opens the store, writes and closes it, a few times.
func visit(ctx context.Context, dir, name string) error {
	for i := range 5 {
		s, err := queue.OpenSQLite(ctx, dir)
		if err != nil {
			return err
		}
		_, _, err = s.Put(ctx, queue.Job{ID: fmt.Sprint(name, "-", i), Kind: "visit"})
		if err := errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	return nil
}

func writeForEver(ctx context.Context, s queue.Store, l *queue.Lease, name string) error {
	failed := make(chan error)
	for writer := range 4 {
		go func() {
			for i := 0; ; i++ {
				id := fmt.Sprintf("%s-%d-%d", name, writer, i)
				if _, _, err := s.Put(ctx, queue.Job{ID: id, Kind: "put"}); err != nil {
					failed <- err
				}
				fmt.Println("put", id)
				if err := s.Send(ctx, l.Job.ID, queue.Signal{ID: id}); err != nil {
					failed <- err
				}
				fmt.Println("send", id)
				size := 10
				if i%8 == 0 {
					size = 40 << 10 // a file of its own
				}
				e := queue.Entry{Key: id, Kind: queue.Call, Outcome: json.RawMessage(`"` + strings.Repeat("x", size) + `"`)}
				if _, err := s.Append(ctx, l, e); err != nil {
					failed <- err
				}
				fmt.Println("append", id)
			}
		}()
	}
	return <-failed
}

// start runs a child and returns its lines; kill ends it as kill -9 does.
func start(t testing.TB, role, dir, name string) (lines *bufio.Scanner, kill func()) {
	t.Helper()
	lines, _, _, kill = startWith(t, childRole+"="+role, childDir+"="+dir, childName+"="+name)
	return lines, kill
}

func startWith(t testing.TB, env ...string) (lines *bufio.Scanner, in io.Writer, process *os.Process, kill func()) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), env...)
	name := env[len(env)-1]
	var complaint strings.Builder
	cmd.Stderr = &complaint
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // signal: killed
		if complaint.Len() > 0 {
			t.Errorf("%s: %s", name, complaint.String())
		}
	})
	t.Cleanup(kill)
	return bufio.NewScanner(out), in, cmd.Process, kill
}

func TestWhatWasAcknowledgedSurvivesKill9(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir) // open all the time, as another process of the product is
	if _, _, err := s.Put(t.Context(), queue.Job{ID: "journal", Kind: "journal"}); err != nil {
		t.Fatal(err)
	}
	acked := map[string][]string{}
	for round := range 10 {
		lines, kill := start(t, "write", dir, fmt.Sprint("child-", round))
		killAt := 1 + rand.IntN(150)
		n := 0
		for ; lines.Scan(); n++ {
			what, id, ok := strings.Cut(lines.Text(), " ")
			if !ok {
				t.Fatalf("the child said %q", lines.Text())
			}
			acked[what] = append(acked[what], id)
			if n == killAt {
				go kill() // it writes on meanwhile
			}
		}
		kill()
		if n < killAt {
			t.Fatalf("round %d: the child ended after %d lines", round, n)
		}
	}

	l, err := s.Claim(t.Context(), "parent", "journal")
	if err != nil {
		t.Fatal(err)
	}
	if l.Attempt != 11 {
		t.Errorf("attempt %d, want 11", l.Attempt)
	}
	signals, err := s.Extend(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := s.Entries(t.Context(), "journal", 0)
	if err != nil {
		t.Fatal(err) // also: a large outcome is missing or damaged
	}
	jobs, err := s.List(t.Context(), queue.Query{Kinds: []string{"put"}, Limit: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]map[string]int{"put": {}, "send": {}, "append": {}}
	for _, j := range jobs {
		there["put"][j.ID]++
	}
	for _, g := range signals {
		there["send"][g.ID]++
	}
	for _, e := range entries {
		there["append"][e.Key]++
	}
	for what, ids := range acked {
		for _, id := range ids {
			if there[what][id] != 1 {
				t.Errorf("%s %s was acknowledged and is there %d times", what, id, there[what][id])
			}
		}
	}
	t.Logf("%d jobs, %d signals, %d steps acknowledged", len(acked["put"]), len(acked["send"]), len(acked["append"]))
}

func TestTakeoverAfterKill9(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	if _, _, err := s.Put(t.Context(), queue.Job{ID: "a", Kind: "journal"}); err != nil {
		t.Fatal(err)
	}
	lines, kill := start(t, "hold", dir, "child")
	if !lines.Scan() || lines.Text() != "held" {
		t.Fatalf("the child said %q", lines.Text())
	}
	if l, err := s.Claim(t.Context(), "parent", "journal"); !errors.Is(err, queue.ErrEmpty) {
		t.Fatalf("Claim = %v, %v while the child lives", l, err)
	}
	kill()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	for {
		l, err := s.Claim(ctx, "parent", "journal")
		if err == nil {
			if l.Attempt != 2 || l.Crashes != 1 {
				t.Errorf("attempt %d and crashes %d, want 2 and 1", l.Attempt, l.Crashes)
			}
			return
		}
		if !errors.Is(err, queue.ErrEmpty) {
			t.Fatal(err)
		}
		if err := s.Wait(ctx, "journal"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProcessesOpenAndCloseOneStoreAtOnce(t *testing.T) {
	dir := t.TempDir()
	var all sync.WaitGroup
	for i := range 4 {
		lines, kill := start(t, "visit", dir, fmt.Sprint("visitor-", i))
		all.Go(func() {
			for lines.Scan() { // until it ends by itself
			}
			kill()
		})
	}
	all.Wait()
	jobs, err := openIn(t, dir).List(t.Context(), queue.Query{Kinds: []string{"visit"}})
	if err != nil || len(jobs) != 20 {
		t.Errorf("%d jobs, %v; want 20", len(jobs), err)
	}
}
