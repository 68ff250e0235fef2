package durability_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// TestCIFixSurvivesKills has the checks of others fail on the first push and
// succeed on the second. The build dies around each entry between the two: the
// CI Fixer is asked once, and its fix is what is pushed, verified and shown.
func TestCIFixSurvivesKills(t *testing.T) {
	t.Parallel()
	s := pair()
	s.settings += "  ci_poll_seconds: 15\n"
	s.say("ci/ci_fixer", ci.Mend{Summary: "Added it.", Fixed: true, FilesChanged: []string{"ci.txt"}, Cause: "A file was missing."}, map[string]string{"ci.txt": "there\n"})
	h := newHub(t, s)
	h.flags = s.player(t).flags()
	watched := h.watched(t)
	for push, conclusion := range map[int]string{1: "failure", 2: "success"} {
		h.do(t, "ci", githubsim.CISpec{
			Repo: fullName, Branch: "slipway/*", Push: push,
			Runs: []githubsim.CIRun{{Name: "remote", Conclusions: []string{conclusion}, Log: "ci.txt: no such file"}},
		}, nil)
	}
	var died seen
	for _, at := range []string{"after:ci-*/ci_fixer", "after:ci-*/fix-1", "before:ci-*/push", "after:ci-*/push", "before:ci-*/pull"} {
		began := died
		died = h.dies(t, at)
		died.continues(t, began)
	}
	h.serve(t)
	h.rest(t)
	whole, account, head := h.build(t), h.account(t), h.pull(t).Head
	whole.continues(t, died)
	if whole.job.State != queue.Done || account.State != report.Succeeded {
		t.Errorf("the job is %s, the build %s: %s", whole.job.State, account.State, account.Cause)
	}
	asked := slices.DeleteFunc(whole.keys(), func(key string) bool {
		return !strings.HasSuffix(key, "/ci_fixer") || strings.HasPrefix(key, "budget/")
	})
	if len(asked) != 1 || whole.runs[asked[0]] != 1 {
		t.Errorf("the CI Fixer was asked %v, %v times; want once", asked, whole.runs)
	}
	if got := watched.git(t, "show", head.SHA+":ci.txt"); got != "there" {
		t.Errorf("the fix is not in the head: %q", got)
	}
	if account.Head != head.SHA || account.Verification.Commit != head.SHA {
		t.Errorf("the report is of %s and its verification of %s; the head is %s", account.Head, account.Verification.Commit, head.SHA)
	}
	var checks struct {
		CheckRuns []thing `json:"check_runs"`
	}
	h.get(t, "/commits/"+head.SHA+"/check-runs?filter=all", &checks)
	var said []string
	for _, c := range checks.CheckRuns {
		said = append(said, fmt.Sprintf("%s %s", c.Name, c.Conclusion))
	}
	slices.Sort(said)
	if !slices.Equal(said, []string{"remote success", "slipway/build success"}) {
		t.Errorf("the checks of the head are %q", said)
	}
	watched.unforced(t, head.Ref)
	noneAlive(t, h.state, 5*time.Second)
}
