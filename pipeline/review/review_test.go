package review

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

const csv = `package export

import "encoding/csv"

// WriteCSV writes records.
func WriteCSV(w *csv.Writer, records [][]string) error {
	for _, r := range records {
		w.Write(r)
	}
	w.Flush()
	return nil
}
`

// change is a history with one change: csv.go is new, run.go calls it.
func change(t *testing.T) (h *history, target Target) {
	t.Helper()
	h = newHistory(t)
	run := "package export\n\nfunc Run() error {\n\tcheck()\n\treturn JSON()\n}\n" + strings.Repeat("\n// far away\n", 20)
	target.Base = h.commit(files{"run.go": run})
	target.Head = h.commit(files{"csv.go": csv, "run.go": strings.Replace(run, "\tcheck()\n\treturn JSON()", "\treturn WriteCSV(w, all)", 1)})
	target.Goal, target.Criteria = "Let export write CSV", []string{"a full disk is an error"}
	return h, target
}

var (
	flush  = remark("high", "csv.go", 10, "w.Flush()", "The error of Flush is dropped", "A failed write at Flush is not reported, the file is short.")
	write  = remark("medium", "csv.go", 8, "w.Write(r)", "The error of Write is dropped", "A failed write of one record is ignored.")
	noTest = remark("low", "csv.go", 0, "", "No test covers the writer", "Every mutant survives.")
)

func names(list []finding.Entry) (out []string) {
	for _, f := range list {
		out = append(out, f.Title)
	}
	return out
}

func TestCleanDiff(t *testing.T) {
	h, target := change(t)
	got, agents := new(script).must(t, h, target, Options{MinConfidence: 80})
	want := Result{
		Base: target.Base, Head: target.Head, Status: batch.Completed, Receipt: batch.Receipt{Planned: 10, Completed: 10},
		Manifest: Manifest{{Path: "csv.go", Status: "added"}, {Path: "run.go", Status: "modified"}},
		Untested: []string{"csv.go", "run.go"}, MinConfidence: 80, Lenses: lensNames(Lenses()),
	}
	if !reflect.DeepEqual(got, want) || !got.Clean() {
		t.Errorf("got %+v", got)
	}
	if asked := slotsOf(agents); !slices.Equal(asked, []string{
		"concurrency_resources", "correctness", "cross_file", "intent", "maintainability", "performance", "removed_behaviour", "security", "tests", "undirected",
	}) {
		t.Errorf("asked %q", asked)
	}
	for _, c := range agents.Calls() {
		if c.Step != key+"/"+slotOf(c)+"/lens" || !c.ReadOnly {
			t.Errorf("%s, read-only %v", c.Step, c.ReadOnly)
		}
	}
}

func TestNothingToReview(t *testing.T) {
	h, target := change(t)
	for name, target := range map[string]Target{
		"no change":    {Base: target.Head, Head: target.Head},
		"skipped only": {Base: target.Head, Head: h.commit(files{"go.sum": "x\n"})},
	} {
		t.Run(name, func(t *testing.T) {
			got, agents := new(script).must(t, h, target, Options{})
			if len(agents.Calls()) != 0 || got.Status != batch.Completed || !got.Clean() {
				t.Errorf("asked %q: %+v", slotsOf(agents), got)
			}
		})
	}
}

func TestIntentNeedsAGoal(t *testing.T) {
	h, target := change(t)
	for name, c := range map[string]struct {
		goal     string
		criteria []string
		want     bool
	}{"neither": {"", nil, false}, "a goal": {"CSV", nil, true}, "criteria": {"", []string{"CSV"}, true}} {
		t.Run(name, func(t *testing.T) {
			target.Goal, target.Criteria = c.goal, c.criteria
			_, agents := new(script).must(t, h, target, Options{})
			if got := slices.Contains(slotsOf(agents), "intent"); got != c.want {
				t.Errorf("asked for the intent: %v", got)
			}
		})
	}
}

