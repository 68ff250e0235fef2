package github_test

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

func (w *world) script(spec githubsim.CISpec) {
	w.Helper()
	spec.Repo = "o/r"
	_, err := w.sim.ScriptCI(w.Context(), spec)
	must(w.T, err)
}

func (w *world) require(by githubsim.RuleKind, app int64, names ...string) {
	w.Helper()
	_, err := w.sim.Require(w.Context(), githubsim.Requirement{Repo: "o/r", Branch: "main", By: by, App: app, Names: names})
	must(w.T, err)
}

// mayRerun gives the App the permission that app.yml does not ask for.
func (w *world) mayRerun() {
	w.Helper()
	_, err := w.sim.CreateApp(w.Context(), githubsim.AppSpec{Slug: "slipway-test", Permissions: map[string]string{
		"contents": "write", "issues": "write", "pull_requests": "write", "checks": "write", "statuses": "read", "actions": "write",
	}})
	must(w.T, err)
}

func (w *world) appID() int64 {
	w.Helper()
	made, err := w.sim.CreateApp(w.Context(), githubsim.AppSpec{Slug: "slipway-test"})
	must(w.T, err)
	return made.ID
}

func ciOf(t *testing.T, r *github.Repository, sha string) forge.CI {
	t.Helper()
	have, err := r.CI(t.Context(), sha, "main")
	must(t, err)
	if have.SHA != sha {
		t.Fatalf("the checks are of %s", have.SHA)
	}
	return have
}

// found is the run of a name.
func found(t *testing.T, in forge.CI, name string) forge.CIRun {
	t.Helper()
	i := slices.IndexFunc(in.Runs, func(r forge.CIRun) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no run %q in %+v", name, in.Runs)
	}
	return in.Runs[i]
}

func TestWithoutCIThereIsNone(t *testing.T) {
	w := newWorld(t)
	sha := w.commit("slipway/1-greet", bot)
	r := w.build()
	// Ours does not make one, nor does a rule that asks for ours.
	_, err := r.EnsureCheck(t.Context(), forge.Check{Name: "slipway/build", HeadSHA: sha, ExternalID: "b:" + sha, Status: "completed", Conclusion: "failure", Title: "t", Summary: "s"})
	must(t, err)
	w.require(githubsim.ByRuleset, 0, "slipway/build")
	w.require(githubsim.ByProtection, 0, "slipway/review")
	w.require(githubsim.ByRuleset, w.appID(), "named otherwise")
	w.require(githubsim.ByProtection, w.appID(), "named otherwise")
	if have := ciOf(t, r, sha); have.Configured || len(have.Runs) > 0 || len(have.Required) > 0 {
		t.Fatalf("%+v", have)
	}
}

