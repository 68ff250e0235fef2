package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	Role    string          `json:"role"`

	liveSession string // Session, if this process ran the turn: a CLI's session dies with its directory
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

// maxText bounds the text kept of an answer without output.
const maxText = 16 << 10

// turn returns the recorded answer of call.Step or runs the agent that the
// model key stands for.
func (c *Crew) turn(ctx context.Context, work Workspace, model string, asked question, call runtime.Call) (Answer, error) {
	var ours Answer // as run returned it, with what the record does not tell
	ran := false
	held := c.hold(call)
	defer held.drop()
	answer, err := step.Do(ctx, c.Journal, call.Step, func(ctx context.Context) (Answer, error) {
		ran = true
		var err error
		ours, err = c.run(ctx, work, model, asked, call, held)
		return ours, err
	})
	if err != nil {
		return Answer{}, err
	}
	commit := ours.entry.Commit
	if ran {
		held.record(ours.entry.CostMicros)
	} else {
		commit = c.Journal.Commit(call.Step)
	}
	answer.liveSession = ours.liveSession
	if commit != "" {
		work.Found(commit)
	}
	return answer, nil
}

// run runs one turn for real: slot, worktree, budget, agent, commit.
func (c *Crew) run(ctx context.Context, work Workspace, model string, asked question, call runtime.Call, held *hold) (Answer, error) {
	target, err := c.Target(model)
	if err != nil {
		return Answer{}, err
	}
	call.Model, asked.Model = target.Model, target.Model
	if call.Digest, err = asked.digest(); err != nil {
		return Answer{}, err
	}
	release, err := c.Slots.take(ctx, c.Draining)
	if err != nil {
		return Answer{}, err
	}
	defer release()
	if call.Home, err = c.Home(call.Step); err != nil {
		return Answer{}, err
	}
	if err := work.Prepare(ctx); err != nil {
		return Answer{}, fmt.Errorf("prepare the worktree of %s: %w", call.Step, err)
	}

	result, failure, err := c.try(ctx, target, call, held)
	if err != nil {
		return Answer{}, err
	}
	if !json.Valid(result.Output) {
		result.Output = nil // it could not be recorded; the text says what it was
	}
	a := Answer{
		Output: result.Output, Session: result.Session, liveSession: result.Session,
		Turns: result.Turns, Denials: result.Denials, Failure: failure, Role: call.Role,
		entry: step.Entry{
			Input: call.Digest, CostMicros: result.CostMicros, Runtime: target.Name, Model: target.Model,
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

// try runs the agent, again after transient failures. A failure is what ended
// the call for good; an error is what must not be recorded. The budget is asked
// before each try.
func (c *Crew) try(ctx context.Context, target Target, call runtime.Call, held *hold) (result runtime.Result, failure string, err error) {
	pause := c.Limits.Backoff
	var spent runtime.Result
	for attempt := 0; ; attempt++ {
		if err := held.begin(ctx, call.Timeout); err != nil {
			return spent, "", err
		}
		call.BudgetMicros = held.micros
		start := time.Now()
		result, err = c.once(ctx, target.Runtime, call)
		held.end(ctx, result.CostMicros, time.Since(start))
		result.CostMicros += spent.CostMicros
		result.Usage.Input += spent.Usage.Input
		result.Usage.Output += spent.Usage.Output
		result.Usage.CacheRead += spent.Usage.CacheRead
		result.Usage.CacheWrite += spent.Usage.CacheWrite
		spent = result
		if err == nil {
			return result, "", nil
		}
		if ctx.Err() != nil {
			return result, "", context.Cause(ctx)
		}
		problem, ok := errors.AsType[*runtime.Error](err)
		if !ok {
			return result, "", fmt.Errorf("run %s: %w", call.Step, err)
		}
		switch {
		case problem.Class == runtime.Fatal:
			return result, "", fmt.Errorf("%w: %s", ErrFatal, problem.Reason)
		case problem.Class == runtime.Refused:
			return result, problem.Reason, nil
		case attempt >= c.Limits.Retries:
			return result, fmt.Sprintf("gave up after %d tries: %s", attempt+1, problem.Reason), nil
		}
		c.Log.WarnContext(ctx, "agent call failed, trying again", "key", call.Step, "reason", problem.Reason, "pause", max(pause, problem.After))
		if err := c.wait(ctx, max(pause, problem.After)); err != nil {
			return result, "", err
		}
		pause *= 2
	}
}

// once runs the agent one time and writes its events to the transcript.
func (c *Crew) once(ctx context.Context, rt runtime.Runtime, call runtime.Call) (runtime.Result, error) {
	path := c.transcript(call.Step)
	if path == "" {
		return rt.Run(ctx, call, func(runtime.Event) {})
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return runtime.Result{}, fmt.Errorf("keep the transcript: %w", err)
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return runtime.Result{}, fmt.Errorf("keep the transcript: %w", err)
	}
	out := json.NewEncoder(file)
	var lost error
	result, err := rt.Run(ctx, call, func(e runtime.Event) { lost = errors.Join(lost, out.Encode(e)) })
	if lost = errors.Join(lost, file.Close()); lost != nil {
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
