package plan

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// refused as an answer is an agent that gives none.
var refused = &runtime.Error{Class: runtime.Refused, Reason: "it crashed"}

// chain holds what each role answers in turn; the last answer is given again.
type chain map[string][]any

// bench is a chain that can be run again on its journal.
type bench struct {
	log    steptest.Log
	agents *agenttest.Agents
}

func newBench(c chain) *bench {
	given := map[string]int{} // planning asks one role at a time
	return &bench{agents: agenttest.New(func(_ context.Context, call runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		all := c[call.Role]
		if len(all) == 0 {
			return runtime.Result{}, &runtime.Error{Class: runtime.Fatal, Reason: "nobody plays " + call.Role}
		}
		a := all[min(given[call.Role], len(all)-1)]
		given[call.Role]++
		if err, ok := a.(error); ok {
			return runtime.Result{}, err
		}
		return agenttest.JSON(a), nil
	})}
}

func (b *bench) make(t *testing.T) (Result, error) {
	t.Helper()
	crew := agenttest.Crew(b.log.Open(t, step.Options{}), b.agents)
	return Make(t.Context(), crew, sampleGoal, Options{Key: "plan", MaxReviewIterations: 2, Work: agenttest.Desk{}})
}

// prompt returns the n-th prompt that a role was given, from 0.
func (b *bench) prompt(role string, n int) string {
	for _, c := range b.agents.Calls() {
		if c.Role == role {
			if n == 0 {
				return c.Prompt
			}
			n--
		}
	}
	return ""
}

func issue(name string, serves string, needs ...string) graph.Issue {
	return graph.Issue{
		Name: name, Title: name, Description: "Do " + name + ".", DependsOn: needs, FilesToModify: []string{"main.go"},
		AcceptanceCriteria: []graph.Criterion{{Text: "done", PRDIDs: strings.Fields(serves)}},
	}
}

func planned(issues ...graph.Issue) Sprint { return Sprint{Issues: issues, Rationale: "It is short."} }

var (
	trivial = func() PRD { p := samplePRD; p.Size = Trivial; return p }()

	approved = Review{Approved: true, Summary: "It fits."}
	refuse   = func(why string) Review { return Review{Feedback: why, Summary: "No."} }

	goodSprint   = planned(issue("flag", "ac-2", "writer"), issue("writer", "ac-1"), issue("docs", ""))
	cyclicSprint = planned(issue("flag", "ac-2", "writer"), issue("writer", "ac-1", "flag"))
	partSprint   = planned(issue("writer", "ac-1"))
)