func TestSignsOfCI(t *testing.T) {
	for name, test := range map[string]struct {
		sign func(w *world) (sha string)
		want forge.CI
	}{
		"a workflow file": {func(w *world) string {
			made, err := w.sim.Commit(w.Context(), githubsim.CommitSpec{Repo: "o/r", Branch: "b", Message: "m", Files: map[string]string{".github/workflows/ci.yaml": "on: push"}, By: "mona"})
			must(w.T, err)
			return made.SHA
		}, forge.CI{Configured: true}},
		"a file beside the workflows": {func(w *world) string {
			made, err := w.sim.Commit(w.Context(), githubsim.CommitSpec{Repo: "o/r", Branch: "b", Message: "m", Files: map[string]string{".github/workflows/README.md": "none yet"}, By: "mona"})
			must(w.T, err)
			return made.SHA
		}, forge.CI{}},
		"a suite without runs": {func(w *world) string {
			w.script(githubsim.CISpec{App: "renovate"})
			return w.commit("b", "mona")
		}, forge.CI{Configured: true}},
		"names that a ruleset requires": {func(w *world) string {
			w.require(githubsim.ByRuleset, 0, "test", "lint")
			return w.commit("b", "mona")
		}, forge.CI{Configured: true, Required: []string{"lint", "test"}}},
		"names that the protection requires": {func(w *world) string {
			w.require(githubsim.ByProtection, 0, "test")
			w.require(githubsim.ByRuleset, 4711, "test", "e2e")
			return w.commit("b", "mona")
		}, forge.CI{Configured: true, Required: []string{"e2e", "test"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			got := ciOf(t, w.build(), test.sign(w))
			if got.Configured != test.want.Configured || !slices.Equal(got.Required, test.want.Required) || len(got.Runs) > 0 {
				t.Fatalf("%+v, want %+v", got, test.want)
			}
		})
	}
}

func TestRunsOfOthersInOurWords(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("ü", 4000)
	w.script(githubsim.CISpec{Branch: "slipway/*", App: "ci", Runs: []githubsim.CIRun{
		{Name: "test", Conclusions: []string{"failure"}, Title: "1 failed", Summary: "TestA", Text: long},
		{Name: "slow", Conclusions: []string{""}}, {Name: "docs", Conclusions: []string{"skipped"}},
		{Kind: githubsim.CIStatus, Name: "legacy/deploy", Conclusions: []string{"error"}, Title: "no disk"},
		{Kind: githubsim.CIStatus, Name: "legacy/slow", Conclusions: []string{""}}, {Kind: githubsim.CIStatus, Name: "legacy/ok"},
	}})
	w.script(githubsim.CISpec{Branch: "main", App: "ci", Runs: []githubsim.CIRun{{Name: "test"}, {Kind: githubsim.CIStatus, Name: "legacy/deploy"}}})
	before := w.commit("main", "mona")
	sha := w.commit("slipway/1-greet", bot)
	r := w.build()
	have := ciOf(t, r, sha)
	want := map[string]string{
		"test": "ci completed failure", "slow": "ci in_progress ", "docs": "ci completed skipped",
		"legacy/deploy": " completed failure", "legacy/slow": " in_progress ", "legacy/ok": " completed success",
	}
	if len(have.Runs) != len(want) || !have.Configured {
		t.Fatalf("%+v", have)
	}
	for _, run := range have.Runs {
		if got := run.App + " " + run.Status + " " + run.Conclusion; got != want[run.Name] || run.SHA != sha || run.ID == 0 || run.Started.IsZero() {
			t.Errorf("%s: %q, %+v", run.Name, got, run)
		}
		if (run.Status == "completed") == run.Completed.IsZero() || (run.App == "") != (run.Suite == 0) {
			t.Errorf("%s: %+v", run.Name, run)
		}
	}
	test := found(t, have, "test")
	if test.Title != "1 failed" || test.Summary != "TestA" || len(test.Text) != 4096 || !strings.HasPrefix(long, test.Text) || test.URL == "" {
		t.Errorf("output %q %q, %d bytes, %q", test.Title, test.Summary, len(test.Text), test.URL)
	}
	if got := found(t, have, "legacy/deploy"); got.Title != "no disk" {
		t.Errorf("%+v", got)
	}
	// The base has its own.
	if of := ciOf(t, r, before); len(of.Runs) != 2 || found(t, of, "test").Conclusion != "success" || found(t, of, "test").SHA != before {
		t.Errorf("base %+v", of)
	}
}

func TestManyRunsAreAllSeen(t *testing.T) {
	w := newWorld(t)
	spec := githubsim.CISpec{App: "ci"}
	for i := range 130 {
		spec.Runs = append(spec.Runs, githubsim.CIRun{Name: fmt.Sprint("check ", i)}, githubsim.CIRun{Kind: githubsim.CIStatus, Name: fmt.Sprint("status ", i)})
	}
	w.script(spec)
	if have := ciOf(t, w.build(), w.commit("b", bot)); len(have.Runs) != 260 {
		t.Fatalf("%d runs", len(have.Runs))
	}
}

func TestWhatCannotBeReadIsNotAbsent(t *testing.T) {
	for _, path := range []string{"/commits/", "/rules/branches/", "/branches/main", "/contents/"} {
		w := newWorld(t)
		sha := w.commit("b", bot)
		w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Method: "GET", Path: "/repos/o/r" + path, Status: http.StatusForbidden})
		if have, err := w.build().CI(t.Context(), sha, "main"); err == nil {
			t.Errorf("%s was refused, yet %+v", path, have)
		}
	}
	w := newWorld(t)
	r := w.build()
	for _, bad := range [][2]string{{"main", "main"}, {"abc1234", "main"}, {w.commit("b", bot), ""}, {strings.Repeat("0", 40), "main"}, {w.commit("b", bot), "no-such-base"}} {
		if have, err := r.CI(t.Context(), bad[0], bad[1]); err == nil {
			t.Errorf("%q: %+v", bad, have)
		}
	}
}

