package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

const replayRuntime = "replay"

// runtimes makes each runtime when a role first needs it.
type runtimes struct {
	agents Agents
	box    *sandbox.Box
	prices runtime.Prices // for runtimes whose agents do not say what they cost

	mu    sync.Mutex
	cache map[string]runtime.Runtime
}

func (r *runtimes) get(ctx context.Context, name string) (runtime.Runtime, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if rt := r.cache[name]; rt != nil {
		return rt, nil
	}
	rt, err := r.make(ctx, name)
	if err != nil {
		return nil, err
	}
	if r.agents.Record != "" {
		rt = runtime.Record(rt, r.agents.Record, secretsOf(r.agents.Environ)...)
	}
	r.cache[name] = rt
	return rt, nil
}

func (r *runtimes) make(ctx context.Context, name string) (runtime.Runtime, error) {
	switch name {
	case "command":
		if len(r.agents.Command) == 0 {
			return nil, errors.New("runtime command: name the program with --agent-command")
		}
		return runtime.NewCommand(runtime.CommandOptions{Args: r.agents.Command, Readable: r.agents.Readable, Box: r.box})
	case "claude_code":
		claude, err := runtime.NewClaude(runtime.ClaudeOptions{
			Path:    lookup(r.agents.Environ, "SLIPWAY_CLAUDE"),
			Env:     pick(r.agents.Environ, "ANTHROPIC_BASE_URL"),
			Secrets: pick(r.agents.Environ, "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"),
			Box:     r.box,
			Bridge:  r.agents.Bridge,
		})
		if err != nil {
			return nil, err
		}
		return claude, claude.Check(ctx)
	case "codex":
		codex, err := runtime.NewCodex(runtime.CodexOptions{
			Path:    lookup(r.agents.Environ, "SLIPWAY_CODEX"),
			Env:     pick(r.agents.Environ, "OPENAI_BASE_URL"),
			Secrets: pick(r.agents.Environ, "CODEX_API_KEY", "OPENAI_API_KEY"),
			Prices:  r.prices,
			Box:     r.box,
			Bridge:  r.agents.Bridge,
		})
		if err != nil {
			return nil, err
		}
		return codex, codex.Check(ctx)
	case "open_code":
		opencode, err := runtime.NewOpenCode(runtime.OpenCodeOptions{
			Path:    lookup(r.agents.Environ, "SLIPWAY_OPENCODE"),
			Env:     pick(r.agents.Environ, "OPENAI_BASE_URL", "OPENROUTER_BASE_URL", "ANTHROPIC_BASE_URL"),
			Secrets: pick(r.agents.Environ, "OPENROUTER_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"),
			Prices:  r.prices,
			Box:     r.box,
			Bridge:  r.agents.Bridge,
		})
		if err != nil {
			return nil, err
		}
		return opencode, opencode.Check(ctx)
	case "native":
		return newNative(r.agents.Environ, r.prices, r.box)
	case replayRuntime:
		return runtime.NewReplay(r.agents.Recordings, runtime.ReplayOptions{Strict: r.agents.Strict})
	}
	return nil, fmt.Errorf("runtime %q is not known", name)
}

// pricesOf are the built-in prices of models, and those of the server's file
// beside or instead of them.
func pricesOf(conf config.Server) (runtime.Prices, error) {
	own := runtime.Prices{}
	for model, p := range conf.Prices {
		own[model] = runtime.Price{
			Input: int64(p.Input), Output: int64(p.Output), CacheRead: int64(p.CacheRead), CacheWrite: int64(p.CacheWrite),
		}
	}
	return runtime.NewPrices(own)
}

// nativeProviders are the providers that runtime native knows by name: the
// variables of their key and of their address, and the address of their maker.
var nativeProviders = []struct {
	name, key, url, home string
	kind                 native.Kind
}{
	{"anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "https://api.anthropic.com", native.Anthropic},
	{"openai", "OPENAI_API_KEY", "OPENAI_BASE_URL", "https://api.openai.com/v1", native.OpenAI},
	{"openrouter", "OPENROUTER_API_KEY", "OPENROUTER_BASE_URL", "https://openrouter.ai/api/v1", native.OpenAI},
}

// newNative makes the runtime that asks the providers whose keys environ has.
func newNative(environ []string, prices runtime.Prices, box *sandbox.Box) (runtime.Runtime, error) {
	providers := map[string]native.Provider{}
	var keys []string
	for _, p := range nativeProviders {
		keys = append(keys, p.key)
		if key := lookup(environ, p.key); key != "" {
			providers[p.name] = native.Provider{Kind: p.kind, BaseURL: cmp.Or(lookup(environ, p.url), p.home), Key: key}
		}
	}
	if len(providers) == 0 {
		return nil, &runtime.Error{Class: runtime.Fatal, Reason: "runtime native has no key of a provider: set one of " + strings.Join(keys, ", ") + " for the worker"}
	}
	return native.New(native.Options{Providers: providers, Prices: prices, Box: box})
}

// secretsOf returns the values of variables whose names say that they are
// secret: no recording shows them, whichever agent came to know them.
func secretsOf(environ []string) []string {
	var values []string
	for _, entry := range environ {
		key, value, _ := strings.Cut(entry, "=")
		if secretName.MatchString(key) {
			values = append(values, value)
		}
	}
	return values
}

var secretName = regexp.MustCompile(`(?i)(KEY|TOKEN|SECRET|SECRETS|PASSWORD|CREDENTIALS?)$`)

// pick returns the entries of environ with one of the keys.
func pick(environ []string, keys ...string) []string {
	var out []string
	for _, key := range keys {
		if value := lookup(environ, key); value != "" {
			out = append(out, key+"="+value)
		}
	}
	return out
}

func lookup(environ []string, key string) string {
	for _, entry := range environ {
		if value, ok := strings.CutPrefix(entry, key+"="); ok {
			return value
		}
	}
	return ""
}
