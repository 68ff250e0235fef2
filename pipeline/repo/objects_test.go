package repo

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// mirrorGit runs git on the mirror as any user of it would.
func mirrorGit(t testing.TB, m *Mirror, args ...string) string {
	t.Helper()
	return userGit(t, m.dir, args...)
}

// pack moves every loose object of the mirror into a pack, and has it forget
// what it read of them.
func pack(t testing.TB, m *Mirror) {
	t.Helper()
	packBehind(t, m)
	m.commits, m.trees, m.lengths = memo[commitParts]{}, memo[[]treeEntry]{}, memo[int64]{}
}

// packBehind packs behind the mirror's back.
func packBehind(t testing.TB, m *Mirror) {
	t.Helper()
	mirrorGit(t, m, "repack", "-a", "-d", "-q")
	mirrorGit(t, m, "prune-packed", "-q")
}

func TestCommitIsTheOneThatGitWouldMake(t *testing.T) {
	m, base := newMirror(t, files{"a": "1"})
	tree := ok[string](t)(m.Tree(t.Context(), base))
	got := ok[string](t)(m.CommitTree(t.Context(), tree, []string{base}, Commit{
		Message: "Say it\n\nin two parts", Author: Person{"Ada Lovelace", "ada@example.com"}, CoAuthors: []Person{{"Bob", "bob@example.com"}}, Time: when,
	}))
	want := ok[string](t)(line(t.Context(), call{
		gitDir: m.dir, args: []string{"commit-tree", tree, "-p", base},
		stdin: strings.NewReader("Say it\n\nin two parts\n\nCo-authored-by: Bob <bob@example.com>\n"),
		env: []string{
			"GIT_AUTHOR_NAME=Ada Lovelace", "GIT_AUTHOR_EMAIL=ada@example.com",
			fmt.Sprintf("GIT_AUTHOR_DATE=@%d +0000", when.Unix()), fmt.Sprintf("GIT_COMMITTER_DATE=@%d +0000", when.Unix()),
		},
	}))
	equal(t, "commit", got, want)
	mirrorGit(t, m, "fsck", "--strict", "--no-dangling")
}

func TestCommitWantsWhatItNamesToBeThere(t *testing.T) {
	m, base := newMirror(t, files{"a": "1"})
	tree := ok[string](t)(m.Tree(t.Context(), base))
	gone := strings.Repeat("ab", 20)
	for name, c := range map[string]struct {
		tree    string
		parents []string
	}{
		"a tree that is not there":   {gone, []string{base}},
		"a commit for a tree":        {base, nil},
		"a parent that is not there": {tree, []string{gone}},
		"a tree for a parent":        {tree, []string{tree}},
		"an option for a tree":       {"--help", nil},
	} {
		t.Run(name, func(t *testing.T) {
			if sha, err := m.CommitTree(t.Context(), c.tree, c.parents, Commit{Message: "m", Time: when}); err == nil {
				t.Errorf("it made %s", sha)
			}
		})
	}
}

// What is read from loose objects has to be what git says of them and what
// is read from packs.
func TestLooseAndPackedObjectsTellTheSame(t *testing.T) {
	m, base := newMirror(t, files{"a": "1", "dir/b": "2", "dir/c": "3", "same/d": "4", "was-file": "5", "was-dir/e": "6", "run": "#!7"})
	without := commit(t, m, base, files{"dir/b": "", "was-file": "", "was-dir": ""})
	head := commit(t, m, without, files{
		"a": "one", "dir/new/deep": "8", "was-file/now-dir": "9", "was-dir": "10", "link": "-> a", "same/d": "-> e",
	})
	type told struct {
		changes []Change
		top     []string
		tree    string
		has     bool
	}
	tell := func() told {
		return told{
			ok[[]Change](t)(m.Changed(t.Context(), base, head)), ok[[]string](t)(m.Top(t.Context(), head)),
			ok[string](t)(m.Tree(t.Context(), head)), m.Has(t.Context(), head),
		}
	}
	if _, err := m.looseChanges(ok[string](t)(m.Tree(t.Context(), base)), ok[string](t)(m.Tree(t.Context(), head)), ""); err != nil {
		t.Fatal("the fixture is not loose: ", err)
	}
	loose := tell()
	pack(t, m)
	if _, err := openLoose(m.dir, head); !errors.Is(err, errNotLoose) {
		t.Fatalf("it is still loose: %v", err)
	}
	packed := tell()
	equalList(t, "names at the top", loose.top, packed.top)
	equal(t, "tree", loose.tree, packed.tree)
	equal(t, "has", loose.has, packed.has)
	if !slices.Equal(loose.changes, packed.changes) || len(packed.changes) < 7 {
		t.Errorf("changes of loose objects:\n%v\nof packed ones:\n%v", loose.changes, packed.changes)
	}
}

func TestADamagedObjectIsNotBelieved(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "no zlib": "commit 3\x00abc", "cut short": "\x78\x01\x4b", "cut at the end": "all but the end"} {
		t.Run(name, func(t *testing.T) {
			m, base := newMirror(t, files{"a": "1"})
			head := commit(t, m, base, files{"a": "2"})
			path := loosePath(m.dir, head)
			whole := ok[[]byte](t)(os.ReadFile(path))
			must(t, os.Chmod(path, 0o600))
			defer func() { must(t, os.WriteFile(path, whole, 0o600)) }()
			if text == "all but the end" {
				text = string(whole[:len(whole)-6])
			}
			must(t, os.WriteFile(path, []byte(text), 0o600))
			if m.Has(t.Context(), head) {
				t.Error("the mirror says that it has it")
			}
		})
	}
}

func TestMovingARefLeavesToGitWhatIsNotSimple(t *testing.T) {
	const ref = "refs/slipway/b/x"
	m, base := newMirror(t, files{"a": "1"})
	head := commit(t, m, base, files{"a": "2"})
	must(t, m.moveLoose(ref, base, ""))
	equal(t, "as git reads it", mirrorGit(t, m, "rev-parse", ref), base)
	for name, move := range map[string]func() error{
		"it exists":         func() error { return m.moveLoose(ref, head, "") },
		"it is elsewhere":   func() error { return m.moveLoose(ref, head, head) },
		"it is not there":   func() error { return m.moveLoose("refs/slipway/b/y", head, base) },
		"below another ref": func() error { return m.moveLoose(ref+"/z", head, "") },
		"above other refs":  func() error { return m.moveLoose("refs/slipway/b", head, "") },
		"its lock is held": func() error {
			lock := filepath.Join(m.dir, ref+".lock")
			must(t, os.MkdirAll(filepath.Dir(lock), 0o700)) // packing the refs removes it
			must(t, os.WriteFile(lock, nil, 0o600))
			defer func() { must(t, os.Remove(lock)) }()
			return m.moveLoose(ref, head, base)
		},
		"refs are packed": func() error {
			mirrorGit(t, m, "pack-refs", "--all")
			return m.moveLoose(ref, head, base)
		},
	} {
		if err := move(); !errors.Is(err, errAskGit) {
			t.Errorf("%s: got %v", name, err)
		}
		equal(t, name, mirrorGit(t, m, "rev-parse", ref), base)
	}
	must(t, m.SetRef(t.Context(), ref, head, base)) // git can
	equal(t, "in the end", mirrorGit(t, m, "rev-parse", ref), head)
}

func TestMergeOfWhatFollowsBringsItsTree(t *testing.T) {
	m, base := newMirror(t, files{"a": "1"})
	first := commit(t, m, base, files{"a": "2"})
	second := commit(t, m, first, files{"b": "3"})
	merge := ok[Merge](t)(m.Merge(t.Context(), base, second))
	equal(t, "tree", merge.Tree, ok[string](t)(m.Tree(t.Context(), second)))
	back := ok[Merge](t)(m.Merge(t.Context(), second, base))
	equal(t, "the other way", back.Tree, ok[string](t)(m.Tree(t.Context(), second)))
}

