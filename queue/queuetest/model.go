package queuetest

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"pgregory.net/rapid"
)

// runModel does random calls through two clients and compares each answer with
// a model of the promises: who may be claimed, whose lease is fenced off, which
// once values are taken.
func runModel(t *testing.T, o Opened) {
	clients := []queue.Store{o.Store, o.Second(t)}
	// Every call is a durable write: forty rounds take some seconds, and more can
	// be asked for by the flag.
	if f := flag.Lookup("rapid.checks"); f.Value.String() == f.DefValue {
		must(t, f.Value.Set("40"))
	}
	round := 0
	rapid.Check(t, func(rt *rapid.T) {
		round++ // a world of its own in the same store
		m := &model{t: t, o: o, clients: clients, round: round, served: map[lane]int{}}
		rt.Repeat(map[string]func(*rapid.T){
			"put":    m.put,
			"claim":  m.claim,
			"extend": m.extend,
			"append": m.append,
			"done":   m.done,
			"bury":   m.bury,
			"park":   m.park,
			"send":   m.send,
			"expire": m.expire,
			"sleep":  m.sleep,
			"":       m.check,
		})
	})
}

type model struct {
	t       *testing.T
	o       Opened
	clients []queue.Store
	round   int
	clock   time.Duration // since the start of the round
	passed  int
	jobs    []*modelJob
	leases  []modelLease
	claims  int
	served  map[lane]int
}

type lane struct{ kind, tenant string }

type modelJob struct {
	queue.Job // State, Attempt and Retries are the model's
	due       time.Duration
	never     bool // parked for a signal alone
	until     time.Duration
	steps     map[string]bool
	progress  bool
	crashes   int
	signals   int
}

type modelLease struct {
	lease *queue.Lease
	job   *modelJob
}

func (m *model) client(rt *rapid.T) (queue.Store, string) {
	i := rapid.IntRange(0, 1).Draw(rt, "client")
	return m.clients[i], fmt.Sprint("client-", i)
}

func (m *model) kind(n int) string { return fmt.Sprintf("kind-%d-%d", m.round, n) }

func (m *model) put(rt *rapid.T) {
	s, _ := m.client(rt)
	pick := func(name string, n int) string {
		if i := rapid.IntRange(0, n).Draw(rt, name); i > 0 {
			return fmt.Sprintf("%s-%d-%d", name, m.round, i)
		}
		return ""
	}
	j := queue.Job{
		ID:       fmt.Sprintf("%d-%d", m.round, rapid.IntRange(1, 30).Draw(rt, "id")),
		Kind:     m.kind(rapid.IntRange(0, 1).Draw(rt, "kind")),
		Key:      pick("key", 2),
		Once:     pick("once", 3),
		Tenant:   pick("tenant", 2),
		Priority: rapid.IntRange(0, 1).Draw(rt, "priority"),
	}
	want := m.find(func(o *modelJob) bool { return o.ID == j.ID })
	if want == nil && j.Once != "" {
		want = m.find(func(o *modelJob) bool { return o.Once == j.Once && !o.State.Finished() })
	}
	open, added, err := s.Put(m.t.Context(), j)
	if err != nil {
		rt.Fatal(err)
	}
	if want == nil {
		want = &modelJob{Job: j, steps: map[string]bool{}}
		want.State = queue.Queued
		m.jobs = append(m.jobs, want)
		if !added {
			rt.Fatalf("Put(%s) added nothing, it returned %s", j.ID, open.ID)
		}
	} else if added {
		rt.Fatalf("Put(%s) was added, but %s is there", j.ID, want.ID)
	}
	if open.ID != want.ID {
		rt.Fatalf("Put(%s) returned %s, want %s", j.ID, open.ID, want.ID)
	}
}

func (m *model) find(ok func(*modelJob) bool) *modelJob {
	if i := slices.IndexFunc(m.jobs, ok); i >= 0 {
		return m.jobs[i]
	}
	return nil
}

