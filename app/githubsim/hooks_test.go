package githubsim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestWebhooksOfEverything(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.client(t, nil)
	n := w.ticket(t, "Add a basket")
	on := githubsim.Labelling{Repo: "octo/shop", Number: n, Label: "slipway:build", By: "maria"}
	must(w.Label(ctx, on))(t)
	must(w.Unlabel(ctx, on))(t)
	c := must(w.Comment(ctx, githubsim.CommentSpec{Repo: "octo/shop", Number: n, Body: "/build", By: "tom"}))(t)
	must(w.EditComment(ctx, githubsim.CommentEdit{Repo: "octo/shop", ID: c.ID, Body: "/build --fast", By: "tom"}))(t)
	must(w.DeleteComment(ctx, githubsim.CommentEdit{Repo: "octo/shop", ID: c.ID, By: "tom"}))(t)
	state := "closed"
	must(w.EditTicket(ctx, githubsim.TicketEdit{Repo: "octo/shop", Number: n, State: &state, By: "maria"}))(t)
	w.branch(t, "topic")
	pr := must(w.OpenPull(ctx, githubsim.PullSpec{Repo: "octo/shop", Title: "T", Head: "topic", By: "maria"}))(t).Number
	run := got(gh.Checks.CreateCheckRun(ctx, "octo", "shop", github.CreateCheckRunOptions{
		Name: "slipway/review", HeadSHA: w.repo.Head, Conclusion: github.String("success"),
		Actions: []*github.CheckRunAction{{Label: "Fix", Description: "Fix them", Identifier: "fix"}},
	}))(t)
	must(w.PressButton(ctx, githubsim.Press{Repo: "octo/shop", Check: run.GetID(), By: "maria"}))(t)
	must(w.PressButton(ctx, githubsim.Press{Repo: "octo/shop", Check: run.GetID(), Action: "fix", By: "maria"}))(t)
	must(w.RerunChecks(ctx, githubsim.Rerun{Repo: "octo/shop", SHA: run.GetHeadSHA(), By: "maria"}))(t)
	must(w.Review(ctx, githubsim.ReviewSpec{Repo: "octo/shop", Number: pr, Event: "REQUEST_CHANGES", Body: "No", By: "rita",
		Remarks: []githubsim.Remark{{Path: "main.go", Line: 4, Body: "Why?"}}}))(t)
	must(w.Merge(ctx, githubsim.PullRef{Repo: "octo/shop", Number: pr, By: "rita"}))(t)
	must(w.Ping(ctx, githubsim.AppRef{Slug: "slipway"}))(t)

	want := []string{
		"installation.created", "issues.opened", "issues.labeled", "issues.unlabeled", "issue_comment.created",
		"issue_comment.edited", "issue_comment.deleted", "issues.closed", "push.", "pull_request.opened",
		"check_run.created", "check_run.completed", "check_run.rerequested", "check_run.requested_action",
		"check_suite.rerequested", "pull_request_review.submitted", "pull_request_review_comment.created", "push.", "pull_request.closed", "ping.",
	}
	var names []string
	seen := map[string]bool{}
	for range want {
		h := w.hooks.next(t)
		names = append(names, h.name(t))
		p := h.read(t)
		if !h.signed() || h.guid == "" || seen[h.guid] {
			t.Errorf("%s: signature %q, GUID %q", h.name(t), h.signature, h.guid)
		}
		seen[h.guid] = true
		if h.event != "ping" && p.Installation.ID != w.inst {
			t.Errorf("%s: installation %d", h.name(t), p.Installation.ID)
		}
		switch h.name(t) {
		case "issues.labeled":
			if p.Label.Name != "slipway:build" || p.Sender.Login != "maria" {
				t.Errorf("labeled says %+v", p)
			}
		case "issue_comment.created":
			if p.Comment.Body != "/build" || p.Comment.Association != "COLLABORATOR" || p.Sender.Login != "tom" {
				t.Errorf("created says %+v", p)
			}
		case "check_run.requested_action":
			if p.Requested.Identifier != "fix" {
				t.Errorf("requested_action says %+v", p)
			}
		case "pull_request.closed":
			if !p.Pull.Merged {
				t.Error("the merged pull request does not say so")
			}
		}
	}
	if !slices.Equal(names, want) {
		t.Errorf("webhooks came as\n%q, want\n%q", names, want)
	}
}

