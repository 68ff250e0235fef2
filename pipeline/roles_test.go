package pipeline

import (
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/plan"
)

func TestVerifierHasToJudgeEveryCriterion(t *testing.T) {
	in := Finished{PRD: plan.PRD{AcceptanceCriteria: []plan.Criterion{{ID: "ac-1"}, {ID: "ac-2"}}}}
	for name, c := range map[string]struct {
		judged []string
		want   []string
	}{
		"all":     {[]string{"ac-2", "ac-1"}, nil},
		"one":     {[]string{"ac-1"}, []string{`criteria_results has no entry with prd_id "ac-2"`}},
		"another": {[]string{"ac-1", "AC-2"}, []string{`criteria_results has no entry with prd_id "ac-2"`}},
	} {
		t.Run(name, func(t *testing.T) {
			var out Judgement
			for _, id := range c.judged {
				out.CriteriaResults = append(out.CriteriaResults, CriterionResult{PRDID: id})
			}
			if got := Verifier.Check(in, out); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestPullRequestTitleIsBounded(t *testing.T) {
	for title, ok := range map[string]bool{"": false, "Let export write CSV": true, strings.Repeat("ü", 72): true, strings.Repeat("ü", 73): false} {
		if problems := Git.Check(Account{}, PullText{Title: title}); (len(problems) == 0) != ok {
			t.Errorf("%q: %v", title, problems)
		}
	}
}
