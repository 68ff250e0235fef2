package runtime

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
	cli := installed{
		Name: "Claude Code", Package: claudePackage, Version: ClaudeVersion,
		Program: program, Readable: []string{program}, Environ: r.environ,
	}
	if err := cli.check(ctx, r.opts.Box, r.hide); err != nil {
		return err
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
