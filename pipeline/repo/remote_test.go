package repo

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const secret = "ghs_secret-token/with+odd=characters"

// A server is a bare repository behind git's own HTTP, with a token.
type server struct {
	dir    string // of the repository
	remote Remote
	mu     sync.Mutex
	before func(r *http.Request) // called with each authorized request
	leaks  []string              // processes whose arguments or environment held the token
	asked  int                   // authorized requests
}

func newServer(t *testing.T) *server {
	t.Helper()
	root := t.TempDir()
	s := &server{dir: filepath.Join(root, "o", "r.git")}
	must(t, os.MkdirAll(s.dir, 0o755))
	user := userRepo(t, files{"f": "1"})
	userGit(t, root, "clone", "-q", "--bare", user, s.dir)
	userGit(t, s.dir, "config", "http.receivepack", "true")
	backend := &cgi.Handler{
		Path: filepath.Join(userGit(t, root, "--exec-path"), "git-http-backend"),
		Env:  []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "HOME=/nonexistent"}, InheritEnv: []string{"PATH"},
		Stderr: io.Discard,
	}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, token, _ := r.BasicAuth()
		if user != "x-access-token" || token != secret {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		s.mu.Lock()
		s.asked++
		s.leaks = append(s.leaks, tokenHolders()...)
		before := s.before
		s.mu.Unlock()
		if before != nil {
			before(r)
		}
		body, err := io.ReadAll(r.Body) // the backend takes no chunked body
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		r.Header.Del("Authorization") // the backend's environment is not what is under test
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	s.remote = Remote{URL: web.URL + "/o/r.git", Token: secret}
	return s
}

// tokenHolders looks at the arguments and the environment of every process that may be looked at.
func tokenHolders() []string {
	var found []string
	paths, _ := filepath.Glob("/proc/[0-9]*/*") // a fixed pattern
	for _, path := range paths {
		if name := filepath.Base(path); name != "cmdline" && name != "environ" {
			continue
		}
		text, err := os.ReadFile(path)
		if err == nil && bytes.Contains(text, []byte(secret)) {
			found = append(found, fmt.Sprintf("%s: %q", path, text))
		}
	}
	return found
}

func (s *server) head(t *testing.T, branch string) string {
	t.Helper()
	return userGit(t, s.dir, "for-each-ref", "--format=%(objectname)", "refs/heads/"+branch)
}

func TestFetchAndPushOverHTTP(t *testing.T) {
	s, m, ctx := newServer(t), onlyMirror(t), t.Context()
	equal(t, "default branch", ok[string](t)(m.DefaultBranch(ctx, s.remote)), "main")
	base := ok[string](t)(m.Fetch(ctx, s.remote, ""))
	equal(t, "fetched", base, s.head(t, "main"))
	equal(t, "base ref", ok[string](t)(m.Ref(ctx, "refs/slipway/base/main")), base)
	equal(t, "remote head", ok[string](t)(m.RemoteHead(ctx, s.remote, "main")), base)
	equal(t, "no such branch", ok[string](t)(m.RemoteHead(ctx, s.remote, "slipway/1-x")), "")

	big := strings.Repeat("0123456789abcdef\n", 1) // small, then one beyond git's post buffer: chunked
	first := commit(t, m, base, files{"g": big})
	random := make([]byte, 3<<20)
	for i, x := 0, uint32(1); i < len(random); i++ {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		random[i] = byte(x)
	}
	second := commit(t, m, first, files{"big": string(random)})
	must(t, m.Push(ctx, s.remote, first, "slipway/1-x", ""))
	equal(t, "created", s.head(t, "slipway/1-x"), first)
	must(t, m.Push(ctx, s.remote, first, "slipway/1-x", "")) // again, after a crash
	must(t, m.Push(ctx, s.remote, second, "slipway/1-x", first))
	equal(t, "moved", s.head(t, "slipway/1-x"), second)
	must(t, m.Push(ctx, s.remote, second, "slipway/1-x", first))
	equal(t, "main", s.head(t, "main"), base)

	userGit(t, s.dir, "update-ref", "refs/pull/7/head", second)
	equal(t, "a pull request's head", ok[string](t)(m.Fetch(ctx, s.remote, "refs/pull/7/head")), second)
	if s.asked < 10 {
		t.Errorf("only %d requests with a token", s.asked)
	}
	if len(s.leaks) > 0 {
		t.Errorf("the token was seen in %s", s.leaks)
	}
	for path, text := range listing(t, m.dir) {
		if strings.Contains(text, secret) {
			t.Errorf("the token is left in %s", path)
		}
	}
}

