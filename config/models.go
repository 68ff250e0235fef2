package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Models says which model each role asks: the key default, and a key for each
// role that differs. A value is a chain of [runtime:]model[@effort] with bars
// between: the model is in its runtime's own spelling, and each link is asked
// when the one before it has failed for good.
type Models map[string]string

// A Target is the runtime and the model that a role's calls go to.
type Target struct {
	Runtime string
	Model   string // empty: the runtime's own choice
	Effort  string // how hard the model thinks; empty: its default
}

// The model key that counts for every role without a key of its own.
const defaultModel = "default"

// roleKeys are the keys of Models next to default.
var roleKeys = []string{
	"pm", "architect", "tech_lead", "sprint_planner", "coder", "qa", "code_reviewer", "qa_synthesizer",
	"replan", "retry_advisor", "issue_writer", "issue_advisor", "verifier", "git", "merger",
	"integration_tester", "ci_fixer", "lens",
}

// efforts are the words for how hard a model thinks.
var efforts = []string{"none", "minimal", "low", "medium", "high", "xhigh", "max"}

// A kind of runtime and what it asks for by itself. Those without models take
// none by default.
type runtimeKind struct {
	name    string
	any     bool     // names of models mean nothing to it: it takes those of others
	model   string   // default
	models  Models   // defaults of single roles
	efforts []string // that it takes; nil: all, and its model decides
}

var runtimeKinds = []runtimeKind{
	// The efforts of claude --help.
	{name: "claude_code", model: "sonnet", models: Models{"qa_synthesizer": "haiku"}, efforts: []string{"low", "medium", "high", "xhigh", "max"}},
	{name: "open_code", model: "minimax/minimax-m2.5"},
	{name: "codex"},
	{name: "native", model: "anthropic/claude-sonnet-5-5", models: Models{"qa_synthesizer": "anthropic/claude-haiku-5-5"}},
	{name: "command", any: true},
	{name: "replay", any: true},
}

// Roles lists the keys of Models next to default, one for each role.
func Roles() []string { return slices.Clone(roleKeys) }

// Resolve says where the calls of a role go, in the order in which it is tried:
// the runtime's default model gives way to the key default, and this to the
// role's own key. There is at least one target.
func (m Models) Resolve(runtime, role string) ([]Target, error) {
	if !slices.Contains(roleKeys, role) {
		return nil, fmt.Errorf("resolve model: unknown role %q; there are: %s", role, strings.Join(roleKeys, ", "))
	}
	chain := []Target{{Runtime: runtime}}
	if value := m[m.keyOf(role)]; value != "" {
		var err error
		if chain, err = parseChain(runtime, value); err != nil {
			return nil, fmt.Errorf("resolve model of %s: %w", role, err)
		}
	}
	for i, t := range chain {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("resolve model of %s: %w", role, err)
		}
		if t.Model == "" {
			chain[i].Model = defaultOf(t.Runtime, role)
		}
	}
	return chain, nil
}

// ResolveOnly is Resolve where the runtime only runs every role. Links that
// name another runtime get its default, except where names of models mean
// nothing to it: there each keeps the model that is configured.
func (m Models) ResolveOnly(only, runtime, role string) ([]Target, error) {
	if translates(only) {
		runtime = only
	}
	chain, err := m.Resolve(runtime, role)
	if err != nil {
		return nil, err
	}
	return moved(chain, only, role), nil
}

