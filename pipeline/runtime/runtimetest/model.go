package runtimetest

import (
	"encoding/json"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
)

// Hands are how a scripted model makes the agent of a runtime do things: turns
// in the words of that agent's tools. Names of files are in Case.Dir.
type Hands struct {
	Read func(name string) modeltest.Turn
	// Edit replaces old in a file by new, in one turn or several; done is how
	// many tools were used before. After the last one more is false.
	Edit   func(req modeltest.Request, done int, name, old, new string) (turn modeltest.Turn, more bool)
	Write  func(name, text string) modeltest.Turn
	Run    func(req modeltest.Request, command string) modeltest.Turn
	Answer func(value any) modeltest.Turn // in the way of structured output
}

// Play is a model that has the agent do the act of a case.
func Play(c Case, h Hands) modeltest.Script {
	return func(req modeltest.Request) modeltest.Turn {
		if turn, ok := failing(c.Act); ok {
			return turn
		}
		results := req.Results()
		run := func(command string) modeltest.Turn { return h.Run(req, command) }
		switch c.Act {
		case EditsFile:
			if turn, more := h.Edit(req, len(results), "greeting.txt", "hello", "hello, world"); more {
				return turn
			}
			return modeltest.Turn{Text: `Done: {"done":true}`}
		case ReadsFile:
			if len(results) == 0 {
				return h.Read("word.txt")
			}
			if !strings.Contains(results[0].Text, "plum") {
				return modeltest.Turn{Text: "no plum in " + results[0].Text}
			}
			return modeltest.Turn{Text: `{"word":"plum"}`}
		case RunsCommand:
			if len(results) == 0 {
				return run(Shout)
			}
			lines := strings.Split(strings.TrimSpace(results[0].Text), "\n") // some say more before
			return Say(map[string]string{"loud": lines[len(lines)-1]})
		case Answers:
			return h.Answer(map[string]any{"answer": 42})
		case IsRepaired:
			if strings.Contains(req.Text(), "does not fit") {
				return h.Answer(map[string]any{"answer": 42})
			}
			return h.Answer(map[string]any{"answer": "forty-two"})
		case IsRefused:
			if len(results) == 0 {
				return h.Write("greeting.txt", "planted\n")
			}
			return modeltest.Turn{Text: `{"done":false}`}
		case Hangs:
			return run(c.Hang())
		case Overruns:
			turn := run("sleep 0.2")
			turn.Text = "tick"
			return turn
		case Spends:
			turn := run("true")
			turn.Usage = modeltest.Usage{Input: SpentInput, Output: SpentOutput}
			return turn
		case Crashes:
			turn := run("kill -9 $PPID")
			turn.Text = "working"
			return turn
		case Floods:
			if len(results) == 0 {
				return run("head -c 70000000 /dev/zero | tr '\\0' x")
			}
			return modeltest.Turn{Text: `{"done":true}`}
		case SpawnsAndWaits:
			return run("setsid --wait " + c.Child)
		case Echoes:
			return Say(map[string]string{"echo": req.Prompt()})
		case Measures:
			return Say(map[string]int{"bytes": len(req.Prompt())})
		case Remembers:
			switch {
			case req.Prompt() != Recall:
				return Say(map[string]bool{"ok": true})
			case strings.Contains(req.Text(), Remember):
				return Say(map[string]string{"word": "quince"})
			}
			return modeltest.Turn{Text: "I was told no word."}
		}
		return modeltest.Turn{Status: 400, Error: "unknown act " + string(c.Act)}
	}
}

// failing is what a model says in the acts that are its own failures.
func failing(act Act) (modeltest.Turn, bool) {
	turn, ok := map[Act]modeltest.Turn{
		CutsOff:    {Text: `{"answer":4`},
		IsLimited:  {Status: 429, Error: "Quota", Retry: int(RetryAfter.Seconds())},
		Overloads:  {Status: 529, Error: "Overloaded"},
		MeetsFault: {Status: 500, Error: "Internal"},
		Stalls:     {Text: "thinking", Stall: true},
	}[act]
	return turn, ok
}

// Say is a turn that answers with a value as JSON.
func Say(value any) modeltest.Turn {
	text, err := json.Marshal(value)
	if err != nil {
		return modeltest.Turn{Status: 400, Error: err.Error()}
	}
	return modeltest.Turn{Text: string(text)}
}
