package github_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

const bot = "slipway-test[bot]"

func TestRolesAreTheEffectiveOnes(t *testing.T) {
	w := newWorld(t)
	for login, want := range map[string]forge.Role{
		"reads": forge.Read, "triages": forge.Triage, "writes": forge.Write, "maintains": forge.Maintain, "admins": forge.Admin, "nobody": forge.None,
	} {
		name := want.String()
		_, err := w.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: "o/r", Login: login, Role: name})
		must(t, err)
		u, err := w.sim.CreateUser(t.Context(), githubsim.UserSpec{Login: login})
		must(t, err)
		got, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: login, ID: u.ID})
		must(t, err)
		if got != want {
			t.Errorf("%s: %s, want %s", login, got, want)
		}
		// The login is somebody else's by now.
		if got, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: login, ID: u.ID + 1000}); err != nil || got != forge.None {
			t.Errorf("%s under another id: %s, %v", login, got, err)
		}
	}
	if got, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: "ghost", ID: 404}); err != nil || got != forge.None {
		t.Errorf("an unknown account: %s, %v", got, err)
	}
	w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Path: "/repos/o/r/collaborators", Status: http.StatusForbidden})
	if got, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: "admins", ID: 1}); err == nil || got != forge.None {
		t.Errorf("GitHub refused, yet %s", got)
	}
}

func TestACustomRoleCountsAsTheStandardOneInIt(t *testing.T) {
	w := newWorld(t)
	w.mu.Lock()
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/permission") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(rw, `{"permission":"write","role_name":"security-engineer","user":{"login":"mona","id":1}}`)
		return true
	}
	w.mu.Unlock()
	got, err := w.app.Role(t.Context(), w.repo, forge.Person{Login: "mona", ID: 1})
	if err != nil || got != forge.Write {
		t.Fatalf("%s, %v", got, err)
	}
}

func TestALabelIsRemovedAndStaysSo(t *testing.T) {
	w := newWorld(t)
	for _, label := range []string{"slipway:build", "needs work/soon?"} {
		_, err := w.sim.Label(t.Context(), githubsim.Labelling{Repo: "o/r", Number: w.ticket, Label: label, By: "mona"})
		must(t, err)
		for range 3 {
			must(t, w.app.Unlabel(t.Context(), w.repo, w.ticket, label))
		}
	}
	if n := len(w.seen("DELETE", "/labels/{name}")); n != 2 {
		t.Errorf("two labels were removed %d times", n)
	}
	ticket, err := w.build().Ticket(t.Context())
	must(t, err)
	if len(ticket.Labels) != 0 || ticket.Title != "Greet by name" || ticket.Author != "mona" || ticket.State != "open" || ticket.Pull || ticket.Taken.IsZero() {
		t.Fatalf("ticket %+v", ticket)
	}
}

// A worker that stood still between its look and its write writes nothing once
// another has its job.
func TestAWriteAsksForLeaveFirst(t *testing.T) {
	w := newWorld(t)
	lost := errors.New("the lease is lost")
	asked := 0
	ctx := github.Fenced(t.Context(), func(context.Context) error {
		if asked++; asked > 1 {
			return lost
		}
		return nil
	})
	must(t, w.app.React(ctx, w.repo, forge.Subject{Ticket: w.ticket}, "eyes"))
	if _, err := w.app.EnsureComment(ctx, w.repo, w.tracking("hello")); !errors.Is(err, lost) {
		t.Errorf("error %v", err)
	}
	if n := len(w.seen("POST", "/comments")); n != 0 || asked != 2 {
		t.Errorf("%d comments were posted, leave was asked for %d times", n, asked)
	}
	if n := len(w.seen("POST", "/reactions")); n != 1 {
		t.Errorf("%d reactions were posted", n)
	}
}

