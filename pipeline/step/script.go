package step

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/queue"
)

// A Script has a run retrace a journal that is there: what began and ended in
// some order does so again, and what timing decided is decided as it was. So the
// run differs from the first one only where it decides otherwise itself. It
// serves one run, of one or several claims.
//
// Where nothing happens any more, the script helps: it lets begin what the
// journal does not tell of, such as a call that was cancelled, and records itself
// what nobody came for that is a choice or Given. When that does not help
// either, the run has left the script, and every call of it ends with a
// *Departure.
type Script struct {
	given  func(Entry) bool
	dated  func(Entry) bool
	chosen func(recorded Entry, own json.RawMessage)

	mu       sync.Mutex
	journal  *Journal // of the newest claim
	byKey    map[string]Entry
	events   []event // in order
	next     int     // of them
	waiting  map[event]int
	telling  string          // the key that the script is recording itself
	told     map[string]bool // the keys that it has
	free     map[string]bool // keys out of the script that may begin
	busy     int             // functions at work
	moved    time.Time
	changed  chan struct{} // closed at the next change
	departed *Departure
}

// ScriptOptions say what is retraced, and how.
type ScriptOptions struct {
	Entries []Entry
	// Given says of which calls and effects the outcome is taken as it is
	// recorded, without doing what led to it; nil: of none.
	Given func(Entry) bool
	// Dated says which entries keep the time that is recorded; nil: none does.
	Dated func(Entry) bool
	// Chosen hears what the run would have chosen in a choice's place; nil: nobody does.
	Chosen func(recorded Entry, own json.RawMessage)
}

// A Departure says where a run left its script.
type Departure struct {
	Due   string   // the key that came next; empty at the end of the script
	Asked []string // the keys that the run asked for instead
}

// Error names the keys.
func (d *Departure) Error() string {
	asked := strings.Join(d.Asked, ", ")
	if asked == "" {
		asked = "nothing"
	}
	if d.Due == "" {
		return "the run goes on where the recorded one had ended: it asks for " + asked
	}
	return fmt.Sprintf("%s comes next, and the run asks for %s", d.Due, asked)
}

// ErrNotYet is what Decide answers where the choice is not due.
var ErrNotYet = errors.New("the script has another entry before this choice")

const (
	helpAfter   = time.Second      // of nothing, the script helps
	departAfter = 10 * time.Second // of nothing while something waits, the run has left it
	giveUpAfter = 2 * time.Minute  // of nothing at all: something may be at work outside of any call
)

// An event is the begin or the end of what an entry records.
type event struct {
	key string
	end bool
}

// NewScript makes the script of a journal.
func NewScript(o ScriptOptions) *Script {
	never := func(Entry) bool { return false }
	s := &Script{
		given: o.Given, dated: o.Dated, chosen: o.Chosen, byKey: map[string]Entry{}, waiting: map[event]int{},
		told: map[string]bool{}, free: map[string]bool{}, moved: time.Now(), changed: make(chan struct{}),
	}
	if s.given == nil {
		s.given = never
	}
	if s.dated == nil {
		s.dated = never
	}
	if s.chosen == nil {
		s.chosen = func(Entry, json.RawMessage) {}
	}
	var entries []Entry
	for _, e := range o.Entries {
		e.Key = again.ReplaceAllString(e.Key, "")
		if _, known := s.byKey[e.Key]; known { // its first record lost its commit: the last one counts
			entries = slices.DeleteFunc(entries, func(old Entry) bool { return old.Key == e.Key })
		}
		s.byKey[e.Key] = e
		entries = append(entries, e)
	}
	s.events = s.order(entries)
	return s
}

// order puts the begins among the ends: before the first end that came later.
func (s *Script) order(entries []Entry) []event {
	var begins []Entry
	for _, e := range entries {
		if e.Kind != queue.Choice && !s.given(e) {
			begins = append(begins, e)
		}
	}
	began := func(e Entry) time.Time { return e.At.Add(-e.Duration) }
	slices.SortStableFunc(begins, func(a, b Entry) int { return began(a).Compare(began(b)) })
	var events []event
	for _, e := range entries {
		for len(begins) > 0 && (began(begins[0]).Before(e.At) || begins[0].Key == e.Key) {
			events = append(events, event{key: begins[0].Key})
			begins = begins[1:]
		}
		events = append(events, event{key: e.Key, end: true})
	}
	return events
}

// Next returns the entry that is due, and false at the end of the script.
func (s *Script) Next() (Entry, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next == len(s.events) {
		return Entry{}, false
	}
	return s.byKey[s.events[s.next].key], true
}

// Watch helps the run until ctx ends.
func (s *Script) Watch(ctx context.Context) {
	tick := time.NewTicker(helpAfter / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.help(ctx)
		}
	}
}