// moved is the chain on one runtime.
func moved(chain []Target, only, role string) (out []Target) {
	translates := translates(only)
	for _, t := range chain {
		if t.Runtime != only && translates {
			t = Target{Model: defaultOf(only, role)}
		}
		if t.Runtime = only; !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// translates reports whether names of models mean something to the runtime.
func translates(name string) bool {
	return slices.ContainsFunc(runtimeKinds, func(k runtimeKind) bool { return k.name == name && !k.any })
}

// keyOf is the key of Models that decides about a role; empty when none does.
func (m Models) keyOf(role string) string {
	for _, key := range []string{role, defaultModel} {
		if m[key] != "" {
			return key
		}
	}
	return ""
}

// An Assignment is who answers for a role, and which key of a configuration
// says so.
type Assignment struct {
	Role   string
	Chain  []Target
	Key    string // models.<role>, models.default, or runtime where its own default counts
	Origin string // the layer that the key's value is from
}

// Assignments resolves every role. Where only is not empty, that runtime runs
// all of them.
func (r Repo) Assignments(only string) ([]Assignment, error) {
	var out []Assignment
	for _, role := range roleKeys {
		chain, err := r.Resolve(only, role)
		if err != nil {
			return nil, err
		}
		a := Assignment{Role: role, Chain: chain, Key: "runtime"}
		if key := r.Models.keyOf(role); key != "" {
			a.Key = "models." + key
		}
		a.Origin = r.origins[a.Key]
		out = append(out, a)
	}
	return out, nil
}

// Resolve is that of Models on the configured runtime, or on only where that is
// not empty.
func (r Repo) Resolve(only, role string) ([]Target, error) {
	if r.target != "" {
		chain, err := r.resolveTarget(role)
		if err == nil && only != "" {
			chain = moved(chain, only, role)
		}
		return chain, err
	}
	if only != "" {
		return r.Models.ResolveOnly(only, r.Runtime, role)
	}
	return r.Models.Resolve(r.Runtime, role)
}

// On is the configuration with every role on one target, which CheckTarget
// takes: on a runtime, with the models that are configured for it or its own, or
// on the one model of a link.
func (r Repo) On(target string) Repo {
	r.target = target
	return r
}

func (r Repo) resolveTarget(role string) ([]Target, error) {
	if CheckRuntime(r.target) != nil {
		return Models{defaultModel: r.target}.Resolve(r.Runtime, role)
	}
	chain, err := r.Models.Resolve(r.Runtime, role)
	return moved(chain, r.target, role), err
}

// CheckTarget fails unless every role of a build can be put on what the text
// names: a runtime, or a link that names its runtime and its model.
func CheckTarget(text string) error {
	name, model, linked := strings.Cut(text, ":")
	if err := CheckRuntime(name); err != nil || !linked {
		return err
	}
	if model == "" || strings.ContainsAny(text, "|,") {
		return fmt.Errorf("%q names no model; want RUNTIME:MODEL", text)
	}
	t, err := parseTarget(name, text)
	if err != nil {
		return err
	}
	return t.check()
}

// Check says whether layers that were laid over each other fit: a runtime may
// not take what another layer asks of it. The error is an *Error.
func (r Repo) Check() error {
	var problems []Problem
	for _, key := range append([]string{defaultModel}, roleKeys...) {
		value := r.Models[key]
		if value == "" {
			continue
		}
		chain, err := parseChain(r.Runtime, value)
		for _, t := range chain {
			err = errors.Join(err, t.check())
		}
		if err != nil {
			key = "models." + key
			problems = append(problems, Problem{Key: key, Text: fmt.Sprintf("%v (the key is from: %s; runtime is from: %s)", err, r.origins[key], r.origins["runtime"])})
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return &Error{Origin: "configuration", Problems: problems}
}

// CheckRuntime fails unless this version can run the named runtime.
func CheckRuntime(name string) error {
	_, err := kindOf(name)
	return err
}

// Runtimes lists the names of the runtimes.
func Runtimes() []string {
	var out []string
	for _, k := range runtimeKinds {
		out = append(out, k.name)
	}
	return out
}

func kindOf(name string) (runtimeKind, error) {
	var have []string
	for _, k := range runtimeKinds {
		if k.name == name {
			return k, nil
		}
		have = append(have, k.name)
	}
	return runtimeKind{}, fmt.Errorf("unknown runtime %q; there are: %s", name, strings.Join(have, ", "))
}

// String is the target as a link of a chain is written.
func (t Target) String() string {
	s := t.Runtime
	if t.Model != "" {
		s += ":" + t.Model
	}
	if t.Effort != "" {
		s += "@" + t.Effort
	}
	return s
}

// check says whether the target's runtime can be run and takes its effort.
func (t Target) check() error {
	kind, err := kindOf(t.Runtime)
	if err != nil {
		return err
	}
	if t.Effort != "" && kind.efforts != nil && !slices.Contains(kind.efforts, t.Effort) {
		return fmt.Errorf("%s has no effort %q; it has: %s", t.Runtime, t.Effort, strings.Join(kind.efforts, ", "))
	}
	return nil
}

// parseChain reads a value of Models. A link without a runtime is of the given
// one.
func parseChain(runtime, value string) ([]Target, error) {
	var chain []Target
	for link := range strings.SplitSeq(value, "|") {
		link = strings.TrimSpace(link)
		if link == "" {
			return nil, fmt.Errorf("%q has an empty link; want MODEL, or MODEL | FALLBACK", value)
		}
		t, err := parseTarget(runtime, link)
		if err != nil {
			return nil, err
		}
		if slices.Contains(chain, t) {
			return nil, fmt.Errorf("%q is in the chain twice", link)
		}
		chain = append(chain, t)
	}
	return chain, nil
}

// parseTarget reads [runtime:]model[@effort]. Models may have colons and at
// signs of their own: only the name of a runtime counts as one, and only
// letters count as an effort.
func parseTarget(runtime, link string) (Target, error) {
	t := Target{Runtime: runtime, Model: link}
	if name, model, ok := strings.Cut(link, ":"); ok {
		if slices.ContainsFunc(runtimeKinds, func(k runtimeKind) bool { return k.name == name }) {
			t.Runtime, t.Model = name, model
		}
	}
	if at := strings.LastIndexByte(t.Model, '@'); at >= 0 && onlyLetters(t.Model[at+1:]) {
		t.Model, t.Effort = t.Model[:at], t.Model[at+1:]
		if !slices.Contains(efforts, t.Effort) {
			return t, fmt.Errorf("%q: unknown effort %q; there are: %s", link, t.Effort, strings.Join(efforts, ", "))
		}
	}
	// It is handed to the runtime as one argument.
	if strings.HasPrefix(t.Model, "-") || strings.ContainsFunc(link, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return t, fmt.Errorf("%q is no name of a model", link)
	}
	return t, nil
}

func onlyLetters(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') })
}

func defaultOf(runtime, role string) string {
	for _, k := range runtimeKinds {
		if k.name == runtime {
			if v := k.models[role]; v != "" {
				return v
			}
			return k.model
		}
	}
	return ""
}

// checkModel accepts what parses, and whose named runtimes take it. What a link
// without a runtime asks for is checked when the layers are put together.
func checkModel(value string) error {
	chain, err := parseChain("", value)
	if err != nil {
		return err
	}
	for _, t := range chain {
		if t.Runtime == "" {
			continue
		}
		if err := t.check(); err != nil {
			return err
		}
	}
	return nil
}
