package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// claude returns the runtime with the real CLI in front of a scripted model.
func claude(t *testing.T, b *sandbox.Box, script modeltest.Script) (*runtime.Claude, *modeltest.Server) {
	t.Helper()
	model := modeltest.New(t, script)
	r, err := runtime.NewClaude(runtime.ClaudeOptions{
		Path: modeltest.Claude(t), Box: b, Secrets: []string{model.Secret()},
		Env: append(model.Env(), "CLAUDE_CODE_MAX_RETRIES=1"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, model
}

func bubblewrap(t *testing.T) *sandbox.Box {
	t.Helper()
	sandboxtest.Need(t, "bwrap")
	return boxOf(t, sandbox.Bubblewrap)
}

type args map[string]any // the input of a tool

func use(tool string, input args) modeltest.Turn {
	return modeltest.Turn{Calls: []modeltest.Call{{Tool: tool, Input: input}}}
}

func structured(output args) modeltest.Turn { return use("StructuredOutput", output) }

// suiteModel makes the CLI do the acts of the suite.
func suiteModel(c runtimetest.Case) modeltest.Script {
	at := func(name string) string { return filepath.Join(c.Dir, name) }
	return runtimetest.Play(c, runtimetest.Hands{
		Read: func(name string) modeltest.Turn { return use("Read", args{"file_path": at(name)}) },
		Edit: func(_ modeltest.Request, done int, name, old, new string) (modeltest.Turn, bool) {
			if done == 0 { // it edits what it has read
				return use("Read", args{"file_path": at(name)}), true
			}
			return use("Edit", args{"file_path": at(name), "old_string": old, "new_string": new}), done == 1
		},
		Write: func(name, text string) modeltest.Turn {
			return use("Write", args{"file_path": at(name), "content": text})
		},
		Run: func(_ modeltest.Request, command string) modeltest.Turn {
			return use("Bash", args{"command": command, "description": "as asked"})
		},
		Answer: func(value any) modeltest.Turn { return structured(args(value.(map[string]any))) },
	})
}

func TestClaudeConforms(t *testing.T) {
	t.Parallel()
	modeltest.Claude(t)
	runtimetest.Run(t, claudes(bubblewrap(t)), claudeOptions)
}

func TestClaudeLeavesNoProcess(t *testing.T) {
	t.Parallel()
	modeltest.Claude(t)
	runtimetest.RunEndings(t, claudes(bubblewrap(t)), runtimetest.Endings(20), claudeOptions)
}

// The CLI takes a second to start, more on a busy machine.
var claudeOptions = runtimetest.Options{Idle: 5 * time.Second, Many: 3}

// claudes makes runtimes whose model asks for the acts of the suite.
func claudes(b *sandbox.Box) runtimetest.Factory {
	return func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		r, _ := claude(t, b, suiteModel(c))
		return r
	}
}

// Without bubblewrap the CLI asks for permissions, and is granted those of the role.
func TestClaudeUnderLandlock(t *testing.T) {
	modeltest.Claude(t)
	b := boxOf(t, sandbox.Landlock)
	t.Run("edits a file and runs a command", func(t *testing.T) {
		c := claudeCall(t)
		put(t, c.Dir, "a.txt", "one\n")
		r, model := claude(t, b, func(req modeltest.Request) modeltest.Turn {
			switch len(req.Results()) {
			case 0:
				return use("Read", args{"file_path": filepath.Join(c.Dir, "a.txt")})
			case 1:
				return use("Edit", args{"file_path": filepath.Join(c.Dir, "a.txt"), "old_string": "one", "new_string": "two"})
			case 2:
				return use("Bash", args{"command": "cp a.txt b.txt", "description": "copy"})
			}
			return modeltest.Turn{Text: "Done."}
		})
		res, err := r.Run(t.Context(), c, quiet)
		if err != nil {
			t.Fatal(err)
		}
		if got := look(t, c.Dir); got["b.txt"] != "-rw-r--r-- two\n" || len(res.Denials) > 0 {
			t.Errorf("tree %v, denials %v, results %+v", got, res.Denials, lastResults(model))
		}
	})
	t.Run("may not leave its directory", func(t *testing.T) {
		outside := t.TempDir()
		r, model := claude(t, b, func(req modeltest.Request) modeltest.Turn {
			if len(req.Results()) == 0 {
				return use("Write", args{"file_path": filepath.Join(outside, "planted"), "content": "x"})
			}
			return modeltest.Turn{Text: "Done."}
		})
		if _, err := r.Run(t.Context(), claudeCall(t), quiet); err != nil {
			t.Fatal(err)
		}
		results := lastResults(model)
		if got := look(t, outside); len(got) > 0 || len(results) != 1 || !results[0].IsError {
			t.Errorf("outside: %v, the tool's answer: %+v", got, results)
		}
	})
}

func claudeCall(t *testing.T) runtime.Call {
	c := call(t)
	c.Prompt = "Do it."
	c.Tools = []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep}
	c.MaxTurns = 10
	return c
}

func lastResults(model *modeltest.Server) []modeltest.Result {
	requests := model.Requests()
	if len(requests) == 0 {
		return nil
	}
	return requests[len(requests)-1].Results()
}

const answerSchema = `{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"]}`

func TestClaudeClassifiesFailures(t *testing.T) {
	t.Parallel()
	modeltest.Claude(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		name   string
		turn   modeltest.Turn
		change func(*runtime.Call)
		class  runtime.Class
		reason string
		stop   string
	}{
		{name: "overloaded", turn: modeltest.Turn{Status: 529, Error: "Overloaded"}, class: runtime.Transient, reason: "529"},
		{name: "a fault of the server", turn: modeltest.Turn{Status: 500, Error: "Internal"}, class: runtime.Transient, reason: "500"},
		{name: "too many requests", turn: modeltest.Turn{Status: 429, Error: "Slow down"}, class: runtime.Transient, reason: "429"},
		{name: "no authority", turn: modeltest.Turn{Status: 401, Error: "invalid x-api-key"}, class: runtime.Fatal, reason: "claude setup-token"},
		{name: "no credit", turn: modeltest.Turn{Status: 400, Error: "Your credit balance is too low to access the Anthropic API."}, class: runtime.Fatal, reason: "redit balance"},
		{name: "an unknown model", turn: modeltest.Turn{Status: 404, Error: "model: nope"}, class: runtime.Fatal, reason: "model"},
		{name: "a bad request", turn: modeltest.Turn{Status: 400, Error: "prompt is odd"}, class: runtime.Refused, reason: "400"},
		{
			name: "no end of turns", turn: use("Bash", args{"command": "true", "description": "x"}),
			change: func(c *runtime.Call) { c.MaxTurns = 2 }, class: runtime.Refused, reason: "its 2 turns", stop: "max_turns",
		},
		{
			name: "no budget left", turn: use("Bash", args{"command": "true", "description": "x"}),
			change: func(c *runtime.Call) { c.BudgetMicros = 100 }, class: runtime.Refused, reason: "$0.000100", stop: "budget",
		},
		{
			name: "no structured output", turn: modeltest.Turn{Text: "I would rather not."},
			change: func(c *runtime.Call) { c.Schema = []byte(answerSchema) }, class: runtime.Refused, reason: "structured output",
		},
		{
			name: "structured output that never fits", turn: structured(args{"answer": "x"}),
			change: func(c *runtime.Call) { c.Schema = []byte(answerSchema) }, class: runtime.Refused, reason: "must be integer",
		},
		{
			name: "a session that is not there", turn: modeltest.Turn{Text: "hello"},
			change: func(c *runtime.Call) { c.Session = "6b1f8a1e-0000-4000-8000-000000000000" }, class: runtime.Refused, reason: "No conversation found",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := claudeCall(t)
			if row.change != nil {
				row.change(&c)
			}
			r, _ := claude(t, b, func(modeltest.Request) modeltest.Turn { return row.turn })
			res, err := r.Run(t.Context(), c, quiet)
			failure, ok := errors.AsType[*runtime.Error](err)
			if !ok || failure.Class != row.class || !strings.Contains(failure.Reason, row.reason) {
				t.Errorf("Run = %+v (%#v), want %s with %q", res, err, row.class, row.reason)
			}
			if row.stop != "" && (res.Stop != row.stop || res.CostMicros == 0) {
				t.Errorf("stopped by %q at a cost of %d, want %q and a cost", res.Stop, res.CostMicros, row.stop)
			}
		})
	}
}

