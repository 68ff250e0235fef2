package coding

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

func TestRetryAdvisor(t *testing.T) {
	hopeless := answer{out: RetryAdvice{Diagnosis: "There is no compiler.\nNone at all."}}
	for name, c := range map[string]struct {
		script     script
		iterations int
		want       Result // Outcome, Iterations, Rounds and Cause
		asked      int
		seen       []string // in the Coder's second prompt
	}{
		"its advice reaches the coder": {
			script:     script{"coder": {gone, done}, "retry_advisor": {retry}, "code_reviewer": {approve}},
			iterations: 5, asked: 1,
			want: Result{Outcome: report.Completed, Iterations: 2, Rounds: 1},
			seen: []string{"no usable answer: it crashed", "What went wrong: It waited for a port.", "Go on like this: Run go test ./export only.", "To know: The writer is done."},
		},
		"an answer that does not fit is a failed call too": {
			script:     script{"coder": {{out: []string{"no"}}, {out: []string{"no"}}, {out: []string{"no"}}, done}, "retry_advisor": {retry}, "code_reviewer": {approve}},
			iterations: 5, asked: 1,
			want: Result{Outcome: report.Completed, Iterations: 2, Rounds: 1},
		},
		"it does not answer": {
			script:     script{"coder": {gone, done}, "retry_advisor": {gone}, "code_reviewer": {approve}},
			iterations: 5, asked: 1,
			want: Result{Outcome: report.Completed, Iterations: 2, Rounds: 1},
			seen: []string{"no usable answer: it crashed\n</data>"},
		},
		"it sees no use: the issue advisor decides": {
			script:     script{"coder": {gone, done}, "retry_advisor": {hopeless}, "code_reviewer": {approve}, "issue_advisor": {advice(Decision{Action: RetryApproach, NewApproach: "without one"})}},
			iterations: 5, asked: 1,
			want: Result{Outcome: report.Completed, Iterations: 2, Rounds: 2},
			seen: []string{"without one", "There is no compiler."},
		},
		"it sees no use, and nobody else is asked": {
			script:     script{"coder": {gone}, "retry_advisor": {hopeless}, "issue_advisor": {advice(Decision{Action: EscalateToReplan})}},
			iterations: 5, asked: 1,
			want: Result{Outcome: report.FailedEscalated, Iterations: 1, Rounds: 1, Cause: "the Issue Advisor gave no reason"},
		},
		"no iteration is left": {
			script:     script{"coder": {gone}, "issue_advisor": {advice(Decision{Action: EscalateToReplan, Summary: "no"})}},
			iterations: 1, asked: 0,
			want: Result{Outcome: report.FailedEscalated, Iterations: 1, Rounds: 1, Cause: "no"},
		},
		"an empty strategy is repaired": {
			script:     script{"coder": {gone, done}, "retry_advisor": {{out: RetryAdvice{ShouldRetry: true}}, {out: RetryAdvice{}}, retry}, "code_reviewer": {approve}},
			iterations: 5, asked: 3,
			want: Result{Outcome: report.Completed, Iterations: 2, Rounds: 1},
			seen: []string{"Run go test ./export only."},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(c.script).advised(1)
			b.task.MaxIterations = c.iterations
			r := b.run(t)
			if got := (Result{Outcome: r.Outcome, Iterations: r.Iterations, Rounds: r.Rounds, Cause: r.Cause}); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if asked := b.prompts("retry_advisor"); len(asked) != c.asked {
				t.Errorf("it was asked %d times, want %d", len(asked), c.asked)
			}
			for _, want := range c.seen {
				wantIn(t, b.prompts("coder")[1], want)
			}
			for _, p := range b.prompts("issue_advisor") {
				if c.asked > 0 {
					wantIn(t, p, "\\nWhat went wrong: There is no compiler.")
				}
			}
		})
	}
}

