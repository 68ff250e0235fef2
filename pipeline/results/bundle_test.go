package results

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var noon = time.Date(2026, 3, 1, 12, 0, 0, 7_000_000, time.UTC)

// TestRowID pins the id: links to rows outlive this program.
func TestRowID(t *testing.T) {
	id := Identity{EvalPath: "suite.yaml", Suite: "s", TestID: "a/b c", Target: "openai/gpt-5"}
	if got := string(id.canonical()); got != `{"eval_path":"suite.yaml","prompt_id":null,"suite":"s","target":"openai/gpt-5","test_id":"a/b c","variant":null}` {
		t.Error(got)
	}
	if got := id.RowID(); got != "a-b-c--146349ce4bf3" {
		t.Error(got)
	}
	other := id
	other.TestID = "a-b-c"
	if other.RowID() == id.RowID() || !strings.HasPrefix(other.RowID(), "a-b-c--") {
		t.Error(other.RowID())
	}
	for name, test := range map[string]string{"long": strings.Repeat("x", 200), "hidden": "...hidden", "empty": "", "upward": "../../etc"} {
		id.TestID = test
		if got := id.RowID(); len(got) > 64+14 || !fs.ValidPath(got) || strings.HasPrefix(got, ".") {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestFoldersNeitherEscapeNorCollide makes bundles of names that people give.
func TestFoldersNeitherEscapeNorCollide(t *testing.T) {
	root := t.TempDir()
	c, err := Begin(root, "../x", noon, Options{})
	must(t, err)
	again, err := Begin(root, "../x", noon, Options{})
	must(t, err)
	if c.Timestamp != "2026-03-01T12-00-00.007Z" || again.Timestamp != c.Timestamp+"-2" {
		t.Errorf("%s and %s", c.Timestamp, again.Timestamp)
	}
	dirs := map[string]string{}
	for _, name := range []string{"openai/gpt-5", "openai-gpt-5", "../x", "a/b", "a-b", ".hidden", strings.Repeat("y", 90), strings.Repeat("y", 91)} {
		b, err := c.Bundle(name, "")
		must(t, err)
		rel, err := filepath.Rel(root, b.Dir)
		if err != nil || !filepath.IsLocal(rel) || dirs[b.Dir] != "" {
			t.Errorf("%q is at %s, as %q: %v", name, b.Dir, dirs[b.Dir], err)
		}
		dirs[b.Dir] = name
	}
	found, err := Discover(root, Options{})
	if must(t, err); len(found) != len(dirs) {
		t.Errorf("found %d bundles of %d", len(found), len(dirs))
	}
}

func newBundle(t *testing.T, o Options) *Bundle {
	t.Helper()
	c, err := Begin(t.TempDir(), "trial", noon, o)
	must(t, err)
	b, err := c.Bundle("fast", "strict")
	must(t, err)
	return b
}

func row(test string, run int) Row {
	return Row{Experiment: "trial", EvalPath: "s.yaml", Suite: "s", TestID: test, Target: "fast", Variant: orNull("strict"), Run: run, State: Passed}
}

// TestBundleIsWhatItWas adds runs and reads them from the files alone.
func TestBundleIsWhatItWas(t *testing.T) {
	b := newBundle(t, Options{Hide: func(s string) string { return strings.ReplaceAll(s, "hunter22", "[KEY]") }})
	from := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(from, "deep"), 0o755))
	must(t, os.WriteFile(filepath.Join(from, "deep", "call.jsonl"), []byte("said hunter22\n"), 0o600))
	kept := Sidecars{
		Case: map[string]string{"id": "one"}, Grading: map[string]string{"secret": "hunter22"}, Transcript: from,
		Outputs: map[string][]byte{"review.md": []byte("# hunter22\n")},
	}
	must(t, b.Add(row("one", 1), kept))
	must(t, b.Add(row("one", 1), kept)) // a second time changes nothing
	failed := row("one", 2)
	failed.State, failed.Cause = InfraError, "the key hunter22 was refused"
	must(t, b.Add(failed, Sidecars{}))
	must(t, b.WriteSummary(map[string]int{"rows": 2}))

	read, err := Open(b.Dir, Options{})
	must(t, err)
	rows := read.Rows()
	if len(rows) != 2 || read.Torn || read.Runs(rows[0].Identity()) != 2 || rows[1].State != InfraError || rows[1].CasePath != nil || rows[0].ProvenancePath != nil {
		t.Fatalf("%+v", rows)
	}
	var grading map[string]string
	must(t, read.Read(*rows[0].GradingPath, &grading))
	if grading["secret"] != "[KEY]" || *rows[0].GradingPath != rows[0].RowID+"/run-1/grading.json" || *rows[0].SummaryPath != "summary.json" {
		t.Errorf("%v %s", grading, *rows[0].GradingPath)
	}
	for _, name := range []string{"../outside.json", "/etc/hostname"} {
		if err := read.Read(name, &grading); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	var files []string
	must(t, fs.WalkDir(os.DirFS(b.Dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		files = append(files, strings.TrimPrefix(name, rows[0].RowID+"/"))
		text, err := fs.ReadFile(os.DirFS(b.Dir), name)
		if strings.Contains(string(text), "hunter22") {
			t.Errorf("%s holds a secret: %s", name, text)
		}
		return err
	}))
	want := []string{"index.jsonl", "run-1/case.json", "run-1/grading.json", "run-1/outputs/review.md", "run-1/transcript/deep/call.jsonl", "summary.json"}
	if slices.Sort(files); !slices.Equal(files, want) {
		t.Errorf("%q", files)
	}
}

// TestIndexThatWasHurt is a bundle of which a process died, and one of a later
// version.
func TestIndexThatWasHurt(t *testing.T) {
	b := newBundle(t, Options{})
	must(t, b.Add(row("one", 1), Sidecars{}))
	file := filepath.Join(b.Dir, "index.jsonl")
	text, err := os.ReadFile(file)
	must(t, err)
	later := strings.Replace(string(text), `"run":1`, `"run":1,"colour":"blue"`, 1)
	must(t, os.WriteFile(file, []byte(later+`{"experiment":"tri`), 0o600))

	torn, err := Open(b.Dir, Options{})
	must(t, err)
	if len(torn.Rows()) != 1 || !torn.Torn {
		t.Errorf("%+v, torn %v", torn.Rows(), torn.Torn)
	}
	must(t, torn.Add(row("two", 1), Sidecars{}))
	text, err = os.ReadFile(file)
	must(t, err)
	var first map[string]any
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if must(t, json.Unmarshal([]byte(lines[0]), &first)); len(lines) != 2 || first["colour"] != "blue" {
		t.Errorf("a field of a later version was lost, or the torn line kept:\n%s", text)
	}
	must(t, os.WriteFile(file, []byte("{\n"+later), 0o600))
	if _, err := Open(b.Dir, Options{}); err == nil || !strings.Contains(err.Error(), "index.jsonl:1:") {
		t.Errorf("a line in the middle that is none: %v", err)
	}
}

// TestRowsThatMustNotBe are refused loudly.
func TestRowsThatMustNotBe(t *testing.T) {
	b := newBundle(t, Options{})
	must(t, b.Add(row("one", 1), Sidecars{}))
	b.rows[0].TestID = "another unit with the same digest"
	if err := b.Add(row("one", 2), Sidecars{}); err == nil || !strings.Contains(err.Error(), "two units have the row id") {
		t.Errorf("%v", err)
	}
	if err := b.Add(row("two", 0), Sidecars{}); err == nil {
		t.Error("a run 0 was kept")
	}
}
