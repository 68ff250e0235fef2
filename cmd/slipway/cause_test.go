package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// Whatever goes wrong, the ticket says within a minute of it what did, what was
// kept and where, and what to type; and where there is a commit to hold one, so
// does a check that is not green.
func TestWhatPeopleReadAfterAFault(t *testing.T) {
	t.Parallel()
	s := newShore(t)
	s.conf.Slots.Builds = 3
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.stand())
		}
	})
	s.serve(company.but(cast{"pm.sh": `case $request in
*'The agent is killed'*) kill -9 $$ ;;
*'The provider limits'*) echo 'HTTP 429: slow down' >&2; exit 75 ;;
*'The provider fails'*) echo 'HTTP 500: oops' >&2; exit 75 ;;
*'The disk is full'*) until [ -f "$here/full" ]; do sleep 0.1; done ;;
esac
`}))
	refused := func(path string, code int) func(*testing.T, string) {
		return func(t *testing.T, repo string) {
			_, err := s.sim.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultStatus, Method: "POST", Path: "/repos/" + repo + path, Status: code})
			must(t, err)
		}
	}
	for title, c := range map[string]struct {
		breaks func(t *testing.T, repo string)  // before it is built
		then   func(t *testing.T, build string) // while it is
		ends   report.State
		says   []string // beside the command
		check  string   // conclusion; empty: there is no commit to hold one, or it is what was refused
	}{
		"The agent is killed":     {nil, nil, report.Failed, []string{"plan/pm: the agent's program ended with a signal"}, ""},
		"The provider limits":     {nil, nil, report.Failed, []string{"HTTP 429: slow down", "gave up after"}, ""},
		"The provider fails":      {nil, nil, report.Failed, []string{"HTTP 500: oops", "gave up after"}, ""},
		"A pull is forbidden":     {refused("/pulls", http.StatusForbidden), nil, report.NeedsHuman, []string{"GitHub refused: ", "open a pull request", "403", "the build's work is on the branch slipway/1-a-pull-is-forbidden"}, "action_required"},
		"A pull has no place":     {refused("/pulls", http.StatusNotFound), nil, report.NeedsHuman, []string{"GitHub refused: ", "404", "slipway/1-a-pull-has-no-place"}, "action_required"},
		"A pull is unprocessable": {refused("/pulls", http.StatusUnprocessableEntity), nil, report.NeedsHuman, []string{"GitHub refused: ", "422", "slipway/1-a-pull-is-unprocessable"}, "action_required"},
		"A check is forbidden":    {refused("/check-runs", http.StatusForbidden), nil, report.NeedsHuman, []string{"GitHub refused: ", "create check run", "403", "slipway/1-a-check-is-forbidden"}, ""},
		"The disk is full":        {nil, s.fillsUp, report.NeedsHuman, []string{"the disk of the server is full", "no space left on device"}, ""},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			name := strings.ReplaceAll(strings.ToLower(title), " ", "-")
			repo := "harbour/" + name
			s.repository(t, name)
			made, err := s.sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: repo, Title: title, Body: "By name.", By: "mira"})
			must(t, err)
			if c.breaks != nil {
				c.breaks(t, repo)
			}
			_, err = s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: repo, Number: made.Number, By: "mira", Body: "/build"})
			must(t, err)
			var b report.Build
			until(t, time.Minute, "the build does not end", func() bool {
				for _, j := range s.jobs(pipeline.KindBuild) {
					if !strings.HasPrefix(j.Key, repo+"#") {
						continue
					}
					if c.then != nil {
						c.then(t, j.ID)
						c.then = nil
					}
					if j.State.Finished() {
						b, err = app.Account(t.Context(), s.store, j)
						must(t, err)
						return true
					}
				}
				return false
			})
			if b.State != c.ends {
				t.Errorf("the build is %s: %s", b.State, b.Cause)
			}
			gh := s.hub()
			all, _, err := gh.Issues.ListComments(t.Context(), "harbour", name, made.Number, nil)
			must(t, err)
			if len(all) != 3 { // the command, the tracking comment, and the one that notifies of the end
				t.Fatalf("%d comments", len(all))
			}
			said := strings.ReplaceAll(all[1].GetBody(), "\\", "")
			for _, want := range append(c.says, "**Next:** `/resume`") {
				if !strings.Contains(said, want) {
					t.Errorf("the comment does not say %q:\n%s", want, said)
				}
			}
			if c.check == "" {
				return
			}
			runs, _, err := gh.Checks.ListCheckRunsForRef(t.Context(), "harbour", name, b.Head, nil)
			must(t, err)
			if len(runs.CheckRuns) != 1 || runs.CheckRuns[0].GetConclusion() != c.check || !strings.Contains(runs.CheckRuns[0].GetOutput().GetSummary(), "GitHub refused") {
				t.Errorf("check runs %v", runs.CheckRuns)
			}
		})
	}
}

// repository makes another repository of the installation's.
func (s *server) repository(t *testing.T, name string) {
	t.Helper()
	_, err := s.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: name, Files: checked(green)})
	must(t, err)
	_, err = s.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: "harbour/" + name, Login: "mira", Role: "write"})
	must(t, err)
	_, err = s.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{name}})
	must(t, err)
}

// fillsUp has the disk be full where a build keeps its plan, which an agent is
// still at.
func (s *server) fillsUp(t *testing.T, build string) {
	t.Helper()
	dir := filepath.Join(s.conf.StateDir, "builds", build, "plan")
	must(t, os.MkdirAll(dir, 0o700))
	must(t, os.Symlink("/dev/full", filepath.Join(dir, "prd.md")))
	write(t, s.cast, map[string]string{"full": ""})
}

// A build that runs into its limit shows what it has: the branch, a draft, and a
// check that says that the time was up.
func TestWhatPeopleReadAfterTheDeadline(t *testing.T) {
	t.Parallel()
	s := newShore(t)
	s.serve(company.but(cast{
		"sprint_planner.json": planned(`{"name":"add-greet"}`, `{"name":"greet-again","depends_on":["add-greet"]}`),
		"coder.sh":            "case $step in issue-02/*) exec sleep 600 ;; esac\n" + company["coder.sh"],
	}), func(e *pipeline.Engine) { e.Defaults.Limits.BuildTimeout = 15 * time.Second })
	s.ticket = s.open("Greet people")
	s.says("mira", "/build")
	until(t, time.Minute, "the build does not end", func() bool {
		j := s.jobs(pipeline.KindBuild)
		return len(j) == 1 && j[0].State.Finished()
	})
	b, err := app.Account(t.Context(), s.store, s.jobs(pipeline.KindBuild)[0])
	must(t, err)
	if b.State != report.TimedOut || b.Pull == nil {
		t.Fatalf("the build is %s: %s", b.State, b.Cause)
	}
	_, checks, comment := s.shown()
	for _, want := range []string{"the build ran into its limit of 15s", "slipway/1-greet-people", "1 of 2 issues landed", "the build stopped before it landed", "**Next:** `/resume`"} {
		if !strings.Contains(comment, want) {
			t.Errorf("the comment does not say %q:\n%s", want, comment)
		}
	}
	if checks["slipway/build"] != "completed/timed_out" {
		t.Errorf("checks %v", checks)
	}
}
