package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// outOfReach is what a deleted repository and a withdrawn one look like.
const outOfReach = "the App does not reach the repository any more"

// noAccess wraps an error of minting a token where that is what it means.
func noAccess(err error) error {
	var said string
	if e, ok := errors.AsType[*github.ErrorResponse](err); ok {
		said = strings.ToLower(e.Message)
	}
	switch code := status(err); {
	case code == http.StatusNotFound,
		code == http.StatusForbidden && strings.Contains(said, "suspended"),
		code == http.StatusUnprocessableEntity && strings.Contains(said, "repository"):
		return fmt.Errorf("%w: %w", forge.ErrNoAccess, err)
	}
	return err
}

// Gone says why nothing can or should be done for a ticket or a pull request any
// more, as things are now: the App is shut out, the repository is another, the
// ticket or the pull request is closed; 0 is none. A ticket that was closed
// when its build was asked for is built all the same.
func (a *App) Gone(ctx context.Context, r forge.Repo, t forge.Ticket, pull int) (forge.Gone, error) {
	for _, look := range []func() (forge.Gone, error){
		func() (forge.Gone, error) { return a.shutOut(ctx, r) },
		func() (forge.Gone, error) { return a.moved(ctx, r) },
		func() (forge.Gone, error) { return a.ticketClosed(ctx, r, t) },
		func() (forge.Gone, error) { return a.pullClosed(ctx, r, pull) },
	} {
		gone, err := look()
		if errors.Is(err, forge.ErrNoAccess) {
			return forge.Gone{Why: outOfReach}, nil
		}
		if err != nil || gone.Why != "" {
			return gone, err
		}
	}
	return forge.Gone{}, nil
}

func (a *App) shutOut(ctx context.Context, r forge.Repo) (forge.Gone, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	have, _, err := a.self.Apps.GetInstallation(ctx, r.Installation)
	switch {
	case status(err) == http.StatusNotFound:
		return forge.Gone{Why: "the App was uninstalled"}, nil
	case err != nil:
		return forge.Gone{}, fmt.Errorf("read the installation of %s: %w", r, err)
	case !have.GetSuspendedAt().IsZero():
		return forge.Gone{Why: "the App was suspended", Since: have.GetSuspendedAt().Time}, nil
	}
	return forge.Gone{}, nil
}

// moved looks at the repository, to which GitHub leads also from its old names.
func (a *App) moved(ctx context.Context, r forge.Repo) (gone forge.Gone, err error) {
	err = a.desk(r).call(ctx, "read the repository", func(ctx context.Context, c *github.Client) error {
		have, _, err := c.Repositories.Get(ctx, r.Owner, r.Name)
		switch {
		case status(err) == http.StatusNotFound:
			gone.Why = outOfReach
			return nil
		case err != nil:
			return err
		case have.GetArchived():
			gone.Why = "the repository was archived"
		case !strings.EqualFold(have.GetFullName(), r.String()):
			gone.Why = "the repository is " + have.GetFullName() + " now, where it can go on"
		}
		return nil
	})
	return gone, err
}

func (a *App) ticketClosed(ctx context.Context, r forge.Repo, t forge.Ticket) (gone forge.Gone, err error) {
	if t.Number == 0 {
		return forge.Gone{}, nil
	}
	err = a.desk(r).call(ctx, fmt.Sprintf("read ticket #%d", t.Number), func(ctx context.Context, c *github.Client) error {
		have, _, err := c.Issues.Get(ctx, r.Owner, r.Name, t.Number)
		switch code := status(err); {
		case code == http.StatusNotFound || code == http.StatusGone:
			gone.Why = "the ticket was deleted"
			return nil
		case err != nil:
			return err
		case have.GetNumber() != t.Number || !strings.HasSuffix(strings.ToLower(have.GetRepositoryURL()), "/"+strings.ToLower(r.String())):
			gone.Why = "the ticket was moved to another repository"
		case have.GetState() == "closed" && (t.State == "open" || have.GetClosedAt().After(t.Taken)):
			gone = forge.Gone{Why: "the ticket was closed", Since: have.GetClosedAt().Time}
		}
		return nil
	})
	return gone, err
}

func (a *App) pullClosed(ctx context.Context, r forge.Repo, number int) (gone forge.Gone, err error) {
	if number == 0 {
		return forge.Gone{}, nil
	}
	err = a.desk(r).call(ctx, fmt.Sprintf("read pull request #%d", number), func(ctx context.Context, c *github.Client) error {
		have, _, err := c.PullRequests.Get(ctx, r.Owner, r.Name, number)
		if err != nil {
			return err
		}
		switch {
		case have.GetMerged():
			gone = forge.Gone{Why: "its pull request was merged", Since: have.GetMergedAt().Time}
		case have.GetState() == "closed":
			gone = forge.Gone{Why: "its pull request was closed", Since: have.GetClosedAt().Time}
		}
		return nil
	})
	return gone, err
}
