package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// A Worker claims jobs and runs them. It keeps their leases, brings them their
// signals, and settles them by what their Run returns:
//
//	nil                   done
//	Later(until, cause)   parked
//	Turn(until, cause)    parked, at no charge; so is what ends with ErrAway
//	Never(cause)          buried
//	any other error       parked with exponential back-off, after 8 times buried
//	panic                 buried, the stack is logged
//
// When the lease is lost the task's context ends with ErrLost and nothing is
// settled: the job is another worker's.
type Worker struct {
	Store     Store
	Name      string // names this process and no other
	Slots     []Slot
	Log       *slog.Logger  // nil is slog.Default()
	Heartbeat time.Duration // how often a lease is renewed; 0 is a third of 15 s

	mu    sync.Mutex
	tasks map[*Task]bool // those that run
}

// A Slot is room for jobs of some kinds.
type Slot struct {
	Kinds []string
	N     int // how many run at once; 0 is 1
	// Run does the job. Its context ends with the cause ErrLost or ErrDraining.
	Run func(ctx context.Context, t *Task) error
	// GivenUp, if set, says in public that a job is about to be buried, and why:
	// it failed for good, panicked, failed too often, or brought down its worker
	// 5 times in a row, in which case Run is not called. Where it fails, and not
	// for good, the job waits and is not run any more: only GivenUp is called
	// again, for as long as a week.
	GivenUp func(ctx context.Context, t *Task, cause error) error
}

const (
	maxRetries     = 8
	giveUpCrashes  = 5
	firstBackOff   = 5 * time.Second
	longestBackOff = 10 * time.Minute
	settleTimeout  = 10 * time.Second
	storePause     = time.Second        // before the store is asked again after an error
	tellFor        = 7 * 24 * time.Hour // longer than GitHub redelivers, and than a weekend with nobody there
)

// Run claims and runs jobs until ctx ends. Then it drains: it claims nothing
// more, ends the running tasks with the cause ErrDraining, waits for them and
// hands their jobs back uncharged. When it returns nothing of it is left.
func (w *Worker) Run(ctx context.Context) error {
	if w.Name == "" {
		return errors.New("run a worker: it has no name")
	}
	for i, s := range w.Slots {
		if s.Run == nil || len(s.Kinds) == 0 {
			return fmt.Errorf("run worker %s: slot %d has no kinds or nothing to run", w.Name, i)
		}
	}
	var slots sync.WaitGroup
	for _, s := range w.Slots {
		slots.Go(func() { w.serve(ctx, s) })
	}
	slots.Wait()
	return nil
}

// serve keeps one slot full.
func (w *Worker) serve(ctx context.Context, s Slot) {
	room := make(chan struct{}, max(s.N, 1))
	var tasks sync.WaitGroup
	defer tasks.Wait()
	for {
		select {
		case room <- struct{}{}:
		case <-ctx.Done():
			return
		}
		l, err := w.next(ctx, s.Kinds)
		if err != nil {
			return
		}
		tasks.Go(func() {
			defer func() { <-room }()
			_, _ = w.execute(ctx, s, l) // which has logged what is to be known
		})
	}
}

// next waits for a job until ctx ends. The store may be away for a while.
func (w *Worker) next(ctx context.Context, kinds []string) (*Lease, error) {
	for {
		var l *Lease
		err := w.catchUp(ctx)
		if err == nil {
			l, err = w.Store.Claim(ctx, w.Name, kinds...)
		}
		if err == nil {
			return l, nil
		}
		if errors.Is(err, ErrEmpty) {
			err = w.Store.Wait(ctx, kinds...)
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			w.log().Error("cannot claim", "kinds", kinds, "err", err)
			pause(ctx, storePause)
		}
	}
}

// catchUp renews the leases of running tasks that have run out, because the host
// slept or the store was away: else the next claim of this very worker, which
// comes before the heartbeat, would take their jobs away from them. This host's
// clock may be behind the store's by what opening it accepts.
func (w *Worker) catchUp(ctx context.Context) error {
	w.mu.Lock()
	tasks := slices.Collect(maps.Keys(w.tasks))
	w.mu.Unlock()
	for _, t := range tasks {
		if time.Now().Add(skewRefused).Before(t.Lease().Until) {
			continue
		}
		if err := t.Extend(ctx); err != nil && !errors.Is(err, ErrLost) {
			return err
		}
	}
	return nil
}

func (w *Worker) enter(t *Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tasks == nil {
		w.tasks = map[*Task]bool{}
	}
	w.tasks[t] = true
}

func (w *Worker) leave(t *Task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.tasks, t)
}

