package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// Take implements Store. The window is exact: it remembers every take for as
// long as the longest rate of its limit. A take leaves a window when it is as
// old as the window is long.
func (s *SQLite) Take(ctx context.Context, bucket string, n int64, limit Limit) (wait time.Duration, err error) {
	switch {
	case limit.closes():
		return 0, s.shut(ctx, bucket, limit[0].Per)
	case len(limit) == 0 && n == 0:
		return s.shutFor(ctx, bucket)
	}
	var longest time.Duration
	for _, r := range limit {
		if n > r.Max && n > 0 {
			return 0, fmt.Errorf("take %d from %s: never possible, the limit is %d per %s", n, bucket, r.Max, r.Per)
		}
		longest = max(longest, r.Per)
	}
	if n < 0 {
		if err := s.write(ctx, func(t *tx) error { return giveBack(t, bucket, -n, s.now(), longest) }); err != nil {
			return 0, fmt.Errorf("give %d back to %s: %w", -n, bucket, err)
		}
		return 0, nil
	}
	if n == 0 || len(limit) == 0 {
		return 0, nil
	}
	err = s.write(ctx, func(t *tx) error {
		now := s.now()
		taken, err := takes(t, bucket, now.Add(-longest))
		if err != nil {
			return err
		}
		if wait, err = closedFor(bucket, now, t.row); err != nil {
			return err
		}
		for _, r := range limit {
			wait = max(wait, room(taken, n, r, now))
		}
		if wait > 0 {
			return nil
		}
		if _, err := t.exec(`DELETE FROM takes WHERE bucket = ? AND keep <= ?`, bucket, nanos(now)); err != nil {
			return err
		}
		return enter(t, bucket, n, now, longest)
	})
	if err != nil {
		return 0, fmt.Errorf("take %d from %s: %w", n, bucket, err)
	}
	return wait, nil
}

// enter writes a take down. One of 0 units closes the bucket for as long as it
// is kept.
func enter(t *tx, bucket string, n int64, now time.Time, keep time.Duration) error {
	_, err := t.exec(`INSERT INTO takes (bucket, at, units, keep) VALUES (?, ?, ?, ?)`, bucket, nanos(now), n, nanos(now.Add(keep)))
	return err
}

func (s *SQLite) shut(ctx context.Context, bucket string, d time.Duration) error {
	if err := s.write(ctx, func(t *tx) error { return enter(t, bucket, 0, s.now(), d) }); err != nil {
		return fmt.Errorf("close %s for %s: %w", bucket, d, err)
	}
	return nil
}

func (s *SQLite) shutFor(ctx context.Context, bucket string) (time.Duration, error) {
	wait, err := closedFor(bucket, s.now(), func(query string, args ...any) scanner { return s.readers.QueryRowContext(ctx, query, args...) })
	if err != nil {
		return 0, fmt.Errorf("ask whether %s is closed: %w", bucket, err)
	}
	return wait, nil
}

// closedFor is how long a bucket is closed.
func closedFor(bucket string, now time.Time, row func(query string, args ...any) scanner) (time.Duration, error) {
	var keep sql.NullInt64
	if err := row(`SELECT max(keep) FROM takes WHERE bucket = ? AND units = 0`, bucket).Scan(&keep); err != nil || !keep.Valid {
		return 0, err
	}
	return max(instant(keep.Int64).Sub(now), 0), nil
}

// giveBack takes n units off the takes that are so old, newest first. Those
// that no window counts any more are gone already.
func giveBack(t *tx, bucket string, n int64, now time.Time, age time.Duration) error {
	if _, err := t.exec(`DELETE FROM takes WHERE bucket = ? AND keep <= ?`, bucket, nanos(now)); err != nil {
		return err
	}
	for n > 0 {
		var row, units int64
		err := t.row(`SELECT n, units FROM takes WHERE bucket = ? AND at <= ? AND units > 0 ORDER BY at DESC, n DESC LIMIT 1`,
			bucket, nanos(now.Add(-age))).Scan(&row, &units)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if n < units {
			_, err = t.exec(`UPDATE takes SET units = units - ? WHERE n = ?`, n, row)
		} else {
			_, err = t.exec(`DELETE FROM takes WHERE n = ?`, row)
		}
		if err != nil {
			return err
		}
		n -= units
	}
	return nil
}

type take struct {
	at    time.Time
	units int64
}

// takes returns what was taken after an instant, oldest first.
func takes(t *tx, bucket string, after time.Time) (out []take, err error) {
	rows, err := t.query(`SELECT at, units FROM takes WHERE bucket = ? AND at > ? ORDER BY at`, bucket, nanos(after))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var at, units int64
		if err := rows.Scan(&at, &units); err != nil {
			return nil, err
		}
		out = append(out, take{instant(at), units})
	}
	return out, rows.Err()
}

// room returns how long it is until n more fit in a rate: 0 when they do now,
// else until enough of the oldest takes have left its window.
func room(taken []take, n int64, r Rate, now time.Time) time.Duration {
	sum := n
	for _, t := range taken {
		if t.at.After(now.Add(-r.Per)) {
			sum += t.units
		}
	}
	var wait time.Duration
	for _, t := range taken {
		if sum <= r.Max {
			break
		}
		if t.at.After(now.Add(-r.Per)) {
			sum -= t.units
			wait = t.at.Add(r.Per).Sub(now)
		}
	}
	return wait
}
