// Package config reads configuration: of a repository, of the server, and
// which model does what. It is strict: an unknown key or a value of the wrong
// type is an error that names the line, the key and what is wanted, and every
// key that is accepted has a meaning in this version.
//
// A repository's configuration has layers: the repository's own file over its
// owner's over the server's over the defaults. A value that is present wins,
// and Origin says where it came from.
package config

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Repo is the configuration of a repository. What Parse returns is one layer,
// with zero values where its file is silent; put it over Defaults to use it.
type Repo struct {
	Runtime  string // runtime: claude_code, command or replay
	Models   Models // models
	Commands Commands
	Build    Build
	Limits   Limits
	Pipeline Pipeline

	origins map[string]string // by key, for every value that is present
}

// Commands are what the engine itself runs as evidence. An empty one is to be
// detected.
type Commands struct {
	Setup string // commands.setup
	Build string // commands.build
	Test  string // commands.test
	Lint  string // commands.lint
}

// Build says what starts a build and where its work goes.
type Build struct {
	Label  string // build.label: the label that starts a build
	Base   string // build.base: the branch to build on; empty is the default branch
	Branch string // build.branch: name of the branch written, with {ticket} and {slug}
}

// Limits bound what a build may use.
type Limits struct {
	USDPerBuild       Micros        // limits.usd_per_build, in US dollars
	USDPerCall        Micros        // limits.usd_per_call, in US dollars: the reserve of one agent call
	BuildTimeout      time.Duration // limits.minutes_per_build
	MaxParallelIssues int           // limits.max_parallel_issues, of one build
	MaxParallelAgents int           // limits.max_parallel_agents: agent calls at a time
}

// Pipeline sets how hard a build tries.
type Pipeline struct {
	MaxReviewIterations int           // pipeline.max_review_iterations: rounds of architect and tech lead after the first
	MaxCodingIterations int           // pipeline.max_coding_iterations: rounds of an issue's coding loop
	AgentTimeout        time.Duration // pipeline.agent_timeout_seconds, of one agent call
	AgentMaxTurns       int           // pipeline.agent_max_turns, of one agent call
	FailureAbortRatio   float64       // pipeline.failure_abort_ratio: share of failed issues that ends the build
}

// A Setting is one effective value and where it came from.
type Setting struct {
	Key    string
	Value  string
	Origin string
}

var repoKnobs = append([]knob[Repo]{
	words("runtime", func(r *Repo) *string { return &r.Runtime }, CheckRuntime),
	words("commands.setup", func(r *Repo) *string { return &r.Commands.Setup }, anyText),
	words("commands.build", func(r *Repo) *string { return &r.Commands.Build }, anyText),
	words("commands.test", func(r *Repo) *string { return &r.Commands.Test }, anyText),
	words("commands.lint", func(r *Repo) *string { return &r.Commands.Lint }, anyText),
	words("build.label", func(r *Repo) *string { return &r.Build.Label }, checkLabel),
	words("build.base", func(r *Repo) *string { return &r.Build.Base }, checkBranch),
	words("build.branch", func(r *Repo) *string { return &r.Build.Branch }, checkTemplate),
	usd("limits.usd_per_build", func(r *Repo) *Micros { return &r.Limits.USDPerBuild }),
	usd("limits.usd_per_call", func(r *Repo) *Micros { return &r.Limits.USDPerCall }),
	lasting("limits.minutes_per_build", func(r *Repo) *time.Duration { return &r.Limits.BuildTimeout }, time.Minute, 1, 7*24*60),
	whole("limits.max_parallel_issues", func(r *Repo) *int { return &r.Limits.MaxParallelIssues }, 1, 64),
	whole("limits.max_parallel_agents", func(r *Repo) *int { return &r.Limits.MaxParallelAgents }, 1, 256),
	whole("pipeline.max_review_iterations", func(r *Repo) *int { return &r.Pipeline.MaxReviewIterations }, 0, 20),
	whole("pipeline.max_coding_iterations", func(r *Repo) *int { return &r.Pipeline.MaxCodingIterations }, 1, 50),
	lasting("pipeline.agent_timeout_seconds", func(r *Repo) *time.Duration { return &r.Pipeline.AgentTimeout }, time.Second, 1, 24*60*60),
	whole("pipeline.agent_max_turns", func(r *Repo) *int { return &r.Pipeline.AgentMaxTurns }, 1, 10_000),
	share("pipeline.failure_abort_ratio", func(r *Repo) *float64 { return &r.Pipeline.FailureAbortRatio }),
}, modelKnobs()...)

