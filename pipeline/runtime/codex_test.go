package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// codexModel makes Codex do the acts of the suite.
func codexModel(c runtimetest.Case) modeltest.Script {
	return func(req modeltest.Request) modeltest.Turn {
		return runtimetest.Play(c, runtimetest.Hands{
			Read: func(name string) modeltest.Turn { return codexShell(req, "cat "+name) },
			Edit: func(req modeltest.Request, done int, name, old, new string) (modeltest.Turn, bool) {
				patch := "*** Begin Patch\n*** Update File: " + name + "\n@@\n-" + old + "\n+" + new + "\n*** End Patch\n"
				return codexPatch(req, patch), done == 0
			},
			Write: func(name, text string) modeltest.Turn {
				return codexShell(req, "echo "+strings.TrimSpace(text)+" >"+name)
			},
			Run:    codexShell,
			Answer: func(value any) modeltest.Turn { return runtimetest.Say(value) },
		})(req)
	}
}

// codexScripts is the tool of models that write scripts.
const codexScripts = "functions.exec"

// codexShell is a turn that runs a command, in whichever way the model of req is
// offered a shell: as a tool, or as a function of the script that is its tool.
func codexShell(req modeltest.Request, command string) modeltest.Turn {
	if !req.Offers(codexScripts) {
		return use("exec_command", args{"cmd": command})
	}
	return codexScript("const r = await tools.exec_command({cmd: " + quote(command) + "}); text(r.output)")
}

func codexPatch(req modeltest.Request, patch string) modeltest.Turn {
	if !req.Offers(codexScripts) {
		return modeltest.Turn{Calls: []modeltest.Call{{Tool: "apply_patch", Input: patch}}}
	}
	return codexScript("text(await tools.apply_patch(" + quote(patch) + "))")
}

func codexScript(script string) modeltest.Turn {
	return modeltest.Turn{Calls: []modeltest.Call{{Tool: codexScripts, Input: script}}}
}

func quote(text string) string {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err)
	}
	return string(quoted)
}

