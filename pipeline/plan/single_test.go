package plan_test

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/plan"
)

const oneIssue = `{
	"name": "add-greet", "title": "Greet people", "description": "Write greet.sh.",
	"acceptance_criteria": [{"text": "greet.sh greets", "prd_ids": ["other"]}, {"text": "it is quiet without a name"}],
	"files_to_create": ["greet.sh"], "guidance": {"needs_deeper_qa": true, "risk_rationale": "new"}, "sequence_number": 7
}`

func TestSingle(t *testing.T) {
	r, err := plan.Single([]byte(oneIssue))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Issues) != 1 || len(r.Levels) != 1 || r.PRD.Title != "Greet people" || len(r.PRD.AcceptanceCriteria) != 2 {
		t.Fatalf("%+v", r)
	}
	is := r.Issues[0]
	if is.Number != 1 || is.Name != "add-greet" || !is.Guidance.NeedsDeeperQA || is.Files()[0] != "greet.sh" {
		t.Errorf("the issue: %+v", is)
	}
	for i, c := range r.PRD.AcceptanceCriteria {
		if want := []string{"ac-1", "ac-2"}[i]; c.ID != want || !c.MustHave || c.Text != is.AcceptanceCriteria[i].Text || is.AcceptanceCriteria[i].PRDIDs[0] != want {
			t.Errorf("criterion %d: %+v, of the issue %+v", i, c, is.AcceptanceCriteria[i])
		}
	}
	if again, err := plan.Given(r); err != nil || again.Issues[0].Number != 1 {
		t.Errorf("given again: %+v, %v", again, err)
	}
}

func TestSingleNamesTheField(t *testing.T) {
	for name, c := range map[string]struct{ old, new, want string }{
		"an unknown field":             {`"name"`, `"subject": "x", "name"`, `unknown field "subject"`},
		"an unknown field, further in": {`"needs_deeper_qa"`, `"needs_depth"`, `unknown field "needs_depth"`},
		"a number for a title":         {`"Greet people"`, `3`, "title: want string, got number"},
		"a text for criteria":          {`[{"text": "greet.sh greets", "prd_ids": ["other"]}, {"text": "it is quiet without a name"}]`, `"greets"`, "acceptance_criteria: want []graph.Criterion, got string"},
		"no criteria":                  {`[{"text": "greet.sh greets", "prd_ids": ["other"]}, {"text": "it is quiet without a name"}]`, `[]`, "acceptance_criteria: give at least one"},
		"a blank criterion":            {`"it is quiet without a name"`, `" "`, "acceptance_criteria[1].text"},
		"no title":                     {`"title": "Greet people",`, ``, "title: say"},
		"no description":               {`"Write greet.sh."`, `""`, "description: say"},
		"a dependency":                 {`"files_to_create"`, `"depends_on": ["x"], "files_to_create"`, "depends_on: there is no other issue"},
		"a parent":                     {`"files_to_create"`, `"parent_issue_name": "x", "files_to_create"`, "parent_issue_name: there is no other issue"},
		"a name with spaces":           {`"add-greet"`, `"add greet"`, `issue name "add greet"`},
		"two issues":                   {`"sequence_number": 7` + "\n}", `"sequence_number": 7} {}`, "more in it than one JSON object"},
		"cut off":                      {`"sequence_number": 7` + "\n}", ``, "in the middle"},
		"no JSON":                      {`{` + "\n\t\"name\"", `name`, "no JSON at byte"},
		"nothing":                      {oneIssue, ``, "nothing in it"},
		"a list":                       {oneIssue, `[]`, "the issue: want graph.Issue, got array"},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(oneIssue, c.old) {
				t.Fatalf("the row changes nothing: %q", c.old)
			}
			_, err := plan.Single([]byte(strings.Replace(oneIssue, c.old, c.new, 1)))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}
