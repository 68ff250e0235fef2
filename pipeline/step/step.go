// Package step makes a thing happen once per name. A Journal is the record of
// one job: Do returns what is recorded under a key, or runs the function and
// records its outcome before anyone sees it. A crashed job that runs again
// walks through the same keys and gets the same answers, so it arrives where it
// was without repeating a paid call.
//
// Promises: a recorded key is never run again, whatever its input is now; an
// error of the function is not recorded, an outcome is a value; a record whose
// git commit is gone counts as not recorded; a worker that lost its lease can
// record nothing.
package step

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// Log is the part of a store that a Journal needs.
type Log interface {
	Append(ctx context.Context, l *queue.Lease, e queue.Entry) (int64, error)
	Entries(ctx context.Context, jobID string, after int64) ([]queue.Entry, error)
}

// Entry is one record of a journal.
type Entry = queue.Entry

// Tokens is what a call used, as an Entry holds it.
type Tokens = queue.Tokens

// Options say what a Journal asks and tells.
type Options struct {
	// Has reports whether a commit still exists; nil means every one does.
	Has func(ctx context.Context, commit string) bool
	// Before is called with each call and effect that is about to be recorded;
	// its error keeps the entry from being. Calls overlap.
	Before func(context.Context, queue.Entry) error
	// Recorded hears every entry: those found at Open, in order, then each new
	// one after it is durable. Calls do not overlap.
	Recorded func(queue.Entry)
	// Script is what the run retraces; nil: it goes its own way.
	Script *Script
}

// A Journal is the record of one job under one lease. The lease's holder owns
// it; its methods may be called from many goroutines.
type Journal struct {
	log     Log
	lease   *queue.Lease
	options Options

	mu      sync.Mutex
	entries []queue.Entry          // in order, lost ones left out
	byKey   map[string]queue.Entry // what Do returns
	lost    map[string]int         // key → how many of its records lost their commit
	running map[string]bool

	order sync.Mutex // held while an entry is appended, kept and told
}

// again marks the records that replace one whose commit was lost.
var again = regexp.MustCompile(`@(\d+)$`)

// Open reads the journal of the lease's job.
func Open(ctx context.Context, log Log, lease *queue.Lease, o Options) (*Journal, error) {
	found, err := log.Entries(ctx, lease.Job.ID, 0)
	if err != nil {
		return nil, fmt.Errorf("read the journal of %s: %w", lease.Job.ID, err)
	}
	j := &Journal{
		log: log, lease: lease, options: o,
		byKey: map[string]queue.Entry{}, lost: map[string]int{}, running: map[string]bool{},
	}
	for _, e := range found {
		e.Key = again.ReplaceAllString(e.Key, "")
		if e.Commit != "" && o.Has != nil && !o.Has(ctx, e.Commit) {
			j.lost[e.Key]++
			continue
		}
		j.keep(e)
		if o.Recorded != nil {
			o.Recorded(e)
		}
	}
	if o.Script != nil {
		o.Script.mu.Lock()
		o.Script.journal = j
		o.Script.mu.Unlock()
	}
	return j, nil
}

// Recorder is implemented by outcomes that know more about their entry than
// its JSON: the commit, the cost, the model.
type Recorder interface {
	Record(e *queue.Entry)
}

// Do records a call: an agent's turn or an engine command.
func Do[T any](ctx context.Context, j *Journal, key string, fn func(context.Context) (T, error)) (T, error) {
	return do(ctx, j, queue.Call, key, fn)
}

// Effect records something done outside. The function must be idempotent: a
// crash between the deed and its record repeats it.
func Effect[T any](ctx context.Context, j *Journal, key string, fn func(context.Context) (T, error)) (T, error) {
	return do(ctx, j, queue.Effect, key, fn)
}

// Choose records a decision that depended on timing, before it is acted on.
func Choose[T any](ctx context.Context, j *Journal, key string, value T) (T, error) {
	return do(ctx, j, queue.Choice, key, func(context.Context) (T, error) { return value, nil })
}

// Decide is Choose for a caller that decides on one thing after another: in a
// run that retraces another it answers ErrNotYet where this choice is not what
// comes next. What does is heard of by Grown.
func Decide[T any](ctx context.Context, j *Journal, key string, value T) (T, error) {
	var none T
	if s := j.options.Script; s != nil && !j.has(key) && !s.isDue(key) {
		return none, ErrNotYet
	}
	return Choose(ctx, j, key, value)
}

// Grown is closed when something was recorded, or may be, in a run that retraces
// another. It is nil in all others.
func (j *Journal) Grown() <-chan struct{} {
	s := j.options.Script
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.changed
}

func (j *Journal) has(key string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, known := j.byKey[key]
	return known
}

