package app

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

const replayRuntime = "replay"

// runtimes makes each runtime when a role first needs it.
type runtimes struct {
	agents Agents
	box    *sandbox.Box

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
		})
		if err != nil {
			return nil, err
		}
		return claude, claude.Check(ctx)
	case replayRuntime:
		return runtime.NewReplay(r.agents.Recordings, runtime.ReplayOptions{Strict: r.agents.Strict})
	}
	return nil, fmt.Errorf("runtime %q is not known", name)
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