// A slot is not held while a provider wants to be left alone.
func TestClaudeDoesNotSitOutALongWait(t *testing.T) {
	modeltest.Claude(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		name  string
		retry int           // what the provider says, in seconds
		after time.Duration // what the caller learns of it
	}{
		{"a minute, longer than the call may be silent", 60, time.Minute},
		{"an hour, for which the CLI does not wait either", 3600, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, _ := claude(t, b, func(modeltest.Request) modeltest.Turn {
				return modeltest.Turn{Status: 429, Error: "Quota", Retry: row.retry}
			})
			c := claudeCall(t)
			c.Idle = 10 * time.Second
			start := time.Now()
			_, err := r.Run(t.Context(), c, quiet)
			failure, ok := errors.AsType[*runtime.Error](err)
			if !ok || failure.Class != runtime.Transient || failure.After < row.after {
				t.Errorf("Run = %#v, want a transient failure after %s", err, row.after)
			}
			if took := time.Since(start); took > 9*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// What a stalled turn cost is known, because the CLI is asked to end first.
func TestClaudeChargesForAStalledTurn(t *testing.T) {
	modeltest.Claude(t)
	r, _ := claude(t, bubblewrap(t), func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return use("Bash", args{"command": "true", "description": "x"})
		}
		return modeltest.Turn{Text: "thinking", Stall: true}
	})
	c := claudeCall(t)
	c.Idle = 5 * time.Second
	res, err := r.Run(t.Context(), c, quiet)
	if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Transient {
		t.Errorf("Run = %v, want a transient failure", err)
	}
	if res.CostMicros == 0 || res.Usage.Input == 0 || res.Session == "" {
		t.Errorf("result = %+v, want cost, usage and session", res)
	}
}

// The CLI reports the cost of a whole session; a repair turn pays for itself only.
func TestClaudeRepairTurnIsChargedOnce(t *testing.T) {
	modeltest.Claude(t)
	r, model := claude(t, bubblewrap(t), func(modeltest.Request) modeltest.Turn {
		turn := structured(args{"answer": 42})
		turn.Usage = modeltest.Usage{Input: 1000, Output: 1000}
		return turn
	})
	c := claudeCall(t)
	c.Schema = []byte(answerSchema)
	first, err := r.Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	c.Session, c.Prompt = first.Session, "Once more."
	second, err := r.Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if first.CostMicros == 0 || second.CostMicros != first.CostMicros || second.Usage != first.Usage {
		t.Errorf("first %d %+v, second %d %+v: want the same twice", first.CostMicros, first.Usage, second.CostMicros, second.Usage)
	}
	requests := model.Requests()
	if last := requests[len(requests)-1]; !strings.Contains(last.Text(), "Do it.") || !strings.Contains(last.Text(), "Once more.") {
		t.Errorf("the session was not continued: %q", last.Text())
	}
}

func TestClaudeThinksAsHardAsItIsAsked(t *testing.T) {
	modeltest.Claude(t)
	b := bubblewrap(t)
	for _, effort := range []string{"low", "medium", "high", "xhigh", "max"} {
		r, model := claude(t, b, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Done."} })
		c := claudeCall(t)
		c.Model, c.Effort = "opus", effort
		if _, err := r.Run(t.Context(), c, quiet); err != nil {
			t.Fatalf("%s: %v", effort, err)
		}
		requests := model.Requests()
		if got := requests[len(requests)-1].OutputConfig.Effort; got != effort {
			t.Errorf("the model was asked with the effort %q, want %q", got, effort)
		}
	}
}

func TestClaudeOffersOnlyTheToolsOfTheRole(t *testing.T) {
	modeltest.Claude(t)
	r, model := claude(t, bubblewrap(t), func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return modeltest.Turn{Calls: []modeltest.Call{
				{Tool: "Bash", Input: args{"command": "touch planted", "description": "x"}},
				{Tool: "Agent", Input: args{"prompt": "plant it", "description": "x", "subagent_type": "general-purpose"}},
			}}
		}
		return modeltest.Turn{Text: "Done."}
	})
	c := claudeCall(t)
	c.System = "You are the reviewer of this test."
	c.Tools = []runtime.Tool{runtime.Read, runtime.Grep}
	res, err := r.Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	req := model.Requests()[0]
	for tool, want := range map[string]bool{"Read": true, "Grep": true, "Bash": false, "Write": false, "Edit": false, "Task": false, "Agent": false, "WebFetch": false} {
		if req.Offers(tool) != want {
			t.Errorf("the model may call %s: %v, want %v", tool, req.Offers(tool), want)
		}
	}
	if !strings.Contains(req.System.String(), "the reviewer of this test") {
		t.Error("the system prompt does not reach the model")
	}
	if got := look(t, c.Dir); len(got) > 0 || strings.Join(res.Denials, " ") != "Agent Bash" {
		t.Errorf("tree %v, denials %v", got, res.Denials)
	}
}

