package main

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
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