// help does one thing for a run in which nothing happens.
func (s *Script) help(ctx context.Context) {
	s.mu.Lock()
	quiet := time.Since(s.moved)
	if s.departed != nil || s.busy > 0 || quiet < helpAfter || s.next == len(s.events) && len(s.waiting) == 0 {
		s.mu.Unlock()
		return
	}
	for e := range s.waiting {
		if _, known := s.byKey[e.key]; !known && !e.end && !s.free[e.key] {
			s.free[e.key] = true
			s.move()
			s.mu.Unlock()
			return
		}
	}
	var due Entry
	if s.next < len(s.events) {
		due = s.byKey[s.events[s.next].key]
	}
	if due.Key != "" && (due.Kind == queue.Choice || s.given(due)) && s.journal != nil && s.waiting[event{due.Key, true}] == 0 {
		s.telling = due.Key
		j := s.journal
		s.mu.Unlock()
		_, err := j.write(ctx, s.copy(due))
		s.tell(due.Key, err)
		return
	}
	left := quiet > giveUpAfter || quiet > departAfter && len(s.waiting) > 0
	s.mu.Unlock()
	if left {
		s.depart()
	}
}

// tell ends the recording of what the script recorded itself.
func (s *Script) tell(key string, err error) {
	if err != nil {
		s.depart() // the journal can take no more
		return
	}
	s.mu.Lock()
	s.telling, s.told[key] = "", true
	s.mu.Unlock()
	s.recorded(key)
}

func (s *Script) depart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := &Departure{}
	if s.next < len(s.events) {
		d.Due = s.events[s.next].key
	}
	for e := range s.waiting {
		d.Asked = append(d.Asked, e.key)
	}
	slices.Sort(d.Asked)
	s.departed = d
	s.move()
}

// move tells everyone who waits to look again. The caller holds mu.
func (s *Script) move() {
	s.moved = time.Now()
	close(s.changed)
	s.changed = make(chan struct{})
}

// copy is a recorded entry as the run records it.
func (s *Script) copy(e Entry) Entry {
	if !s.dated(e) {
		e.At = time.Now().UTC()
	}
	e.Seq = 0
	return e
}

// retracing marks the context of a function at work.
type retracing struct{ entry Entry }

type retracingKey struct{}

// Retraced returns what a script has recorded of the call or effect that ctx
// belongs to.
func Retraced(ctx context.Context) (Entry, bool) {
	r, ok := ctx.Value(retracingKey{}).(retracing)
	return r.entry, ok && r.entry.Key != ""
}

// begin waits until key may begin, and returns the context to work in. Where
// there is nothing to do, given is the entry to record.
func (s *Script) begin(ctx context.Context, key string) (work context.Context, given Entry, err error) {
	e, known := s.byKey[key]
	if known && s.given(e) {
		return ctx, s.copy(e), nil
	}
	if _, err := s.wait(ctx, event{key: key}); err != nil {
		return ctx, Entry{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	if known {
		s.next++
	}
	s.move()
	return context.WithValue(ctx, retracingKey{}, retracing{e}), Entry{}, nil
}

// worked says that a function has returned.
func (s *Script) worked() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.move()
}

// end waits until e may be recorded, and returns it as it is to be. told says
// that the script has recorded it already.
func (s *Script) end(ctx context.Context, e Entry) (as Entry, told bool, err error) {
	recorded, known := s.byKey[e.Key]
	_, inside := ctx.Value(retracingKey{}).(retracing)
	if known && !inside && e.Kind != queue.Choice {
		ctx = context.WithoutCancel(ctx) // it was recorded though the build was stopped
	}
	if told, err = s.wait(ctx, event{e.Key, true}); err != nil {
		return e, told, err
	}
	if e.Kind == queue.Choice {
		s.chosen(recorded, e.Outcome)
		e.Outcome = recorded.Outcome
	}
	if s.dated(recorded) {
		e.At = recorded.At
	}
	return e, told, nil
}

// recorded says that the entry of key is in the run's journal.
func (s *Script) recorded(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next < len(s.events) && s.events[s.next] == (event{key, true}) {
		s.next++
	}
	s.move()
}

// wait returns when the event is due. A function at work that waits is idle.
func (s *Script) wait(ctx context.Context, e event) (told bool, err error) {
	_, inside := ctx.Value(retracingKey{}).(retracing)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[e]++
	if inside {
		s.busy--
	}
	defer func() {
		if inside {
			s.busy++
		}
		if s.waiting[e]--; s.waiting[e] == 0 {
			delete(s.waiting, e)
		}
	}()
	for {
		switch {
		case s.departed != nil:
			return false, s.departed
		case e.end && s.told[e.key]:
			return true, nil
		case s.next < len(s.events) && s.events[s.next] == e && s.telling != e.key:
			return false, nil
		case !e.end && s.free[e.key]:
			return false, nil
		}
		changed := s.changed
		s.mu.Unlock()
		select {
		case <-ctx.Done():
			s.mu.Lock()
			return false, context.Cause(ctx)
		case <-changed:
		}
		s.mu.Lock()
	}
}

// isDue reports whether the end of key is what comes next.
func (s *Script) isDue(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.next < len(s.events) && s.events[s.next] == (event{key, true})
}
