package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// A note says which process a worker started and by what its kin are known, so
// that another can end them if that worker dies. Start times, in ticks since boot,
// tell a process from a later one with the same pid.
type note struct {
	Boot        string `json:"boot"`
	Worker      int    `json:"worker"`
	WorkerStart uint64 `json:"worker_start"`
	Process     int    `json:"process,omitempty"` // also the id of its group and session; without it the mark alone decides
	Start       uint64 `json:"start,omitempty"`
	Mark        uint64 `json:"mark"`
}

// noted starts cmd under a note; then finishes the start, and the process ends if
// that fails.
func (b *Box) noted(cmd *exec.Cmd, from origin, then func() error) (kin, error) {
	m, err := startMarked(cmd, from)
	if err != nil {
		return nil, err
	}
	file, err := b.write(note{Process: m.root.pid, Start: m.root.start, Mark: m.mark})
	if err == nil {
		err = then()
	}
	k := notedKin{marked: m, file: file}
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_, endErr := k.end()
		return nil, joined(err, endErr)
	}
	return k, nil
}

type notedKin struct {
	*marked
	file string
}

func (k notedKin) end() (time.Duration, error) {
	cpu, err := k.marked.end()
	if err != nil || k.file == "" {
		return cpu, err // the note stays: a later Reap tries again
	}
	if err := os.Remove(k.file); err != nil {
		return cpu, fmt.Errorf("remove a note: %w", err)
	}
	return cpu, nil
}

func (b *Box) notesDir() string { return filepath.Join(b.state, "processes") }

// write keeps a note in the name of this process, and returns its file.
func (b *Box) write(n note) (string, error) {
	var err error
	if n.Boot, err = bootID(); err != nil {
		return "", err
	}
	self, err := readProc(os.Getpid())
	if err != nil {
		return "", fmt.Errorf("read own start time: %w", err)
	}
	n.Worker, n.WorkerStart = self.pid, self.start
	data, err := json.Marshal(n)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(b.notesDir(), 0o700); err != nil {
		return "", fmt.Errorf("make the directory of notes: %w", err)
	}
	file := filepath.Join(b.notesDir(), fmt.Sprintf("%d-%d-%d.json", n.Worker, n.Process, n.Mark))
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return "", fmt.Errorf("write a note: %w", err)
	}
	return file, nil
}

// Reap kills what dead workers of this host left running, and returns when it is
// gone. Under Bubblewrap that is little, as the kernel ends a box with its worker:
// only a box that was being made may be left, and wait for ever. Call it before
// work that a dead worker may have been at.
func (b *Box) Reap(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(b.notesDir(), "*.json"))
	if err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	boot, err := bootID()
	if err != nil {
		return fmt.Errorf("reap: %w", err)
	}
	var errs []error
	for _, file := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := reapNote(file, boot); err != nil {
			errs = append(errs, fmt.Errorf("reap %s: %w", filepath.Base(file), err))
		}
	}
	return errors.Join(errs...)
}

func reapNote(file, boot string) error {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // its run has ended, or another reaper was here
	}
	if err != nil {
		return err
	}
	var n note
	if err := json.Unmarshal(data, &n); err != nil {
		return remove(file) // cut off by a crash in the write; the process died with its worker
	}
	if n.Boot == boot {
		if worker := (proc{pid: n.Worker, start: n.WorkerStart}); !worker.gone() {
			return nil
		}
		m := marked{root: proc{pid: n.Process, start: n.Start}, mark: n.Mark}
		if n.Process == 0 {
			m.root.pid = nobody
		}
		if _, err := killAll(m.remains); err != nil {
			return err
		}
	}
	return remove(file)
}

// nobody is a pid from which nothing descends: the mark alone decides.
const nobody = -1

// remains are the members of a run whose first process may be long gone, and its
// pid taken by a stranger.
func (m *marked) remains() ([]proc, error) {
	if now, err := readProc(m.root.pid); err == nil && now.start != m.root.start {
		stranger := *m
		stranger.root.pid = nobody
		return stranger.members()
	}
	return m.members()
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the id of this boot: %w", err)
	}
	return string(bytes.TrimSpace(id)), nil
}
