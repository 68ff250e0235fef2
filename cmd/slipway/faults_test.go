package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// hasty is a store that lets everybody write to GitHub at once.
type hasty struct{ *queue.SQLite }

func (h hasty) Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	if strings.HasPrefix(bucket, "github/") {
		return 0, nil
	}
	return h.SQLite.Take(ctx, bucket, n, limit)
}

// hurried is a hasty store in which a job that failed is tried again at once.
type hurried struct{ hasty }

func (h hurried) Park(ctx context.Context, l *queue.Lease, until time.Time, cause error) error {
	if cause != nil {
		until = time.Now().Add(100 * time.Millisecond)
	}
	return h.hasty.Park(ctx, l, until, cause)
}

// careful is the repository whose plans wait for an approval.
const careful = "harbour/careful"

// A thread is a ticket on which people do one thing, which has one right end.
type thread struct {
	repo   string
	number int
	ends   report.State // of its build; empty: it has none
	says   string       // in Slipway's last word on it
	wrote  int          // comments of Slipway's in the end: each notifies everybody
}

// flows are five people who want five things of one server.
type flows struct {
	*server
	slipway *app.App
	threads map[string]thread
}

// newFlows starts a server with the tickets; nothing is asked yet.
func newFlows(t *testing.T) *flows {
	t.Helper()
	f := &flows{server: newShore(t), threads: map[string]thread{}}
	f.conf.Slots.Builds = 4
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(f.stand())
		}
	})
	f.slipway, _ = f.serve(company.but(cast{"pm.sh": "case $request in *'To be cancelled'*) exec sleep 600 ;; esac\n"}))
	files := checked(green)
	files[".github/slipway.yml"] += "build:\n  approval: plan\n"
	_, err := f.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "careful", Files: files})
	must(t, err)
	_, err = f.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: careful, Login: "mira", Role: "write"})
	must(t, err)
	_, err = f.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"careful"}})
	must(t, err)
	for title, end := range map[string]thread{
		"To be built":     {fullName, 0, report.Succeeded, "succeeded", 2},
		"To be refused":   {fullName, 0, "", "needs the role **write**", 1},
		"To be cancelled": {fullName, 0, report.Canceled, "cancelled by mira", 2},
		"To be approved":  {careful, 0, report.Succeeded, "succeeded", 3}, // the plan is shown in a comment of its own
		"To be labelled":  {fullName, 0, report.Succeeded, "succeeded", 2},
	} {
		made, err := f.sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: end.repo, Title: title, Body: "By name.", By: "mira"})
		must(t, err)
		end.number = made.Number
		f.threads[title] = end
	}
	f.rest()
	return f
}

func (f *flows) types(by, title, line string) {
	f.Helper()
	at := f.threads[title]
	_, err := f.sim.Comment(f.Context(), githubsim.CommentSpec{Repo: at.repo, Number: at.number, By: by, Body: line})
	must(f.T, err)
}

// build is the build of a ticket, if it was queued yet.
func (f *flows) build(title string) (queue.Job, bool) {
	f.Helper()
	at := f.threads[title]
	for _, j := range f.jobs(pipeline.KindBuild) {
		if j.Key == at.repo+"#"+strconv.Itoa(at.number) {
			return j, true
		}
	}
	return queue.Job{}, false
}

// run has everybody do what they want, and returns when it has come to an end;
// meanwhile is done now and then.
func (f *flows) run(meanwhile func()) {
	f.Helper()
	wait := func(what string, is func() bool) {
		f.Helper()
		until(f.T, 2*time.Minute, what, func() bool { meanwhile(); return is() })
	}
	f.types("mira", "To be built", "/build")
	f.types("rita", "To be refused", "/build")
	f.types("mira", "To be cancelled", "/build")
	f.types("mira", "To be approved", "/build")
	label := f.threads["To be labelled"]
	_, err := f.sim.Label(f.Context(), githubsim.Labelling{Repo: label.repo, Number: label.number, Label: "slipway:build", By: "mira"})
	must(f.T, err)
	wait("the build to cancel does not begin", func() bool {
		j, ok := f.build("To be cancelled")
		return ok && len(f.keys(j.ID, "pin")) > 0
	})
	f.types("mira", "To be cancelled", "/cancel")
	hash := ""
	wait("the plan is not shown", func() bool {
		j, ok := f.build("To be approved")
		if !ok {
			return false
		}
		b, err := pipeline.Read(f.Context(), f.store, j.ID)
		if err == nil && b.State == report.WaitingApproval && b.Gate != nil {
			hash = b.Gate.Hash
		}
		return hash != ""
	})
	f.types("mira", "To be approved", "/approve "+hash[:12])
	wait("the builds do not end", func() bool {
		jobs := f.jobs(pipeline.KindBuild)
		for _, j := range jobs {
			if !j.State.Finished() {
				return false
			}
		}
		return len(jobs) == 4
	})
	wait("the server does not come to rest", func() bool {
		jobs, err := f.store.List(f.Context(), queue.Query{Unfinished: true})
		must(f.T, err)
		return len(jobs) == 0 && f.pending() == 0
	})
}

