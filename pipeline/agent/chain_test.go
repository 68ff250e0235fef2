package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

// chained is a crew whose roles are asked of each runtime in turn: they are
// called a, b and c, their models model-a and so on. The first has an effort.
func chained(t *testing.T, log *steptest.Log, links ...*agenttest.Agents) *agent.Crew {
	t.Helper()
	var chain []agent.Target
	for i, agents := range links {
		name := string(rune('a' + i))
		chain = append(chain, agent.Target{Runtime: agents, Name: name, Model: "model-" + name})
	}
	first := chain[0]
	first.Effort, first.Fallbacks = "high", chain[1:]
	crew := agenttest.Crew(log.Open(t, step.Options{}), nil)
	crew.Target = func(string) (agent.Target, error) { return first, nil }
	crew.Limits.Retries = 1
	return crew
}

func TestFallback(t *testing.T) {
	down := []turn{{err: transient(0), cost: 1}, {err: transient(0), cost: 2}}
	good := []turn{{json: `{"word":"hi"}`, cost: 8}}
	for name, c := range map[string]struct {
		links  [][]turn
		asked  []int  // how often each
		by     string // the model in the journal; empty when nothing is recorded
		cost   int64  // in the journal
		failed string // the failure that is recorded
		fatal  bool
	}{
		"the first answers":                {[][]turn{good, nil}, []int{1, 0}, "model-a", 8, "", false},
		"a tried call is not fallen from":  {[][]turn{{down[0], good[0]}, nil}, []int{2, 0}, "model-a", 9, "", false},
		"the tries are used up":            {[][]turn{down, good}, []int{2, 1}, "model-b", 11, "", false},
		"no credit":                        {[][]turn{{{err: fatal}}, good}, []int{1, 1}, "model-b", 8, "", false},
		"down to the third":                {[][]turn{{{err: fatal}}, down, good}, []int{1, 2, 1}, "model-c", 11, "", false},
		"a refused call is the call's":     {[][]turn{{{err: refused, cost: 3}}, nil}, []int{1, 0}, "model-a", 3, refused.Reason, false},
		"a refusal by the fallback":        {[][]turn{{{err: fatal}}, {{err: refused}}}, []int{1, 1}, "model-b", 0, refused.Reason, false},
		"nobody is to be had":              {[][]turn{down, down}, []int{2, 2}, "model-b", 6, "a:model-a@high: gave up after 2 tries: overloaded; b:model-b: gave up after 2 tries: overloaded", false},
		"one refuses all, one may be well": {[][]turn{down, {{err: fatal}}}, []int{2, 1}, "model-b", 3, "a:model-a@high: gave up after 2 tries: overloaded; b:model-b: " + fatal.Reason, false},
		"all refuse every call":            {[][]turn{{{err: fatal}}, {{err: fatal}}}, []int{1, 1}, "", 0, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			var links []*agenttest.Agents
			for _, turns := range c.links {
				links = append(links, play(t, turns...))
			}
			crew := chained(t, new(steptest.Log), links...)
			_, err := ask(t, crew, reader())
			for i, agents := range links {
				calls := agents.Calls()
				if len(calls) != c.asked[i] {
					t.Errorf("%c was asked %d times, want %d", 'a'+i, len(calls), c.asked[i])
				}
				for _, call := range calls {
					if want := map[bool]string{true: "high"}[i == 0]; call.Effort != want || call.Model != "model-"+string(rune('a'+i)) {
						t.Errorf("%c was asked for %s with effort %q", 'a'+i, call.Model, call.Effort)
					}
				}
			}
			if failure, ok := errors.AsType[*agent.Failure](err); ok != (c.failed != "") || ok && failure.Reason != c.failed || errors.Is(err, agent.ErrFatal) != c.fatal {
				t.Errorf("error %v", err)
			}
			entries := crew.Journal.Entries()
			if c.by == "" {
				if len(entries) != 0 {
					t.Errorf("recorded %+v", entries)
				}
				return
			}
			if e := entries[0]; e.Model != c.by || e.Runtime != strings.TrimPrefix(c.by, "model-") || e.CostMicros != c.cost {
				t.Errorf("recorded %s of %s at %d, want %s at %d", e.Model, e.Runtime, e.CostMicros, c.by, c.cost)
			}
		})
	}
}

func TestFallbackIsInTheTranscript(t *testing.T) {
	crew := chained(t, new(steptest.Log), play(t, turn{err: fatal, text: "a: "}), play(t, turn{json: `{"word":"hi"}`}))
	crew.Transcripts = t.TempDir()
	if _, err := ask(t, crew, reader()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(crew.Transcripts, "plan", "reader.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []runtime.EventKind
	var notice string
	for line := range strings.Lines(string(text)) {
		var e runtime.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if kinds = append(kinds, e.Kind); e.Kind == runtime.Notice {
			notice = e.Text
		}
	}
	want := []runtime.EventKind{runtime.Text, runtime.Notice, runtime.Text}
	if !slices.Equal(kinds, want) || notice != "a:model-a@high: "+fatal.Reason+"; falling back to b:model-b" {
		t.Errorf("%v, notice %q", kinds, notice)
	}
}

// A session is that of the target which answered; where that one is lost, the
// others start anew, those before it too.
func TestRepairStaysWithWhoAnswered(t *testing.T) {
	b := play(t, turn{text: "prose"}, turn{text: "prose"}, turn{err: fatal})
	a := play(t, turn{err: fatal}, turn{json: `{"word":"hi"}`})
	got, err := ask(t, chained(t, new(steptest.Log), a, b), reader())
	if err != nil || got.Word != "hi" {
		t.Fatalf("%+v, %v", got, err)
	}
	if calls := b.Calls(); len(calls) != 3 || calls[0].Session != "" || calls[1].Session != "s1" || calls[2].Session != "s1" {
		t.Errorf("b was asked %+v", calls)
	}
	calls := a.Calls()
	if len(calls) != 2 || calls[1].Session != "" || calls[1].Repair == nil || calls[1].Effort != "high" {
		t.Errorf("a was asked %+v", calls)
	}
}

func TestNoFallbackStartsWhileDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drain := make(chan struct{})
		a := agenttest.New(func(context.Context, runtime.Call, func(runtime.Event)) (runtime.Result, error) {
			close(drain)
			return runtime.Result{}, fatal
		})
		b := play(t)
		log := new(steptest.Log)
		crew := chained(t, log, a, b)
		crew.Draining = drain
		if _, err := ask(t, crew, reader()); !errors.Is(err, agent.ErrDraining) || len(log.Keys()) != 0 {
			t.Errorf("%v, recorded %v", err, log.Keys())
		}
	})
}

// A fallback is a further try: it needs room in the budget.
func TestFallbackNeedsRoomInTheBudget(t *testing.T) {
	crew := chained(t, new(steptest.Log), play(t, turn{err: fatal, cost: 60}), play(t))
	crew.Budget = &agent.Budget{Micros: 100, PerCall: 60}
	if _, err := ask(t, crew, reader()); !errors.Is(err, agent.ErrBudget) {
		t.Errorf("error %v", err)
	}
}
