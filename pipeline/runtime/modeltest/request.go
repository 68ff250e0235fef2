package modeltest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
)

// A Request is what the model was asked.
type Request struct {
	Model      string    `json:"model"`
	System     Content   `json:"system"`
	Messages   []Message `json:"messages"`
	Tools      []Tool    `json:"tools"`
	Stream     bool      `json:"stream"`
	MaxTokens  int       `json:"max_tokens"`
	ToolChoice *struct {
		Type string `json:"type"`
		Name string `json:"name"`
	} `json:"tool_choice"`

	OutputConfig struct {
		Effort string `json:"effort"`
	} `json:"output_config"`

	Schema   json.RawMessage `json:"-"` // of the answer, where the API takes one
	Scenario string          `json:"-"` // the path of the base URL, without slashes around it
	Header   http.Header     `json:"-"`

	wantsUsage bool // a stream is to say what it took
}

// A Message is one of the conversation.
type Message struct {
	Role    string  `json:"role"` // user or assistant
	Content Content `json:"content"`
}

// A Tool is one that the model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"input_schema"`
}

// Content is text or blocks; text becomes one block.
type Content []Block

// A Block is a piece of a message.
type Block struct {
	Type      string          `json:"type"` // text, tool_use, tool_result, …
	Text      string          `json:"text"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   Content         `json:"content"`
	IsError   bool            `json:"is_error"`
}

// UnmarshalJSON reads either form; null is neither.
func (c *Content) UnmarshalJSON(data []byte) error {
	if string(data) == "null" {
		return nil
	}
	var text string
	if json.Unmarshal(data, &text) == nil {
		*c = Content{{Type: "text", Text: text}}
		return nil
	}
	return json.Unmarshal(data, (*[]Block)(c))
}

// String returns the text of c.
func (c Content) String() string {
	var texts []string
	for _, b := range c {
		if b.Text != "" {
			texts = append(texts, b.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// Offers says whether the model may call the tool.
func (r Request) Offers(tool string) bool {
	return slices.ContainsFunc(r.Tools, func(t Tool) bool { return t.Name == tool })
}

// Turn counts the answers that the model has given in this conversation.
func (r Request) Turn() int {
	n := 0
	for _, m := range r.Messages {
		if m.Role == "assistant" {
			n++
		}
	}
	return n
}

// Text returns all text of the user's messages, tool results excepted.
func (r Request) Text() string {
	var texts []string
	for _, m := range r.Messages {
		if m.Role == "user" {
			texts = append(texts, m.Content.String())
		}
	}
	return strings.Join(texts, "\n")
}

// Prompt returns what the user said last: the last text of the last message of
// the user that has one.
func (r Request) Prompt() string {
	for _, m := range slices.Backward(r.Messages) {
		if m.Role != "user" {
			continue
		}
		for _, b := range slices.Backward(m.Content) {
			if b.Type == "text" {
				return b.Text
			}
		}
	}
	return ""
}

// A Result is what a tool gave back.
type Result struct {
	Tool    string
	Text    string
	IsError bool
}

// Results returns what the tools gave back in the whole conversation, in order.
func (r Request) Results() []Result {
	names := make(map[string]string)
	var results []Result
	for _, m := range r.Messages {
		for _, b := range m.Content {
			switch b.Type {
			case "tool_use":
				names[b.ID] = b.Name
			case "tool_result":
				results = append(results, Result{Tool: names[b.ToolUseID], Text: b.Content.String(), IsError: b.IsError})
			}
		}
	}
	return results
}
