package durability_test

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// lease is how long a worker that is not heard of keeps a job.
const lease = 15 * time.Second

// TestRedisIsAwayInMidBuild takes Redis away while an agent is at work, for longer
// than a lease; the agent ends meanwhile. When Redis is back the same worker goes
// on, although another waits for work: the call is recorded once, and no agent is
// asked twice. With SLIPWAY_SOAK=1 Redis is away for a minute.
func TestRedisIsAwayInMidBuild(t *testing.T) {
	t.Parallel()
	away := lease + 5*time.Second
	if soak() {
		away = time.Minute
	}
	for how, c := range map[string]struct{ leave, back func(*queuetest.Redis) }{
		"it stands still": {(*queuetest.Redis).Stop, (*queuetest.Redis).Continue},
		"it is killed":    {(*queuetest.Redis).Kill, (*queuetest.Redis).Start},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			const coder = "issue-01/round-1/iter-1/coder"
			s, r := pair(), queuetest.StartRedis(t)
			h, agents := newHub(t, s), s.player(t)
			h.moveTo(t, r)
			h.flags = agents.flags()
			agents.hold(t, coder)
			h.serve(t)
			h.label(t)
			eventually(t, longRun, func() string {
				if asked(t, h.state, coder) == 0 {
					return "the coder is not at work\n" + h.server.said(t)
				}
				return ""
			})
			elsewhere := t.TempDir()
			other := start(t, elsewhere, h.env, append([]string{"worker", "--config", h.config}, h.flags...)...)
			eventually(t, longRun, func() string {
				if locks, err := filepath.Glob(filepath.Join(elsewhere, "*", "*.lock")); err != nil || len(locks) == 0 {
					return fmt.Sprintf("the other worker claims nothing: %v\n%s", err, other.said(t))
				}
				return ""
			})
			before := h.build(t)

			c.leave(r)
			back := time.After(away)
			agents.release(t, coder)
			<-back
			c.back(r)
			eventually(t, longRun, func() string {
				if b := h.build(t); b.job.State != queue.Done {
					return "the build is " + string(b.job.State) + ": " + b.job.Cause + "\n" + h.server.said(t)
				}
				return ""
			})
			other.signal(t, syscall.SIGTERM)
			other.wait(t, longRun)
			h.rest(t)
			h.complete(t, before)
			after := h.build(t)
			if after.job.Attempt != before.job.Attempt {
				t.Errorf("it was claimed %d times", after.job.Attempt)
			}
			for step, n := range after.runs {
				if n != 1 {
					t.Errorf("%s was asked %d times", step, n)
				}
			}
			if got, err := filepath.Glob(filepath.Join(elsewhere, "transcripts", "*")); err != nil || len(got) > 0 {
				t.Errorf("the other worker worked on %v, %v", got, err)
			}
		})
	}
}
