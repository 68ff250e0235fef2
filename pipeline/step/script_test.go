package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// A stage is a run that retraces a journal, in a bubble where time is virtual.
type stage struct {
	t       *testing.T
	script  *step.Script
	log     *step.Memory
	journal *step.Journal
	ctx     context.Context
}

// retrace runs a test on a script of the entries; what the test starts ends with
// it.
func retrace(t *testing.T, o step.ScriptOptions, test func(*stage)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		s := &stage{t: t, script: step.NewScript(o), log: &step.Memory{}, ctx: ctx}
		var watch sync.WaitGroup
		watch.Go(func() { s.script.Watch(ctx) })
		var err error
		if s.journal, err = s.log.Open(ctx, step.Options{Script: s.script}); err != nil {
			t.Fatal(err)
		}
		test(s)
		stop()
		watch.Wait()
	})
}

var begin = time.Date(2026, 5, 1, 8, 0, 0, 0, time.UTC)

// entry is one that ended so many seconds after the beginning, and took some.
func entry(kind queue.EntryKind, key string, at, took int) step.Entry {
	return step.Entry{
		Key: key, Kind: kind, Outcome: json.RawMessage(`"was"`),
		At: begin.Add(time.Duration(at) * time.Second), Duration: time.Duration(took) * time.Second,
	}
}

func (s *stage) do(key string, fn func(context.Context) (string, error)) (string, error) {
	return step.Do(s.ctx, s.journal, key, fn)
}

func now(context.Context) (string, error) { return "now", nil }

func (s *stage) keys() (keys []string) {
	for _, e := range s.log.Entries() {
		keys = append(keys, e.Key)
	}
	return keys
}