func TestDecisionsThatCannotBeCarriedOutAreRefused(t *testing.T) {
	impasse := Impasse{CanSplit: true, Issue: graph.Issue{Name: "whole", DependsOn: []string{"record", "record"}, AcceptanceCriteria: []graph.Criterion{header, fast}}}
	whole := impasse
	whole.CanSplit = false
	modified := func(change func(*Decision)) Decision {
		d := Decision{Action: RetryModified, ModifiedCriteria: []graph.Criterion{header}, ModificationJustification: "so"}
		change(&d)
		return d
	}
	parts := func(change func([]graph.Issue) []graph.Issue) Decision {
		return Decision{Action: Split, SubIssues: change(halves())}
	}
	for name, c := range map[string]struct {
		in   Impasse
		d    Decision
		want string // in the problems; empty: none
	}{
		"no action":           {impasse, Decision{}, `action is "": use retry_modified`},
		"unknown action":      {impasse, Decision{Action: "give_up"}, `action is "give_up"`},
		"unknown category":    {impasse, Decision{Action: EscalateToReplan, FailureCategory: "bad luck"}, "failure_category"},
		"unknown severity":    {impasse, Decision{Action: EscalateToReplan, DebtSeverity: "severe"}, "debt_severity"},
		"too sure":            {impasse, Decision{Action: EscalateToReplan, Confidence: 80}, "confidence is 80"},
		"escalation":          {impasse, Decision{Action: EscalateToReplan, Confidence: 0.8, FailureCategory: "scope", DebtSeverity: "low"}, ""},
		"approach without":    {impasse, Decision{Action: RetryApproach, NewApproach: " "}, "new_approach is empty"},
		"a gap of no type":    {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{Justification: "x"}}}, ""},
		"a gap of odd type":   {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{Type: "waived_review"}}}, "missing_functionality[0].type"},
		"a gap oddly rated":   {impasse, Decision{Action: AcceptWithDebt, MissingFunctionality: []Shortfall{{}, {Severity: "huge"}}}, "missing_functionality[1].severity"},
		"one passed over":     {impasse, modified(func(*Decision) {}), ""},
		"everything dropped":  {impasse, modified(func(d *Decision) { d.ModifiedCriteria = nil }), "modified_acceptance_criteria is empty"},
		"nothing relaxed":     {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, fast} }), "no criterion is relaxed or dropped"},
		"one merely added":    {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, fast, quotes} }), "no criterion is relaxed or dropped"},
		"no reason":           {impasse, modified(func(d *Decision) { d.ModificationJustification = "" }), "modification_justification is empty"},
		"an empty criterion":  {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, {Text: " "}} }), "modified_acceptance_criteria[1].text"},
		"a criterion twice":   {impasse, modified(func(d *Decision) { d.ModifiedCriteria = []graph.Criterion{header, header} }), "modified_acceptance_criteria[1].text"},
		"dropping a ghost":    {impasse, modified(func(d *Decision) { d.DroppedCriteria = []string{"is pink"} }), "dropped_criteria[0] is none"},
		"dropped and kept":    {impasse, modified(func(d *Decision) { d.DroppedCriteria = []string{header.Text} }), "dropped_criteria[0] is in modified"},
		"a split":             {impasse, parts(func(p []graph.Issue) []graph.Issue { return p }), ""},
		"a part of a split":   {whole, parts(func(p []graph.Issue) []graph.Issue { return p }), "cannot be split"},
		"a split in one":      {impasse, parts(func(p []graph.Issue) []graph.Issue { return p[:1] }), "at least two"},
		"parts of one name":   {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name, p[1].DependsOn = p[0].Name, nil; return p }), `"header" is used twice`},
		"the issue's name":    {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name = "whole"; return p }), "the name of the issue itself"},
		"a hostile name":      {impasse, parts(func(p []graph.Issue) []graph.Issue { p[1].Name = "../etc"; return p }), `"../etc"`},
		"a circle":            {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"quotes"}; return p }), "in a circle: header, quotes"},
		"on the issue itself": {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"whole"}; return p }), `depends on "whole"`},
		"on a stranger":       {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"other"}; return p }), `depends on "other"`},
		"on a dependency":     {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].DependsOn = []string{"record"}; return p }), ""},
		"its own numbers":     {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].Number, p[1].Number = 1, 1; return p }), ""},
		"no criteria":         {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].AcceptanceCriteria = nil; return p }), `"header" has no acceptance criterion`},
		"an empty one":        {impasse, parts(func(p []graph.Issue) []graph.Issue { p[0].AcceptanceCriteria = []graph.Criterion{{}}; return p }), `"header" has no acceptance criterion`},
	} {
		t.Run(name, func(t *testing.T) {
			problems := strings.Join(IssueAdvisor.Check(c.in, c.d), "\n")
			if c.want == "" && problems != "" || !strings.Contains(problems, c.want) {
				t.Errorf("problems %q, want %q", problems, c.want)
			}
		})
	}
}

func TestARefusedSplitIsRepaired(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": stuckOnce(approve), "issue_advisor": {
		advice(Decision{Action: Split, SubIssues: halves()}), advice(Decision{Action: RetryApproach, NewApproach: "as one"}),
	}}).advised(1, header)
	b.task.CanSplit = false
	if r := b.run(t); r.Outcome != report.Completed || len(r.Advice) != 1 || r.Advice[0].Decision.Action != RetryApproach {
		t.Errorf("%+v", r)
	}
	if steps := b.agents.Steps(); !slices.Contains(steps, "issue-07/round-1/issue_advisor/repair-1") {
		t.Errorf("steps %v", steps)
	}
	wantIn(t, b.prompts("issue_advisor")[0], "This issue cannot be split.")
}
