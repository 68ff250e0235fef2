package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

var (
	chaosTime = flag.Duration("chaos", 5*time.Second, "how long processes are killed, stopped and cut off")
	chaosSeed = flag.Uint64("chaos-seed", 0, "of what happens to whom; 0 is another one each time")
)

const (
	chaosKind    = "short"
	chaosJobs    = 400
	chaosKeys    = 40
	chaosTenants = 5
	chaosWorkers = 8
	childWitness = "SLIPWAY_QUEUE_TEST_WITNESS" // file: a line for each settle that the store accepted
)

// chaosStep is what a job of the test records, over and over.
type chaosStep struct {
	Attempt int64  `json:"attempt"`
	Worker  string `json:"worker"`
}

// witness writes down, for all workers in one file, which jobs the store let
// them settle.
type witness struct {
	queue.Store
	file *os.File
}

func (w witness) Done(ctx context.Context, l *queue.Lease) error {
	err := w.Store.Done(ctx, l)
	if err == nil {
		_, err = fmt.Fprintf(w.file, "%s %d\n", l.Job.ID, l.Attempt) // one write: lines do not mix
	}
	return err
}

// workInChaos is a worker process. It ends with its standard input.
func workInChaos(s queue.Store) error {
	file, err := os.OpenFile(os.Getenv(childWitness), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		stop()
	}()
	w := &queue.Worker{
		Store: witness{s, file}, Name: fmt.Sprintf("%s-%d", os.Getenv(childName), os.Getpid()), Log: slog.New(slog.DiscardHandler),
		Slots: []queue.Slot{{Kinds: []string{chaosKind}, N: 3, Run: func(ctx context.Context, t *queue.Task) error {
			return shortJob(ctx, s, t)
		}}},
	}
	return w.Run(ctx)
}

// shortJob records ten steps, those that are missing, a few milliseconds apart.
// Those of every eighth key are long: somebody who was away for more than a lease comes back
// while another works on it.
func shortJob(ctx context.Context, s queue.Store, t *queue.Task) error {
	done, err := s.Entries(ctx, t.Job.ID, 0)
	if err != nil {
		return err
	}
	outcome, err := json.Marshal(chaosStep{Attempt: t.Lease().Attempt, Worker: t.Lease().Worker})
	if err != nil {
		return err
	}
	pause := 20
	if n, err := strconv.Atoi(strings.TrimPrefix(t.Job.Key, "key-")); err == nil && n%8 == 0 {
		pause = 1200
	}
	for i := len(done); i < 10; i++ {
		select {
		case <-time.After(time.Duration(rand.IntN(pause)) * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		_, err := s.Append(ctx, t.Lease(), queue.Entry{Key: strconv.Itoa(i), Kind: queue.Call, Outcome: outcome})
		if err != nil && !errors.Is(err, queue.ErrRecorded) { // it was, and the answer was lost
			return err
		}
	}
	return nil
}

// A wire is the network between one worker and Redis.
type wire struct {
	listener net.Listener
	cut      atomic.Bool // nothing gets through, and nobody is told
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { w.carry(t.Context(), in, to) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close() // it only ends Accept
		all.Wait()
	})
	return w
}

func (w *wire) carry(ctx context.Context, in net.Conn, to string) {
	out, err := net.Dial("tcp", to)
	if err != nil {
		_ = in.Close() // Redis is not there
		return
	}
	shut := sync.OnceFunc(func() { _, _ = in.Close(), out.Close() })
	defer context.AfterFunc(ctx, shut)()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		both.Go(func() {
			defer shut()
			block := make([]byte, 32<<10)
			for {
				n, err := way[0].Read(block)
				if err != nil {
					return
				}
				if w.cut.Load() {
					continue // lost on the way
				}
				if _, err := way[1].Write(block[:n]); err != nil {
					return
				}
			}
		})
	}
	both.Wait()
}