// GitHub has no rulesets in some plans, and says so.
func TestAPlanWithoutRulesetsHasNone(t *testing.T) {
	w := newWorld(t)
	sha := w.commit("b", bot)
	w.mu.Lock()
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/rules/branches/") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
		_, _ = rw.Write([]byte(`{"message":"Upgrade to GitHub Pro or make this repository public to enable this feature.","documentation_url":"https://docs.github.com/rest"}`))
		return true
	}
	w.mu.Unlock()
	if have := ciOf(t, w.build(), sha); have.Configured {
		t.Fatalf("%+v", have)
	}
}

func TestRerunsAndTheirEvidence(t *testing.T) {
	flaky := githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure", "success"}}}}
	for name, test := range map[string]struct {
		may   bool
		spec  githubsim.CISpec
		fault githubsim.Fault
		gone  bool   // forge.ErrNoRerun
		then  string // the conclusion afterwards
		posts int    // requests to run again
	}{
		"a job":                         {true, flaky, githubsim.Fault{}, false, "success", 1},
		"a job, without the permission": {false, flaky, githubsim.Fault{}, true, "failure", 0},
		"a job, the answer is lost":     {true, flaky, githubsim.Fault{Kind: githubsim.FaultDropAfter, Method: "POST", Path: "/repos/o/r/actions", Times: 1}, false, "success", 1},
		"another App's check":           {true, githubsim.CISpec{App: "ci", Runs: flaky.Runs}, githubsim.Fault{}, true, "failure", 1},
		"a status":                      {true, githubsim.CISpec{Runs: []githubsim.CIRun{{Kind: githubsim.CIStatus, Name: "test", Conclusions: []string{"failure"}}}}, githubsim.Fault{}, true, "failure", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if test.may {
				w.mayRerun()
			}
			w.script(test.spec)
			sha := w.commit("b", bot)
			if test.fault.Kind != "" {
				w.fault(test.fault)
			}
			r := w.build()
			before := found(t, ciOf(t, r, sha), "test")
			// Twice: a worker that died in between asks again.
			for range 2 {
				if err := r.Rerun(t.Context(), before); errors.Is(err, forge.ErrNoRerun) != test.gone || err != nil && !test.gone {
					t.Fatalf("error %v", err)
				}
				if test.gone {
					break
				}
			}
			if now := found(t, ciOf(t, r, sha), "test"); now.Conclusion != test.then || (now.ID != before.ID) == test.gone {
				t.Errorf("%+v, was %+v", now, before)
			}
			if n := len(w.seen("POST", "/rerun-failed-jobs")) + len(w.seen("POST", "/rerequest")); n != test.posts {
				t.Errorf("%d requests, want %d", n, test.posts)
			}
		})
	}
}