// ended wants every thread at its right end, and nothing on it twice.
func (f *flows) ended() {
	f.Helper()
	for _, kind := range []string{pipeline.KindBuild, inbox.Kind} {
		for _, j := range f.jobs(kind) {
			if j.State != queue.Done {
				f.Errorf("%s %s is %s: %s", kind, j.ID, j.State, j.Cause)
			}
		}
	}
	gh := f.hub()
	for title, end := range f.threads {
		owner, name, _ := strings.Cut(end.repo, "/")
		all, _, err := gh.Issues.ListComments(f.Context(), owner, name, end.number, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}})
		must(f.T, err)
		var ours []string
		for _, c := range all {
			if c.GetUser().GetLogin() == "slipway[bot]" {
				ours = append(ours, c.GetBody())
			}
		}
		said := strings.Join(ours, "\n---\n")
		if len(ours) != end.wrote || !strings.Contains(strings.ToLower(said), strings.ToLower(end.says)) {
			f.Errorf("%s: %d comments, want %d and %q:\n%s", title, len(ours), end.wrote, end.says, said)
		}
		j, built := f.build(title)
		if built != (end.ends != "") {
			f.Errorf("%s: a build is there: %t", title, built)
		}
		if !built {
			continue
		}
		b, err := pipeline.Read(f.Context(), f.store, j.ID)
		must(f.T, err)
		if tracking := strings.Count(said, " run="+j.ID+" -->"); b.State != end.ends || tracking != 1 {
			f.Errorf("%s: %s (%s), %d tracking comments", title, b.State, b.Cause, tracking)
		}
		f.published(gh, title, b)
	}
}

// published wants one branch, one pull request and one check run of a build that
// has succeeded, and none of any other.
func (f *flows) published(gh *github.Client, title string, b report.Build) {
	f.Helper()
	end, want := f.threads[title], 0
	owner, name, _ := strings.Cut(end.repo, "/")
	if end.ends == report.Succeeded {
		want = 1
	}
	own, heads := fmt.Sprintf("slipway/%d-%s", end.number, strings.ReplaceAll(strings.ToLower(title), " ", "-")), 0
	for _, branch := range []string{own, own + "-2"} {
		_, resp, err := gh.Git.GetRef(f.Context(), owner, name, "heads/"+branch)
		if resp == nil || resp.StatusCode != http.StatusNotFound {
			must(f.T, err)
			heads++
		}
	}
	pulls, _, err := gh.PullRequests.List(f.Context(), owner, name, &github.PullRequestListOptions{State: "all"})
	must(f.T, err)
	opened := 0
	for _, p := range pulls {
		if strings.HasPrefix(p.GetHead().GetRef(), own) {
			opened++
		}
	}
	checks := 0
	if want > 0 {
		runs, _, err := gh.Checks.ListCheckRunsForRef(f.Context(), owner, name, b.Head, &github.ListCheckRunsOptions{Filter: github.String("all")})
		must(f.T, err)
		for _, r := range runs.CheckRuns {
			if !strings.HasPrefix(r.GetExternalID(), b.ID+":") {
				continue // two builds that do the same at the same second make the same commit
			}
			if checks++; r.GetStatus() != "completed" || r.GetConclusion() != "success" {
				f.Errorf("%s: check run %s/%s", own, r.GetStatus(), r.GetConclusion())
			}
		}
	}
	if heads != want || opened != want || checks != want {
		f.Errorf("%s: %d branches, %d pull requests, %d check runs, want %d of each", own, heads, opened, checks, want)
	}
}

