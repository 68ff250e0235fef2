package coding

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// learned is a memory with something under every key.
func learned() Memory {
	return Memory{
		Conventions:     &Conventions{FromIssue: "record", Learnings: []string{"tests are tables"}},
		FailurePatterns: []FailurePattern{{IssueName: "xml-writer", Title: "Write XML", Cause: "no encoder fits"}},
		BugPatterns:     []BugPattern{{Pattern: "Flush is lost", Frequency: 2, Modules: []string{"export"}}},
		Interfaces:      map[string]Interface{"record": {Exports: []string{"record.Record"}}, "stranger": {Exports: []string{"stranger.Danger"}}},
		BuildHealth:     &BuildHealth{Failing: []string{"make lint"}},
	}
}

func TestCoderSeesEverythingAtEveryIteration(t *testing.T) {
	b := newBench(script{
		"coder": {done}, "issue_advisor": {advice(Decision{Action: RetryApproach, NewApproach: "through encoding/csv"})},
		"code_reviewer": {{out: ReviewResult{Summary: "One error is lost.", Findings: []finding.Finding{{Severity: "high", Path: "csv.go", StartLine: 3, Title: "Flush is not checked"}}}}, refuse("b"), approve},
	}).advised(1, graph.Criterion{Text: "a comma is quoted", PRDIDs: []string{"ac-1"}})
	b.task.MaxIterations = 2
	b.task.Issue.DependsOn = []string{"record"}
	b.task.Issue.Guidance = graph.Guidance{TestingGuidance: "try an empty record", ReviewFocus: "the last error", NeedsNewTests: true}
	asked := 0
	b.task.Background = func() Background {
		asked++
		return Background{
			Notes:    []graph.Note{{FromIssue: "record", Kind: graph.FailureNote, Delivered: "no Fields method"}, {FromIssue: "reader", Kind: graph.DebtNote, Delivered: "no BOM"}},
			Memory:   learned(),
			Steering: []string{"leave the reader alone", fmt.Sprintf("word %d", asked)},
		}
	}
	if r := b.run(t); r.Outcome != report.Completed || r.Rounds != 2 {
		t.Fatalf("%+v", r)
	}
	prompts := b.prompts("coder")
	if len(prompts) != 3 {
		t.Fatalf("%d prompts", len(prompts))
	}
	for i, p := range prompts {
		for _, want := range []string{
			"Add WriteCSV.", "## Goal", "a comma is quoted", "try an empty record", "no Fields method", "no BOM",
			"tests are tables", "no encoder fits", "Flush is lost", "record.Record", "leave the reader alone",
		} {
			if !strings.Contains(p, want) {
				t.Errorf("call %d does not see %q", i+1, want)
			}
		}
		for _, unwanted := range []string{"stranger.Danger", "make lint"} {
			wantNotIn(t, p, unwanted)
		}
	}
	// What people said meanwhile is asked for anew, by coder and reviewer in turn.
	wantIn(t, prompts[0], "word 1")
	wantIn(t, prompts[1], "word 3")
	if strings.Contains(prompts[0], "feedback") || strings.Contains(prompts[0], "encoding/csv") {
		t.Error("the first iteration has feedback or guidance")
	}
	for _, want := range []string{"iteration 2.", "One error is lost.", "csv.go:3: Flush is not checked"} {
		wantIn(t, prompts[1], want)
	}
	for _, want := range []string{"iteration 1 of round 2.", "The reviewer asks for changes: b", "through encoding/csv"} {
		wantIn(t, prompts[2], want)
	}

	review := b.prompts("code_reviewer")[0]
	for _, want := range []string{"a comma is quoted", "the last error", "Flush is lost"} {
		wantIn(t, review, want)
	}
	wantNotIn(t, review, "tests are tables")
	advisor := b.prompts("issue_advisor")[0]
	for _, want := range []string{"make lint", "no Fields method", "leave the reader alone", "diff base..base+issue-07+issue-07", "One error is lost.", "not approved after 2 iterations"} {
		wantIn(t, advisor, want)
	}
	wantNotIn(t, advisor, "stranger.Danger")
}

