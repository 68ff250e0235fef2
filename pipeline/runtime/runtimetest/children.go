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
func waitForChild(t *testing.T, command string, ended chan error) {
	t.Helper()
	if why := awaitChild(t, command, ended); why != "" {
		t.Fatal(why)
	}
}

// awaitChild is waitForChild for other goroutines than the test's: it returns
// why there is no such process.
func awaitChild(t *testing.T, command string, ended chan error) string {
	return await("the agent did not start its child", ended, func() bool { return len(children(t, command)) > 0 })
}

// patience is how long a call of the suite may take where everything else of the
// machine is busy too. It only ends what would never end.
const patience = 3 * time.Minute

// await returns once seen is true, or says why that is not to be expected: the
// run is over, which ended tells, or it takes too long. What ended told can be
// received again.
func await(complaint string, ended chan error, seen func() bool) string {
	poll := time.NewTicker(100 * time.Millisecond)
	defer poll.Stop()
	late := time.After(patience + 10*time.Second) // the run ends first, and says more
	for !seen() {
		select {
		case err := <-ended:
			ended <- err
			return fmt.Sprintf("the run ended too early: %v", err)
		case <-late:
			return complaint
		case <-poll.C:
		}
	}
	return ""
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