// once are faults of a kind that strike a request each: those of the method on
// the path that come after so many others.
func once(kind githubsim.FaultKind, method, path string, after ...int) (all []githubsim.Fault) {
	for _, n := range after {
		all = append(all, githubsim.Fault{Kind: kind, Method: method, Path: path, Skip: n, Times: 1, RetryAfter: 3})
	}
	return all
}

// Whatever GitHub does meanwhile, people get what they asked for, once.
func TestFlowsUnderFaultsOfGitHub(t *testing.T) {
	t.Parallel()
	const requests = "/repos" // of an installation
	for name, c := range map[string]struct {
		faults    []githubsim.Fault
		meanwhile func(f *flows) func()
	}{
		"it fails here and there": {faults: slices.Concat(
			once(githubsim.FaultDropAfter, "POST", requests, 1, 4, 7, 13), once(githubsim.FaultDropBefore, "POST", requests, 9),
			once(githubsim.FaultStatus, "POST", requests, 2, 6, 16), once(githubsim.FaultStatus, "PATCH", requests, 0, 5),
			once(githubsim.FaultDropAfter, "PATCH", requests, 2), once(githubsim.FaultStatus, "POST", "/app/installations", 0, 1, 5),
			once(githubsim.FaultStatus, "GET", requests, 3, 11, 12, 13, 40), once(githubsim.FaultDropBefore, "GET", requests, 20, 60),
			once(githubsim.FaultStatus, "DELETE", requests, 0),
		)},
		"it is down for a while": {
			faults:    []githubsim.Fault{{Kind: githubsim.FaultDropBefore, Path: "/", Skip: 8}},
			meanwhile: (*flows).backUpAfter,
		},
		"it limits": {faults: slices.Concat(
			once(githubsim.FaultSecondary, "POST", requests, 2, 17), once(githubsim.FaultTooMany, "GET", requests, 25),
			once(githubsim.FaultPrimary, "PATCH", requests, 1), once(githubsim.FaultTooMany, "POST", "/app/installations", 4),
		)},
		"tokens end all the time": {meanwhile: func(f *flows) func() {
			var seen atomic.Int64
			f.sim.Observe(func(githubsim.Exchange) { seen.Add(1) })
			return func() {
				if seen.Load() >= 60 { // what takes an hour
					seen.Store(0)
					_, err := f.sim.ExpireTokens(f.Context(), githubsim.Done{})
					must(f.T, err)
				}
			}
		}},
		"it is slow": {faults: []githubsim.Fault{{Kind: githubsim.FaultLatency, Path: "/", Delay: 150 * time.Millisecond}}},
		"webhooks are lost, late and repeated": {
			faults: []githubsim.Fault{
				{Kind: githubsim.FaultRepeat, Event: "issue_comment.created", Skip: 1, Times: 2},
				{Kind: githubsim.FaultDelay, Event: "issue_comment.created", Times: 1},
				{Kind: githubsim.FaultLose, Event: "issue_comment.created", Skip: 2, Times: 2},
				{Kind: githubsim.FaultLose, Event: "issues.labeled", Times: 1},
				{Kind: githubsim.FaultDelay, Event: "issue_comment", Skip: 6, Times: 3},
			},
			meanwhile: func(f *flows) func() {
				return func() { _, err := f.slipway.Sweep(f.Context()); must(f.T, err) }
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFlows(t)
			for _, fault := range c.faults {
				_, err := f.sim.AddFault(t.Context(), fault)
				must(t, err)
			}
			meanwhile := func() {}
			if c.meanwhile != nil {
				meanwhile = c.meanwhile(f)
			}
			f.run(meanwhile)
			_, err := f.sim.ClearFaults(t.Context(), githubsim.Done{})
			must(t, err)
			f.ended()
		})
	}
}

// backUpAfter lets GitHub answer again after six seconds in which every request
// was given up, those too that are sent four times.
func (f *flows) backUpAfter() func() {
	until := time.Now().Add(6 * time.Second)
	return func() {
		if time.Now().After(until) {
			_, err := f.sim.ClearFaults(f.Context(), githubsim.Done{})
			must(f.T, err)
		}
	}
}
