package evidence_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	goleak.VerifyTestMain(m)
}

// A bench is a checkout with a runner for it.
type bench struct {
	*evidence.Runner
	at evidence.Checkout
}

// newBench needs bubblewrap and makes a checkout of files. cache may be shared.
func newBench(t *testing.T, cache string, files map[string]string) *bench {
	t.Helper()
	sandboxtest.Need(t, "bwrap")
	root := t.TempDir()
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Bubblewrap, StateDir: root})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{
		Runner: &evidence.Runner{Box: box, Cache: cache, Timeout: time.Minute},
		at:     evidence.Checkout{Dir: filepath.Join(root, "tree"), Home: filepath.Join(root, "home")},
	}
	if err := os.Mkdir(b.at.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		b.write(t, name, text)
	}
	return b
}

func (b *bench) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.at.Dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) run(t *testing.T, c evidence.Commands, prev evidence.SetupState) evidence.Result {
	t.Helper()
	r, err := b.Run(t.Context(), b.at, c, prev)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// outcome is "build lint test", with ! after a failure and ~ after a flake.
func outcome(r evidence.Result) string {
	var words []string
	for _, c := range r.Commands {
		word := c.Name
		if !c.Passed {
			word += "!"
		}
		if c.Flaky {
			word += "~"
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}

const (
	goTest   = "package add\n\nimport \"testing\"\n\nfunc TestAdd(t *testing.T) {\n\tif Add(1, 2) != 3 {\n\t\tt.Fatal(\"one and two\")\n\t}\n}\n"
	flakyGo  = "package add\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestAdd(t *testing.T) {\n\tif _, err := os.Stat(\"seen\"); err != nil {\n\t\t_ = os.WriteFile(\"seen\", nil, 0o600)\n\t\tt.Fatal(\"not yet\")\n\t}\n}\n"
	outsider = "package add\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestAdd(t *testing.T) {\n\tif err := os.WriteFile(\"OUTSIDE\", []byte(\"x\"), 0o600); err != nil {\n\t\tt.Fatal(err)\n\t}\n}\n"
)

func TestGoModule(t *testing.T) {
	sandboxtest.Need(t, "go")
	cache := t.TempDir()
	outside := filepath.Join("/var/tmp", "slipway-evidence-test")
	for name, tt := range map[string]struct {
		code, test, want, output string
		green                    bool
	}{
		"passes":             {"func Add(a, b int) int { return a + b }", goTest, "build lint test", "ok", true},
		"fails":              {"func Add(a, b int) int { return a - b }", goTest, "build lint test!", "one and two", false},
		"does not compile":   {"func Add(a, b int) int { return a +", goTest, "build! lint! test!", "syntax error", false},
		"is flaky":           {"", flakyGo, "build lint test~", "not yet", true},
		"tries to get out":   {"", strings.ReplaceAll(outsider, "OUTSIDE", outside), "build lint test!", "no such file", false},
		"tries the tool":     {"", strings.ReplaceAll(outsider, "OUTSIDE", "/usr/local/slipway"), "build lint test!", "read-only", false},
		"has a main program": {"func Add(a, b int) int { return a + b }", goTest, "build lint test", "ok", true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, cache, map[string]string{
				"go.mod": "module example.org/add\n\ngo 1.24\n", "add.go": "package add\n\n" + tt.code + "\n", "add_test.go": tt.test,
				".git": "gitdir: /not/in/the/box\n",
			})
			if name == "has a main program" {
				if err := os.Mkdir(filepath.Join(b.at.Dir, "cmd"), 0o755); err != nil {
					t.Fatal(err)
				}
				b.write(t, "cmd/main.go", "package main\n\nfunc main() {}\n")
			}
			r := b.run(t, evidence.Commands{}, evidence.SetupState{})
			if outcome(r) != tt.want || r.Green() != tt.green || r.None {
				t.Fatalf("got %q, green %t, want %q: %+v", outcome(r), r.Green(), tt.want, r.Commands)
			}
			last := r.Commands[len(r.Commands)-1]
			if !strings.Contains(last.Output, tt.output) || last.Elapsed <= 0 || last.CPU <= 0 {
				t.Errorf("got %+v, want an output with %q", last, tt.output)
			}
			if (last.Exit == 0) != last.Passed {
				t.Errorf("exit %d, passed %t", last.Exit, last.Passed)
			}
			if _, err := os.Stat(outside); err == nil {
				t.Errorf("%s was written", outside)
			}
		})
	}
}

func TestNodePackage(t *testing.T) {
	sandboxtest.Need(t, "node", "npm")
	cache := t.TempDir()
	const head = "const test = require('node:test'); const fs = require('node:fs');\n"
	for name, tt := range map[string]struct {
		test, want, output string
	}{
		"passes":   {"test('adds', () => {});", "test", "# pass 1"},
		"fails":    {"test('adds', () => { throw new Error('one and two') });", "test!", "one and two"},
		"is flaky": {"test('adds', () => { if (!fs.existsSync('seen')) { fs.writeFileSync('seen', ''); throw new Error('not yet') } });", "test~", "not yet"},
		"tries to get out": {
			"test('adds', () => { fs.writeFileSync('/var/tmp/slipway-evidence-test', 'x') });", "test!", "ENOENT",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, cache, map[string]string{
				"package.json": `{"name":"add","version":"1.0.0","scripts":{"test":"node --test --test-reporter=tap"}}`, "add.test.js": head + tt.test + "\n",
			})
			r := b.run(t, evidence.Commands{}, evidence.SetupState{})
			if outcome(r) != tt.want || r.Green() == strings.HasSuffix(tt.want, "!") {
				t.Fatalf("got %q, green %t, want %q: %+v", outcome(r), r.Green(), tt.want, r.Commands)
			}
			if out := r.Commands[0].Output; !strings.Contains(out, tt.output) {
				t.Errorf("the output lacks %q: %s", tt.output, out)
			}
		})
	}
}

