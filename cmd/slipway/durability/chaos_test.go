package durability_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

var (
	chaosBuilds = flag.Int("chaos-builds", 2, "how many builds run while workers are killed")
	chaosSeed   = flag.Uint64("chaos-seed", 0, "of who is killed when; 0 is another one each time")
)

// Builds run side by side on three hosts that share Redis and GitHub, and one of
// the three is killed every few seconds. Each build ends as if nobody had been:
// with the tree that its agents make undisturbed, one draft pull request, one
// tracking comment, one of its end, and one check run.
func TestChaosOfBuilds(t *testing.T) {
	t.Parallel()
	seed := *chaosSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-chaos-seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, seed))

	h := newHub(t, pair())
	h.moveTo(t, queuetest.StartRedis(t))
	tickets := []githubsim.Thread{h.ticket}
	for len(tickets) < *chaosBuilds {
		var another githubsim.Thread
		h.do(t, "ticket", githubsim.TicketSpec{Repo: fullName, Title: "List the ships", Body: goal, By: maintainer}, &another)
		tickets = append(tickets, another)
	}
	h.serve(t)
	work := func(state string) *process {
		return start(t, state, h.env, append([]string{"worker", "--config", h.config}, h.flags...)...)
	}
	states := []string{h.state, t.TempDir(), t.TempDir()}
	workers := []*process{nil, work(states[1]), work(states[2])} // the first is the server
	for _, ticket := range tickets {
		h.do(t, "label", githubsim.Labelling{Repo: fullName, Number: ticket.Number, Label: label, By: maintainer}, nil)
	}
	eventually(t, longRun+time.Duration(*chaosBuilds)*5*time.Second, func() string {
		if n := len(h.jobs(t, pipeline.KindBuild)); n < len(tickets) {
			return fmt.Sprintf("%d of %d builds are queued", n, len(tickets))
		}
		return ""
	})

	killed := 0
	deadline := time.After(2*time.Minute + time.Duration(*chaosBuilds)*30*time.Second)
	for open := -1; open != 0; {
		select {
		case <-deadline:
			t.Fatalf("%d builds are still open after %d kills", open, killed)
		case <-time.After(time.Duration(2000+dice.IntN(8000)) * time.Millisecond):
		}
		if killed < 3**chaosBuilds { // then all can end
			killed++
			if i := dice.IntN(len(workers)); i == 0 {
				h.server.kill()
				h.serve(t)
			} else {
				workers[i].kill()
				workers[i] = work(states[i])
			}
		}
		open = 0
		for _, j := range h.jobs(t, pipeline.KindBuild) {
			if !j.State.Finished() {
				open++
			}
		}
	}
	t.Logf("%d builds ended over %d kills", len(tickets), killed)
	for _, w := range workers[1:] {
		w.kill()
	}
	h.rest(t)
	h.judge(t, tickets)
}

// judge looks at what the builds of the tickets left on GitHub.
func (h *hub) judge(t *testing.T, tickets []githubsim.Thread) {
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
	trees := map[string]bool{}
	for _, p := range pulls {
		trees[git(t, clone, "rev-parse", p.Head.SHA+"^{tree}")] = true
		if got := git(t, clone, "show", p.Head.SHA+":list.txt"); got != "first\nalpha\nbeta\nlast" {
			t.Errorf("%s has another tree than undisturbed: list.txt is %q", p.Head.Ref, got)
		}
		var checks struct {
			CheckRuns []thing `json:"check_runs"`
		}
		h.get(t, "/commits/"+p.Head.SHA+"/check-runs?filter=all", &checks)
		if !p.Draft || p.State != "open" || len(checks.CheckRuns) != 1 || checks.CheckRuns[0].Conclusion != "success" {
			t.Errorf("%+v with check runs %+v; want an open draft with one that succeeded", p, checks.CheckRuns)
		}
	}
	if len(trees) != 1 {
		t.Errorf("the same agents made %d different trees", len(trees))
	}
	for _, ticket := range tickets {
		var comments []thing
		h.get(t, fmt.Sprintf("/issues/%d/comments", ticket.Number), &comments)
		if len(comments) != 2 { // how it goes, and how it ended
			t.Errorf("#%d has %d comments, want two: %+v", ticket.Number, len(comments), comments)
		}
	}
}
