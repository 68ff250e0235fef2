package main

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

const (
	hookSecret = "a webhook secret"
	fullName   = "harbour/greeter"
)

// A server is Slipway as slipway serve runs it, but that it writes to GitHub
// without a pause, with the GitHub stand-in and a repository with one ticket.
// Everything that passes between the two is judged. The pause has tests of its own
// beside app/github, and the demo keeps it.
type server struct {
	*testing.T
	sim      *githubsim.Server
	conf     config.Server
	store    *queue.SQLite
	cast     string       // directory of the agents
	listener net.Listener // of the next Slipway
	hurries  bool         // what failed is tried again at once
	url      string       // of the webhook
	ticket   int

	mu    sync.Mutex
	wrote []githubsim.Exchange // what Slipway changed on GitHub
}

// newServer starts one. What tunes its engine does so before it is used.
func newServer(t *testing.T, agents cast, tune ...func(*pipeline.Engine)) *server {
	t.Helper()
	return newServerOf(t, agents, func(*config.Server) {}, tune...)
}

// newServerOf starts one that is configured otherwise.
func newServerOf(t *testing.T, agents cast, configure func(*config.Server), tune ...func(*pipeline.Engine)) *server {
	t.Helper()
	s := newShore(t)
	configure(&s.conf)
	s.serve(agents, tune...)
	s.ticket = s.open("Greet people")
	return s
}

// newShore is all of a server but Slipway, whose address is open already: what
// GitHub sends waits there.
func newShore(t *testing.T) *server {
	t.Helper()
	return newShoreOn(t, githubsim.Options{Enterprise: os.Getenv("SLIPWAY_TEST_GITHUB") == "enterprise"})
}

// newShoreOn is newShore with another GitHub. As GitHub Enterprise Server is, it
// is reached below /api/v3.
func newShoreOn(t *testing.T, hub githubsim.Options) *server {
	t.Helper()
	s := &server{T: t, sim: schema.Start(t, hub)}
	s.sim.Observe(func(x githubsim.Exchange) {
		if x.Mutates() && !strings.HasSuffix(x.URL, "/access_tokens") && x.Method != http.MethodDelete {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.wrote = append(s.wrote, x)
		}
	})
	var err error
	s.listener, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = s.listener.Close() }) // closed already where something served
	s.url = "http://" + s.listener.Addr().String() + "/webhook"
	made, err := s.sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, WebhookURL: s.url})
	must(t, err)
	_, err = s.sim.CreateUser(t.Context(), githubsim.UserSpec{Login: "harbour", Type: "Organization"})
	must(t, err)
	_, err = s.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "harbour", Name: "greeter", Files: checked(green)})
	must(t, err)
	for login, role := range map[string]string{"mira": "write", "rita": "read"} {
		_, err := s.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: fullName, Login: login, Role: role})
		must(t, err)
	}
	_, err = s.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"greeter"}})
	must(t, err)

	s.conf, err = config.LoadServer("", []string{"SLIPWAY_STATE_DIR=" + t.TempDir()})
	must(t, err)
	s.conf.GitHub = config.GitHub{
		AppID: made.ID, Slug: made.Slug, PrivateKey: config.Secret(made.PrivateKey),
		WebhookSecrets: []config.Secret{hookSecret}, BaseURL: s.sim.URL() + "/",
	}
	if hub.Enterprise {
		s.conf.GitHub.BaseURL += "api/v3/"
	}
	s.store, err = queue.OpenSQLite(t.Context(), filepath.Join(s.conf.StateDir, "store"))
	must(t, err)
	t.Cleanup(func() { must(t, s.store.Close()) })
	return s
}

// serve starts Slipway, until stop or the end of the test.
func (s *server) serve(agents cast, tune ...func(*pipeline.Engine)) (slipway *app.App, stop func()) {
	s.Helper()
	dir, _ := agents.hire(s.T)
	s.cast = dir
	return s.serveWith(app.Agents{
		Runtime: "command", Command: []string{"sh", filepath.Join(dir, "agent.sh")}, Readable: []string{dir}, Environ: os.Environ(),
	}, tune...)
}

