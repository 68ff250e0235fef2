package queue_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

var (
	chaosTime = flag.Duration("chaos", 5*time.Second, "how long processes are killed, stopped and cut off; leases are as in service from a minute on")
	chaosSeed = flag.Uint64("chaos-seed", 0, "of what happens to whom; 0 is another one each time")
)

const (
	chaosKind    = "short"
	chaosSteps   = 10
	chaosTenants = 5
	chaosWorkers = 8
	chaosHosts   = 2 // with a disk each
)

// The intake, workers and Redis are killed, stopped and cut off from each other
// at random while there is work, their disks are full, and no two clocks are the
// same. In the end each job was done, and was done once; what was recorded was
// recorded by who held the job, and no two jobs of a key at a time.
func TestChaos(t *testing.T) {
	if !inWorld(t, "chaos", "chaos-seed") {
		return
	}
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos %v -chaos-seed %d", *chaosTime, seed)
	dice := rand.New(rand.NewPCG(seed, seed))

	c := newCrew(t, dice)
	s := openRedis(t, c.redis.URL(), t.TempDir())
	happened := c.rage(dice, c.orders.Began.Add(*chaosTime))
	t.Logf("%v; %d processes were started", happened, c.started)
	for _, m := range mishaps {
		if happened[m.name] == 0 {
			t.Errorf("no %s: the test shows too little", m.name)
		}
	}
	c.judge(s, c.finish(s))
}

