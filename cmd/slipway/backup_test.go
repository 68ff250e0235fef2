package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/queue"
)

// What people read of a backup and of what it is put into. That a build goes on
// from it is in durability.
func TestBackupAndRestoreAreTold(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(term.state, "store"))
	must(t, err)
	for id, job := range map[string]queue.Job{
		"b-1": {Kind: "build"},
		"b-2": {Kind: "local/b-2", Payload: []byte(`{"dir":"` + term.state + `"}`)},
		"b-3": {Kind: "local/b-3", Payload: []byte(`{"dir":"/nowhere/boat"}`)},
	} {
		job.ID = id
		_, _, err := store.Put(t.Context(), job)
		must(t, err)
	}
	write(t, term.state, map[string]string{"github-app.yml": "github: {app_id: 1}\n"})
	must(t, os.Chmod(filepath.Join(term.state, "github-app.yml"), 0o600))
	file := filepath.Join(t.TempDir(), "b.tar.gz")
	says := func(end typed, code int, want ...string) {
		t.Helper()
		if end.code != code {
			t.Errorf("exit %d, want %d", end.code, code)
		}
		for _, text := range want {
			if !strings.Contains(end.out+end.err, text) {
				t.Errorf("it does not say %q:\n%s%s", text, end.out, end.err)
			}
		}
	}
	says(term.slipway("backup", file), 0, file+"  1 files, ", "not in it: github-app.yml")
	says(term.slipway("backup", file), 5, "is there already, and is not overwritten")
	if made := lines[backedUp](t, term.slipway("backup", file+"2", "--json")); len(made) != 1 || made[0].Files != 1 || made[0].Bytes == 0 || made[0].Taken.IsZero() || len(made[0].LeftOut) != 1 {
		t.Errorf("backup --json: %+v", made)
	}
	says(term.slipway("restore", file), 5, "with 3 jobs, which is not replaced")
	must(t, store.Close())

	there := newTerminal(t)
	if end := there.slipway("list"); end.code != 0 { // which makes a store without a job
		t.Fatal(end.err)
	}
	busy, err := queue.OpenSQLite(t.Context(), filepath.Join(there.state, "store"))
	must(t, err)
	says(there.slipway("restore", file), 5, "another process has it open")
	must(t, busy.Close())
	says(there.slipway("restore", filepath.Join(t.TempDir(), "no")), 5, "no such file", "nothing was restored")
	says(there.slipway("restore", file), 0, there.state+" is as it was at 20", "not in it: github-app.yml",
		"b-1  goes on when slipway serve runs", "b-2  goes on with: slipway resume b-2",
		"b-3  cannot go on before this can be had here: /nowhere/boat: no such file")
	says(there.slipway("list"), 0, "b-1", "b-2", "b-3")
}