// Defaults are the values that count where no file says otherwise.
func Defaults() Repo {
	r := Repo{
		Runtime: "claude_code",
		Models:  Models{},
		Build:   Build{Label: "slipway:build", Branch: "slipway/{ticket}-{slug}"},
		Limits: Limits{
			USDPerBuild: 25_000_000, USDPerCall: 2_000_000, BuildTimeout: 240 * time.Minute,
			MaxParallelIssues: 8, MaxParallelAgents: 8,
		},
		Pipeline: Pipeline{
			MaxReviewIterations: 2, MaxCodingIterations: 5,
			AgentTimeout: 2700 * time.Second, AgentMaxTurns: 150, FailureAbortRatio: 0.8,
		},
		origins: map[string]string{},
	}
	for _, k := range repoKnobs {
		if k.show(&r) != "" {
			r.origins[k.key] = "default"
		}
	}
	return r
}

// Parse reads one layer. The error is an *Error that lists every problem.
func Parse(file []byte, origin string) (Repo, error) {
	r := Repo{Models: Models{}, origins: map[string]string{}}
	in := reader[Repo]{knobs: repoKnobs, into: &r, origin: origin, origins: r.origins}
	if err := in.read(file); err != nil {
		return Repo{}, err
	}
	return r, nil
}

// Over is the layer r over the layer under: where r says nothing, under counts.
func (r Repo) Over(under Repo) Repo {
	out := under
	out.Models, out.origins = maps.Clone(under.Models), maps.Clone(under.origins)
	if out.Models == nil {
		out.Models = Models{}
	}
	if out.origins == nil {
		out.origins = map[string]string{}
	}
	for _, k := range repoKnobs {
		if origin, ok := r.origins[k.key]; ok {
			k.copy(&out, &r)
			out.origins[k.key] = origin
		}
	}
	return out
}

// Origin says which layer the value of a dotted key came from; empty when no
// layer has it.
func (r Repo) Origin(key string) string { return r.origins[key] }

// Settings lists the values that are present, in the order of the
// documentation.
func (r Repo) Settings() []Setting {
	var out []Setting
	for _, k := range repoKnobs {
		if origin, ok := r.origins[k.key]; ok {
			out = append(out, Setting{Key: k.key, Value: k.show(&r), Origin: origin})
		}
	}
	return out
}

// modelKnobs has a knob for each key of Models.
func modelKnobs() []knob[Repo] {
	var out []knob[Repo]
	for _, role := range append([]string{defaultModel}, roleKeys...) {
		out = append(out, knob[Repo]{
			key: "models." + role,
			read: func(r *Repo, n *yaml.Node) error {
				v, err := readText(n)
				if err != nil {
					return err
				}
				r.Models[role] = v
				return checkModel(v)
			},
			show: func(r *Repo) string { return r.Models[role] },
			copy: func(to, from *Repo) { to.Models[role] = from.Models[role] },
		})
	}
	return out
}

func anyText(string) error { return nil }

func checkLabel(s string) error {
	if len([]rune(s)) > 50 || strings.ContainsAny(s, ",\n") {
		return errors.New("want a label: at most 50 characters, no comma")
	}
	return nil
}

// What a branch may be called: the part of git's rules that people use. The
// first character is no dash, so that git cannot read a name as an option.
var branchName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.+-]*(/[A-Za-z0-9_][A-Za-z0-9_.+-]*)*$`)

func checkBranch(s string) error {
	if len(s) > 200 || !branchName.MatchString(s) || strings.Contains(s, "..") ||
		strings.HasSuffix(s, ".") || strings.HasSuffix(s, ".lock") || strings.Contains(s, ".lock/") {
		return fmt.Errorf("%q is no name of a branch", s)
	}
	return nil
}

var placeholder = regexp.MustCompile(`\{[^{}]*\}`)

func checkTemplate(s string) error {
	for _, p := range placeholder.FindAllString(s, -1) {
		if p != "{ticket}" && p != "{slug}" {
			return fmt.Errorf("unknown placeholder %s; there are: {ticket}, {slug}", p)
		}
	}
	if !strings.Contains(s, "{ticket}") {
		return errors.New("want {ticket} in the name, so that no two tickets share a branch")
	}
	return checkBranch(placeholder.ReplaceAllString(s, "x"))
}
