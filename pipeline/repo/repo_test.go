package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestMain puts a hostile configuration into the surroundings of every test:
// whatever git reads of it leaves a canary, which fails the run.
func TestMain(m *testing.M) {
	os.Exit(func() int {
		home, err := os.MkdirTemp("", "hostile-home-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(home) }()
		canary := filepath.Join(home, "canary")
		hook := fmt.Sprintf("#!/bin/sh\necho \"$0\" >>%s\n", canary)
		config := "[core]\n\thooksPath = " + home + "\n\tfsmonitor = " + home + "/fsmonitor\n" +
			"[init]\n\ttemplateDir = " + home + "/nowhere\n[user]\n\tname = Wrong\n"
		files := map[string]string{".gitconfig": config, "fsmonitor": hook, "post-checkout": hook, "reference-transaction": hook, "post-index-change": hook, "pre-push": hook}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o700); err != nil {
				panic(err)
			}
		}
		for k, v := range map[string]string{"HOME": home, "GIT_DIR": "/nonexistent", "GIT_INDEX_FILE": "/nonexistent", "GIT_TRACE": canary} {
			if err := os.Setenv(k, v); err != nil {
				panic(err)
			}
		}
		code := m.Run()
		if text, err := os.ReadFile(canary); err == nil {
			fmt.Fprintf(os.Stderr, "git was led by its surroundings:\n%s", text)
			return 1
		}
		return code
	}())
}

// userGit runs git as a user or an agent would, with the given configuration of the repository.
func userGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
		"GIT_AUTHOR_DATE=@1700000000 +0000", "GIT_COMMITTER_DATE=@1700000000 +0000",
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSuffix(string(out), "\n")
}

// files is the content of a directory by path; "" removes one, "-> x" is a
// symbolic link, "#!" makes it executable.
type files map[string]string

func (f files) write(t testing.TB, dir string) {
	t.Helper()
	for name, text := range f {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.RemoveAll(path))
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case text == "":
		case link:
			must(t, os.Symlink(target, path))
		case strings.HasPrefix(text, "#!"):
			must(t, os.WriteFile(path, []byte(text), 0o755))
		default:
			must(t, os.WriteFile(path, []byte(text), 0o644))
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func ok[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// userRepo is an ordinary checkout with one commit on main.
func userRepo(t testing.TB, f files) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "user's repo")
	must(t, os.MkdirAll(dir, 0o755))
	userGit(t, dir, "init", "-q", "-b", "main")
	f.write(t, dir)
	userGit(t, dir, "add", "-A")
	userGit(t, dir, "commit", "-q", "--allow-empty", "-m", "first")
	return dir
}

// newMirror is a mirror with a first commit of f.
func newMirror(t testing.TB, f files) (m *Mirror, base string) {
	t.Helper()
	m = onlyMirror(t)
	return m, ok[string](t)(m.Fetch(t.Context(), Remote{URL: userRepo(t, f)}, ""))
}

// onlyMirror is a mirror with nothing in it; it must be sound at the end.
func onlyMirror(t testing.TB) *Mirror {
	t.Helper()
	m := ok[*Mirror](t)(Open(t.Context(), filepath.Join(t.TempDir(), "mirror")))
	t.Cleanup(func() { userGit(t, m.dir, "fsck", "--strict", "--no-dangling") })
	return m
}

var when = time.Unix(1_700_000_000, 0)

// commit makes a commit with changes on top of parent.
func commit(t testing.TB, m *Mirror, parent string, changes files) string {
	t.Helper()
	dir := t.TempDir()
	must(t, m.Checkout(t.Context(), parent, dir))
	changes.write(t, dir)
	sha, _, err := m.Collect(t.Context(), dir, parent, "refs/slipway/test/"+filepath.Base(dir), Commit{Message: "change", Time: when})
	must(t, err)
	return sha
}

// names lists the files of a commit.
func names(t testing.TB, m *Mirror, commit string) []string {
	t.Helper()
	out := userGit(t, m.dir, "ls-tree", "-r", "-z", "--name-only", commit)
	list := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	slices.Sort(list)
	return list
}

func equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func equalList(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

func TestOpenByManyAtOnceMakesOneMirror(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state", "mirror")
	user := userRepo(t, files{"a": "1"})
	var wg sync.WaitGroup
	commits := make([]string, 8)
	for i := range commits {
		wg.Go(func() {
			m, err := Open(t.Context(), dir)
			if err == nil {
				commits[i], err = m.Fetch(t.Context(), Remote{URL: user}, "")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	equal(t, "distinct commits", len(slices.Compact(commits)), 1)
	left := ok[[]os.DirEntry](t)(os.ReadDir(filepath.Dir(dir)))
	equal(t, "entries: the mirror and its lock", len(left), 2)
}

func TestOpenRefusesADirectoryOfOthers(t *testing.T) {
	dir := t.TempDir()
	files{"precious": "text"}.write(t, dir)
	if _, err := Open(t.Context(), dir); err == nil {
		t.Fatal("opened a directory that is no mirror")
	}
	if _, err := os.Stat(filepath.Join(dir, "precious")); err != nil {
		t.Fatal(err)
	}
}

func TestOpenGivesUpTheLockWithItsContext(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mirror")
	unlock := ok[func()](t)(lockFile(t.Context(), dir+".lock"))
	defer unlock()
	gone := errors.New("told to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := (&Mirror{dir: dir}).lock(ctx); !errors.Is(err, gone) {
		t.Fatalf("got %v, want the cause", err)
	}
}

func TestSetRefMovesOnlyFromWhereItWasSeen(t *testing.T) {
	m, a := newMirror(t, files{"f": "1"})
	b := commit(t, m, a, files{"f": "2"})
	c := commit(t, m, a, files{"f": "3"})
	const ref = "refs/slipway/b1/integration"
	for _, step := range []struct {
		name     string
		new, old string
		want     string
		err      error
	}{
		{"absent, but expected", b, a, "", ErrMoved},
		{"created", a, "", a, nil},
		{"created again the same", a, "", a, nil},
		{"exists, but expected absent", b, "", a, ErrMoved},
		{"moved", b, a, b, nil},
		{"moved again by a second attempt", b, a, b, nil},
		{"a zombie", c, a, b, ErrMoved},
		{"wherever it is", c, Any, c, nil},
		{"removed from elsewhere", "", a, c, ErrMoved},
		{"removed", "", c, "", nil},
		{"removed again", "", c, "", nil},
		{"nothing to nothing", "", "", "", nil},
		{"wherever, from nothing", a, Any, a, nil},
	} {
		err := m.SetRef(t.Context(), ref, step.new, step.old)
		if !errors.Is(err, step.err) || (err == nil) != (step.err == nil) {
			t.Errorf("%s: got %v, want %v", step.name, err, step.err)
		}
		equal(t, step.name, ok[string](t)(m.Ref(t.Context(), ref)), step.want)
	}
	if err := m.SetRef(t.Context(), "refs/slipway/b1/x", strings.Repeat("1", 40), ""); err == nil || errors.Is(err, ErrMoved) {
		t.Errorf("a commit that is not there: got %v, want a failure that is not ErrMoved", err)
	}
	if err := m.SetRef(t.Context(), "refs/heads/main", a, Any); err == nil {
		t.Error("set a ref outside refs/slipway/")
	}
}

func TestSetRefHasOneWinner(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	var wg sync.WaitGroup
	results := make([]error, 8)
	for i := range results {
		next := commit(t, m, base, files{"f": fmt.Sprint("racer ", i)})
		wg.Go(func() { results[i] = m.SetRef(t.Context(), "refs/slipway/b/i", next, "") })
	}
	wg.Wait()
	won := 0
	for _, err := range results {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrMoved):
			t.Error(err)
		}
	}
	equal(t, "winners", won, 1)
}

func TestALockOfADeadGitIsCleared(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	ref := "refs/slipway/b/i"
	must(t, m.SetRef(t.Context(), ref, base, ""))
	next := commit(t, m, base, files{"f": "2"})
	lock := filepath.Join(m.dir, ref+".lock")
	must(t, os.WriteFile(lock, nil, 0o644))
	said := "fatal: Unable to create '" + lock + "': File exists.\n\nAnother git process seems to be running"
	equal(t, "a lock of another repository", heldLock(said, t.TempDir()), "")
	equal(t, "a lock of this one", heldLock(said, m.dir), lock)
	old := time.Now().Add(-lockAge + 100*time.Millisecond) // it comes of age while the call waits
	must(t, os.Chtimes(lock, old, old))
	must(t, m.SetRef(t.Context(), ref, next, base))
	equal(t, "moved", ok[string](t)(m.Ref(t.Context(), ref)), next)
}

func TestALockOfALiveGitIsWaitedFor(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	ref := "refs/slipway/b/i"
	lock := filepath.Join(m.dir, ref+".lock")
	must(t, os.MkdirAll(filepath.Dir(lock), 0o755))
	must(t, os.WriteFile(lock, nil, 0o644))
	set := make(chan error)
	go func() { set <- m.SetRef(t.Context(), ref, base, "") }()
	select {
	case err := <-set:
		t.Fatalf("it did not wait: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	must(t, os.Remove(lock))
	must(t, <-set)
}

func TestRefsListsWholeParts(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	for _, name := range []string{"b1/issue-01", "b1/issue-02", "b10/issue-01"} {
		must(t, m.SetRef(t.Context(), "refs/slipway/"+name, base, ""))
	}
	want := []Ref{{"refs/slipway/b1/issue-01", base}, {"refs/slipway/b1/issue-02", base}}
	for _, prefix := range []string{"refs/slipway/b1", "refs/slipway/b1/"} {
		if got := ok[[]Ref](t)(m.Refs(t.Context(), prefix)); !slices.Equal(got, want) {
			t.Errorf("%s: got %v", prefix, got)
		}
	}
	equal(t, "a part of a name", ok[string](t)(m.Ref(t.Context(), "refs/slipway/b1")), "")
}

func TestHas(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	for name, row := range map[string]struct {
		commit string
		want   bool
	}{
		"there":         {base, true},
		"by ref":        {"refs/slipway/base/main", true},
		"a tree":        {ok[string](t)(m.Tree(t.Context(), base)), false},
		"unknown":       {strings.Repeat("2", 40), false},
		"empty":         {"", false},
		"an option":     {"--help", false},
		"an expression": {base + "~0", false},
	} {
		if got := m.Has(t.Context(), row.commit); got != row.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestNamesAreJudgedAsGitDoes(t *testing.T) {
	for _, name := range []string{
		"main", "a/b", "slipway/12-fix", "ünï/日本", "a.b", "a@b", "-x", "HEAD", "", "a..b", ".a", "a/.b", "a.lock", "a.lock/b", "a.",
		"a b", "a~b", "a^b", "a:b", "a?b", "a*b", "a[b", "a\\b", "a//b", "/a", "a/", "a@{b", "a\nb", "a\x7fb", "--upload-pack=x", "refs/heads/x",
	} {
		cmd := exec.Command("git", "check-ref-format", "--branch", name)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CEILING_DIRECTORIES=/"}
		want, got := cmd.Run() == nil, CheckBranch(name) == nil
		if want != got {
			t.Errorf("%q: git says %v, CheckBranch says %v", name, want, got)
		}
	}
}

func TestVersionIsLookedAt(t *testing.T) {
	for version, fine := range map[string]bool{"git version 2.39.5": true, "git version 2.37.9 (Apple)": false, "git version 3.0.1": true, "what": false} {
		bin := t.TempDir()
		must(t, os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\necho '"+version+"'\n"), 0o755))
		t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
		if err := CheckVersion(t.Context()); (err == nil) != fine {
			t.Errorf("%s: got %v", version, err)
		}
	}
}
