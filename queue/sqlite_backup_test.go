package queue_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/queue"
)

// backUp makes a whole store of what Backup copies.
func backUp(t *testing.T, s *queue.SQLite, from, to string, instant func() error) {
	t.Helper()
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	blobs, err := s.Backup(t.Context(), filepath.Join(to, "queue.db"), instant)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range blobs {
		data, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestABackupIsTheStoreAtOneInstant(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	s, beside := openIn(t, from), openIn(t, from)
	put(t, s, "a")
	lease, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
	for key, outcome := range map[string]json.RawMessage{"small": json.RawMessage(`1`), "large": large} {
		if _, err := s.Append(t.Context(), lease, queue.Entry{Key: key, Kind: queue.Call, Outcome: outcome}); err != nil {
			t.Fatal(err)
		}
	}
	wrote := make(chan error, 1)
	backUp(t, s, from, to, func() error {
		go func() {
			_, _, err := beside.Put(context.WithoutCancel(t.Context()), queue.Job{ID: "later", Kind: "k"})
			wrote <- err
		}()
		db, err := sql.Open("sqlite", filepath.Join(from, "queue.db"))
		if err != nil {
			return err
		}
		if _, err := db.Exec(`BEGIN IMMEDIATE`); err == nil || !strings.Contains(err.Error(), "locked") {
			t.Errorf("another process could write in that instant: %v", err)
		}
		return db.Close()
	})
	if err := <-wrote; err != nil {
		t.Errorf("after it nobody can write: %v", err)
	}
	lookUp(t, s, "later")

	copied := openIn(t, to)
	if err := copied.Check(t.Context()); err != nil {
		t.Error(err)
	}
	jobs, err := copied.List(t.Context(), queue.Query{})
	if err != nil || len(jobs) != 1 || jobs[0].ID != "a" {
		t.Errorf("the copy has %v, %v; want what was there", jobs, err)
	}
	entries, err := copied.Entries(t.Context(), "a", 0)
	if err != nil || len(entries) != 2 {
		t.Fatalf("the copy's journal is %v, %v", entries, err)
	}
	for _, e := range entries {
		if e.Key == "large" && !bytes.Equal(e.Outcome, large) {
			t.Errorf("a large outcome has %d bytes", len(e.Outcome))
		}
	}
	// Nobody there holds the lock of the worker that was at it.
	if again, err := copied.Claim(t.Context(), "elsewhere", "k"); err != nil || again.Attempt != lease.Attempt+1 {
		t.Errorf("claimed elsewhere: %+v, %v", again, err)
	}
	if _, err := s.Extend(t.Context(), lease); err != nil {
		t.Errorf("the claim was disturbed: %v", err)
	}
}

func TestABackupThatCannotBeMadeHoldsNobodyUp(t *testing.T) {
	from := t.TempDir()
	s := openIn(t, from)
	ctx, cancel := context.WithCancel(t.Context())
	file := filepath.Join(t.TempDir(), "queue.db")
	_, err := s.Backup(ctx, file, func() error { cancel(); return nil })
	if err == nil || !strings.Contains(err.Error(), "context canceled") {
		t.Errorf("given up: %v", err)
	}
	if _, err := s.Backup(t.Context(), file, func() error { return os.ErrPermission }); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("refused: %v", err)
	}
	put(t, s, "a")
	backUp(t, s, from, t.TempDir(), func() error { return nil })
}

func TestCheckFindsDamage(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	put(t, s, "a")
	lease, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	large := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
	if _, err := s.Append(t.Context(), lease, queue.Entry{Key: "k", Kind: queue.Call, Outcome: large}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "*", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte(`"y"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("a blob that was changed: %v", err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "is missing") {
		t.Errorf("a blob that is gone: %v", err)
	}
}

func TestAStoreIsPutWhereNoneIsInUse(t *testing.T) {
	for name, row := range map[string]struct {
		there func(t *testing.T, dir string)
		want  string // in the error; empty: it is put there
	}{
		"nothing":          {func(*testing.T, string) {}, ""},
		"an empty one":     {func(t *testing.T, dir string) { shut(t, openIn(t, dir)) }, ""},
		"one that is open": {func(t *testing.T, dir string) { openIn(t, dir) }, "another process has it open"},
		"one with a job": {func(t *testing.T, dir string) {
			s := openIn(t, dir)
			put(t, s, "b")
			shut(t, s)
		}, "with 1 jobs, which is not replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			from, to := filepath.Join(state, "from"), filepath.Join(state, "store")
			s := openIn(t, from)
			put(t, s, "a")
			shut(t, s)
			row.there(t, to)
			if err := queue.VacantSQLite(t.Context(), to); (err != nil) != (row.want != "") {
				t.Errorf("vacant: %v", err)
			}
			err := queue.InstallSQLite(t.Context(), from, to)
			if row.want != "" {
				if err == nil || !strings.Contains(err.Error(), row.want) {
					t.Errorf("%v, want %q", err, row.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			lookUp(t, openIn(t, to), "a")
		})
	}
}

func shut(t *testing.T, s *queue.SQLite) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
