package native

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

const (
	// keptMessages are those at the end that compaction leaves whole when it cuts
	// the results of tools.
	keptMessages = 6

	// cutAbove is the size of a result that is worth cutting, in bytes.
	cutAbove = 400

	// bytesPerToken is few, so that a guess is rather too many tokens than too few.
	bytesPerToken = 3

	// maxCompacts ends a call that finds no room however often it is made.
	maxCompacts = 20
)

// expected guesses how many tokens the next request has: what the provider
// counted, and what was said since.
func (a *agent) expected() int64 {
	bytes := 0
	for _, m := range a.talk[min(a.told, len(a.talk)):] {
		bytes += m.size()
	}
	if a.told == 0 {
		bytes += len(a.call.System)
	}
	return a.context + int64(bytes/bytesPerToken)
}

// fit keeps the next request within the model's context, with room for a reply.
func (a *agent) fit(ctx context.Context) error {
	if a.expected() <= a.window-min(maxReply, a.window/4) || len(a.talk) <= 2 {
		return nil
	}
	return a.compact(ctx)
}

// squeeze makes room after the provider found the conversation too long, and
// asks again.
func (a *agent) squeeze(ctx context.Context) (reply, error) {
	if err := a.compact(ctx); err != nil {
		return reply{}, err
	}
	return a.persist(ctx, a.question())
}

// compact makes room: the results of tools from long ago are cut, and when that
// frees less than half of the context, the conversation is summed up.
func (a *agent) compact(ctx context.Context) error {
	if a.compacts++; a.compacts > maxCompacts {
		return &runtime.Error{Class: runtime.Refused, Reason: "the agent's conversation is too long for the model, however much is left out"}
	}
	before := a.expected()
	shorter, freed := cutResults(a.talk)
	if after := before - int64(freed/bytesPerToken); freed > 0 && after <= a.window/2 {
		a.talk, a.context, a.told = shorter, after, len(shorter)
		a.note(fmt.Sprintf("the context was nearly full: old results of tools were cut, %d KiB", freed>>10))
		return nil
	}
	return a.sumUp(ctx, shorter)
}

// cutResults cuts the results of tools but the newest, and with them the
// model's thoughts, which hold only behind what they followed.
func cutResults(talk []message) (shorter []message, freed int) {
	shorter = slices.Clone(talk)
	for i := range max(0, len(shorter)-keptMessages) {
		m := shorter[i]
		m.blocks = slices.Clone(m.blocks)
		for j, b := range m.blocks {
			if b.kind != toolResult || len(b.text) <= cutAbove && b.image == nil {
				continue
			}
			before := m.size()
			m.blocks[j].image = nil
			m.blocks[j].text = fmt.Sprintf("(%d bytes, cut to save room; use the tool again if you need them)", len(b.text))
			freed += before - m.size()
		}
		shorter[i] = m
	}
	if freed == 0 {
		return talk, 0
	}
	return withoutThoughts(shorter), freed
}

const summaryRequest = `The conversation is about to be cut, to save room. Do not use a tool now. Write down, for yourself, all that you need to go on
without what was said so far: the task as it was given, what you have found out, which files you read or changed and how, what has been tried
and failed, what is left to do, in order. Name files, functions and commands exactly.`

// sumUp has the model sum up and starts a new conversation from that.
func (a *agent) sumUp(ctx context.Context, talk []message) error {
	q := a.question()
	q.messages = goOn(slices.Clone(talk), summaryRequest)
	r, err := a.persist(ctx, q)
	if err != nil {
		return err
	}
	summary := strings.TrimSpace(message{blocks: r.blocks}.said())
	if summary == "" {
		return &runtime.Error{Class: runtime.Refused, Reason: "the context is full, and the model did not sum up what it knows"}
	}
	text := a.call.Task(false) + "\n\nYou have worked on this already. What you wrote down of it:\n\n" + summary
	a.talk = []message{say(text)}
	a.context, a.told = 0, 0
	a.note("the context was nearly full: the conversation was summed up")
	return nil
}
