package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// maxCrashes is where the store itself gives a job up. Workers do so earlier
// and can say why; this is for jobs that kill the worker before it can.
const maxCrashes = 8

// Claim implements Store.
func (s *SQLite) Claim(ctx context.Context, worker string, kinds ...string) (*Lease, error) {
	if err := s.hold(ctx, worker); err != nil {
		return nil, fmt.Errorf("claim a job: %w", err)
	}
	if len(kinds) == 0 {
		return nil, ErrEmpty
	}
	var l *Lease
	err := s.write(ctx, func(t *tx) (err error) {
		l, err = s.claim(t, worker, kinds)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim a job: %w", err)
	}
	if l == nil {
		return nil, ErrEmpty
	}
	return l, nil
}

// claim takes over what was abandoned, else the job whose turn it is. A nil
// lease means that there is none.
func (s *SQLite) claim(t *tx, worker string, kinds []string) (*Lease, error) {
	now := s.now()
	if now.Sub(s.dropped) >= dropPeriod {
		if err := drop(t, now); err != nil {
			return nil, err
		}
		s.dropped = now
	}
	_, err := t.exec(`UPDATE jobs SET state = 'queued', due = 0 WHERE due > 0 AND due <= ?`, nanos(now))
	if err != nil {
		return nil, err
	}
	abandoned, err := s.abandoned(t, kinds, now)
	if err != nil {
		return nil, err
	}
	for _, a := range abandoned {
		crashes, err := a.crashed(t)
		if err != nil {
			return nil, err
		}
		if crashes <= maxCrashes {
			return s.take(t, a.n, worker, crashes, now)
		}
		cause := fmt.Sprintf("its worker ended without a word %d times in a row, and no step was recorded in between", crashes)
		if _, err := t.exec(`UPDATE jobs SET state = 'buried', due = NULL, crashes = ?, cause = ?, worker = '', until = 0, updated = ?
			WHERE n = ?`, crashes, cause, nanos(now), a.n); err != nil {
			return nil, err
		}
	}
	n, err := next(t, kinds)
	if err != nil || n == 0 {
		return nil, err
	}
	var crashes int
	if err := t.row(`SELECT crashes FROM jobs WHERE n = ?`, n).Scan(&crashes); err != nil {
		return nil, err
	}
	return s.take(t, n, worker, crashes, now)
}

// A loose job is running by its row, but its lease ran out or its worker died.
type loose struct {
	n, attempt int64
	crashes    int
}

// abandoned returns the loose jobs of some kinds, the longest abandoned first.
// They stay running until they are taken over: their worker may yet come back
// and extend, and no job of their key may start meanwhile.
func (s *SQLite) abandoned(t *tx, kinds []string, now time.Time) (out []loose, err error) {
	rows, err := t.query(`SELECT n, attempt, crashes, worker, until FROM jobs
		WHERE state = 'running' AND kind IN (`+marks(len(kinds))+`) ORDER BY until`, anys(kinds)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	dead := map[string]bool{}
	for rows.Next() {
		var a loose
		var worker string
		var until int64
		if err := rows.Scan(&a.n, &a.attempt, &a.crashes, &worker, &until); err != nil {
			return nil, err
		}
		if until > nanos(now) {
			gone, asked := dead[worker]
			if !asked {
				gone = s.locks.free(worker)
				dead[worker] = gone
			}
			if !gone {
				continue
			}
		}
		out = append(out, a)
	}
	return out, rows.Err()
}

// crashed counts the crash that ended the job's lease: one more in a row,
// unless the lease had recorded a call or an effect.
func (a loose) crashed(t *tx) (int, error) {
	var last int64
	err := t.row(`SELECT attempt FROM entries WHERE job = ? AND kind <> ? ORDER BY seq DESC LIMIT 1`, a.n, Choice).Scan(&last)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return 0, err
	}
	if last == a.attempt {
		return 0, nil
	}
	return a.crashes + 1, nil
}

// tenantPage is how many tenants next looks at in one go; nearly always the
// first has a job whose key is free.
const tenantPage = 16

// next returns the number of the job whose turn it is, 0 when there is none:
// of the tenant with the fewest running jobs, then of the least recently
// served, the one with the highest priority, then the oldest.
func next(t *tx, kinds []string) (int64, error) {
	for offset := 0; ; offset += tenantPage {
		tenants, err := turns(t, kinds, offset)
		if err != nil {
			return 0, err
		}
		for _, tenant := range tenants {
			n, err := head(t, tenant, kinds)
			if err != nil || n != 0 {
				return n, err
			}
		}
		if len(tenants) < tenantPage {
			return 0, nil
		}
	}
}

// turns returns a page of the tenants with waiting jobs, in their order. For one
// kind an index has the order; for several the lanes of a tenant are added up.
func turns(t *tx, kinds []string, offset int) (tenants []string, err error) {
	query := `SELECT tenant FROM lanes WHERE kind = ? AND waiting > 0 ORDER BY running, served, tenant`
	if len(kinds) > 1 {
		query = `SELECT tenant FROM lanes WHERE kind IN (` + marks(len(kinds)) + `)
			GROUP BY tenant HAVING sum(waiting) > 0 ORDER BY sum(running), max(served), tenant`
	}
	query += fmt.Sprintf(` LIMIT %d OFFSET ?`, tenantPage)
	rows, err := t.query(query, append(anys(kinds), offset)...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var tenant string
		if err := rows.Scan(&tenant); err != nil {
			return nil, err
		}
		tenants = append(tenants, tenant)
	}
	return tenants, rows.Err()
}

// head returns the first job of a tenant whose key is free.
func head(t *tx, tenant string, kinds []string) (best int64, err error) {
	var top int
	for _, kind := range kinds {
		var n int64
		var priority int
		err := t.row(`SELECT j.n, j.priority FROM jobs j
			WHERE j.kind = ? AND j.tenant = ? AND j.state = 'queued' AND j.due = 0
			AND (j.key = '' OR NOT EXISTS (
				SELECT 1 FROM jobs r WHERE r.kind = j.kind AND r.key = j.key AND r.key <> '' AND r.state = 'running'))
			ORDER BY j.priority DESC, j.n LIMIT 1`, kind, tenant).Scan(&n, &priority)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return 0, err
		}
		if best == 0 || priority > top || priority == top && n < best {
			best, top = n, priority
		}
	}
	return best, nil
}

