package modeltest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// responses is OpenAI's responses API. Requests are told in the words of
// Request: instructions and messages of the developer become System, the
// answers of tools messages of the user. A Call whose Input is a string uses a
// custom tool, which takes text. As the real one, the API refuses a schema that
// its strict mode does not take.
var responses = protocol{
	endpoint: "/v1/responses",
	read:     readResponses,
	whole:    func(req Request, turn Turn) any { return wholeResponse(req, turn) },
	stream:   streamResponse,
	failure: func(turn Turn) any {
		return struct {
			Error responsesError `json:"error"`
		}{responsesError{Type: turn.Type, Message: turn.Error, Code: errorCode(turn)}}
	},
}

type responsesError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Code    string `json:"code,omitempty"`
}

func errorCode(turn Turn) string {
	if turn.Type == "insufficient_quota" {
		return turn.Type
	}
	return map[int]string{
		http.StatusUnauthorized:    "invalid_api_key",
		http.StatusNotFound:        "model_not_found",
		http.StatusTooManyRequests: "rate_limit_exceeded",
	}[turn.Status]
}

type responsesRequest struct {
	Model        string          `json:"model"`
	Instructions string          `json:"instructions"`
	Input        responsesInput  `json:"input"`
	Tools        []responsesTool `json:"tools"`
	Stream       bool            `json:"stream"`
	MaxTokens    int             `json:"max_output_tokens"`
	Text         struct {
		Format struct {
			Strict bool            `json:"strict"`
			Schema json.RawMessage `json:"schema"`
		} `json:"format"`
	} `json:"text"`
}

// responsesInput is text or items; text becomes a message of the user.
type responsesInput []responsesItem

func (in *responsesInput) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		*in = responsesInput{{Role: "user", Content: Content{{Type: "text", Text: text}}}}
		return nil
	}
	return json.Unmarshal(data, (*[]responsesItem)(in))
}

// A responsesItem is one of the conversation: of a request, where a message may
// go without its type, and of an answer.
type responsesItem struct {
	Type      string          `json:"type"` // message, function_call, custom_tool_call_output, …
	Role      string          `json:"role"`
	Content   Content         `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"` // JSON, as text
	Input     string          `json:"input"`     // of a custom tool
	Output    Content         `json:"output"`
	Tools     []responsesTool `json:"tools"` // of the type additional_tools
}

type responsesTool struct {
	Type        string          `json:"type"` // function, custom, or namespace with tools of its own
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responsesTool `json:"tools"`
}

func readResponses(body []byte) (Request, error) {
	var r responsesRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return Request{}, err
	}
	if format := r.Text.Format; format.Strict {
		if err := checkStrict(format.Schema); err != nil {
			return Request{}, fmt.Errorf("invalid schema for response_format: %w", err)
		}
	}
	req := Request{Model: r.Model, Stream: r.Stream, MaxTokens: r.MaxTokens, Schema: r.Text.Format.Schema, Tools: offered(r.Tools)}
	if r.Instructions != "" {
		req.System = Content{{Type: "text", Text: r.Instructions}}
	}
	for _, item := range r.Input {
		switch item.Type {
		case "additional_tools":
			req.Tools = append(req.Tools, offered(item.Tools)...)
		case "function_call":
			req.add("assistant", Block{Type: "tool_use", ID: item.CallID, Name: item.Name, Input: json.RawMessage(item.Arguments)})
		case "custom_tool_call":
			req.add("assistant", Block{Type: "tool_use", ID: item.CallID, Name: item.Name, Input: Call{Input: item.Input}.input()})
		case "function_call_output", "custom_tool_call_output":
			req.add("user", Block{Type: "tool_result", ToolUseID: item.CallID, Content: item.Output})
		case "message", "":
			for i := range item.Content { // input_text, output_text
				item.Content[i].Type = "text"
			}
			if item.Role == "system" || item.Role == "developer" {
				req.System = append(req.System, item.Content...)
			} else {
				req.add(item.Role, item.Content...)
			}
		}
	}
	return req, nil
}

// add lets what the model said in one answer be one message.
func (r *Request) add(role string, blocks ...Block) {
	if last := len(r.Messages) - 1; role == "assistant" && last >= 0 && r.Messages[last].Role == role {
		r.Messages[last].Content = append(r.Messages[last].Content, blocks...)
		return
	}
	r.Messages = append(r.Messages, Message{Role: role, Content: blocks})
}

