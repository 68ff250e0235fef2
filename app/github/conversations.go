package github

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Whether the thread of a remark is resolved, and by whom, is nowhere in REST, nor
// can it be resolved there.

const conversationsQuery = `query($owner: String!, $name: String!, $number: Int!, $after: String) {
	repository(owner: $owner, name: $name) { pullRequest(number: $number) { reviewThreads(first: 100, after: $after) {
		pageInfo { hasNextPage endCursor }
		nodes { id isResolved resolvedBy { login } comments(first: 1) { nodes { body author { login __typename } } } }
	} } }
}`

const resolveMutation = `mutation($id: ID!) { resolveReviewThread(input: {threadId: $id}) { thread { isResolved } } }`

// conversationsOf are the variables of conversationsQuery. After is the cursor of
// the page before, and absent for the first.
type conversationsOf struct {
	Owner  string `json:"owner"`
	Name   string `json:"name"`
	Number int    `json:"number"`
	After  string `json:"after,omitempty"`
}

// A conversation is a thread in GraphQL's shape.
type conversation struct {
	ID         string   `json:"id"`
	IsResolved bool     `json:"isResolved"`
	ResolvedBy *account `json:"resolvedBy"`
	Comments   struct {
		Nodes []struct {
			Body   string   `json:"body"`
			Author *account `json:"author"`
		} `json:"nodes"`
	} `json:"comments"`
}

// An account is an actor. GraphQL names a bot without what REST ends its login in.
type account struct {
	Login string `json:"login"`
	Kind  string `json:"__typename"`
}

// isApp reports whether the account is the App with that login of REST. Who
// resolved a thread comes without a kind: GitHub has only people there.
func (a *account) isApp(login string) bool {
	return a != nil && (a.Kind == "Bot" || a.Kind == "") && strings.EqualFold(strings.TrimSuffix(a.Login, "[bot]"), strings.TrimSuffix(login, "[bot]"))
}

// Conversations reads the threads of a pull request that remarks of ours began,
// oldest first.
func (r *Repository) Conversations(ctx context.Context, pull int) ([]forge.Conversation, error) {
	me, err := r.app.me(ctx)
	if err != nil {
		return nil, err
	}
	var out []forge.Conversation
	err = r.call(ctx, fmt.Sprintf("list the threads of #%d", pull), func(ctx context.Context, c *github.Client) error {
		out = nil
		variables := conversationsOf{Owner: r.repo.Owner, Name: r.repo.Name, Number: pull}
		for {
			var page struct {
				Repository struct {
					PullRequest struct {
						ReviewThreads struct {
							PageInfo struct {
								HasNextPage bool   `json:"hasNextPage"`
								EndCursor   string `json:"endCursor"`
							} `json:"pageInfo"`
							Nodes []conversation `json:"nodes"`
						} `json:"reviewThreads"`
					} `json:"pullRequest"`
				} `json:"repository"`
			}
			if err := graph(reading(ctx), c, conversationsQuery, variables, &page); err != nil {
				return err
			}
			threads := page.Repository.PullRequest.ReviewThreads
			for _, t := range threads.Nodes {
				if len(t.Comments.Nodes) > 0 && t.Comments.Nodes[0].Author.isApp(me) {
					out = append(out, conversationOf(t, me))
				}
			}
			if !threads.PageInfo.HasNextPage {
				return nil
			}
			variables.After = threads.PageInfo.EndCursor
		}
	})
	return out, err
}

func conversationOf(t conversation, me string) forge.Conversation {
	out := forge.Conversation{ID: t.ID, Body: t.Comments.Nodes[0].Body, Resolved: t.IsResolved}
	if t.ResolvedBy != nil && !t.ResolvedBy.isApp(me) {
		out.By = t.ResolvedBy.Login
	}
	return out
}

// Resolve makes sure that a thread is resolved. GitHub wants an App to be let
// write contents for it, so that the token is for this alone.
func (r *Repository) Resolve(ctx context.Context, t forge.Conversation) error {
	if t.Resolved {
		return nil
	}
	g := &group{app: r.app, repo: r.repo, may: resolveMay}
	defer g.close(ctx)
	return g.do(ctx, "resolve a thread of a review", func(ctx context.Context, c *github.Client) error {
		return graph(ctx, c, resolveMutation, struct {
			ID string `json:"id"`
		}{t.ID}, nil)
	})
}

// graph sends one document, and reads its data where into is not nil. GitHub
// refuses in an answer whose status is 200: that is made the refusal that REST
// would have given.
func graph(ctx context.Context, c *github.Client, document string, variables, into any) error {
	// On GitHub itself GraphQL is beside REST's root; on Enterprise Server it is
	// beside the version that is REST's root there.
	req, err := c.NewRequest(http.MethodPost, "../graphql", struct {
		Query     string `json:"query"`
		Variables any    `json:"variables"`
	}{document, variables})
	if err != nil {
		return err
	}
	answer := struct {
		Data   any          `json:"data"`
		Errors []graphError `json:"errors"`
	}{Data: into}
	resp, err := c.Do(ctx, req, &answer)
	if err != nil || len(answer.Errors) == 0 {
		return err
	}
	return answer.Errors[0].refusal(resp)
}

// A graphError is one of the errors in an answer.
type graphError struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// Error is GitHub's message.
func (e graphError) Error() string { return e.Message }

func (e graphError) refusal(resp *github.Response) error {
	said := &github.ErrorResponse{Response: resp.Response, Message: e.Message}
	stands := *resp.Response
	switch e.Type {
	case "RATE_LIMITED": // until when is in the answer's head, which the transport has read
		late := &Later{At: time.Now().Add(minimumWait), Cause: "GitHub's hourly rate limit"}
		return late.park()
	case "FORBIDDEN":
		stands.StatusCode = http.StatusForbidden
	case "NOT_FOUND":
		stands.StatusCode = http.StatusNotFound
	default:
		return fmt.Errorf("%w: %w", errGraph, e)
	}
	said.Response = &stands
	return said
}

// errGraph says that GitHub could not make anything of a document: it is ours, so
// to ask again would end alike.
var errGraph = fmt.Errorf("a document of GraphQL: %w", forge.ErrRefused)
