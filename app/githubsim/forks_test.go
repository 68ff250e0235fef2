package githubsim_test

import (
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestAPullRequestFromAFork(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	must(w.Fork(ctx, githubsim.ForkSpec{Repo: "octo/shop", Owner: "eve"}))(t)
	first := must(w.Commit(ctx, githubsim.CommitSpec{Repo: "eve/shop", Branch: "better", Message: "Better", By: "eve", Files: map[string]string{"a.txt": "1\n"}}))(t)
	if _, err := w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Better", Head: "better", By: "eve"}); err == nil {
		t.Error("a branch of the fork is one of the repository")
	}
	made := must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Better", Head: "eve:better", By: "eve"}))(t)
	w.hooks.until(t, "pull_request.opened")
	pull := got(gh.PullRequests.Get(ctx, "octo", "shop", made.Number))(t)
	if pull.GetHead().GetLabel() != "eve:better" || pull.GetHead().GetSHA() != first.SHA || !pull.GetHead().GetRepo().GetFork() ||
		pull.GetHead().GetRepo().GetFullName() != "eve/shop" || pull.GetBase().GetRepo().GetFullName() != "octo/shop" || pull.GetChangedFiles() != 1 {
		t.Errorf("the pull request: %v", pull)
	}
	// A branch of the same name in the repository itself is another.
	w.branch(t, "better")
	second := must(w.Commit(ctx, githubsim.CommitSpec{Repo: "eve/shop", Branch: "better", Message: "Best", By: "eve", Files: map[string]string{"a.txt": "2\n"}}))(t)
	if h := w.hooks.until(t, "pull_request.synchronize"); h.read(t).After != second.SHA {
		t.Errorf("after a push the head is %s", h.read(t).After)
	}
	ref := got(gh.PullRequests.Get(ctx, "octo", "shop", made.Number))(t).GetHead().GetSHA()
	if ref != second.SHA {
		t.Errorf("the head is %s, want %s", ref, second.SHA)
	}
	if _, err := w.Merge(ctx, githubsim.PullRef{Repo: "octo/shop", Number: made.Number, By: "rita"}); err != nil {
		t.Error(err)
	}
}
