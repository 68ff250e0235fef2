package repo

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// A scratch index is git's list of a directory's files for one operation. It
// lies in the mirror, where no agent can reach it, and an aborted git leaves
// nothing locked or half written in it.
type scratchIndex struct{ path string }

// An index that was not used for so long belongs to a directory that is gone.
const indexAge = 7 * 24 * time.Hour

func (m *Mirror) indexes() string { return filepath.Join(m.private(), "index") }

func (m *Mirror) newIndex() (scratchIndex, error) {
	if err := os.MkdirAll(m.indexes(), 0o700); err != nil {
		return scratchIndex{}, fmt.Errorf("index: %w", err)
	}
	tmp, err := os.MkdirTemp(m.indexes(), "work-")
	if err != nil {
		return scratchIndex{}, fmt.Errorf("index: %w", err)
	}
	return scratchIndex{filepath.Join(tmp, "index")}, nil
}

func (ix scratchIndex) discard() {
	dir := filepath.Dir(ix.path)
	_ = os.Remove(ix.path) // it may have been put elsewhere
	if os.Remove(dir) != nil {
		_ = os.RemoveAll(dir) // git left more; else a sweep does it
	}
}

// The index of a checkout is remembered, so that the next one in the same
// directory knows which files the last one put there.
func (m *Mirror) memory(dir string) string {
	key := sha256.Sum256([]byte(dir))
	return filepath.Join(m.indexes(), hex.EncodeToString(key[:16]))
}

// recall fills the index from memory; none is an empty index.
//
// Git takes a file for unchanged when size and times are, unless the file is
// not older than the index: then it compares contents. Whoever runs in the
// directory can set times, and git's have whole seconds; an index dated at the
// beginning of time makes git compare always.
func (ix scratchIndex) recall(memory string) error {
	if err := copyFile(memory, ix.path, 0o600); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return os.Chtimes(ix.path, beginning, beginning)
}

// beginning is older than any file.
var beginning = time.Unix(1, 0)

func (ix scratchIndex) remember(memory string) error {
	if err := os.Rename(ix.path, memory); err != nil {
		return fmt.Errorf("index: %w", err)
	}
	return nil
}

// keepIndex remembers the index of a worktree at a commit, for the first collect.
// It is the one that wrote the files: an index that read what an agent left could
// hold times that are older than beginning.
func (m *Mirror) keepIndex(dir, commit string, ix scratchIndex) error {
	if err := ix.remember(m.memory(dir)); err != nil {
		return err
	}
	m.indexed.Store(dir, commit)
	return nil
}

// keepBlank remembers the index of a worktree at a tree, for the next collect. It
// knows no times, those least of all that an agent may have set.
func (m *Mirror) keepBlank(dir, tree string, blank []byte, ix scratchIndex) {
	if os.WriteFile(ix.path, blank, 0o600) == nil && ix.remember(m.memory(dir)) == nil {
		m.indexed.Store(dir, tree) // else the next collect makes its own
	}
}

// takeIndex fills the index with the remembered one, if it is of that commit or of
// its tree. What it says of the files counts for nothing, as in recall.
func (m *Mirror) takeIndex(dir, commit string, ix scratchIndex) (found bool) {
	of, known := m.indexed.LoadAndDelete(dir)
	if !known {
		return false
	}
	if of != commit {
		if c, err := m.parts(commit); err != nil || of != c.tree {
			return false
		}
	}
	return os.Rename(m.memory(dir), ix.path) == nil && os.Chtimes(ix.path, beginning, beginning) == nil
}

// dropIndex forgets the index of a worktree that goes.
func (m *Mirror) dropIndex(dir string) {
	if _, known := m.indexed.LoadAndDelete(dir); known {
		_ = os.Remove(m.memory(dir)) // else a sweep does it
	}
}

func copyFile(from, to string, mode fs.FileMode) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
