package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/queue"
	"github.com/slipway-dev/slipway/queue/queuetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		os.Exit(child(role))
	}
	goleak.VerifyTestMain(m)
}

func TestSQLite(t *testing.T) {
	queuetest.Run(t, func(t *testing.T) queuetest.Opened {
		dir := t.TempDir()
		start := time.Now()
		var offset atomic.Int64
		open := func(t *testing.T) *queue.SQLite {
			s, err := queue.OpenSQLiteAt(t.Context(), dir, func() time.Time { return start.Add(time.Duration(offset.Load())) })
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
			return s
		}
		s := open(t)
		return queuetest.Opened{
			Store:   s,
			Lease:   queue.LeaseTime,
			Advance: func(d time.Duration) { offset.Add(int64(d)) },
			Second:  func(t *testing.T) queue.Store { return open(t) },
			Crash: func(t *testing.T) queue.Store {
				// The kernel frees the locks of a dead process, as Close does.
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				return open(t)
			},
		}
	})
}

func TestAStateDirectoryWithAnAwkwardName(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "100% of?what#this is")
	put(t, openIn(t, dir), "a")
	lookUp(t, openIn(t, dir), "a")
	if _, err := os.Stat(filepath.Join(dir, "queue.db")); err != nil {
		t.Error(err)
	}
}

func TestAStoreOfAnotherVersionIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := openIn(t, dir).Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "queue.db"))
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.Exec(`PRAGMA user_version = 99`)
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := queue.OpenSQLite(t.Context(), dir); err == nil || !strings.Contains(err.Error(), "version 99") {
		t.Errorf("got %v, want an error that names the version", err)
	}
}

func TestAStoreOfAnOlderVersionIsBroughtUpToDate(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	put(t, s, "a")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "queue.db"))
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`ALTER TABLE jobs DROP COLUMN verdict`, `ALTER TABLE jobs DROP COLUMN judged`, `PRAGMA user_version = 1`} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	l, err := s.Claim(t.Context(), "w", "k")
	if err == nil {
		err = s.Park(t.Context(), l, l.Until, queue.Untold(errors.New("no luck"), errors.New("502")))
	}
	if j := lookUp(t, s, "a"); err != nil || j.Verdict.Cause != "no luck" {
		t.Errorf("job %+v, %v", j, err)
	}
}

func TestAClosedStoreAnswersWithErrors(t *testing.T) {
	s := openIn(t, t.TempDir())
	put(t, s, "a")
	l, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error)
	go func() { waiting <- s.Wait(t.Context(), queue.SignalsOf("a")) }()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	_, _, putErr := s.Put(ctx, queue.Job{ID: "b", Kind: "k"})
	_, claimErr := s.Claim(ctx, "w2", "k")
	_, entriesErr := s.Entries(ctx, "a", 0)
	for what, err := range map[string]error{
		"Wait": <-waiting, "Put": putErr, "Claim": claimErr, "Done": s.Done(ctx, l), "Entries": entriesErr,
	} {
		if err == nil {
			t.Errorf("%s succeeded", what)
		}
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close twice: %v", err)
	}
}

func TestAWorkerNameBelongsToOneProcess(t *testing.T) {
	dir := t.TempDir()
	one, two := openIn(t, dir), openIn(t, dir)
	for _, name := range []string{"host/12", "..", "."} { // each would be an odd file name
		if _, err := one.Claim(t.Context(), name, "k"); !errors.Is(err, queue.ErrEmpty) {
			t.Fatalf("Claim by %q: %v", name, err)
		}
	}
	if _, err := two.Claim(t.Context(), "host/12", "k"); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("the second: %v, want an error that says that the name is in use", err)
	}
	if _, err := one.Claim(t.Context(), "", "k"); err == nil || errors.Is(err, queue.ErrEmpty) {
		t.Errorf("no name: %v, want an error", err)
	}
	if err := one.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := two.Claim(t.Context(), "host/12", "k"); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("after Close: %v", err)
	}
}

func TestLockFilesOfDeadWorkersAreRemoved(t *testing.T) {
	dir := t.TempDir()
	live := openIn(t, dir)
	if _, err := live.Claim(t.Context(), "live", "k"); !errors.Is(err, queue.ErrEmpty) {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "workers", "dead.lock")
	if err := os.WriteFile(stale, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	openIn(t, dir)
	left, err := filepath.Glob(filepath.Join(dir, "workers", "*"))
	if err != nil || len(left) != 1 || filepath.Base(left[0]) != "live.lock" {
		t.Errorf("left are %v, %v; want the live one's", left, err)
	}
}

func TestADamagedOutcomeIsAnError(t *testing.T) {
	dir := t.TempDir()
	s := openIn(t, dir)
	put(t, s, "a")
	l, err := s.Claim(t.Context(), "w", "k")
	if err != nil {
		t.Fatal(err)
	}
	e := queue.Entry{Key: "1", Kind: queue.Call, Outcome: fmt.Appendf(nil, "%q", strings.Repeat("x", 64<<10))}
	if _, err := s.Append(t.Context(), l, e); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "blobs", "??", "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v; want one", files, err)
	}
	for _, c := range []struct {
		want   string
		damage func() error
	}{
		{"damaged", func() error { return os.WriteFile(files[0], []byte(`"y"`), 0o600) }},
		{"missing", func() error { return os.Remove(files[0]) }},
	} {
		if err := c.damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Entries(t.Context(), "a", 0); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want an error that says %s", err, c.want)
		}
	}
}

func TestACancelledCallChangesNothing(t *testing.T) {
	s := openIn(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Put(ctx, queue.Job{ID: "a", Kind: "k"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Put: %v, want context.Canceled", err)
	}
	if jobs, err := s.List(t.Context(), queue.Query{}); err != nil || len(jobs) != 0 {
		t.Errorf("jobs %v, %v; want none", jobs, err)
	}
}