// A repository can bring settings and servers that the CLI would start. Each
// trap plants a file; the bait proves that the traps work.
func TestClaudeStartsNothingOfAHostileRepository(t *testing.T) {
	modeltest.Claude(t)
	b := bubblewrap(t)
	c := claudeCall(t)
	plant := func(name string) string { return "touch " + filepath.Join(c.Dir, "planted-"+name) }
	hook := func(name string) string {
		return fmt.Sprintf(`[{"matcher":"","hooks":[{"type":"command","command":%q}]}]`, plant(name))
	}
	settings := fmt.Sprintf(`{"hooks":{"SessionStart":%s,"UserPromptSubmit":%s,"PreToolUse":%s,"Stop":%s},"enableAllProjectMcpServers":true,"apiKeyHelper":%q,"statusLine":{"type":"command","command":%q}}`,
		hook("start"), hook("prompt"), hook("tool"), hook("stop"), plant("key"), plant("status"))
	put(t, c.Dir, ".claude/settings.json", settings)
	put(t, c.Dir, ".claude/settings.local.json", settings)
	put(t, c.Dir, ".mcp.json", fmt.Sprintf(`{"mcpServers":{"trap":{"command":"sh","args":["-c",%q]}}}`, plant("mcp")))
	r, _ := claude(t, b, func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return use("Bash", args{"command": "true", "description": "x"})
		}
		return modeltest.Turn{Text: "Done."}
	})
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if planted, _ := filepath.Glob(filepath.Join(c.Dir, "planted-*")); len(planted) > 0 {
		t.Errorf("the repository ran code: %v", planted)
	}

	// The same CLI without the arguments falls into the traps.
	model := modeltest.New(t, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Done."} })
	program := modeltest.Claude(t)
	_, err := b.Run(t.Context(), sandbox.Command{
		Args: []string{program, "-p", "hello"}, Dir: c.Dir, Writable: []string{c.Dir, c.Home}, Readable: []string{program},
		Env: sandbox.Environ(c.Home, append(model.Env(), model.Secret())...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "planted-start")); err != nil {
		t.Errorf("the trap is no trap: %v", err)
	}
}

func TestClaudeHidesItsKey(t *testing.T) {
	modeltest.Claude(t)
	r, _ := claude(t, bubblewrap(t), func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return use("Bash", args{"command": "echo key $ANTHROPIC_API_KEY", "description": "x"})
		}
		return modeltest.Turn{Text: "It is " + modeltest.Key + `: {"key":"` + modeltest.Key + `"}`}
	})
	var seen strings.Builder
	res, err := r.Run(t.Context(), claudeCall(t), func(e runtime.Event) { fmt.Fprintln(&seen, e.Text, string(e.Input)) })
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&seen, res.Text, string(res.Output))
	if strings.Contains(seen.String(), modeltest.Key) || !strings.Contains(seen.String(), "[ANTHROPIC_API_KEY]") {
		t.Errorf("seen:\n%s", &seen)
	}
}