// codex returns the runtime with the real CLI in front of a scripted model.
func codex(t *testing.T, b *sandbox.Box, script modeltest.Script) (*runtime.Codex, *modeltest.Server) {
	t.Helper()
	model := modeltest.New(t, script)
	r, err := runtime.NewCodex(runtime.CodexOptions{
		Path: modeltest.Codex(t), Box: b, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, model
}

func TestCodexConforms(t *testing.T) {
	t.Parallel()
	modeltest.Codex(t)
	runtimetest.Run(t, codexes(bubblewrap(t)), codexOptions)
}

func TestCodexLeavesNoProcess(t *testing.T) {
	t.Parallel()
	modeltest.Codex(t)
	runtimetest.RunEndings(t, codexes(bubblewrap(t)), runtimetest.Endings(10), codexOptions)
}

// The CLI takes half a second to start, more on a busy machine.
var codexOptions = runtimetest.Options{Idle: 5 * time.Second, Many: 3}

// codexes makes runtimes whose model asks for the acts of the suite.
func codexes(b *sandbox.Box) runtimetest.Factory {
	return func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		r, _ := codex(t, b, codexModel(c))
		return r
	}
}

// codexCall is a call whose HOME outlives the machine's start: below a directory
// for temporary files the CLI's own sandbox does not start.
func codexCall(t *testing.T) runtime.Call {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	home, err := os.MkdirTemp(cache, "slipway-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	c := claudeCall(t)
	c.Home = home
	return c
}

// The newest models write scripts; older ones and those of others have tools.
func TestCodexWithModelsOfEveryKind(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		model  string
		priced bool
	}{
		{"gpt-6.1-sol", true},
		{"gpt-5.5", true},
		{"vendor/unheard-of", false},
	} {
		t.Run(row.model, func(t *testing.T) {
			c := codexCall(t)
			c.Model, c.Effort = row.model, "high"
			put(t, c.Dir, "a.txt", "one\n")
			r, model := codex(t, b, func(req modeltest.Request) modeltest.Turn {
				switch len(req.Results()) {
				case 0:
					return codexShell(req, "sed -i s/one/two/ a.txt && cp a.txt b.txt")
				case 1:
					if req.Offers("apply_patch") || req.Offers(codexScripts) {
						return codexPatch(req, "*** Begin Patch\n*** Update File: b.txt\n@@\n-two\n+three\n*** End Patch\n")
					}
				}
				return modeltest.Turn{Text: "Done."}
			})
			var notices strings.Builder
			res, err := r.Run(t.Context(), c, func(e runtime.Event) {
				if e.Kind == runtime.Notice {
					fmt.Fprintln(&notices, e.Text)
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			want := "-rw-r--r-- three\n"
			if !row.priced {
				want = "-rw-r--r-- two\n" // it has no patches
			}
			if got := look(t, c.Dir); got["a.txt"] != "-rw-r--r-- two\n" || got["b.txt"] != want {
				t.Errorf("tree %v, results %+v", got, lastResults(model))
			}
			req := model.Requests()[0]
			if req.Model != row.model || res.Turns != len(model.Requests()) || res.Stop != "end_turn" {
				t.Errorf("asked %s, result %+v", req.Model, res)
			}
			if unpriced := strings.Contains(notices.String(), "no price for the model "+row.model); unpriced == row.priced || (res.CostMicros > 0) != row.priced {
				t.Errorf("it cost %d; notices: %s", res.CostMicros, &notices)
			}
		})
	}
}

// Who confines the agent, and how, changes nothing of what it may do.
func TestCodexInEverySandbox(t *testing.T) {
	modeltest.Codex(t)
	for _, mode := range []sandbox.Mode{sandbox.Bubblewrap, sandbox.Landlock, sandbox.None} {
		t.Run(string(mode), func(t *testing.T) {
			if mode != sandbox.Landlock {
				bubblewrap(t) // which the CLI's own sandbox uses, too
			}
			b := boxOf(t, mode)
			for _, row := range []struct {
				name     string
				tools    []runtime.Tool
				readOnly bool
				writes   bool
			}{
				{"a coder", []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash}, false, true},
				{"a reader", []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep}, false, false},
				{"a tester of what it may not change", []runtime.Tool{runtime.Read, runtime.Bash}, true, false},
			} {
				t.Run(row.name, func(t *testing.T) {
					t.Parallel()
					c, outside := codexCall(t), codexCall(t).Home
					c.Tools, c.ReadOnly = row.tools, row.readOnly
					put(t, c.Dir, "word.txt", "plum\n")
					r, model := codex(t, b, func(req modeltest.Request) modeltest.Turn {
						if len(req.Results()) == 0 {
							return codexShell(req, "cat word.txt; echo x >mine; echo x >"+outside+"/planted; echo x >"+c.Home+"/.codex/planted")
						}
						return modeltest.Turn{Text: "Done."}
					})
					if _, err := r.Run(t.Context(), c, quiet); err != nil {
						t.Fatal(err)
					}
					results := lastResults(model)
					if len(results) != 1 || !strings.Contains(results[0].Text, "plum") {
						t.Errorf("it cannot read: %+v", results)
					}
					_, wrote := look(t, c.Dir)["mine"]
					if left := look(t, outside); wrote != row.writes || len(left) > 0 {
						t.Errorf("it wrote: %v, want %v; outside: %v; it saw %+v", wrote, row.writes, left, results)
					}
				})
			}
		})
	}
}

// A function is not asked about, whoever confines the agent.
func TestCodexUsesFunctions(t *testing.T) {
	modeltest.Codex(t)
	bubblewrap(t)
	for _, mode := range []sandbox.Mode{sandbox.Bubblewrap, sandbox.None} {
		t.Run(string(mode), func(t *testing.T) {
			model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
				if len(req.Results()) == 0 {
					return codexScript("text((await tools.mcp__slipway__double({n: 21})).content[0].text)")
				}
				return modeltest.Turn{Text: "Done."}
			})
			r, err := runtime.NewCodex(runtime.CodexOptions{
				Path: modeltest.Codex(t), Box: boxOf(t, mode), Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}, Bridge: []string{self(t), pipeArg},
			})
			if err != nil {
				t.Fatal(err)
			}
			c := codexCall(t)
			c.Tools = []runtime.Tool{runtime.Read}
			c.Functions = []runtime.Function{{
				Name: "double", Description: "doubles a number", Input: []byte(`{"type":"object","properties":{"n":{"type":"integer"}}}`),
				Call: func(_ context.Context, input json.RawMessage) (json.RawMessage, error) {
					var in struct{ N int }
					if err := json.Unmarshal(input, &in); err != nil {
						return nil, err
					}
					return json.Marshal(2 * in.N)
				},
			}}
			if _, err := r.Run(t.Context(), c, quiet); err != nil {
				t.Fatal(err)
			}
			if results := lastResults(model); len(results) != 1 || !strings.HasSuffix(results[0].Text, "42") {
				t.Errorf("the function answered %+v", results)
			}
		})
	}
}