func TestFindingsAreWhereTheirCodeIs(t *testing.T) {
	h, target := change(t)
	for name, c := range map[string]struct {
		in         Remark
		path       string
		start, end int
		side       finding.Side
		outside    bool
	}{
		"as it says":                {flush, "csv.go", 10, 0, "", false},
		"miscounted":                {remark("high", "csv.go", 3, "w.Flush()", "T", "C"), "csv.go", 10, 0, "", false},
		"as the diff has it":        {remark("high", "b/csv.go", 10, "", "T", "C"), "csv.go", 10, 0, "", false},
		"two lines":                 {remark("high", "./csv.go", 1, "w.Flush()\nreturn nil", "T", "C"), "csv.go", 10, 11, "", false},
		"no quote":                  {remark("high", "csv.go", 7, "", "T", "C"), "csv.go", 7, 0, "", false},
		"a quote that is not there": {remark("high", "csv.go", 7, "panic(1)", "T", "C"), "csv.go", 7, 0, "", false},
		"the file as a whole":       {noTest, "csv.go", 0, 0, "", false},
		"removed code":              {remark("high", "run.go", 4, "check()", "T", "C"), "run.go", 4, 0, "old", false},
		"outside of the hunks":      {remark("high", "run.go", 30, "", "T", "C"), "run.go", 30, 0, "", true},
		"beyond the end":            {remark("high", "csv.go", 900, "", "T", "C"), "csv.go", 900, 0, "", true},
		"a file not in the diff":    {remark("high", "main.go", 1, "", "T", "C"), "main.go", 1, 0, "", true},
		"a way out":                 {remark("high", "../../etc/passwd", 1, "root", "T", "C"), "../../etc/passwd", 1, 0, "", true},
		"nowhere":                   {remark("high", "", 0, "", "T", "C"), "", 0, 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{remarks: map[string][]Remark{"security": {c.in}}}
			got, _ := s.must(t, h, target, Options{})
			if len(got.Findings) != 1 || len(got.Open) != 1 {
				t.Fatalf("findings %v, open %v", got.Findings, got.Open)
			}
			f := got.Findings[0]
			if f.Path != c.path || f.StartLine != c.start || f.EndLine != c.end || f.Side != c.side || f.Outside != c.outside {
				t.Errorf("%s:%d-%d side %q outside %v", f.Path, f.StartLine, f.EndLine, f.Side, f.Outside)
			}
			if f.Lens != "security" || f.State != finding.New || f.Agreement != 1 {
				t.Errorf("%+v", f)
			}
		})
	}
}

func TestOneFaultIsOneFinding(t *testing.T) {
	h, target := change(t)
	again := remark("critical", "csv.go", 9, "", "Flush error dropped", "The error of a failed Flush is not reported: the file is short.")
	again.EndLine = 11
	s := &script{remarks: map[string][]Remark{
		"correctness":           {remark("medium", "csv.go", 10, "", "Error of Flush is lost", "A failed write at Flush is not reported and the file is short."), write},
		"security":              {again},
		"concurrency_resources": {flush, flush},
		"tests":                 {noTest, remark("low", "run.go", 0, "", "No test covers the writer", "Every mutant survives.")},
		"maintainability":       {remark("low", "csv.go", 10, "w.Flush()", "Comment is missing", "Nobody knows why it is called here.")},
	}}
	got, agents := s.must(t, h, target, Options{})
	want := []string{"The error of Write is dropped", "Error of Flush is lost", "No test covers the writer", "No test covers the writer", "Comment is missing"}
	if !slices.Equal(names(got.Findings), want) {
		t.Fatalf("findings %q", names(got.Findings))
	}
	merged := got.Findings[1]
	if merged.Agreement != 3 || merged.Lens != "correctness" || merged.Severity != finding.Critical || merged.Quote != "w.Flush()" || merged.StartLine != 10 {
		t.Errorf("three lenses found it, one of them twice: %+v", merged)
	}
	if n := len(agents.Calls()); n != 11 {
		t.Errorf("%d calls, want ten lenses and one verifier", n)
	}
}

