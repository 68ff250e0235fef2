package native

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An agent is one call at work. Its goroutine owns it; the tools of one turn
// that run side by side meet in listener only.
type agent struct {
	provider
	*listener
	guard    *runtime.Guard
	prices   runtime.Prices
	sessions *sessions
	call     runtime.Call
	model    string // in the provider's spelling
	idle     time.Duration
	tools    []tool // in the order in which the model sees them
	place    *place
	contract *contract // nil: any answer will do

	session  string
	talk     []message
	context  int64 // tokens that the last request and its reply took
	told     int   // messages that the provider has counted in context
	usage    runtime.Usage
	micros   int64
	unpriced bool
	turns    int
	repairs  int // of the answer, in this call
	compacts int
	text     []string
	output   json.RawMessage
	stop     string
}

const (
	defaultTurns = 150
	maxRepairs   = 2 // corrections of an answer inside one call
)

// hire prepares the agent of a call: who is asked, with what tools, about what.
func (r *Runtime) hire(c runtime.Call, emit func(runtime.Event)) (*agent, error) {
	p, model, err := r.find(c.Model)
	if err != nil {
		return nil, err
	}
	a := &agent{
		provider: p, listener: &listener{hide: r.hide, out: emit}, prices: r.prices, sessions: &r.sessions,
		call: c, model: model, idle: c.Idle, session: rand.Text(),
	}
	if a.idle <= 0 {
		a.idle = runtime.DefaultIdle
	}
	if a.call.MaxTurns <= 0 {
		a.call.MaxTurns = defaultTurns
	}
	if len(c.Schema) > 0 {
		if a.contract, err = newContract(c.Schema); err != nil {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: fmt.Sprintf("the schema of the answer cannot be read: %v", err), Err: err}
		}
	}
	a.tools = r.offer(c, a.contract)
	if a.place, err = open(c, r.box); err != nil {
		return nil, &runtime.Error{Class: runtime.Refused, Reason: fmt.Sprintf("the agent's directory cannot be opened: %v", err), Err: err}
	}
	a.talk = a.opening()
	return a, nil
}

// offer lists the tools of a call: those that its role was granted, those of the
// caller, and the one to answer with.
func (r *Runtime) offer(c runtime.Call, answer *contract) []tool {
	var tools []tool
	for _, name := range c.Tools {
		t, known := r.tools[name]
		if known && !slices.ContainsFunc(tools, func(have tool) bool { return have.name == t.name }) {
			tools = append(tools, t)
		}
	}
	for _, f := range c.Functions {
		tools = append(tools, ofCaller(f))
	}
	if answer != nil {
		tools = append(tools, answer.tool())
	}
	return tools
}

// work is the loop: ask, do what the model wants done, tell it what came out.
func (a *agent) work(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if a.turns >= a.call.MaxTurns {
			a.stop = "max_turns"
			return &runtime.Error{Class: runtime.Refused, Reason: fmt.Sprintf("the agent used up its %d turns", a.call.MaxTurns)}
		}
		if err := a.fit(ctx); err != nil {
			return err
		}
		r, err := a.persist(ctx, a.question())
		if overflows(err) {
			r, err = a.squeeze(ctx)
		}
		if err != nil {
			return err
		}
		done, err := a.respond(ctx, r)
		if a.unpriced { // nor did its provider say what it took
			if failure := a.prices.Bounded(a.model, a.call.BudgetMicros); failure != nil {
				return failure
			}
		}
		if done || err != nil {
			return err
		}
	}
}

func (a *agent) question() question {
	return question{
		model: a.model, system: a.call.System, effort: a.call.Effort, tools: a.tools, messages: a.talk, heard: a.guard.Alive,
	}
}

// afford says why no further request is made: the next one costs at least what
// it takes to read again what was said so far.
func (a *agent) afford() error {
	budget := a.call.BudgetMicros
	if budget <= 0 {
		return nil
	}
	again, _ := a.prices.RequestCost(a.model, runtime.Usage{CacheRead: a.context})
	if a.micros+again < budget {
		return nil
	}
	a.stop = "budget"
	return &runtime.Error{Class: runtime.Refused, Reason: fmt.Sprintf("the agent used up its budget of $%d.%06d", budget/1_000_000, budget%1_000_000)}
}

