package githubsim_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
)

func TestGitOverHTTP(t *testing.T) {
	w := newWorld(t, githubsim.Options{})
	ctx, dir := t.Context(), t.TempDir()
	remote := func(token string) string {
		return strings.Replace(w.repo.CloneURL, "http://", "http://x-access-token:"+token+"@", 1)
	}
	token := w.token(t, nil)
	mustGit(t, dir, "clone", "-q", remote(token), "shop")
	shop := filepath.Join(dir, "shop")
	if out := mustGit(t, shop, "ls-files", "-s", "run.sh"); !strings.HasPrefix(out, "100755") {
		t.Fatalf("run.sh is %s", out)
	}
	mustGit(t, shop, "switch", "-q", "-c", "slipway/1-big")
	// Text that does not compress: the pack is above the 1 MiB from which git sends chunks.
	big := make([]byte, 3<<20)
	for i, x := 0, uint32(1); i < len(big); i++ {
		x = x*1664525 + 1013904223
		big[i] = byte(x >> 24)
	}
	if err := os.WriteFile(filepath.Join(shop, "big.bin"), big, 0o644); err != nil {
		t.Fatal(err)
	}
	mustGit(t, shop, "add", ".")
	mustGit(t, shop, "commit", "-qm", "Big")
	mustGit(t, shop, "push", "-q", "origin", "slipway/1-big")
	gh := w.client(t, nil)
	pr := got(gh.PullRequests.Create(ctx, "octo", "shop", &github.NewPullRequest{Title: github.String("Big"), Head: github.String("slipway/1-big"), Base: github.String("main")}))(t)
	if pr.GetChangedFiles() != 1 {
		t.Fatalf("the pull request has %d files", pr.GetChangedFiles())
	}

	mustGit(t, shop, "commit", "-q", "--allow-empty", "-m", "More")
	mustGit(t, shop, "push", "-q", "origin", "slipway/1-big")
	sha := strings.TrimSpace(mustGit(t, shop, "rev-parse", "HEAD"))
	if now := got(gh.PullRequests.Get(ctx, "octo", "shop", pr.GetNumber()))(t); now.GetHead().GetSHA() != sha || now.GetCommits() != 2 {
		t.Fatalf("after the push the pull request is at %s", now.GetHead().GetSHA())
	}
	if h := w.hooks.until(t, "pull_request.synchronize"); h.read(t).After != sha || h.read(t).Pull.Head.SHA != sha {
		t.Fatalf("synchronize says %+v", h.read(t))
	}
	mustGit(t, dir, "clone", "-q", "--depth=1", "--branch=slipway/1-big", remote(token), "again")
	mustGit(t, shop, "fetch", "-q", "origin", fmt.Sprintf("refs/pull/%d/head", pr.GetNumber()))

	reader := w.token(t, &github.InstallationTokenOptions{Permissions: &github.InstallationPermissions{Contents: github.String("read")}})
	blind := w.token(t, &github.InstallationTokenOptions{Permissions: &github.InstallationPermissions{Issues: github.String("write")}})
	for name, c := range map[string]struct {
		args []string
		says string
	}{
		"nobody clones":           {[]string{"ls-remote", w.repo.CloneURL}, "could not read Username"},
		"a made-up token clones":  {[]string{"ls-remote", remote("ghs_x")}, "Authentication failed"},
		"without contents":        {[]string{"ls-remote", remote(blind)}, "not found"},
		"a reader pushes":         {[]string{"push", remote(reader), "HEAD:refs/heads/x"}, "403"},
		"somebody moves a PR ref": {[]string{"push", remote(token), "HEAD:refs/pull/9/head"}, "hidden ref"},
	} {
		if out, code := git(t, shop, c.args...); code == 0 || !strings.Contains(out, c.says) {
			t.Errorf("%s: exit %d\n%s", name, code, out)
		}
	}
	mustGit(t, shop, "ls-remote", remote(reader))

	if err := os.MkdirAll(filepath.Join(shop, ".github/workflows"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(shop, ".github/workflows/ci.yml"), []byte("on: push\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustGit(t, shop, "add", ".")
	mustGit(t, shop, "commit", "-qm", "CI")
	if out, code := git(t, shop, "push", "origin", "slipway/1-big"); code == 0 || !strings.Contains(out, "without `workflows` permission") {
		t.Fatalf("a workflow was pushed: %s", out)
	}
	all := w.app
	must(w.CreateApp(ctx, githubsim.AppSpec{Slug: all.Slug, Permissions: map[string]string{"contents": "write", "workflows": "write"}}))(t)
	mustGit(t, shop, "push", "-q", remote(w.token(t, nil)), "slipway/1-big")
}
