package slipway_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// TestEveryDependencyIsExplained compares the tables of docs/dependencies.md
// with what go.mod requires: every direct module has a row, and no row names a
// module or a version that is not there.
func TestEveryDependencyIsExplained(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "mod", "edit", "-json").Output()
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path, Version string
			Indirect      bool
		}
	}
	if err := json.Unmarshal(out, &mod); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (v[^ ]+) \\| [^|]+ \\| [^|]+ \\|$").FindAllStringSubmatch(string(page), -1) {
		rows[m[1]] = m[2]
	}
	for _, r := range mod.Require {
		row, ok := rows[r.Path]
		switch {
		case !ok && !r.Indirect:
			t.Errorf("%s has no row in docs/dependencies.md: say what it does that fifty lines of ours would not", r.Path)
		case ok && row != r.Version:
			t.Errorf("%s is %s in go.mod and %s in docs/dependencies.md", r.Path, r.Version, row)
		}
		delete(rows, r.Path)
	}
	for path := range rows {
		t.Errorf("docs/dependencies.md has a row for %s, which go.mod does not require", path)
	}
	if n := strings.Count(string(page), "\n| `"); n < 15 {
		t.Errorf("only %d rows were found", n)
	}
}
