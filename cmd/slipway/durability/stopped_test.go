package durability_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// TestAStoppedServerLosesItsBuild stops a server beyond its lease while an agent
// is at work, so that another server takes the build over and brings it to its
// end. The first one wakes up when all is done: it records and publishes nothing,
// and people see one build that succeeded.
func TestAStoppedServerLosesItsBuild(t *testing.T) {
	t.Parallel()
	s := voyage([]ship{{name: "add-alpha", files: map[string]string{"list.txt": "first\nalpha\nlast\n"}}}, nil)
	s.find("issue-01/round-1/iter-1/coder").DelayMS = 3000
	h := newHub(t, s)
	h.serve(t)
	h.label(t)
	eventually(t, longRun, func() string {
		for _, e := range h.build(t).entries {
			if e.Key == "issue-01/issue_writer" {
				return ""
			}
		}
		return "the coder is not at work"
	})
	first := h.server
	h.stop(t, first)
	t.Cleanup(func() { _ = first.cmd.Process.Signal(syscall.SIGCONT) }) // it may have ended
	stopped := h.build(t)
	h.listen = freeAddress(t)
	h.serve(t)
	eventually(t, longRun, func() string {
		if b := h.build(t); !b.job.State.Finished() {
			return "it is " + string(b.job.State) + "\n" + h.server.said(t)
		}
		return ""
	})
	ended := h.build(t)
	if ended.job.Attempt != stopped.job.Attempt+1 {
		t.Errorf("it was claimed %d times", ended.job.Attempt)
	}
	first.signal(t, syscall.SIGCONT)
	eventually(t, 30*time.Second, func() string {
		if !strings.Contains(first.said(t), "the job was lost to another worker") {
			return "the first server does not see that it lost the build\n" + first.said(t)
		}
		return ""
	})
	first.signal(t, syscall.SIGTERM)
	first.wait(t, 20*time.Second)
	h.rest(t)
	h.complete(t, stopped, ended)
	if now := h.build(t); len(now.entries) != len(ended.entries) {
		t.Errorf("the journal has %d entries, and had %d at its end", len(now.entries), len(ended.entries))
	}
	if b := h.account(t); b.State != report.Succeeded || b.Pull == nil {
		t.Errorf("the build is %s (%s)", b.State, b.Cause)
	}
}

// stop stops a process where it does not hold the store's lock: what it holds
// then, nobody gets before it goes on.
func (h *hub) stop(t *testing.T, p *process) {
	t.Helper()
	eventually(t, longRun, func() string {
		p.signal(t, syscall.SIGSTOP)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := h.store.Take(ctx, "stopped", 1, queue.Limit{{Max: 1000, Per: time.Hour}}); err != nil {
			p.signal(t, syscall.SIGCONT)
			return "it stops while it writes: " + err.Error()
		}
		return ""
	})
}
