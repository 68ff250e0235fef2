package githubsim_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestPagesTellWhatHappened(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	n := must(w.OpenTicket(ctx, githubsim.TicketSpec{
		Repo: "octo/shop", Title: `Add <b>a basket</b>`, By: "maria", Labels: []string{"slipway:build"},
		Body: "It needs **total**.\n\n<script>alert(1)</script>\n\n[x](javascript:alert(2))",
	}))(t).Number
	c := got(gh.Issues.CreateComment(ctx, "octo", "shop", n, &github.IssueComment{Body: github.String("<!-- slipway:1 -->\n\n| stage | state |\n|---|---|\n| plan | done |")}))(t)
	got(gh.Reactions.CreateIssueReaction(ctx, "octo", "shop", n, "eyes"))(t)
	must(w.React(ctx, githubsim.ReactionSpec{Repo: "octo/shop", Number: n, Comment: c.GetID(), Content: "rocket", By: "tom"}))(t)
	head := w.branch(t, "slipway/1-basket")
	pr := got(gh.PullRequests.Create(ctx, "octo", "shop", &github.NewPullRequest{
		Title: github.String("Basket"), Head: github.String("slipway/1-basket"), Base: github.String("main"),
		Body: github.String("Closes #1\n\n```go\nx := \"<b>\"\n```"), Draft: github.Bool(true),
	}))(t)
	run := got(gh.Checks.CreateCheckRun(ctx, "octo", "shop", github.CreateCheckRunOptions{
		Name: "slipway/build", HeadSHA: head, Conclusion: github.String("success"),
		Output: &github.CheckRunOutput{Title: github.String("Built with 2 debts"), Summary: github.String("All **green**")},
	}))(t)
	must(w.Review(ctx, githubsim.ReviewSpec{Repo: "octo/shop", Number: pr.GetNumber(), Event: "COMMENT", Body: "Looked", By: "rita",
		Remarks: []githubsim.Remark{{Path: "main.go", Line: 4, Body: "Why two?"}}}))(t)
	must(w.Merge(ctx, githubsim.PullRef{Repo: "octo/shop", Number: must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "Other", Head: must(other(t, w))(t), By: "tom"}))(t).Number, By: "rita"}))(t)

	for _, c := range []struct {
		path string
		has  []string
		not  []string
	}{
		{"/", []string{`href="/octo/shop"`}, nil},
		{"/octo/shop", []string{"Basket", "Draft", "Merged", "Add &lt;b&gt;a basket&lt;/b&gt;"}, nil},
		{fmt.Sprintf("/octo/shop/issues/%d", n), []string{
			"Add &lt;b&gt;a basket&lt;/b&gt;", "<strong>total</strong>", "slipway:build", "slipway[bot]", "<td>plan</td>",
			"👀 eyes 1", "🚀 rocket 1", fmt.Sprintf(`id="issuecomment-%d"`, c.GetID()), "prefers-color-scheme: dark", "width=device-width",
		}, []string{"<script", "javascript:", "slipway:1"}},
		{fmt.Sprintf("/octo/shop/pull/%d", pr.GetNumber()), []string{
			"Draft", "<code>slipway/1-basket</code> into <code>main</code>", `id="checks"`, "slipway/build", "Built with 2 debts", "success",
			head[:10], "Print two", "x := &quot;&lt;b&gt;&quot;", "Why two?", "main.go:4", "2 files, &#43;2 −1",
		}, nil},
		{fmt.Sprintf("/octo/shop/pull/%d/files", pr.GetNumber()), []string{
			"main.go", `<span class="add">&#43;	println(2)</span>`, `<span class="del">-	println(1)</span>`, "new.txt", "Why two?",
		}, nil},
		{fmt.Sprintf("/octo/shop/runs/%d", run.GetID()), []string{"All <strong>green</strong>", head, "success"}, nil},
		{"/octo/shop/commit/" + head, []string{"Print two", "println(2)"}, nil},
	} {
		t.Run(c.path, func(t *testing.T) {
			resp, body := w.fetch(t, "GET", c.path, "", "", "Accept", "text/html")
			if resp.StatusCode != 200 || !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'") {
				t.Fatalf("answered %s with %v", resp.Status, resp.Header)
			}
			for _, fact := range c.has {
				if !strings.Contains(body, fact) {
					t.Errorf("the page lacks %q", fact)
				}
			}
			for _, danger := range append(c.not, "http-equiv", "src=") {
				if strings.Contains(body, danger) {
					t.Errorf("the page has %q", danger)
				}
			}
			if t.Failed() {
				t.Log(body)
			}
		})
	}
	for _, path := range []string{"/octo/shop/issues/99", "/nobody/nothing", "/octo/shop/pull/x"} {
		if resp, _ := w.fetch(t, "GET", path, "", "", "Accept", "text/html"); resp.StatusCode != 404 {
			t.Errorf("%s answered %s", path, resp.Status)
		}
	}
}

// other makes one more branch.
func other(t *testing.T, w *world) (string, error) {
	_, err := w.Commit(t.Context(), githubsim.CommitSpec{Repo: "octo/shop", Branch: "other", Message: "Other", By: "tom", Files: map[string]string{"o": "o"}})
	return "other", err
}