// serveWith is serve with agents of any kind.
func (s *server) serveWith(agents app.Agents, tune ...func(*pipeline.Engine)) (slipway *app.App, stop func()) {
	s.Helper()
	quiet := slog.New(slog.DiscardHandler)
	engine, err := app.NewEngine(s.conf, agents, quiet)
	must(s.T, err)
	for _, with := range tune {
		with(engine)
	}
	var store queue.Store = hasty{s.store}
	if s.hurries {
		store = hurried{hasty{s.store}}
	}
	slipway, err = app.New(s.conf, store, engine, quiet)
	must(s.T, err)
	ctx, cancel := context.WithCancel(s.Context())
	served := make(chan error, 1)
	go func() { served <- slipway.Run(ctx, s.listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			s.Error(err)
		}
	})
	s.Cleanup(stop)
	return slipway, stop
}

// away stops listening, so that webhooks are refused until listen.
func (s *server) away() { must(s.T, s.listener.Close()) }

// listen opens the address again.
func (s *server) listen() {
	s.Helper()
	var err error
	s.listener, err = net.Listen("tcp", s.listener.Addr().String())
	must(s.T, err)
}

// open writes a ticket and returns its number.
func (s *server) open(title string) int {
	s.Helper()
	thread, err := s.sim.OpenTicket(s.Context(), githubsim.TicketSpec{Repo: fullName, Title: title, Body: "By name.", By: "mira"})
	must(s.T, err)
	return thread.Number
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// says writes a comment on the ticket.
func (s *server) says(by, body string) githubsim.Comment {
	s.Helper()
	c, err := s.sim.Comment(s.Context(), githubsim.CommentSpec{Repo: fullName, Number: s.ticket, By: by, Body: body})
	must(s.T, err)
	return c
}

// rest returns when every webhook was sent and everything that came of it is done.
func (s *server) rest() {
	s.Helper()
	until(s.T, time.Minute, "the server does not come to rest", func() bool {
		for _, d := range s.sim.Deliveries() {
			if d.Pending {
				return false
			}
		}
		jobs, err := s.store.List(s.Context(), queue.Query{Unfinished: true})
		must(s.T, err)
		return len(jobs) == 0
	})
}

func (s *server) jobs(kind string) []queue.Job {
	s.Helper()
	jobs, err := s.store.List(s.Context(), queue.Query{Kinds: []string{kind}})
	must(s.T, err)
	return jobs
}

// stand is where the builds stand, and what else has not come to a good end.
func (s *server) stand() (text string) {
	s.Helper()
	ctx := context.WithoutCancel(s.Context()) // also when the test is over
	jobs, err := s.store.List(ctx, queue.Query{})
	must(s.T, err)
	for _, j := range jobs {
		if j.Kind == inbox.Kind && j.State == queue.Done {
			continue
		}
		b, err := app.Account(ctx, s.store, j)
		must(s.T, err)
		text += fmt.Sprintf("%s %s of %s: %s after %d retries, %q; %s, %q\n", j.Kind, j.ID, j.Key, j.State, j.Retries, j.Cause, b.State, b.Cause)
	}
	return text
}

// changes are what Slipway changed on GitHub so far.
func (s *server) changes() []githubsim.Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]githubsim.Exchange(nil), s.wrote...)
}

// post sends a webhook by hand.
func (s *server) post(guid, signature string, body io.Reader) (status int, answer string) {
	s.Helper()
	status, answer, err := s.try(guid, signature, body)
	must(s.T, err)
	return status, answer
}

// try is post where the server may hang up.
func (s *server) try(guid, signature string, body io.Reader) (status int, answer string, err error) {
	s.Helper()
	return s.hook("issue_comment", guid, signature, body)
}

