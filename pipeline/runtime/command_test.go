package runtime_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

func TestCommandConforms(t *testing.T) {
	t.Parallel()
	inEachSandbox(t, func(t *testing.T, b *sandbox.Box) {
		runtimetest.Run(t, programs(b), runtimetest.Options{})
	})
}

func TestCommandLeavesNoProcess(t *testing.T) {
	t.Parallel()
	inEachSandbox(t, func(t *testing.T, b *sandbox.Box) {
		runtimetest.RunEndings(t, programs(b), runtimetest.Soak, runtimetest.Options{Idle: time.Second, Many: 16})
	})
}

func inEachSandbox(t *testing.T, test func(*testing.T, *sandbox.Box)) {
	for _, mode := range []sandbox.Mode{sandbox.Bubblewrap, sandbox.Landlock} {
		t.Run(string(mode), func(t *testing.T) {
			if mode == sandbox.Bubblewrap {
				sandboxtest.Need(t, "bwrap")
			}
			test(t, boxOf(t, mode))
		})
	}
}

// programs makes command runtimes whose program does the acts of the suite.
func programs(b *sandbox.Box) runtimetest.Factory {
	return func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		command := c.Child
		if c.Act == runtimetest.Hangs {
			command = c.Hang()
		}
		return program(t, b, string(c.Act)+"|"+command)
	}
}

func call(t *testing.T) runtime.Call {
	return runtime.Call{Step: "issue-01/coder", Role: "coder", Dir: t.TempDir(), Home: t.TempDir(), Timeout: time.Minute}
}

// quiet is a listener that does not listen.
func quiet(runtime.Event) {}

func TestCommandTellsTheProgramAllItNeeds(t *testing.T) {
	c := call(t)
	c.Dir = t.TempDir()
	c.System, c.Prompt, c.Model, c.MaxTurns, c.Timeout = "sys", "do <it> & go", "sonnet", 150, 45*time.Minute
	c.Tools = []runtime.Tool{runtime.Read, runtime.Bash}
	c.Schema = []byte(`{"type":"object"}`)
	want := `{"version":1,"step":"issue-01/coder","role":"coder","system":"sys","prompt":"do \u003cit\u003e \u0026 go",` +
		`"tools":["READ","BASH"],"schema":{"type":"object"},"model":"sonnet","dir":"` + c.Dir + `","max_turns":150,` +
		`"timeout_seconds":2700,"session":"","repair":null}`
	// The answer is the request itself, as the program read it to the end of file.
	res, err := shell(t, `printf '{"type":"result","output":%s}' "$(cat)"`).Run(t.Context(), c, quiet)
	if err != nil {
		t.Fatal(err)
	}
	if string(res.Output) != want {
		t.Errorf("the program read\n%s, want\n%s", res.Output, want)
	}
	c.Effort = "high"
	if res, err = shell(t, `printf '{"type":"result","output":%s}' "$(cat)"`).Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	if want = strings.Replace(want, `"model":"sonnet",`, `"model":"sonnet","effort":"high",`, 1); string(res.Output) != want {
		t.Errorf("with an effort the program read\n%s, want\n%s", res.Output, want)
	}
}