func TestReactionsAreOneOfAKind(t *testing.T) {
	w := newWorld(t)
	comment, err := w.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: "o/r", Number: w.ticket, Body: "/build", By: "mona"})
	must(t, err)
	for range 2 {
		must(t, w.app.React(t.Context(), w.repo, forge.Subject{Ticket: w.ticket, Comment: comment.ID}, "eyes"))
		must(t, w.app.React(t.Context(), w.repo, forge.Subject{Ticket: w.ticket}, "rocket"))
	}
	for _, route := range []string{"/comments/{comment_id}/reactions", "/issues/{issue_number}/reactions"} {
		all := w.seen("POST", route)
		if len(all) != 2 || all[0].Status != http.StatusCreated || all[1].Status != http.StatusOK {
			t.Errorf("%s: %d requests", route, len(all))
		}
	}
}

func TestTheBranchIsFreeOrOurs(t *testing.T) {
	w := newWorld(t)
	r := w.build()
	ensure := func(ours ...string) forge.Branch {
		t.Helper()
		b, err := r.EnsureBranch(t.Context(), "slipway/1-greet", func(_ context.Context, b forge.Branch) (bool, error) {
			return slices.Contains(ours, b.Head), nil
		})
		must(t, err)
		return b
	}
	if b := ensure(); b.Name != "slipway/1-greet" || b.Head != "" {
		t.Fatalf("a free name: %+v", b)
	}
	sha := w.commit("slipway/1-greet", bot)
	if b := ensure(sha); b.Name != "slipway/1-greet" || b.Head != sha {
		t.Fatalf("our own: %+v", b)
	}
	if b := ensure(); b.Name != "slipway/1-greet-2" || b.Head != "" {
		t.Fatalf("somebody else's: %+v", b)
	}
	pull, err := r.EnsureDraft(t.Context(), forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "x"})
	must(t, err)
	if b := ensure(sha); b.Name != "slipway/1-greet" {
		t.Fatalf("with its pull request open: %+v", b)
	}
	if ticket, ok, err := w.app.PullTicket(t.Context(), w.repo, pull.Number); err != nil || !ok || ticket != w.ticket {
		t.Fatalf("the pull request's ticket: %d, %v, %v", ticket, ok, err)
	}
	closed := "closed"
	_, err = w.sim.EditTicket(t.Context(), githubsim.TicketEdit{Repo: "o/r", Number: pull.Number, State: &closed, By: "mona"})
	must(t, err)
	if b := ensure(sha); b.Name != "slipway/1-greet-2" || b.Head != "" {
		t.Fatalf("with its pull request closed: %+v", b)
	}
	w.commit("slipway/1-greet-2", "mona")
	if b := ensure(sha); b.Name != "slipway/1-greet-3" {
		t.Fatalf("with the second taken: %+v", b)
	}
}

func TestOneDraftWhateverGoesWrong(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"nothing":                      {},
		"the connection breaks before": {Kind: githubsim.FaultDropBefore, Method: "POST", Path: "/repos/o/r/pulls", Times: 1},
		"the connection breaks after":  {Kind: githubsim.FaultDropAfter, Method: "POST", Path: "/repos/o/r/pulls", Times: 1},
		"a read is cut":                {Kind: githubsim.FaultDropBefore, Method: "GET", Path: "/repos/o/r/pulls", Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			sha := w.commit("slipway/1-greet", bot)
			if fault.Kind != "" {
				w.fault(fault)
			}
			r := w.build()
			want := forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "the evidence"}
			pull, err := r.EnsureDraft(t.Context(), want)
			if err != nil && fault.Kind != githubsim.FaultDropAfter {
				pull, err = r.EnsureDraft(t.Context(), want)
			}
			must(t, err)
			if !pull.Draft || pull.State != "open" || pull.HeadSHA != sha || pull.Head != want.Head || !strings.HasPrefix(pull.Body, "the evidence") {
				t.Fatalf("pull %+v", pull)
			}
			again, err := r.EnsureDraft(t.Context(), want)
			must(t, err)
			if again.Number != pull.Number || len(w.seen("PATCH", "/{pull_number}")) != 0 {
				t.Fatalf("#%d, then #%d", pull.Number, again.Number)
			}
			want.Title, want.Body = "Greet, twice", "more evidence"
			edited, err := r.EnsureDraft(t.Context(), want)
			must(t, err)
			if edited.Number != pull.Number || edited.Title != "Greet, twice" || !strings.HasPrefix(edited.Body, "more evidence") {
				t.Fatalf("edited %+v", edited)
			}
			found, ok, err := w.app.OpenPull(t.Context(), w.repo, w.ticket)
			must(t, err)
			if !ok || found.Number != pull.Number {
				t.Fatalf("the ticket's pull request: %+v, %v", found, ok)
			}
		})
	}
}

