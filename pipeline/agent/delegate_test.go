package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

// errandPrompt is a subagent's prompt as short as it can be.
var errandPrompt = agent.Parse("subagent", `{{define "system"}}You are {{.Type}}: {{.About}}{{end}}{{define "prompt"}}{{.Prompt}}{{end}}`)

// delegates makes the agents of a crew able to ask scouts and guards, n at once.
func delegates(c *agent.Crew, n int) *agent.Delegation {
	c.Delegation = &agent.Delegation{
		Prompt: errandPrompt, MaxConcurrency: n,
		Kinds: []agent.Subagent{
			{Type: "scout", About: "looks around", Model: "scout", Tools: []runtime.Tool{runtime.Read}},
			{Type: "guard", About: "may be refused", Model: "guard", Approval: true},
		},
	}
	return c.Delegation
}

// asks is a list of tasks as an agent writes it.
func asks(prompts ...string) json.RawMessage {
	var tasks []map[string]string
	for _, p := range prompts {
		tasks = append(tasks, map[string]string{"description": "about " + p, "prompt": p, "subagent_type": "scout"})
	}
	return must(map[string]any{"tasks": tasks})
}

func must(v any) json.RawMessage {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}

// use uses the agent tool of a call.
func use(ctx context.Context, c runtime.Call, input json.RawMessage) (batch.Result[string], error) {
	var out batch.Result[string]
	if len(c.Functions) != 1 || c.Functions[0].Name != "agent" {
		return out, fmt.Errorf("%s has the functions %v", c.Step, c.Functions)
	}
	text, err := c.Functions[0].Call(ctx, input)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	return out, err
}

// isScout tells a subagent's call.
func isScout(c runtime.Call) bool { return c.Role == "scout" }

func said(text string) runtime.Result {
	return runtime.Result{Text: text, CostMicros: 7, Usage: runtime.Usage{Input: 3, Output: 2}}
}

func TestAnAgentAsksSubagents(t *testing.T) {
	var log steptest.Log
	var got batch.Result[string]
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if isScout(c) {
			if !c.ReadOnly || c.Dir != "." || c.System != "You are scout: looks around\n" {
				t.Errorf("the subagent is called with %+v", c)
			}
			if strings.Contains(c.Prompt, "bad") {
				return said(""), &runtime.Error{Class: runtime.Refused, Reason: "it crashed"}
			}
			return said("seen: " + strings.TrimSpace(c.Prompt)), nil
		}
		var err error
		if got, err = use(ctx, c, asks("a", "bad", "c")); err != nil {
			t.Error(err)
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	crew.Transcripts = t.TempDir()
	d := delegates(crew, 8)
	var mu sync.Mutex
	last := map[int]batch.Event{}
	d.Emit = func(e batch.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Call != "k/reader" || e.Seq != last[e.Slot].Seq+1 {
			t.Errorf("event %+v after %+v", e, last[e.Slot])
		}
		last[e.Slot] = e
	}
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}

	if want := (batch.Receipt{Planned: 3, Completed: 2, Failed: 1}); got.Type != batch.ResultType || got.Receipt != want || got.Status != batch.Failed {
		t.Errorf("result %+v", got)
	}
	for i, want := range []string{"seen: a", "", "seen: c"} {
		if s := got.Slots[i]; s.Output != want || s.Record != last[i].Record {
			t.Errorf("slot %d: %+v, its last event %+v", i, s, last[i])
		}
		transcript := filepath.Join(crew.Transcripts, got.Slots[i].Transcript+".jsonl")
		if _, err := os.Stat(transcript); err != nil {
			t.Error(err)
		}
	}
	if got.Slots[1].Error != "it crashed" || got.CostMicros != 21 || got.Usage != (batch.Usage{Input: 9, Output: 6}) {
		t.Errorf("the batch cost %d, used %+v; slot 1: %q", got.CostMicros, got.Usage, got.Slots[1].Error)
	}
	parent, err := os.ReadFile(filepath.Join(crew.Transcripts, "k/reader.jsonl"))
	if err != nil || strings.Count(string(parent), `"kind":"subagent"`) != 12 {
		t.Errorf("the transcript of the call, %v:\n%s", err, parent)
	}
}

