package githubsim_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

// A clock is moved by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (w *world) script(t *testing.T, spec githubsim.CISpec) {
	t.Helper()
	spec.Repo = "octo/shop"
	must(w.ScriptCI(t.Context(), spec))(t)
}

func (w *world) push(t *testing.T, branch, text string) string {
	t.Helper()
	return must(w.Commit(t.Context(), githubsim.CommitSpec{Repo: "octo/shop", Branch: branch, Message: text, Files: map[string]string{"a.txt": text}, By: "maria"}))(t).SHA
}

// checks are the newest runs of a commit as name=status/conclusion, sorted.
func (w *world) checks(t *testing.T, gh *github.Client, sha string) (out []string) {
	t.Helper()
	for _, k := range got(gh.Checks.ListCheckRunsForRef(t.Context(), "octo", "shop", sha, nil))(t).CheckRuns {
		out = append(out, k.GetName()+"="+k.GetStatus()+"/"+k.GetConclusion())
	}
	slices.Sort(out)
	return out
}

func wantChecks(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("checks %q, want %q", got, want)
	}
}

func TestAScriptedCITakesItsTime(t *testing.T) {
	c := &clock{at: time.Now()}
	w := newWorld(t, githubsim.Options{Clock: c.now})
	gh := w.client(t, nil)
	w.script(t, githubsim.CISpec{
		App: "ci", Branch: "slipway/*", Delay: 5 * time.Second, Takes: time.Minute,
		Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}, Title: "1 of 9 failed"}, {Name: "lint"}, {Name: "forever", Conclusions: []string{""}}},
	})
	wantChecks(t, w.checks(t, gh, w.push(t, "other", "not for the script")))
	sha := w.push(t, "slipway/1-a", "x")
	suites := got(gh.Checks.ListCheckSuitesForRef(t.Context(), "octo", "shop", sha, nil))(t).CheckSuites
	if len(suites) != 1 || suites[0].GetStatus() != "queued" || suites[0].GetApp().GetSlug() != "ci" {
		t.Fatalf("suites %v", suites)
	}
	wantChecks(t, w.checks(t, gh, sha))
	c.pass(5 * time.Second)
	wantChecks(t, w.checks(t, gh, sha), "forever=in_progress/", "lint=in_progress/", "test=in_progress/")
	c.pass(time.Minute)
	wantChecks(t, w.checks(t, gh, sha), "forever=in_progress/", "lint=completed/success", "test=completed/failure")
}

func TestTheSameCommitIsCheckedOnce(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	gh := w.client(t, nil)
	w.script(t, githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test"}}})
	sha := w.push(t, "one", "x")
	got(gh.Git.CreateRef(t.Context(), "octo", "shop", &github.Reference{Ref: github.String("refs/heads/two"), Object: &github.GitObject{SHA: &sha}}))(t)
	all := got(gh.Checks.ListCheckRunsForRef(t.Context(), "octo", "shop", sha, &github.ListCheckRunsOptions{Filter: github.String("all")}))(t)
	if all.GetTotal() != 1 {
		t.Fatalf("%d runs", all.GetTotal())
	}
}

func TestWhichScriptActs(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	gh := w.client(t, nil)
	w.script(t, githubsim.CISpec{Branch: "slipway/*", Push: 2, Runs: []githubsim.CIRun{{Name: "second"}}})
	w.script(t, githubsim.CISpec{File: "a.txt", Holds: "bug", Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}}}})
	w.script(t, githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test"}}})
	w.script(t, githubsim.CISpec{App: "bot", Branch: "main"}) // has nothing to check
	for text, want := range map[string]string{"a bug": "test=completed/failure", "mended": "test=completed/success"} {
		wantChecks(t, w.checks(t, gh, w.push(t, "topic", text)), want)
	}
	wantChecks(t, w.checks(t, gh, w.push(t, "slipway/1-a", "first")), "test=completed/success")
	wantChecks(t, w.checks(t, gh, w.push(t, "slipway/1-a", "then")), "second=completed/success")
	wantChecks(t, w.checks(t, gh, w.push(t, "slipway/1-a", "last")), "test=completed/success")

	wantChecks(t, w.checks(t, gh, w.repo.Head))
	w.script(t, githubsim.CISpec{SHA: w.repo.Head, App: "late", Runs: []githubsim.CIRun{{Name: "on demand"}}})
	wantChecks(t, w.checks(t, gh, w.repo.Head), "on demand=completed/success")
}

