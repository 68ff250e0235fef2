package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// A Recorder is a runtime that lets another one work and writes what it did as
// recordings, which Replay plays to the same end. It writes the file
// <step>.json; what is written holds no secret, no path of this machine and no
// time, so that recording the same work again writes the same file.
type Recorder struct {
	inner Runtime
	dir   string
	hide  []string

	mu    sync.Mutex
	turns map[string][]Recording // by step
}

// Record returns a Recorder of inner that writes into dir and replaces every
// one of secrets by [secret].
func Record(inner Runtime, dir string, secrets ...string) *Recorder {
	return &Recorder{inner: inner, dir: dir, hide: secrets, turns: make(map[string][]Recording)}
}

// Run runs the call and records it, also when it failed; only what ctx ended is
// not recorded. A recording that cannot be written fails the call.
func (r *Recorder) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	var before tree
	if !c.ReadOnly {
		var err error
		if before, err = readTree(c.Dir); err != nil {
			return Result{}, &Error{Class: Refused, Reason: fmt.Sprintf("record step %s: %v", c.Step, err), Err: err}
		}
	}
	rec := Recording{Step: c.Step, InputDigest: c.Digest, Events: []Event{}}
	res, err := r.inner.Run(ctx, c, func(e Event) {
		rec.Events = append(rec.Events, e)
		emit(e)
	})
	if ctx.Err() != nil {
		return res, err
	}
	rec.Result = res
	if err != nil {
		rec.Error = &RecordedError{Class: Refused, Reason: err.Error()}
		if failure, ok := errors.AsType[*Error](err); ok {
			rec.Error.Class, rec.Error.AfterMS = failure.Class, failure.After.Milliseconds()
		}
	}
	if !c.ReadOnly {
		after, treeErr := readTree(c.Dir)
		if treeErr == nil {
			rec.RecordedFiles, treeErr = changes(c.Dir, before, after)
		}
		if treeErr != nil {
			return res, &Error{Class: Refused, Reason: fmt.Sprintf("record step %s: %v", c.Step, treeErr), Err: treeErr}
		}
	}
	if saveErr := r.save(r.scrub(rec, c)); saveErr != nil {
		return res, &Error{Class: Refused, Reason: fmt.Sprintf("record step %s: %v", c.Step, saveErr), Err: saveErr}
	}
	return res, err
}

// scrub removes secrets, and what differs from run to run: the directories of
// the call and the name of the session.
func (r *Recorder) scrub(rec Recording, c Call) Recording {
	var subs []substitution
	for _, secret := range r.hide {
		subs = append(subs, substitution{secret, "[secret]"})
	}
	secretsOnly := newReplacer(subs)
	all := newReplacer(append(subs, substitution{c.Home, "~"}, substitution{c.Dir, "."}, substitution{rec.Result.Session, "session"}))

	for i, e := range rec.Events {
		rec.Events[i].Text = all.Replace(e.Text)
		rec.Events[i].Input = sortKeys(all.Replace(string(e.Input)))
	}
	rec.Result.Text = all.Replace(rec.Result.Text)
	rec.Result.Session = all.Replace(rec.Result.Session)
	rec.Result.Output = sortKeys(all.Replace(string(rec.Result.Output)))
	if rec.Error != nil {
		rec.Error.Reason = all.Replace(rec.Error.Reason)
	}
	for name, text := range rec.Files {
		rec.Files[name] = secretsOnly.Replace(text)
	}
	for name, content := range rec.Binary {
		rec.Binary[name] = []byte(secretsOnly.Replace(string(content)))
	}
	return rec
}

// save writes the recordings of a step: one, or the list of its calls so far.
func (r *Recorder) save(rec Recording) error {
	if err := rec.check(); err != nil {
		return err
	}
	if err := checkPath(rec.Step); err != nil {
		return fmt.Errorf("the step names no file: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	turns := append(r.turns[rec.Step], rec)
	r.turns[rec.Step] = turns

	var whole any = turns
	if len(turns) == 1 {
		whole = turns[0]
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(whole); err != nil {
		return err
	}
	name := filepath.Join(r.dir, filepath.FromSlash(rec.Step)+".json")
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}

// A tree is what the files of a directory are: path → mode and content hash, or
// mode and target of a link. Directories of git are left out.
type tree map[string]treeFile

type treeFile struct {
	mode    fs.FileMode
	content string
}

func readTree(dir string) (tree, error) {
	t := make(tree)
	err := filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.EqualFold(entry.Name(), ".git") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		name, err := filepath.Rel(dir, full)
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := readTreeFile(full, entry)
		t[filepath.ToSlash(name)] = f
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the tree: %w", err)
	}
	return t, nil
}

func readTreeFile(full string, entry fs.DirEntry) (treeFile, error) {
	if entry.Type() == fs.ModeSymlink {
		target, err := os.Readlink(full)
		return treeFile{mode: fs.ModeSymlink, content: target}, err
	}
	if !entry.Type().IsRegular() {
		return treeFile{mode: entry.Type()}, nil
	}
	info, err := entry.Info()
	if err != nil {
		return treeFile{}, err
	}
	content, err := os.ReadFile(full)
	if err != nil {
		return treeFile{}, err
	}
	sum := sha256.Sum256(content)
	return treeFile{mode: info.Mode() & 0o111, content: string(sum[:])}, nil
}

// changes returns how dir became after from before. What is neither file nor
// link, such as a socket, is left out.
func changes(dir string, before, after tree) (RecordedFiles, error) {
	f := RecordedFiles{Files: make(map[string]string), Binary: make(map[string][]byte), Links: make(map[string]string)}
	for name, now := range after {
		if before[name] == now {
			if _, was := before[name]; was {
				continue
			}
		}
		switch {
		case now.mode == fs.ModeSymlink:
			f.Links[name] = now.content
			continue
		case now.mode.Type() != 0:
			continue
		case now.mode != 0:
			f.Executable = append(f.Executable, name)
		}
		content, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil {
			return RecordedFiles{}, err
		}
		if utf8.Valid(content) {
			f.Files[name] = string(content)
		} else {
			f.Binary[name] = content
		}
	}
	for name := range before {
		if _, still := after[name]; !still {
			f.Deleted = append(f.Deleted, name)
		}
	}
	slices.Sort(f.Executable)
	slices.Sort(f.Deleted)
	return f, nil
}

// sortKeys gives JSON its keys in order; what is no JSON stays as it is.
func sortKeys(text string) json.RawMessage {
	if text == "" {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var value any
	if d.Decode(&value) != nil {
		return json.RawMessage(text)
	}
	var sorted bytes.Buffer
	enc := json.NewEncoder(&sorted)
	enc.SetEscapeHTML(false)
	if enc.Encode(value) != nil {
		return json.RawMessage(text)
	}
	return bytes.TrimSpace(sorted.Bytes())
}
