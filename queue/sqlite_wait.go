package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// watchPeriod is how soon other processes' commits are noticed.
const watchPeriod = 250 * time.Millisecond

// Wait implements Store.
func (s *SQLite) Wait(ctx context.Context, kinds ...string) error {
	return s.bell.wait(ctx, s.closing, kinds)
}

// poke tells the watch that a commit of this process has news.
func (s *SQLite) poke() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// A watch follows the file: what is new in it since it last looked. It has a
// connection of its own, which never writes: data_version tells a connection
// about the commits of all others.
type watch struct {
	conn                 *sql.Conn
	version, job, signal int64
}

func newWatch(ctx context.Context, db *sql.DB) (*watch, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	w := &watch{conn: conn}
	err = conn.QueryRowContext(ctx, `SELECT (SELECT coalesce(max(n), 0) FROM jobs), (SELECT coalesce(max(n), 0) FROM signals)`).
		Scan(&w.job, &w.signal)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("watch the store: %w", err), conn.Close())
	}
	return w, nil
}

// watchLoop rings for every new job and signal, of this process at once and of
// others at the next look. An error is left to the next look: those who wait
// for jobs come back in any case.
func (s *SQLite) watchLoop(w *watch) {
	defer func() { _ = w.conn.Close() }() // the pool's closing reports what matters
	look := time.NewTicker(watchPeriod)
	defer look.Stop()
	for {
		select {
		case <-s.closing:
			return
		case <-s.changed:
		case <-look.C:
			if !w.moved(s.ctx) {
				continue
			}
		}
		topics, err := w.news(s.ctx)
		if err == nil {
			s.bell.ring(topics...)
		}
	}
}

func (w *watch) moved(ctx context.Context) bool {
	var version int64
	if err := w.conn.QueryRowContext(ctx, `PRAGMA data_version`).Scan(&version); err != nil || version == w.version {
		return false
	}
	w.version = version
	return true
}

// news returns the topics of the jobs and signals that came since it was last
// asked. A signal concerns its job's kind too: it may have woken the job.
func (w *watch) news(ctx context.Context) (topics []string, err error) {
	job, signal := w.job, w.signal
	rows, err := w.conn.QueryContext(ctx, `
		SELECT kind, '', max(n), 0 FROM jobs WHERE n > ? GROUP BY kind
		UNION ALL
		SELECT j.kind, j.id, 0, max(g.n) FROM signals g JOIN jobs j ON j.n = g.job WHERE g.n > ? GROUP BY j.n`, job, signal)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var kind, id string
		var j, g int64
		if err := rows.Scan(&kind, &id, &j, &g); err != nil {
			return nil, err
		}
		job, signal = max(job, j), max(signal, g)
		topics = append(topics, kind)
		if id != "" {
			topics = append(topics, SignalsOf(id))
		}
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	w.job, w.signal = job, signal
	return topics, nil
}