func TestRedeliveryKeepsTheGUID(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.asApp(t)
	w.hooks.until(t, "installation.created")
	must(w.AddFault(ctx, githubsim.Fault{Kind: githubsim.FaultLose, Event: "issues.opened", Times: 1}))(t)
	w.ticket(t, "lost")
	w.ticket(t, "arrives")
	second := w.hooks.until(t, "issues.opened")
	var failed *github.HookDelivery
	o := &github.ListCursorOptions{PerPage: 1}
	listed := 0
	for {
		some, resp, err := gh.Apps.ListHookDeliveries(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range some {
			listed++
			if d.GetStatusCode() == 502 {
				failed = d
			}
		}
		if o.Cursor = resp.Cursor; o.Cursor == "" {
			break
		}
	}
	if failed == nil || failed.GetEvent() != "issues" || failed.GetAction() != "opened" || listed < 2 {
		t.Fatalf("of %d listed, the failed one is %v", listed, failed)
	}
	full := got(gh.Apps.GetHookDelivery(ctx, failed.GetID()))(t)
	if full.Request == nil || !strings.Contains(string(full.Request.GetRawPayload()), `"lost"`) {
		t.Fatalf("the delivery is %v", full)
	}
	_, resp, err := gh.Apps.RedeliverHookDelivery(ctx, failed.GetID())
	if _, accepted := errors.AsType[*github.AcceptedError](err); !accepted || resp.StatusCode != 202 {
		t.Fatalf("redelivery answered %v", err)
	}
	again := w.hooks.next(t)
	if again.guid != failed.GetGUID() || again.guid == second.guid || !again.signed() {
		t.Fatalf("redelivered as %s, was %s", again.guid, failed.GetGUID())
	}
}

func TestWebhooksTwiceAndOutOfOrder(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx := t.Context()
	w.hooks.until(t, "installation.created")
	must(w.AddFault(ctx, githubsim.Fault{Kind: githubsim.FaultRepeat, Event: "issues.opened", Times: 1}))(t)
	n := w.ticket(t, "x")
	one, two := w.hooks.next(t), w.hooks.next(t)
	if one.guid != two.guid || string(one.body) != string(two.body) {
		t.Fatalf("repeated as %s and %s", one.guid, two.guid)
	}
	must(w.AddFault(ctx, githubsim.Fault{Kind: githubsim.FaultDelay, Event: "issues.labeled", Times: 1}))(t)
	for _, label := range []string{"first", "second", "third"} {
		must(w.Label(ctx, githubsim.Labelling{Repo: "octo/shop", Number: n, Label: label, By: "maria"}))(t)
	}
	var order []string
	for range 3 {
		order = append(order, w.hooks.next(t).read(t).Label.Name)
	}
	if !slices.Equal(order, []string{"second", "first", "third"}) {
		t.Fatalf("came as %q", order)
	}
}

// A check that is asked for again waits until its App writes to it, and is not
// touched by the asking.
func TestASuiteThatIsAskedForAgainWaitsForItsApp(t *testing.T) {
	t.Parallel()
	w := newWorld(t, githubsim.Options{})
	c := w.client(t, nil)
	head := got(c.Repositories.GetBranch(t.Context(), "octo", "shop", "main", 0))(t).GetCommit().GetSHA()
	run := got(c.Checks.CreateCheckRun(t.Context(), "octo", "shop", github.CreateCheckRunOptions{
		Name: "build", HeadSHA: head, Status: github.String("completed"), Conclusion: github.String("failure"),
	}))(t)
	stands := func(want string) {
		t.Helper()
		suites := got(c.Checks.ListCheckSuitesForRef(t.Context(), "octo", "shop", head, nil))(t)
		still := got(c.Checks.GetCheckRun(t.Context(), "octo", "shop", run.GetID()))(t)
		if len(suites.CheckSuites) != 1 || suites.CheckSuites[0].GetStatus() != want || still.GetConclusion() != "failure" {
			t.Fatalf("the suite is %v, the run %s; want %s and failure", suites.CheckSuites, still.GetConclusion(), want)
		}
	}
	stands("completed")
	for _, ask := range []func() error{
		func() error {
			_, err := w.PressButton(t.Context(), githubsim.Press{Repo: "octo/shop", Check: run.GetID(), By: "maria"})
			return err
		},
		func() error {
			_, err := w.RerunChecks(t.Context(), githubsim.Rerun{Repo: "octo/shop", SHA: head, By: "maria"})
			return err
		},
	} {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
		stands("queued")
		got(c.Checks.UpdateCheckRun(t.Context(), "octo", "shop", run.GetID(), github.UpdateCheckRunOptions{
			Name: "build", Status: github.String("completed"), Conclusion: github.String("failure"),
		}))(t)
		stands("completed")
	}
	if _, err := w.RerunChecks(t.Context(), githubsim.Rerun{Repo: "octo/shop", SHA: "c0ffee", By: "maria"}); err == nil {
		t.Error("a commit without checks was taken")
	}
}
