package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// What --json prints, as it is promised: these fields and no others.
type simulated struct {
	Name         string  `json:"name"`
	State        string  `json:"state"`
	MakespanMS   int64   `json:"makespan_ms"`
	BoundMS      int64   `json:"bound_ms"`
	LowerBoundMS int64   `json:"lower_bound_ms"`
	Ratio        float64 `json:"ratio"`
	AgentCalls   int     `json:"agent_calls"`
	OwnCPUMS     int64   `json:"own_cpu_ms"`
	GitCPUMS     int64   `json:"git_cpu_ms"`
	Merges       int     `json:"merges"`
	MaxParallel  int     `json:"max_parallel"`
}

func TestSimulateAtATerminal(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "git")
	term, scratch := newTerminal(t), t.TempDir()
	plan, drawing := filepath.Join(t.TempDir(), "plan.json"), filepath.Join(t.TempDir(), "out.svg")
	first := term.slipway("simulate", "--random", "6", "--seed", "3", "--save", plan, "--dir", scratch, "--gantt", drawing, "--json")
	decoder := json.NewDecoder(strings.NewReader(first.out))
	decoder.DisallowUnknownFields()
	var r simulated
	if err := decoder.Decode(&r); err != nil || first.code != 0 {
		t.Fatalf("exit %d, %v\n%s%s", first.code, err, first.out, first.err)
	}
	if r.Merges != 6 || r.Name != "random-6-seed-3" || r.BoundMS < r.LowerBoundMS || r.LowerBoundMS <= 0 || r.Ratio < 1 {
		t.Errorf("it printed %+v", r)
	}
	if svg, err := os.ReadFile(drawing); err != nil || !strings.HasPrefix(string(svg), "<svg ") {
		t.Errorf("the drawing begins with %.20q: %v", svg, err)
	}
	second := term.slipway("simulate", plan, "--dir", scratch, "--max-parallel-issues", "2")
	if second.code != 0 || !strings.Contains(second.out, "ratio") || !strings.HasPrefix(second.out, "random-6-seed-3  succeeded") {
		t.Errorf("the saved plan: exit %d\n%s%s", second.code, second.out, second.err)
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestCtrlCEndsASimulationAndCleansUp(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "git")
	term, scratch := newTerminal(t), t.TempDir()
	cmd := term.command("simulate", "--random", "40", "--dir", scratch)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for range look.C { // until a lane has begun
		if trees, err := filepath.Glob(filepath.Join(scratch, "*", "state", "work", "*", "*", "clone", "trees", "*")); err != nil || len(trees) > 0 {
			break
		}
		if t.Context().Err() != nil {
			t.Fatal("it does not begin")
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the code says it
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "nothing of it is kept") {
		t.Errorf("exit %d\n%s", code, said.String())
	}
	left, err := os.ReadDir(scratch)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
