package pipeline

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// Where no command can be found there is no checkout. What looks like one is
// looked at in a checkout, wherever it leads.
func TestNothingIsCheckedOutForNoCommands(t *testing.T) {
	sandboxtest.Need(t, "git")
	mirror, err := repo.Open(t.Context(), filepath.Join(t.TempDir(), "mirror"))
	if err != nil {
		t.Fatal(err)
	}
	commit := func(file string) string {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte("text"), 0o600); err != nil {
			t.Fatal(err)
		}
		// The tree without files is known to every git.
		base, err := mirror.CommitTree(t.Context(), "4b825dc642cb6eb9a060e54bf8d69288fbee4904", nil, repo.Commit{Message: "Begin", Time: time.Unix(0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		sha, _, err := mirror.Collect(t.Context(), dir, base, "refs/slipway/test/"+file, repo.Commit{Message: "Add " + file, Time: time.Unix(0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		return sha
	}
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.None, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for file, looked := range map[string]bool{"README.md": false, "package.json": true} {
		s := &site{
			mirror: mirror, dir: t.TempDir(), homes: t.TempDir(), testing: make(chan struct{}, 1),
			runner: &evidence.Runner{Box: box, Cache: t.TempDir()},
		}
		got, err := s.test(t.Context(), "issue-01", commit(file))
		if err != nil || !got.None || len(got.LookedAt) == 0 {
			t.Errorf("%s: %+v, %v", file, got, err)
		}
		if _, err := os.Stat(filepath.Join(s.dir, "evidence")); (err == nil) != looked {
			t.Errorf("%s: checked out: %v, want %v", file, err == nil, looked)
		}
	}
}
