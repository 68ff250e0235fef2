package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// Codex runs the CLI Codex, one process per call. Nothing of the repository is
// executed or obeyed when it starts: neither its configuration and hooks nor its
// AGENTS.md. The key to the model stays outside: the CLI asks a tap.
type Codex struct {
	opts   CodexOptions
	base   *url.URL
	prices Prices
	hide   *redactor
}

// CodexOptions say where the CLI is and how it reaches its model.
type CodexOptions struct {
	Path    string   // the program; empty is codex, looked up in PATH
	Env     []string // KEY=value, such as OPENAI_BASE_URL
	Secrets []string // KEY=value, such as OPENAI_API_KEY; the values never appear in events, results and errors
	Prices  Prices   // what models cost; nil are the built-in prices
	Box     *sandbox.Box
	Bridge  []string // as that of ClaudeOptions
}

// codexCredentials are the variables that hold the key to the model.
var codexCredentials = []string{"CODEX_API_KEY", "OPENAI_API_KEY"}

const (
	codexBase    = "OPENAI_BASE_URL" // with its version
	codexDefault = "https://api.openai.com/v1"

	// codexKey is the variable that holds the CLI's key to the tap.
	codexKey = "SLIPWAY_MODEL_KEY"
)

// NewCodex returns the runtime that runs Codex.
func NewCodex(opts CodexOptions) (*Codex, error) {
	if opts.Box == nil {
		return nil, errors.New("runtime codex: no sandbox is given")
	}
	opts.Path = cmp.Or(opts.Path, "codex")
	r := &Codex{opts: opts, prices: opts.Prices, hide: newRedactor(opts.Secrets)}
	var err error
	if r.prices == nil {
		r.prices, err = NewPrices(nil)
	}
	if err == nil {
		r.base, err = url.Parse(cmp.Or(valueOf(opts.Env, codexBase), codexDefault))
	}
	if err == nil && (r.base.Host == "" || r.base.Scheme != "http" && r.base.Scheme != "https") {
		err = fmt.Errorf("%s is no address of an API", codexBase)
	}
	if err != nil {
		return nil, fmt.Errorf("runtime codex: %w", err)
	}
	r.base.Path = cmp.Or(r.base.Path, "/")
	return r, nil
}

// Run runs the CLI once. What it used and cost is in the Result also when the
// call failed.
func (r *Codex) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	if ctx.Err() != nil {
		return Result{}, context.Cause(ctx)
	}
	program, err := r.program()
	if err != nil {
		return Result{}, err
	}
	if c.Session != "" && !codexSession.MatchString(c.Session) {
		return Result{}, &Error{Class: Refused, Reason: fmt.Sprintf("%q is no session of codex", clip(c.Session))}
	}
	if r.opts.Box.Mode() == sandbox.None && strings.HasPrefix(c.Home, "/tmp/") {
		return Result{}, &Error{Class: Fatal, Reason: fmt.Sprintf("codex does not confine its commands when its HOME is temporary: %s; use another state directory", c.Home)}
	}
	c.Idle = cmp.Or(max(c.Idle, 0), DefaultIdle)
	c.tap, err = newTap(ctx, tapOptions{
		base: r.base, secret: r.secret(), fix: "; check the key (" + strings.Join(codexCredentials, " or ") + ")",
		prices: r.prices, turns: c.MaxTurns, micros: c.BudgetMicros, idle: c.Idle,
	})
	if err != nil {
		return Result{}, &Error{Class: Transient, Reason: err.Error(), Err: err}
	}
	defer c.tap.close()
	if c.bridge, err = newBridge(ctx, r.opts.Bridge, c.Functions); err != nil {
		return Result{}, err
	}
	defer c.bridge.close()
	setup := codexSetup{Call: c, mode: r.mode(c)}
	if err := setup.write(); err != nil {
		return Result{}, &Error{Class: Refused, Reason: "codex cannot be set up: " + err.Error(), Err: err}
	}
	out := codexOutput{emit: emit, hide: r.hide, tap: c.tap}
	end, err := runLines(ctx, r.opts.Box, r.command(program, setup), c, r.hide, out.line)
	res := out.settle(c)
	if err == nil {
		if failure := out.failure(c, end); failure != nil {
			err = failure
		}
	}
	if failure, ok := errors.AsType[*Error](err); ok { // a provider may quote the key
		err = &Error{Class: failure.Class, Reason: r.hide.text(failure.Reason), After: failure.After, Err: failure.Err}
	}
	return res, err
}

