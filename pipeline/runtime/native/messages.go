package native

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
	"github.com/anthropics/anthropic-sdk-go/packages/ssestream"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// maxReply bounds one reply of a model on the Messages API, in tokens, its
// thoughts included. Every current model can say as much.
const maxReply = 32_000

// messages is the Anthropic Messages API.
type messages struct{ service anthropic.MessageService }

func newMessages(p Provider, client *http.Client) messages {
	opts := []option.RequestOption{
		option.WithBaseURL(p.BaseURL), option.WithHTTPClient(client), option.WithMaxRetries(0), option.WithoutOpenTelemetry(),
	}
	if p.Key != "" {
		opts = append(opts, option.WithAPIKey(p.Key))
	}
	// The service alone: a client would look for credentials in the environment.
	return messages{service: anthropic.NewMessageService(opts...)}
}

func (m messages) ask(ctx context.Context, q question) (reply, error) {
	stream := m.service.NewStreaming(ctx, messagesParams(q), option.WithMiddleware(pulse(q.heard)))
	defer func() { _ = stream.Close() }() // what it had to say is in Err
	h := messagesHearing{}
	for stream.Next() {
		if err := h.hear(stream.Current()); err != nil {
			return h.reply(), err
		}
	}
	switch {
	case stream.Err() != nil:
		return h.reply(), messagesFailure(stream)
	case !h.ended:
		return h.reply(), errCutOff
	}
	return h.reply(), nil
}

// messagesParams writes the question. Three marks make the provider cache what
// stays the same: the tools and instructions, and the conversation up to the
// last two messages of the user.
func messagesParams(q question) anthropic.MessageNewParams {
	params := anthropic.MessageNewParams{Model: q.model, MaxTokens: maxReply}
	if q.system != "" {
		params.System = []anthropic.TextBlockParam{{Text: q.system, CacheControl: anthropic.NewCacheControlEphemeralParam()}}
	}
	if q.effort != "" {
		params.OutputConfig.Effort = anthropic.OutputConfigEffort(q.effort)
	}
	for _, t := range q.tools {
		params.Tools = append(params.Tools, anthropic.ToolUnionParam{OfTool: &anthropic.ToolParam{
			Name: t.name, Description: anthropic.String(t.description), InputSchema: messagesSchema(t.schema),
		}})
	}
	if q.system == "" && len(q.tools) > 0 {
		params.Tools[len(q.tools)-1].OfTool.CacheControl = anthropic.NewCacheControlEphemeralParam()
	}
	for _, m := range q.messages {
		params.Messages = append(params.Messages, messagesMessage(m))
	}
	marks := 2
	for i := len(params.Messages) - 1; i >= 0 && marks > 0; i-- {
		if m := params.Messages[i]; m.Role == anthropic.MessageParamRoleUser && len(m.Content) > 0 {
			*m.Content[len(m.Content)-1].GetCacheControl() = anthropic.NewCacheControlEphemeralParam()
			marks--
		}
	}
	return params
}

// messagesSchema is a schema whose type is object, as the SDK wants to have it.
func messagesSchema(schema map[string]json.RawMessage) anthropic.ToolInputSchemaParam {
	extra := make(map[string]any, len(schema))
	for key, value := range schema {
		if key != "type" {
			extra[key] = value
		}
	}
	return anthropic.ToolInputSchemaParam{ExtraFields: extra}
}

func messagesMessage(m message) anthropic.MessageParam {
	out := anthropic.MessageParam{Role: anthropic.MessageParamRoleUser}
	if m.model {
		out.Role = anthropic.MessageParamRoleAssistant
	}
	for _, b := range m.blocks {
		switch b.kind {
		case words:
			out.Content = append(out.Content, anthropic.NewTextBlock(b.text))
		case thought:
			out.Content = append(out.Content, anthropic.NewThinkingBlock(b.proof, b.text))
		case hiddenThought:
			out.Content = append(out.Content, anthropic.NewRedactedThinkingBlock(b.proof))
		case toolCall:
			out.Content = append(out.Content, anthropic.NewToolUseBlock(b.id, b.input, b.name))
		case toolResult:
			result := anthropic.NewToolResultBlock(b.id, b.text, b.failed)
			if b.image != nil {
				result.OfToolResult.Content = append(result.OfToolResult.Content, anthropic.ToolResultBlockParamContentUnion{
					OfImage: anthropic.NewImageBlockBase64(b.image.media, base64.StdEncoding.EncodeToString(b.image.data)).OfImage,
				})
			}
			out.Content = append(out.Content, result)
		}
	}
	return out
}

// messagesHearing is what has arrived of a reply.
type messagesHearing struct {
	open  []draft
	usage runtime.Usage
	stop  stop
	ended bool
	bytes int
}

// A draft is a block that grows.
type draft struct {
	block
	grown []byte // its text or its input
}

