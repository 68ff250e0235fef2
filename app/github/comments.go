package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// maxBody is how many characters GitHub takes in a comment or a pull request's
// body.
const maxBody = 65536

// ensureComment finds our comment by its marker, oldest first, and edits it if
// its body is another; else it creates one and looks again, because somebody
// else may have done the same. Whatever was made twice is removed, the oldest
// stays.
func (d desk) ensureComment(ctx context.Context, want forge.Comment) (forge.Comment, error) {
	if want.Marker == "" || want.Ticket <= 0 {
		return forge.Comment{}, errors.New("comment: ticket and marker are needed")
	}
	want.Body = withMarker(want.Body, want.Marker)
	if err := fits("comment body", want.Body); err != nil {
		return forge.Comment{}, err
	}
	have, err := d.known(ctx, want)
	if err != nil {
		return forge.Comment{}, err
	}
	if have == nil {
		if have, err = d.createComment(ctx, want); err != nil {
			return forge.Comment{}, err
		}
	}
	if !sameText(have.GetBody(), want.Body) {
		if have, err = d.editComment(ctx, have.GetID(), want.Body); err != nil {
			return forge.Comment{}, err
		}
	}
	want.ID, want.URL = have.GetID(), have.GetHTMLURL()
	return want, nil
}

// known finds the comment by its id, which is one small read, or by its marker.
func (d desk) known(ctx context.Context, want forge.Comment) (*github.IssueComment, error) {
	if want.ID != 0 {
		have, err := d.comment(ctx, want.ID)
		if err != nil {
			return nil, err
		}
		if have != nil && strings.Contains(have.GetBody(), want.Marker) {
			return have, nil
		}
	}
	return d.oldest(ctx, want)
}

// oldest is our oldest comment with the marker, after removing any other.
func (d desk) oldest(ctx context.Context, want forge.Comment) (*github.IssueComment, error) {
	found, err := d.marked(ctx, want.Ticket, want.Marker)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	for _, spare := range found[1:] {
		if err := d.removeComment(ctx, spare.GetID()); err != nil {
			return nil, err
		}
	}
	return found[0], nil
}

func (d desk) createComment(ctx context.Context, want forge.Comment) (*github.IssueComment, error) {
	failed := d.call(ctx, fmt.Sprintf("comment on #%d", want.Ticket), func(ctx context.Context, c *github.Client) error {
		_, _, err := c.Issues.CreateComment(ctx, d.repo.Owner, d.repo.Name, want.Ticket, &github.IssueComment{Body: &want.Body})
		return err
	})
	have, err := written(failed, func() (*github.IssueComment, error) { return d.oldest(ctx, want) })
	if errors.Is(err, errNotFound) {
		err = fmt.Errorf("comment on #%d in %s: %w", want.Ticket, d.repo, err)
	}
	return have, err
}

var errNotFound = errors.New("it was written and cannot be found")

// written finds what a request wrote that GitHub may have carried out though it
// failed. One that was surely refused wrote nothing.
func written[T any](failed error, find func() (*T, error)) (*T, error) {
	if failed != nil && !uncertain(failed) {
		return nil, failed
	}
	have, err := find()
	switch {
	case err != nil:
		return nil, errors.Join(failed, err)
	case have != nil:
		return have, nil
	case failed != nil:
		return nil, failed
	default:
		return nil, errNotFound
	}
}

// marked lists our comments that carry the marker, oldest first.
func (d desk) marked(ctx context.Context, ticket int, marker string) ([]*github.IssueComment, error) {
	var found []*github.IssueComment
	err := d.call(ctx, fmt.Sprintf("list the comments of #%d", ticket), func(ctx context.Context, c *github.Client) error {
		found = nil
		opts := &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}}
		for {
			page, resp, err := c.Issues.ListComments(ctx, d.repo.Owner, d.repo.Name, ticket, opts)
			if err != nil {
				return err
			}
			for _, have := range page {
				if !strings.Contains(have.GetBody(), marker) {
					continue
				}
				mine, err := d.mine(ctx, have.GetUser())
				if err != nil {
					return err
				}
				if mine {
					found = append(found, have)
				}
			}
			if resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	slices.SortFunc(found, func(a, b *github.IssueComment) int { return cmp.Compare(a.GetID(), b.GetID()) })
	return found, err
}

// comment reads one comment; nil when it is gone.
func (d desk) comment(ctx context.Context, id int64) (have *github.IssueComment, err error) {
	err = d.call(ctx, fmt.Sprintf("read comment %d", id), func(ctx context.Context, c *github.Client) error {
		have, _, err = c.Issues.GetComment(ctx, d.repo.Owner, d.repo.Name, id)
		if status(err) == http.StatusNotFound {
			have, err = nil, nil
		}
		return err
	})
	return have, err
}

func (d desk) editComment(ctx context.Context, id int64, body string) (have *github.IssueComment, err error) {
	err = d.call(ctx, fmt.Sprintf("edit comment %d", id), func(ctx context.Context, c *github.Client) error {
		have, _, err = c.Issues.EditComment(ctx, d.repo.Owner, d.repo.Name, id, &github.IssueComment{Body: &body})
		return err
	})
	return have, err
}

func (d desk) removeComment(ctx context.Context, id int64) error {
	return d.call(ctx, fmt.Sprintf("remove comment %d", id), func(ctx context.Context, c *github.Client) error {
		_, err := c.Issues.DeleteComment(ctx, d.repo.Owner, d.repo.Name, id)
		if status(err) == http.StatusNotFound {
			return nil
		}
		return err
	})
}

// react puts a reaction; GitHub keeps one of a kind, however often it is put.
func (d desk) react(ctx context.Context, on forge.Subject, content string) error {
	what := fmt.Sprintf("react with %s on #%d", content, on.Ticket)
	return d.call(ctx, what, func(ctx context.Context, c *github.Client) (err error) {
		switch {
		case on.Remark != 0:
			_, _, err = c.Reactions.CreatePullRequestCommentReaction(ctx, d.repo.Owner, d.repo.Name, on.Remark, content)
		case on.Comment != 0:
			_, _, err = c.Reactions.CreateIssueCommentReaction(ctx, d.repo.Owner, d.repo.Name, on.Comment, content)
		default:
			_, _, err = c.Reactions.CreateIssueReaction(ctx, d.repo.Owner, d.repo.Name, on.Ticket, content)
		}
		return err
	})
}

// withMarker hides the marker at the end of a body that does not have it.
func withMarker(body, marker string) string {
	if strings.Contains(body, marker) {
		return body
	}
	return strings.TrimRight(body, "\n") + "\n\n" + marker
}

// fits checks GitHub's cap, for which the renderers are to leave room.
func fits(field, text string) error {
	if n := utf8.RuneCountInString(text); n > maxBody {
		return fmt.Errorf("%s: %d characters, at most %d", field, n, maxBody)
	}
	return nil
}

// sameText compares as GitHub stores: line ends of either kind, and no space at
// the end.
func sameText(a, b string) bool {
	plain := func(s string) string { return strings.TrimSpace(strings.ReplaceAll(s, "\r\n", "\n")) }
	return plain(a) == plain(b)
}
