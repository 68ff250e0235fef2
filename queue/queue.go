// Package queue holds jobs and what they have done: one durable store for work
// that waits, work that runs, the signals sent to it, the journal of its steps,
// and the limits that all workers share.
//
// A job is put once, claimed under a lease, and settled by Done, Park or Bury.
// Execution is at least once: a worker that dies leaves a lease that somebody
// else takes over. What makes results happen once is the fence: every settle
// and every append carries the attempt of its lease, and a worker whose attempt
// is no longer the job's newest gets ErrLost.
//
// Promises, held by the suite in queuetest for every back end:
//   - what Put, Send or Append acknowledged survives kill -9 of any process;
//   - jobs of one Kind with an equal, non-empty Key never run together;
//   - at most one unfinished job has a given non-empty Once;
//   - tenants share fairly: sixty jobs of one do not delay another's first;
//   - a crash is not charged to the retry budget, it has a counter of its own.
package queue

import (
	"context"
	"encoding/json"
	"errors"
	"time"
)

// A Job is one unit of work. The first block is the caller's; the second is
// filled in by the store and ignored by Put.
type Job struct {
	ID        string          `json:"id"`                  // unique for ever; Put of a known ID returns what is there
	Kind      string          `json:"kind"`                // who can run it: delivery, build, local/<id>
	Key       string          `json:"key,omitempty"`       // jobs of one Kind and Key run one at a time
	Once      string          `json:"once,omitempty"`      // at most one unfinished job has this value
	Tenant    string          `json:"tenant,omitempty"`    // the installation, for fair sharing
	Priority  int             `json:"priority,omitempty"`  // higher first, within a tenant
	NotBefore time.Time       `json:"not_before,omitzero"` // earliest start
	Payload   json.RawMessage `json:"payload,omitempty"`

	State   State     `json:"state,omitempty"`
	Attempt int64     `json:"attempt,omitempty"` // how often it was claimed; the fence
	Retries int       `json:"retries,omitempty"` // how often it was parked with a retryable cause
	Cause   string    `json:"cause,omitempty"`   // why it is parked or buried
	Worker  string    `json:"worker,omitempty"`  // who holds the lease
	Verdict Verdict   `json:"verdict,omitzero"`  // says that no worker runs it again
	Created time.Time `json:"created,omitzero"`
	Updated time.Time `json:"updated,omitzero"`
}

// A Verdict is that a job is given up, while nobody could be told of it yet: it
// is claimed only to try that again. A reopening signal lifts it.
type Verdict struct {
	Cause string    `json:"cause,omitempty"` // empty: there is none
	Since time.Time `json:"since,omitzero"`
}

// State is where a job stands.
type State string

// The states of a job. Done and Buried are final until a reopening signal.
const (
	Queued  State = "queued"
	Running State = "running"
	Parked  State = "parked" // waits without a worker for NotBefore or a signal
	Done    State = "done"
	Buried  State = "buried"
)

// Finished reports whether no worker will take the job up by itself.
func (s State) Finished() bool { return s == Done || s == Buried }

// A Lease is the right to run one job until a deadline. The store's methods
// that take a Lease keep Until up to date; nobody else writes it.
type Lease struct {
	Job     Job
	Attempt int64
	Worker  string
	Until   time.Time
	Crashes int   // consecutive claims that ended in a crash without a new call or effect in the journal; a choice is only what was about to be done
	Seen    int64 // the last signal that Extend returned on this lease

	claim string // names the claim among those of an attempt, where a store may lose one
}

// A Signal is something said to a job while it waits or runs.
type Signal struct {
	ID     string          `json:"id"`   // at most one signal of a job has it; a second Send is a no-op
	Kind   string          `json:"kind"` // cancel, resume, …: the receiver's vocabulary
	Body   json.RawMessage `json:"body,omitempty"`
	Reopen bool            `json:"reopen,omitempty"` // puts a finished job back in the queue; without it a finished job answers ErrFinished
	Sent   time.Time       `json:"sent,omitzero"`    // set by the store
}

// EntryKind says what a journal entry records.
type EntryKind string

// The three kinds of journal entry.
const (
	Call   EntryKind = "call"   // an agent call or an engine command
	Effect EntryKind = "effect" // something outside: a push, a comment
	Choice EntryKind = "choice" // whatever timing decided, recorded before it is acted on
)

// An Entry is one step in the journal of a job.
type Entry struct {
	Seq        int64           `json:"seq"` // given by the store, ascending within a job, gaps allowed
	Key        string          `json:"key"` // unique within a job: a second Append of a key answers ErrRecorded
	Kind       EntryKind       `json:"kind"`
	Input      string          `json:"input,omitempty"` // digest of what it was given, for audit and replay
	Outcome    json.RawMessage `json:"outcome,omitempty"`
	Commit     string          `json:"commit,omitempty"`      // the git commit that holds its result
	CostMicros int64           `json:"cost_micros,omitempty"` // millionths of a US dollar
	Tokens     Tokens          `json:"tokens,omitzero"`
	Duration   time.Duration   `json:"duration_ns,omitempty"`
	Runtime    string          `json:"runtime,omitempty"`
	Model      string          `json:"model,omitempty"`
	Credential string          `json:"credential,omitempty"` // digest of the step's attestation
	At         time.Time       `json:"at,omitzero"`          // set by the store when it is zero
}

