package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// wroteSince are the bodies of the comments that Slipway wrote or edited, and
// the reactions it put, after the first n changes.
func (s *server) wroteSince(n int) (comments, reactions []string) {
	s.Helper()
	for _, x := range s.changes()[n:] {
		var in struct{ Body, Content string }
		must(s.T, json.Unmarshal(x.Request, &in))
		if strings.HasSuffix(x.URL, "/reactions") {
			reactions = append(reactions, in.Content)
		} else if in.Body != "" {
			comments = append(comments, in.Body)
		}
	}
	return comments, reactions
}

// hub looks at GitHub with a client of the App's.
func (s *server) hub() *github.Client {
	s.Helper()
	_, c := client(s.T, githubsim.Remote{URL: s.sim.URL()}, "harbour", "greeter")
	return c
}

// commit puts files on the default branch, as a person.
func (s *server) commit(files map[string]string) {
	s.Helper()
	_, err := s.sim.Commit(s.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "main", By: "mira", Message: "Configure", Files: files})
	must(s.T, err)
}

// The configuration that is printed is the one that a build would get: the file
// of the default branch over the server's over the defaults.
func TestConfigOnAThread(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, company, func(c *config.Server) {
		own, err := config.Parse([]byte("limits: {usd_per_day: 7}\nmodels: {coder: opus}\n"), "/etc/slipway/secret-place.yml")
		must(t, err)
		c.Repo = own
	})
	s.says("rita", "/config")
	s.rest()
	comments, reactions := s.wroteSince(0)
	if len(comments) != 1 || strings.Join(reactions, " ") != "eyes rocket" {
		t.Fatalf("comments %q, reactions %q", comments, reactions)
	}
	for _, row := range []string{
		"| `limits.usd_per_day` | `7` | `the server` |", "| `build.label` | `slipway:build` | `default` |",
		"| `runtime` | `command` | `the server's start` |", "| `models.coder` | `command:opus` | `the server` |",
		"| `models.qa` | `command:sonnet` | `the runtime's own choice` |",
	} {
		if !strings.Contains(comments[0], row) {
			t.Errorf("no row %s in\n%s", row, comments[0])
		}
	}
	if strings.Contains(comments[0], "secret-place") {
		t.Errorf("it says where the server's file is:\n%s", comments[0])
	}

	s.commit(map[string]string{".github/slipway.yml": "limits:\n  usd_per_build: 3\nmodels:\n  default: haiku\n"})
	s.rest()
	before := len(s.changes())
	s.says("mira", "/config")
	s.rest()
	if comments, _ := s.wroteSince(before); len(comments) != 1 || !strings.Contains(comments[0], "| `limits.usd_per_build` | `3` | `.github/slipway.yml` |") ||
		!strings.Contains(comments[0], "| `models.qa` | `command:haiku` | `.github/slipway.yml, by models.default` |") {
		t.Errorf("comments %q", comments)
	}
	s.commit(map[string]string{".github/slipway.yml": "limits:\n  usd_per_biuld: 3\n"})
	s.rest()
	before = len(s.changes())
	s.says("mira", "/config")
	s.rest()
	if comments, _ := s.wroteSince(before); len(comments) != 1 || !strings.Contains(comments[0], "line 2: `limits.usd_per_biuld`: unknown key") {
		t.Errorf("comments %q", comments)
	}
}

// Limits are counted in the store: the first command too many is answered, the
// others are not, and whoever typed them can still stop what runs.
func TestTooManyCommands(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, company, func(c *config.Server) { c.Chat.PerHour = 2 })
	for range 6 {
		s.says("rita", "/help")
		s.rest()
	}
	comments, reactions := s.wroteSince(0)
	if len(comments) != 3 || !strings.Contains(comments[2], "more than 2 commands within an hour") {
		t.Errorf("comments %q", comments)
	}
	if got := strings.Join(reactions, " "); got != "eyes rocket eyes rocket confused" {
		t.Errorf("reactions %s", got)
	}
	before := len(s.changes())
	s.says("mira", "/help")
	s.rest()
	if comments, _ := s.wroteSince(before); len(comments) != 1 || !strings.Contains(comments[0], "Your role in this repository is **write**") {
		t.Errorf("another person pays for it: %q", comments)
	}
}

// Two Slipways that allow each other on one ticket: whatever people type, they
// do not answer each other.
func TestTwoSlipwaysOnOneTicket(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, company, func(c *config.Server) { c.Chat.Bots = []string{"other-slipway"} })
	made, err := s.sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "other-slipway", Secret: hookSecret, WebhookURL: s.url + "/of-nobody"})
	must(t, err)
	_, err = s.sim.Install(t.Context(), githubsim.InstallSpec{App: "other-slipway", Account: "harbour", Repos: []string{"greeter"}})
	must(t, err)
	for _, body := range []string{"/help", "/biuld", "/config"} {
		s.says("other-slipway[bot]", body+"\n\n<!-- slipway app=4711 run=b-0123456789ab -->")
		s.says("slipway[bot]", body)
	}
	s.rest()
	if wrote := s.changes(); len(wrote) > 0 || made.ID == 0 {
		t.Fatalf("Slipway wrote: %s %s", wrote[0].URL, wrote[0].Request)
	}
	s.says("other-slipway[bot]", "/config")
	s.rest()
	if comments, _ := s.wroteSince(0); len(comments) != 1 {
		t.Errorf("a bot on the list is not heard: %q", comments)
	}
}

