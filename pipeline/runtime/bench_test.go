package runtime_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// eight is how many agents BenchmarkEight runs at once.
const eight = 8

// BenchmarkEight is the price of a process for each agent: the same eight agents,
// which answer at once in one turn, through each CLI and in this process. It has
// no bound; docs/performance.md keeps the figures.
func BenchmarkEight(b *testing.B) {
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Bubblewrap, StateDir: b.TempDir()})
	if err != nil {
		b.Skip(err)
	}
	model := modeltest.New(b, func(modeltest.Request) modeltest.Turn { return modeltest.Turn{Text: "Here I am."} })
	key := modeltest.Key
	for name, open := range map[string]func() (runtime.Runtime, string, error){
		"claude_code": func() (runtime.Runtime, string, error) {
			r, err := runtime.NewClaude(runtime.ClaudeOptions{Path: modeltest.Claude(b), Box: box, Env: model.Env(), Secrets: []string{model.Secret()}})
			return r, "sonnet", err
		},
		"open_code": func() (runtime.Runtime, string, error) {
			r, err := runtime.NewOpenCode(runtime.OpenCodeOptions{Path: modeltest.OpenCode(b), Box: box, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}})
			return r, "openai/gpt-5", err
		},
		"codex": func() (runtime.Runtime, string, error) {
			r, err := runtime.NewCodex(runtime.CodexOptions{Path: modeltest.Codex(b), Box: box, Env: model.ChatEnv(), Secrets: []string{model.ChatSecret()}})
			return r, "gpt-5", err
		},
		"native": func() (runtime.Runtime, string, error) {
			r, err := native.New(native.Options{Providers: map[string]native.Provider{"anthropic": {Kind: native.Anthropic, BaseURL: model.URL(), Key: key}}, Box: box})
			return r, "anthropic/claude-sonnet-5-5", err
		},
	} {
		b.Run(name, func(b *testing.B) {
			r, as, err := open()
			if err != nil {
				b.Fatal(err)
			}
			self, children := cpu(syscall.RUSAGE_SELF), cpu(syscall.RUSAGE_CHILDREN)
			for b.Loop() {
				crowd(b, r, as)
			}
			agents := float64(eight * b.N)
			b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "makespan-ms")
			b.ReportMetric(float64((cpu(syscall.RUSAGE_SELF)-self).Milliseconds())/agents, "own-cpu-ms/agent")
			b.ReportMetric(float64((cpu(syscall.RUSAGE_CHILDREN)-children).Milliseconds())/agents, "cli-cpu-ms/agent")
		})
	}
}

// crowd runs eight agents at once.
func crowd(b *testing.B, r runtime.Runtime, model string) {
	b.Helper()
	var all sync.WaitGroup
	for i := range eight {
		c := runtime.Call{
			Step: fmt.Sprintf("crowd/%d", i), Role: "coder", System: "You are measured.", Prompt: "Be there.", Model: model,
			Tools: []runtime.Tool{runtime.Read}, Dir: b.TempDir(), Home: b.TempDir(), MaxTurns: 3, Timeout: 2 * time.Minute,
		}
		all.Go(func() {
			if _, err := r.Run(b.Context(), c, quiet); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
}

// cpu is the CPU time of this process or of the children that it waited for.
func cpu(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0 // the kernel knows both values of who
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
