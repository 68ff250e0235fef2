package review

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

var one = []Lens{lens("correctness", "")}

func TestAuditIsToldWhatWasFound(t *testing.T) {
	h, target := change(t)
	s := &script{remarks: map[string][]Remark{
		"correctness": {remark(finding.High, "csv.go", 3, "", "First fault", "It drops the error of a write.")},
		"audit": {
			remark(finding.High, "csv.go", 3, "", "First fault", "It drops the error of a write."),
			remark(finding.High, "run.go", 1, "", "Second fault", "The format is compared with another spelling."),
		},
	}}
	got, agents := s.must(t, h, target, Options{Lenses: one, Audit: true, Severity: finding.Medium, MinConfidence: 80})
	if asked := slotsOf(agents); !slices.Equal(asked, []string{"audit", "audit-verify-01", "correctness", "verify-01"}) {
		t.Errorf("asked %q", asked)
	}
	if len(got.Open) != 2 || got.Open[1].Lens != "audit" || got.Open[1].Number != 2 {
		t.Errorf("open: %+v", got.Open)
	}
	told := false
	for _, c := range agents.Calls() {
		told = told || slotOf(c) == "audit" && strings.Contains(c.Prompt, "First fault")
	}
	if !told {
		t.Error("the audit is not told of the first fault")
	}
}

func TestOverLeavesWhatWasVerified(t *testing.T) {
	h, target := change(t)
	over := make(chan struct{})
	s := &script{
		remarks: map[string][]Remark{"correctness": {remark(finding.High, "csv.go", 3, "", "A fault", "It drops the error of a write.")}},
		before: func(ctx context.Context, slot string) {
			if slot == "audit" {
				close(over)
				<-ctx.Done()
			}
		},
	}
	log := new(steptest.Log)
	o := Options{Lenses: one, Audit: true, Over: Stop{over, func() string { return "the review ran into its limit" }}, Severity: finding.Medium, MinConfidence: 80}
	got, _, err := s.review(t, log, h, target, o)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Open) != 1 || got.Whole() || got.Status != batch.Canceled {
		t.Errorf("got %+v", got)
	}
	if len(got.Incomplete) != 1 || got.Incomplete[0].Lens != "audit" || !strings.Contains(got.Incomplete[0].Reason, "ran into its limit") {
		t.Errorf("incomplete: %+v", got.Incomplete)
	}
	again, agents, err := new(script).review(t, log, h, target, o)
	if err != nil || len(agents.Calls()) > 0 || len(again.Open) != 1 || again.Whole() {
		t.Errorf("on the same journal: %v, %d calls, %+v", err, len(agents.Calls()), again)
	}
}

func TestInertAgentsRunNothing(t *testing.T) {
	h, target := change(t)
	s := &script{remarks: map[string][]Remark{"correctness": {remark(finding.High, "csv.go", 3, "", "A fault", "It drops the error of a write.")}}}
	_, agents := s.must(t, h, target, Options{Lenses: one, Inert: true, Audit: true})
	for _, c := range agents.Calls() {
		if slices.Contains(c.Tools, runtime.Bash) {
			t.Errorf("%s may run commands", c.Step)
		}
	}
	if _, agents = s.must(t, h, target, Options{Lenses: one}); !slices.Contains(agents.Calls()[0].Tools, runtime.Bash) {
		t.Error("without Inert nobody runs anything either")
	}
}

func TestOnlySomePaths(t *testing.T) {
	h, target := change(t)
	got, _ := new(script).must(t, h, target, Options{Lenses: one, Only: []string{"csv.go"}})
	want := Manifest{{Path: "csv.go", Status: "added"}, {Path: "run.go", Status: "modified", Skipped: Unasked}}
	if !slices.Equal(got.Manifest, want) {
		t.Errorf("manifest %v", got.Manifest)
	}
}

// TestDismissed follows a finding that a person closed: it is not raised again
// while its code stands, and is another one when the code changed.
func TestDismissed(t *testing.T) {
	h := newHistory(t)
	base := h.commit(files{"a.go": "package a\n"})
	head := h.commit(files{"a.go": "package a\n\nfunc F() { _ = w.Flush() }\n"})
	s := &script{remarks: map[string][]Remark{"correctness": {
		remark(finding.High, "a.go", 3, "func F() { _ = w.Flush() }", "The error is dropped", "Nobody asks for the error of Flush."),
	}}}
	o := Options{Lenses: one, Severity: finding.Medium, MinConfidence: 80}
	first, _ := s.must(t, h, Target{Base: base, Head: head}, o)
	id := first.Open[0].ID

	moved := h.commit(files{"a.go": "package a\n\n// More.\n\nfunc F() { _ = w.Flush() }\n"})
	s.remarks["correctness"][0].StartLine = 5
	second, agents := s.must(t, h, Target{Base: base, Head: moved, Earlier: &first, Full: true, Dismissed: []Dismissal{{ID: id, By: "mira"}}}, o)
	if len(second.Open) > 0 || len(second.Findings) != 1 || second.Findings[0].State != finding.Dismissed {
		t.Errorf("after it was closed: %+v", second.Findings)
	}
	if asked := slotsOf(agents); !slices.Equal(asked, []string{"correctness"}) {
		t.Errorf("asked %q: nobody judges what a person judged", asked)
	}

	changed := h.commit(files{"a.go": "package a\n\nfunc F() { w.Flush() }\n"})
	s.remarks["correctness"][0].Quote, s.remarks["correctness"][0].StartLine = "func F() { w.Flush() }", 3
	third, _ := s.must(t, h, Target{Base: base, Head: changed, Earlier: &second}, o)
	if len(third.Findings) != 2 || third.Findings[0].State != finding.Superseded || len(third.Open) != 1 || third.Open[0].Number != 2 {
		t.Errorf("after its code changed: %+v", third.Findings)
	}
}