func TestNoneFound(t *testing.T) {
	b := newBench(t, t.TempDir(), map[string]string{"README.md": "# Hello", "Makefile": "test:"})
	r := b.run(t, evidence.Commands{}, evidence.SetupState{})
	if !r.None || r.Green() || len(r.Commands) > 0 || len(r.LookedAt) == 0 {
		t.Errorf("got %+v", r)
	}
	data, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(data), `"none":true`) || !strings.Contains(string(data), `"looked_at":["go.mod"`) {
		t.Errorf("journaled as %s, %v", data, err)
	}
}

func TestSetup(t *testing.T) {
	b := newBench(t, t.TempDir(), map[string]string{"package-lock.json": "1"})
	c := evidence.Commands{Setup: "echo set up >> log", Test: "cat log"}
	var state evidence.SetupState
	step := func(name, want string) {
		t.Helper()
		r := b.run(t, c, state)
		state = r.Setup
		if outcome(r) != want {
			t.Errorf("%s: ran %q, want %q", name, outcome(r), want)
		}
	}
	step("the first time", "setup test")
	step("the same lock file", "test")
	b.write(t, "package-lock.json", "2")
	step("another lock file", "setup test")
	step("that one again", "test")
	c.Setup = "echo other >> log"
	step("another setup", "setup test")
	c.Setup = "false"
	step("a setup that fails", "setup!")
	step("and again", "setup!")
	c.Test, c.Setup = "", "echo ok"
	if r := b.run(t, c, state); r.Green() {
		t.Error("a setup alone is called green")
	}
}

func TestALimitIsAFailure(t *testing.T) {
	b := newBench(t, t.TempDir(), nil)
	b.Timeout = 300 * time.Millisecond
	r := b.run(t, evidence.Commands{Test: "echo begun; echo x >> runs; sleep 100"}, evidence.SetupState{})
	c := r.Commands[0]
	if c.Passed || c.Flaky || c.Exit != -1 || !strings.Contains(c.Output, "begun\n") || !strings.Contains(c.Output, "time limit") {
		t.Errorf("got %+v", c)
	}
	if runs, err := os.ReadFile(filepath.Join(b.at.Dir, "runs")); err != nil || string(runs) != "x\n" {
		t.Errorf("it ran %q times, %v", runs, err)
	}
}

func TestCancelIsNoResult(t *testing.T) {
	b := newBench(t, t.TempDir(), nil)
	cause := errors.New("cancelled by a maintainer")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := b.Run(ctx, b.at, evidence.Commands{Test: "true"}, evidence.SetupState{}); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	b := newBench(t, t.TempDir(), nil)
	b.Secrets = []string{"hunter2"}
	r := b.run(t, evidence.Commands{Test: "echo key hunter2; printf hunter2"}, evidence.SetupState{})
	if got := r.Commands[0].Output; got != "key [redacted]\n[redacted]" {
		t.Errorf("got %q", got)
	}
}

func TestTheEnvironment(t *testing.T) {
	t.Setenv("GOPROXY", "https://proxy.example.org")
	t.Setenv("npm_config_registry", "https://user:password@npm.example.org")
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("SLIPWAY_TOKEN", "secret")
	b := newBench(t, t.TempDir(), nil)
	r := b.run(t, evidence.Commands{Test: "env"}, evidence.SetupState{})
	out := "\n" + r.Commands[0].Output
	for _, want := range append(b.CacheEnv(), "HOME="+b.at.Home, "GOTOOLCHAIN=local", "GOPROXY=https://proxy.example.org") {
		if !strings.Contains(out, "\n"+want+"\n") {
			t.Errorf("%s is missing", want)
		}
	}
	for _, forbidden := range []string{"password", "SLIPWAY_TOKEN", "-mod="} {
		if strings.Contains(out, forbidden) {
			t.Errorf("%s is in the environment: %s", forbidden, out)
		}
	}
}

// An agent builds with the caches that the engine filled, and cannot change them.
func TestCachesAreReadOnlyForAgents(t *testing.T) {
	sandboxtest.Need(t, "go")
	b := newBench(t, t.TempDir(), map[string]string{"go.mod": "module example.org/m\n\ngo 1.24\n", "m.go": "package m\n"})
	if r := b.run(t, evidence.Commands{Build: "go build ./..."}, evidence.SetupState{}); !r.Green() {
		t.Fatalf("%+v", r)
	}
	b.write(t, "m.go", "package m\n\nvar X = 1\n")
	dirs, err := b.CacheDirs()
	if err != nil {
		t.Fatal(err)
	}
	for script, works := range map[string]bool{"go build ./...": true, "touch $GOCACHE/x": false, "touch $GOMODCACHE/x": false} {
		var out strings.Builder
		exit, err := b.Box.Run(t.Context(), sandbox.Command{
			Args: []string{"sh", "-c", script}, Dir: b.at.Dir, Env: sandbox.Environ(b.at.Home, b.CacheEnv()...),
			Writable: []string{b.at.Dir, b.at.Home}, Readable: dirs, Stdout: &out, Stderr: &out,
		})
		if err != nil || (exit.Code == 0) != works {
			t.Errorf("%s: exit %d, %v: %s", script, exit.Code, err, out.String())
		}
	}
}
