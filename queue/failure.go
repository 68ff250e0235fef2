package queue

import (
	"errors"
	"fmt"
	"time"
)

// ErrDraining is the cause with which a task's context ends when its worker
// shuts down. The job is handed back uncharged.
var ErrDraining = errors.New("the worker is shutting down")

// ErrAway is in the errors of a store that cannot be asked, or takes nothing for
// a while. A task that ends with one is run again soon, uncharged: it has not
// failed.
var ErrAway = errors.New("the store is away")

// Later is what a task returns to be run again at a time, or when a signal
// comes; a zero until waits for a signal alone. A nil cause is a wait, any other
// counts as a retry but is never the last.
func Later(until time.Time, cause error) error { return &laterError{until, cause} }

// Turn is what a task returns to wait its turn until a time: a Later whose cause
// is shown, and is no retry.
func Turn(until time.Time, cause error) error { return &laterError{until, uncharged{cause}} }

// uncharged is a cause that counts as no retry.
type uncharged struct{ error }

func (u uncharged) Unwrap() error { return u.error }

// charge is how many retries a job pays that is parked for a cause.
func charge(cause error) int {
	if _, free := errors.AsType[uncharged](cause); cause == nil || free {
		return 0
	}
	return 1
}

// Untold is the cause with which a job is parked that is given up, where nobody
// could be told: it leaves a Verdict.
func Untold(verdict, failed error) error { return &untold{verdict.Error(), failed} }

type untold struct {
	verdict string
	failed  error
}

func (u *untold) Error() string { return u.verdict + "; and nobody could be told: " + u.failed.Error() }

func (u *untold) Unwrap() error { return u.failed }

// verdict is what a job is given up for that is parked for a cause, or empty.
func verdict(cause error) string {
	if u, ok := errors.AsType[*untold](cause); ok {
		return u.verdict
	}
	return ""
}

// Never is what a task returns when running it again would fail again.
func Never(cause error) error { return &neverError{cause} }

// Decided reports whether an error of a task says itself what becomes of the job,
// as those of Later, Turn and Never do.
func Decided(err error) bool {
	_, later := errors.AsType[*laterError](err)
	_, never := errors.AsType[*neverError](err)
	return later || never
}

// whileAway is how long a job waits that could not go on without the store.
const whileAway = 5 * time.Second

// unlessAway makes a task's error a Turn where it is that the store was away.
func unlessAway(err error) error {
	if errors.Is(err, ErrAway) && !Decided(err) {
		return Turn(time.Now().Add(whileAway), err)
	}
	return err
}

type laterError struct {
	until time.Time
	cause error
}

func (e *laterError) Error() string {
	switch {
	case e.cause != nil:
		return fmt.Sprintf("later: %v", e.cause)
	case e.until.IsZero():
		return "waits for a signal"
	}
	return fmt.Sprintf("waits until %s", e.until.Format(time.RFC3339))
}

func (e *laterError) Unwrap() error { return e.cause }

type neverError struct{ cause error }

func (e *neverError) Error() string {
	if e.cause == nil {
		return "failed for good"
	}
	return e.cause.Error()
}

func (e *neverError) Unwrap() error { return e.cause }

// panicError is a task's panic; it is not retried.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }
