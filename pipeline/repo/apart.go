package repo

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Merging without a git process what two sides changed in different files. What
// a merge is to say about a file that both changed, or that one of them deleted
// and so may have renamed, is left to git.

// How far history is read here before git is asked.
const (
	maxFirsts   = 48  // landings of one side
	maxFollowed = 16  // commits of the other since the two parted
	maxWalked   = 256 // commits of the one, for any that is of the other too
)

// mergeApart is the tree of a merge of two commits that touched nothing in common.
// errAskGit says that git has to merge them.
func (m *Mirror) mergeApart(ours, theirs string) (tree string, err error) {
	base, err := m.parting(ours, theirs)
	if err != nil {
		return "", err
	}
	var trees [3]string
	for i, commit := range []string{base, ours, theirs} {
		c, err := m.parts(commit)
		if err != nil {
			return "", errAskGit
		}
		trees[i] = c.tree
	}
	for _, side := range trees[1:] {
		changes, err := m.looseChanges(trees[0], side, "")
		if err != nil || slices.ContainsFunc(changes, needsGit) {
			return "", errAskGit
		}
	}
	return m.mergeTrees(trees[0], trees[1], trees[2])
}

// needsGit tells of a change what is more than new content in a file: what is gone
// may be somewhere else under another name.
func needsGit(e entry) bool {
	return e.status != "M" && e.status != "A" || e.newMode == modeModule
}

// parting is where theirs left the history of ours: the one merge base, when every
// commit since then has one parent and is not in that history.
func (m *Mirror) parting(ours, theirs string) (base string, err error) {
	landings := m.firsts(ours)
	own := map[string]bool{}
	for base = theirs; landings[base] == 0; {
		c, err := m.parts(base)
		if err != nil || len(c.parents) != 1 || len(own) == maxFollowed {
			return "", errAskGit
		}
		own[base], base = true, c.parents[0]
	}
	for left, seen := []string{ours}, 0; len(left) > 0; seen++ {
		commit := left[len(left)-1]
		left = left[:len(left)-1]
		if landings[commit] >= landings[base] {
			continue // what comes before the base does not follow it
		}
		c, err := m.parts(commit)
		if err != nil || own[commit] || seen == maxWalked {
			return "", errAskGit
		}
		left = append(left, c.parents...)
	}
	return base, nil
}

// firsts are a commit, its first parent, the first parent of that, and so on, as
// far as they are loose, numbered from 1.
func (m *Mirror) firsts(commit string) map[string]int {
	line := map[string]int{}
	for len(line) < maxFirsts {
		c, err := m.parts(commit)
		if err != nil {
			break
		}
		line[commit] = len(line) + 1
		if len(c.parents) == 0 {
			break
		}
		commit = c.parents[0]
	}
	return line
}

// mergeTrees brings into ours what theirs changed since base, and returns the tree
// of both. Each is a loose tree, or "" for none.
func (m *Mirror) mergeTrees(base, ours, theirs string) (string, error) {
	switch base {
	case ours:
		return theirs, nil
	case theirs:
		return ours, nil
	}
	var lists [3][]treeEntry
	for i, tree := range []string{base, ours, theirs} {
		entries, err := m.entries(tree)
		if err != nil {
			return "", errAskGit
		}
		lists[i] = entries
	}
	merged := slices.Clone(lists[1]) // the others' memory is not to be changed
	for was, is := range differing(lists[0], lists[2]) {
		at := slices.IndexFunc(merged, func(e treeEntry) bool { return is.name != "" && e.name == is.name })
		var now treeEntry
		if at >= 0 {
			now = merged[at]
		}
		switch {
		case is.name == "":
			return "", errAskGit
		case now == is:
		case now == was && at >= 0:
			merged[at] = is
		case now == was:
			at, _ = slices.BinarySearchFunc(merged, is, func(a, b treeEntry) int { return byPlace([]treeEntry{a}, []treeEntry{b}) })
			merged = slices.Insert(merged, at, is)
		case now.mode == modeTree && is.mode == modeTree:
			both, err := m.mergeTrees(subtree(was), now.hash, is.hash)
			if err != nil {
				return "", err
			}
			merged[at].hash = both
		default:
			return "", errAskGit
		}
	}
	return m.writeEntries(merged)
}

// writeEntries makes a tree durable and remembers it.
func (m *Mirror) writeEntries(entries []treeEntry) (string, error) {
	var body bytes.Buffer
	for _, e := range entries {
		hash, err := hex.DecodeString(e.hash)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&body, "%s %s\x00%s", strings.TrimPrefix(e.mode, "0"), e.name, hash)
	}
	tree, err := writeLoose(m.dir, treeKind, body.Bytes())
	if err != nil {
		return "", err
	}
	_, err = m.trees.get(tree, func() ([]treeEntry, error) { return entries, nil }, weigh)
	return tree, err
}