func TestScriptsThatCannotBe(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	for name, spec := range map[string]githubsim.CISpec{
		"no repository":  {Repo: "octo/none"},
		"no pattern":     {Repo: "octo/shop", Branch: "[a"},
		"no name":        {Repo: "octo/shop", Runs: []githubsim.CIRun{{}}},
		"no such kind":   {Repo: "octo/shop", Runs: []githubsim.CIRun{{Name: "a", Kind: "poem"}}},
		"no such commit": {Repo: "octo/shop", SHA: strings.Repeat("0", 40)},
	} {
		if _, err := w.ScriptCI(t.Context(), spec); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := w.Require(t.Context(), githubsim.Requirement{Repo: "octo/shop", Branch: "main", By: "wish"}); err == nil {
		t.Error("a kind of rule that there is not: no error")
	}
}

// Deliver wakes the scripts without anybody asking, and the webhooks tell.
func TestAScriptedCITellsByItself(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	must(w.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Events: []string{"check_run", "check_suite"}}))(t)
	w.script(t, githubsim.CISpec{Delay: 20 * time.Millisecond, Takes: 20 * time.Millisecond, Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}}}})
	sha := w.push(t, "topic", "x")
	w.hooks.until(t, "check_run.created")
	w.hooks.until(t, "check_run.completed")
	var told struct {
		Suite struct {
			SHA        string `json:"head_sha"`
			Branch     string `json:"head_branch"`
			Conclusion string `json:"conclusion"`
			App        struct {
				Slug string `json:"slug"`
			} `json:"app"`
		} `json:"check_suite"`
	}
	if err := json.Unmarshal(w.hooks.until(t, "check_suite.completed").body, &told); err != nil {
		t.Fatal(err)
	}
	if s := told.Suite; s.SHA != sha || s.Branch != "topic" || s.Conclusion != "failure" || s.App.Slug != "github-actions" {
		t.Fatalf("suite %+v", s)
	}
}

func TestWhoMayRunAgainWhat(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	must(w.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Permissions: map[string]string{"checks": "write", "actions": "write", "contents": "write"}}))(t)
	gh := w.client(t, nil)
	w.script(t, githubsim.CISpec{Branch: "topic", Runs: []githubsim.CIRun{{Name: "job", Conclusions: []string{"failure", "success"}, Log: "it broke"}, {Name: "next"}}})
	w.script(t, githubsim.CISpec{Branch: "topic", App: "ci", Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure", "cancelled"}}}})
	sha := w.push(t, "topic", "x")
	ids, suites := map[string]int64{}, map[string]int64{}
	for _, k := range got(gh.Checks.ListCheckRunsForRef(t.Context(), "octo", "shop", sha, nil))(t).CheckRuns {
		ids[k.GetName()], suites[k.GetName()] = k.GetID(), k.GetCheckSuite().GetID()
	}
	token := w.token(t, nil)
	rerun := func(rest string) int {
		t.Helper()
		resp, _ := w.fetch(t, "POST", "/api/v3/repos/octo/shop/"+rest, token, "")
		return resp.StatusCode
	}
	for rest, want := range map[string]int{
		fmt.Sprintf("check-runs/%d/rerequest", ids["test"]):              http.StatusForbidden, // another App's
		fmt.Sprintf("check-runs/%d/rerequest", ids["job"]):               http.StatusForbidden,
		fmt.Sprintf("actions/runs/%d/rerun-failed-jobs", suites["test"]): http.StatusNotFound, // no workflow
		fmt.Sprintf("actions/runs/%d/rerun-failed-jobs", suites["job"]):  http.StatusCreated,
	} {
		if code := rerun(rest); code != want {
			t.Errorf("%s: %d, want %d", rest, code, want)
		}
	}
	wantChecks(t, w.checks(t, gh, sha), "job=completed/success", "next=completed/success", "test=completed/failure")
	// A person may, with the button.
	must(w.PressButton(t.Context(), githubsim.Press{Repo: "octo/shop", Check: ids["test"], By: "maria"}))(t)
	wantChecks(t, w.checks(t, gh, sha), "job=completed/success", "next=completed/success", "test=completed/cancelled")
	for _, s := range got(gh.Checks.ListCheckSuitesForRef(t.Context(), "octo", "shop", sha, nil))(t).CheckSuites {
		if want := map[string]string{"ci": "cancelled", "github-actions": "success"}[s.GetApp().GetSlug()]; s.GetConclusion() != want {
			t.Errorf("suite of %s: %s, want %s", s.GetApp().GetSlug(), s.GetConclusion(), want)
		}
	}

	if job := got(gh.Actions.GetWorkflowJobByID(t.Context(), "octo", "shop", ids["job"]))(t); job.GetRunID() != suites["job"] || job.GetConclusion() != "failure" {
		t.Errorf("job %v", job)
	}
	at, _, err := gh.Actions.GetWorkflowJobLogs(t.Context(), "octo", "shop", ids["job"], 0)
	if err != nil {
		t.Fatal(err)
	}
	where := strings.TrimPrefix(at.String(), w.URL())
	if resp, log := w.fetch(t, "GET", where, "", ""); resp.StatusCode != http.StatusOK || log != "it broke" {
		t.Errorf("log %d %q", resp.StatusCode, log)
	}
	if resp, _ := w.fetch(t, "GET", where, token, ""); resp.StatusCode != http.StatusBadRequest {
		t.Errorf("a token was taken: %d", resp.StatusCode)
	}
	own := got(gh.Checks.CreateCheckRun(t.Context(), "octo", "shop", github.CreateCheckRunOptions{Name: "own", HeadSHA: sha, Status: github.String("completed"), Conclusion: github.String("failure")}))(t)
	if code := rerun(fmt.Sprintf("check-runs/%d/rerequest", own.GetID())); code != http.StatusCreated {
		t.Errorf("its own: %d", code)
	}
	w.hooks.until(t, "check_run.rerequested")
}

func TestAJobIsNotRunAgainWhileItsWorkflowRuns(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	must(w.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Permissions: map[string]string{"checks": "read", "actions": "write", "contents": "read"}}))(t)
	gh := w.client(t, nil)
	w.script(t, githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "job", Conclusions: []string{"failure"}}, {Name: "slow", Conclusions: []string{""}}}})
	sha := w.push(t, "topic", "x")
	all := got(gh.Checks.ListCheckRunsForRef(t.Context(), "octo", "shop", sha, &github.ListCheckRunsOptions{CheckName: github.String("job")}))(t)
	resp, err := gh.Actions.RerunFailedJobsByID(t.Context(), "octo", "shop", all.CheckRuns[0].GetCheckSuite().GetID())
	if err == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("%v", err)
	}
}

