package durability_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

var (
	chaosBuilds = flag.Int("chaos-builds", fewBuilds, "how many builds run while workers are killed")
	chaosSeed   = flag.Uint64("chaos-seed", 0, "of who is killed when; 0 is another one each time")
)

// fewBuilds are enough for a run that is to be short.
const fewBuilds = 2

// Builds run side by side on three hosts that share Redis and GitHub, and every
// few seconds one of the three is killed, or Redis is; in a long run a host also
// stands still for longer than its lease, or Redis does. Each build ends as if
// nothing had been: with the tree that its agents make undisturbed, one draft pull
// request, one tracking comment, one of its end, and one check run.
func TestChaosOfBuilds(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos-seed %d", seed)
	h := newHub(t, pair())
	w := newWaters(t, h, rand.New(rand.NewPCG(seed, seed)))
	tickets := []githubsim.Thread{h.ticket}
	for len(tickets) < *chaosBuilds {
		var another githubsim.Thread
		h.do(t, "ticket", githubsim.TicketSpec{Repo: fullName, Title: "List the ships", Body: goal, By: maintainer}, &another)
		tickets = append(tickets, another)
	}
	for _, ticket := range tickets {
		h.do(t, "label", githubsim.Labelling{Repo: fullName, Number: ticket.Number, Label: label, By: maintainer}, nil)
	}
	eventually(t, longRun, func() string {
		if n := len(h.jobs(t, "delivery")); n < len(tickets) {
			return fmt.Sprintf("%d of %d labels have come in", n, len(tickets))
		}
		return ""
	})

	deadline := time.After(5*time.Minute + time.Duration(*chaosBuilds)*30*time.Second)
	troubles := 0
	for open := -1; open != 0; {
		select {
		case <-deadline:
			for _, j := range slices.Concat(h.jobs(t, pipeline.KindBuild), h.jobs(t, "delivery")) {
				if !j.State.Finished() {
					t.Errorf("%s %s is %s since %s until %s, attempt %d, retries %d: %s", j.Kind, j.ID, j.State, j.Updated, j.NotBefore, j.Attempt, j.Retries, j.Cause)
				}
			}
			t.Fatalf("%d builds are still open after %v", open, w.made)
		case <-time.After(time.Duration(2000+w.dice.IntN(8000)) * time.Millisecond):
		}
		if troubles < 3**chaosBuilds { // then all can end
			w.trouble(t)
			troubles++
		}
		builds := h.jobs(t, pipeline.KindBuild)
		open = len(tickets) - len(builds)
		for _, j := range builds {
			if !j.State.Finished() {
				open++
			}
		}
	}
	t.Logf("%d builds ended over %v", len(tickets), w.made)
	w.calm(t)
	h.rest(t)
	tree, _ := calmPair(t)
	h.judge(t, tickets, tree)
}

// calmly holds what an undisturbed server makes of the pair.
var calmly struct {
	sync.Mutex
	tree    string
	entries []queue.Entry
}

// calmPair is an undisturbed run of the pair: its tree and its journal.
func calmPair(t *testing.T) (tree string, entries []queue.Entry) {
	t.Helper()
	calmly.Lock()
	defer calmly.Unlock()
	if calmly.tree == "" {
		h := newHub(t, pair())
		h.serve(t)
		h.label(t)
		h.rest(t)
		calmly.tree, calmly.entries = h.complete(t), h.build(t).entries
	}
	return calmly.tree, calmly.entries
}

// Waters are three hosts that share nothing but Redis and GitHub, and what
// happens to them. The first host is the hub's server.
type waters struct {
	*hub
	redis   *queuetest.Redis
	dice    *rand.Rand
	hosts   []*host
	made    map[trouble]int
	unhappy []trouble // what may happen, the likely more than once
}

type host struct {
	state string
	at    *process    // nil: the server
	wakes *time.Timer // of one that stands still
}

// A trouble is what happens to a host or to Redis.
type trouble string

const (
	died        trouble = "deaths of a host"
	stood       trouble = "hosts that stood still"
	redisDied   trouble = "deaths of Redis"
	redisPaused trouble = "pauses of Redis"
)

func newWaters(t *testing.T, h *hub, dice *rand.Rand) *waters {
	t.Helper()
	w := &waters{hub: h, redis: queuetest.StartRedis(t), dice: dice, made: map[trouble]int{}, unhappy: []trouble{died, died, died, died, died, redisDied}}
	if *chaosBuilds > fewBuilds { // those that take longer than a lease
		w.unhappy = append(w.unhappy, stood, stood, redisPaused)
	}
	h.moveTo(t, w.redis)
	h.serve(t)
	w.hosts = []*host{{state: h.state}, {state: t.TempDir()}, {state: t.TempDir()}}
	for _, one := range w.hosts[1:] {
		w.revive(t, one)
	}
	return w
}

