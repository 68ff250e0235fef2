package native_test

import (
	"context"
	"encoding/json"
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
	run := func(command string) modeltest.Turn { return use("BASH", args{"command": command}) }
	return func(req modeltest.Request) modeltest.Turn {
		results := req.Results()
		switch c.Act {
		case runtimetest.EditsFile:
			switch len(results) {
			case 0:
				return use("READ", args{"path": "greeting.txt"})
			case 1:
				return use("EDIT", args{"path": "greeting.txt", "old": "hello", "new": "hello, world"})
			}
			return modeltest.Turn{Text: `Done: {"done":true}`}
		case runtimetest.ReadsFile:
			if len(results) == 0 {
				return use("READ", args{"path": "word.txt"})
			}
			if !strings.Contains(results[0].Text, "plum") {
				return modeltest.Turn{Text: "no plum in " + results[0].Text}
			}
			return modeltest.Turn{Text: `{"word":"plum"}`}
		case runtimetest.RunsCommand:
			if len(results) == 0 {
				return run(runtimetest.Shout)
			}
			return say(map[string]string{"loud": strings.TrimSpace(results[0].Text)})
		case runtimetest.Answers:
			return use("answer", args{"answer": 42})
		case runtimetest.IsRepaired:
			if strings.Contains(req.Text(), "does not fit") {
				return use("answer", args{"answer": 42})
			}
			return use("answer", args{"answer": "forty-two"})
		case runtimetest.CutsOff:
			return modeltest.Turn{Text: `{"answer":4`}
		case runtimetest.IsRefused:
			if len(results) == 0 {
				return use("WRITE", args{"path": "greeting.txt", "content": "planted\n"})
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
		return modeltest.Turn{Status: 400, Error: "unknown act " + string(c.Act)}
	}
}

// say is a turn that answers with a value as JSON.
func say(value any) modeltest.Turn {
	text, err := json.Marshal(value)
	if err != nil {
		return modeltest.Turn{Status: 400, Error: err.Error()}
	}
	return modeltest.Turn{Text: string(text)}
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