func TestOnlyOurOwnPullRequestIsTheTickets(t *testing.T) {
	w := newWorld(t)
	none := func(when string) {
		t.Helper()
		if p, ok, err := w.app.OpenPull(t.Context(), w.repo, w.ticket); err != nil || ok {
			t.Fatalf("%s: %+v, %v, %v", when, p, ok, err)
		}
	}
	none("none at all")
	w.commit("slipway/1-greet", bot)
	r := w.build()
	pull, err := r.EnsureDraft(t.Context(), forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "x"})
	must(t, err)
	if _, ok, err := w.app.OpenPull(t.Context(), w.repo, w.ticket+10); err != nil || ok {
		t.Fatalf("another ticket's: %v, %v", ok, err)
	}
	closed := "closed"
	_, err = w.sim.EditTicket(t.Context(), githubsim.TicketEdit{Repo: "o/r", Number: pull.Number, State: &closed, By: "mona"})
	must(t, err)
	none("closed")
	w.commit("copy", "mallory")
	forged, err := w.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: "o/r", Title: "Copy", Body: pull.Body, Head: "copy", Base: "main", By: "mallory"})
	must(t, err)
	none("copied by somebody")
	for what, number := range map[string]int{"somebody's copy": forged.Number, "an issue": w.ticket, "nothing": 4711} {
		if ticket, ok, err := w.app.PullTicket(t.Context(), w.repo, number); err != nil || ok {
			t.Fatalf("%s belongs to ticket %d: %v", what, ticket, err)
		}
	}
}

// The private plans that refuse drafts answer as below.
func (w *world) refuseDrafts() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/repos/o/r/pulls") {
			return false
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return false
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		var in struct {
			Draft bool `json:"draft"`
		}
		if json.Unmarshal(body, &in) != nil || !in.Draft {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(rw, `{"message":"Draft pull requests are not supported in this repository.","documentation_url":"https://docs.github.com/rest/pulls/pulls#create-a-pull-request"}`)
		return true
	}
}

func TestWhereDraftsAreRefusedACheckStandsInForThem(t *testing.T) {
	w := newWorld(t)
	w.refuseDrafts()
	sha := w.commit("slipway/1-greet", bot)
	// The worker dies between the pull request and its check.
	w.fault(githubsim.Fault{Kind: githubsim.FaultDropBefore, Method: "POST", Path: "/repos/o/r/check-runs", Times: 1})
	want := forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "x"}
	if _, err := w.build().EnsureDraft(t.Context(), want); err == nil {
		t.Fatal("the failure was swallowed")
	}
	r := w.build()
	for range 2 {
		pull, err := r.EnsureDraft(t.Context(), want)
		must(t, err)
		if pull.Draft || pull.State != "open" {
			t.Fatalf("pull %+v", pull)
		}
	}
	checks, err := r.Checks(t.Context(), sha)
	must(t, err)
	if len(checks) != 1 || checks[0].Name != "slipway/draft" || checks[0].Conclusion != "failure" {
		t.Fatalf("checks %+v", checks)
	}
	if _, ok, err := w.app.OpenPull(t.Context(), w.repo, w.ticket); err != nil || !ok {
		t.Fatalf("the ticket's pull request: %v, %v", ok, err)
	}
}

