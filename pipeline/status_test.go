package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// What the queue has buried needs a person, whatever its journal said last; what
// had ended keeps its end.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		was, want report.Build
	}{
		"at work": {
			report.Build{ID: "b-1", Ticket: 7, State: report.Running, Stages: []report.Stage{{Name: "plan", State: "done"}, {Name: "execute", State: "running"}}},
			report.Build{State: report.NeedsHuman, Cause: "the build was given up: no luck", Next: "/resume", Stages: []report.Stage{{Name: "plan", State: "done"}, {Name: "execute", State: "failed"}}},
		},
		"at a gate": {
			report.Build{ID: "b-1", State: report.WaitingApproval, Gate: &report.Gate{Kind: report.PlanGate}},
			report.Build{State: report.NeedsHuman, Cause: "the build was given up: no luck", Next: "slipway resume b-1"},
		},
		"stopped, and not at its end": {
			report.Build{ID: "b-1", Ticket: 7, Prefix: "@bot ", State: report.Running, Cause: "cancelled by mira"},
			report.Build{State: report.NeedsHuman, Cause: "cancelled by mira; the build was given up: no luck", Next: "@bot resume"},
		},
		"ended": {
			report.Build{ID: "b-1", State: report.Succeeded, Summary: "Done."},
			report.Build{State: report.Succeeded},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := GivenUp(c.was, "no luck")
			if got.State != c.want.State || got.Cause != c.want.Cause || got.Next != c.want.Next || got.Gate != nil || got.Summary != c.was.Summary {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			for i, s := range got.Stages {
				if s.State != c.want.Stages[i].State {
					t.Errorf("stage %s is %s, want %s", s.Name, s.State, c.want.Stages[i].State)
				}
			}
		})
	}
}

// A forge that wants to be asked later is asked later, by another claim: it has
// not failed, and three tries in a few seconds are no use.
func TestWhatIsToWaitIsNotTriedThrice(t *testing.T) {
	t.Parallel()
	tries := 0
	_, err := thrice(t.Context(), slog.New(slog.DiscardHandler), func(context.Context) (int, error) {
		tries++
		return 0, fmt.Errorf("ask for the clone URL: %w", forge.ErrLater)
	})
	if _, ended := errors.AsType[*initError](err); ended || !errors.Is(err, forge.ErrLater) || tries != 1 {
		t.Errorf("after %d tries: %v", tries, err)
	}
}
