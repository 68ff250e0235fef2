package native

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An endpoint is a provider's API in our words.
type endpoint interface {
	// ask sends the conversation and returns what the model said. After an
	// error the reply holds what had arrived until then.
	ask(ctx context.Context, q question) (reply, error)
}

// A question is one request to a model.
type question struct {
	model    string
	system   string
	effort   string
	tools    []tool
	messages []message
	heard    func() // called for every sign of life
}

// A reply is what a model said.
type reply struct {
	blocks []block
	usage  runtime.Usage
	cost   json.Number // in dollars, where the provider tells
	stop   stop
}

// stop is why a model ended its reply.
type stop string

const (
	stopDone    stop = "end_turn" // it is done, or waits for its tools
	stopLength  stop = "length"   // of the reply
	stopWindow  stop = "window"   // the context is full
	stopRefused stop = "refusal"
)

// A message is one turn of the conversation.
type message struct {
	model  bool // the model's own; else the user's
	blocks []block
}

// A block is a piece of a message.
type block struct {
	kind   blockKind
	text   string          // of words, a thought, a result
	proof  string          // of a thought: its signature, or what it is hidden in
	id     string          // of a call, and of its result
	name   string          // of a call: the tool
	input  json.RawMessage // of a call
	bad    string          // of a call: why its input could not be read
	image  *image          // of a result
	failed bool            // of a result
}

type blockKind int

const (
	words blockKind = iota
	thought
	hiddenThought
	toolCall
	toolResult
)

// An image is what a model sees.
type image struct {
	media string // image/png
	data  []byte
}

// say makes a message of the user.
func say(text string) message { return message{blocks: []block{{kind: words, text: text}}} }

// calls returns the tool calls of a message.
func (m message) calls() []block {
	var calls []block
	for _, b := range m.blocks {
		if b.kind == toolCall {
			calls = append(calls, b)
		}
	}
	return calls
}

// said returns the words of a message.
func (m message) said() string {
	var parts []string
	for _, b := range m.blocks {
		if b.kind == words {
			parts = append(parts, b.text)
		}
	}
	return strings.Join(parts, "\n")
}

// size is how many bytes a message has, images as what they cost.
func (m message) size() int {
	n := 0
	for _, b := range m.blocks {
		n += len(b.text) + len(b.proof) + len(b.input) + len(b.name)
		if b.image != nil {
			n += imageBytes
		}
	}
	return n
}

// imageBytes is the text that takes as many tokens as an image at most does.
const imageBytes = 6000

// withoutThoughts returns messages without the model's thoughts. A provider
// takes a thought back only behind the very words that it followed.
func withoutThoughts(messages []message) []message {
	out := make([]message, len(messages))
	for i, m := range messages {
		m.blocks = slices.DeleteFunc(slices.Clone(m.blocks), func(b block) bool { return b.kind == thought || b.kind == hiddenThought })
		out[i] = m
	}
	return slices.DeleteFunc(out, func(m message) bool { return len(m.blocks) == 0 })
}