// Whoever is first, things begin and end in the order in which they did.
func TestScriptKeepsTheOrder(t *testing.T) {
	entries := []step.Entry{
		entry(queue.Call, "b", 5, 4),    // from 1 to 5
		entry(queue.Call, "a", 6, 6),    // from 0 to 6
		entry(queue.Choice, "c", 7, 0),  //
		entry(queue.Effect, "d", 10, 2), // from 8
	}
	retrace(t, step.ScriptOptions{Entries: entries}, func(s *stage) {
		var mu sync.Mutex
		var order []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			order = append(order, what)
		}
		var all sync.WaitGroup
		for _, key := range []string{"d", "b", "a"} { // a began first
			if len(order) > 0 {
				t.Errorf("before %s: %v", key, order)
			}
			all.Go(func() {
				_, err := s.do(key, func(context.Context) (string, error) { note("begin " + key); return "now", nil })
				note("end " + key)
				if err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Go(func() {
			if got, err := step.Choose(s.ctx, s.journal, "c", "now"); got != "was" || err != nil {
				t.Errorf("chose %q, %v: want what was chosen", got, err)
			}
		})
		all.Wait()
		if got := s.keys(); !slices.Equal(got, []string{"b", "a", "c", "d"}) {
			t.Errorf("recorded %v", got)
		}
		if slices.Index(order, "begin d") != 4 {
			t.Errorf("in the order %v", order)
		}
		if _, more := s.script.Next(); more {
			t.Error("the script has not ended")
		}
	})
}

func TestScriptGivesWhatCameFromOutside(t *testing.T) {
	o := step.ScriptOptions{
		Entries: []step.Entry{entry(queue.Effect, "pull", 1, 1), entry(queue.Choice, "land", 2, 0), entry(queue.Call, "own", 3, 1)},
		Given:   func(e step.Entry) bool { return e.Key == "pull" },
		Dated:   func(e step.Entry) bool { return e.Key == "land" },
	}
	var chosen string
	o.Chosen = func(_ step.Entry, own json.RawMessage) { chosen = string(own) }
	retrace(t, o, func(s *stage) {
		got, err := step.Effect(s.ctx, s.journal, "pull", func(context.Context) (string, error) { t.Error("it was done again"); return "", nil })
		if got != "was" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if _, err := step.Choose(s.ctx, s.journal, "land", "now"); err != nil || chosen != `"now"` {
			t.Errorf("%v; heard of %s", err, chosen)
		}
		got, err = s.do("own", func(ctx context.Context) (string, error) {
			was, ok := step.Retraced(ctx)
			return fmt.Sprint(was.Key, ok), nil
		})
		if got != "owntrue" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		if at := s.log.Entries()[1].At; !at.Equal(begin.Add(2 * time.Second)) {
			t.Errorf("the choice is of %s", at)
		}
		if at := s.log.Entries()[2].At; at.Equal(begin.Add(3 * time.Second)) {
			t.Error("a call keeps its time")
		}
	})
}

func TestDecideWaitsItsTurn(t *testing.T) {
	entries := []step.Entry{entry(queue.Call, "first", 1, 1), entry(queue.Choice, "second", 2, 0)}
	retrace(t, step.ScriptOptions{Entries: entries}, func(s *stage) {
		grown := s.journal.Grown()
		if _, err := step.Decide(s.ctx, s.journal, "second", "now"); !errors.Is(err, step.ErrNotYet) {
			t.Errorf("Decide = %v, want ErrNotYet", err)
		}
		if _, err := s.do("first", now); err != nil {
			t.Fatal(err)
		}
		<-grown
		if got, err := step.Decide(s.ctx, s.journal, "second", "now"); got != "was" || err != nil {
			t.Errorf("Decide = %q, %v", got, err)
		}
		if got, err := step.Decide(s.ctx, s.journal, "second", "again"); got != "was" || err != nil {
			t.Errorf("once more: %q, %v", got, err)
		}
	})
	log := &step.Memory{}
	j, err := log.Open(t.Context(), step.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := step.Decide(t.Context(), j, "any", "now"); got != "now" || err != nil || j.Grown() != nil {
		t.Errorf("without a script: %q, %v", got, err)
	}
}

// A stop that a clock chose, a call that it cut off.
func TestScriptHelpsWhereNothingHappens(t *testing.T) {
	entries := []step.Entry{entry(queue.Call, "first", 1, 1), entry(queue.Choice, "stop", 2, 0), entry(queue.Call, "last", 4, 1)}
	retrace(t, step.ScriptOptions{Entries: entries}, func(s *stage) {
		if _, err := s.do("first", now); err != nil {
			t.Fatal(err)
		}
		ctx, cut := context.WithCancel(s.ctx)
		began, ended := make(chan struct{}), make(chan error)
		go func() {
			_, err := step.Do(ctx, s.journal, "cut off", func(ctx context.Context) (string, error) {
				close(began)
				<-ctx.Done()
				return "", ctx.Err()
			})
			ended <- err
		}()
		<-began // of which the journal does not tell
		cut()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
		if _, err := s.do("last", now); err != nil { // after the stop, which nobody comes for
			t.Fatal(err)
		}
		if got := s.keys(); !slices.Equal(got, []string{"first", "stop", "last"}) {
			t.Errorf("recorded %v", got)
		}
		if got, err := step.Choose(s.ctx, s.journal, "stop", "now"); got != "was" || err != nil {
			t.Errorf("it was stopped by %q, %v", got, err)
		}
	})
}

func TestScriptTellsWhereItIsLeft(t *testing.T) {
	entries := []step.Entry{entry(queue.Call, "first", 1, 1), entry(queue.Call, "second", 2, 1)}
	retrace(t, step.ScriptOptions{Entries: entries}, func(s *stage) {
		if _, err := s.do("first", now); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := s.do("another", now)
		left, ok := errors.AsType[*step.Departure](err)
		if !ok || left.Due != "second" || !slices.Equal(left.Asked, []string{"another"}) || !strings.Contains(err.Error(), "second comes next") {
			t.Errorf("%v", err)
		}
		if took := time.Since(start); took > 15*time.Second {
			t.Errorf("it took %s to see", took)
		}
		if _, err := s.do("second", now); !errors.Is(err, left) {
			t.Errorf("afterwards: %v", err)
		}
	})
	retrace(t, step.ScriptOptions{Entries: entries[:1]}, func(s *stage) {
		if _, err := s.do("first", now); err != nil {
			t.Fatal(err)
		}
		if _, err := s.do("more", now); err == nil || !strings.Contains(err.Error(), "had ended: it asks for more") {
			t.Errorf("at the end: %v", err)
		}
	})
}

// A record whose commit was lost was made anew: the last one counts.
func TestScriptOfLostRecords(t *testing.T) {
	old, renewed := entry(queue.Call, "a", 1, 1), entry(queue.Call, "a@2", 3, 1)
	renewed.Commit = "new"
	retrace(t, step.ScriptOptions{Entries: []step.Entry{old, entry(queue.Call, "b", 2, 1), renewed}}, func(s *stage) {
		for _, key := range []string{"b", "a"} {
			_, err := s.do(key, func(ctx context.Context) (string, error) {
				if was, _ := step.Retraced(ctx); key == "a" && was.Commit != "new" {
					t.Errorf("a was at %q", was.Commit)
				}
				return "now", nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}
