package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write writes files, whose names have slashes, below dir.
func write(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// git runs git in a user's repository and returns what it prints.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// newRepo makes a user's repository with one commit of files on main.
func newRepo(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "greeter")
	write(t, dir, files)
	git(t, dir, "init", "--quiet", "--initial-branch=main")
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=Begin")
	return dir
}

// checked is a repository whose test is a shell script: at once, and anywhere.
func checked(script string) map[string]string {
	return map[string]string{
		"README.md":           "# Greeter\n",
		"check.sh":            script,
		".github/slipway.yml": "commands:\n  test: sh check.sh\n",
	}
}

// A desk is what a build must leave as it was: somebody's checkout in the
// middle of other work, and everything that git keeps beside the branches.
type desk struct {
	dir  string
	seen map[string]string
}

// lookAt dirties a checkout the way people do, on a branch of its own, and
// remembers it.
func lookAt(t testing.TB, dir string) desk {
	t.Helper()
	git(t, dir, "checkout", "--quiet", "-b", "ada/other-work")
	write(t, dir, map[string]string{"README.md": "# Greeter\n\nBeing rewritten.\n", "notes.txt": "not committed\n"})
	git(t, dir, "add", "README.md")
	return desk{dir: dir, seen: remember(t, dir)}
}

func remember(t testing.TB, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{
		"status": git(t, dir, "status", "--porcelain=v1", "--branch"),
		"head":   git(t, dir, "rev-parse", "HEAD"),
		"main":   git(t, dir, "rev-parse", "main"),
		"config": git(t, dir, "config", "--local", "--list"),
		"trees":  git(t, dir, "worktree", "list"),
	}
	for ref := range strings.Lines(git(t, dir, "for-each-ref", "--format=%(refname) %(objectname)")) {
		if !strings.HasPrefix(ref, "refs/heads/slipway/") {
			seen["refs"] += strings.TrimSpace(ref) + "\n"
		}
	}
	for _, part := range []string{"", ".git/hooks"} {
		entries, err := os.ReadDir(filepath.Join(dir, part))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			name := filepath.Join(part, e.Name())
			seen["entry "+name] = e.Type().String()
			if e.Type().IsRegular() {
				text, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil {
					t.Fatal(err)
				}
				seen["entry "+name] = string(text)
			}
		}
	}
	return seen
}

// untouched fails if anything is different now.
func (d desk) untouched(t testing.TB) {
	t.Helper()
	now := remember(t, d.dir)
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if now[key] != d.seen[key] {
			t.Errorf("the build changed the user's %s:\n%s\nwas\n%s", key, now[key], d.seen[key])
		}
	}
	if len(now) < len(d.seen) {
		t.Errorf("something is gone: %v, was %v", now, d.seen)
	}
}

// sound fails if the user's repository or Slipway's mirror of it is damaged, or
// if a hook was planted in the mirror.
func (t *terminal) sound(repo string) {
	t.Helper()
	git(t, repo, "fsck", "--strict")
	mirrors, err := filepath.Glob(filepath.Join(t.state, "mirrors", "*", "*.git"))
	if err != nil || len(mirrors) != 1 {
		t.Fatalf("mirrors %v, %v", mirrors, err)
	}
	git(t, mirrors[0], "fsck", "--strict")
	if hooks, _ := os.ReadDir(filepath.Join(mirrors[0], "hooks")); len(hooks) > 0 {
		t.Errorf("the mirror has hooks: %v", hooks)
	}
}