func TestVerdictsDecideWhatCounts(t *testing.T) {
	h, target := change(t)
	yes := func(confidence int) Verdict {
		return Verdict{Verdict: finding.Confirmed, Confidence: confidence, Reason: "It happens."}
	}
	no := Verdict{Verdict: finding.Rejected, Confidence: 99, Reason: "The caller checks."}
	critical := func(quote string) Remark {
		return remark("critical", "csv.go", 10, quote, "It crashes", "It crashes always.")
	}
	with := func(v Verdict, path, quote, witness string) Verdict {
		v.Path, v.Quote, v.Witness = path, quote, witness
		return v
	}
	for name, c := range map[string]struct {
		in       Remark
		said     Verdict
		verdict  finding.Verdict
		severity finding.Severity
		open     bool
	}{
		"confirmed":                             {flush, yes(90), "confirmed", "high", true},
		"at both bounds":                        {write, yes(80), "confirmed", "medium", true},
		"not sure enough":                       {flush, yes(79), "confirmed", "high", false},
		"not severe enough":                     {noTest, yes(99), "confirmed", "low", false},
		"rejected":                              {flush, no, "rejected", "high", false},
		"uncertain":                             {flush, Verdict{Verdict: finding.Uncertain, Confidence: 95}, "uncertain", "high", false},
		"critical with its code":                {critical("w.Flush()"), yes(90), "confirmed", "critical", true},
		"critical with code that is not there":  {critical("os.Exit(1)"), yes(90), "confirmed", "high", true},
		"critical with a quote of the verifier": {critical(""), with(yes(90), "", "w.Write(r)", ""), "confirmed", "critical", true},
		"critical with a run":                   {critical(""), with(yes(90), "", "", "go run .: panic"), "confirmed", "critical", true},
		"critical, refuted by code":             {critical("w.Flush()"), with(no, "run.go", "return WriteCSV(w, all)", ""), "rejected", "critical", false},
		"critical, refuted by words":            {critical("w.Flush()"), no, "uncertain", "critical", false},
		"critical, refuted by code not there":   {critical("w.Flush()"), with(no, "run.go", "if w == nil {", ""), "uncertain", "critical", false},
		"critical, refuted by a file not there": {critical("w.Flush()"), with(no, "../x", "return", ""), "uncertain", "critical", false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{remarks: map[string][]Remark{"correctness": {c.in}}, verdict: func(Claim) Verdict { return c.said }}
			got, _ := s.must(t, h, target, Options{Severity: finding.Medium, MinConfidence: 80})
			if len(got.Findings) != 1 {
				t.Fatalf("findings %v", got.Findings)
			}
			if f := got.Findings[0]; f.Verdict != c.verdict || f.Severity != c.severity {
				t.Errorf("%s %s: %s", f.Verdict, f.Severity, f.Reason)
			}
			if (len(got.Open) == 1) != c.open || got.Clean() == c.open {
				t.Errorf("open %v, clean %v", got.Open, got.Clean())
			}
		})
	}
}