// take writes a lease.
func (s *SQLite) take(t *tx, n int64, worker string, crashes int, now time.Time) (*Lease, error) {
	until := instant(nanos(now.Add(s.lease))) // the wall clock's, also across a sleep of the host
	_, err := t.exec(`UPDATE jobs SET state = 'running', due = NULL, not_before = 0, attempt = attempt + 1, crashes = ?, cause = '',
		worker = ?, until = ?, heard = (SELECT coalesce(max(n), 0) FROM signals WHERE job = jobs.n), updated = ? WHERE n = ?`,
		crashes, worker, nanos(until), nanos(now), n)
	if err != nil {
		return nil, err
	}
	j, err := scanJob(t.row(selectJob+` WHERE j.n = ?`, n))
	if err != nil {
		return nil, err
	}
	_, err = t.exec(`UPDATE lanes SET served = (SELECT max(served) FROM lanes) + 1 WHERE kind = ? AND tenant = ?`, j.Kind, j.Tenant)
	if err != nil {
		return nil, err
	}
	return &Lease{Job: j, Attempt: j.Attempt, Worker: worker, Until: until, Crashes: crashes}, nil
}

// held is a job in the hands of the lease that was asked about.
type held struct{ n, heard int64 }

// fence answers ErrLost unless the lease is still the job's newest.
func fence(t *tx, l *Lease) (held, error) {
	var h held
	err := t.row(`SELECT n, heard FROM jobs WHERE id = ? AND attempt = ? AND state = 'running'`, l.Job.ID, l.Attempt).
		Scan(&h.n, &h.heard)
	if errors.Is(err, sql.ErrNoRows) {
		return held{}, ErrLost
	}
	return h, err
}