func TestCommandReadsWhatTheProgramWrites(t *testing.T) {
	for _, row := range []struct {
		name   string
		script string
		output string
		text   string
		cost   int64
		tokens int64
		class  runtime.Class // empty when the call succeeds
		reason string        // part of the failure's reason
		after  time.Duration
	}{
		{name: "a result", script: `echo '{"type":"result","output":{"a":1}}'`, output: `{"a":1}`},
		{name: "the last of several results", script: `echo '{"type":"result","output":1}'; echo '{"type":"result","output":2}'`, output: `2`},
		{name: "a last line without an end", script: `printf '{"type":"result","output":true}'`, output: `true`},
		{name: "lines that end as on Windows", script: `printf '{"type":"result","output":7}\r\n'`, output: `7`},
		{name: "a line that is no JSON is text", script: `echo warming up; echo '{"type":"result","output":1}'`, output: `1`, text: "warming up\n"},
		{name: "a JSON value that is no object is text", script: `echo '[1]'; echo '{"type":"result","output":1}'`, output: `1`, text: "[1]\n"},
		{name: "an object of another kind is text", script: `echo '{"level":"info","text":[]}'; echo '{"type":"result","output":1}'`, output: `1`, text: `{"level":"info","text":[]}` + "\n"},
		{name: "a result without an output takes the last JSON of the text", script: `echo '{"type":"text","text":"so: {\"a\":2}"}'; echo '{"type":"result"}'`, output: `{"a":2}`, text: `so: {"a":2}`},
		{name: "costs are added before they are rounded", script: `for i in 1 2 3 4; do echo '{"type":"usage","input_tokens":2,"output_tokens":1,"cost_usd":0.0000004}'; done; echo '{"type":"result","output":1}'`, output: `1`, cost: 2, tokens: 8},
		{name: "a cost that no float holds", script: `echo '{"type":"usage","cost_usd":1.1}'; echo '{"type":"usage","cost_usd":2.2}'; echo '{"type":"result","output":1}'`, output: `1`, cost: 3_300_000},
		{name: "half a micro-dollar is rounded up", script: `echo '{"type":"usage","cost_usd":0.0000005}'; echo '{"type":"result","output":1}'`, output: `1`, cost: 1},
		{name: "a cost with an exponent", script: `echo '{"type":"usage","cost_usd":1e-2}'; echo '{"type":"result","output":1}'`, output: `1`, cost: 10_000},

		{name: "a negative cost", script: `echo '{"type":"usage","cost_usd":-0.01}'; echo '{"type":"result","output":1}'`, class: runtime.Refused, reason: "negative"},
		{name: "a cost that is not a number", script: `echo '{"type":"usage","cost_usd":NaN}'; echo '{"type":"result","output":1}'`, class: runtime.Refused, reason: "not a number"},
		{name: "a cost in words", script: `echo '{"type":"usage","cost_usd":"NaN"}'`, class: runtime.Refused, reason: "usage line"},
		{name: "a cost that would fill the memory", script: `echo '{"type":"usage","cost_usd":1e999999999}'`, class: runtime.Refused, reason: "out of range"},
		{name: "a cost above all money", script: `echo '{"type":"usage","cost_usd":1e20}'; echo '{"type":"result","output":1}'`, class: runtime.Refused, reason: "out of range"},
		{name: "negative tokens", script: `echo '{"type":"usage","input_tokens":-1}'`, class: runtime.Refused, reason: "negative number of tokens"},
		{name: "a text that is no string", script: `echo '{"type":"text","text":5}'`, class: runtime.Refused, reason: "text line"},
		{name: "no result", script: `echo '{"type":"text","text":"bye"}'`, class: runtime.Refused, reason: "without a", text: "bye"},
		{name: "nothing at all", script: `true`, class: runtime.Refused, reason: "without a"},
		{name: "a failure, with its log", script: `echo '{"type":"result","output":1}'; echo no such model >&2; exit 3`, class: runtime.Refused, reason: "exit code 3: no such model", output: `1`},
		{name: "an overload", script: `echo '{"type":"usage","cost_usd":0.5}'; echo busy >&2; exit 75`, class: runtime.Transient, reason: "busy", cost: 500_000},
		{name: "an overload with a wait", script: `echo '{"type":"retry","text":"quota","after_seconds":1.5}'; exit 75`, class: runtime.Transient, reason: "quota", after: 1500 * time.Millisecond},
		{name: "the last of several waits", script: `echo '{"type":"retry","after_seconds":60}'; echo '{"type":"retry"}'; exit 75`, class: runtime.Transient, reason: "again"},
		{name: "a wait that was over before it failed", script: `echo '{"type":"retry","after_seconds":60}'; exit 1`, class: runtime.Refused, reason: "exit code 1"},
		{name: "a wait in the past", script: `echo '{"type":"retry","after_seconds":-1}'; exit 75`, class: runtime.Refused, reason: "-1 seconds"},
		{name: "a wait of a year", script: `echo '{"type":"retry","after_seconds":31536000}'; exit 75`, class: runtime.Refused, reason: "86400"},
		{name: "a wait in words", script: `echo '{"type":"retry","after_seconds":"soon"}'; exit 75`, class: runtime.Refused, reason: "retry line"},
	} {
		t.Run(row.name, func(t *testing.T) {
			res, err := shell(t, "cat >/dev/null; "+row.script).Run(t.Context(), call(t), quiet)
			switch {
			case row.class == "" && err != nil:
				t.Fatal(err)
			case row.class != "":
				failure, ok := errors.AsType[*runtime.Error](err)
				if !ok || failure.Class != row.class || !strings.Contains(failure.Reason, row.reason) || failure.After != row.after {
					t.Fatalf("Run = %#v, want %s with %q", err, row.class, row.reason)
				}
			}
			if row.output != "" && string(res.Output) != row.output {
				t.Errorf("Output = %s, want %s", res.Output, row.output)
			}
			if row.text != "" && res.Text != row.text {
				t.Errorf("Text = %q, want %q", res.Text, row.text)
			}
			if res.CostMicros != row.cost || res.Usage.Input != row.tokens {
				t.Errorf("cost %d, input tokens %d; want %d, %d", res.CostMicros, res.Usage.Input, row.cost, row.tokens)
			}
		})
	}
}

