package coding

import "github.com/slipway-dev/slipway/pipeline/graph"

// Memory is what a build has learned so far, by the keys of the specification.
// The conductor writes it at gates; agents read it.
type Memory struct {
	Conventions     *Conventions         `json:"codebase_conventions,omitempty"`
	FailurePatterns []FailurePattern     `json:"failure_patterns,omitempty"` // oldest first, the last MaxFailurePatterns
	BugPatterns     []BugPattern         `json:"bug_patterns,omitempty"`     // most frequent first, at most MaxBugPatterns
	Interfaces      map[string]Interface `json:"interfaces,omitempty"`       // by issue name
	BuildHealth     *BuildHealth         `json:"build_health,omitempty"`     // as of the newest landing
}

// How many patterns are remembered.
const (
	MaxFailurePatterns = 10
	MaxBugPatterns     = 20
)

// Conventions are what the first successful Coder learned of the repository.
type Conventions struct {
	FromIssue string   `json:"from_issue"`
	Learnings []string `json:"learnings"`
}

// A FailurePattern is a failed issue: what was tried and why it did not do.
type FailurePattern struct {
	IssueName string `json:"issue_name"`
	Title     string `json:"title"`
	Cause     string `json:"cause"`
}

// A BugPattern is a fault that commands or judges found, counted over the build.
type BugPattern struct {
	Pattern   string   `json:"pattern"`
	Frequency int      `json:"frequency"`
	Modules   []string `json:"modules,omitempty"` // directories
}

// An Interface is what a completed issue offers to its dependents.
type Interface struct {
	Exports    []string `json:"exports,omitempty"` // exported names with the path to import them by
	Files      []string `json:"files,omitempty"`   // that it created or changed
	TestStatus string   `json:"test_status,omitempty"`
}

// BuildHealth is how the build stands, for the agents that steer it.
type BuildHealth struct {
	Landed    []string `json:"landed,omitempty"` // issues
	Failed    []string `json:"failed,omitempty"`
	Passing   []string `json:"passing,omitempty"` // engine commands of the newest tests
	Failing   []string `json:"failing,omitempty"`
	DebtItems int      `json:"debt_items"`
}

// forCoder is what the Coder of an issue is told: of the interfaces those of
// the issues that it depends on, and nothing of the build's health.
func (m Memory) forCoder(is graph.Issue) Memory {
	return Memory{
		Conventions: m.Conventions, FailurePatterns: m.FailurePatterns, BugPatterns: m.BugPatterns,
		Interfaces: m.offered(is),
	}
}

// forAdvisor is what the Issue Advisor is told of an issue.
func (m Memory) forAdvisor(is graph.Issue) Memory {
	m.Interfaces = m.offered(is)
	return m
}

func (m Memory) offered(is graph.Issue) map[string]Interface {
	offered := map[string]Interface{}
	for _, name := range is.DependsOn {
		if i, ok := m.Interfaces[name]; ok {
			offered[name] = i
		}
	}
	return offered
}

// Empty reports whether there is nothing to tell.
func (m Memory) Empty() bool {
	return m.Conventions == nil && len(m.FailurePatterns) == 0 && len(m.BugPatterns) == 0 &&
		len(m.Interfaces) == 0 && m.BuildHealth == nil
}
