package runtime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
)

// A Recording is what one call did: what it said, what it answered, and the
// files as it left them. It is a JSON file that people read and write.
type Recording struct {
	Step        string         `json:"step"`                   // the key it is found by
	InputDigest string         `json:"input_digest,omitempty"` // Call.Digest of the call that was recorded
	DelayMS     int64          `json:"delay_ms,omitempty"`     // how long it takes to play, in milliseconds
	Events      []Event        `json:"events"`
	Result      Result         `json:"result"`
	Error       *RecordedError `json:"error,omitempty"` // the call failed so
	RecordedFiles
}

// A RecordedError is the *Error with which a recorded call failed.
type RecordedError struct {
	Class   Class  `json:"class"`
	Reason  string `json:"reason"`
	AfterMS int64  `json:"after_ms,omitempty"` // Error.After in milliseconds
}

// RecordedFiles is how a call changed its directory. Paths are relative to it,
// with slashes. Contents are whole, so that the order in which recordings are
// played over each other does not matter.
type RecordedFiles struct {
	Files      map[string]string `json:"files,omitempty"`      // path → text
	Binary     map[string][]byte `json:"binary,omitempty"`     // path → content that is no UTF-8, in base64
	Links      map[string]string `json:"links,omitempty"`      // path → target of a symbolic link
	Executable []string          `json:"executable,omitempty"` // the paths above that are programs
	Deleted    []string          `json:"deleted,omitempty"`
}

// empty says that nothing was changed.
func (f RecordedFiles) empty() bool {
	return len(f.Files)+len(f.Binary)+len(f.Links)+len(f.Executable)+len(f.Deleted) == 0
}

// ReadArchive reads the recordings of a txtar archive: every file whose name
// ends in .json. What NAME.json writes at PATH may stand beside it as the file
// NAME.files/PATH, where people can read it.
func ReadArchive(archive []byte) ([]Recording, error) {
	var all []Recording
	newest := map[string]int{} // by name without .json, the place of its last recording
	for _, f := range txtar.Parse(archive).Files {
		if of, name, ok := strings.Cut(f.Name, ".files/"); ok {
			i, known := newest[of]
			if !known {
				return nil, fmt.Errorf("recording %s: there is no %s.json before it", f.Name, of)
			}
			if err := checkPath(name); err != nil {
				return nil, fmt.Errorf("recording %s: %w", f.Name, err)
			}
			if all[i].Files == nil {
				all[i].Files = map[string]string{}
			}
			all[i].Files[name] = string(f.Data)
			continue
		}
		if path.Ext(f.Name) != ".json" {
			continue
		}
		recordings, err := parseRecordings(f.Name, f.Data)
		if err != nil {
			return nil, err
		}
		all = append(all, recordings...)
		if len(recordings) > 0 {
			newest[strings.TrimSuffix(f.Name, ".json")] = len(all) - 1
		}
	}
	return all, nil
}

// ReadRecordings reads the recordings of a directory and those below it: every
// file whose name ends in .json.
func ReadRecordings(fsys fs.FS) ([]Recording, error) {
	var all []Recording
	err := fs.WalkDir(fsys, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".json" {
			return err
		}
		data, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		recordings, err := parseRecordings(name, data)
		all = append(all, recordings...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read recordings: %w", err)
	}
	return all, nil
}

// parseRecordings reads one file: a recording, or the list of those of a step
// that was called more than once. An unknown field is an error: it is a typing
// mistake whose effect would be silence.
func parseRecordings(name string, data []byte) ([]Recording, error) {
	var list []Recording
	var target any = &list
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("[")) {
		list = make([]Recording, 1)
		target = &list[0]
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	err := d.Decode(target)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is more than one JSON value")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("recording %s: %w", name, err)
	}
	for _, r := range list {
		if err := r.check(); err != nil {
			return nil, fmt.Errorf("recording %s: %w", name, err)
		}
	}
	return list, nil
}

// check refuses what could never be played.
func (r Recording) check() error {
	if r.Step == "" {
		return errors.New("it names no step")
	}
	if r.DelayMS < 0 {
		return fmt.Errorf("step %s: delay_ms is negative", r.Step)
	}
	if e := r.Error; e != nil && e.AfterMS < 0 {
		return fmt.Errorf("step %s: after_ms of the error is negative", r.Step)
	}
	if e := r.Error; e != nil && e.Class != Transient && e.Class != Refused && e.Class != Fatal {
		return fmt.Errorf("step %s: error class %q is none of transient, refused, fatal", r.Step, e.Class)
	}
	for _, name := range r.paths() {
		if err := checkPath(name); err != nil {
			return fmt.Errorf("step %s: %w", r.Step, err)
		}
	}
	for name, target := range r.Links {
		if path.IsAbs(target) || !fs.ValidPath(path.Join(path.Dir(name), target)) {
			return fmt.Errorf("step %s: the link %s leads out of the directory", r.Step, name)
		}
	}
	return nil
}

// checkPath refuses paths that leave the directory or write where git keeps its
// own: a recording is data and must not become a hook.
func checkPath(name string) error {
	if name == "." || !fs.ValidPath(name) {
		return fmt.Errorf("the path %q is not inside the directory", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if strings.EqualFold(part, ".git") {
			return fmt.Errorf("the path %q belongs to git", name)
		}
	}
	return nil
}
