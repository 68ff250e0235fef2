package github

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Role is the person's effective role in the repository. It fails closed:
// somebody whom GitHub does not know, or knows under another id, has none.
func (a *App) Role(ctx context.Context, r forge.Repo, who forge.Person) (forge.Role, error) {
	if who.Bot || who.Login == "" {
		return forge.None, nil
	}
	var level permission
	err := a.desk(r).call(ctx, "ask for the role of "+who.Login, func(ctx context.Context, c *github.Client) error {
		path := fmt.Sprintf("repos/%s/%s/collaborators/%s/permission", r.Owner, r.Name, url.PathEscape(who.Login))
		req, err := c.NewRequest(http.MethodGet, path, nil)
		if err != nil {
			return err
		}
		_, err = c.Do(ctx, req, &level)
		if status(err) == http.StatusNotFound {
			return nil
		}
		return err
	})
	if err != nil {
		return forge.None, err
	}
	// A login can change hands between the event and the question.
	if level.User.ID != who.ID {
		return forge.None, nil
	}
	return level.role(), nil
}

// permission is GitHub's answer. role_name is the effective role, which
// go-github does not read at this place; a role that the owner invented has a
// name of its own, and then the older field says which standard role it
// contains.
type permission struct {
	Permission string `json:"permission"`
	RoleName   string `json:"role_name"`
	User       struct {
		ID int64 `json:"id"`
	} `json:"user"`
}

func (p permission) role() forge.Role {
	for _, name := range []string{p.RoleName, p.Permission} {
		for r := forge.None; r <= forge.Admin; r++ {
			if r.String() == name {
				return r
			}
		}
	}
	return forge.None
}

// React puts a reaction on a comment or ticket.
func (a *App) React(ctx context.Context, r forge.Repo, on forge.Subject, content string) error {
	return a.desk(r).react(ctx, on, content)
}

// EnsureComment makes sure that one comment of ours carries the marker.
func (a *App) EnsureComment(ctx context.Context, r forge.Repo, c forge.Comment) (forge.Comment, error) {
	return a.desk(r).ensureComment(ctx, c)
}

// Unlabel removes a label; one that is not there is removed already. It looks
// first: a delivery that is handled again takes no turn to write for that.
func (a *App) Unlabel(ctx context.Context, r forge.Repo, ticket int, label string) error {
	what := fmt.Sprintf("remove a label of #%d", ticket)
	return a.desk(r).call(ctx, what, func(ctx context.Context, c *github.Client) error {
		issue, _, err := c.Issues.Get(ctx, r.Owner, r.Name, ticket)
		if err != nil || !slices.ContainsFunc(issue.Labels, func(l *github.Label) bool { return strings.EqualFold(l.GetName(), label) }) {
			return err
		}
		_, err = c.Issues.RemoveLabelForIssue(ctx, r.Owner, r.Name, ticket, url.PathEscape(label))
		if status(err) == http.StatusNotFound {
			return nil
		}
		return err
	})
}

// Checks reads back our check runs on a commit, oldest first.
func (a *App) Checks(ctx context.Context, r forge.Repo, sha string) ([]forge.Check, error) {
	hub := a.ForRepo(r, 0)
	defer hub.Close(context.WithoutCancel(ctx))
	return hub.Checks(ctx, sha)
}

// EnsureCheck makes sure that one check run of ours has the name and the
// external id, with this state and output.
func (a *App) EnsureCheck(ctx context.Context, r forge.Repo, c forge.Check) (forge.Check, error) {
	hub := a.ForRepo(r, 0)
	defer hub.Close(context.WithoutCancel(ctx))
	return hub.EnsureCheck(ctx, c)
}

// RestateCheck writes once more how a check run has ended. GitHub holds the
// suite of a run that was asked for again as queued until its App has written to
// it, and does not touch the run.
// https://docs.github.com/rest/checks/runs#rerequest-a-check-run
func (a *App) RestateCheck(ctx context.Context, r forge.Repo, c forge.Check) error {
	hub := a.ForRepo(r, 0)
	defer hub.Close(context.WithoutCancel(ctx))
	return hub.call(ctx, fmt.Sprintf("restate check run %d", c.ID), func(ctx context.Context, client *github.Client) error {
		_, _, err := client.Checks.UpdateCheckRun(ctx, r.Owner, r.Name, c.ID, github.UpdateCheckRunOptions{
			Name: c.Name, Status: &c.Status, Conclusion: unlessEmpty(c.Conclusion),
		})
		return err
	})
}

// OpenPull finds our open pull request for a ticket by the marker that
// EnsureDraft leaves in its body; the newest, should there be two.
func (a *App) OpenPull(ctx context.Context, r forge.Repo, ticket int) (forge.Pull, bool, error) {
	d := a.desk(r)
	pulls, err := d.pulls(ctx, &github.PullRequestListOptions{State: "open"})
	if err != nil {
		return forge.Pull{}, false, err
	}
	for _, p := range pulls {
		if !strings.Contains(p.GetBody(), forge.PullMarker(a.o.AppID, ticket)) {
			continue
		}
		mine, err := d.mine(ctx, p.GetUser())
		if err != nil {
			return forge.Pull{}, false, err
		}
		if mine {
			return pullOf(p), true, nil
		}
	}
	return forge.Pull{}, false, nil
}

// PullTicket finds the ticket of one of our own pull requests by the marker in
// its body. It is not found where the pull request is somebody else's, or the
// number is an issue's.
func (a *App) PullTicket(ctx context.Context, r forge.Repo, pull int) (ticket int, found bool, err error) {
	p, _, err := a.Pull(ctx, r, pull)
	return p.Ticket, p.Ticket > 0, err
}

// Pull reads a pull request. It is not found where the number is an issue's.
func (a *App) Pull(ctx context.Context, r forge.Repo, number int) (pull forge.Pull, found bool, err error) {
	pull, err = a.desk(r).pull(ctx, number)
	if status(err) == http.StatusNotFound {
		return forge.Pull{}, false, nil
	}
	return pull, err == nil, err
}

// Review reads a review of a pull request with its threads. One that was taken
// back is not found.
func (a *App) Review(ctx context.Context, r forge.Repo, pull int, id int64) (review forge.Review, found bool, err error) {
	review, err = a.desk(r).review(ctx, pull, id)
	if status(err) == http.StatusNotFound {
		return forge.Review{}, false, nil
	}
	return review, err == nil, err
}

// EnsureAnswer makes sure that one comment of ours in the thread carries the
// marker, with this body.
func (a *App) EnsureAnswer(ctx context.Context, r forge.Repo, want forge.Answer) (forge.Answer, error) {
	return a.desk(r).ensureAnswer(ctx, want)
}
