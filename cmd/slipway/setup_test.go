package main

import (
	"bufio"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
)

// A server without an App creates one with an operator's browser, keeps its
// credentials to itself, and goes on as that App, also when it is started again.
// The stand-in is reached as GitHub Enterprise Server is, below /api/v3.
func TestSetUp(t *testing.T) {
	t.Parallel()
	sim := schema.Start(t, githubsim.Options{})
	term := newTerminal(t, "SLIPWAY_GITHUB_BASE_URL="+sim.URL()+"/api/v3/")
	served := serving(t, term)
	link := served.until(`http://127\.0\.0\.1:\d+/setup\?token=\w+`)
	here, err := url.Parse(link)
	must(t, err)

	stranger := newBrowser(t)
	if status, page := stranger.get("http://" + here.Host + "/setup"); status != http.StatusForbidden || strings.Contains(page, "<form") {
		t.Errorf("without the token: %d\n%s", status, page)
	}
	if status, _ := stranger.post("http://"+here.Host+"/setup", url.Values{"address": {"https://example.com"}, "name": {"Mine"}}); status != http.StatusForbidden {
		t.Errorf("a form without the token: %d", status)
	}
	if status, _ := stranger.post("http://"+here.Host+"/webhook", nil); status != http.StatusServiceUnavailable {
		t.Errorf("a webhook: %d", status)
	}

	operator := newBrowser(t)
	if status, page := operator.get(link); status != http.StatusOK || !strings.Contains(page, "Public address") {
		t.Fatalf("%d\n%s", status, page)
	}
	if status, _ := stranger.get(link); status != http.StatusForbidden {
		t.Errorf("the token is good twice: %d", status)
	}
	for name, in := range map[string]url.Values{
		"no address":          {"address": {""}, "name": {"Slipway"}},
		"no scheme":           {"address": {"slipway.example.com"}, "name": {"Slipway"}},
		"a hostile name":      {"address": {"https://slipway.example.com"}, "name": {`"><script>alert(1)</script>`}},
		"a hostile account":   {"address": {"https://slipway.example.com"}, "name": {"Slipway"}, "organization": {"../../x"}},
		"a name that is long": {"address": {"https://slipway.example.com"}, "name": {strings.Repeat("x", 35)}},
	} {
		if status, page := operator.post("http://"+here.Host+"/setup", in); status != http.StatusUnprocessableEntity || !strings.Contains(page, `role="alert"`) || strings.Contains(page, "<script") {
			t.Errorf("%s: %d\n%s", name, status, page)
		}
	}
	if status, _ := operator.get("http://" + here.Host + "/setup/done?code=0123&state=guessed"); status != http.StatusForbidden {
		t.Errorf("a state that was guessed: %d", status)
	}
	_, page := operator.post("http://"+here.Host+"/setup", url.Values{"address": {"http://" + here.Host}, "name": {"My Slipway"}, "organization": {"harbour"}})
	action := html.UnescapeString(regexp.MustCompile(`action="([^"]+)"`).FindStringSubmatch(page)[1])
	manifest := html.UnescapeString(regexp.MustCompile(`name="manifest" value="([^"]+)"`).FindStringSubmatch(page)[1])
	if !strings.HasPrefix(action, sim.URL()+"/organizations/harbour/settings/apps/new?state=") {
		t.Fatalf("the manifest goes to %s", action)
	}
	status, page := operator.post(action, url.Values{"manifest": {manifest}})
	if status != http.StatusOK || !strings.Contains(page, sim.URL()+"/apps/my-slipway/installations/new") || strings.Contains(page, "PRIVATE KEY") {
		t.Fatalf("%d\n%s", status, page)
	}

	served.until(`http://127\.0\.0\.1:\d+/webhook`)
	file := filepath.Join(term.state, "github-app.yml")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v; want mode 600", info, err)
	}
	_, err = sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "greeter", Files: checked(green)})
	must(t, err)
	_, err = sim.Install(t.Context(), githubsim.InstallSpec{App: "my-slipway", Account: "harbour", Repos: []string{"greeter"}})
	must(t, err)
	until(t, 30*time.Second, "the new App's webhook is not taken in", func() bool {
		all := sim.Deliveries()
		return len(all) == 1 && all[0].StatusCode == http.StatusAccepted
	})
	served.stop()
	if said := served.said.String(); strings.Contains(said, "PRIVATE KEY") {
		t.Errorf("the log:\n%s", said)
	}
	again := serving(t, term)
	again.until(`http://127\.0\.0\.1:\d+/webhook`)
	again.stop()
}

// A served is a slipway serve and what it says.
type served struct {
	*testing.T
	said  strings.Builder
	lines *bufio.Scanner
	stop  func()
}

func serving(t *testing.T, term *terminal) *served {
	t.Helper()
	cmd := term.command("serve", "--listen", "127.0.0.1:0", "--verbose")
	pipe, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	s := &served{T: t, lines: bufio.NewScanner(pipe)}
	s.stop = func() {
		t.Helper()
		must(t, cmd.Process.Signal(syscall.SIGTERM))
		for s.lines.Scan() {
			s.said.WriteString(s.lines.Text() + "\n")
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("serve: %v\n%s", err, &s.said)
		}
	}
	return s
}

// until reads on to what the pattern matches.
func (s *served) until(pattern string) string {
	s.Helper()
	for s.lines.Scan() {
		s.said.WriteString(s.lines.Text() + "\n")
		if found := regexp.MustCompile(pattern).FindString(s.lines.Text()); found != "" {
			return found
		}
	}
	s.Fatalf("serve never said %s\n%s", pattern, &s.said)
	return ""
}

// A browser keeps cookies and follows redirects.
type browser struct {
	*testing.T
	*http.Client
}

func newBrowser(t *testing.T) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	must(t, err)
	return browser{t, &http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}}
}

func (b browser) get(address string) (status int, page string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, address, nil)
	must(b.T, err)
	return b.do(r)
}

func (b browser) post(address string, in url.Values) (status int, page string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address, strings.NewReader(in.Encode()))
	must(b.T, err)
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return b.do(r)
}

func (b browser) do(r *http.Request) (status int, page string) {
	b.Helper()
	resp, err := b.Do(r)
	must(b.T, err)
	raw, err := io.ReadAll(resp.Body)
	must(b.T, err)
	must(b.T, resp.Body.Close())
	return resp.StatusCode, string(raw)
}
