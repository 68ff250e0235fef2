package runtime

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// OpenCode runs the CLI opencode, one process per call.
//
// The CLI can also be a server that many calls share, which saves each the two
// to four seconds of its start. But one process would hold the worktrees, the
// homes and the keys of all calls, so that no sandbox could keep them apart;
// what one call left behind could not be killed without the others; and its
// port would be open to every process of the host. A process per call is
// confined, bounded and ended like that of every other runtime, and a model
// takes longer than its start.
//
// Nothing of the repository is executed or believed when the CLI starts: no
// settings, plugins, tools, agents and MCP servers, and no .env either, which
// the CLI's own run time reads from the directory that it is started in. Its
// settings are made anew for each call, in a directory that no agent can write.
// One part of the CLI loads the repository's plugins whatever it is told, so the
// places where it looks for them are shown to it empty; a sandbox other than
// bubblewrap cannot do that, and a call for a repository that has them is refused.
//
// Structured output is a contract in the prompt, for `opencode run` takes no
// schema: Output is the last JSON value of the last message, and whether it fits
// is for the caller to see.
type OpenCode struct {
	opts OpenCodeOptions
	hide *redactor
}

// OpenCodeOptions say where the CLI is and how it reaches its models.
type OpenCodeOptions struct {
	Path    string   // the program; empty is opencode, looked up in PATH
	Env     []string // KEY=value, such as OPENAI_BASE_URL
	Secrets []string // KEY=value, such as OPENROUTER_API_KEY; the values never appear in events, results and errors
	Prices  Prices   // of models whose price the CLI does not know
	Retries int      // how often a request that failed is sent again; 0 means 3
	Box     *sandbox.Box
	Bridge  []string // as that of ClaudeOptions
}

// openCodeAgent is the name under which the CLI is told of the role.
const openCodeAgent = "slipway"

// openCodeRetries are the attempts that the CLI is left to repeat a request. It
// waits 2, 4, 8, … seconds before each.
const openCodeRetries = 3

//go:embed opencode_events.js
var openCodeEvents []byte

// NewOpenCode returns the runtime that runs opencode.
func NewOpenCode(opts OpenCodeOptions) (*OpenCode, error) {
	if opts.Box == nil {
		return nil, errors.New("runtime open_code: no sandbox is given")
	}
	opts.Path = cmp.Or(opts.Path, "opencode")
	opts.Retries = cmp.Or(opts.Retries, openCodeRetries)
	secrets := slices.Clone(opts.Secrets)
	for _, entry := range opts.Env {
		if key, _, _ := strings.Cut(entry, "="); slices.Contains(openCodeCredentials, key) {
			secrets = append(secrets, entry)
		}
	}
	return &OpenCode{opts: opts, hide: newRedactor(secrets)}, nil
}

// Run runs the CLI once. What it used and cost is in the Result also when the
// call failed; of a request that was under way nothing is known.
func (r *OpenCode) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	program, err := r.program()
	if err != nil {
		return Result{}, err
	}
	to, err := r.route(c.Model)
	if err != nil {
		return Result{}, err
	}
	own, err := newOpenCodeDir(c, to)
	if err != nil {
		return Result{}, &Error{Class: Refused, Reason: "opencode cannot be set up: " + err.Error(), Err: err}
	}
	defer func() { _ = os.RemoveAll(own.path) }() // what stays is a prompt in the temporary directory

	if c.bridge, err = newBridge(ctx, r.opts.Bridge, c.Functions); err != nil {
		return Result{}, err
	}
	defer c.bridge.close()
	out := openCodeOutput{
		emit: emit, hide: r.hide, call: c, model: to.name, prices: r.opts.Prices, retries: r.opts.Retries, session: c.Session,
	}
	if !r.searches() && (slices.Contains(c.Tools, Grep) || slices.Contains(c.Tools, Glob)) {
		out.note("GREP and GLOB are not offered: opencode searches with ripgrep, and there is no rg in PATH")
	}
	cmd, err := r.command(c, program, to, own)
	if err != nil {
		return Result{}, err
	}
	end, err := runLines(ctx, r.opts.Box, cmd, c, r.hide, out.line)
	res, priceErr := out.settle()
	switch {
	case err != nil:
		return res, err
	case priceErr != nil:
		return res, &Error{Class: Refused, Reason: "opencode: " + priceErr.Error(), Err: priceErr}
	}
	if failure := out.failure(end); failure != nil {
		failure.Reason = r.hide.text(failure.Reason)
		return res, failure
	}
	return res, nil
}