func TestCodexRefusesAHomeThatItsSandboxCannotUse(t *testing.T) {
	r, _ := codex(t, boxOf(t, sandbox.None), func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Done."} })
	_, err := r.Run(t.Context(), claudeCall(t), quiet)
	if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Fatal || !strings.Contains(failure.Reason, "temporary") {
		t.Errorf("Run = %v, want a fatal failure", err)
	}
}

func TestCodexClassifiesFailures(t *testing.T) {
	t.Parallel()
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		name   string
		turn   modeltest.Turn
		change func(*runtime.Call)
		class  runtime.Class
		reason string
		stop   string
	}{
		{name: "too many requests", turn: modeltest.Turn{Status: 429, Error: "Slow down"}, class: runtime.Transient, reason: "429"},
		{name: "no authority", turn: modeltest.Turn{Status: 401, Error: "Incorrect API key provided: " + modeltest.Key}, class: runtime.Fatal, reason: "provided: [OPENAI_API_KEY]; check the key"},
		{name: "no right", turn: modeltest.Turn{Status: 403, Error: "Country not supported"}, class: runtime.Fatal, reason: "Country"},
		{name: "no credit", turn: modeltest.Turn{Status: 429, Error: "You exceeded your current quota", Type: "insufficient_quota"}, class: runtime.Fatal, reason: "quota"},
		{name: "an unknown model", turn: modeltest.Turn{Status: 404, Error: "The model nope does not exist"}, class: runtime.Fatal, reason: "nope"},
		{name: "a bad request", turn: modeltest.Turn{Status: 400, Error: "prompt is odd"}, class: runtime.Refused, reason: "400: prompt is odd"},
		{name: "a prompt that is longer than the CLI takes", change: func(c *runtime.Call) { c.Prompt = strings.Repeat("word ", 1<<18) }, class: runtime.Refused, reason: "1048576"},
		{name: "a page of a proxy", turn: modeltest.Turn{Page: "<html>"}, class: runtime.Transient, reason: "text/html"},
		{name: "a connection that breaks", turn: modeltest.Turn{Reset: true}, class: runtime.Transient, reason: "cannot be reached"},
		{
			name: "no end of turns", turn: codexScript("text(1)"),
			change: func(c *runtime.Call) { c.MaxTurns = 2 }, class: runtime.Refused, reason: "its 2 turns", stop: "max_turns",
		},
		{
			name: "no budget left", turn: codexScript("text(1)"),
			change: func(c *runtime.Call) { c.BudgetMicros = 100 }, class: runtime.Refused, reason: "$0.000100", stop: "budget",
		},
		{
			name: "no structured output", turn: modeltest.Turn{Text: "I would rather not."},
			change: func(c *runtime.Call) { c.Schema = []byte(answerSchema) }, class: runtime.Refused, reason: "I would rather not",
		},
		{
			name: "a session that is not there", turn: modeltest.Turn{Text: "hello"},
			change: func(c *runtime.Call) { c.Session = "6b1f8a1e-0000-4000-8000-000000000000" }, class: runtime.Refused, reason: "no rollout found",
		},
		{
			name: "a session that is an option", turn: modeltest.Turn{Text: "hello"},
			change: func(c *runtime.Call) { c.Session = "--last" }, class: runtime.Refused, reason: "no session",
		},
		{
			name: "no home", turn: modeltest.Turn{Text: "hello"},
			change: func(c *runtime.Call) { c.Home = "" }, class: runtime.Refused, reason: "HOME",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			c := claudeCall(t)
			if row.change != nil {
				row.change(&c)
			}
			r, _ := codex(t, b, func(modeltest.Request) modeltest.Turn { return row.turn })
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

// streaming returns the runtime in front of an API that sends what stream writes.
func streaming(t *testing.T, b *sandbox.Box, stream func(w http.ResponseWriter, r *http.Request)) *runtime.Codex {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		stream(w, r)
	}))
	t.Cleanup(server.Close)
	r, err := runtime.NewCodex(runtime.CodexOptions{
		Path: modeltest.Codex(t), Box: b, Env: []string{"OPENAI_BASE_URL=" + server.URL}, Secrets: []string{"OPENAI_API_KEY=" + modeltest.Key},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// An answer can fail after it began well.
func TestCodexClassifiesFailuresInMidStream(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		code, message string
		class         runtime.Class
	}{
		{"rate_limit_exceeded", "Rate limit reached. Please try again in 20ms.", runtime.Transient},
		{"server_is_overloaded", "busy", runtime.Transient},
		{"server_error", "broken", runtime.Transient},
		{"insufficient_quota", "You exceeded your current quota", runtime.Fatal},
		{"context_length_exceeded", "too long", runtime.Refused},
		{"invalid_prompt", "flagged", runtime.Refused},
	} {
		t.Run(row.code, func(t *testing.T) {
			t.Parallel()
			r := streaming(t, b, func(w http.ResponseWriter, _ *http.Request) {
				_, _ = fmt.Fprintf(w, "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\n\n"+
					"data: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"error\":{\"code\":%q,\"message\":%q},\"usage\":{\"input_tokens\":1000,\"output_tokens\":0}}}\n\n", row.code, row.message)
			})
			res, err := r.Run(t.Context(), claudeCall(t), quiet)
			failure, ok := errors.AsType[*runtime.Error](err)
			if !ok || failure.Class != row.class || !strings.Contains(failure.Reason, row.message) || res.CostMicros == 0 {
				t.Errorf("Run = %+v (%#v), want %s and a cost", res, err, row.class)
			}
		})
	}
}

// The CLI says nothing until an answer is whole.
func TestCodexTakesNoLongAnswerForAStall(t *testing.T) {
	modeltest.Codex(t)
	r := streaming(t, bubblewrap(t), func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; i < 40; i++ { // eight seconds
			_, _ = fmt.Fprint(w, "data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\"}\n\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-tick.C:
			case <-r.Context().Done():
				return
			}
		}
		_, _ = fmt.Fprint(w, `data: {"type":"response.output_item.done","item":{"type":"message","role":"assistant","content":[{"type":"output_text","text":"At last."}]}}`+"\n\n"+
			`data: {"type":"response.completed","response":{"id":"r"}}`+"\n\n")
	})
	c := claudeCall(t)
	c.Idle = 4 * time.Second
	if res, err := r.Run(t.Context(), c, quiet); err != nil || res.Text != "At last." {
		t.Errorf("Run = %+v, %v", res, err)
	}
}

// A slot is not held while a provider wants to be left alone, but a short wait
// is not worth losing what the agent knows.
func TestCodexDoesNotSitOutALongWait(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		name  string
		retry int // what the provider says, in seconds
		fails bool
	}{
		{"a second", 1, false},
		{"a minute, longer than the call may be silent", 60, true},
		{"an hour", 3600, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			answers := 0
			r, _ := codex(t, b, func(modeltest.Request) modeltest.Turn {
				if answers++; answers == 1 {
					return modeltest.Turn{Status: 429, Error: "Quota", Retry: row.retry}
				}
				return modeltest.Turn{Text: "Done."}
			})
			c := claudeCall(t)
			c.Idle = 10 * time.Second
			start := time.Now()
			retries := 0
			_, err := r.Run(t.Context(), c, func(e runtime.Event) {
				if e.Kind == runtime.Retry {
					retries++
				}
			})
			failure, failed := errors.AsType[*runtime.Error](err)
			switch {
			case !row.fails && (err != nil || retries != 1):
				t.Errorf("Run = %v after %d retries, want success after one", err, retries)
			case row.fails && (!failed || failure.Class != runtime.Transient || failure.After != time.Duration(row.retry)*time.Second):
				t.Errorf("Run = %#v, want a transient failure after %d s", err, row.retry)
			}
			if took := time.Since(start); took > 9*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// What the answers before a stall cost is known.
func TestCodexChargesForAStalledTurn(t *testing.T) {
	modeltest.Codex(t)
	r, _ := codex(t, bubblewrap(t), func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return codexShell(req, "true")
		}
		return modeltest.Turn{Text: "thinking", Stall: true}
	})
	c := claudeCall(t)
	c.Idle = 5 * time.Second
	var used runtime.Usage
	res, err := r.Run(t.Context(), c, func(e runtime.Event) {
		if e.Usage != nil {
			used.Input += e.Usage.Input
		}
	})
	if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Transient {
		t.Errorf("Run = %v, want a transient failure", err)
	}
	if res.CostMicros == 0 || res.Usage.Input == 0 || used.Input != res.Usage.Input || res.Session == "" {
		t.Errorf("result = %+v, told %+v; want cost, usage and session", res, used)
	}
}

// The CLI counts the tokens of a whole session; a repair turn pays for itself only.
func TestCodexRepairTurnIsChargedOnce(t *testing.T) {
	modeltest.Codex(t)
	r, model := codex(t, bubblewrap(t), func(modeltest.Request) modeltest.Turn {
		return modeltest.Turn{Text: `{"answer":42}`, Usage: modeltest.Usage{Input: 1000, Output: 1000, CacheRead: 2000, CacheWrite: 3000}}
	})
	c := claudeCall(t)
	c.Model, c.Schema = "gpt-6.1-sol", []byte(answerSchema)
	first, err := r.Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	c.Session, c.Prompt = first.Session, "Once more."
	second, err := r.Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	// 1000 at 2, 1000 at 10, 2000 at 0.1 and 3000 at 2.5 dollars a million.
	if first.CostMicros != 2000+10000+200+7500 || second.CostMicros != first.CostMicros || second.Usage != first.Usage || second.Session != first.Session {
		t.Errorf("first %+v, second %+v: want the same twice", first, second)
	}
	requests := model.Requests()
	if last := requests[len(requests)-1]; !strings.Contains(last.Text(), "Do it.") || !strings.Contains(last.Text(), "Once more.") {
		t.Errorf("the session was not continued: %q", last.Text())
	}
}

func TestCodexOffersOnlyTheToolsOfTheRole(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		model   string
		tools   []runtime.Tool
		offered string
	}{
		{"gpt-6.1-sol", []runtime.Tool{runtime.Read, runtime.Bash}, "functions.exec functions.wait"},
		{"gpt-5.5", []runtime.Tool{runtime.Read, runtime.Bash}, "exec_command write_stdin apply_patch view_image"},
		{"gpt-5.5", []runtime.Tool{runtime.Grep}, "exec_command write_stdin apply_patch"},
		{"gpt-5.5", nil, "apply_patch"}, // which cannot write: the directory is read-only
		{"unheard-of", []runtime.Tool{runtime.Bash}, "exec_command write_stdin"},
	} {
		t.Run(fmt.Sprint(row.model, row.tools), func(t *testing.T) {
			t.Parallel()
			r, model := codex(t, b, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Done."} })
			c := claudeCall(t)
			c.Model, c.Tools = row.model, row.tools
			c.System = "You are \"the reviewer\"\n of this \\ test.\x7f"
			if _, err := r.Run(t.Context(), c, quiet); err != nil {
				t.Fatal(err)
			}
			req := model.Requests()[0]
			var offered []string
			for _, tool := range req.Tools {
				offered = append(offered, tool.Name)
				for _, never := range []string{"tools.spawn_agent", "tools.web_search", "tools.request_user_input", "tools.create_goal"} {
					if strings.Contains(tool.Description, never) {
						t.Errorf("%s has %s", tool.Name, never)
					}
				}
			}
			if got := strings.Join(offered, " "); got != row.offered {
				t.Errorf("the model may call %s, want %s", got, row.offered)
			}
			if !strings.Contains(req.System.String(), c.System) {
				t.Error("the system prompt does not reach the model")
			}
		})
	}
}

// The API takes no schema but strict ones.
func TestCodexAsksForStructuredOutput(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	for _, row := range []struct {
		name, schema string
		sent         string // empty where the prompt has to do
	}{
		{
			"a strict one", `{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`,
			`{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"],"additionalProperties":false}`,
		},
		{
			"fields that need not be there", `{"type":"object","properties":{"a":{"type":"string","enum":["x"]},"b":{"type":["null","string"]},"c":{"type":"array","items":{"type":"object","properties":{"d":{"type":"number","minimum":0}}}}}}`,
			`{"type":"object","properties":{"a":{"anyOf":[{"type":"string","enum":["x"]},{"type":"null"}]},"b":{"type":["null","string"]},` +
				`"c":{"type":["array","null"],"items":{"type":"object","properties":{"d":{"type":["number","null"],"minimum":0}},"required":["d"],"additionalProperties":false}}},"required":["a","b","c"],"additionalProperties":false}`,
		},
		{
			"bounds that strict ones have not", `{"type":"object","properties":{"a":{"type":"string","minLength":1,"pattern":"^(?=x)"}},"required":["a"]}`,
			`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`,
		},
		{"any names", `{"type":"object","properties":{"a":{"type":"object","additionalProperties":{"type":"string"}}}}`, ""},
		{"anything", `{"type":"object","properties":{"a":true}}`, ""},
		{"a list", `{"type":"array","items":{"type":"string"}}`, ""},
		{"a reference", `{"type":"object","properties":{"a":{"$ref":"#/$defs/a"}},"$defs":{"a":{"type":"string"}}}`, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r, model := codex(t, b, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: `{"a":"x"}`} })
			c := claudeCall(t)
			c.Schema = []byte(row.schema)
			res, err := r.Run(t.Context(), c, quiet)
			if err != nil || string(res.Output) != `{"a":"x"}` {
				t.Fatalf("Run = %+v, %v", res, err)
			}
			req := model.Requests()[0]
			if inPrompt := strings.Contains(req.Prompt(), row.schema); inPrompt != (row.sent == "") {
				t.Errorf("the prompt has the schema: %v", inPrompt)
			}
			if row.sent != "" && canonicalJSON(t, req.Schema) != canonicalJSON(t, []byte(row.sent)) {
				t.Errorf("schema = %s, want %s", req.Schema, row.sent)
			}
		})
	}
}