func TestChain(t *testing.T) {
	for name, c := range map[string]struct {
		chain chain
		steps string // without plan/
		debt  []debt.Item
		order string // of the issues
	}{
		"approved at once": {
			chain: chain{"pm": {samplePRD}, "architect": {sampleArchitecture}, "tech_lead": {approved}, "sprint_planner": {goodSprint}},
			steps: "pm rev-1/architect rev-1/tech_lead sprint-1/sprint_planner",
			order: "docs writer flag",
		},
		"a trivial goal needs no architecture": {
			chain: chain{"pm": {trivial}, "sprint_planner": {goodSprint}},
			steps: "pm sprint-1/sprint_planner",
			order: "docs writer flag",
		},
		"approved after one revision": {
			chain: chain{"pm": {samplePRD}, "architect": {sampleArchitecture}, "tech_lead": {refuse("1. no"), approved}, "sprint_planner": {goodSprint}},
			steps: "pm rev-1/architect rev-1/tech_lead rev-2/architect rev-2/tech_lead sprint-1/sprint_planner",
			order: "docs writer flag",
		},
		"never approved": {
			chain: chain{"pm": {samplePRD}, "architect": {sampleArchitecture}, "tech_lead": {refuse("1. never")}, "sprint_planner": {goodSprint}},
			steps: "pm rev-1/architect rev-1/tech_lead rev-2/architect rev-2/tech_lead rev-3/architect rev-3/tech_lead sprint-1/sprint_planner",
			debt: []debt.Item{{
				Type: debt.WaivedReview, Severity: debt.Medium,
				Justification: "the architecture was still not approved after 3 revisions: 1. never",
				FollowUp:      "read the Tech Lead's feedback before merging",
			}},
			order: "docs writer flag",
		},
		"no Tech Lead": {
			chain: chain{"pm": {samplePRD}, "architect": {sampleArchitecture}, "tech_lead": {refused}, "sprint_planner": {goodSprint}},
			steps: "pm rev-1/architect rev-1/tech_lead sprint-1/sprint_planner",
			debt: []debt.Item{{
				Type: debt.WaivedReview, Severity: debt.Medium,
				Justification: "the architecture was not reviewed: plan/rev-1/tech_lead: it crashed",
			}},
			order: "docs writer flag",
		},
		"a circle goes back once": {
			chain: chain{"pm": {trivial}, "sprint_planner": {cyclicSprint, goodSprint}},
			steps: "pm sprint-1/sprint_planner sprint-2/sprint_planner",
			order: "docs writer flag",
		},
		"a criterion that nothing serves goes back once": {
			chain: chain{"pm": {trivial}, "sprint_planner": {partSprint, goodSprint}},
			steps: "pm sprint-1/sprint_planner sprint-2/sprint_planner",
			order: "docs writer flag",
		},
		"a criterion that still nothing serves is debt": {
			chain: chain{"pm": {trivial}, "sprint_planner": {partSprint}},
			steps: "pm sprint-1/sprint_planner sprint-2/sprint_planner",
			debt: []debt.Item{{
				Type: debt.MissingFeature, Severity: debt.High, Criterion: "ac-2",
				Justification: `no issue of the plan serves "export --format xml exits with code 2"`,
			}},
			order: "writer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.chain)
			got, err := b.make(t)
			if err != nil {
				t.Fatal(err)
			}
			if steps := strings.ReplaceAll(strings.Join(b.agents.Steps(), " "), "plan/", ""); steps != c.steps {
				t.Errorf("steps %q, want %q", steps, c.steps)
			}
			if !slices.Equal(got.Debt, c.debt) {
				t.Errorf("debt %+v, want %+v", got.Debt, c.debt)
			}
			var order []string
			for i, is := range got.Issues {
				order = append(order, is.Name)
				if is.Number != i+1 {
					t.Errorf("%s has number %d, want %d", is.Name, is.Number, i+1)
				}
			}
			if strings.Join(order, " ") != c.order || got.Rationale != "It is short." || got.PRD.Title != samplePRD.Title {
				t.Errorf("issues %v, result %+v", order, got)
			}

			asked := len(b.agents.Calls())
			again, err := b.make(t)
			if err != nil || !reflect.DeepEqual(again, got) || len(b.agents.Calls()) != asked {
				t.Errorf("replay: %v, asked %v\n%+v\n%+v", err, b.agents.Steps()[asked:], again, got)
			}
		})
	}
}

func TestResultHasLevelsAndConflicts(t *testing.T) {
	got, err := newBench(chain{"pm": {trivial}, "sprint_planner": {goodSprint}}).make(t)
	if err != nil {
		t.Fatal(err)
	}
	if want := [][]string{{"docs", "writer"}, {"flag"}}; !reflect.DeepEqual(got.Levels, want) {
		t.Errorf("levels %v", got.Levels)
	}
	if want := []graph.Conflict{{File: "main.go", Issues: []string{"docs", "writer", "flag"}}}; !reflect.DeepEqual(got.FileConflicts, want) {
		t.Errorf("conflicts %v", got.FileConflicts)
	}
	if !got.Review.Approved || got.Architecture.Summary == "" {
		t.Errorf("review %+v, architecture %+v", got.Review, got.Architecture)
	}
}

func TestPlanThatIsNoGraphTwiceIsAnError(t *testing.T) {
	b := newBench(chain{"pm": {trivial}, "sprint_planner": {cyclicSprint}})
	_, err := b.make(t)
	bad, ok := errors.AsType[*graph.Error](err)
	if !ok || len(bad.Problems) != 1 || !strings.Contains(bad.Problems[0], "circle: flag, writer") {
		t.Fatalf("error %v", err)
	}
	second := b.prompt("sprint_planner", 1)
	for _, want := range []string{"Your previous plan came back", bad.Problems[0], `"name": "flag"`} {
		if !strings.Contains(second, want) {
			t.Errorf("the second prompt does not say %q", want)
		}
	}
	if strings.Contains(b.prompt("sprint_planner", 0), "came back") {
		t.Error("the first prompt speaks of a plan that came back")
	}
}

func TestUnservedCriterionIsNamedToThePlanner(t *testing.T) {
	b := newBench(chain{"pm": {trivial}, "sprint_planner": {partSprint, goodSprint}})
	if _, err := b.make(t); err != nil {
		t.Fatal(err)
	}
	if want := "no issue serves criterion ac-2"; !strings.Contains(b.prompt("sprint_planner", 1), want) {
		t.Errorf("the second prompt does not say %q", want)
	}
}

