package githubsim_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestAnAppSpeaksForItself(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, gh := t.Context(), w.asApp(t)
	if me := got(gh.Apps.Get(ctx, ""))(t); me.GetSlug() != "slipway" || me.GetID() != w.app.ID {
		t.Fatalf("the App is %v", me)
	}
	if all := got(gh.Apps.ListInstallations(ctx, nil))(t); len(all) != 1 || all[0].GetID() != w.inst {
		t.Fatalf("installations: %v", all)
	}
	if one := got(gh.Apps.GetInstallation(ctx, w.inst))(t); one.GetAccount().GetLogin() != "octo" {
		t.Fatalf("the installation is %v", one)
	}
	if one := got(gh.Apps.FindRepositoryInstallation(ctx, "octo", "shop"))(t); one.GetID() != w.inst {
		t.Fatalf("the repository's installation is %v", one)
	}
	if _, resp, err := gh.Repositories.Get(ctx, "octo", "shop"); err == nil || resp.StatusCode == 200 {
		t.Fatal("a JWT read a repository")
	}
	if bot := got(w.client(t, nil).Users.Get(ctx, "slipway[bot]"))(t); bot.GetType() != "Bot" {
		t.Fatalf("the bot is %v", bot)
	}
}

func TestJWTsThatAreRefused(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	other := must(w.CreateApp(t.Context(), githubsim.AppSpec{Slug: "other"}))(t)
	now := time.Now()
	for name, c := range map[string]struct {
		jwt  string
		says string
	}{
		"good":              {jwt(t, w.app.PrivateKey, w.app.ID, now, now.Add(time.Minute)), ""},
		"another App's key": {jwt(t, other.PrivateKey, w.app.ID, now, now.Add(time.Minute)), "could not be decoded"},
		"no such App":       {jwt(t, w.app.PrivateKey, 4, now, now.Add(time.Minute)), "Integration not found"},
		"expired":           {jwt(t, w.app.PrivateKey, w.app.ID, now.Add(-time.Hour), now.Add(-time.Minute)), "'exp'"},
		"too long":          {jwt(t, w.app.PrivateKey, w.app.ID, now, now.Add(time.Hour)), "too far in the future"},
		"from the future":   {jwt(t, w.app.PrivateKey, w.app.ID, now.Add(5*time.Minute), now.Add(6*time.Minute)), "'iat'"},
		"garbage":           {"a.b.c", "could not be decoded"},
	} {
		t.Run(name, func(t *testing.T) {
			resp, body := w.fetch(t, "GET", "/app", c.jwt, "")
			if c.says == "" && resp.StatusCode == 200 {
				return
			}
			if resp.StatusCode != 401 || c.says == "" || !strings.Contains(body, c.says) {
				t.Fatalf("answered %d %s", resp.StatusCode, body)
			}
		})
	}
}

func TestTokensAreNarrowAndShort(t *testing.T) {
	var mu sync.Mutex
	ahead := time.Duration(0)
	w := newWorld(t, githubsim.Options{Clock: func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		return time.Now().Add(ahead)
	}})
	ctx := t.Context()
	must(w.CreateRepo(ctx, githubsim.RepoSpec{Owner: "octo", Name: "second"}))(t)
	must(w.CreateRepo(ctx, githubsim.RepoSpec{Owner: "else", Name: "where"}))(t)
	n := w.ticket(t, "x")

	read := &github.InstallationTokenOptions{
		Repositories: []string{"shop"}, Permissions: &github.InstallationPermissions{Issues: github.String("read")},
	}
	narrow := w.token(t, read)
	if len(narrow) < 300 || !strings.HasPrefix(narrow, fmt.Sprintf("ghs_%d_", w.app.ID)) {
		t.Fatalf("the token %q is not of the long shape", narrow)
	}
	wide := w.token(t, nil)
	issue := fmt.Sprintf("/repos/octo/shop/issues/%d", n)
	check := `{"name":"x","head_sha":"` + w.repo.Head + `"}`
	for _, c := range []struct {
		who, method, path, token, body string
		status                         int
	}{
		{"narrow reads its ticket", "GET", issue, narrow, "", 200},
		{"below /api/v3 too", "GET", "/api/v3" + issue, narrow, "", 200},
		{"narrow may not write it", "POST", issue + "/comments", narrow, `{"body":"x"}`, 403},
		{"nor checks", "POST", "/repos/octo/shop/check-runs", narrow, check, 403},
		{"nor another repository of the installation", "GET", "/repos/octo/second", narrow, "", 404},
		{"wide reads that", "GET", "/repos/octo/second", wide, "", 200},
		{"wide does not reach another account", "GET", "/repos/else/where", wide, "", 404},
		{"wide lists what it reaches", "GET", "/installation/repositories", wide, "", 200},
		{"wide may write checks", "POST", "/repos/octo/shop/check-runs", wide, check, 201},
		{"nobody", "GET", issue, "", "", 404},
		{"a made-up token", "GET", issue, "ghs_1_x", "", 401},
	} {
		t.Run(c.who, func(t *testing.T) {
			resp, body := w.fetch(t, c.method, c.path, c.token, c.body)
			if resp.StatusCode != c.status {
				t.Fatalf("answered %d %s, want %d", resp.StatusCode, body, c.status)
			}
			if c.status == 403 && !strings.Contains(body, "Resource not accessible by integration") {
				t.Fatalf("answered %s", body)
			}
		})
	}
	for name, o := range map[string]*github.InstallationTokenOptions{
		"a repository that it does not have": {Repositories: []string{"nope"}},
		"a permission that it does not have": {Permissions: &github.InstallationPermissions{Workflows: github.String("write")}},
		"a higher level than it has":         {Permissions: &github.InstallationPermissions{Statuses: github.String("write")}},
	} {
		if _, resp, err := w.asApp(t).Apps.CreateInstallationToken(ctx, w.inst, o); err == nil || resp.StatusCode != 422 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if resp, _ := w.fetch(t, "DELETE", "/installation/token", narrow, ""); resp.StatusCode != 204 {
		t.Fatalf("revoking answered %s", resp.Status)
	}
	if resp, _ := w.fetch(t, "GET", issue, narrow, ""); resp.StatusCode != 401 {
		t.Fatalf("a revoked token answered %s", resp.Status)
	}
	mu.Lock()
	ahead = time.Hour + time.Second
	mu.Unlock()
	if resp, _ := w.fetch(t, "GET", issue, wide, ""); resp.StatusCode != 401 {
		t.Fatalf("a token of an hour ago answered %s", resp.Status)
	}
}
