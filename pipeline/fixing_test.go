package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

var claimsFence = regexp.MustCompile(`(?s)<data name="claims">\n(.*?)\n</data>`)

// finds makes one lens of the first review find a fault, which the verifier of
// each review confirms or refutes, one verdict after the other.
func (w *world) finds(severity finding.Severity, confidence int, verdicts ...finding.Verdict) {
	w.when("lens", func(_ context.Context, c runtime.Call) (any, error) {
		if !strings.HasPrefix(c.Step, "verify-1/") || !strings.Contains(c.Step, "correctness") {
			return nil, nil
		}
		return review.Remarks{Findings: []review.Remark{{
			Finding: finding.Finding{Severity: severity, Path: "a.txt", StartLine: 1, Title: "It drops the last line", Claim: "A text without a newline loses its end."},
			Quote:   "a",
		}}}, nil
	})
	var asked atomic.Int64
	w.when("review_verifier", func(_ context.Context, c runtime.Call) (any, error) {
		var claims []review.Claim
		if err := json.Unmarshal([]byte(claimsFence.FindStringSubmatch(c.Prompt)[1]), &claims); err != nil {
			return nil, err
		}
		verdict := verdicts[min(int(asked.Add(1)), len(verdicts))-1]
		var out review.Verdicts
		for _, claim := range claims {
			out.Verdicts = append(out.Verdicts, review.Verdict{ID: claim.ID, Verdict: verdict, Confidence: confidence, Reason: "I looked."})
		}
		return out, nil
	})
}

// mends makes the Fix Generator name one issue in each round.
func (w *world) mends() {
	var asked atomic.Int64
	w.when("fix_generator", func(context.Context, runtime.Call) (any, error) {
		return FixPlan{FixIssues: []graph.Issue{sub(fmt.Sprintf("fix-%d", asked.Add(1)))}, Summary: "one fix"}, nil
	})
}

// What a review of the build's own diff finds is fixed, or it stands in the
// report; what nobody looked at is told of.
func TestFindingsAreFixedOrStand(t *testing.T) {
	fault := owed{debt.ReviewFinding, "", "It drops the last line"}
	for name, c := range map[string]struct {
		conf       string
		severity   finding.Severity
		confidence int
		verdicts   []finding.Verdict // of one review after the other
		deaf       string            // the lens or role that does not answer
		state      report.State
		fixes      int // how often the Fix Generator is asked
		landed     []string
		owes       []owed
	}{
		"it is fixed": {
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed, finding.Rejected},
			state: report.Succeeded, fixes: 1, landed: []string{"fix-1"},
		},
		"it is still there": {
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed},
			state: report.SucceededWithDebt, fixes: 1, landed: []string{"fix-1"}, owes: []owed{fault},
		},
		"it is fixed in the second round": {
			conf:     "pipeline: {max_verify_fix_cycles: 2}",
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed, finding.Confirmed, finding.Rejected},
			state: report.Succeeded, fixes: 2, landed: []string{"fix-1", "fix-2"},
		},
		"no round is left": {
			conf:     "pipeline: {max_verify_fix_cycles: 0}",
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed},
			state: report.SucceededWithDebt, owes: []owed{fault},
		},
		"it was refuted": {
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Rejected}, state: report.Succeeded,
		},
		"it is too small to count": {
			conf:     "review: {severity: high}",
			severity: finding.Medium, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed}, state: report.Succeeded,
		},
		"it counts, with a lower bar": {
			conf:     "review: {severity: low}\npipeline: {max_verify_fix_cycles: 0}",
			severity: finding.Low, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed}, state: report.SucceededWithDebt, owes: []owed{fault},
		},
		"it is too uncertain to count": {
			severity: finding.High, confidence: 70, verdicts: []finding.Verdict{finding.Confirmed}, state: report.Succeeded,
		},
		"it counts, with less certainty": {
			conf:     "review: {min_confidence: 60}\npipeline: {max_verify_fix_cycles: 0}",
			severity: finding.High, confidence: 70, verdicts: []finding.Verdict{finding.Confirmed}, state: report.SucceededWithDebt, owes: []owed{fault},
		},
		"the Fix Generator is silent": {
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed}, deaf: "fix_generator",
			state: report.SucceededWithDebt, fixes: 1, owes: []owed{fault},
		},
		"a lens is silent": {
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Rejected}, deaf: "security",
			state: report.SucceededWithDebt, owes: []owed{{debt.WaivedReview, "", "the lens security did not look at the build's diff"}},
		},
		"nobody is to look": {
			conf:     "pipeline: {enable_review: false}",
			severity: finding.High, confidence: 95, verdicts: []finding.Verdict{finding.Confirmed}, state: report.Succeeded,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil))
			w.configure(c.conf)
			w.finds(c.severity, c.confidence, c.verdicts...)
			w.mends()
			for _, role := range []string{"lens", "fix_generator"} {
				w.when(role, func(_ context.Context, call runtime.Call) (any, error) {
					if c.deaf != "" && strings.Contains(call.Step, c.deaf) {
						return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
					}
					return nil, nil
				})
			}
			b := w.must(c.state)
			if !b.Success || len(b.Debt) != len(c.owes) {
				t.Errorf("success %v, debt %+v", b.Success, b.Debt)
			}
			for _, o := range c.owes {
				w.owes(b, o.kind, o.issue, o.text)
			}
			if n := w.asked("fix_generator"); n != c.fixes {
				t.Errorf("the Fix Generator was asked %d times, want %d", n, c.fixes)
			}
			for _, name := range c.landed {
				if w.file(b, name+".txt") == "" {
					t.Errorf("%s did not land", name)
				}
			}
			for _, p := range w.prompts("fix_generator", "") {
				if !strings.Contains(p, "It drops the last line") {
					t.Error("the Fix Generator is not told of the finding")
				}
			}
			w.incremental(len(c.landed) > 0)
		})
	}
}