// trouble makes something happen.
func (w *waters) trouble(t *testing.T) {
	t.Helper()
	what := w.unhappy[w.dice.IntN(len(w.unhappy))]
	hit := w.hosts[w.dice.IntN(len(w.hosts))]
	pause := lease/2 + time.Duration(w.dice.Int64N(int64(lease)))
	if what == stood && hit.wakes != nil {
		what = died // while it stood still
	}
	w.made[what]++
	switch what {
	case died:
		w.process(hit).kill()
		w.wake(hit)
		w.revive(t, hit)
	case stood:
		p := w.process(hit)
		p.signal(t, syscall.SIGSTOP)
		hit.wakes = time.AfterFunc(lease/2+pause, func() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }) // it may have been killed
	case redisDied:
		w.redis.Kill()
		w.redis.Start()
	case redisPaused:
		w.redis.Stop()
		<-time.After(pause)
		w.redis.Continue()
	}
}

func (w *waters) process(of *host) *process {
	if of.at == nil {
		return w.server
	}
	return of.at
}

// revive starts what was killed.
func (w *waters) revive(t *testing.T, one *host) {
	t.Helper()
	if one == w.hosts[0] {
		w.serve(t)
		return
	}
	one.at = start(t, one.state, w.env, append([]string{"worker", "--config", w.config}, w.flags...)...)
}

func (w *waters) wake(one *host) {
	if one.wakes != nil && one.wakes.Stop() {
		_ = w.process(one).cmd.Process.Signal(syscall.SIGCONT) // it may have been killed
	}
	one.wakes = nil
}

// calm wakes all, and leaves the server alone.
func (w *waters) calm(t *testing.T) {
	t.Helper()
	for i, one := range w.hosts {
		w.wake(one)
		if i > 0 {
			one.at.kill()
		}
	}
}

// judge looks at what the builds of the tickets left on GitHub. Each is to have
// made this tree.
func (h *hub) judge(t *testing.T, tickets []githubsim.Thread, tree string) {
	t.Helper()
	for _, j := range h.jobs(t, pipeline.KindBuild) {
		if j.State != queue.Done {
			t.Errorf("%s is %s: %s", j.ID, j.State, j.Cause)
		}
	}
	var pulls []thing
	h.get(t, "/pulls?state=all&per_page=100", &pulls)
	if len(pulls) != len(tickets) {
		t.Errorf("%d pull requests for %d tickets", len(pulls), len(tickets))
	}
	clone := t.TempDir()
	git(t, clone, "init", "--quiet", "--bare")
	git(t, clone, "fetch", "--quiet", h.sim.URL+"/"+fullName+".git", "refs/heads/*:refs/heads/*")
	if got := strings.Fields(git(t, clone, "for-each-ref", "--format=%(refname)")); len(got) != 1+len(tickets) {
		t.Errorf("branches %v, want main and one for each ticket", got)
	}
	heads := map[string]int{}
	for _, p := range pulls {
		heads[p.Head.SHA]++
	}
	for _, p := range pulls {
		if got := git(t, clone, "rev-parse", p.Head.SHA+"^{tree}"); got != tree {
			t.Errorf("%s has tree %s, undisturbed it is %s: list.txt is %q", p.Head.Ref, got, tree, git(t, clone, "show", p.Head.SHA+":list.txt"))
		}
		var checks struct {
			CheckRuns []thing `json:"check_runs"`
		}
		h.get(t, "/commits/"+p.Head.SHA+"/check-runs?filter=all", &checks)
		if !p.Draft || p.State != "open" {
			t.Errorf("%s is %s, draft: %t; want an open draft", p.Head.Ref, p.State, p.Draft)
		}
		of := map[string]bool{} // builds that end in the same second may make the same commit
		for _, c := range checks.CheckRuns {
			of[c.ExternalID] = c.Conclusion == "success"
		}
		if len(of) != len(checks.CheckRuns) || len(of) != heads[p.Head.SHA] || slices.Contains(slices.Collect(maps.Values(of)), false) {
			t.Errorf("%s, a commit of %d builds, has check runs %+v; want of each one that succeeded", p.Head.Ref, heads[p.Head.SHA], checks.CheckRuns)
		}
	}
	for _, ticket := range tickets {
		var comments []thing
		h.get(t, fmt.Sprintf("/issues/%d/comments", ticket.Number), &comments)
		if len(comments) != 2 { // how it goes, and how it ended
			t.Errorf("#%d has %d comments, want two: %+v", ticket.Number, len(comments), comments)
		}
	}
}
