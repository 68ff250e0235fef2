package runtime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// Claude runs the CLI Claude Code, one process per call. Nothing of the
// repository is executed when it starts: neither hooks of its settings nor its
// MCP servers.
type Claude struct {
	opts ClaudeOptions
	hide *redactor
}

// ClaudeOptions say where the CLI is and how it reaches its model.
type ClaudeOptions struct {
	Path    string   // the program; empty is claude, looked up in PATH
	Env     []string // KEY=value, such as ANTHROPIC_BASE_URL
	Secrets []string // KEY=value, such as ANTHROPIC_API_KEY; the values never appear in events, results and errors
	Box     *sandbox.Box
	// Bridge is the program that the CLI starts to reach a call's functions,
	// with the arguments before the socket's path; see Pipe. Without it agents
	// have no functions.
	Bridge []string
}

// claudeCredentials are the variables that log the CLI in. A scratch HOME hides
// any other login.
var claudeCredentials = []string{"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"}

// claudeTools are the CLI's names of the tools that roles are granted.
var claudeTools = map[Tool]string{Read: "Read", Write: "Write", Edit: "Edit", Bash: "Bash", Glob: "Glob", Grep: "Grep"}

const (
	// claudeRaw bounds the raw output. It holds every message twice, the first
	// time in pieces of a few words, each wrapped in some hundred bytes; what
	// is kept of it is bounded by maxOutput.
	claudeRaw = 8 * maxOutput

	// claudeGrace lets the CLI write its result, and so its cost, after SIGINT,
	// also on a busy machine. With what follows it stays below five seconds.
	claudeGrace = 3500 * time.Millisecond

	// maxArgument is less than Linux takes as one argument (128 KiB).
	maxArgument = 96 << 10
)

// NewClaude returns the runtime that runs Claude Code.
func NewClaude(opts ClaudeOptions) (*Claude, error) {
	if opts.Box == nil {
		return nil, errors.New("runtime claude_code: no sandbox is given")
	}
	opts.Path = cmp.Or(opts.Path, "claude")
	secrets := slices.Clone(opts.Secrets)
	for _, entry := range opts.Env {
		if key, _, _ := strings.Cut(entry, "="); slices.Contains(claudeCredentials, key) {
			secrets = append(secrets, entry)
		}
	}
	return &Claude{opts: opts, hide: newRedactor(secrets)}, nil
}

// Run runs the CLI once. What it used and cost is in the Result also when the
// call failed, as far as the CLI could still say so.
func (r *Claude) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	program, err := r.program()
	if err != nil {
		return Result{}, err
	}
	if c.bridge, err = newBridge(ctx, r.opts.Bridge, c.Functions); err != nil {
		return Result{}, err
	}
	defer c.bridge.close()
	args, prompt := r.arguments(c)
	cmd := sandbox.Command{
		Args:      append([]string{program}, args...),
		Dir:       c.Dir,
		Env:       r.environ(c.Home),
		Stdin:     strings.NewReader(prompt),
		Writable:  writable(c),
		Readable:  slices.Concat([]string{program}, c.ReadOnlyDirs, c.bridge.readable()),
		MaxOutput: claudeRaw,
		Grace:     claudeGrace,
	}
	out := claudeOutput{emit: emit, hide: r.hide, idle: cmp.Or(max(c.Idle, 0), DefaultIdle), spent: dollars{}}
	end, err := runLines(ctx, r.opts.Box, cmd, c, r.hide, out.line)
	res, priceErr := out.settle(c)
	switch {
	case err != nil:
		return res, err
	case priceErr != nil:
		return res, &Error{Class: Refused, Reason: "claude: " + priceErr.Error(), Err: priceErr}
	}
	if failure := out.failure(c, end); failure != nil {
		failure.Reason = r.hide.text(failure.Reason)
		return res, failure
	}
	return res, nil
}

// arguments returns the CLI's arguments and what it reads.
func (r *Claude) arguments(c Call) (args []string, prompt string) {
	var tools []string
	for _, tool := range c.Tools {
		if name, ok := claudeTools[tool]; ok {
			tools = append(tools, name)
		}
	}
	granted := strings.Join(tools, ",")
	allowed := tools
	args = []string{
		"-p", "--output-format", "stream-json", "--verbose",
		// A long answer is silent without its pieces, and would pass for a stall.
		"--include-partial-messages",
		// The trust dialog is skipped with -p: without these two, the hooks and
		// the MCP servers of the repository are started.
		"--setting-sources", "user", "--strict-mcp-config",
		// The tools that exist at all; the permission mode alone denies none.
		"--tools", granted, "--disallowedTools", "Task,Agent",
	}
	if r.opts.Box.Mode() == sandbox.Bubblewrap {
		args = append(args, "--permission-mode", "bypassPermissions")
	} else {
		args = append(args, "--permission-mode", "acceptEdits")
		for _, name := range c.bridge.names() {
			allowed = append(allowed, "mcp__"+bridgeName+"__"+name)
		}
		if len(allowed) > 0 {
			args = append(args, "--allowedTools", strings.Join(allowed, ","))
		}
		for _, dir := range c.ReadOnlyDirs {
			args = append(args, "--add-dir", dir)
		}
	}
	if c.bridge != nil {
		args = append(args, "--mcp-config", c.bridge.config())
	}
	if c.Model != "" {
		args = append(args, "--model", c.Model)
	}
	if c.Effort != "" {
		args = append(args, "--effort", c.Effort)
	}
	if c.MaxTurns > 0 {
		args = append(args, "--max-turns", strconv.Itoa(c.MaxTurns))
	}
	if c.BudgetMicros > 0 {
		args = append(args, "--max-budget-usd", fmt.Sprintf("%d.%06d", c.BudgetMicros/1_000_000, c.BudgetMicros%1_000_000))
	}
	if len(c.Schema) > 0 {
		args = append(args, "--json-schema", string(c.Schema))
	}
	if c.Session != "" {
		args = append(args, "--resume", c.Session)
	}
	prompt = c.Task(c.Session != "")
	switch {
	case c.System == "":
	case len(c.System) <= maxArgument:
		args = append(args, "--append-system-prompt", c.System)
	default:
		prompt = c.System + "\n\n" + prompt
	}
	return args, prompt
}

func (r *Claude) environ(home string) []string {
	env := []string{
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", // no connection but to the API
		"CLAUDE_CODE_DISABLE_BACKGROUND_TASKS=1",     // one result, which comes last
		// A batch of subagents takes its time and has much to say.
		"MCP_TIMEOUT=60000", "MCP_TOOL_TIMEOUT=86400000", "MAX_MCP_OUTPUT_TOKENS=500000",
	}
	if r.opts.Box.Mode() == sandbox.Bubblewrap {
		env = append(env, "IS_SANDBOX=1") // else user 0 may not bypass permissions
	}
	return sandbox.Environ(home, slices.Concat(env, r.opts.Env, r.opts.Secrets)...)
}

// program returns the CLI's real path: a link to it may lie where the sandbox
// does not reach.
func (r *Claude) program() (string, error) {
	found, err := realProgram(r.opts.Path, r.opts.Env)
	if err != nil {
		return "", &Error{Class: Fatal, Err: err, Reason: fmt.Sprintf(
			"Claude Code is not installed: %s: %v; install %s@%s, or configure its path", r.opts.Path, err, claudePackage, ClaudeVersion)}
	}
	return found, nil
}
