package github_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

func TestMain(m *testing.M) {
	signal.Ignore(syscall.SIGPIPE) // connections are broken on purpose
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	}))
}

// freely grants every turn to write; the pace has a test of its own.
type freely struct {
	mu      sync.Mutex
	buckets map[string]int
}

func (f *freely) Take(_ context.Context, bucket string, n int64, _ queue.Limit) (time.Duration, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buckets[bucket] += int(n)
	return 0, nil
}

// judge knows GitHub's own description of its interface.
var judge = sync.OnceValues(schema.New)

// world is a GitHub with one repository o/r, one ticket, and the App on it.
// Everything that passes between the two is judged by GitHub's description.
type world struct {
	*testing.T
	sim    *githubsim.Server
	app    *github.App
	repo   forge.Repo
	ticket int
	limits *freely
	log    *bytes.Buffer

	mu        sync.Mutex
	exchanges []githubsim.Exchange
	wrong     []error
	intercept func(w http.ResponseWriter, r *http.Request) bool // true: answered
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, limits: &freely{buckets: map[string]int{}}, log: &bytes.Buffer{}}
	server := httptest.NewUnstartedServer(nil)
	url := "http://" + server.Listener.Addr().String()
	var err error
	w.sim, err = githubsim.Open(githubsim.Options{Dir: t.TempDir(), URL: url})
	if err != nil {
		t.Fatal(err)
	}
	handler := w.sim.Handler()
	server.Config.Handler = http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		intercept := w.intercept
		w.mu.Unlock()
		if intercept == nil || !intercept(rw, r) {
			handler.ServeHTTP(rw, r)
		}
	})
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug)
	server.Start()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		server.Close()
		if err := w.sim.Close(); err != nil {
			t.Error(err)
		}
	})
	law, err := judge()
	must(t, err)
	w.sim.Observe(func(e githubsim.Exchange) {
		err := law.Exchange(e)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err != nil {
			w.wrong = append(w.wrong, err)
		}
		w.exchanges = append(w.exchanges, e)
	})
	registered, err := w.sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway-test", Secret: "s"})
	must(t, err)
	made, err := w.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "o", Name: "r"})
	must(t, err)
	_, err = w.sim.CreateRepo(t.Context(), githubsim.RepoSpec{Owner: "o", Name: "other"})
	must(t, err)
	installed, err := w.sim.Install(t.Context(), githubsim.InstallSpec{App: "slipway-test", Account: "o"})
	must(t, err)
	thread, err := w.sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: "o/r", Title: "Greet by name", Body: "As asked.", By: "mona"})
	must(t, err)
	w.ticket = thread.Number
	w.repo = forge.Repo{Owner: "o", Name: "r", ID: made.ID, Installation: installed.ID, DefaultBranch: "main"}
	w.app, err = github.New(github.Options{
		BaseURL: url + "/api/v3", AppID: registered.ID, PrivateKey: []byte(registered.PrivateKey), Limits: w.limits,
		Log: slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	must(t, err)
	t.Cleanup(func() {
		w.app.Close(context.WithoutCancel(t.Context()))
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, err := range w.wrong {
			t.Errorf("not as GitHub describes it: %v", err)
		}
		if unknown := w.sim.Unknown(); len(unknown) > 0 {
			t.Errorf("GitHub has no such operations: %v", unknown)
		}
	})
	return w
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) fault(f githubsim.Fault) {
	w.Helper()
	_, err := w.sim.AddFault(w.Context(), f)
	must(w.T, err)
}

// seen returns the exchanges of a method whose route ends so, oldest first.
func (w *world) seen(method, routeEnd string) []githubsim.Exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []githubsim.Exchange
	for _, e := range w.exchanges {
		if e.Event == "" && e.Method == method && strings.HasSuffix(e.Route, routeEnd) {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.exchanges = nil
}

// build is the repository as a build has it.
func (w *world) build() *github.Repository {
	r := w.app.ForRepo(w.repo, w.ticket)
	w.Cleanup(func() { r.Close(context.WithoutCancel(w.Context())) })
	return r
}

func (w *world) commit(branch, by string) string {
	w.Helper()
	made, err := w.sim.Commit(w.Context(), githubsim.CommitSpec{
		Repo: "o/r", Branch: branch, Message: "work on " + branch, Files: map[string]string{branch + ".txt": by}, By: by,
	})
	must(w.T, err)
	return made.SHA
}

const marker = "<!-- slipway app=1 run=b-0123456789ab -->"

func (w *world) tracking(body string) forge.Comment {
	return forge.Comment{Ticket: w.ticket, Marker: marker, Body: body}
}

func TestOneCommentWhateverGoesWrong(t *testing.T) {
	create := "/repos/o/r/issues/1/comments"
	for name, fault := range map[string]githubsim.Fault{
		"nothing":                      {},
		"the connection breaks before": {Kind: githubsim.FaultDropBefore, Method: "POST", Path: create, Times: 1},
		"the connection breaks after":  {Kind: githubsim.FaultDropAfter, Method: "POST", Path: create, Times: 1},
		"a bad gateway":                {Kind: githubsim.FaultStatus, Method: "POST", Path: create, Times: 1},
		"a read is cut":                {Kind: githubsim.FaultDropAfter, Method: "GET", Path: create, Times: 2},
		"a read fails":                 {Kind: githubsim.FaultStatus, Method: "GET", Path: create, Times: 2, Status: 503},
		"minting stumbles":             {Kind: githubsim.FaultStatus, Method: "POST", Path: "/app/installations", Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			if fault.Kind != "" {
				w.fault(fault)
			}
			r := w.build()
			got, err := r.EnsureComment(t.Context(), w.tracking("queued"))
			if err != nil && fault.Kind != githubsim.FaultDropAfter { // not done: the caller tries again
				got, err = r.EnsureComment(t.Context(), w.tracking("queued"))
			}
			must(t, err)
			again, err := r.EnsureComment(t.Context(), w.tracking("queued"))
			must(t, err)
			n, err := r.Comments(t.Context(), w.ticket, marker)
			must(t, err)
			if n != 1 || got.ID == 0 || again.ID != got.ID || !strings.Contains(got.URL, "#issuecomment-") {
				t.Fatalf("%d comments, %+v, then %+v", n, got, again)
			}
			if edits := w.seen("PATCH", "/{comment_id}"); len(edits) != 0 {
				t.Fatalf("an equal body was sent again: %d edits", len(edits))
			}
		})
	}
}

func TestACommentIsEditedInPlace(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	first, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	// By marker, as after a crash, and by id, as while it runs.
	for _, next := range []forge.Comment{w.tracking("running\r\n"), {Ticket: w.ticket, Marker: marker, Body: "done", ID: first.ID}} {
		got, err := r.EnsureComment(t.Context(), next)
		must(t, err)
		if got.ID != first.ID {
			t.Fatalf("another comment: %d, was %d", got.ID, first.ID)
		}
	}
	if n := len(w.seen("PATCH", "/{comment_id}")); n != 2 {
		t.Fatalf("%d edits, want 2", n)
	}
	if _, err := w.sim.DeleteComment(t.Context(), githubsim.CommentEdit{Repo: "o/r", ID: first.ID, By: "mona"}); err != nil {
		t.Fatal(err)
	}
	got, err := r.EnsureComment(t.Context(), forge.Comment{Ticket: w.ticket, Marker: marker, Body: "done", ID: first.ID})
	must(t, err)
	if got.ID == first.ID {
		t.Fatal("a removed comment was not made again")
	}
}

func TestOfTwoCommentsTheOldestStays(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	first, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	// Another worker made the same one at the same time.
	spare, err := w.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "o/r", Number: w.ticket, Body: "queued\n\n" + marker, By: "slipway-test[bot]"})
	must(t, err)
	got, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	n, err := r.Comments(t.Context(), w.ticket, marker)
	must(t, err)
	if n != 1 || got.ID != first.ID || got.ID == spare.ID {
		t.Fatalf("%d comments, kept %d of %d and %d", n, got.ID, first.ID, spare.ID)
	}
}

