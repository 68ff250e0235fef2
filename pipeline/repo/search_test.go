package repo

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// No name that stands for .git is spared the closer look.
func TestNamesOfGitAreLookedAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ignored := rapid.SampledFrom([]string{"", "\u200c", "\u202a", "\ufeff"})
		name := ""
		for _, r := range rapid.SampledFrom([]string{".git", ".GIT", ".Git", "git~1", "GIT~1", ".gİt", "agit", "ſgit"}).Draw(t, "name") {
			name += ignored.Draw(t, "ignored") + string(r)
		}
		name += rapid.SampledFrom([]string{"", ".", " . ", ":stream", "x"}).Draw(t, "ending")
		if dotGit(name) && !couldBeGit([]byte(name)) {
			t.Fatalf("%q is not looked at", name)
		}
	})
}

func TestADirectoryIsListedWhole(t *testing.T) {
	dir := t.TempDir()
	want := files{"dir/below": "x", "link": "-> nowhere"}
	for i := range 700 {
		want[strings.Repeat("long", 40)+fmt.Sprint(i)] = "x"
	}
	want.write(t, dir)
	kinds := map[byte]int{}
	seen := map[string]bool{}
	must(t, eachName(dir, make([]byte, 4096), func(name []byte, kind byte) error {
		seen[string(name)] = true
		kinds[kind]++
		return nil
	}))
	if len(seen) != 702 || kinds[unix.DT_DIR] != 1 || kinds[unix.DT_LNK] != 1 || kinds[unix.DT_REG] != 700 {
		t.Errorf("%d names, kinds %v", len(seen), kinds)
	}
	if err := eachName(filepath.Join(dir, "link"), make([]byte, 4096), nil); err == nil {
		t.Error("a link is read as a directory")
	}
}
