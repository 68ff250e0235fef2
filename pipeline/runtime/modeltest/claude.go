package modeltest

import (
	"os"
	"path/filepath"
	"testing"
)

// Claude returns the path of the Claude Code CLI for tests: SLIPWAY_CLAUDE, else
// .cache/claude/claude below the module's root. Without one the test is
// skipped; where CI=true it fails.
func Claude(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("SLIPWAY_CLAUDE"); path != "" {
		return path
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if path := filepath.Join(root, ".cache", "claude", "claude"); isProgram(path) {
			return path
		}
		up := filepath.Dir(root)
		if up == root {
			break
		}
		root = up
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("the Claude Code CLI is missing: make tools")
	}
	t.Skip("the Claude Code CLI is missing: make tools, or set SLIPWAY_CLAUDE")
	return ""
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