func TestACopiedMarkerFoolsNobody(t *testing.T) {
	w := newWorld(t)
	forged, err := w.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "o/r", Number: w.ticket, Body: "mine " + marker, By: "mallory"})
	must(t, err)
	r := w.build()
	got, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	n, err := r.Comments(t.Context(), w.ticket, marker)
	must(t, err)
	if got.ID == forged.ID || n != 1 {
		t.Fatalf("took %d for ours; %d comments", got.ID, n)
	}
}

func TestAMarkerIsFoundOnTheSecondPage(t *testing.T) {
	w := newWorld(t)
	for range 101 {
		_, err := w.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "o/r", Number: w.ticket, Body: "chatter", By: "mona"})
		must(t, err)
	}
	r := w.build()
	first, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	again, err := r.EnsureComment(t.Context(), w.tracking("queued"))
	must(t, err)
	if again.ID != first.ID {
		t.Fatalf("comments %d and %d", first.ID, again.ID)
	}
}

func TestABodyThatDoesNotFitNamesTheField(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	long := strings.Repeat("ä", 65537)
	_, err := r.EnsureComment(t.Context(), w.tracking(long))
	if err == nil || !strings.Contains(err.Error(), "comment body") {
		t.Fatalf("error %v", err)
	}
	sha := w.commit("slipway/1-greet", "slipway-test[bot]")
	_, err = r.EnsureDraft(t.Context(), forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "x", Body: long})
	if err == nil || !strings.Contains(err.Error(), "pull request body") {
		t.Fatalf("error %v", err)
	}
	_, err = r.EnsureCheck(t.Context(), forge.Check{Name: "slipway/build", HeadSHA: sha, ExternalID: "b:" + sha, Status: "queued", Title: "t", Summary: strings.Repeat("ä", 32768)})
	if err == nil || !strings.Contains(err.Error(), "check summary: 65536 bytes") {
		t.Fatalf("error %v", err)
	}
	_, err = r.EnsureCheck(t.Context(), forge.Check{Name: "slipway/build", HeadSHA: sha, ExternalID: "b:" + sha, Status: "completed", Title: "t", Summary: "s"})
	if err == nil || !strings.Contains(err.Error(), "check conclusion") {
		t.Fatalf("error %v", err)
	}
}

