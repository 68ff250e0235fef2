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

// bring makes sure that the clone has a commit of the mirror with all that it
// needs. The caller holds the lock.
func (c *Clone) bring(ctx context.Context, commit string) error {
	err := c.copyCommit(ctx, commit)
	if !errors.Is(err, errNotLoose) {
		return err
	}
	// The branches of the clone tell the mirror what need not be sent.
	_, err = run(ctx, call{gitDir: c.GitDir(), args: []string{
		"fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--update-shallow", "--end-of-options", c.mirror.dir, commit,
	}})
	if err == nil {
		c.whole[commit] = true
	}
	return err
}

// copyCommit copies what a commit adds to those that the clone has, file by file:
// what builds make are loose objects. A fetch of one commit takes five processes.
//
// A commit is copied last, and only when all that it needs is there, so one that
// is in the clone is whole. What is not loose in the mirror has to be in a pack of
// the clone; where it is not, errNotLoose leaves the commit to a fetch.
func (c *Clone) copyCommit(ctx context.Context, commit string) error {
	if c.whole[commit] {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	tree, parents, err := commitParts(c.mirror.dir, commit)
	// What is loose in the mirror is loose in the clone too, if it is there.
	if _, _, there := commitParts(c.GitDir(), commit); there == nil || err != nil && has(ctx, c.GitDir(), commit) {
		c.whole[commit] = true
		return nil
	}
	if err != nil {
		return err
	}
	was := ""
	for i, p := range parents {
		if err := c.copyCommit(ctx, p); err != nil {
			return err
		}
		if i == 0 {
			was, _, _ = commitParts(c.mirror.dir, p) // one in a pack spares nothing
		}
	}
	var packed []string
	if err := c.copyTree(tree, was, &packed); err != nil {
		return err
	}
	if err := c.holds(ctx, packed); err != nil {
		return err
	}
	if err := c.copyObject(commit); err != nil {
		return err
	}
	c.whole[commit] = true
	return nil
}

// copyTree copies what a tree has that was, a tree in the clone, has not. What
// is not loose is added to packed.
func (c *Clone) copyTree(tree, was string, packed *[]string) error {
	if tree == was {
		return nil
	}
	entries, err := readTree(c.mirror.dir, tree)
	if err != nil {
		*packed = append(*packed, tree)
		return nil
	}
	before, err := namedEntries(c.mirror.dir, was)
	if err != nil {
		before = nil // it is in a pack: each entry is looked at
	}
	for _, e := range entries {
		old := before[e.name]
		switch {
		case e.hash == old.hash || e.mode == modeModule:
		case e.mode == modeTree:
			err = c.copyTree(e.hash, subtree(old), packed)
		default:
			if err = c.copyObject(e.hash); errors.Is(err, errNotLoose) {
				*packed, err = append(*packed, e.hash), nil
			}
		}
		if err != nil {
			return err
		}
	}
	return c.copyObject(tree)
}

// copyObject copies a loose object unless it is there.
func (c *Clone) copyObject(hash string) error {
	to := loosePath(c.GitDir(), hash)
	if _, err := os.Lstat(to); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	switch err := copyFile(loosePath(c.mirror.dir, hash), to, 0o400); {
	case errors.Is(err, fs.ErrNotExist):
		return errNotLoose
	case errors.Is(err, fs.ErrExist):
		return nil
	default:
		return err
	}
}

// holds wants all of the objects to be in the clone.
func (c *Clone) holds(ctx context.Context, objects []string) error {
	if len(objects) == 0 {
		return nil
	}
	out, err := run(ctx, call{
		gitDir: c.GitDir(), stdin: strings.NewReader(strings.Join(objects, "\n") + "\n"), args: []string{"cat-file", "--batch-check=%(objectname)"},
	})
	if err != nil {
		return fmt.Errorf("look for objects in the clone: %w", err)
	}
	if strings.Contains(string(out), " missing") {
		return errNotLoose
	}
	return nil
}
