package runtime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// DefaultIdle is how long a call may be silent when it names no limit.
const DefaultIdle = 180 * time.Second

// A watch bounds one run in time: by the wall clock of its call, and by the
// silence between two signs of life. It ends the run by canceling its context
// with an *Error that says why.
//
// The reader of the run's output owns it; the timers run beside, and the tap
// that sees the model's answers.
type watch struct {
	cancel context.CancelCauseFunc
	idle   time.Duration
	silent *time.Timer
	wall   *time.Timer
}

// newWatch starts to watch a run of c and returns the context to run it with.
// The caller ends the watch.
func newWatch(ctx context.Context, c Call) (context.Context, *watch) {
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watch{cancel: cancel, idle: c.Idle}
	if w.idle <= 0 {
		w.idle = DefaultIdle
	}
	w.silent = time.AfterFunc(w.idle, func() {
		w.fail(&Error{Class: Transient, Reason: fmt.Sprintf("stalled: nothing was heard from the agent for %s", w.idle)})
	})
	if c.Timeout > 0 {
		w.wall = time.AfterFunc(c.Timeout, func() {
			w.fail(&Error{Class: Refused, Reason: fmt.Sprintf("the agent did not finish within %s", c.Timeout), Err: sandbox.ErrTimeout})
		})
	}
	if c.tap != nil {
		c.tap.attach(w)
	}
	return ctx, w
}

// pause stops the clock of silence while the run's own output is handled, so
// that a slow listener is not taken for a silent agent.
func (w *watch) pause() { w.silent.Stop() }

// alive starts the clock of silence anew.
func (w *watch) alive() { w.silent.Reset(w.idle) }

// fail ends the run; the first reason is the one that counts.
func (w *watch) fail(err error) { w.cancel(err) }

// end stops both clocks.
func (w *watch) end() {
	w.silent.Stop()
	if w.wall != nil {
		w.wall.Stop()
	}
	w.cancel(nil)
}

// verdict turns the end of a process into what Run returns: the cause of the
// caller's context as it is, else an *Error. It is nil when the process ended
// by itself, whatever its exit code.
func verdict(caller, run context.Context, program string, err error) error {
	if caller.Err() != nil {
		return context.Cause(caller)
	}
	if failure, ok := errors.AsType[*Error](context.Cause(run)); ok {
		return failure
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sandbox.ErrTimeout):
		return &Error{Class: Refused, Reason: "the agent did not finish in time", Err: err}
	case errors.Is(err, sandbox.ErrOutput):
		return errTooMuch()
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return &Error{Class: Fatal, Reason: fmt.Sprintf("the agent's program cannot be started: %s: %v", program, err), Err: err}
	}
	return &Error{Class: Refused, Reason: fmt.Sprintf("the agent's program ended unseen: %s: %v", program, err), Err: err}
}

func errTooMuch() *Error {
	return &Error{Class: Refused, Reason: fmt.Sprintf("the agent wrote more than %d MiB", maxOutput>>20), Err: sandbox.ErrOutput}
}
