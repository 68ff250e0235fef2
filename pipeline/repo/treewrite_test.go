package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The tree of a collect is the one that git makes of the same files.
func TestTheTreeIsTheOneThatGitWouldWrite(t *testing.T) {
	m, base := newMirror(t, files{"a": "1", "a.b/c": "2", "a0/b.txt": "z", "dir/deep/er/f": "3", "dir/g": "4", "zero": "5", "sub-x": "6", "sub/x": "7"})
	for name, change := range map[string]files{
		"nothing":                          {},
		"a file at the top":                {"zero": "changed"},
		"a file deep below":                {"dir/deep/er/f": "changed"},
		"a new directory":                  {"new/one/two": "n", "new.txt": "n"},
		"names around a slash":             {"sub.x": "n", "sub/y": "n", "sub0": "n"},
		"a long name":                      {strings.Repeat("d/", 30) + strings.Repeat("n", 200): "n"},
		"links and what can be executed":   {"link": "-> dir/g", "run": "#!/bin/sh\n"},
		"names that are no UTF-8":          {"caf\xe9/\xff": "n"},
		"a directory that a file replaces": {"dir": "now a file"},
	} {
		t.Run(name, func(t *testing.T) {
			_, dir := newWorktree(t, m, base)
			if _, replaced := change["dir"]; replaced {
				must(t, os.RemoveAll(filepath.Join(dir, "dir")))
			}
			change.write(t, dir)
			if _, made := change["run"]; made {
				must(t, os.Chmod(filepath.Join(dir, "run"), 0o755))
			}
			ix := ok[scratchIndex](t)(m.newIndex())
			defer ix.discard()
			if !m.takeIndex(dir, base, ix) {
				t.Fatal("the index of the worktree is not remembered")
			}
			_ = ok[[]byte](t)(run(t.Context(), call{gitDir: m.dir, tree: dir, index: ix.path, args: []string{"add", "--all"}}))
			got, blank, err := m.writeTree(ix.path)
			must(t, err)
			mirrorGit(t, m, "fsck", "--strict", "--no-dangling")
			want := ok[string](t)(line(t.Context(), call{gitDir: m.dir, index: ix.path, args: []string{"write-tree"}}))
			equal(t, "tree", got, want)

			must(t, os.WriteFile(ix.path, blank, 0o600))
			// What git shows of each file are the times and numbers that the index has.
			show := call{gitDir: m.dir, index: ix.path, args: []string{"ls-files", "--stage", "--debug"}}
			left := ok[string](t)(line(t.Context(), show))
			_ = ok[[]byte](t)(run(t.Context(), call{gitDir: m.dir, index: ix.path, args: []string{"read-tree", got}}))
			equal(t, "blank index", left, ok[string](t)(line(t.Context(), show)))
		})
	}
}

func TestAnotherIndexIsLeftToGit(t *testing.T) {
	m, base := newMirror(t, files{"a": "1", "dir/b": "2"})
	whole := func(version string) []byte {
		ix := ok[scratchIndex](t)(m.newIndex())
		defer ix.discard()
		_ = ok[[]byte](t)(run(t.Context(), call{gitDir: m.dir, index: ix.path, config: [][2]string{{"index.version", version}}, args: []string{"read-tree", base}}))
		return ok[[]byte](t)(os.ReadFile(ix.path))
	}
	good := whole("2")
	if _, known, err := readIndex(good); err != nil || known == nil || known.entries != 2 || known.at("dir").entries != 1 {
		t.Fatalf("the fixture: %+v, %v", known, err)
	}
	if _, _, err := readIndex(whole("4")); err == nil {
		t.Error("an index of version 4 was read")
	}
	for n := range good { // cut anywhere it is refused or read as far as it goes, and nothing panics
		if entries, _, err := readIndex(good[:n]); err == nil && len(entries) != 2 {
			t.Errorf("%d of %d bytes: %d entries", n, len(good), len(entries))
		}
	}
}

// Whatever the bytes are, what is read names files.
func FuzzReadIndex(f *testing.F) {
	f.Add([]byte("DIRC\x00\x00\x00\x02\x00\x00\x00\x00" + "TREE\x00\x00\x00\x06\x00-1 0\n" + strings.Repeat("x", 20)))
	f.Fuzz(func(t *testing.T, text []byte) {
		entries, _, err := readIndex(text)
		for _, e := range entries {
			if err == nil && (e.path == "" || len(e.hash) != 20) {
				t.Errorf("entry %+v", e)
			}
		}
	})
}
