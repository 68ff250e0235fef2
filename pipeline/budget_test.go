package pipeline

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

func TestWhatABuildMaySpend(t *testing.T) {
	const dollar = 1_000_000
	for name, c := range map[string]struct {
		asked            int64 // with the command
		perBuild, perDay config.Micros
		minutes          int // of the day
		micros           int64
		bound            string
		perCall, closing int64
		timeout          time.Duration
	}{
		"as configured":              {perBuild: 25 * dollar, micros: 25 * dollar, perCall: 2 * dollar, closing: 4 * dollar},
		"less was asked for":         {asked: 20 * dollar, perBuild: 25 * dollar, micros: 20 * dollar, bound: "the budget asked for", perCall: 2 * dollar, closing: 4 * dollar},
		"more was asked for":         {asked: 30 * dollar, perBuild: 25 * dollar, micros: 25 * dollar, perCall: 2 * dollar, closing: 4 * dollar},
		"a quarter closes at most":   {perBuild: 8 * dollar, micros: 8 * dollar, perCall: 2 * dollar, closing: 2 * dollar},
		"so little that calls share": {perBuild: dollar, micros: dollar, perCall: 750_000, closing: 250_000},
		"a call fits into the day":   {perBuild: 25 * dollar, perDay: dollar, micros: 25 * dollar, perCall: dollar, closing: 4 * dollar},
		"and into its minutes":       {perBuild: 25 * dollar, minutes: 30, micros: 25 * dollar, perCall: 2 * dollar, closing: 4 * dollar, timeout: 30 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			server := config.Defaults()
			server.Limits.USDPerDay, server.Limits.MinutesPerDay = c.perDay, c.minutes
			conf := config.Defaults()
			conf.Limits.USDPerBuild = c.perBuild
			conf.Limits.USDPerDay, conf.Limits.MinutesPerDay = 1, 1 // of a repository: they do not count
			b := &build{
				Engine: &Engine{Defaults: server}, Job: Job{Request: Request{Budget: c.asked}}, conf: conf,
				site: &site{clone: &repo.Clone{}},
			}
			crew := b.hire(nil)
			if got := crew.Budget; got.Micros != c.micros || got.Bound != c.bound || got.PerCall != c.perCall || got.Closing != c.closing || got.MaxCalls != 5000 {
				t.Errorf("budget of %d (%s), %d a call, %d to close, %d calls", got.Micros, got.Bound, got.PerCall, got.Closing, got.MaxCalls)
			}
			if crew.Limits.Timeout != cmp.Or(c.timeout, conf.Pipeline.AgentTimeout) {
				t.Errorf("a call may take %v", crew.Limits.Timeout)
			}
		})
	}
}

func TestBuildEndsWithinItsBudget(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil))
	w.engine.Defaults.Limits.USDPerCall = 500_000
	w.ask = func(r *Request) { r.Budget = 5_000_000 }
	play := w.agents
	w.agents = agenttest.New(func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
		r, err := play.Run(ctx, c, emit)
		r.CostMicros = 500_000
		return r, err
	})
	b := w.must(report.NeedsHuman)
	if b.CostMicros > 5_000_000 || b.CostMicros < 4_000_000 || !strings.Contains(b.Cause, "the budget asked for is $5") {
		t.Errorf("cost %d, cause %q", b.CostMicros, b.Cause)
	}
	if !slices.ContainsFunc(w.agents.Calls(), func(c runtime.Call) bool { return c.Role == "coder" }) {
		t.Error("it did not come to coding")
	}
}
