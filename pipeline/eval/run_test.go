package eval

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/results"
)

// panel answers as it is told, by case, and remembers what it was asked.
type panel struct {
	mu    sync.Mutex
	asked []string
	says  map[string]func(ctx context.Context, t Trial) (Outcome, error)
}

func (p *panel) Review(ctx context.Context, t Trial) (Outcome, error) {
	p.mu.Lock()
	p.asked = append(p.asked, t.String())
	say := p.says[t.Case.ID]
	p.mu.Unlock()
	if say == nil {
		say = sees(t.Case.Grader.Truth...)
	}
	return say(ctx, t)
}

// sees is a whole review that costs a dollar and has a finding at each truth.
func sees(truth ...Truth) func(context.Context, Trial) (Outcome, error) {
	return func(context.Context, Trial) (Outcome, error) {
		r := report.Review{ID: "r-1", State: report.ReviewCompleted, Severity: "medium", Confidence: 80, CostMicros: 1e6, AgentCalls: 3}
		for i, t := range truth {
			r.Findings = append(r.Findings, finding.Entry{
				Finding: finding.Finding{Severity: finding.High, Path: t.File, StartLine: t.StartLine, Title: "A fault"},
				Number:  i + 1, Lens: t.Lens, Verdict: finding.Confirmed, Confidence: 90, State: finding.New,
			})
		}
		return Outcome{Review: r}, nil
	}
}

func breaks(cause string) func(context.Context, Trial) (Outcome, error) {
	return func(context.Context, Trial) (Outcome, error) { return Outcome{}, errors.New(cause) }
}

// bench is a suite of two cases and where its results go.
type bench struct {
	*testing.T
	suite Suite
	root  string
	*panel
	states []string // of the runs of the last evaluation
}

func newBench(t *testing.T, more string) *bench {
	t.Helper()
	s, err := Read(newSuite(t, more+suiteText))
	must(t, err)
	s.MaxConcurrency = 1 // in order
	return &bench{T: t, suite: s, root: t.TempDir(), panel: &panel{says: map[string]func(context.Context, Trial) (Outcome, error){}}}
}

// run evaluates and returns the only summary.
func (b *bench) run(ctx context.Context, again Again) (Summary, error) {
	b.Helper()
	b.asked, b.states = nil, nil
	clock := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all, err := Run(ctx, b.suite, Options{
		Root: b.root, EvalPath: "suite.yaml", Again: again, Reviewer: b.panel, Now: func() time.Time { return clock },
		Heard: func(p Progress) { b.states = append(b.states, string(p.Row.State)) },
	})
	if len(all) != 1 {
		b.Fatalf("%d summaries: %v", len(all), err)
	}
	return all[0], err
}

func (b *bench) want(what string, got any, ok bool) {
	b.Helper()
	if !ok {
		b.Errorf("%s: %+v; asked %q, states %q", what, got, b.asked, b.states)
	}
}

// TestRunMeasures takes a suite through once, in which one case is missed.
func TestRunMeasures(t *testing.T) {
	b := newBench(t, "threshold: {recall: 0.5}\n")
	s, err := b.run(t.Context(), Fresh)
	must(t, err)
	b.want("all is well", s, s.Complete && s.Counts.Passed == 2 && s.Overall.TruePositives == 1 && s.Overall.Recall.Value == 1 && len(s.Below) == 0 && s.CostMicros == 2e6)

	b.says["one"] = sees(Truth{File: "a.go", StartLine: 90})
	s, err = b.run(t.Context(), Fresh)
	must(t, err)
	k := s.ByKind["wrong_default"]
	b.want("one is missed", s, s.Complete && s.Counts.Failed == 1 && s.Overall.FalseNegatives == 1 && s.Overall.FalsePositives == 1 && k.Missed == 1 &&
		len(s.Below) == 1 && strings.Contains(s.Below[0], "recall 0.000 is below 0.500") && strings.Contains(s.Text(), "recall     0.000 ["))

	var kept Summary
	bundles, err := results.Discover(b.root, results.Options{})
	must(t, err)
	if len(bundles) != 2 {
		t.Fatalf("%d bundles", len(bundles))
	}
	must(t, bundles[1].ReadSummary(&kept))
	b.want("the file says the same", kept, kept.Overall.FalseNegatives == 1 && kept.Complete)
}

// TestWhatDoesNotMeasure is kept apart, and tried again by name only.
func TestWhatDoesNotMeasure(t *testing.T) {
	b := newBench(t, "")
	b.says["one"] = breaks("the provider is down")
	s, err := b.run(t.Context(), Fresh)
	must(t, err)
	b.want("it counts for nothing", s, !s.Complete && s.Counts.Errors == 1 && s.Counts.Missing == 1 && s.Overall.FalseNegatives == 0 && slices.Equal(b.states, []string{"infra_error", "passed"}))

	s, err = b.run(t.Context(), Resume)
	must(t, err)
	b.want("resume leaves it", s, len(b.asked) == 0 && s.Counts.Errors == 1)

	delete(b.says, "one")
	s, err = b.run(t.Context(), Errors)
	must(t, err)
	b.want("it is the next run", s, slices.Equal(b.asked, []string{"one · fast · run 2"}) && s.Complete && s.Counts.Errors == 1 && s.Counts.Passed == 2)

	gap := sees()
	b.says["clean"] = func(ctx context.Context, tr Trial) (Outcome, error) {
		out, err := gap(ctx, tr)
		out.Review.Gaps = []report.Gap{{Agent: "security", State: "failed", Reason: "no answer"}}
		return out, err
	}
	s, err = b.run(t.Context(), Fresh)
	must(t, err)
	b.want("a review that is not whole", s, s.Counts.Errors == 1 && s.Counts.Missing == 1)
}

