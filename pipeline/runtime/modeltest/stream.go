package modeltest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
)

var ids atomic.Int64

// messages is Anthropic's Messages API.
var messages = protocol{
	endpoint: "/v1/messages",
	read: func(body []byte) (req Request, err error) {
		err = json.Unmarshal(body, &req)
		return req, err
	},
	whole:  func(req Request, turn Turn) any { return wholeMessage(req, turn) },
	stream: stream,
	failure: func(turn Turn) any {
		return errorBody{Type: "error", Error: apiError{Type: turn.Type, Message: turn.Error}}
	},
}

type errorBody struct {
	Type  string   `json:"type"`
	Error apiError `json:"error"`
}

type apiError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// reply is an answer in the API's words.
type reply struct {
	ID           string       `json:"id"`
	Type         string       `json:"type"`
	Role         string       `json:"role"`
	Model        string       `json:"model"`
	Content      []replyBlock `json:"content"`
	StopReason   *string      `json:"stop_reason"`
	StopSequence *string      `json:"stop_sequence"`
	Usage        replyUsage   `json:"usage"`
}

type replyUsage struct {
	Input      int `json:"input_tokens"`
	Output     int `json:"output_tokens"`
	CacheRead  int `json:"cache_read_input_tokens"`
	CacheWrite int `json:"cache_creation_input_tokens"`
}

// replyBlock has pointers where the API has a field also when it is empty.
type replyBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature *string         `json:"signature,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
}

// wholeMessage is the answer that is not streamed.
func wholeMessage(req Request, turn Turn) reply {
	stop := "end_turn"
	if len(turn.Calls) > 0 {
		stop = "tool_use"
	}
	m := reply{
		ID: fmt.Sprintf("msg_%d", ids.Add(1)), Type: "message", Role: "assistant", Model: req.Model,
		Content: []replyBlock{}, StopReason: &stop,
		Usage: replyUsage{
			Input: cmp.Or(turn.Usage.Input, 10), Output: cmp.Or(turn.Usage.Output, 5),
			CacheRead: turn.Usage.CacheRead, CacheWrite: turn.Usage.CacheWrite,
		},
	}
	if turn.Thinking != "" {
		signature := "c2lnbmVk"
		m.Content = append(m.Content, replyBlock{Type: "thinking", Thinking: &turn.Thinking, Signature: &signature})
	}
	if turn.Text != "" {
		m.Content = append(m.Content, replyBlock{Type: "text", Text: &turn.Text})
	}
	for _, call := range turn.Calls {
		m.Content = append(m.Content, replyBlock{
			Type: "tool_use", ID: fmt.Sprintf("toolu_%d", ids.Add(1)), Name: call.Tool, Input: call.input(),
		})
	}
	return m
}

// input is the input as JSON.
func (c Call) input() json.RawMessage {
	input, err := json.Marshal(c.Input)
	if err != nil || c.Input == nil {
		return json.RawMessage("{}")
	}
	return input
}

// halves cuts text in two, as a model writes it: no client may parse the first
// alone.
func halves(text string) (first, rest string) {
	first = strings.ToValidUTF8(text[:len(text)/2], "")
	rest, whole := strings.CutPrefix(text, first)
	if !whole { // it is no valid text
		return text, ""
	}
	return first, rest
}

// stream sends the answer as server-sent events; a turn that stalls ends
// without its end.
func stream(w http.ResponseWriter, req Request, turn Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	whole := wholeMessage(req, turn)

	send := func(event string, value any) {
		data, err := json.Marshal(value)
		if err == nil {
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data) // the client may be gone
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	start := whole
	start.Content, start.StopReason = []replyBlock{}, nil
	start.Usage.Output = 1
	send("message_start", struct {
		Type    string `json:"type"`
		Message reply  `json:"message"`
	}{"message_start", start})

	for i, block := range whole.Content {
		sendBlock(send, i, block)
	}
	if turn.Stall {
		return
	}
	type delta struct {
		StopReason   *string `json:"stop_reason"`
		StopSequence *string `json:"stop_sequence"`
	}
	send("message_delta", struct {
		Type  string     `json:"type"`
		Delta delta      `json:"delta"`
		Usage replyUsage `json:"usage"`
	}{"message_delta", delta{StopReason: whole.StopReason}, whole.Usage})
	send("message_stop", struct {
		Type string `json:"type"`
	}{"message_stop"})
}

// blockDelta is a piece of a block.
type blockDelta struct {
	Type      string  `json:"type"`
	Text      *string `json:"text,omitempty"`
	Thinking  *string `json:"thinking,omitempty"`
	Signature *string `json:"signature,omitempty"`
	JSON      *string `json:"partial_json,omitempty"`
}

func sendBlock(send func(string, any), index int, block replyBlock) {
	empty := ""
	opening := block
	var deltas []blockDelta
	switch block.Type {
	case "text":
		opening.Text = &empty
		deltas = []blockDelta{{Type: "text_delta", Text: block.Text}}
	case "thinking":
		opening.Thinking, opening.Signature = &empty, &empty
		deltas = []blockDelta{{Type: "thinking_delta", Thinking: block.Thinking}, {Type: "signature_delta", Signature: block.Signature}}
	case "tool_use":
		opening.Input = json.RawMessage("{}")
		first, rest := halves(string(block.Input))
		deltas = []blockDelta{{Type: "input_json_delta", JSON: &first}, {Type: "input_json_delta", JSON: &rest}}
	}
	send("content_block_start", struct {
		Type  string     `json:"type"`
		Index int        `json:"index"`
		Block replyBlock `json:"content_block"`
	}{"content_block_start", index, opening})
	for _, d := range deltas {
		send("content_block_delta", struct {
			Type  string     `json:"type"`
			Index int        `json:"index"`
			Delta blockDelta `json:"delta"`
		}{"content_block_delta", index, d})
	}
	send("content_block_stop", struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}{"content_block_stop", index})
}