func TestQASeesItsGuidance(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": {approve}, "qa": {qaPass}, "qa_synthesizer": {decide(Approve, "Yes.")}}).flagged()
	b.task.Issue.Guidance.TestingGuidance, b.task.Issue.Guidance.NeedsNewTests = "try an empty record", true
	b.run(t)
	wantIn(t, b.prompts("qa")[0], `"needs_new_tests": true`)
	wantIn(t, b.prompts("qa")[0], "try an empty record")
}

func TestEmptySectionsPrintNothing(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": stuckOnce(), "issue_advisor": {gone}}).advised(1)
	b.run(t)
	for role, unwanted := range map[string][]string{
		"coder":         {"given up", "notes", "memory", "steering", "advisor guidance", "feedback"},
		"code_reviewer": {"given up", "bug patterns"},
		"issue_advisor": {"given up", "notes", "memory", "steering", "dependencies", "earlier decisions", "qa", "obstacle"},
	} {
		for _, name := range unwanted {
			wantNotIn(t, b.prompts(role)[0], `<data name="`+name+`">`)
		}
	}
}

// Nobody but a reviewer who answers can lift a block.
func TestABlockOutlivesItsReviewer(t *testing.T) {
	for name, c := range map[string]struct {
		reviews []answer
		outcome report.Outcome
		blocked bool
	}{
		"the next one crashes":    {[]answer{block, gone}, report.FailedUnrecoverable, true},
		"another one asks to fix": {[]answer{block, refuse("no"), refuse("no"), gone}, report.CompletedWithDebt, false},
		"another one approves":    {[]answer{block, gone, approve}, report.Completed, false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(script{"coder": {done}, "code_reviewer": c.reviews})
			if r := b.run(t); r.Outcome != c.outcome || r.Blocked != c.blocked {
				t.Errorf("%+v", r)
			}
			if !slices.ContainsFunc(b.prompts("coder"), func(p string) bool { return strings.Contains(p, "It deletes the data.") }) {
				t.Error("the coder is not told of the block")
			}
		})
	}
}

func TestTheSynthesizerMayBlockToo(t *testing.T) {
	b := newBench(script{
		"coder": {done}, "code_reviewer": {approve}, "qa": {{out: qaFail.out}}, "qa_synthesizer": {decide(Block, "It crashes on nothing.")},
		"issue_advisor": {advice(Decision{Action: AcceptWithDebt, Rationale: "never mind"})},
	}).flagged().advised(1)
	r := b.run(t)
	if r.Done() || !r.Blocked || !strings.Contains(r.Cause, "the last verdict blocks it: It crashes on nothing.") {
		t.Errorf("%+v", r)
	}
}

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
		})
	}
}

