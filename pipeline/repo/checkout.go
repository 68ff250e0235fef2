package repo

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Checkout makes dir the clean files of commit, without a .git: the place where
// evidence is taken. An existing dir is brought there by the shortest way:
// tracked files are as in commit, the others are gone, and what commit's
// .gitignore names (installed packages, build products) stays. Nothing outside
// dir is written, whatever dir holds.
func (m *Mirror) Checkout(ctx context.Context, commit, dir string) error {
	if err := m.checkout(ctx, commit, dir); err != nil {
		return fmt.Errorf("check out %s: %w", short(commit), err)
	}
	return nil
}

func (m *Mirror) checkout(ctx context.Context, commit, dir string) error {
	if err := checkRev(commit); err != nil {
		return err
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if info, err := os.Lstat(dir); err == nil && !info.IsDir() {
		if err := os.Remove(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := RemoveAll(ctx, filepath.Join(dir, ".git")); err != nil { // git would spare it
		return err
	}
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	sweep(m.indexes(), indexAge)
	ix, err := m.newIndex()
	if err != nil {
		return err
	}
	defer ix.discard()
	if err := ix.recall(m.memory(dir)); err != nil {
		return err
	}
	if _, err := run(ctx, call{gitDir: m.dir, tree: dir, index: ix.path, args: []string{"read-tree", "--reset", "-u", commit}}); err != nil {
		return err
	}
	if len(left) > 0 {
		if err := m.clean(ctx, dir, ix); err != nil {
			return err
		}
	}
	return ix.remember(m.memory(dir))
}

// clean removes what is neither tracked nor ignored. A .gitignore that is not
// the commit's goes first: it could keep a file that the commit lacks and let
// a broken commit pass.
func (m *Mirror) clean(ctx context.Context, dir string, ix scratchIndex) error {
	others, err := run(ctx, call{
		gitDir: m.dir, tree: dir, index: ix.path, env: []string{"GIT_LITERAL_PATHSPECS=0"},
		args: []string{"ls-files", "-z", "--others", "--", ":(top,glob)**/.gitignore"},
	})
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for path := range strings.SplitSeq(string(others), "\x00") {
		if filepath.Base(path) != ".gitignore" {
			continue // the end, or a repository that the line below removes
		}
		if err := root.RemoveAll(path); err != nil {
			return err
		}
	}
	_, err = run(ctx, call{gitDir: m.dir, tree: dir, index: ix.path, args: []string{"clean", "-ffdq"}})
	return err
}
