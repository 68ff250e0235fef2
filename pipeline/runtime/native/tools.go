package native

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/sourcegraph/conc"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A tool is what a model may use.
type tool struct {
	name        string
	description string
	schema      map[string]json.RawMessage // of its input; the type is object
	// beside says that uses may run side by side: they change nothing, or the
	// caller answers for them.
	beside bool
	run    func(ctx context.Context, p *place, input json.RawMessage) result
}

// A result is what a tool gives back.
type result struct {
	text   string
	image  *image
	failed bool
}

const (
	maxResult = 100_000 // bytes of a result that the model gets
	maxShown  = 8 << 10 // bytes of a result in an event
)

func failed(format string, args ...any) result {
	return result{text: fmt.Sprintf(format, args...), failed: true}
}

// builtIn returns the tools that roles can be granted.
func builtIn() ([]tool, error) {
	read, err1 := define(string(runtime.Read), readText, readFile)
	write, err2 := define(string(runtime.Write), writeText, writeFile)
	edit, err3 := define(string(runtime.Edit), editText, editFile)
	bash, err4 := define(string(runtime.Bash), bashText, runBash)
	glob, err5 := define(string(runtime.Glob), globText, glob)
	grep, err6 := define(string(runtime.Grep), grepText, grep)
	for _, err := range []error{err1, err2, err3, err4, err5, err6} {
		if err != nil {
			return nil, err
		}
	}
	read.beside, glob.beside, grep.beside = true, true, true
	return []tool{read, write, edit, bash, glob, grep}, nil
}

// define makes a tool whose input is an In.
func define[In any](name, description string, run func(context.Context, *place, In) result) (tool, error) {
	schema, err := jsonschema.For[In](nil)
	if err != nil {
		return tool{}, fmt.Errorf("schema of %s: %w", name, err)
	}
	text, err := json.Marshal(schema)
	if err != nil {
		return tool{}, fmt.Errorf("schema of %s: %w", name, err)
	}
	t := tool{name: name, description: description}
	t.run = func(ctx context.Context, p *place, input json.RawMessage) result {
		var in In
		if err := json.Unmarshal(input, &in); err != nil {
			return failed("the input does not fit: %v", err)
		}
		return run(ctx, p, in)
	}
	return t, json.Unmarshal(text, &t.schema)
}

// ofCaller makes a tool of a function of the caller.
func ofCaller(f runtime.Function) tool {
	t := tool{name: f.Name, description: f.Description, beside: true}
	if json.Unmarshal(f.Input, &t.schema) != nil || t.schema == nil {
		t.schema = map[string]json.RawMessage{}
	}
	t.schema["type"] = json.RawMessage(`"object"`)
	t.run = func(ctx context.Context, _ *place, input json.RawMessage) result {
		out, err := f.Call(ctx, input)
		if err != nil {
			return failed("%v", err)
		}
		return result{text: string(out)}
	}
	return t
}

func names(tools []tool) []string {
	var out []string
	for _, t := range tools {
		out = append(out, t.name)
	}
	return out
}

func (a *agent) tool(name string) (tool, bool) {
	for _, t := range a.tools {
		if t.name == name {
			return t, true
		}
	}
	return tool{}, false
}

// use does what the model wants done: side by side where every call allows it,
// else in order. done is true when one of the calls was the answer.
func (a *agent) use(ctx context.Context, calls []block) (results []block, done bool) {
	results = make([]block, len(calls))
	beside := true
	for _, c := range calls {
		t, known := a.tool(c.name)
		beside = beside && (!known || t.beside)
	}
	var work conc.WaitGroup // carries a panic here
	for i, c := range calls {
		if a.isAnswer(c) {
			continue
		}
		if beside {
			work.Go(func() { results[i] = a.perform(ctx, c) })
			continue
		}
		results[i] = a.perform(ctx, c)
	}
	work.Wait()
	for i, c := range calls {
		if a.isAnswer(c) && ctx.Err() == nil {
			results[i], done = a.take(c, results)
		}
	}
	if a.contract != nil && !done && a.turns == a.call.MaxTurns-1 {
		results = append(results, block{kind: words, text: "One turn is left. Use " + answerName + " now."})
	}
	return results, done
}

// perform runs one tool.
func (a *agent) perform(ctx context.Context, c block) block {
	if ctx.Err() != nil { // the turn before it took too long
		return block{kind: toolResult, id: c.id, text: "(not done)", failed: true}
	}
	a.emit(runtime.Event{Kind: runtime.ToolCall, Tool: c.name, Input: c.input})
	t, known := a.tool(c.name)
	var r result
	switch {
	case !known:
		a.deny(c.name)
		r = failed("The tool %s is not available to you. There are: %s.", c.name, strings.Join(names(a.tools), ", "))
	case c.bad != "":
		r = failed("%s", c.bad)
	default:
		r = t.run(ctx, a.place, c.input)
	}
	return a.result(c, r)
}

// result reports what a tool gave back and makes it ready for the model.
func (a *agent) result(c block, r result) block {
	text := strings.ToValidUTF8(r.text, "\uFFFD")
	switch {
	case text == "" && r.image == nil:
		text = "(nothing)"
	case text == "":
		text = "(an image)"
	}
	text = middleOut(text, maxResult)
	a.emit(runtime.Event{Kind: runtime.ToolResult, Tool: c.name, Text: clip(text, maxShown)})
	return block{kind: toolResult, id: c.id, text: text, image: r.image, failed: r.failed}
}

// middleOut cuts text to about n bytes, in its middle: what matters most stands
// at the beginning or at the end.
func middleOut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	head, tail := text[:n/2], text[len(text)-n/2:]
	return strings.ToValidUTF8(head, "") + fmt.Sprintf("\n… (%d bytes are left out here) …\n", len(text)-len(head)-len(tail)) + strings.ToValidUTF8(tail, "")
}
