package main

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// The tests of the CI gate run a build on the server, in a repository whose
// checks are scripted by what the pushed commit holds.

// ours are the branches that Slipway pushes.
const ours = "slipway/*"

// newChecked is a server whose repository has a workflow and looks at its checks
// every second.
func newChecked(t *testing.T, agents cast, scripts ...githubsim.CISpec) *server {
	t.Helper()
	s := newServer(t, agents, func(e *pipeline.Engine) { e.CIGrace = time.Second })
	_, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: fullName, Branch: "main", Message: "Set up CI", By: "mira",
		Files: map[string]string{
			".github/workflows/ci.yml": "on: push\njobs: {unit: {runs-on: ubuntu-latest, steps: [{run: pytest}]}}\n",
			".github/slipway.yml":      "commands:\n  test: sh check.sh\npipeline:\n  ci_poll_seconds: 1\n",
			"test_greet.py":            "def test_greet():\n    assert greet() == 'hello'\n",
		},
	})
	must(t, err)
	for _, script := range scripts {
		script.Repo, script.Branch = fullName, ours
		_, err := s.sim.ScriptCI(t.Context(), script)
		must(t, err)
	}
	return s
}

// builds runs the only build to its end.
func (s *server) builds() report.Build {
	s.Helper()
	s.says("mira", "/build")
	until(s.T, time.Minute, "no build was queued", func() bool { return len(s.jobs(pipeline.KindBuild)) == 1 })
	until(s.T, 3*time.Minute, "the build does not end", func() bool { return s.jobs(pipeline.KindBuild)[0].State.Finished() })
	s.rest()
	final, err := pipeline.Read(s.Context(), s.store, s.jobs(pipeline.KindBuild)[0].ID)
	must(s.T, err)
	return final
}

// shown is the one pull request with the checks of its head by name, ours with
// its title, and the newest text of the tracking comment.
func (s *server) shown() (pull *github.PullRequest, checks map[string]string, comment string) {
	s.Helper()
	_, gh := client(s.T, githubsim.Remote{URL: s.sim.URL()}, "harbour", "greeter")
	pulls, _, err := gh.PullRequests.List(s.Context(), "harbour", "greeter", &github.PullRequestListOptions{State: "all"})
	must(s.T, err)
	if len(pulls) != 1 {
		s.Fatalf("%d pull requests", len(pulls))
	}
	comments, _, err := gh.Issues.ListComments(s.Context(), "harbour", "greeter", s.ticket, nil)
	must(s.T, err)
	for _, c := range comments {
		if tracks.MatchString(c.GetBody()) {
			comment = c.GetBody()
		}
	}
	return pulls[0], checksOf(s, gh, pulls[0].GetHead().GetSHA()), comment
}

func checksOf(s *server, gh *github.Client, sha string) map[string]string {
	s.Helper()
	runs, _, err := gh.Checks.ListCheckRunsForRef(s.Context(), "harbour", "greeter", sha, nil)
	must(s.T, err)
	out := map[string]string{}
	for _, r := range runs.CheckRuns {
		out[r.GetName()] = r.GetStatus() + "/" + r.GetConclusion()
	}
	return out
}

// keys are the steps in the build's journal that hold part.
func (s *server) keys(build, part string) (keys []string) {
	s.Helper()
	entries, err := s.store.Entries(s.Context(), build, 0)
	must(s.T, err)
	for _, e := range entries {
		if strings.Contains(e.Key, part) {
			keys = append(keys, e.Key)
		}
	}
	return keys
}

// red is a check that fails on the commits for which no script before it acts.
var red = githubsim.CISpec{Runs: []githubsim.CIRun{{
	Name: "unit", Conclusions: []string{"failure"}, Title: "1 failed", Summary: "test_greet.py::test_greet", Log: "E  greeted nobody",
}}}

// The checks of a pushed commit fail, the CI Fixer mends what they found, and
// what counts for the new commit are its own checks, which take their time: not
// those of the commit before it.
func TestDefectCIVerdictIsJudgedOnAnOldSHA(t *testing.T) {
	t.Parallel()
	s := newChecked(t, company.but(cast{
		"ci_fixer.sh":   "case $request in *'greeted nobody'*) ;; *) echo 'the log is missing' >&2; exit 1 ;; esac\necho 'echo hello there' > greet.sh\n",
		"ci_fixer.json": `{"summary":"greet.sh greets who is there.","fixed":true,"files_changed":["greet.sh"],"cause":"It greeted nobody."}`,
	}), githubsim.CISpec{File: "greet.sh", Holds: "there", Takes: 3 * time.Second, Runs: []githubsim.CIRun{{Name: "unit"}}}, red)
	final := s.builds()
	if final.State != report.Succeeded || !final.Success {
		t.Fatalf("the build: %s %s, debt %+v", final.State, final.Summary, final.Debt)
	}
	pull, checks, comment := s.shown()
	head := pull.GetHead().GetSHA()
	if head != final.Head || checks["unit"] != "completed/success" || checks["slipway/build"] != "completed/success" {
		t.Errorf("the pull request is at %s, the build at %s, checks %v", head, final.Head, checks)
	}
	if final.Verification.Commit != head {
		t.Errorf("%s was verified, %s is published", final.Verification.Commit, head)
	}
	for _, want := range []string{"CI is green on " + head[:12], "CI fix 1: It greeted nobody."} {
		if !slices.ContainsFunc(final.Notes, func(n string) bool { return strings.Contains(n, want) }) || !strings.Contains(comment, want) {
			t.Errorf("%q is not told: notes %q\n%s", want, final.Notes, comment)
		}
	}

	judged := s.keys(final.ID, "ci-")
	if n := len(slices.DeleteFunc(slices.Clone(judged), func(k string) bool { return !strings.HasSuffix(k, "/kept") })); n != 2 {
		t.Errorf("%d verdicts, want one for each commit: %q", n, judged)
	}
	_, gh := client(t, githubsim.Remote{URL: s.sim.URL()}, "harbour", "greeter")
	entries, err := s.store.Entries(t.Context(), final.ID, 0)
	must(t, err)
	var first struct {
		Head string `json:"head"`
	}
	for _, e := range entries {
		if e.Key == "publish/push" {
			must(t, json.Unmarshal(e.Outcome, &first))
		}
	}
	if have := checksOf(s, gh, first.Head); have["unit"] != "completed/failure" || have["slipway/build"] != "completed/neutral" {
		t.Errorf("checks of the commit %q before: %v", first.Head, have)
	}
	opened := 0
	for _, x := range s.changes() {
		if x.Method == http.MethodPost && strings.HasSuffix(x.URL, "/pulls") {
			opened++
		}
	}
	if opened != 1 {
		t.Errorf("%d pull requests were opened", opened)
	}
}