// A crew are the workers of the test, one process each.
type crew struct {
	t       *testing.T
	witness string
	dirs    []string // by worker: those with the same one are on the same host
	wires   []*wire
	workers []*exec.Cmd
	started int
}

func (c *crew) start(i int) {
	c.t.Helper()
	c.started++
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRole+"=chaos", childURL+"=redis://"+c.wires[i].listener.Addr().String(),
		childDir+"="+c.dirs[i], childName+"="+fmt.Sprint("worker-", i), childWitness+"="+c.witness)
	if _, err := cmd.StdinPipe(); err != nil { // closed when this process ends
		c.t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.workers[i] = cmd
}

func (c *crew) kill(i int) {
	_ = c.workers[i].Process.Kill()
	_ = c.workers[i].Wait() // signal: killed
}

// Workers and Redis are killed, stopped and cut off from each other at random
// while there is work. In the end each job was done, and was done once; what was
// recorded was recorded by who held the job, and no two jobs of a key at a time.
func TestChaos(t *testing.T) {
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos-seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, seed))

	r := queuetest.StartRedis(t)
	c := &crew{t: t, witness: filepath.Join(t.TempDir(), "done"), workers: make([]*exec.Cmd, chaosWorkers)}
	if err := os.WriteFile(c.witness, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	hosts := []string{t.TempDir(), t.TempDir()}
	for i := range chaosWorkers {
		c.dirs, c.wires = append(c.dirs, hosts[i%2]), append(c.wires, newWire(t, r.Addr()))
		c.start(i)
	}
	t.Cleanup(func() {
		for i := range c.workers {
			c.kill(i)
		}
	})

	s := openRedis(t, r.URL(), t.TempDir())
	until := time.Now().Add(*chaosTime)
	var putting sync.WaitGroup
	putting.Go(func() { c.put(s, until) })
	happened := c.rage(dice, r, until)
	putting.Wait()
	t.Logf("%v; %d processes were started", happened, c.started)

	all := c.finish(s, len(happened) > 0)
	c.judge(s, all)
}

// put spreads the jobs over the time that there is. One that is not acknowledged
// is put again, as GitHub delivers again.
func (c *crew) put(s queue.Store, until time.Time) {
	every := time.Until(until) / chaosJobs
	for i := range chaosJobs {
		j := queue.Job{
			ID: fmt.Sprint("job-", i), Kind: chaosKind, Key: fmt.Sprint("key-", i%chaosKeys), Tenant: fmt.Sprint("tenant-", i%chaosTenants),
		}
		for {
			if _, _, err := s.Put(c.t.Context(), j); err == nil {
				break
			}
			if c.t.Context().Err() != nil {
				return
			}
		}
		<-time.After(every)
	}
}

// rage does something bad every now and then, and counts what.
func (c *crew) rage(dice *rand.Rand, r *queuetest.Redis, until time.Time) map[string]int {
	happened := map[string]int{}
	var frozen sync.WaitGroup
	defer frozen.Wait()
	busy := make([]atomic.Bool, chaosWorkers) // stopped or cut off
	for time.Now().Before(until) {
		<-time.After(time.Duration(50+dice.IntN(500)) * time.Millisecond)
		i := dice.IntN(chaosWorkers)
		if busy[i].Load() {
			continue
		}
		// Longer than a lease, where there is time for it.
		long := min(queue.LeaseTime+time.Duration(dice.IntN(5000))*time.Millisecond, *chaosTime/4)
		switch n := dice.IntN(20); {
		case n < 11:
			happened["workers killed"]++
			c.kill(i)
			c.start(i)
		case n < 14:
			happened["Redis killed"]++
			r.Kill()
			<-time.After(time.Duration(dice.IntN(1500)) * time.Millisecond)
			r.Start()
		case n < 16:
			happened["Redis stopped"]++
			r.Stop()
			<-time.After(time.Duration(dice.IntN(3000)) * time.Millisecond)
			r.Continue()
		case n < 18:
			happened["workers stopped"]++
			busy[i].Store(true)
			process := c.workers[i].Process
			_ = process.Signal(syscall.SIGSTOP)
			frozen.Go(func() {
				defer busy[i].Store(false)
				<-time.After(long)
				_ = process.Signal(syscall.SIGCONT)
			})
		default:
			happened["workers cut off"]++
			busy[i].Store(true)
			c.wires[i].cut.Store(true)
			frozen.Go(func() {
				defer busy[i].Store(false)
				<-time.After(long)
				c.wires[i].cut.Store(false)
			})
		}
	}
	return happened
}

