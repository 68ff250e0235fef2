package durability_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/queue"
)

// critics are two lenses, of which the second takes its time, and who verifies
// what the first one finds.
func critics() script {
	s := script{settings: "limits:\n  usd_per_call: 0.01\nreview:\n  lenses: [correctness, security]\n"}
	s.say("review/correctness/lens", review.Remarks{Findings: []review.Remark{{
		Finding: finding.Finding{Severity: finding.High, Path: "list.txt", StartLine: 2, Title: "Alpha is gone", Claim: "Alpha was sunk long ago."},
		Quote:   "alpha", FailureScenario: "Hail it.",
	}}}, nil)
	s.say("review/security/lens", review.Remarks{Findings: []review.Remark{}}, nil)
	s.find("review/security/lens").DelayMS = 400
	s.say("review/verify-01/review_verifier", review.Verdicts{Verdicts: []review.Verdict{{ID: "f1", Verdict: finding.Confirmed, Confidence: 95, Reason: "It was."}}}, nil)
	s.say("review/audit/lens", review.Remarks{Findings: []review.Remark{}}, nil)
	return s
}

// TestReviewSurvivesKills kills the server again and again while it reviews a pull
// request: between two lenses, and around each of the things that it publishes,
// when it is done and not yet recorded. In the end there is one review with
// one remark, one check run and one comment, and nobody was asked twice.
func TestReviewSurvivesKills(t *testing.T) {
	t.Parallel()
	h := newHub(t, critics())
	head := h.commit(t, "topic", "list.txt", "first\nalpha\nlast\n")
	var pull githubsim.Thread
	h.do(t, "pull", githubsim.PullSpec{Repo: fullName, Title: "Add alpha", Head: "topic", Base: "main", By: maintainer}, &pull)
	places := []string{
		"before:publish/begun", "after:review/correctness/lens", "before:publish/review", "before:publish/check", "before:publish/comment", "before:done",
	}
	if soak() {
		places = []string{
			"before:pin", "after:pin", "before:publish/begun", "after:review/correctness/lens", "before:review/lenses", "after:review/lenses",
			"after:review/verifiers", "before:found", "after:end", "before:publish/moved", "before:publish/review", "after:publish/review",
			"before:publish/answers", "before:publish/check", "after:publish/check", "before:publish/comment", "after:publish/comment", "before:done",
		}
	}
	var died seen
	for _, at := range places {
		h.serve(t, "SLIPWAY_CRASH="+at)
		if died.job.ID == "" {
			h.do(t, "comment", githubsim.CommentSpec{Repo: fullName, Number: pull.Number, Body: "/review", By: maintainer}, nil)
		}
		h.server.wait(t, longRun)
		if !h.server.killed() {
			t.Fatalf("it was not killed %s\n%s", at, h.server.said(t))
		}
		began := died
		died = look(t, h.store, h.state, h.review(t))
		died.continues(t, began)
	}
	h.serve(t)
	eventually(t, longRun, func() string {
		if j := h.review(t); !j.State.Finished() {
			return fmt.Sprintf("the review is %s: %s", j.State, j.Cause)
		}
		return ""
	})
	h.server.signal(t, syscall.SIGTERM)
	if code := h.server.wait(t, longRun); code != 0 {
		t.Errorf("the server ended with %d\n%s", code, h.server.said(t))
	}

	whole := look(t, h.store, h.state, h.review(t))
	whole.continues(t, died)
	for key, runs := range whole.runs {
		if runs > 2 || runs > 1 && key != "review/security/lens" { // it was at work when the server was killed
			t.Errorf("%s was asked %d times", key, runs)
		}
	}
	final, err := pipeline.ReadReview(t.Context(), h.store, whole.job.ID)
	if err != nil || whole.job.State != queue.Done || final.State != report.ReviewCompleted || final.Head != head {
		t.Fatalf("the review is %s: %s of %s, %v", whole.job.State, final.State, final.Head, err)
	}
	var reviews, comments []thing
	var remarks []remark
	var checks struct {
		CheckRuns []thing `json:"check_runs"`
	}
	h.get(t, fmt.Sprintf("/pulls/%d/reviews", pull.Number), &reviews)
	h.get(t, fmt.Sprintf("/pulls/%d/comments", pull.Number), &remarks)
	h.get(t, fmt.Sprintf("/issues/%d/comments", pull.Number), &comments)
	h.get(t, "/commits/"+head+"/check-runs?filter=all", &checks)
	if len(reviews) != 1 || len(remarks) != 1 || !strings.Contains(remarks[0].Body, "Alpha is gone") {
		t.Errorf("reviews %+v with remarks %+v, want one with one", reviews, remarks)
	}
	if len(checks.CheckRuns) != 1 || checks.CheckRuns[0].Conclusion != "neutral" {
		t.Errorf("check runs %+v, want one", checks.CheckRuns)
	}
	if len(comments) != 2 || !strings.Contains(comments[1].Body, "Reviewed 1 of 1 file, 1 finding") {
		t.Errorf("comments %+v, want the command and one of ours", comments)
	}
}

// review is the one review.
func (h *hub) review(t *testing.T) queue.Job {
	t.Helper()
	jobs := h.jobs(t, pipeline.KindReview)
	if len(jobs) != 1 {
		t.Fatalf("%d reviews, want one: %+v", len(jobs), jobs)
	}
	return jobs[0]
}