func canonicalJSON(t *testing.T, text []byte) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(sorted)
}

// A repository can bring configuration, hooks, servers and instructions, and so
// can the agent of the call before, which had the same HOME. Each trap plants a
// file or a word; the bait proves that the traps work.
func TestCodexStartsNothingOfAHostileRepository(t *testing.T) {
	modeltest.Codex(t)
	b := bubblewrap(t)
	c := claudeCall(t)
	plant := func(name string) string { return "touch " + filepath.Join(c.Dir, "planted-"+name) }
	trap := func(dir, at string) {
		hooks := make(map[string]any)
		for _, event := range []string{"SessionStart", "UserPromptSubmit", "PreToolUse", "Stop"} {
			hooks[event] = []any{args{"hooks": []any{args{"type": "command", "command": plant(at + "-" + event)}}}}
		}
		put(t, dir, ".codex/hooks.json", quoteJSON(t, args{"hooks": hooks}))
		put(t, dir, ".codex/config.toml", fmt.Sprintf("developer_instructions = \"trap instructions\"\n[features]\nhooks = true\nmulti_agent_v2 = true\n"+
			"[mcp_servers.trap]\ncommand = \"sh\"\nargs = [\"-c\", %q]\n", plant(at+"-mcp")))
		put(t, dir, ".codex/AGENTS.md", "trap agents")
		put(t, dir, ".codex/rules/default.rules", `prefix_rule(pattern=["true"], decision="forbidden")`)
		put(t, dir, ".agents/skills/trap/SKILL.md", "---\nname: trap\ndescription: trap skill\n---\n")
	}
	trap(c.Dir, "repository")
	put(t, c.Dir, "AGENTS.md", "trap agents")
	script := func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return codexShell(req, "true && echo it ran")
		}
		return modeltest.Turn{Text: "Done."}
	}
	planted := func() []string {
		found, err := filepath.Glob(filepath.Join(c.Dir, "planted-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	checkQuiet := func(t *testing.T) {
		t.Helper()
		r, model := codex(t, b, script)
		if _, err := r.Run(t.Context(), c, quiet); err != nil {
			t.Fatal(err)
		}
		if found := planted(); len(found) > 0 {
			t.Errorf("it ran code: %v", found)
		}
		if results := lastResults(model); len(results) != 1 || !strings.Contains(results[0].Text, "it ran") {
			t.Errorf("its command: %+v", results)
		}
		req := model.Requests()[0]
		if said := req.System.String() + req.Text(); strings.Contains(said, "trap") || req.Offers("spawn_agent") {
			t.Errorf("the model was told of the traps: %s", said)
		}
	}
	t.Run("a repository", checkQuiet)
	t.Run("a home as the agent before left it", func(t *testing.T) {
		trap(c.Home, "home")
		checkQuiet(t)
		if err := os.RemoveAll(filepath.Join(c.Home, ".codex")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(c.Dir, filepath.Join(c.Home, ".codex")); err != nil {
			t.Fatal(err)
		}
		before := look(t, c.Dir)
		checkQuiet(t)
		if after := look(t, c.Dir); len(after) != len(before) {
			t.Errorf("it followed the link: %v, before %v", after, before)
		}
	})
	t.Run("the same CLI, trusting, falls into the traps", func(t *testing.T) {
		model := modeltest.New(t, script)
		program := modeltest.Codex(t)
		put(t, c.Home, "plain/config.toml", fmt.Sprintf("model_provider = \"p\"\n[model_providers.p]\nname = \"p\"\nbase_url = \"%s/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n", model.URL()))
		var log strings.Builder
		_, err := b.Run(t.Context(), sandbox.Command{
			Args: []string{program, "exec", "--json", "--skip-git-repo-check", "--trust", "--dangerously-bypass-hook-trust", "--dangerously-bypass-approvals-and-sandbox", "-"},
			Dir:  c.Dir, Writable: []string{c.Dir, c.Home}, Readable: []string{filepath.Dir(filepath.Dir(program))}, Stdin: strings.NewReader("Do it."),
			Stdout: &log, Stderr: &log, Env: sandbox.Environ(c.Home, model.ChatSecret(), "CODEX_HOME="+filepath.Join(c.Home, "plain")),
		})
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Join(planted(), " ")
		for _, want := range []string{"repository-mcp", "repository-SessionStart", "repository-UserPromptSubmit", "repository-PreToolUse", "repository-Stop"} {
			if !strings.Contains(found, want) {
				t.Errorf("the trap %s is no trap: %s\n%s", want, found, &log)
			}
		}
		for _, want := range []string{"trap instructions", "trap agents", "trap skill"} {
			if req := model.Requests()[0]; !strings.Contains(req.System.String()+req.Text(), want) {
				t.Errorf("the model was not told of the %s", want)
			}
		}
	})
}

func quoteJSON(t *testing.T, value any) string {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The key stays outside of the sandbox, and what leads to the model is of no use
// to the agent's commands.
func TestCodexHidesItsKey(t *testing.T) {
	modeltest.Codex(t)
	r, model := codex(t, bubblewrap(t), func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return codexShell(req, "env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; cat $CODEX_HOME/*.toml; true")
		}
		return modeltest.Turn{Text: "It is " + modeltest.Key + `: {"key":"` + modeltest.Key + `"}`}
	})
	c := claudeCall(t)
	var seen strings.Builder
	res, err := r.Run(t.Context(), c, func(e runtime.Event) { fmt.Fprintln(&seen, e.Text, string(e.Input)) })
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(&seen, res.Text, string(res.Output))
	if strings.Contains(seen.String(), modeltest.Key) || !strings.Contains(seen.String(), "[OPENAI_API_KEY]") {
		t.Errorf("seen:\n%s", &seen)
	}
	if results := lastResults(model); len(results) != 1 || strings.Contains(results[0].Text, modeltest.Key) || !strings.Contains(results[0].Text, "CODEX_HOME=") {
		t.Errorf("the agent sees %+v", results)
	}
	if got := model.Requests()[0].Header.Get("Authorization"); got != "Bearer "+modeltest.Key {
		t.Errorf("the model was asked with %q", got)
	}
}

func TestCodexCheck(t *testing.T) {
	real := modeltest.Codex(t)
	b := bubblewrap(t)
	fake := func(script string) string { return fakeCLI(t, "codex", script) }
	key := []string{"OPENAI_API_KEY=sk-1234567"}
	for _, row := range []struct {
		name string
		opts runtime.CodexOptions
		want string // empty when it is fine
	}{
		{"the pinned one", runtime.CodexOptions{Path: real, Secrets: key}, ""},
		{"another key", runtime.CodexOptions{Path: real, Secrets: []string{"CODEX_API_KEY=sk-1234567"}}, ""},
		{"a newer one", runtime.CodexOptions{Path: fake(`echo "codex-cli 0.1000.0"`), Secrets: key}, ""},
		{"an older one", runtime.CodexOptions{Path: fake(`echo "codex-cli 0.168.9"`), Secrets: key}, "install @openai/codex@0.169.0"},
		{"another program", runtime.CodexOptions{Path: fake(`echo hello`), Secrets: key}, "is not Codex"},
		{"one that does not start", runtime.CodexOptions{Path: fake(`echo broken >&2; exit 3`), Secrets: key}, "broken"},
		{"none", runtime.CodexOptions{Path: "no-such-codex", Secrets: key}, "is not installed"},
		{"no key", runtime.CodexOptions{Path: real}, "set CODEX_API_KEY or OPENAI_API_KEY"},
		{"an empty key", runtime.CodexOptions{Path: real, Secrets: []string{"OPENAI_API_KEY="}}, "has no key"},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.opts.Box = b
			r, err := runtime.NewCodex(row.opts)
			if err != nil {
				t.Fatal(err)
			}
			checked(t, r.Check(t.Context()), row.want)
		})
	}
}