func TestClaudeCheck(t *testing.T) {
	real := modeltest.Claude(t)
	b := bubblewrap(t)
	fake := func(script string) string {
		path := filepath.Join(t.TempDir(), "claude")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key := []string{"CLAUDE_CODE_OAUTH_TOKEN=oauth-1234567"}
	for _, row := range []struct {
		name string
		opts runtime.ClaudeOptions
		want string // empty when it is fine
	}{
		{"the pinned one", runtime.ClaudeOptions{Path: real, Secrets: key}, ""},
		{"a newer one", runtime.ClaudeOptions{Path: fake(`echo "2.10.0 (Claude Code)"`), Secrets: key}, ""},
		{"an older one", runtime.ClaudeOptions{Path: fake(`echo "2.1.99 (Claude Code)"`), Secrets: key}, "2.1.99 is too old"},
		{"another program", runtime.ClaudeOptions{Path: fake(`echo hello`), Secrets: key}, "is not Claude Code"},
		{"one that does not start", runtime.ClaudeOptions{Path: fake(`echo broken >&2; exit 3`), Secrets: key}, "broken"},
		{"none", runtime.ClaudeOptions{Path: "no-such-claude", Secrets: key}, "is not installed"},
		{"no credential", runtime.ClaudeOptions{Path: real}, "claude setup-token"},
		{"an empty credential", runtime.ClaudeOptions{Path: real, Secrets: []string{"ANTHROPIC_API_KEY="}}, "claude setup-token"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.opts.Box = b
			r, err := runtime.NewClaude(row.opts)
			if err != nil {
				t.Fatal(err)
			}
			checked(t, r.Check(t.Context()), row.want)
		})
	}
}

