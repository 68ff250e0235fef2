// Package agent is a typed call to an agent. A Role says who is asked: its
// prompt, its tools, its input and output types. Ask renders the prompt, runs
// the agent, takes the last JSON value of its answer, checks it against the
// schema of the output type, has it repaired, and falls back when all fails.
// Every turn is a recorded step, so no answer is paid for twice.
//
// The package knows no role of its own.
package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Role declares one kind of agent.
type Role[In, Out any] struct {
	Name  string // also the last part of the journal key
	Model string // the model key; empty means Name
	Tools []runtime.Tool
	// Prompt is made of the role's prompt file; see Parse.
	Prompt Prompt
	// Check reports what the schema cannot: each string is one problem, in words
	// for the agent, which gets them in a repair turn. It may be nil.
	Check func(In, Out) []string
	// Repairs is how many repair turns an answer that does not fit may have; 0
	// means as many as the crew's Limits say.
	Repairs int
	// Fallback answers when the agent did not. A nil Fallback makes the failure
	// the caller's.
	Fallback func(In, error) (Out, error)
}

// A Workspace is the worktree that a call works in. For a role with a writing
// tool, what the call left is a commit, and the commit is part of its record;
// for the others the directory is read-only.
type Workspace interface {
	Dir() string
	// Prepare brings the tree to the newest commit, before a call that is not
	// recorded yet.
	Prepare(ctx context.Context) error
	// Collect commits what the call left and returns the commit. A *Rejected
	// says that it may not be taken; after any other error it is tried again.
	Collect(ctx context.Context) (commit string, err error)
	// Found makes the commit of a call the newest one.
	Found(commit string)
}

// A Place is where a call happens: under which key, in which worktree.
type Place struct {
	Key  string
	Work Workspace
}

// A Target is what runs a role: a runtime, its name, a model.
type Target struct {
	Runtime   runtime.Runtime
	Name      string
	Model     string
	Effort    string   // how hard the model thinks; empty: its default
	Fallbacks []Target // asked in turn when this one fails for good; theirs do not count
}

// A Crew is what all calls of a build share. It is set up once and not changed.
type Crew struct {
	Journal     *step.Journal
	Target      func(model string) (Target, error) // by model key
	Slots       *Slots
	Budget      *Budget
	Limits      Limits
	Home        func(key string) (string, error) // HOME for the call of that key
	Readable    []string                         // directories that every agent may read beside its own
	Transcripts string                           // directory for one event file per call; empty keeps none
	Draining    <-chan struct{}                  // closed: running calls go on, none starts
	Delegation  *Delegation                      // whom agents may ask; nil: nobody
	Log         *slog.Logger

	depth int // 0 for the crew's own calls, 1 for those of the subagents that they ask
}

// Limits bound each call.
type Limits struct {
	Timeout  time.Duration // wall clock of one turn
	Idle     time.Duration // silence that counts as a stall
	MaxTurns int
	Repairs  int           // repair turns after an answer that does not fit
	Retries  int           // further tries after a transient failure
	Backoff  time.Duration // first pause between tries; doubles
}

// DefaultLimits are the limits of pipeline.md's knobs.
func DefaultLimits() Limits {
	return Limits{Timeout: 2700 * time.Second, Idle: 180 * time.Second, MaxTurns: 150, Repairs: 2, Retries: 4, Backoff: 2 * time.Second}
}

// The errors that stop more than one call.
var (
	// ErrDraining refuses a call because the process is about to stop.
	ErrDraining = errors.New("draining: no further agent call starts")
	// ErrFatal wraps a provider's error that no call can get past.
	ErrFatal = errors.New("the model provider refuses every call")
)

// Rejected is what a workspace says of work that breaks its rules: the agent
// has failed, and asking it the same again would be in vain.
type Rejected struct{ Reason string }

// Error is the rule that was broken.
func (r *Rejected) Error() string { return r.Reason }

// A Failure is an agent that gave no usable answer and whose role has no
// fallback.
type Failure struct {
	Key    string
	Reason string
}

// Error says which call failed and why.
func (f *Failure) Error() string { return f.Key + ": " + f.Reason }

// Ask asks a role for an answer. The error is ctx's cause, ErrDraining,
// ErrFatal, a *BudgetError, a *Failure, or a failure of the journal or workspace.
func Ask[In, Out any](ctx context.Context, c *Crew, at Place, r Role[In, Out], in In) (Out, error) {
	var none Out
	out, problem, err := converse(ctx, c, at, r, in)
	if err != nil {
		return none, err
	}
	if problem == "" {
		return out, nil
	}
	failure := &Failure{Key: at.Key + "/" + r.Name, Reason: problem}
	if r.Fallback == nil {
		return none, failure
	}
	c.Log.WarnContext(ctx, "agent gave no usable answer, using the fallback", "key", failure.Key, "reason", problem)
	return r.Fallback(in, failure)
}

// converse holds the conversation: a first turn, then repair turns that quote
// what was wrong. A non-empty problem says why there is no answer.
func converse[In, Out any](ctx context.Context, c *Crew, at Place, r Role[In, Out], in In) (out Out, problem string, err error) {
	contract, err := contractOf[Out]()
	if err != nil {
		return out, "", fmt.Errorf("role %s: %w", r.Name, err)
	}
	system, prompt, err := r.Prompt.render(in, contract.schema)
	if err != nil {
		return out, "", fmt.Errorf("role %s: %w", r.Name, err)
	}
	key := at.Key + "/" + r.Name
	call := runtime.Call{
		Role: r.Name, System: system, Prompt: prompt, Tools: r.Tools, Schema: contract.schema,
		Dir: at.Work.Dir(), ReadOnly: !writes(r.Tools), ReadOnlyDirs: c.Readable,
		Timeout: c.Limits.Timeout, Idle: c.Limits.Idle, MaxTurns: c.Limits.MaxTurns,
	}
	q := query{model: cmp.Or(r.Model, r.Name), asked: question{Role: r.Name, Prompt: r.Prompt.digest, Input: in}}
	repairs := cmp.Or(r.Repairs, c.Limits.Repairs)
	for turn := 0; ; turn++ {
		call.Step = key
		if turn > 0 {
			call.Step = fmt.Sprintf("%s/repair-%d", key, turn)
		}
		answer, err := c.turn(ctx, at.Work, q, call)
		if err != nil {
			return out, "", err
		}
		if answer.Failure != "" {
			return out, answer.Failure, nil
		}
		out, errs := contract.read(answer)
		if len(errs) == 0 && r.Check != nil {
			errs = r.Check(in, out)
		}
		if len(errs) == 0 {
			return out, "", nil
		}
		if turn >= repairs {
			return out, fmt.Sprintf("no valid answer after %d turns: %s", turn+1, errs[0]), nil
		}
		call.Session, q.first = answer.liveSession, answer.target
		call.Repair = &runtime.Repair{Previous: answer.said(), Errors: errs}
		q.asked.Repair = complain(call.Repair)
	}
}

func writes(tools []runtime.Tool) bool {
	return slices.Contains(tools, runtime.Write) || slices.Contains(tools, runtime.Edit)
}

// transcript names the event file of a step.
func (c *Crew) transcript(key string) string {
	if c.Transcripts == "" {
		return ""
	}
	return filepath.Join(c.Transcripts, filepath.FromSlash(key)+".jsonl")
}