func fakeCLI(t *testing.T, name, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestNewCodexRefusesWhatIsNoAddress(t *testing.T) {
	for _, base := range []string{"api.openai.com", "ftp://host/v1", "https://", "http://h\x7f/"} {
		if _, err := runtime.NewCodex(runtime.CodexOptions{Box: box(t), Env: []string{"OPENAI_BASE_URL=" + base}}); err == nil {
			t.Errorf("%q is taken", base)
		}
	}
}

// A refused tool is no failure of the CLI: it ends well and says so before.
func TestCodexTellsWhatWasDenied(t *testing.T) {
	r, err := runtime.NewCodex(runtime.CodexOptions{Box: box(t), Path: fakeCLI(t, "codex", `cat >/dev/null
echo '{"type":"item.started","item":{"id":"1","type":"command_execution","command":"rm"}}'
echo '{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"rm","status":"declined"}}'
echo '{"type":"turn.completed"}'`)})
	if err != nil {
		t.Fatal(err)
	}
	var notices []string
	res, err := r.Run(t.Context(), claudeCall(t), func(e runtime.Event) { notices = append(notices, e.Text) })
	if err != nil || strings.Join(res.Denials, " ") != "shell" || !strings.Contains(strings.Join(notices, " "), "shell was refused") {
		t.Errorf("Run = %+v, %v; notices %q", res, err, notices)
	}
}

// A CLI that is not the real one shows what the real one does too seldom.
func TestCodexThatMisbehaves(t *testing.T) {
	for _, row := range []struct {
		name, script string
		class        runtime.Class
		reason       string
	}{
		{"writes without end", `head -c 70000000 /dev/zero | tr '\0' x; sleep 60`, runtime.Refused, "64 MiB"},
		{"says nothing", `exit 0`, runtime.Refused, "no result"},
		{"has another idea of a line", `echo '{"type":"item.completed","item":{"type":"agent_message","text":7}}'`, runtime.Refused, "does not fit"},
		{"fails after its end", `echo '{"type":"turn.completed"}'; echo broken >&2; exit 3`, runtime.Refused, "exit code 3"},
		{"has lost its stream", `echo '{"type":"turn.failed","error":{"message":"stream disconnected before completion"}}'; exit 1`, runtime.Transient, "disconnected"},
		{"has a fault of its own", `echo '{"type":"turn.failed","error":{"message":"internal error; agent loop died"}}'; exit 1`, runtime.Refused, "loop died"},
		{"is too new", "echo 'Error loading config.toml: unknown field `web_search`' >&2; exit 1", runtime.Fatal, "@openai/codex@0.169.0"},
	} {
		t.Run(row.name, func(t *testing.T) {
			r, err := runtime.NewCodex(runtime.CodexOptions{Box: box(t), Path: fakeCLI(t, "codex", "cat >/dev/null\n"+row.script)})
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

// The way to the model is for the CLI of one call, and for answers only.
func TestCodexTapIsForItsCLIOnly(t *testing.T) {
	model := modeltest.New(t, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "hello"} })
	r, err := runtime.NewCodex(runtime.CodexOptions{
		Box: box(t), Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()},
		Path: fakeCLI(t, "codex", `cat >/dev/null
echo "$(sed -n 's/^base_url = "\(.*\)"/\1/p' "$CODEX_HOME/config.toml") $SLIPWAY_MODEL_KEY"
echo '{"type":"turn.completed"}'`),
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, url, key, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := res.Body.Close(); err != nil {
			t.Fatal(err)
		}
		http.DefaultClient.CloseIdleConnections()
		return res.StatusCode
	}
	const question = `{"model":"m","input":"hi","stream":true}`
	asked := false
	_, err = r.Run(t.Context(), claudeCall(t), func(e runtime.Event) {
		where, ok := strings.CutPrefix(e.Text, "codex wrote: ")
		if !ok {
			return
		}
		asked = true
		base, key, _ := strings.Cut(where, " ")
		for _, row := range []struct {
			name, method, url, key, body string
			want                         int
		}{
			{"another key", "POST", base + "/responses", "guessed", question, 401},
			{"no key", "POST", base + "/responses", "", question, 401},
			{"the key to the model", "POST", base + "/responses", modeltest.Key, question, 401},
			{"other things", "GET", base + "/models", key, "", 404},
			{"a way out", "POST", base + "/responses/../files", key, question, 404},
			{"no question", "POST", base + "/responses", key, "{", 400},
		} {
			if got := ask(row.method, row.url, row.key, row.body); got != row.want {
				t.Errorf("%s: %d, want %d", row.name, got, row.want)
			}
		}
		if asked := model.Requests(); len(asked) > 0 {
			t.Errorf("the model was asked: %+v", asked)
		}
		if got := ask("POST", base+"/responses", key, question); got != 200 || len(model.Requests()) != 1 {
			t.Errorf("the CLI itself is answered with %d", got)
		}
	})
	if err != nil || !asked {
		t.Errorf("Run = %v, asked %v", err, asked)
	}
}
