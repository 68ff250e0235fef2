package native_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(stateDir) // what it leaves is empty
		os.Exit(code)
	}))
}

// A dialect is one of the two protocols, with a model that has a price in it.
type dialect struct {
	name  string
	model string
}

var dialects = []dialect{{"messages", "anthropic/claude-sonnet-4-5"}, {"chat", "openai/gpt-5.4"}}

// options lead both providers to a scripted model.
func options(t testing.TB, model *modeltest.Server) native.Options {
	t.Helper()
	prices, err := runtime.NewPrices(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return native.Options{
		Box: box(t), Prices: prices, HTTP: &http.Client{Transport: transport},
		Providers: map[string]native.Provider{
			"anthropic": {Kind: native.Anthropic, BaseURL: model.URL(), Key: modeltest.Key},
			"openai":    {Kind: native.OpenAI, BaseURL: model.URL() + "/v1", Key: modeltest.Key},
		},
	}
}

// box is one for all tests: to find out what works here takes a moment.
func box(t testing.TB) *sandbox.Box {
	t.Helper()
	b, err := theBox()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	stateDir = filepath.Join(os.TempDir(), fmt.Sprintf("slipway-native-test-%d", os.Getpid()))
	theBox   = sync.OnceValues(func() (*sandbox.Box, error) { return sandbox.New(sandbox.Options{StateDir: stateDir}) })
)

// start returns the runtime in front of a scripted model.
func start(t testing.TB, script modeltest.Script) (*native.Runtime, *modeltest.Server) {
	t.Helper()
	model := modeltest.New(t, script)
	r, err := native.New(options(t, model))
	if err != nil {
		t.Fatal(err)
	}
	return r, model
}

// call is a call in a directory of its own, with every tool.
func call(t testing.TB, model string) runtime.Call {
	t.Helper()
	return runtime.Call{
		Step: "test/coder", Role: "coder", System: "You are tested.", Prompt: "Do it.", Model: model,
		Tools: []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep},
		Dir:   t.TempDir(), Home: t.TempDir(), MaxTurns: 20,
	}
}

type args map[string]any // the input of a tool

func use(tool string, input args) modeltest.Turn {
	return modeltest.Turn{Calls: []modeltest.Call{{Tool: tool, Input: input}}}
}

func quiet(runtime.Event) {}

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A wire remembers what was sent, word for word.
type wire struct {
	http.RoundTripper
	mu   sync.Mutex
	sent []string
}

func record(t testing.TB) *wire {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &wire{RoundTripper: transport}
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.sent = append(w.sent, string(body))
	w.mu.Unlock()
	req = req.Clone(req.Context())
	req.Body = io.NopCloser(bytes.NewReader(body))
	return w.RoundTripper.RoundTrip(req)
}

func (w *wire) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[len(w.sent)-1]
}

// startAt is start with a wire between the two.
func startAt(t testing.TB, w *wire, script modeltest.Script) (*native.Runtime, *modeltest.Server) {
	t.Helper()
	model := modeltest.New(t, script)
	o := options(t, model)
	o.HTTP = &http.Client{Transport: w}
	r, err := native.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return r, model
}

// processes returns those whose command line is command.
func processes(t testing.TB, command string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.ReplaceAll(command, " ", "\x00") + "\x00"
	var found []string
	for _, path := range paths {
		if line, err := os.ReadFile(path); err == nil && string(line) == want {
			found = append(found, path)
		}
	}
	return found
}
