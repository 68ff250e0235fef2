package native

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/packages/ssestream"
	"github.com/openai/openai-go/v3/shared"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// chat is OpenAI's chat completions, as compatible providers have it too.
type chat struct{ service openai.ChatCompletionService }

func newChat(p Provider, client *http.Client) chat {
	// The service alone: a client would look for credentials in the environment.
	opts := []option.RequestOption{option.WithBaseURL(p.BaseURL), option.WithHTTPClient(client), option.WithMaxRetries(0)}
	if p.Key != "" {
		opts = append(opts, option.WithAPIKey(p.Key))
	}
	return chat{service: openai.NewChatCompletionService(opts...)}
}

func (c chat) ask(ctx context.Context, q question) (reply, error) {
	stream := c.service.NewStreaming(ctx, chatParams(q), option.WithMiddleware(pulse(q.heard)))
	defer func() { _ = stream.Close() }() // what it had to say is in Err
	h := chatHearing{}
	for stream.Next() {
		if err := h.hear(stream.Current()); err != nil {
			return h.reply(), err
		}
	}
	switch {
	case stream.Err() != nil:
		return h.reply(), chatFailure(stream.Err())
	case !h.ended:
		return h.reply(), errCutOff
	}
	return h.reply(), nil
}

func chatParams(q question) openai.ChatCompletionNewParams {
	params := openai.ChatCompletionNewParams{
		Model:           q.model,
		ReasoningEffort: shared.ReasoningEffort(q.effort),
		StreamOptions:   openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	for _, t := range q.tools {
		parameters := make(shared.FunctionParameters, len(t.schema))
		for key, value := range t.schema {
			parameters[key] = value
		}
		params.Tools = append(params.Tools, openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
			Name: t.name, Description: openai.String(t.description), Parameters: parameters,
		}))
	}
	if q.system != "" {
		params.Messages = append(params.Messages, openai.SystemMessage(q.system))
	}
	for _, m := range q.messages {
		if m.model {
			params.Messages = append(params.Messages, chatModel(m))
			continue
		}
		params.Messages = append(params.Messages, chatUser(m)...)
	}
	return params
}

// chatModel is a message of the model. What it thought goes back to those
// providers that gave it to us in words: some refuse a tool call without it.
func chatModel(m message) openai.ChatCompletionMessageParamUnion {
	var out openai.ChatCompletionAssistantMessageParam
	for _, b := range m.blocks {
		switch b.kind {
		case toolCall:
			out.ToolCalls = append(out.ToolCalls, openai.ChatCompletionMessageToolCallUnionParam{
				OfFunction: &openai.ChatCompletionMessageFunctionToolCallParam{
					ID: b.id, Function: openai.ChatCompletionMessageFunctionToolCallFunctionParam{Name: b.name, Arguments: string(b.input)},
				},
			})
		case thought:
			if b.proof == reasoningContent {
				out.SetExtraFields(map[string]any{reasoningContent: b.text})
			}
		}
	}
	if text := m.said(); text != "" || len(out.ToolCalls) == 0 {
		out.Content.OfString = param.NewOpt(text)
	}
	return openai.ChatCompletionMessageParamUnion{OfAssistant: &out}
}

// chatUser is a message of the user: each result of a tool is one of its own,
// and images follow, which results may not have.
func chatUser(m message) []openai.ChatCompletionMessageParamUnion {
	var out []openai.ChatCompletionMessageParamUnion
	var parts []openai.ChatCompletionContentPartUnionParam
	for _, b := range m.blocks {
		switch b.kind {
		case toolResult:
			out = append(out, openai.ToolMessage(b.text, b.id))
			if b.image != nil {
				parts = append(parts, openai.TextContentPart("The image of the tool call "+b.id+":"), openai.ImageContentPart(
					openai.ChatCompletionContentPartImageImageURLParam{
						URL: "data:" + b.image.media + ";base64," + base64.StdEncoding.EncodeToString(b.image.data),
					}))
			}
		case words:
			parts = append(parts, openai.TextContentPart(b.text))
		}
	}
	switch {
	case len(parts) == 1 && parts[0].OfText != nil: // as every provider takes it
		out = append(out, openai.UserMessage(parts[0].OfText.Text))
	case len(parts) > 0:
		out = append(out, openai.UserMessage(parts))
	}
	return out
}

// The fields beside OpenAI's own in which providers tell what a model thinks.
const (
	reasoningContent = "reasoning_content" // DeepSeek, vLLM and others
	reasoning        = "reasoning"         // OpenRouter, Ollama
)

// chatHearing is what has arrived of a reply.
type chatHearing struct {
	thought draft
	words   draft
	refusal []byte
	calls   []draft
	at      []int64 // the index of each call
	usage   runtime.Usage
	cost    json.Number
	stop    stop
	ended   bool
	bytes   int
}

