package queue

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// locks are the lock files of workers. A worker's file is locked as long as its
// process lives; a file that is free, or missing, says that it is dead.
//
// The kernel ties a lock to one opening of a file, not to the process: another
// opening in the same process finds it locked too, which is the right answer.
type locks struct {
	dir string

	mu   sync.Mutex
	held map[string]*os.File
}

// hold takes the lock of a worker before its first claim. Leases of an earlier
// process of that name are to end then, which expire does: while this one holds
// the lock, nobody else could tell that their worker is gone.
func (k *locks) hold(ctx context.Context, worker string, expire func() error) error {
	if worker == "" {
		return errors.New("a worker needs a name")
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held[worker] != nil {
		return nil
	}
	f, err := k.acquire(ctx, worker)
	if err != nil {
		return err
	}
	if err := expire(); err != nil {
		return errors.Join(err, f.Close())
	}
	k.held[worker] = f
	return nil
}

func (s *SQLite) hold(ctx context.Context, worker string) error {
	return s.locks.hold(ctx, worker, func() error {
		return s.write(ctx, func(t *tx) error {
			_, err := t.exec(`UPDATE jobs SET until = 1 WHERE state = 'running' AND worker = ?`, worker)
			return err
		})
	})
}

func (k *locks) path(worker string) string {
	return filepath.Join(k.dir, url.PathEscape(worker)+".lock")
}

// acquire takes a free lock. It tries for a second, since a look at the file by
// another process locks it for a moment.
func (k *locks) acquire(ctx context.Context, worker string) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Second, fmt.Errorf("the worker name %q is in use by another process", worker))
	defer cancel()
	return lock(ctx, k.path(worker))
}

// free reports whether no process holds the lock of a worker. In doubt it says
// no: then the lease runs out by time.
func (k *locks) free(worker string) bool {
	f, err := os.Open(k.path(worker))
	if err != nil {
		return errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close() //nolint:errcheck // opened to look at
	return flock(f, syscall.LOCK_SH) == nil
}

// sweep removes the files of workers that are gone, each after a function has
// taken note of the worker. It locks a file first: a worker that opens it
// meanwhile notices that its path was removed.
func (k *locks) sweep(gone func(worker string) error) {
	files, _ := filepath.Glob(filepath.Join(k.dir, "*.lock"))
	for _, path := range files {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		if flock(f, syscall.LOCK_EX) == nil && samePath(f) {
			worker, err := url.PathUnescape(strings.TrimSuffix(filepath.Base(path), ".lock"))
			if err == nil && gone(worker) == nil {
				_ = os.Remove(path) // the next opener tries again
			}
		}
		_ = f.Close()
	}
}

// release frees and removes every lock of this process, each after a function
// has taken note of its worker; where that fails the file stays, so that others
// see that the worker is gone.
func (k *locks) release(gone func(worker string) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for worker, f := range k.held {
		err := gone(worker)
		if err == nil {
			err = os.Remove(f.Name())
		}
		errs = append(errs, err, f.Close())
		delete(k.held, worker)
	}
	return errors.Join(errs...)
}

// lockFile takes the lock of a file that stays, and returns how to free it.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("another process has been opening it for too long"))
	defer cancel()
	f, err := lock(ctx, path)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// lock opens and locks a file, and makes sure that it is still the one at its
// path. It gives up with the cause of ctx.
func lock(ctx context.Context, path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		err = flock(f, syscall.LOCK_EX)
		if err == nil && samePath(f) {
			return f, nil
		}
		_ = f.Close()
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// flock locks without waiting. Go opens files close-on-exec, so no child
// process keeps a lock alive.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// samePath reports whether a file's path still names it.
func samePath(f *os.File) bool {
	there, err := os.Stat(f.Name())
	if err != nil {
		return false
	}
	mine, err := f.Stat()
	return err == nil && os.SameFile(mine, there)
}
