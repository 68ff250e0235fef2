package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// permitted is a subagent that a person is asked about before it starts, and
// what came of that.
type permitted struct {
	Call        string `json:"call"` // the agent that wants it
	Batch       string `json:"batch"`
	Slot        int    `json:"slot"`
	Type        string `json:"subagent_type"`
	Description string `json:"description"`

	id      string
	consent consent
	by      string // who gave it
}

type consent int

const (
	undecided consent = iota
	allowed
	refused
	moot // the agent that wanted it has ended
)

// permit asks a person about a subagent and returns when it may start. The
// first that asked is the first that is shown. Its time is the agent's: who
// answers later than that is told that nothing waits any more.
func (b *build) permit(ctx context.Context, e batch.Event, what batch.Assignment) error {
	p := permitted{Call: e.Call, Batch: e.Batch, Slot: e.Slot, Type: e.Type, Description: what.Description}
	id := digestOf(p)[:12]
	if _, err := step.Choose(ctx, b.journal, b.fold.key(keyPermit(id)), p); err != nil {
		return err
	}
	for {
		said := b.spoken.next()
		switch decided, who := b.fold.consentTo(id); decided {
		case allowed:
			return nil
		case refused:
			return errors.New(by("refused", who))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-said:
		}
	}
}

// spoken tells that a person has said something to the build.
type spoken struct {
	mu   sync.Mutex
	come chan struct{}
}

// next is closed when the next word has come.
func (w *spoken) next() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.come == nil {
		w.come = make(chan struct{})
	}
	return w.come
}

func (w *spoken) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.come != nil {
		close(w.come)
		w.come = nil
	}
}

// want takes a question about a subagent.
func (f *Fold) want(e step.Entry) error {
	p := &permitted{id: strings.TrimPrefix(e.Key, keyPermit(""))}
	f.permits = append(f.permits, p)
	return json.Unmarshal(e.Outcome, p)
}

// permitNamed is the subagent that a person means by the beginning of an id, if
// one waits.
func (f *Fold) permitNamed(id string) *permitted {
	for _, p := range f.permits {
		if p.consent == undecided && namesPermit(p.id, id) {
			return p
		}
	}
	return nil
}

func namesPermit(id, typed string) bool {
	return len(typed) >= minHash && strings.HasPrefix(id, strings.ToLower(typed))
}

func (f *Fold) consentTo(id string) (consent, string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.permits {
		if p.id == id {
			return p.consent, p.by
		}
	}
	return undecided, ""
}

// settlePermits ends the questions of an agent that has ended.
func (f *Fold) settlePermits(call string) {
	for _, p := range f.permits {
		if p.Call == call && p.consent == undecided {
			p.consent = moot
		}
	}
}

// permitLines are the subagents that wait for a person, the oldest first.
func (f *Fold) permitLines() (lines []report.Permit) {
	if f.stop != nil || f.end != nil {
		return nil
	}
	for _, p := range f.permits {
		if p.consent == undecided {
			lines = append(lines, report.Permit{ID: p.id, Call: p.Call, Slot: p.Slot, Type: p.Type, Description: p.Description})
		}
	}
	return lines
}

// permitRefusal says why what a person typed names no subagent that waits, or
// nothing.
func permitRefusal(b report.Build, verb, typed string) string {
	if slices.ContainsFunc(b.Permits, func(p report.Permit) bool { return namesPermit(p.ID, typed) }) {
		return ""
	}
	first := b.Permits[0]
	return fmt.Sprintf("%d of the build's subagents wait for a word; name the one that is meant: %s %s", len(b.Permits), verb, first.ID)
}
