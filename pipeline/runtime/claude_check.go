package runtime

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// ClaudeVersion is the version of Claude Code that this package was measured
// with. An older one is refused.
const ClaudeVersion = "2.1.329"

// claudePackage is the npm package of the CLI.
const claudePackage = "@anthropic-ai/claude-code"

// Check says whether calls can work at all: the CLI is there, starts in the
// sandbox, is new enough, and has a credential. The *Error says what to do.
// It asks no model.
func (r *Claude) Check(ctx context.Context) error {
	program, err := r.program()
	if err != nil {
		return err
	}
	home, err := os.MkdirTemp("", "slipway-check-")
	if err != nil {
		return fmt.Errorf("check claude: %w", err)
	}
	defer func() { _ = os.RemoveAll(home) }() // what stays is an empty HOME in the temporary directory

	var out, log bytes.Buffer
	exit, err := r.opts.Box.Run(ctx, sandbox.Command{
		Args: []string{program, "--version"}, Dir: home, Env: r.environ(home),
		Stdout: &out, Stderr: &log, Writable: []string{home}, Readable: []string{program}, Timeout: 30 * time.Second,
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &Error{Class: Fatal, Reason: fmt.Sprintf("Claude Code does not start: %v", err), Err: err}
	case exit.Code != 0:
		return &Error{Class: Fatal, Reason: fmt.Sprintf("Claude Code does not start: %s ended with %s: %s",
			program, exitText(exit.Code), r.hide.text(clip(strings.TrimSpace(log.String()))))}
	}
	version := versionPattern.FindString(out.String())
	if version == "" {
		return &Error{Class: Fatal, Reason: fmt.Sprintf("%s is not Claude Code: its version is %q", program, clip(strings.TrimSpace(out.String())))}
	}
	if compareVersions(version, ClaudeVersion) < 0 {
		return &Error{Class: Fatal, Reason: fmt.Sprintf(
			"Claude Code %s is too old: Slipway needs %s or newer; install %s@%s", version, ClaudeVersion, claudePackage, ClaudeVersion)}
	}
	if !r.hasCredential() {
		return &Error{Class: Fatal, Reason: fmt.Sprintf(
			"Claude Code has no credential: set one of %s for the worker; `claude setup-token` makes the last one from a subscription",
			strings.Join(claudeCredentials, ", "))}
	}
	return nil
}

func (r *Claude) hasCredential() bool {
	return slices.ContainsFunc(slices.Concat(r.opts.Env, r.opts.Secrets), func(entry string) bool {
		key, value, _ := strings.Cut(entry, "=")
		return value != "" && slices.Contains(claudeCredentials, key)
	})
}

var versionPattern = regexp.MustCompile(`\d+\.\d+\.\d+`)

// compareVersions compares two versions of the form that versionPattern finds.
func compareVersions(a, b string) int {
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			return 0 // too long to be a version
		}
		return n
	}
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(x, y string) int {
		return cmp.Compare(number(x), number(y))
	})
}