func TestVerifiersGetEightClaimsEachAndNotWhoMadeThem(t *testing.T) {
	h, target := change(t)
	var many []Remark
	for i, word := range strings.Fields("alpha bravo charlie delta echo foxtrot golf hotel india juliet kilo lima mike november oscar papa quebec") {
		many = append(many, remark("high", "csv.go", i+1, "", word, word+" breaks "+word))
	}
	s := &script{remarks: map[string][]Remark{"undirected": many}}
	var sizes []int
	s.verdict = func(c Claim) Verdict {
		return Verdict{Verdict: finding.Confirmed, Confidence: len(c.Title), Reason: c.Title}
	}
	got, agents := s.must(t, h, target, Options{})
	for _, c := range agents.Calls() {
		if c.Role == Verifier.Name {
			sizes = append(sizes, strings.Count(c.Prompt, `"severity"`))
			if strings.Contains(c.Prompt, "undirected") || !strings.Contains(c.Prompt, "w.Flush()") {
				t.Errorf("the verifier is to see the diff and not the lens:\n%s", c.Prompt)
			}
		}
	}
	slices.Sort(sizes)
	if !slices.Equal(sizes, []int{1, 8, 8}) || got.Receipt.Planned != 13 {
		t.Errorf("shards of %d, receipt %+v", sizes, got.Receipt)
	}
	for _, f := range got.Findings { // each verdict reached its claim
		if f.Reason != f.Title || f.Confidence != len(f.Title) {
			t.Errorf("%s has the verdict on %s", f.Title, f.Reason)
		}
	}
}

func TestAFailedLensIsNeverNoIssues(t *testing.T) {
	h, target := change(t)
	for name, c := range map[string]struct {
		fails  map[string]error
		before func(context.Context, string)
		want   []Incomplete
		open   int
		err    error
	}{
		"one lens":        {map[string]error{"security": crashed}, nil, []Incomplete{{"security", "security", target.Head, batch.Failed, key + "/security/lens: it crashed"}}, 1, nil},
		"the only finder": {map[string]error{"correctness": crashed}, nil, []Incomplete{{"correctness", "correctness", target.Head, batch.Failed, key + "/correctness/lens: it crashed"}}, 0, nil},
		"a verifier":      {map[string]error{"verify-01": crashed}, nil, []Incomplete{{"verify-01", "", target.Head, batch.Failed, key + "/verify-01/review_verifier: it crashed"}}, 0, nil},
		"no money":        {map[string]error{"tests": agent.ErrBudget}, nil, []Incomplete{{"tests", "tests", target.Head, batch.Skipped, "skipped: run " + key + "/tests/lens: " + agent.ErrBudget.Error()}}, 1, nil},
		"a panic": {nil, func(_ context.Context, slot string) {
			if slot == "tests" {
				panic("no such lens")
			}
		}, []Incomplete{{"tests", "tests", target.Head, batch.Failed, "panic: no such lens"}}, 1, nil},
		"the provider": {map[string]error{"tests": &runtime.Error{Class: runtime.Fatal, Reason: "no such model"}}, nil, nil, 0, agent.ErrFatal},
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{fails: c.fails, before: c.before, remarks: map[string][]Remark{"correctness": {flush}}}
			got, _, err := s.review(t, new(steptest.Log), h, target, Options{})
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Fatalf("error %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			accounted(t, got)
			if !reflect.DeepEqual(got.Incomplete, c.want) || len(got.Open) != c.open {
				t.Errorf("incomplete %+v, open %v", got.Incomplete, got.Open)
			}
			if got.Clean() || got.Status != batch.Failed || got.Receipt.Whole() {
				t.Errorf("clean %v, %s, %+v", got.Clean(), got.Status, got.Receipt)
			}
			if name == "a verifier" && (len(got.Findings) != 1 || got.Findings[0].Verdict != finding.Uncertain || !strings.Contains(got.Findings[0].Reason, "nobody verified it")) {
				t.Errorf("findings %+v", got.Findings)
			}
		})
	}
}

func TestAnswersThatDoNotFitAreRepaired(t *testing.T) {
	h, target := change(t)
	bad := flush
	bad.Severity = "blocker"
	s := &script{remarks: map[string][]Remark{"correctness": {bad}}}
	got, agents := s.must(t, h, target, Options{Lenses: []Lens{lens("correctness", "")}})
	if len(agents.Calls()) != 3 || len(got.Incomplete) != 1 || !strings.Contains(got.Incomplete[0].Reason, "blocker") {
		t.Errorf("%d turns, incomplete %+v", len(agents.Calls()), got.Incomplete)
	}
}