func TestTheTokenIsInNoArgumentEnvironmentOrConfiguration(t *testing.T) {
	s, m := newServer(t), onlyMirror(t)
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	real := ok[string](t)(exec.LookPath("git"))
	must(t, os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\n{ printf '%s\\n' \"$@\"; env; "+real+" config --list; } >>"+log+"\nexec "+real+" \"$@\"\n"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	base := ok[string](t)(m.Fetch(t.Context(), s.remote, "main"))
	must(t, m.Push(t.Context(), s.remote, base, "copy", ""))
	text := string(ok[[]byte](t)(os.ReadFile(log)))
	if !strings.Contains(text, "GIT_ASKPASS=") || !strings.Contains(text, "push") {
		t.Fatal("the wrapper saw nothing")
	}
	if strings.Contains(text, secret) {
		t.Error("the token was passed openly")
	}
	if strings.Contains(text, "GIT_TRACE") || strings.Contains(text, "hostile-home") {
		t.Error("git inherited an environment")
	}
}

func TestCredentialFilesAreForTheirOwnerOnly(t *testing.T) {
	s, m := newServer(t), onlyMirror(t)
	var (
		mu   sync.Mutex // the server answers each connection in a goroutine of its own
		seen []string
	)
	s.before = func(*http.Request) {
		mu.Lock()
		defer mu.Unlock()
		dirs, _ := filepath.Glob(filepath.Join(m.private(), "credentials", "*")) // a fixed pattern
		for _, dir := range dirs {
			for _, path := range []string{filepath.Join(dir, "token"), dir} {
				if info, err := os.Stat(path); err == nil {
					seen = append(seen, info.Mode().Perm().String())
				}
			}
		}
	}
	_ = ok[string](t)(m.RemoteHead(t.Context(), s.remote, "main"))
	mu.Lock()
	defer mu.Unlock()
	if len(seen) < 2 || seen[0] != "-rw-------" || seen[1] != "-rwx------" {
		t.Errorf("modes %v", seen)
	}
	left := ok[[]os.DirEntry](t)(os.ReadDir(filepath.Join(m.private(), "credentials")))
	equal(t, "left behind", len(left), 0)
}

func TestTheTokenIsNotSentElsewhere(t *testing.T) {
	m := onlyMirror(t)
	var (
		mu  sync.Mutex
		got []string
	)
	ask := func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if auth := r.Header.Get("Authorization"); auth != "" {
			got = append(got, auth)
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="evil"`)
		w.WriteHeader(http.StatusUnauthorized)
	}
	evil := httptest.NewServer(http.HandlerFunc(ask))
	defer evil.Close()
	honest := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, evil.URL+r.URL.String(), http.StatusFound)
	}))
	defer honest.Close()
	_, err := m.RemoteHead(t.Context(), Remote{URL: honest.URL + "/o/r.git", Token: secret}, "main")
	if !errors.Is(err, ErrDenied) {
		t.Errorf("got %v, want ErrDenied", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(got) > 0 {
		t.Errorf("the other host was sent %q", got)
	}
}

func TestPushLoses(t *testing.T) {
	s, m, ctx := newServer(t), onlyMirror(t), t.Context()
	base := ok[string](t)(m.Fetch(ctx, s.remote, "main"))
	mine, theirs := commit(t, m, base, files{"f": "mine"}), commit(t, m, base, files{"f": "theirs"})
	later := userGit(t, s.dir, "commit-tree", "-p", base, "-m", "later", base+"^{tree}")
	commits := map[string]string{"": "", "base": base, "mine": mine, "theirs": theirs, "later": later}
	must(t, m.Push(ctx, s.remote, theirs, "keeps-theirs", ""))
	must(t, m.Push(ctx, s.remote, mine, "keeps-mine", ""))
	for name, row := range map[string]struct {
		seen, now string // of the branch: "", base, mine (the commit pushed), theirs (of another worker), later (descends from base, unknown to us)
		err       error
		after     string
	}{
		"a zombie that saw the start":         {"base", "theirs", ErrMoved, "theirs"},
		"a zombie that saw nothing":           {"", "theirs", ErrMoved, "theirs"},
		"the branch was deleted":              {"base", "", ErrMoved, ""},
		"somebody pushed what we do not have": {"base", "later", ErrMoved, "later"},
		"done already by an earlier attempt":  {"base", "mine", nil, "mine"},
		"done already, seen as absent":        {"", "mine", nil, "mine"},
		"a rewrite of what we saw":            {"theirs", "theirs", errAny, "theirs"},
		"a rewrite of what we do not have":    {"later", "later", errAny, "later"},
		"as it should be":                     {"base", "base", nil, "mine"},
		"as it should be, with a new branch":  {"", "", nil, "mine"},
	} {
		t.Run(name, func(t *testing.T) {
			branch := strings.ReplaceAll(name, " ", "-")
			if now := commits[row.now]; now != "" {
				userGit(t, s.dir, "update-ref", "refs/heads/"+branch, now)
			}
			err := m.Push(ctx, s.remote, commits["mine"], branch, commits[row.seen])
			switch {
			case row.err == errAny:
				if err == nil || errors.Is(err, ErrMoved) {
					t.Errorf("got %v, want a refusal that is not ErrMoved", err)
				}
			case !errors.Is(err, row.err) || (err == nil) != (row.err == nil):
				t.Errorf("got %v, want %v", err, row.err)
			}
			equal(t, "the branch", s.head(t, branch), commits[row.after])
		})
	}
}

var errAny = errors.New("any")

func TestPushLosesARaceOnTheServer(t *testing.T) {
	s, m, ctx := newServer(t), onlyMirror(t), t.Context()
	base := ok[string](t)(m.Fetch(ctx, s.remote, "main"))
	mine := commit(t, m, base, files{"f": "mine"})
	theirs := userGit(t, s.dir, "commit-tree", "-p", base, "-m", "theirs", base+"^{tree}")
	s.before = func(r *http.Request) { // after our git saw base, before it writes
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "git-receive-pack") {
			userGit(t, s.dir, "update-ref", "refs/heads/main", theirs)
		}
	}
	if err := m.Push(ctx, s.remote, mine, "main", base); !errors.Is(err, ErrMoved) {
		t.Errorf("got %v, want ErrMoved", err)
	}
	equal(t, "main", s.head(t, "main"), theirs)
}

func TestPushTellsWhyTheServerRefused(t *testing.T) {
	s, m, ctx := newServer(t), onlyMirror(t), t.Context()
	base := ok[string](t)(m.Fetch(ctx, s.remote, "main"))
	must(t, os.MkdirAll(filepath.Join(s.dir, "hooks"), 0o755))
	must(t, os.WriteFile(filepath.Join(s.dir, "hooks", "update"), []byte("#!/bin/sh\necho 'protected by rule 7, said "+secret+"' >&2\nexit 1\n"), 0o755))
	err := m.Push(ctx, s.remote, commit(t, m, base, files{"f": "2"}), "main", base)
	if err == nil || errors.Is(err, ErrMoved) || !strings.Contains(err.Error(), "protected by rule 7, said [redacted]") || !strings.Contains(err.Error(), "hook declined") {
		t.Errorf("got %v", err)
	}
}

func TestRemoteFailures(t *testing.T) {
	s, m, ctx := newServer(t), onlyMirror(t), t.Context()
	gone := httptest.NewServer(http.NotFoundHandler())
	defer gone.Close()
	for name, row := range map[string]struct {
		remote Remote
		branch string
		err    error
		says   string
	}{
		"a wrong token":           {Remote{URL: s.remote.URL, Token: "old"}, "main", ErrDenied, ""},
		"a wrong user":            {Remote{URL: s.remote.URL, User: "x", Token: secret}, "main", ErrDenied, ""},
		"no token":                {Remote{URL: s.remote.URL}, "main", ErrDenied, ""},
		"no such repository":      {Remote{URL: gone.URL + "/o/r.git", Token: secret}, "main", ErrMissing, ""},
		"no such branch":          {s.remote, "none", ErrMissing, "none"},
		"no such directory":       {Remote{URL: "/nonexistent/repo"}, "main", ErrMissing, ""},
		"a bad branch":            {s.remote, "--upload-pack=touch x", errAny, "dash"},
		"a credential in the URL": {Remote{URL: "https://u:" + secret + "@example.com/r"}, "main", errAny, "must not contain a credential"},
		"a token in the URL":      {Remote{URL: "https://" + secret + "@example.com/r"}, "main", errAny, "must not contain a credential"},
		"a helper program":        {Remote{URL: "ext::sh -c touch% x"}, "main", errAny, "neither http"},
		"an option":               {Remote{URL: "--upload-pack=touch x"}, "main", errAny, "neither http"},
		"ssh":                     {Remote{URL: "ssh://example.com/r"}, "main", errAny, "neither http"},
		"a relative path":         {Remote{URL: "../r"}, "main", errAny, "neither http"},
		"nothing":                 {Remote{}, "main", errAny, "neither http"},
		"a line end in the token": {Remote{URL: s.remote.URL, Token: "a\nb"}, "main", errAny, "line end"},
	} {
		_, err := m.Fetch(ctx, row.remote, row.branch)
		if err == nil || (row.err != errAny && !errors.Is(err, row.err)) || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s: got %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error holds the token: %v", name, err)
		}
	}
}

func TestARemoteDoesNotPrintItsToken(t *testing.T) {
	r := Remote{URL: "https://example.com/r", Token: secret}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "remote", r, "pointer", &r, "within", struct{ R Remote }{r})
	text := fmt.Sprintf("%v %+v %#v %s", r, &r, r, r) + log.String()
	if strings.Contains(text, secret) {
		t.Error(text)
	}
}

func TestALocalRepositoryIsLeftAsItIs(t *testing.T) {
	user := userRepo(t, files{"f": "1", "g": "1"})
	canary := filepath.Join(t.TempDir(), "canary")
	for _, hook := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "proc-receive"} {
		files{".git/hooks/" + hook: "#!/bin/sh\necho \"$0\" >>" + canary + "\n"}.write(t, user)
	}
	for key, value := range map[string]string{"receive.denyCurrentBranch": "ignore", "uploadpack.packObjectsHook": "touch " + canary, "core.fsmonitor": "touch " + canary} {
		userGit(t, user, "config", key, value)
	}
	userGit(t, user, "-c", "core.fsmonitor=", "checkout", "-q", "-b", "work")
	files{"f": "changed", "untracked": "u"}.write(t, user)
	userGit(t, user, "-c", "core.fsmonitor=", "add", "f")
	files{"g": "unstaged"}.write(t, user)
	_ = os.Remove(canary)
	state := func() string {
		index := ok[[]byte](t)(os.ReadFile(filepath.Join(user, ".git/index")))
		return fmt.Sprintf("%x\n%s\n%s\n%s", index, userGit(t, user, "--no-optional-locks", "-c", "core.fsmonitor=", "status", "--porcelain=v2", "--branch"),
			userGit(t, user, "for-each-ref", "refs/heads/main", "refs/heads/work"), listing(t, filepath.Join(user, ".git/logs"))["HEAD"])
	}
	before := state()

	m, ctx := onlyMirror(t), t.Context()
	for _, url := range []string{user, "file://" + strings.ReplaceAll(user, " ", "%20")} {
		r := Remote{URL: url}
		equal(t, "default branch", ok[string](t)(m.DefaultBranch(ctx, r)), "work")
		base := ok[string](t)(m.Fetch(ctx, r, ""))
		next := commit(t, m, base, files{"f": "by Slipway " + url})
		branch := fmt.Sprintf("slipway/%d", len(url))
		must(t, m.Push(ctx, r, next, branch, ""))
		equal(t, "pushed", userGit(t, user, "rev-parse", "refs/heads/"+branch), next)
		after := commit(t, m, next, files{"f": "again"})
		must(t, m.Push(ctx, r, after, branch, next))
		if err := m.Push(ctx, r, next, "other", base); !errors.Is(err, ErrMoved) {
			t.Errorf("a branch that is not there: got %v", err)
		}
		if err := m.Push(ctx, r, next, "work", base); err == nil || errors.Is(err, ErrMoved) {
			t.Errorf("the branch that is checked out: got %v, want a refusal", err)
		}
	}
	equal(t, "the user's state", state(), before)
	if text, err := os.ReadFile(canary); err == nil {
		t.Errorf("the user's hooks ran: %s", text)
	}
}

func TestAShallowRepositoryIsTakenAsItIs(t *testing.T) {
	deep := userRepo(t, files{"f": "1"})
	for i := range 3 {
		files{"f": fmt.Sprint("version ", i)}.write(t, deep)
		userGit(t, deep, "commit", "-q", "-a", "-m", "next")
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	userGit(t, deep, "clone", "-q", "--depth", "1", "file://"+deep, shallow)
	m, ctx, r := onlyMirror(t), t.Context(), Remote{URL: shallow}
	base := ok[string](t)(m.Fetch(ctx, r, ""))
	equal(t, "commits", userGit(t, m.dir, "rev-list", "--count", base), "1")
	c, dir := newWorktree(t, m, base)
	files{"f": "by an agent"}.write(t, dir)
	next, changed, err := m.Collect(ctx, dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
	must(t, err)
	equal(t, "changed", changed, true)
	_ = ok[string](t)(c.Worktree(ctx, "second", next))
	must(t, m.Inspect(ctx, base, next, Limits{}))
	must(t, m.Push(ctx, r, next, "slipway/1", ""))
	equal(t, "pushed", userGit(t, shallow, "rev-parse", "slipway/1"), next)
	equal(t, "status", userGit(t, shallow, "status", "--porcelain"), "")
}

func TestFetchFollowsTheRemote(t *testing.T) {
	user := userRepo(t, files{"f": "1"})
	m, ctx, r := onlyMirror(t), t.Context(), Remote{URL: user}
	userGit(t, user, "branch", "feature")
	first := ok[string](t)(m.Fetch(ctx, r, "feature"))
	userGit(t, user, "commit", "-q", "--allow-empty", "--amend", "-m", "rewritten")
	userGit(t, user, "branch", "-D", "-q", "feature")
	userGit(t, user, "branch", "feature/one") // the old ref is in its way
	second := ok[string](t)(m.Fetch(ctx, r, "feature/one"))
	if first == second {
		t.Error("nothing was rewritten")
	}
	userGit(t, user, "branch", "-D", "-q", "feature/one")
	userGit(t, user, "branch", "feature")
	equal(t, "back again", ok[string](t)(m.Fetch(ctx, r, "feature")), second)
	equal(t, "the rewritten commit is kept", m.Has(ctx, first), true)
	userGit(t, user, "checkout", "-q", "--detach")
	if _, err := m.DefaultBranch(ctx, r); err == nil {
		t.Error("a detached HEAD has a branch")
	}
	empty := filepath.Join(t.TempDir(), "empty")
	userGit(t, user, "init", "-q", empty)
	if _, err := m.Fetch(ctx, Remote{URL: empty}, ""); err == nil {
		t.Error("fetched from an empty repository")
	}
}
