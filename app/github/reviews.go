package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// pull reads a pull request, and for which ticket we opened it.
func (d desk) pull(ctx context.Context, number int) (forge.Pull, error) {
	var have *github.PullRequest
	err := d.call(ctx, fmt.Sprintf("read pull request #%d", number), func(ctx context.Context, c *github.Client) (err error) {
		have, _, err = c.PullRequests.Get(ctx, d.repo.Owner, d.repo.Name, number)
		return err
	})
	if err != nil {
		return forge.Pull{}, err
	}
	pull := pullOf(have)
	mine, err := d.mine(ctx, have.GetUser())
	if mine { // anybody can copy the marker
		pull.Ticket, _ = forge.MarkedTicket(pull.Body, d.app.o.AppID)
	}
	return pull, err
}

// review reads a review with the threads in which it says something.
func (d desk) review(ctx context.Context, pull int, id int64) (forge.Review, error) {
	var have *github.PullRequestReview
	err := d.call(ctx, fmt.Sprintf("read review %d of #%d", id, pull), func(ctx context.Context, c *github.Client) (err error) {
		have, _, err = c.PullRequests.GetReview(ctx, d.repo.Owner, d.repo.Name, pull, id)
		return err
	})
	if err != nil {
		return forge.Review{}, err
	}
	remarks, err := d.remarks(ctx, pull)
	if err != nil {
		return forge.Review{}, err
	}
	return forge.Review{
		ID: have.GetID(), By: personOf(have.GetUser()), State: strings.ToLower(have.GetState()), Body: have.GetBody(),
		URL: have.GetHTMLURL(), Submitted: have.GetSubmittedAt().Time, Threads: threadsOf(remarks, id),
	}, nil
}

// remarks lists the comments in reviews of a pull request, oldest first.
func (d desk) remarks(ctx context.Context, pull int) ([]*github.PullRequestComment, error) {
	var all []*github.PullRequestComment
	err := d.call(ctx, fmt.Sprintf("list the review comments of #%d", pull), func(ctx context.Context, c *github.Client) error {
		all = nil
		opts := &github.PullRequestListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}}
		for {
			page, resp, err := c.PullRequests.ListComments(ctx, d.repo.Owner, d.repo.Name, pull, opts)
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
	slices.SortFunc(all, func(a, b *github.PullRequestComment) int { return cmp.Compare(a.GetID(), b.GetID()) })
	return all, err
}

// threadsOf are the threads in which a review says something.
func threadsOf(remarks []*github.PullRequestComment, review int64) (threads []forge.Thread) {
	for _, first := range remarks {
		t := forge.Thread{ID: first.GetID(), Path: first.GetPath(), Line: first.GetLine(), Hunk: first.GetDiffHunk()}
		in := false
		for _, c := range remarks {
			if c.GetID() == t.ID || c.GetInReplyTo() == t.ID {
				in = in || c.GetPullRequestReviewID() == review
				t.Remarks = append(t.Remarks, forge.Remark{
					ID: c.GetID(), Review: c.GetPullRequestReviewID(), By: personOf(c.GetUser()), Body: c.GetBody(),
				})
			}
		}
		if in && first.GetInReplyTo() == 0 {
			threads = append(threads, t)
		}
	}
	return threads
}

func personOf(u *github.User) forge.Person {
	return forge.Person{Login: u.GetLogin(), ID: u.GetID(), Bot: u.GetType() == "Bot"}
}

// ensureAnswer finds our answer in a thread by its marker, and moves it to what
// is wanted; else it writes one and looks again. The oldest of several stays.
func (d desk) ensureAnswer(ctx context.Context, want forge.Answer) (forge.Answer, error) {
	if want.Marker == "" || want.Thread <= 0 || want.Pull <= 0 {
		return want, errors.New("answer: pull request, thread and marker are needed")
	}
	want.Body = withMarker(want.Body, want.Marker)
	if err := fits("answer", want.Body); err != nil {
		return want, err
	}
	have, err := d.answered(ctx, want)
	if err == nil && have == nil {
		have, err = d.createAnswer(ctx, want)
	}
	if err == nil && !sameText(have.GetBody(), want.Body) {
		have, err = d.editAnswer(ctx, have.GetID(), want.Body)
	}
	if err != nil {
		return want, err
	}
	want.ID, want.URL = have.GetID(), have.GetHTMLURL()
	return want, nil
}

// answered is our oldest comment with the marker, after removing any other.
func (d desk) answered(ctx context.Context, want forge.Answer) (*github.PullRequestComment, error) {
	all, err := d.remarks(ctx, want.Pull)
	if err != nil {
		return nil, err
	}
	var found []*github.PullRequestComment
	for _, c := range all {
		if !strings.Contains(c.GetBody(), want.Marker) {
			continue
		}
		mine, err := d.mine(ctx, c.GetUser())
		if err != nil {
			return nil, err
		}
		if mine {
			found = append(found, c)
		}
	}
	if len(found) == 0 {
		return nil, nil
	}
	for _, spare := range found[1:] {
		err := d.call(ctx, fmt.Sprintf("remove review comment %d", spare.GetID()), func(ctx context.Context, c *github.Client) error {
			_, err := c.PullRequests.DeleteComment(ctx, d.repo.Owner, d.repo.Name, spare.GetID())
			if status(err) == http.StatusNotFound {
				return nil
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return found[0], nil
}

func (d desk) createAnswer(ctx context.Context, want forge.Answer) (*github.PullRequestComment, error) {
	failed := d.call(ctx, fmt.Sprintf("answer in a thread of #%d", want.Pull), func(ctx context.Context, c *github.Client) error {
		path := fmt.Sprintf("repos/%s/%s/pulls/%d/comments/%d/replies", d.repo.Owner, d.repo.Name, want.Pull, want.Thread)
		req, err := c.NewRequest(http.MethodPost, path, &github.PullRequestComment{Body: &want.Body})
		if err != nil {
			return err
		}
		_, err = c.Do(ctx, req, nil)
		return err
	})
	have, err := written(failed, func() (*github.PullRequestComment, error) { return d.answered(ctx, want) })
	if errors.Is(err, errNotFound) {
		err = fmt.Errorf("answer in a thread of #%d in %s: %w", want.Pull, d.repo, err)
	}
	return have, err
}

func (d desk) editAnswer(ctx context.Context, id int64, body string) (have *github.PullRequestComment, err error) {
	err = d.call(ctx, fmt.Sprintf("edit review comment %d", id), func(ctx context.Context, c *github.Client) error {
		have, _, err = c.PullRequests.EditComment(ctx, d.repo.Owner, d.repo.Name, id, &github.PullRequestComment{Body: &body})
		return err
	})
	return have, err
}
