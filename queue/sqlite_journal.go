package queue

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// maxInline is the largest outcome, in bytes, that lies in a row.
const maxInline = 32 << 10

// Append implements Store.
func (s *SQLite) Append(ctx context.Context, l *Lease, e Entry) (seq int64, err error) {
	if e.Key == "" {
		return 0, fmt.Errorf("record a step of job %s: it has no key", l.Job.ID)
	}
	outcome, sum := blob(e.Outcome), sql.NullString{}
	if len(outcome) > maxInline {
		// The file is on the disk before the row that names it.
		if sum.String, err = s.blobs.write(outcome); err != nil {
			return 0, fmt.Errorf("record %s of job %s: %w", e.Key, l.Job.ID, err)
		}
		outcome, sum.Valid = nil, true
	}
	err = s.submit(&request{ctx: ctx, done: make(chan error, 1), kind: oneWrite, do: func(t *tx) error {
		at := e.At
		if at.IsZero() {
			at = s.now()
		}
		// The fence is in the statement: a lost lease has no row to insert from.
		n, err := t.insert(`INSERT INTO entries (job, attempt, key, kind, input, outcome, blob, "commit", cost_micros,
				tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, duration, runtime, model, credential, at)
			SELECT n, attempt, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? FROM jobs
			WHERE id = ? AND attempt = ? AND state = 'running' ON CONFLICT (job, key) DO NOTHING`,
			e.Key, string(e.Kind), e.Input, outcome, sum, e.Commit, e.CostMicros,
			e.Tokens.Input, e.Tokens.Output, e.Tokens.CacheRead, e.Tokens.CacheWrite, int64(e.Duration),
			e.Runtime, e.Model, e.Credential, nanos(at), l.Job.ID, l.Attempt)
		if seq = n; err != nil || n > 0 {
			return err
		}
		if _, err := fence(t, l); err != nil {
			return err
		}
		return ErrRecorded
	}})
	if err != nil {
		return 0, fmt.Errorf("record %s of job %s: %w", e.Key, l.Job.ID, err)
	}
	return seq, nil
}

// Entries implements Store.
func (s *SQLite) Entries(ctx context.Context, jobID string, after int64) ([]Entry, error) {
	entries, err := s.entries(ctx, jobID, after)
	if err != nil {
		return nil, fmt.Errorf("read the journal of job %s: %w", jobID, err)
	}
	return entries, nil
}

func (s *SQLite) entries(ctx context.Context, jobID string, after int64) (out []Entry, err error) {
	var job int64
	err = s.readers.QueryRowContext(ctx, `SELECT n FROM jobs WHERE id = ?`, jobID).Scan(&job)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrUnknown
	}
	if err != nil {
		return nil, err
	}
	rows, err := s.readers.QueryContext(ctx, `SELECT seq, key, kind, input, outcome, blob, "commit", cost_micros,
			tokens_input, tokens_output, tokens_cache_read, tokens_cache_write, duration, runtime, model, credential, at
		FROM entries WHERE job = ? AND seq > ? ORDER BY seq`, job, after)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		e, err := s.scanEntry(rows)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, rows.Err()
}

func (s *SQLite) scanEntry(row scanner) (Entry, error) {
	var e Entry
	var sum sql.NullString
	var duration, at int64
	err := row.Scan(&e.Seq, &e.Key, &e.Kind, &e.Input, (*[]byte)(&e.Outcome), &sum, &e.Commit, &e.CostMicros,
		&e.Tokens.Input, &e.Tokens.Output, &e.Tokens.CacheRead, &e.Tokens.CacheWrite, &duration,
		&e.Runtime, &e.Model, &e.Credential, &at)
	if err != nil {
		return Entry{}, err
	}
	e.Duration, e.At = time.Duration(duration), instant(at)
	if sum.Valid {
		if e.Outcome, err = s.blobs.read(sum.String); err != nil {
			return Entry{}, fmt.Errorf("outcome of %s: %w", e.Key, err)
		}
	}
	return e, nil
}

// blobs are files named by the SHA-256 of what they hold.
type blobs struct{ dir string }

func (b blobs) path(sum string) string { return filepath.Join(b.dir, sum[:2], sum) }

// write stores data and returns its name when it is durable: the file first,
// then its name in the directory.
func (b blobs) write(data []byte) (sum string, err error) {
	digest := sha256.Sum256(data)
	sum = hex.EncodeToString(digest[:])
	path := b.path(sum)
	dir := filepath.Dir(path)
	if _, err := os.Stat(path); err == nil {
		return sum, b.sync(dir) // its writer may not have come so far
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	f, err := os.CreateTemp(dir, "new-*")
	if err != nil {
		return "", err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return sum, b.sync(dir)
}

// sync makes the names durable that lead to a blob.
func (b blobs) sync(dir string) error {
	return errors.Join(syncDir(dir), syncDir(b.dir), syncDir(filepath.Dir(b.dir)))
}

// read returns a blob and checks that it is what was written.
func (b blobs) read(sum string) ([]byte, error) {
	data, err := os.ReadFile(b.path(sum))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("blob %s is missing", sum)
	}
	if err != nil {
		return nil, err
	}
	if digest := sha256.Sum256(data); hex.EncodeToString(digest[:]) != sum {
		return nil, fmt.Errorf("blob %s is damaged", sum)
	}
	return data, nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
