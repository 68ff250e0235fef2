package ci

import (
	"embed"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

//go:embed prompts/*.md
var prompts embed.FS

// Broken is what the CI Fixer gets.
type Broken struct {
	Failures []Report
	Diff     string // of the build, since its base; long ones are cut, and say so
	Earlier  []Attempt
}

// A Report is one failure of the code with what there is to read of it.
type Report struct {
	Check    string // the name of the run
	Evidence string // why it counts as a failure of the code
	Log      string
}

// An Attempt is an earlier fix and what came of it.
type Attempt struct {
	Summary string   `json:"summary"`
	Cause   string   `json:"cause"`
	Refused []string `json:"refused,omitempty"` // why it was not pushed; empty: it was, and checks failed again
}

// Mend is the CI Fixer's answer. The fix is in its worktree.
type Mend struct {
	Summary      string   `json:"summary"`
	Fixed        bool     `json:"fixed"`
	FilesChanged []string `json:"files_changed"`
	Cause        string   `json:"cause"` // of the failures, one or two sentences
}

// Fixer mends failures of the code. It has no fallback: without an answer a
// person is needed.
var Fixer = agent.Role[Broken, Mend]{
	Name:   "ci_fixer",
	Tools:  []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep},
	Prompt: agent.Load(prompts, "ci_fixer"),
	Check:  checkMend,
}

func checkMend(_ Broken, m Mend) (problems []string) {
	if m.Cause == "" {
		problems = append(problems, "cause is empty: say what made the checks fail, or that you could not find it")
	}
	if m.Fixed && len(m.FilesChanged) == 0 {
		problems = append(problems, "fixed is true and files_changed is empty: a fix changes files; without one fixed is false")
	}
	return problems
}