func (h *messagesHearing) hear(e anthropic.MessageStreamEventUnion) error {
	switch e.Type {
	case "message_start":
		u := e.Message.Usage
		h.usage = runtime.Usage{Input: u.InputTokens, Output: u.OutputTokens, CacheRead: u.CacheReadInputTokens, CacheWrite: u.CacheCreationInputTokens}
	case "content_block_start":
		h.open = append(h.open, openDraft(e.ContentBlock))
	case "content_block_delta":
		if e.Index < 0 || e.Index >= int64(len(h.open)) {
			return fmt.Errorf("a piece of block %d arrived, of %d that were begun", e.Index, len(h.open))
		}
		d, b := e.Delta, &h.open[e.Index]
		b.grown = append(append(append(b.grown, d.Text...), d.Thinking...), d.PartialJSON...)
		b.proof += d.Signature
		if h.bytes += len(d.Text) + len(d.Thinking) + len(d.PartialJSON) + len(d.Signature); h.bytes > runtime.MaxOutput {
			return runtime.ErrOutput()
		}
	case "message_delta":
		h.stop = messagesStop(e.Delta.StopReason)
		h.count(e.Usage)
	case "message_stop":
		h.ended = true
	}
	return nil
}

// count takes the totals of the whole message; those that are not repeated stay.
func (h *messagesHearing) count(u anthropic.MessageDeltaUsage) {
	h.usage.Output = u.OutputTokens
	if u.JSON.InputTokens.Valid() {
		h.usage.Input = u.InputTokens
	}
	if u.JSON.CacheReadInputTokens.Valid() {
		h.usage.CacheRead = u.CacheReadInputTokens
	}
	if u.JSON.CacheCreationInputTokens.Valid() {
		h.usage.CacheWrite = u.CacheCreationInputTokens
	}
}

func openDraft(b anthropic.ContentBlockStartEventContentBlockUnion) draft {
	switch b.Type {
	case "thinking":
		return draft{block: block{kind: thought, proof: b.Signature}, grown: []byte(b.Thinking)}
	case "redacted_thinking":
		return draft{block: block{kind: hiddenThought, proof: b.Data}}
	case "tool_use":
		return draft{block: block{kind: toolCall, id: b.ID, name: b.Name}}
	}
	return draft{block: block{kind: words}, grown: []byte(b.Text)}
}

func messagesStop(reason anthropic.StopReason) stop {
	switch reason {
	case anthropic.StopReasonMaxTokens:
		return stopLength
	case anthropic.StopReasonModelContextWindowExceeded:
		return stopWindow
	case anthropic.StopReasonRefusal:
		return stopRefused
	}
	return stopDone
}

func (h *messagesHearing) reply() reply {
	return reply{blocks: finished(h.open), usage: h.usage, stop: h.stop}
}

// finished turns drafts into blocks. Empty words are left out: no provider takes
// them back.
func finished(drafts []draft) []block {
	var blocks []block
	for _, d := range drafts {
		b, grown := d.block, string(d.grown)
		switch b.kind {
		case toolCall:
			b.input, b.bad = readInput(grown)
		case words, thought:
			b.text = grown
			if grown == "" && b.proof == "" {
				continue
			}
		}
		blocks = append(blocks, b)
	}
	return blocks
}

// readInput reads the input of a tool. One that is no JSON object is replaced,
// since it has to be sent back, and the model is told what was wrong.
func readInput(text string) (input json.RawMessage, bad string) {
	if strings.TrimSpace(text) == "" {
		return json.RawMessage("{}"), ""
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &fields); err != nil || fields == nil {
		return json.RawMessage("{}"), fmt.Sprintf("the input is not a JSON object (%v): %s", err, clip(text, 500))
	}
	return json.RawMessage(text), ""
}

// messagesFailure tells the SDK's error in our words. An error inside a stream
// has a type and no status.
func messagesFailure(stream *ssestream.Stream[anthropic.MessageStreamEventUnion]) error {
	err := stream.Err()
	failure, ok := errors.AsType[*anthropic.Error](err)
	if !ok {
		return err
	}
	status := failure.StatusCode
	if status < http.StatusBadRequest {
		status = messagesStatus[string(failure.Type())]
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	words := failure.RawJSON()
	if json.Unmarshal([]byte(words), &body) == nil && body.Error.Message != "" {
		words = body.Error.Message
	}
	return &apiError{status: status, words: words, after: hint(failure.Response), err: err}
}

// messagesStatus is what an error inside a stream would have had as status.
var messagesStatus = map[string]int{
	"invalid_request_error": http.StatusBadRequest,
	"authentication_error":  http.StatusUnauthorized,
	"billing_error":         http.StatusPaymentRequired,
	"permission_error":      http.StatusForbidden,
	"not_found_error":       http.StatusNotFound,
	"request_too_large":     http.StatusRequestEntityTooLarge,
	"rate_limit_error":      http.StatusTooManyRequests,
	"api_error":             http.StatusInternalServerError,
	"timeout_error":         http.StatusGatewayTimeout,
	"overloaded_error":      statusOverloaded,
}