func TestRateLimitsComeBackAsLater(t *testing.T) {
	for name, kind := range map[string]githubsim.FaultKind{
		"403, secondary": githubsim.FaultSecondary, "429": githubsim.FaultTooMany, "403, the hour's": githubsim.FaultPrimary,
	} {
		for _, method := range []string{"GET", "POST"} {
			t.Run(name+" on "+method, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.fault(githubsim.Fault{Kind: kind, Method: method, Path: "/repos/o/r/issues/1/comments", Times: 1, RetryAfter: 2})
				r := w.build()
				_, err := r.EnsureComment(t.Context(), w.tracking("queued"))
				later, ok := errors.AsType[*github.Later](err)
				if !ok {
					t.Fatalf("error %v", err)
				}
				if wait := time.Until(later.At); wait < time.Second || wait > 2*time.Second {
					t.Fatalf("come back in %s", wait)
				}
				sent := len(w.seen("GET", "/comments"))
				_, err = r.Comments(t.Context(), w.ticket, marker)
				if again, ok := errors.AsType[*github.Later](err); !ok || !again.At.Equal(later.At) || len(w.seen("GET", "/comments")) != sent {
					t.Fatalf("GitHub was asked before %s: %v", later.At, err)
				}
				<-time.After(time.Until(later.At))
				_, err = r.EnsureComment(t.Context(), w.tracking("queued"))
				must(t, err)
				if n, err := r.Comments(t.Context(), w.ticket, marker); err != nil || n != 1 {
					t.Fatalf("%d comments, %v", n, err)
				}
			})
		}
	}
}

func TestWritesTakeTurns(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	_, err := r.EnsureComment(t.Context(), w.tracking("one"))
	must(t, err)
	_, err = r.EnsureComment(t.Context(), w.tracking("two"))
	must(t, err)
	must(t, r.React(t.Context(), forge.Subject{Ticket: w.ticket}, "eyes"))
	var writes, creates int
	for bucket, n := range w.limits.buckets {
		switch {
		case strings.HasSuffix(bucket, "/write"):
			writes += n
		case strings.HasSuffix(bucket, "/create"):
			creates += n
		}
	}
	if writes != 3 || creates != 2 {
		t.Fatalf("%d writes, %d creates: %v", writes, creates, w.limits.buckets)
	}
}

// tokens returns what was asked of each token, and the bodies that said so.
func (w *world) tokens() (asked []tokenRequest) {
	w.Helper()
	for _, e := range w.seen("POST", "/access_tokens") {
		var in tokenRequest
		must(w.T, json.Unmarshal(e.Request, &in))
		asked = append(asked, in)
	}
	return asked
}

type tokenRequest struct {
	Repositories []int64           `json:"repository_ids"`
	Permissions  map[string]string `json:"permissions"`
}

