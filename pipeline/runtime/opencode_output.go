package runtime

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// openCodeOutput is what was heard from the CLI's plugin so far.
type openCodeOutput struct {
	emit    func(Event)
	hide    *redactor
	call    Call
	model   string
	prices  Prices
	retries int

	kept     int // bytes of lines
	text     strings.Builder
	answer   strings.Builder // the text of the last message
	session  string
	denials  []string
	usage    Usage
	spent    dollars
	unpriced bool // a request was charged with nothing
	turns    int
	empty    int    // turns in a row in which the model said nothing at all
	said     bool   // the model said something in this turn
	stop     string // why it ended
	ended    bool
	failed   *openCodeError // the last error; nil when the CLI got over it
}

// Bounds that the CLI does not have.
const (
	openCodeTurns = 250 // turns of a call that names no bound
	openCodeEmpty = 3   // empty turns in a row
)

// openCodeLine is one line of the plugin.
type openCodeLine struct {
	Session string          `json:"session"`
	Kind    string          `json:"kind"`
	Text    string          `json:"text"`
	Tool    string          `json:"tool"`
	Input   json.RawMessage `json:"input"`
	Failed  bool            `json:"failed"` // of a tool's result
	Attempt int             `json:"attempt"`
	Next    int64           `json:"next"` // when the request is sent again; milliseconds since 1970
	Reason  string          `json:"reason"`
	Cost    json.Number     `json:"cost"`
	Tokens  struct {
		Input     int64 `json:"input"`
		Output    int64 `json:"output"`
		Reasoning int64 `json:"reasoning"`
		Cache     struct {
			Read  int64 `json:"read"`
			Write int64 `json:"write"`
		} `json:"cache"`
	} `json:"tokens"`
	Error *openCodeError `json:"error"`
}

// openCodeError is an error in the CLI's words.
type openCodeError struct {
	Name string `json:"name"`
	Data struct {
		Message   string            `json:"message"`
		Status    int               `json:"statusCode"`
		Retryable bool              `json:"isRetryable"`
		Headers   map[string]string `json:"responseHeaders"`
		Body      string            `json:"responseBody"`
	} `json:"data"`
}

// line reads one line.
func (o *openCodeOutput) line(raw []byte) error {
	var l openCodeLine
	if err := json.Unmarshal(raw, &l); err != nil || l.Kind == "" {
		return &Error{Class: Refused, Reason: "opencode wrote a line that does not fit: " + o.hide.text(clip(string(raw))), Err: err}
	}
	if o.kept += len(raw); o.kept > maxOutput {
		return errTooMuch()
	}
	o.session = cmp.Or(o.session, l.Session)
	if l.Session != o.session {
		return nil
	}
	switch l.Kind {
	case "begin":
		o.answer.Reset()
		o.said, o.failed = false, nil
	case "text":
		o.said = true
		o.text.WriteString(l.Text)
		o.emit(o.hide.event(Event{Kind: Text, Text: l.Text}))
	case "said":
		o.answer.WriteString(l.Text)
		o.text.WriteByte('\n')
	case "thinking":
		o.said = true
		o.emit(o.hide.event(Event{Kind: Thinking, Text: l.Text}))
	case "call":
		o.said = true
		o.emit(o.hide.event(Event{Kind: ToolCall, Tool: l.Tool, Input: l.Input}))
	case "result":
		o.result(l)
	case "step":
		return o.step(l)
	case "retry":
		return o.retry(l)
	case "error":
		o.failed = l.Error
	case "idle":
		o.ended = true
	}
	return nil
}

// openCodeDenial is how the CLI tells the model that it may not use a tool.
var openCodeDenial = regexp.MustCompile(`unavailable tool|rule which prevents you from using|rejected permission`)

func (o *openCodeOutput) result(l openCodeLine) {
	if l.Failed && openCodeDenial.MatchString(l.Text) {
		o.denials = append(o.denials, l.Tool)
		o.note("the tool " + l.Tool + " was refused")
	}
	text := l.Text
	if len(text) > maxToolResult {
		text = strings.ToValidUTF8(text[:maxToolResult], "") + "…"
	}
	o.emit(o.hide.event(Event{Kind: ToolResult, Tool: l.Tool, Text: text}))
}

// step counts a request that was answered, and ends the call where another
// would be too much.
func (o *openCodeOutput) step(l openCodeLine) error {
	t := l.Tokens
	used := Usage{Input: t.Input, Output: t.Output + t.Reasoning, CacheRead: t.Cache.Read, CacheWrite: t.Cache.Write}
	if min(used.Input, used.Output, used.CacheRead, used.CacheWrite) < 0 {
		return &Error{Class: Refused, Reason: "opencode reported a negative number of tokens"}
	}
	if err := o.charge(l.Cost, used); err != nil {
		return &Error{Class: Refused, Reason: "opencode reported what cannot be: " + err.Error(), Err: err}
	}
	o.usage.Input += used.Input
	o.usage.Output += used.Output
	o.usage.CacheRead += used.CacheRead
	o.usage.CacheWrite += used.CacheWrite
	o.turns++
	o.emit(Event{Kind: Usages, Usage: &used})
	if o.said {
		o.empty = 0
	} else {
		o.empty++
	}
	return o.bound(l.Reason)
}

