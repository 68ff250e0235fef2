package repo

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestTwentyWorktreesAtOnce(t *testing.T) {
	m, base := newMirror(t, files{"a": "1", "dir/b": "2", ".gitattributes": "* text=auto\n"})
	tips := []string{base}
	for i := range 3 { // made after the first commit: the clone has to fetch some of them
		tips = append(tips, commit(t, m, tips[i], files{fmt.Sprint("n", i): "x"}))
	}
	c := ok[*Clone](t)(m.Clone(t.Context(), filepath.Join(t.TempDir(), "claim")))
	late := commit(t, m, tips[3], files{"late": "only in the mirror"})
	tips = append(tips, late)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			tip := tips[i%len(tips)]
			name := fmt.Sprintf("issue-%02d", i)
			dir, err := c.Worktree(t.Context(), name, tip)
			if err != nil {
				t.Error(err)
				return
			}
			equal(t, "head", userGit(t, dir, "rev-parse", "HEAD"), tip)
			equal(t, "branch", userGit(t, dir, "branch", "--show-current"), "issue/"+name)
			equal(t, "status", userGit(t, dir, "status", "--porcelain"), "")
		})
	}
	wg.Wait()
	for i := range 20 { // some come while others go
		wg.Go(func() {
			if _, err := c.Worktree(t.Context(), fmt.Sprintf("more-%02d", i), late); err != nil {
				t.Error(err)
			}
			for _, name := range []string{"issue", "more"} {
				if err := c.Remove(t.Context(), fmt.Sprintf("%s-%02d", name, i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	equal(t, "worktrees left", userGit(t, c.GitDir(), "worktree", "list", "--porcelain"), "worktree "+c.GitDir()+"\nbare\n")
	equal(t, "a branch that stays", userGit(t, c.GitDir(), "rev-parse", "issue/issue-04"), late)
	must(t, c.Close(t.Context()))
	if _, err := os.Stat(filepath.Dir(c.GitDir())); !os.IsNotExist(err) {
		t.Errorf("the clone is still there: %v", err)
	}
}

func TestCloneWhileOthersCollect(t *testing.T) {
	m, base := newMirror(t, benchFiles(200))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		dir := t.TempDir()
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			for n := range 20 {
				files{fmt.Sprintf("f%d", n): fmt.Sprint(i, n)}.write(t, dir)
			}
			if _, _, err := m.Collect(t.Context(), dir, base, "refs/slipway/other/i", Commit{Message: "m"}); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 5 {
		c, dir := newWorktree(t, m, base)
		equal(t, "status", userGit(t, dir, "status", "--porcelain"), "")
		must(t, c.Close(t.Context()))
	}
	close(stop)
	wg.Wait()
}

func TestCloneSharesNoFileWithTheMirror(t *testing.T) {
	m, base := newMirror(t, files{"a": strings.Repeat("text\n", 1000)})
	userGit(t, m.dir, "repack", "-q", "-d") // one pack and some loose objects
	_ = commit(t, m, base, files{"b": "1"})
	c, _ := newWorktree(t, m, base)
	seen := map[uint64]string{}
	each(t, m.dir, func(path string, st *syscall.Stat_t) { seen[st.Ino] = path })
	count := 0
	each(t, c.GitDir(), func(path string, st *syscall.Stat_t) {
		count++
		if other := seen[st.Ino]; other != "" {
			t.Errorf("%s is %s", path, other)
		}
	})
	if count < 10 {
		t.Fatalf("only %d files in the clone", count)
	}
	config := string(ok[[]byte](t)(os.ReadFile(filepath.Join(c.GitDir(), "config"))))
	if strings.Contains(config, m.dir) {
		t.Errorf("the clone names the mirror:\n%s", config)
	}
	equal(t, "origin/main", userGit(t, c.GitDir(), "rev-parse", "origin/main"), base)
}

func each(t *testing.T, dir string, visit func(string, *syscall.Stat_t)) {
	t.Helper()
	must(t, filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			visit(path, info.Sys().(*syscall.Stat_t))
		}
		return err
	}))
}

func TestWorktreeRefuses(t *testing.T) {
	m, base := newMirror(t, files{"a": "1"})
	c, _ := newWorktree(t, m, base)
	for name, row := range map[string]struct{ name, commit string }{
		"a name that is taken":      {"issue-01", base},
		"a way out":                 {"..", base},
		"a path":                    {"a/b", base},
		"an option":                 {"--force", base},
		"no name":                   {"", base},
		"git's own name":            {".git", base},
		"a commit that nobody has":  {"x", strings.Repeat("4", 40)},
		"an option for a commit":    {"y", "--detach"},
		"a name no branch can have": {"a b", base},
	} {
		if dir, err := c.Worktree(t.Context(), row.name, row.commit); err == nil {
			t.Errorf("%s: made %s", name, dir)
		}
	}
	if _, err := m.Clone(t.Context(), filepath.Dir(c.GitDir())); err == nil {
		t.Error("two claims share a clone")
	}
	left := ok[[]os.DirEntry](t)(os.ReadDir(filepath.Join(filepath.Dir(c.GitDir()), "trees")))
	equal(t, "worktrees", len(left), 1)
	_ = ok[string](t)(c.Worktree(t.Context(), "x", base)) // a failed one is not in the way
}

func TestRemoveLeavesOthersAlone(t *testing.T) {
	m, base := newMirror(t, files{"a": "1"})
	c, dir := newWorktree(t, m, base)
	outside := t.TempDir()
	files{"precious": "1", "cache/mod/f": "1", "link": "-> " + outside}.write(t, dir)
	files{"precious": "1"}.write(t, outside)
	must(t, os.Chmod(filepath.Join(dir, "cache/mod"), 0o500))
	must(t, os.Chmod(filepath.Join(dir, "cache"), 0o500))
	must(t, c.Remove(t.Context(), "issue-01"))
	must(t, c.Remove(t.Context(), "issue-01"))
	if _, err := os.Stat(filepath.Join(outside, "precious")); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the worktree is still there: %v", err)
	}
	_ = ok[string](t)(c.Worktree(t.Context(), "issue-01", base)) // the name is free again
}
