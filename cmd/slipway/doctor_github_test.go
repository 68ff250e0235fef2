package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
)

// The doctor finds what is wrong with an App, says what to do about it, and finds
// nothing wrong with one that is well.
func TestDoctorLooksAtTheApp(t *testing.T) {
	t.Parallel()
	well := githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, Permissions: map[string]string{
		"contents": "write", "issues": "write", "pull_requests": "write", "checks": "write", "actions": "read", "statuses": "read", "workflows": "write",
	}}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) }))
	t.Cleanup(receiver.Close)
	arriving := well
	arriving.WebhookURL = receiver.URL
	for name, c := range map[string]struct {
		app     githubsim.AppSpec
		happens func(*testing.T, *githubsim.Server)
		code    int
		want    []string // state about: text, in parts
	}{
		"well": {arriving, func(t *testing.T, sim *githubsim.Server) {
			install(t, sim)
			until(t, 20*time.Second, "nothing was sent", func() bool { d := sim.Deliveries(); return len(d) == 1 && !d[0].Pending })
		}, 0, []string{"ok app: App ", "ok installation on harbour: it has every", "ok webhook: of the last 1 webhooks 1 arrived", "ok repository harbour/greeter: no rule keeps slipway/1-work from being pushed"}},
		"rules, drafts and another bot": {arriving, func(t *testing.T, sim *githubsim.Server) {
			install(t, sim)
			hinder(t, sim)
		}, 3, []string{
			"problem repository harbour/greeter: a ruleset of harbour/greeter (required_signatures) wants signed commits, and a build's are not, so that work/1-work cannot be pushed, unless it exempts the App, which cannot be seen",
			"(required_linear_history) wants no merge commits", "(branch_name_pattern) wants another name: starts_with feature/", "(commit_message_pattern) wants commit messages like this: regex ^JIRA-",
			"warning repository harbour/greeter: it takes no draft pull requests", "warning repository harbour/greeter: qodo[bot] answered one of our commands",
			"problem repository harbour/other: its configuration stops every build: .github/slipway.yml:1: wrong: unknown key",
		}},
		"no workflows, fewer rights and events": {
			githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, Permissions: map[string]string{"contents": "read", "issues": "write"}, Events: []string{"issues"}}, install, 3,
			[]string{
				"problem app: permissions are missing: actions: read, checks: write, contents: write, pull_requests: write, statuses: read",
				"problem app: events are not subscribed to: issue_comment,", "warning app: a build that changes files in .github/workflows", "problem installation on harbour: permissions are missing",
			},
		},
		"installed nowhere": {well, func(*testing.T, *githubsim.Server) {}, 3, []string{"problem installations: the App is installed nowhere", "warning webhook: GitHub sent nothing"}},
		"suspended": {well, func(t *testing.T, sim *githubsim.Server) {
			install(t, sim)
			_, err := sim.Suspend(t.Context(), githubsim.Access{App: "slipway", Account: "harbour", By: "harbour"})
			must(t, err)
		}, 3, []string{"problem installation on harbour: it is suspended"}},
		"webhooks that do not arrive": {well, func(t *testing.T, sim *githubsim.Server) {
			install(t, sim)
			until(t, 20*time.Second, "nothing was sent", func() bool { d := sim.Deliveries(); return len(d) == 1 && !d[0].Pending })
		}, 3, []string{"problem webhook: of the last 1 webhooks 0 arrived; the newest did not"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sim := schema.Start(t, githubsim.Options{})
			made, err := sim.CreateApp(t.Context(), c.app)
			must(t, err)
			c.happens(t, sim)
			key := filepath.Join(t.TempDir(), "key.pem")
			must(t, os.WriteFile(key, []byte(made.PrivateKey), 0o600))
			end := newTerminal(t, "SLIPWAY_GITHUB_APP_ID="+strconv.FormatInt(made.ID, 10), "SLIPWAY_GITHUB_PRIVATE_KEY_FILE="+key,
				"SLIPWAY_GITHUB_WEBHOOK_SECRETS="+hookSecret, "SLIPWAY_GITHUB_BASE_URL="+sim.URL()+"/api/v3/",
			).slipway("doctor", "--runtime", "command", "--agent-command", "true", "--json")
			c.want = append(c.want, "ok git: ", "sandbox: agents are ", "ok runtime command: ", "ok store: ")
			checkDiagnoses(t, end, c.code, c.want)
		})
	}
}