// Extend implements Store.
func (s *SQLite) Extend(ctx context.Context, l *Lease) ([]Signal, error) {
	var until time.Time
	var signals []Signal
	seen := l.Seen
	err := s.write(ctx, func(t *tx) error {
		h, err := fence(t, l)
		if err != nil {
			return err
		}
		until = instant(nanos(s.now().Add(s.lease)))
		if _, err := t.exec(`UPDATE jobs SET until = ? WHERE n = ?`, nanos(until), h.n); err != nil {
			return err
		}
		signals, seen, err = unheard(t, h.n, l.Seen)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("extend the lease of job %s: %w", l.Job.ID, err)
	}
	l.Until, l.Seen = until, seen
	return signals, nil
}

// unheard returns the signals after a number, and the number of the last.
func unheard(t *tx, job, after int64) (out []Signal, last int64, err error) {
	rows, err := t.query(`SELECT n, id, kind, body, reopen, sent FROM signals WHERE job = ? AND n > ? ORDER BY n`, job, after)
	if err != nil {
		return nil, after, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	last = after
	for rows.Next() {
		var g Signal
		var sent int64
		if err := rows.Scan(&last, &g.ID, &g.Kind, (*[]byte)(&g.Body), &g.Reopen, &sent); err != nil {
			return nil, after, err
		}
		g.Sent = instant(sent)
		out = append(out, g)
	}
	return out, last, rows.Err()
}

// Done implements Store.
func (s *SQLite) Done(ctx context.Context, l *Lease) error {
	return s.settle(ctx, l, func(t *tx, h held) error { return s.finish(t, h, l, Done, "") })
}

// Bury implements Store.
func (s *SQLite) Bury(ctx context.Context, l *Lease, cause error) error {
	return s.settle(ctx, l, func(t *tx, h held) error { return s.finish(t, h, l, Buried, text(cause)) })
}

// recalled reports whether a reopening signal came too late for this lease to
// see it: whoever sent it was told that the job would go on.
func (h held) recalled(t *tx, l *Lease) (recalled bool, err error) {
	err = t.row(`SELECT EXISTS (SELECT 1 FROM signals WHERE job = ? AND n > ? AND reopen)`, h.n, max(h.heard, l.Seen)).Scan(&recalled)
	return recalled, err
}

// finish ends a job, unless it was recalled.
func (s *SQLite) finish(t *tx, h held, l *Lease, state State, cause string) error {
	recalled, err := h.recalled(t, l)
	if err != nil {
		return err
	}
	if recalled {
		_, err = t.exec(`UPDATE jobs SET state = 'queued', due = 0, retries = 0, crashes = 0, verdict = '', judged = 0,
			worker = '', until = 0, updated = ? WHERE n = ?`, nanos(s.now()), h.n)
		return err
	}
	_, err = t.exec(`UPDATE jobs SET state = ?, due = NULL, crashes = 0, verdict = '', judged = 0, cause = ?, worker = '', until = 0,
		updated = ? WHERE n = ?`,
		string(state), cause, nanos(s.now()), h.n)
	return err
}

// Park implements Store.
func (s *SQLite) Park(ctx context.Context, l *Lease, until time.Time, cause error) error {
	return s.settle(ctx, l, func(t *tx, h held) error {
		var unread bool
		if err := t.row(`SELECT EXISTS (SELECT 1 FROM signals WHERE job = ? AND n > ?)`, h.n, l.Seen).Scan(&unread); err != nil {
			return err
		}
		now := s.now()
		state, due := Parked, sql.NullInt64{Int64: nanos(until), Valid: !until.IsZero()}
		if unread || due.Valid && !until.After(now) {
			state, due, until = Queued, sql.NullInt64{Int64: 0, Valid: true}, time.Time{}
		}
		_, err := t.exec(`UPDATE jobs SET state = ?, due = ?, not_before = ?, retries = retries + ?, crashes = 0, cause = ?,
			worker = '', until = 0, updated = ? WHERE n = ?`,
			string(state), due, nanos(until), charge(cause), text(cause), nanos(now), h.n)
		if err != nil || verdict(cause) == "" {
			return err
		}
		return s.judge(t, h, l, verdict(cause))
	})
}

// judge leaves a verdict on a job that was parked, unless it was recalled.
func (s *SQLite) judge(t *tx, h held, l *Lease, verdict string) error {
	recalled, err := h.recalled(t, l)
	if err != nil {
		return err
	}
	if recalled {
		return lift(t, h.n)
	}
	_, err = t.exec(`UPDATE jobs SET verdict = ?, judged = ? WHERE n = ? AND verdict = ''`, verdict, nanos(s.now()), h.n)
	return err
}

// lift takes a verdict back, and what led to it.
func lift(t *tx, n int64) error {
	_, err := t.exec(`UPDATE jobs SET verdict = '', judged = 0, retries = 0, crashes = 0 WHERE n = ? AND verdict <> ''`, n)
	return err
}

func (s *SQLite) settle(ctx context.Context, l *Lease, to func(*tx, held) error) error {
	err := s.write(ctx, func(t *tx) error {
		h, err := fence(t, l)
		if err != nil {
			return err
		}
		return to(t, h)
	})
	if err != nil {
		return fmt.Errorf("settle job %s: %w", l.Job.ID, err)
	}
	s.bell.ring(l.Job.Kind) // it may be claimable, or have freed its key
	return nil
}

// text is what is kept of a cause.
func text(cause error) string {
	if cause == nil {
		return ""
	}
	return cause.Error()
}
