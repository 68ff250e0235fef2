package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"
	"github.com/gregjones/httpcache"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// What a token may do, for each group of actions. Reading metadata is part of
// every token.
var (
	handlersMay = github.InstallationPermissions{
		Issues:       github.String("write"), // comments, reactions, labels
		PullRequests: github.String("write"), // reactions and answers in reviews
	}
	buildMay = github.InstallationPermissions{
		Contents:     github.String("read"), // which branches are there
		Issues:       github.String("write"),
		PullRequests: github.String("write"),
		Checks:       github.String("write"),
	}
	readMay = github.InstallationPermissions{Contents: github.String("read")}
	gitMay  = github.InstallationPermissions{Contents: github.String("write")}
	// The checks of others have a token of their own, so that an installation
	// that did not grant it all can still be published to.
	checksMay = github.InstallationPermissions{
		Contents: github.String("read"),  // workflow files, what protects the base
		Checks:   github.String("write"), // check runs, and asking for them again
		Statuses: github.String("read"),
		Actions:  github.String("read"), // logs
	}
	resolveMay = github.InstallationPermissions{ // what GitHub asks of an App for a thread of a review
		Contents:     github.String("write"),
		PullRequests: github.String("write"),
	}
	rerunMay = github.InstallationPermissions{Actions: github.String("write")}
)

// A group is a series of actions in one repository that share a token.
type group struct {
	app  *App
	repo forge.Repo
	may  github.InstallationPermissions

	mu    sync.Mutex
	grant *grant // nil until it is needed, and after close
}

// A grant is a token and the client that carries it. The token is kept nowhere
// else and printed nowhere.
type grant struct {
	client  *github.Client
	expires time.Time
}

// do runs fn with a client of the group, and once more with a new token when
// GitHub no longer accepts the one it had.
func (g *group) do(ctx context.Context, what string, fn func(context.Context, *github.Client) error) error {
	if err := g.try(ctx, fn); err != nil {
		return fmt.Errorf("%s in %s: %w", what, g.repo, judged(err))
	}
	return nil
}

// judged makes a refusal a forge.ErrRefused too.
func judged(err error) error {
	switch status(err) {
	case http.StatusForbidden, http.StatusNotFound, http.StatusGone, http.StatusUnprocessableEntity:
		return refusal{err}
	}
	return err
}

type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func (r refusal) Is(target error) bool { return target == forge.ErrRefused }

func (g *group) try(ctx context.Context, fn func(context.Context, *github.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	held, err := g.acquire(ctx, nil)
	if err != nil {
		return err
	}
	err = fn(ctx, held.client)
	if status(err) != http.StatusUnauthorized {
		return err
	}
	if held, err = g.acquire(ctx, held); err != nil {
		return err
	}
	return fn(ctx, held.client)
}

// acquire returns the group's grant, minting one when there is none, when it is
// about to expire, or when it is the one that was refused.
func (g *group) acquire(ctx context.Context, refused *grant) (*grant, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.grant != nil && g.grant != refused && time.Until(g.grant.expires) > 2*callTimeout {
		return g.grant, nil
	}
	token, err := g.app.mint(ctx, g.repo, g.may)
	if err != nil {
		return nil, err
	}
	client, err := g.app.clientOf(g.repo.Installation, token.GetToken())
	if err != nil {
		return nil, err
	}
	g.grant = &grant{client: client, expires: token.GetExpiresAt().Time}
	return g.grant, nil
}

// close revokes the token. The group may be used again, with another.
func (g *group) close(ctx context.Context) {
	g.mu.Lock()
	held := g.grant
	g.grant = nil
	g.mu.Unlock()
	if held != nil {
		g.app.revoke(ctx, g.repo, held.client)
	}
}

// mint asks for a token for one repository with no more than these permissions.
func (a *App) mint(ctx context.Context, r forge.Repo, may github.InstallationPermissions) (*github.InstallationToken, error) {
	if r.Installation == 0 {
		return nil, errors.New("mint a token: the installation is not known")
	}
	opts := &github.InstallationTokenOptions{Permissions: &may}
	if r.ID != 0 {
		opts.RepositoryIDs = []int64{r.ID}
	} else {
		opts.Repositories = []string{r.Name}
	}
	token, _, err := a.self.Apps.CreateInstallationToken(ctx, r.Installation, opts)
	if err != nil {
		return nil, fmt.Errorf("mint a token: %w", noAccess(err))
	}
	if token.GetToken() == "" {
		return nil, errors.New("mint a token: GitHub answered without one")
	}
	return token, nil
}

// clientOf carries a token. The library's own clients do so, too, but by
// connections that know no certificate of ours.
func (a *App) clientOf(installation int64, token string) (*github.Client, error) {
	memory, err := a.memory(installation)
	if err != nil {
		return nil, err
	}
	cached := &httpcache.Transport{Transport: bearer{next: a.web, token: token}, Cache: memory}
	client := github.NewClient(&http.Client{Transport: a.careful(installation)(cached)})
	client.BaseURL, client.UserAgent = a.self.BaseURL, a.o.UserAgent
	return client, nil
}

// revoke ends a token also when ctx has ended. It expires by itself within the
// hour, so a failure is noted and no more.
func (a *App) revoke(ctx context.Context, r forge.Repo, client *github.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, err := client.Apps.RevokeInstallationToken(ctx)
	if err != nil && status(err) != http.StatusUnauthorized {
		a.o.Log.WarnContext(ctx, "revoke a token", "repo", r.String(), "error", err)
	}
}

// linger is how long the handlers' token of a repository outlives its last use:
// long enough to serve the next delivery of a busy thread.
const linger = time.Minute

// A session is the handlers' group of one repository and who uses it. The App's
// mutex guards users and timer.
type session struct {
	group
	users int
	timer *time.Timer // revokes; runs while users is 0
}

// desk is the desk of the handlers' calls.
func (a *App) desk(r forge.Repo) desk {
	return desk{app: a, repo: r, call: func(ctx context.Context, what string, fn func(context.Context, *github.Client) error) error {
		s, leave := a.enter(ctx, r)
		defer leave()
		return s.do(ctx, what, fn)
	}}
}

// enter takes the session of a repository; leave starts its clock when nobody
// else is in it.
func (a *App) enter(ctx context.Context, r forge.Repo) (s *session, leave func()) {
	key := fmt.Sprintf("%d/%s", r.Installation, r)
	a.mu.Lock()
	defer a.mu.Unlock()
	s = a.sessions[key]
	if s == nil {
		s = &session{group: group{app: a, repo: r, may: handlersMay}}
		a.sessions[key] = s
	}
	s.users++
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	return s, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if s.users--; s.users > 0 || a.sessions[key] != s {
			return
		}
		s.timer = time.AfterFunc(linger, func() { a.expire(context.WithoutCancel(ctx), key, s) })
	}
}

func (a *App) expire(ctx context.Context, key string, s *session) {
	a.mu.Lock()
	if s.users > 0 || a.sessions[key] != s {
		a.mu.Unlock()
		return
	}
	delete(a.sessions, key)
	a.mu.Unlock()
	s.close(ctx)
}

// close stops the clock and revokes.
func (s *session) close(ctx context.Context) {
	s.app.mu.Lock()
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.app.mu.Unlock()
	s.group.close(ctx)
}
