package queue

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"
	"time"
)

// Times are nanoseconds since 1970, 0 for none. due says when a waiting job
// may start: 0 now, else at that time, NULL not by itself.
//
// No index is for jobs of one kind by name, and no LIMIT is a parameter: SQLite
// would look at what is bound to see whether another plan fits, and prepare the
// statement anew each time it is run.
//
// Two promises are unique indexes, so that no code can break them: one running
// job of a kind and key, one unfinished job of a once value. The counters in
// lanes are kept by triggers for the same reason.
var schema = []string{
	`CREATE TABLE jobs (
		n          INTEGER PRIMARY KEY AUTOINCREMENT,
		id         TEXT NOT NULL UNIQUE,
		kind       TEXT NOT NULL,
		key        TEXT NOT NULL,
		once       TEXT NOT NULL,
		tenant     TEXT NOT NULL,
		priority   INTEGER NOT NULL,
		not_before INTEGER NOT NULL,
		state      TEXT NOT NULL CHECK (state IN ('queued', 'running', 'parked', 'done', 'buried')),
		due        INTEGER,
		attempt    INTEGER NOT NULL DEFAULT 0,
		retries    INTEGER NOT NULL DEFAULT 0,
		crashes    INTEGER NOT NULL DEFAULT 0,
		cause      TEXT NOT NULL DEFAULT '',
		worker     TEXT NOT NULL DEFAULT '',
		until      INTEGER NOT NULL DEFAULT 0, -- the end of the lease
		heard      INTEGER NOT NULL DEFAULT 0, -- the last signal sent before the claim
		created    INTEGER NOT NULL,
		updated    INTEGER NOT NULL
	) STRICT`,
	`CREATE INDEX jobs_ready ON jobs (kind, tenant, priority DESC, n) WHERE state = 'queued' AND due = 0`,
	`CREATE INDEX jobs_due ON jobs (due) WHERE due > 0`,
	`CREATE INDEX jobs_leased ON jobs (kind, until) WHERE state = 'running'`,
	`CREATE UNIQUE INDEX jobs_running_key ON jobs (kind, key) WHERE state = 'running' AND key <> ''`,
	`CREATE UNIQUE INDEX jobs_open_once ON jobs (once) WHERE once <> '' AND state IN ('queued', 'running', 'parked')`,
	`CREATE INDEX jobs_unfinished ON jobs (n) WHERE state IN ('queued', 'running', 'parked')`,
	`CREATE INDEX jobs_once ON jobs (once) WHERE once <> ''`,
	`CREATE INDEX jobs_key ON jobs (key) WHERE key <> ''`,
	`CREATE INDEX jobs_finished ON jobs (updated) WHERE state IN ('done', 'buried')`,

	// Apart from jobs: a heartbeat must not write megabytes anew.
	`CREATE TABLE payloads (
		job  INTEGER PRIMARY KEY REFERENCES jobs (n) ON DELETE CASCADE,
		body BLOB NOT NULL
	) STRICT`,
	`CREATE TABLE signals (
		n      INTEGER PRIMARY KEY AUTOINCREMENT,
		job    INTEGER NOT NULL REFERENCES jobs (n) ON DELETE CASCADE,
		id     TEXT NOT NULL,
		kind   TEXT NOT NULL,
		body   BLOB,
		reopen INTEGER NOT NULL,
		sent   INTEGER NOT NULL,
		UNIQUE (job, id)
	) STRICT`,
	`CREATE INDEX signals_of ON signals (job, n)`,
	`CREATE TABLE entries (
		seq         INTEGER PRIMARY KEY AUTOINCREMENT,
		job         INTEGER NOT NULL REFERENCES jobs (n) ON DELETE CASCADE,
		attempt     INTEGER NOT NULL,
		key         TEXT NOT NULL,
		kind        TEXT NOT NULL,
		input       TEXT NOT NULL,
		outcome     BLOB,
		blob        TEXT, -- the SHA-256 of an outcome that lies in a file
		"commit"    TEXT NOT NULL,
		cost_micros INTEGER NOT NULL,
		tokens_input INTEGER NOT NULL, tokens_output INTEGER NOT NULL,
		tokens_cache_read INTEGER NOT NULL, tokens_cache_write INTEGER NOT NULL,
		duration    INTEGER NOT NULL,
		runtime     TEXT NOT NULL,
		model       TEXT NOT NULL,
		credential  TEXT NOT NULL,
		at          INTEGER NOT NULL,
		UNIQUE (job, key)
	) STRICT`,
	`CREATE INDEX entries_of ON entries (job, seq)`,
	`CREATE TABLE takes (
		n      INTEGER PRIMARY KEY,
		bucket TEXT NOT NULL,
		at     INTEGER NOT NULL,
		units  INTEGER NOT NULL,
		keep   INTEGER NOT NULL -- until when some window may count it
	) STRICT`,
	`CREATE INDEX takes_of ON takes (bucket, at)`,
	`CREATE INDEX takes_keep ON takes (keep)`,

	// A lane is what one tenant has of one kind.
	`CREATE TABLE lanes (
		kind    TEXT NOT NULL,
		tenant  TEXT NOT NULL,
		waiting INTEGER NOT NULL DEFAULT 0, -- could start now, but for its key
		running INTEGER NOT NULL DEFAULT 0,
		served  INTEGER NOT NULL DEFAULT 0, -- the greater, the later a job of it was claimed
		PRIMARY KEY (kind, tenant)
	) STRICT, WITHOUT ROWID`,
	`CREATE INDEX lanes_turn ON lanes (kind, running, served, tenant) WHERE waiting > 0`,
	`CREATE INDEX lanes_served ON lanes (served)`,
	`CREATE TRIGGER jobs_added AFTER INSERT ON jobs BEGIN
		INSERT INTO lanes (kind, tenant, waiting)
		VALUES (new.kind, new.tenant, new.state = 'queued' AND new.due IS 0)
		ON CONFLICT DO UPDATE SET waiting = waiting + excluded.waiting;
	END`,
	`CREATE TRIGGER jobs_moved AFTER UPDATE OF state, due ON jobs BEGIN
		INSERT INTO lanes (kind, tenant, waiting, running)
		VALUES (new.kind, new.tenant, new.state = 'queued' AND new.due IS 0, new.state = 'running')
		ON CONFLICT DO UPDATE SET
			waiting = waiting + excluded.waiting - (old.state = 'queued' AND old.due IS 0),
			running = running + excluded.running - (old.state = 'running');
	END`,
}

