package app

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// A build that is given up says so before anybody could be told on its ticket.
func TestAVerdictIsInTheAccount(t *testing.T) {
	store := openStore(t, t.TempDir())
	if _, _, err := store.Put(t.Context(), queue.Job{ID: "b-1", Kind: pipeline.KindBuild}); err != nil {
		t.Fatal(err)
	}
	l, err := store.Claim(t.Context(), "w", pipeline.KindBuild)
	if err == nil {
		err = store.Park(t.Context(), l, time.Now().Add(time.Hour), queue.Untold(errors.New("no luck"), errors.New("502")))
	}
	if err != nil {
		t.Fatal(err)
	}
	jobs, err := store.List(t.Context(), queue.Query{IDs: []string{"b-1"}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Account(t.Context(), store, jobs[0]); err != nil || b.State != report.NeedsHuman || !strings.Contains(b.Cause, "given up: no luck") {
		t.Errorf("the account is %s (%s), %v", b.State, b.Cause, err)
	}
}
