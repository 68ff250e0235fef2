package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/queue"
)

// Every webhook that is published as an example is taken in and handled without
// an error: as it is, and as if it came from a repository and installation of
// ours. None of them asks for anything.
func TestPublishedWebhooks(t *testing.T) {
	t.Parallel()
	examples, err := schema.Examples()
	must(t, err)
	if len(examples) < 328 {
		t.Fatalf("%d examples", len(examples))
	}
	s := newShore(t)
	s.serve(company)
	s.ticket = s.open("Greet people") // the examples speak of issue 1 and pull request 2
	_, err = s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "topic", By: "mira", Message: "Say", Files: map[string]string{"a": "b"}})
	must(t, err)
	pull, err := s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Say", Head: "topic", By: "mira"})
	must(t, err)
	if s.ticket != 1 || pull.Number != 2 {
		t.Fatalf("ticket %d, pull request %d", s.ticket, pull.Number)
	}
	s.rest()
	before := len(s.jobs(inbox.Kind))
	home := s.home()
	for i, x := range examples {
		for j, payload := range [][]byte{x.Payload, movedTo(t, x.Payload, home)} {
			guid := fmt.Sprintf("%08x-0000-4000-8000-00000000000%d", i, j)
			status, answer, err := s.hook(x.Event, guid, sign(hookSecret, payload), bytes.NewReader(payload))
			must(t, err)
			if status != http.StatusAccepted {
				t.Errorf("%s: status %d: %s", x.Event, status, answer)
			}
		}
	}
	s.rest()
	jobs, err := s.store.List(t.Context(), queue.Query{Kinds: []string{inbox.Kind}, Limit: 10 * len(examples)})
	must(t, err)
	if len(jobs) != 2*len(examples)+before {
		t.Errorf("%d deliveries, want two of each of %d and %d", len(jobs), len(examples), before)
	}
	for _, j := range jobs {
		if j.State != queue.Done || j.Retries > 0 {
			t.Errorf("%s %.200s is %s after %d retries: %s", j.ID, j.Payload, j.State, j.Retries, j.Cause)
		}
	}
	for _, x := range s.changes() {
		t.Errorf("Slipway wrote: %s %s %s", x.Method, x.URL, x.Request)
	}
}

// home is what webhooks of the repository say of where they come from.
func (s *server) home() map[string]json.RawMessage {
	s.Helper()
	known, _, err := s.hub().Repositories.Get(s.Context(), "harbour", "greeter")
	must(s.T, err)
	repository, err := json.Marshal(known)
	must(s.T, err)
	var installed githubsim.Installed
	must(s.T, githubsim.Remote{URL: s.sim.URL()}.Do(s.Context(), "install", githubsim.InstallSpec{App: "slipway", Account: "harbour", Repos: []string{"greeter"}}, &installed))
	installation, err := json.Marshal(installed)
	must(s.T, err)
	return map[string]json.RawMessage{"repository": repository, "installation": bytes.ToLower(installation)}
}

// movedTo is a payload with other values for what it says of these things.
func movedTo(t *testing.T, payload []byte, home map[string]json.RawMessage) []byte {
	t.Helper()
	var fields map[string]json.RawMessage
	must(t, json.Unmarshal(payload, &fields))
	maps.Copy(fields, home)
	moved, err := json.Marshal(fields)
	must(t, err)
	return moved
}