// hinder has a repository be against builds in every way that can be seen, and
// in some that are for other branches and other names.
func hinder(t *testing.T, sim *githubsim.Server) {
	t.Helper()
	for _, rule := range []githubsim.Rule{
		{Branch: "work/*", Type: "required_signatures"},
		{Branch: "work/*", Type: "required_linear_history"},
		{Branch: "work/*", Type: "non_fast_forward"},
		{Branch: "work/*", Type: "branch_name_pattern", Operator: "starts_with", Pattern: "feature/"},
		{Branch: "work/*", Type: "branch_name_pattern", Operator: "regex", Pattern: "^work/[0-9]+-"},
		{Branch: "work/*", Type: "commit_message_pattern", Operator: "regex", Pattern: "^JIRA-"},
		{Branch: "main", Type: "pull_request"},
	} {
		rule.Repo = fullName
		_, err := sim.AddRule(t.Context(), rule)
		must(t, err)
	}
	_, err := sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "main", By: "mira", Message: "Configure", Files: map[string]string{
		".github/slipway.yml": "build: {branch: 'work/{ticket}-{slug}'}\n",
	}})
	must(t, err)
	_, err = sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "work/1-greet", By: "mira", Message: "Greet", Files: map[string]string{"greet.sh": "echo hello\n"}})
	must(t, err)
	_, err = sim.OpenPull(t.Context(), githubsim.PullSpec{
		Repo: fullName, Title: "Greet", Head: "work/1-greet", By: "slipway[bot]", Body: "<!-- slipway app=1 ticket=1 as=check -->",
	})
	must(t, err)
	ticket, err := sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: fullName, Title: "Greet people", By: "mira"})
	must(t, err)
	for _, c := range []struct{ by, says string }{{"mira", "/build"}, {"slipway[bot]", "Queued."}, {"qodo[bot]", "I build it."}} {
		_, err := sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: ticket.Number, By: c.by, Body: c.says})
		must(t, err)
	}
	_, err = sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "other", Files: map[string]string{".github/slipway.yml": "wrong: 1\n"}})
	must(t, err)
}

func TestDoctorWithoutAnApp(t *testing.T) {
	t.Parallel()
	checkDiagnoses(t, newTerminal(t).slipway("doctor", "--runtime", "command", "--agent-command", "true", "--json"), 0, []string{"warning app: no GitHub App is configured"})
	checkDiagnoses(t, newTerminal(t, "SLIPWAY_GITHUB_APP_ID=7").slipway("doctor", "--runtime", "command", "--agent-command", "true", "--json"), 3, []string{"problem app: the GitHub App is configured in part"})
	end := newTerminal(t).slipway("doctor", "--runtime", "command", "--agent-command", "true")
	if end.code != 0 || !strings.Contains(end.out, "warning  app: no GitHub App is configured\n         → run slipway serve") {
		t.Errorf("exit %d\n%s%s", end.code, end.out, end.err)
	}
}

func install(t *testing.T, sim *githubsim.Server) {
	t.Helper()
	_, err := sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "greeter", Files: checked(green)})
	must(t, err)
	_, err = sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour"})
	must(t, err)
}

// checkDiagnoses wants each text in one line, and a fix in each that is not ok.
func checkDiagnoses(t *testing.T, end typed, code int, want []string) {
	t.Helper()
	var all strings.Builder
	for line := range strings.Lines(end.out) {
		var d app.Diagnosis
		must(t, json.Unmarshal([]byte(line), &d))
		all.WriteString(d.State + " " + d.About + ": " + d.Text + "\n")
		if (d.Fix == "") != (d.State == app.Well) {
			t.Errorf("%+v", d)
		}
	}
	if end.code != code {
		t.Errorf("exit %d, want %d: %s", end.code, code, end.err)
	}
	for _, text := range want {
		if !strings.Contains(all.String(), text) {
			t.Errorf("no %q in\n%s", text, &all)
		}
	}
}
