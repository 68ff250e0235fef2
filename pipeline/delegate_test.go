package pipeline

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// The smaller of the server's and the repository's word counts.
func TestConcurrency(t *testing.T) {
	for _, row := range []struct{ server, repository, want int }{{8, 8, 8}, {3, 8, 3}, {8, 2, 2}, {8, 0, 1}, {-4, 8, 1}} {
		b := &build{Engine: &Engine{Defaults: config.Defaults()}, conf: config.Defaults()}
		b.Defaults.Pipeline.MaxConcurrency, b.conf.Pipeline.MaxConcurrency = row.server, row.repository
		if got := b.delegation().MaxConcurrency; got != row.want {
			t.Errorf("%d of the server and %d of the repository make %d, want %d", row.server, row.repository, got, row.want)
		}
	}
}

// Every kind of subagent has a model key, and is told apart from the others.
func TestSubagents(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range subagents() {
		if _, err := (config.Models{}).Resolve("claude_code", k.Model); err != nil {
			t.Errorf("%s: %v", k.Type, err)
		}
		if seen[k.Type] || k.About == "" || len(k.Tools) == 0 {
			t.Errorf("%+v", k)
		}
		seen[k.Type] = true
	}
}

// Three slots tell their lives interleaved, and some of it twice.
func TestLiveBatches(t *testing.T) {
	var l live
	say := func(slot, seq int, state batch.State) {
		l.hear(batch.Event{Call: "issue-01/round-1/iter-1/coder", Batch: "agent-1", Seq: seq, Record: batch.Record{Slot: slot, Type: []string{"security", "tests", "intent"}[slot], State: state}})
	}
	say(0, 1, batch.Queued)
	say(1, 1, batch.Queued)
	say(2, 1, batch.Queued)
	say(1, 2, batch.Starting)
	say(0, 2, batch.Starting)
	say(0, 3, batch.Running)
	say(1, 3, batch.Running)
	say(1, 4, batch.Failed)
	say(0, 2, batch.Starting) // again
	say(1, 3, batch.Running)  // again
	want := "**Subagents at work**\n- `issue-01/round-1/iter-1/coder`: ⏳ security running · ❌ tests failed · ◌ intent queued\n"
	if got := report.Comment(report.Build{State: report.Running, Batches: l.now()}); !strings.Contains(got, want) {
		t.Errorf("the comment:\n%s\nhas not\n%s", got, want)
	}
	say(0, 4, batch.Completed)
	say(2, 2, batch.Canceled)
	if left := l.now(); len(left) != 0 {
		t.Errorf("the batch has ended: %+v", left)
	}
}