// Tokens counts what a model read and wrote.
type Tokens struct {
	Input      int64 `json:"input,omitempty"`
	Output     int64 `json:"output,omitempty"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
}

// A Limit is a set of rates that must all have room. An empty Limit always has.
type Limit []Rate

// A Rate allows Max units in any window of length Per.
type Rate struct {
	Max int64
	Per time.Duration
}

// closes is the Max of the rate that Closed makes.
const closes = -1

// Closed is the limit by which Take closes a bucket: nobody gets anything from it
// until so long has passed, whatever the limit of whoever asks. Closing it for a
// shorter time does not open it earlier, and giving back does not either.
func Closed(d time.Duration) Limit { return Limit{{Max: closes, Per: d}} }

func (l Limit) closes() bool { return len(l) == 1 && l[0].Max == closes }

// A Query selects jobs. Zero fields select everything.
type Query struct {
	IDs        []string
	Kinds      []string // a kind that ends in "/" selects every kind with that prefix
	Once       string
	Key        string
	Unfinished bool
	Limit      int // newest first; 0 means 100
}

// The errors that callers tell apart.
var (
	ErrEmpty    = errors.New("no job can be claimed now")
	ErrLost     = errors.New("the lease is lost: another worker has the job")
	ErrFinished = errors.New("the job is finished")
	ErrUnknown  = errors.New("no such job")
	ErrRecorded = errors.New("the step is recorded already")
	ErrOpen     = errors.New("another unfinished job has the same once value")
)

// SignalsOf names the topic on which Wait reports signals to a job.
func SignalsOf(jobID string) string { return "signals:" + jobID }

// Store is the one back-end interface. Each implementation passes queuetest.
type Store interface {
	// Put adds a job. A known ID, or a Once that an unfinished job has, adds
	// nothing and returns the job that is there with added == false.
	Put(ctx context.Context, j Job) (open Job, added bool, err error)
	// Claim leases the next job of one of the kinds, or answers ErrEmpty. A
	// lease that ran out, or whose worker's process is gone, is taken over. The
	// name of a worker belongs to one process.
	Claim(ctx context.Context, worker string, kinds ...string) (*Lease, error)
	// Extend renews the lease and returns the signals not yet returned on it,
	// in the order of sending: on a new lease all that the job ever got.
	// An expired lease that nobody claimed extends; else ErrLost.
	Extend(ctx context.Context, l *Lease) ([]Signal, error)
	// Done settles the job as finished. A reopening signal that was sent during
	// this lease and that Extend did not return puts it back in the queue.
	Done(ctx context.Context, l *Lease) error
	// Park puts the job aside until a time or a signal, whichever is first.
	// A zero until waits for a signal alone. A nil cause is a wait that is not
	// charged; a cause counts as a retry, but for that of a Turn, and Untold leaves
	// a Verdict. A signal not yet returned by Extend
	// on this lease makes the job claimable at once.
	Park(ctx context.Context, l *Lease, until time.Time, cause error) error
	// Bury settles the job as failed for good, with the same exception as Done.
	Bury(ctx context.Context, l *Lease, cause error) error
	// Send delivers a signal durably, once per Signal.ID, and wakes a parked job.
	// A reopened job starts with fresh counters of retries and crashes, as does
	// one whose Verdict a reopening signal lifts; it answers ErrOpen while
	// another unfinished job has its Once.
	Send(ctx context.Context, jobID string, s Signal) error
	// Append records a step, fenced by the lease's attempt. It only reads the
	// lease, so steps may be appended while another goroutine extends a copy.
	Append(ctx context.Context, l *Lease, e Entry) (seq int64, err error)
	// Entries returns the journal of a job after a sequence number, in order,
	// or ErrUnknown. It is a slice: an open cursor would dead-lock the one writer of SQLite.
	Entries(ctx context.Context, jobID string, after int64) ([]Entry, error)
	// Take takes n units from a shared bucket if every rate has room, else it
	// takes nothing and says how long to wait before there may be. More than a
	// rate's Max at once is an error: it would never fit. A negative n gives
	// units back; the limit's longest Per then says how long ago they were taken,
	// at the least, and its Max is not looked at. The newest units of that age go
	// first. Giving back more than is taken leaves nothing taken; the wait is 0.
	// With a limit of Closed it closes the bucket, whatever n is. With n 0 and no
	// limit it takes nothing and says how long the bucket is closed.
	Take(ctx context.Context, bucket string, n int64, limit Limit) (wait time.Duration, err error)
	// Wait blocks until something may have happened on one of the kinds (or
	// SignalsOf a job). It may return early; it returns ctx's error when done.
	Wait(ctx context.Context, kinds ...string) error
	// List returns jobs, newest first.
	List(ctx context.Context, q Query) ([]Job, error)
}
