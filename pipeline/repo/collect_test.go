package repo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newWorktree is a clone with one worktree at base.
func newWorktree(t testing.TB, m *Mirror, base string) (c *Clone, dir string) {
	t.Helper()
	c = ok[*Clone](t)(m.Clone(t.Context(), filepath.Join(t.TempDir(), "claim")))
	return c, ok[string](t)(c.Worktree(t.Context(), "issue-01", base))
}

func TestCollectTakesTheFilesAsTheyAre(t *testing.T) {
	m := onlyMirror(t)
	base := files{".gitignore": "build/\n*.log\n", "kept.txt": "1", "changed.txt": "1", "gone.txt": "1", "dir/x": "1", "tracked.log": "tracked though ignored"}
	user := userRepo(t, base)
	userGit(t, user, "add", "-f", "tracked.log") // as a user would, by force
	userGit(t, user, "commit", "-q", "-m", "by force")
	sha := ok[string](t)(m.Fetch(t.Context(), Remote{URL: user}, "main"))
	for name, row := range map[string]struct {
		change files
		want   []string // beside .gitignore, in order
	}{
		"changed, added, removed": {files{"changed.txt": "2", "new/deep/f": "n", "gone.txt": ""},
			[]string{"changed.txt", "dir/x", "kept.txt", "new/deep/f", "tracked.log"}},
		"ignored files stay out": {files{"build/out": "o", "a.log": "l"},
			[]string{"changed.txt", "dir/x", "gone.txt", "kept.txt", "tracked.log"}},
		"tracked though ignored stays in": {files{"tracked.log": "changed"},
			[]string{"changed.txt", "dir/x", "gone.txt", "kept.txt", "tracked.log"}},
		"a new ignore rule counts": {files{".gitignore": "build/\n*.log\n*.tmp\n", "x.tmp": "x"},
			[]string{"changed.txt", "dir/x", "gone.txt", "kept.txt", "tracked.log"}},
		"hard names": {files{"sp ace": "1", "ünï-日本": "1", "new\nline": "1", "-dash": "1", "\"quoted\\": "1", ":(top)x": "1", "*": "1"},
			[]string{"\"quoted\\", "*", "-dash", ":(top)x", "changed.txt", "dir/x", "gone.txt", "kept.txt", "new\nline", "sp ace", "tracked.log", "ünï-日本"}},
		"a directory became a file": {files{"dir": "file now"},
			[]string{"changed.txt", "dir", "gone.txt", "kept.txt", "tracked.log"}},
		"a file became a link": {files{"changed.txt": "-> kept.txt"},
			[]string{"changed.txt", "dir/x", "gone.txt", "kept.txt", "tracked.log"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := newWorktree(t, m, sha)
			row.change.write(t, dir)
			got, changed, err := m.Collect(t.Context(), dir, sha, "refs/slipway/b/i", Commit{Message: "m", Time: when})
			must(t, err)
			equalList(t, "files", names(t, m, got), append([]string{}, insert(row.want, ".gitignore")...))
			tree := ok[string](t)(m.Tree(t.Context(), got))
			equal(t, "changed", changed, tree != ok[string](t)(m.Tree(t.Context(), sha)))
			if changed {
				equal(t, "ref", ok[string](t)(m.Ref(t.Context(), "refs/slipway/b/i")), got)
			}
		})
	}
}

func insert(list []string, name string) []string {
	for i, l := range list {
		if l > name {
			return append(append(append([]string{}, list[:i]...), name), list[i:]...)
		}
	}
	return append(append([]string{}, list...), name)
}

