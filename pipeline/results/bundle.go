// Package results keeps what came of builds, reviews and evaluations, as bundles
// of plain files.
//
// The model: a bundle is a directory with the file index.jsonl, one row for each
// run of a unit of work; what else is known of a run is in files beside it, whose
// paths the row names. Folders are named for people: what anything means is in
// rows and in summary.json, and every folder may be renamed.
//
// Promises: a file is there whole or not at all; a row is in the index once,
// however often it is added, and no row is ever taken out; a torn last line is
// told of and skipped; no path in a row leads out of its bundle; what the Hide of
// the options hides is in no file.
package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The files of a bundle.
const (
	indexFile   = "index.jsonl"
	summaryFile = "summary.json"
)

// Options say how bundles are written.
type Options struct {
	Hide func(text string) string // what must not be written, such as keys, replaced; nil: nothing has to
}

// A Campaign is the bundles that one command makes: one for each target and
// variant, under one timestamp.
type Campaign struct {
	Experiment string
	Timestamp  string // UTC, to the millisecond
	dir        string
	options    Options
}

// Begin makes the folder of a new campaign below root. Another one of the same
// millisecond gets -2 after its timestamp.
func Begin(root, experiment string, now time.Time, o Options) (Campaign, error) {
	parent := filepath.Join(root, folder(experiment))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return Campaign{}, fmt.Errorf("begin a campaign: %w", err)
	}
	stamp := now.UTC().Format("2006-01-02T15-04-05.000Z")
	for n := 1; ; n++ {
		name := stamp
		if n > 1 {
			name += "-" + strconv.Itoa(n)
		}
		err := os.Mkdir(filepath.Join(parent, name), 0o755)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return Campaign{}, fmt.Errorf("begin a campaign: %w", err)
		}
		return Campaign{Experiment: experiment, Timestamp: name, dir: filepath.Join(parent, name), options: o}, nil
	}
}

// Bundle makes the bundle of a target and variant.
func (c Campaign) Bundle(target, variant string) (*Bundle, error) {
	dir := filepath.Join(c.dir, folder(target))
	if variant != "" {
		dir = filepath.Join(dir, folder(variant))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a bundle: %w", err)
	}
	b := &Bundle{Dir: dir, options: c.options}
	return b, b.writeIndex()
}

// A Bundle is a directory of rows and what belongs to them. Its methods may be
// called at the same time; no two processes write one.
type Bundle struct {
	Dir  string
	Torn bool // its index ended within a line, which was skipped

	options Options
	mu      sync.Mutex // guards what follows, and the index
	lines   [][]byte   // of the index, as they were read: fields that nobody knows here survive
	rows    []Row
}

// Open reads the bundle in dir.
func Open(dir string, o Options) (*Bundle, error) {
	text, err := os.ReadFile(filepath.Join(dir, indexFile))
	if err != nil {
		return nil, fmt.Errorf("open a bundle: %w", err)
	}
	b := &Bundle{Dir: dir, options: o}
	lines := bytes.Split(text, []byte("\n"))
	for i, line := range lines {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var row Row
		err := json.Unmarshal(line, &row)
		switch {
		case err != nil && i == len(lines)-1: // every whole line ends with a newline
			b.Torn = true
			continue
		case err != nil:
			return nil, fmt.Errorf("open a bundle: %s:%d: %w", filepath.Join(dir, indexFile), i+1, err)
		}
		b.lines, b.rows = append(b.lines, line), append(b.rows, row)
	}
	return b, nil
}

// Rows are the rows as they were added.
func (b *Bundle) Rows() []Row {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.rows)
}

// Runs is how many runs of the unit the index has.
func (b *Bundle) Runs(id Identity) (last int) {
	for _, r := range b.Rows() {
		if r.Identity() == id {
			last = max(last, r.Run)
		}
	}
	return last
}

// Sidecars are what is kept of one run. A nil one is not there.
type Sidecars struct {
	Case, Outcome, Grading, Metrics, Timing, Debt any // written as JSON

	Transcript string            // directory whose files are copied; empty: none
	Outputs    map[string][]byte // by file name
}

// Add writes what is kept of a run and then its row, whose paths it fills in. A
// run that the index has already is left as it is.
func (b *Bundle) Add(row Row, s Sidecars) error {
	id := row.Identity()
	row.RowID = id.RowID()
	if err := b.check(row); err != nil {
		return err
	}
	if slices.ContainsFunc(b.Rows(), func(r Row) bool { return r.RowID == row.RowID && r.Run == row.Run }) {
		return nil
	}
	base := path.Join(row.RowID, "run-"+strconv.Itoa(row.Run))
	if err := os.RemoveAll(b.at(base)); err != nil { // a process that died left it without a row
		return fmt.Errorf("keep a run: %w", err)
	}
	if err := b.keep(base, &row, s); err != nil {
		return fmt.Errorf("keep run %d of %s: %w", row.Run, row.TestID, err)
	}
	row.SummaryPath = orNull(summaryFile)
	line, err := json.Marshal(row)
	if err != nil {
		return err
	}
	line = []byte(b.hide(string(line)))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines, b.rows = append(b.lines, line), append(b.rows, row)
	return b.writeIndex()
}

