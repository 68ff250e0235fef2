package githubsim_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// startProcess runs the test binary as a server on dir, and returns its URL
// and what kills it without a word.
func startProcess(t *testing.T, dir string) (url string, kill func()) {
	t.Helper()
	self := must(os.Executable())(t)
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		// A canceled context kills the process group with SIGKILL.
		_, err := sandbox.Host(ctx, sandbox.Command{Args: []string{self}, Dir: dir, Env: append(os.Environ(), serveDir+"="+dir), Stdout: writer, Stderr: os.Stderr})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		if err := writer.Close(); err != nil {
			t.Error(err)
		}
	}()
	kill = sync.OnceFunc(func() {
		cancel()
		<-done
		if err := reader.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(kill)
	scan := bufio.NewScanner(reader)
	if !scan.Scan() {
		t.Fatal("the server process said nothing")
	}
	return scan.Text(), kill
}

func TestAKilledServerComesBackWithEverything(t *testing.T) {
	dir := t.TempDir()
	hooks := newReceiver(t)
	ctx := t.Context()
	do := func(m githubsim.Remote, verb string, in, out any) {
		t.Helper()
		if err := m.Do(ctx, verb, in, out); err != nil {
			t.Fatal(err)
		}
	}
	url, kill := startProcess(t, dir)
	sim := githubsim.Remote{URL: url}
	var app githubsim.App
	var repo githubsim.Repo
	var ticket githubsim.Thread
	do(sim, "app", githubsim.AppSpec{Slug: "slipway", Secret: secret, WebhookURL: hooks.server.URL, Events: []string{"issues", "issue_comment", "push"}}, &app)
	do(sim, "repo", githubsim.RepoSpec{Owner: "octo", Name: "shop"}, &repo)
	do(sim, "install", githubsim.InstallSpec{App: "slipway", Account: "octo"}, nil)
	do(sim, "role", githubsim.RoleSpec{Repo: "octo/shop", Login: "maria", Role: "write"}, nil)
	do(sim, "ticket", githubsim.TicketSpec{Repo: "octo/shop", Title: "Survive", By: "maria"}, &ticket)
	hooks.until(t, "issues.opened")
	kill()

	url, kill = startProcess(t, dir)
	sim.URL = url
	do(sim, "comment", githubsim.CommentSpec{Repo: "octo/shop", Number: ticket.Number, Body: "/build", By: "maria"}, nil)
	if h := hooks.until(t, "issue_comment.created"); !h.signed() {
		t.Fatal("the webhook after the restart is not signed with the old secret")
	}
	var same githubsim.App
	do(sim, "app", githubsim.AppSpec{Slug: "slipway"}, &same)
	if same != app {
		t.Fatalf("the App came back as %+v", same)
	}
	// A push that git took, and the server did not live to tell of.
	bare := filepath.Join(dir, "git/octo/shop.git")
	sha := strings.TrimSpace(mustGit(t, bare, "commit-tree", repo.Head+"^{tree}", "-p", repo.Head, "-m", "untold"))
	kill()
	mustGit(t, bare, "update-ref", "refs/heads/main", sha)
	url, kill = startProcess(t, dir)
	sim.URL = url
	if h := hooks.until(t, "push."); h.read(t).After != sha {
		t.Fatalf("the restart told of a push to %s, want %s", h.read(t).After, sha)
	}
	do(sim, "commit", githubsim.CommitSpec{Repo: "octo/shop", Branch: "main", Message: "next", By: "maria", Files: map[string]string{"a": "b"}}, nil)
	lines, err := sim.Log(ctx, "POST", "/repos/")
	if err != nil || len(lines) != 0 {
		t.Fatalf("the log has %v: %v", lines, err)
	}
	all, err := sim.Deliveries(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	for _, d := range all {
		events = append(events, d.Event+"."+d.Action)
	}
	if want := []string{"installation.created", "issues.opened", "issue_comment.created", "push.", "push."}; !slices.Equal(events, want) {
		t.Fatalf("deliveries are %q, want %q", events, want)
	}
	kill()

	var state struct {
		Repos []struct {
			Refs map[string]string `json:"refs"`
		} `json:"repos"`
	}
	if err := json.Unmarshal(must(os.ReadFile(filepath.Join(dir, "state.json")))(t), &state); err != nil {
		t.Fatal(err)
	}
	head := strings.TrimSpace(mustGit(t, bare, "rev-parse", "main"))
	if state.Repos[0].Refs["refs/heads/main"] != head || strings.TrimSpace(mustGit(t, bare, "rev-parse", "main^")) != sha {
		t.Fatal("the commit that nobody was told of is lost")
	}
}

func TestManyWritersAtOnce(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	n := w.ticket(t, "busy")
	gh := w.client(t, nil)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 3 {
				body := fmt.Sprint(i, " ", j)
				if _, _, err := gh.Issues.CreateComment(t.Context(), "octo", "shop", n, &github.IssueComment{Body: &body}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	list := got(gh.Issues.ListComments(t.Context(), "octo", "shop", n, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}}))(t)
	ids := map[int64]bool{}
	for _, c := range list {
		ids[c.GetID()] = true
	}
	if len(ids) != 24 {
		t.Fatalf("%d comments, want 24", len(ids))
	}
}