// hook is try for any event.
func (s *server) hook(event, guid, signature string, body io.Reader) (status int, answer string, err error) {
	s.Helper()
	r, err := http.NewRequestWithContext(s.Context(), http.MethodPost, s.url, body)
	must(s.T, err)
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-GitHub-Event", event)
	r.Header.Set("X-GitHub-Delivery", guid)
	if signature != "" {
		r.Header.Set("X-Hub-Signature-256", signature)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, "", err
	}
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), errors.Join(err, res.Body.Close())
}

func sign(secret string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// What is not signed is refused before it is read: the body is no JSON, and
// nobody notices.
func TestUnsignedDeliveries(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	s.rest()
	known := len(s.jobs(inbox.Kind))
	body := []byte("{ this is no JSON")
	for name, signature := range map[string]string{
		"no signature":                 "",
		"the signature of another key": sign("another secret", body),
		"a signature of another body":  sign(hookSecret, []byte("{}")),
		"an empty key":                 sign("", body),
		"the old kind of signature":    "sha1=0123456789012345678901234567890123456789",
		"half a signature":             sign(hookSecret, body)[:40],
		"no hexadecimal":               "sha256=zz",
	} {
		t.Run(name, func(t *testing.T) {
			if status, answer := s.post("11111111-1111-4111-8111-111111111111", signature, bytes.NewReader(body)); status != http.StatusUnauthorized {
				t.Errorf("status %d: %s", status, answer)
			}
		})
	}
	t.Run("with its signature the same body is seen to be no JSON", func(t *testing.T) {
		if status, answer := s.post("11111111-1111-4111-8111-111111111111", sign(hookSecret, body), bytes.NewReader(body)); status != http.StatusBadRequest || !strings.Contains(answer, "JSON") {
			t.Errorf("status %d: %s", status, answer)
		}
	})
	// The server hangs up on who goes on writing, so that the answer may be lost
	// on its way; what counts is that it is never yes.
	large := bytes.Repeat([]byte(" "), 30<<20)
	for name, body := range map[string]io.Reader{
		"30 MB that say their size": bytes.NewReader(large),
		"30 MB that do not":         io.MultiReader(bytes.NewReader(large)),
	} {
		t.Run(name, func(t *testing.T) {
			status, answer, err := s.try("22222222-2222-4222-8222-222222222222", sign(hookSecret, large), body)
			if err == nil && status != http.StatusRequestEntityTooLarge {
				t.Errorf("status %d: %s", status, answer)
			}
		})
	}
	s.rest()
	if jobs := s.jobs(inbox.Kind); len(jobs) != known {
		t.Errorf("%d deliveries were stored, want %d", len(jobs), known)
	}
	if wrote := s.changes(); len(wrote) > 0 {
		t.Errorf("something was written: %+v", wrote)
	}
}

func TestServerNeedsASecret(t *testing.T) {
	t.Parallel()
	for name, secrets := range map[string][]config.Secret{"none": nil, "an empty one": {""}, "a blank one beside a good one": {hookSecret, " "}} {
		t.Run(name, func(t *testing.T) {
			sim := schema.Start(t, githubsim.Options{})
			made, err := sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway", Secret: hookSecret, WebhookURL: "http://127.0.0.1:1/webhook"})
			must(t, err)
			conf, err := config.LoadServer("", []string{"SLIPWAY_STATE_DIR=" + t.TempDir()})
			must(t, err)
			conf.GitHub = config.GitHub{AppID: made.ID, Slug: made.Slug, PrivateKey: config.Secret(made.PrivateKey), WebhookSecrets: secrets, BaseURL: sim.URL() + "/"}
			engine, err := app.NewEngine(conf, app.Agents{}, slog.New(slog.DiscardHandler))
			must(t, err)
			store, err := queue.OpenSQLite(t.Context(), filepath.Join(conf.StateDir, "store"))
			must(t, err)
			defer func() { must(t, store.Close()) }()
			if _, err := app.New(conf, store, engine, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "webhook secret") {
				t.Errorf("New = %v", err)
			}
		})
	}
}

// Text that only looks like a command, or comes from a machine, starts nothing
// and is not answered.
func TestWhatIsNoCommand(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	first := s.says("mira", "Shall we build this?")
	for _, c := range []struct{ by, body string }{
		{"mira", "> /build"},
		{"mira", "> /build\n\nWhat would this do?"},
		{"mira", "```\n/build\n```"},
		{"mira", "    /build"},
		{"mira", "`/build`"},
		{"mira", "Please\n/build"},
		{"mira", "<!-- -->\n/build"},
		{"mira", "/buildings are tall"},
		{"mira", "/build/output is missing"},
		{"helper[bot]", "/build"},
		{"slipway[bot]", "/build"},
	} {
		s.says(c.by, c.body)
	}
	_, err := s.sim.EditComment(t.Context(), githubsim.CommentEdit{Repo: fullName, ID: first.ID, By: "mira", Body: "/build"})
	must(t, err)
	s.rest()
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) > 0 {
		t.Errorf("builds: %+v", jobs)
	}
	for _, x := range s.changes() {
		t.Errorf("Slipway wrote: %s %s %s", x.Method, x.URL, x.Request)
	}
	handled := len(s.jobs(inbox.Kind))
	if handled < 13 {
		t.Errorf("%d deliveries were handled; the test saw nothing", handled)
	}
}

