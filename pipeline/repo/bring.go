package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
	parts, err := c.mirror.parts(commit)
	// What is loose in the mirror is loose in the clone too, if it is there.
	if _, there := readCommit(c.GitDir(), commit); there == nil || err != nil && has(ctx, c.GitDir(), commit) {
		c.whole[commit] = true
		return nil
	}
	if err != nil {
		return err
	}
	was := ""
	for i, p := range parts.parents {
		if err := c.copyCommit(ctx, p); err != nil {
			return err
		}
		if i == 0 {
			first, _ := c.mirror.parts(p) // one in a pack spares nothing
			was = first.tree
		}
	}
	var packed []string
	if err := c.copyTree(parts.tree, was, &packed); err != nil {
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
	entries, err := c.mirror.entries(tree)
	if err != nil {
		*packed = append(*packed, tree)
		return nil
	}
	before, err := c.mirror.entries(was)
	if err != nil {
		before, err = nil, nil // it is in a pack: each entry is looked at
	}
	for old, e := range differing(before, entries) {
		switch {
		case e.hash == "" || e.hash == old.hash || e.mode == modeModule:
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
	from, err := open(loosePath(c.mirror.dir, hash), unix.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return c.hasLoose(hash)
	}
	if err != nil {
		return err
	}
	defer from.close()
	to, err := create(loosePath(c.GitDir(), hash), 0o400)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer to.close()
	buf := copies.Get().(*[]byte)
	defer copies.Put(buf)
	_, err = io.CopyBuffer(to, from, *buf)
	return err
}

// copies are buffers for copying objects.
var copies = sync.Pool{New: func() any { buf := make([]byte, 16<<10); return &buf }}

// hasLoose is errNotLoose when the clone has no such loose object.
func (c *Clone) hasLoose(hash string) error {
	if _, err := os.Lstat(loosePath(c.GitDir(), hash)); err != nil {
		return errNotLoose
	}
	return nil
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
