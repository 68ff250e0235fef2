package repo

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"strings"
)

// A Merge is the outcome of merging two commits. With conflicts the tree holds
// the files with conflict markers.
type Merge struct {
	Tree      string
	Conflicts []string // paths, sorted; empty when it is clean
}

// Merge merges theirs into ours without a work tree and without moving a ref.
// CommitTree with both as parents makes the merge commit.
func (m *Mirror) Merge(ctx context.Context, ours, theirs string) (Merge, error) {
	if err := checkRev(ours, theirs); err != nil {
		return Merge{}, err
	}
	if m.follows(theirs, ours) {
		tree, err := m.Tree(ctx, theirs)
		return Merge{Tree: tree}, err
	}
	if tree, err := m.mergeApart(ours, theirs); err == nil {
		return Merge{Tree: tree}, nil
	}
	out, err := m.git(ctx, "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
	if c := code(err); c != 0 && c != 1 { // 1: conflicts
		return Merge{}, fmt.Errorf("merge %s into %s: %w", short(theirs), short(ours), err)
	}
	fields := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	merge := Merge{Tree: fields[0], Conflicts: fields[1:]}
	if err := checkHash(merge.Tree); err != nil {
		return Merge{}, fmt.Errorf("merge %s into %s: git answered no tree: %w", short(theirs), short(ours), err)
	}
	if (code(err) == 1) != (len(merge.Conflicts) > 0) {
		return Merge{}, fmt.Errorf("merge %s into %s: git's verdict and its list of conflicts disagree", short(theirs), short(ours))
	}
	return merge, nil
}

// Parting is the best common ancestor of two commits.
func (m *Mirror) Parting(ctx context.Context, a, b string) (string, error) {
	if err := checkRev(a, b); err != nil {
		return "", err
	}
	out, err := m.git(ctx, "merge-base", a, b)
	if err != nil {
		return "", fmt.Errorf("find where %s and %s parted: %w", short(a), short(b), err)
	}
	base := strings.TrimSpace(string(out))
	return base, checkHash(base)
}

// follows tells whether commit was made on top of base, as far as a few loose
// commits show it: then a merge of it into base brings its tree.
func (m *Mirror) follows(commit, base string) bool {
	for range 16 {
		if commit == base {
			return true
		}
		c, err := m.parts(commit)
		if err != nil || len(c.parents) != 1 {
			return false
		}
		commit = c.parents[0]
	}
	return false
}

// Markers returns those of paths that hold conflict markers in commit. It is to
// be asked about files that were in conflict: a text about git may hold some of
// its own.
func (m *Mirror) Markers(ctx context.Context, commit string, paths []string) ([]string, error) {
	files, err := m.files(ctx, commit, paths)
	if err != nil {
		return nil, err
	}
	var marked []string
	for i, f := range files {
		if hasMarkers(paths[i], f) {
			marked = append(marked, paths[i])
		}
	}
	return marked, nil
}

func hasMarkers(name string, content []byte) bool {
	for line := range bytes.Lines(content) {
		line = bytes.TrimRight(line, "\r\n")
		for _, c := range []byte("<>|") {
			rest, ok := bytes.CutPrefix(line, bytes.Repeat([]byte{c}, 7))
			if ok && (len(rest) == 0 || rest[0] == ' ') {
				return true
			}
		}
		// The middle one alone is what a careless resolution leaves; in prose
		// it underlines a title.
		if string(line) == "=======" && !prose(name) {
			return true
		}
	}
	return false
}

func prose(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".markdown", ".rst", ".txt", ".adoc", "":
		return true
	}
	return false
}
