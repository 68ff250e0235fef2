// Package plan turns a goal into a PRD, an architecture and a graph of small
// issues. It is a chain of agents with a review loop in the middle; every turn
// is a recorded step, so Make gives the same Result however often it is run on
// one journal.
package plan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

// A Goal is what somebody asked for: untrusted text.
type Goal struct {
	Title string `json:"title"`
	Body  string `json:"body"`
	Text  string `json:"text,omitempty"` // what the command said beside it

	Answers   []Answer `json:"answers,omitempty"`   // what people answered to the Product Manager's questions
	Revisions []string `json:"revisions,omitempty"` // what people wanted changed in an earlier plan, oldest first
}

// An Answer is what a person said to questions.
type Answer struct {
	Questions []string `json:"questions"`
	Text      string   `json:"text"`
}

// maxQuestions is how often the Product Manager may ask before it has to go on
// with assumptions.
const maxQuestions = 2

// Asked is a plan that waits for a person's answer.
type Asked struct{ Questions []string }

// Error lists the questions.
func (a *Asked) Error() string { return "the Product Manager asks: " + strings.Join(a.Questions, " ") }

// PRD says what is to be true when the build is done.
type PRD struct {
	Title                string      `json:"title"`
	ValidatedDescription string      `json:"validated_description"`
	AcceptanceCriteria   []Criterion `json:"acceptance_criteria"`
	NiceToHave           []string    `json:"nice_to_have,omitempty"`
	OutOfScope           []string    `json:"out_of_scope,omitempty"`
	Assumptions          []string    `json:"assumptions,omitempty"`
	Risks                []string    `json:"risks,omitempty"`
	Questions            []string    `json:"questions,omitempty"` // that only a person can answer, and that the work depends on
	Size                 Size        `json:"size"`
}

// A Criterion is one thing that can be checked on the finished work.
type Criterion struct {
	ID       string `json:"id"` // ac-1, ac-2, …
	Text     string `json:"text"`
	MustHave bool   `json:"must_have"`
}

// Size grades a goal: trivial, small, medium or large.
type Size string

// Trivial goals need no architecture of their own.
const Trivial Size = "trivial"

// Architecture says how the work fits into the repository.
type Architecture struct {
	Summary             string      `json:"summary"`
	Components          []Component `json:"components"`
	Interfaces          []string    `json:"interfaces,omitempty"`
	Decisions           []Decision  `json:"decisions,omitempty"`
	FileChangesOverview string      `json:"file_changes_overview"`
}

// A Component is one part of the architecture.
type Component struct {
	Name           string   `json:"name"`
	Responsibility string   `json:"responsibility"`
	TouchesFiles   []string `json:"touches_files,omitempty"`
	DependsOn      []string `json:"depends_on,omitempty"`
}

// A Decision is a choice that was made and why.
type Decision struct {
	Decision  string `json:"decision"`
	Rationale string `json:"rationale"`
}

// A Review is the Tech Lead's verdict on an architecture.
type Review struct {
	Approved             bool     `json:"approved"`
	Feedback             string   `json:"feedback"`
	ScopeIssues          []string `json:"scope_issues,omitempty"`
	ComplexityAssessment string   `json:"complexity_assessment,omitempty"`
	Summary              string   `json:"summary"`
}

// A Result is a whole plan.
type Result struct {
	PRD           PRD              `json:"prd"`
	Architecture  Architecture     `json:"architecture"`
	Review        Review           `json:"review"`
	Issues        []graph.Issue    `json:"issues"` // numbered, by number
	Levels        [][]string       `json:"levels"`
	FileConflicts []graph.Conflict `json:"file_conflicts,omitempty"`
	Rationale     string           `json:"rationale"`
	Debt          []debt.Item      `json:"debt,omitempty"`
}

