package durability_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// A remark is what the test reads of a comment in a review.
type remark struct {
	Body    string
	ReplyTo int64 `json:"in_reply_to_id"`
}

// TestFollowUpSurvivesKills reviews the pull request of a build and kills the
// server again and again on the way to the last answer: between the decision and
// the job, and around the push, the answers and the last word. In the end there
// is one follow-up, with one commit on top, one tracking comment and one answer in
// each thread, and nobody was asked twice.
func TestFollowUpSurvivesKills(t *testing.T) {
	t.Parallel()
	h := newHub(t, voyage([]ship{{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}}}, nil))
	h.serve(t)
	h.label(t)
	h.rest(t)
	watched := h.watched(t)
	pull := h.pull(t)
	hand := h.commit(t, pull.Head.Ref, "notes.txt", "by hand\n")
	var review githubsim.Reviewed
	h.do(t, "review", githubsim.ReviewSpec{
		Repo: fullName, Number: 2, Event: "REQUEST_CHANGES", By: maintainer, Body: "Not yet.",
		Remarks: []githubsim.Remark{{Path: "list.txt", Line: 2, Body: "Beta is missing."}, {Path: "list.txt", Line: 2, Body: "So is gamma."}},
	}, &review)

	var after script
	after.say("issue-01/round-1/iter-1/coder", coding.Submission{FilesChanged: []string{"list.txt"}, Summary: "Added.", Complete: true},
		map[string]string{"list.txt": "first\nalpha\nbeta\ngamma\nlast\n"})
	after.say("issue-01/round-1/iter-1/code_reviewer", coding.ReviewResult{Approved: true, Summary: "Good."}, nil)
	judged := pipeline.Judgement{Summary: "All there.", CriteriaResults: []pipeline.CriterionResult{{PRDID: "review", Passed: true, Evidence: "list.txt"}}}
	for _, id := range review.Remarks {
		judged.CriteriaResults = append(judged.CriteriaResults, pipeline.CriterionResult{PRDID: fmt.Sprintf("thread-%d", id), Passed: true, Evidence: "list.txt"})
	}
	after.say("verify-1/verifier", judged, nil)
	after.say("publish/git", pipeline.PullText{Title: "List the ships", Summary: "Adds two more."}, nil)
	h.flags = []string{"--runtime", "replay", "--recordings", after.write(t)}

	var died seen
	for _, at := range []string{
		"after:follow-up", "before:publish/push", "before:publish/answer-*", "after:publish/answer-*", "before:publish/comment",
	} {
		h.serve(t, "SLIPWAY_CRASH="+at)
		h.server.wait(t, longRun)
		if !h.server.killed() {
			t.Fatalf("it was not killed %s\n%s", at, h.server.said(t))
		}
		if builds := h.jobs(t, pipeline.KindBuild); len(builds) == 2 {
			began := died
			died = look(t, h.store, h.state, builds[0])
			died.continues(t, began)
		}
	}
	h.serve(t)
	h.rest(t)

	builds := h.jobs(t, pipeline.KindBuild)
	if len(builds) != 2 {
		t.Fatalf("%d builds, want the first and one follow-up", len(builds))
	}
	whole := look(t, h.store, h.state, builds[0])
	whole.continues(t, died)
	final, err := pipeline.Read(t.Context(), h.store, builds[0].ID)
	if err != nil || builds[0].State != queue.Done || final.State != report.Succeeded {
		t.Fatalf("the follow-up is %s: %s %s, %v", builds[0].State, final.State, final.Cause, err)
	}
	for key, runs := range whole.runs {
		if runs != 1 {
			t.Errorf("%s was asked %d times", key, runs)
		}
	}
	head := h.pull(t).Head
	if head.SHA != final.Head || !watched.holds(t, head.SHA, hand) || watched.git(t, "show", head.SHA+":list.txt") != "first\nalpha\nbeta\ngamma\nlast" {
		t.Errorf("the head %s, the report's %s", head.SHA, final.Head)
	}
	watched.unforced(t, head.Ref)
	var remarks []remark
	h.get(t, "/pulls/2/comments", &remarks)
	for _, id := range review.Remarks {
		answers := slices.DeleteFunc(slices.Clone(remarks), func(r remark) bool { return r.ReplyTo != id })
		if len(answers) != 1 || !strings.Contains(answers[0].Body, "Addressed in") {
			t.Errorf("answers in thread %d: %+v", id, answers)
		}
	}
	var comments []thing
	h.get(t, "/issues/2/comments", &comments)
	if len(comments) != 2 || !strings.Contains(comments[0].Body, builds[0].ID+" -->") || !strings.Contains(comments[1].Body, builds[0].ID+" end=1 -->") {
		t.Errorf("comments %+v, want one tracking comment and one that tells the end", comments)
	}
}
