package native_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
)

func TestNativeConforms(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			runtimetest.Run(t, func(t *testing.T, c runtimetest.Case) runtime.Runtime {
				r, _ := start(t, suiteModel(c))
				return asking{r, d.model}
			}, runtimetest.Options{
				Idle: time.Second,
				Many: 32,
				Except: map[runtimetest.Act]string{
					runtimetest.Crashes: "the agent is part of this process, and dies with it only",
				},
			})
		})
	}
}

// asking is a runtime whose calls name a model, as those of a crew do.
type asking struct {
	runtime.Runtime
	model string
}

func (a asking) Run(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
	c.Model = a.model
	return a.Runtime.Run(ctx, c, emit)
}

// suiteModel makes the agent do the acts of the suite.
func suiteModel(c runtimetest.Case) modeltest.Script {
	return runtimetest.Play(c, runtimetest.Hands{
		Read: func(name string) modeltest.Turn { return use("READ", args{"path": name}) },
		Edit: func(_ modeltest.Request, done int, name, old, new string) (modeltest.Turn, bool) {
			return use("EDIT", args{"path": name, "old": old, "new": new}), done == 0
		},
		Write:  func(name, text string) modeltest.Turn { return use("WRITE", args{"path": name, "content": text}) },
		Run:    func(_ modeltest.Request, command string) modeltest.Turn { return use("BASH", args{"command": command}) },
		Answer: func(value any) modeltest.Turn { return use("answer", args(value.(map[string]any))) },
	})
}

// The model's own words are bounded too, also where they are thoughts.
func TestAModelThatSaysTooMuchIsEnded(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			r, _ := start(t, func(modeltest.Request) modeltest.Turn {
				return modeltest.Turn{Thinking: strings.Repeat("hm ", runtime.MaxOutput/3), Text: strings.Repeat("la ", 1<<20)}
			})
			c := call(t, d.model)
			c.Timeout = time.Minute
			_, err := r.Run(t.Context(), c, quiet)
			wantFailure(t, err, runtime.Refused, "more than")
		})
	}
}