// offered returns tools, those of namespaces among them as namespace.name.
func offered(tools []responsesTool) []Tool {
	var all []Tool
	for _, t := range tools {
		if t.Type == "namespace" {
			for _, inner := range offered(t.Tools) {
				inner.Name = t.Name + "." + inner.Name
				all = append(all, inner)
			}
			continue
		}
		all = append(all, Tool{Name: cmp.Or(t.Name, t.Type), Description: t.Description, Schema: t.Parameters})
	}
	return all
}

// strictWords are what a schema of the strict mode may say. Real ones may say
// more; none of ours needs it.
var strictWords = []string{
	"type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "description", "title", "$schema",
	"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "pattern", "format", "minItems", "maxItems",
}

// checkStrict fails for a schema that the strict mode refuses: it wants every
// property to be required, and no others.
func checkStrict(schema json.RawMessage) error {
	var words map[string]json.RawMessage
	if err := json.Unmarshal(schema, &words); err != nil {
		return fmt.Errorf("%s is no object", schema)
	}
	for _, word := range slices.Sorted(maps.Keys(words)) {
		if !slices.Contains(strictWords, word) {
			return fmt.Errorf("%s is not permitted", word)
		}
	}
	var s struct {
		Type       json.RawMessage            `json:"type"`
		Properties map[string]json.RawMessage `json:"properties"`
		Required   []string                   `json:"required"`
		Additional json.RawMessage            `json:"additionalProperties"`
		Items      json.RawMessage            `json:"items"`
		AnyOf      []json.RawMessage          `json:"anyOf"`
	}
	if err := json.Unmarshal(schema, &s); err != nil {
		return err
	}
	if bytes.Contains(s.Type, []byte(`"object"`)) && string(s.Additional) != "false" {
		return fmt.Errorf("additionalProperties is required to be supplied and to be false")
	}
	parts := slices.Clone(s.AnyOf)
	if s.Items != nil {
		parts = append(parts, s.Items)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		if !slices.Contains(s.Required, name) {
			return fmt.Errorf("required is required to include every key in properties: missing %s", name)
		}
		parts = append(parts, s.Properties[name])
	}
	for _, part := range parts {
		if err := checkStrict(part); err != nil {
			return err
		}
	}
	return nil
}

// responseReply is an answer.
type responseReply struct {
	ID     string         `json:"id"`
	Object string         `json:"object"`
	Status string         `json:"status"`
	Model  string         `json:"model"`
	Output []replyItem    `json:"output"`
	Usage  *responseUsage `json:"usage"`
}

// replyItem is a piece of an answer. Pointers are fields that the API has also
// when they are empty.
type replyItem struct {
	Type      string         `json:"type"` // reasoning, message, function_call or custom_tool_call
	ID        string         `json:"id"`
	Status    string         `json:"status,omitempty"`
	Role      string         `json:"role,omitempty"`
	Summary   *[]summaryText `json:"summary,omitempty"`
	Content   *[]outputText  `json:"content,omitempty"`
	CallID    string         `json:"call_id,omitempty"`
	Name      string         `json:"name,omitempty"`
	Namespace string         `json:"namespace,omitempty"`
	Arguments *string        `json:"arguments,omitempty"`
	Input     *string        `json:"input,omitempty"`
}

type summaryText struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type outputText struct {
	Type        string   `json:"type"`
	Text        string   `json:"text"`
	Annotations []string `json:"annotations"`
}

// responseUsage counts in Input also what was cached.
type responseUsage struct {
	Input        int `json:"input_tokens"`
	InputDetails struct {
		Cached int `json:"cached_tokens"`
		Write  int `json:"cache_write_tokens"`
	} `json:"input_tokens_details"`
	Output        int `json:"output_tokens"`
	OutputDetails struct {
		Reasoning int `json:"reasoning_tokens"`
	} `json:"output_tokens_details"`
	Total int `json:"total_tokens"`
}

