package github

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
)

// A Repository is one repository and ticket as a build sees them. It holds
// tokens from its first use until Close.
type Repository struct {
	desk
	ticket int
	group  *group
	checks desk // where others' checks are read
	others *group

	mu  sync.Mutex
	git []*github.Client // carry the tokens that git was given
}

// ForRepo returns the repository. Close it when the build ends or is put aside.
func (a *App) ForRepo(r forge.Repo, ticket int) *Repository {
	g := &group{app: a, repo: r, may: buildMay}
	others := &group{app: a, repo: r, may: checksMay}
	return &Repository{
		desk: desk{app: a, repo: r, call: g.do}, ticket: ticket, group: g,
		checks: desk{app: a, repo: r, call: others.do}, others: others,
	}
}

// Close revokes every token, those that git was given too.
func (r *Repository) Close(ctx context.Context) {
	r.mu.Lock()
	given := r.git
	r.git = nil
	r.mu.Unlock()
	for _, client := range given {
		r.app.revoke(ctx, r.repo, client)
	}
	r.group.close(ctx)
	r.others.close(ctx)
}

// Ticket reads the ticket as it is now.
func (r *Repository) Ticket(ctx context.Context) (forge.Ticket, error) {
	var t forge.Ticket
	err := r.call(ctx, fmt.Sprintf("read #%d", r.ticket), func(ctx context.Context, c *github.Client) error {
		issue, _, err := c.Issues.Get(ctx, r.repo.Owner, r.repo.Name, r.ticket)
		if err != nil {
			return err
		}
		t = forge.Ticket{
			Number: issue.GetNumber(), Title: issue.GetTitle(), Body: issue.GetBody(), Author: issue.GetUser().GetLogin(),
			State: issue.GetState(), URL: issue.GetHTMLURL(), Pull: issue.IsPullRequest(), Taken: time.Now(),
		}
		for _, l := range issue.Labels {
			t.Labels = append(t.Labels, l.GetName())
		}
		return nil
	})
	return t, err
}