// charge adds what a request cost: by the CLI's own list, else by our prices.
func (o *openCodeOutput) charge(cost json.Number, used Usage) error {
	if amount, err := cost.Float64(); err != nil || amount != 0 {
		return o.spent.add(cost)
	}
	micros, known := o.prices.RequestCost(o.model, used)
	if !known && !o.unpriced {
		o.unpriced = true
		o.note("nobody knows what " + o.model + " costs: it is charged with nothing")
	}
	return o.spent.add(json.Number(fmt.Sprintf("%d.%06d", micros/1_000_000, micros%1_000_000)))
}

// bound ends a call that would go on beyond its bounds. A turn that asked for
// tools, or for nothing that the CLI knows, is followed by another.
func (o *openCodeOutput) bound(reason string) error {
	switch reason {
	case "stop":
		o.stop = "end_turn"
		return nil
	case "length":
		o.stop = "max_tokens"
		return nil
	}
	spent, err := o.spent.micros()
	turns := cmp.Or(o.call.MaxTurns, openCodeTurns)
	switch budget := o.call.BudgetMicros; {
	case err != nil:
		return &Error{Class: Refused, Reason: "opencode: " + err.Error(), Err: err}
	case o.empty >= openCodeEmpty:
		return &Error{Class: Transient, Reason: fmt.Sprintf(
			"the model's API sent %d answers in a row that say nothing; is there a proxy that sends pages of its own?", o.empty)}
	case budget > 0 && spent >= budget:
		o.stop = "budget"
		return &Error{Class: Refused, Reason: fmt.Sprintf("opencode used up its budget of $%d.%06d", budget/1_000_000, budget%1_000_000)}
	case o.turns >= turns:
		o.stop = "max_turns"
		return &Error{Class: Refused, Reason: fmt.Sprintf("opencode used up its %d turns", turns)}
	}
	return nil
}

// retry ends the call where the CLI would go on in vain: it waits as long as a
// provider says.
func (o *openCodeOutput) retry(l openCodeLine) error {
	delay := max(0, time.Until(time.UnixMilli(l.Next))).Round(time.Second)
	why := clip(o.hide.text(l.Text))
	switch {
	case classify(0, l.Text) == Fatal:
		return &Error{Class: Fatal, Reason: "the model's API refuses the call: " + why}
	case l.Attempt > o.retries:
		return &Error{Class: Transient, Reason: fmt.Sprintf("the model's API failed %d times in a row: %s", l.Attempt, why), After: delay}
	}
	o.emit(Event{Kind: Retry, Text: fmt.Sprintf("attempt %d failed (%s); again in %s", l.Attempt, why, delay)})
	if idle := cmp.Or(max(o.call.Idle, 0), DefaultIdle); delay >= idle {
		return &Error{Class: Transient, Reason: fmt.Sprintf("the model's API asks to wait for %s: %s", delay, why), After: delay}
	}
	return nil
}

func (o *openCodeOutput) note(text string) {
	o.emit(o.hide.event(Event{Kind: Notice, Text: text}))
}

// settle returns the Result of what was heard.
func (o *openCodeOutput) settle() (Result, error) {
	res := Result{
		Text: strings.TrimSpace(o.text.String()), Session: o.session, Usage: o.usage, Turns: o.turns, Stop: o.stop,
		Denials: slices.Compact(slices.Sorted(slices.Values(o.denials))),
	}
	if o.ended && o.failed == nil {
		res.Output, _ = LastJSON(o.answer.String())
	}
	var err error
	res.CostMicros, err = o.spent.micros()
	return o.hide.result(res), err
}

// failure says why the call failed, nil when it did not. The CLI ends with exit
// code 0 also when its session did not.
func (o *openCodeOutput) failure(end ended) *Error {
	switch {
	case o.failed != nil:
		return o.failed.classified()
	case end.Code != 0 || !o.ended:
		return &Error{Class: classify(0, end.Stderr), Reason: fmt.Sprintf("opencode ended with %s and no answer%s", exitText(end.Code), quoteLog(end.Stderr))}
	case o.turns == 0:
		return &Error{Class: Transient, Reason: "opencode ended without an answer of the model" + quoteLog(end.Stderr)}
	}
	return nil
}

func (e *openCodeError) classified() *Error {
	d := e.Data
	words := cmp.Or(d.Message, e.Name, "no reason is given")
	class := classify(d.Status, words+" "+d.Body)
	switch {
	case e.Name == "ProviderAuthError" || strings.HasSuffix(e.Name, "ModelNotFoundError"):
		class = Fatal
	case class == Refused && d.Retryable:
		class = Transient
	}
	failure := &Error{Class: class, Reason: "opencode failed: " + strings.TrimSpace(statusText(d.Status)+" "+clip(words))}
	if class == Fatal && (d.Status == 0 || d.Status == 401 || d.Status == 403) {
		failure.Reason += "; " + openCodeKeys
	}
	if seconds, err := strconv.Atoi(d.Headers["retry-after"]); err == nil && class == Transient {
		failure.After = time.Duration(seconds) * time.Second
	}
	return failure
}
