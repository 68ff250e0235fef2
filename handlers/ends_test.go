package handlers_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// Whatever the event says, what GitHub has now decides, and only of the builds
// that the event is about.
func TestEventsThatEndBuilds(t *testing.T) {
	gone := forge.Gone{Why: "the ticket was closed", Since: time.Unix(1_800_000_000, 0)}
	for name, c := range map[string]struct {
		event, payload string
		gone           forge.Gone
		cancelled      bool
	}{
		"closed":                                 {"issues", `{"action":"closed","issue":{"number":12},"repository":{"full_name":"O/R"},"sender":{"login":"mona","id":1}}`, gone, true},
		"closed, in the renamed repository":      {"issues", `{"action":"closed","issue":{"number":12},"repository":{"id":9,"full_name":"o/new"},"sender":{"login":"mona","id":1}}`, gone, true},
		"closed, in another of that name":        {"issues", `{"action":"closed","issue":{"number":12},"repository":{"id":10,"full_name":"o/r"}}`, gone, false},
		"closed, and open again by now":          {"issues", `{"action":"closed","issue":{"number":12},"repository":{"full_name":"o/r"},"sender":{"login":"mona","id":1}}`, forge.Gone{}, false},
		"another ticket":                         {"issues", `{"action":"closed","issue":{"number":13},"repository":{"full_name":"o/r"}}`, gone, false},
		"the same number elsewhere":              {"issues", `{"action":"closed","issue":{"number":12},"repository":{"full_name":"o/other"}}`, gone, false},
		"edited":                                 {"issues", `{"action":"edited","issue":{"number":12},"repository":{"full_name":"o/r"}}`, gone, false},
		"uninstalled":                            {"installation", `{"action":"deleted","installation":{"id":7},"sender":{"login":"mona","id":1}}`, gone, true},
		"another installation":                   {"installation", `{"action":"deleted","installation":{"id":8}}`, gone, false},
		"new permissions":                        {"installation", `{"action":"new_permissions_accepted","installation":{"id":7}}`, forge.Gone{}, false},
		"taken from the repository":              {"installation_repositories", `{"action":"removed","installation":{"id":7},"repositories_removed":[{"id":9}],"sender":{"login":"mona","id":1}}`, gone, true},
		"renamed":                                {"repository", `{"action":"renamed","repository":{"id":9,"full_name":"o/new"},"installation":{"id":7},"sender":{"login":"mona","id":1}}`, gone, true},
		"another of the installation is renamed": {"repository", `{"action":"renamed","repository":{"id":10,"full_name":"o/new"},"installation":{"id":7}}`, gone, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deliver(guid, commented(maintainer, "/build"))
			build := w.request().Build
			w.hub.gone = map[int]forge.Gone{12: c.gone}
			for range 2 { // a delivery may be handled again
				if err := w.h.Handle(t.Context(), handlers.Delivery{ID: "another", Event: c.event, Payload: []byte(c.payload)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.h.GiveUp(t.Context(), handlers.Delivery{ID: "another", Event: c.event, Payload: []byte(c.payload)}, fmt.Errorf("broken")); err != nil {
				t.Errorf("GiveUp: %v", err)
			}
			sent := w.shelf.signals[build]
			if !c.cancelled {
				if len(sent) > 0 {
					t.Errorf("sent %+v", sent)
				}
				return
			}
			var said pipeline.Said
			if len(sent) != 1 || sent[0].Kind != pipeline.CancelSignal || json.Unmarshal(sent[0].Body, &said) != nil {
				t.Fatalf("sent %+v", sent)
			}
			if said.By.Login != "mona" || said.Text != gone.Why {
				t.Errorf("said %+v", said)
			}
		})
	}
}

// Who resumes a build of a closed ticket wants it; only when it is closed anew is
// the build cancelled again.
func TestReconcileCancelsOnceForEachEnd(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, commented(maintainer, "/build"))
	build := w.request().Build
	for i, c := range []struct {
		gone forge.Gone
		want int
	}{
		{forge.Gone{}, 0},
		{forge.Gone{Why: "the ticket was closed", Since: time.Unix(1_800_000_000, 0)}, 1},
		{forge.Gone{Why: "the ticket was closed", Since: time.Unix(1_800_000_000, 0)}, 1},
		{forge.Gone{Why: "the ticket was closed", Since: time.Unix(1_800_000_060, 0)}, 2},
		{forge.Gone{Why: "the App was uninstalled"}, 3},
	} {
		w.hub.gone = map[int]forge.Gone{12: c.gone}
		if err := w.h.Reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
		if sent := w.shelf.signals[build]; len(sent) != c.want {
			t.Errorf("pass %d: sent %+v, want %d", i, sent, c.want)
		}
	}
}

// One build that cannot be looked at does not keep the others.
func TestReconcileGoesOn(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, commented(maintainer, "/build"))
	build := w.request().Build
	w.shelf.jobs = append(w.shelf.jobs, queue.Job{ID: "b-broken", Kind: pipeline.KindBuild, State: queue.Queued, Payload: json.RawMessage(`7`)})
	w.hub.gone = map[int]forge.Gone{12: {Why: "the ticket was closed"}}
	if err := w.h.Reconcile(t.Context()); err == nil {
		t.Error("nothing is said of the broken one")
	}
	if len(w.shelf.signals[build]) != 1 {
		t.Errorf("signals %+v", w.shelf.signals)
	}
}
