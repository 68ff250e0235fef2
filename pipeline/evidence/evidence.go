// Package evidence is the engine's own build, test and lint runs: what they say
// counts, and an agent's word does not.
//
// A Runner runs the commands of a repository on a clean checkout, confined, and
// reports each one. A command that fails runs once more: one that passes then has
// passed, and is flaky. A result is a value, also when everything fails; an error
// means that the commands could not be run.
package evidence

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// Commands are shell command lines; an empty one is left out.
type Commands struct {
	Setup string `json:"setup,omitempty"`
	Build string `json:"build,omitempty"`
	Test  string `json:"test,omitempty"`
	Lint  string `json:"lint,omitempty"`
}

// A Result is what the engine saw on one commit.
type Result struct {
	Commands []CommandResult `json:"commands"`
	LookedAt []string        `json:"looked_at,omitempty"` // where commands were looked for, when none were given
	None     bool            `json:"none,omitempty"`      // no command was given or found: nothing is known
	Setup    SetupState      `json:"setup,omitzero"`      // for the next run in this checkout
}

// A CommandResult is one command and how it ended.
type CommandResult struct {
	Name    string        `json:"name"` // setup, build, lint or test
	Line    string        `json:"line"`
	Passed  bool          `json:"passed"`
	Flaky   bool          `json:"flaky,omitempty"`  // failed, then passed on the same commit
	Exit    int           `json:"exit"`             // -1 when a signal or a limit ended it
	Output  string        `json:"output,omitempty"` // the end of it, at most 16 KiB; of a flaky command the failure's
	Elapsed time.Duration `json:"elapsed_ns"`       // of both runs, if there were two
	CPU     time.Duration `json:"cpu_ns"`           // likewise
}

// Passed reports that no command failed; there may have been none.
func (r Result) Passed() bool {
	for _, c := range r.Commands {
		if !c.Passed {
			return false
		}
	}
	return true
}

// Green reports that something was seen and nothing failed. A setup alone shows
// nothing.
func (r Result) Green() bool {
	for _, c := range r.Commands {
		if c.Name != setupName {
			return r.Passed()
		}
	}
	return false
}

// A Checkout is a clean tree of one commit and the home directory of its commands.
type Checkout struct {
	Dir  string
	Home string // made when missing
}

// A Runner runs engine commands for one repository.
type Runner struct {
	Box     *sandbox.Box
	Cache   string        // tool caches of this repository, an absolute path; made when missing
	Timeout time.Duration // of one command; 0 is 30 minutes
	Secrets []string      // never shown in an output
}

const (
	setupName      = "setup"
	defaultTimeout = 30 * time.Minute
)

// Run runs c, or what Detect finds when c is empty, in at: setup if prev is not its
// present state, then build, lint and test. After a failed setup nothing else runs.
func (r *Runner) Run(ctx context.Context, at Checkout, c Commands, prev SetupState) (Result, error) {
	result := Result{Setup: prev}
	tree, err := os.OpenRoot(at.Dir)
	if err != nil {
		return Result{}, fmt.Errorf("run the engine's commands: %w", err)
	}
	defer func() { _ = tree.Close() }()
	if c == (Commands{}) {
		c, result.LookedAt = Detect(tree.FS())
	}
	if c == (Commands{}) {
		result.None = true
		return result, nil
	}
	if err := os.MkdirAll(at.Home, 0o700); err != nil {
		return Result{}, fmt.Errorf("run the engine's commands: %w", err)
	}
	want, err := setupState(c.Setup, tree.FS())
	if err != nil {
		return Result{}, fmt.Errorf("run the engine's commands: %w", err)
	}
	if c.Setup != "" && want != prev {
		result.Setup = SetupState{}
		done, err := r.twice(ctx, at, setupName, c.Setup)
		if err != nil {
			return Result{}, err
		}
		result.Commands = append(result.Commands, done)
		if !done.Passed {
			return result, nil
		}
		// Taken again: a setup may write the lock file.
		if result.Setup, err = setupState(c.Setup, tree.FS()); err != nil {
			return Result{}, fmt.Errorf("run the engine's commands: %w", err)
		}
	}
	for _, command := range []struct{ name, line string }{{"build", c.Build}, {"lint", c.Lint}, {"test", c.Test}} {
		if command.line == "" {
			continue
		}
		done, err := r.twice(ctx, at, command.name, command.line)
		if err != nil {
			return Result{}, err
		}
		result.Commands = append(result.Commands, done)
	}
	return result, nil
}

// Nothing is the result for a tree that has none of the files that commands are
// known by, and names them in LookedAt. Run finds the same in a checkout of it.
func Nothing() Result {
	_, lookedAt := Detect(empty{})
	return Result{None: true, LookedAt: lookedAt}
}

