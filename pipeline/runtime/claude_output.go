package runtime

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// claudeOutput is what was read from the CLI so far.
type claudeOutput struct {
	emit func(Event)
	hide *redactor
	idle time.Duration

	kept    int // bytes of lines that were more than signs of life
	text    strings.Builder
	session string
	denials []string
	tools   map[string]string // id of a tool call → tool
	usage   Usage
	spent   dollars
	turns   int
	result  *claudeResult // the last one; nil before
}

// claudeLine is what every line says.
type claudeLine struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`
	Session string `json:"session_id"`
	Parent  string `json:"parent_tool_use_id"` // the call of a subagent that this belongs to
}

// claudeMessage is a line of type assistant or user.
type claudeMessage struct {
	Message struct {
		Content json.RawMessage `json:"content"` // a text or a list of claudeBlock
	} `json:"message"`
}

type claudeBlock struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

// claudeRetry is a line of type system, subtype api_retry: a request failed and
// the CLI waits to send it again.
type claudeRetry struct {
	Attempt    int    `json:"attempt"`
	MaxRetries int    `json:"max_retries"`
	DelayMS    int64  `json:"retry_delay_ms"`
	Status     int    `json:"error_status"`
	Error      string `json:"error"`
}

// claudeResult is the line of type result.
type claudeResult struct {
	Subtype    string          `json:"subtype"`
	IsError    bool            `json:"is_error"`
	Status     int             `json:"api_error_status"`
	Terminal   string          `json:"terminal_reason"`
	Result     string          `json:"result"` // absent unless Subtype is success
	Errors     []string        `json:"errors"`
	Structured json.RawMessage `json:"structured_output"`
	Turns      int             `json:"num_turns"`
	Stop       string          `json:"stop_reason"`
	Denials    []struct {
		Tool string `json:"tool_name"`
	} `json:"permission_denials"`

	// TotalUSD grows over all processes of a session: a turn that resumes one
	// would be charged for those before. Since is what this process spent.
	TotalUSD json.Number            `json:"total_cost_usd"`
	Since    map[string]claudeSpent `json:"model_usage_since_last_result"`
	Usage    struct {
		Input      int64 `json:"input_tokens"`
		Output     int64 `json:"output_tokens"`
		CacheRead  int64 `json:"cache_read_input_tokens"`
		CacheWrite int64 `json:"cache_creation_input_tokens"`
	} `json:"usage"`
}

// claudeSpent is what one model did.
type claudeSpent struct {
	Input      int64       `json:"inputTokens"`
	Output     int64       `json:"outputTokens"`
	CacheRead  int64       `json:"cacheReadInputTokens"`
	CacheWrite int64       `json:"cacheCreationInputTokens"`
	CostUSD    json.Number `json:"costUSD"`
}

// line reads one line. A kind that is not known is a sign of life and no more.
func (o *claudeOutput) line(raw []byte) error {
	var l claudeLine
	if err := json.Unmarshal(raw, &l); err != nil {
		o.note("claude wrote: " + clip(string(raw)))
		return nil
	}
	if l.Type == "stream_event" {
		return nil
	}
	if o.kept += len(raw); o.kept > maxOutput {
		return errTooMuch()
	}
	o.session = cmp.Or(l.Session, o.session)
	var err error
	switch {
	case l.Type == "assistant" || l.Type == "user":
		err = o.message(raw, l)
	case l.Type == "system" && l.Subtype == "api_retry":
		return o.retry(raw)
	case l.Type == "result":
		err = o.end(raw)
	}
	if err != nil {
		return &Error{Class: Refused, Reason: fmt.Sprintf("claude wrote a %s line that does not fit: %v", l.Type, err), Err: err}
	}
	return nil
}

// message emits the blocks of a message. Its usage is that of the message's
// beginning: what counts comes with the result.
func (o *claudeOutput) message(raw []byte, l claudeLine) error {
	var m claudeMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return err
	}
	for _, b := range claudeBlocks(m.Message.Content) {
		switch {
		case l.Parent != "":
			if text := cmp.Or(b.Text, b.Name); text != "" {
				o.emit(o.hide.event(Event{Kind: Subagent, Text: text}))
			}
		case b.Type == "text" && l.Type == "assistant":
			if o.text.Len() > 0 {
				o.text.WriteByte('\n')
			}
			o.text.WriteString(b.Text)
			o.emit(o.hide.event(Event{Kind: Text, Text: b.Text}))
		case b.Type == "thinking":
			o.emit(o.hide.event(Event{Kind: Thinking, Text: b.Thinking}))
		case b.Type == "tool_use":
			if o.tools == nil {
				o.tools = make(map[string]string)
			}
			o.tools[b.ID] = b.Name
			o.emit(o.hide.event(Event{Kind: ToolCall, Tool: b.Name, Input: b.Input}))
		case b.Type == "tool_result":
			o.toolResult(b)
		}
	}
	return nil
}

// maxToolResult bounds the text of a tool_result event.
const maxToolResult = 8 << 10

// unavailable is what the CLI answers for a tool that it does not offer.
var unavailable = regexp.MustCompile(`No such tool available: ([A-Za-z0-9_-]+)`)

func (o *claudeOutput) toolResult(b claudeBlock) {
	var text strings.Builder
	for _, part := range claudeBlocks(b.Content) {
		text.WriteString(part.Text)
	}
	shown := text.String()
	if b.IsError {
		if m := unavailable.FindStringSubmatch(shown); m != nil {
			o.deny(m[1])
		}
	}
	if len(shown) > maxToolResult {
		shown = strings.ToValidUTF8(shown[:maxToolResult], "") + "…"
	}
	o.emit(o.hide.event(Event{Kind: ToolResult, Tool: o.tools[b.ToolUseID], Text: shown}))
}

func (o *claudeOutput) deny(tool string) {
	o.denials = append(o.denials, tool)
	o.note("the tool " + tool + " was refused")
}

// retry ends the call where the CLI would go on in vain: it repeats a request
// that lacks authority ten times, and waits as long as a provider says.
func (o *claudeOutput) retry(raw []byte) error {
	var l claudeRetry
	if err := json.Unmarshal(raw, &l); err != nil {
		return &Error{Class: Refused, Reason: fmt.Sprintf("claude wrote a retry line that does not fit: %v", err), Err: err}
	}
	delay := time.Duration(l.DelayMS) * time.Millisecond
	why := strings.TrimSpace(fmt.Sprintf("%s %s", statusText(l.Status), l.Error))
	if classify(l.Status, l.Error) == Fatal {
		return &Error{Class: Fatal, Reason: "the model's API refuses the call: " + why + fatalHint(l.Status)}
	}
	o.emit(o.hide.event(Event{Kind: Retry, Text: fmt.Sprintf("attempt %d of %d failed (%s); again in %s", l.Attempt, l.MaxRetries+1, why, delay)}))
	if delay >= o.idle {
		return &Error{Class: Transient, Reason: fmt.Sprintf("the model's API asks to wait for %s: %s", delay, why), After: delay}
	}
	return nil
}

func (o *claudeOutput) end(raw []byte) error {
	var r claudeResult
	if err := json.Unmarshal(raw, &r); err != nil {
		return err
	}
	o.result = &r
	o.turns += r.Turns
	for _, d := range r.Denials {
		o.deny(d.Tool)
	}
	before := o.usage
	var costs []error
	if r.Since == nil {
		o.usage.Input += r.Usage.Input
		o.usage.Output += r.Usage.Output
		o.usage.CacheRead += r.Usage.CacheRead
		o.usage.CacheWrite += r.Usage.CacheWrite
		costs = append(costs, o.spent.add(r.TotalUSD))
	}
	for _, model := range slices.Sorted(maps.Keys(r.Since)) {
		s := r.Since[model]
		o.usage.Input += s.Input
		o.usage.Output += s.Output
		o.usage.CacheRead += s.CacheRead
		o.usage.CacheWrite += s.CacheWrite
		costs = append(costs, o.spent.add(s.CostUSD))
	}
	if o.usage != before {
		used := o.usage
		o.emit(Event{Kind: Usages, Usage: &used})
	}
	return errors.Join(costs...)
}

func (o *claudeOutput) note(text string) {
	o.emit(o.hide.event(Event{Kind: Notice, Text: text}))
}

// settle returns the Result of what was read.
func (o *claudeOutput) settle(c Call) (Result, error) {
	res := Result{
		Text: o.text.String(), Session: cmp.Or(o.session, c.Session), Usage: o.usage, Turns: o.turns,
		Denials: slices.Compact(slices.Sorted(slices.Values(o.denials))),
	}
	if r := o.result; r != nil {
		res.Stop = claudeStop(r)
		switch {
		case len(r.Structured) > 0 && string(r.Structured) != "null":
			res.Output = r.Structured
		case len(c.Schema) == 0 && !r.IsError:
			res.Output, _ = LastJSON(cmp.Or(r.Result, res.Text))
		}
	}
	var err error
	res.CostMicros, err = o.spent.micros()
	return o.hide.result(res), err
}

// failure says why the call failed, nil when it did not. The exit code alone
// does not tell.
func (o *claudeOutput) failure(c Call, end ended) *Error {
	r := o.result
	switch {
	case r == nil:
		return &Error{Class: classify(0, end.Stderr), Reason: fmt.Sprintf("claude ended with %s and no result%s", exitText(end.Code), quoteLog(end.Stderr))}
	case r.Subtype == "error_max_turns":
		return &Error{Class: Refused, Reason: fmt.Sprintf("claude used up its %d turns", c.MaxTurns)}
	case r.Subtype == "error_max_budget_usd":
		return overBudget("claude", c.BudgetMicros)
	case r.IsError || r.Subtype != "success":
		words := cmp.Or(strings.Join(r.Errors, "; "), r.Result, r.Subtype)
		class := classify(r.Status, words)
		if r.Status == 0 && r.Terminal == "api_error" && class == Refused {
			class = Transient // the API was not reached
		}
		return &Error{Class: class, Reason: "claude failed: " + strings.TrimSpace(statusText(r.Status)+" "+clip(words)) + fatalHint(r.Status)}
	case end.Code != 0:
		return &Error{Class: Refused, Reason: fmt.Sprintf("claude ended with %s%s", exitText(end.Code), quoteLog(end.Stderr))}
	case len(c.Schema) > 0 && (len(r.Structured) == 0 || string(r.Structured) == "null"):
		return &Error{Class: Refused, Reason: "claude ended without the structured output that was asked for: " + clip(r.Result)}
	}
	return nil
}

func claudeStop(r *claudeResult) string {
	switch r.Subtype {
	case "error_max_turns":
		return "max_turns"
	case "error_max_budget_usd":
		return "budget"
	case "success":
		if !r.IsError {
			return "end_turn"
		}
	}
	return "error"
}

// claudeBlocks reads content, which is a text or a list of blocks.
func claudeBlocks(content json.RawMessage) []claudeBlock {
	var text string
	if json.Unmarshal(content, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}
	}
	var blocks []claudeBlock
	if json.Unmarshal(content, &blocks) != nil {
		return nil // neither: nothing to show
	}
	return blocks
}

func statusText(status int) string {
	if status == 0 {
		return ""
	}
	return fmt.Sprintf("status %d:", status)
}

// fatalHint says what to do about a status.
func fatalHint(status int) string {
	if status == 401 || status == 403 {
		return "; check the credential (" + strings.Join(claudeCredentials, ", ") + "), or make one with `claude setup-token`"
	}
	return ""
}
