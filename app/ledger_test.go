package app

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// The builds behind a pull request are found by what stays of its repository.
func TestBuildsOfAPullRequest(t *testing.T) {
	store, err := queue.OpenSQLite(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close() //nolint:errcheck // nothing is left to settle
	for _, b := range []struct {
		id, repo string
		repoID   int64
		ticket   int
	}{
		{"first", "fleet", 7, 3},
		{"of another ticket", "fleet", 7, 4},
		{"of what had the name before", "harbour", 5, 3},
	} {
		repo := forge.Repo{Owner: "mira", Name: b.repo, ID: b.repoID}
		req := pipeline.Request{Build: b.id, Repo: repo, Ticket: forge.Ticket{Number: b.ticket}}
		payload, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := store.Put(t.Context(), queue.Job{ID: b.id, Kind: pipeline.KindBuild, Key: fmt.Sprintf("%s#%d", repo, b.ticket), Payload: payload}); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		repo forge.Repo
		want string
	}{
		"under the name that it had":         {forge.Repo{Owner: "mira", Name: "fleet", ID: 7}, "first"},
		"renamed since":                      {forge.Repo{Owner: "mira", Name: "ships", ID: 7}, "first"},
		"renamed to what another was called": {forge.Repo{Owner: "mira", Name: "harbour", ID: 7}, "first"},
		"never built":                        {forge.Repo{Owner: "mira", Name: "fleet", ID: 8}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := buildsOf(t.Context(), store, c.repo, forge.Pull{Number: 9, Ticket: 3})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, j := range found {
				got += j.ID
			}
			if got != c.want {
				t.Errorf("found %q, want %q", got, c.want)
			}
		})
	}
}