// checked wants a Check that is fine, or one that fails for good with words of
// want.
func checked(t *testing.T, err error, want string) {
	t.Helper()
	if want == "" {
		if err != nil {
			t.Error(err)
		}
		return
	}
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok || failure.Class != runtime.Fatal || !strings.Contains(failure.Reason, want) {
		t.Errorf("Check = %v, want a fatal failure with %q", err, want)
	}
}

// A refused tool is no failure of the CLI: it ends well and says so beside.
func TestClaudeTellsWhatWasDenied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "claude")
	script := `#!/bin/sh
cat >/dev/null
echo '{"type":"result","subtype":"success","result":"I could not.","session_id":"s","permission_denials":[{"tool_name":"Bash"},{"tool_name":"Write"},{"tool_name":"Bash"}]}'`
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := runtime.NewClaude(runtime.ClaudeOptions{Path: path, Box: box(t)})
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	res, err := r.Run(t.Context(), claudeCall(t), func(e runtime.Event) { notices = append(notices, e.Text) })
	if err != nil || strings.Join(res.Denials, " ") != "Bash Write" || !strings.Contains(strings.Join(notices, " "), "Write was refused") {
		t.Errorf("Run = %+v, %v; notices %q", res, err, notices)
	}
}

// A CLI that is not the real one shows what the real one does too seldom.
func TestClaudeThatMisbehaves(t *testing.T) {
	for _, row := range []struct {
		name, script string
		class        runtime.Class
		reason       string
	}{
		{"writes without end", `head -c 70000000 /dev/zero | tr '\0' x; sleep 60`, runtime.Refused, "64 MiB"},
		{"says nothing", `exit 0`, runtime.Refused, "no result"},
		{"is not logged in", `echo 'Not logged in · Please run /login' >&2; exit 1`, runtime.Fatal, "Not logged in"},
		{"has another idea of a result", `echo '{"type":"result","num_turns":"many"}'`, runtime.Refused, "does not fit"},
		{"asks for money back", `echo '{"type":"result","subtype":"success","result":"x","total_cost_usd":-1}'`, runtime.Refused, "negative"},
		{"does not reach its model", `echo '{"type":"result","subtype":"success","is_error":true,"result":"API Error: unable to connect","terminal_reason":"api_error"}'; exit 1`, runtime.Transient, "unable to connect"},
	} {
		t.Run(row.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "claude")
			if err := os.WriteFile(path, []byte("#!/bin/sh\ncat >/dev/null\n"+row.script+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			r, err := runtime.NewClaude(runtime.ClaudeOptions{Path: path, Box: box(t)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Run(t.Context(), claudeCall(t), quiet)
			failure, ok := errors.AsType[*runtime.Error](err)
			if !ok || failure.Class != row.class || !strings.Contains(failure.Reason, row.reason) {
				t.Errorf("Run = %#v, want %s with %q", err, row.class, row.reason)
			}
		})
	}
}