func TestTokensAreNarrowRevokedAndNeverLogged(t *testing.T) {
	w := newWorld(t)
	r := w.app.ForRepo(w.repo, w.ticket)
	_, err := r.EnsureComment(t.Context(), w.tracking("one"))
	must(t, err)
	credential, err := r.Credential(t.Context())
	must(t, err)
	if !strings.HasSuffix(credential.URL, "/o/r.git") || credential.User != "x-access-token" || strings.Contains(credential.URL, credential.Token) {
		t.Fatalf("credential for %s as %s", credential.URL, credential.User)
	}
	if _, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: "mona", ID: 1}); err != nil {
		t.Fatal(err)
	}
	asked := w.tokens()
	if len(asked) != 3 {
		t.Fatalf("%d tokens, want one each for the build, git and the handlers", len(asked))
	}
	want := []map[string]string{
		{"contents": "read", "issues": "write", "pull_requests": "write", "checks": "write"},
		{"contents": "write"},
		{"issues": "write", "pull_requests": "write"},
	}
	for i, in := range asked {
		if !slices.Equal(in.Repositories, []int64{w.repo.ID}) {
			t.Errorf("token %d reaches %v", i, in.Repositories)
		}
		if len(in.Permissions) != len(want[i]) {
			t.Errorf("token %d may %v, want %v", i, in.Permissions, want[i])
		}
		for name, level := range want[i] {
			if in.Permissions[name] != level {
				t.Errorf("token %d may %v, want %v", i, in.Permissions, want[i])
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a worker that is told to stop revokes all the same
	r.Close(ctx)
	w.app.Close(ctx)
	if n := len(w.seen("DELETE", "/installation/token")); n != 3 {
		t.Fatalf("%d tokens revoked, want 3", n)
	}
	for _, e := range w.seen("DELETE", "/installation/token") {
		if e.Status != http.StatusNoContent {
			t.Errorf("revoked with %d", e.Status)
		}
	}
	if resp := w.withToken(credential.Token); resp != http.StatusUnauthorized {
		t.Fatalf("git's token still works: %d", resp)
	}
	if strings.Contains(w.log.String(), "ghs_") {
		t.Fatal("a token is in the log")
	}
}

// withToken reads the repository with a token and returns the status.
func (w *world) withToken(token string) int {
	w.Helper()
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, w.sim.URL()+"/api/v3/repos/o/r", nil)
	must(w.T, err)
	r.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(r)
	must(w.T, err)
	_, err = io.Copy(io.Discard, resp.Body)
	must(w.T, errors.Join(err, resp.Body.Close()))
	return resp.StatusCode
}

func TestAnExpiredTokenIsMintedAgainOnce(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	_, err := r.EnsureComment(t.Context(), w.tracking("one"))
	must(t, err)
	_, err = w.sim.ExpireTokens(t.Context(), githubsim.Done{})
	must(t, err)
	_, err = r.EnsureComment(t.Context(), w.tracking("two"))
	must(t, err)
	if n := len(w.tokens()); n != 2 {
		t.Fatalf("%d tokens, want 2", n)
	}
	w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Path: "/repos/o/r/issues", Status: http.StatusUnauthorized})
	if _, err := r.EnsureComment(t.Context(), w.tracking("three")); err == nil || strings.Contains(err.Error(), "ghs_") {
		t.Fatalf("error %v", err)
	}
	if n := len(w.tokens()); n != 3 {
		t.Fatalf("%d tokens: a refusal that lasts is asked about once", n)
	}
}

func TestWhatHasNotChangedIsFree(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	_, err := r.EnsureComment(t.Context(), w.tracking("one"))
	must(t, err)
	w.forget()
	for range 3 {
		_, err := r.EnsureComment(t.Context(), w.tracking("one"))
		must(t, err)
	}
	reads := w.seen("GET", "/comments")
	if len(reads) != 3 {
		t.Fatalf("%d reads: each must ask whether something changed", len(reads))
	}
	for _, e := range reads {
		if e.Status != http.StatusNotModified {
			t.Errorf("status %d", e.Status)
		}
	}
	_, err = w.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "o/r", Number: w.ticket, Body: "news", By: "mona"})
	must(t, err)
	w.forget()
	_, err = r.EnsureComment(t.Context(), w.tracking("one"))
	must(t, err)
	if got := w.seen("GET", "/comments"); len(got) != 1 || got[0].Status != http.StatusOK {
		t.Fatalf("news was not seen: %d reads", len(got))
	}
}
