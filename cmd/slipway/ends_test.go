package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app"
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
	resume := func(s *server, repo string) error {
		_, err := s.sim.Comment(s.Context(), githubsim.CommentSpec{Repo: repo, Number: s.ticket, By: "mira", Body: "/resume"})
		return err
	}
	access := githubsim.Access{App: "slipway", Account: "harbour", Repos: []string{"greeter"}, By: "mira"}
	for name, c := range map[string]struct {
		happens func(*server) error
		why     string
		silent  bool                // nothing can be written on the ticket any more
		again   func(*server) error // resumes it elsewhere
	}{
		"the ticket is closed": {func(s *server) error {
			_, err := s.sim.EditTicket(s.Context(), githubsim.TicketEdit{Repo: fullName, Number: s.ticket, State: &closed, By: "mira"})
			return err
		}, "cancelled by mira: the ticket was closed", false, nil},
		"the App is uninstalled, and installed anew": {func(s *server) error { _, err := s.sim.Uninstall(s.Context(), access); return err },
			"cancelled by mira: the App was uninstalled", true, func(s *server) error {
				_, err := s.sim.Install(s.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"greeter"}})
				return errors.Join(err, resume(s, fullName))
			}},
		"the App is suspended": {func(s *server) error { _, err := s.sim.Suspend(s.Context(), access); return err },
			"cancelled by mira: the App was suspended", true, nil},
		"the repository is withdrawn": {func(s *server) error { _, err := s.sim.Withdraw(s.Context(), access); return err },
			"cancelled by mira: the App does not reach the repository any more", true, nil},
		"the repository is renamed": {func(s *server) error {
			_, err := s.sim.Rename(s.Context(), githubsim.Renaming{Repo: fullName, Name: "welcomer", By: "mira"})
			return err
		}, "cancelled by mira: the repository is harbour/welcomer now", false, func(s *server) error { return resume(s, "harbour/welcomer") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, company.but(cast{"pm.sh": "case $step in g2/*) ;; *) exec sleep 600 ;; esac\n"}))
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
				ended = job.State == queue.Buried && strings.Contains(job.Cause, "does not let the App into the repository")
			}
			if !ended || !strings.HasPrefix(final.Cause, c.why) {
				t.Errorf("the job is %s (%s); the build is %s: %q, want %q", job.State, job.Cause, final.State, final.Cause, c.why)
			}
			if c.silent {
				s.tellsOfBurial(job.ID, c.why)
			}
			said := ""
			for _, x := range s.changes() {
				said += string(x.Request)
			}
			if got := strings.Contains(said, strings.TrimPrefix(c.why, "cancelled by mira: ")); got == c.silent {
				t.Errorf("the ticket was told: %t\n%s", got, said)
			}
			if c.again != nil {
				must(t, c.again(s))
				until(t, time.Minute, "it does not go on", func() bool { return s.jobs(pipeline.KindBuild)[0].Attempt > job.Attempt })
				s.rest()
				again, err := app.Account(t.Context(), s.store, s.jobs(pipeline.KindBuild)[0])
				must(t, err)
				if again.State != report.Succeeded || again.Pull == nil || len(s.jobs(pipeline.KindBuild)) != 1 {
					t.Errorf("resumed, the build is %s: %s", again.State, again.Cause)
				}
			}
			if unknown := s.sim.Unknown(); len(unknown) > 0 {
				t.Errorf("unknown requests: %v", unknown)
			}
		})
	}
}

// tellsOfBurial wants status and list to say what became of a build of which
// GitHub cannot be told.
func (s *server) tellsOfBurial(build, why string) {
	s.Helper()
	term := newTerminal(s.T)
	term.state = s.conf.StateDir
	end := term.slipway("status", build)
	for _, want := range []string{"Needs a person", why, "; the build was given up: ", "GitHub does not let the App into the repository", "/resume"} {
		if end.code != 0 || !strings.Contains(strings.ReplaceAll(end.out, "\\", ""), want) {
			s.Errorf("status: exit %d, no %q in\n%s%s", end.code, want, end.out, end.err)
		}
	}
	if end := term.slipway("list"); end.code != 0 || !strings.Contains(end.out, build+"  needs_human") {
		s.Errorf("list: exit %d\n%s%s", end.code, end.out, end.err)
	}
}
