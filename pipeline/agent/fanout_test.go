package agent_test

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

// bridgeArg makes the test binary a CLI's MCP server.
const bridgeArg = "mcp-for-a-test"

// gather is a model that never wants two tools in one turn: an agent that uses
// the agent tool once, with five tasks, and scouts that answer only when five of
// them have asked.
type gather struct {
	tool string // the agent tool, as the CLI calls it
	all  chan struct{}

	mu     sync.Mutex
	scouts int
	result string // of the agent tool
}

const gathered = 5

func (g *gather) play(req modeltest.Request) modeltest.Turn {
	if strings.Contains(req.Text(), "look at part") {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.scouts++; g.scouts == gathered {
			close(g.all)
		}
		return modeltest.Turn{Text: "it is fine", Wait: g.all}
	}
	switch results := req.Results(); len(results) {
	case 0:
		if !req.Offers(g.tool) { // a title, or whatever else a CLI asks for beside
			return modeltest.Turn{Text: "A title"}
		}
		var prompts []string
		for i := range gathered {
			prompts = append(prompts, fmt.Sprint("look at part ", i))
		}
		return modeltest.Turn{Calls: []modeltest.Call{{Tool: g.tool, Input: asks(prompts...)}}}
	default:
		g.mu.Lock()
		g.result = results[len(results)-1].Text
		g.mu.Unlock()
		if req.Offers("StructuredOutput") && len(results) == 1 {
			return modeltest.Turn{Calls: []modeltest.Call{{Tool: "StructuredOutput", Input: reply{Word: "done"}}}}
		}
		return modeltest.Turn{Text: `{"word":"done"}`}
	}
}

// fanOut runs an agent of a real runtime that asks five scouts of the same
// runtime in one use of its tool, and wants all five at work at once.
func fanOut(t *testing.T, tool, model string, open func(model *modeltest.Server, box *sandbox.Box) (runtime.Runtime, error)) {
	t.Helper()
	sandboxtest.Need(t, "bwrap")
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Bubblewrap, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	g := &gather{tool: tool, all: make(chan struct{})}
	agents, err := open(modeltest.New(t, g.play), box)
	if err != nil {
		t.Fatal(err)
	}
	var log steptest.Log
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	crew.Target = func(string) (agent.Target, error) {
		return agent.Target{Runtime: agents, Name: "real", Model: model}, nil
	}
	crew.Limits.Timeout = 2 * time.Minute
	crew.Home = func(string) (string, error) { return os.MkdirTemp(t.TempDir(), "home-") }
	delegates(crew, gathered)
	got, err := agent.Ask(t.Context(), crew, agent.Place{Key: "k", Work: tree{dir: t.TempDir()}}, reader(), question{"Ask five scouts."})
	if err != nil || got.Word != "done" {
		t.Errorf("Ask = %+v, %v", got, err)
	}
	var result batch.Result[string]
	_, text, _ := strings.Cut(g.result, "{") // a CLI may put words of its own before it
	if err := json.Unmarshal([]byte("{"+text), &result); err != nil {
		t.Fatalf("the agent tool answered %q: %v", g.result, err)
	}
	if !result.Receipt.Whole() || len(result.Slots) != gathered {
		t.Errorf("%+v", result)
	}
	for i, s := range result.Slots {
		if !strings.Contains(s.Output, "it is fine") || s.CostMicros == 0 {
			t.Errorf("slot %d: %+v", i, s)
		}
	}
}

// tree is a directory that nobody commits.
type tree struct {
	agenttest.Desk
	dir string
}

func (d tree) Dir() string { return d.dir }

// bridge makes the test binary the MCP server of a CLI.
func bridge(t *testing.T) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, bridgeArg}
}

// prices are those of the model of a test's crew.
func prices(t *testing.T) runtime.Prices {
	t.Helper()
	p, err := runtime.NewPrices(runtime.Prices{"model": {Input: 1_000_000, Output: 1_000_000}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClaudeFansOut(t *testing.T) {
	path := modeltest.Claude(t)
	fanOut(t, "mcp__slipway__agent", "sonnet", func(model *modeltest.Server, box *sandbox.Box) (runtime.Runtime, error) {
		return runtime.NewClaude(runtime.ClaudeOptions{
			Path: path, Box: box, Env: model.Env(), Secrets: []string{model.Secret()}, Bridge: bridge(t),
		})
	})
}

func TestOpenCodeFansOut(t *testing.T) {
	path := modeltest.OpenCode(t)
	fanOut(t, "slipway_agent", "model", func(model *modeltest.Server, box *sandbox.Box) (runtime.Runtime, error) {
		return runtime.NewOpenCode(runtime.OpenCodeOptions{
			Path: path, Box: box, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}, Bridge: bridge(t), Prices: prices(t),
		})
	})
}

func TestCodexFansOut(t *testing.T) {
	path := modeltest.Codex(t)
	fanOut(t, "mcp__slipway.agent", "model", func(model *modeltest.Server, box *sandbox.Box) (runtime.Runtime, error) {
		return runtime.NewCodex(runtime.CodexOptions{
			Path: path, Box: box, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}, Bridge: bridge(t), Prices: prices(t),
		})
	})
}

func TestNativeFansOut(t *testing.T) {
	fanOut(t, "agent", "test/scripted", func(model *modeltest.Server, box *sandbox.Box) (runtime.Runtime, error) {
		_, key, _ := strings.Cut(model.Secret(), "=")
		p, err := runtime.NewPrices(runtime.Prices{"scripted": {Input: 1_000_000, Output: 1_000_000}})
		if err != nil {
			return nil, err
		}
		return native.New(native.Options{
			Providers: map[string]native.Provider{"test": {Kind: native.Anthropic, BaseURL: model.URL(), Key: key}}, Prices: p, Box: box,
		})
	})
}