func TestARefusedPullRequestIsAnError(t *testing.T) {
	w := newWorld(t)
	_, err := w.build().EnsureDraft(t.Context(), forge.Draft{Head: "not-there", Base: "main", Title: "Greet", Body: "x"})
	if err == nil || !strings.Contains(err.Error(), "422") {
		t.Fatalf("error %v", err)
	}
}

func TestOneCheckRunWhateverGoesWrong(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"nothing":                      {},
		"the connection breaks before": {Kind: githubsim.FaultDropBefore, Method: "POST", Path: "/repos/o/r/check-runs", Times: 1},
		"the connection breaks after":  {Kind: githubsim.FaultDropAfter, Method: "POST", Path: "/repos/o/r/check-runs", Times: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			sha := w.commit("slipway/1-greet", bot)
			if fault.Kind != "" {
				w.fault(fault)
			}
			r := w.build()
			want := forge.Check{
				Name: "slipway/build", HeadSHA: sha, ExternalID: "b-1:" + sha, Status: "in_progress",
				Title: "Running", Summary: "2 of 5", DetailsURL: "https://slipway.example.com/b-1",
			}
			got, err := r.EnsureCheck(t.Context(), want)
			if err != nil && fault.Kind != githubsim.FaultDropAfter {
				got, err = r.EnsureCheck(t.Context(), want)
			}
			must(t, err)
			again, err := r.EnsureCheck(t.Context(), want)
			must(t, err)
			if again.ID != got.ID || got.URL == "" || len(w.seen("PATCH", "/{check_run_id}")) != 0 {
				t.Fatalf("%+v, then %+v", got, again)
			}
			want.Status, want.Conclusion, want.Title, want.Text = "completed", "neutral", "Done, 1 debt", "more"
			_, err = r.EnsureCheck(t.Context(), want)
			must(t, err)
			all, err := r.Checks(t.Context(), sha)
			must(t, err)
			if len(all) != 1 {
				t.Fatalf("%d check runs", len(all))
			}
			if c := all[0]; c.ID != got.ID || c.Conclusion != "neutral" || c.Title != "Done, 1 debt" || c.Text != "more" || c.ExternalID != want.ExternalID || c.HeadSHA != sha || c.Completed.IsZero() {
				t.Fatalf("check %+v", c)
			}
		})
	}
}

// Two workers created the same check run. Neither can be removed, so both must
// tell the truth, whichever GitHub counts.
func TestTwinsOfACheckRunAgree(t *testing.T) {
	w := newWorld(t)
	sha := w.commit("slipway/1-greet", bot)
	r := w.build()
	want := forge.Check{Name: "slipway/build", HeadSHA: sha, ExternalID: "b-1:" + sha, Status: "in_progress", Title: "Running", Summary: "…"}
	first, err := r.EnsureCheck(t.Context(), want)
	must(t, err)
	w.twin(want)
	want.Status, want.Conclusion = "completed", "failure"
	got, err := r.EnsureCheck(t.Context(), want)
	must(t, err)
	all, err := r.Checks(t.Context(), sha)
	must(t, err)
	if got.ID != first.ID || len(all) != 2 || all[0].Conclusion != "failure" || all[1].Conclusion != "failure" {
		t.Fatalf("checks %+v", all)
	}
}

// twin creates a check run as another worker would.
func (w *world) twin(c forge.Check) {
	w.Helper()
	last := w.seen("POST", "/check-runs")
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, w.sim.URL()+"/api/v3/repos/o/r/check-runs",
		strings.NewReader(fmt.Sprintf(`{"name":%q,"head_sha":%q,"external_id":%q,"status":"in_progress"}`, c.Name, c.HeadSHA, c.ExternalID)))
	must(w.T, err)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", last[0].RequestHeader.Get("Authorization"))
	resp, err := http.DefaultClient.Do(r)
	must(w.T, err)
	must(w.T, resp.Body.Close())
	if resp.StatusCode != http.StatusCreated {
		w.Fatalf("twin: %d", resp.StatusCode)
	}
}