func (m *model) claim(rt *rapid.T) {
	s, worker := m.client(rt)
	kinds := [][]string{{m.kind(0)}, {m.kind(1)}, {m.kind(0), m.kind(1)}}[rapid.IntRange(0, 2).Draw(rt, "kinds")]
	abandoned, candidates := m.claimable(kinds)
	l, err := s.Claim(m.t.Context(), worker, kinds...)
	if len(candidates) == 0 {
		if !errors.Is(err, queue.ErrEmpty) {
			rt.Fatalf("Claim = %+v, %v; want ErrEmpty", l, err)
		}
		return
	}
	if err != nil {
		rt.Fatalf("Claim: %v; want one of %v", err, ids(candidates))
	}
	j := m.find(func(o *modelJob) bool { return o.ID == l.Job.ID })
	if !slices.Contains(candidates, j) {
		rt.Fatalf("Claim = %s, want one of %v", l.Job.ID, ids(candidates))
	}
	if abandoned {
		j.crashes++
		if j.progress {
			j.crashes = 0
		}
	}
	j.State, j.until, j.progress = queue.Running, m.clock+m.o.Lease, false
	j.Attempt++
	m.claims++
	m.served[lane{j.Kind, j.Tenant}] = m.claims
	if l.Attempt != j.Attempt || l.Crashes != j.crashes || l.Job.Retries != j.Retries {
		rt.Fatalf("lease has attempt %d, crashes %d, retries %d; want %d, %d, %d",
			l.Attempt, l.Crashes, l.Job.Retries, j.Attempt, j.crashes, j.Retries)
	}
	m.leases = append(m.leases, modelLease{l, j})
}

// claimable returns the jobs of which one must be claimed next: the abandoned
// ones, else the heads of the tenants whose turn it is.
func (m *model) claimable(kinds []string) (abandoned bool, out []*modelJob) {
	running, served := map[string]int{}, map[string]int{}
	keys := map[lane]bool{}
	for _, j := range m.jobs {
		if j.State != queue.Running || !slices.Contains(kinds, j.Kind) {
			continue
		}
		running[j.Tenant]++
		keys[lane{j.Kind, j.Key}] = true
		if j.until <= m.clock {
			out = append(out, j)
		}
	}
	if len(out) > 0 {
		return true, out
	}
	for l, n := range m.served {
		if slices.Contains(kinds, l.kind) {
			served[l.tenant] = max(served[l.tenant], n)
		}
	}
	heads := map[string]*modelJob{}
	for _, j := range m.jobs { // in the order of their Put
		waiting := j.State == queue.Queued || j.State == queue.Parked && !j.never && j.due <= m.clock
		if !waiting || !slices.Contains(kinds, j.Kind) || j.Key != "" && keys[lane{j.Kind, j.Key}] {
			continue
		}
		if h := heads[j.Tenant]; h == nil || j.Priority > h.Priority {
			heads[j.Tenant] = j
		}
	}
	turn := func(j *modelJob) [2]int { return [2]int{running[j.Tenant], served[j.Tenant]} }
	for _, j := range heads {
		t := turn(j)
		switch {
		case len(out) == 0 || slices.Compare(t[:], sliceOf(turn(out[0]))) < 0:
			out = []*modelJob{j}
		case t == turn(out[0]):
			out = append(out, j)
		}
	}
	return false, out
}

func sliceOf(a [2]int) []int { return a[:] }

func ids(jobs []*modelJob) (out []string) {
	for _, j := range jobs {
		out = append(out, j.ID)
	}
	return out
}

// held draws any lease of the round, also one that is lost long since.
func (m *model) held(rt *rapid.T) (queue.Store, modelLease, bool) {
	if len(m.leases) == 0 {
		rt.Skip("no lease yet")
	}
	s, _ := m.client(rt)
	// The newest are drawn most often.
	h := m.leases[len(m.leases)-1-min(rapid.IntRange(0, 9).Draw(rt, "lease"), len(m.leases)-1)]
	return s, h, h.job.State == queue.Running && h.job.Attempt == h.lease.Attempt
}

// fenced checks the answer to a call on a lease and returns whether it counts.
func fenced(rt *rapid.T, err error, live bool) bool {
	if !live && !errors.Is(err, queue.ErrLost) {
		rt.Fatalf("a lost lease got %v, want ErrLost", err)
	}
	if live && err != nil {
		rt.Fatalf("a live lease got %v", err)
	}
	return live
}

func (m *model) extend(rt *rapid.T) {
	s, h, live := m.held(rt)
	_, err := s.Extend(m.t.Context(), h.lease)
	if fenced(rt, err, live) {
		h.job.until = m.clock + m.o.Lease
	}
}

func (m *model) append(rt *rapid.T) {
	s, h, live := m.held(rt)
	key := fmt.Sprint("step-", rapid.IntRange(0, 3).Draw(rt, "step"))
	_, err := s.Append(m.t.Context(), h.lease, entry(key))
	if live && h.job.steps[key] {
		if !errors.Is(err, queue.ErrRecorded) {
			rt.Fatalf("second Append of %s: %v, want ErrRecorded", key, err)
		}
		return
	}
	if fenced(rt, err, live) {
		h.job.steps[key], h.job.progress = true, true
	}
}

func (m *model) done(rt *rapid.T) {
	s, h, live := m.held(rt)
	if live {
		m.hear(rt, s, h)
	}
	if fenced(rt, s.Done(m.t.Context(), h.lease), live) {
		h.job.State, h.job.crashes = queue.Done, 0
	}
}