// Options bound the chain.
type Options struct {
	Key                 string          // prefix of the journal keys: plan
	MaxReviewIterations int             // the Architect is asked at most this often plus one
	Work                agent.Workspace // the base, which planning reads
	Fast                bool            // no architecture, one level, at most MaxTasks issues
	MaxTasks            int
}

// Make runs the chain. A plan that is no graph, twice, is a *graph.Error; one
// that waits for an answer is *Asked. A revised goal keeps its PRD: the chain
// from the Architect on runs again, with new levels and numbers.
func Make(ctx context.Context, crew *agent.Crew, goal Goal, o Options) (Result, error) {
	var r Result
	var err error
	if r.PRD, err = require(ctx, crew, goal, o); err != nil {
		return r, err
	}
	if n := len(goal.Revisions); n > 0 {
		o.Key = fmt.Sprintf("%s/revision-%d", o.Key, n)
	}
	switch {
	case o.Fast:
		r.Architecture = Architecture{Summary: "A fast build has no architecture of its own."}
		r.Review = Review{Approved: true, Summary: "Not reviewed: the build is a fast one."}
	case r.PRD.Size == Trivial:
		r.Architecture = Architecture{Summary: "The change is small enough to need no architecture of its own."}
		r.Review = Review{Approved: true, Summary: "Not reviewed: the goal is trivial."}
	default:
		if err := design(ctx, crew, goal, o, &r); err != nil {
			return r, err
		}
	}
	return r, sprint(ctx, crew, goal, o, &r)
}

// require asks the Product Manager, anew after each answer to its questions.
func require(ctx context.Context, crew *agent.Crew, goal Goal, o Options) (PRD, error) {
	at := agent.Place{Key: o.Key, Work: o.Work}
	if n := len(goal.Answers); n > 0 {
		at.Key = fmt.Sprintf("%s/answer-%d", o.Key, n)
	}
	goal.Revisions = nil // they are about the plan, not about what is wanted
	prd, err := agent.Ask(ctx, crew, at, ProductManager, goal)
	if err != nil {
		return prd, fmt.Errorf("product manager: %w", err)
	}
	if len(prd.Questions) == 0 {
		return prd, nil
	}
	if len(goal.Answers) < maxQuestions {
		return prd, &Asked{Questions: prd.Questions}
	}
	for _, q := range prd.Questions {
		prd.Assumptions = append(prd.Assumptions, "Still open after the answers, and left to the build: "+q)
	}
	prd.Questions = nil
	return prd, nil
}

// Given is a plan that somebody else made: its issues are checked, numbered and
// put in levels as planned ones are.
func Given(r Result) (Result, error) {
	r.Review = Review{Approved: true, Summary: "Not reviewed: the plan was given."}
	if len(r.Issues) == 0 { // nothing to code
		return r, nil
	}
	g, err := graph.New(r.Issues)
	if err != nil {
		return r, err
	}
	r.Issues, r.Levels, r.FileConflicts = g.Issues(), g.Levels(), g.Conflicts()
	return r, nil
}

// design is Architect ⇄ Tech Lead.
func design(ctx context.Context, crew *agent.Crew, goal Goal, o Options, r *Result) error {
	brief := Brief{Goal: goal, PRD: r.PRD}
	for rev := 1; ; rev++ {
		at := agent.Place{Key: fmt.Sprintf("%s/rev-%d", o.Key, rev), Work: o.Work}
		var err error
		if r.Architecture, err = agent.Ask(ctx, crew, at, Architect, brief); err != nil {
			return fmt.Errorf("architect: %w", err)
		}
		r.Review, err = agent.Ask(ctx, crew, at, TechLead, Proposal{Goal: goal, PRD: r.PRD, Architecture: r.Architecture})
		if _, failed := errors.AsType[*agent.Failure](err); failed {
			r.Review = Review{Approved: true, Summary: "Not reviewed: " + err.Error()}
			r.Debt = append(r.Debt, debt.Item{
				Type: debt.WaivedReview, Severity: debt.Medium, Justification: "the architecture was not reviewed: " + err.Error(),
			})
			return nil
		}
		if err != nil {
			return fmt.Errorf("tech lead: %w", err)
		}
		if r.Review.Approved {
			return nil
		}
		if rev > o.MaxReviewIterations {
			r.Debt = append(r.Debt, debt.Item{
				Type: debt.WaivedReview, Severity: debt.Medium,
				Justification: fmt.Sprintf("the architecture was still not approved after %d revisions: %s", rev, r.Review.Feedback),
				FollowUp:      "read the Tech Lead's feedback before merging",
			})
			return nil
		}
		brief.Previous, brief.Feedback = &r.Architecture, r.Review.Feedback
	}
}

