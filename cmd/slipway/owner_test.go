package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

const owners = "harbour/.github"

// configureAll puts a text into the file in which harbour configures every
// repository, on a branch.
func (s *server) configureAll(branch, text string) (sha string) {
	s.Helper()
	made, err := s.sim.Commit(s.Context(), githubsim.CommitSpec{Repo: owners, Branch: branch, By: "mira", Message: "Configure", Files: map[string]string{"slipway.yml": text}})
	must(s.T, err)
	return made.SHA
}

// answersTo are the comments that follow what somebody says.
func (s *server) answersTo(by, line string) string {
	s.Helper()
	s.rest()
	before := len(s.changes())
	s.says(by, line)
	s.rest()
	comments, _ := s.wroteSince(before)
	return strings.Join(comments, "\n")
}

// The owner's repository .github holds what counts for all their repositories:
// under a repository's own file, over the server, and only where the App is let
// in. What a build began with stays, whatever the file says later.
func TestTheOwnersConfiguration(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	_, err := s.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: ".github", Files: map[string]string{
		"slipway.yml": "build:\n  approval: plan\nlimits:\n  usd_per_build: 3\n  usd_per_call: 1\n",
	}})
	must(t, err)
	const row = "| `limits.usd_per_build` | `3` | `slipway.yml of harbour/.github` |"
	if got := s.answersTo("rita", "/config"); !strings.Contains(got, "| `limits.usd_per_build` | `25` | `default` |") {
		t.Errorf("a file that the App may not see counts:\n%s", got)
	}
	_, err = s.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"greeter", ".github"}})
	must(t, err)
	s.commit(map[string]string{".github/slipway.yml": "commands:\n  test: sh check.sh\nlimits:\n  usd_per_call: 0.5\n"})
	if got := s.answersTo("rita", "/config"); !strings.Contains(got, row) || !strings.Contains(got, "| `limits.usd_per_call` | `0.5` | `.github/slipway.yml` |") {
		t.Errorf("/config:\n%s", got)
	}

	s.says("mira", "/build")
	var b report.Build
	until(t, time.Minute, "the build does not wait for approval, as the owner wants", func() bool {
		builds := s.jobs(pipeline.KindBuild)
		if len(builds) != 1 || builds[0].State != queue.Parked {
			return false
		}
		b, err = pipeline.Read(t.Context(), s.store, builds[0].ID)
		return err == nil && b.State == report.WaitingApproval
	})
	s.configureAll("main", "build:\n  approved: plan\n")
	s.says("mira", "/approve "+b.Gate.Hash[:12])
	s.rest()
	final, err := pipeline.Read(t.Context(), s.store, b.ID)
	must(t, err)
	if final.State != report.Succeeded {
		t.Fatalf("the build that had begun: %s, %s", final.State, final.Cause)
	}

	const told = "`slipway.yml of harbour/.github` cannot be read, and no build starts before it is mended:\n\n- line 2: `build.approved`: unknown key"
	if got := s.answersTo("rita", "/config"); !strings.Contains(got, told) {
		t.Errorf("a broken file is not reported on the thread:\n%s", got)
	}
	s.ticket = s.open("Greet again")
	if got := s.answersTo("mira", "/build"); !strings.Contains(got, "slipway.yml of harbour/.github:2: build.approved: unknown key") {
		t.Errorf("a broken file is not reported by a build:\n%s", got)
	}
	if unknown := s.sim.Unknown(); len(unknown) > 0 {
		t.Errorf("unknown requests: %v", unknown)
	}
}

// A pull request in .github that changes the file is judged on its commit, and
// one in another repository is not blamed for it.
func TestTheOwnersConfigurationInAPullRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	_, err := s.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: ".github", Files: map[string]string{"slipway.yml": "limits:\n  usd: 3\n"}})
	must(t, err)
	_, err = s.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"greeter", ".github"}})
	must(t, err)
	check := func(repo, sha string) *github.CheckRun {
		t.Helper()
		s.rest()
		got, _, err := s.hub().Checks.ListCheckRunsForRef(t.Context(), "harbour", repo, sha, &github.ListCheckRunsOptions{CheckName: github.String("slipway/config")})
		must(t, err)
		if len(got.CheckRuns) != 1 {
			t.Fatalf("check runs %v", got.CheckRuns)
		}
		return got.CheckRuns[0]
	}
	bad := s.configureAll("configure", "runtime: claude_code\nlimits:\n  usd_per_build: lots\n")
	_, err = s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: owners, Title: "Configure", Head: "configure", By: "stranger"})
	must(t, err)
	run := check(".github", bad)
	notes, _, err := s.hub().Checks.ListCheckRunAnnotations(t.Context(), "harbour", ".github", run.GetID(), nil)
	must(t, err)
	if run.GetConclusion() != "failure" || len(notes) != 1 || notes[0].GetPath() != "slipway.yml" || notes[0].GetStartLine() != 3 {
		t.Errorf("a bad one: %v, %v", run, notes)
	}
	if run := check(".github", s.configureAll("configure", "limits:\n  usd_per_build: 3\n")); run.GetConclusion() != "success" {
		t.Errorf("a good one: %v", run)
	}

	made, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "own", By: "mira", Message: "Configure", Files: map[string]string{".github/slipway.yml": "limits:\n  usd_per_build: 3\n"}})
	must(t, err)
	_, err = s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Configure", Head: "own", By: "mira"})
	must(t, err)
	run = check("greeter", made.SHA)
	if sum := run.GetOutput().GetSummary(); run.GetConclusion() != "neutral" || run.GetOutput().GetAnnotationsCount() != 0 ||
		!strings.Contains(sum, "`.github/slipway.yml` is valid") || !strings.Contains(sum, "line 2: `limits.usd`") {
		t.Errorf("one over a broken one: %v", run)
	}
}
