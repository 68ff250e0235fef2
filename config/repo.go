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
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"
)

// Repo is the configuration of a repository. What Parse returns is one layer,
// with zero values where its file is silent; put it over Defaults to use it.
type Repo struct {
	Runtime  string // runtime: one of those that Resolve knows
	Models   Models // models
	Commands Commands
	Build    Build
	Review   Review
	Paths    Paths
	Limits   Limits
	Pipeline Pipeline

	origins map[string]string // by key, for every value that is present
	target  string            // what runs every role, whatever is configured; empty: as configured
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
	Label    string // build.label: the label that starts a build
	Approval string // build.approval: never, or plan when nothing is coded before a person approved the plan
	Base     string // build.base: the branch to build on; empty is the default branch
	Branch   string // build.branch: name of the branch written, with {ticket} and {slug}
}

// Review says what a review holds against a change.
type Review struct {
	Severity      string // review.severity: the least severity that counts: critical, high, medium or low
	MinConfidence int    // review.min_confidence, in per cent: findings that are less certain are dropped

	Label       string        // review.label: the label that starts a review
	Auto        bool          // review.auto: each pull request is reviewed as it opens and after each push
	Lenses      []string      // review.lenses: their names; nil is all
	MaxFindings int           // review.max_findings: remarks on lines of one review
	Timeout     time.Duration // review.minutes: after that what is verified is published
}

// Paths says what is treated otherwise than the rest of a repository.
type Paths struct {
	Ignore []string // paths.ignore: patterns of what no review looks at
}

// Limits bound what a build may use.
type Limits struct {
	USDPerBuild       Micros        // limits.usd_per_build, in US dollars
	USDPerDay         Micros        // limits.usd_per_day, in US dollars: of all builds of the installation
	CallsPerDay       int           // limits.calls_per_day: agent calls of the installation; 0 is no bound
	MinutesPerDay     int           // limits.minutes_per_day: minutes of agents at work for the installation; 0 is no bound
	USDPerCall        Micros        // limits.usd_per_call, in US dollars: the reserve of one agent call
	BuildTimeout      time.Duration // limits.minutes_per_build
	MaxParallelIssues int           // limits.max_parallel_issues, of one build
	MaxParallelAgents int           // limits.max_parallel_agents: agent calls at a time
}

// Pipeline sets how hard a build tries and what it does.
type Pipeline struct {
	MaxReviewIterations       int           // pipeline.max_review_iterations: rounds of architect and tech lead after the first
	MaxPlanRevisions          int           // pipeline.max_plan_revisions: how often people may have a plan revised
	MaxCodingIterations       int           // pipeline.max_coding_iterations: turns of an issue's coding loop, anew after each retry
	MaxAdvisorInvocations     int           // pipeline.max_advisor_invocations: of the Issue Advisor, for one issue
	MaxReplans                int           // pipeline.max_replans: how often the Replanner is asked
	MaxSplits                 int           // pipeline.max_splits: how many issues may be split
	MaxVerifyFixCycles        int           // pipeline.max_verify_fix_cycles: rounds of fixes after the first verification
	MaxIntegrationTestRetries int           // pipeline.max_integration_test_retries: attempts to mend a red candidate before it is halved
	MaxCIFixCycles            int           // pipeline.max_ci_fix_cycles: rounds of the CI Fixer
	CIWait                    time.Duration // pipeline.ci_wait_seconds: how long the checks of a commit may take
	CIPoll                    time.Duration // pipeline.ci_poll_seconds: how often they are looked at
	AgentTimeout              time.Duration // pipeline.agent_timeout_seconds, of one agent call
	AgentMaxTurns             int           // pipeline.agent_max_turns, of one agent call
	MaxAgentsPerBuild         int           // pipeline.max_agents_per_build: agent calls of one build
	MaxConcurrency            int           // pipeline.max_concurrency: subagents of one batch at work at a time
	ApproveSubagents          bool          // pipeline.approve_subagents: a person is asked before a subagent of an agent starts
	MaxTasks                  int           // pipeline.max_tasks: issues of a plan made in fast mode
	Barrier                   string        // pipeline.barrier: none, or level when a landing waits until nothing is in flight
	EnableReplanning          bool          // pipeline.enable_replanning
	EnableIssueAdvisor        bool          // pipeline.enable_issue_advisor
	EnableIntegrationTesting  bool          // pipeline.enable_integration_testing
	EnableLearning            bool          // pipeline.enable_learning: what one issue taught is told to the others
	EnableReview              bool          // pipeline.enable_review: a build's own diff is reviewed before its pull request opens
	CheckCI                   bool          // pipeline.check_ci: the build waits for the checks of what it pushed
	FailureAbortRatio         float64       // pipeline.failure_abort_ratio: share of failed issues that ends the build
	ApprovalExpiry            time.Duration // pipeline.approval_expires_in_hours: how long a build waits for a person
	KeepRefs                  time.Duration // pipeline.keep_refs_days: how long a closed build's refs are kept
}

// A Setting is one effective value and where it came from.
type Setting struct {
	Key    string
	Value  string
	Origin string
}

