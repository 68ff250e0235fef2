package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/review"
)

var _ review.Forge = (*Repository)(nil)

// EnsureReview makes sure that one review of ours carries the marker. Reviews can
// be neither removed nor made twice the same: it looks for the marker before it
// creates one, and after a create that may have failed.
func (r *Repository) EnsureReview(ctx context.Context, want forge.OwnReview) (forge.OwnReview, error) {
	if want.Pull <= 0 || want.HeadSHA == "" || want.Marker == "" {
		return want, errors.New("review: pull request, head and marker are needed")
	}
	body := withMarker(want.Body, want.Marker)
	if err := fits("review body", body); err != nil {
		return want, err
	}
	have, err := r.reviewWith(ctx, want)
	if err != nil {
		return want, err
	}
	if have == nil {
		if have, err = r.createReview(ctx, want, body); err != nil {
			return want, err
		}
	}
	want.ID, want.URL = have.GetID(), have.GetHTMLURL()
	return want, nil
}

// reviewWith is our review with the marker, nil where there is none.
func (r *Repository) reviewWith(ctx context.Context, want forge.OwnReview) (found *github.PullRequestReview, err error) {
	var all []*github.PullRequestReview
	err = r.call(ctx, fmt.Sprintf("list the reviews of #%d", want.Pull), func(ctx context.Context, c *github.Client) error {
		all = nil
		opts := &github.ListOptions{PerPage: 100}
		for {
			page, resp, err := c.PullRequests.ListReviews(ctx, r.repo.Owner, r.repo.Name, want.Pull, opts)
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
	for _, v := range all {
		if !strings.Contains(v.GetBody(), want.Marker) {
			continue
		}
		mine, err := r.mine(ctx, v.GetUser())
		if err != nil || mine {
			return v, err
		}
	}
	return nil, err
}

func (r *Repository) createReview(ctx context.Context, want forge.OwnReview, body string) (have *github.PullRequestReview, err error) {
	event := "COMMENT"
	request := &github.PullRequestReviewRequest{CommitID: &want.HeadSHA, Body: &body, Event: &event}
	for _, m := range want.Remarks {
		if err := fits("remark of a review", m.Body); err != nil {
			return nil, err
		}
		request.Comments = append(request.Comments, remarkOf(m))
	}
	failed := r.call(ctx, fmt.Sprintf("review pull request #%d", want.Pull), func(ctx context.Context, c *github.Client) error {
		have, _, err = c.PullRequests.CreateReview(ctx, r.repo.Owner, r.repo.Name, want.Pull, request)
		return err
	})
	switch {
	case failed == nil:
		return have, nil
	case status(failed) == http.StatusUnprocessableEntity:
		// One place that GitHub does not have refuses all; so does a commit that
		// was pushed away.
		return nil, fmt.Errorf("%w: %w", forge.ErrPlaces, failed)
	case !uncertain(failed):
		return nil, failed
	}
	have, err = r.reviewWith(ctx, want)
	if err == nil && have == nil {
		err = failed
	}
	return have, err
}

func remarkOf(m forge.OwnRemark) *github.DraftReviewComment {
	side := "RIGHT"
	if m.Old {
		side = "LEFT"
	}
	out := &github.DraftReviewComment{Path: &m.Path, Body: &m.Body, Side: &side, Line: &m.Last}
	if m.First < m.Last {
		out.StartLine, out.StartSide = &m.First, &side
	}
	return out
}