func TestResultTellsOfTheLastSubmission(t *testing.T) {
	first := Submission{Summary: "First.", Complete: true, FilesChanged: []string{"a.go"}, Learnings: []string{"old"}}
	last := Submission{
		Summary: "Last.", Complete: true, FilesChanged: []string{"export/csv.go"}, TestSummary: "ok, 3 tests",
		Learnings: []string{"tests are tables"}, Interfaces: []string{"export.WriteCSV"},
	}
	b := newBench(script{"coder": {{out: first, edit: true}, {out: last, edit: true}}, "code_reviewer": {refuse("no"), approve}})
	got := b.run(t)
	want := Result{
		Outcome: report.Completed, Commit: "base+issue-07+issue-07", Changed: true, Iterations: 2, Rounds: 1, Summary: "Last.",
		Files: last.FilesChanged, Learnings: last.Learnings, Interfaces: last.Interfaces, TestSummary: last.TestSummary,
		Faults: []Fault{{Pattern: "no", Modules: []string{"."}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestFaults(t *testing.T) {
	failed := func(output string) evidence.Result {
		return evidence.Result{Commands: []evidence.CommandResult{{Line: "go vet ./...", Passed: true, Output: "error"}, {Line: "go test ./...", Output: output}}}
	}
	long := strings.Repeat("x", 300)
	for name, c := range map[string]struct {
		tested evidence.Result
		review ReviewResult
		qa     *QAResult
		want   []Fault
	}{
		"a command, where its output names the failure": {
			failed("ok  \tmodel\t0.01s\n--- FAIL: TestWrite (0.03s)\n    csv_test.go:14: 0xc00012 != nil"), ReviewResult{Approved: true}, nil,
			[]Fault{{Pattern: "go test ./...: --- FAIL: TestWrite (#s)", Modules: []string{"export", "model"}}},
		},
		"a command that says little":  {failed("\nkilled\n"), ReviewResult{}, nil, []Fault{{Pattern: "go test ./...: killed", Modules: []string{"export", "model"}}}},
		"a command that says nothing": {failed(""), ReviewResult{}, nil, []Fault{{Pattern: "go test ./...:", Modules: []string{"export", "model"}}}},
		"a command and a finding that has a place": {
			failed("panic: 17"), ReviewResult{Findings: []finding.Finding{{Title: "x", Path: "a/b/c.go"}, {Title: "y"}, {Title: "z", Path: "main.go"}}}, nil,
			[]Fault{{Pattern: "go test ./...: panic: #", Modules: []string{".", "a/b"}}},
		},
		"a finding":   {green, ReviewResult{Summary: "no", Findings: []finding.Finding{{Title: "Flush  is lost in line 31\nreally", Path: "export/csv.go"}}}, nil, []Fault{{Pattern: "Flush is lost in line #", Modules: []string{"export"}}}},
		"a summary":   {green, ReviewResult{Summary: long}, nil, []Fault{{Pattern: long[:maxPattern], Modules: []string{"export", "model"}}}},
		"QA's test":   {green, ReviewResult{Approved: true}, &QAResult{TestFailures: []TestFailure{{TestName: "TestEmpty", Error: "panic", File: "cmd/x_test.go"}}}, []Fault{{Pattern: "TestEmpty: panic", Modules: []string{"cmd"}}}},
		"QA's word":   {green, ReviewResult{Approved: true}, &QAResult{Summary: "it hangs"}, []Fault{{Pattern: "it hangs", Modules: []string{"export", "model"}}}},
		"no QA":       {green, ReviewResult{Approved: true}, &QAResult{Summary: "QA did not answer", absent: true}, nil},
		"no reviewer": {none, ReviewResult{Summary: "The review failed", absent: true}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := &round{work: &work{seen: sight{tested: c.tested}, last: Submission{FilesChanged: []string{"model/m.go", "export/csv.go", "export/csv_test.go"}}}}
			r.blame(c.review, c.qa)
			if !reflect.DeepEqual(r.faults, c.want) {
				t.Errorf("got %+v, want %+v", r.faults, c.want)
			}
		})
	}
}

func TestMemoryIsPassedOnByKey(t *testing.T) {
	is := graph.Issue{Name: "csv-writer", DependsOn: []string{"record", "unknown"}}
	text, err := json.Marshal(learned().forCoder(is))
	if err != nil {
		t.Fatal(err)
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"codebase_conventions", "failure_patterns", "bug_patterns", "interfaces"} {
		if _, ok := keys[want]; !ok {
			t.Errorf("a coder is not told %s", want)
		}
	}
	if len(keys) != 4 {
		t.Errorf("a coder is told %s", text)
	}
	if !(Memory{}).forCoder(is).Empty() || !(Memory{}).forAdvisor(is).Empty() || learned().forAdvisor(is).BuildHealth == nil {
		t.Error("an empty memory is not empty, or a full one is")
	}
	if m := learned(); m.forAdvisor(is).Interfaces["stranger"].Exports != nil || m.Interfaces["stranger"].Exports == nil {
		t.Error("the build's memory was changed, or passed on whole")
	}
}

func TestWaivedReviewIsNeverMoreThanDebt(t *testing.T) {
	b := newBench(script{"coder": {done}, "code_reviewer": {gone}}).advised(1)
	r := b.run(t)
	if r.Outcome != report.CompletedWithDebt || len(r.Debt) != 1 || r.Debt[0].Type != debt.WaivedReview || r.Debt[0].Severity != debt.High {
		t.Errorf("%+v", r)
	}
}