// sprint cuts the work into issues. A plan with problems goes back once; what
// is then only incomplete is debt, what is no graph is an error.
func sprint(ctx context.Context, crew *agent.Crew, goal Goal, o Options, r *Result) error {
	in := Assignment{Goal: goal, PRD: r.PRD, Architecture: r.Architecture}
	if o.Fast {
		in.MaxTasks = o.MaxTasks
	}
	for try := 1; ; try++ {
		at := agent.Place{Key: fmt.Sprintf("%s/sprint-%d", o.Key, try), Work: o.Work}
		out, err := agent.Ask(ctx, crew, at, SprintPlanner, in)
		if err != nil {
			return fmt.Errorf("sprint planner: %w", err)
		}
		for i := range out.Issues {
			out.Issues[i].Number = 0 // numbers are the graph's to give
		}
		g, err := graph.New(out.Issues)
		if err == nil {
			err = flat(out.Issues, in.MaxTasks)
		}
		unserved := unserved(r.PRD, out.Issues)
		if try == 1 && (err != nil || len(unserved) > 0) {
			in.Previous, in.Problems = out.Issues, problems(err, unserved)
			continue
		}
		if err != nil {
			return err
		}
		for _, c := range unserved {
			severity := debt.High
			if !c.MustHave {
				severity = debt.Low
			}
			r.Debt = append(r.Debt, debt.Item{
				Type: debt.MissingFeature, Severity: severity, Criterion: c.ID,
				Justification: fmt.Sprintf("no issue of the plan serves %q", c.Text),
			})
		}
		r.Issues, r.Levels, r.FileConflicts, r.Rationale = g.Issues(), g.Levels(), g.Conflicts(), out.Rationale
		return nil
	}
}

// flat refuses what a fast build cannot take: more issues than most, or one that
// waits for another. Without a most everything is taken.
func flat(issues []graph.Issue, most int) error {
	var bad graph.Error
	if most > 0 && len(issues) > most {
		bad.Problems = append(bad.Problems, fmt.Sprintf("it has %d issues: a fast build takes at most %d", len(issues), most))
	}
	for _, is := range issues {
		if most > 0 && len(is.DependsOn) > 0 {
			bad.Problems = append(bad.Problems, fmt.Sprintf("issue %q depends on others: in a fast build none may", is.Name))
		}
	}
	if len(bad.Problems) == 0 {
		return nil
	}
	return &bad
}

// unserved returns the criteria that no issue names.
func unserved(prd PRD, issues []graph.Issue) []Criterion {
	served := map[string]bool{}
	for _, is := range issues {
		for _, c := range is.AcceptanceCriteria {
			for _, id := range c.PRDIDs {
				served[id] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(prd.AcceptanceCriteria), func(c Criterion) bool { return served[c.ID] })
}

func problems(err error, unserved []Criterion) []string {
	var out []string
	if bad, ok := errors.AsType[*graph.Error](err); ok {
		out = append(out, bad.Problems...)
	}
	for _, c := range unserved {
		out = append(out, fmt.Sprintf("no issue serves criterion %s (%s): name it in prd_ids of the issue that does", c.ID, strings.TrimSpace(c.Text)))
	}
	return out
}