func (h *chatHearing) hear(chunk openai.ChatCompletionChunk) error {
	if chunk.JSON.Usage.Valid() {
		h.count(chunk.Usage)
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue // one answer was asked for
		}
		d := choice.Delta
		h.write(&h.words.grown, d.Content)
		h.write(&h.refusal, d.Refusal)
		for _, field := range []string{reasoningContent, reasoning} {
			var text string
			if extra, ok := d.JSON.ExtraFields[field]; ok && json.Unmarshal([]byte(extra.Raw()), &text) == nil && text != "" {
				h.thought.kind, h.thought.proof = thought, field
				h.write(&h.thought.grown, text)
				break
			}
		}
		for _, call := range d.ToolCalls {
			h.call(call)
		}
		if choice.FinishReason != "" {
			h.ended, h.stop = true, chatStop(choice.FinishReason)
		}
		if choice.FinishReason == "error" {
			return &apiError{status: http.StatusBadGateway, words: "the provider ended its answer with an error"}
		}
	}
	if h.bytes > runtime.MaxOutput {
		return runtime.ErrOutput()
	}
	return nil
}

func (h *chatHearing) write(to *[]byte, text string) {
	h.bytes += len(text)
	*to = append(*to, text...)
}

// call takes a piece of a tool call. Some providers number all calls of a reply
// alike: a new id is a new call.
func (h *chatHearing) call(piece openai.ChatCompletionChunkChoiceDeltaToolCall) {
	last := len(h.calls) - 1
	for last >= 0 && h.at[last] != piece.Index {
		last--
	}
	if last < 0 || piece.ID != "" && h.calls[last].id != "" && piece.ID != h.calls[last].id {
		h.calls = append(h.calls, draft{block: block{kind: toolCall}})
		h.at = append(h.at, piece.Index)
		last = len(h.calls) - 1
	}
	d := &h.calls[last]
	d.id = cmp.Or(d.id, piece.ID)
	d.name = cmp.Or(d.name, piece.Function.Name)
	h.write(&d.grown, piece.Function.Arguments)
}

// count reads what was used. The prompt's tokens include those of the cache.
func (h *chatHearing) count(u openai.CompletionUsage) {
	read, written := u.PromptTokensDetails.CachedTokens, u.PromptTokensDetails.CacheWriteTokens
	h.usage = runtime.Usage{
		Input: max(0, u.PromptTokens-read-written), Output: u.CompletionTokens, CacheRead: read, CacheWrite: written,
	}
	if cost, ok := u.JSON.ExtraFields["cost"]; ok && cost.Raw() != "null" {
		h.cost = json.Number(cost.Raw())
	}
}

func chatStop(reason string) stop {
	switch reason {
	case "length":
		return stopLength
	case "content_filter":
		return stopRefused
	}
	return stopDone
}

func (h *chatHearing) reply() reply {
	drafts := slices.Clone(h.calls)
	for i := range drafts {
		if drafts[i].id == "" {
			drafts[i].id = fmt.Sprintf("call_%d", i)
		}
	}
	r := reply{usage: h.usage, cost: h.cost, stop: h.stop}
	r.blocks = finished([]draft{h.thought, h.words})
	if len(h.refusal) > 0 {
		r.blocks, r.stop = append(r.blocks, block{kind: words, text: string(h.refusal)}), stopRefused
	}
	r.blocks = append(r.blocks, finished(drafts)...)
	return r
}

// chatFailure tells the SDK's error in our words.
func chatFailure(err error) error {
	if failure, ok := errors.AsType[*openai.Error](err); ok {
		text := strings.TrimSpace(cmp.Or(failure.Message, failure.RawJSON()) + " " + failure.Code)
		return &apiError{status: failure.StatusCode, words: text, after: hint(failure.Response), err: err}
	}
	if failure, ok := errors.AsType[*ssestream.StreamError](err); ok {
		return chatStreamFailure(failure)
	}
	return err
}

// chatStreamFailure reads an error inside a stream: its code is a status with
// some providers, a word with others.
func chatStreamFailure(failure *ssestream.StreamError) error {
	var body struct {
		Error struct {
			Message string          `json:"message"`
			Type    string          `json:"type"`
			Code    json.RawMessage `json:"code"`
		} `json:"error"`
	}
	out := &apiError{status: http.StatusInternalServerError, words: failure.Message, err: failure}
	if json.Unmarshal(failure.Event.Data, &body) == nil && body.Error.Message != "" {
		out.words = body.Error.Message
		var status int
		if json.Unmarshal(body.Error.Code, &status) == nil && status >= http.StatusBadRequest {
			out.status = status
		} else if known, ok := messagesStatus[body.Error.Type]; ok {
			out.status = known
		}
	}
	return out
}
