package githubsim_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

// branch makes a branch with one commit that changes main.go, by maria.
func (w *world) branch(t *testing.T, name string) string {
	t.Helper()
	return must(w.Commit(t.Context(), githubsim.CommitSpec{
		Repo: "octo/shop", Branch: name, Message: "Print two", By: "maria",
		Files: map[string]string{"main.go": "package main\n\nfunc main() {\n\tprintln(2)\n}\n", "new.txt": "new\n"},
	}))(t).SHA
}

func TestReadingAndWritingATicket(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	n := w.ticket(t, "Add a basket")

	issue := got(gh.Issues.Get(ctx, "octo", "shop", n))(t)
	if issue.GetTitle() != "Add a basket" || issue.GetUser().GetLogin() != "maria" || issue.IsPullRequest() {
		t.Fatalf("ticket read back as %v", issue)
	}
	labels := got(gh.Issues.AddLabelsToIssue(ctx, "octo", "shop", n, []string{"slipway:build", "bug"}))(t)
	if len(labels) != 2 || labels[0].GetName() != "slipway:build" {
		t.Fatalf("labels are %v", labels)
	}
	if _, err := gh.Issues.RemoveLabelForIssue(ctx, "octo", "shop", n, "slipway:build"); err != nil {
		t.Fatal(err)
	}
	if resp, err := gh.Issues.RemoveLabelForIssue(ctx, "octo", "shop", n, "slipway:build"); err == nil || resp.StatusCode != 404 {
		t.Fatalf("a label that is gone was removed again: %v", err)
	}
	if left := got(gh.Issues.ListLabelsByIssue(ctx, "octo", "shop", n, nil))(t); len(left) != 1 || left[0].GetName() != "bug" {
		t.Fatalf("labels left: %v", left)
	}

	made := got(gh.Issues.CreateComment(ctx, "octo", "shop", n, &github.IssueComment{Body: github.String("queued")}))(t)
	if made.GetUser().GetLogin() != "slipway[bot]" || made.GetUser().GetType() != "Bot" {
		t.Fatalf("the comment is by %v", made.GetUser())
	}
	got(gh.Issues.EditComment(ctx, "octo", "shop", made.GetID(), &github.IssueComment{Body: github.String("running")}))(t)
	if read := got(gh.Issues.GetComment(ctx, "octo", "shop", made.GetID()))(t); read.GetBody() != "running" {
		t.Fatalf("the comment says %q", read.GetBody())
	}
	react := got(gh.Reactions.CreateIssueCommentReaction(ctx, "octo", "shop", made.GetID(), "eyes"))(t)
	again, resp, err := gh.Reactions.CreateIssueCommentReaction(ctx, "octo", "shop", made.GetID(), "eyes")
	if err != nil || resp.StatusCode != 200 || again.GetID() != react.GetID() {
		t.Fatalf("the same reaction again: %v %v", resp.Status, err)
	}
	got(gh.Reactions.CreateIssueReaction(ctx, "octo", "shop", n, "rocket"))(t)
	if all := got(gh.Reactions.ListIssueReactions(ctx, "octo", "shop", n, nil))(t); len(all) != 1 || all[0].GetContent() != "rocket" {
		t.Fatalf("reactions are %v", all)
	}
	if all := got(gh.Reactions.ListIssueCommentReactions(ctx, "octo", "shop", made.GetID(), nil))(t); len(all) != 1 {
		t.Fatalf("reactions are %v", all)
	}
	if _, err := gh.Issues.DeleteComment(ctx, "octo", "shop", made.GetID()); err != nil {
		t.Fatal(err)
	}
	if _, resp, err := gh.Issues.GetComment(ctx, "octo", "shop", made.GetID()); err == nil || resp.StatusCode != 404 {
		t.Fatalf("a deleted comment was read: %v", err)
	}
	closed := got(gh.Issues.Edit(ctx, "octo", "shop", n, &github.IssueRequest{State: github.String("closed")}))(t)
	if closed.GetState() != "closed" || closed.ClosedAt == nil {
		t.Fatalf("closed ticket is %v", closed)
	}
	followUp := got(gh.Issues.Create(ctx, "octo", "shop", &github.IssueRequest{Title: github.String("Later"), Labels: &[]string{"debt"}}))(t)
	open := got(gh.Issues.ListByRepo(ctx, "octo", "shop", &github.IssueListByRepoOptions{Labels: []string{"debt"}}))(t)
	if len(open) != 1 || open[0].GetNumber() != followUp.GetNumber() {
		t.Fatalf("open tickets with the label: %v", open)
	}
}

