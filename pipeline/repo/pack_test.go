package repo

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestAPackIsTheWholeMirror(t *testing.T) {
	ctx := t.Context()
	m, first := newMirror(t, files{"a.txt": "a\n"})
	tree := ok[string](t)(m.Tree(ctx, first))
	kept := ok[string](t)(m.CommitTree(ctx, tree, []string{first}, Commit{Message: "kept"}))
	loose := ok[string](t)(m.CommitTree(ctx, tree, []string{kept}, Commit{Message: "named by a journal alone"}))
	must(t, m.SetRef(ctx, "refs/slipway/b-1/integration", kept, Any))
	refs := ok[[]Ref](t)(m.Refs(ctx, "refs/slipway"))

	file := ok[string](t)(m.Pack(ctx, t.TempDir()))
	pack := ok[[]byte](t)(os.ReadFile(file))
	there := ok[*Mirror](t)(Open(ctx, filepath.Join(t.TempDir(), "there.git")))
	must(t, there.Unpack(ctx, bytes.NewReader(pack), refs))
	if got := ok[[]Ref](t)(there.Refs(ctx, "refs/slipway")); !slices.Equal(got, refs) || len(refs) != 2 {
		t.Errorf("the refs are %v, and were %v", got, refs)
	}
	if !there.Has(ctx, loose) {
		t.Error("a commit that no ref names is missing")
	}
	must(t, there.SetRef(ctx, "refs/slipway/b-1/integration", loose, kept)) // git moves packed refs too

	for name, damaged := range map[string][]byte{
		"cut off": pack[:len(pack)-30], "changed": slices.Concat(pack[:len(pack)/2], []byte{pack[len(pack)/2] ^ 1}, pack[len(pack)/2+1:]),
	} {
		other := ok[*Mirror](t)(Open(ctx, filepath.Join(t.TempDir(), "other.git")))
		if err := other.Unpack(ctx, bytes.NewReader(damaged), refs); err == nil {
			t.Errorf("a pack that was %s is taken", name)
		}
	}
	other := ok[*Mirror](t)(Open(ctx, filepath.Join(t.TempDir(), "other.git")))
	missing := Ref{Name: "refs/slipway/b-1/lost", Commit: "0123456789012345678901234567890123456789"}
	if err := other.Unpack(ctx, bytes.NewReader(pack), append(refs, missing)); err == nil || len(ok[[]Ref](t)(other.Refs(ctx, "refs/slipway"))) != 0 {
		t.Errorf("a ref without its commit: %v", err)
	}
}

func TestWhatCannotBePacked(t *testing.T) {
	ctx := t.Context()
	empty := ok[*Mirror](t)(Open(ctx, filepath.Join(t.TempDir(), "empty.git")))
	if file, err := empty.Pack(ctx, t.TempDir()); file != "" || err != nil {
		t.Errorf("of nothing: %q, %v", file, err)
	}
	m, first := newMirror(t, files{"a.txt": "a\n"})
	tree := ok[string](t)(m.Tree(ctx, first))
	lost := ok[string](t)(m.CommitTree(ctx, tree, []string{first}, Commit{Message: "lost"}))
	path := loosePath(m.dir, lost)
	must(t, os.Chmod(path, 0o600))
	must(t, os.WriteFile(path, []byte("no object"), 0o600))
	if file, err := m.Pack(ctx, t.TempDir()); err == nil {
		t.Errorf("a damaged object is in %s", file)
	}
	must(t, os.Remove(path))
}