// empty is a tree without files.
type empty struct{}

func (empty) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// twice runs a command, and once more if it fails. One that met a limit has had
// its chance: it would take as long again.
func (r *Runner) twice(ctx context.Context, at Checkout, name, line string) (CommandResult, error) {
	first, limited, err := r.once(ctx, at, name, line)
	if err != nil || first.Passed || limited {
		return first, err
	}
	second, _, err := r.once(ctx, at, name, line)
	if err != nil {
		return CommandResult{}, err
	}
	if second.Passed {
		second.Flaky = true
		second.Output = first.Output
	}
	second.Elapsed += first.Elapsed
	second.CPU += first.CPU
	return second, nil
}

func (r *Runner) once(ctx context.Context, at Checkout, name, line string) (result CommandResult, limited bool, err error) {
	caches, err := r.CacheDirs()
	if err != nil {
		return CommandResult{}, false, fmt.Errorf("run %s: %w", name, err)
	}
	host, certificates := hostSettings()
	var out tail
	shown := sandbox.NewRedactor(&out, r.Secrets...)
	exit, runErr := r.Box.Run(ctx, sandbox.Command{
		Args:     []string{"sh", "-c", line},
		Dir:      at.Dir,
		Env:      sandbox.Environ(at.Home, append(append(r.CacheEnv(), host...), settings...)...),
		Stdout:   shown,
		Stderr:   shown,
		Writable: append([]string{at.Dir, at.Home}, caches...),
		Readable: certificates,
		Timeout:  orDefault(r.Timeout),
	})
	if err := shown.Close(); err != nil {
		return CommandResult{}, false, fmt.Errorf("run %s: %w", name, err)
	}
	result = CommandResult{
		Name: name, Line: line, Passed: runErr == nil && exit.Code == 0,
		Exit: exit.Code, Elapsed: exit.Wall, CPU: exit.CPU,
	}
	limited = errors.Is(runErr, sandbox.ErrTimeout) || errors.Is(runErr, sandbox.ErrOutput)
	if runErr != nil && (!limited || ctx.Err() != nil) {
		return CommandResult{}, false, fmt.Errorf("run %s: %w", name, runErr)
	}
	if limited {
		result.Exit = -1
		_, _ = fmt.Fprintf(&out, "\n[stopped: %s]\n", runErr) // a tail never fails
	}
	result.Output = out.String()
	return result, limited, nil
}

func orDefault(d time.Duration) time.Duration {
	if d == 0 {
		return defaultTimeout
	}
	return d
}

// caches are the tool caches, as the tools name them, below Runner.Cache.
var caches = []struct{ key, dir string }{
	{"GOCACHE", "go-build"},
	{"GOMODCACHE", "go-mod"},
	{"npm_config_cache", "npm"},
	{"CARGO_HOME", "cargo"},
	{"PIP_CACHE_DIR", "pip"},
}

// CacheEnv points the tools at the caches, for engine commands and agents alike.
func (r *Runner) CacheEnv() []string {
	var env []string
	for _, c := range caches {
		env = append(env, c.key+"="+filepath.Join(r.Cache, c.dir))
	}
	return env
}

// CacheDirs are the directories of the caches, which it makes if they are missing.
// Engine commands may write them, agents may only read them.
func (r *Runner) CacheDirs() ([]string, error) {
	var dirs []string
	for _, c := range caches {
		dir := filepath.Join(r.Cache, c.dir)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make a tool cache: %w", err)
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// settings hold for every engine command. A checkout's git directory is not in the
// box, so Go must not look for a version there; what Go downloads can be deleted.
var settings = []string{
	"CI=true", "GOTOOLCHAIN=local", "GOFLAGS=-buildvcs=false -modcacherw",
	"npm_config_audit=false", "npm_config_fund=false", "npm_config_update_notifier=false",
}

// hostSettings are the host's registries and certificates, which the commands need
// to fetch dependencies, and the certificate files. A registry whose address holds
// a password is left out: a hostile test could read it.
func hostSettings() (env, certificates []string) {
	for _, key := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GONOSUMCHECK", "npm_config_registry", "PIP_INDEX_URL"} {
		value := os.Getenv(key)
		if strings.Contains(value, "://") && strings.Contains(value, "@") {
			slog.Warn("evidence: a registry address with credentials is kept from the commands", "variable", key)
			continue
		}
		if value != "" {
			env = append(env, key+"="+value)
		}
	}
	for _, key := range []string{"NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE", "PIP_CERT"} {
		file := os.Getenv(key)
		if _, err := os.Stat(file); err != nil || !filepath.IsAbs(file) {
			continue
		}
		env, certificates = append(env, key+"="+file), append(certificates, file)
	}
	return env, certificates
}
