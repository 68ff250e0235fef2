// Package runtime is how an agent is run: one Call goes in, Events stream out
// while it works, one Result comes back. An implementation starts a coding CLI
// or any program, plays a recording, or works inside this process (native); the
// pipeline cannot tell them apart.
//
// Promises, held by the suite in runtimetest for every implementation: a call
// that is cancelled, times out or stalls leaves no process behind five seconds
// later; output beyond the cap ends the call; every failure is an *Error whose
// Class says whether to try again, to give up, or to stop the whole build.
package runtime

import (
	"context"
	"encoding/json"
	"time"
)

// Tool is something that an agent may do.
type Tool string

// The tools that roles are granted.
const (
	Read  Tool = "READ"
	Write Tool = "WRITE"
	Edit  Tool = "EDIT"
	Bash  Tool = "BASH"
	Glob  Tool = "GLOB"
	Grep  Tool = "GREP"
)

// A Call is one turn asked of an agent.
type Call struct {
	Step         string          // the journal key, e.g. issue-02/round-1/iter-1/coder
	Role         string          // coder, pm, …
	System       string          // instructions
	Prompt       string          // the task
	Tools        []Tool          // what the agent may use
	Schema       json.RawMessage // JSON Schema of the output
	Model        string          // in the runtime's own spelling; empty is its default
	Effort       string          // how hard the model thinks, in the runtime's own spelling; empty is its default
	Functions    []Function      // tools of the caller, offered beside Tools
	Dir          string          // the worktree; the agent's "."
	ReadOnly     bool            // Dir is not to be changed
	ReadOnlyDirs []string        // more directories that it may read
	Home         string          // HOME of the agent; holds the session of a CLI
	MaxTurns     int             // 0 means the runtime's default
	Timeout      time.Duration   // wall clock; 0 means none
	Idle         time.Duration   // no event for so long is a stall; 0 means 180 s
	BudgetMicros int64           // ceiling in micro-dollars, for runtimes that take one; 0 means none
	Session      string          // continue this session (a repair turn)
	Repair       *Repair         // what was wrong with the previous answer
	Digest       string          // of the input, where the caller has one; recordings keep it

	bridge *bridge // offers Functions to a CLI
	tap    *tap    // what the agent asks its model through, where that can be seen
}

// A Function is a tool that the caller brings. The agent sees it beside its own
// tools and may use it several times in one turn; those uses run side by side.
type Function struct {
	Name        string
	Description string
	Input       json.RawMessage // JSON Schema of what the agent hands over
	// Call answers one use. It may take long: while it runs, the agent counts
	// as alive. The text of an error is for the agent, which goes on. It is
	// called from many goroutines, and ctx ends with the call of the agent.
	Call func(ctx context.Context, input json.RawMessage) (json.RawMessage, error)
}

// Repair quotes an answer that did not fit the schema.
type Repair struct {
	Previous string   `json:"previous"`
	Errors   []string `json:"errors"`
}

// A Result is what an agent answered.
type Result struct {
	Output     json.RawMessage `json:"output,omitempty"` // the last JSON value; nil when there was none
	Text       string          `json:"text,omitempty"`   // all text, for people and for finding JSON in
	Session    string          `json:"session,omitempty"`
	Usage      Usage           `json:"usage,omitzero"`
	CostMicros int64           `json:"cost_micros,omitempty"`
	Turns      int             `json:"turns,omitempty"`
	Denials    []string        `json:"denials,omitempty"` // tools that were refused
	Stop       string          `json:"stop,omitempty"`    // why it ended: end_turn, max_turns, budget, …
}

// Usage counts tokens.
type Usage struct {
	Input      int64 `json:"input_tokens,omitempty"`
	Output     int64 `json:"output_tokens,omitempty"`
	CacheRead  int64 `json:"cache_read_tokens,omitempty"`
	CacheWrite int64 `json:"cache_write_tokens,omitempty"`
}

// EventKind says what an Event reports.
type EventKind string

// The kinds of event.
const (
	Text       EventKind = "text"
	Thinking   EventKind = "thinking"
	ToolCall   EventKind = "tool_call"
	ToolResult EventKind = "tool_result"
	Usages     EventKind = "usage"
	Retry      EventKind = "retry"
	Subagent   EventKind = "subagent"
	Notice     EventKind = "notice"
)

// An Event is something that happened during a call.
type Event struct {
	Kind  EventKind       `json:"kind"`
	Text  string          `json:"text,omitempty"` // text, or what a notice says; secrets are redacted, and it ends after 64 KiB
	Tool  string          `json:"tool,omitempty"`
	Input json.RawMessage `json:"input,omitempty"`
	Usage *Usage          `json:"usage,omitempty"`
}

// Runtime runs agents. Run is called from many goroutines at once; emit is
// called from one goroutine at a time per Run and never after Run returned.
type Runtime interface {
	Run(ctx context.Context, c Call, emit func(Event)) (Result, error)
}

// Class says what a failure means for the caller.
type Class string

// The classes of failure.
const (
	Transient Class = "transient" // back off and try again: 429, 5xx, overload, stall
	Refused   Class = "refused"   // this call cannot work as it stands: bad output, crash, time-out
	Fatal     Class = "fatal"     // no call can work: billing, authentication, unknown model
)

// Error is every failure of a Run that is not ctx's own.
type Error struct {
	Class  Class
	Reason string        // one line for people, with the fix where there is one
	After  time.Duration // the provider's own hint for Transient; 0 when it gave none
	Err    error         // the cause, may be nil
}

// Error says what failed.
func (e *Error) Error() string { return e.Reason }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
