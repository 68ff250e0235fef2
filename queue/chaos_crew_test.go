package queue_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

const childOrders = "SLIPWAY_QUEUE_TEST_ORDERS" // of a process of the crew, as JSON

// orders are what a process of the crew is told when it starts.
type orders struct {
	Name    string
	URL     string // of Redis, from where the process is
	Dir     string // of its host's lock files
	Witness string // file: see witness
	Jobs    int
	Keys    int
	Lease   time.Duration
	Began   time.Time // when jobs came in first
	Over    time.Duration
	Ahead   time.Duration // how far its clock is ahead
}

// witness is a file in which all processes write down what the store has
// accepted, a line each: "put JOB", "done JOB ATTEMPT"; and "wrong WHAT" for what
// it must never do.
type witness struct{ *os.File }

func (w witness) write(words ...any) {
	_, _ = fmt.Fprintln(w, words...) // one write: lines do not mix
}

// witnessed is a store whose Done is written down.
type witnessed struct {
	queue.Store
	file witness
}

func (w witnessed) Done(ctx context.Context, l *queue.Lease) error {
	err := w.Store.Done(ctx, l)
	if err == nil {
		w.file.write("done", l.Job.ID, l.Attempt)
	}
	return err
}

// skewed is a store as a worker sees it whose clock is ahead. The clock of a Go
// process cannot be moved from outside. But all that a worker does with it is to
// compare it with the times that the store gives, and to compute those that it
// gives the store: moving these by the skew is the same.
type skewed struct {
	queue.Store
	ahead time.Duration
}

func (s skewed) Claim(ctx context.Context, worker string, kinds ...string) (*queue.Lease, error) {
	l, err := s.Store.Claim(ctx, worker, kinds...)
	if err == nil {
		l.Until = l.Until.Add(-s.ahead)
	}
	return l, err
}

func (s skewed) Extend(ctx context.Context, l *queue.Lease) ([]queue.Signal, error) {
	signals, err := s.Store.Extend(ctx, l)
	if err == nil {
		l.Until = l.Until.Add(-s.ahead)
	}
	return signals, err
}

func (s skewed) Park(ctx context.Context, l *queue.Lease, until time.Time, cause error) error {
	return s.Store.Park(ctx, l, until.Add(s.ahead), cause)
}

// serveInChaos is a process of the crew. It ends with its standard input.
func serveInChaos(role string) error {
	var o orders
	if err := json.Unmarshal([]byte(os.Getenv(childOrders)), &o); err != nil {
		return err
	}
	file, err := os.OpenFile(o.Witness, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		stop()
	}()
	var s *queue.Redis
	for s == nil { // what supervises it would start it again
		s, _ = queue.OpenRedisFor(ctx, queue.RedisOptions{URL: o.URL, Dir: o.Dir, Log: slog.New(slog.DiscardHandler)}, o.Lease)
		if ctx.Err() != nil {
			return nil
		}
	}
	store := witnessed{s, witness{file}}
	if role == "intake" {
		takeIn(ctx, store, o)
		<-ctx.Done()
		return nil
	}
	w := &queue.Worker{
		Store: skewed{store, o.Ahead}, Name: fmt.Sprintf("%s-%d", o.Name, os.Getpid()), Log: slog.New(slog.DiscardHandler), Heartbeat: o.Lease / 3,
		Slots: []queue.Slot{{Kinds: []string{chaosKind}, N: 3, Run: func(ctx context.Context, t *queue.Task) error {
			return shortJob(ctx, store, t, o.Lease)
		}}},
	}
	return w.Run(ctx)
}

// takeIn puts the jobs, spread over the time that there is. One that is not
// acknowledged is put again, as GitHub delivers again, also after the death of
// this process; and so is one in eight that was.
func takeIn(ctx context.Context, s witnessed, o orders) {
	seen, err := readWitness(o.Witness)
	if err != nil {
		s.file.write("wrong", err)
		return
	}
	fresh := len(seen.put) == 0 // nobody can have put this job before
	for i := 0; i < o.Jobs && ctx.Err() == nil; {
		if seen.put[jobID(i)] {
			i++
			continue
		}
		select {
		case <-time.After(time.Until(o.Began.Add(o.Over / time.Duration(o.Jobs) * time.Duration(i)))):
		case <-ctx.Done():
			return
		}
		added, err := putJob(ctx, s, o, i)
		if err == nil && fresh && !added {
			s.file.write("wrong", jobID(i), "was put once, and the store says that it was there before")
		}
		if fresh = err == nil; !fresh {
			continue
		}
		s.file.write("put", jobID(i))
		i++
		if again := rand.IntN(8 * i); again < i {
			if added, err := putJob(ctx, s, o, again); err == nil && added {
				s.file.write("wrong", jobID(again), "was put twice, and the store says that it was not there")
			}
		}
	}
}

