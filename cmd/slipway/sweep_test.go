package main

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// Commands that are written while nobody listens run when somebody does, each
// once. Another sweep, of this process or of the next, asks for nothing.
func TestCommandsWhileTheReceiverIsDown(t *testing.T) {
	t.Parallel()
	const commands = 10
	s := newShore(t)
	s.away()
	for i := range commands {
		number := s.open(fmt.Sprintf("Greet people in way %d", i))
		_, err := s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: number, By: "mira", Body: "/build --plan-only"})
		must(t, err)
	}
	until(t, time.Minute, "the webhooks are not sent", func() bool { return s.attempts() > 0 && s.pending() == 0 })
	for _, d := range s.sim.Deliveries() {
		if d.StatusCode == http.StatusAccepted {
			t.Fatalf("somebody took %+v", d)
		}
	}

	s.listen()
	slipway, stop := s.serve(company)
	until(t, 5*time.Minute, "the commands do not run", func() bool { return len(s.jobs(pipeline.KindBuild)) == commands })
	s.rest()
	once := func() {
		t.Helper()
		builds := s.jobs(pipeline.KindBuild)
		tickets := map[string]bool{}
		for _, b := range builds {
			tickets[b.Key] = true
			if final, err := pipeline.Read(t.Context(), s.store, b.ID); err != nil || final.State != "planned" || b.State != queue.Done {
				t.Errorf("build %s is %s, %v: %s %s", b.ID, b.State, err, final.State, final.Cause)
			}
		}
		if len(builds) != commands || len(tickets) != commands {
			t.Errorf("%d builds of %d tickets, want %d", len(builds), len(tickets), commands)
		}
	}
	once()
	before, known := s.attempts(), len(s.jobs(inbox.Kind))
	if asked, err := slipway.Sweep(t.Context()); asked > 0 || err != nil {
		t.Errorf("the second sweep asked for %d, %v", asked, err)
	}
	stop()

	s.listen()
	slipway, _ = s.serve(company)
	if asked, err := slipway.Sweep(t.Context()); asked > 0 || err != nil {
		t.Errorf("after a restart a sweep asked for %d, %v", asked, err)
	}
	s.rest()
	if after := s.attempts(); after != before {
		t.Errorf("GitHub sent %d webhooks more", after-before)
	}
	if jobs := s.jobs(inbox.Kind); len(jobs) != known {
		t.Errorf("%d deliveries, want %d", len(jobs), known)
	}
	once()
}

// attempts is how many webhooks GitHub sent, in the end or in vain.
func (s *server) attempts() int { return len(s.sim.Deliveries()) }

// pending is how many wait to be sent.
func (s *server) pending() (n int) {
	for _, d := range s.sim.Deliveries() {
		if d.Pending {
			n++
		}
	}
	return n
}
