package repo

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// listing is every file and link below dir, with its content.
func listing(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel := ok[string](t)(filepath.Rel(dir, path))
		if d.Type()&fs.ModeSymlink != 0 {
			all[rel] = "-> " + ok[string](t)(os.Readlink(path))
		} else {
			all[rel] = string(ok[[]byte](t)(os.ReadFile(path)))
		}
		return nil
	}))
	return all
}

func TestCheckoutBringsADirectoryToACommit(t *testing.T) {
	first := files{".gitignore": "node_modules/\n*.o\n", "src/main.c": "1111", "src/old.c": "o", "link": "-> src/main.c", "run.sh": "#!/bin/sh\n"}
	m, base := newMirror(t, first)
	next := commit(t, m, base, files{"src/old.c": "", "src/main.c": "2222", "new.txt": "n"})
	for name, row := range map[string]struct {
		before files // what the engine's commands left after the first checkout
		rm     []string
		extra  files // what must be there beside the second commit
	}{
		"nothing happened":                  {},
		"products and packages stay":        {before: files{"node_modules/x/index.js": "x", "src/main.o": "o"}, extra: files{"node_modules/x/index.js": "x", "src/main.o": "o"}},
		"strays go":                         {before: files{"stray": "s", "src/deep/stray": "s"}},
		"a changed file is put back":        {before: files{"src/main.c": "hacked", "run.sh": "other"}},
		"a removed file comes back":         {rm: []string{"src"}},
		"a file in place of a directory":    {rm: []string{"src"}, before: files{"src": "file"}},
		"a directory in place of a file":    {rm: []string{"run.sh"}, before: files{"run.sh/deep/f": "f"}},
		"a stray that hides itself":         {before: files{"src/.gitignore": "*\n", "src/impl.c": "hidden"}},
		"a stray directory of that kind":    {before: files{"gen/.gitignore": "*\n", "gen/impl.c": "hidden"}},
		"a changed list of ignored files":   {before: files{".gitignore": "*\n", "stray": "hidden"}},
		"a repository at the top":           {before: files{".git/config": "[core]\n\tfsmonitor = false\n", ".git/HEAD": "ref: refs/heads/x\n"}},
		"a .git file at the top":            {before: files{".git": "gitdir: /nowhere\n"}},
		"a nested repository":               {before: files{"sub/.git/HEAD": "ref: refs/heads/x\n", "sub/.git/objects/x": "x", "sub/.git/refs/x": "x", "sub/f": "f"}},
		"a file that the next commit has":   {before: files{"new.txt": "squatter"}},
		"a link that the next commit needs": {before: files{"new.txt": "-> /dev/null"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "evidence")
			must(t, m.Checkout(t.Context(), base, dir))
			sameFiles(t, listing(t, dir), first)
			for _, path := range row.rm {
				must(t, os.RemoveAll(filepath.Join(dir, path)))
			}
			row.before.write(t, dir)
			must(t, m.Checkout(t.Context(), next, dir))
			want := files{".gitignore": first[".gitignore"], "src/main.c": "2222", "link": "-> src/main.c", "run.sh": "#!/bin/sh\n", "new.txt": "n"}
			for path, text := range row.extra {
				want[path] = text
			}
			sameFiles(t, listing(t, dir), want)
			info := ok[os.FileInfo](t)(os.Stat(filepath.Join(dir, "run.sh")))
			equal(t, "executable", info.Mode()&0o100 != 0, true)
		})
	}
}

func sameFiles(t *testing.T, got map[string]string, want files) {
	t.Helper()
	var paths []string
	for path := range got {
		paths = append(paths, path)
	}
	for path := range want {
		if !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	for _, path := range paths {
		equal(t, path, got[path], want[path])
	}
}

func TestCheckoutSeesAnEditThatPutsItsTimeBack(t *testing.T) {
	m, base := newMirror(t, files{"f": "good"})
	dir := t.TempDir()
	for range 10 {
		must(t, m.Checkout(t.Context(), base, dir))
		path := filepath.Join(dir, "f")
		at := ok[os.FileInfo](t)(os.Stat(path)).ModTime()
		must(t, os.WriteFile(path, []byte("evil"), 0o644))
		must(t, os.Chtimes(path, at, at))
		must(t, m.Checkout(t.Context(), base, dir))
		equal(t, "content", string(ok[[]byte](t)(os.ReadFile(path))), "good")
	}
}

func TestCheckoutKeepsTheTimesOfUnchangedFiles(t *testing.T) {
	m, base := newMirror(t, files{"same": "s", "other": "1"})
	next := commit(t, m, base, files{"other": "2"})
	dir := t.TempDir()
	must(t, m.Checkout(t.Context(), base, dir))
	path := filepath.Join(dir, "same")
	before := ok[os.FileInfo](t)(os.Stat(path))
	must(t, m.Checkout(t.Context(), next, dir))
	after := ok[os.FileInfo](t)(os.Stat(path))
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("an unchanged file was written again: incremental builds start from nothing")
	}
}

func TestCheckoutWritesNothingOutside(t *testing.T) {
	m, base := newMirror(t, files{"src/a": "1", "src/b": "1", "top": "1"})
	next := commit(t, m, base, files{"src/a": "2", "src/b": "", "src/c": "2", "top": "2"})
	for name, set := range map[string]func(t *testing.T, dir, outside string){
		"a directory became a link": func(t *testing.T, dir, outside string) {
			must(t, os.RemoveAll(filepath.Join(dir, "src")))
			must(t, os.Symlink(outside, filepath.Join(dir, "src")))
		},
		"a file became a link": func(t *testing.T, dir, outside string) {
			must(t, os.Remove(filepath.Join(dir, "top")))
			must(t, os.Symlink(filepath.Join(outside, "a"), filepath.Join(dir, "top")))
		},
		"a list of ignored files became a link": func(t *testing.T, dir, outside string) {
			must(t, os.Symlink(filepath.Join(outside, "a"), filepath.Join(dir, ".gitignore")))
		},
		"the top became a link": func(t *testing.T, dir, outside string) {
			must(t, os.RemoveAll(dir))
			must(t, os.Symlink(outside, dir))
		},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			precious := files{"a": "precious", "b": "precious", ".gitignore": "*"}
			precious.write(t, outside)
			dir := filepath.Join(t.TempDir(), "evidence")
			must(t, m.Checkout(t.Context(), base, dir))
			set(t, dir, outside)
			must(t, m.Checkout(t.Context(), next, dir))
			sameFiles(t, listing(t, outside), precious)
			sameFiles(t, listing(t, dir), files{"src/a": "2", "src/c": "2", "top": "2"})
		})
	}
}
