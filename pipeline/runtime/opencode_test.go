package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// openCodeModel is the name of the scripted model; it has a price.
const openCodeModel = "openai/claude-sonnet-4-5"

// opencode returns the runtime with the real CLI in front of a scripted model.
func opencode(t *testing.T, b *sandbox.Box, script modeltest.Script) (*runtime.OpenCode, *modeltest.Server) {
	t.Helper()
	model := modeltest.New(t, script)
	prices, err := runtime.NewPrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := runtime.NewOpenCode(runtime.OpenCodeOptions{
		Path: modeltest.OpenCode(t), Box: b, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}, Prices: prices, Retries: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, model
}

// inOpenCode lets a script that speaks to Claude Code speak to opencode.
func inOpenCode(script modeltest.Script) modeltest.Script {
	tools := map[string]string{"Read": "read", "Write": "write", "Edit": "edit", "Bash": "bash"}
	inputs := map[string]string{"file_path": "filePath", "old_string": "oldString", "new_string": "newString"}
	return func(req modeltest.Request) modeltest.Turn {
		turn := script(req)
		var calls []modeltest.Call
		for _, call := range turn.Calls {
			input := call.Input.(args)
			if call.Tool == "StructuredOutput" {
				turn.Text = say(input).Text
				continue
			}
			renamed := args{}
			for key, value := range input {
				if name, ok := inputs[key]; ok {
					key = name
				}
				renamed[key] = value
			}
			calls = append(calls, modeltest.Call{Tool: tools[call.Tool], Input: renamed})
		}
		turn.Calls = calls
		return turn
	}
}

// opencodes makes runtimes whose model asks for the acts of the suite.
func opencodes(b *sandbox.Box) runtimetest.Factory {
	return func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		r, _ := opencode(t, b, inOpenCode(suiteModel(c)))
		return named{r}
	}
}

// named asks for the scripted model where a call names none.
type named struct{ runtime.Runtime }

func (n named) Run(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
	c.Model = openCodeModel
	return n.Runtime.Run(ctx, c, emit)
}

// openCodeOptions measures how long the CLI is silent while it starts: seconds,
// many of them on a busy machine.
func openCodeOptions(t *testing.T, b *sandbox.Box) runtimetest.Options {
	t.Helper()
	r, _ := opencode(t, b, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Here I am."} })
	start := time.Now()
	if _, err := r.Run(t.Context(), openCodeCall(t), quiet); err != nil {
		t.Fatal(err)
	}
	return runtimetest.Options{Idle: max(6*time.Second, 3*time.Since(start)), Many: 3}
}

func openCodeCall(t *testing.T) runtime.Call {
	c := claudeCall(t)
	c.Model = openCodeModel
	return c
}

func TestOpenCodeConforms(t *testing.T) {
	modeltest.OpenCode(t)
	b := bubblewrap(t)
	runtimetest.Run(t, opencodes(b), openCodeOptions(t, b))
}

func TestOpenCodeLeavesNoProcess(t *testing.T) {
	modeltest.OpenCode(t)
	b := bubblewrap(t)
	runtimetest.RunEndings(t, opencodes(b), runtimetest.Endings(6), openCodeOptions(t, b))
}