// judged is what a store of the first version lacks.
var judged = []string{
	`ALTER TABLE jobs ADD COLUMN verdict TEXT NOT NULL DEFAULT ''`,
	`ALTER TABLE jobs ADD COLUMN judged INTEGER NOT NULL DEFAULT 0`, // since when there is a verdict
}

// versions are what makes each version of a store from the one before.
var versions = [][]string{schema, judged}

// keepDeliveries is how long the ids of handled deliveries are remembered:
// GitHub redelivers for three days.
const keepDeliveries = 7 * 24 * time.Hour

// dropPeriod is how often a store that is open drops what has had its time.
const dropPeriod = time.Hour

// prepare makes the tables of a new file, or what an older program's lack.
func prepare(t *tx) error {
	var version int
	if err := t.row(`PRAGMA user_version`).Scan(&version); err != nil {
		return fmt.Errorf("read the version of the store: %w", err)
	}
	if version > len(versions) {
		return fmt.Errorf("the store has version %d, this program knows version %d: use the program that made it", version, len(versions))
	}
	for ; version < len(versions); version++ {
		changes := versions[version]
		if err := t.atomically(append(changes[:len(changes):len(changes)], fmt.Sprintf(`PRAGMA user_version = %d`, version+1))...); err != nil {
			return fmt.Errorf("make version %d of the tables: %w", version+1, err)
		}
	}
	return nil
}

// drop drops what has had its time. It takes the write lock only when there is
// something to do: a status command beside a busy server should not have to wait.
func drop(t *tx, now time.Time) error {
	for _, old := range []struct {
		table, where string
		arg          int64
	}{
		{`jobs`, `kind = 'delivery' AND state IN ('done', 'buried') AND updated < ?`, nanos(now.Add(-keepDeliveries))},
		{`takes`, `keep <= ?`, nanos(now)},
		// Kinds of one job each; the lane comes back if the job does.
		{`lanes`, `substr(kind, 1, 6) = 'local/' AND waiting + running <= ?`, 0},
	} {
		var some bool
		if err := t.row(`SELECT EXISTS (SELECT 1 FROM `+old.table+` WHERE `+old.where+`)`, old.arg).Scan(&some); err != nil {
			return fmt.Errorf("look for old %s: %w", old.table, err)
		}
		if !some {
			continue
		}
		if _, err := t.exec(`DELETE FROM `+old.table+` WHERE `+old.where, old.arg); err != nil {
			return fmt.Errorf("drop old %s: %w", old.table, err)
		}
	}
	return nil
}

// A tx runs statements on the writing connection and keeps them compiled.
type tx struct {
	ctx   context.Context
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
}

func (t *tx) stmt(query string) (*sql.Stmt, error) {
	if st, ok := t.stmts[query]; ok {
		return st, nil
	}
	st, err := t.conn.PrepareContext(t.ctx, query)
	if err != nil {
		return nil, err
	}
	t.stmts[query] = st
	return st, nil
}

// forget lets go of the compiled statements.
func (t *tx) forget() {
	for _, st := range t.stmts {
		_ = st.Close() // it only frees
	}
	clear(t.stmts)
}

// exec runs a statement and returns how many rows it changed.
func (t *tx) exec(query string, args ...any) (int64, error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

// insert inserts one row, or none, and returns its number, or 0. It is an exec: rows
// that a statement returns cost as much again as the statement.
func (t *tx) insert(query string, args ...any) (row int64, err error) {
	st, err := t.stmt(query)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(t.ctx, args...)
	if err != nil {
		return 0, err
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 {
		return 0, err
	}
	return res.LastInsertId()
}

func (t *tx) query(query string, args ...any) (*sql.Rows, error) {
	st, err := t.stmt(query)
	if err != nil {
		return nil, err
	}
	return st.QueryContext(t.ctx, args...)
}

func (t *tx) row(query string, args ...any) scanner {
	st, err := t.stmt(query)
	if err != nil {
		return failedRow{err}
	}
	return st.QueryRowContext(t.ctx, args...)
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// atomically runs statements that are used once, all or none.
func (t *tx) atomically(queries ...string) error {
	if err := t.plain(`BEGIN IMMEDIATE`); err != nil {
		return err
	}
	for _, q := range append(queries[:len(queries):len(queries)], `COMMIT`) {
		if err := t.plain(q); err != nil {
			_ = t.plain(`ROLLBACK`) // the first error is the one that counts
			return err
		}
	}
	return nil
}

func (t *tx) plain(query string) error {
	_, err := t.conn.ExecContext(t.ctx, query)
	return err
}

// nanos is how a time is stored; far futures are cut to what a column holds.
func nanos(t time.Time) int64 {
	switch {
	case t.IsZero():
		return 0
	case t.Unix() <= 0:
		return 1
	case t.Unix() >= math.MaxInt64/int64(time.Second):
		return math.MaxInt64
	}
	return t.UnixNano()
}

func instant(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}

// marks returns n question marks for an IN list.
func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?, ", n), ", ") }

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}
