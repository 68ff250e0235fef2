package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
)

// backupPages are copied between two looks at whether the copy is still wanted.
const backupPages = 256

// Backup copies the store as it is at one instant into a new file, while others go
// on to work with it. At that instant it calls a function, during which no
// process can record anything: what it sees elsewhere is no older than what the
// copy speaks of, and newer by no more than what a crash would leave. It has to
// be quick.
//
// It returns the files that belong to the copy, named by their paths below the
// store's directory. They never change, and are never removed.
func (s *SQLite) Backup(ctx context.Context, file string, instant func() error) (blobs []string, err error) {
	conn, err := s.readers.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("back the store up: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	blobs, err = s.backup(ctx, conn, file, instant)
	if err != nil {
		return nil, fmt.Errorf("back the store up: %w", err)
	}
	return blobs, nil
}

func (s *SQLite) backup(ctx context.Context, conn *sql.Conn, file string, instant func() error) (blobs []string, err error) {
	err = s.write(ctx, func(*tx) error { // which has the lock of all writers
		if _, err := conn.ExecContext(ctx, `BEGIN`); err != nil {
			return err
		}
		var n int
		if err := conn.QueryRowContext(ctx, `SELECT count(*) FROM jobs`).Scan(&n); err != nil { // what is read from here on is of now
			return err
		}
		return instant()
	})
	defer func() { _, _ = conn.ExecContext(s.ctx, `ROLLBACK`) }() // it only read; fails where nothing was begun
	if err != nil {
		return nil, err
	}
	if err := conn.Raw(func(driver any) error { return copyPages(ctx, driver, file) }); err != nil {
		return nil, err
	}
	rows, err := conn.QueryContext(ctx, `SELECT DISTINCT blob FROM entries WHERE blob IS NOT NULL ORDER BY blob`)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var sum string
		if err := rows.Scan(&sum); err != nil {
			return nil, err
		}
		blobs = append(blobs, filepath.Join("blobs", sum[:2], sum))
	}
	return blobs, rows.Err()
}

// copyPages copies what a connection's transaction sees.
func copyPages(ctx context.Context, driver any, file string) (err error) {
	from, ok := driver.(interface {
		NewBackup(to string) (*sqlite.Backup, error)
	})
	if !ok {
		return fmt.Errorf("the driver's connection is a %T, which makes no backups", driver)
	}
	to, err := from.NewBackup("file:" + escapePath(file) + "?mode=rwc&_pragma=synchronous(OFF)")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Finish()) }()
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if more, err = to.Step(backupPages); err != nil {
			return err
		}
	}
	return nil
}

// Check reads the whole store and says what is wrong with it.
func (s *SQLite) Check(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return fmt.Errorf("check the store: %w", err)
	}
	return nil
}

func (s *SQLite) check(ctx context.Context) (err error) {
	var found string
	if err := s.readers.QueryRowContext(ctx, `PRAGMA integrity_check(1)`).Scan(&found); err != nil {
		return err
	}
	if found != "ok" {
		return fmt.Errorf("it is damaged: %s", found)
	}
	rows, err := s.readers.QueryContext(ctx, `SELECT DISTINCT blob FROM entries WHERE blob IS NOT NULL`)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var sum string
		if err := rows.Scan(&sum); err != nil {
			return err
		}
		if _, err := s.blobs.read(sum); err != nil {
			return err
		}
	}
	return rows.Err()
}

// VacantSQLite tells why no store can be put into the directory: one with a job is
// there, or a process has one open that has none.
func VacantSQLite(ctx context.Context, dir string) error {
	if err := vacant(ctx, filepath.Join(dir, "queue.db")); err != nil {
		return fmt.Errorf("look at the store in %s: %w", dir, err)
	}
	return nil
}

// InstallSQLite moves the store in the directory from to dir, which is on the
// same file system and vacant. from must not be open either.
func InstallSQLite(ctx context.Context, from, dir string) error {
	if err := install(ctx, from, dir); err != nil {
		return fmt.Errorf("put the store into %s: %w", dir, err)
	}
	return nil
}

func install(ctx context.Context, from, dir string) error {
	if err := refuseNetwork(filepath.Dir(dir)); err != nil {
		return err
	}
	_, err := os.Stat(dir)
	switch {
	case err == nil:
		// Whoever opens the store meanwhile waits for this, and opens ours.
		unlock, err := lockFile(ctx, filepath.Join(dir, "open.lock"))
		if err != nil {
			return err
		}
		defer unlock()
		if err := vacant(ctx, filepath.Join(dir, "queue.db")); err != nil {
			return err
		}
		if err := os.Rename(dir, from+".replaced"); err != nil {
			return err
		}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := os.Rename(from, dir); err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

// vacant refuses a store with a job in it, or one that a process has open. Only
// whoever is alone with a file can end its write-ahead log.
func vacant(ctx context.Context, file string) (err error) {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	db, err := sql.Open("sqlite", "file:"+escapePath(file)+"?mode=rw")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	db.SetMaxOpenConns(1)
	var jobs int
	if err := db.QueryRowContext(ctx, `SELECT count(*) FROM jobs`).Scan(&jobs); err != nil {
		return err
	}
	if jobs > 0 {
		return fmt.Errorf("there is one already, with %d jobs, which is not replaced", jobs)
	}
	var mode string
	if err := db.QueryRowContext(ctx, `PRAGMA journal_mode = DELETE`).Scan(&mode); err != nil {
		return fmt.Errorf("another process has it open, and has to be stopped first (%w)", err)
	}
	return nil
}
