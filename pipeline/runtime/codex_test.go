package runtime_test

import (
	"encoding/json"
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
		results := req.Results()
		run := func(command string) modeltest.Turn { return codexShell(req, command) }
		switch c.Act {
		case runtimetest.EditsFile:
			if len(results) == 0 {
				return codexPatch(req, "*** Begin Patch\n*** Update File: greeting.txt\n@@\n-hello\n+hello, world\n*** End Patch\n")
			}
			return modeltest.Turn{Text: `Done: {"done":true}`}
		case runtimetest.ReadsFile:
			if len(results) == 0 {
				return run("cat word.txt")
			}
			if !strings.Contains(results[0].Text, "plum") {
				return modeltest.Turn{Text: "no plum in " + results[0].Text}
			}
			return modeltest.Turn{Text: `{"word":"plum"}`}
		case runtimetest.RunsCommand:
			if len(results) == 0 {
				return run(runtimetest.Shout)
			}
			lines := strings.Split(strings.TrimSpace(results[0].Text), "\n")
			return say(map[string]string{"loud": lines[len(lines)-1]})
		case runtimetest.Answers:
			return modeltest.Turn{Text: `{"answer":42}`}
		case runtimetest.IsRepaired:
			if strings.Contains(req.Text(), "does not fit") {
				return modeltest.Turn{Text: `{"answer":42}`}
			}
			return modeltest.Turn{Text: `{"answer":"forty-two"}`}
		case runtimetest.CutsOff:
			return modeltest.Turn{Text: `{"answer":4`}
		case runtimetest.IsRefused:
			if len(results) == 0 {
				return run("echo planted >greeting.txt")
			}
			return modeltest.Turn{Text: `{"done":false}`}
		case runtimetest.IsLimited:
			return modeltest.Turn{Status: 429, Error: "Quota", Retry: int(runtimetest.RetryAfter.Seconds())}
		case runtimetest.Overloads:
			return modeltest.Turn{Status: 529, Error: "Overloaded"}
		case runtimetest.MeetsFault:
			return modeltest.Turn{Status: 500, Error: "Internal"}
		case runtimetest.Stalls:
			return modeltest.Turn{Text: "thinking", Stall: true}
		case runtimetest.Hangs:
			return run(c.Hang())
		case runtimetest.Overruns:
			turn := run("sleep 0.2")
			turn.Text = "tick"
			return turn
		case runtimetest.Spends:
			turn := run("true")
			turn.Usage = modeltest.Usage{Input: runtimetest.SpentInput, Output: runtimetest.SpentOutput}
			return turn
		case runtimetest.Crashes:
			turn := run("kill -9 $PPID")
			turn.Text = "working"
			return turn
		case runtimetest.Floods:
			if len(results) == 0 {
				return run("head -c 70000000 /dev/zero | tr '\\0' x")
			}
			return modeltest.Turn{Text: `{"done":true}`}
		case runtimetest.SpawnsAndWaits:
			return run("setsid --wait " + c.Child)
		case runtimetest.Echoes:
			return say(map[string]string{"echo": req.Prompt()})
		case runtimetest.Measures:
			return say(map[string]int{"bytes": len(req.Prompt())})
		case runtimetest.Remembers:
			switch {
			case req.Prompt() != runtimetest.Recall:
				return say(map[string]bool{"ok": true})
			case strings.Contains(req.Text(), runtimetest.Remember):
				return say(map[string]string{"word": "quince"})
			}
			return modeltest.Turn{Text: "I was told no word."}
		}
		return modeltest.Turn{Status: 500, Error: "unknown act " + string(c.Act)}
	}
}

// codexShell is a turn that runs a command, in whichever way the model of req is
// offered a shell: as a tool, or as a function of the script that is its tool.
func codexShell(req modeltest.Request, command string) modeltest.Turn {
	if !req.Offers("exec") {
		return use("exec_command", args{"cmd": command})
	}
	return codexScript("const r = await tools.exec_command({cmd: " + quote(command) + "}); text(r.output)")
}

func codexPatch(req modeltest.Request, patch string) modeltest.Turn {
	if !req.Offers("exec") {
		return modeltest.Turn{Calls: []modeltest.Call{{Tool: "apply_patch", Input: patch}}}
	}
	return codexScript("text(await tools.apply_patch(" + quote(patch) + "))")
}

func codexScript(script string) modeltest.Turn {
	return modeltest.Turn{Calls: []modeltest.Call{{Tool: "exec", Input: script}}}
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
	modeltest.Codex(t)
	b := bubblewrap(t)
	runtimetest.Run(t, func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		r, _ := codex(t, b, codexModel(c))
		return r
	}, runtimetest.Options{
		Idle: 5 * time.Second, // the CLI takes a second to start on a busy machine
		Many: 3,
	})
}

var _ = filepath.Join
