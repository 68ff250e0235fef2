package slipway_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/slipway-dev/slipway"

// A rule names the packages of ours that a package may import, and why not
// more. A name that ends with /... stands for the package and all below it.
type rule struct {
	may []string
	why string
}

// What the packages that do a build's work share.
var work = []string{
	"pipeline/agent", "pipeline/step", "pipeline/batch", "pipeline/graph", "pipeline/evidence", "pipeline/repo",
	"pipeline/forge", "pipeline/debt", "pipeline/finding", "pipeline/report", "pipeline/runtime",
}

const (
	leaf    = "it is a word that everything else is said with: it must not know who uses it"
	worker  = "planning, coding and review are sides of a build that do not know each other; only pipeline puts them together"
	process = "it runs programs, in a sandbox, and knows nothing of builds"
)

// Who may import whom. docs/adr/0003-import-rules.md tells why.
var rules = map[string]rule{
	"": {nil, "it is embedded files and nothing else"},
	"cmd/slipway": {[]string{
		"", "app", "app/githubsim", "config", "queue", "pipeline", "pipeline/review", "pipeline/plan", "pipeline/report",
		"pipeline/results", "pipeline/provenance", "pipeline/forge", "pipeline/runtime", "pipeline/sandbox", "pipeline/simulate", "pipeline/eval",
	}, "a verb parses, calls one function and prints what came out; the work is below app and pipeline"},

	"app": {[]string{
		"app/github", "app/inbox", "app/dashboard", "config", "handlers/...", "pipeline/...", "queue",
	}, "app wires everything; the stand-in is for demos and tests, and cmd wires itself to app"},
	"app/inbox":     {[]string{"queue"}, "the intake makes a delivery durable and answers; it must not know what a delivery means"},
	"app/dashboard": {[]string{"queue", "pipeline/report", "pipeline/results"}, "pages show what the report says, so that there is one account of a build"},
	"app/github": {[]string{
		"handlers", "pipeline", "pipeline/review", "pipeline/forge", "queue",
	}, "it implements what handlers and pipeline ask for, and knows nothing of how they use it"},
	"app/githubsim": {[]string{"pipeline/sandbox"}, "a stand-in that shared code with what it is to test would share its mistakes"},

	"handlers":         {[]string{"handlers/command", "queue", "config", "pipeline", "pipeline/forge", "pipeline/finding", "pipeline/report"}, "a handler turns an event into at most one job; the work is done by whoever claims it"},
	"handlers/command": {[]string{"pipeline/forge", "config"}, "the grammar of commands is pure"},

	"pipeline": {slices.Concat(work, []string{
		"config", "pipeline/plan", "pipeline/coding", "pipeline/review", "pipeline/ci", "pipeline/results", "pipeline/provenance", "pipeline/sandbox",
	}), "a build runs at a terminal too: it must not know webhooks, GitHub or a store"},
	"pipeline/simulate": {slices.Concat(work, []string{
		"config", "pipeline", "pipeline/plan", "pipeline/coding", "pipeline/sandbox", "queue",
	}), "it stands where a terminal stands: it starts builds, and nothing of a build knows it"},
	"pipeline/eval": {[]string{"config", "pipeline/finding", "pipeline/report", "pipeline/results"},
		"it measures what a reviewer says and keeps it; who reviews, and how, is not its business"},
	"pipeline/plan":   {work, worker},
	"pipeline/coding": {work, worker},
	"pipeline/review": {work, worker},
	"pipeline/ci": {[]string{"pipeline/agent", "pipeline/forge", "pipeline/repo", "pipeline/runtime"},
		"it judges what was observed; who observes, waits and pushes is pipeline"},

	"pipeline/agent":   {[]string{"pipeline/runtime", "pipeline/step", "pipeline/batch"}, "it asks any role; a role lives with the code that needs the answer"},
	"pipeline/step":    {[]string{"queue"}, "it is the journal, and only that"},
	"pipeline/runtime": {[]string{"pipeline/sandbox"}, process},
	"pipeline/runtime/native": {[]string{"pipeline/runtime", "pipeline/sandbox"},
		"it is one runtime among others: what it shares with them is in runtime, and it knows nothing of builds"},
	"pipeline/evidence": {[]string{"pipeline/sandbox"}, process},
	"pipeline/repo":     {[]string{"pipeline/sandbox"}, process},

	"pipeline/report":     {[]string{"pipeline/debt", "pipeline/finding", "pipeline/graph"}, "the account is printed by pure functions"},
	"pipeline/results":    {[]string{"pipeline/report"}, "results keep and compare accounts; they make none"},
	"pipeline/provenance": {[]string{"queue"}, "the chain is checked offline, from entries alone"},

	"pipeline/graph": {nil, leaf}, "pipeline/debt": {nil, leaf}, "pipeline/finding": {nil, leaf}, "pipeline/forge": {nil, leaf},
	"pipeline/batch": {nil, leaf}, "pipeline/sandbox": {nil, leaf}, "queue": {nil, leaf}, "config": {nil, leaf},
}