func (m *model) bury(rt *rapid.T) {
	s, h, live := m.held(rt)
	if live {
		m.hear(rt, s, h)
	}
	if fenced(rt, s.Bury(m.t.Context(), h.lease, errors.New("x")), live) {
		h.job.State, h.job.crashes = queue.Buried, 0
	}
}

func (m *model) hear(rt *rapid.T, s queue.Store, h modelLease) {
	if _, err := s.Extend(m.t.Context(), h.lease); err != nil {
		rt.Fatal(err)
	}
	h.job.until = m.clock + m.o.Lease
}

func (m *model) park(rt *rapid.T) {
	s, h, live := m.held(rt)
	if live {
		m.hear(rt, s, h)
	}
	until := time.Time{}
	if rapid.Bool().Draw(rt, "until") {
		until = h.lease.Until.Add(time.Hour - m.o.Lease)
	}
	var cause error
	if rapid.Bool().Draw(rt, "charged") {
		cause = errors.New("x")
	}
	if !fenced(rt, s.Park(m.t.Context(), h.lease, until, cause), live) {
		return
	}
	j := h.job
	j.State, j.crashes, j.never, j.due = queue.Parked, 0, until.IsZero(), m.clock+time.Hour
	if cause != nil {
		j.Retries++
	}
}

func (m *model) send(rt *rapid.T) {
	if len(m.jobs) == 0 {
		rt.Skip("no job yet")
	}
	s, _ := m.client(rt)
	j := rapid.SampledFrom(m.jobs).Draw(rt, "job")
	reopen := rapid.Bool().Draw(rt, "reopen") && j.State.Finished()
	j.signals++
	err := s.Send(m.t.Context(), j.ID, queue.Signal{ID: fmt.Sprint(j.signals), Reopen: reopen})
	switch {
	case !j.State.Finished():
		if j.State == queue.Parked {
			j.State = queue.Queued
		}
	case !reopen:
		if !errors.Is(err, queue.ErrFinished) {
			rt.Fatalf("Send to a finished job: %v, want ErrFinished", err)
		}
		return
	case j.Once != "" && m.find(func(o *modelJob) bool { return o.Once == j.Once && !o.State.Finished() }) != nil:
		if !errors.Is(err, queue.ErrOpen) {
			rt.Fatalf("reopening: %v, want ErrOpen", err)
		}
		return
	default:
		j.State, j.Retries, j.crashes = queue.Queued, 0, 0
	}
	if err != nil {
		rt.Fatalf("Send: %v", err)
	}
}

// expire and sleep let the leases run out, sleep also what is parked.
func (m *model) expire(rt *rapid.T) { m.pass(rt, m.o.Lease+time.Second) }

func (m *model) sleep(rt *rapid.T) { m.pass(rt, 2*time.Hour) }

func (m *model) pass(rt *rapid.T, d time.Duration) {
	if m.passed == 8 {
		rt.Skip("a ninth time might bury jobs")
	}
	m.passed++
	m.o.Advance(d)
	m.clock += d
}

// check compares all jobs with the model, as the other client sees them.
func (m *model) check(rt *rapid.T) {
	jobs, err := m.clients[1].List(m.t.Context(), queue.Query{Kinds: []string{m.kind(0), m.kind(1)}})
	if err != nil {
		rt.Fatal(err)
	}
	if len(jobs) != len(m.jobs) {
		rt.Fatalf("there are %d jobs, want %d", len(jobs), len(m.jobs))
	}
	keys, onces := map[lane]string{}, map[string]string{}
	for _, got := range jobs {
		want := m.find(func(o *modelJob) bool { return o.ID == got.ID })
		state := got.State
		if state == queue.Queued && want.State == queue.Parked && !want.never && want.due <= m.clock {
			state = queue.Parked // fell due
		}
		if state != want.State || got.Attempt != want.Attempt || got.Retries != want.Retries {
			rt.Fatalf("job %s is %s, attempt %d, retries %d; want %s, %d, %d",
				got.ID, got.State, got.Attempt, got.Retries, want.State, want.Attempt, want.Retries)
		}
		if other := keys[lane{got.Kind, got.Key}]; other != "" && got.Key != "" && got.State == queue.Running {
			rt.Fatalf("jobs %s and %s of key %s run together", got.ID, other, got.Key)
		}
		if other := onces[got.Once]; other != "" && got.Once != "" && !got.State.Finished() {
			rt.Fatalf("jobs %s and %s of once %s are unfinished", got.ID, other, got.Once)
		}
		if got.State == queue.Running {
			keys[lane{got.Kind, got.Key}] = got.ID
		}
		if !got.State.Finished() {
			onces[got.Once] = got.ID
		}
	}
}
