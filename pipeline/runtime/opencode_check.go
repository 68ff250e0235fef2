package runtime

import (
	"context"
	"slices"
)

// OpenCodeVersion is the version of opencode that this package was measured
// with. An older one is refused.
const OpenCodeVersion = "1.18.33"

// openCodePackage is the npm package of the CLI.
const openCodePackage = "opencode-ai"

// Check says whether calls can work at all: the CLI is there, starts in the
// sandbox, is new enough, and there is a credential for some provider. The
// *Error says what to do. It asks no model.
func (r *OpenCode) Check(ctx context.Context) error {
	program, err := r.program()
	if err != nil {
		return err
	}
	cli := installed{
		Name: "opencode", Package: openCodePackage, Version: OpenCodeVersion,
		Program: program, Readable: []string{program},
		Environ: func(home string) []string { return r.environ(home, openCodeDir{path: home}, openCodeRoute{}) },
	}
	if err := cli.check(ctx, r.opts.Box, r.hide); err != nil {
		return err
	}
	if !slices.ContainsFunc(append([]string{"OPENAI_BASE_URL"}, openCodeCredentials...), func(key string) bool { return r.variable(key) != "" }) {
		return &Error{Class: Fatal, Reason: "opencode has no credential: " + openCodeKeys}
	}
	return nil
}
