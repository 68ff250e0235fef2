package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Replay plays recordings: it writes the files, emits the events and returns
// the result of the recording of a call's step. It starts no process and asks
// no model.
type Replay struct {
	opts   ReplayOptions
	byStep map[string][]Recording // by step, in the order of the calls

	mu     sync.Mutex
	played map[string]int // calls of a step so far
}

// ReplayOptions say how recordings are matched.
type ReplayOptions struct {
	Strict bool // the digest of the call's input must be the recorded one, too
}

// NewReplay returns a runtime that plays recordings. Where a step has several,
// its first call plays the first, and so on; the last is played again for
// every further call.
func NewReplay(recordings []Recording, opts ReplayOptions) (*Replay, error) {
	byStep := make(map[string][]Recording)
	for _, r := range recordings {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		byStep[r.Step] = append(byStep[r.Step], r)
	}
	return &Replay{opts: opts, byStep: byStep, played: make(map[string]int)}, nil
}

// Run plays the recording of c.Step. A step without one fails and is named.
func (r *Replay) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	rec, err := r.next(c)
	if err != nil {
		return Result{}, err
	}
	run, w := newWatch(ctx, c)
	defer w.end()

	// The delay is spread over the events, so that a listener sees progress.
	pause := time.Duration(rec.DelayMS) * time.Millisecond / time.Duration(max(1, len(rec.Events)))
	total := 0
	for _, e := range rec.Events {
		if total += len(e.Text) + len(e.Input); total > maxOutput {
			return Result{}, errTooMuch()
		}
		w.pause()
		emit(e)
		w.alive()
		if !sleep(run, pause) {
			return Result{}, verdict(ctx, run, "replay", nil)
		}
	}
	if len(rec.Events) == 0 && !sleep(run, pause) {
		return Result{}, verdict(ctx, run, "replay", nil)
	}
	if err := rec.write(c); err != nil {
		return Result{}, &Error{Class: Refused, Reason: fmt.Sprintf("step %s: the recorded files cannot be written: %v", c.Step, err), Err: err}
	}
	if e := rec.Error; e != nil {
		return rec.Result, &Error{Class: e.Class, Reason: e.Reason, After: time.Duration(e.AfterMS) * time.Millisecond}
	}
	return rec.Result, nil
}

// next returns the recording that the coming call of c.Step plays.
func (r *Replay) next(c Call) (Recording, error) {
	turns := r.byStep[c.Step]
	if len(turns) == 0 {
		return Recording{}, &Error{Class: Refused, Reason: fmt.Sprintf("there is no recording of step %s", c.Step)}
	}
	r.mu.Lock()
	n := r.played[c.Step]
	r.played[c.Step]++
	r.mu.Unlock()

	rec := turns[min(n, len(turns)-1)]
	if r.opts.Strict && rec.InputDigest != c.Digest {
		return Recording{}, &Error{Class: Refused, Reason: fmt.Sprintf("step %s was recorded with another input: recorded %s, now %s",
			c.Step, cmp.Or(rec.InputDigest, "none"), cmp.Or(c.Digest, "none"))}
	}
	return rec, nil
}

// write changes the directory of c as rec says.
func (r Recording) write(c Call) error {
	if r.empty() {
		return nil
	}
	if c.ReadOnly {
		return errors.New("the call may not change its directory")
	}
	return r.writeTo(c.Dir)
}

// writeTo changes dir as recorded. os.Root keeps every path inside, also where
// dir holds links that lead out of it.
func (f RecordedFiles) writeTo(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.writeIn(root), root.Close())
}

func (f RecordedFiles) writeIn(root *os.Root) error {
	for _, name := range f.Deleted {
		if err := remove(root, name); err != nil {
			return err
		}
	}
	put := func(name string, content []byte) error {
		mode := fs.FileMode(0o644)
		if slices.Contains(f.Executable, name) {
			mode = 0o755
		}
		if err := makeWay(root, name); err != nil {
			return err
		}
		return root.WriteFile(name, content, mode)
	}
	for _, name := range slices.Sorted(maps.Keys(f.Files)) {
		if err := put(name, []byte(f.Files[name])); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Binary)) {
		if err := put(name, f.Binary[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.Links)) {
		if err := makeWay(root, name); err != nil {
			return err
		}
		if err := root.Symlink(f.Links[name], name); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes a file, and the directories that it leaves empty.
func remove(root *os.Root, name string) error {
	err := root.Remove(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return err
	}
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if root.Remove(dir) != nil {
			break // not empty, or gone
		}
	}
	return nil
}

// makeWay makes the parents of name and removes what stands in its place: a
// link there must not be written through.
func makeWay(root *os.Root, name string) error {
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	return root.RemoveAll(name)
}

// paths returns every path that f names.
func (f RecordedFiles) paths() []string {
	return slices.Concat(slices.Collect(maps.Keys(f.Files)), slices.Collect(maps.Keys(f.Binary)),
		slices.Collect(maps.Keys(f.Links)), f.Executable, f.Deleted)
}

// sleep waits for d and says whether ctx let it.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
