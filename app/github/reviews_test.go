package github_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// reviewed is a pull request of ours with a review of two remarks.
func (w *world) reviewed() (forge.Pull, githubsim.Reviewed) {
	w.Helper()
	w.commit("slipway/1-greet", bot)
	pull, err := w.build().EnsureDraft(w.Context(), forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "x"})
	must(w.T, err)
	file := "slipway/1-greet.txt"
	review, err := w.sim.Review(w.Context(), githubsim.ReviewSpec{
		Repo: "o/r", Number: pull.Number, Event: "REQUEST_CHANGES", Body: "Not yet.", By: "mona",
		Remarks: []githubsim.Remark{{Path: file, Line: 1, Body: "By name?"}, {Path: file, Line: 1, Body: "And politely."}},
	})
	must(w.T, err)
	return pull, review
}

func TestAReviewIsReadWithItsThreads(t *testing.T) {
	w := newWorld(t)
	pull, given := w.reviewed()
	reply, err := w.sim.Reply(t.Context(), githubsim.ReplySpec{Repo: "o/r", Number: pull.Number, Comment: given.Remarks[1], Body: "Very.", By: "rita"})
	must(t, err)
	review, found, err := w.app.Review(t.Context(), w.repo, pull.Number, given.ID)
	must(t, err)
	if !found || review.By.Login != "mona" || review.By.Bot || review.By.ID == 0 || review.State != "changes_requested" || review.Body != "Not yet." || len(review.Threads) != 2 {
		t.Fatalf("review %+v", review)
	}
	second := review.Threads[1]
	if second.ID != given.Remarks[1] || second.Path != "slipway/1-greet.txt" || second.Line != 1 || !strings.Contains(second.Hunk, "+slipway-test[bot]") {
		t.Errorf("thread %+v", second)
	}
	if len(second.Remarks) != 2 || second.Remarks[1].ID != reply.ID || second.Remarks[1].By.Login != "rita" || second.Remarks[0].Body != "And politely." {
		t.Errorf("remarks %+v", second.Remarks)
	}
	own, found, err := w.app.Review(t.Context(), w.repo, pull.Number, second.Remarks[1].Review)
	must(t, err)
	if !found || own.State != "commented" || len(own.Threads) != 1 || own.Threads[0].ID != second.ID {
		t.Errorf("the reply as a review: %+v", own)
	}
	if _, found, err := w.app.Review(t.Context(), w.repo, pull.Number, 4711); found || err != nil {
		t.Errorf("no review: %t, %v", found, err)
	}
}

func TestAPullRequestSaysWhoseItIs(t *testing.T) {
	w := newWorld(t)
	ours, _ := w.reviewed()
	w.commit("theirs", "mona")
	thread, err := w.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: "o/r", Title: "Mine", Body: ours.Body, Head: "theirs", By: "mona"})
	must(t, err)
	for name, c := range map[string]struct{ number, ticket int }{
		"ours": {ours.Number, w.ticket}, "a person's, with our marker copied": {thread.Number, 0},
	} {
		pull, found, err := w.app.Pull(t.Context(), w.repo, c.number)
		must(t, err)
		if !found || pull.Number != c.number || pull.Ticket != c.ticket || pull.Base != "main" || pull.Fork || pull.State != "open" {
			t.Errorf("%s: %+v", name, pull)
		}
	}
	if _, found, err := w.app.Pull(t.Context(), w.repo, w.ticket); found || err != nil {
		t.Errorf("a ticket is a pull request: %t, %v", found, err)
	}
	// The head of a pull request whose repository is gone.
	w.mu.Lock()
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/pulls/77") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(`{"number":77,"state":"open","user":{"login":"x"},"head":{"ref":"b","repo":null},"base":{"ref":"main","repo":{"id":3}}}`))
		return true
	}
	w.mu.Unlock()
	if pull, _, err := w.app.Pull(t.Context(), w.repo, 77); err != nil || !pull.Fork {
		t.Errorf("%+v, %v", pull, err)
	}
}

func TestOneAnswerInAThreadWhateverGoesWrong(t *testing.T) {
	for name, fault := range map[string]githubsim.Fault{
		"nothing":                      {},
		"the connection breaks before": {Kind: githubsim.FaultDropBefore, Method: "POST", Path: "/repos/o/r/pulls", Times: 1},
		"the connection breaks after":  {Kind: githubsim.FaultDropAfter, Method: "POST", Path: "/repos/o/r/pulls", Times: 1},
		"a read is cut":                {Kind: githubsim.FaultDropAfter, Method: "GET", Path: "/repos/o/r/pulls", Times: 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			pull, given := w.reviewed()
			// Somebody quotes the marker: that is not ours.
			_, err := w.sim.Reply(t.Context(), githubsim.ReplySpec{Repo: "o/r", Number: pull.Number, Comment: given.Remarks[0], Body: marker, By: "mona"})
			must(t, err)
			if fault.Kind != "" {
				w.fault(fault)
			}
			r := w.build()
			want := forge.Answer{Pull: pull.Number, Thread: given.Remarks[0], Marker: marker, Body: "Addressed in 123."}
			made, err := r.EnsureAnswer(t.Context(), want)
			if err != nil && fault.Kind != "" {
				made, err = r.EnsureAnswer(t.Context(), want)
			}
			must(t, err)
			want.Body = "Addressed in 456."
			again, err := w.app.EnsureAnswer(t.Context(), w.repo, want)
			must(t, err)
			if made.ID == 0 || made.ID != again.ID || made.URL == "" {
				t.Errorf("%+v, then %+v", made, again)
			}
			review, _, err := w.app.Review(t.Context(), w.repo, pull.Number, given.ID)
			must(t, err)
			said := review.Threads[0].Remarks
			if len(said) != 3 || !said[2].By.Bot || !strings.HasPrefix(said[2].Body, "Addressed in 456.") {
				t.Errorf("the thread: %+v", said)
			}
		})
	}
}

func TestReactionsOnARemark(t *testing.T) {
	w := newWorld(t)
	pull, given := w.reviewed()
	on := forge.Subject{Ticket: pull.Number, Remark: given.Remarks[0]}
	for range 2 {
		must(t, w.app.React(t.Context(), w.repo, on, "eyes"))
	}
	must(t, w.build().React(t.Context(), on, "rocket"))
	all := w.seen("POST", "/pulls/comments/{comment_id}/reactions")
	if len(all) != 3 || all[0].Status != http.StatusCreated || all[1].Status != http.StatusOK || all[2].Status != http.StatusCreated {
		t.Errorf("%d requests: %+v", len(all), all)
	}
}
