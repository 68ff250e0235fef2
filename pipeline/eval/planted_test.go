package eval_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/eval"
)

// TestPlantedFaultsAreWhereTheyAreSaidToBe takes every patch of testdata/review to
// its repository: it applies, the truth is in one of its hunks, and Go code compiles
// before and after.
func TestPlantedFaultsAreWhereTheyAreSaidToBe(t *testing.T) {
	suite, err := eval.Read("../../testdata/review/suite.yaml")
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]string{} // by fixture of Go: a module with a package for it and for each change of it
	faults := map[string]map[string]int{"language": {}, "lens": {}, "kind": {}}
	clean := map[string]int{}
	for _, c := range suite.Cases {
		dir := c.Fixture
		if c.Language() == "Go" {
			if modules[dir] == "" {
				modules[dir] = t.TempDir()
				put(t, modules[dir], "go.mod", c.Files["go.mod"])
				putPackage(t, filepath.Join(modules[dir], "base"), c.Files)
			}
		}
		changed, files := patched(t, c)
		if c.Language() == "Go" {
			putPackage(t, filepath.Join(modules[dir], strings.ReplaceAll(c.ID, "-", "_")), changed)
		}
		if len(c.Grader.Truth) == 0 {
			clean[c.Language()]++
		}
		for _, truth := range c.Grader.Truth {
			faults["language"][c.Language()]++
			faults["lens"][truth.Lens]++
			faults["kind"][truth.Kind]++
			if !within(files, truth) {
				t.Errorf("%s: %s:%d-%d is in no hunk of the patch", c.ID, truth.File, truth.StartLine, truth.EndLine)
			}
		}
		if len(c.Grader.Truth) > 1 {
			t.Errorf("%s has %d faults", c.ID, len(c.Grader.Truth))
		}
	}
	for fixture, dir := range modules {
		vet := exec.CommandContext(t.Context(), "go", "vet", "-copylocks=false", "-lostcancel=false", "./...")
		vet.Dir, vet.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod -trimpath", "GOWORK=off")
		if out, err := vet.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", fixture, err, out)
		}
	}
	for by, counts := range faults {
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%-10s %-26s %d", by, name, counts[name])
		}
	}
	t.Logf("clean: %v", clean)
}

// patched is the repository of a case with its patch on it.
func patched(t *testing.T, c eval.Case) (map[string]string, []*gitdiff.File) {
	t.Helper()
	files, _, err := gitdiff.Parse(bytes.NewReader(c.Patch))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d files: %v", c.ID, len(files), err)
	}
	changed := maps.Clone(c.Files)
	for _, f := range files {
		var out bytes.Buffer
		if err := gitdiff.Apply(&out, strings.NewReader(c.Files[f.OldName]), f); err != nil {
			t.Fatalf("%s: %s: %v", c.ID, f.NewName, err)
		}
		if _, known := c.Files[f.OldName]; !known && !f.IsNew {
			t.Fatalf("%s changes %s, which is not there", c.ID, f.OldName)
		}
		delete(changed, f.OldName)
		if !f.IsDelete {
			changed[f.NewName] = out.String()
		}
	}
	return changed, files
}

// within reports whether a hunk of the truth's file has all of its lines.
func within(files []*gitdiff.File, truth eval.Truth) bool {
	for _, f := range files {
		for _, h := range f.TextFragments {
			if f.NewName == truth.File && int64(truth.StartLine) >= h.NewPosition && int64(max(truth.StartLine, truth.EndLine)) < h.NewPosition+h.NewLines {
				return true
			}
		}
	}
	return false
}

func putPackage(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if filepath.Ext(name) == ".go" {
			put(t, dir, name, text)
		}
	}
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	file := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