// What people read names commands by the prefix that is configured, also in the
// comments of a build that waits.
func TestAnotherPrefix(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, company, func(c *config.Server) { c.Chat.Prefix = "@helper " },
		func(e *pipeline.Engine) { e.Defaults.Build.Approval = "plan" })
	s.says("mira", "/build")
	s.says("mira", "@helper build")
	until(t, time.Minute, "the plan is not shown", func() bool {
		comments, _ := s.wroteSince(0)
		return strings.Contains(strings.Join(comments, "\n"), "`@helper approve ")
	})
	s.says("mira", "@helper status")
	s.says("mira", "@helper cancel")
	s.rest()
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) != 1 {
		t.Errorf("%d builds", len(jobs))
	}
	comments, _ := s.wroteSince(0)
	for _, body := range comments {
		for _, verb := range []string{"build", "approve", "revise", "reject", "cancel", "status", "resume"} {
			if strings.Contains(body, "`/"+verb) {
				t.Errorf("offers /%s:\n%s", verb, body)
			}
		}
	}
	if all := strings.Join(comments, "\n"); !strings.Contains(all, "`@helper resume`") {
		t.Errorf("the end names no command:\n%s", all)
	}
	for _, d := range s.sim.Deliveries() {
		if d.StatusCode != http.StatusAccepted {
			t.Errorf("delivery %+v", d)
		}
	}
}

// A pull request that changes the configuration is told on its commit, line by
// line, what is wrong with it, or that it is fine; whoever sends it, and also
// where the file has more mistakes than GitHub takes in one request.
func TestAConfigurationInAPullRequest(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	file := ".github/slipway.yml"
	propose := func(files map[string]string, deleted ...string) (sha string) {
		made, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "configure", By: "stranger", Message: "Configure", Files: files, Deleted: deleted})
		must(t, err)
		return made.SHA
	}
	checks := func(sha string) []*github.CheckRun {
		s.rest()
		got, _, err := s.hub().Checks.ListCheckRunsForRef(t.Context(), "harbour", "greeter", sha, &github.ListCheckRunsOptions{CheckName: github.String("slipway/config")})
		must(t, err)
		return got.CheckRuns
	}
	bad := propose(map[string]string{file: "runtime: claude_code\nlimits:\n  usd_per_biuld: 3\n  max_parallel_issues: many\n"})
	_, err := s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Configure", Head: "configure", By: "stranger"})
	must(t, err)
	runs := checks(bad)
	if len(runs) != 1 || runs[0].GetConclusion() != "failure" || runs[0].GetOutput().GetTitle() != "2 problems" {
		t.Fatalf("check runs %v", runs)
	}
	notes, _, err := s.hub().Checks.ListCheckRunAnnotations(t.Context(), "harbour", "greeter", runs[0].GetID(), nil)
	must(t, err)
	if len(notes) != 2 || notes[0].GetPath() != file || notes[0].GetStartLine() != 3 || notes[1].GetStartLine() != 4 ||
		!strings.Contains(notes[0].GetMessage(), "unknown key") || notes[1].GetTitle() != "limits.max_parallel_issues" {
		t.Errorf("annotations %v", notes)
	}

	var many strings.Builder
	for i := range 120 {
		fmt.Fprintf(&many, "wrong_%d: 1\n", i)
	}
	sha := propose(map[string]string{file: many.String()})
	if runs = checks(sha); len(runs) != 1 || runs[0].GetOutput().GetAnnotationsCount() != 120 {
		t.Errorf("120 problems: %v", runs)
	}
	if runs = checks(propose(map[string]string{file: "limits:\n  usd_per_build: 3\n"})); len(runs) != 1 || runs[0].GetConclusion() != "success" {
		t.Errorf("a good one: %v", runs)
	}
	if runs = checks(propose(nil, file)); len(runs) != 1 || runs[0].GetConclusion() != "success" {
		t.Errorf("none at all: %v", runs)
	}
	made, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "other", By: "stranger", Message: "Say", Files: map[string]string{"slipway.yml": "wrong: 1\n"}})
	must(t, err)
	_, err = s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Say", Head: "other", By: "stranger"})
	must(t, err)
	if runs = checks(made.SHA); len(runs) != 0 {
		t.Errorf("one that leaves it alone: %v", runs)
	}
	if builds := s.jobs(pipeline.KindBuild); len(builds) > 0 {
		t.Errorf("builds %+v", builds)
	}
}

