package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// exitTransient is the exit code by which a program asks to be run again
// (EX_TEMPFAIL).
const exitTransient = 75

// Command runs any program as an agent. The program is started once per call in
// the directory of the call and reads one JSON object:
//
//	{"version":1,"step":"…","role":"coder","system":"…","prompt":"…","tools":["READ","EDIT"],"schema":{…},"model":"…",
//	 "dir":"…","max_turns":150,"timeout_seconds":2700,"session":"","repair":{"previous":"…","errors":["…"]}}
//
// It writes JSON lines, of which the last result counts; a line that is no JSON
// object is text:
//
//	{"type":"text","text":"…"}
//	{"type":"tool_call","name":"EDIT","input":{…}}
//	{"type":"tool_result","name":"EDIT","text":"…","denied":true}
//	{"type":"usage","input_tokens":1,"output_tokens":1,"cost_usd":0.01}
//	{"type":"retry","text":"…","after_seconds":60}
//	{"type":"result","output":{…},"session":"…"}
//
// It ends with 0 after a result, with 75 to be run again, at the earliest when
// its last line of type retry says, with any other code when it failed; its
// standard error is the log. Lines of usage are added up; a program whose sum
// passes the budget of the call is ended.
type Command struct {
	opts CommandOptions
	hide *redactor
}

// CommandOptions say which program to run, and how.
type CommandOptions struct {
	Args     []string // program and arguments
	Env      []string // KEY=value, beside the scratch environment
	Secrets  []string // KEY=value likewise; the values never appear in events, results and errors
	Readable []string // directories that every call may read
	Box      *sandbox.Box
}

// NewCommand returns the runtime that runs the program of opts.
func NewCommand(opts CommandOptions) (*Command, error) {
	if len(opts.Args) == 0 || opts.Args[0] == "" {
		return nil, errors.New("runtime command: no program is configured")
	}
	if opts.Box == nil {
		return nil, errors.New("runtime command: no sandbox is given")
	}
	return &Command{opts: opts, hide: newRedactor(opts.Secrets)}, nil
}

// commandRequest is what the program reads.
type commandRequest struct {
	Version        int             `json:"version"`
	Step           string          `json:"step"`
	Role           string          `json:"role"`
	System         string          `json:"system"`
	Prompt         string          `json:"prompt"`
	Tools          []Tool          `json:"tools"`
	Schema         json.RawMessage `json:"schema"`
	Model          string          `json:"model"`
	Dir            string          `json:"dir"`
	MaxTurns       int             `json:"max_turns"`
	TimeoutSeconds int64           `json:"timeout_seconds"`
	Session        string          `json:"session"`
	Repair         *Repair         `json:"repair"`
}

// commandLine is what the program writes: the fields of all its types of line.
type commandLine struct {
	Text    string          `json:"text"`
	Name    string          `json:"name"`
	Input   json.RawMessage `json:"input"`
	Output  json.RawMessage `json:"output"`
	Session string          `json:"session"`

	InputTokens      int64       `json:"input_tokens"`
	OutputTokens     int64       `json:"output_tokens"`
	CacheReadTokens  int64       `json:"cache_read_tokens"`
	CacheWriteTokens int64       `json:"cache_write_tokens"`
	CostUSD          json.Number `json:"cost_usd"`

	Denied bool    `json:"denied"`        // of a tool_result: the tool was refused
	After  float64 `json:"after_seconds"` // of a retry
}

// Run runs the program once. What it used and cost is in the Result also when
// the call failed.
func (r *Command) Run(ctx context.Context, c Call, emit func(Event)) (Result, error) {
	request, err := json.Marshal(commandRequest{
		Version: 1, Step: c.Step, Role: c.Role, System: c.System, Prompt: c.Prompt,
		Tools: append([]Tool{}, c.Tools...), Schema: orNull(c.Schema), Model: c.Model, Dir: c.Dir,
		MaxTurns: c.MaxTurns, TimeoutSeconds: seconds(c.Timeout), Session: c.Session, Repair: c.Repair,
	})
	if err != nil {
		return Result{}, &Error{Class: Refused, Reason: fmt.Sprintf("step %s: the call cannot be written as JSON: %v", c.Step, err), Err: err}
	}
	cmd := sandbox.Command{
		Args:     r.opts.Args,
		Dir:      c.Dir,
		Env:      sandbox.Environ(c.Home, slices.Concat(r.opts.Env, r.opts.Secrets)...),
		Stdin:    bytes.NewReader(append(request, '\n')),
		Writable: writable(c),
		Readable: slices.Concat(r.opts.Readable, c.ReadOnlyDirs),
	}
	out := commandOutput{emit: emit, hide: r.hide, budget: c.BudgetMicros}
	end, err := runLines(ctx, r.opts.Box, cmd, c, r.hide, out.line)
	res, priceErr := out.settle(c.Session)
	switch {
	case err != nil:
		return res, err
	case end.Code == exitTransient:
		return res, &Error{Class: Transient, Reason: "the agent's program asks to be run again" + quoteLog(cmp.Or(end.Stderr, out.why)), After: out.after}
	case end.Code != 0:
		return res, &Error{Class: Refused, Reason: fmt.Sprintf("the agent's program ended with %s%s", exitText(end.Code), quoteLog(end.Stderr))}
	case priceErr != nil:
		return res, &Error{Class: Refused, Reason: priceErr.Error(), Err: priceErr}
	case !out.answered:
		return res, &Error{Class: Refused, Reason: `the agent's program ended without a {"type":"result"} line` + quoteLog(end.Stderr)}
	}
	return res, nil
}

