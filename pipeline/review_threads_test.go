package pipeline

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A person's resolution of a thread dismisses its finding until its lines change,
// or until the person opens the thread again.
func TestAResolvedThreadDismissesItsFinding(t *testing.T) {
	w := newPullWorld(t, plain, changed)
	w.found["correctness"] = []review.Remark{
		faulty(finding.High, "a.go", 3, "func F() { _ = w.Flush() }", "The error of Flush is dropped"),
	}
	first := w.must()
	thread := report.RemarkMarker(first.Findings[0])

	w.hub.resolved[thread] = "tom"
	w.next("r-2")
	w.request.Full = true // the lenses raise it again
	second := w.must()
	if len(second.Findings) != 1 || second.Findings[0].State != finding.Dismissed || len(second.Open()) != 0 || len(w.hub.reviews) != 1 {
		t.Fatalf("after tom dismissed it: %+v, %d reviews", second.Findings, len(w.hub.reviews))
	}
	if want := "The error of Flush is dropped, dismissed by `@\u200btom`"; !strings.Contains(w.hub.comment.Body, want) || w.checked(second).Conclusion != "success" {
		t.Errorf("%s, and no %q in\n%s", w.checked(second).Conclusion, want, w.hub.comment.Body)
	}

	delete(w.hub.resolved, thread)
	w.next("r-3")
	if third := w.must(); len(third.Open()) != 1 || third.Findings[0].State != finding.Open || third.Findings[0].DismissedBy != "" || len(w.hub.reviews) != 1 {
		t.Errorf("after tom opened it again: %+v, %d reviews", third.Findings, len(w.hub.reviews))
	}

	w.hub.resolved[thread] = "tom"
	w.put(map[string]string{"a.go": "package a\n\nfunc F() { go w.Flush() }\n"})
	w.found["correctness"] = []review.Remark{
		faulty(finding.High, "a.go", 3, "func F() { go w.Flush() }", "The error of Flush is dropped"),
	}
	w.next("r-4")
	fourth := w.must()
	if len(fourth.Findings) != 2 || fourth.Findings[0].State != finding.Superseded || fourth.Findings[1].State != finding.New || len(w.hub.reviews) != 2 {
		t.Errorf("after its lines changed: %+v, %d reviews", fourth.Findings, len(w.hub.reviews))
	}
}

// A finding that is fixed resolves its thread; where GitHub refuses that, or to
// tell how threads stand, the review says so and is whole all the same.
func TestAFixedFindingResolvesItsThread(t *testing.T) {
	for name, c := range map[string]struct {
		before  func(*pullHub, string)
		answers int
		ours    bool // the thread is resolved by us
		note    string
	}{
		"as it should be":     {func(*pullHub, string) {}, 1, true, ""},
		"GitHub refuses":      {func(h *pullHub, _ string) { h.refuses = true }, 1, false, "does not let Slipway resolve"},
		"we resolved it then": {func(h *pullHub, thread string) { h.resolved[thread] = "" }, 0, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t, plain, changed)
			w.found["correctness"] = []review.Remark{
				faulty(finding.High, "a.go", 3, "func F() { _ = w.Flush() }", "The error of Flush is dropped"),
			}
			thread := report.RemarkMarker(w.must().Findings[0])
			c.before(w.hub, thread)
			w.found = map[string][]review.Remark{}
			w.put(map[string]string{"a.go": "package a\n\nfunc F() error { return nil }\n"})
			w.when("review_verifier", func(_ context.Context, c runtime.Call) (any, error) {
				var claims []review.Claim
				err := json.Unmarshal([]byte(claimsOf.FindStringSubmatch(c.Prompt)[1]), &claims)
				out := review.Verdicts{}
				for _, claim := range claims {
					out.Verdicts = append(out.Verdicts, review.Verdict{ID: claim.ID, Verdict: finding.Rejected, Confidence: 95, Reason: "It is returned now."})
				}
				return out, err
			})
			w.next("r-2")
			final := w.must()
			by, resolved := w.hub.resolved[thread]
			if final.Findings[0].State != finding.Fixed || len(w.hub.answers) != c.answers || resolved != c.ours || by != "" {
				t.Errorf("%s, %d answers, resolved %t by %q", final.Findings[0].State, len(w.hub.answers), resolved, by)
			}
			notes := strings.Join(final.Notes, "\n")
			if c.note == "" && notes != "" || !strings.Contains(notes, c.note) || w.checked(final).Conclusion != "success" {
				t.Errorf("%s, and the notes %q", w.checked(final).Conclusion, notes)
			}
		})
	}
}
