package durability_test

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// TestAServerStandsStillBetweenLookingAndCreating stops a server that has just
// been told by GitHub that a thing is not there. A worker on another host takes its
// job over and creates the thing; then the server goes on with what it was told.
// There is one of each all the same.
func TestAServerStandsStillBetweenLookingAndCreating(t *testing.T) {
	t.Parallel()
	for what, look := range map[string]githubsim.Fault{
		"the tracking comment": {Path: "/repos/" + fullName + "/issues/1/comments"},
		"the pull request":     {Path: "/repos/" + fullName + "/pulls", Query: "head="},
		"the check run":        {Path: "/repos/" + fullName + "/commits/", Query: "check_name="},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, pair())
			h.moveTo(t, queuetest.StartRedis(t))
			look.Kind, look.Method, look.Times = githubsim.FaultHold, "GET", 1
			h.do(t, "fault", look, nil)
			h.serve(t)
			h.label(t)
			eventually(t, longRun, func() string {
				if h.seen(t, look) == 0 {
					return "the server does not look for " + what
				}
				return ""
			})
			h.server.signal(t, syscall.SIGSTOP)
			t.Cleanup(func() { _ = h.server.cmd.Process.Signal(syscall.SIGCONT) }) // it may have ended
			elsewhere := t.TempDir()
			other := start(t, elsewhere, h.env, append([]string{"worker", "--config", h.config}, h.flags...)...)
			eventually(t, longRun, func() string {
				if b := h.build(t); b.job.State != queue.Done {
					return fmt.Sprintf("the build is %q: %s\n%s", b.job.State, b.job.Cause, other.said(t))
				}
				return ""
			})
			h.do(t, "clear-faults", nil, nil)
			h.server.signal(t, syscall.SIGCONT)
			eventually(t, longRun, func() string {
				if !strings.Contains(h.server.said(t), "the job was lost to another worker") {
					return "the server does not see that it lost its job\n" + h.server.said(t)
				}
				return ""
			})
			other.signal(t, syscall.SIGTERM)
			other.wait(t, longRun)
			h.rest(t)
			noneAlive(t, h.state, 5*time.Second)
			h.state = elsewhere
			h.complete(t)
		})
	}
}

// seen is how often the stand-in was asked what a fault is for.
func (h *hub) seen(t *testing.T, f githubsim.Fault) (n int) {
	t.Helper()
	found, err := h.sim.Log(t.Context(), f.Method, f.Path)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		if strings.Contains(line.Path, f.Query) {
			n++
		}
	}
	return n
}