var codexSession = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// codexFlags are those of every start. A field of the configuration that the CLI
// does not know may be one that protects: it is an error.
var codexFlags = []string{"--json", "--strict-config", "--skip-git-repo-check", "--ignore-rules"}

func (r *Codex) command(program string, s codexSetup) sandbox.Command {
	args := []string{program, "exec"}
	if s.Session != "" {
		args = append(args, "resume")
	}
	args = append(args, codexFlags...)
	if schema := s.schema(); schema != nil {
		args = append(args, "--output-schema", s.path(codexSchemaFile))
	}
	if s.Session != "" {
		args = append(args, s.Session)
	}
	dirs := writable(s.Call)
	if !mayWrite(s.Call) {
		dirs = []string{s.Home}
	}
	return sandbox.Command{
		Args:     append(args, "-"),
		Dir:      s.Dir,
		Env:      r.environ(s.Home, s.tap.key),
		Stdin:    strings.NewReader(s.prompt()),
		Writable: dirs,
		Readable: slices.Concat(codexFiles(program), s.ReadOnlyDirs, s.bridge.readable()),
	}
}

// mode is how the CLI confines its own commands. In a box they are confined
// already, by the same rights, and its own sandbox could not start there.
func (r *Codex) mode(c Call) string {
	switch {
	case r.opts.Box.Mode() != sandbox.None:
		return "danger-full-access"
	case mayWrite(c):
		return "workspace-write"
	}
	return "read-only"
}

// mayWrite says whether the agent may change its directory. The CLI reads with
// commands, so that one who may only read has a shell, which cannot write.
func mayWrite(c Call) bool {
	return !c.ReadOnly && slices.ContainsFunc(c.Tools, func(t Tool) bool { return t == Write || t == Edit || t == Bash })
}

func (r *Codex) environ(home, key string) []string {
	env := slices.DeleteFunc(slices.Clone(r.opts.Env), func(entry string) bool {
		name, _, _ := strings.Cut(entry, "=")
		return name == codexBase || slices.Contains(codexCredentials, name)
	})
	return sandbox.Environ(home, append(env, "CODEX_HOME="+filepath.Join(home, codexHome), codexKey+"="+key)...)
}

// secret is the key to the model.
func (r *Codex) secret() string {
	for _, name := range codexCredentials {
		if value := valueOf(slices.Concat(r.opts.Secrets, r.opts.Env), name); value != "" {
			return value
		}
	}
	return ""
}

func valueOf(env []string, name string) string {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok && value != "" {
			return value
		}
	}
	return ""
}

// program returns the CLI's real path: a link to it may lie where the sandbox
// does not reach.
func (r *Codex) program() (string, error) {
	found, err := realProgram(r.opts.Path, r.opts.Env)
	if err != nil {
		return "", &Error{Class: Fatal, Err: err, Reason: fmt.Sprintf(
			"Codex is not installed: %s: %v; install %s@%s, or configure its path", r.opts.Path, err, codexPackage, CodexVersion)}
	}
	return found, nil
}

// codexFiles is what the sandbox has to show of an installation: the package
// whose bin the program lies in, for it starts programs of its own beside it.
func codexFiles(program string) []string {
	bin := filepath.Dir(program)
	for _, name := range []string{"codex-package.json", "package.json"} {
		if exists(filepath.Join(filepath.Dir(bin), name)) {
			return []string{filepath.Dir(bin)}
		}
	}
	if scripts := filepath.Join(bin, "codex-code-mode-host"); exists(scripts) {
		return []string{program, scripts}
	}
	return []string{program}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
