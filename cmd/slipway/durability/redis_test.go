package durability_test

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
)

// TestAWorkerTakesABuildOverFromAServer kills the server in the middle of a
// build whose store is Redis; a worker on the same host ends the build.
func TestAWorkerTakesABuildOverFromAServer(t *testing.T) {
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
	h.serve(t, "SLIPWAY_CRASH=after:6")
	h.label(t)
	h.server.wait(t, longRun)
	if !h.server.killed() {
		t.Fatalf("it was not killed\n%s", h.server.said(t))
	}
	dead := h.build(t)
	h.server = start(t, h.state, h.env, append([]string{"worker", "--verbose", "--config", h.config}, h.flags...)...)
	eventually(t, 20*time.Second, func() string {
		if h.build(t).job.Attempt == dead.job.Attempt {
			return "nobody has taken the build over"
		}
		return ""
	})
	h.rest(t)
	h.complete(t, dead)
}