// Get returns the recorded outcome of key, if there is one.
func Get[T any](j *Journal, key string) (value T, ok bool, err error) {
	j.mu.Lock()
	e, ok := j.byKey[key]
	j.mu.Unlock()
	if !ok {
		return value, false, nil
	}
	value, err = decode[T](e)
	return value, true, err
}

// Entry returns the record of key; without one it is zero.
func (j *Journal) Entry(key string) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.byKey[key]
}

// Choices returns the recorded choices in the order they were made.
func (j *Journal) Choices() []queue.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []queue.Entry
	for _, e := range j.entries {
		if e.Kind == queue.Choice {
			out = append(out, e)
		}
	}
	return out
}

// Entries returns what is recorded so far, in order.
func (j *Journal) Entries() []queue.Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.entries)
}

func do[T any](ctx context.Context, j *Journal, kind queue.EntryKind, key string, fn func(context.Context) (T, error)) (T, error) {
	var none T
	recorded, known, err := j.begin(key)
	if err != nil {
		return none, err
	}
	if known {
		return decode[T](recorded)
	}
	defer j.end(key)

	work, done := ctx, func() {}
	if s := j.options.Script; s != nil && kind != queue.Choice {
		var given queue.Entry
		if work, given, err = s.begin(ctx, key); err != nil {
			return none, err
		}
		if given.Key != "" {
			if given, err = j.append(ctx, given); err != nil {
				return none, err
			}
			return decode[T](given)
		}
		done = s.worked
	}
	start := time.Now()
	value, err := func() (T, error) {
		defer done()
		return fn(work)
	}()
	if err != nil {
		return none, err
	}
	outcome, err := json.Marshal(value)
	if err != nil {
		return none, fmt.Errorf("record %s: %w", key, err)
	}
	e := queue.Entry{Key: key, Kind: kind, Outcome: outcome, Duration: time.Since(start), At: time.Now().UTC()}
	if r, ok := any(value).(Recorder); ok {
		r.Record(&e)
	}
	if e, err = j.append(ctx, e); err != nil {
		return none, err
	}
	// What the first run returns is what every later run will decode.
	return decode[T](e)
}

// begin returns the record of key or marks it as running. It refuses a key that
// runs already: two callers with one name is a mistake in the caller, and both
// would be paid for.
func (j *Journal) begin(key string) (recorded queue.Entry, known bool, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if recorded, known = j.byKey[key]; known {
		return recorded, true, nil
	}
	if j.running[key] {
		return queue.Entry{}, false, fmt.Errorf("step %s is running already", key)
	}
	j.running[key] = true
	return queue.Entry{}, false, nil
}

func (j *Journal) end(key string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.running, key)
}

// append makes e durable and returns it as it is recorded. What is finished is
// recorded even when ctx ended meanwhile: it is paid for.
func (j *Journal) append(ctx context.Context, e queue.Entry) (queue.Entry, error) {
	if s := j.options.Script; s != nil {
		var told bool
		var err error
		if e, told, err = s.end(ctx, e); err != nil {
			return e, err
		}
		if told {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.byKey[e.Key], nil
		}
	}
	if j.options.Before != nil && e.Kind != queue.Choice {
		if err := j.options.Before(ctx, e); err != nil {
			return e, fmt.Errorf("record %s: %w", e.Key, err)
		}
	}
	e, err := j.write(ctx, e)
	if s := j.options.Script; s != nil && err == nil {
		s.recorded(e.Key)
	}
	return e, err
}

func (j *Journal) write(ctx context.Context, e queue.Entry) (queue.Entry, error) {
	// One at a time, so that what is kept and told is in the order of the log.
	j.order.Lock()
	defer j.order.Unlock()
	settle, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Minute)
	defer cancel()
	stored := e
	j.mu.Lock()
	if n := j.lost[e.Key]; n > 0 {
		stored.Key += "@" + strconv.Itoa(n+1)
	}
	j.mu.Unlock()

	n := crashBefore(e.Key)
	seq, err := j.log.Append(settle, j.lease, stored)
	if err != nil {
		return e, fmt.Errorf("record %s: %w", e.Key, err)
	}
	crashAfter(e.Key, n)

	e.Seq = seq
	j.mu.Lock()
	j.keep(e)
	j.mu.Unlock()
	if j.options.Recorded != nil {
		j.options.Recorded(e)
	}
	return e, nil
}

func (j *Journal) keep(e queue.Entry) {
	j.entries = append(j.entries, e)
	j.byKey[e.Key] = e
}

func decode[T any](e queue.Entry) (T, error) {
	var value T
	if err := json.Unmarshal(e.Outcome, &value); err != nil {
		return value, fmt.Errorf("read the record of %s: %w", e.Key, err)
	}
	return value, nil
}
