package runtimetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// Soak is how many agents RunEndings ends where there is time: with SLIPWAY_SOAK=1.
const Soak = 200

// Endings is how many agents a test of RunEndings ends: Soak where there is
// time, else few.
func Endings(few int) int {
	if os.Getenv("SLIPWAY_SOAK") == "1" {
		return Soak
	}
	return few
}

// RunEndings ends n agents in the middle of a tool, one by a cancel and the next
// by the wall clock, and checks that no process of theirs is left: neither the
// agent, nor what it started, in a session of its own.
func RunEndings(t *testing.T, factory Factory, n int, opts Options) {
	opts = opts.filled()
	var (
		stages []*stage
		lanes  sync.WaitGroup
	)
	todo := make(chan int)
	for range n {
		stages = append(stages, newStage(t, factory, opts, SpawnsAndWaits))
	}
	for range opts.Many {
		lanes.Go(func() {
			for i := range todo {
				if i%2 == 0 {
					stages[i].cancelInMidTool()
				} else {
					stages[i].runOutOfTime()
				}
			}
		})
	}
	for i := range n {
		todo <- i
	}
	close(todo)
	lanes.Wait()
	wantGone(t, filepath.Dir(stages[0].c.Home))
	for _, s := range stages {
		if left := children(t, s.c.Child); len(left) > 0 {
			t.Errorf("processes are left behind: %v", left)
		}
	}
}

func (s *stage) cancelInMidTool() {
	stop := errors.New("somebody said stop")
	ctx, cancel := context.WithCancelCause(s.t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := s.run(ctx, s.call())
		ended <- err
	}()
	if why := awaitChild(s.t, s.c.Child, ended); why != "" {
		s.t.Error(why)
	}
	if len(processesOf(s.t, s.c.Home)) == 0 {
		s.t.Error("no process is known by its home: what is left behind would not be seen")
	}
	cancel(stop)
	if err := <-ended; !errors.Is(err, stop) {
		s.t.Errorf("Run = %v, want the cause of the context", err)
	}
}

func (s *stage) runOutOfTime() {
	c := s.call()
	c.Timeout = s.opts.Idle
	_, err := s.run(s.t.Context(), c)
	if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Refused {
		s.t.Errorf("Run = %v, want a refused *runtime.Error", err)
	}
}

// wantGone waits, as long as the runtimes promise, until no process has to do
// with dir by its arguments, environment or directory.
func wantGone(t *testing.T, dir string) {
	t.Helper()
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	late := time.After(5 * time.Second)
	for {
		left := processesOf(t, dir)
		if len(left) == 0 {
			return
		}
		select {
		case <-late:
			t.Errorf("processes are left behind: %v", left)
			return
		case <-poll.C:
		}
	}
}

// processesOf returns the processes that have to do with dir, as their command
// lines.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	procs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, proc := range procs {
		line, err := os.ReadFile(filepath.Join(proc, "cmdline"))
		if err != nil || len(line) == 0 || filepath.Base(proc) == fmt.Sprint(os.Getpid()) {
			continue // gone, or a zombie
		}
		env, _ := os.ReadFile(filepath.Join(proc, "environ")) // another user's cannot be read
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if bytes.Contains(bytes.Join([][]byte{line, env, []byte(cwd)}, []byte{0}), []byte(dir)) {
			found = append(found, fmt.Sprintf("%s: %q", proc, line))
		}
	}
	return found
}
