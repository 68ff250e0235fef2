// Package batch runs many tasks at once and loses none of them: one call, one
// slot for each task, a rolling pool below a cap.
//
// Promises: results come in the order of the tasks; the error, panic or time-out
// of one slot touches no other; once ctx is cancelled no queued slot starts; each
// slot tells its life as events without a gap, the last of which is its final
// record; and the receipt accounts for every planned slot, so that a batch which
// did not complete cannot be taken for one that found nothing.
package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sourcegraph/conc/panics"
	"github.com/sourcegraph/conc/pool"
)

// DefaultConcurrency is the cap of callers that have no wish of their own.
const DefaultConcurrency = 8

// Options say how a batch runs.
type Options struct {
	Call           string        // who asks: the journal key of an agent's call, or empty
	Batch          string        // names the batch among those of the call
	Description    string        // one line for people
	MaxConcurrency int           // slots at work at once; 0 and below mean 1
	Cap            *Cap          // bounds the slots of several batches together; may be nil
	Timeout        time.Duration // of each slot, from its start; 0 means none
	// Emit hears every event. Calls do not overlap; a slow one slows the batch.
	Emit func(Event)
}

// A Cap bounds how many slots of several batches are at work at once. What
// waits for it is still queued.
type Cap struct{ free chan struct{} }

// NewCap makes a cap of n slots; 0 and below mean 1.
func NewCap(n int) *Cap { return &Cap{free: make(chan struct{}, max(n, 1))} }

// take waits for a slot. A nil cap bounds nothing.
func (c *Cap) take(ctx context.Context) (release func(), err error) {
	if c == nil {
		return func() {}, nil
	}
	select {
	case c.free <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return func() { <-c.free }, nil
}

// A Task is the work of one slot.
type Task[T any] struct {
	Type       string // the subagent type: a role or a lens
	Transcript string // where the task keeps what was said
	// Run does the work. It returns soon after ctx ends. An error that wraps
	// ErrSkipped says that the work was not begun on purpose.
	Run func(ctx context.Context, c *Control) (T, error)
}

// The errors that tell how a slot ended.
var (
	ErrSkipped = errors.New("skipped") // returned by a Task's Run
	ErrTimeout = errors.New("the time limit of the slot was reached")
)

// A Slot is how one task ended.
type Slot[T any] struct {
	Record
	Output T     `json:"output"`
	Err    error `json:"-"` // the error behind Record.Error; a panic's has the stack
}

// A Result is how a batch ended.
type Result[T any] struct {
	Type        string    `json:"type"` // ResultType
	Batch       string    `json:"batch"`
	Description string    `json:"description"`
	Status      State     `json:"status"`
	Slots       []Slot[T] `json:"slots"` // in the order of the tasks
	Receipt     Receipt   `json:"receipt"`
	Usage       Usage     `json:"usage"`
	CostMicros  int64     `json:"cost_micros"`
}

// ResultType is the type of every Result, for readers that know several.
const ResultType = "task_execution_batch"

// Run runs the tasks and returns when all slots have ended. It fails no call:
// what went wrong is in the slots.
func Run[T any](ctx context.Context, o Options, tasks []Task[T]) Result[T] {
	b := &batch{call: o.Call, name: o.Batch, emit: o.Emit, records: make([]Record, len(tasks)), seqs: make([]int, len(tasks))}
	for i, task := range tasks {
		b.update(i, func(r *Record) {
			*r = Record{Slot: i, Type: task.Type, State: Queued, Transcript: task.Transcript}
		})
	}
	slots := make([]Slot[T], len(tasks))
	workers := pool.New().WithMaxGoroutines(max(o.MaxConcurrency, 1))
	for i, task := range tasks {
		workers.Go(func() { slots[i].Output, slots[i].Err = run(ctx, o, b, i, task) })
	}
	workers.Wait()

	r := Result[T]{
		Type: ResultType, Batch: o.Batch, Description: o.Description,
		Slots: slots, Status: StatusOf(b.records), Receipt: receipt(b.records),
	}
	for i, record := range b.records {
		slots[i].Record = record
		r.Usage.add(record.Usage)
		r.CostMicros += record.CostMicros
	}
	return r
}

// run takes one slot from queued to its end.
func run[T any](ctx context.Context, o Options, b *batch, slot int, task Task[T]) (out T, err error) {
	release, err := o.Cap.take(ctx)
	if err == nil {
		defer release()
		if ctx.Err() != nil { // both were ready
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		b.settle(slot, Canceled, err)
		return out, err
	}
	b.enter(slot, Starting)
	if o.Timeout > 0 {
		limited, cancel := context.WithTimeoutCause(ctx, o.Timeout, ErrTimeout)
		defer cancel()
		return work(ctx, limited, b, slot, task)
	}
	return work(ctx, ctx, b, slot, task)
}

// work runs the task under limited, a child of ctx.
func work[T any](ctx, limited context.Context, b *batch, slot int, task Task[T]) (out T, err error) {
	b.enter(slot, Running)
	returned := false
	defer func() {
		if !returned { // the task ended its goroutine
			b.settle(slot, Failed, errors.New("the task did not return"))
		}
	}()
	if caught := panics.Try(func() { out, err = task.Run(limited, &Control{batch: b, slot: slot}) }); caught != nil {
		returned = true
		b.settle(slot, Failed, fmt.Errorf("panic: %v", caught.Value))
		return out, caught.AsError()
	}
	returned = true
	state := Completed
	switch {
	case err == nil:
	case ctx.Err() != nil:
		state = Canceled
	case limited.Err() != nil:
		state, err = TimedOut, errors.Join(ErrTimeout, err)
	case errors.Is(err, ErrSkipped):
		state = Skipped
	default:
		state = Failed
	}
	b.settle(slot, state, err)
	return out, err
}

// A Control is what a running task has of its slot.
type Control struct {
	batch *batch
	slot  int
}

// Spend adds to the account of the slot. It is told with the next event.
func (c *Control) Spend(u Usage, costMicros int64) {
	c.batch.mu.Lock()
	defer c.batch.mu.Unlock()
	r := &c.batch.records[c.slot]
	if r.State.Final() {
		return // its last event is out
	}
	r.Usage.add(u)
	r.CostMicros += costMicros
}

// Await shows the slot as waiting for a person while ask runs.
func (c *Control) Await(ask func() error) error {
	c.batch.enter(c.slot, WaitingApproval)
	defer c.batch.enter(c.slot, Running)
	return ask()
}

// batch is the live state of a run.
type batch struct {
	call, name string
	emit       func(Event)

	mu      sync.Mutex // held while emit runs
	records []Record
	seqs    []int
}

func (b *batch) enter(slot int, s State) { b.update(slot, func(r *Record) { r.State = s }) }

func (b *batch) settle(slot int, s State, err error) {
	b.update(slot, func(r *Record) {
		r.State = s
		if err != nil {
			r.Error = err.Error()
		}
	})
}

// update changes a record and tells of it. A slot that has ended stays so.
func (b *batch) update(slot int, change func(*Record)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.records[slot].State.Final() {
		return
	}
	change(&b.records[slot])
	b.seqs[slot]++
	if b.emit != nil {
		b.emit(Event{Call: b.call, Batch: b.name, Seq: b.seqs[slot], Record: b.records[slot]})
	}
}