// check refuses two units that have one id: one would be taken for the other.
func (b *Bundle) check(row Row) error {
	if row.Run < 1 {
		return fmt.Errorf("keep a run of %s: runs count from 1, and this is %d", row.TestID, row.Run)
	}
	for _, r := range b.Rows() {
		if r.RowID == row.RowID && r.Identity() != row.Identity() {
			return fmt.Errorf("two units have the row id %s: %+v and %+v", row.RowID, r.Identity(), row.Identity())
		}
	}
	return nil
}

// keep writes the files of a run and says in its row where they are.
func (b *Bundle) keep(base string, row *Row, s Sidecars) error {
	for _, f := range []struct {
		name string
		what any
		path **string
	}{
		{"case.json", s.Case, &row.CasePath}, {"outcome.json", s.Outcome, &row.OutcomePath}, {"grading.json", s.Grading, &row.GradingPath},
		{"metrics.json", s.Metrics, &row.MetricsPath}, {"timing.json", s.Timing, &row.TimingPath}, {"debt.json", s.Debt, &row.DebtPath},
	} {
		if f.what == nil {
			continue
		}
		name := path.Join(base, f.name)
		if err := b.writeJSON(name, f.what); err != nil {
			return err
		}
		*f.path = &name
	}
	if s.Transcript != "" {
		name := path.Join(base, "transcript")
		if err := b.copyAll(name, s.Transcript); err != nil {
			return err
		}
		row.TranscriptPath = &name
	}
	if len(s.Outputs) > 0 {
		name := path.Join(base, "outputs")
		for file, text := range s.Outputs {
			if err := b.write(path.Join(name, safe(file, maxName)), text); err != nil {
				return err
			}
		}
		row.OutputPath = &name
	}
	return nil
}

// copyAll copies the files of a directory and of those below it; none is no
// directory.
func (b *Bundle) copyAll(to, from string) error {
	if err := os.MkdirAll(b.at(to), 0o755); err != nil {
		return err
	}
	files := os.DirFS(from)
	return fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && name == ".":
			return fs.SkipAll
		case err != nil || !entry.Type().IsRegular():
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		return b.write(path.Join(to, name), text)
	})
}

// WriteSummary replaces summary.json.
func (b *Bundle) WriteSummary(summary any) error { return b.writeJSON(summaryFile, summary) }

// ReadSummary reads summary.json.
func (b *Bundle) ReadSummary(into any) error { return b.Read(summaryFile, into) }

// Read reads a JSON file that a row names. A path out of the bundle is refused.
func (b *Bundle) Read(name string, into any) error {
	root, err := os.OpenRoot(b.Dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // only read from
	text, err := root.ReadFile(filepath.FromSlash(name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("read %s of the bundle %s: %w", name, b.Dir, err)
	}
	return nil
}

func (b *Bundle) at(name string) string { return filepath.Join(b.Dir, filepath.FromSlash(name)) }

func (b *Bundle) hide(text string) string {
	if b.options.Hide == nil {
		return text
	}
	return b.options.Hide(text)
}

func (b *Bundle) writeJSON(name string, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return b.write(name, append(text, '\n'))
}

func (b *Bundle) write(name string, text []byte) error {
	file := b.at(name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return replace(file, []byte(b.hide(string(text))))
}

// writeIndex needs b.mu where others know b.
func (b *Bundle) writeIndex() error {
	text := bytes.Join(b.lines, []byte("\n"))
	if len(text) > 0 {
		text = append(text, '\n')
	}
	return replace(filepath.Join(b.Dir, indexFile), text)
}

// replace writes a file so that whoever reads it finds the old one or the new one.
func replace(file string, text []byte) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
		}
	}()
	_, err = tmp.Write(text)
	if err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}

// Discover opens every bundle below root, in the order of their paths. It does not
// look into bundles, hidden folders and links.
func Discover(root string, o Options) ([]*Bundle, error) {
	var found []*Bundle
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && name == root {
			return fs.SkipAll
		}
		if err != nil || !entry.IsDir() {
			return err
		}
		if name != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if _, err := os.Lstat(filepath.Join(name, indexFile)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		b, err := Open(name, o)
		if err != nil {
			return err
		}
		found = append(found, b)
		return fs.SkipDir
	})
	if err != nil {
		return nil, fmt.Errorf("look for bundles: %w", err)
	}
	return found, nil
}
