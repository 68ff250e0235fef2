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
	"github.com/slipway-dev/slipway/queue"
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

// GitHub fails for longer than anybody tries. Where all of it does, builds wait
// and go on when it is back; where one thing does, the build is given up. Either
// way the ticket and the check say so within a minute, and nothing is lost.
func TestWhatPeopleReadAfterGitHubFailed(t *testing.T) {
	t.Parallel()
	s := newShore(t)
	s.hurries, s.conf.Slots.Builds = true, 2
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.stand())
		}
	})
	s.serve(company.but(cast{"git.sh": "until [ -f \"$here/broken\" ]; do sleep 0.1; done\n"}), func(e *pipeline.Engine) {
		e.Defaults.Pipeline.EnableReview, e.CIGrace = false, time.Nanosecond
	})
	tickets := map[string]int{}
	for _, name := range []string{"pulls-fail", "all-fails"} {
		s.repository(t, name)
		made, err := s.sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: "harbour/" + name, Title: "Greet people", Body: "By name.", By: "mira"})
		must(t, err)
		tickets[name] = made.Number
		_, err = s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "harbour/" + name, Number: made.Number, By: "mira", Body: "/build"})
		must(t, err)
	}
	pushed := func(name string) queue.Job {
		var job queue.Job
		until(t, time.Minute, name+" is not pushed", func() bool {
			for _, j := range s.jobs(pipeline.KindBuild) {
				if strings.HasPrefix(j.Key, "harbour/"+name+"#") && len(s.keys(j.ID, "publish/push")) > 0 {
					job = j
				}
			}
			return job.ID != ""
		})
		return job
	}
	one, all := pushed("pulls-fail"), pushed("all-fails")
	_, err := s.sim.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultStatus, Method: "POST", Path: "/repos/harbour/pulls-fail/pulls"})
	must(t, err)
	_, err = s.sim.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultStatus, Path: "/"})
	must(t, err)
	write(t, s.cast, map[string]string{"broken": ""})
	s.becomes(t, all, func(j queue.Job) bool {
		return strings.HasPrefix(j.Cause, "GitHub is away: ") && j.Attempt > 2 && j.Retries == 0
	})
	s.becomes(t, one, func(j queue.Job) bool { return !j.State.Finished() })
	_, err = s.sim.ClearFaults(t.Context(), githubsim.Done{})
	must(t, err)
	_, err = s.sim.AddFault(t.Context(), githubsim.Fault{Kind: githubsim.FaultStatus, Method: "POST", Path: "/repos/harbour/pulls-fail/pulls"})
	must(t, err)
	back := time.Now()
	for _, c := range []struct {
		job        queue.Job
		ends       report.State
		says       []string
		conclusion string
	}{
		{all, report.Succeeded, []string{"**Succeeded: 1 issue landed**", "draft pull request"}, "success"},
		{one, report.NeedsHuman, []string{"**Why:** the build was given up: given up after 8 retries", "502", "Branch: [`slipway/1-greet-people`]", "**Next:** `/resume`"}, "action_required"},
	} {
		j := s.becomes(t, c.job, func(j queue.Job) bool { return j.State.Finished() })
		if took := time.Since(back); took > time.Minute {
			t.Errorf("%s: after %s", c.job.Key, took)
		}
		b, err := app.Account(t.Context(), s.store, j)
		must(t, err)
		if b.State != c.ends {
			t.Errorf("%s is %s: %s", c.job.Key, b.State, b.Cause)
		}
		_, name, _ := strings.Cut(b.Repo, "/")
		comments, _, err := s.hub().Issues.ListComments(t.Context(), "harbour", name, tickets[name], nil)
		must(t, err)
		if len(comments) != 3 { // the command, the tracking comment, and the one that notifies of the end
			t.Fatalf("%s: %d comments", name, len(comments))
		}
		for _, want := range c.says {
			if said := strings.ReplaceAll(comments[1].GetBody(), "\\", ""); !strings.Contains(said, want) {
				t.Errorf("%s: the comment does not say %q:\n%s", name, want, said)
			}
		}
		runs, _, err := s.hub().Checks.ListCheckRunsForRef(t.Context(), "harbour", name, b.Head, nil)
		must(t, err)
		if len(runs.CheckRuns) != 1 || runs.CheckRuns[0].GetConclusion() != c.conclusion {
			t.Errorf("%s: check runs %v", name, runs.CheckRuns)
		}
	}
}

// becomes waits for a job to be so.
func (s *server) becomes(t *testing.T, job queue.Job, is func(queue.Job) bool) (now queue.Job) {
	t.Helper()
	until(t, 2*time.Minute, job.Key+" does not come so far", func() bool {
		jobs, err := s.store.List(t.Context(), queue.Query{IDs: []string{job.ID}})
		must(t, err)
		now = jobs[0]
		return is(now)
	})
	return now
}
