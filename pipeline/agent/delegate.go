package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A Delegation is the agent tool: whom the agents of a crew may ask, and how
// many at once.
type Delegation struct {
	Kinds          []Subagent
	Prompt         Prompt // of every subagent; its input is an Errand
	MaxConcurrency int    // slots of one agent at work at once; 0 and below mean 1
	// Emit hears every event of every batch. Calls of different batches overlap.
	Emit func(batch.Event)
	// Approve returns when a person let the slot of a kind that asks for it
	// start; its error is why not. It may be nil where no kind asks.
	Approve func(ctx context.Context, e batch.Event, what batch.Assignment) error
}

// A Subagent is a kind of agent that others may ask. It reads and answers with
// a text; to change something is left to the agent that asked, or two of them
// would write to one tree.
type Subagent struct {
	Type     string // a role or a lens
	About    string // one line, for the agent that chooses and for the subagent
	Model    string // model key
	Tools    []runtime.Tool
	Approval bool // a person is asked before one starts
}

// An Errand is the input of a subagent's prompt.
type Errand struct {
	Type, About         string // of the subagent
	Description, Prompt string // of the task
}

// maxDepth is how deep subagents may ask subagents.
const maxDepth = 2

// toolName is what agents call the tool that asks subagents.
const toolName = "agent"

// maxReply bounds in bytes what one subagent may answer.
const maxReply = 32 << 10

func (d *Delegation) kinds() []string {
	var names []string
	for _, k := range d.Kinds {
		names = append(names, k.Type)
	}
	return names
}

func (d *Delegation) kind(name string) Subagent {
	for _, k := range d.Kinds {
		if k.Type == name {
			return k
		}
	}
	return Subagent{}
}

// about is the description of the tool.
func (d *Delegation) about() string {
	var b strings.Builder
	b.WriteString("Asks subagents, which read the repository and answer with a text. With tasks they all work at the same time, and " +
		"one call returns when the last has ended: use one call with all tasks for work that can be divided. A subagent knows only its prompt " +
		"and changes nothing. The result has one slot for each task, in your order; a slot whose state is not completed has answered " +
		"nothing, which does not mean that it found nothing. The kinds of subagent:\n")
	for _, k := range d.Kinds {
		fmt.Fprintf(&b, "- %s: %s\n", k.Type, k.About)
	}
	return b.String()
}

// A parent is a running call whose agent may ask subagents.
type parent struct {
	crew *Crew
	call runtime.Call
	seat *seat
	said *transcript
	stop context.CancelCauseFunc // ends the call: of what stops a build an agent is no judge
	cap  *batch.Cap              // of all its batches

	mu    sync.Mutex
	asked map[string]int // how often this batch was asked for
}

// functions are the tools that an agent gets from its crew.
func (c *Crew) functions(p *parent) []runtime.Function {
	d := c.Delegation
	if d == nil || c.depth >= maxDepth || len(p.call.Tools) == 0 {
		return nil
	}
	p.cap, p.asked = batch.NewCap(d.MaxConcurrency), map[string]int{}
	return []runtime.Function{{
		Name: toolName, Description: d.about(), Input: batch.RequestSchema(d.kinds()), Call: p.delegate,
	}}
}

