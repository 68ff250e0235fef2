package repo

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestChanged(t *testing.T) {
	m, base := newMirror(t, files{"mod": "1", "gone": "12345", "link": "-> mod", "same": "s", "moved": strings.Repeat("m", 100)})
	head := commit(t, m, base, files{"mod": "123", "gone": "", "link": "now a file", "new\nline \"ü\"": "12", "moved": "", "to/moved": strings.Repeat("m", 100)})
	want := []Change{
		{Deleted, "gone", 5, 0},
		{Retyped, "link", 3, 10},
		{Modified, "mod", 1, 3},
		{Deleted, "moved", 100, 0},
		{Added, "new\nline \"ü\"", 0, 2},
		{Added, "to/moved", 0, 100},
	}
	if got := ok[[]Change](t)(m.Changed(t.Context(), base, head)); !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if got := ok[[]Change](t)(m.Changed(t.Context(), base, base)); len(got) != 0 {
		t.Errorf("nothing changed, but got %v", got)
	}
	if _, err := m.Changed(t.Context(), base, "-h"); err == nil {
		t.Error("an option passed")
	}
}

func TestStat(t *testing.T) {
	m, base := newMirror(t, files{"mod": "1\n2\n3\n", "gone": "1\n2\n", "bin": "\x00\x01", "same": "s"})
	head := commit(t, m, base, files{"mod": "1\nzwei\n3\n4\n", "gone": "", "bin": "\x00\x02", "new\nline \"ü\"\t": "a\nb"})
	added, deleted, files, err := m.Stat(t.Context(), base, head)
	if err != nil || added != 4 || deleted != 3 || files != 4 {
		t.Errorf("+%d -%d in %d files, %v", added, deleted, files, err)
	}
	if added, deleted, files, err = m.Stat(t.Context(), base, base); err != nil || added+deleted+files != 0 {
		t.Errorf("nothing: +%d -%d in %d files, %v", added, deleted, files, err)
	}
	if _, _, _, err = m.Stat(t.Context(), base, "-h"); err == nil {
		t.Error("an option passed")
	}
}

func TestChangedSubmodule(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	user := userRepo(t, files{"f": "1"})
	userGit(t, user, "update-index", "--add", "--cacheinfo", "160000,"+strings.Repeat("7", 40)+",sub")
	userGit(t, user, "commit", "-q", "-m", "sub")
	head := ok[string](t)(m.Fetch(t.Context(), Remote{URL: user}, "main"))
	got := ok[[]Change](t)(m.Changed(t.Context(), base, head))
	if !slices.Equal(got, []Change{{Added, "sub", 0, 0}}) {
		t.Errorf("got %v", got)
	}
	if _, err := m.File(t.Context(), head, "sub"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a submodule as a file: %v", err)
	}
}

func TestDiffIsBounded(t *testing.T) {
	m, base := newMirror(t, files{"f": "1\n"})
	head := commit(t, m, base, files{"f": strings.Repeat("zeile ünï\n", 200_000), "bin": "\x00\xff"})
	small := commit(t, m, base, files{"f": "2\n"})
	whole := ok[string](t)(m.Diff(t.Context(), base, small, 10_000))
	if !strings.Contains(whole, "\n-1\n+2\n") || strings.Contains(whole, "cut") {
		t.Errorf("got %q", whole)
	}
	for _, max := range []int{1, 100, 5000, 100_000} {
		cut := ok[string](t)(m.Diff(t.Context(), base, head, max))
		if len(cut) > max+100 || !strings.HasSuffix(cut, "cut here]\n") || !utf8.ValidString(cut) {
			t.Errorf("max %d: %d bytes, end %q", max, len(cut), cut[len(cut)-60:])
		}
	}
	equal(t, "no change", ok[string](t)(m.Diff(t.Context(), base, base, 10)), "")
	if _, err := m.Diff(t.Context(), base, head, 0); err == nil {
		t.Error("no bound")
	}
}

func TestFile(t *testing.T) {
	m, base := newMirror(t, files{"dir/f": "text\n\x00\xff", "link": "-> dir/f", "x missing\ny": "odd", "empty": "#!"})
	for path, want := range map[string]string{"dir/f": "text\n\x00\xff", "link": "dir/f", "x missing\ny": "odd", "empty": "#!"} {
		equal(t, path, string(ok[[]byte](t)(m.File(t.Context(), base, path))), want)
	}
	for _, path := range []string{"dir", "none", "dir/f/x", "new\nline"} {
		if _, err := m.File(t.Context(), base, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %v, want fs.ErrNotExist", path, err)
		}
	}
	for _, path := range []string{"", ".", "../x", "/etc/passwd", "./dir/f", "a\x00b"} {
		if _, err := m.File(t.Context(), base, path); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: got %v, want a refusal", path, err)
		}
	}
}
