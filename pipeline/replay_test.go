package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// recorded has the world's agents recorded, and returns where.
func (w *world) recorded() string {
	dir := w.t.TempDir()
	w.engine.Record = func(_ string, rt runtime.Runtime) runtime.Runtime { return runtime.Record(rt, dir) }
	return dir
}

// replay runs the world's build again, in a place of its own.
func (w *world) replay(recordings string, change func(*Engine, *ReplayJob)) Replayed {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	state := w.t.TempDir()
	must(os.CopyFS(filepath.Join(state, "mirrors"), os.DirFS(filepath.Join(w.engine.State, "mirrors"))))
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Bubblewrap, StateDir: filepath.Join(state, "sandbox")})
	must(err)
	entries, err := w.log.Entries(w.t.Context(), "job", 0)
	must(err)
	job := ReplayJob{Request: w.request(), Entries: entries, Strict: true}
	engine := &Engine{State: state, Box: box, Slots: agent.NewSlots(8), Defaults: w.engine.Defaults, Only: w.engine.Only, Log: w.engine.Log}
	if change != nil {
		change(engine, &job)
	}
	all, err := runtime.ReadRecordings(os.DirFS(recordings))
	must(err)
	agents, err := runtime.NewReplay(all, runtime.ReplayOptions{Strict: job.Strict})
	must(err)
	engine.Runtime = func(context.Context, string) (runtime.Runtime, error) { return agents, nil }
	out, err := engine.Replay(w.t.Context(), job)
	must(err)
	return out
}

func (w *world) sameAgain(recordings string) {
	w.t.Helper()
	got := w.replay(recordings, nil)
	if !got.Same || got.Left != "" || got.Agents == 0 || got.Given == 0 {
		w.t.Errorf("%d entries, %d of agents, %d given; tree %s, now %s; left: %s", got.Entries, got.Agents, got.Given, got.Tree, got.TreeNow, got.Left)
	}
	for _, d := range got.Differences {
		w.t.Errorf("%+v", d)
	}
}

