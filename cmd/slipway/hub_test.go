package main

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

// A hub looks at the demo's repository on the stand-in with the client and the
// git that anybody would use.
type hub struct {
	*testing.T
	*github.Client
	sim      githubsim.Remote
	tokens   *ghinstallation.Transport
	cloneURL string
}

func newHub(t *testing.T, url string) *hub {
	t.Helper()
	h := &hub{T: t, sim: githubsim.Remote{URL: url}, cloneURL: url + "/" + demoOwner + "/" + demoRepo + ".git"}
	h.tokens, h.Client = client(t, h.sim, demoOwner, demoRepo)
	return h
}

// client speaks to the stand-in as the App, which exists and stays as it is.
func client(t *testing.T, sim githubsim.Remote, owner, repo string) (*ghinstallation.Transport, *github.Client) {
	t.Helper()
	var app githubsim.App
	var installed githubsim.Installed
	must(t, sim.Do(t.Context(), "app", githubsim.AppSpec{Slug: "slipway"}, &app))
	must(t, sim.Do(t.Context(), "install", githubsim.InstallSpec{App: "slipway", Account: owner, Repos: []string{repo}}, &installed))
	base := &http.Transport{}
	t.Cleanup(base.CloseIdleConnections)
	tokens, err := ghinstallation.New(base, app.ID, installed.ID, []byte(app.PrivateKey))
	must(t, err)
	tokens.BaseURL = sim.URL + "/api/v3"
	c, err := github.NewClient(&http.Client{Transport: tokens}).WithEnterpriseURLs(sim.URL, sim.URL)
	must(t, err)
	return tokens, c
}

func (h *hub) must(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

// clone gets the repository over HTTP, all branches, and returns where it is.
func (h *hub) clone() string {
	h.Helper()
	token, err := h.tokens.Token(h.Context())
	h.must(err)
	dir := h.TempDir()
	h.run(dir, "git", "clone", "--quiet", strings.Replace(h.cloneURL, "://", "://x-access-token:"+token+"@", 1), ".")
	return dir
}

// run runs a program that has to succeed and returns what it prints.
func (h *hub) run(dir string, args ...string) string {
	h.Helper()
	cmd := exec.CommandContext(h.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		h.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// lines is run, split into lines.
func (h *hub) lines(dir string, args ...string) []string {
	h.Helper()
	return strings.FieldsFunc(h.run(dir, args...), func(r rune) bool { return r == '\n' })
}
