package coding

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// Whatever part of its journal a loop finds, it ends as if it had never been
// stopped, and asks nothing that is recorded.
func TestStoppedAnywhereItEndsTheSame(t *testing.T) {
	criteria := []graph.Criterion{{Text: "a header", PRDIDs: []string{"ac-1"}}, {Text: "quotes", PRDIDs: []string{"ac-2"}}}
	relax := advice(Decision{
		Action: RetryModified, ModifiedCriteria: criteria[:1], DroppedCriteria: []string{"quotes"}, ModificationJustification: "no quotes in the data",
	})
	for name, c := range map[string]struct {
		bench   *bench
		want    report.Outcome
		records int
	}{
		"approved on the deeper path": {
			newBench(script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaPass}, "qa_synthesizer": {decide(Approve, "All agree.")}}).flagged(),
			report.Completed, 6,
		},
		"two retries, then accepted with debt": {
			newBench(script{
				"coder": {done, gone, done}, "retry_advisor": {retry}, "code_reviewer": {refuse("a"), block, refuse("b"), refuse("c"), refuse("d")},
				"issue_advisor": {relax, advice(Decision{Action: RetryApproach, NewApproach: "otherwise"}), advice(Decision{Action: AcceptWithDebt, Rationale: "good enough"})},
			}).advised(3, criteria...),
			report.CompletedWithDebt, 19,
		},
		"split on the deeper path after a repaired answer": {
			newBench(script{
				"coder": {done}, "code_reviewer": {refuse("a")}, "qa": {qaFail}, "qa_synthesizer": {decide(Fix, "Mend it.")},
				"issue_advisor": {advice(Decision{Action: Split}), advice(Decision{Action: Split, SubIssues: halves()})},
			}).flagged().advised(1, criteria...),
			report.FailedNeedsSplit, 12,
		},
		"escalated with work that nobody judged": {
			newBench(script{
				"coder": {{edit: true, err: gone.err}}, "retry_advisor": {gone}, "issue_advisor": {gone},
			}).advised(1, criteria...),
			report.FailedEscalated, 5,
		},
	} {
		t.Run(name, func(t *testing.T) {
			whole := c.bench
			whole.task.MaxIterations = 2
			whole.site.outcome = func(commit string) evidence.Result {
				if commit == "base+issue-07" {
					return flaky
				}
				return green
			}
			want := whole.run(t)
			keys := whole.log.Keys()
			if want.Outcome != c.want || len(keys) != c.records {
				t.Fatalf("ended as %s with %d records, want %s with %d: %v", want.Outcome, len(keys), c.want, c.records, keys)
			}
			for n := range len(keys) + 1 {
				t.Run(fmt.Sprintf("after %d records", n), func(t *testing.T) {
					b := whole.after(t, n)
					if got := b.run(t); !reflect.DeepEqual(got, want) {
						t.Errorf("got  %+v\nwant %+v", got, want)
					}
					for _, step := range b.agents.Steps() {
						if slices.Contains(keys[:n], step) {
							t.Errorf("%s is recorded and was asked again", step)
						}
					}
					again := b.log.Keys()
					slices.Sort(again) // QA and the reviewer answer in any order
					if sorted := slices.Sorted(slices.Values(keys)); !slices.Equal(again, sorted) {
						t.Errorf("records %v\nwant    %v", again, sorted)
					}
				})
			}
		})
	}
}

// halves are two parts that serve all that the issue serves.
func halves() []graph.Issue {
	return []graph.Issue{
		{Name: "header", Title: "Print a header", AcceptanceCriteria: []graph.Criterion{{Text: "a header", PRDIDs: []string{"ac-1"}}}},
		{Name: "quotes", Title: "Quote", DependsOn: []string{"header"}, AcceptanceCriteria: []graph.Criterion{{Text: "quotes", PRDIDs: []string{"ac-2"}}}},
	}
}
