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

// files are the repository that the builds work in. Its one command is quick,
// and notes whose evidence it was run for, and on which files, where the test can
// read it; while the file hold is there, it waits. A call that a kill interrupts keeps its reserve:
// it is so small that the budget bears many kills.
func (s script) files() map[string]string {
	return map[string]string{
		"README.md": "# Fleet\n",
		"list.txt":  "first\nlast\n",
		"check.sh": "echo \"${HOME##*/} $(cat -- *.txt | cksum)\" >> \"$GOCACHE/runs\"\nwhile [ -e \"$GOCACHE/hold\" ]; do sleep 0.1; done\n" +
			"if grep -q '^[<=>]' list.txt; then exit 1; fi\n",
		".github/slipway.yml": "commands:\n  test: sh check.sh\n" + s.settings,
	}
}

// goal is what is built.
const goal = "List the ships\n\nAlpha and beta are missing in the list, and there is no index."

// script is what the recorded agents do, and how the repository is set up.
type script struct {
	calls    []runtime.Recording
	settings string // of the repository's configuration
	server   string // the configuration of the server, or of a terminal
}

func (s *script) say(step string, output any, files map[string]string) {
	text, err := json.Marshal(output)
	if err != nil {
		panic(err) // the test's own values
	}
	s.calls = append(s.calls, runtime.Recording{
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

// unreviewed leaves the lenses out: they are ten calls, and overhaul has them.
const unreviewed = "limits:\n  usd_per_call: 0.01\npipeline:\n  enable_review: false\n"

// voyage plans and codes the ships; merged is what the Merger makes of a file
// that several of them changed.
func voyage(ships []ship, merged map[string]string) script {
	s := script{settings: unreviewed}
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
	for round := 1; round <= 3; round++ { // one, and one for each time that people's commits came in
		s.say(fmt.Sprintf("verify-%d/verifier", round), judged, nil)
	}
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
	return &s.calls[slices.IndexFunc(s.calls, func(r runtime.Recording) bool { return r.Step == step })]
}

// write puts the script where --recordings finds it.
func (s script) write(t testing.TB) string {
	t.Helper()
	archive := &txtar.Archive{}
	for _, r := range s.calls {
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
