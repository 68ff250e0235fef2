// Package agenttest has what tests of roles need: agents that play a script, a
// crew to run them in, and the checks that every role's prompt has to pass.
package agenttest

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Play answers a call in an agent's place.
type Play func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error)

// Agents is a runtime that plays a script and remembers who was asked what.
type Agents struct {
	play  Play
	mu    sync.Mutex
	calls []runtime.Call
}

// New returns agents that play.
func New(play Play) *Agents { return &Agents{play: play} }

// Run remembers the call and plays it.
func (a *Agents) Run(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
	a.mu.Lock()
	a.calls = append(a.calls, c)
	a.mu.Unlock()
	return a.play(ctx, c, emit)
}

// Calls returns the calls so far.
func (a *Agents) Calls() []runtime.Call {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]runtime.Call(nil), a.calls...)
}

// Steps returns the journal keys of the calls so far.
func (a *Agents) Steps() []string {
	var steps []string
	for _, c := range a.Calls() {
		steps = append(steps, c.Step)
	}
	return steps
}

// JSON is the result of an agent that answers with v.
func JSON(v any) runtime.Result {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return runtime.Result{Output: text, Text: string(text), Session: "session", Stop: "end_turn"}
}

// Crew is a crew of these agents: eight slots, no bound on the budget, the
// default limits with hardly a pause between tries.
func Crew(journal *step.Journal, agents runtime.Runtime) *agent.Crew {
	limits := agent.DefaultLimits()
	limits.Backoff = time.Millisecond
	return &agent.Crew{
		Journal: journal,
		Target: func(string) (agent.Target, error) {
			return agent.Target{Runtime: agents, Name: "script", Model: "model"}, nil
		},
		Slots:  agent.NewSlots(8),
		Budget: &agent.Budget{},
		Limits: limits,
		Home:   func(string) (string, error) { return "home", nil },
		Log:    slog.New(slog.DiscardHandler),
	}
}

// Desk is a Workspace that nobody writes to.
type Desk struct{}

// Dir is the worktree.
func (Desk) Dir() string { return "." }

// Prepare has nothing to do.
func (Desk) Prepare(context.Context) error { return nil }

// Collect has nothing to collect.
func (Desk) Collect(context.Context) (string, error) { return "", nil }

// Found is told of no commit.
func (Desk) Found(string) {}