func TestCommandKeepsToTheBudget(t *testing.T) {
	const spend = `cat >/dev/null; for i in 1 2 3; do echo '{"type":"usage","cost_usd":0.01}'; done; echo '{"type":"result","output":1}'`
	for _, row := range []struct {
		name         string
		budget, cost int64
		stop         string
	}{
		{"none", 0, 30_000, "end_turn"},
		{"all of it", 30_000, 30_000, "end_turn"},
		{"more", 29_999, 30_000, "budget"},
		{"more, at once", 1, 10_000, "budget"}, // what comes after is not read
	} {
		t.Run(row.name, func(t *testing.T) {
			c := call(t)
			c.BudgetMicros = row.budget
			res, err := shell(t, spend).Run(t.Context(), c, quiet)
			if (err != nil) != (row.stop == "budget") || res.Stop != row.stop || res.CostMicros != row.cost {
				t.Errorf("Run = %+v, %v; want it to stop by %q at %d", res, err, row.stop, row.cost)
			}
		})
	}
}

func TestCommandTellsWhatWasDenied(t *testing.T) {
	script := `cat >/dev/null
echo '{"type":"tool_result","name":"EDIT","text":"ok"}'
for tool in BASH WRITE BASH; do echo '{"type":"tool_result","name":"'$tool'","denied":true}'; done
echo '{"type":"result","output":1}'`
	res, err := shell(t, script).Run(t.Context(), call(t), quiet)
	if err != nil || strings.Join(res.Denials, " ") != "BASH WRITE" {
		t.Errorf("denials %v, %v", res.Denials, err)
	}
}

func TestCommandEmitsEventsInOrder(t *testing.T) {
	script := `cat >/dev/null
echo '{"type":"thinking","text":"hm"}'
echo '{"type":"tool_call","name":"EDIT","input":{"path":"a"}}'
echo '{"type":"tool_result","name":"EDIT","text":"ok"}'
echo '{"type":"usage","input_tokens":3}'
echo '{"type":"result","output":1}'`
	var got []string
	_, err := shell(t, script).Run(t.Context(), call(t), func(e runtime.Event) {
		got = append(got, fmt.Sprintf("%s %s%s%s", e.Kind, e.Tool, e.Text, e.Input))
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `thinking hm, tool_call EDIT{"path":"a"}, tool_result EDITok, usage `
	if strings.Join(got, ", ") != want {
		t.Errorf("events: %s, want %s", strings.Join(got, ", "), want)
	}
}

func TestCommandHidesSecrets(t *testing.T) {
	const secret = `sk-"quoted"-31337`
	script := `cat >/dev/null
echo "raw $MODEL_KEY"
printf '{"type":"tool_call","name":"BASH","input":{"k":"sk-\\"quoted\\"-31337"}}\n'
printf '{"type":"result","output":{"k":"sk-\\"quoted\\"-31337"}}\n'
echo "key is $MODEL_KEY" >&2
exit 1`
	var seen strings.Builder
	res, err := shell(t, script, "MODEL_KEY="+secret).Run(t.Context(), call(t), func(e runtime.Event) {
		fmt.Fprintf(&seen, "%s %s\n", e.Text, e.Input)
	})
	fmt.Fprintf(&seen, "%s %s %v", res.Text, res.Output, err)
	if strings.Contains(seen.String(), "31337") {
		t.Errorf("the secret shows in:\n%s", &seen)
	}
	if n := strings.Count(seen.String(), "[MODEL_KEY]"); n != 5 {
		t.Errorf("%d places name the hidden key, want 5:\n%s", n, &seen)
	}
}

func TestCommandThatDoesNotExistIsFatal(t *testing.T) {
	r, err := runtime.NewCommand(runtime.CommandOptions{Args: []string{"no-such-agent-program"}, Box: box(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.Run(t.Context(), call(t), quiet)
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok || failure.Class != runtime.Fatal || !strings.Contains(failure.Reason, "no-such-agent-program") {
		t.Errorf("Run = %v, want a fatal failure that names the program", err)
	}
}

func TestCommandIgnoresASlowListener(t *testing.T) {
	c := call(t)
	c.Idle = 300 * time.Millisecond
	_, err := shell(t, `cat >/dev/null; echo '{"type":"text","text":"x"}'; echo '{"type":"result","output":1}'`).
		Run(t.Context(), c, func(runtime.Event) { <-time.After(600 * time.Millisecond) })
	if err != nil {
		t.Errorf("Run = %v: the listener's time was taken for the agent's silence", err)
	}
}

// What an agent says without end is kept for the answer, and shown in part: as
// JSON in a transcript it would take many times as much.
func TestLongTextIsShownInPart(t *testing.T) {
	const said = 100_000
	var seen []string
	res, err := shell(t, fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x; echo; echo '{"type":"result","output":{}}'`, said)).Run(t.Context(), call(t), func(e runtime.Event) {
		seen = append(seen, e.Text)
	})
	if err != nil || len(res.Text) != said+1 {
		t.Fatalf("%d bytes of text were kept, %v; want all", len(res.Text), err)
	}
	want := strings.Repeat("x", 64<<10) + "… (34465 more bytes)"
	if len(seen) != 1 || seen[0] != want {
		t.Errorf("%d events were shown, the first of %d bytes, want one of %d", len(seen), len(seen[0]), len(want))
	}
}