func TestArchitectSeesItsLastWorkAndTheFeedback(t *testing.T) {
	second := sampleArchitecture
	second.Summary = "The second approach."
	b := newBench(chain{"pm": {samplePRD}, "architect": {sampleArchitecture, second}, "tech_lead": {refuse("1. ac-2 has no home"), refuse("2. still none"), approved}, "sprint_planner": {goodSprint}})
	got, err := b.make(t)
	if err != nil || got.Architecture.Summary != second.Summary {
		t.Fatalf("%v, %+v", err, got.Architecture)
	}
	for n, want := range map[int][]string{1: {sampleArchitecture.Summary, "1. ac-2 has no home"}, 2: {second.Summary, "2. still none"}} {
		for _, w := range want {
			if !strings.Contains(b.prompt("architect", n), w) {
				t.Errorf("revision %d does not see %q", n+1, w)
			}
		}
	}
	if strings.Contains(b.prompt("architect", 0), "previous") {
		t.Error("the first prompt speaks of previous work")
	}
}

func TestNumbersAreNotThePlannersToGive(t *testing.T) {
	a, b := issue("writer", "ac-1"), issue("flag", "ac-2")
	a.Number, b.Number = 1, 1
	got, err := newBench(chain{"pm": {trivial}, "sprint_planner": {planned(a, b)}}).make(t)
	if err != nil || got.Issues[0].Number != 1 || got.Issues[1].Number != 2 {
		t.Errorf("%v, %+v", err, got.Issues)
	}
}

func TestRolesThatCannotBeDoneWithoutFailThePlan(t *testing.T) {
	for role, c := range map[string]chain{
		"product manager": {"pm": {refused}},
		"architect":       {"pm": {samplePRD}, "architect": {refused}},
		"sprint planner":  {"pm": {trivial}, "sprint_planner": {refused}},
	} {
		t.Run(role, func(t *testing.T) {
			_, err := newBench(c).make(t)
			if _, ok := errors.AsType[*agent.Failure](err); !ok || !strings.HasPrefix(err.Error(), role+": ") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestFatalErrorStopsTheChain(t *testing.T) {
	b := newBench(chain{"pm": {samplePRD}, "architect": {sampleArchitecture}}) // nobody plays the Tech Lead
	if _, err := b.make(t); !errors.Is(err, agent.ErrFatal) {
		t.Errorf("error %v", err)
	}
}

func TestPRDsThatNothingCanBeJoinedOnAreRepaired(t *testing.T) {
	for name, criteria := range map[string][]Criterion{
		"no criterion":      nil,
		"no id":             {{Text: "x", MustHave: true}},
		"an id twice":       {{ID: "ac-1", Text: "x", MustHave: true}, {ID: "ac-1", Text: "y"}},
		"nothing has to be": {{ID: "ac-1", Text: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := trivial
			bad.AcceptanceCriteria = criteria
			b := newBench(chain{"pm": {bad, trivial}, "sprint_planner": {goodSprint}})
			if _, err := b.make(t); err != nil {
				t.Fatal(err)
			}
			if steps := b.agents.Steps(); steps[1] != "plan/pm/repair-1" {
				t.Errorf("steps %v", steps)
			}
		})
	}
}

func TestIssueWriter(t *testing.T) {
	draft := Draft{Issue: sampleIssue, PRD: samplePRD}
	for name, c := range map[string]struct {
		answers []any
		want    Spec
	}{
		"writes":             {[]any{Spec{IssueName: "csv-writer", Spec: "## Goal", Success: true}}, Spec{IssueName: "csv-writer", Spec: "## Goal", Success: true}},
		"writes after all":   {[]any{Spec{IssueName: "csv-writer"}, Spec{IssueName: "csv-writer", Spec: "## Goal", Success: true}}, Spec{IssueName: "csv-writer", Spec: "## Goal", Success: true}},
		"the plan steps in":  {[]any{refused}, Spec{IssueName: "csv-writer", Spec: sampleIssue.Description}},
		"also for no answer": {[]any{Spec{IssueName: "csv-writer"}}, Spec{IssueName: "csv-writer", Spec: sampleIssue.Description}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(chain{"issue_writer": c.answers})
			crew := agenttest.Crew(b.log.Open(t, step.Options{}), b.agents)
			got, err := agent.Ask(t.Context(), crew, agent.Place{Key: "issue-01", Work: agenttest.Desk{}}, IssueWriter, draft)
			if err != nil || got != c.want {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}
