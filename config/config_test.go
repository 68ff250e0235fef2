package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v4"
)

func TestSecretIsNeverPrinted(t *testing.T) {
	const value = "hunter2-hunter2"
	type holder struct {
		Name  string            `json:"name" yaml:"name"`
		Key   Secret            `json:"key" yaml:"key"`
		Many  []Secret          `json:"many" yaml:"many"`
		Named map[string]Secret `json:"named" yaml:"named"`
	}
	h := holder{Name: "x", Key: value, Many: []Secret{value}, Named: map[string]Secret{"a": value}}
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%10s"} {
		fmt.Fprintf(&out, verb+"\n", h.Key)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", &h)
	}
	fmt.Fprintln(&out, fmt.Errorf("with %v", h.Key), h.Key)
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(handler).Info("m", "key", h.Key, "all", h, "many", h.Many)
	}
	js, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	ym, err := yaml.Dump(h)
	if err != nil {
		t.Fatal(err)
	}
	out.Write(js)
	out.Write(ym)
	got := out.String()
	if strings.Contains(got, value) || strings.Contains(got, "68756e74657232") {
		t.Errorf("a secret was printed:\n%s", got)
	}
	if string(js) != `{"name":"x","key":"[redacted]","many":["[redacted]"],"named":{"a":"[redacted]"}}` {
		t.Errorf("JSON: %s", js)
	}
	if !strings.Contains(string(ym), "key: '[redacted]'") {
		t.Errorf("YAML: %s", ym)
	}
	if h.Key.Reveal() != value {
		t.Error("Reveal changed the secret")
	}
}

