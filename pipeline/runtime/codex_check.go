package runtime

import (
	"context"
	"fmt"
	"strings"
)

// CodexVersion is the version of Codex that this package was measured with. An
// older one is refused.
const CodexVersion = "0.169.0"

// codexPackage is the npm package of the CLI.
const codexPackage = "@openai/codex"

// Check says whether calls can work at all: the CLI is there, starts in the
// sandbox, is new enough, and there is a key to a model. The *Error says what to
// do. It asks no model.
func (r *Codex) Check(ctx context.Context) error {
	program, err := r.program()
	if err != nil {
		return err
	}
	cli := installed{
		Name: "Codex", Package: codexPackage, Version: CodexVersion,
		Program: program, Readable: codexFiles(program), Environ: func(home string) []string { return r.environ(home, "") },
	}
	if err := cli.check(ctx, r.opts.Box, r.hide); err != nil {
		return err
	}
	if r.secret() == "" {
		return &Error{Class: Fatal, Reason: fmt.Sprintf(
			"Codex has no key: set %s for the worker; a login of `codex login` does not count, for agents have a HOME of their own",
			strings.Join(codexCredentials, " or "))}
	}
	return nil
}
