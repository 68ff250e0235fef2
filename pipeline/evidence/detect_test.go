package evidence

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/fstest"
)

func TestDetect(t *testing.T) {
	goCommands := Commands{Build: "go build ./...", Test: "go test ./...", Lint: "go vet ./..."}
	for name, tt := range map[string]struct {
		files map[string]string
		want  Commands
	}{
		"nothing":            {nil, Commands{}},
		"only prose":         {map[string]string{"README.md": "# Hello"}, Commands{}},
		"a makefile":         {map[string]string{"Makefile": "test:\n\trm -rf /"}, Commands{}},
		"go":                 {map[string]string{"go.mod": "module x"}, goCommands},
		"go below the top":   {map[string]string{"sub/go.mod": "module x"}, Commands{}},
		"node with scripts":  {map[string]string{"package.json": `{"scripts":{"build":"tsc","test":"node --test","lint":"eslint ."}}`}, Commands{Build: "npm run build", Test: "npm test", Lint: "npm run lint"}},
		"node with a lock":   {map[string]string{"package.json": `{"scripts":{"test":"x"}}`, "package-lock.json": "{}"}, Commands{Setup: "npm ci", Test: "npm test"}},
		"node with needs":    {map[string]string{"package.json": `{"scripts":{"test":"x"},"devDependencies":{"x":"1"}}`}, Commands{Setup: "npm install", Test: "npm test"}},
		"npm's default test": {map[string]string{"package.json": `{"scripts":{"test":"echo \"Error: no test specified\" && exit 1"},"dependencies":{"x":"1"}}`}, Commands{}},
		"a broken package":   {map[string]string{"package.json": `{"scripts":[`}, Commands{}},
		"python, unittest":   {map[string]string{"setup.py": "", "tests/test_a.py": "import unittest"}, Commands{Test: "python3 -m unittest discover"}},
		"python, pytest.ini": {map[string]string{"pytest.ini": "[pytest]"}, Commands{Test: "python3 -m pytest -q"}},
		"python, configured": {map[string]string{"pyproject.toml": "[tool.pytest.ini_options]\n"}, Commands{Test: "python3 -m pytest -q"}},
		"python, imported":   {map[string]string{"requirements.txt": "x", "pkg/a_test.py": "import os\nfrom pytest import mark\n"}, Commands{Test: "python3 -m pytest -q"}},
		"python, no tests":   {map[string]string{"pyproject.toml": "[project]", ".venv/test_x.py": "import pytest"}, Commands{}},
		"scripts of nobody":  {map[string]string{"test_a.py": "import unittest"}, Commands{}},
		"go and node": {map[string]string{"go.mod": "module x", "package.json": `{"scripts":{"test":"x"}}`}, Commands{
			Build: "go build ./...", Test: "go test ./... && npm test", Lint: "go vet ./...",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for file, text := range tt.files {
				tree[file] = &fstest.MapFile{Data: []byte(text)}
			}
			got, lookedAt := Detect(tree)
			if got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			for _, file := range []string{"go.mod", "package.json", "pyproject.toml", "setup.py", "requirements.txt"} {
				if !slices.Contains(lookedAt, file) {
					t.Errorf("%s is not named among %v", file, lookedAt)
				}
			}
		})
	}
}

func TestNothingIsWhatRunFindsWithoutTheFiles(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("# Hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	seen, err := (&Runner{}).Run(t.Context(), Checkout{Dir: dir}, Commands{}, SetupState{})
	if err != nil {
		t.Fatal(err)
	}
	if nothing := Nothing(); !reflect.DeepEqual(seen, nothing) || !nothing.None || !slices.Contains(nothing.LookedAt, "go.mod") {
		t.Errorf("a checkout shows %+v, want %+v", seen, nothing)
	}
}

func TestTail(t *testing.T) {
	var short tail
	_, _ = short.Write([]byte("a\nb\n"))
	if got := short.String(); got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
	var long tail
	for range 3000 {
		_, _ = long.Write([]byte("a line of ééé\n"))
	}
	_, _ = long.Write([]byte("the end\n"))
	got := long.String()
	if len(got) > maxTail || len(got) < maxTail-100 {
		t.Errorf("%d bytes are kept", len(got))
	}
	if want := cutNote + "a line of ééé\n"; got[:len(want)] != want {
		t.Errorf("it begins with %q", got[:len(want)])
	}
	if want := "ééé\nthe end\n"; got[len(got)-len(want):] != want {
		t.Errorf("it ends with %q", got[len(got)-40:])
	}
}
