package durability_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"
)

// TestABackupGoesOnElsewhere backs a build up while its agents work, loses the
// machine, and goes on in another state directory: what was recorded before the
// backup is not run again, and the end is the same.
func TestABackupGoesOnElsewhere(t *testing.T) {
	t.Parallel()
	const step = "issue-03/round-1/iter-1/coder"
	term, agents, p := heldBuild(t, step)
	file := filepath.Join(t.TempDir(), "backup.tar.gz")
	if b := term.run(t, nil, "backup", file); b.wait(t, time.Minute) != 0 {
		t.Fatalf("backup: %s", b.said(t))
	}
	select {
	case <-p.ended:
		t.Fatalf("the backup ended the build\n%s", p.said(t))
	default:
	}
	p.kill()
	dead := term.see(t)
	if len(dead.entries) == 0 || dead.has(step) {
		t.Fatalf("the journal has %v", dead.keys())
	}
	noneAlive(t, term.state, 5*time.Second)
	// What the engine's commands note is the tests' own, and in no backup.
	notes := term.commandLog(t)
	noted, err := os.ReadFile(notes)
	if err != nil {
		t.Fatal(err)
	}
	place, err := filepath.Rel(term.state, notes)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(term.state); err != nil {
		t.Fatal(err)
	}

	there := term
	there.state = filepath.Join(t.TempDir(), "state")
	r := there.run(t, nil, "restore", "--json", file)
	if r.wait(t, time.Minute) != 0 {
		t.Fatalf("restore: %s", r.said(t))
	}
	var said struct {
		Open []struct{ ID, Next string }
	}
	if err := json.Unmarshal([]byte(r.said(t)), &said); err != nil || len(said.Open) != 1 ||
		said.Open[0].ID != dead.job.ID || said.Open[0].Next != "goes on with: slipway resume "+dead.job.ID {
		t.Errorf("restore says %s (%v)", r.said(t), err)
	}
	put(t, filepath.Join(there.state, place), string(noted))
	if back := there.see(t); !reflect.DeepEqual(back.entries, dead.entries) || !reflect.DeepEqual(back.runs, dead.runs) {
		t.Errorf("restored are %v with %v, and there were %v with %v", back.keys(), back.runs, dead.keys(), dead.runs)
	}
	agents.release(t, step)
	there.resume(t, dead)
	there.complete(t, "", dead)
	branch := "slipway/" + dead.job.ID + "-list-the-ships"
	for name, want := range map[string]string{"list.txt": "first\nalpha\nbeta\nlast", "index.txt": "alpha beta"} {
		if got := git(t, there.repo, "show", branch+":"+name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
