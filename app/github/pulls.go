package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// EnsureDraft makes sure that one open pull request exists for the head, with
// this title, body and base. A repository that refuses drafts gets a normal one
// with a failing check, draftCheck, which keeps it from being merged unread.
func (r *Repository) EnsureDraft(ctx context.Context, want forge.Draft) (forge.Pull, error) {
	if want.Head == "" || want.Base == "" || want.Title == "" {
		return forge.Pull{}, errors.New("pull request: head, base and title are needed")
	}
	have, err := r.openFor(ctx, want.Head)
	if err != nil {
		return forge.Pull{}, err
	}
	refused := have != nil && strings.Contains(have.GetBody(), r.pullMarker(refusedDrafts))
	if have == nil {
		have, refused, err = r.createPull(ctx, want)
	} else {
		have, err = r.editPull(ctx, have, want, refused)
	}
	if err != nil {
		return forge.Pull{}, err
	}
	if refused {
		if err := r.ensureDraftCheck(ctx, have); err != nil {
			return forge.Pull{}, err
		}
	}
	return pullOf(have), nil
}

// Changes reports whether a pull request changes the file.
func (r *Repository) Changes(ctx context.Context, pull int, file string) (changes bool, err error) {
	err = r.call(ctx, fmt.Sprintf("list the files of #%d", pull), func(ctx context.Context, c *github.Client) error {
		opts := &github.ListOptions{PerPage: 100}
		for {
			page, resp, err := c.PullRequests.ListFiles(ctx, r.repo.Owner, r.repo.Name, pull, opts)
			if err != nil {
				return err
			}
			changes = slices.ContainsFunc(page, func(f *github.CommitFile) bool {
				return f.GetFilename() == file || f.GetPreviousFilename() == file
			})
			if changes || resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	return changes, err
}

// What the marker in a pull request's body says about drafts, so that a build
// that is resumed knows that the check is wanted.
const (
	allowsDrafts  = "draft"
	refusedDrafts = "check"
)

// pullMarker is what OpenPull finds a ticket's pull request by.
func (r *Repository) pullMarker(drafts string) string {
	return forge.PullMarker(r.app.o.AppID, r.ticket) + "as=" + drafts + " -->"
}

func (r *Repository) createPull(ctx context.Context, want forge.Draft) (have *github.PullRequest, refused bool, err error) {
	have, err = r.tryPull(ctx, want, true)
	if !refusesDrafts(err) {
		return have, false, err
	}
	have, err = r.tryPull(ctx, want, false)
	return have, true, err
}

// tryPull creates a pull request, or finds the one that is there after all:
// GitHub allows one per head and base.
func (r *Repository) tryPull(ctx context.Context, want forge.Draft, draft bool) (have *github.PullRequest, err error) {
	body := r.pullBody(want.Body, !draft)
	if err := fits("pull request body", body); err != nil {
		return nil, err
	}
	failed := r.call(ctx, "open a pull request for "+want.Head, func(ctx context.Context, c *github.Client) error {
		have, _, err = c.PullRequests.Create(ctx, r.repo.Owner, r.repo.Name, &github.NewPullRequest{
			Title: &want.Title, Head: &want.Head, Base: &want.Base, Body: &body, Draft: &draft,
		})
		return err
	})
	if failed == nil {
		return have, nil
	}
	if !uncertain(failed) && !alreadyExists(failed) {
		return nil, failed
	}
	have, err = r.openFor(ctx, want.Head)
	if err != nil || have == nil {
		return nil, errors.Join(failed, err)
	}
	return r.editPull(ctx, have, want, !draft)
}

// editPull brings what people read up to date. It does not turn a pull request
// that somebody marked as ready back into a draft.
func (r *Repository) editPull(ctx context.Context, have *github.PullRequest, want forge.Draft, refused bool) (*github.PullRequest, error) {
	body := r.pullBody(want.Body, refused)
	if err := fits("pull request body", body); err != nil {
		return nil, err
	}
	edit := &github.PullRequest{}
	changed := false
	if have.GetTitle() != strings.TrimSpace(want.Title) {
		edit.Title, changed = &want.Title, true
	}
	if !sameText(have.GetBody(), body) {
		edit.Body, changed = &body, true
	}
	if have.GetBase().GetRef() != want.Base {
		edit.Base, changed = &github.PullRequestBranch{Ref: &want.Base}, true
	}
	if !changed {
		return have, nil
	}
	number := have.GetNumber()
	err := r.call(ctx, fmt.Sprintf("edit pull request #%d", number), func(ctx context.Context, c *github.Client) (err error) {
		have, _, err = c.PullRequests.Edit(ctx, r.repo.Owner, r.repo.Name, number, edit)
		return err
	})
	return have, err
}

func (r *Repository) pullBody(body string, refused bool) string {
	if refused {
		return withMarker(body, r.pullMarker(refusedDrafts))
	}
	return withMarker(body, r.pullMarker(allowsDrafts))
}

const draftCheck = "slipway/draft"

func (r *Repository) ensureDraftCheck(ctx context.Context, p *github.PullRequest) error {
	sha := p.GetHead().GetSHA()
	_, err := r.EnsureCheck(ctx, forge.Check{
		Name: draftCheck, HeadSHA: sha, ExternalID: "draft:" + sha, Status: "completed", Conclusion: "failure",
		Title: "This is a draft",
		Summary: "This repository does not allow draft pull requests, so this one was opened as a normal one. " +
			"This check fails to keep it from being merged before somebody has read it; a maintainer may merge over it.",
	})
	return err
}

// openFor finds the open pull request of one of our branches; the newest, if a
// person opened another against a second base.
func (r *Repository) openFor(ctx context.Context, head string) (*github.PullRequest, error) {
	pulls, err := r.pulls(ctx, &github.PullRequestListOptions{State: "open", Head: r.repo.Owner + ":" + head})
	if err != nil || len(pulls) == 0 {
		return nil, err
	}
	for _, p := range pulls {
		mine, err := r.mine(ctx, p.GetUser())
		if err != nil {
			return nil, err
		}
		if mine {
			return p, nil
		}
	}
	return pulls[0], nil
}

// pulls lists pull requests, newest first.
func (d desk) pulls(ctx context.Context, opts *github.PullRequestListOptions) ([]*github.PullRequest, error) {
	var all []*github.PullRequest
	err := d.call(ctx, "list pull requests", func(ctx context.Context, c *github.Client) error {
		all = nil
		opts.ListOptions = github.ListOptions{PerPage: 100}
		for {
			page, resp, err := c.PullRequests.List(ctx, d.repo.Owner, d.repo.Name, opts)
			if err != nil {
				return err
			}
			all = append(all, page...)
			if resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	return all, err
}

func pullOf(p *github.PullRequest) forge.Pull {
	return forge.Pull{
		Number: p.GetNumber(), URL: p.GetHTMLURL(), Draft: p.GetDraft(), State: p.GetState(),
		Head: p.GetHead().GetRef(), HeadSHA: p.GetHead().GetSHA(), Title: p.GetTitle(), Body: p.GetBody(),
		Base: p.GetBase().GetRef(), Fork: p.GetHead().GetRepo().GetID() != p.GetBase().GetRepo().GetID(),
	}
}

func refusesDrafts(err error) bool {
	return status(err) == http.StatusUnprocessableEntity && mentions(err, "draft pull requests are not supported")
}

func alreadyExists(err error) bool {
	return status(err) == http.StatusUnprocessableEntity && mentions(err, "already exists")
}

// mentions looks for words in GitHub's message and in those of its fields.
func mentions(err error, words string) bool {
	e, ok := errors.AsType[*github.ErrorResponse](err)
	return ok && (strings.Contains(strings.ToLower(e.Message), words) ||
		slices.ContainsFunc(e.Errors, func(f github.Error) bool { return strings.Contains(strings.ToLower(f.Message), words) }))
}
