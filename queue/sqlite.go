package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	_ "modernc.org/sqlite" // registers the driver "sqlite"
)

// SQLite is the embedded back end: one file that several processes of one host
// may have open at once.
//
// All changes of one process go through one goroutine, which commits what has
// gathered while the previous commit reached the disk (group commit). Readers
// have connections of their own and never wait for it.
//
// Below its directory lie queue.db, the outcomes too large for a row
// (blobs/<aa>/<sha256>), and one lock file for each worker (workers/), which
// the kernel frees when the worker's process ends, however it ends.
type SQLite struct {
	ctx   context.Context // values of the opener's, never cancelled: a commit is not interrupted
	now   func() time.Time
	lease time.Duration

	writer  *sql.DB
	readers *sql.DB
	blobs   blobs
	locks   *locks
	bell    *bell

	requests chan *request
	changed  chan struct{} // a commit of ours may have news for the bell
	closing  chan struct{}
	close    func() error
	running  sync.WaitGroup

	dropped time.Time // when what has had its time was last dropped; owned by who commits
}

// leaseTime is how long a lease lasts, unless a test says otherwise.
const leaseTime = 15 * time.Second

var errClosed = errors.New("the store is closed")

// OpenSQLite opens the store in a directory, which it makes if necessary. It
// refuses network file systems, where neither SQLite's locks nor the workers'
// can be relied on. The store lives until Close, whatever happens to ctx.
func OpenSQLite(ctx context.Context, dir string) (*SQLite, error) {
	return openSQLite(ctx, dir, leaseTime, time.Now)
}

func openSQLite(ctx context.Context, dir string, lease time.Duration, now func() time.Time) (*SQLite, error) {
	s, err := connect(ctx, dir, lease, now)
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", dir, err)
	}
	return s, nil
}

func connect(ctx context.Context, dir string, lease time.Duration, now func() time.Time) (_ *SQLite, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	workers := filepath.Join(dir, "workers")
	if err := os.MkdirAll(workers, 0o700); err != nil {
		return nil, err
	}
	if err := refuseNetwork(dir); err != nil {
		return nil, err
	}
	// One opener at a time: turning WAL on, making the tables and removing
	// stale locks are no places to race.
	unlock, err := lockFile(ctx, filepath.Join(dir, "open.lock"))
	if err != nil {
		return nil, err
	}
	defer unlock()

	s := &SQLite{
		ctx: context.WithoutCancel(ctx), now: now, lease: lease,
		blobs:    blobs{dir: filepath.Join(dir, "blobs")},
		bell:     newBell(),
		requests: make(chan *request),
		changed:  make(chan struct{}, 1),
		closing:  make(chan struct{}),
	}
	s.close = sync.OnceValue(s.shutdown)
	s.locks = &locks{dir: workers, held: map[string]*os.File{}}
	s.locks.sweep(func(string) error { return nil }) // a missing file says that its worker is dead

	file := filepath.Join(dir, "queue.db")
	if s.writer, err = openDB(file, "rwc"); err != nil {
		return nil, err
	}
	if s.readers, err = openDB(file, "rw"); err != nil {
		return nil, errors.Join(err, s.writer.Close())
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.readers.Close(), s.writer.Close())
	}
	return s, nil
}

// openDB opens a pool. busy_timeout comes first, so that the other settings
// wait too when another process holds the file.
func openDB(file, mode string) (*sql.DB, error) {
	dsn := "file:" + escapePath(file) + "?mode=" + mode +
		"&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	db.SetMaxIdleConns(4)
	return db, nil
}

// escapePath makes a path safe inside a file: URI.
func escapePath(path string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}

// start prepares the tables and sets the two goroutines to work.
func (s *SQLite) start() error {
	conn, err := s.writer.Conn(s.ctx)
	if err != nil {
		return err
	}
	t := &tx{ctx: s.ctx, conn: conn, stmts: map[string]*sql.Stmt{}}
	if err := prepare(t); err != nil {
		return errors.Join(err, conn.Close())
	}
	watch, err := newWatch(s.ctx, s.readers)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	s.running.Go(func() { s.commitLoop(t) })
	s.running.Go(func() { s.watchLoop(watch) })
	return nil
}