func TestCollectOfNothingMakesNoCommit(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	_, dir := newWorktree(t, m, base)
	sha, changed, err := m.Collect(t.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m"})
	must(t, err)
	equal(t, "commit", sha, base)
	equal(t, "changed", changed, false)
	equal(t, "ref", ok[string](t)(m.Ref(t.Context(), "refs/slipway/b/i")), "")
}

func TestCollectSeesEveryChangeOfManyRounds(t *testing.T) {
	// The index is remembered between collects: an edit of equal length in the
	// same second, with the old time put back, must not be missed.
	m, base := newMirror(t, files{"f": "0000"})
	_, dir := newWorktree(t, m, base)
	path := filepath.Join(dir, "f")
	at := ok[os.FileInfo](t)(os.Stat(path)).ModTime()
	for i := range 20 {
		want := fmt.Sprintf("%04d", i+1)
		if i == 10 {
			at = time.Unix(0, 0) // older than any index claims to be
		}
		must(t, os.WriteFile(path, []byte(want), 0o644))
		must(t, os.Chtimes(path, at, at))
		sha, changed, err := m.Collect(t.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
		must(t, err)
		equal(t, "changed", changed, true)
		equal(t, "content", string(ok[[]byte](t)(m.File(t.Context(), sha, "f"))), want)
		if _, remembered := m.indexed.Load(dir); !remembered {
			t.Error("the index is not remembered")
		}
		base = sha
	}
}

// What was collected once is tracked, whatever .gitignore says of it later.
func TestTheNextCollectKnowsWhatIsTracked(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	_, dir := newWorktree(t, m, base)
	for _, change := range []files{
		{"a.log": "1", "d/b.log": "1"}, {".gitignore": "*.log\n", "a.log": "2", "c.log": "never"}, {"d/b.log": "3", "e.log": "never"},
	} {
		change.write(t, dir)
		sha, _, err := m.Collect(t.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
		must(t, err)
		for path, text := range change {
			content, err := m.File(t.Context(), sha, path)
			if text != "never" && string(content) != text || text == "never" && err == nil {
				t.Errorf("%s: %q, %v", path, content, err)
			}
		}
		base = sha
	}
	if err := os.WriteFile(filepath.Join(dir, "f"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	// From another base than the one that is remembered.
	sha, _, err := m.Collect(t.Context(), dir, ok[string](t)(m.Fetch(t.Context(), Remote{URL: userRepo(t, files{"other": "1"})}, "")), "refs/slipway/b/i", Commit{Message: "m", Time: when})
	must(t, err)
	equalList(t, "files", names(t, m, sha), []string{".gitignore", "f"})
}

func TestCommitSaysWhoAndWhen(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	tree := ok[string](t)(m.Tree(t.Context(), base))
	for name, row := range map[string]struct {
		c    Commit
		want string
	}{
		"all given": {Commit{Message: "Title\n\nBody.\n\n\n", Author: Person{"Ada L", "ada@example.com"}, Time: when,
			CoAuthors: []Person{{"Bob", "bob@example.com"}, {"Eve\nSigned-off-by: x", "<eve@example.com>"}}},
			"Ada L <ada@example.com> 1700000000|Slipway <slipway@localhost> 1700000000|Title\n\nBody.\n\n" +
				"Co-authored-by: Bob <bob@example.com>\nCo-authored-by: EveSigned-off-by: x <eve@example.com>"},
		"no author": {Commit{Message: "t", Time: when}, "Slipway <slipway@localhost> 1700000000|Slipway <slipway@localhost> 1700000000|t"},
		"hostile bytes": {Commit{Message: "a\x00b\r\n\xffc", Author: Person{".,", "x"}, Time: when},
			"unknown <x> 1700000000|Slipway <slipway@localhost> 1700000000|ab\n\uFFFDc"},
		"a dash at the start": {Commit{Message: "-F /etc/passwd", Author: Person{"-a", ""}, Time: when}, "-a <> 1700000000|Slipway <slipway@localhost> 1700000000|-F /etc/passwd"},
	} {
		sha, err := m.CommitTree(t.Context(), tree, []string{base}, row.c)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		equal(t, name, userGit(t, m.dir, "log", "-1", "--format=%an <%ae> %at|%cn <%ce> %ct|%B", sha), row.want+"\n")
		equal(t, name+", again", ok[string](t)(m.CommitTree(t.Context(), tree, []string{base}, row.c)), sha)
	}
	before := time.Now().Add(-time.Second)
	now := ok[string](t)(m.CommitTree(t.Context(), tree, nil, Commit{Message: "now"}))
	var at int64
	_, err := fmt.Sscan(userGit(t, m.dir, "log", "-1", "--format=%at", now), &at)
	must(t, err)
	if at < before.Unix() {
		t.Errorf("a commit without time is of %v", time.Unix(at, 0))
	}
	if _, err := m.CommitTree(t.Context(), tree, []string{"--help"}, Commit{}); err == nil {
		t.Error("an option passed as a parent")
	}
}

// TestHostileWorktrees: what an agent leaves behind executes nothing, is never
// read as configuration and does not harm the mirror. The mirror's check and
// the surroundings' canary are in onlyMirror and TestMain.
func TestHostileWorktrees(t *testing.T) {
	type trap struct {
		m       *Mirror
		c       *Clone
		dir     string
		program string // leaves the canary
		filter  string // configuration of a filter that does
	}
	m := onlyMirror(t)
	user := userRepo(t, files{"f": "old", ".gitignore": "ignored/\n"})
	userGit(t, user, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("3", 40)+",module")
	userGit(t, user, "commit", "-q", "-m", "a submodule")
	base := ok[string](t)(m.Fetch(t.Context(), Remote{URL: user}, "main"))
	for name, row := range map[string]struct {
		set  func(t *testing.T, tr trap)
		path string // of the *Violation; "" when the files are taken
	}{
		"a clean filter in the clone's configuration": {func(t *testing.T, tr trap) {
			files{".gitattributes": "* filter=evil diff=evil merge=evil\n", "f": "new"}.write(t, tr.dir)
			for _, key := range []string{"filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "diff.evil.textconv", "diff.evil.command", "merge.evil.driver", "core.fsmonitor", "gpg.program", "core.sshCommand", "credential.helper"} {
				userGit(t, tr.c.GitDir(), "config", key, tr.program)
			}
			userGit(t, tr.c.GitDir(), "config", "filter.evil.required", "true")
			userGit(t, tr.c.GitDir(), "config", "commit.gpgSign", "true")
		}, ""},
		"hooks in the clone": {func(t *testing.T, tr trap) {
			for _, hook := range []string{"pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change", "post-checkout", "pre-push", "update"} {
				files{"hooks/" + hook: "#!/bin/sh\n" + tr.program + "\n"}.write(t, tr.c.GitDir())
			}
			files{"f": "new"}.write(t, tr.dir)
		}, ""},
		"configuration of the worktree and an exclude file": {func(t *testing.T, tr trap) {
			userGit(t, tr.c.GitDir(), "config", "core.worktree", "/")
			userGit(t, tr.c.GitDir(), "config", "extensions.worktreeConfig", "true")
			files{"info/exclude": "f\n", "info/attributes": "* filter=evil\n"}.write(t, tr.c.GitDir())
			files{"config.worktree": tr.filter}.write(t, adminDir(tr.dir))
			files{"f": "new"}.write(t, tr.dir)
		}, ""},
		"an index that hides changes": {func(t *testing.T, tr trap) {
			userGit(t, tr.dir, "update-index", "--assume-unchanged", "f")
			files{"f": "new"}.write(t, tr.dir)
		}, ""},
		"commits and refs of the agent's own": {func(t *testing.T, tr trap) {
			files{"f": "new"}.write(t, tr.dir)
			userGit(t, tr.dir, "add", "-A")
			userGit(t, tr.dir, "commit", "-q", "-m", "mine")
			userGit(t, tr.dir, "replace", "HEAD", "HEAD~1")
		}, ""},
		"no .git left": {func(t *testing.T, tr trap) {
			must(t, os.Remove(filepath.Join(tr.dir, ".git")))
			files{"f": "new"}.write(t, tr.dir)
		}, ""},
		"a nested repository with a monitor": {func(t *testing.T, tr trap) {
			sub := filepath.Join(tr.dir, "sub")
			must(t, os.Mkdir(sub, 0o755))
			userGit(t, sub, "init", "-q")
			userGit(t, sub, "commit", "-q", "--allow-empty", "-m", "x")
			userGit(t, sub, "config", "core.fsmonitor", tr.program)
		}, "sub/.git"},
		"a nested repository where a submodule is": {func(t *testing.T, tr trap) {
			sub := filepath.Join(tr.dir, "module")
			must(t, os.MkdirAll(sub, 0o755))
			userGit(t, sub, "init", "-q")
			userGit(t, sub, "config", "core.fsmonitor", tr.program)
		}, "module/.git"},
		"a nested repository in an ignored directory": {func(t *testing.T, tr trap) {
			files{"ignored/deep/.git/config": tr.filter}.write(t, tr.dir)
		}, "ignored/deep/.git"},
		"a nested .git file": {func(t *testing.T, tr trap) {
			files{"sub/.git": "gitdir: " + tr.c.GitDir() + "\n"}.write(t, tr.dir)
		}, "sub/.git"},
		"a nested .git link": {func(t *testing.T, tr trap) {
			files{"sub/.git": "-> " + tr.c.GitDir()}.write(t, tr.dir)
		}, "sub/.git"},
		"a broken nested .git link":     {func(t *testing.T, tr trap) { files{"sub/.git": "-> nowhere"}.write(t, tr.dir) }, "sub/.git"},
		"a nested .GIT":                 {func(t *testing.T, tr trap) { files{"sub/.GIT/config": tr.filter}.write(t, tr.dir) }, "sub/.GIT"},
		"a top .Git beside the true":    {func(t *testing.T, tr trap) { files{".Git/config": tr.filter}.write(t, tr.dir) }, ".Git"},
		"git's short name on NTFS":      {func(t *testing.T, tr trap) { files{"GIT~1/config": tr.filter}.write(t, tr.dir) }, "GIT~1"},
		"a name that HFS+ takes for it": {func(t *testing.T, tr trap) { files{".g\u200cit/config": tr.filter}.write(t, tr.dir) }, ".g\u200cit"},
		"the top .git points elsewhere": {func(t *testing.T, tr trap) {
			evil := filepath.Join(t.TempDir(), "evil")
			userGit(t, "/", "init", "-q", evil)
			userGit(t, evil, "config", "core.fsmonitor", tr.program)
			files{".git": "gitdir: " + evil + "/.git\n"}.write(t, tr.dir)
		}, ".git"},
		"the top .git is longer": {func(t *testing.T, tr trap) {
			files{".git": "gitdir: " + adminDir(tr.dir) + "\n/../x\n"}.write(t, tr.dir)
		}, ".git"},
		"the top .git is a directory": {func(t *testing.T, tr trap) {
			must(t, os.Remove(filepath.Join(tr.dir, ".git")))
			userGit(t, tr.dir, "init", "-q")
			userGit(t, tr.dir, "config", "core.fsmonitor", tr.program)
		}, ".git"},
		"the top .git is a link": {func(t *testing.T, tr trap) {
			files{".git": "-> " + tr.m.dir}.write(t, tr.dir)
		}, ".git"},
		"the top .git is a pipe": {func(t *testing.T, tr trap) {
			must(t, os.Remove(filepath.Join(tr.dir, ".git")))
			must(t, syscall.Mkfifo(filepath.Join(tr.dir, ".git"), 0o600))
		}, ".git"},
		"the worktree is a link to the mirror": {func(t *testing.T, tr trap) {
			must(t, os.RemoveAll(tr.dir))
			must(t, os.Symlink(tr.m.dir, tr.dir))
		}, "(whole)"},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := newWorktree(t, m, base)
			canary := filepath.Join(t.TempDir(), "canary")
			script := filepath.Join(t.TempDir(), "program")
			must(t, os.WriteFile(script, []byte("#!/bin/sh\necho \"$0 $*\" >>"+canary+"\ncat\n"), 0o755))
			config := userGit(t, m.dir, "config", "--list", "--local")
			row.set(t, trap{m, c, dir, script, "[filter \"evil\"]\n\tclean = " + script + "\n[core]\n\tfsmonitor = " + script + "\n"})
			_ = os.Remove(canary) // setting the trap may have sprung it

			sha, _, err := m.Collect(t.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
			v, isViolation := errors.AsType[*Violation](err)
			switch {
			case row.path == "" && err != nil:
				t.Error(err)
			case row.path == "":
				equal(t, "content", string(ok[[]byte](t)(m.File(t.Context(), sha, "f"))), "new")
				must(t, m.Inspect(t.Context(), base, sha, Limits{}))
				must(t, m.Checkout(t.Context(), sha, filepath.Join(t.TempDir(), "evidence")))
				_ = ok[string](t)(m.Diff(t.Context(), base, sha, 1<<20))
				_ = ok[Merge](t)(m.Merge(t.Context(), base, sha))
			case !isViolation:
				t.Errorf("got %v, want a violation", err)
			case row.path != "(whole)":
				equal(t, "path", v.Path, row.path)
			}
			must(t, c.Remove(t.Context(), "issue-01"))
			must(t, c.Close(t.Context()))
			if text, err := os.ReadFile(canary); err == nil {
				t.Errorf("something ran: %s", text)
			}
			equal(t, "the mirror's configuration", userGit(t, m.dir, "config", "--list", "--local"), config)
		})
	}
}
