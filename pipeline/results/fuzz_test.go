package results

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzIndex opens what anybody may have made of an index: it is refused or read, and
// what is added to it comes back with what was read.
func FuzzIndex(f *testing.F) {
	f.Add([]byte(`{"row_id":"a--1","run":1,"colour":"blue"}` + "\n" + `{"row_id":"b`))
	f.Add([]byte("\n\n{}\n[]"))
	f.Add([]byte(`{"run":"x"}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, indexFile), text, 0o600))
		b, err := Open(dir, Options{})
		if err != nil {
			return
		}
		before := len(b.Rows())
		fresh := row("a test that no corpus has", 1)
		must(t, b.Add(fresh, Sidecars{}))
		again, err := Open(dir, Options{})
		if err != nil || again.Torn || len(again.Rows()) != before+1 || again.Runs(fresh.Identity()) < 1 {
			t.Errorf("%d rows of %d before: %v", len(again.Rows()), before, err)
		}
	})
}