// Close ends the store: what was accepted is committed, every Wait returns,
// and the locks of its workers are free, so that others may take their leases.
func (s *SQLite) Close() error { return s.close() }

func (s *SQLite) shutdown() error {
	close(s.closing)
	s.running.Wait()
	return errors.Join(s.locks.release(func(string) error { return nil }), s.readers.Close(), s.writer.Close())
}

// Put implements Store.
func (s *SQLite) Put(ctx context.Context, j Job) (open Job, added bool, err error) {
	if j.ID == "" || j.Kind == "" {
		return Job{}, false, fmt.Errorf("put a job: id %q and kind %q must not be empty", j.ID, j.Kind)
	}
	err = s.write(ctx, func(t *tx) error {
		there, err := scanJob(t.row(selectJob+` WHERE j.id = ?`, j.ID))
		if errors.Is(err, sql.ErrNoRows) && j.Once != "" {
			there, err = scanJob(t.row(selectJob+` WHERE j.once = ? AND j.once <> '' AND j.state IN ('queued', 'running', 'parked')`, j.Once))
		}
		if err == nil {
			open, added = there, false
			return nil
		}
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		open, err = insertJob(t, j, s.now())
		added = true
		return err
	})
	if err != nil {
		return Job{}, false, fmt.Errorf("put job %s: %w", j.ID, err)
	}
	if added {
		s.poke()
	}
	return open, added, nil
}

func insertJob(t *tx, j Job, now time.Time) (Job, error) {
	due := int64(0)
	if j.NotBefore.After(now) {
		due = nanos(j.NotBefore)
	}
	var n int64
	err := t.row(`INSERT INTO jobs (id, kind, key, once, tenant, priority, not_before, state, due, created, updated)
		VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, ?) RETURNING n`,
		j.ID, j.Kind, j.Key, j.Once, j.Tenant, j.Priority, nanos(j.NotBefore), due, nanos(now), nanos(now)).Scan(&n)
	if err != nil {
		return Job{}, err
	}
	if len(j.Payload) > 0 {
		if _, err := t.exec(`INSERT INTO payloads (job, body) VALUES (?, ?)`, n, []byte(j.Payload)); err != nil {
			return Job{}, err
		}
	}
	return scanJob(t.row(selectJob+` WHERE j.n = ?`, n))
}

// Send implements Store.
func (s *SQLite) Send(ctx context.Context, jobID string, g Signal) error {
	if g.ID == "" {
		return fmt.Errorf("send a signal to job %s: it has no id", jobID)
	}
	err := s.write(ctx, func(t *tx) error {
		var n int64
		var state State
		var once string
		err := t.row(`SELECT n, state, once FROM jobs WHERE id = ?`, jobID).Scan(&n, &state, &once)
		if errors.Is(err, sql.ErrNoRows) {
			return ErrUnknown
		}
		if err != nil {
			return err
		}
		var known bool
		if err := t.row(`SELECT EXISTS (SELECT 1 FROM signals WHERE job = ? AND id = ?)`, n, g.ID).Scan(&known); err != nil || known {
			return err
		}
		now := s.now()
		switch {
		case state.Finished() && !g.Reopen:
			return ErrFinished
		case state.Finished():
			err = reopen(t, n, once, now)
		case g.Reopen:
			err = lift(t, n)
		}
		if err == nil && state == Parked {
			_, err = t.exec(`UPDATE jobs SET state = 'queued', due = 0, not_before = 0, updated = ? WHERE n = ?`, nanos(now), n)
		}
		if err != nil {
			return err
		}
		_, err = t.exec(`INSERT INTO signals (job, id, kind, body, reopen, sent) VALUES (?, ?, ?, ?, ?, ?)`,
			n, g.ID, g.Kind, blob(g.Body), g.Reopen, nanos(now))
		return err
	})
	if err != nil {
		return fmt.Errorf("send %s to job %s: %w", g.Kind, jobID, err)
	}
	s.poke()
	return nil
}

