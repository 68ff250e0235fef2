package durability_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// TestComparisonSurvivesKills compares two targets and kills the server again and
// again: around the start of their builds, their ends, the comparison that people
// are shown, the choice, and what the chosen one publishes. In the end there is one
// comparison and one draft, and no call of anybody was made twice. Who types a
// command sees four deaths at the most: the fifth in a row would bury its delivery.
func TestComparisonSurvivesKills(t *testing.T) {
	t.Parallel()
	h := newHub(t, voyage([]ship{{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}}}, nil))
	h.serve(t)
	h.types(t, "/build --targets claude_code:opus,open_code:small")
	died := map[string]seen{}
	comparison := h.falls(t, died, "after:contenders", "after:held", "before:contest", "before:gate/*")
	h.serve(t)
	account := h.stands(t, comparison, report.WaitingApproval)
	h.server.kill()
	h.serve(t)
	h.types(t, "/approve "+account.Contenders[0].Commit)
	h.falls(t, died, "before:told/publish/*", "after:publish/pull", "before:publish/comment", "after:done")
	h.serve(t)
	h.rest(t)

	account = h.stands(t, comparison, report.Succeeded)
	if len(account.Contenders) != 2 || !account.Contenders[0].Chosen || h.pull(t).Head.SHA != account.Contenders[0].Commit {
		t.Errorf("chosen: %+v", account.Contenders)
	}
	for _, j := range append(h.jobs(t, pipeline.KindBuild), h.jobs(t, pipeline.KindComparison)...) {
		whole := look(t, h.store, h.state, j)
		if d, ok := died[j.ID]; ok {
			whole.continues(t, d)
		}
		if j.State != queue.Done {
			t.Errorf("%s is %s: %s", j.ID, j.State, j.Cause)
		}
	}
	var comments []thing
	h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
	var ours []string
	for _, c := range comments {
		if _, marker, marked := strings.Cut(c.Body, "<!-- slipway app="); marked {
			_, marker, _ = strings.Cut(marker, " ")
			ours = append(ours, marker)
		}
	}
	if len(ours) != 3 || ours[0] != "run="+comparison+" -->" || !strings.Contains(ours[1], " gate=") || !strings.Contains(ours[2], " end=1 -->") {
		t.Errorf("comments %q, want the tracking comment, the comparison and the end", ours)
	}
	var checks struct {
		CheckRuns []thing `json:"check_runs"`
	}
	h.get(t, "/commits/"+account.Head+"/check-runs?filter=all", &checks)
	if len(checks.CheckRuns) != 1 || checks.CheckRuns[0].Conclusion != "success" {
		t.Errorf("check runs %+v, want one that succeeded", checks.CheckRuns)
	}
}

// types has the maintainer comment on the ticket.
func (h *hub) types(t *testing.T, line string) {
	t.Helper()
	h.do(t, "comment", githubsim.CommentSpec{Repo: fullName, Number: h.ticket.Number, Body: line, By: maintainer}, nil)
}

// falls has the server die at each place in turn, and notes how every build then
// stands. It returns the ticket's own.
func (h *hub) falls(t *testing.T, died map[string]seen, places ...string) (comparison string) {
	t.Helper()
	for _, at := range places {
		h.server.kill()
		h.serve(t, "SLIPWAY_CRASH="+at)
		h.server.wait(t, longRun)
		if !h.server.killed() {
			t.Fatalf("it was not killed %s\n%s", at, h.server.said(t))
		}
		for _, j := range append(h.jobs(t, pipeline.KindBuild), h.jobs(t, pipeline.KindComparison)...) {
			now := look(t, h.store, h.state, j)
			if d, ok := died[j.ID]; ok {
				now.continues(t, d)
			}
			if died[j.ID] = now; j.Kind == pipeline.KindComparison {
				comparison = j.ID
			}
		}
	}
	return comparison
}

// stands waits until the comparison stands so.
func (h *hub) stands(t *testing.T, build string, state report.State) (b report.Build) {
	t.Helper()
	eventually(t, longRun, func() string {
		var err error
		if b, err = pipeline.Read(t.Context(), h.store, build); err != nil {
			t.Fatal(err)
		}
		if b.State != state {
			return fmt.Sprintf("it is %s (%s)\n%s", b.State, b.Cause, h.server.said(t))
		}
		return ""
	})
	return b
}
