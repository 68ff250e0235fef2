package evidence

import (
	"encoding/json"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Detect finds the commands of a repository by the files at its top, and names the
// files that it looked for. Of a repository in several languages each command runs
// for all of them. Nothing is guessed beyond the habits of Go, npm and Python.
func Detect(tree fs.FS) (Commands, []string) {
	d := detector{tree: tree}
	found := []Commands{d.golang(), d.node(), d.python()}
	all := func(line func(Commands) string) string {
		var lines []string
		for _, c := range found {
			if l := line(c); l != "" {
				lines = append(lines, l)
			}
		}
		return strings.Join(lines, " && ")
	}
	return Commands{
		Setup: all(func(c Commands) string { return c.Setup }),
		Build: all(func(c Commands) string { return c.Build }),
		Test:  all(func(c Commands) string { return c.Test }),
		Lint:  all(func(c Commands) string { return c.Lint }),
	}, d.lookedAt
}

type detector struct {
	tree     fs.FS
	lookedAt []string
}

// maxRead bounds what is read of a file; the repository is not trusted.
const maxRead = 1 << 20

// read returns a regular file at the top, and notes that it was looked for.
func (d *detector) read(name string) (string, bool) {
	d.lookedAt = append(d.lookedAt, name)
	return readFile(d.tree, name)
}

func readFile(tree fs.FS, name string) (string, bool) {
	// Stat first: to open a pipe would wait for a writer.
	if info, err := fs.Stat(tree, name); err != nil || !info.Mode().IsRegular() {
		return "", false
	}
	file, err := tree.Open(name)
	if err != nil {
		return "", false
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxRead))
	return string(data), err == nil
}

func (d *detector) golang() Commands {
	if _, ok := d.read("go.mod"); !ok {
		return Commands{}
	}
	return Commands{Build: "go build ./...", Test: "go test ./...", Lint: "go vet ./..."}
}

func (d *detector) node() Commands {
	text, ok := d.read("package.json")
	var pack struct {
		Scripts              map[string]string `json:"scripts"`
		Dependencies         map[string]string `json:"dependencies"`
		DevDependencies      map[string]string `json:"devDependencies"`
		OptionalDependencies map[string]string `json:"optionalDependencies"`
	}
	if !ok || json.Unmarshal([]byte(text), &pack) != nil {
		return Commands{}
	}
	var c Commands
	_, lock := d.read("package-lock.json")
	_, shrinkwrap := d.read("npm-shrinkwrap.json")
	switch {
	case lock || shrinkwrap:
		c.Setup = "npm ci"
	case len(pack.Dependencies)+len(pack.DevDependencies)+len(pack.OptionalDependencies) > 0:
		c.Setup = "npm install"
	}
	if pack.Scripts["build"] != "" {
		c.Build = "npm run build"
	}
	if test := pack.Scripts["test"]; test != "" && !strings.Contains(test, "no test specified") {
		c.Test = "npm test"
	}
	if pack.Scripts["lint"] != "" {
		c.Lint = "npm run lint"
	}
	if c.Build == "" && c.Test == "" && c.Lint == "" {
		return Commands{} // there is nothing to set up for
	}
	return c
}

// pytestSettings are where pytest is configured, and what its section there says.
var pytestSettings = []struct{ file, section string }{
	{"pyproject.toml", "[tool.pytest"}, {"setup.cfg", "[tool:pytest]"}, {"tox.ini", "[pytest]"}, {"pytest.ini", ""}, {"conftest.py", ""},
}

func (d *detector) python() Commands {
	python, pytest := false, false
	for _, name := range []string{"setup.py", "requirements.txt"} {
		if _, ok := d.read(name); ok {
			python = true
		}
	}
	for _, s := range pytestSettings {
		text, ok := d.read(s.file)
		python = python || ok
		pytest = pytest || ok && strings.Contains(text, s.section)
	}
	if !python {
		return Commands{}
	}
	tests, imports := d.pythonTests()
	switch {
	case pytest || imports:
		return Commands{Test: "python3 -m pytest -q"}
	case tests:
		return Commands{Test: "python3 -m unittest discover"}
	default:
		return Commands{}
	}
}

var importsPytest = regexp.MustCompile(`(?m)^\s*(import|from)\s+pytest\b`)

// pythonTests reports whether there are test files, and whether one imports pytest.
// It looks at no more than a thousand entries.
func (d *detector) pythonTests() (tests, pytest bool) {
	seen := 0
	// What cannot be read holds no test that can run.
	_ = fs.WalkDir(d.tree, ".", func(name string, entry fs.DirEntry, err error) error {
		seen++
		if err != nil {
			return nil
		}
		base := path.Base(name)
		if entry.IsDir() {
			if name != "." && (strings.HasPrefix(base, ".") || slices.Contains([]string{"node_modules", "vendor", "venv", "__pycache__"}, base)) {
				return fs.SkipDir
			}
			return nil
		}
		if seen > 1000 || pytest {
			return fs.SkipAll
		}
		byUnittest := strings.HasPrefix(base, "test") // pytest finds the other ones too
		if path.Ext(base) == ".py" && (byUnittest || strings.HasSuffix(base, "_test.py")) {
			tests = tests || byUnittest
			text, _ := readFile(d.tree, name)
			pytest = importsPytest.MatchString(text)
		}
		return nil
	})
	return tests, pytest
}
