package githubsim

import (
	"context"
	"fmt"
	"maps"
	"strings"
)

// A ForkSpec describes a fork of a repository, in which the owner may do anything.
type ForkSpec struct {
	Repo  string `json:"repo"`  // owner/name of what is forked
	Owner string `json:"owner"` // of the fork, which has the same name
}

// Fork copies a repository with its branches. A pull request from there names its
// head as owner:branch.
func (s *Server) Fork(ctx context.Context, spec ForkSpec) (Repo, error) {
	var made Repo
	err := s.change(func(st *state) error {
		of, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		if st.repo(spec.Owner, of.Name) != nil {
			return fmt.Errorf("fork: %s has a %s", spec.Owner, of.Name)
		}
		st.ensureUser(spec.Owner, "")
		r := &repo{
			ID: st.next(), Owner: spec.Owner, Name: of.Name, Description: of.Description, Public: of.Public, DefaultBranch: of.DefaultBranch,
			Created: s.now(), Pushed: s.now(), Roles: map[string]string{}, Refs: maps.Clone(of.Refs), Parent: of.ID,
		}
		if err := s.initGit(ctx, r); err != nil {
			return err
		}
		if _, err := s.git(ctx, r, "fetch", "--quiet", s.gitDir(of), "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*"); err != nil {
			return err
		}
		st.Repos = append(st.Repos, r)
		page := s.shaper().html(r)
		made = Repo{ID: r.ID, CloneURL: page + ".git", Page: page, Head: r.Refs["refs/heads/"+r.DefaultBranch]}
		return nil
	})
	return made, err
}

// headRepo is where the head of a pull request of home is. No repository goes.
func (st *state) headRepo(home *repo, p *pull) *repo {
	if p.HeadRepo == 0 {
		return home
	}
	return find(st.Repos, func(r *repo) bool { return r.ID == p.HeadRepo })
}

// from finds the fork of home that an owner has; home itself where it is theirs.
func (st *state) from(home *repo, owner string) *repo {
	return find(st.Repos, func(r *repo) bool {
		return strings.EqualFold(r.Owner, owner) && (r.ID == home.ID || r.Parent == home.ID)
	})
}

// borrow brings the commits of a fork's branch to the repository that a pull
// request is in, where GitHub has those of all forks.
func (s *Server) borrow(ctx context.Context, home, fork *repo, branch string) error {
	if home == fork {
		return nil
	}
	_, err := s.git(ctx, home, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", s.gitDir(fork), "refs/heads/"+branch)
	return err
}