// newCrew starts Redis, the workers and the intake.
func newCrew(t *testing.T, dice *rand.Rand) *crew {
	t.Helper()
	o := orders{
		Witness: filepath.Join(t.TempDir(), "witness"), Jobs: 400, Keys: 40, Lease: min(queue.LeaseTime, max(2*time.Second, *chaosTime/4)),
		Began: time.Now(), Over: *chaosTime,
	}
	if *chaosTime < 30*time.Second {
		o.Jobs, o.Keys = 60, 10
	}
	if err := os.WriteFile(o.Witness, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &crew{t: t, world: newWorld(t), orders: o, data: newDisk(t, 64<<20)}
	c.redis = queuetest.StartRedis(t, "--dir", c.data.dir, "--bind", "0.0.0.0", "--protected-mode", "no", "--auto-aof-rewrite-min-size", "1mb")
	for range chaosHosts {
		c.disks = append(c.disks, newDisk(t, 64<<10))
	}
	skew := o.Lease / (queue.LeaseTime / queue.SkewRefused) // the same part of a lease as in service
	for i := range chaosWorkers + 1 {
		m := &member{role: "worker", number: i, disk: i % chaosHosts, ahead: time.Duration(dice.Int64N(int64(2*skew))) - skew}
		switch i {
		case 0:
			m.ahead = skew
		case 1:
			m.ahead = -skew
		case chaosWorkers:
			m.role = "intake"
		}
		c.world.addHost(i)
		c.start(m)
		c.members = append(c.members, m)
	}
	t.Cleanup(func() {
		for _, m := range c.members {
			c.kill(m)
		}
	})
	return c
}

// A mishap befalls Redis, or a member of the crew.
type mishap struct {
	name  string
	often int
	begin func(c *crew, m *member)
	end   func(c *crew, m *member) // nil: it is over at once
	long  bool                     // outlasts a lease; else a moment, in which nothing else begins
}

var mishaps = append([]mishap{
	{name: "processes killed", often: 10, begin: func(c *crew, m *member) {
		c.kill(m)
		c.start(m)
	}},
	{name: "processes stopped", often: 3, begin: signal(syscall.SIGSTOP), end: signal(syscall.SIGCONT), long: true},
	{name: "full disks of workers", often: 1, long: true,
		begin: func(c *crew, m *member) { c.disks[m.disk].fill() },
		end:   func(c *crew, m *member) { c.disks[m.disk].empty() },
	},
	{name: "Redis killed", often: 3,
		begin: func(c *crew, _ *member) { c.redis.Kill() },
		end:   func(c *crew, _ *member) { c.redis.Start() },
	},
	{name: "Redis stopped", often: 2,
		begin: func(c *crew, _ *member) { c.redis.Stop() },
		end:   func(c *crew, _ *member) { c.redis.Continue() },
	},
	{name: "full disks of Redis", often: 2, // ends itself, and is started again when there is room
		begin: func(c *crew, _ *member) { c.data.fill() },
		end: func(c *crew, _ *member) {
			c.data.empty()
			c.redis.Kill()
			c.redis.Start()
		},
	},
}, cutting()...)

func cutting() []mishap {
	var all []mishap
	for _, way := range cuts {
		all = append(all, mishap{name: way.name, often: 1, long: true,
			begin: func(c *crew, m *member) { c.world.ip(fmt.Sprintf(way.begin, m.number)) },
			end:   func(c *crew, m *member) { c.world.ip(fmt.Sprintf(way.end, m.number)) },
		})
	}
	return all
}

func signal(s syscall.Signal) func(*crew, *member) {
	return func(_ *crew, m *member) { _ = m.cmd.Process.Signal(s) }
}

// deal brings every mishap once, in any order, and then each as often as it does.
func deal(dice *rand.Rand, n int, first []int) mishap {
	if n < len(first) {
		return mishaps[first[n]]
	}
	all := 0
	for _, m := range mishaps {
		all += m.often
	}
	at := dice.IntN(all)
	for _, m := range mishaps {
		if at -= m.often; at < 0 {
			return m
		}
	}
	panic("unreachable: the dice show less than the sum")
}

// moment is how long at most nothing else happens.
func (c *crew) moment() time.Duration { return min(3*time.Second, c.orders.Over/15) }

// rage has something bad happen every now and then, and counts what.
func (c *crew) rage(dice *rand.Rand, until time.Time) map[string]int {
	happened := map[string]int{}
	var under sync.WaitGroup
	defer under.Wait()
	first := dice.Perm(len(mishaps))
	for n := 0; time.Now().Before(until); {
		<-time.After(time.Duration(dice.Int64N(int64(c.moment() / 6))))
		m := c.members[dice.IntN(len(c.members))]
		if !m.beset.CompareAndSwap(false, true) {
			continue
		}
		bad := deal(dice, n, first)
		n++
		happened[bad.name]++
		bad.begin(c, m)
		last := time.Duration(dice.Int64N(int64(c.moment())))
		if bad.long {
			last = c.orders.Lease*5/4 + time.Duration(dice.Int64N(int64(c.orders.Lease/2))) // somebody has claimed what it held
		}
		over := func() {
			if bad.end != nil {
				<-time.After(last)
				bad.end(c, m)
			}
			m.beset.Store(false)
		}
		if bad.long {
			under.Go(over)
		} else {
			over()
		}
	}
	return happened
}

// finish waits until every job has ended. What was acknowledged is there all the
// time.
func (c *crew) finish(s queue.Store) []queue.Job {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 3*time.Minute)
	defer cancel()
	for {
		seen, err := readWitness(c.orders.Witness)
		if err != nil {
			c.t.Fatal(err)
		}
		all, err := s.List(ctx, queue.Query{Kinds: []string{chaosKind}, Limit: 2 * c.orders.Jobs})
		if err != nil {
			c.t.Fatal(err)
		}
		if id, is := seen.lost(all); is {
			c.t.Fatalf("%s was acknowledged and is not there", id)
		}
		open := map[queue.State]int{}
		for _, j := range all {
			if !j.State.Finished() {
				open[j.State]++
			}
		}
		if len(all) == c.orders.Jobs && len(open) == 0 {
			return all
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
			c.t.Fatalf("of %d jobs %d are there, and of these some have not ended: %v", c.orders.Jobs, len(all), open)
		}
	}
}