// What happened to a build happens again, strictly, in whatever order its lanes
// came to it.
func TestReplayComesOutTheSame(t *testing.T) {
	two := []graph.Issue{issue("a", []string{"shared.txt"}), issue("b", []string{"shared.txt"})}
	for name, row := range map[string]struct {
		issues []graph.Issue
		live   func(w *world)
	}{
		"issues side by side and one after them": {
			[]graph.Issue{issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil, "a", "b")},
			func(w *world) { w.must(report.Succeeded) },
		},
		"subagents of a Coder": {[]graph.Issue{issue("a", nil)}, func(w *world) {
			if got := delegating(w); w.must(report.Succeeded).AgentCalls == 0 || !got.Receipt.Whole() {
				w.t.Errorf("the Coder got %+v", got)
			}
		}},
		"a conflict for the Merger": {two, func(w *world) {
			for _, name := range []string{"a", "b"} {
				w.code[name] = func(dir string) error {
					return os.WriteFile(filepath.Join(dir, "shared.txt"), []byte(name+"\n"), 0o644)
				}
			}
			w.when("merger", func(_ context.Context, c runtime.Call) (any, error) {
				return Merged{Success: true, Summary: "both"}, os.WriteFile(filepath.Join(c.Dir, "shared.txt"), []byte("a\nb\n"), 0o644)
			})
			w.must(report.Succeeded)
		}},
		"a provider that was busy, and an answer that had to be repaired": {[]graph.Issue{issue("a", nil)}, func(w *world) {
			tries := 0
			w.when("code_reviewer", func(context.Context, runtime.Call) (any, error) {
				switch tries++; tries {
				case 1:
					return nil, &runtime.Error{Class: runtime.Transient, Reason: "overloaded"}
				case 2:
					return map[string]any{"summary": "z", "approved": "perhaps"}, nil
				}
				return nil, nil
			})
			w.must(report.Succeeded)
		}},
		"a plan that was approved and work that was steered": {[]graph.Issue{issue("a", nil), issue("b", nil, "a")}, func(w *world) {
			w.ask = withApproval
			gate := w.waits(report.WaitingApproval)
			w.say("1", ApproveSignal, Said{Hash: "0000000"})
			w.say("2", ApproveSignal, Said{Hash: gate.Hash})
			w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
				if w.nameOf(c.Step) == "a" {
					heard := w.until("signal/3")
					w.signals <- Signal{ID: "3", Kind: SteerSignal, Body: []byte(`{"text":"briefly"}`)}
					return nil, await(ctx, heard)
				}
				return nil, nil
			})
			w.must(report.Succeeded)
		}},
		"work that a person cancelled, and went on with": {[]graph.Issue{issue("a", nil), issue("b", nil, "a")}, func(w *world) {
			w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
				if w.nameOf(c.Step) == "b" && w.segment() == "1" {
					return endings["cancelled"].play(ctx, w)
				}
				return nil, nil
			})
			w.must(report.Canceled)
			w.say("r", ResumeSignal, Said{By: forge.Person{Login: "mira"}})
			w.must(report.Succeeded)
		}},
		"two questions that were answered": {[]graph.Issue{issue("a", nil)}, func(w *world) {
			rounds := 0
			w.when("pm", func(context.Context, runtime.Call) (any, error) {
				prd := plan.PRD{Title: "The thing", Size: plan.Trivial, AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "it is done", MustHave: true}}}
				if rounds++; rounds <= 2 {
					prd.Questions = []string{fmt.Sprintf("Which colour, %d?", rounds)}
				}
				return prd, nil
			})
			w.waits(report.WaitingAnswer)
			w.say("1", AnswerSignal, Said{Text: "a dark blue"})
			w.waits(report.WaitingAnswer)
			w.say("2", AnswerSignal, Said{Text: "or green"})
			w.must(report.Succeeded)
		}},
		"a provider that refused every call": {[]graph.Issue{issue("a", nil), issue("b", nil, "a")}, func(w *world) {
			w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
				if w.nameOf(c.Step) == "b" {
					return endings["needs a person"].play(ctx, w)
				}
				return nil, nil
			})
			w.must(report.NeedsHuman)
		}},
		"a budget that was spent": {[]graph.Issue{issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil)}, func(w *world) {
			w.engine.Defaults.Limits.USDPerCall = 500_000
			w.ask = func(r *Request) { r.Budget = 5_000_000 }
			play := w.agents
			w.agents = agenttest.New(func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
				r, err := play.Run(ctx, c, emit)
				r.CostMicros = 500_000
				return r, err
			})
			w.must(report.NeedsHuman)
		}},
		"artefacts that were cleaned up": {[]graph.Issue{issue("a", nil)}, func(w *world) {
			w.code["a"] = func(dir string) error {
				return errors.Join(os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o644), os.WriteFile(filepath.Join(dir, "coverage.out"), nil, 0o644))
			}
			w.must(report.Succeeded)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, row.issues...)
			dir := w.recorded()
			row.live(w)
			w.sameAgain(dir)
		})
	}
}

// A replay tells of another decision where it is made first.
func TestReplayTellsWhatDiffers(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	dir := w.recorded()
	reviews := 0
	w.when("code_reviewer", func(context.Context, runtime.Call) (any, error) {
		if reviews++; reviews == 1 {
			return coding.ReviewResult{Summary: "not yet"}, nil
		}
		return nil, nil
	})
	w.must(report.Succeeded)

	other := func(_ *Engine, j *ReplayJob) { j.Request.Goal = "Do the other thing\nwell" }
	got := w.replay(dir, func(e *Engine, j *ReplayJob) { other(e, j); j.Strict = false })
	if len(got.Differences) != 1 || got.Differences[0].Key != keyBegin || got.Tree != got.TreeNow {
		t.Errorf("another goal, with the same answers: %+v", got)
	}
	got = w.replay(dir, other)
	if got.Same || len(got.Differences) < 2 || got.Differences[1].Key != "plan/pm" || got.Differences[1].What != "input" {
		t.Errorf("another goal, strictly: %+v", got)
	}
	got = w.replay(dir, func(e *Engine, _ *ReplayJob) { e.Defaults.Pipeline.MaxCodingIterations = 1 })
	if got.Same || !strings.Contains(got.Left, "issue-01/round-1/iter-2/coder comes next") {
		t.Errorf("fewer iterations: %+v", got)
	}
	if _, err := (&Engine{}).Replay(t.Context(), ReplayJob{}); err == nil || !strings.Contains(err.Error(), "nothing to replay") {
		t.Errorf("a build without a base: %v", err)
	}
}
