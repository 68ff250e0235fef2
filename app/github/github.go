// Package github speaks to GitHub: for the handlers' few calls, and for the
// Ensure effects of a build. Nothing else in the program does.
//
// Tokens are minted when first needed, narrowed to one repository and to the
// permissions of what is being done, minted again once when GitHub refuses
// them, and revoked afterwards. Writes are paced per installation, through
// limits that all workers share, as they do GitHub's word to wait; a wait that
// is longer than a few seconds is a Later, for the caller to come back then.
// Reads are repeated when GitHub stumbles and cached per installation, so that
// what has not changed is free.
//
// Writes are never repeated blindly. They converge: find what is there, move it
// to what is wanted, and after a create look again.
package github

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"
	"github.com/palantir/go-githubapp/githubapp"

	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

var (
	_ handlers.GitHub = (*App)(nil)
	_ pipeline.Forge  = (*Repository)(nil)
)

// A Limiter grants units from buckets that all workers share.
type Limiter interface {
	Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (wait time.Duration, err error)
}

// Options configure an App.
type Options struct {
	BaseURL    string // of the REST API; "https://api.github.com" when empty
	AppID      int64
	PrivateKey []byte // PEM
	CAFile     string // of certificates to trust beside the system's, in PEM; may be empty
	UserAgent  string // "slipway" when empty
	Limits     Limiter
	Log        *slog.Logger
}

// App is Slipway at GitHub.
type App struct {
	o    Options
	web  http.RoundTripper
	self *github.Client // as the App, by its key

	mu       sync.Mutex
	memories map[int64]*cache    // by installation
	manners  map[int64]*manners  // by installation; that of the App itself is 0
	sessions map[string]*session // of the handlers, by repository
	login    string              // of the App's own comments; empty until asked
}

// callTimeout bounds one exchange with GitHub, pauses and repetitions included.
const callTimeout = time.Minute

// New returns an App, or says which option is wrong.
func New(o Options) (*App, error) {
	if o.AppID <= 0 {
		return nil, errors.New("app id: must be the number on the App's page")
	}
	if o.Limits == nil || o.Log == nil {
		return nil, errors.New("github: Limits and Log are needed")
	}
	if o.BaseURL == "" {
		o.BaseURL = "https://api.github.com"
	}
	if o.UserAgent == "" {
		o.UserAgent = "slipway"
	}
	web, err := transport(o.CAFile)
	if err != nil {
		return nil, err
	}
	a := &App{o: o, web: web, memories: map[int64]*cache{}, sessions: map[string]*session{}}
	a.self, err = githubapp.NewClientCreator(o.BaseURL, "", o.AppID, o.PrivateKey,
		githubapp.WithClientUserAgent(o.UserAgent),
		githubapp.WithTransport(web),
		githubapp.WithClientMiddleware(a.careful(0)),
	).NewAppClient()
	if err != nil {
		return nil, fmt.Errorf("private key: %w", err)
	}
	return a, nil
}

// Client is the client that speaks as the App itself, for its deliveries and
// installations. Nothing of a repository can be reached with it.
func (a *App) Client() *github.Client { return a.self }

// Close revokes the tokens that the handlers' calls left behind. Repositories
// are closed by whoever asked for them.
func (a *App) Close(ctx context.Context) {
	a.mu.Lock()
	left := a.sessions
	a.sessions = map[string]*session{}
	a.mu.Unlock()
	for _, s := range left {
		s.close(ctx)
	}
	if own, ok := a.web.(*http.Transport); ok && a.o.CAFile != "" {
		own.CloseIdleConnections()
	}
}

// memory is the cache that the clients of one installation share.
func (a *App) memory(installation int64) (*cache, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c, ok := a.memories[installation]; ok {
		return c, nil
	}
	c, err := newCache()
	if err == nil {
		a.memories[installation] = c
	}
	return c, err
}

// me is the login under which the App's comments and pull requests appear.
// Nobody else can have it, so a copied marker fools nobody.
func (a *App) me(ctx context.Context) (string, error) {
	a.mu.Lock()
	login := a.login
	a.mu.Unlock()
	if login != "" {
		return login, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	app, _, err := a.self.Apps.Get(ctx, "")
	if err != nil {
		return "", fmt.Errorf("ask for the App's name: %w", err)
	}
	if app.GetSlug() == "" {
		return "", errors.New("ask for the App's name: GitHub gave none")
	}
	login = app.GetSlug() + "[bot]"
	a.mu.Lock()
	a.login = login
	a.mu.Unlock()
	return login, nil
}

// A desk is where the calls for one repository are made: with the token of a
// build, or of the handlers.
type desk struct {
	app  *App
	repo forge.Repo
	call func(ctx context.Context, what string, fn func(context.Context, *github.Client) error) error
}

// mine reports whether the App wrote something.
func (d desk) mine(ctx context.Context, author *github.User) (bool, error) {
	login, err := d.app.me(ctx)
	return err == nil && strings.EqualFold(author.GetLogin(), login), err
}

// status is the HTTP status of an error that GitHub answered with, or 0.
func status(err error) int {
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok && e.Response != nil {
		return e.Response.StatusCode
	}
	return 0
}

// uncertain reports whether a write that failed so may have happened all the
// same: the connection broke, or the server did after it.
func uncertain(err error) bool {
	if err == nil {
		return false
	}
	if _, wait := asLater(err); wait {
		return false
	}
	code := status(err)
	return code == 0 || code >= http.StatusInternalServerError
}
