package runtimetest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

var childCount atomic.Int64

// childCommand returns a command whose process runs far longer than a test and
// has an argument that no other process of this machine has.
func childCommand(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("sleep 86399.%d%05d", os.Getpid(), childCount.Add(1))
}

// waitForChild returns once a process runs command; ended yields early when the
// run is over before.
func waitForChild(t *testing.T, command string, ended <-chan error) {
	t.Helper()
	eventually(t, "the agent did not start its child", ended, func() bool { return len(children(t, command)) > 0 })
}

// eventually returns once seen is true; ended yields early when the run is over
// before.
func eventually(t *testing.T, complaint string, ended <-chan error, seen func() bool) {
	t.Helper()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	late := time.After(30 * time.Second)
	for !seen() {
		select {
		case err := <-ended:
			t.Fatalf("the run ended too early: %v", err)
		case <-late:
			t.Fatal(complaint)
		case <-poll.C:
		}
	}
}

// children returns the processes that run command, as their command lines.
func children(t *testing.T, command string) []string {
	t.Helper()
	want := bytes.ReplaceAll([]byte(command), []byte(" "), []byte{0})
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, name := range names {
		line, err := os.ReadFile(name)
		if err == nil && bytes.HasPrefix(line, want) {
			found = append(found, fmt.Sprintf("%s: %q", name, line))
		}
	}
	return found
}