// finish waits until every job has ended.
func (c *crew) finish(s queue.Store, raged bool) []queue.Job {
	c.t.Helper()
	if !raged {
		c.t.Error("nothing bad happened: the test shows nothing")
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	for {
		all, err := s.List(ctx, queue.Query{Kinds: []string{chaosKind}, Limit: 2 * chaosJobs})
		if err != nil {
			c.t.Fatal(err)
		}
		left := slices.IndexFunc(all, func(j queue.Job) bool { return !j.State.Finished() })
		if len(all) == chaosJobs && left < 0 {
			return all
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("%d jobs are there, and one of them is %+v", len(all), all[max(left, 0)])
		}
	}
}

// A turn is the time in which one worker recorded steps of one job.
type turn struct {
	job         string
	attempt     int64
	first, last time.Time
}

func (c *crew) judge(s queue.Store, all []queue.Job) {
	c.t.Helper()
	text, err := os.ReadFile(c.witness)
	if err != nil {
		c.t.Fatal(err)
	}
	accepted := map[string]int{}
	for line := range strings.Lines(string(text)) {
		id, _, _ := strings.Cut(line, " ")
		accepted[id]++
	}
	turns := map[string][]turn{}
	for _, j := range all {
		if j.State != queue.Done {
			c.t.Errorf("%s is %s: %s", j.ID, j.State, j.Cause)
		}
		if accepted[j.ID] > 1 {
			c.t.Errorf("%s was accepted as done %d times", j.ID, accepted[j.ID])
		}
		turns[j.Key] = append(turns[j.Key], c.turnsOf(s, j)...)
	}
	if len(accepted) < chaosJobs*9/10 { // who is killed right after the store's answer writes nothing down
		c.t.Errorf("only %d jobs are known to have been accepted as done", len(accepted))
	}
	for key, list := range turns {
		slices.SortFunc(list, func(a, b turn) int { return a.first.Compare(b.first) })
		for i := 1; i < len(list); i++ {
			if list[i].first.Before(list[i-1].last) {
				c.t.Errorf("%s: %+v and %+v overlap", key, list[i-1], list[i])
			}
		}
	}
}

// turnsOf reads a job's journal: ten steps, each once, in turns that follow one
// another.
func (c *crew) turnsOf(s queue.Store, j queue.Job) []turn {
	c.t.Helper()
	entries, err := s.Entries(c.t.Context(), j.ID, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	var out []turn
	for i, e := range entries {
		var by chaosStep
		if err := json.Unmarshal(e.Outcome, &by); err != nil {
			c.t.Fatal(err)
		}
		if e.Key != strconv.Itoa(i) {
			c.t.Errorf("%s: step %d has the key %s", j.ID, i, e.Key)
		}
		if len(out) == 0 || out[len(out)-1].attempt != by.Attempt {
			if len(out) > 0 && out[len(out)-1].attempt > by.Attempt {
				c.t.Errorf("%s: attempt %d recorded after attempt %d", j.ID, by.Attempt, out[len(out)-1].attempt)
			}
			out = append(out, turn{job: j.ID, attempt: by.Attempt, first: e.At})
		}
		out[len(out)-1].last = e.At
	}
	if len(entries) != 10 {
		c.t.Errorf("%s has %d steps, want 10", j.ID, len(entries))
	}
	return out
}
