package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A kin knows the processes of one run: all of them, and nobody else's.
type kin interface {
	// signal asks the program and what it started to end.
	signal(sig unix.Signal)
	// end kills what is left and returns when it is gone. The first process has
	// ended and been waited for. cpu is what the others used, as far as it is known.
	end() (cpu time.Duration, err error)
}

// supervise starts cmd by launch and stays with it until it and its kin are gone.
//
// The kernel sends the parent-death signal when the *thread* that forked ends, and
// a Go thread ends when a goroutine that was locked to it ends. So the thread that
// forks is locked to this goroutine, by startWithMark, until the process is gone:
// nobody else can be on it and end it.
func supervise(ctx context.Context, c Command, cmd *exec.Cmd, launch func(*exec.Cmd) (kin, error)) (Exit, error) {
	if ctx.Err() != nil {
		return Exit{}, context.Cause(ctx)
	}
	defer runtime.UnlockOSThread() // startWithMark locks it
	if c.Timeout > 0 {
		var release context.CancelFunc
		ctx, release = context.WithTimeoutCause(ctx, c.Timeout, ErrTimeout)
		defer release()
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)

	streams, err := openStreams(c, cmd, stop)
	if err != nil {
		return Exit{}, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	// A session of its own: no controlling terminal, and signals that a terminal
	// sends to Slipway do not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	family, err := launch(cmd)
	if err != nil {
		streams.abandon()
		return Exit{}, fmt.Errorf("start %s: %w", c.Args[0], err)
	}
	streams.carry(c.Stdin)
	ended, escalated := make(chan struct{}), make(chan struct{})
	spared := context.AfterFunc(ctx, func() {
		defer close(escalated)
		escalate(family, cmd, ended, cmp.Or(c.Grace, time.Second))
	})
	// Here and not beside: a goroutine that keeps its thread is dear to park.
	followed := streams.follow(cmd.Process)
	if followed != nil {
		stop(followed)
	}
	_ = cmd.Wait() // its news is in ProcessState
	close(ended)
	var cause error
	if !spared() {
		<-escalated
		cause = context.Cause(ctx)
	}
	cpu, endErr := family.end()
	outErr := streams.drain()
	if cause == nil {
		cause = outErr // the last of the output broke the limit
	}
	exit := Exit{
		Code: -1, CPU: cpu, Wall: time.Since(began), Stdout: streams.stdout.seen, Stderr: streams.stderr.seen,
	}
	if cmd.ProcessState == nil { // somebody else in this program waited for it
		return exit, joined(cause, fmt.Errorf("sandbox: the end of %s was lost", c.Args[0]))
	}
	exit.Code = cmd.ProcessState.ExitCode()
	exit.CPU += cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return exit, joined(cause, endErr)
}

// escalate ends the first process, politely first: an agent that gets SIGINT
// still writes its result.
func escalate(family kin, cmd *exec.Cmd, ended <-chan struct{}, grace time.Duration) {
	for _, step := range []struct {
		signal unix.Signal
		wait   time.Duration
	}{{unix.SIGINT, grace}, {unix.SIGTERM, time.Second}} {
		family.signal(step.signal)
		select {
		case <-ended:
			return
		case <-time.After(step.wait):
		}
	}
	_ = cmd.Process.Kill() // the only way to fail is that it has ended
	<-ended
}

// joined keeps a lone error as it is, so that a cause compares equal to itself.
func joined(a, b error) error {
	if b == nil {
		return a
	}
	return errors.Join(a, b)
}
