package modeltest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
)

// chat is OpenAI's chat completions API, as every compatible provider has it.
// Requests are told in the words of Request: instructions become System, the
// answers of tools messages of the user.
var chat = protocol{
	endpoint: "/v1/chat/completions",
	read:     readChat,
	whole:    func(req Request, turn Turn) any { return wholeChat(req, turn) },
	stream:   streamChat,
	failure: func(turn Turn) any {
		return struct {
			Error apiError `json:"error"`
		}{apiError{Type: turn.Type, Message: turn.Error}}
	},
}

type chatRequest struct {
	Model     string        `json:"model"`
	Messages  []chatMessage `json:"messages"`
	Tools     []chatTool    `json:"tools"`
	Stream    bool          `json:"stream"`
	MaxTokens int           `json:"max_tokens"`
	MaxOutput int           `json:"max_completion_tokens"` // the newer name
	Options   struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Usage struct { // OpenRouter's way to ask for it
		Include bool `json:"include"`
	} `json:"usage"`
	Format struct {
		Schema struct {
			Schema json.RawMessage `json:"schema"`
		} `json:"json_schema"`
	} `json:"response_format"`
}

type chatMessage struct {
	Role    string     `json:"role"` // system, developer, user, assistant or tool
	Content Content    `json:"content"`
	Calls   []chatCall `json:"tool_calls"`
	CallID  string     `json:"tool_call_id"`
}

type chatCall struct {
	Index    int          `json:"index"` // only in a stream
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"` // JSON, as text
}

type chatTool struct {
	Function struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Parameters  json.RawMessage `json:"parameters"`
	} `json:"function"`
}

func readChat(body []byte) (Request, error) {
	var r chatRequest
	if err := json.Unmarshal(body, &r); err != nil {
		return Request{}, err
	}
	req := Request{
		Model: r.Model, Stream: r.Stream, MaxTokens: cmp.Or(r.MaxOutput, r.MaxTokens),
		Schema: r.Format.Schema.Schema, wantsUsage: r.Options.IncludeUsage || r.Usage.Include,
	}
	for _, t := range r.Tools {
		req.Tools = append(req.Tools, Tool{Name: t.Function.Name, Description: t.Function.Description, Schema: t.Function.Parameters})
	}
	for _, m := range r.Messages {
		switch m.Role {
		case "system", "developer":
			req.System = append(req.System, m.Content...)
		case "tool":
			req.Messages = append(req.Messages, Message{Role: "user", Content: Content{{Type: "tool_result", ToolUseID: m.CallID, Content: m.Content}}})
		default:
			said := Message{Role: m.Role, Content: m.Content}
			for _, call := range m.Calls {
				said.Content = append(said.Content, Block{
					Type: "tool_use", ID: call.ID, Name: call.Function.Name, Input: json.RawMessage(call.Function.Arguments),
				})
			}
			req.Messages = append(req.Messages, said)
		}
	}
	return req, nil
}

// chatReply is an answer, or a piece of one.
type chatReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *chatUsage   `json:"usage,omitempty"`
}

type chatChoice struct {
	Index   int        `json:"index"`
	Message *chatWords `json:"message,omitempty"` // of a whole answer
	Delta   *chatWords `json:"delta,omitempty"`   // of a piece
	Finish  *string    `json:"finish_reason"`
}

type chatWords struct {
	Role      string     `json:"role,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Calls     []chatCall `json:"tool_calls,omitempty"`
}

// chatUsage counts in Prompt also what was cached.
type chatUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	Details    struct {
		Cached int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// wholeChat is the answer that is not streamed.
func wholeChat(req Request, turn Turn) chatReply {
	words := chatWords{Role: "assistant", Reasoning: turn.Thinking}
	if turn.Text != "" {
		words.Content = &turn.Text
	}
	finish := "stop"
	for i, call := range turn.Calls {
		finish = "tool_calls"
		words.Calls = append(words.Calls, chatCall{
			Index: i, ID: fmt.Sprintf("call_%d", ids.Add(1)), Type: "function",
			Function: chatFunction{Name: call.Tool, Arguments: string(call.input())},
		})
	}
	used := chatUsage{
		Prompt:     cmp.Or(turn.Usage.Input, 10) + turn.Usage.CacheRead + turn.Usage.CacheWrite,
		Completion: cmp.Or(turn.Usage.Output, 5),
	}
	used.Total = used.Prompt + used.Completion
	used.Details.Cached = turn.Usage.CacheRead
	return chatReply{
		ID: fmt.Sprintf("chatcmpl-%d", ids.Add(1)), Object: "chat.completion", Created: 1, Model: req.Model,
		Choices: []chatChoice{{Message: &words, Finish: &finish}}, Usage: &used,
	}
}

// streamChat sends the answer in pieces; a turn that stalls ends without its
// end.
func streamChat(w http.ResponseWriter, req Request, turn Turn) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	whole := wholeChat(req, turn)
	send := func(data string) {
		_, _ = fmt.Fprintf(w, "data: %s\n\n", data) // the client may be gone
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	}
	piece := func(usage *chatUsage, choices ...chatChoice) {
		chunk := whole
		chunk.Object, chunk.Choices, chunk.Usage = "chat.completion.chunk", append([]chatChoice{}, choices...), usage
		if data, err := json.Marshal(chunk); err == nil {
			send(string(data))
		}
	}
	for _, words := range chatPieces(*whole.Choices[0].Message) {
		piece(nil, chatChoice{Delta: &words})
	}
	if turn.Stall {
		return
	}
	piece(nil, chatChoice{Delta: &chatWords{}, Finish: whole.Choices[0].Finish})
	if req.wantsUsage {
		piece(whole.Usage)
	}
	send("[DONE]")
}

// chatPieces cuts an answer into what a stream sends one after the other.
func chatPieces(whole chatWords) []chatWords {
	empty := ""
	pieces := []chatWords{{Role: whole.Role, Content: &empty}}
	if whole.Reasoning != "" {
		pieces = append(pieces, chatWords{Reasoning: whole.Reasoning})
	}
	if whole.Content != nil {
		first, rest := halves(*whole.Content)
		pieces = append(pieces, chatWords{Content: &first}, chatWords{Content: &rest})
	}
	for _, call := range whole.Calls {
		first, rest := halves(call.Function.Arguments)
		call.Function.Arguments = first
		more := chatCall{Index: call.Index, Function: chatFunction{Arguments: rest}}
		pieces = append(pieces, chatWords{Calls: []chatCall{call}}, chatWords{Calls: []chatCall{more}})
	}
	return pieces
}
