package pipeline

import (
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// An Event is one line of a build's --json stream, made of a journal entry. The
// last line of a stream is a report.DoneEvent.
type Event struct {
	Event  string     `json:"event"` // phase, issue, call, land, debt, effect, gate, permit
	At     time.Time  `json:"at"`
	Build  string     `json:"build"`
	Key    string     `json:"key"`
	State  string     `json:"state"`
	Detail string     `json:"detail,omitempty"`
	Role   string     `json:"role,omitempty"`
	Model  string     `json:"model,omitempty"`
	Cost   report.USD `json:"cost_usd,omitzero"`
	Took   int64      `json:"took_ms,omitempty"`
	Debt   *debt.Item `json:"item,omitempty"`
	Type   []string   `json:"type,omitempty"` // of a gate or permit: the commands that people may type
}

// A SlotEvent is the line of a --json stream that says how a subagent stands.
type SlotEvent struct {
	Event string    `json:"event"` // slot
	At    time.Time `json:"at"`
	Build string    `json:"build"`
	Key   string    `json:"key"` // of the batch's slot: the transcript's name, which is its call's key
	slot
}

type slot = batch.Event

// NewSlotEvent tells of a slot of a run.
func NewSlotEvent(run string, e batch.Event) SlotEvent {
	return SlotEvent{Event: "slot", At: time.Now().UTC(), Build: run, Key: e.Transcript, slot: e}
}

// A Watch turns a journal into events, entry by entry.
type Watch struct {
	Fold *Fold
	last report.Build
}

// NewWatch is a watch on a build that has not begun.
func NewWatch() *Watch { return &Watch{Fold: NewFold()} }

// Add takes the next entry and returns what it tells: the entry itself, and
// every phase, issue, debt item and gate that is different because of it. A
// reserve tells nothing: the call that it is for does.
func (w *Watch) Add(e step.Entry) []Event {
	w.Fold.Add(e)
	if strings.HasPrefix(e.Key, agent.ReserveKey) {
		return nil
	}
	now := w.Fold.Report(e.At)
	out := []Event{w.entry(e, now.ID)}
	event := func(kind, key, state, detail string) {
		out = append(out, Event{Event: kind, At: e.At, Build: now.ID, Key: key, State: state, Detail: detail})
	}
	for i, s := range now.Stages {
		if i >= len(w.last.Stages) || w.last.Stages[i].State != s.State {
			event("phase", s.Name, s.State, s.Detail)
		}
	}
	for i, is := range now.Issues {
		if i >= len(w.last.Issues) || w.last.Issues[i].Outcome != is.Outcome {
			event("issue", is.Name, string(is.Outcome), is.Detail)
		}
	}
	known := map[debt.Item]bool{}
	for _, d := range w.last.Debt {
		known[d] = true
	}
	for _, d := range now.Debt {
		if !known[d] {
			event("debt", d.IssueName, string(d.Type), d.Justification)
			out[len(out)-1].Debt = &d
		}
	}
	if gate, changed := gateEvent(w.last, now); changed {
		gate.At = e.At
		out = append(out, gate)
	}
	for _, p := range now.Permits {
		if !slices.Contains(w.last.Permits, p) {
			event("permit", p.ID, "waiting", p.Type+": "+p.Description)
			for _, c := range report.PermitChoices(now, p) {
				out[len(out)-1].Type = append(out[len(out)-1].Type, c.Command)
			}
		}
	}
	w.last = now
	return out
}

// gateEvent tells that the build waits for somebody, or no longer: Key is the
// state that it waits in.
func gateEvent(before, now report.Build) (Event, bool) {
	was, is := report.WaitsFor(before), report.WaitsFor(now)
	if was == is {
		return Event{}, false
	}
	if is == "" {
		return Event{Event: "gate", Build: now.ID, Key: string(before.State), State: "over"}, true
	}
	out := Event{Event: "gate", Build: now.ID, Key: string(now.State), State: "waiting", Detail: is}
	for _, c := range report.Choices(now) {
		out.Type = append(out.Type, c.Command)
	}
	return out, true
}

func (w *Watch) entry(e step.Entry, build string) Event {
	out := Event{Event: "effect", At: e.At, Build: build, Key: e.Key, State: "done", Took: e.Duration.Milliseconds()}
	switch {
	case strings.HasPrefix(e.Key, "land/") && !strings.HasSuffix(e.Key, "/commands"):
		out.Event = "land"
		if !strings.HasSuffix(e.Key, "/advanced") {
			out.State = "chosen"
		}
	case e.Runtime != "":
		out.Event, out.Role, out.Model, out.Cost = "call", roleOf(e.Key), e.Model, report.USD(e.CostMicros)
	case strings.Contains(e.Key, "/commands"):
		out.Event, out.Role = "call", "engine"
	}
	return out
}