// RunOne runs one job in the foreground: the only one of its kind, local/<id>.
// It answers ErrEmpty when the job cannot be claimed now, which includes that
// another process runs it. Otherwise it stays until the job is finished, also
// while it is parked, and returns what its last run returned; when ctx ends it
// hands the job back and returns the cause.
func RunOne(ctx context.Context, store Store, worker, kind string, run func(context.Context, *Task) error) error {
	w := &Worker{Store: store, Name: worker}
	l, err := store.Claim(ctx, worker, kind)
	for err == nil {
		finished, result := w.execute(ctx, Slot{Run: run}, l)
		if finished || errors.Is(result, ErrLost) {
			return result
		}
		l, err = w.next(ctx, []string{kind})
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// execute runs a claimed job and settles it. It returns whether the job has come
// to its end, and what the run returned.
func (w *Worker) execute(ctx context.Context, s Slot, l *Lease) (finished bool, result error) {
	log := w.log().With("job", l.Job.ID, "kind", l.Job.Kind, "attempt", l.Attempt)
	base := context.WithoutCancel(ctx)
	running, end := context.WithCancelCause(base)
	defer end(nil)
	defer context.AfterFunc(ctx, func() { end(ErrDraining) })()
	minding, rest := context.WithCancel(base) // goes on while a task drains
	defer rest()

	t := newTask(w.Store, log, l, end, minding.Done())
	w.enter(t)
	var minders sync.WaitGroup
	minders.Go(t.deliver)
	if err := t.Extend(minding); err != nil && !errors.Is(err, ErrLost) {
		log.Warn("cannot read the signals yet", "err", err)
	}
	minders.Go(func() { t.keep(minding, w.heartbeat()) })
	switch {
	case errors.Is(context.Cause(running), ErrLost):
		result = ErrLost
	case ctx.Err() != nil:
		result = ErrDraining
	case l.Job.Verdict.Cause != "":
		result = Never(errors.New(l.Job.Verdict.Cause))
	case l.Crashes >= giveUpCrashes:
		result = Never(fmt.Errorf("its worker crashed %d times in a row while it ran, and no step was recorded in between", l.Crashes))
	default:
		result = unlessAway(protect(running, s.Run, t))
	}
	lost := errors.Is(context.Cause(running), ErrLost)
	if cause := burial(result, l.Job.Retries, ctx.Err() != nil); cause != nil && !lost && s.GivenUp != nil {
		// It has the lease and a while: what it says may have to wait for its turn.
		say := func(ctx context.Context, t *Task) error { return s.GivenUp(ctx, t, cause) }
		if err := unlessAway(protect(minding, say, t)); err != nil {
			log.Error("cannot report that the job is given up", "err", err)
			if until, again := tellAgain(err, l); again {
				result = Later(until, Untold(cause, err))
			} else {
				log.Error("the job is buried, and nobody was told", "cause", cause)
			}
		}
	}
	end(nil)
	w.leave(t)
	rest()
	minders.Wait()

	if p, ok := errors.AsType[*panicError](result); ok {
		log.Error("the job panicked", "panic", p.value, "stack", string(p.stack))
	}
	var err error
	if !lost {
		finished, err = w.settle(base, t, result, ctx.Err() != nil)
	}
	switch {
	case lost, errors.Is(err, ErrLost):
		log.Warn("the job was lost to another worker", "result", result)
		return false, ErrLost
	case err != nil:
		log.Error("cannot settle the job; it will be claimed again when its lease runs out", "result", result, "err", err)
		return false, errors.Join(result, err)
	case result != nil:
		log.Info("the job ended early", "result", result, "finished", finished)
	}
	return finished, result
}

// burial is the cause with which a job that ended so is buried, or nil when it
// is not. A job that only fails while the worker drains gets another chance.
func burial(result error, retries int, draining bool) error {
	if _, never := errors.AsType[*neverError](result); never {
		return result
	}
	if _, panicked := errors.AsType[*panicError](result); panicked {
		return result
	}
	if _, later := errors.AsType[*laterError](result); result == nil || later || draining || retries < maxRetries {
		return nil
	}
	return fmt.Errorf("given up after %d retries: %w", retries, result)
}

// tellAgain is when to try again to tell of a burial, and whether to: not where
// that will never work, nor where it was tried for long enough.
func tellAgain(failed error, l *Lease) (until time.Time, again bool) {
	_, never := errors.AsType[*neverError](failed)
	_, panicked := errors.AsType[*panicError](failed)
	since := l.Job.Verdict.Since
	if never || panicked || !since.IsZero() && time.Since(since) > tellFor {
		return time.Time{}, false
	}
	if turn, ok := errors.AsType[*laterError](failed); ok {
		return turn.until, true
	}
	return time.Now().Add(backOff(l.Job.Retries)), true
}

// protect is the boundary at which a task's panic stops.
func protect(ctx context.Context, run func(context.Context, *Task) error, t *Task) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return run(ctx, t)
}

// settle tells the store how the job ended, also when the worker is shutting
// down, and reports whether that was its end.
func (w *Worker) settle(ctx context.Context, t *Task, result error, draining bool) (finished bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	l := t.settled()
	retries := l.Job.Retries
	if result == nil {
		return true, w.Store.Done(ctx, l)
	}
	if later, ok := errors.AsType[*laterError](result); ok {
		return false, w.Store.Park(ctx, l, later.until, later.cause)
	}
	if cause := burial(result, retries, draining); cause != nil {
		return true, w.Store.Bury(ctx, l, cause)
	}
	if draining {
		return false, w.Store.Park(ctx, l, time.Now(), nil)
	}
	return false, w.Store.Park(ctx, l, time.Now().Add(backOff(retries)), result)
}

// backOff doubles from five seconds to ten minutes; a random half of it keeps
// jobs that failed together from coming back together.
func backOff(retries int) time.Duration {
	d := min(firstBackOff<<min(retries, maxRetries), longestBackOff)
	return d/2 + rand.N(d/2)
}

func (w *Worker) log() *slog.Logger {
	if w.Log != nil {
		return w.Log
	}
	return slog.Default()
}

func (w *Worker) heartbeat() time.Duration {
	if w.Heartbeat > 0 {
		return w.Heartbeat
	}
	return leaseTime / 3
}
