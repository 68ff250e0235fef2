package durability_test

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// TestAWorkerTakesABuildOverFromAServer kills the server in the middle of a
// build whose store is Redis; a worker ends the build, on the same host or on one
// that shares nothing with it but Redis and GitHub.
func TestAWorkerTakesABuildOverFromAServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kill   string
		apart  bool
		within time.Duration
	}{
		"on the same host, while it plans":           {"after:6", false, 20 * time.Second},
		"on another host, when one issue has landed": {"after:land/0001/advanced", true, 35 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := queuetest.StartRedis(t)
			h := newHub(t, pair())
			if err := h.store.Close(); err != nil {
				t.Fatal(err)
			}
			var err error
			if h.store, err = queue.OpenRedis(t.Context(), queue.RedisOptions{URL: r.URL(), Dir: t.TempDir()}); err != nil {
				t.Fatal(err)
			}
			h.env = append(h.env, "SLIPWAY_REDIS_URL="+r.URL())
			h.serve(t, "SLIPWAY_CRASH="+c.kill)
			h.label(t)
			h.server.wait(t, longRun)
			if !h.server.killed() {
				t.Fatalf("it was not killed\n%s", h.server.said(t))
			}
			dead := h.build(t)
			if c.apart {
				h.state = t.TempDir()
				dead.runs, dead.tests = map[string]int{}, nil // this host has none of it, and is to run none of it
			}
			h.server = start(t, h.state, h.env, append([]string{"worker", "--verbose", "--config", h.config}, h.flags...)...)
			eventually(t, c.within, func() string {
				if h.jobs(t, pipeline.KindBuild)[0].Attempt == dead.job.Attempt {
					return "nobody has taken the build over"
				}
				return ""
			})
			h.rest(t)
			h.complete(t, dead)
			if left := git(t, t.TempDir(), "ls-remote", h.sim.URL+"/"+fullName+".git", "refs/slipway/*"); left != "" {
				t.Errorf("a build that left nothing out left refs on the remote:\n%s", left)
			}
		})
	}
}
