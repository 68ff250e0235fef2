package github_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

func TestGone(t *testing.T) {
	t.Parallel()
	closed := "closed"
	access := githubsim.Access{App: "slipway-test", Account: "o", Repos: []string{"r"}, By: "o"}
	for name, c := range map[string]struct {
		happens func(*world) error
		want    string
	}{
		"nothing": {func(*world) error { return nil }, ""},
		"the ticket is closed": {func(w *world) error {
			_, err := w.sim.EditTicket(w.Context(), githubsim.TicketEdit{Repo: "o/r", Number: w.ticket, State: &closed, By: "o"})
			return err
		}, "the ticket was closed"},
		"uninstalled": {func(w *world) error { _, err := w.sim.Uninstall(w.Context(), access); return err }, "the App was uninstalled"},
		"suspended":   {func(w *world) error { _, err := w.sim.Suspend(w.Context(), access); return err }, "the App was suspended"},
		"withdrawn":   {func(w *world) error { _, err := w.sim.Withdraw(w.Context(), access); return err }, "the App does not reach the repository any more"},
		"renamed": {func(w *world) error {
			_, err := w.sim.Rename(w.Context(), githubsim.Renaming{Repo: "o/r", Name: "renamed", By: "o"})
			return err
		}, "the repository is o/renamed now, where it can go on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			must(t, c.happens(w))
			ticket := forge.Ticket{Number: w.ticket, Taken: time.Now().Add(-time.Minute)}
			gone, err := w.app.Gone(t.Context(), w.repo, ticket, 0)
			if err != nil || gone.Why != c.want {
				t.Errorf("Gone = %+v, %v; want %q", gone, err, c.want)
			}
			ticket.Taken = time.Now().Add(time.Minute)
			gone, err = w.app.Gone(t.Context(), w.repo, ticket, 0)
			if still := c.want == "the ticket was closed"; err != nil || (gone.Why == "") != (still || c.want == "") {
				t.Errorf("of what was asked for later, Gone = %+v, %v", gone, err)
			}
			// GitHub counts in seconds: of an open ticket that is closed now, no time is asked.
			ticket.State = "open"
			if gone, err = w.app.Gone(t.Context(), w.repo, ticket, 0); err != nil || gone.Why != c.want {
				t.Errorf("of what was open in the same second, Gone = %+v, %v; want %q", gone, err, c.want)
			}
		})
	}
}

// What cannot be asked is not gone: a build is not cancelled for GitHub's stumbling.
func TestGoneIsNotSaidOfWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for _, code := range []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotImplemented} {
		w := newWorld(t)
		w.mu.Lock()
		w.intercept = func(rw http.ResponseWriter, _ *http.Request) bool { rw.WriteHeader(code); return true }
		w.mu.Unlock()
		gone, err := w.app.Gone(t.Context(), w.repo, forge.Ticket{Number: w.ticket}, 0)
		if err == nil || gone.Why != "" {
			t.Errorf("%d: Gone = %+v, %v", code, gone, err)
		}
	}
}

// Deliveries pages through all that GitHub lists, and no further than it is asked.
func TestDeliveries(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	const labels = 70 // each a webhook when it is put on and one when it is taken off
	for i := range labels {
		name := fmt.Sprintf("label-%d", i)
		_, err := o.sim.Label(t.Context(), githubsim.Labelling{Repo: "o/r", Number: o.ticket, Label: name, By: "mona"})
		must(t, err)
		_, err = o.sim.Unlabel(t.Context(), githubsim.Labelling{Repo: "o/r", Number: o.ticket, Label: name, By: "mona"})
		must(t, err)
	}
	o.work()
	all, err := o.app.Deliveries(t.Context(), time.Now().Add(-time.Hour))
	must(t, err)
	known := o.sim.Deliveries()
	if len(all) != len(known) || len(all) < 2*labels {
		t.Fatalf("%d deliveries, want the %d that were sent", len(all), len(known))
	}
	seen := map[string]bool{}
	for i, d := range all {
		if i > 0 && d.At.After(all[i-1].At) || d.GUID == "" || d.Event == "" || seen[d.GUID] {
			t.Fatalf("delivery %d: %+v after %+v", i, d, all[max(i-1, 0)])
		}
		seen[d.GUID] = true
	}
	none, err := o.app.Deliveries(t.Context(), time.Now().Add(time.Hour))
	if len(none) > 0 || err != nil {
		t.Errorf("of the future: %d, %v", len(none), err)
	}
	must(t, o.app.Redeliver(t.Context(), all[0].ID))
	must(t, o.app.Redeliver(t.Context(), 1)) // which nobody knows
	if now := o.sim.Deliveries(); len(now) != len(known)+1 {
		t.Errorf("%d deliveries, want one more than %d", len(now), len(known))
	}
}