// The buttons of a build's check run, pressed by people: somebody without the
// role is told so, Cancel stops what waits for CI, and Re-run goes on with it.
func TestButtonsOfABuildsCheck(t *testing.T) {
	t.Parallel()
	endless := githubsim.CISpec{Push: 1, Runs: []githubsim.CIRun{{Name: "unit", Conclusions: []string{""}}}}
	s := newChecked(t, company, endless)
	s.says("mira", "/build")
	var check *github.CheckRun
	until(t, 2*time.Minute, "no check run waits for CI", func() bool {
		for _, x := range s.changes() {
			if strings.HasSuffix(x.URL, "/check-runs") {
				var in struct {
					SHA     string `json:"head_sha"`
					Actions []struct{ Identifier string }
				}
				must(t, json.Unmarshal(x.Request, &in))
				if len(in.Actions) != 1 || in.Actions[0].Identifier != "Cancel" {
					t.Fatalf("the buttons of a waiting build: %s", x.Request)
				}
				runs, _, err := s.hub().Checks.ListCheckRunsForRef(t.Context(), "harbour", "greeter", in.SHA, &github.ListCheckRunsOptions{CheckName: github.String("slipway/build")})
				must(t, err)
				check = runs.CheckRuns[0]
				return true
			}
		}
		return false
	})
	press := func(by, button string) {
		_, err := s.sim.PressButton(t.Context(), githubsim.Press{Repo: fullName, Check: check.GetID(), Action: button, By: by})
		must(t, err)
	}
	press("rita", "Cancel")
	until(t, time.Minute, "nobody is told that it takes a role", func() bool {
		comments, _ := s.wroteSince(0)
		return strings.Contains(strings.Join(comments, "\n"), "The button `Cancel` needs the role **write**")
	})
	press("mira", "Cancel")
	s.rest()
	build := s.jobs(pipeline.KindBuild)[0].ID
	final, err := pipeline.Read(t.Context(), s.store, build)
	must(t, err)
	if final.State != report.Canceled {
		t.Fatalf("the build: %s, %s", final.State, final.Cause)
	}
	before := len(s.changes())
	press("rita", "")
	s.rest()
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) != 1 || !jobs[0].State.Finished() {
		t.Fatalf("a reader ran it again: %+v", jobs)
	}
	if comments, _ := s.wroteSince(before); len(comments) != 1 || !strings.Contains(comments[0], "The button `Re-run` needs the role **write**") {
		t.Errorf("comments %q", comments)
	}
	shown := func() string {
		suites, _, err := s.hub().Checks.ListCheckSuitesForRef(t.Context(), "harbour", "greeter", check.GetHeadSHA(), nil)
		must(t, err)
		for _, u := range suites.CheckSuites {
			if u.GetApp().GetSlug() == "slipway" {
				return u.GetStatus() + "/" + u.GetConclusion()
			}
		}
		return "nothing"
	}
	if got := shown(); got != "completed/cancelled" {
		t.Errorf("after a reader pressed GitHub's Re-run, GitHub shows the check as %s", got)
	}
	press("mira", "Re-run")
	until(t, time.Minute, "it is not gone on with", func() bool { return len(s.keys(build, "g2/")) > 0 })
	s.says("mira", "/cancel")
	s.rest()
	_, err = s.sim.RerunChecks(t.Context(), githubsim.Rerun{Repo: fullName, SHA: check.GetHeadSHA(), By: "mira"})
	must(t, err)
	until(t, time.Minute, "it is not gone on with when all checks are run again", func() bool { return len(s.keys(build, "g3/")) > 0 })
	s.says("mira", "/cancel")
	s.rest()
	if got := shown(); got != "completed/cancelled" {
		t.Errorf("at the end GitHub shows the check as %s", got)
	}
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) != 1 || jobs[0].ID != build {
		t.Errorf("builds %+v", jobs)
	}
}

// tracks finds the marker of a tracking comment.
var tracks = regexp.MustCompile(` run=b-[0-9a-f]+ -->`)

// The tracking comment of a build that waits is deleted and comes back, once.
func TestADeletedTrackingCommentComesBack(t *testing.T) {
	t.Parallel()
	s := newServer(t, company, func(e *pipeline.Engine) { e.Defaults.Build.Approval = "plan" })
	s.says("mira", "/build")
	tracking := func() (found []*github.IssueComment) {
		all, _, err := s.hub().Issues.ListComments(t.Context(), "harbour", "greeter", s.ticket, nil)
		must(t, err)
		for _, c := range all {
			if tracks.MatchString(c.GetBody()) {
				found = append(found, c)
			}
		}
		return found
	}
	until(t, time.Minute, "the build does not wait", func() bool {
		found := tracking()
		return len(found) == 1 && strings.Contains(found[0].GetBody(), "**Waits for**")
	})
	first := tracking()[0].GetID()
	_, err := s.sim.DeleteComment(t.Context(), githubsim.CommentEdit{Repo: fullName, ID: first, By: "rita"})
	must(t, err)
	until(t, time.Minute, "the comment does not come back", func() bool { return len(tracking()) == 1 })
	if again := tracking()[0]; again.GetID() == first || !strings.Contains(again.GetBody(), "`/approve ") {
		t.Errorf("the comment: %s", again.GetBody())
	}
	s.says("mira", "/cancel")
	s.rest()
	if found := tracking(); len(found) != 1 || strings.Contains(found[0].GetBody(), "**Waits for**") {
		t.Errorf("the build does not write on in it: %d comments", len(found))
	}
}