func TestReaderIsRefusedVisibly(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	s.says("rita", "/build")
	s.says("rita", "/build right now")
	s.says("stranger", "/cancel")
	s.rest()
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) > 0 {
		t.Errorf("builds: %+v", jobs)
	}
	var replies []string
	confused := 0
	for _, x := range s.changes() {
		switch {
		case strings.HasSuffix(x.URL, "/reactions"):
			if !strings.Contains(string(x.Request), `"confused"`) {
				t.Errorf("reaction %s", x.Request)
			}
			confused++
		default:
			replies = append(replies, string(x.Request))
		}
	}
	if confused != 3 {
		t.Errorf("%d confused reactions, want 3", confused)
	}
	if len(replies) != 2 || !strings.Contains(replies[0], "needs the role **write**") {
		t.Errorf("replies, one for each command: %q", replies)
	}
}

// A delivery that comes again, from GitHub or from somebody who recorded it, is
// acknowledged and changes nothing.
func TestReplayedDelivery(t *testing.T) {
	t.Parallel()
	s := newServer(t, company)
	var recorded githubsim.Exchange
	var seen sync.Mutex
	s.sim.Observe(func(x githubsim.Exchange) {
		if x.Event == "issue_comment" && bytes.Contains(x.Request, []byte(`"/build"`)) {
			seen.Lock()
			defer seen.Unlock()
			recorded = x
		}
	})
	s.says("mira", "/build")
	until(t, time.Minute, "no build was queued", func() bool { return len(s.jobs(pipeline.KindBuild)) == 1 })
	s.rest()
	builds := s.jobs(pipeline.KindBuild)
	if len(builds) != 1 || builds[0].State != queue.Done {
		t.Fatalf("builds: %+v", builds)
	}
	final, err := pipeline.Read(t.Context(), s.store, builds[0].ID)
	must(t, err)
	if final.State != "succeeded" || final.Pull == nil || !final.Pull.Draft || final.Comments != 1 || len(final.Checks) != 1 {
		t.Fatalf("the build: %+v", final)
	}
	before := len(s.changes())

	seen.Lock()
	guid, body := recorded.GUID, recorded.Request
	seen.Unlock()
	for range 3 {
		if status, answer := s.post(guid, sign(hookSecret, body), bytes.NewReader(body)); status != http.StatusAccepted {
			t.Errorf("status %d: %s", status, answer)
		}
	}
	for _, d := range s.sim.Deliveries() {
		if d.GUID == guid {
			_, err := s.sim.Redeliver(t.Context(), githubsim.DeliveryRef{ID: d.ID})
			must(t, err)
		}
	}
	s.rest()
	for _, d := range s.sim.Deliveries() {
		if d.StatusCode != http.StatusAccepted {
			t.Errorf("delivery %+v", d)
		}
	}
	if after := s.changes(); len(after) != before {
		t.Errorf("the replay wrote: %+v", after[before:])
	}
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) != 1 {
		t.Errorf("builds: %+v", jobs)
	}

	// The same words under a new id are a second wish: it is answered with the
	// pull request that is open.
	if status, _ := s.post("33333333-3333-4333-8333-333333333333", sign(hookSecret, body), bytes.NewReader(body)); status != http.StatusAccepted {
		t.Errorf("status %d", status)
	}
	s.rest()
	if jobs := s.jobs(pipeline.KindBuild); len(jobs) != 1 {
		t.Errorf("builds: %+v", jobs)
	}
	if all := s.changes(); !strings.Contains(string(all[len(all)-1].Request), "No second build was started") && !strings.Contains(string(all[len(all)-2].Request), "No second build was started") {
		t.Errorf("it was not answered: %+v", all[before:])
	}
}