func TestCommentsThatGitHubRefuses(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	n := w.ticket(t, "x")
	for name, c := range map[string]struct {
		body   string
		status int
	}{
		"as long as can be":    {strings.Repeat("é", 65536), 201},
		"one character longer": {strings.Repeat("é", 65537), 422},
		"blank":                {" \n", 422},
	} {
		t.Run(name, func(t *testing.T) {
			_, resp, err := w.client(t, nil).Issues.CreateComment(t.Context(), "octo", "shop", n, &github.IssueComment{Body: &c.body})
			if resp == nil || resp.StatusCode != c.status {
				t.Fatalf("answered %v, want %d", err, c.status)
			}
		})
	}
}

func TestPagesOfComments(t *testing.T) {
	at := time.Now()
	w := newWorld(t, githubsim.Options{Clock: func() time.Time { return at }})
	n := w.ticket(t, "long talk")
	for i := range 7 {
		must(w.Comment(t.Context(), githubsim.CommentSpec{Repo: "octo/shop", Number: n, Body: strings.Repeat("x", i+1), By: "tom"}))(t)
	}
	var bodies []string
	o := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 3}}
	pages := 0
	gh := w.client(t, nil)
	for {
		some, resp, err := gh.Issues.ListComments(t.Context(), "octo", "shop", n, o)
		if err != nil {
			t.Fatal(err)
		}
		pages++
		for _, c := range some {
			bodies = append(bodies, c.GetBody())
		}
		if pages == 1 && resp.LastPage != 3 {
			t.Fatalf("the last page is %d, want 3", resp.LastPage)
		}
		if resp.NextPage == 0 {
			break
		}
		o.Page = resp.NextPage
	}
	if pages != 3 || len(bodies) != 7 || bodies[6] != "xxxxxxx" {
		t.Fatalf("%d pages with %q", pages, bodies)
	}
	later := at.Add(time.Hour)
	if some := got(gh.Issues.ListComments(t.Context(), "octo", "shop", n, &github.IssueListCommentsOptions{Since: &later}))(t); len(some) != 0 {
		t.Fatalf("since an hour later there are %d comments", len(some))
	}
}

func TestRolesAsTheEffectiveRole(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	must(w.SetRole(t.Context(), githubsim.RoleSpec{Repo: "octo/shop", Login: "helper[bot]", Role: "admin"}))(t)
	must(w.CreateUser(t.Context(), githubsim.UserSpec{Login: "stranger"}))(t)
	for _, c := range []struct{ who, login, permission, role string }{
		{"a writer", "maria", "write", "write"},
		{"a triager, whom the old field calls a reader", "tom", "read", "triage"},
		{"a maintainer, whom the old field calls a writer", "rita", "write", "maintain"},
		{"the owner", "octo", "admin", "admin"},
		{"a stranger", "stranger", "none", "none"},
		{"a bot, whatever was granted", "helper[bot]", "none", "none"},
		{"the App itself", "slipway[bot]", "none", "none"},
	} {
		t.Run(c.who, func(t *testing.T) {
			level := got(w.client(t, nil).Repositories.GetPermissionLevel(t.Context(), "octo", "shop", c.login))(t)
			if level.GetPermission() != c.permission || level.GetUser().GetRoleName() != c.role {
				t.Fatalf("permission %s, role %s", level.GetPermission(), level.GetUser().GetRoleName())
			}
		})
	}
}

