package githubsim_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/bradleyfalzon/ghinstallation/v2"
	gojwt "github.com/golang-jwt/jwt/v4"
	"github.com/google/go-github/v60/github"
	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// serveDir makes the test binary a server of its own, so that a test can kill it.
const serveDir = "GITHUBSIM_TEST_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serveDir); dir != "" {
		serveUntilKilled(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

func serveUntilKilled(dir string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	s, err := githubsim.Open(githubsim.Options{Dir: dir})
	if err == nil {
		err = s.Run(ctx, func(url string) { fmt.Println(url) })
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const secret = "hook secret"

// A world is a server with an App installed on one repository.
type world struct {
	*githubsim.Server
	app   githubsim.App
	repo  githubsim.Repo
	inst  int64
	hooks *receiver
}

// newWorld starts one. Everything that passes is judged by GitHub's schemas.
func newWorld(t *testing.T, o githubsim.Options) *world {
	t.Helper()
	w := &world{Server: schema.Start(t, o), hooks: newReceiver(t)}
	ctx := t.Context()
	w.app = must(w.CreateApp(ctx, githubsim.AppSpec{
		Slug: "slipway", Secret: secret, WebhookURL: w.hooks.server.URL,
		Events: []string{"issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "check_run", "push"},
	}))(t)
	w.repo = must(w.CreateRepo(ctx, githubsim.RepoSpec{Owner: "octo", Name: "shop", Files: map[string]string{
		"README.md": "# Shop\n", "main.go": "package main\n\nfunc main() {\n\tprintln(1)\n}\n", "run.sh": "#!/bin/sh\necho ok\n",
		".github/slipway.yml": "runtime: replay\n",
	}}))(t)
	w.inst = must(w.Install(ctx, githubsim.InstallSpec{App: "slipway", Account: "octo"}))(t).ID
	for login, role := range map[string]string{"maria": "write", "tom": "triage", "rita": "maintain"} {
		must(w.SetRole(ctx, githubsim.RoleSpec{Repo: "octo/shop", Login: login, Role: role}))(t)
	}
	return w
}

// must unwraps a result or ends the test.
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// got unwraps what go-github answers.
func got[T any](v T, _ *github.Response, err error) func(testing.TB) T {
	return must(v, err)
}

// ticket opens one by maria.
func (w *world) ticket(t *testing.T, title string) int {
	t.Helper()
	return must(w.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: "octo/shop", Title: title, Body: "Please.", By: "maria"}))(t).Number
}

// asApp is a client that speaks with the App's JWT.
func (w *world) asApp(t *testing.T) *github.Client {
	t.Helper()
	tr := must(ghinstallation.NewAppsTransport(transport(t), w.app.ID, []byte(w.app.PrivateKey)))(t)
	tr.BaseURL = w.URL() + "/api/v3"
	return must(github.NewClient(&http.Client{Transport: tr}).WithEnterpriseURLs(w.URL(), w.URL()))(t)
}

// client speaks for the installation; narrow (may be nil) limits its token.
func (w *world) client(t *testing.T, narrow *github.InstallationTokenOptions) *github.Client {
	t.Helper()
	tr := must(ghinstallation.New(transport(t), w.app.ID, w.inst, []byte(w.app.PrivateKey)))(t)
	tr.BaseURL, tr.InstallationTokenOptions = w.URL()+"/api/v3", narrow
	return must(github.NewClient(&http.Client{Transport: tr}).WithEnterpriseURLs(w.URL(), w.URL()))(t)
}

// token mints one.
func (w *world) token(t *testing.T, o *github.InstallationTokenOptions) string {
	t.Helper()
	return got(w.asApp(t).Apps.CreateInstallationToken(t.Context(), w.inst, o))(t).GetToken()
}

// transport keeps no connection, so that nothing is left when the test ends.
func transport(t *testing.T) http.RoundTripper {
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// fetch gets a path with headers and returns the answer with its body read.
func (w *world) fetch(t *testing.T, method, path, token, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), method, w.URL()+path, bytes.NewReader([]byte(body))))(t)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := (&http.Client{Transport: transport(t)}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	raw := must(io.ReadAll(resp.Body))(t)
	if err := resp.Body.Close(); err != nil {
		t.Fatal(err)
	}
	return resp, string(raw)
}

// git runs git as somebody with a clean configuration would.
func git(t *testing.T, dir string, args ...string) (string, int) {
	t.Helper()
	var out bytes.Buffer
	exit, err := sandbox.Host(t.Context(), sandbox.Command{
		Args: append([]string{"git"}, args...), Dir: dir, Stdout: &out, Stderr: &out, Timeout: time.Minute,
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
			"GIT_AUTHOR_NAME=s", "GIT_AUTHOR_EMAIL=s@example.com", "GIT_COMMITTER_NAME=s", "GIT_COMMITTER_EMAIL=s@example.com",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit.Code
}

// mustGit is git that has to succeed.
func mustGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	out, code := git(t, dir, args...)
	if code != 0 {
		t.Fatalf("git %v: exit %d\n%s", args, code, out)
	}
	return out
}

// A hook is a webhook that arrived.
type hook struct {
	event, guid, signature string
	body                   []byte
}

// payload is the part of a webhook that tests look at.
type payload struct {
	Action       string `json:"action"`
	After        string `json:"after"`
	Ref          string `json:"ref"`
	Installation struct {
		ID int64 `json:"id"`
	} `json:"installation"`
	Sender struct {
		Login string `json:"login"`
	} `json:"sender"`
	Label struct {
		Name string `json:"name"`
	} `json:"label"`
	Comment struct {
		Body        string `json:"body"`
		Association string `json:"author_association"`
	} `json:"comment"`
	Pull struct {
		Head struct {
			SHA string `json:"sha"`
		} `json:"head"`
		Merged bool `json:"merged"`
	} `json:"pull_request"`
	Requested struct {
		Identifier string `json:"identifier"`
	} `json:"requested_action"`
}

func (h hook) name(t *testing.T) string { return h.event + "." + h.read(t).Action }

func (h hook) read(t *testing.T) payload {
	t.Helper()
	var p payload
	if err := json.Unmarshal(h.body, &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func (h hook) signed() bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(h.body)
	return h.signature == "sha256="+hex.EncodeToString(mac.Sum(nil))
}

// A receiver takes webhooks in.
type receiver struct {
	server *httptest.Server
	in     chan hook
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{in: make(chan hook, 1000)}
	r.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, err := io.ReadAll(q.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.in <- hook{q.Header.Get("X-GitHub-Event"), q.Header.Get("X-GitHub-Delivery"), q.Header.Get("X-Hub-Signature-256"), body}
		w.WriteHeader(http.StatusAccepted)
	}))
	t.Cleanup(r.server.Close)
	return r
}

// next is the next webhook.
func (r *receiver) next(t *testing.T) hook {
	t.Helper()
	select {
	case h := <-r.in:
		return h
	case <-t.Context().Done():
	case <-time.After(20 * time.Second):
	}
	t.Fatal("no webhook came")
	return hook{}
}

// until is the next webhook of a name; those before it are dropped.
func (r *receiver) until(t *testing.T, name string) hook {
	t.Helper()
	for {
		if h := r.next(t); h.name(t) == name {
			return h
		}
	}
}

// jwt is what an App proves itself with.
func jwt(t *testing.T, key string, app int64, issued, expires time.Time) string {
	t.Helper()
	private := must(gojwt.ParseRSAPrivateKeyFromPEM([]byte(key)))(t)
	claims := gojwt.RegisteredClaims{Issuer: fmt.Sprint(app), IssuedAt: gojwt.NewNumericDate(issued), ExpiresAt: gojwt.NewNumericDate(expires)}
	return must(gojwt.NewWithClaims(gojwt.SigningMethodRS256, claims).SignedString(private))(t)
}