// reopen puts a finished job back in the queue with fresh counters: else a job
// that was buried for its retries or crashes would be buried again at once.
func reopen(t *tx, n int64, once string, now time.Time) error {
	var taken bool
	err := t.row(`SELECT EXISTS (SELECT 1 FROM jobs WHERE once = ? AND once <> '' AND state IN ('queued', 'running', 'parked'))`, once).Scan(&taken)
	if err != nil {
		return err
	}
	if taken {
		return ErrOpen
	}
	_, err = t.exec(`UPDATE jobs SET state = 'queued', due = 0, not_before = 0, retries = 0, crashes = 0, cause = '',
		worker = '', updated = ? WHERE n = ?`, nanos(now), n)
	return err
}

// List implements Store.
func (s *SQLite) List(ctx context.Context, q Query) ([]Job, error) {
	var where []string
	var args []any
	also := func(cond string, values ...any) {
		where = append(where, cond)
		args = append(args, values...)
	}
	if len(q.IDs) > 0 {
		also(`j.id IN (`+marks(len(q.IDs))+`)`, anys(q.IDs)...)
	}
	if len(q.Kinds) > 0 {
		var kinds []string
		for _, k := range q.Kinds {
			if strings.HasSuffix(k, "/") {
				kinds = append(kinds, `substr(j.kind, 1, length(?)) = ?`)
				args = append(args, k, k)
			} else {
				kinds = append(kinds, `j.kind = ?`)
				args = append(args, k)
			}
		}
		also(`(` + strings.Join(kinds, ` OR `) + `)`)
	}
	if q.Once != "" {
		also(`j.once = ? AND j.once <> ''`, q.Once)
	}
	if q.Key != "" {
		also(`j.key = ? AND j.key <> ''`, q.Key)
	}
	if q.Unfinished {
		also(`j.state IN ('queued', 'running', 'parked')`)
	}
	query := selectJob
	if len(where) > 0 {
		query += ` WHERE ` + strings.Join(where, ` AND `)
	}
	limit := q.Limit
	if limit <= 0 {
		limit = 100
	}
	jobs, err := s.readJobs(ctx, fmt.Sprintf(`%s ORDER BY j.n DESC LIMIT %d`, query, limit), args...)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	return jobs, nil
}

func (s *SQLite) readJobs(ctx context.Context, query string, args ...any) (jobs []Job, err error) {
	rows, err := s.readers.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		j, err := scanJob(rows)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, j)
	}
	return jobs, rows.Err()
}

const selectJob = `SELECT j.id, j.kind, j.key, j.once, j.tenant, j.priority, j.not_before, j.state, j.attempt,
	j.retries, j.cause, j.worker, j.verdict, j.judged, j.created, j.updated, p.body FROM jobs j LEFT JOIN payloads p ON p.job = j.n`

type scanner interface{ Scan(dest ...any) error }

func scanJob(row scanner) (Job, error) {
	var j Job
	var notBefore, judged, created, updated int64
	err := row.Scan(&j.ID, &j.Kind, &j.Key, &j.Once, &j.Tenant, &j.Priority, &notBefore, &j.State, &j.Attempt,
		&j.Retries, &j.Cause, &j.Worker, &j.Verdict.Cause, &judged, &created, &updated, (*[]byte)(&j.Payload))
	j.NotBefore, j.Verdict.Since, j.Created, j.Updated = instant(notBefore), instant(judged), instant(created), instant(updated)
	return j, err
}

// blob is what a column holds for a JSON text: NULL when there is none.
func blob(raw json.RawMessage) []byte {
	if len(raw) == 0 {
		return nil
	}
	return raw
}
