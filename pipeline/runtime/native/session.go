package native

import (
	"slices"
	"sync"
)

// The conversations that are kept: the newest, within both bounds.
const (
	maxSessions     = 1024
	maxSessionBytes = 64 << 20
)

// A conversation is what a session remembers.
type conversation struct {
	model  string
	system string
	tools  []string
	talk   []message
}

// sessions keep conversations by name. Its methods may be called from anywhere.
type sessions struct {
	mu    sync.Mutex
	kept  map[string]conversation
	order []string // the oldest first
	bytes int
}

// keep remembers a conversation and forgets the oldest beyond the bounds.
func (s *sessions) keep(name string, c conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kept == nil {
		s.kept = make(map[string]conversation)
	}
	s.kept[name] = c
	s.order = append(s.order, name)
	s.bytes += c.size()
	for len(s.order) > maxSessions || s.bytes > maxSessionBytes {
		s.forget(s.order[0])
	}
}

// take hands a conversation over: one call goes on with it, and no other.
func (s *sessions) take(name string) (conversation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.kept[name]
	if ok {
		s.forget(name)
	}
	return c, ok
}

// forget drops a conversation. The caller holds mu.
func (s *sessions) forget(name string) {
	s.bytes -= s.kept[name].size()
	delete(s.kept, name)
	s.order = slices.DeleteFunc(s.order, func(n string) bool { return n == name })
}

func (c conversation) size() int {
	n := 0
	for _, m := range c.talk {
		n += m.size()
	}
	return n
}

// opening is the conversation that a call starts with: that of its session with
// one message more, or a new one.
func (a *agent) opening() []message {
	before, found := a.sessions.take(a.call.Session)
	if !found {
		return []message{say(a.call.Task(false))}
	}
	a.session = a.call.Session
	talk := before.talk
	if before.model != a.call.Model || before.system != a.call.System || !slices.Equal(before.tools, names(a.tools)) {
		talk = withoutThoughts(talk)
	}
	return goOn(slices.Clone(talk), a.call.Task(true))
}

// goOn adds a message to a conversation wherever it was left: a tool call that
// has no result gets one, and two messages of the user become one.
func goOn(talk []message, text string) []message {
	next := say(text)
	if len(talk) == 0 {
		return []message{next}
	}
	last := talk[len(talk)-1]
	if !last.model {
		last.blocks = append(slices.Clone(last.blocks), next.blocks...)
		talk[len(talk)-1] = last
		return talk
	}
	var results []block
	for _, c := range last.calls() {
		results = append(results, block{kind: toolResult, id: c.id, text: "(not done)", failed: true})
	}
	next.blocks = append(results, next.blocks...)
	return append(talk, next)
}
