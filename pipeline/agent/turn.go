package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// An Answer is the record of one turn: what the runtime returned, or why it
// returned nothing of use.
type Answer struct {
	Output  json.RawMessage `json:"output,omitempty"`
	Text    string          `json:"text,omitempty"` // only when there is no Output
	Session string          `json:"session,omitempty"`
	Turns   int             `json:"turns,omitempty"`
	Denials []string        `json:"denials,omitempty"`
	Failure string          `json:"failure,omitempty"`
	Role    string          `json:"role"` // whose calls tell what the next one may cost

	liveSession string // Session, if this process ran the turn: a CLI's session dies with its directory
	target      int    // whose session that is: 0 for the model key's own target, then its fallbacks
	entry       step.Entry
}

// Record puts cost, tokens, model and commit into the journal entry.
func (a Answer) Record(e *step.Entry) {
	e.Input, e.Commit, e.CostMicros = a.entry.Input, a.entry.Commit, a.entry.CostMicros
	e.Tokens, e.Runtime, e.Model = a.entry.Tokens, a.entry.Runtime, a.entry.Model
}

// said is what the agent answered, for quoting it back.
func (a Answer) said() string {
	if len(a.Output) > 0 {
		return string(a.Output)
	}
	return a.Text
}

// A query is one turn of a conversation: for which model key, the target that is
// asked first, and what it is about.
type query struct {
	model string
	first int
	asked question
}

// maxText bounds the text kept of an answer without output.
const maxText = 16 << 10

// turn returns the recorded answer of call.Step or runs the agent that the
// query asks for. Of its targets, the one numbered first is asked first.
func (c *Crew) turn(ctx context.Context, work Workspace, q query, call runtime.Call) (Answer, error) {
	var ours Answer // as run returned it, with what the record does not tell
	ran := false
	held := c.hold(call)
	defer held.drop()
	answer, err := step.Do(ctx, c.Journal, call.Step, func(ctx context.Context) (Answer, error) {
		ran = true
		var err error
		ours, err = c.run(ctx, work, q, call, held)
		return ours, err
	})
	if err != nil {
		return Answer{}, err
	}
	answer.entry = ours.entry
	if ran {
		held.record(ours.entry.CostMicros)
	} else {
		answer.entry = c.Journal.Entry(call.Step)
	}
	answer.liveSession, answer.target = ours.liveSession, ours.target
	if commit := answer.entry.Commit; commit != "" {
		work.Found(commit)
	}
	return answer, nil
}

