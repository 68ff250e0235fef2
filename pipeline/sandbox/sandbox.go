// Package sandbox runs processes: confined, bounded and redacted. It is the
// only package that starts one.
//
// A Box confines agents and engine commands to the directories that a Command
// names. Host starts the programs that Slipway itself trusts (git, its own
// servers) without confinement. Both promise the same of the process: it has
// exactly the environment given and the mark of its run, it and everything that
// it started is gone when the
// call returns, its output is bounded, and ctx, time limit and output cap end it.
//
// A process also dies with Slipway, however that ends. The kernel binds this to
// the thread that forked, so a run keeps its thread for as long as it lasts (see
// supervise). What the kernel does not reach without bubblewrap, the children of
// that process, is noted in the state directory, and Reap ends it.
//
// To end "everything it started", daemons included, the package makes Slipway
// the parent of orphans (PR_SET_CHILD_SUBREAPER) and marks the processes of each
// run (see marks). A program that uses the package must not wait for children of
// unknown pid. The package works on Linux only.
package sandbox

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"
)

// A Command describes one process.
type Command struct {
	Args     []string  // program and arguments; the program is looked up in PATH of Env
	Dir      string    // working directory, an existing absolute path
	Env      []string  // the whole environment, KEY=value
	Stdin    io.Reader // nil is empty
	Stdout   io.Writer // nil discards; may equal Stderr, which then keeps the order of the writes
	Stderr   io.Writer // nil discards
	Writable []string  // directories it may write, beside nothing; Dir must be listed to be writable
	Readable []string  // directories and files it may read, beside toolchains and Dir; wins over Writable
	Offline  bool      // no network

	// Instead shows, read-only, a file or directory in place of another of the
	// same kind: path → what is shown there. Bubblewrap alone can do so.
	Instead map[string]string

	Timeout   time.Duration // wall clock; 0 means none
	MaxOutput int64         // bytes of stdout and stderr together; 0 means 64 MiB
	Grace     time.Duration // from SIGINT to SIGTERM; 0 means 1 s. SIGKILL follows a second later
}

// An Exit is how a process ended.
type Exit struct {
	Code   int           // exit code; -1 when a signal ended it
	CPU    time.Duration // user and system time of the process and its waited-for children
	Wall   time.Duration
	Stdout int64 // bytes seen, also beyond the limit
	Stderr int64 // likewise; 0 when Stdout and Stderr are the same writer
}

// DefaultMaxOutput bounds the output of a command that names no bound.
const DefaultMaxOutput = 64 << 20

// The reasons for which Run and Host end a process themselves. A canceled ctx
// is reported as its cause.
var (
	ErrTimeout = errors.New("the time limit was reached")
	ErrOutput  = errors.New("the output limit was reached")
)

// Host runs a trusted program without confinement. A non-zero exit is not an
// error: the caller reads Code. When ctx, the time limit or the output limit
// ended the program, the error is context.Cause(ctx), ErrTimeout or ErrOutput.
func Host(ctx context.Context, c Command) (Exit, error) {
	cmd, err := command(c)
	if err != nil {
		return Exit{}, err
	}
	return supervise(ctx, c, cmd, func(cmd *exec.Cmd) (kin, error) { return startTrusted(cmd) })
}

// command finds the program of c and prepares its start.
func command(c Command) (*exec.Cmd, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("sandbox: no program given")
	}
	path, err := c.program()
	if err != nil {
		return nil, err
	}
	// A nil Env would inherit Slipway's own environment.
	return &exec.Cmd{Path: path, Args: c.Args, Dir: c.Dir, Env: append([]string{}, c.Env...)}, nil
}
