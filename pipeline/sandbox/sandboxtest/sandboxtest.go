// Package sandboxtest is for tests that need a program which a host may lack.
package sandboxtest

import (
	"os"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// Need skips the test, naming each tool that is not in PATH. Where CI=true it
// fails instead: a pipeline that lacks a tool must not pass for that.
func Need(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := sandbox.LookPath(tool, nil); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("needs %s, which is not installed", tool)
		}
		t.Skipf("needs %s, which is not installed", tool)
	}
}