var repoKnobs = append([]knob[Repo]{
	words("runtime", func(r *Repo) *string { return &r.Runtime }, CheckRuntime).like(form{Type: "string", Enum: Runtimes()}),
	words("commands.setup", func(r *Repo) *string { return &r.Commands.Setup }, anyText),
	words("commands.build", func(r *Repo) *string { return &r.Commands.Build }, anyText),
	words("commands.test", func(r *Repo) *string { return &r.Commands.Test }, anyText),
	words("commands.lint", func(r *Repo) *string { return &r.Commands.Lint }, anyText),
	words("build.label", func(r *Repo) *string { return &r.Build.Label }, checkLabel).like(form{Type: "string", Pattern: `^[^,\n]*[^,\s][^,\n]*$`, MaxLength: 50}),
	choice("build.approval", func(r *Repo) *string { return &r.Build.Approval }, "never", "plan"),
	words("build.base", func(r *Repo) *string { return &r.Build.Base }, checkBranch).like(form{Type: "string", Pattern: branchName.String(), MaxLength: 200}),
	words("build.branch", func(r *Repo) *string { return &r.Build.Branch }, checkTemplate).like(form{Type: "string", Pattern: `^([^{}]|\{slug\})*\{ticket\}([^{}]|\{slug\}|\{ticket\})*$`}),
	choice("review.severity", func(r *Repo) *string { return &r.Review.Severity }, "critical", "high", "medium", "low"),
	whole("review.min_confidence", func(r *Repo) *int { return &r.Review.MinConfidence }, 0, 100),
	words("review.label", func(r *Repo) *string { return &r.Review.Label }, checkLabel).like(form{Type: "string", Pattern: `^[^,\n]*[^,\s][^,\n]*$`, MaxLength: 50}),
	switched("review.auto", func(r *Repo) *bool { return &r.Review.Auto }),
	sequence("review.lenses", func(r *Repo) *[]string { return &r.Review.Lenses }, checkLens).like(list(lensName.String())),
	whole("review.max_findings", func(r *Repo) *int { return &r.Review.MaxFindings }, 0, 50),
	lasting("review.minutes", func(r *Repo) *time.Duration { return &r.Review.Timeout }, time.Minute, 1, 24*60),
	sequence("paths.ignore", func(r *Repo) *[]string { return &r.Paths.Ignore }, checkPattern).like(list(`\S`)),
	usd("limits.usd_per_build", func(r *Repo) *Micros { return &r.Limits.USDPerBuild }),
	usd("limits.usd_per_call", func(r *Repo) *Micros { return &r.Limits.USDPerCall }),
	usd("limits.usd_per_day", func(r *Repo) *Micros { return &r.Limits.USDPerDay }),
	whole("limits.calls_per_day", func(r *Repo) *int { return &r.Limits.CallsPerDay }, 0, 10_000_000),
	whole("limits.minutes_per_day", func(r *Repo) *int { return &r.Limits.MinutesPerDay }, 0, 10_000_000),
	lasting("limits.minutes_per_build", func(r *Repo) *time.Duration { return &r.Limits.BuildTimeout }, time.Minute, 1, 7*24*60),
	whole("limits.max_parallel_issues", func(r *Repo) *int { return &r.Limits.MaxParallelIssues }, 1, 64),
	whole("limits.max_parallel_agents", func(r *Repo) *int { return &r.Limits.MaxParallelAgents }, 1, 256),
	whole("pipeline.max_review_iterations", func(r *Repo) *int { return &r.Pipeline.MaxReviewIterations }, 0, 20),
	whole("pipeline.max_plan_revisions", func(r *Repo) *int { return &r.Pipeline.MaxPlanRevisions }, 0, 20),
	whole("pipeline.max_coding_iterations", func(r *Repo) *int { return &r.Pipeline.MaxCodingIterations }, 1, 50),
	whole("pipeline.max_advisor_invocations", func(r *Repo) *int { return &r.Pipeline.MaxAdvisorInvocations }, 0, 10),
	whole("pipeline.max_replans", func(r *Repo) *int { return &r.Pipeline.MaxReplans }, 0, 20),
	whole("pipeline.max_splits", func(r *Repo) *int { return &r.Pipeline.MaxSplits }, 0, 100),
	whole("pipeline.max_verify_fix_cycles", func(r *Repo) *int { return &r.Pipeline.MaxVerifyFixCycles }, 0, 10),
	whole("pipeline.max_integration_test_retries", func(r *Repo) *int { return &r.Pipeline.MaxIntegrationTestRetries }, 0, 10),
	whole("pipeline.max_ci_fix_cycles", func(r *Repo) *int { return &r.Pipeline.MaxCIFixCycles }, 0, 10),
	lasting("pipeline.ci_wait_seconds", func(r *Repo) *time.Duration { return &r.Pipeline.CIWait }, time.Second, 1, 24*60*60),
	lasting("pipeline.ci_poll_seconds", func(r *Repo) *time.Duration { return &r.Pipeline.CIPoll }, time.Second, 1, 60*60),
	lasting("pipeline.agent_timeout_seconds", func(r *Repo) *time.Duration { return &r.Pipeline.AgentTimeout }, time.Second, 1, 24*60*60),
	whole("pipeline.agent_max_turns", func(r *Repo) *int { return &r.Pipeline.AgentMaxTurns }, 1, 10_000),
	whole("pipeline.max_agents_per_build", func(r *Repo) *int { return &r.Pipeline.MaxAgentsPerBuild }, 1, 1_000_000),
	whole("pipeline.max_concurrency", func(r *Repo) *int { return &r.Pipeline.MaxConcurrency }, -1_000, 256),
	switched("pipeline.approve_subagents", func(r *Repo) *bool { return &r.Pipeline.ApproveSubagents }),
	whole("pipeline.max_tasks", func(r *Repo) *int { return &r.Pipeline.MaxTasks }, 1, 100),
	choice("pipeline.barrier", func(r *Repo) *string { return &r.Pipeline.Barrier }, "none", "level"),
	switched("pipeline.enable_replanning", func(r *Repo) *bool { return &r.Pipeline.EnableReplanning }),
	switched("pipeline.enable_issue_advisor", func(r *Repo) *bool { return &r.Pipeline.EnableIssueAdvisor }),
	switched("pipeline.enable_integration_testing", func(r *Repo) *bool { return &r.Pipeline.EnableIntegrationTesting }),
	switched("pipeline.enable_learning", func(r *Repo) *bool { return &r.Pipeline.EnableLearning }),
	switched("pipeline.enable_review", func(r *Repo) *bool { return &r.Pipeline.EnableReview }),
	switched("pipeline.check_ci", func(r *Repo) *bool { return &r.Pipeline.CheckCI }),
	share("pipeline.failure_abort_ratio", func(r *Repo) *float64 { return &r.Pipeline.FailureAbortRatio }),
	lasting("pipeline.approval_expires_in_hours", func(r *Repo) *time.Duration { return &r.Pipeline.ApprovalExpiry }, time.Hour, 1, 24*365),
	lasting("pipeline.keep_refs_days", func(r *Repo) *time.Duration { return &r.Pipeline.KeepRefs }, 24*time.Hour, 0, 3650),
}, modelKnobs()...)

