package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// streams carries what a process reads and writes. The pipes are our own and not
// those of os/exec: its Wait would hang on a pipe that a left-over child still
// holds, before we had the chance to end that child.
type streams struct {
	limit int64
	total atomic.Int64 // bytes seen on both
	stop  func(error)  // ends the process; called at most once

	stdout, stderr atomic.Int64
	child          []*os.File     // the ends of the process; closed once it has them
	pumps          []func()       // copy from our ends
	ours           []*os.File     // our ends of the outputs
	running        sync.WaitGroup // pumps
	input          *os.File       // our end of stdin; nil when it needs no pipe
	inputDone      chan struct{}
	once           sync.Once
	failure        error // why stop was called; read after running is done
}

// openStreams connects cmd to the reader and writers of c.
func openStreams(c Command, cmd *exec.Cmd, stop func(error)) (*streams, error) {
	s := &streams{limit: cmp.Or(c.MaxOutput, DefaultMaxOutput), stop: stop, inputDone: make(chan struct{})}
	var err error
	if cmd.Stdout, err = s.output(c.Stdout, &s.stdout); err != nil {
		s.abandon()
		return nil, err
	}
	if c.Stderr != nil && sameWriter(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout
	} else if cmd.Stderr, err = s.output(c.Stderr, &s.stderr); err != nil {
		s.abandon()
		return nil, err
	}
	if err := s.stdin(c.Stdin, cmd); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

func (s *streams) output(w io.Writer, seen *atomic.Int64) (*os.File, error) {
	// Not os.Pipe: the poller has no business with the end of the process.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open an output pipe: %w", err)
	}
	end := os.NewFile(uintptr(ends[1]), "output")
	if err := unix.SetNonblock(ends[0], true); err != nil {
		return nil, errors.Join(fmt.Errorf("open an output pipe: %w", err), unix.Close(ends[0]), end.Close())
	}
	r := os.NewFile(uintptr(ends[0]), "output")
	if w == nil {
		w = io.Discard
	}
	s.ours, s.child = append(s.ours, r), append(s.child, end)
	s.pumps = append(s.pumps, func() { s.pump(w, r, seen) })
	return end, nil
}

// buffers are those of pumps, for further use: a build starts thousands of programs.
var buffers = sync.Pool{New: func() any { buf := make([]byte, 32<<10); return &buf }}

// pump copies until every writer has gone. Beyond the limit it goes on reading
// and discards, so that the process is ended by a signal and not stuck in a write.
func (s *streams) pump(w io.Writer, r *os.File, seen *atomic.Int64) {
	buf := *buffers.Get().(*[]byte)
	defer buffers.Put(&buf)
	for broken := false; ; {
		n, err := r.Read(buf)
		seen.Add(int64(n))
		total := s.total.Add(int64(n))
		keep := int64(n)
		if total > s.limit {
			keep = max(0, int64(n)-(total-s.limit))
		}
		if !broken && keep > 0 {
			if _, err := w.Write(buf[:keep]); err != nil {
				broken = true
				s.fail(fmt.Errorf("pass output on: %w", err))
			}
		}
		if total > s.limit {
			s.fail(ErrOutput)
		}
		if err != nil {
			return
		}
	}
}

func (s *streams) fail(err error) {
	s.once.Do(func() {
		s.failure = err
		s.stop(err)
	})
}

func (s *streams) stdin(r io.Reader, cmd *exec.Cmd) error {
	if r == nil {
		return nil // os/exec opens /dev/null
	}
	if file, ok := r.(*os.File); ok {
		cmd.Stdin = file
		return nil
	}
	end, ours, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("open an input pipe: %w", err)
	}
	cmd.Stdin, s.input, s.child = end, ours, append(s.child, end)
	return nil
}

// carry begins to copy; the process has its ends now.
func (s *streams) carry(stdin io.Reader) {
	closeAll(s.child)
	for _, pump := range s.pumps {
		s.running.Go(pump)
	}
	if s.input == nil {
		return
	}
	go func() {
		defer close(s.inputDone)
		// A process that does not want its input closes it; that is its right.
		_, _ = io.Copy(s.input, stdin)
		_ = s.input.Close()
	}()
}

// drain returns when everything written has been passed on. Every process is
// gone; should a stranger hold a pipe that was handed to it, a deadline ends the wait.
func (s *streams) drain() error {
	for _, r := range s.ours {
		_ = r.SetReadDeadline(time.Now().Add(2 * time.Second))
	}
	s.running.Wait()
	closeAll(s.ours)
	if s.input != nil {
		_ = s.input.Close()
		select {
		case <-s.inputDone:
		case <-time.After(time.Second): // its reader blocks: nothing of ours can end that
		}
	}
	return s.failure
}

// abandon releases the pipes of a process that did not start.
func (s *streams) abandon() {
	closeAll(s.child)
	closeAll(s.ours)
	if s.input != nil {
		_ = s.input.Close()
	}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// sameWriter compares writers whose types may not be comparable.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}
