package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// streams carries what a process reads and writes. The pipes are our own and not
// those of os/exec: its Wait would hang on a pipe that a left-over child still
// holds, before we had the chance to end that child.
//
// Whoever stays with the process passes its outputs on as well. A goroutine for
// each of them would be woken, by the poller, on another thread each time: that
// costs more than the start of the process.
type streams struct {
	limit int64
	total int64       // bytes seen on both
	stop  func(error) // ends the process; called at most once

	stdout, stderr output
	child          []*os.File // the ends of the process; closed once it has them
	input          *os.File   // our end of stdin; nil when it needs no pipe
	inputDone      chan struct{}
	failure        error // why stop was called
}

// An output is our end of what a process writes.
type output struct {
	end    int // -1 when there is none, and after its end
	to     io.Writer
	seen   int64
	broken bool // to takes no more
}

// openStreams connects cmd to the reader and writers of c.
func openStreams(c Command, cmd *exec.Cmd, stop func(error)) (*streams, error) {
	s := &streams{
		limit: cmp.Or(c.MaxOutput, DefaultMaxOutput), stop: stop, inputDone: make(chan struct{}),
		stdout: output{end: -1, to: c.Stdout}, stderr: output{end: -1, to: c.Stderr},
	}
	err := s.connect(c, cmd)
	if err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

func (s *streams) connect(c Command, cmd *exec.Cmd) (err error) {
	if cmd.Stdout, err = s.open(&s.stdout); err != nil {
		return err
	}
	if c.Stderr != nil && sameWriter(c.Stdout, c.Stderr) {
		cmd.Stderr = cmd.Stdout
	} else if cmd.Stderr, err = s.open(&s.stderr); err != nil {
		return err
	}
	return s.stdin(c.Stdin, cmd)
}

func (s *streams) open(o *output) (*os.File, error) {
	// Not os.Pipe: the poller has no business with either end.
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return nil, fmt.Errorf("open an output pipe: %w", err)
	}
	o.end = ends[0]
	end := os.NewFile(uintptr(ends[1]), "output")
	s.child = append(s.child, end)
	if o.to == nil {
		o.to = io.Discard
	}
	return end, nil
}

// buffers are for passing output on: a build starts thousands of programs.
var buffers = sync.Pool{New: func() any { buf := make([]byte, 32<<10); return &buf }}

// brief is how many milliseconds a process has to itself before its outputs are
// read. Most of a build's programs say little and end within them: one wait is
// enough then. One that says more than a pipe holds goes on after them.
const brief = 20

// follow passes the outputs on until the process ends.
func (s *streams) follow(process *os.Process) error {
	return process.WithHandle(func(handle uintptr) {
		look := [...]unix.PollFd{{Fd: int32(handle), Events: unix.POLLIN}}
		_, _ = unix.Poll(look[:], brief)
		for !s.pass(int(handle), -1) {
		}
	})
}

// pass waits until there is something to read, and passes it on. It reports
// whether the process of the handle has ended or, for a handle of -1, both outputs
// have, or nothing came for so many milliseconds; -1 is for ever.
func (s *streams) pass(handle, wait int) (ended bool) {
	if handle < 0 && s.stdout.end < 0 && s.stderr.end < 0 {
		return true
	}
	look := [...]unix.PollFd{
		{Fd: int32(s.stdout.end), Events: unix.POLLIN}, {Fd: int32(s.stderr.end), Events: unix.POLLIN}, {Fd: int32(handle), Events: unix.POLLIN},
	}
	n, err := unix.Poll(look[:], wait)
	if errors.Is(err, unix.EINTR) {
		return false
	}
	if n <= 0 {
		return true
	}
	if look[0].Revents != 0 {
		s.read(&s.stdout)
	}
	if look[1].Revents != 0 {
		s.read(&s.stderr)
	}
	return look[2].Revents != 0
}

// read passes on what there is. Beyond the limit it goes on reading and discards,
// so that the process is ended by a signal and not stuck in a write.
func (s *streams) read(o *output) {
	room := buffers.Get().(*[]byte)
	defer buffers.Put(room)
	buf := *room
	n, err := unix.Read(o.end, buf)
	if errors.Is(err, unix.EINTR) {
		return
	}
	if n <= 0 {
		o.close()
		return
	}
	o.seen += int64(n)
	s.total += int64(n)
	if keep := min(int64(n), int64(n)-(s.total-s.limit)); keep > 0 && !o.broken {
		if _, err := o.to.Write(buf[:keep]); err != nil {
			o.broken = true
			s.fail(fmt.Errorf("pass output on: %w", err))
		}
	}
	if s.total > s.limit {
		s.fail(ErrOutput)
	}
}

func (o *output) close() {
	if o.end >= 0 {
		_ = unix.Close(o.end) // it was only read
		o.end = -1
	}
}

func (s *streams) fail(err error) {
	if s.failure == nil {
		s.failure = err
		s.stop(err)
	}
}

// nothing is what a process reads that was given nothing. It stays open: thousands
// of programs read it.
var nothing = sync.OnceValues(func() (*os.File, error) { return os.Open(os.DevNull) })

func (s *streams) stdin(r io.Reader, cmd *exec.Cmd) error {
	if file, ok := r.(*os.File); ok {
		cmd.Stdin = file
		return nil
	}
	if r == nil {
		file, err := nothing()
		cmd.Stdin = file
		return err
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
	const patience = 2 * time.Second
	for deadline := time.Now().Add(patience); !s.pass(-1, int(max(0, time.Until(deadline)).Milliseconds())); {
		if time.Now().After(deadline) {
			break
		}
	}
	s.stdout.close()
	s.stderr.close()
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
	s.stdout.close()
	s.stderr.close()
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