// incremental wants a second review to look at what the fix changed alone.
func (w *world) incremental(again bool) {
	w.t.Helper()
	seen := 0
	for _, c := range w.agents.Calls() {
		if c.Role != "lens" || !strings.HasPrefix(c.Step, "verify-2/") {
			continue
		}
		seen++
		if !strings.Contains(c.Prompt, "fix-1.txt") || strings.Contains(c.Prompt, "+++ b/a.txt") {
			w.t.Errorf("%s is not shown the fix alone:\n%s", c.Step, c.Prompt)
		}
	}
	if again && seen == 0 {
		w.t.Error("what was fixed was not reviewed")
	}
}

// Criteria that fail go the same way, and so does a Fix Generator that gives
// them up.
func TestCriteriaThatFailAreFixedOrStand(t *testing.T) {
	for name, c := range map[string]struct {
		passed []bool
		plan   *FixPlan // nil: it falls over
		state  report.State
		met    bool
		owes   string
	}{
		"met after the fix": {passed: []bool{false, true}, plan: &FixPlan{FixIssues: []graph.Issue{sub("fix")}, Summary: "s"}, state: report.Succeeded, met: true},
		"still unmet":       {passed: []bool{false}, plan: &FixPlan{FixIssues: []graph.Issue{sub("fix")}, Summary: "s"}, state: report.SucceededWithDebt, owes: "thing.go:3"},
		"it fell over":      {passed: []bool{false}, state: report.SucceededWithDebt, owes: "thing.go:3"},
		"not worth it": {
			passed: []bool{false}, state: report.SucceededWithDebt, owes: "it needs another machine",
			plan: &FixPlan{FixIssues: []graph.Issue{}, Summary: "s", DebtItems: []debt.Item{{
				Type: debt.UnmetCriterion, Severity: debt.High, Criterion: "ac-1", Justification: "it needs another machine",
			}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil))
			w.verdicts(c.passed...)
			w.when("fix_generator", func(context.Context, runtime.Call) (any, error) {
				return nil, &runtime.Error{Class: runtime.Refused, Reason: "it fell over"}
			})
			if c.plan != nil {
				w.fixes(*c.plan)
			}
			b := w.must(c.state)
			if b.Success != c.met {
				t.Errorf("success %v", b.Success)
			}
			if !c.met {
				i := slices.IndexFunc(b.Debt, func(d debt.Item) bool {
					return d.Type == debt.UnmetCriterion && strings.Contains(d.Justification, c.owes)
				})
				if i < 0 {
					t.Errorf("no debt says %q: %+v", c.owes, b.Debt)
				}
			}
		})
	}
}

// hosted is a local forge that has pull requests, and keeps the reviews of them.
type hosted struct {
	Local
	reviews *[]forge.OwnReview
}

func (f hosted) EnsureDraft(_ context.Context, d forge.Draft) (forge.Pull, error) {
	return forge.Pull{Number: 5, URL: "https://github.example/acme/api/pull/5", Draft: true, State: "open", Head: d.Head, Title: d.Title, Body: d.Body}, nil
}

func (f hosted) EnsureReview(_ context.Context, r forge.OwnReview) (forge.OwnReview, error) {
	*f.reviews = append(*f.reviews, r)
	return r, nil
}

// What a build's own review leaves open is said on the lines of its draft, once,
// and nothing is said where nothing is open.
func TestTheDraftGetsTheReview(t *testing.T) {
	for name, c := range map[string]struct {
		verdict finding.Verdict
		want    int
	}{"a finding that stands": {finding.Confirmed, 1}, "one that was refuted": {finding.Rejected, 0}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil))
			w.configure("pipeline: {max_verify_fix_cycles: 0, check_ci: false}")
			w.finds(finding.High, 95, c.verdict)
			mirror, err := w.engine.Mirror(t.Context(), worldRepo())
			if err != nil {
				t.Fatal(err)
			}
			var posted []forge.OwnReview
			w.forge = hosted{Local{Dir: w.dir, Mirror: mirror}, &posted}
			w.ask = func(r *Request) { r.Comment.Marker = "<!-- slipway app=1 run=b-1 -->" }
			for range 2 {
				if _, err := w.run(); err != nil {
					t.Fatal(err)
				}
			}
			if len(posted) != c.want {
				t.Fatalf("%d reviews: %+v", len(posted), posted)
			}
			if c.want > 0 && (posted[0].Pull != 5 || posted[0].Marker != "<!-- slipway app=1 review=b-1 -->" || len(posted[0].Remarks)+strings.Count(posted[0].Body, "It drops the last line") == 0) {
				t.Errorf("posted %+v", posted[0])
			}
		})
	}
}
