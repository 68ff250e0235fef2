package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A transcript is the event file of a call. The call's own events and those of
// the batches that it asked for come from several goroutines.
type transcript struct {
	path string // empty keeps none

	mu   sync.Mutex
	file *os.File
	lost error
	next string // a notice for when it is opened again
}

// note keeps a notice for the try that comes next.
func (t *transcript) note(notice string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next = notice
}

// open begins to write, after what earlier tries have written.
func (t *transcript) open() error {
	if t.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(t.path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(t.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.file = file
	if t.next != "" {
		t.lost = t.encode(runtime.Event{Kind: runtime.Notice, Text: t.next})
		t.next = ""
	}
	return nil
}

// write adds an event. One that comes when nothing is open is not of the call.
func (t *transcript) write(e runtime.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file != nil {
		t.lost = errors.Join(t.lost, t.encode(e))
	}
}

func (t *transcript) encode(e runtime.Event) error { return json.NewEncoder(t.file).Encode(e) }

// close ends the file and returns what could not be written.
func (t *transcript) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	lost := errors.Join(t.lost, t.file.Close())
	t.file, t.lost = nil, nil
	return lost
}