// command is the process of a call.
func (r *OpenCode) command(c Call, program string, to openCodeRoute, own openCodeDir) (sandbox.Command, error) {
	instead, err := r.covered(c.Dir, own)
	if err != nil {
		return sandbox.Command{}, err
	}
	conf, err := r.config(c, to, own).encode()
	if err != nil {
		return sandbox.Command{}, &Error{Class: Refused, Reason: "opencode cannot be set up: " + err.Error(), Err: err}
	}
	readable := slices.Concat([]string{program, own.path}, c.ReadOnlyDirs, c.bridge.readable())
	if c.ReadOnly {
		readable = append(readable, c.Dir)
	}
	return sandbox.Command{
		// Only the plugin is listened to: what the CLI prints would come between.
		Args:     append([]string{"sh", "-c", `exec "$0" "$@" 3>&1 >/dev/null`, program}, openCodeArguments(c, to)...),
		Dir:      own.path,
		Env:      r.environ(c.Home, own, to, "OPENCODE_CONFIG_CONTENT="+conf),
		Stdin:    strings.NewReader(c.Task(c.Session != "")),
		Writable: writable(c),
		Readable: readable,
		Instead:  instead,
		// What is kept is bounded by maxOutput; this bound would cut the last line.
		MaxOutput: 2 * maxOutput,
	}, nil
}

func openCodeArguments(c Call, to openCodeRoute) []string {
	args := []string{
		"run", "--format", "json", "--agent", openCodeAgent, "--model", to.provider + "/" + to.name,
		"--dir", c.Dir, // it is not started there
		"--title", cmp.Or(c.Role, openCodeAgent), // else a model is asked for one
		"--print-logs", "--log-level", "ERROR",
	}
	if c.Effort != "" {
		args = append(args, "--variant", c.Effort)
	}
	if c.Session != "" {
		args = append(args, "--session", c.Session)
	}
	return args
}

// environ is the environment of the CLI: of all credentials it has that of the
// model's provider. Its commands inherit it.
func (r *OpenCode) environ(home string, own openCodeDir, to openCodeRoute, more ...string) []string {
	env := []string{
		"XDG_CONFIG_HOME=" + own.config(),
		"OPENCODE_TEST_HOME=" + own.home(),     // else ~/.opencode, which an agent can write, counts as settings
		"OPENCODE_AUTH_CONTENT={}",             // likewise for its log-ins, which can name an address to load settings from
		"OPENCODE_MODELS_PATH=" + own.models(), // else one in HOME, which can name packages to load
		"OPENCODE_DISABLE_MODELS_FETCH=1",
		"OPENCODE_DISABLE_AUTOUPDATE=1",
		"OPENCODE_DISABLE_SHARE=1",
		"OPENCODE_DISABLE_LSP_DOWNLOAD=1",
		"OPENCODE_DISABLE_PROJECT_CONFIG=1",
		"OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
		"OPENCODE_DISABLE_EXTERNAL_SKILLS=1",
		"OPENCODE_DISABLE_CLAUDE_CODE=1",
		"OPENCODE_EXPERIMENTAL_DISABLE_FILEWATCHER=1",
	}
	for _, entry := range slices.Concat(r.opts.Env, r.opts.Secrets) {
		key, _, _ := strings.Cut(entry, "=")
		if !slices.Contains(openCodeCredentials, key) || key == to.credential {
			env = append(env, entry)
		}
	}
	return sandbox.Environ(home, append(env, more...)...)
}

// openCodeSettings are where the CLI looks for settings in a repository.
var openCodeSettings = []string{".opencode", "opencode.json", "opencode.jsonc"}

// covered says what is to be shown in place of the settings in a repository:
// nothing. It fails where that cannot be.
func (r *OpenCode) covered(dir string, own openCodeDir) (map[string]string, error) {
	instead := map[string]string{}
	for _, name := range openCodeSettings {
		path := filepath.Join(dir, name)
		info, err := os.Lstat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, &Error{Class: Refused, Reason: "opencode cannot be set up: " + err.Error(), Err: err}
		case r.opts.Box.Mode() != sandbox.Bubblewrap:
			return nil, &Error{Class: Refused, Reason: fmt.Sprintf(
				"opencode would execute what the repository's %s names; in the sandbox %s nothing can keep it from that: install bubblewrap, or choose another runtime", name, r.opts.Box.Mode())}
		case info.IsDir():
			instead[path] = own.home()
		default: // a link is refused by the sandbox
			instead[path] = own.nothing()
		}
	}
	return instead, nil
}

// searches says whether ripgrep is there. The CLI would fetch one from the net.
func (r *OpenCode) searches() bool {
	_, err := sandbox.LookPath("rg", sandbox.Environ("", r.opts.Env...))
	return err == nil
}

// program returns the CLI's real path: a link to it may lie where the sandbox
// does not reach.
func (r *OpenCode) program() (string, error) {
	found, err := realProgram(r.opts.Path, r.opts.Env)
	if err != nil {
		return "", &Error{Class: Fatal, Err: err, Reason: fmt.Sprintf(
			"opencode is not installed: %s: %v; install %s@%s, or configure its path", r.opts.Path, err, openCodePackage, OpenCodeVersion)}
	}
	return found, nil
}
