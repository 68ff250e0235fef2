package githubsim

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// An Access names an installation: an App on an account.
type Access struct {
	App     string   `json:"app"` // slug
	Account string   `json:"account"`
	Repos   []string `json:"repos,omitempty"` // names without owner, for Withdraw
	By      string   `json:"by"`
}

// Uninstall removes an installation, with its tokens.
func (s *Server) Uninstall(_ context.Context, a Access) (Done, error) {
	return Done{}, s.onAccess(a, func(st *state, i *installation) {
		s.emitInstallation(i, "deleted", a.By)
		st.Tokens = slices.DeleteFunc(st.Tokens, func(t *token) bool { return t.Installation == i.ID })
		st.Installations = slices.DeleteFunc(st.Installations, func(have *installation) bool { return have == i })
	})
}

// Suspend leaves an installation without access.
func (s *Server) Suspend(_ context.Context, a Access) (Done, error) {
	return Done{}, s.onAccess(a, func(st *state, i *installation) {
		now := s.now()
		i.Suspended, i.SuspendedBy = &now, st.ensureUser(a.By, "").Login
		s.emitInstallation(i, "suspend", a.By)
	})
}

// Withdraw takes repositories from an installation, which is on selected ones
// from then on.
func (s *Server) Withdraw(_ context.Context, a Access) (Done, error) {
	return Done{}, s.onAccess(a, func(st *state, i *installation) {
		removed, left := []installedRepo{}, []int64{}
		for _, r := range st.Repos {
			switch {
			case !i.covers(r):
			case slices.Contains(a.Repos, r.Name):
				removed = append(removed, installed(r))
			default:
				left = append(left, r.ID)
			}
		}
		i.All, i.Repos = false, left
		e := s.installationEvent(i, "removed", a.By)
		e.Repositories, e.Added, e.Removed = nil, &[]installedRepo{}, removed
		e.Selection, e.Requester = "selected", json.RawMessage("null")
		s.post(st.app(i.App), i, nil, "installation_repositories", e)
	})
}

// onAccess runs fn on an installation, as somebody who exists.
func (s *Server) onAccess(a Access, fn func(*state, *installation)) error {
	return s.change(func(st *state) error {
		i := find(st.Installations, func(i *installation) bool {
			return st.app(i.App).Slug == a.App && strings.EqualFold(i.Account, a.Account)
		})
		if i == nil {
			return fmt.Errorf("%s is not installed on %s", a.App, a.Account)
		}
		st.ensureUser(a.By, "")
		fn(st, i)
		return nil
	})
}

// emitInstallation tells an App of its installation; it needs no subscription.
func (s *Server) emitInstallation(i *installation, action, by string) {
	s.post(s.state.app(i.App), i, nil, "installation", s.installationEvent(i, action, by))
}

func (s *Server) installationEvent(i *installation, action, by string) event {
	h := s.shaper()
	whole := h.installation(i)
	e := event{
		Action: action, Sender: h.account(by), Repositories: []installedRepo{},
		Installation: &installationInEvent{ID: i.ID, NodeID: node("Installation", i.ID), installationShape: &whole},
	}
	for _, r := range s.state.Repos {
		if i.covers(r) {
			e.Repositories = append(e.Repositories, installed(r))
		}
	}
	return e
}

func installed(r *repo) installedRepo {
	return installedRepo{ID: r.ID, NodeID: node("Repository", r.ID), Name: r.Name, FullName: r.full(), Private: !r.Public}
}

// A Renaming gives a repository another name.
type Renaming struct {
	Repo string `json:"repo"` // owner/name
	Name string `json:"name"` // without owner
	By   string `json:"by"`
}

// Rename renames a repository. REST leads from the old name to the new one.
func (s *Server) Rename(_ context.Context, to Renaming) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(to.Repo)
		if err != nil {
			return err
		}
		if !validName(to.Name) || st.repo(r.Owner, to.Name) != nil {
			return fmt.Errorf("rename %s: %q cannot be its name", to.Repo, to.Name)
		}
		from, before := r.Name, s.gitDir(r)
		r.Name, r.Former = to.Name, append(r.Former, from)
		if err := os.Rename(before, s.gitDir(r)); err != nil {
			return fmt.Errorf("rename %s: %w", to.Repo, err)
		}
		s.emit(r, "repository", event{
			Action: "renamed", Changes: &changesShape{Repository: &renamedShape{Name: fromShape{from}}},
		}, st.ensureUser(to.By, "").Login)
		return nil
	})
}

// renamedShape is what an event says of the name before.
type renamedShape struct {
	Name fromShape `json:"name"`
}

// former finds a repository by a name that it had.
func (st *state) former(owner, name string) *repo {
	return find(st.Repos, func(r *repo) bool {
		return strings.EqualFold(r.Owner, owner) && slices.ContainsFunc(r.Former, func(n string) bool { return strings.EqualFold(n, name) })
	})
}

// suspended is what an installation says of being so.
func (h shaper) suspended(i *installation, out *installationShape) {
	if i.Suspended != nil {
		at := i.Suspended.UTC().Truncate(time.Second)
		out.SuspendedAt, out.SuspendedBy = &at, h.account(i.SuspendedBy)
	}
}
