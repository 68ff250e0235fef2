package main

import (
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// The targets of a comparison may take every slot for builds, and wait for one:
// what people say is handed on all the same.
func TestAComparisonIsHeardWhileEverySlotIsTaken(t *testing.T) {
	t.Parallel()
	s := newServerOf(t, company.but(cast{"pm.sh": "exec sleep 600\n"}), func(conf *config.Server) { conf.Slots.Builds = 1 })
	s.says("mira", "/build --targets codex,native")
	until(t, time.Minute, "no target is built", func() bool {
		for _, j := range s.jobs(pipeline.KindBuild) {
			if j.State == queue.Running && len(s.keys(j.ID, "init")) > 0 {
				return true
			}
		}
		return false
	})
	s.says("mira", "/cancel")
	cancelled := time.Now()
	until(t, time.Minute, "it does not end", func() bool { return s.jobs(pipeline.KindComparison)[0].State.Finished() })
	if took := time.Since(cancelled); took > 10*time.Second {
		t.Errorf("it was stopped after %s", took)
	}
	b, err := app.Account(t.Context(), s.store, s.jobs(pipeline.KindComparison)[0])
	must(t, err)
	if b.State != report.Canceled || len(b.Contenders) != 2 || b.Contenders[0].State != report.Canceled || b.Contenders[1].State != report.Canceled {
		t.Errorf("it is %s (%s): %+v", b.State, b.Cause, b.Contenders)
	}
}
