package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// natives answers for every role as the company does. Its Coder asks three
// subagents with one use of the agent tool before it edits the README.
type natives struct {
	hang chan struct{} // until it is closed the second subagent does not answer; nil: it does

	mu    sync.Mutex
	asked map[string]int // how often each subagent was, by its prompt
	got   string         // what the Coder got from the agent tool
}

var errands = []string{"find the greeting", "find the tests", "find the docs"}

func (n *natives) play(req modeltest.Request) modeltest.Turn {
	for i, prompt := range errands {
		if strings.Contains(req.System.String(), "You are a subagent") && strings.Contains(req.Text(), prompt) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.asked[prompt]++
			turn := modeltest.Turn{Text: "I looked, to " + prompt + "."}
			if i == 1 {
				turn.Wait = n.hang
			}
			return turn
		}
	}
	role, results := roleOf(req), req.Results()
	if role == "coder" {
		switch len(results) {
		case 0:
			var tasks []map[string]string
			for _, prompt := range errands {
				tasks = append(tasks, map[string]string{"description": prompt, "prompt": prompt, "subagent_type": "coder"})
			}
			return use("agent", map[string]any{"tasks": tasks})
		case 1:
			n.mu.Lock()
			defer n.mu.Unlock()
			n.got = results[0].Text
			return use("EDIT", map[string]string{"path": "README.md", "old": "# Greeter", "new": "# Greeter\n\nIt says hello."})
		}
	}
	return use("answer", jsonText(company[role+".json"]))
}

func (n *natives) count(prompt string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked[prompt]
}

// A process that is killed in mid-batch is followed by one that asks only the
// subagents that had not answered. Each has a stream of events, a transcript and
// a recording of its own.
func TestKilledInMidBatch(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "bwrap")
	n := &natives{hang: make(chan struct{}), asked: map[string]int{}}
	model := modeltest.New(t, n.play)
	term, repo := newTerminal(t, append(model.Env(), model.Secret(), "SLIPWAY_RECORD=true")...), newRepo(t, checked(green))
	run := term.start("--runtime", "native", "--repo", repo, "--goal", "Greet people")
	answered := func() bool {
		return strings.Count(term.slipway("logs", run.build, "--json").out, "/slot-0") >= 2
	}
	until(t, time.Minute, "two subagents have not answered", answered)
	run.kill()
	if begun := slotEvents(t, run.out.String()); begun["completed"] != 2 || begun["running"] != 3 {
		t.Errorf("the stream of the first process tells of %v", begun)
	}
	close(n.hang)

	end := term.slipway("resume", run.build, "--json")
	d, _ := term.stream(end)
	term.ended(end, d, 0, "succeeded")
	for i, want := range []int{1, 2, 1} {
		if got := n.count(errands[i]); got != want {
			t.Errorf("%q was asked %d times, want %d", errands[i], got, want)
		}
	}
	if !strings.Contains(n.got, `"receipt":{"planned":3,"completed":3,`) {
		t.Errorf("the Coder got %s", n.got)
	}
	for _, dir := range []string{"transcripts", "recordings"} {
		found, err := filepath.Glob(filepath.Join(term.state, dir, run.build, "issue-01/round-1/iter-1/coder/agent-*/slot-0[012]/coder.json*"))
		if err != nil || len(found) != 3 {
			t.Errorf("%s of the slots: %v, %v", dir, found, err)
		}
	}
}

// slotEvents counts the events of slots in a stream by state, and wants no gap
// in any of them.
func slotEvents(t *testing.T, stream string) map[string]int {
	t.Helper()
	states, last := map[string]int{}, map[string]int{}
	for text := range strings.Lines(stream) {
		var e struct {
			Event, Call, Batch, State string
			Slot, Seq                 int
		}
		if err := json.Unmarshal([]byte(text), &e); err != nil || e.Event != "slot" {
			continue // another event, or a line that the kill cut
		}
		slot := e.Call + "|" + e.Batch + "|" + string(rune('0'+e.Slot))
		if e.Seq != last[slot]+1 {
			t.Errorf("%s: event %d after %d", slot, e.Seq, last[slot])
		}
		last[slot] = e.Seq
		states[e.State]++
	}
	return states
}
