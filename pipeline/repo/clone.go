package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// A Clone is a disposable copy of a mirror for one claim of a build. Agents see
// its git directory, read-only, and their own worktree; neither shares a file
// with the mirror. It belongs to the process that made it.
type Clone struct {
	dir     string
	mirror  *Mirror
	listing chan struct{}   // full while the list of worktrees or the objects change
	whole   map[string]bool // commits that are here with all they need; its owner is who fills listing
}

// Clone makes a clone in dir, which must not exist. The branches fetched so far
// are remotes/origin/… there.
func (m *Mirror) Clone(ctx context.Context, dir string) (*Clone, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil { // two claims never share one
		return nil, fmt.Errorf("clone: %w", err)
	}
	c := &Clone{dir: dir, mirror: m, listing: make(chan struct{}, 1), whole: map[string]bool{}}
	if err := c.fill(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("clone: %w", err), c.Close(context.WithoutCancel(ctx)))
	}
	return c, nil
}

// fill makes the git directory. It does by hand what git clone --local
// --no-hardlinks does, because git's gives up when a file of the mirror goes
// while it copies, and other builds collect all the time.
func (c *Clone) fill(ctx context.Context) error {
	// Worktrees are registered by hand, in the files of this format.
	_, err := run(ctx, call{
		env: []string{"GIT_DEFAULT_REF_FORMAT=files"}, args: []string{"init", "--quiet", "--bare", "--template=", "--", c.GitDir()},
	})
	if err != nil {
		return err
	}
	if err := copyObjects(ctx, filepath.Join(c.mirror.dir, "objects"), filepath.Join(c.GitDir(), "objects")); err != nil {
		return err
	}
	err = copyFile(filepath.Join(c.mirror.dir, "shallow"), filepath.Join(c.GitDir(), "shallow"), 0o600)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_, err = run(ctx, call{gitDir: c.GitDir(), args: []string{
		"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow",
		"--end-of-options", c.mirror.dir, "+refs/slipway/base/*:refs/remotes/origin/*",
	}})
	return err
}

// copyObjects copies git's objects and packs. What is being written meanwhile,
// and so is no part of a commit that the caller knows, may be left out.
func copyObjects(ctx context.Context, from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case strings.HasPrefix(d.Name(), "tmp_") || d.Name() == "info":
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o700)
		}
		if err := copyFile(path, filepath.Join(to, rel), 0o400); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// GitDir is the git directory that the worktrees share. It is to be bound
// read-only where an agent runs.
func (c *Clone) GitDir() string { return filepath.Join(c.dir, "git") }

// Dir is where the worktree of that name is, or will be.
func (c *Clone) Dir(name string) string { return filepath.Join(c.dir, "trees", name) }

// adminDir is where the git directory keeps the state of the worktree at tree;
// its shape is what lets a collect know a worktree's own .git file.
func adminDir(tree string) string {
	return filepath.Join(filepath.Dir(filepath.Dir(tree)), "git", "worktrees", filepath.Base(tree))
}

// Worktree checks commit out in a new directory on the local branch
// issue/<name>. A commit that the clone lacks is brought from the mirror.
func (c *Clone) Worktree(ctx context.Context, name, commit string) (dir string, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("worktree %s: %w", name, err)
		}
	}()
	if err := errors.Join(checkWorktree(name), checkHash(commit)); err != nil {
		return "", err
	}
	dir = c.Dir(name)
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return "", errors.Join(errors.New("it exists already"), err)
	}
	if err = c.add(ctx, name, dir, commit); err == nil {
		err = c.populate(ctx, dir, commit)
	}
	if err != nil {
		return "", errors.Join(err, c.Remove(context.WithoutCancel(ctx), name))
	}
	return dir, nil
}

// add makes the worktree without its files.
func (c *Clone) add(ctx context.Context, name, dir, commit string) error {
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.bring(ctx, commit); err != nil {
		return err
	}
	return c.register(name, dir, commit)
}

// register does what git worktree add --no-checkout -B does, by the files that
// gitrepository-layout(5) describes. Git takes three processes for it, and
// cannot do it twice at a time.
func (c *Clone) register(name, dir, commit string) error {
	admin, branch := adminDir(dir), "refs/heads/issue/"+name
	for _, made := range []string{dir, admin, filepath.Join(c.GitDir(), "refs", "heads", "issue")} {
		if err := os.MkdirAll(made, 0o700); err != nil {
			return err
		}
	}
	for _, file := range []struct{ path, text string }{
		{filepath.Join(c.GitDir(), branch), commit},
		{filepath.Join(admin, "HEAD"), "ref: " + branch},
		{filepath.Join(admin, "commondir"), "../.."},
		{filepath.Join(admin, "gitdir"), filepath.Join(dir, ".git")},
		{filepath.Join(dir, ".git"), "gitdir: " + admin},
	} {
		if err := os.WriteFile(file.path, []byte(file.text+"\n"), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// populate writes the files of commit and the worktree's index. The git that does
// it knows the mirror alone. Its index is remembered for the collect that follows.
func (c *Clone) populate(ctx context.Context, dir, commit string) error {
	ix, err := c.mirror.newIndex()
	if err != nil {
		return err
	}
	defer ix.discard()
	_, err = run(ctx, call{gitDir: c.mirror.dir, tree: dir, index: ix.path, args: []string{"read-tree", "--reset", "-u", commit}})
	if err != nil {
		return err
	}
	if err := copyFile(ix.path, filepath.Join(adminDir(dir), "index"), 0o600); err != nil {
		return err
	}
	return c.mirror.keepIndex(dir, commit, ix)
}

// lock keeps the list of worktrees still: git fails when one comes or goes
// while it reads the list.
func (c *Clone) lock(ctx context.Context) (unlock func(), err error) {
	select {
	case c.listing <- struct{}{}:
		return func() { <-c.listing }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Remove deletes the worktree's directory; its branch and commits stay. No git
// runs: what an agent left there is not read. One that does not exist is fine.
func (c *Clone) Remove(ctx context.Context, name string) error {
	if err := checkWorktree(name); err != nil {
		return err
	}
	dir := c.Dir(name)
	c.mirror.dropIndex(dir)
	if err := RemoveAll(ctx, dir); err != nil {
		return fmt.Errorf("remove worktree %s: %w", name, err)
	}
	unlock, err := c.lock(ctx)
	if err == nil {
		defer unlock()
		err = RemoveAll(ctx, adminDir(dir))
	}
	if err != nil {
		return fmt.Errorf("remove worktree %s: %w", name, err)
	}
	return nil
}

// Close deletes the clone with all its worktrees.
func (c *Clone) Close(ctx context.Context) error {
	if err := RemoveAll(ctx, c.dir); err != nil {
		return fmt.Errorf("remove clone: %w", err)
	}
	return nil
}

// checkWorktree accepts names that are one plain file name and part of a branch.
func checkWorktree(name string) error {
	if strings.Contains(name, "/") || strings.HasPrefix(name, "-") || dotGit(name) {
		return fmt.Errorf("worktree %q: not a plain file name", name)
	}
	return checkFormat("worktree", name)
}

// RemoveAll is os.RemoveAll that also removes directories which their maker
// made read-only, as module caches are.
func RemoveAll(ctx context.Context, dir string) error {
	err := os.RemoveAll(dir)
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err == nil && d.IsDir() { // never a symbolic link
			err = os.Chmod(path, 0o700)
		}
		return err
	})
	if err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
