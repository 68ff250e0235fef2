package plan

import (
	"embed"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

//go:embed prompts/*.md
var prompts embed.FS

// Brief is what the Architect gets. Previous and Feedback are set on a revision.
type Brief struct {
	Goal     Goal
	PRD      PRD
	Previous *Architecture
	Feedback string
}

// Proposal is what the Tech Lead judges.
type Proposal struct {
	Goal         Goal
	PRD          PRD
	Architecture Architecture
}

// Assignment is what the Sprint Planner gets. Previous and Problems are set
// when its first plan came back.
type Assignment struct {
	Goal         Goal
	PRD          PRD
	Architecture Architecture
	Previous     []graph.Issue
	Problems     []string
	MaxTasks     int // of a fast build: its plan has one level and at most so many issues; 0: any plan will do
}

// Sprint is the Sprint Planner's answer.
type Sprint struct {
	Issues    []graph.Issue `json:"issues"`
	Rationale string        `json:"rationale"`
}

// Draft is what the Issue Writer gets: one issue within its plan.
type Draft struct {
	Issue        graph.Issue
	PRD          PRD
	Architecture Architecture
	Neighbours   []string // one line for each issue it depends on or that shares files
}

// Spec is the Issue Writer's answer: what the Coder is told.
type Spec struct {
	IssueName string `json:"issue_name"`
	Spec      string `json:"spec"` // Markdown
	Success   bool   `json:"success"`
}

var (
	look  = []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep}
	shell = append(append([]runtime.Tool{}, look...), runtime.Bash)
)

// The planning roles.
var (
	ProductManager = agent.Role[Goal, PRD]{Name: "pm", Tools: shell, Prompt: agent.Load(prompts, "pm"), Check: checkPRD}
	Architect      = agent.Role[Brief, Architecture]{Name: "architect", Tools: shell, Prompt: agent.Load(prompts, "architect")}
	TechLead       = agent.Role[Proposal, Review]{Name: "tech_lead", Tools: look, Prompt: agent.Load(prompts, "tech_lead")}
	SprintPlanner  = agent.Role[Assignment, Sprint]{Name: "sprint_planner", Tools: look, Prompt: agent.Load(prompts, "sprint_planner")}
	IssueWriter    = agent.Role[Draft, Spec]{
		Name: "issue_writer", Tools: look, Prompt: agent.Load(prompts, "issue_writer"),
		Check: func(in Draft, out Spec) []string {
			if out.Spec == "" {
				return []string{"spec is empty"}
			}
			return nil
		},
		Fallback: func(in Draft, _ error) (Spec, error) {
			return Spec{IssueName: in.Issue.Name, Spec: in.Issue.Description}, nil
		},
	}
)

// checkPRD asks for ids that evidence can be joined on.
func checkPRD(_ Goal, p PRD) (problems []string) {
	if len(p.AcceptanceCriteria) == 0 {
		problems = append(problems, "acceptance_criteria is empty: name at least one thing that can be checked")
	}
	seen := map[string]bool{}
	must := false
	for _, c := range p.AcceptanceCriteria {
		if c.ID == "" || seen[c.ID] {
			problems = append(problems, fmt.Sprintf("acceptance_criteria id %q is empty or used twice: number them ac-1, ac-2, …", c.ID))
		}
		seen[c.ID] = true
		must = must || c.MustHave
	}
	if len(p.AcceptanceCriteria) > 0 && !must {
		problems = append(problems, "no criterion is must_have: at least one has to be")
	}
	return problems
}
