// Package native is the runtime without a CLI: a loop of model and tools inside
// this process, over the Anthropic Messages API and over chat completions as
// OpenAI, OpenRouter, Ollama and vLLM speak them. It is the light one: a call
// costs a goroutine and a conversation, so a thousand run in one process.
//
// Its promises beside those of every runtime:
//
//   - A tool that the role was not granted does not exist for the model. A use
//     of it is refused and counted.
//   - Files are reached through os.Root: no path leads out of the call's
//     directories, and nothing is written into .git. Commands run in the sandbox.
//   - A request starts only while the budget is not used up.
//   - An answer is checked against the schema; the model may correct it a few
//     times before it goes back to the caller as it is.
//
// Sessions are kept in memory, the newest of them. A call whose session is gone
// starts anew, with the answer that is to be repaired in its prompt.
package native

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// A Kind is the API that a provider speaks.
type Kind string

// The kinds of provider.
const (
	Anthropic Kind = "anthropic" // the Messages API
	OpenAI    Kind = "openai"    // chat completions
)

// A Provider is an API that models are asked through.
type Provider struct {
	Kind    Kind
	BaseURL string // as its own SDK takes it: https://api.anthropic.com, https://api.openai.com/v1
	Key     string // empty sends none
	Window  int64  // tokens of context that its models have; 0 means 200,000
}

// Options are what all calls share.
type Options struct {
	Providers map[string]Provider // by the part of a model's name before the first slash
	Prices    runtime.Prices
	Box       *sandbox.Box // for commands
	HTTP      *http.Client // nil means one that keeps many connections
}

// Runtime runs agents in this process.
type Runtime struct {
	providers map[string]provider
	prices    runtime.Prices
	box       *sandbox.Box
	hide      *runtime.Redactor
	tools     map[runtime.Tool]tool
	sessions  sessions
}

// A provider is one of the Options, ready to be asked.
type provider struct {
	endpoint
	window int64
}

// defaultWindow is the context that counts for a provider that names none. The
// newest models have more; a conversation that long is seldom worth its price.
const defaultWindow = 200_000

// New returns a runtime. It asks no provider.
func New(opts Options) (*Runtime, error) {
	if opts.Box == nil {
		return nil, errors.New("runtime native: no sandbox is given")
	}
	if len(opts.Providers) == 0 {
		return nil, errors.New("runtime native: no provider is configured")
	}
	client := cmp.Or(opts.HTTP, newClient())
	r := &Runtime{providers: make(map[string]provider), prices: opts.Prices, box: opts.Box, tools: make(map[runtime.Tool]tool)}
	var secrets []string
	for _, name := range slices.Sorted(maps.Keys(opts.Providers)) {
		p := opts.Providers[name]
		if p.BaseURL == "" {
			return nil, fmt.Errorf("runtime native: provider %s has no base URL", name)
		}
		ready := provider{window: cmp.Or(p.Window, defaultWindow)}
		switch p.Kind {
		case Anthropic:
			ready.endpoint = newMessages(p, client)
		case OpenAI:
			ready.endpoint = newChat(p, client)
		default:
			return nil, fmt.Errorf("runtime native: provider %s: unknown kind %q; there are %s and %s", name, p.Kind, Anthropic, OpenAI)
		}
		r.providers[name] = ready
		secrets = append(secrets, "key of "+name+"="+p.Key)
	}
	r.hide = runtime.NewRedactor(secrets)
	tools, err := builtIn()
	if err != nil {
		return nil, fmt.Errorf("runtime native: %w", err)
	}
	for _, t := range tools {
		r.tools[runtime.Tool(t.name)] = t
	}
	return r, nil
}

// newClient returns a client for a thousand calls at once. It follows no
// redirect: a key is for the host that it was given for.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConns, transport.MaxIdleConnsPerHost = 0, 256
	transport.ResponseHeaderTimeout = 0 // the guard of the call waits
	transport.IdleConnTimeout = 30 * time.Second
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Run runs one agent. What it used and cost is in the Result also when the call
// failed.
func (r *Runtime) Run(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
	if ctx.Err() != nil {
		return runtime.Result{}, context.Cause(ctx)
	}
	a, err := r.hire(c, emit)
	if err != nil {
		return runtime.Result{}, err
	}
	run, guard := runtime.NewGuard(ctx, c)
	defer guard.End()
	a.guard = guard
	err = guard.Verdict(a.work(run))
	if failure, ok := errors.AsType[*runtime.Error](err); ok {
		failure.Reason = r.hide.Text(failure.Reason)
	}
	return r.hide.Result(a.leave()), err
}

// find splits a model's name into its provider and the rest.
func (r *Runtime) find(model string) (provider, string, error) {
	name, rest, _ := strings.Cut(model, "/")
	p, ok := r.providers[name]
	if !ok || rest == "" {
		return provider{}, "", &runtime.Error{Class: runtime.Fatal, Reason: fmt.Sprintf(
			"the model %q names no provider that has a key: write it as provider/model; there are: %s",
			model, strings.Join(slices.Sorted(maps.Keys(r.providers)), ", "))}
	}
	return p, rest, nil
}