// run runs one turn for real: slot, worktree, budget, agent, commit.
func (c *Crew) run(ctx context.Context, work Workspace, q query, call runtime.Call, held *hold) (Answer, error) {
	own, err := c.Target(q.model)
	if err != nil {
		return Answer{}, err
	}
	seat, err := c.Slots.sit(ctx, c.Draining)
	if err != nil {
		return Answer{}, err
	}
	defer seat.leave()
	if call.Home, err = c.Home(call.Step); err != nil {
		return Answer{}, err
	}
	if err := work.Prepare(ctx); err != nil {
		return Answer{}, fmt.Errorf("prepare the worktree of %s: %w", call.Step, err)
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	said := &transcript{path: c.transcript(call.Step)}
	call.Functions = c.functions(&parent{crew: c, call: call, seat: seat, said: said, stop: stop})
	chain := append([]Target{own}, own.Fallbacks...)
	end, err := c.descend(ctx, chain, q, call, held, said)
	if err != nil {
		return Answer{}, err
	}
	result, target := end.result, chain[end.target]
	if !json.Valid(result.Output) {
		result.Output = nil // it could not be recorded; the text says what it was
	}
	a := Answer{
		Output: result.Output, Session: result.Session, liveSession: result.Session,
		Turns: result.Turns, Denials: result.Denials, Failure: end.failure, Role: held.role, target: end.target,
		entry: step.Entry{
			Input: end.digest, CostMicros: result.CostMicros, Runtime: target.Name, Model: target.Model,
			Tokens: step.Tokens{
				Input: result.Usage.Input, Output: result.Usage.Output,
				CacheRead: result.Usage.CacheRead, CacheWrite: result.Usage.CacheWrite,
			},
		},
	}
	if len(a.Output) == 0 {
		a.Text = result.Text[max(0, len(result.Text)-maxText):]
	}
	if !call.ReadOnly {
		commit, refusal, err := c.collect(ctx, work)
		if err != nil {
			return Answer{}, err
		}
		a.entry.Commit = commit
		if refusal != "" {
			a.Failure = refusal
		}
	}
	return a, nil
}

// collects is how often a worktree is tried to be collected. The call that
// worked in it is paid for: it is not lost to a busy disk.
const collects = 3

// collect takes what the call left. What cannot be a commit is the agent's
// failure, with the reason.
func (c *Crew) collect(ctx context.Context, work Workspace) (commit, refusal string, err error) {
	for try := 1; ; try++ {
		commit, err := work.Collect(ctx)
		if err == nil {
			return commit, "", nil
		}
		if ctx.Err() != nil {
			return "", "", context.Cause(ctx)
		}
		if rejected, ok := errors.AsType[*Rejected](err); ok {
			return "", "what the agent left was refused: " + rejected.Reason, nil
		}
		if try == collects {
			return "", fmt.Sprintf("what the agent left could not be collected: %v", err), nil
		}
		select {
		case <-ctx.Done():
			return "", "", context.Cause(ctx)
		case <-time.After(c.Limits.Backoff): // also while draining: the call is paid for
		}
	}
}

// try asks one target, again after transient failures. A *lapse says what ended
// its call for good; any other error is what must not be recorded. The result
// holds also what was spent before. The budget is asked before each try.
func (c *Crew) try(ctx context.Context, target Target, call runtime.Call, held *hold, said *transcript, spent runtime.Result) (result runtime.Result, err error) {
	pause := c.Limits.Backoff
	for attempt := 0; ; attempt++ {
		if err := held.begin(ctx, call.Timeout); err != nil {
			return spent, err
		}
		call.BudgetMicros = held.micros
		start := time.Now()
		result, err = c.once(ctx, target.Runtime, call, said)
		held.end(ctx, result.CostMicros, time.Since(start))
		result.CostMicros += spent.CostMicros
		result.Usage.Input += spent.Usage.Input
		result.Usage.Output += spent.Usage.Output
		result.Usage.CacheRead += spent.Usage.CacheRead
		result.Usage.CacheWrite += spent.Usage.CacheWrite
		spent = result
		if err == nil {
			return result, nil
		}
		if ctx.Err() != nil {
			return result, context.Cause(ctx)
		}
		problem, ok := errors.AsType[*runtime.Error](err)
		if !ok {
			return result, fmt.Errorf("run %s: %w", call.Step, err)
		}
		switch {
		case problem.Class == runtime.Fatal, problem.Class == runtime.Refused:
			return result, &lapse{problem.Class, problem.Reason}
		case attempt >= c.Limits.Retries:
			return result, &lapse{problem.Class, fmt.Sprintf("gave up after %d tries: %s", attempt+1, problem.Reason)}
		}
		c.Log.WarnContext(ctx, "agent call failed, trying again", "key", call.Step, "reason", problem.Reason, "pause", max(pause, problem.After))
		if err := c.wait(ctx, max(pause, problem.After)); err != nil {
			return result, err
		}
		pause *= 2
	}
}

// once runs the agent one time and writes its events to the transcript.
func (c *Crew) once(ctx context.Context, rt runtime.Runtime, call runtime.Call, said *transcript) (runtime.Result, error) {
	if err := said.open(); err != nil {
		return runtime.Result{}, fmt.Errorf("keep the transcript: %w", err)
	}
	result, err := rt.Run(ctx, call, said.write)
	if lost := said.close(); lost != nil {
		c.Log.WarnContext(ctx, "the transcript is incomplete", "key", call.Step, "error", lost)
	}
	return result, err
}

// wait pauses between tries. A try after the pause would be a new start, which
// draining refuses.
func (c *Crew) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-c.Draining:
		return ErrDraining
	case <-timer.C:
		return nil
	}
}
