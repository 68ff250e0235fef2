package durability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// repoFiles are the repository that the builds work in. Its one command is
// quick, and notes whose evidence it was run for where the test can read it. A
// call that a kill interrupts keeps its reserve: it is so small that the budget
// bears many kills.
var repoFiles = map[string]string{
	"README.md":           "# Fleet\n",
	"list.txt":            "first\nlast\n",
	"check.sh":            "echo \"${HOME##*/}\" >> \"$GOCACHE/runs\"\nif grep -q '^[<=>]' list.txt; then exit 1; fi\n",
	".github/slipway.yml": "commands:\n  test: sh check.sh\nlimits:\n  usd_per_call: 0.01\n",
}

// goal is what is built.
const goal = "List the ships\n\nAlpha and beta are missing in the list, and there is no index."

// script is what the recorded agents do.
type script []runtime.Recording

func (s *script) say(step string, output any, files map[string]string) {
	text, err := json.Marshal(output)
	if err != nil {
		panic(err) // the test's own values
	}
	*s = append(*s, runtime.Recording{
		Step: step, Events: []runtime.Event{{Kind: runtime.Text, Text: "one run of " + step}},
		Result:        runtime.Result{Output: text, CostMicros: 1000},
		RecordedFiles: runtime.RecordedFiles{Files: files},
	})
}

// ship is an issue of the script.
type ship struct {
	name  string
	after []string
	files map[string]string
}

// voyage plans and codes the ships; merged is what the Merger makes of a file
// that several of them changed.
func voyage(ships []ship, merged map[string]string) script {
	var s script
	prd := plan.PRD{Title: "List the ships", ValidatedDescription: "The list is complete.", Size: plan.Trivial}
	var sprint plan.Sprint
	var judged pipeline.Judgement
	sprint.Rationale = "One ship each."
	for i, ship := range ships {
		id := fmt.Sprintf("ac-%d", i+1)
		prd.AcceptanceCriteria = append(prd.AcceptanceCriteria, plan.Criterion{ID: id, Text: ship.name + " is there", MustHave: true})
		sprint.Issues = append(sprint.Issues, graph.Issue{
			Name: ship.name, Title: "Add " + ship.name, Description: "Add it.", DependsOn: ship.after,
			AcceptanceCriteria: []graph.Criterion{{Text: "it is there", PRDIDs: []string{id}}},
		})
		judged.CriteriaResults = append(judged.CriteriaResults, pipeline.CriterionResult{PRDID: id, Passed: true, Evidence: "list.txt"})
	}
	judged.Summary = "All there."
	s.say("plan/pm", prd, nil)
	s.say("plan/sprint-1/sprint_planner", sprint, nil)
	for i, ship := range ships {
		issue := fmt.Sprintf("issue-%02d", i+1)
		s.say(issue+"/issue_writer", plan.Spec{IssueName: ship.name, Spec: "Add it to list.txt.", Success: true}, nil)
		s.say(issue+"/round-1/iter-1/coder", coding.Submission{FilesChanged: []string{"list.txt"}, Summary: "Added.", Complete: true}, ship.files)
		s.say(issue+"/round-1/iter-1/code_reviewer", coding.ReviewResult{Approved: true, Summary: "Good."}, nil)
		s.say(issue+"/merge-1/merger", pipeline.Merged{Success: true, Summary: "Kept both."}, merged)
	}
	s.say("verify-1/verifier", judged, nil)
	s.say("publish/git", pipeline.PullText{Title: "List the ships", Summary: "Adds them."}, nil)
	return s
}

// fleet is three issues: two that run together and change the same line, so
// that the second needs the Merger, and one after both.
func fleet() script {
	s := voyage([]ship{
		{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}},
		{name: "add-beta", files: map[string]string{"list.txt": "first\nbeta\nlast\n"}},
		{name: "write-index", after: []string{"add-alpha", "add-beta"}, files: map[string]string{"index.txt": "alpha beta\n"}},
	}, map[string]string{"list.txt": "first\nalpha\nbeta\nlast\n"})
	// Alpha lands first, so that every run has the same entries.
	s.find("issue-02/round-1/iter-1/code_reviewer").DelayMS = 400
	return s
}

// find returns the recording of a step.
func (s script) find(step string) *runtime.Recording {
	return &s[slices.IndexFunc(s, func(r runtime.Recording) bool { return r.Step == step })]
}

// write puts the script where --recordings finds it.
func (s script) write(t *testing.T) string {
	t.Helper()
	archive := &txtar.Archive{}
	for _, r := range s {
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		archive.Files = append(archive.Files, txtar.File{Name: strings.ReplaceAll(r.Step, "/", "-") + ".json", Data: append(text, '\n')})
	}
	path := filepath.Join(t.TempDir(), "agents.txtar")
	if err := os.WriteFile(path, txtar.Format(archive), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