// Credential mints a token that can do nothing but read and write contents. Each
// call gives a new one, so that a push whose token was refused can ask again;
// all are revoked by Close.
func (r *Repository) Credential(ctx context.Context) (forge.Credential, error) {
	var url string
	err := r.call(ctx, "ask for the clone URL", func(ctx context.Context, c *github.Client) error {
		repo, _, err := c.Repositories.Get(ctx, r.repo.Owner, r.repo.Name)
		url = repo.GetCloneURL()
		return err
	})
	if err != nil {
		return forge.Credential{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, err := r.app.mint(ctx, r.repo, gitMay)
	if err != nil {
		return forge.Credential{}, fmt.Errorf("a credential for git in %s: %w", r.repo, err)
	}
	client, err := r.app.clientOf(r.repo.Installation, token.GetToken())
	if err != nil {
		return forge.Credential{}, err
	}
	r.mu.Lock()
	r.git = append(r.git, client)
	r.mu.Unlock()
	return forge.Credential{URL: url, User: "x-access-token", Token: token.GetToken(), CAFile: r.app.o.CAFile}, nil
}

// File reads a file as it is at a commit or branch; at the default branch where
// ref is empty. The error is os.ErrNotExist where there is none.
func (r *Repository) File(ctx context.Context, name, ref string) (text []byte, err error) {
	err = r.call(ctx, "read "+name, func(ctx context.Context, c *github.Client) error {
		file, _, _, err := c.Repositories.GetContents(ctx, r.repo.Owner, r.repo.Name, name, &github.RepositoryContentGetOptions{Ref: ref})
		switch {
		case status(err) == http.StatusNotFound:
			return fmt.Errorf("%s: %w", name, os.ErrNotExist)
		case err != nil:
			return err
		case file == nil:
			return fmt.Errorf("%s is a directory: %w", name, os.ErrNotExist)
		}
		content, err := file.GetContent()
		text = []byte(content)
		return err
	})
	return text, err
}

// OwnersFile is the text of the file in which the repository's owner configures
// all of theirs. An owner without that repository, or who keeps the App out of
// it, has none. The token for it can do nothing but read there.
func (r *Repository) OwnersFile(ctx context.Context) ([]byte, error) {
	theirs := forge.Repo{Owner: r.repo.Owner, Name: pipeline.OwnersRepo, Installation: r.repo.Installation}
	g := &group{app: r.app, repo: theirs, may: readMay}
	defer g.close(ctx)
	there := &Repository{desk: desk{app: r.app, repo: theirs, call: g.do}}
	text, err := there.File(ctx, pipeline.OwnersFile, "")
	if errors.Is(err, forge.ErrNoAccess) || errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// maxBranches is how many names EnsureBranch tries.
const maxBranches = 50

// EnsureBranch settles the name to publish under and says what is there. It
// creates nothing: the push does.
func (r *Repository) EnsureBranch(ctx context.Context, wanted string, ours func(context.Context, forge.Branch) (bool, error)) (forge.Branch, error) {
	if wanted == "" {
		return forge.Branch{}, errors.New("branch: the name must not be empty")
	}
	b := forge.Branch{Name: wanted}
	for n := 1; n <= maxBranches; n++ {
		if n > 1 {
			b.Name = fmt.Sprintf("%s-%d", wanted, n)
		}
		head, err := r.head(ctx, b.Name)
		if err != nil {
			return forge.Branch{}, err
		}
		b.Head = head
		if head == "" {
			return b, nil
		}
		mine, err := ours(ctx, b)
		if err != nil {
			return forge.Branch{}, err
		}
		if !mine {
			continue
		}
		closed, err := r.pullClosed(ctx, b.Name)
		if err != nil {
			return forge.Branch{}, err
		}
		if !closed {
			return b, nil
		}
	}
	return forge.Branch{}, fmt.Errorf("branch %s in %s: this name and %d after it are taken", wanted, r.repo, maxBranches-1)
}

// head is the commit that a branch is at, or empty when there is no such branch.
func (r *Repository) head(ctx context.Context, branch string) (sha string, err error) {
	err = r.call(ctx, "read branch "+branch, func(ctx context.Context, c *github.Client) error {
		ref, _, err := c.Git.GetRef(ctx, r.repo.Owner, r.repo.Name, "heads/"+branch)
		if status(err) == http.StatusNotFound {
			return nil
		}
		sha = ref.GetObject().GetSHA()
		return err
	})
	return sha, err
}

// pullClosed reports whether a branch had a pull request and has none open.
func (r *Repository) pullClosed(ctx context.Context, branch string) (bool, error) {
	pulls, err := r.pulls(ctx, &github.PullRequestListOptions{State: "all", Head: r.repo.Owner + ":" + branch})
	if err != nil {
		return false, err
	}
	open := slices.ContainsFunc(pulls, func(p *github.PullRequest) bool { return p.GetState() == "open" })
	return len(pulls) > 0 && !open, nil
}

// EnsureComment makes sure that one comment of ours carries the marker.
func (r *Repository) EnsureComment(ctx context.Context, c forge.Comment) (forge.Comment, error) {
	return r.ensureComment(ctx, c)
}

// Comments counts our comments that carry the marker.
func (r *Repository) Comments(ctx context.Context, ticket int, marker string) (int, error) {
	found, err := r.marked(ctx, ticket, marker)
	return len(found), err
}

// Pull reads a pull request.
func (r *Repository) Pull(ctx context.Context, number int) (forge.Pull, error) {
	return r.pull(ctx, number)
}

// EnsureAnswer makes sure that one comment of ours in the thread carries the
// marker.
func (r *Repository) EnsureAnswer(ctx context.Context, want forge.Answer) (forge.Answer, error) {
	return r.ensureAnswer(ctx, want)
}

// React puts a reaction on a comment, a remark or a ticket.
func (r *Repository) React(ctx context.Context, on forge.Subject, content string) error {
	return r.react(ctx, on, content)
}
