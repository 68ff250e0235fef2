// Command slipway is Slipway: the server, the demo, and the same build pipeline
// at a terminal.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

func main() {
	sandbox.Main()
	pipeline.EaseCollector()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	code := Run(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ended, ok := errors.AsType[*exitError](err); ok {
		if ended.err != nil {
			fmt.Fprintln(os.Stderr, "slipway:", ended.err)
		}
		return ended.code
	}
	fmt.Fprintln(os.Stderr, "slipway:", err)
	if strings.HasPrefix(err.Error(), "unknown command") { // cobra's own words
		fmt.Fprintln(os.Stderr, "see: slipway --help")
	}
	return exitUsage
}

// Exit codes beside those of a build's outcome.
const (
	exitUsage       = 2
	exitEnvironment = 5
	exitInterrupted = 130
)

// exitError ends the process with a code. A nil err has been told already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// environment marks an error as one of this machine: a tool, a file, a port.
func environment(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{code: exitEnvironment, err: err}
}
