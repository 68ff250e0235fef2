package review

import (
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/evidence"
)

var seen = evidence.Result{Commands: []evidence.CommandResult{
	{Name: "build", Line: "go build ./...", Passed: true, Elapsed: time.Second},
	{Name: "test", Line: "go test ./...", Exit: 1, Output: "--- FAIL: TestWriteCSV", Elapsed: 2 * time.Second},
}}

func TestPrompts(t *testing.T) {
	subject := Subject{
		Goal: "Let export write CSV", Criteria: []string{"export --format csv prints a header line"},
		Diff: "diff --git a/csv.go b/csv.go\n@@ -1,0 +1,1 @@\n+func WriteCSV() {}\n", Part: 1, Parts: 1, Evidence: seen,
	}
	for _, l := range Lenses() {
		t.Run(l.Name, func(t *testing.T) {
			role := l.role
			role.Name = "lens_" + l.Name // the name of its prompt file and golden copy
			agenttest.Prompt(t, role, subject, 1450)
		})
	}
	t.Run("a part of a large change", func(t *testing.T) {
		role := Lenses()[0].role
		agenttest.Prompt(t, role, Subject{Diff: "+x\n", Part: 2, Parts: 5, Incremental: true}, 1350)
	})
	t.Run("review_verifier", func(t *testing.T) {
		agenttest.Prompt(t, Verifier, Docket{
			Claims:   []Claim{{ID: "f1", Remark: remark("high", "csv.go", 3, "w.Flush()", "The error of Flush is dropped", "Nobody asks.")}},
			Diff:     "diff --git a/csv.go b/csv.go\n@@ -1,0 +1,1 @@\n+w.Flush()\n",
			Evidence: seen,
		}, 1300)
	})
}

func TestPromptOfALargeChangeNamesItsFiles(t *testing.T) {
	_, prompt, err := agent.Render(Lenses()[2].role, Subject{Outline: "csv.go\n  @@ -1,0 +1,1 @@\n", Part: 1, Parts: 1, Incremental: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"too large to be shown whole, and so is what changed since", "<data name=\"outline\">\ncsv.go\n"} {
		if !strings.Contains(prompt, want) {
			t.Errorf("%q is not in\n%s", want, prompt)
		}
	}
}

func TestRemarksThatCannotBeUsedGoBack(t *testing.T) {
	good := remark("high", "a.go", 1, "", "Title", "Claim")
	for name, c := range map[string]struct {
		change func(*Remark)
		want   string
	}{
		"good":                       {func(*Remark) {}, ""},
		"no place":                   {func(r *Remark) { r.Path, r.StartLine = "", 0 }, ""},
		"of removed lines":           {func(r *Remark) { r.Side = "old" }, ""},
		"a severity of its own":      {func(r *Remark) { r.Severity = "blocker" }, `findings[0].severity is "blocker"`},
		"no title":                   {func(r *Remark) { r.Title = "" }, "title and claim"},
		"no claim":                   {func(r *Remark) { r.Claim = "" }, "title and claim"},
		"before the first line":      {func(r *Remark) { r.StartLine = -1 }, "start_line is -1"},
		"an end before its start":    {func(r *Remark) { r.StartLine, r.EndLine = 9, 3 }, "end_line 3"},
		"a side that does not exist": {func(r *Remark) { r.Side = "left" }, `side is "left"`},
	} {
		t.Run(name, func(t *testing.T) {
			r := good
			c.change(&r)
			got := strings.Join(checkRemarks(Subject{}, Remarks{Findings: []Remark{r}}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestVerdictsThatCannotBeUsedGoBack(t *testing.T) {
	in := Docket{Claims: []Claim{{ID: "f1"}, {ID: "f2"}}}
	yes := func(id string) Verdict { return Verdict{ID: id, Verdict: "confirmed", Confidence: 90} }
	for name, c := range map[string]struct {
		said []Verdict
		want string
	}{
		"one each":                {[]Verdict{yes("f2"), yes("f1")}, ""},
		"one more than was asked": {[]Verdict{yes("f1"), yes("f2"), yes("f3")}, ""},
		"one is missing":          {[]Verdict{yes("f1")}, "claim f2 has 0 verdicts"},
		"one is there twice":      {[]Verdict{yes("f1"), yes("f2"), yes("f1")}, "claim f1 has 2 verdicts"},
		"another word":            {[]Verdict{yes("f1"), {ID: "f2", Verdict: "maybe"}}, `verdict is "maybe"`},
		"more than certain":       {[]Verdict{yes("f1"), {ID: "f2", Verdict: "rejected", Confidence: 101}}, "confidence is 101"},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(checkVerdicts(in, Verdicts{Verdicts: c.said}), "\n")
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}