func TestStatusesAreCombined(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	gh := w.client(t, nil)
	state := func(sha string) string {
		t.Helper()
		return got(gh.Repositories.GetCombinedStatus(t.Context(), "octo", "shop", sha, nil))(t).GetState()
	}
	for state_, spec := range map[string][]githubsim.CIRun{
		"success": {{Kind: githubsim.CIStatus, Name: "a"}, {Kind: githubsim.CIStatus, Name: "b"}},
		"failure": {{Kind: githubsim.CIStatus, Name: "a", Conclusions: []string{"error"}}, {Kind: githubsim.CIStatus, Name: "b", Conclusions: []string{""}}},
		"pending": {{Kind: githubsim.CIStatus, Name: "a"}, {Kind: githubsim.CIStatus, Name: "b", Conclusions: []string{""}}},
	} {
		w.script(t, githubsim.CISpec{Branch: state_, App: "status-" + state_, Runs: spec})
		if got := state(w.push(t, state_, state_)); got != state_ {
			t.Errorf("%s, want %s", got, state_)
		}
	}
	if got := state(w.repo.Head); got != "pending" {
		t.Errorf("none at all: %s", got)
	}
}

func TestWhatABranchRequires(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	token := w.token(t, nil)
	for _, by := range []githubsim.RuleKind{githubsim.ByRuleset, githubsim.ByProtection} {
		must(w.Require(t.Context(), githubsim.Requirement{Repo: "octo/shop", Branch: "main", By: by, Names: []string{"by " + string(by)}}))(t)
	}
	for path, want := range map[string]string{
		"rules/branches/main": `"context":"by ruleset"`, "branches/main": `"contexts":["by protection"]`, "rules/branches/feature%2Fx": "[]",
	} {
		if _, body := w.fetch(t, "GET", "/api/v3/repos/octo/shop/"+path, token, ""); !strings.Contains(body, want) {
			t.Errorf("%s: %s", path, body)
		}
	}
}

// What a script still has to do survives a kill.
func TestAKilledServerGoesOnWithItsScript(t *testing.T) {
	dir := t.TempDir()
	url, kill := startProcess(t, dir)
	sim := githubsim.Remote{URL: url}
	var repo githubsim.Repo
	hooks := newReceiver(t)
	for _, do := range []struct {
		verb    string
		in, out any
	}{
		{"app", githubsim.AppSpec{Slug: "slipway", Secret: secret, WebhookURL: hooks.server.URL, Events: []string{"check_run"}}, nil},
		{"repo", githubsim.RepoSpec{Owner: "octo", Name: "shop"}, &repo},
		{"install", githubsim.InstallSpec{App: "slipway", Account: "octo"}, nil},
	} {
		if err := sim.Do(t.Context(), do.verb, do.in, do.out); err != nil {
			t.Fatal(err)
		}
	}
	spec := githubsim.CISpec{Repo: "octo/shop", SHA: repo.Head, Takes: 2 * time.Second, Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}}}}
	if err := sim.Do(t.Context(), "ci", spec, nil); err != nil {
		t.Fatal(err)
	}
	hooks.until(t, "check_run.created")
	kill()
	_, kill = startProcess(t, dir)
	hooks.until(t, "check_run.completed")
	kill()
}