// wholeResponse is the answer that is not streamed.
func wholeResponse(req Request, turn Turn) responseReply {
	r := responseReply{
		ID: fmt.Sprintf("resp_%d", ids.Add(1)), Object: "response", Status: "completed", Model: req.Model, Output: []replyItem{},
		Usage: &responseUsage{
			Input:  cmp.Or(turn.Usage.Input, 10) + turn.Usage.CacheRead + turn.Usage.CacheWrite,
			Output: cmp.Or(turn.Usage.Output, 5),
		},
	}
	r.Usage.InputDetails.Cached, r.Usage.InputDetails.Write = turn.Usage.CacheRead, turn.Usage.CacheWrite
	r.Usage.Total = r.Usage.Input + r.Usage.Output
	if turn.Thinking != "" {
		r.Output = append(r.Output, replyItem{
			Type: "reasoning", ID: fmt.Sprintf("rs_%d", ids.Add(1)), Summary: &[]summaryText{{Type: "summary_text", Text: turn.Thinking}},
		})
	}
	if turn.Text != "" {
		r.Output = append(r.Output, replyItem{
			Type: "message", ID: fmt.Sprintf("msg_%d", ids.Add(1)), Status: "completed", Role: "assistant",
			Content: &[]outputText{{Type: "output_text", Text: turn.Text, Annotations: []string{}}},
		})
	}
	for _, call := range turn.Calls {
		item := replyItem{ID: fmt.Sprintf("fc_%d", ids.Add(1)), Status: "completed", CallID: fmt.Sprintf("call_%d", ids.Add(1)), Name: call.Tool}
		if space, name, inner := strings.Cut(call.Tool, "."); inner {
			item.Namespace, item.Name = space, name
		}
		if text, custom := call.Input.(string); custom {
			item.Type, item.Input = "custom_tool_call", &text
		} else {
			arguments := string(call.input())
			item.Type, item.Arguments = "function_call", &arguments
		}
		r.Output = append(r.Output, item)
	}
	return r
}

// A responseEvent is one of a stream.
type responseEvent struct {
	Type     string         `json:"type"`
	Sequence int            `json:"sequence_number"`
	Response *responseReply `json:"response,omitempty"`
	Index    *int           `json:"output_index,omitempty"`
	Part     *int           `json:"content_index,omitempty"`
	Summary  *int           `json:"summary_index,omitempty"`
	ItemID   string         `json:"item_id,omitempty"`
	Item     *replyItem     `json:"item,omitempty"`
	Delta    string         `json:"delta,omitempty"`
}

// streamResponse sends the answer as server-sent events; a turn that stalls
// ends without its end.
func streamResponse(w http.ResponseWriter, req Request, turn Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	whole := wholeResponse(req, turn)
	sequence := 0
	send := func(event responseEvent) {
		event.Sequence = sequence
		sequence++
		if data, err := json.Marshal(event); err == nil {
			_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event.Type, data) // the client may be gone
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	start := whole
	start.Status, start.Output, start.Usage = "in_progress", []replyItem{}, nil
	send(responseEvent{Type: "response.created", Response: &start})
	for i, item := range whole.Output {
		sendItem(send, i, item)
	}
	if !turn.Stall {
		send(responseEvent{Type: "response.completed", Response: &whole})
	}
}

// sendItem opens an item, sends its text in two pieces, and closes it.
func sendItem(send func(responseEvent), index int, item replyItem) {
	empty, zero := "", 0
	opening := item
	opening.Status = "in_progress"
	var text string
	delta := responseEvent{Index: &index, ItemID: item.ID}
	switch {
	case item.Content != nil:
		text, opening.Content = (*item.Content)[0].Text, &[]outputText{}
		delta.Type, delta.Part = "response.output_text.delta", &zero
	case item.Summary != nil:
		text, opening.Summary, opening.Status = (*item.Summary)[0].Text, &[]summaryText{}, ""
		delta.Type, delta.Summary = "response.reasoning_summary_text.delta", &zero
	case item.Input != nil:
		text, opening.Input = *item.Input, &empty
		delta.Type = "response.custom_tool_call_input.delta"
	default:
		text, opening.Arguments = *item.Arguments, &empty
		delta.Type = "response.function_call_arguments.delta"
	}
	send(responseEvent{Type: "response.output_item.added", Index: &index, Item: &opening})
	first, rest := halves(text)
	for _, delta.Delta = range []string{first, rest} {
		send(delta)
	}
	send(responseEvent{Type: "response.output_item.done", Index: &index, Item: &item})
}
