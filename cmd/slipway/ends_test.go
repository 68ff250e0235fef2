package main

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// When what a build is for goes away, the build ends at once: its agents stop,
// what it has is kept, and the ticket says so where there still is one to reach.
func TestBuildsEndWithWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	closed := "closed"
	access := githubsim.Access{App: "slipway", Account: "harbour", Repos: []string{"greeter"}, By: "mira"}
	for name, c := range map[string]struct {
		happens func(*server) error
		why     string
		silent  bool // nothing can be written on the ticket any more
	}{
		"the ticket is closed": {func(s *server) error {
			_, err := s.sim.EditTicket(s.Context(), githubsim.TicketEdit{Repo: fullName, Number: s.ticket, State: &closed, By: "mira"})
			return err
		}, "cancelled by mira: the ticket was closed", false},
		"the App is uninstalled": {func(s *server) error { _, err := s.sim.Uninstall(s.Context(), access); return err },
			"cancelled by mira: the App was uninstalled", true},
		"the App is suspended": {func(s *server) error { _, err := s.sim.Suspend(s.Context(), access); return err },
			"cancelled by mira: the App was suspended", true},
		"the repository is withdrawn": {func(s *server) error { _, err := s.sim.Withdraw(s.Context(), access); return err },
			"cancelled by mira: the App does not reach the repository any more", true},
		"the repository is renamed": {func(s *server) error {
			_, err := s.sim.Rename(s.Context(), githubsim.Renaming{Repo: fullName, Name: "welcomer", By: "mira"})
			return err
		}, "cancelled by mira: the repository is harbour/welcomer now", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, company.but(cast{"pm.sh": "exec sleep 600\n"}))
			s.says("mira", "/build")
			until(t, time.Minute, "the build does not begin", func() bool {
				b := s.jobs(pipeline.KindBuild)
				if len(b) == 0 {
					return false
				}
				entries, err := s.store.Entries(t.Context(), b[0].ID, 0)
				must(t, err)
				return len(entries) > 1
			})
			must(t, c.happens(s))
			s.rest()
			job := s.jobs(pipeline.KindBuild)[0]
			final, err := pipeline.Read(t.Context(), s.store, job.ID)
			must(t, err)
			ended := job.State == queue.Done && final.State == report.Canceled
			if c.silent {
				ended = job.State == queue.Buried && strings.Contains(job.Cause, "no longer lets the App into the repository")
			}
			if !ended || !strings.HasPrefix(final.Cause, c.why) {
				t.Errorf("the job is %s (%s); the build is %s: %q, want %q", job.State, job.Cause, final.State, final.Cause, c.why)
			}
			said := ""
			for _, x := range s.changes() {
				said += string(x.Request)
			}
			if got := strings.Contains(said, strings.TrimPrefix(c.why, "cancelled by mira: ")); got == c.silent {
				t.Errorf("the ticket was told: %t\n%s", got, said)
			}
			if unknown := s.sim.Unknown(); len(unknown) > 0 {
				t.Errorf("unknown requests: %v", unknown)
			}
		})
	}
}
