package github

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Repositories are the first of those that an installation reaches, at most a
// hundred, and how many there are.
func (a *App) Repositories(ctx context.Context, installation int64) (repos []forge.Repo, all int, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	token, _, err := a.self.Apps.CreateInstallationToken(ctx, installation, &github.InstallationTokenOptions{
		Permissions: &github.InstallationPermissions{Metadata: github.String("read")},
	})
	if err != nil {
		return nil, 0, fmt.Errorf("mint a token: %w", err)
	}
	client, err := a.clientOf(installation, token.GetToken())
	if err != nil {
		return nil, 0, err
	}
	defer a.revoke(ctx, forge.Repo{Installation: installation}, client)
	page, _, err := client.Apps.ListRepos(ctx, &github.ListOptions{PerPage: 100})
	if err != nil {
		return nil, 0, fmt.Errorf("list the repositories: %w", err)
	}
	for _, r := range page.Repositories {
		repos = append(repos, forge.Repo{
			Owner: r.GetOwner().GetLogin(), Name: r.GetName(), ID: r.GetID(), Installation: installation, DefaultBranch: r.GetDefaultBranch(),
		})
	}
	return repos, page.GetTotalCount(), nil
}

// A Bar is a rule of a ruleset that a build's branch runs into.
type Bar struct {
	Rule   string // GitHub's name of it
	Source string // whose ruleset it is: an owner, or owner/name
	Wants  string // what it wants, in a few words
}

// Bars are the rules that keep a build from pushing the branch, as far as they
// can be seen: not whom a ruleset exempts.
func (r *Repository) Bars(ctx context.Context, branch string) ([]Bar, error) {
	rules, err := r.rules(ctx, branch)
	if err != nil {
		return nil, err
	}
	login, err := r.app.me(ctx)
	if err != nil {
		return nil, err
	}
	var out []Bar
	for _, rule := range rules {
		if wants := rule.wants(branch, login+"@users.noreply.github.com"); wants != "" {
			out = append(out, Bar{Rule: rule.Type, Source: rule.Source, Wants: wants})
		}
	}
	return out, nil
}

// wants is what a rule asks of a push that a build's does not do; empty where
// there is nothing.
func (b branchRule) wants(branch, email string) string {
	pattern := b.Parameters.Operator + " " + b.Parameters.Pattern
	switch b.Type {
	case "creation":
		return "that nobody creates such a branch"
	case "update":
		return "that nobody pushes to such a branch"
	case "pull_request":
		return "that changes come by a pull request"
	case "required_signatures":
		return "signed commits, and a build's are not"
	case "required_linear_history":
		return "no merge commits, and a build makes one for each issue"
	case "required_status_checks":
		return "that checks passed before the push"
	case "workflows":
		return "that workflows passed before the push"
	case "branch_name_pattern":
		if !b.matches(branch) {
			return "another name: " + pattern
		}
	case "commit_author_email_pattern", "committer_email_pattern":
		if !b.matches(email) {
			return "another address than " + email + ": " + pattern
		}
	case "commit_message_pattern":
		return "commit messages like this: " + pattern
	}
	return ""
}

// matches reports whether a text is as the rule's pattern wants it. A pattern
// that we cannot read matches nothing.
func (b branchRule) matches(text string) bool {
	p, found := b.Parameters, false
	switch p.Operator {
	case "starts_with":
		found = strings.HasPrefix(text, p.Pattern)
	case "ends_with":
		found = strings.HasSuffix(text, p.Pattern)
	case "contains":
		found = strings.Contains(text, p.Pattern)
	case "regex":
		expr, err := regexp.Compile(p.Pattern)
		if err != nil {
			return false
		}
		found = expr.MatchString(text)
	}
	return found != p.Negate
}

// RefusedDrafts reports whether the repository did not take a draft of ours that
// is open still: no part of the API says so before.
func (r *Repository) RefusedDrafts(ctx context.Context) (refused bool, err error) {
	pulls, err := r.pulls(ctx, &github.PullRequestListOptions{State: "open"})
	if err != nil {
		return false, err
	}
	for _, p := range pulls {
		mine, err := r.mine(ctx, p.GetUser())
		if err != nil {
			return false, err
		}
		if mine && strings.Contains(p.GetBody(), "as="+refusedDrafts+" -->") {
			return true, nil
		}
	}
	return false, nil
}

// threadsRead is how many threads Rivals looks at.
const threadsRead = 5

// Rivals are the bots that answered, on one of the newest threads, right after a
// person's comment that is a command by this measure.
func (r *Repository) Rivals(ctx context.Context, command func(body string) bool) (logins []string, err error) {
	err = r.call(ctx, "read the newest threads", func(ctx context.Context, c *github.Client) error {
		logins = nil
		threads, _, err := c.Issues.ListByRepo(ctx, r.repo.Owner, r.repo.Name, &github.IssueListByRepoOptions{
			State: "all", Sort: "updated", Direction: "desc", ListOptions: github.ListOptions{PerPage: threadsRead},
		})
		if err != nil {
			return err
		}
		for _, t := range threads {
			all, _, err := c.Issues.ListComments(ctx, r.repo.Owner, r.repo.Name, t.GetNumber(), &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}})
			if err != nil {
				return err
			}
			found, err := r.rivals(ctx, all, command)
			if err != nil {
				return err
			}
			logins = append(logins, found...)
		}
		return nil
	})
	return logins, err
}

func (r *Repository) rivals(ctx context.Context, comments []*github.IssueComment, command func(string) bool) (logins []string, err error) {
	asked := false
	for _, c := range comments {
		if c.GetUser().GetType() != "Bot" {
			asked = command(c.GetBody())
			continue
		}
		mine, err := r.mine(ctx, c.GetUser())
		if err != nil {
			return nil, err
		}
		if asked && !mine {
			logins = append(logins, c.GetUser().GetLogin())
		}
	}
	return logins, nil
}