// A commandOutput is what was read from the program so far.
type commandOutput struct {
	emit      func(Event)
	hide      *redactor
	text      strings.Builder
	usage     Usage
	cost      dollars
	output    json.RawMessage
	session   string
	answered  bool
	denials   []string
	budget    int64 // micro-dollars; 0 is without bound
	overspent bool
	why       string        // of the last line of type retry
	after     time.Duration // likewise
}

func (o *commandOutput) line(raw []byte) error {
	if claimsCost(raw) {
		return &Error{Class: Refused, Reason: "the agent's program reported a cost that is not a number: " + o.hide.text(clip(string(raw)))}
	}
	kind := lineType(raw)
	switch kind {
	case "text", "thinking", "tool_call", "tool_result", "usage", "retry", "subagent", "notice", "result":
	default:
		o.say(string(raw) + "\n")
		return nil
	}
	var l commandLine
	if err := json.Unmarshal(raw, &l); err != nil {
		return &Error{Class: Refused, Reason: fmt.Sprintf("the agent's program wrote a %s line that does not fit: %v: %s", kind, err, o.hide.text(clip(string(raw)))), Err: err}
	}
	switch kind {
	case "text":
		o.say(l.Text)
	case "tool_call":
		o.emit(o.hide.event(Event{Kind: ToolCall, Tool: l.Name, Input: l.Input}))
	case "usage":
		return o.count(l)
	case "result":
		o.answered, o.output, o.session = true, l.Output, cmp.Or(l.Session, o.session)
	case "retry":
		return o.retry(l)
	default:
		if l.Denied {
			o.denials = append(o.denials, l.Name)
		}
		o.emit(o.hide.event(Event{Kind: EventKind(kind), Text: l.Text, Tool: l.Name}))
	}
	return nil
}

// say keeps text and shows it.
func (o *commandOutput) say(text string) {
	o.text.WriteString(text)
	o.emit(o.hide.event(Event{Kind: Text, Text: text}))
}

// count adds a line of usage: each says what was used since the one before.
func (o *commandOutput) count(l commandLine) error {
	u := Usage{Input: l.InputTokens, Output: l.OutputTokens, CacheRead: l.CacheReadTokens, CacheWrite: l.CacheWriteTokens}
	if min(u.Input, u.Output, u.CacheRead, u.CacheWrite) < 0 {
		return &Error{Class: Refused, Reason: "the agent's program reported a negative number of tokens"}
	}
	if err := o.cost.add(l.CostUSD); err != nil {
		return &Error{Class: Refused, Reason: "the agent's program reported what cannot be: " + err.Error(), Err: err}
	}
	o.usage.Input += u.Input
	o.usage.Output += u.Output
	o.usage.CacheRead += u.CacheRead
	o.usage.CacheWrite += u.CacheWrite
	o.emit(Event{Kind: Usages, Usage: &u})
	return o.withinBudget()
}

// withinBudget ends the program that has spent more than it may.
func (o *commandOutput) withinBudget() error {
	spent, err := o.cost.micros()
	if err != nil || o.budget == 0 || spent <= o.budget {
		return nil // a sum out of range is told at the end
	}
	o.overspent = true
	return overBudget("the agent's program", o.budget)
}

// maxAfter bounds the wait that a program may ask for.
const maxAfter = 24 * time.Hour

// retry remembers what the program says of its next try, for when it ends.
func (o *commandOutput) retry(l commandLine) error {
	if l.After < 0 || l.After > maxAfter.Seconds() {
		return &Error{Class: Refused, Reason: fmt.Sprintf("the agent's program asks to wait for %g seconds: 0 to %g can be waited", l.After, maxAfter.Seconds())}
	}
	o.why, o.after = o.hide.text(l.Text), time.Duration(l.After*float64(time.Second))
	o.emit(Event{Kind: Retry, Text: o.why})
	return nil
}

// settle returns the Result of what was read. A result line without an output
// leaves the last JSON value of the text.
func (o *commandOutput) settle(session string) (Result, error) {
	res := Result{
		Text: o.text.String(), Output: o.output, Session: cmp.Or(o.session, session), Usage: o.usage,
		Denials: slices.Compact(slices.Sorted(slices.Values(o.denials))),
	}
	switch {
	case o.overspent:
		res.Stop = "budget"
	case o.answered:
		res.Stop = "end_turn"
		if len(res.Output) == 0 || string(res.Output) == "null" {
			res.Output, _ = LastJSON(res.Text)
		}
	}
	var err error
	res.CostMicros, err = o.cost.micros()
	return o.hide.result(res), err
}

// lineType returns the type that a line names, empty for what is no JSON object.
func lineType(line []byte) string {
	var l struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &l) != nil {
		return ""
	}
	return l.Type
}

// claimsCost says whether a line that is no JSON was meant to be one that
// counts money, such as {"type":"usage","cost_usd":NaN}. Taken for text, it
// would leave a call free of charge.
func claimsCost(line []byte) bool {
	return !json.Valid(line) && bytes.HasPrefix(bytes.TrimSpace(line), []byte("{")) && bytes.Contains(line, []byte(`"cost_usd"`))
}

// writable returns the directories that an agent may change.
func writable(c Call) []string {
	var dirs []string
	if !c.ReadOnly {
		dirs = append(dirs, c.Dir)
	}
	if c.Home != "" {
		dirs = append(dirs, c.Home)
	}
	return dirs
}

func orNull(m json.RawMessage) json.RawMessage {
	if len(m) == 0 {
		return json.RawMessage("null")
	}
	return m
}

// seconds rounds up: a limit of half a second is not none.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

func exitText(code int) string {
	if code < 0 {
		return "a signal"
	}
	return fmt.Sprintf("exit code %d", code)
}

// quoteLog appends what a program logged to the reason of its failure.
func quoteLog(log string) string {
	if log == "" {
		return ""
	}
	return ": " + log
}

// clip shortens what is quoted in a reason.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
