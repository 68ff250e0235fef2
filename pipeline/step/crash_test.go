//go:build crashpoint

package step_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

// The test runs itself as a child that records three steps and prints each one
// that it was told of.
func TestCrashPointKillsAroundTheNamedAppend(t *testing.T) {
	if os.Getenv("SLIPWAY_CRASH_CHILD") != "" {
		j := new(steptest.Log).Open(t, step.Options{Recorded: func(e queue.Entry) { fmt.Print(e.Key + " ") }})
		for _, key := range []string{"a", "b", "c"} {
			if _, err := step.Do(t.Context(), j, key, says("")); err != nil {
				t.Fatal(err)
			}
		}
		return
	}
	for at, want := range map[string]string{"before:1": "", "after:1": "", "before:2": "a ", "after:3": "a b ", "after:9": "a b c ",
		"before:b": "a ", "after:b": "a ", "after:[c-z]": "a b "} {
		child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		child.Env = append(os.Environ(), "SLIPWAY_CRASH_CHILD=1", "SLIPWAY_CRASH="+at)
		out, err := child.Output()
		said, _, _ := strings.Cut(string(out), "PASS")
		if said != want {
			t.Errorf("%s: said %q, want %q", at, said, want)
		}
		status, ok := child.ProcessState.Sys().(syscall.WaitStatus)
		if killed := ok && status.Signaled() && status.Signal() == syscall.SIGKILL; killed == (at == "after:9") {
			t.Errorf("%s: ended with %v", at, err)
		}
	}
}
