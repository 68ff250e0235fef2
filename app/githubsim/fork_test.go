package githubsim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app/githubsim"
)

// A pull request from a fork is at what was pushed to the fork, and a branch of the
// same name in the repository is another.
func TestPullRequestFromAFork(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	w.branch(t, "topic")
	fork := must(w.Fork(ctx, githubsim.ForkSpec{Repo: "octo/shop", By: "stranger"}))(t)
	if again := must(w.Fork(ctx, githubsim.ForkSpec{Repo: "octo/shop", By: "stranger"}))(t); again != fork {
		t.Errorf("forked again: %+v, then %+v", fork, again)
	}
	push := func(text string) string {
		return must(w.Commit(ctx, githubsim.CommitSpec{
			Repo: "stranger/shop", Branch: "topic", Message: "Mine", Files: map[string]string{"mine.txt": text}, By: "stranger",
		}))(t).SHA
	}
	push("one\n")
	opened := must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Mine", Head: "stranger:topic", Base: "main", By: "stranger"}))(t)
	own := must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Ours", Head: "topic", Base: "main", By: "maria"}))(t)
	if _, err := w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Whose", Head: "nobody:topic", Base: "main", By: "maria"}); err == nil {
		t.Error("a pull request from a fork that is not there was opened")
	}
	ours := got(gh.PullRequests.Get(ctx, "octo", "shop", own.Number))(t).GetHead().GetSHA()

	sha := push("two\n")
	pull := got(gh.PullRequests.Get(ctx, "octo", "shop", opened.Number))(t)
	if head := pull.GetHead(); head.GetSHA() != sha || head.GetLabel() != "stranger:topic" || head.GetRepo().GetID() != fork.ID || !head.GetRepo().GetFork() {
		t.Errorf("the head is %v", pull.GetHead())
	}
	if pull.GetBase().GetRepo().GetFullName() != "octo/shop" || pull.GetCommits() != 3 {
		t.Errorf("%d commits onto %v", pull.GetCommits(), pull.GetBase())
	}
	if got(gh.PullRequests.Get(ctx, "octo", "shop", own.Number))(t).GetHead().GetSHA() != ours {
		t.Error("a push to the fork moved the repository's own pull request")
	}
	remote := strings.Replace(w.repo.CloneURL, "http://", "http://x-access-token:"+w.token(t, nil)+"@", 1)
	if at := mustGit(t, t.TempDir(), "ls-remote", remote, fmt.Sprintf("refs/pull/%d/head", opened.Number)); !strings.HasPrefix(at, sha) {
		t.Errorf("the repository has the fork's work at %s, want %s", at, sha)
	}
}
