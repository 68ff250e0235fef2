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
	return cli(t, "Claude Code", "SLIPWAY_CLAUDE", "claude/claude")
}

// Codex returns the path of the Codex CLI likewise: SLIPWAY_CODEX, else
// .cache/codex/bin/codex.
func Codex(t testing.TB) string {
	t.Helper()
	return cli(t, "Codex", "SLIPWAY_CODEX", "codex/bin/codex")
}

// OpenCode returns the path of the CLI opencode likewise: SLIPWAY_OPENCODE, else
// .cache/opencode/opencode.
func OpenCode(t testing.TB) string {
	t.Helper()
	return cli(t, "opencode", "SLIPWAY_OPENCODE", "opencode/opencode")
}

// cli finds a CLI by the variable that names it, or in .cache.
func cli(t testing.TB, name, variable, cached string) string {
	t.Helper()
	if path := os.Getenv(variable); path != "" {
		return path
	}
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if path := filepath.Join(root, ".cache", filepath.FromSlash(cached)); isProgram(path) {
			return path
		}
		up := filepath.Dir(root)
		if up == root {
			break
		}
		root = up
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("the CLI of %s is missing: make tools", name)
	}
	t.Skipf("the CLI of %s is missing: make tools, or set %s", name, variable)
	return ""
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
