package github_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// remarked is a pull request with n remarks of ours on one line, in one review.
func (w *world) remarked(n int) forge.Pull {
	w.Helper()
	w.commit("slipway/1-greet", bot)
	pull, err := w.build().EnsureDraft(w.Context(), forge.Draft{Head: "slipway/1-greet", Base: "main", Title: "Greet", Body: "x"})
	must(w.T, err)
	own := forge.OwnReview{Pull: pull.Number, HeadSHA: pull.HeadSHA, Marker: "<!-- ours -->", Body: "See below."}
	for i := range n {
		own.Remarks = append(own.Remarks, forge.OwnRemark{Path: "slipway/1-greet.txt", First: 1, Last: 1, Marker: fmt.Sprintf("<!-- remark %d -->", i), Body: "Hm."})
	}
	_, err = w.build().EnsureReview(w.Context(), own)
	must(w.T, err)
	return pull
}

func (w *world) conversations(pull int) []forge.Conversation {
	w.Helper()
	all, err := w.build().Conversations(w.Context(), pull)
	must(w.T, err)
	return all
}

func TestConversationsOfOurRemarks(t *testing.T) {
	w := newWorld(t)
	pull := w.remarked(101) // one more than a page has
	_, err := w.sim.Review(t.Context(), githubsim.ReviewSpec{
		Repo: "o/r", Number: pull.Number, Event: "COMMENT", By: "mona", Remarks: []githubsim.Remark{{Path: "slipway/1-greet.txt", Line: 1, Body: "<!-- remark 7 -->"}},
	})
	must(t, err)
	all := w.conversations(pull.Number)
	if len(all) != 101 || !strings.Contains(all[100].Body, "<!-- remark 100 -->") || all[7].ID == all[8].ID || all[0].Resolved {
		t.Fatalf("%d conversations", len(all))
	}
	review, _, err := w.app.Review(t.Context(), w.repo, pull.Number, w.ourReview(pull.Number))
	must(t, err)
	_, err = w.sim.Resolve(t.Context(), githubsim.Resolution{Repo: "o/r", Number: pull.Number, Comment: review.Threads[2].ID, By: "mona"})
	must(t, err)
	r := w.build()
	for range 2 {
		must(t, r.Resolve(t.Context(), all[1]))
	}
	all = w.conversations(pull.Number)
	if all[0].Resolved || !all[1].Resolved || all[1].By != "" || !all[2].Resolved || all[2].By != "mona" {
		t.Errorf("by nobody, us and mona: %+v", all[:3])
	}
	w.forget()
	must(t, r.Resolve(t.Context(), all[2]))
	if sent := w.seen("POST", "/graphql"); len(sent) != 0 {
		t.Errorf("what is resolved is resolved again: %d", len(sent))
	}
}

// ourReview is the id of our only review.
func (w *world) ourReview(pull int) int64 {
	w.Helper()
	own, err := w.build().EnsureReview(w.Context(), forge.OwnReview{Pull: pull, HeadSHA: "any", Marker: "<!-- ours -->"})
	must(w.T, err)
	return own.ID
}

// A document that reads is repeated and not paced, like any read; one that writes
// takes its turn and is sent once. What GitHub refuses in an answer of status 200
// is refused all the same.
func TestGraphQLHasTheMannersOfREST(t *testing.T) {
	w := newWorld(t)
	pull := w.remarked(1)
	r := w.build()
	one := w.conversations(pull.Number)[0]
	turns := func() int {
		w.limits.mu.Lock()
		defer w.limits.mu.Unlock()
		n := 0
		for bucket, taken := range w.limits.buckets {
			if strings.HasSuffix(bucket, "/write") {
				n += taken
			}
		}
		return n
	}
	w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Path: "graphql", Times: 1})
	before := turns()
	if _, err := r.Conversations(t.Context(), pull.Number); err != nil || turns() != before {
		t.Errorf("a read: %v, and %d turns", err, turns()-before)
	}
	w.fault(githubsim.Fault{Kind: githubsim.FaultStatus, Path: "graphql", Times: 1})
	w.forget()
	if err := r.Resolve(t.Context(), one); err == nil || turns() != before+1 || len(w.seen("POST", "/graphql")) != 1 {
		t.Errorf("a write: %v, and %d turns", err, turns()-before)
	}
	if _, err := r.Conversations(t.Context(), 4711); !errors.Is(err, forge.ErrRefused) || !strings.Contains(err.Error(), "Could not resolve to a PullRequest") {
		t.Errorf("no such pull request: %v", err)
	}
	if err := r.Resolve(t.Context(), forge.Conversation{ID: "x"}); !errors.Is(err, forge.ErrRefused) {
		t.Errorf("no such thread: %v", err)
	}
	w.answers(`{"data":{"resolveReviewThread":null},"errors":[{"type":"FORBIDDEN","path":["resolveReviewThread"],"message":"Resource not accessible by integration"}]}`)
	if err := r.Resolve(t.Context(), one); !errors.Is(err, forge.ErrRefused) || !strings.Contains(err.Error(), "403 Resource not accessible") {
		t.Errorf("without leave: %v", err)
	}
	w.answers(`{"errors":[{"message":"Field 'isResolved' doesn't exist on type 'PullRequestReviewThread'"}]}`)
	if _, err := r.Conversations(t.Context(), pull.Number); !errors.Is(err, forge.ErrRefused) || !strings.Contains(err.Error(), "doesn't exist") {
		t.Errorf("an older server: %v", err)
	}
	w.answers("")
	w.fault(githubsim.Fault{Kind: githubsim.FaultPrimary, Path: "graphql", Times: 1})
	_, err := r.Conversations(t.Context(), pull.Number)
	if late, ok := errors.AsType[*github.Later](err); !ok || !errors.Is(err, forge.ErrLater) || !strings.Contains(late.Error(), "hourly") {
		t.Errorf("beyond the hourly limit: %v", err)
	}
}

// answers has every document answered so; by the stand-in again where it is empty.
func (w *world) answers(body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.intercept = func(rw http.ResponseWriter, r *http.Request) bool {
		if body == "" || !strings.HasSuffix(r.URL.Path, "/graphql") {
			return false
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(body))
		return true
	}
}