// What an agent asks for wrongly is told to it, and asks nobody.
func TestAnAgentIsToldWhatItAskedWrongly(t *testing.T) {
	var log steptest.Log
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		_, err := use(ctx, c, json.RawMessage(`{"tasks":[{"description":"d","prompt":"p","subagent_type":"wizard"}]}`))
		if err == nil || !strings.Contains(err.Error(), `tasks[0].subagent_type: there is no "wizard"; there are scout, guard`) {
			t.Errorf("use = %v", err)
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	delegates(crew, 8)
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}
	if n := len(agents.Calls()); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// Eight agents that fill all slots each ask a batch: who waits lends its slot.
func TestParentsLendTheirSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log steptest.Log
		var busy, most atomic.Int32
		agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
			if isScout(c) {
				now := busy.Add(1)
				for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
				}
				time.Sleep(time.Second)
				busy.Add(-1)
				return said("seen"), nil
			}
			got, err := use(ctx, c, asks("a", "b", "c"))
			if err != nil || !got.Receipt.Whole() {
				t.Errorf("%s: %+v, %v", c.Step, got.Receipt, err)
			}
			return agenttest.JSON(reply{Word: "done"}), nil
		})
		crew := agenttest.Crew(log.Open(t, step.Options{}), agents) // eight slots
		delegates(crew, 8)
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: fmt.Sprint("k", i), Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most.Load() != 8 {
			t.Errorf("%d subagents ran at once, want the 8 slots in use", most.Load())
		}
	})
}

// Five uses of the tool in one turn run together, and under one cap.
func TestUsesInOneTurnShareACap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log steptest.Log
		var busy, most atomic.Int32
		agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
			if isScout(c) {
				most.Store(max(most.Load(), busy.Add(1)))
				time.Sleep(time.Second)
				busy.Add(-1)
				return said("seen"), nil
			}
			var all sync.WaitGroup
			begun := time.Now()
			for i := range 5 {
				all.Go(func() {
					one := must(map[string]string{"description": "d", "prompt": fmt.Sprint(i), "subagent_type": "scout"})
					if got, err := use(ctx, c, one); err != nil || len(got.Slots) != 1 || got.Description != "d" || !got.Receipt.Whole() {
						t.Errorf("%+v, %v", got, err)
					}
				})
			}
			all.Wait()
			if took := time.Since(begun); took != 2*time.Second {
				t.Errorf("five tasks of a second, three at once, took %s", took)
			}
			return agenttest.JSON(reply{Word: "done"}), nil
		})
		crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
		delegates(crew, 3)
		if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
			t.Fatal(err)
		}
		if most.Load() != 3 {
			t.Errorf("%d at once, want 3", most.Load())
		}
	})
}

// A process that dies in mid-batch is followed by one that asks the same: what
// has answered is not asked again.
func TestOnlyUnfinishedSlotsRunAgain(t *testing.T) {
	var log steptest.Log
	ctx, kill := context.WithCancelCause(t.Context())
	first := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if isScout(c) {
			if strings.Contains(c.Prompt, "slow") {
				<-ctx.Done()
				return runtime.Result{}, context.Cause(ctx)
			}
			return said("seen once"), nil
		}
		_, err := use(ctx, c, asks("a", "slow", "c"))
		return runtime.Result{}, err
	})
	crew := agenttest.Crew(log.Open(t, step.Options{Recorded: func(e step.Entry) {
		if strings.Contains(e.Key, "/slot-02/") {
			kill(errors.New("killed"))
		}
	}}), first)
	delegates(crew, 1).MaxConcurrency = 2
	if _, err := agent.Ask(ctx, crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err == nil {
		t.Fatal("the first run ended")
	}

	second := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if isScout(c) {
			return said("seen later"), nil
		}
		got, err := use(ctx, c, asks("a", "slow", "c"))
		if err != nil || got.Slots[0].Output != "seen once" || got.Slots[1].Output != "seen later" || got.CostMicros != 21 {
			t.Errorf("%+v, %v", got, err)
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew = agenttest.Crew(log.Open(t, step.Options{}), second)
	delegates(crew, 2)
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}
	if steps := second.Steps(); len(steps) != 2 || !strings.HasSuffix(steps[1], "/slot-01/scout") {
		t.Errorf("asked again: %v", steps)
	}
}

