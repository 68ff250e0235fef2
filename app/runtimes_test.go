package app

import (
	"errors"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// The keys that the environment has are the providers that native can ask.
func TestNativeAsksWhoeverHasAKey(t *testing.T) {
	model := modeltest.New(t, func(req modeltest.Request) modeltest.Turn {
		return modeltest.Turn{Text: `{"model":"` + req.Model + `"}`}
	})
	box, err := sandbox.New(sandbox.Options{StateDir: t.TempDir()})
	must(t, err)
	all := []string{
		"ANTHROPIC_API_KEY=" + modeltest.Key, "ANTHROPIC_BASE_URL=" + model.URL(),
		"OPENAI_API_KEY=" + modeltest.Key, "OPENAI_BASE_URL=" + model.URL() + "/v1",
		"OPENROUTER_API_KEY=" + modeltest.Key, "OPENROUTER_BASE_URL=" + model.URL() + "/v1",
	}
	for name, c := range map[string]struct {
		environ []string
		model   string
		want    string // the output, or what the error says
	}{
		"Anthropic":           {all, "anthropic/claude-sonnet-5-5", `{"model":"claude-sonnet-5-5"}`},
		"OpenAI":              {all, "openai/gpt-6.1-sol", `{"model":"gpt-6.1-sol"}`},
		"OpenRouter":          {all, "openrouter/qwen/qwen3-coder:free", `{"model":"qwen/qwen3-coder:free"}`},
		"one without a key":   {all[2:4], "anthropic/claude-sonnet-5-5", "there are: openai"},
		"one that is unknown": {all, "acme/model", "there are: anthropic, openai, openrouter"},
		"no provider named":   {all, "claude-sonnet-5-5", "write it as provider/model"},
		"no key at all":       {[]string{"ANTHROPIC_API_KEY="}, "", "set one of ANTHROPIC_API_KEY, OPENAI_API_KEY, OPENROUTER_API_KEY"},
	} {
		t.Run(name, func(t *testing.T) {
			rs := &runtimes{agents: Agents{Environ: c.environ}, box: box, cache: map[string]runtime.Runtime{}}
			r, err := rs.get(t.Context(), "native")
			var res runtime.Result
			if err == nil {
				res, err = r.Run(t.Context(), runtime.Call{Prompt: "Which?", Model: c.model, Dir: t.TempDir(), Home: t.TempDir()}, func(runtime.Event) {})
			}
			if err == nil {
				if string(res.Output) != c.want {
					t.Errorf("output = %s, want %s", res.Output, c.want)
				}
				return
			}
			if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Fatal || !strings.Contains(failure.Reason, c.want) {
				t.Errorf("%v, want a fatal one about %q", err, c.want)
			}
		})
	}
}
