package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func newStage(t *testing.T) *Stage {
	t.Helper()
	s, err := OpenStage(t.Context(), filepath.Join(t.TempDir(), "stage"))
	must(t, err)
	return s
}

// TestStageOfAnArchive has a change fetched as a mirror fetches a branch.
func TestStageOfAnArchive(t *testing.T) {
	t.Parallel()
	ctx, s := t.Context(), newStage(t)
	base, err := s.Files(ctx, "refs/slipway/base", map[string]string{"a.txt": "one\ntwo\n", "deep/b.txt": "b\n", ".gitignore": "deep/\n"})
	must(t, err)
	const patch = "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"
	head, err := s.Apply(ctx, "refs/slipway/head", base, []byte(patch))
	must(t, err)

	m, err := Open(ctx, filepath.Join(t.TempDir(), "mirror"))
	must(t, err)
	for ref, want := range map[string]string{"refs/slipway/base": base, "refs/slipway/head": head} {
		if got, err := m.Fetch(ctx, Remote{URL: s.Dir()}, ref); err != nil || got != want {
			t.Errorf("%s: %s, want %s: %v", ref, got, want, err)
		}
	}
	changed, err := m.Changed(ctx, base, head)
	must(t, err)
	text, err := m.File(ctx, head, "a.txt")
	if must(t, err); len(changed) != 1 || string(text) != "one\nthree\n" {
		t.Errorf("%+v: %q", changed, text)
	}
	if _, err := m.File(ctx, head, "deep/b.txt"); err != nil {
		t.Errorf("a file that .gitignore names: %v", err)
	}
	for name, bad := range map[string]string{"an old patch": strings.Replace(patch, "-two", "-four", 1), "no patch": "what?"} {
		if _, err := s.Apply(ctx, "refs/slipway/bad", base, []byte(bad)); err == nil {
			t.Errorf("%s was applied", name)
		}
	}
	for _, name := range []string{"../out", ".git/config", "/abs"} {
		if _, err := s.Files(ctx, "refs/slipway/bad", map[string]string{name: "x"}); err == nil {
			t.Errorf("a file %s was staged", name)
		}
	}
}

// TestStageOfAShallowCheckout takes two trees of a checkout without history, at no
// branch, as benchmarks hand them out.
func TestStageOfAShallowCheckout(t *testing.T) {
	t.Parallel()
	ctx, from := t.Context(), t.TempDir()
	userGit(t, from, "init", "-q", "-b", "main")
	for _, text := range []string{"zero\n", "one\n", "two\n"} {
		must(t, os.WriteFile(filepath.Join(from, "a.txt"), []byte(text), 0o600))
		userGit(t, from, "add", "--all")
		userGit(t, from, "commit", "-q", "-m", strings.TrimSpace(text))
	}
	checkout := filepath.Join(t.TempDir(), "checkout")
	userGit(t, "/", "clone", "-q", "--depth=2", "file://"+from, checkout)
	userGit(t, checkout, "checkout", "-q", "--detach")
	before := userGit(t, checkout, "status", "--porcelain", "--branch")

	source, err := OpenSource(ctx, checkout)
	must(t, err)
	head, err := source.Commit(ctx, "HEAD")
	must(t, err)
	parent, err := source.Commit(ctx, head+"~1")
	must(t, err)
	fork, err := source.MergeBase(ctx, parent, head)
	if must(t, err); fork != parent {
		t.Errorf("merge base %s, want %s", fork, parent)
	}
	s := newStage(t)
	base, err := s.Take(ctx, "refs/slipway/base", source, fork, "")
	must(t, err)
	_, err = s.Take(ctx, "refs/slipway/head", source, head, base)
	must(t, err)
	m, err := Open(ctx, filepath.Join(t.TempDir(), "mirror"))
	must(t, err)
	got, err := m.Fetch(ctx, Remote{URL: s.Dir()}, "refs/slipway/head")
	must(t, err)
	if text, err := m.File(ctx, got, "a.txt"); err != nil || string(text) != "two\n" {
		t.Errorf("%q %v", text, err)
	}
	if after := userGit(t, checkout, "status", "--porcelain", "--branch"); after != before {
		t.Errorf("the checkout was changed: %s", after)
	}
	if _, err := source.Commit(ctx, "no-such-branch"); err == nil || !strings.Contains(err.Error(), "has no commit no-such-branch") {
		t.Errorf("%v", err)
	}
	if _, err := OpenSource(ctx, t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a git repository") {
		t.Errorf("%v", err)
	}
}
