package runtime

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// An installed CLI, of which a version is needed.
type installed struct {
	Name     string // for people
	Package  string // of npm
	Version  string // the oldest that is taken
	Program  string
	Readable []string // what the sandbox has to show of it
	Environ  func(home string) []string
}

// check says whether the CLI starts in the sandbox and is new enough.
func (i installed) check(ctx context.Context, box *sandbox.Box, hide *redactor) error {
	home, err := os.MkdirTemp("", "slipway-check-")
	if err != nil {
		return fmt.Errorf("check %s: %w", i.Name, err)
	}
	defer func() { _ = os.RemoveAll(home) }() // what stays is an empty HOME in the temporary directory

	var out, log bytes.Buffer
	exit, err := box.Run(ctx, sandbox.Command{
		Args: []string{i.Program, "--version"}, Dir: home, Env: i.Environ(home),
		Stdout: &out, Stderr: &log, Writable: []string{home}, Readable: i.Readable, Timeout: 30 * time.Second,
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &Error{Class: Fatal, Reason: fmt.Sprintf("%s does not start: %v", i.Name, err), Err: err}
	case exit.Code != 0:
		return &Error{Class: Fatal, Reason: fmt.Sprintf("%s does not start: %s ended with %s: %s",
			i.Name, i.Program, exitText(exit.Code), hide.text(clip(strings.TrimSpace(log.String()))))}
	}
	version := versionPattern.FindString(out.String())
	if version == "" {
		return &Error{Class: Fatal, Reason: fmt.Sprintf("%s is not %s: its version is %q", i.Program, i.Name, clip(strings.TrimSpace(out.String())))}
	}
	if compareVersions(version, i.Version) < 0 {
		return &Error{Class: Fatal, Reason: fmt.Sprintf(
			"%s %s is too old: Slipway needs %s or newer; install %s@%s", i.Name, version, i.Version, i.Package, i.Version)}
	}
	return nil
}

// realProgram looks name up in the PATH that env makes and follows the links: a
// link to it may lie where the sandbox does not reach.
func realProgram(name string, env []string) (string, error) {
	found, err := sandbox.LookPath(name, sandbox.Environ("", env...))
	if err == nil {
		found, err = filepath.Abs(found)
	}
	if err == nil {
		found, err = filepath.EvalSymlinks(found)
	}
	return found, err
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