// respond takes what the model said and prepares what it is told next. done is
// true when there is no next.
func (a *agent) respond(ctx context.Context, r reply) (done bool, err error) {
	a.turns++
	a.tell(r)
	said := message{model: true, blocks: r.blocks}
	if len(r.blocks) > 0 {
		a.talk = append(a.talk, said)
	}
	a.context, a.told = r.usage.Input+r.usage.CacheRead+r.usage.CacheWrite+r.usage.Output, len(a.talk)
	calls := said.calls()
	switch {
	case r.stop == stopRefused:
		a.stop = "refusal"
		return true, &runtime.Error{Class: runtime.Refused, Reason: "the model refuses to go on: " + clip(said.said(), 500)}
	case len(calls) > 0:
		results, done := a.use(ctx, calls)
		a.talk = append(a.talk, message{blocks: results})
		return done, nil
	case r.stop == stopLength || r.stop == stopWindow:
		a.talk = append(a.talk, say("Your message was cut off at the limit of its length. Go on in smaller steps."))
		return false, nil
	}
	return a.conclude(said.said()), nil
}

// conclude takes the words with which a model ended as its answer, or asks for
// the answer that it still owes.
func (a *agent) conclude(said string) (done bool) {
	a.stop = string(stopDone)
	value, found := runtime.LastJSON(said)
	if !found {
		value = nil
	}
	if a.contract == nil {
		a.output = value
		return true
	}
	problem := "you ended without an answer"
	if found {
		if problem = a.contract.check(value); problem == "" {
			a.output = value
			return true
		}
	}
	if a.repairs == maxRepairs {
		a.output = value // the caller may still have it repaired
		return true
	}
	a.repairs++
	a.talk = append(a.talk, say("Your answer is missing: "+problem+". Use the tool "+answerName+" for it."))
	return false
}

// spend adds what a request took, also one that failed on the way.
func (a *agent) spend(r reply) {
	a.usage.Input += r.usage.Input
	a.usage.Output += r.usage.Output
	a.usage.CacheRead += r.usage.CacheRead
	a.usage.CacheWrite += r.usage.CacheWrite
	if r.usage == (runtime.Usage{}) {
		return
	}
	used := r.usage
	a.emit(runtime.Event{Kind: runtime.Usages, Usage: &used})
	micros, known := runtime.Micros(r.cost)
	if !known {
		micros, known = a.prices.RequestCost(a.model, r.usage)
	}
	a.micros += micros
	if !known && !a.unpriced {
		a.unpriced = true
		a.note("no price is known of " + a.call.Model + ": its cost counts as nothing")
	}
}

// leave returns the result, and keeps the conversation for who wants to go on.
func (a *agent) leave() runtime.Result {
	a.place.close()
	res := runtime.Result{
		Output: a.output, Text: strings.Join(a.text, "\n"), Usage: a.usage, CostMicros: a.micros, Turns: a.turns,
		Denials: a.refused(), Stop: a.stop,
	}
	if a.turns > 0 {
		res.Session = a.session
		a.sessions.keep(a.session, conversation{model: a.call.Model, system: a.call.System, tools: names(a.tools), talk: a.talk})
	}
	if res.Stop == "" {
		res.Stop = "error"
	}
	return res
}

// tell reports a reply to the listener.
func (a *agent) tell(r reply) {
	for _, b := range r.blocks {
		switch b.kind {
		case words:
			a.text = append(a.text, b.text)
			a.emit(runtime.Event{Kind: runtime.Text, Text: b.text})
		case thought:
			if b.text != "" {
				a.emit(runtime.Event{Kind: runtime.Thinking, Text: b.text})
			}
		}
	}
}

// A listener is told what happens, by one goroutine at a time and without
// secrets.
type listener struct {
	hide *runtime.Redactor
	out  func(runtime.Event)

	mu     sync.Mutex
	denied []string
}

func (l *listener) emit(e runtime.Event) {
	e = l.hide.Event(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out(e)
}

func (l *listener) note(text string) { l.emit(runtime.Event{Kind: runtime.Notice, Text: text}) }

// deny counts the use of a tool that the agent does not have.
func (l *listener) deny(tool string) {
	l.mu.Lock()
	l.denied = append(l.denied, tool)
	l.mu.Unlock()
	l.note("the tool " + tool + " was refused")
}

func (l *listener) refused() []string {
	return slices.Compact(slices.Sorted(slices.Values(l.denied)))
}

// clip cuts text for people to about n bytes.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
