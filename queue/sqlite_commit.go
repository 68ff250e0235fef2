package queue

import (
	"context"
	"errors"
	"runtime"
)

// A request is one change on its way to the writer, which owns it from then on.
type request struct {
	ctx  context.Context
	do   func(*tx) error
	done chan error
	kind change
}

// A change says what a request changes.
type change int

const (
	several  change = iota
	oneWrite        // its one statement that writes comes first, and is a transaction by itself
)

// maxBatch bounds how many changes share a commit, and so how long one waits.
const maxBatch = 128

// write hands a change to the writer and returns when it is durable or has
// failed. A change that the writer has taken up is waited for even when ctx
// ends: the caller of Claim must learn that it holds a lease.
func (s *SQLite) write(ctx context.Context, do func(*tx) error) error {
	return s.submit(&request{ctx: ctx, do: do, done: make(chan error, 1)})
}

func (s *SQLite) submit(r *request) error {
	select {
	case s.requests <- r:
		return <-r.done
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-s.closing:
		return errClosed
	}
}

// commitLoop is the one writer of this process.
func (s *SQLite) commitLoop(t *tx) {
	// Nobody is left to tell; closing the pool reports what matters.
	defer func() {
		t.forget() // else SQLite keeps the file open, with its log
		_ = t.conn.Close()
	}()
	for {
		select {
		case <-s.closing:
			return
		case r := <-s.requests:
			s.commit(t, s.gather(r))
		}
	}
}

// gather collects the changes that wait beside the first.
func (s *SQLite) gather(first *request) []*request {
	batch := []*request{first}
	runtime.Gosched() // those whom the last commit answered often have more
	for len(batch) < maxBatch {
		select {
		case r := <-s.requests:
			batch = append(batch, r)
		default:
			return batch
		}
	}
	return batch
}

// commit makes a batch durable in one transaction, each change under its own
// savepoint, so that one that fails does not fail its neighbours. The lock is
// taken at the start (IMMEDIATE): a transaction that reads first and then
// wants to write cannot wait for another process, it would have to fail.
//
// A change that is alone needs no savepoint: the transaction is its own.
func (s *SQLite) commit(t *tx, batch []*request) {
	if len(batch) == 1 {
		batch[0].done <- t.alone(batch[0])
		return
	}
	results := make([]error, len(batch))
	err := func() error {
		if _, err := t.exec(`BEGIN IMMEDIATE`); err != nil {
			return err
		}
		for i, r := range batch {
			result, err := t.guarded(r)
			if err != nil {
				return err
			}
			results[i] = result
		}
		_, err := t.exec(`COMMIT`)
		return err
	}()
	if err != nil {
		_, _ = t.exec(`ROLLBACK`) // fails when SQLite has rolled back by itself
	}
	for i, r := range batch {
		if results[i] == nil {
			results[i] = err
		}
		r.done <- results[i]
	}
}

// alone commits one change, or nothing where it fails.
func (t *tx) alone(r *request) error {
	if err := r.ctx.Err(); err != nil {
		return err
	}
	if r.kind == oneWrite {
		return r.do(t)
	}
	_, err := t.exec(`BEGIN IMMEDIATE`)
	if err == nil {
		err = r.do(t)
	}
	if err == nil {
		_, err = t.exec(`COMMIT`)
	}
	if err != nil {
		_, _ = t.exec(`ROLLBACK`) // fails when SQLite has rolled back by itself
	}
	return err
}

// guarded runs one change. The second error is the transaction's own: after it
// nothing of the batch may be kept.
func (t *tx) guarded(r *request) (result, broken error) {
	if err := r.ctx.Err(); err != nil {
		return err, nil
	}
	if _, err := t.exec(`SAVEPOINT change`); err != nil {
		return nil, err
	}
	result = r.do(t)
	if result != nil {
		if _, err := t.exec(`ROLLBACK TO change`); err != nil {
			return nil, errors.Join(result, err)
		}
	}
	_, broken = t.exec(`RELEASE change`)
	return result, broken
}