// Defaults are the values that count where no file says otherwise.
func Defaults() Repo {
	r := Repo{
		Runtime: "claude_code",
		Models:  Models{},
		Build:   Build{Label: "slipway:build", Approval: "never", Branch: "slipway/{ticket}-{slug}"},
		Review:  Review{Severity: "medium", MinConfidence: 80, Label: "slipway:review", MaxFindings: 10, Timeout: 15 * time.Minute},
		Limits: Limits{
			USDPerBuild: 25_000_000, USDPerDay: 200_000_000, USDPerCall: 2_000_000, BuildTimeout: 240 * time.Minute,
			MaxParallelIssues: 8, MaxParallelAgents: 8,
		},
		Pipeline: Pipeline{
			MaxReviewIterations: 2, MaxPlanRevisions: 2, MaxCodingIterations: 5, MaxAdvisorInvocations: 2,
			MaxReplans: 2, MaxSplits: 4, MaxVerifyFixCycles: 1, MaxIntegrationTestRetries: 1, MaxCIFixCycles: 2,
			CIWait: 1500 * time.Second, CIPoll: 30 * time.Second,
			AgentTimeout: 2700 * time.Second, AgentMaxTurns: 150, MaxAgentsPerBuild: 5000, MaxConcurrency: 8, MaxTasks: 10, Barrier: "none",
			EnableReplanning: true, EnableIssueAdvisor: true, EnableIntegrationTesting: true,
			EnableLearning: true, EnableReview: true, CheckCI: true,
			FailureAbortRatio: 0.8, ApprovalExpiry: 72 * time.Hour, KeepRefs: 30 * 24 * time.Hour,
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
	in := reader[Repo]{knobs: repoKnobs, into: &r, origin: origin, origins: r.origins, other: refusePrices}
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
			form: form{Type: "string", Pattern: `^\s*[^\s|-][^\s|]*\s*(\|\s*[^\s|-][^\s|]*\s*)*$`},
		})
	}
	return out
}

func anyText(string) error { return nil }

// oneOf accepts the listed words.
func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("want %s, got %q", strings.Join(words, " or "), s)
		}
		return nil
	}
}

func checkLabel(s string) error {
	if len([]rune(s)) > 50 || strings.ContainsAny(s, ",\n") {
		return errors.New("want a label: at most 50 characters, no comma")
	}
	return nil
}

// lensName is what a lens may be called: one of ours, or of the repository.
var lensName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,39}$`)

func checkLens(s string) error {
	if !lensName.MatchString(s) {
		return fmt.Errorf("%q is no name of a lens", s)
	}
	return nil
}

// checkPattern takes what path.Match takes.
func checkPattern(s string) error {
	if _, err := path.Match(s, ""); err != nil || strings.HasPrefix(s, "/") {
		return fmt.Errorf("%q is no pattern of paths, such as docs/ or *.svg", s)
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