func TestRefsMoveForward(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	two := w.branch(t, "feature/two")
	ref := got(gh.Git.CreateRef(ctx, "octo", "shop", &github.Reference{Ref: github.String("refs/heads/slipway/1-a"), Object: &github.GitObject{SHA: &w.repo.Head}}))(t)
	if ref.GetObject().GetSHA() != w.repo.Head {
		t.Fatalf("made %v", ref)
	}
	if _, resp, err := gh.Git.CreateRef(ctx, "octo", "shop", ref); err == nil || resp.StatusCode != 422 {
		t.Fatalf("the same ref was made twice: %v", err)
	}
	ref.Object.SHA = &two
	got(gh.Git.UpdateRef(ctx, "octo", "shop", ref, false))(t)
	ref.Object.SHA = &w.repo.Head
	if _, resp, err := gh.Git.UpdateRef(ctx, "octo", "shop", ref, false); err == nil || resp.StatusCode != 422 {
		t.Fatalf("a ref moved backwards: %v", err)
	}
	if at := got(gh.Git.GetRef(ctx, "octo", "shop", "heads/slipway/1-a"))(t); at.GetObject().GetSHA() != two {
		t.Fatalf("the ref is at %s", at.GetObject().GetSHA())
	}
	if all := got(gh.Git.ListMatchingRefs(ctx, "octo", "shop", &github.ReferenceListOptions{Ref: "heads/slipway/"}))(t); len(all) != 1 {
		t.Fatalf("matching refs: %v", all)
	}
	branch := got(gh.Repositories.GetBranch(ctx, "octo", "shop", "feature/two", 1))(t)
	if branch.GetCommit().GetSHA() != two {
		t.Fatalf("the branch is at %v", branch)
	}
	commit := got(gh.Repositories.GetCommit(ctx, "octo", "shop", two, nil))(t)
	if commit.GetCommit().GetMessage() != "Print two" || commit.GetAuthor().GetLogin() != "maria" || commit.GetStats().GetAdditions() != 2 {
		t.Fatalf("the commit is %v", commit)
	}
	if _, err := gh.Git.DeleteRef(ctx, "octo", "shop", "heads/slipway/1-a"); err != nil {
		t.Fatal(err)
	}
	if _, resp, err := gh.Git.GetRef(ctx, "octo", "shop", "heads/slipway/1-a"); err == nil || resp.StatusCode != 404 {
		t.Fatalf("a deleted ref was read: %v", err)
	}
	file, _, _, err := gh.Repositories.GetContents(ctx, "octo", "shop", ".github/slipway.yml", nil)
	if err != nil {
		t.Fatal(err)
	}
	if text := must(file.GetContent())(t); text != "runtime: replay\n" {
		t.Fatalf("the file says %q", text)
	}
	_, entries, _, err := gh.Repositories.GetContents(ctx, "octo", "shop", "", &github.RepositoryContentGetOptions{Ref: "feature/two"})
	if err != nil || len(entries) != 5 {
		t.Fatalf("the directory has %v: %v", entries, err)
	}
}

func TestPullRequests(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	head := w.branch(t, "slipway/1-two")
	draft := &github.NewPullRequest{Title: github.String("Two"), Head: github.String("slipway/1-two"), Base: github.String("main"), Body: github.String("Closes #1"), Draft: github.Bool(true)}
	pr := got(gh.PullRequests.Create(ctx, "octo", "shop", draft))(t)
	if !pr.GetDraft() || pr.GetHead().GetSHA() != head || pr.GetChangedFiles() != 2 || pr.GetMergeableState() != "draft" {
		t.Fatalf("opened as %v", pr)
	}
	for name, c := range map[string]struct {
		pull *github.NewPullRequest
		says string
	}{
		"a second one for the branch": {draft, "A pull request already exists for octo:slipway/1-two."},
		"no commits between":          {&github.NewPullRequest{Title: github.String("x"), Head: github.String("main"), Base: github.String("main")}, "No commits between main and main"},
		"a head that is not there":    {&github.NewPullRequest{Title: github.String("x"), Head: github.String("nope"), Base: github.String("main")}, "Validation Failed"},
	} {
		_, resp, err := gh.PullRequests.Create(ctx, "octo", "shop", c.pull)
		if err == nil || resp.StatusCode != 422 || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, c := range map[string]struct {
		o    github.PullRequestListOptions
		want int
	}{
		"by head":      {github.PullRequestListOptions{Head: "octo:slipway/1-two"}, 1},
		"another head": {github.PullRequestListOptions{Head: "octo:other"}, 0},
		"by base":      {github.PullRequestListOptions{Base: "main"}, 1},
		"closed":       {github.PullRequestListOptions{State: "closed"}, 0},
	} {
		if all := got(gh.PullRequests.List(ctx, "octo", "shop", &c.o))(t); len(all) != c.want {
			t.Errorf("%s: %d found", name, len(all))
		}
	}
	plain := must(w.CreateRepo(ctx, githubsim.RepoSpec{Owner: "octo", Name: "plain", NoDrafts: true}))(t)
	must(w.Commit(ctx, githubsim.CommitSpec{Repo: "octo/plain", Branch: "slipway/1-two", Message: "x", By: "maria", Files: map[string]string{"a": plain.Head}}))(t)
	if _, resp, err := gh.PullRequests.Create(ctx, "octo", "plain", draft); err == nil || resp.StatusCode != 422 || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("a draft on a plan without drafts: %v", err)
	}
	edited := got(gh.PullRequests.Edit(ctx, "octo", "shop", pr.GetNumber(), &github.PullRequest{Title: github.String("Two!"), Body: github.String("Debt: none")}))(t)
	if edited.GetTitle() != "Two!" || edited.GetBody() != "Debt: none" {
		t.Fatalf("edited to %v", edited)
	}
	files := got(gh.PullRequests.ListFiles(ctx, "octo", "shop", pr.GetNumber(), nil))(t)
	if len(files) != 2 || files[0].GetFilename() != "main.go" || !strings.Contains(files[0].GetPatch(), "+\tprintln(2)") || files[1].GetStatus() != "added" {
		t.Fatalf("files are %v", files)
	}
	thread := got(gh.Issues.Get(ctx, "octo", "shop", pr.GetNumber()))(t)
	if !thread.IsPullRequest() {
		t.Fatal("the pull request's thread does not say that it is one")
	}
	got(gh.Issues.CreateComment(ctx, "octo", "shop", pr.GetNumber(), &github.IssueComment{Body: github.String("hi")}))(t)
	closed := got(gh.PullRequests.Edit(ctx, "octo", "shop", pr.GetNumber(), &github.PullRequest{State: github.String("closed")}))(t)
	if closed.GetState() != "closed" || closed.GetMerged() {
		t.Fatalf("closed as %v", closed)
	}
}