// TestRerunFailed makes what failed anew; what it did first is kept and no longer
// counts.
func TestRerunFailed(t *testing.T) {
	b := newBench(t, "")
	b.says["one"] = sees()
	s, err := b.run(t.Context(), Fresh)
	must(t, err)
	b.want("missed", s, s.Counts.Failed == 1)
	delete(b.says, "one")
	s, err = b.run(t.Context(), Failed)
	must(t, err)
	b.want("found", s, slices.Equal(b.asked, []string{"one · fast · run 2"}) && s.Counts.Passed == 2 && s.Counts.Failed == 0 && s.Counts.Earlier == 1 && s.Overall.Recall.Value == 1)
}

// TestInterruptedEvaluation is stopped within its second case, by a person or for
// its budget, and taken up after every folder got another name.
func TestInterruptedEvaluation(t *testing.T) {
	b := newBench(t, "repeat: 2\n")
	ctx, stop := context.WithCancel(t.Context())
	b.says["clean"] = func(ctx context.Context, _ Trial) (Outcome, error) {
		stop()
		<-ctx.Done()
		return Outcome{Review: report.Review{ID: "r-2", CostMicros: 5e5}}, ctx.Err()
	}
	s, err := b.run(ctx, Fresh)
	b.want("stopped", err, errors.Is(err, context.Canceled) && s.Counts.Runs == 2 && s.Counts.Missing == 2 && !s.Complete && s.Counts.Errors == 0 && s.CostMicros == 25e5)

	bundles, err := results.Discover(b.root, results.Options{})
	must(t, err)
	must(t, os.Rename(bundles[0].Dir, filepath.Join(b.root, "elsewhere")))
	index := filepath.Join(b.root, "elsewhere", "index.jsonl")
	text, err := os.ReadFile(index)
	must(t, err)
	must(t, os.WriteFile(index, append(text, `{"row_id": "cle`...), 0o600))
	delete(b.says, "clean")
	s, err = b.run(t.Context(), Resume)
	must(t, err)
	b.want("taken up", s, slices.Equal(b.asked, []string{"clean · fast", "clean · fast · run 2"}) && s.Torn && strings.Contains(s.Text(), "was torn") && s.Complete && s.Counts.Runs == 4 && s.Bundle == "elsewhere" && s.CostMicros == 45e5)

	b.suite.Digest = "another"
	if _, err := Run(t.Context(), b.suite, Options{Root: b.root, EvalPath: "suite.yaml", Again: Resume, Reviewer: b.panel, Now: time.Now}); err == nil || !strings.Contains(err.Error(), "the suite has changed") {
		t.Errorf("another suite was taken up: %v", err)
	}
	if _, err := Run(t.Context(), b.suite, Options{Root: t.TempDir(), EvalPath: "suite.yaml", Again: Resume, Reviewer: b.panel, Now: time.Now}); err == nil || !strings.Contains(err.Error(), "there is no evaluation") {
		t.Errorf("nothing was taken up: %v", err)
	}
}

// TestBudgetOfAnEvaluation ends before the case that it has no money for.
func TestBudgetOfAnEvaluation(t *testing.T) {
	b := newBench(t, "budget_usd: 1\n")
	s, err := b.run(t.Context(), Fresh)
	b.want("one case is paid", s, errors.Is(err, ErrBudget) && len(b.asked) == 1 && s.Counts.Missing == 1)
	left, err := Left(b.suite, Options{Root: b.root, EvalPath: "suite.yaml", Again: Resume})
	if err != nil || left != 0 {
		t.Errorf("%d left: %v", left, err)
	}
	s, err = b.run(t.Context(), Resume)
	b.want("and no other", s, errors.Is(err, ErrBudget) && len(b.asked) == 0)
	b.suite.Budget = 1_500_000
	s, err = b.run(t.Context(), Resume)
	b.want("until there is more", s, err == nil && s.Complete && s.CostMicros == 2e6)
}

// TestTargetsAndVariants are bundles of their own under one timestamp.
func TestTargetsAndVariants(t *testing.T) {
	s, err := Read(newSuite(t, "variants:\n  - name: strict\n    config: {review: {min_confidence: 90}}\n  - name: lax\n"+
		strings.Replace(suiteText, "  - name: fast\n", "  - name: a/b\n    runtime: command\n  - name: a-b\n", 1)))
	must(t, err)
	root := t.TempDir()
	all, err := Run(t.Context(), s, Options{Root: root, EvalPath: "suite.yaml", Reviewer: &panel{}, Now: time.Now})
	must(t, err)
	seen := map[string]bool{}
	for _, sum := range all {
		if !sum.Complete || sum.Timestamp != all[0].Timestamp || seen[sum.Bundle] {
			t.Errorf("%+v", sum)
		}
		seen[sum.Bundle] = true
	}
	if len(all) != 4 {
		t.Errorf("%d bundles", len(all))
	}
}