// Two jobs of one workflow failed: the second is under way with the first.
func TestJobsOfOneWorkflowRunAgainTogether(t *testing.T) {
	w := newWorld(t)
	w.mayRerun()
	fails := []string{"failure", ""} // the second attempt does not end while we look
	w.script(githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "a", Conclusions: fails}, {Name: "b", Conclusions: fails}, {Name: "c"}}})
	sha := w.commit("b", bot)
	r := w.build()
	before := ciOf(t, r, sha)
	must(t, r.Rerun(t.Context(), found(t, before, "a")))
	// GitHub has not shown the new attempt of b yet.
	w.mu.Lock()
	w.intercept = func(rw http.ResponseWriter, q *http.Request) bool {
		if !strings.HasSuffix(q.URL.Path, "/check-runs") || q.URL.Query().Get("check_name") != "b" {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"total_count":0,"check_runs":[]}`))
		return true
	}
	w.mu.Unlock()
	must(t, r.Rerun(t.Context(), found(t, before, "b")))
	now := ciOf(t, r, sha)
	for name, want := range map[string]string{"a": "in_progress", "b": "in_progress", "c": "completed"} {
		if got := found(t, now, name); got.Status != want {
			t.Errorf("%s: %s, want %s", name, got.Status, want)
		}
	}
}

func TestARerunThatMustWaitIsNoRefusal(t *testing.T) {
	w := newWorld(t)
	w.mayRerun()
	w.script(githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}}}})
	sha := w.commit("b", bot)
	r := w.build()
	run := found(t, ciOf(t, r, sha), "test")
	w.fault(githubsim.Fault{Kind: githubsim.FaultSecondary, Method: "POST", Path: "/repos/o/r/actions", Times: 1})
	err := r.Rerun(t.Context(), run)
	if _, later := errors.AsType[*github.Later](err); !later || errors.Is(err, forge.ErrNoRerun) {
		t.Fatalf("error %v", err)
	}
}

func TestWhatThereIsToReadOfAFailure(t *testing.T) {
	w := newWorld(t)
	lines := strings.Repeat("a line of the log that says little\n", 4000) + "--- FAIL: TestGreet\n"
	w.script(githubsim.CISpec{Branch: "job", Runs: []githubsim.CIRun{{
		Name: "test", Conclusions: []string{"failure"}, Log: lines,
		Annotations: []githubsim.CIAnnotation{{Path: "greet.go", Line: 7, Message: "undefined: name"}},
	}}})
	w.script(githubsim.CISpec{Branch: "check", App: "ci", Runs: []githubsim.CIRun{{
		Name: "test", Conclusions: []string{"failure"}, Title: "1 of 9 failed", Summary: "TestGreet", Text: strings.Repeat("x", 30<<10),
	}}})
	w.script(githubsim.CISpec{Branch: "status", Runs: []githubsim.CIRun{{Kind: githubsim.CIStatus, Name: "test", Conclusions: []string{"failure"}, Title: "no disk"}}})
	r := w.build()
	for branch, want := range map[string][]string{
		"job":    {"greet.go:7: failure: undefined: name", "its end", "--- FAIL: TestGreet"},
		"check":  {"1 of 9 failed", "TestGreet", "[cut here]"},
		"status": {"no disk"},
	} {
		run := found(t, ciOf(t, r, w.commit(branch, bot)), "test")
		log, err := r.CILog(t.Context(), run)
		must(t, err)
		if len(log) > 60<<10 {
			t.Errorf("%s: %d bytes", branch, len(log))
		}
		if branch == "job" && len(log) < 50<<10 {
			t.Errorf("%s: only %d bytes of the log", branch, len(log))
		}
		for _, text := range want {
			if !strings.Contains(log, text) {
				t.Errorf("%s: %q is not in %.300s…", branch, text, log)
			}
		}
	}
	if strings.Contains(w.log.String(), "/_logs/") {
		t.Error("the signed address of a log is in ours")
	}
}

func TestALogThatGitHubDoesNotGive(t *testing.T) {
	for name, code := range map[string]int{"no permission": http.StatusForbidden, "expired": http.StatusGone, "not there": http.StatusNotFound} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.script(githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}, Title: "failed"}}})
			r := w.build()
			run := found(t, ciOf(t, r, w.commit("b", bot)), "test")
			w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Method: "GET", Path: "/repos/o/r/actions", Status: code})
			log, err := r.CILog(t.Context(), run)
			must(t, err)
			if !strings.Contains(log, "failed") || !strings.Contains(log, "does not give the log") {
				t.Errorf("log %q", log)
			}
		})
	}
}

// The token of the checks is its own and can write no content, no ticket and no
// pull request.
func TestTheTokenOfTheChecksIsNarrow(t *testing.T) {
	w := newWorld(t)
	w.mayRerun()
	w.script(githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test", Conclusions: []string{"failure"}}}})
	sha := w.commit("b", bot)
	r := w.app.ForRepo(w.repo, w.ticket)
	must(t, r.Rerun(t.Context(), found(t, ciOf(t, r, sha), "test")))
	asked := w.tokens()
	if len(asked) != 2 {
		t.Fatalf("%d tokens, want one to look and one to run again", len(asked))
	}
	for i, want := range []string{"map[actions:read checks:write contents:read statuses:read]", "map[actions:write]"} {
		if got := fmt.Sprint(asked[i].Permissions); got != want || !slices.Equal(asked[i].Repositories, []int64{w.repo.ID}) {
			t.Errorf("token %d may %s in %v, want %s", i, got, asked[i].Repositories, want)
		}
	}
	r.Close(t.Context())
	if n := len(w.seen("DELETE", "/installation/token")); n != 2 {
		t.Errorf("%d tokens revoked, want 2", n)
	}
}

// The gate from end to end, but for the agent: what is observed is judged, what
// failed once is run again, and a fix is judged on its own commit.
func TestTheGate(t *testing.T) {
	w := newWorld(t)
	w.mayRerun()
	w.require(githubsim.ByRuleset, 0, "test")
	fails := []string{"failure"}
	w.script(githubsim.CISpec{File: "a.txt", Holds: "bug", Runs: []githubsim.CIRun{
		{Name: "test", Conclusions: fails, Log: "--- FAIL: TestGreet"}, {Name: "links", Conclusions: fails},
		{Name: "e2e", Conclusions: []string{"failure", "success"}}, {Name: "image", Conclusions: fails, Log: "Error: No space left on device"},
	}})
	w.script(githubsim.CISpec{Branch: "main", Runs: []githubsim.CIRun{{Name: "test"}, {Name: "links", Conclusions: fails}}})
	w.script(githubsim.CISpec{Runs: []githubsim.CIRun{{Name: "test"}}})
	push := func(branch, text string) string {
		made, err := w.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: "o/r", Branch: branch, Message: text, Files: map[string]string{"a.txt": text}, By: bot})
		must(t, err)
		return made.SHA
	}
	base := push("main", "before")
	r := w.build()
	start := time.Now()
	look := func(sha string, reruns []ci.Rerun, logs map[int64]string) ci.Verdict {
		t.Helper()
		return ci.Judge(ci.Observation{
			Now: start.Add(ci.DefaultGrace), Pushed: start, SHA: sha, Head: ciOf(t, r, sha), Base: ciOf(t, r, base), Reruns: reruns, Logs: logs,
		}, ci.Options{Wait: time.Hour, Poll: time.Second})
	}

	red := push("slipway/1-greet", "a bug")
	v := look(red, nil, nil)
	if v.State != ci.Repeat || len(v.Repeat) != 3 {
		t.Fatalf("first look: %+v", v)
	}
	var reruns []ci.Rerun
	for _, run := range v.Repeat {
		again := ci.Rerun{Run: run, At: start}
		if err := r.Rerun(t.Context(), run); err != nil {
			again.Refused = err.Error()
		}
		reruns = append(reruns, again)
	}
	logs := map[int64]string{}
	for _, run := range ciOf(t, r, red).Runs {
		log, err := r.CILog(t.Context(), run)
		must(t, err)
		logs[run.ID] = log
	}
	v = look(red, reruns, logs)
	classes := map[string]ci.Class{}
	for _, f := range v.Failures {
		classes[f.Run.Name] = f.Class
	}
	want := map[string]ci.Class{"test": ci.Code, "links": ci.PreExisting, "e2e": ci.Flaky, "image": ci.Infrastructure}
	if v.State != ci.Red || !maps.Equal(classes, want) {
		t.Fatalf("second look: %s %v, want %v", v.State, classes, want)
	}
	if code := v.Of(ci.Code); len(code) != 1 || !strings.Contains(logs[code[0].Run.ID], "TestGreet") {
		t.Fatalf("for the fixer: %+v", code)
	}

	if v := look(push("slipway/1-greet", "mended"), reruns, logs); v.State != ci.Green {
		t.Fatalf("after the fix: %+v", v)
	}
}