// Packages of others, or of the standard library, that stay where they are.
var confined = []struct {
	path string // it and what is below it
	to   []string
	why  string
}{
	{"github.com/google/go-github", []string{"app/github", "handlers", "app/githubsim"}, "GitHub's types end where our own words begin, in pipeline/forge"},
	{"github.com/palantir/go-githubapp", []string{"app", "app/github", "handlers"}, "it is how the App signs in and dispatches, nothing else"},
	{"github.com/redis/go-redis", []string{"queue"}, "a store is known by its interface"},
	{"modernc.org/sqlite", []string{"queue"}, "a store is known by its interface"},
	{"github.com/anthropics/anthropic-sdk-go", []string{"pipeline/runtime/native"}, "a provider's types end where the words of a Runtime begin"},
	{"github.com/openai/openai-go", []string{"pipeline/runtime/native"}, "a provider's types end where the words of a Runtime begin"},
	{"os/exec", []string{"pipeline/sandbox"}, "a process that is started elsewhere is neither bounded nor killed with its group"},
	{"github.com/rs/zerolog", []string{"app", "app/github", "handlers"}, "our logs are log/slog; go-githubapp wants the other one"},
	{"testing", nil, "a binary must not carry its tests"},
}

// What a package must not reach by any way, however long.
var unreachable = []struct{ from, path, why string }{
	{"pipeline", "github.com/google/go-github", "a build at a terminal needs no GitHub"},
	{"pipeline", "github.com/palantir/go-githubapp", "a build at a terminal needs no GitHub"},
	{"pipeline", module + "/app", "no call goes upward"},
	{"pipeline", module + "/handlers", "no call goes upward"},
	{"handlers", module + "/app", "no call goes upward"},
	{"cmd/slipway", "github.com/getkin/kin-openapi", "GitHub's schemas judge the stand-in in tests"},
}

func TestWhoMayImportWhom(t *testing.T) {
	packages := list(t)
	for _, broken := range judge(packages) {
		t.Error(broken)
	}
	if len(packages) < 20 {
		t.Errorf("only %d packages were found", len(packages))
	}
}

func TestTheRulesFindWhatBreaksThem(t *testing.T) {
	for name, test := range map[string]struct {
		in   listed
		want string // in the complaint; empty: none
	}{
		"a leaf that imports one of ours":       {listed{"queue", ours("config"), nil}, "queue imports config"},
		"planning that knows coding":            {listed{"pipeline/plan", ours("pipeline/coding"), nil}, "sides of a build"},
		"a process started outside":             {listed{"pipeline/repo", []string{"os/exec"}, nil}, "neither bounded"},
		"a driver's own package below":          {listed{"app", []string{"modernc.org/sqlite/lib"}, nil}, "modernc.org/sqlite"},
		"a path that only starts the same":      {listed{"app", []string{"modernc.org/sqlitefoo"}, nil}, ""},
		"GitHub reached by a detour":            {listed{"pipeline", nil, []string{"github.com/google/go-github/v60/github"}}, "needs no GitHub"},
		"test support in the binary":            {listed{"app", ours("queue/queuetest"), nil}, "for tests"},
		"the schemas in the binary":             {listed{"app", ours("app/githubsim/schema"), nil}, "for tests"},
		"a package without a rule":              {listed{"pipeline/plumbing", nil, nil}, "has no rule"},
		"a package that is not a noun":          {listed{"pipeline/internal/x", nil, nil}, "one noun"},
		"test support may import what it likes": {listed{"queue/queuetest", append(ours("app"), "os/exec", "testing"), nil}, ""},
		"what the rules allow":                  {listed{"app", append(ours("pipeline/runtime", "queue"), "context"), nil}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(judge([]listed{test.in}), "\n")
			if (test.want == "") != (got == "") || !strings.Contains(got, test.want) {
				t.Errorf("got %q, want %q in it", got, test.want)
			}
		})
	}
}