func TestParseUSD(t *testing.T) {
	for in, want := range map[string]Micros{"25": 25_000_000, "0.1": 100_000, "12.50": 12_500_000, "0.000001": 1, "1000000": 1_000_000_000_000} {
		if got, err := ParseUSD(in); err != nil || got != want {
			t.Errorf("ParseUSD(%q) = %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "0.00", "-1", "1e3", ".5", "1.", "1,5", "1.0000001", "1000001", "99999999", "$5", " 5", "0x10", ".inf"} {
		if got, err := ParseUSD(in); err == nil {
			t.Errorf("ParseUSD(%q) = %d, want an error", in, got)
		}
	}
	if s := Micros(12_500_000).String() + " " + Micros(1).String() + " " + Micros(-3_000_000).String(); s != "12.5 0.000001 -3" {
		t.Errorf("got %s", s)
	}
}

// on is a target without an effort.
func on(runtime, model string) Target { return Target{Runtime: runtime, Model: model} }

func TestResolve(t *testing.T) {
	for name, c := range map[string]struct {
		models  Models
		runtime string
		role    string
		want    []Target
		err     string
	}{
		"the runtime's default":             {nil, "claude_code", "coder", []Target{on("claude_code", "sonnet")}, ""},
		"the runtime's default of a role":   {nil, "claude_code", "qa_synthesizer", []Target{on("claude_code", "haiku")}, ""},
		"default over the runtime's":        {Models{"default": "opus"}, "claude_code", "qa_synthesizer", []Target{on("claude_code", "opus")}, ""},
		"a role over default":               {Models{"default": "opus", "coder": "sonnet"}, "claude_code", "coder", []Target{on("claude_code", "sonnet")}, ""},
		"a role elsewhere":                  {Models{"coder": "command:my-model"}, "claude_code", "coder", []Target{on("command", "my-model")}, ""},
		"default elsewhere":                 {Models{"default": "command:m"}, "claude_code", "coder", []Target{on("command", "m")}, ""},
		"a role back from elsewhere":        {Models{"default": "command:m", "coder": "opus"}, "claude_code", "coder", []Target{on("claude_code", "opus")}, ""},
		"elsewhere with its own default":    {Models{"coder": "claude_code:"}, "command", "coder", []Target{on("claude_code", "sonnet")}, ""},
		"a model with a colon":              {Models{"coder": "qwen:7b"}, "command", "coder", []Target{on("command", "qwen:7b")}, ""},
		"a model with a date":               {Models{"coder": "claude-sonnet-4@20250514"}, "claude_code", "coder", []Target{on("claude_code", "claude-sonnet-4@20250514")}, ""},
		"a date and an effort":              {Models{"coder": "claude-sonnet-4@20250514@low"}, "claude_code", "coder", []Target{{"claude_code", "claude-sonnet-4@20250514", "low"}}, ""},
		"an effort":                         {Models{"coder": "opus@xhigh"}, "claude_code", "coder", []Target{{"claude_code", "opus", "xhigh"}}, ""},
		"an effort alone":                   {Models{"coder": "@max"}, "claude_code", "qa_synthesizer", []Target{on("claude_code", "haiku")}, ""},
		"an effort of the default":          {Models{"default": "@max"}, "claude_code", "qa_synthesizer", []Target{{"claude_code", "haiku", "max"}}, ""},
		"an effort elsewhere":               {Models{"coder": "command:m@none"}, "claude_code", "coder", []Target{{"command", "m", "none"}}, ""},
		"a chain":                           {Models{"coder": "opus@high | command:m|haiku"}, "claude_code", "coder", []Target{{"claude_code", "opus", "high"}, on("command", "m"), on("claude_code", "haiku")}, ""},
		"a role's chain over the default's": {Models{"default": "opus | haiku", "coder": "sonnet"}, "claude_code", "coder", []Target{on("claude_code", "sonnet")}, ""},
		"an effort that the runtime lacks":  {Models{"coder": "opus@minimal"}, "claude_code", "coder", nil, `resolve model of coder: claude_code has no effort "minimal"; it has: low, medium, high, xhigh, max`},
		"the same in a fallback":            {Models{"coder": "opus | haiku@none"}, "claude_code", "coder", nil, `claude_code has no effort "none"`},
		"a runtime without a model":         {nil, "replay", "lens", []Target{on("replay", "")}, ""},
		"a provider's model":                {Models{"coder": "openrouter/qwen/qwen3-coder:free"}, "native", "coder", []Target{on("native", "openrouter/qwen/qwen3-coder:free")}, ""},
		"native by itself":                  {nil, "native", "coder", []Target{on("native", "anthropic/claude-sonnet-5-5")}, ""},
		"a runtime that nobody knows":       {nil, "gpt", "coder", nil, "there are: claude_code, open_code, codex, native, command, replay"},
		"a role that nobody knows":          {nil, "claude_code", "boss", nil, "there are: pm, architect, tech_lead"},
		"default is a key, but not a role":  {nil, "claude_code", "default", nil, "unknown role"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.models.Resolve(c.runtime, c.role)
			if !slices.Equal(got, c.want) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
}

func TestResolveOnly(t *testing.T) {
	for name, c := range map[string]struct {
		models        Models
		only, runtime string
		want          []Target
		err           string
	}{
		"nothing configured":                 {nil, "claude_code", "command", []Target{on("claude_code", "sonnet")}, ""},
		"a model without a runtime":          {Models{"coder": "opus@low"}, "claude_code", "command", []Target{{"claude_code", "opus", "low"}}, ""},
		"another runtime's model":            {Models{"coder": "command:m@none"}, "claude_code", "command", []Target{on("claude_code", "sonnet")}, ""},
		"a chain through another runtime":    {Models{"coder": "command:m | opus | command:n"}, "claude_code", "command", []Target{on("claude_code", "sonnet"), on("claude_code", "opus")}, ""},
		"an effort that this runtime lacks":  {Models{"coder": "opus@none"}, "claude_code", "command", nil, `claude_code has no effort "none"`},
		"recordings keep the default's name": {nil, "replay", "claude_code", []Target{on("replay", "sonnet")}, ""},
		"a program keeps what is configured": {Models{"coder": "claude_code:opus@high | m"}, "command", "claude_code", []Target{{"command", "opus", "high"}, on("command", "m")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.models.ResolveOnly(c.only, c.runtime, "coder")
			if !slices.Equal(got, c.want) || (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("got %+v, %v; want %+v, %q", got, err, c.want, c.err)
			}
		})
	}
}

func TestResolveOnATarget(t *testing.T) {
	for name, c := range map[string]struct {
		models       Models
		target, only string
		want         []Target
	}{
		"the configured runtime":           {Models{"coder": "opus@high | haiku"}, "claude_code", "", []Target{{"claude_code", "opus", "high"}, on("claude_code", "haiku")}},
		"another runtime":                  {Models{"coder": "opus@high | haiku"}, "open_code", "", []Target{on("open_code", "minimax/minimax-m2.5")}},
		"another runtime that has a model": {Models{"coder": "open_code:kimi | haiku"}, "open_code", "", []Target{on("open_code", "kimi"), on("open_code", "minimax/minimax-m2.5")}},
		"a model":                          {Models{"coder": "opus", "default": "haiku"}, "open_code:openai/gpt-5@high", "", []Target{{"open_code", "openai/gpt-5", "high"}}},
		"a server with a program":          {Models{"coder": "opus"}, "native:openai/gpt-5", "command", []Target{on("command", "openai/gpt-5")}},
		"a server with one runtime":        {nil, "open_code:openai/gpt-5", "claude_code", []Target{on("claude_code", "sonnet")}},
	} {
		t.Run(name, func(t *testing.T) {
			conf := Repo{Runtime: "claude_code", Models: c.models}
			if got, err := conf.On(c.target).Resolve(c.only, "coder"); err != nil || !slices.Equal(got, c.want) {
				t.Errorf("got %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestCheckTarget(t *testing.T) {
	for _, good := range []string{"claude_code", "codex", "open_code:openai/gpt-5@high", "claude_code:opus", "open_code:ollama/qwen:7b"} {
		if err := CheckTarget(good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{"", "opus", "gpt:5", "Claude_Code", "claude_code:", "claude_code:opus@none", "claude_code:opus@huge", "claude_code:opus|haiku", "claude_code:--help", "claude_code:a b"} {
		if err := CheckTarget(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestAssignments(t *testing.T) {
	repo, err := Parse([]byte("models: {coder: 'opus@high | haiku'}\n"), "repository")
	if err != nil {
		t.Fatal(err)
	}
	server, err := Parse([]byte("models: {lens: haiku}\n"), "server")
	if err != nil {
		t.Fatal(err)
	}
	conf := repo.Over(server).Over(Defaults())
	want := map[string]Assignment{
		"coder":          {"coder", []Target{{"claude_code", "opus", "high"}, on("claude_code", "haiku")}, "models.coder", "repository"},
		"lens":           {"lens", []Target{on("claude_code", "haiku")}, "models.lens", "server"},
		"qa_synthesizer": {"qa_synthesizer", []Target{on("claude_code", "haiku")}, "runtime", "default"},
		"pm":             {"pm", []Target{on("claude_code", "sonnet")}, "runtime", "default"},
	}
	all, err := conf.Assignments("")
	if err != nil || len(all) != len(Roles()) {
		t.Fatalf("%d assignments of %d roles: %v", len(all), len(Roles()), err)
	}
	for _, a := range all {
		if w, ok := want[a.Role]; ok && !reflect.DeepEqual(a, w) {
			t.Errorf("got %+v, want %+v", a, w)
		}
	}
	elsewhere, err := Parse([]byte("models: {default: 'command:m'}\n"), "repository")
	if err != nil {
		t.Fatal(err)
	}
	if all, err = elsewhere.Over(conf).Assignments(""); err != nil || all[0].Key != "models.default" || all[0].Chain[0] != on("command", "m") {
		t.Errorf("got %+v, %v", all, err)
	}
	if all, err = conf.Assignments("replay"); err != nil || all[0].Chain[0] != on("replay", "sonnet") {
		t.Errorf("got %+v, %v", all, err)
	}
}

// Whether a runtime takes an effort is known when all layers are there.
func TestCheckOfLayers(t *testing.T) {
	repo, err := Parse([]byte("models: {coder: 'm@none', qa: 'command:m@none | n'}\n"), "repository")
	if err != nil {
		t.Fatal(err)
	}
	server, err := Parse([]byte("runtime: command\n"), "server")
	if err != nil {
		t.Fatal(err)
	}
	if err := repo.Over(server).Over(Defaults()).Check(); err != nil {
		t.Errorf("it fits: %v", err)
	}
	err = repo.Over(Defaults()).Check()
	const want = `configuration: models.coder: claude_code has no effort "none"; it has: low, medium, high, xhigh, max (the key is from: repository; runtime is from: default)`
	if _, ok := errors.AsType[*Error](err); !ok || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestPrices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "s.yml")
	const content = `prices:
  my-model: { input: 2.50, output: 10, cache_read: 0.25, cache_write: 3.125 }
  vendor/model.2:
    input: 0
    output: 0.0
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadServer(file, []string{"HOME=/h"})
	want := Prices{"my-model": {2_500_000, 10_000_000, 250_000, 3_125_000}, "vendor/model.2": {}}
	if err != nil || !reflect.DeepEqual(got.Prices, want) {
		t.Errorf("got %+v, %v", got.Prices, err)
	}
	if s := got.Prices.String(); s != "my-model: 2.5 in, 10 out; vendor/model.2: 0 in, 0 out" {
		t.Errorf("shown as %q", s)
	}
}

// everyKey sets every knob but most roles of models.
const everyKey = `# all that there is
runtime: command
models: { default: opus, coder: "claude_code:sonnet" }
commands:
  setup: npm ci
  build: npm run build
  test: "npm test"
  lint: |-
    npm run lint
build: { label: go, approval: plan, base: release/1.x, branch: "bot/{ticket}-{slug}" }
review: { severity: high, min_confidence: 60, label: look, auto: true, lenses: [security, house-rules], max_findings: 3, minutes: 5 }
paths: { ignore: ["docs/", "*.svg"] }
limits:
  usd_per_build: 12.50
  usd_per_day: 50
  calls_per_day: 900
  minutes_per_day: 600
  usd_per_call: 1
  minutes_per_build: 30
  max_parallel_issues: 3
  max_parallel_agents: 4
pipeline:
  max_review_iterations: 0
  max_plan_revisions: 3
  max_coding_iterations: 7
  max_advisor_invocations: 1
  max_replans: 4
  max_splits: 0
  max_verify_fix_cycles: 2
  max_integration_test_retries: 0
  max_ci_fix_cycles: 1
  ci_wait_seconds: 600
  ci_poll_seconds: 5
  agent_timeout_seconds: 60
  agent_max_turns: 9
  max_agents_per_build: 70
  max_concurrency: 3
  approve_subagents: true
  max_tasks: 6
  barrier: level
  enable_replanning: false
  enable_issue_advisor: false
  enable_integration_testing: false
  enable_learning: false
  enable_review: false
  check_ci: false
  failure_abort_ratio: 0.5
  approval_expires_in_hours: 24
  keep_refs_days: 7
`

// refusals are files that Parse refuses, and what it says.
var refusals = map[string]struct{ file, want string }{
	"an unknown key":                  {"runtime: replay\ncolour: red\n", "f.yml:2: colour: unknown key; valid here: build, commands, limits, models, paths, pipeline, review, runtime"},
	"an unknown key in a section":     {"limits:\n  usd_per_month: 3\n", "f.yml:2: limits.usd_per_month: unknown key; valid here: calls_per_day, max_parallel_agents, max_parallel_issues, minutes_per_build, minutes_per_day, usd_per_build, usd_per_call, usd_per_day"},
	"a knob in the wrong section":     {"pipeline:\n\n  max_parallel_issues: 3\n", "f.yml:3: pipeline.max_parallel_issues: unknown key here; it belongs at limits.max_parallel_issues"},
	"an approval that nobody knows":   {"build:\n  approval: always\n", "f.yml:2: build.approval: want never or plan, got \"always\""},
	"a barrier that nobody knows":     {"pipeline:\n  barrier: wall\n", "f.yml:2: pipeline.barrier: want none or level, got \"wall\""},
	"a switch that is no truth value": {"pipeline:\n  check_ci: 1\n", "f.yml:2: pipeline.check_ci: want true or false, got the number 1"},
	"an unknown model key":            {"models:\n  codr: opus\n", "f.yml:2: models.codr: unknown key; valid here: architect, ci_fixer, code_reviewer, coder, default, git, integration_tester, issue_advisor, issue_writer, lens, merger, pm, qa, qa_synthesizer, replan, retry_advisor, sprint_planner, tech_lead, verifier"},
	"text for a number":               {"limits:\n  max_parallel_issues: many\n", `f.yml:2: limits.max_parallel_issues: want a whole number from 1 to 64, got the text "many"`},
	"a number in quotes":              {"limits:\n  max_parallel_issues: '8'\n", `f.yml:2: limits.max_parallel_issues: want a whole number from 1 to 64, got the text "8"`},
	"a number out of range":           {"limits: {max_parallel_issues: 0}\n", "f.yml:1: limits.max_parallel_issues: want a whole number from 1 to 64, got 0"},
	"a fraction for a whole number":   {"pipeline: {agent_max_turns: 1.5}", "f.yml:1: pipeline.agent_max_turns: want a whole number from 1 to 10000, got the number 1.5"},
	"a number for text":               {"build:\n  base: 1.0\n", "f.yml:2: build.base: want text, got the number 1.0"},
	"a truth value for text":          {"build:\n  base: true\n", "f.yml:2: build.base: want text, got the truth value true"},
	"nothing":                         {"commands:\n  test:\n", "f.yml:2: commands.test: want text, got nothing"},
	"empty text":                      {"commands:\n  test: ''\n", "f.yml:2: commands.test: empty; leave the key out instead"},
	"a list for text":                 {"commands:\n  test: [npm, test]\n", "f.yml:2: commands.test: want text, got a list"},
	"a list for money":                {"limits:\n  usd_per_build:\n    - 3\n", "f.yml:3: limits.usd_per_build: want an amount in US dollars such as 12.50, got a list"},
	"negative money":                  {"limits: {usd_per_build: -3}", "f.yml:1: limits.usd_per_build: want an amount in US dollars such as 25 or 12.50, with at most six decimal places"},
	"endless money":                   {"limits: {usd_per_build: .inf}", "f.yml:1: limits.usd_per_build: want an amount in US dollars such as 25 or 12.50, with at most six decimal places"},
	"a ratio above one":               {"pipeline: {failure_abort_ratio: 80}", "f.yml:1: pipeline.failure_abort_ratio: want a number above 0 and at most 1, got 80"},
	"no number as a ratio":            {"pipeline: {failure_abort_ratio: .nan}", "f.yml:1: pipeline.failure_abort_ratio: want a number above 0 and at most 1, got .nan"},
	"text for a section":              {"limits: 3\n", "f.yml:1: limits: want a mapping with the keys calls_per_day, max_parallel_agents, max_parallel_issues, minutes_per_build, minutes_per_day, usd_per_build, usd_per_call, usd_per_day, got the number 3"},
	"a list for the file":             {"- a\n", "f.yml:1: want a mapping with the keys build, commands, limits, models, paths, pipeline, review, runtime, got a list"},
	"a key twice":                     {"runtime: replay\nruntime: command\n", "f.yml:2: runtime: given twice"},
	"an option as a fallback":         {"models: {coder: 'opus | --dangerous'}", `f.yml:1: models.coder: "--dangerous" is no name of a model`},
	"an unknown effort":               {"models: {coder: opus@hihg}", `f.yml:1: models.coder: "opus@hihg": unknown effort "hihg"; there are: none, minimal, low, medium, high, xhigh, max`},
	"an effort that is missing":       {"models: {coder: opus@}", `f.yml:1: models.coder: "opus@": unknown effort ""; there are: none, minimal, low, medium, high, xhigh, max`},
	"an effort of another runtime":    {"models: {coder: 'claude_code:opus@none'}", `f.yml:1: models.coder: claude_code has no effort "none"; it has: low, medium, high, xhigh, max`},
	"a chain without an end":          {"models: {coder: 'opus |'}", `f.yml:1: models.coder: "opus |" has an empty link; want MODEL, or MODEL | FALLBACK`},
	"a chain in a circle":             {"models: {coder: 'opus|haiku|opus'}", `f.yml:1: models.coder: "opus" is in the chain twice`},
	"a list of models":                {"models:\n  coder: [opus, haiku]\n", "f.yml:2: models.coder: want text, got a list"},
	"two words as a model":            {"models: {coder: opus or haiku}", `f.yml:1: models.coder: "opus or haiku" is no name of a model`},
	"prices of a repository's own":    {"prices: {gpt: {input: 0, output: 0}}", "f.yml:1: prices: prices stand at the top of the server's own file, and nowhere else: a repository could make its builds look free"},
	"an option as a model":            {"models: {coder: --dangerous}", `f.yml:1: models.coder: "--dangerous" is no name of a model`},
	"an alias":                        {"runtime: &r replay\nbuild: *r\n", "f.yml:2: build: want a mapping with the keys approval, base, branch, label, got an alias, which is not supported"},
	"an option as a branch":           {"build: {base: --upload-pack=x}", `f.yml:1: build.base: "--upload-pack=x" is no name of a branch`},
	"a branch that leaves":            {"build: {base: a/../b}", `f.yml:1: build.base: "a/../b" is no name of a branch`},
	"an unknown placeholder":          {`build: {branch: "x/{tikcet}"}`, "f.yml:1: build.branch: unknown placeholder {tikcet}; there are: {ticket}, {slug}"},
	"one branch for all":              {`build: {branch: "slipway"}`, "f.yml:1: build.branch: want {ticket} in the name, so that no two tickets share a branch"},
	"no YAML":                         {"a:\n  - b\n c: [", "f.yml:3: not YAML: "},
	"two documents":                   {"runtime: replay\n---\nruntime: command\n", "f.yml"},
	"a lens that is no word":          {"review: {lenses: ['a b']}", `f.yml:1: review.lenses: "a b" is no name of a lens`},
	"one text for a list":             {"review: {lenses: security}", "f.yml:1: review.lenses: want a list of at least one, got the text \"security\""},
	"an empty list":                   {"review: {lenses: []}", "f.yml:1: review.lenses: want a list of at least one, got a list"},
	"a pattern that is broken":        {"paths: {ignore: ['a[']}", `f.yml:1: paths.ignore: "a[" is no pattern of paths, such as docs/ or *.svg`},
	"several mistakes at once":        {"colour: red\nruntime: 5\n", "f.yml:1: colour: unknown key; valid here: build, commands, limits, models, paths, pipeline, review, runtime\nf.yml:2: runtime: want text, got the number 5"},
}

func TestParseSetsEveryKey(t *testing.T) {
	got, err := Parse([]byte(everyKey), "a.yml")
	if err != nil {
		t.Fatal(err)
	}
	want := Repo{
		Runtime:  "command",
		Models:   Models{"default": "opus", "coder": "claude_code:sonnet"},
		Commands: Commands{Setup: "npm ci", Build: "npm run build", Test: "npm test", Lint: "npm run lint"},
		Build:    Build{Label: "go", Approval: "plan", Base: "release/1.x", Branch: "bot/{ticket}-{slug}"},
		Review: Review{
			Severity: "high", MinConfidence: 60, Label: "look", Auto: true, Lenses: []string{"security", "house-rules"}, MaxFindings: 3, Timeout: 5 * time.Minute,
		},
		Paths: Paths{Ignore: []string{"docs/", "*.svg"}},
		Limits: Limits{
			USDPerBuild: 12_500_000, USDPerDay: 50_000_000, CallsPerDay: 900, MinutesPerDay: 600, USDPerCall: 1_000_000,
			BuildTimeout: 30 * time.Minute, MaxParallelIssues: 3, MaxParallelAgents: 4,
		},
		Pipeline: Pipeline{
			MaxPlanRevisions: 3, MaxCodingIterations: 7, MaxAdvisorInvocations: 1, MaxReplans: 4, MaxVerifyFixCycles: 2,
			MaxCIFixCycles: 1, CIWait: 10 * time.Minute, CIPoll: 5 * time.Second, AgentTimeout: time.Minute, AgentMaxTurns: 9,
			MaxAgentsPerBuild: 70, MaxConcurrency: 3, ApproveSubagents: true, MaxTasks: 6, Barrier: "level", FailureAbortRatio: 0.5,
			ApprovalExpiry: 24 * time.Hour, KeepRefs: 7 * 24 * time.Hour,
		},
		origins: got.origins,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	// Every knob but the roles of models is in the file above.
	for _, k := range repoKnobs {
		if !strings.HasPrefix(k.key, "models.") && got.Origin(k.key) != "a.yml" {
			t.Errorf("%s was not read", k.key)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			_, err := Parse([]byte(c.file), "f.yml")
			if err == nil {
				t.Fatal("accepted")
			}
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("the error is a %T", err)
			}
			exact := c.want != "f.yml" && !strings.HasSuffix(c.want, ": ")
			if got := err.Error(); exact && got != c.want || !strings.HasPrefix(got, c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEmptyFilesSetNothing(t *testing.T) {
	for name, file := range map[string]string{"empty": "", "blank": "\n \n", "only a comment": "# nothing\n", "an empty section": "limits:\n", "null": "null\n"} {
		t.Run(name, func(t *testing.T) {
			r, err := Parse([]byte(file), "f")
			if err != nil || len(r.Settings()) != 0 {
				t.Errorf("got %v, %v", r.Settings(), err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	var out strings.Builder
	for _, s := range Defaults().Settings() {
		fmt.Fprintf(&out, "%s=%s (%s)\n", s.Key, s.Value, s.Origin)
	}
	const want = `runtime=claude_code (default)
build.label=slipway:build (default)
build.approval=never (default)
build.branch=slipway/{ticket}-{slug} (default)
review.severity=medium (default)
review.min_confidence=80 (default)
review.label=slipway:review (default)
review.auto=false (default)
review.max_findings=10 (default)
review.minutes=15 (default)
limits.usd_per_build=25 (default)
limits.usd_per_call=2 (default)
limits.usd_per_day=200 (default)
limits.calls_per_day=0 (default)
limits.minutes_per_day=0 (default)
limits.minutes_per_build=240 (default)
limits.max_parallel_issues=8 (default)
limits.max_parallel_agents=8 (default)
pipeline.max_review_iterations=2 (default)
pipeline.max_plan_revisions=2 (default)
pipeline.max_coding_iterations=5 (default)
pipeline.max_advisor_invocations=2 (default)
pipeline.max_replans=2 (default)
pipeline.max_splits=4 (default)
pipeline.max_verify_fix_cycles=1 (default)
pipeline.max_integration_test_retries=1 (default)
pipeline.max_ci_fix_cycles=2 (default)
pipeline.ci_wait_seconds=1500 (default)
pipeline.ci_poll_seconds=30 (default)
pipeline.agent_timeout_seconds=2700 (default)
pipeline.agent_max_turns=150 (default)
pipeline.max_agents_per_build=5000 (default)
pipeline.max_concurrency=8 (default)
pipeline.approve_subagents=false (default)
pipeline.max_tasks=10 (default)
pipeline.barrier=none (default)
pipeline.enable_replanning=true (default)
pipeline.enable_issue_advisor=true (default)
pipeline.enable_integration_testing=true (default)
pipeline.enable_learning=true (default)
pipeline.enable_review=true (default)
pipeline.check_ci=true (default)
pipeline.failure_abort_ratio=0.8 (default)
pipeline.approval_expires_in_hours=72 (default)
pipeline.keep_refs_days=30 (default)
`
	if out.String() != want {
		t.Errorf("got\n%s", &out)
	}
	if Defaults().Models == nil {
		t.Error("models are nil")
	}
}

// A default must be a value that a file could hold.
func TestDefaultsAreValid(t *testing.T) {
	d := Defaults()
	for _, k := range repoKnobs {
		if v := k.show(&d); v != "" {
			if err := k.read(&Repo{Models: Models{}}, &yaml.Node{Kind: yaml.ScalarNode, Value: v}); err != nil {
				t.Errorf("%s: %v", k.key, err)
			}
		}
	}
}

func TestOver(t *testing.T) {
	parse := func(file, origin string) Repo {
		t.Helper()
		r, err := Parse([]byte(file), origin)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	repo := parse("models: {coder: opus}\npipeline: {max_review_iterations: 0}\n", "repository")
	owner := parse("models: {coder: haiku, default: haiku}\nlimits: {usd_per_build: 5}\n", "owner")
	server := parse("limits: {usd_per_build: 9, usd_per_call: 0.5}\n", "server")
	got := repo.Over(owner).Over(server).Over(Defaults())
	for key, want := range map[string]string{
		"models.coder": "repository opus", "models.default": "owner haiku", "limits.usd_per_build": "owner 5",
		"limits.usd_per_call": "server 0.5", "limits.max_parallel_agents": "default 8",
		"pipeline.max_review_iterations": "repository 0", "commands.test": " ", "no.such.key": " ",
	} {
		value := ""
		for _, s := range got.Settings() {
			if s.Key == key {
				value = s.Value
			}
		}
		if has := got.Origin(key) + " " + value; has != want {
			t.Errorf("%s: got %q, want %q", key, has, want)
		}
	}
	if got.Limits.USDPerBuild != 5_000_000 || got.Pipeline.MaxReviewIterations != 0 {
		t.Errorf("got %+v", got)
	}
	if owner.Models["coder"] != "haiku" || owner.Origin("models.coder") != "owner" || len(Defaults().Models) != 0 {
		t.Error("a layer was changed by laying another over it")
	}
	if other := parse("limits: {usd_per_build: 7}", "x").Over(Repo{}); other.Limits.USDPerBuild != 7_000_000 {
		t.Error("a layer over the zero value is lost")
	}
}

func TestLoadServer(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "slipway.yml")
	content := `state_dir: /srv/slipway
listen: ":9000"
sandbox: landlock
github:
  app_id: 77
  private_key_file: /etc/key.pem
  webhook_secrets: [old-secret, new-secret]
  base_url: https://git.example.com/api/v3
slots: { builds: 5 }
chat: { prefix: "/slipway ", per_hour: 0, bots: ["Renovate[bot]", backport], bots_per_day: 3 }
repository:
  limits: { usd_per_build: 3 }
`
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := LoadServer(file, []string{"HOME=/home/x", "SLIPWAY_GITHUB_APP_ID=78", "SLIPWAY_LISTEN=", "PATH=/bin"})
	if err != nil {
		t.Fatal(err)
	}
	want := Server{
		StateDir: "/srv/slipway", Listen: ":9000", Sandbox: "landlock",
		GitHub: GitHub{
			AppID: 78, PrivateKeyFile: "/etc/key.pem", WebhookSecrets: []Secret{"old-secret", "new-secret"},
			BaseURL: "https://git.example.com/api/v3/", Slug: "slipway",
		},
		Slots: Slots{Deliveries: 16, Builds: 5, Reviews: 2}, Repo: got.Repo,
		Chat: Chat{Prefix: "/slipway ", Bots: []string{"renovate", "backport"}, BotsPerDay: 3},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if got.Repo.Limits.USDPerBuild != 3_000_000 || got.Repo.Origin("limits.usd_per_build") != file {
		t.Errorf("the embedded defaults are lost: %+v", got.Repo)
	}
	if missing := got.Missing(); missing != nil {
		t.Errorf("missing %v", missing)
	}
	if s := fmt.Sprintf("%+v %#v", got, got); strings.Contains(s, "old-secret") {
		t.Error("a secret was printed")
	}
}

func TestServerWithoutAnything(t *testing.T) {
	got, err := LoadServer("", []string{"HOME=/home/x"})
	if err != nil {
		t.Fatal(err)
	}
	if got.StateDir != "/home/x/.local/state/slipway" || got.Listen != "127.0.0.1:8080" || got.Sandbox != "auto" ||
		got.GitHub.BaseURL != "https://api.github.com/" || got.GitHub.Slug != "slipway" {
		t.Errorf("got %+v", got)
	}
	missing := strings.Join(got.Missing(), "\n")
	for _, name := range []string{"SLIPWAY_GITHUB_APP_ID", "SLIPWAY_GITHUB_PRIVATE_KEY_FILE", "SLIPWAY_GITHUB_WEBHOOK_SECRETS", "github.app_id"} {
		if !strings.Contains(missing, name) {
			t.Errorf("%s is not named in:\n%s", name, missing)
		}
	}
}

func TestStateDir(t *testing.T) {
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"XDG":          {[]string{"HOME=/h", "XDG_STATE_HOME=/x"}, "/x/slipway"},
		"relative XDG": {[]string{"HOME=/h", "XDG_STATE_HOME=x"}, "/h/.local/state/slipway"},
		"given":        {[]string{"HOME=/h", "SLIPWAY_STATE_DIR=/s"}, "/s"},
		"nowhere":      {nil, ""},
		"relative":     {[]string{"HOME=/h", "SLIPWAY_STATE_DIR=s"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := LoadServer("", c.env)
			if got.StateDir != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v", got.StateDir, err)
			}
		})
	}
}

func TestServerEnvironment(t *testing.T) {
	got, err := LoadServer("", []string{
		"HOME=/h", "SLIPWAY_GITHUB_WEBHOOK_SECRETS=one, two", "SLIPWAY_GITHUB_BASE_URL=http://127.0.0.1:4000/api",
		"SLIPWAY_GITHUB_PRIVATE_KEY=-----BEGIN", "SLIPWAY_SLOTS_BUILDS=3", "SLIPWAY_SANDBOX=none",
		"SLIPWAY_CHAT_BOTS=renovate, backport[bot]",
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GitHub.WebhookSecrets) != 2 || got.GitHub.WebhookSecrets[1].Reveal() != "two" || got.Slots.Builds != 3 ||
		got.Sandbox != "none" || !slices.Equal(got.Chat.Bots, []string{"renovate", "backport"}) || got.Chat.Prefix != "/" || got.Chat.PerHour != 200 || got.GitHub.BaseURL != "http://127.0.0.1:4000/api/" {
		t.Errorf("got %+v", got)
	}
	if key, err := got.GitHub.Key(); err != nil || key.Reveal() != "-----BEGIN" {
		t.Errorf("key %q, %v", key.Reveal(), err)
	}
}

func TestServerRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  []string
		want string
	}{
		"an unknown key":              {"lisen: x\n", nil, ":1: lisen: unknown key; valid here: chat, github, listen, prices, record, redis_url, sandbox, slots, state_dir"},
		"an empty secret":             {"github:\n  webhook_secrets: ['']\n", nil, ":2: github.webhook_secrets: an empty secret protects nothing"},
		"no secrets":                  {"github:\n  webhook_secrets: []\n", nil, ":2: github.webhook_secrets: an empty list of secrets accepts nothing"},
		"a secret that is no list":    {"github:\n  webhook_secrets: s3cr3t-value\n", nil, ":2: github.webhook_secrets: want a list of secrets"},
		"a secret that is a number":   {"github:\n  webhook_secrets: [1234567]\n", nil, ":2: github.webhook_secrets: want text (in quotes)"},
		"an id that is text":          {"github: {app_id: mine}\n", nil, `:1: github.app_id: want a whole number from 1`},
		"an unknown sandbox":          {"sandbox: docker\n", nil, `:1: sandbox: unknown mode "docker"; there are: auto, bubblewrap, landlock, none`},
		"a listen without a port":     {"listen: localhost\n", nil, `:1: listen: want host:port`},
		"tokens over http":            {"github: {base_url: 'http://git.example.com/api/v3/'}\n", nil, ":1: github.base_url: want https"},
		"a password in an address":    {"github: {base_url: 'https://u:p@git.example.com/'}\n", nil, ":1: github.base_url: want an address"},
		"a mistake in the embedded":   {"repository:\n  limits:\n    usd: 3\n", nil, ":3: repository.limits.usd: unknown key; valid here: calls_per_day"},
		"prices in the embedded":      {"repository:\n  prices: {m: {input: 1, output: 1}}\n", nil, ":2: repository.prices: prices stand at the top"},
		"prices that are no mapping":  {"prices: 3\n", nil, ":1: prices: want a mapping from models to their prices"},
		"prices in the environment":   {"", []string{"SLIPWAY_PRICES=m"}, "environment: SLIPWAY_PRICES: want a mapping from models"},
		"a price of one number":       {"prices:\n  m: 3\n", nil, ":2: prices.m: want a mapping with the keys cache_read, cache_write, input, output, got the number 3"},
		"an unknown part of a price":  {"prices:\n  m:\n    input: 1\n    outptu: 2\n", nil, ":4: prices.m.outptu: unknown key; valid here: cache_read, cache_write, input, output"},
		"half a price":                {"prices:\n  m: { input: 1 }\n", nil, ":2: prices.m: output is missing"},
		"a negative price":            {"prices:\n  m: { input: -1, output: 1 }\n", nil, ":2: prices.m.input: want US dollars per million tokens such as 2.50, at most 10000, got -1"},
		"a price per token":           {"prices:\n  m: { input: 0.0000025, output: 1 }\n", nil, ":2: prices.m.input: want US dollars"},
		"a price in micro-dollars":    {"prices:\n  m: { input: 2500000, output: 1 }\n", nil, ":2: prices.m.input: want US dollars"},
		"a free cache":                {"prices:\n  m: { input: 1, output: 1, cache_read: 0 }\n", nil, ":2: prices.m.cache_read: want more than 0; leave it out"},
		"a model priced twice":        {"prices:\n  m: { input: 1, output: 1 }\n  m: { input: 2, output: 1 }\n", nil, ":3: prices.m: given twice"},
		"a number as a model":         {"prices:\n  3: { input: 1, output: 1 }\n", nil, ":2: prices: want the name of a model, got the number 3"},
		"embedded that is no mapping": {"repository: 3\n", nil, ":1: repository: want a mapping"},
		"a prefix that is a word":     {"chat: {prefix: slipway}\n", nil, ":1: chat.prefix: want / or a word such as \"/slipway \""},
		"a prefix without its blank":  {"chat: {prefix: /slipway}\n", nil, ":1: chat.prefix: want / or a word"},
		"a prefix of two lines":       {"chat: {prefix: \"/\\n\"}\n", nil, ":1: chat.prefix: want / or a word"},
		"a mention as a prefix":       {"chat: {prefix: '@'}\n", nil, ":1: chat.prefix: want / or a word"},
		"a bot that is no list":       {"chat: {bots: renovate}\n", nil, ":1: chat.bots: want a list of Apps, such as [renovate], got the text"},
		"a bot with a slash":          {"chat: {bots: [app/renovate]}\n", nil, ":1: chat.bots: \"app/renovate\" is no App's name"},
		"bots without a cap":          {"chat: {bots_per_day: 0}\n", nil, ":1: chat.bots_per_day: want a whole number from 1"},
		"a misspelt variable":         {"", []string{"SLIPWAY_GITHUB_WEBHOOK_SECRET=s3cr3t-value"}, "environment: SLIPWAY_GITHUB_WEBHOOK_SECRET: unknown variable; valid: SLIPWAY_GITHUB_APP_ID"},
		"a bad variable":              {"", []string{"SLIPWAY_SLOTS_BUILDS=lots"}, "environment: SLIPWAY_SLOTS_BUILDS: want a whole number from 1 to 64, got lots"},
		"an empty secret among two":   {"", []string{"SLIPWAY_GITHUB_WEBHOOK_SECRETS=s3cr3t-value,"}, "an empty secret protects nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "s.yml")
			if err := os.WriteFile(file, []byte(c.file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadServer(file, append(c.env, "HOME=/h"))
			if err == nil {
				t.Fatal("accepted")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cr3t") || strings.Contains(err.Error(), "1234567") {
				t.Errorf("the error shows a secret: %v", err)
			}
		})
	}
	if _, err := LoadServer(filepath.Join(t.TempDir(), "none.yml"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestKeyFromFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "key.pem")
	if _, err := (GitHub{PrivateKeyFile: file}).Key(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (GitHub{PrivateKeyFile: file}).Key(); err == nil {
		t.Error("an empty key is accepted")
	}
	if err := os.WriteFile(file, []byte("PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	if key, err := (GitHub{PrivateKeyFile: file}).Key(); err != nil || key.Reveal() != "PEM" {
		t.Errorf("got %v", err)
	}
	if _, err := (GitHub{}).Key(); err == nil {
		t.Error("no key is accepted")
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("limits: {usd_per_build: 3}\nmodels: {coder: 'command:x'}\n"))
	f.Add([]byte("models: {coder: 'a@high | command:b@none', qa: 'x@none'}\n"))
	f.Add([]byte("? [a]\n: b\n<<: *x\n"))
	f.Add([]byte("a: &a [*a]\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := Parse(file, "f")
		if err != nil {
			if e, ok := errors.AsType[*Error](err); !ok || len(e.Problems) == 0 {
				t.Errorf("%T without problems", err)
			}
			return
		}
		// What was accepted can be laid over the defaults and asked for.
		merged := r.Over(Defaults())
		if merged.Limits.USDPerBuild <= 0 || merged.Limits.MaxParallelIssues < 1 || merged.Pipeline.MaxCodingIterations < 1 {
			t.Errorf("accepted %q as %+v", file, merged)
		}
		for _, role := range roleKeys {
			if _, err := merged.Resolve("", role); (err != nil) && merged.Check() == nil {
				t.Errorf("accepted %q, but %v", bytes.TrimSpace(file), err)
			}
		}
	})
}
