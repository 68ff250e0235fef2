package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// A Task is a job in the hands of a worker. Its methods may be called from
// several goroutines, until Run returns.
type Task struct {
	Job Job

	store Store
	log   *slog.Logger
	lose  context.CancelCauseFunc // ends the task's context

	extending sync.Mutex // one Extend at a time; owns started and the order of batches
	started   bool       // the first Extend has returned
	before    []Signal   // what it returned
	mu        sync.Mutex // owns lease, never for long
	lease     Lease

	batches chan []unread // from extend to deliver
	signals chan Signal
	done    <-chan struct{} // Run has returned
	left    []unread        // deliver's; read after it has ended
}

// unread is a signal on its way to the task, with the lease's Seen to settle
// with if it does not get there.
type unread struct {
	Signal
	before int64
}

func newTask(store Store, log *slog.Logger, l *Lease, lose context.CancelCauseFunc, done <-chan struct{}) *Task {
	return &Task{
		Job: l.Job, store: store, log: log, lose: lose, lease: *l,
		batches: make(chan []unread), signals: make(chan Signal), done: done,
	}
}

// Lease returns the lease as it stands now, to append with.
func (t *Task) Lease() *Lease {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lease
	return &l
}

func (t *Task) setLease(l *Lease) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lease = *l
}

// Signals returns the job's signals in the order of sending, within a second of
// it; first, on every claim anew, all that it ever got: a receiver knows by
// Signal.ID what its journal says it has acted on. A signal that came during
// this claim and was not received when the task waits makes it run again at
// once. The channel is closed when Run has returned.
func (t *Task) Signals() <-chan Signal { return t.signals }

// Before returns the signals that were sent before this claim. They come by
// Signals too.
func (t *Task) Before() []Signal {
	t.extending.Lock()
	defer t.extending.Unlock()
	return t.before
}

// Extend renews the lease. A task does so right before an effect, and leaves the
// effect alone if it fails. After ErrLost the task's context ends.
func (t *Task) Extend(ctx context.Context) error {
	t.extending.Lock()
	defer t.extending.Unlock()
	l := t.Lease()
	before := l.Seen
	got, err := t.store.Extend(ctx, l)
	if err != nil {
		if errors.Is(err, ErrLost) {
			t.lose(ErrLost)
		}
		return err
	}
	if !t.started {
		// What was sent before the claim is what the claim was for: leaving it
		// unread is no reason to claim again.
		before, t.started = l.Seen, true
		t.before = got
	}
	if len(got) == 0 {
		t.setLease(l)
		return nil
	}
	batch := make([]unread, len(got))
	for i, g := range got {
		batch[i] = unread{g, before}
	}
	select {
	case t.batches <- batch: // at once: deliver always listens
	case <-t.done:
		l.Seen = before // too late for this run
	}
	t.setLease(l)
	return nil
}

// deliver hands signals to the task as fast as it takes them, and is always
// ready for more, so that a slow task never holds up the heartbeat.
func (t *Task) deliver() {
	defer close(t.signals)
	for {
		var out chan Signal
		var first Signal
		if len(t.left) > 0 {
			out, first = t.signals, t.left[0].Signal
		}
		select {
		case batch := <-t.batches:
			t.left = append(t.left, batch...)
		case out <- first:
			t.left = t.left[1:]
		case <-t.done:
			return
		}
	}
}

// keep extends the lease until Run has returned, when ctx ends: at every
// heartbeat, and when the store says that there is a signal. Only ErrLost is
// final; a store that is away for a while must not cost the work in hand.
func (t *Task) keep(ctx context.Context, every time.Duration) {
	news := make(chan struct{}, 1)
	var listener sync.WaitGroup
	defer listener.Wait()
	ctx, stop := context.WithCancel(ctx) // also when the lease is lost
	defer stop()
	listener.Go(func() { t.listen(ctx, news) })

	beat := time.NewTicker(every)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-beat.C:
		case <-news:
		}
		err := t.Extend(ctx)
		if errors.Is(err, ErrLost) {
			return
		}
		if err != nil && ctx.Err() == nil {
			t.log.Warn("cannot renew the lease", "err", err)
		}
	}
}

func (t *Task) listen(ctx context.Context, news chan<- struct{}) {
	for ctx.Err() == nil {
		err := t.store.Wait(ctx, SignalsOf(t.Job.ID))
		if err != nil {
			pause(ctx, storePause)
			continue
		}
		select {
		case news <- struct{}{}:
		default:
		}
	}
}

// settled returns the lease to settle with: as if the signals that the task did
// not receive had not been returned.
func (t *Task) settled() *Lease {
	l := t.Lease()
	if len(t.left) > 0 {
		l.Seen = t.left[0].before
	}
	return l
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
