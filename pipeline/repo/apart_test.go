package repo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// gitMerge is the tree that git makes of two commits.
func gitMerge(t *testing.T, m *Mirror, ours, theirs string) (tree string, clean bool) {
	t.Helper()
	out, err := m.git(t.Context(), "merge-tree", "--write-tree", "-z", "--name-only", "--no-messages", ours, theirs)
	if c := code(err); c != 0 && c != 1 {
		t.Fatal(err)
	}
	tree, _, _ = strings.Cut(string(out), "\x00")
	return tree, err == nil
}

// someChanges changes files below a few names: new ones, known ones, rarely one
// that goes.
func someChanges(r *rand.Rand, base files) files {
	changes := files{}
	for range 1 + r.IntN(3) {
		path := fmt.Sprintf("%c%d", 'a'+rune(r.IntN(3)), r.IntN(3))
		for range r.IntN(3) {
			path = fmt.Sprintf("d%d/%s", r.IntN(2), path)
		}
		if changes[path] = fmt.Sprint(r.IntN(4)); base[path] != "" && r.IntN(6) == 0 {
			changes[path] = "" // gone
		}
	}
	return changes
}

func TestMergeApartIsTheOneThatGitWouldMake(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	apart := 0
	for range 12 {
		base := files{"a0": "x", "d0/b1": "x", "d0/d1/c2": "x", "d1/a1": "x"}
		m, root := newMirror(t, base)
		heads := []string{root}
		for range 6 { // each grows on one of the others
			heads = append(heads, commit(t, m, heads[r.IntN(len(heads))], someChanges(r, base)))
		}
		for i := range heads {
			ours, theirs := heads[i], heads[r.IntN(len(heads))]
			want, clean := gitMerge(t, m, ours, theirs)
			got, err := m.mergeApart(ours, theirs)
			switch {
			case errors.Is(err, errAskGit):
				continue
			case err != nil:
				t.Fatal(err)
			case got != want || !clean:
				t.Errorf("merge of %s into %s: %s, git has %s, clean: %v", short(theirs), short(ours), got, want, clean)
			}
			apart++
			merged := ok[string](t)(m.CommitTree(t.Context(), got, []string{ours, theirs}, Commit{Message: "Merge", Time: when}))
			heads[i] = merged
		}
		mirrorGit(t, m, "fsck", "--strict", "--no-dangling")
	}
	if apart < 12 {
		t.Errorf("only %d merges were made without git", apart)
	}
}

func TestMergeApartLeavesTheRestToGit(t *testing.T) {
	long := strings.Repeat("line\n", 50)
	m, root := newMirror(t, files{"a": "1", "b": "2", "dir/long": long, "x/y": "1"})
	first := commit(t, m, root, files{"b": "3"})
	reverted := commit(t, m, first, files{"b": "2"})
	second := commit(t, m, first, files{"n": "1"})
	for name, row := range map[string]struct{ ours, theirs string }{
		"both changed a file":      {commit(t, m, root, files{"a": "2"}), commit(t, m, root, files{"a": "3"})},
		"both added a file":        {commit(t, m, root, files{"n": "2"}), commit(t, m, root, files{"n": "3"})},
		"one renamed a file":       {commit(t, m, root, files{"dir/long": "", "new": long}), commit(t, m, root, files{"dir/long": long + "end"})},
		"the other renamed it":     {commit(t, m, root, files{"dir/long": long + "end"}), commit(t, m, root, files{"dir/long": "", "new": long})},
		"a directory moved":        {commit(t, m, root, files{"x/y": "", "z/y": "1"}), commit(t, m, root, files{"x/new": "2"})},
		"a file and a directory":   {commit(t, m, root, files{"n": "2"}), commit(t, m, root, files{"n/m": "3"})},
		"a directory and a file":   {commit(t, m, root, files{"n/m": "2"}), commit(t, m, root, files{"n": "3"})},
		"a link in place of it":    {commit(t, m, root, files{"a": "-> b"}), commit(t, m, root, files{"b": "3"})},
		"a part was merged before": {ok[string](t)(m.CommitTree(t.Context(), ok[string](t)(m.Tree(t.Context(), reverted)), []string{root, reverted}, Commit{Message: "Merge"})), second},
	} {
		t.Run(name, func(t *testing.T) {
			if tree, err := m.mergeApart(row.ours, row.theirs); !errors.Is(err, errAskGit) {
				t.Errorf("got %s and %v", tree, err)
			}
		})
	}
}
