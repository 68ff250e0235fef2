package runtime

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// codexOutput is what was read from the CLI so far.
type codexOutput struct {
	emit func(Event)
	hide *redactor
	tap  *tap

	text     strings.Builder
	last     string // the last message
	session  string
	denials  []string
	finished bool   // the turn came to its end
	trouble  string // why it did not, in the CLI's words
}

// codexLine is any line that the CLI writes.
type codexLine struct {
	Type    string    `json:"type"`
	Thread  string    `json:"thread_id"`
	Message string    `json:"message"` // of an error that may pass
	Item    codexItem `json:"item"`
	Error   struct {
		Message string `json:"message"`
	} `json:"error"` // of a failed turn
}

// codexItem is a step of the agent. Its type says which of the fields count.
type codexItem struct {
	Type    string `json:"type"`
	Text    string `json:"text"`    // agent_message, reasoning
	Message string `json:"message"` // error
	Status  string `json:"status"`

	Command string `json:"command"` // command_execution
	Output  string `json:"aggregated_output"`
	Exit    *int   `json:"exit_code"`

	Changes json.RawMessage `json:"changes"` // file_change

	Server    string          `json:"server"` // mcp_tool_call
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error"`
}

// line reads one line. A kind that is not known is a sign of life and no more.
func (o *codexOutput) line(raw []byte) error {
	o.tell()
	var l codexLine
	if err := json.Unmarshal(raw, &l); err != nil {
		if lineType(raw) != "" {
			return &Error{Class: Refused, Reason: fmt.Sprintf("codex wrote a %s line that does not fit: %v", lineType(raw), err), Err: err}
		}
		o.note("codex wrote: " + clip(string(raw)))
		return nil
	}
	switch l.Type {
	case "thread.started":
		o.session = l.Thread
	case "item.started":
		o.started(l.Item)
	case "item.completed":
		o.completed(l.Item)
	case "turn.completed":
		o.finished = true
	case "turn.failed":
		o.trouble = cmp.Or(l.Error.Message, "it does not say why")
	case "error":
		if o.trouble = l.Message; strings.HasPrefix(l.Message, "Reconnecting") {
			o.emit(o.hide.event(Event{Kind: Retry, Text: l.Message}))
		}
	}
	return nil
}

// tell passes on what the tap has seen.
func (o *codexOutput) tell() {
	for _, e := range o.tap.take() {
		o.emit(o.hide.event(e))
	}
}

func (o *codexOutput) started(item codexItem) {
	switch item.Type {
	case "command_execution", "mcp_tool_call":
		o.call(item)
	}
}

func (o *codexOutput) completed(item codexItem) {
	switch item.Type {
	case "agent_message":
		if o.text.Len() > 0 {
			o.text.WriteByte('\n')
		}
		o.text.WriteString(item.Text)
		o.last = item.Text
		o.emit(o.hide.event(Event{Kind: Text, Text: item.Text}))
	case "reasoning":
		o.emit(o.hide.event(Event{Kind: Thinking, Text: item.Text}))
	case "file_change":
		o.call(item)
		o.result(item, item.Status)
	case "command_execution":
		o.result(item, item.Output)
	case "mcp_tool_call":
		text := string(item.Result)
		if item.Error != nil {
			text = item.Error.Message
		}
		o.result(item, text)
	case "error":
		o.note(item.Message)
	}
}

// name is what the tool of an item is called.
func (i codexItem) name() string {
	switch i.Type {
	case "command_execution":
		return "shell"
	case "file_change":
		return "apply_patch"
	}
	return i.Server + "." + i.Tool
}

// codexCommand is the input of a command, as an event has it.
type codexCommand struct {
	Command string `json:"command"`
}

func (o *codexOutput) call(item codexItem) {
	input := item.Arguments
	switch item.Type {
	case "command_execution":
		input, _ = json.Marshal(codexCommand{item.Command}) // a text can be written
	case "file_change":
		input = item.Changes
	}
	o.emit(o.hide.event(Event{Kind: ToolCall, Tool: item.name(), Input: input}))
}

func (o *codexOutput) result(item codexItem, shown string) {
	if item.Status == "declined" {
		o.denials = append(o.denials, item.name())
		o.note("the tool " + item.name() + " was refused")
	}
	if len(shown) > maxToolResult {
		shown = strings.ToValidUTF8(shown[:maxToolResult], "") + "…"
	}
	if item.Exit != nil && *item.Exit != 0 {
		shown += fmt.Sprintf("\n(exit code %d)", *item.Exit)
	}
	o.emit(o.hide.event(Event{Kind: ToolResult, Tool: item.name(), Text: shown}))
}

func (o *codexOutput) note(text string) {
	o.emit(o.hide.event(Event{Kind: Notice, Text: text}))
}

// settle returns the Result of what was read, and what the tap counted: the
// CLI's own numbers are those of a whole session.
func (o *codexOutput) settle(c Call) Result {
	o.tell()
	res := Result{
		Text: o.text.String(), Session: cmp.Or(o.session, c.Session), Stop: "error",
		Denials: slices.Compact(slices.Sorted(slices.Values(o.denials))),
	}
	if o.finished {
		res.Stop = "end_turn"
		res.Output, _ = LastJSON(o.last)
	}
	o.tap.count(&res)
	return o.hide.result(res)
}

// failure says why the call failed, nil when it did not.
func (o *codexOutput) failure(c Call, end ended) *Error {
	output, _ := LastJSON(o.last)
	switch seen := o.tap.failed(); {
	case o.finished && end.Code == 0:
		if len(c.Schema) > 0 && output == nil {
			return &Error{Class: Refused, Reason: "codex ended without the JSON that was asked for: " + clip(o.last)}
		}
		return nil
	case seen != nil:
		return &Error{Class: seen.Class, Reason: seen.Reason, After: seen.After, Err: seen.Err}
	case o.trouble != "":
		return &Error{Class: codexClass(o.trouble), Reason: "codex failed: " + clip(o.trouble)}
	case strings.Contains(end.Stderr, "config"):
		return &Error{Class: Fatal, Reason: fmt.Sprintf("codex does not take its configuration; install %s@%s%s", codexPackage, CodexVersion, quoteLog(end.Stderr))}
	}
	return &Error{Class: Refused, Reason: fmt.Sprintf("codex ended with %s and no result%s", exitText(end.Code), quoteLog(end.Stderr))}
}

// passing is how the CLI speaks of troubles that pass, where the tap saw none.
var passing = regexp.MustCompile(`(?i)high demand|at capacity|stream disconnected|timeout|connection`)

func codexClass(words string) Class {
	if passing.MatchString(words) {
		return Transient
	}
	return classify(0, words)
}