// A commit is in the clone only with all that it needs, whether the mirror's
// objects are loose, packed before the clone was made, or packed after.
func TestTheCloneIsWholeHoweverCommitsGetThere(t *testing.T) {
	for name, prepare := range map[string]struct{ before, after func(testing.TB, *Mirror) }{
		"all loose":             {},
		"the base in a pack":    {before: pack},
		"all in a pack, later":  {after: pack},
		"the base, then all of": {before: pack, after: pack},
		"behind its back":       {after: packBehind},
	} {
		t.Run(name, func(t *testing.T) {
			m, base := newMirror(t, files{"a": "1", "dir/b": "2", "dir/sub/c": "3"})
			if prepare.before != nil {
				prepare.before(t, m)
			}
			c := ok[*Clone](t)(m.Clone(t.Context(), filepath.Join(t.TempDir(), "clone")))
			left := commit(t, m, base, files{"dir/sub/c": "left"})
			right := commit(t, m, base, files{"dir/b": "right", "new/d": "4"})
			merge := ok[Merge](t)(m.Merge(t.Context(), left, right))
			head := ok[string](t)(m.CommitTree(t.Context(), merge.Tree, []string{left, right}, Commit{Message: "Both", Time: when}))
			must(t, m.SetRef(t.Context(), "refs/slipway/b/x", head, Any))
			if prepare.after != nil {
				prepare.after(t, m)
			}
			dir := ok[string](t)(c.Worktree(t.Context(), "w", head))
			equal(t, "what git sees in the worktree", userGit(t, dir, "status", "--porcelain"), "")
			equal(t, "head", userGit(t, dir, "rev-parse", "HEAD"), head)
			equal(t, "branch", userGit(t, dir, "symbolic-ref", "HEAD"), "refs/heads/issue/w")
			userGit(t, dir, "fsck", "--connectivity-only", "--no-dangling", head)
			if text := ok[[]byte](t)(os.ReadFile(filepath.Join(dir, "dir/sub/c"))); string(text) != "left" {
				t.Errorf("dir/sub/c holds %q", text)
			}
			must(t, c.Remove(t.Context(), "w"))
		})
	}
}

// The index that a worktree was made with says when each file was written. An
// edit that keeps size and times is seen all the same.
func TestTheFirstCollectReadsEveryFile(t *testing.T) {
	m, base := newMirror(t, files{"a": "1111"})
	_, dir := newWorktree(t, m, base)
	path := filepath.Join(dir, "a")
	info := ok[os.FileInfo](t)(os.Stat(path))
	must(t, os.WriteFile(path, []byte("2222"), 0o644))
	must(t, os.Chtimes(path, time.Time{}, info.ModTime()))
	_, changed, err := m.Collect(t.Context(), dir, base, "refs/slipway/b/i", Commit{Message: "m", Time: when})
	if err != nil || !changed {
		t.Errorf("changed %v, error %v", changed, err)
	}
}

// Another base than the one that the worktree was made at is not mistaken for it.
func TestTheFirstCollectMayHaveAnotherBase(t *testing.T) {
	m, base := newMirror(t, files{"a": "1", ".gitignore": "kept\n"})
	other := commit(t, m, base, files{".gitignore": "", "kept": "tracked"})
	_, dir := newWorktree(t, m, base)
	must(t, os.WriteFile(filepath.Join(dir, "kept"), []byte("tracked"), 0o644))
	sha, _, err := m.Collect(t.Context(), dir, other, "refs/slipway/b/i", Commit{Message: "m", Time: when})
	must(t, err)
	if !slices.Contains(names(t, m, sha), "kept") {
		t.Error("a file that the base tracks was left out")
	}
}