func TestReviewsStandOnTheDiff(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	head := w.branch(t, "topic")
	n := must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "T", Head: "topic", By: "maria"}))(t).Number
	remark := func(path string, line int) *github.DraftReviewComment {
		return &github.DraftReviewComment{Path: &path, Line: &line, Side: github.String("RIGHT"), Body: github.String("see")}
	}
	review := func(all ...*github.DraftReviewComment) (*github.PullRequestReview, *github.Response, error) {
		return gh.PullRequests.CreateReview(ctx, "octo", "shop", n, &github.PullRequestReviewRequest{
			CommitID: &head, Body: github.String("Findings"), Event: github.String("COMMENT"), Comments: all,
		})
	}
	for name, bad := range map[string]*github.DraftReviewComment{
		"a line outside the hunks":   remark("main.go", 40),
		"a file that is not in it":   remark("README.md", 1),
		"an empty line number":       remark("main.go", 0),
		"a file that does not exist": remark("gone.go", 1),
	} {
		if _, resp, err := review(remark("main.go", 4), bad); err == nil || resp.StatusCode != 422 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if all := got(gh.PullRequests.ListComments(ctx, "octo", "shop", n, nil))(t); len(all) != 0 {
		t.Fatalf("a refused review left %d comments", len(all))
	}
	made := got(review(remark("main.go", 4), remark("new.txt", 1)))(t)
	if made.GetState() != "COMMENTED" || made.GetCommitID() != head {
		t.Fatalf("reviewed as %v", made)
	}
	comments := got(gh.PullRequests.ListComments(ctx, "octo", "shop", n, nil))(t)
	if len(comments) != 2 || comments[0].GetLine() != 4 || !strings.Contains(comments[0].GetDiffHunk(), "println(2)") {
		t.Fatalf("comments are %v", comments)
	}
	reply := got(gh.PullRequests.CreateCommentInReplyTo(ctx, "octo", "shop", n, "fixed", comments[0].GetID()))(t)
	if reply.GetInReplyTo() != comments[0].GetID() || reply.GetPath() != "main.go" {
		t.Fatalf("replied as %v", reply)
	}
	all := got(gh.PullRequests.ListReviews(ctx, "octo", "shop", n, nil))(t)
	if len(all) != 2 || reply.GetPullRequestReviewID() != all[1].GetID() || all[1].GetBody() != "" { // each reply is a review of its own
		t.Fatalf("%d reviews, the reply is of %d", len(all), reply.GetPullRequestReviewID())
	}
}