// delegate runs one use of the agent tool.
func (p *parent) delegate(ctx context.Context, input json.RawMessage) (json.RawMessage, error) {
	d := p.crew.Delegation
	request, err := batch.ReadRequest(input, d.kinds())
	if err != nil {
		return nil, err
	}
	key := p.key(request)
	o := batch.Options{
		Call: p.call.Step, Batch: key[len(p.call.Step)+1:], Description: request.Describe(),
		MaxConcurrency: d.MaxConcurrency, Cap: p.cap, Timeout: p.crew.Limits.Timeout, Emit: p.emit,
	}
	if wish := request.MaxConcurrency; wish > 0 {
		o.MaxConcurrency = min(o.MaxConcurrency, wish)
	}
	tasks := make([]batch.Task[string], len(request.Tasks))
	for i, what := range request.Tasks {
		e := errand{parent: p, what: what, kind: d.kind(what.Type), slot: i, batch: o.Batch}
		e.key = fmt.Sprintf("%s/slot-%02d/%s", key, i, what.Type)
		tasks[i] = batch.Task[string]{Type: what.Type, Transcript: e.key, Run: e.run}
	}
	p.seat.lend()
	result := batch.Run(ctx, o, tasks)
	if err := p.seat.reclaim(ctx); err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// key names a batch by what is asked, so that an agent which is run again after
// a crash and asks the same finds what its subagents have answered.
func (p *parent) key(r batch.Request) string {
	h := sha256.New()
	for _, t := range r.Tasks {
		for _, part := range []string{t.Type, t.Description, t.Prompt} {
			_, _ = fmt.Fprintf(h, "%d\n%s", len(part), part) // a hash takes everything
		}
	}
	key := p.call.Step + "/agent-" + hex.EncodeToString(h.Sum(nil))[:12]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[key]++
	if n := p.asked[key]; n > 1 {
		key += fmt.Sprintf("-%d", n)
	}
	return key
}

// emit tells of a slot: to who watches the build and in the transcript.
func (p *parent) emit(e batch.Event) {
	if text, err := json.Marshal(e); err == nil { // it is made of texts and numbers
		p.said.write(runtime.Event{Kind: runtime.Subagent, Tool: toolName, Input: text})
	}
	p.crew.Log.Debug("subagent", "call", e.Call, "batch", e.Batch, "slot", e.Slot, "type", e.Type, "state", e.State)
	if emit := p.crew.Delegation.Emit; emit != nil {
		emit(e)
	}
}

// An errand is the task of one slot.
type errand struct {
	parent *parent
	what   batch.Assignment
	kind   Subagent
	slot   int
	batch  string
	key    string
}

func (e errand) run(ctx context.Context, control *batch.Control) (string, error) {
	p := e.parent
	if e.kind.Approval {
		err := control.Await(func() error {
			asked := batch.Event{Call: p.call.Step, Batch: e.batch, Record: batch.Record{Slot: e.slot, Type: e.kind.Type}}
			return p.crew.Delegation.Approve(ctx, asked, e.what)
		})
		if err != nil {
			return "", fmt.Errorf("%w: %w", batch.ErrSkipped, err)
		}
	}
	told := Errand{e.kind.Type, e.kind.About, e.what.Description, e.what.Prompt}
	system, prompt, err := p.crew.Delegation.Prompt.render(told, nil)
	if err != nil {
		return "", err
	}
	crew := *p.crew
	crew.depth, crew.Draining = crew.depth+1, nil // it is a part of a call that runs
	limits := crew.Limits
	q := query{model: e.kind.Model, asked: question{Role: e.kind.Type, Prompt: p.crew.Delegation.Prompt.digest, Input: told}}
	answer, err := crew.turn(ctx, reading(p.call.Dir), q, runtime.Call{
		Step: e.key, Role: e.kind.Type, System: system, Prompt: prompt, Tools: e.kind.Tools,
		Dir: p.call.Dir, ReadOnly: true, ReadOnlyDirs: p.call.ReadOnlyDirs,
		Timeout: limits.Timeout, Idle: limits.Idle, MaxTurns: limits.MaxTurns,
	})
	control.Spend(batch.Usage(answer.entry.Tokens), answer.entry.CostMicros)
	switch {
	case err == nil && answer.Failure != "":
		return "", errors.New(answer.Failure)
	case err == nil:
		return cut(answer.said()), nil
	case errors.Is(err, ErrBudget):
		return "", fmt.Errorf("%w: %w", batch.ErrSkipped, err)
	case ctx.Err() == nil:
		p.stop(err) // a fatal error of the provider, or the journal's
	}
	return "", err
}

// cut bounds a reply and says so.
func cut(text string) string {
	if len(text) <= maxReply {
		return text
	}
	return strings.ToValidUTF8(text[:maxReply], "") + fmt.Sprintf("\n[%d further bytes were cut]", len(text)-maxReply)
}

// reading is the tree of the agent that asked. It stays as it is: nothing is
// brought to a commit, and nothing is collected.
type reading string

func (r reading) Dir() string                             { return string(r) }
func (r reading) Prepare(context.Context) error           { return nil }
func (r reading) Collect(context.Context) (string, error) { return "", nil }
func (r reading) Found(string)                            {}