// A listed package is one of ours, by its path below the module.
type listed struct {
	name    string
	imports []string
	reaches []string
}

func ours(names ...string) (paths []string) {
	for _, n := range names {
		paths = append(paths, path.Join(module, n))
	}
	return paths
}

// list asks the go command for every package as it is built, without tests.
func list(t *testing.T) (packages []listed) {
	t.Helper()
	seen := map[string]listed{}
	for _, tags := range []string{"", "crashpoint"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-tags="+tags, "-json=ImportPath,GoFiles,Imports,Deps", "./...")
		out, err := cmd.Output()
		if err != nil {
			var said []byte
			if failed, ok := errors.AsType[*exec.ExitError](err); ok {
				said = failed.Stderr
			}
			t.Fatalf("%v: %v\n%s", cmd, err, said)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath             string
				GoFiles, Imports, Deps []string
			}
			if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			if len(p.GoFiles) == 0 {
				continue // tests alone
			}
			name := strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
			l := seen[name]
			seen[name] = listed{name, append(l.imports, p.Imports...), append(l.reaches, p.Deps...)}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(seen)) {
		l := seen[name]
		for _, paths := range []*[]string{&l.imports, &l.reaches} {
			slices.Sort(*paths)
			*paths = slices.Compact(*paths)
		}
		packages = append(packages, l)
	}
	return packages
}

// judge returns one sentence for each broken rule.
func judge(packages []listed) (broken []string) {
	complain := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	for _, p := range packages {
		for part := range strings.SplitSeq(p.name, "/") {
			if slices.Contains([]string{"internal", "pkg", "util", "utils", "common", "helpers"}, part) {
				complain("%s: a package is one noun that says what it models; %q says nothing", p.name, part)
			}
		}
		if support(p.name) {
			continue
		}
		r, known := rules[p.name]
		if !known {
			complain("%s has no rule: say in imports_test.go what it may import, and why", p.name)
			continue
		}
		for _, imported := range p.imports {
			if name, own := within(imported, module); own {
				switch {
				case support(name):
					complain("%s imports %s, which is for tests", p.name, name)
				case !slices.ContainsFunc(r.may, func(may string) bool { return allows(may, name) }):
					complain("%s imports %s: %s", p.name, name, r.why)
				}
			}
			for _, c := range confined {
				if _, inside := within(imported, c.path); inside && !slices.Contains(c.to, p.name) {
					complain("%s imports %s, which is only for %s: %s", p.name, imported, strings.Join(append(c.to, "tests"), ", "), c.why)
				}
			}
		}
		for _, u := range unreachable {
			if i := slices.IndexFunc(p.reaches, func(d string) bool { _, inside := within(d, u.path); return inside }); p.name == u.from && i >= 0 {
				complain("%s reaches %s through its imports: %s", p.name, p.reaches[i], u.why)
			}
		}
	}
	return broken
}

// support reports whether a package serves tests only.
func support(name string) bool {
	_, schema := within(name, "app/githubsim/schema")
	return schema || name != "" && strings.HasSuffix(path.Base(name), "test")
}

// allows reports whether an entry of a rule covers a package.
func allows(may, name string) bool {
	if tree, ok := strings.CutSuffix(may, "/..."); ok {
		_, inside := within(name, tree)
		return inside
	}
	return may == name
}

// within returns the rest of a path below a prefix of whole parts.
func within(p, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(p, prefix)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}
