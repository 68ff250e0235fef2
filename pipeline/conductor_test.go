package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// lives takes the build through as many processes as it takes: until says after
// how many appends they die. Each finds the state that the one before had.
func (s *saga) lives(t *testing.T, rt *rapid.T, execute func(context.Context) error, until ...int) {
	left := ""
	for n := 0; ; n++ {
		s.claim(t)
		if s.left = -1; n < len(until) {
			s.left = until[n]
		}
		if found := s.state(t); n > 0 && found != left {
			rt.Fatalf("a process found the state\n%s\nin place of\n%s", found, left)
		}
		err := s.live(t.Context(), execute)
		left = s.state(t)
		if s.watch.wrong != nil || err != nil && !errors.Is(err, errKilled) {
			rt.Fatalf("%v\n%s", errors.Join(s.watch.wrong, err), s.story())
		}
		if err == nil {
			break
		}
	}
	if s.watch.end(s); s.watch.wrong != nil {
		rt.Fatalf("%v\n%s", s.watch.wrong, s.story())
	}
}

// state is the state document.
func (s *saga) state(t *testing.T) string {
	text, err := s.fold.document()
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Builds that are killed and resumed, in which anything may happen at any time:
// after every entry of the journal the invariants hold. The script of make test
// tries ten thousand.
func TestDecisionsKeepTheInvariants(t *testing.T) {
	cases, saw := 0, map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		s := cast(rt)
		s.turns = s.dice("turns")
		kills := rapid.SliceOfN(rapid.IntRange(0, 50), 0, 2).Draw(rt, "kills")
		s.lives(t, rt, s.execute, kills...)
		cases++
		for what, n := range s.watch.saw {
			saw[what] += n
		}
	})
	t.Logf("%d builds: %v", cases, saw)
	if cases < 1000 {
		return // too few to tell
	}
	for _, what := range []string{
		"split", "fixes", "resume", "refused", "overtaken", "start without a dependency", "answered abort", "answered continue",
		"answered modify_dag", "answered reduce_scope", string(report.Skipped), string(report.FailedEscalated),
	} {
		if saw[what] == 0 {
			t.Errorf("in %d builds there was no %q", cases, what)
		}
	}
}

// The same with the conductor's own goroutines.
func TestARunKeepsTheInvariants(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := cast(rt)
		kills := rapid.SliceOfN(rapid.IntRange(0, 50), 0, 2).Draw(rt, "kills")
		s.lives(t, rt, func(ctx context.Context) error { return s.conductor().run(ctx) }, kills...)
	})
}

// A process that dies at any append and another that goes on decide what one
// that lives would have decided, in the same order, and end in the same state.
func TestADeathChangesNoDecision(t *testing.T) {
	chosen := func(s *saga) (choices []string) {
		for _, e := range s.journal.Choices() {
			choices = append(choices, e.Key+" "+string(e.Outcome))
		}
		return choices
	}
	rapid.Check(t, func(rt *rapid.T) {
		s := cast(rt)
		s.lives(t, rt, s.execute)
		choices, state := chosen(s), s.state(t)
		for _, at := range rapid.SliceOfN(rapid.IntRange(0, len(s.journal.Entries())-1), 1, 4).Draw(rt, "deaths") {
			other := &saga{seed: s.seed, plan: s.plan, conf: s.conf, odds: s.odds, rounds: s.rounds, segments: s.segments, watch: newWatch()}
			other.lives(t, rt, other.execute, at)
			if again := chosen(other); !slices.Equal(choices, again) {
				rt.Fatalf("died at append %d, and chose\n%s\nin place of\n%s", at, strings.Join(again, "\n"), strings.Join(choices, "\n"))
			}
			if ended := other.state(t); ended != state {
				rt.Fatalf("died at append %d, and ended as\n%s\nin place of\n%s", at, ended, state)
			}
		}
	})
}

// mishap is a saga in which the work on one issue does not end by itself.
type mishap struct {
	*saga
	name string
	how  func() error
}

func (f mishap) code(ctx context.Context, is graph.Issue) error {
	if is.Name == f.name {
		return f.how()
	}
	return f.saga.code(ctx, is)
}

func TestWhatStopsARun(t *testing.T) {
	broken := errors.New("the disk is full")
	for name, c := range map[string]struct {
		how  func() error
		want string // part of the error; empty: none
		stop bool
	}{
		"a lane that cannot go on": {how: func() error { return broken }, want: broken.Error()},
		"a panic in a lane":        {how: func() error { panic("index out of range") }, want: "index out of range"},
		"a budget that is spent":   {how: func() error { return fmt.Errorf("ask: %w", agent.ErrBudget) }, stop: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &saga{conf: config.Defaults(), watch: newWatch(), segments: 1, plan: []graph.Issue{issue("a", nil), issue("b", nil), issue("c", nil, "b")}}
			s.claim(t)
			s.left = -1
			err := s.live(t.Context(), func(ctx context.Context) error {
				conductor := s.conductor()
				conductor.hands = mishap{s, "a", c.how}
				return conductor.run(ctx)
			})
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if stop := s.fold.stopping(); (stop != nil) != c.stop || stop != nil && (!stop.Budget || stop.State != report.NeedsHuman) {
				t.Errorf("stopped as %+v", stop)
			}
			if a, c := s.fold.issues["a"].outcome(), s.fold.issues["c"].outcome(); a != report.InProgress || c.Final() && c != report.Completed {
				t.Errorf("a is %s, c is %s", a, c)
			}
			if b := s.fold.issues["b"]; c.stop && b.merge == "" {
				t.Errorf("b, which was paid for, is %s", b.outcome())
			}
		})
	}
}