func TestCIThatStaysRedNeedsAPerson(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fixer  cast
		causes []string
		pushes int // of fixes
	}{
		"the fixer deletes the test": {cast{
			"ci_fixer.sh":   "rm test_greet.py\n",
			"ci_fixer.json": `{"summary":"The test was wrong.","fixed":true,"files_changed":["test_greet.py"],"cause":"test_greet expects too much."}`,
		}, []string{"attempt 1: test_greet expects too much. (refused: ", "attempt 2: test_greet expects too much. (refused: ", "test_greet.py"}, 0},
		"no fix helps": {cast{
			"ci_fixer.sh":   "echo 'echo again' >> greet.sh\n",
			"ci_fixer.json": `{"summary":"Greet once more.","fixed":true,"files_changed":["greet.sh"],"cause":"It greets too little."}`,
		}, []string{"failed: unit (code)", "attempt 1: It greets too little.", "attempt 2: It greets too little."}, 2},
		"the fixer finds nothing": {cast{
			"ci_fixer.json": `{"summary":"Nothing changed.","fixed":false,"files_changed":[],"cause":"The runner has no Python."}`,
		}, []string{"attempt 2: The runner has no Python. (refused: it changed nothing)"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newChecked(t, company.but(c.fixer), red)
			final := s.builds()
			if final.State != report.NeedsHuman || final.Success {
				t.Fatalf("the build: %s %s", final.State, final.Summary)
			}
			pull, checks, comment := s.shown()
			if checks["slipway/build"] != "completed/action_required" || pull.GetHead().GetSHA() != final.Head {
				t.Errorf("head %s, want %s; checks %v", pull.GetHead().GetSHA(), final.Head, checks)
			}
			for _, want := range c.causes {
				if !strings.Contains(final.Cause, want) || !strings.Contains(comment, want) {
					t.Errorf("the cause does not hold %q: %s\n%s", want, final.Cause, comment)
				}
			}
			pushes := 0
			for _, key := range s.keys(final.ID, "ci-") {
				if strings.HasSuffix(key, "/push") {
					pushes++
				}
			}
			if pushes != c.pushes {
				t.Errorf("%d fixes were pushed, want %d", pushes, c.pushes)
			}
		})
	}
}

// Nobody is asked to mend what passes when it is run again: this company has no
// CI Fixer.
func TestFlakyCIIsToldAsFlaky(t *testing.T) {
	t.Parallel()
	flaky := red
	flaky.Runs = []githubsim.CIRun{{Name: "unit", Conclusions: []string{"failure", "success"}, Log: "E  connection reset"}}
	s := newChecked(t, company, flaky)
	_, err := s.sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Permissions: map[string]string{
		"contents": "write", "issues": "write", "pull_requests": "write", "checks": "write", "statuses": "read", "actions": "write",
	}})
	must(t, err)
	final := s.builds()
	if final.State != report.Succeeded || len(s.keys(final.ID, "ci_fixer")) > 0 {
		t.Errorf("the build: %s %s; fixes %v", final.State, final.Summary, s.keys(final.ID, "ci_fixer"))
	}
	_, checks, comment := s.shown()
	if want := "CI check unit: flaky, it passed on the same commit when it was run again"; !strings.Contains(comment, want) || checks["unit"] != "completed/success" {
		t.Errorf("checks %v, and the comment does not say %q:\n%s", checks, want, comment)
	}
}

// Without any CI nothing is waited for, not even until a check could have come.
func TestWithoutCINothingIsWaitedFor(t *testing.T) {
	t.Parallel()
	s := newServer(t, company, func(e *pipeline.Engine) { e.CIGrace = time.Hour })
	final := s.builds()
	if final.State != report.Succeeded || len(s.keys(final.ID, "/waiting")) > 0 {
		t.Errorf("the build: %s %s; it waited: %v", final.State, final.Summary, s.keys(final.ID, "/waiting"))
	}
	_, checks, comment := s.shown()
	if len(checks) != 1 || checks["slipway/build"] != "completed/success" || !strings.Contains(comment, "No CI ran on "+final.Head[:12]) {
		t.Errorf("checks %v\n%s", checks, comment)
	}
}