// A subagent may ask subagents, and those may not.
func TestDepth(t *testing.T) {
	var log steptest.Log
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		depth := strings.Count(c.Step, "/agent-")
		if depth == 2 {
			if len(c.Functions) != 0 {
				t.Errorf("%s has functions", c.Step)
			}
			return said("deep"), nil
		}
		got, err := use(ctx, c, asks("down"))
		if err != nil || got.Slots[0].Output != "deep" {
			t.Errorf("%s: %+v, %v", c.Step, got, err)
		}
		if depth == 1 {
			return said("deep"), nil
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	crew.Slots = agent.NewSlots(1)
	delegates(crew, 1)
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}
}

// Without money for another call a queued slot is skipped, and does not wait for
// what its own parent holds.
func TestSlotsWithoutBudgetAreSkipped(t *testing.T) {
	var log steptest.Log
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if isScout(c) {
			return runtime.Result{Text: "seen", CostMicros: 10}, nil
		}
		got, err := use(ctx, c, asks("a", "b", "c"))
		if want := (batch.Receipt{Planned: 3, Completed: 2, Skipped: 1}); err != nil || got.Receipt != want {
			t.Errorf("%+v, %v", got, err)
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	crew.Budget = &agent.Budget{Micros: 30, PerCall: 10}
	delegates(crew, 1)
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}
}

// What no call can get past ends the call that asked, and is no slot's affair.
func TestAFatalSubagentStopsItsParent(t *testing.T) {
	var log steptest.Log
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if isScout(c) {
			return runtime.Result{}, &runtime.Error{Class: runtime.Fatal, Reason: "no credit"}
		}
		_, _ = use(ctx, c, asks("a")) // its error is the end of ctx
		<-ctx.Done()
		return runtime.Result{}, context.Cause(ctx)
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	delegates(crew, 1)
	_, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"})
	if !errors.Is(err, agent.ErrFatal) || !strings.Contains(err.Error(), "no credit") {
		t.Errorf("Ask = %v", err)
	}
}

// A person's no skips the slot; the others run.
func TestApproval(t *testing.T) {
	var log steptest.Log
	agents := agenttest.New(func(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		if c.Role == "guard" || isScout(c) {
			return said("done"), nil
		}
		task := func(kind, prompt string) map[string]string {
			return map[string]string{"description": prompt, "prompt": prompt, "subagent_type": kind}
		}
		got, err := use(ctx, c, must(map[string]any{"tasks": []any{task("guard", "yes"), task("scout", "free"), task("guard", "no")}}))
		if want := (batch.Receipt{Planned: 3, Completed: 2, Skipped: 1}); err != nil || got.Receipt != want || !strings.Contains(got.Slots[2].Error, "not today") {
			t.Errorf("%+v, %v", got, err)
		}
		return agenttest.JSON(reply{Word: "done"}), nil
	})
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	d := delegates(crew, 1)
	var asked []string
	d.Approve = func(_ context.Context, e batch.Event, what batch.Assignment) error {
		asked = append(asked, fmt.Sprint(e.Slot, what.Description))
		if what.Prompt == "no" {
			return errors.New("not today")
		}
		return nil
	}
	var waited []int
	d.Emit = func(e batch.Event) {
		if e.State == batch.WaitingApproval {
			waited = append(waited, e.Slot)
		}
	}
	if _, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: agenttest.Desk{}}, reader(), question{"x"}); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(asked, []string{"0yes", "2no"}) || !slices.Equal(waited, []int{0, 2}) {
		t.Errorf("asked %v, waited %v", asked, waited)
	}
}
