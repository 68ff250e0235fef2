package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// What a contender made is needed until nobody can choose it any more.
func TestWhatAComparisonMayPublishIsNoLeftover(t *testing.T) {
	state := t.TempDir()
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(state, "store"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	for _, r := range []pipeline.Request{{Build: "b-1", Targets: []string{"codex", "native"}}, {Build: "b-2", Contender: &pipeline.Contender{Of: "b-1"}}} {
		payload, err := json.Marshal(r)
		must(t, err)
		_, _, err = store.Put(t.Context(), queue.Job{ID: r.Build, Kind: "local/" + r.Build, Payload: payload})
		must(t, err)
		must(t, os.MkdirAll(filepath.Join(state, "builds", r.Build), 0o700))
	}
	ends := func(build string) {
		l, err := store.Claim(t.Context(), "w", "local/"+build)
		must(t, err)
		must(t, store.Done(t.Context(), l))
	}
	left := func() int {
		all, err := Leftovers(t.Context(), store, state, time.Now().Add(time.Hour))
		must(t, err)
		return len(all)
	}
	ends("b-2")
	if n := left(); n != 0 {
		t.Errorf("%d leftovers while a person chooses", n)
	}
	ends("b-1")
	if n := left(); n != 2 {
		t.Errorf("%d leftovers in the end", n)
	}
}