// putJob waits for an answer as long as GitHub does.
func putJob(ctx context.Context, s queue.Store, o orders, i int) (added bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, added, err = s.Put(ctx, queue.Job{
		ID: jobID(i), Kind: chaosKind, Key: fmt.Sprint("key-", i%o.Keys), Tenant: fmt.Sprint("tenant-", i%chaosTenants),
	})
	return added, err
}

func jobID(i int) string { return fmt.Sprint("job-", i) }

// chaosStep is what a job of the test records, over and over.
type chaosStep struct {
	Attempt int64  `json:"attempt"`
	Worker  string `json:"worker"`
}

// shortJob records the steps that are missing, a few milliseconds apart. Those of
// every eighth key are long: somebody who was away for more than a lease comes
// back while another works on it. One in a hundred steps is followed by a rest.
func shortJob(ctx context.Context, s queue.Store, t *queue.Task, lease time.Duration) error {
	done, err := s.Entries(ctx, t.Job.ID, 0)
	if err != nil {
		return err
	}
	outcome, err := json.Marshal(chaosStep{Attempt: t.Lease().Attempt, Worker: t.Lease().Worker})
	if err != nil {
		return err
	}
	pause := 20 * time.Millisecond
	if n, err := strconv.Atoi(strings.TrimPrefix(t.Job.Key, "key-")); err == nil && n%8 == 0 {
		pause = lease / 12
	}
	for i := len(done); i < chaosSteps; i++ {
		select {
		case <-time.After(rand.N(pause)):
		case <-ctx.Done():
			return defy(ctx, s, t)
		}
		_, err := s.Append(ctx, t.Lease(), queue.Entry{Key: strconv.Itoa(i), Kind: queue.Call, Outcome: outcome})
		if errors.Is(err, queue.ErrLost) {
			return defy(ctx, s, t)
		}
		if err != nil && !errors.Is(err, queue.ErrRecorded) { // it was, and the answer was lost
			return err
		}
		if rand.IntN(100) == 0 {
			return queue.Later(time.Now().Add(rand.N(200*time.Millisecond)), nil)
		}
	}
	return nil
}

// defy records one more step and settles the job although the lease is lost,
// where it is, which the store has to refuse. It returns why the task ends.
func defy(ctx context.Context, s queue.Store, t *queue.Task) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, queue.ErrLost) {
		return cause
	}
	short, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	l := t.Lease()
	_, _ = s.Append(short, l, queue.Entry{Key: fmt.Sprint("defiance-", l.Attempt), Kind: queue.Call, Outcome: json.RawMessage(`{}`)})
	_ = s.Done(short, l)
	return queue.ErrLost
}

// A crew are the processes of the test, each on a host of its own: the workers,
// and last the intake.
type crew struct {
	t       *testing.T
	world   world
	redis   *queuetest.Redis
	orders  orders // common to all
	data    disk   // Redis'
	disks   []disk // with lock files: processes with the same one take over from each other at once
	members []*member
	started int
}

// A member is one process of the crew, again and again.
type member struct {
	role   string
	disk   int
	ahead  time.Duration
	cmd    *exec.Cmd
	beset  atomic.Bool // something bad happens to it
	number int
}

func (c *crew) start(m *member) {
	c.t.Helper()
	c.started++
	_, port, _ := strings.Cut(c.redis.Addr(), ":")
	o := c.orders
	o.Name, o.URL, o.Dir, o.Ahead = fmt.Sprint(m.role, "-", m.number), "redis://"+c.world.middle(m.number)+":"+port, c.disks[m.disk].dir, m.ahead
	if m.role == "intake" { // asks again before Redis, which stands still, goes on
		o.URL += fmt.Sprintf("?read_timeout=%v&dial_timeout=1s", c.moment()/3)
	}
	told, err := json.Marshal(o)
	if err != nil {
		c.t.Fatal(err)
	}
	m.cmd = c.world.on(m.number, os.Args[0])
	m.cmd.Env = append(os.Environ(), childRole+"="+m.role, childOrders+"="+string(told))
	if _, err := m.cmd.StdinPipe(); err != nil { // closed when this process ends
		c.t.Fatal(err)
	}
	m.cmd.Stderr = os.Stderr
	if err := m.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *crew) kill(m *member) {
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait() // signal: killed
}
