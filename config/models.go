package config

import (
	"fmt"
	"slices"
	"strings"
)

// Models says which model each role asks: the key default, and a key for each
// role that differs. A value is a model in its runtime's own spelling, or
// runtime:model for a role that runs elsewhere.
type Models map[string]string

// A Target is the runtime and the model that a role's calls go to. An empty
// model is the runtime's own choice.
type Target struct {
	Runtime string
	Model   string
}

// The model key that counts for every role without a key of its own.
const defaultModel = "default"

// roleKeys are the keys of Models next to default.
var roleKeys = []string{
	"pm", "architect", "tech_lead", "sprint_planner", "coder", "qa", "code_reviewer", "qa_synthesizer",
	"replan", "retry_advisor", "issue_writer", "issue_advisor", "verifier", "git", "merger",
	"integration_tester", "ci_fixer", "lens",
}

// A kind of runtime and what it asks for by itself. Those without models take
// none by default.
type runtimeKind struct {
	name   string
	later  bool   // has a name, but this version cannot run it
	model  string // default
	models Models // defaults of single roles
}

var runtimeKinds = []runtimeKind{
	{name: "claude_code", model: "sonnet", models: Models{"qa_synthesizer": "haiku"}},
	{name: "command"},
	{name: "replay"},
	{name: "open_code", later: true, model: "minimax/minimax-m2.5"},
	{name: "codex", later: true},
	{name: "native", model: "anthropic/claude-sonnet-5-5", models: Models{"qa_synthesizer": "anthropic/claude-haiku-5-5"}},
}

// Resolve says where the calls of a role go: the runtime's default model gives
// way to the key default, and this to the role's own key.
func (m Models) Resolve(runtime, role string) (Target, error) {
	if !slices.Contains(roleKeys, role) {
		return Target{}, fmt.Errorf("resolve model: unknown role %q; there are: %s", role, strings.Join(roleKeys, ", "))
	}
	target := Target{Runtime: runtime}
	if v := m[defaultModel]; v != "" {
		target = splitTarget(runtime, v)
	}
	if v := m[role]; v != "" {
		target = splitTarget(runtime, v)
	}
	if err := CheckRuntime(target.Runtime); err != nil {
		return Target{}, fmt.Errorf("resolve model of %s: %w", role, err)
	}
	if target.Model == "" {
		target.Model = defaultOf(target.Runtime, role)
	}
	return target, nil
}

// CheckRuntime fails unless this version can run the named runtime.
func CheckRuntime(name string) error {
	var have []string
	for _, k := range runtimeKinds {
		switch {
		case k.name == name && k.later:
			return fmt.Errorf("this version does not have the runtime %s yet", name)
		case k.name == name:
			return nil
		case !k.later:
			have = append(have, k.name)
		}
	}
	return fmt.Errorf("unknown runtime %q; there are: %s", name, strings.Join(have, ", "))
}

// splitTarget reads "model" or "runtime:model". Models may have colons of
// their own, so only the name of a runtime counts as one.
func splitTarget(runtime, value string) Target {
	if name, model, ok := strings.Cut(value, ":"); ok {
		if slices.ContainsFunc(runtimeKinds, func(k runtimeKind) bool { return k.name == name }) {
			return Target{Runtime: name, Model: model}
		}
	}
	return Target{Runtime: runtime, Model: value}
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

// checkModel accepts what can be handed to a runtime as one argument.
func checkModel(value string) error {
	target := splitTarget("command", value)
	if err := CheckRuntime(target.Runtime); err != nil {
		return err
	}
	if strings.HasPrefix(target.Model, "-") || strings.ContainsFunc(value, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%q is no name of a model", value)
	}
	return nil
}