func TestCheckRuns(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	create := func(o github.CreateCheckRunOptions) (*github.CheckRun, *github.Response, error) {
		o.HeadSHA = w.repo.Head
		return gh.Checks.CreateCheckRun(ctx, "octo", "shop", o)
	}
	output := func(summary, text string) *github.CheckRunOutput {
		return &github.CheckRunOutput{Title: github.String("T"), Summary: &summary, Text: &text}
	}
	run := got(create(github.CreateCheckRunOptions{Name: "slipway/build", ExternalID: github.String("r1:abc"), Status: github.String("in_progress"), Output: output("s", "t")}))(t)
	if run.GetStatus() != "in_progress" || run.GetExternalID() != "r1:abc" || run.GetApp().GetID() != w.app.ID {
		t.Fatalf("created as %v", run)
	}
	done := got(gh.Checks.UpdateCheckRun(ctx, "octo", "shop", run.GetID(), github.UpdateCheckRunOptions{
		Name: "slipway/build", Status: github.String("completed"), Conclusion: github.String("success"),
		Output:  &github.CheckRunOutput{Title: github.String("Done"), Summary: github.String("all"), Annotations: []*github.CheckRunAnnotation{{Path: github.String("main.go"), StartLine: github.Int(1), EndLine: github.Int(1), AnnotationLevel: github.String("warning"), Message: github.String("m")}}},
		Actions: []*github.CheckRunAction{{Label: "Re-run", Description: "again", Identifier: "rerun"}},
	}))(t)
	if done.GetConclusion() != "success" || done.GetOutput().GetText() != "" || done.GetOutput().GetAnnotationsCount() != 1 || done.CompletedAt == nil {
		t.Fatalf("completed as %v", done)
	}
	if all := got(gh.Checks.ListCheckRunAnnotations(ctx, "octo", "shop", run.GetID(), nil))(t); len(all) != 1 || all[0].GetMessage() != "m" {
		t.Fatalf("annotations: %v", all)
	}
	again := got(create(github.CreateCheckRunOptions{Name: "slipway/build", Conclusion: github.String("failure")}))(t)
	for name, c := range map[string]struct {
		o    github.ListCheckRunsOptions
		want []int64
	}{
		"the newest of a name": {github.ListCheckRunsOptions{CheckName: github.String("slipway/build")}, []int64{again.GetID()}},
		"all":                  {github.ListCheckRunsOptions{Filter: github.String("all")}, []int64{again.GetID(), run.GetID()}},
		"another name":         {github.ListCheckRunsOptions{CheckName: github.String("ci")}, nil},
		"another app":          {github.ListCheckRunsOptions{AppID: github.Int64(1)}, nil},
	} {
		all := got(gh.Checks.ListCheckRunsForRef(ctx, "octo", "shop", w.repo.Head, &c.o))(t)
		var ids []int64
		for _, r := range all.CheckRuns {
			ids = append(ids, r.GetID())
		}
		if len(ids) != len(c.want) || all.GetTotal() != len(c.want) {
			t.Errorf("%s: %v", name, ids)
		}
	}
	if suites := got(gh.Checks.ListCheckSuitesForRef(ctx, "octo", "shop", "main", nil))(t); suites.GetTotal() != 1 {
		t.Fatalf("suites: %v", suites)
	}
	got(gh.Repositories.GetCombinedStatus(ctx, "octo", "shop", "main", nil))(t)

	action := func(label, description, id string) []*github.CheckRunAction {
		return []*github.CheckRunAction{{Label: label, Description: description, Identifier: id}}
	}
	for name, o := range map[string]github.CreateCheckRunOptions{
		"a summary of 65,536 bytes": {Name: "x", Output: output(strings.Repeat("é", 32768), "")},
		"51 annotations":            {Name: "x", Output: &github.CheckRunOutput{Title: github.String("x"), Summary: github.String("x"), Annotations: make51()}},
		"completed, no conclusion":  {Name: "x", Status: github.String("completed")},
		"4 buttons":                 {Name: "x", Actions: append(append(action("a", "a", "a"), action("b", "b", "b")...), append(action("c", "c", "c"), action("d", "d", "d")...)...)},
		"a label of 21 characters":  {Name: "x", Actions: action(strings.Repeat("l", 21), "d", "i")},
		"a description of 41":       {Name: "x", Actions: action("l", strings.Repeat("d", 41), "i")},
		"an identifier of 21":       {Name: "x", Actions: action("l", "d", strings.Repeat("i", 21))},
	} {
		if _, resp, err := create(o); err == nil || resp.StatusCode != 422 {
			t.Errorf("%s was accepted: %v", name, err)
		}
	}
	long := got(create(github.CreateCheckRunOptions{Name: "long", Output: output(strings.Repeat("é", 32767), strings.Repeat("é", 40000))}))(t)
	if n := len(long.GetOutput().GetText()); n != 65534 {
		t.Fatalf("the text has %d bytes: it should be cut, silently and between characters", n)
	}
}

func make51() []*github.CheckRunAnnotation {
	var all []*github.CheckRunAnnotation
	for range 51 {
		all = append(all, &github.CheckRunAnnotation{Path: github.String("a"), StartLine: github.Int(1), EndLine: github.Int(1), AnnotationLevel: github.String("notice"), Message: github.String("m")})
	}
	return all
}