// What is said to a build reaches it once, by its ticket and by its pull request,
// and is answered where it was said.
func TestWhatIsSaidToABuild(t *testing.T) {
	t.Parallel()
	s := newServer(t, company.but(cast{"pm.sh": "case $request in *'be well'*) ;; *) echo ill >&2; exit 1 ;; esac\n"}))
	s.says("mira", "/build")
	s.rest()
	builds := s.jobs(pipeline.KindBuild)
	if len(builds) != 1 || builds[0].State != queue.Done || builds[0].Attempt != 1 {
		t.Fatalf("builds: %+v", builds)
	}
	said := func(number int, by, body string) (answer string) {
		t.Helper()
		before := len(s.changes())
		_, err := s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: number, By: by, Body: body})
		must(t, err)
		s.rest()
		for _, x := range s.changes()[before:] {
			answer += string(x.Request)
		}
		return answer
	}
	if answer := said(s.ticket, "mira", "/steer mind the tests"); !strings.Contains(answer, "There is no open build") {
		t.Errorf("/steer with nothing open: %s", answer)
	}
	if answer := said(s.ticket, "mira", "/approve 0123456"); !strings.Contains(answer, "There is no open build") {
		t.Errorf("/approve with nothing open: %s", answer)
	}
	if answer := said(s.ticket, "mira", "/resume"); strings.Contains(answer, `"confused"`) && !strings.Contains(answer, `"rocket"`) {
		t.Errorf("/resume of a failed build: %s", answer)
	}
	resumed := s.jobs(pipeline.KindBuild)
	if len(resumed) != 1 || resumed[0].Attempt != 2 {
		t.Fatalf("the build was not taken up again, once: %+v", resumed)
	}
	decisions := 0
	for _, d := range s.jobs(inbox.Kind) {
		entries, err := s.store.Entries(t.Context(), d.ID, 0)
		must(t, err)
		for _, e := range entries {
			if e.Kind != queue.Choice || e.Key != "decision" && e.Key != "admission" {
				t.Errorf("a delivery's journal holds %+v", e)
			}
			if e.Key == "decision" {
				decisions++
			}
		}
	}
	if decisions != 3 {
		t.Errorf("%d decisions are recorded, want one for each command to a build", decisions)
	}

	if said(s.ticket, "mira", "/build and be well"); len(s.jobs(pipeline.KindBuild)) != 2 {
		t.Fatalf("builds: %+v", s.jobs(pipeline.KindBuild))
	}
	final, err := pipeline.Read(t.Context(), s.store, s.jobs(pipeline.KindBuild)[0].ID)
	must(t, err)
	if final.Pull == nil {
		t.Fatalf("no pull request: %+v", final)
	}
	if answer := said(final.Pull.Number, "mira", "/resume"); !strings.Contains(answer, "The build succeeded, so there is nothing to resume") {
		t.Errorf("/resume on the pull request: %s", answer)
	}
	if answer := said(final.Pull.Number, "mira", "/status"); !strings.Contains(answer, final.ID) {
		t.Errorf("/status on the pull request: %s", answer)
	}
}
