package durability_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

const (
	owner, repoName, maintainer = "harbour", "fleet", "mira"
	fullName                    = owner + "/" + repoName
	hookSecret                  = "hook secret"
	label                       = "slipway:build"
)

// A hub is a GitHub stand-in, which survives, and a server, which does not.
type hub struct {
	sim    githubsim.Remote
	simDir string
	state  string
	listen string
	config string   // file of the server's configuration
	flags  []string // that say who the agents are
	env    []string
	ticket githubsim.Thread
	server *process
	store  interface {
		queue.Store
		io.Closer
	}
	started int
}

// newHub sets up a repository with a ticket; the server is not started.
func newHub(t testing.TB, s script) *hub {
	t.Helper()
	config := filepath.Join(t.TempDir(), "slipway.yml")
	put(t, config, s.server)
	h := &hub{simDir: t.TempDir(), state: t.TempDir(), config: config, flags: []string{"--runtime", "replay", "--recordings", s.write(t)}}
	sim := start(t, h.simDir, nil, "githubsim", "--dir", h.simDir)
	eventually(t, 20*time.Second, func() string {
		line, _, whole := strings.Cut(sim.said(t), "\n")
		if !whole {
			return "the stand-in does not listen"
		}
		if err := json.Unmarshal([]byte(line), &h.sim); err != nil {
			t.Fatal(err)
		}
		return ""
	})
	h.listen = freeAddress(t)
	var app githubsim.App
	for _, step := range []struct {
		verb    string
		in, out any
	}{
		{"app", githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, WebhookURL: "http://" + h.listen + "/webhook"}, &app},
		{"user", githubsim.UserSpec{Login: owner, Type: "Organization"}, nil},
		{"user", githubsim.UserSpec{Login: maintainer}, nil},
		{"repo", githubsim.RepoSpec{Owner: owner, Name: repoName, Public: true, Files: s.files()}, nil},
		{"role", githubsim.RoleSpec{Repo: fullName, Login: maintainer, Role: "maintain"}, nil},
		{"install", githubsim.InstallSpec{App: "slipway", Account: owner, Repos: []string{repoName}}, nil},
		{"ticket", githubsim.TicketSpec{Repo: fullName, Title: "List the ships", Body: goal, By: maintainer}, &h.ticket},
	} {
		h.do(t, step.verb, step.in, step.out)
	}
	key := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(key, []byte(app.PrivateKey), 0o600); err != nil {
		t.Fatal(err)
	}
	h.env = []string{
		fmt.Sprintf("SLIPWAY_GITHUB_APP_ID=%d", app.ID), "SLIPWAY_GITHUB_PRIVATE_KEY_FILE=" + key,
		"SLIPWAY_GITHUB_WEBHOOK_SECRETS=" + hookSecret, "SLIPWAY_GITHUB_BASE_URL=" + h.sim.URL + "/",
	}
	h.store = openStore(t, h.state)
	t.Cleanup(func() {
		if err := h.store.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func freeAddress(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // to be taken by the server
	return l.Addr().String()
}

func (h *hub) do(t testing.TB, verb string, in, out any) {
	t.Helper()
	if err := h.sim.Do(t.Context(), verb, in, out); err != nil {
		t.Fatal(err)
	}
}

// serve starts the server and waits until it listens.
func (h *hub) serve(t testing.TB, env ...string) {
	t.Helper()
	args := append([]string{"serve", "--verbose", "--config", h.config, "--listen", h.listen}, h.flags...)
	h.server = start(t, h.state, append(env, h.env...), args...)
	h.started++
	eventually(t, 20*time.Second, func() string {
		c, err := net.Dial("tcp", h.listen)
		if err == nil {
			_ = c.Close() // it was there
			return ""
		}
		select {
		case <-h.server.ended:
			if h.server.killed() {
				return "" // by its crash point, between listening and now
			}
			t.Fatalf("the server ended\n%s", h.server.said(t))
		default:
		}
		return err.Error()
	})
}

// label asks for a build.
func (h *hub) label(t testing.TB) {
	t.Helper()
	h.do(t, "label", githubsim.Labelling{Repo: fullName, Number: h.ticket.Number, Label: label, By: maintainer}, nil)
}

// jobs lists the jobs of a kind.
func (h *hub) jobs(t testing.TB, kind string) []queue.Job {
	t.Helper()
	jobs, err := h.store.List(t.Context(), queue.Query{Kinds: []string{kind}, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

// build is the one build that there is; its zero value is none.
func (h *hub) build(t testing.TB) seen {
	t.Helper()
	jobs := h.jobs(t, pipeline.KindBuild)
	switch len(jobs) {
	case 0:
		return seen{}
	case 1:
		return look(t, h.store, h.state, jobs[0])
	}
	t.Fatalf("%d builds, want one: %+v", len(jobs), jobs)
	return seen{}
}

// rest waits until every job has ended, and ends the server.
func (h *hub) rest(t *testing.T) {
	t.Helper()
	eventually(t, longRun, func() string {
		select {
		case <-h.server.ended:
			t.Fatalf("the server ended\n%s", h.server.said(t))
		default:
		}
		builds := h.jobs(t, pipeline.KindBuild)
		if len(builds) == 0 {
			return "there is no build"
		}
		for _, j := range slices.Concat(builds, h.jobs(t, pipeline.KindComparison), h.jobs(t, "delivery")) {
			if !j.State.Finished() {
				return fmt.Sprintf("%s %s is %s: %s\n%s", j.Kind, j.ID, j.State, j.Cause, h.server.said(t))
			}
		}
		return ""
	})
	h.server.signal(t, syscall.SIGTERM)
	if code := h.server.wait(t, 20*time.Second); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, h.server.said(t))
	}
}

// get reads what everybody can read on GitHub.
func (h *hub) get(t *testing.T, path string, out any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.sim.URL+"/api/v3/repos/"+fullName+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v\n%s", path, resp.Status, err, text)
	}
	if err := json.Unmarshal(text, out); err != nil {
		t.Fatal(err)
	}
}

// A thing is what the tests read of pulls, comments, branches and check runs.
type thing struct {
	Body       string
	Name       string
	State      string
	Draft      bool
	Conclusion string
	ExternalID string `json:"external_id"` // of a check run
	HTMLURL    string `json:"html_url"`
	User       struct{ Login string }
	Head       struct{ Ref, SHA string }
}

// complete checks what a build left on GitHub and here, and returns its tree.
func (h *hub) complete(t *testing.T, dead ...seen) (tree string) {
	t.Helper()
	whole := h.build(t)
	if whole.job.State != queue.Done {
		t.Fatalf("the build is %s: %s", whole.job.State, whole.job.Cause)
	}
	for _, d := range dead {
		if d.job.ID != "" {
			whole.continues(t, d)
		}
	}
	var pulls, comments []thing
	h.get(t, "/pulls?state=all", &pulls)
	h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
	if len(pulls) != 1 || !pulls[0].Draft || pulls[0].State != "open" {
		t.Fatalf("pull requests %+v, want one open draft", pulls)
	}
	clone := t.TempDir()
	git(t, clone, "init", "--quiet", "--bare")
	git(t, clone, "fetch", "--quiet", h.sim.URL+"/"+fullName+".git", "refs/heads/*:refs/heads/*")
	if got := git(t, clone, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main\nrefs/heads/"+pulls[0].Head.Ref {
		t.Errorf("branches\n%s\nwant main and that of the pull request", got)
	}
	if len(comments) != 2 || !strings.Contains(comments[0].Body, whole.job.ID) || !strings.Contains(comments[1].Body, " end=1 -->") {
		t.Errorf("comments %+v, want one tracking comment and one that tells the end", comments)
	}
	var checks struct {
		CheckRuns []thing `json:"check_runs"`
	}
	h.get(t, "/commits/"+pulls[0].Head.SHA+"/check-runs?filter=all", &checks)
	if len(checks.CheckRuns) != 1 || checks.CheckRuns[0].Conclusion != "success" {
		t.Errorf("check runs %+v, want one that succeeded", checks.CheckRuns)
	}
	if unknown, err := h.sim.Unknown(t.Context()); err != nil || len(unknown) > 0 {
		t.Errorf("requests that GitHub does not know: %v, %v", unknown, err)
	}
	for _, dir := range []string{"work", "homes"} {
		if left, err := filepath.Glob(filepath.Join(h.state, dir, "b-*")); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
	noneAlive(t, h.state, 5*time.Second)
	return git(t, clone, "rev-parse", pulls[0].Head.SHA+"^{tree}")
}

// pair is the smallest build with a conflict.
func pair() script {
	s := voyage([]ship{
		{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}},
		{name: "add-beta", files: map[string]string{"list.txt": "first\nbeta\nlast\n"}},
	}, map[string]string{"list.txt": "first\nalpha\nbeta\nlast\n"})
	s.find("issue-02/round-1/iter-1/code_reviewer").DelayMS = 400 // alpha lands first
	return s
}

// atOnce runs rows side by side. They wait most of the time, for the second
// that lies between two writes to GitHub; more of them than processors is right.
func atOnce[T any](t *testing.T, n int, rows []T, run func(row T)) {
	t.Helper()
	next := make(chan T)
	var runners sync.WaitGroup
	for range n {
		runners.Go(func() {
			for row := range next {
				run(row)
			}
		})
	}
	for _, row := range rows {
		next <- row
	}
	close(next)
	runners.Wait()
}

// TestServerSurvivesKillAroundEveryAppend is the crash matrix of a build for a
// ticket. GitHub lives on while the server dies and comes back. By default the
// rows of the publish phase run; all of them with SLIPWAY_SOAK=1.
func TestServerSurvivesKillAroundEveryAppend(t *testing.T) {
	t.Parallel()
	tree, entries := calmPair(t)
	var crashes []string
	for i, e := range entries {
		for _, when := range []string{"before", "after"} {
			if soak() || strings.HasPrefix(e.Key, "publish/") || e.Key == "done" {
				crashes = append(crashes, fmt.Sprintf("%s:%d", when, i+1))
			}
		}
	}
	t.Logf("%d rows", len(crashes))
	atOnce(t, 6, crashes, func(crash string) {
		t.Run(crash, func(t *testing.T) {
			h := newHub(t, pair())
			h.serve(t, "SLIPWAY_CRASH="+crash)
			h.label(t)
			h.server.wait(t, longRun)
			if !h.server.killed() {
				t.Fatalf("it was not killed\n%s", h.server.said(t))
			}
			dead := h.build(t)
			h.serve(t)
			h.rest(t)
			if got := h.complete(t, dead); got != tree {
				t.Errorf("tree %s, want %s", got, tree)
			}
		})
	})
}

// TestServerSurvivesKillWhileALabelIsHandled kills the server after each of the
// things that the label's handler does on GitHub, before the next.
func TestServerSurvivesKillWhileALabelIsHandled(t *testing.T) {
	t.Parallel()
	h := newHub(t, pair())
	h.serve(t)
	h.label(t)
	thread := fmt.Sprintf("/repos/%s/issues/%d/", fullName, h.ticket.Number)
	for _, did := range []struct{ method, what string }{{"DELETE", "labels"}, {"POST", "reactions"}, {"POST", "comments"}} {
		eventually(t, 30*time.Second, func() string {
			found, err := h.sim.Log(t.Context(), did.method, thread+did.what)
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				return "no " + did.method + " of " + did.what
			}
			return ""
		})
		h.server.kill()
		h.serve(t)
	}
	h.rest(t)
	h.complete(t)
}

// TestServerSurvivesRandomKills kills the server twenty times while it builds,
// at random instants, and starts it again at once.
func TestServerSurvivesRandomKills(t *testing.T) {
	t.Parallel()
	const kills = 20
	s := fleet()
	for i := range s.calls {
		s.calls[i].DelayMS += 600 // so that there is something to kill
	}
	h := newHub(t, s)
	h.serve(t)
	h.label(t)
	eventually(t, 30*time.Second, func() string {
		if len(h.jobs(t, pipeline.KindBuild)) == 0 {
			return "no build is queued"
		}
		return ""
	})
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same pauses every time
	var dead []seen
	idle := 0 // kills in a row without a new call or effect
	for len(dead) < kills {
		<-time.After(200*time.Millisecond + time.Duration(random.Int64N(int64(1200*time.Millisecond))))
		if idle >= 3 {
			// Five crashes in a row without a step end a build, and rightly.
			before := h.build(t).progress()
			eventually(t, 30*time.Second, func() string {
				if h.build(t).progress() == before {
					return "no step is recorded"
				}
				return ""
			})
		}
		if h.build(t).job.State.Finished() {
			break
		}
		h.server.kill()
		now := h.build(t)
		if idle++; len(dead) == 0 || now.progress() > dead[len(dead)-1].progress() {
			idle = 0
		}
		dead = append(dead, now)
		h.serve(t)
	}
	t.Logf("%d kills", len(dead))
	if len(dead) < kills/2 {
		t.Errorf("the build was over after %d kills", len(dead))
	}
	h.rest(t)
	h.complete(t, dead...)
	for key, n := range h.build(t).runs {
		if n > 1+len(dead) {
			t.Errorf("%s ran %d times", key, n)
		}
	}
}
