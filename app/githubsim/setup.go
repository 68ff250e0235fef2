package githubsim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An AppSpec describes a GitHub App. Zero fields get defaults: a new id, a new
// key, the slug as name, Slipway's permissions and events.
type AppSpec struct {
	ID          int64             `json:"id,omitempty"`
	Slug        string            `json:"slug"`
	Name        string            `json:"name,omitempty"`
	Owner       string            `json:"owner,omitempty"`
	Secret      string            `json:"secret"` // of its webhooks
	WebhookURL  string            `json:"webhook_url"`
	Permissions map[string]string `json:"permissions,omitempty"`
	Events      []string          `json:"events,omitempty"`
}

// An App is what its operator knows of it.
type App struct {
	ID         int64  `json:"id"`
	Slug       string `json:"slug"`
	Login      string `json:"login"` // under which it acts
	PrivateKey string `json:"private_key"`
	Secret     string `json:"secret"`
	WebhookURL string `json:"webhook_url"`
}

// CreateApp creates an App. For a slug that exists it sets what the spec names
// and returns the App as it is, with its old key, so that a demo may start twice.
func (s *Server) CreateApp(_ context.Context, spec AppSpec) (App, error) {
	if spec.Slug == "" {
		return App{}, errors.New("create an App: no slug given")
	}
	key, err := newKey()
	if err != nil {
		return App{}, err
	}
	var made App
	err = s.change(func(st *state) error {
		a := find(st.Apps, func(a *app) bool { return a.Slug == spec.Slug })
		if a == nil {
			a = &app{
				ID: spec.ID, Slug: spec.Slug, Name: orText(spec.Name, spec.Slug), Owner: orText(spec.Owner, "github"),
				PrivateKey: key, Created: s.now(), Permissions: defaultPermissions(), Events: defaultEvents(),
			}
			if a.ID == 0 {
				a.ID = st.next()
			}
			st.ensureUser(a.Owner, "")
			st.ensureUser(a.bot(), "Bot")
			st.Apps = append(st.Apps, a)
		}
		a.Secret, a.WebhookURL = orText(spec.Secret, a.Secret), orText(spec.WebhookURL, a.WebhookURL)
		if spec.Permissions != nil {
			a.Permissions = maps.Clone(spec.Permissions)
			a.Permissions["metadata"] = "read"
		}
		if spec.Events != nil {
			a.Events = slices.Clone(spec.Events)
		}
		made = App{ID: a.ID, Slug: a.Slug, Login: a.bot(), PrivateKey: a.PrivateKey, Secret: a.Secret, WebhookURL: a.WebhookURL}
		return nil
	})
	return made, err
}

func defaultPermissions() map[string]string {
	return map[string]string{
		"metadata": "read", "contents": "write", "issues": "write", "pull_requests": "write", "checks": "write",
		"actions": "read", "statuses": "read",
	}
}

func defaultEvents() []string {
	return []string{"issues", "issue_comment", "pull_request", "pull_request_review", "pull_request_review_comment", "check_run", "check_suite", "repository"}
}

// An AppRef names an App by its slug.
type AppRef struct {
	Slug string `json:"slug"`
}

// Ping sends the App the event that GitHub sends when its webhook is set up.
func (s *Server) Ping(_ context.Context, ref AppRef) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		a := find(st.Apps, func(a *app) bool { return a.Slug == ref.Slug })
		if a == nil {
			return fmt.Errorf("ping: no App %q", ref.Slug)
		}
		s.emitPing(a)
		return nil
	})
}

// An InstallSpec installs an App on an account: on the repositories named, or
// on all that the account has and will have.
type InstallSpec struct {
	App     string   `json:"app"` // slug
	Account string   `json:"account"`
	Repos   []string `json:"repos,omitempty"` // names without owner
	By      string   `json:"by,omitempty"`    // empty means the account
}

// An Installed is a new installation.
type Installed struct {
	ID int64 `json:"id"`
}

// Install installs an App. Installed already, it keeps its id and adds the
// repositories.
func (s *Server) Install(_ context.Context, spec InstallSpec) (Installed, error) {
	var made Installed
	err := s.change(func(st *state) error {
		a := find(st.Apps, func(a *app) bool { return a.Slug == spec.App })
		if a == nil {
			return fmt.Errorf("install: no App %q", spec.App)
		}
		i := find(st.Installations, func(i *installation) bool { return i.App == a.ID && strings.EqualFold(i.Account, spec.Account) })
		fresh := i == nil
		if fresh {
			st.ensureUser(spec.Account, "")
			i = &installation{ID: st.next(), App: a.ID, Account: spec.Account, Created: s.now()}
		}
		i.All = i.All || len(spec.Repos) == 0
		for _, name := range spec.Repos {
			r := st.repo(spec.Account, name)
			if r == nil {
				return fmt.Errorf("install: no repository %s/%s", spec.Account, name)
			}
			if !slices.Contains(i.Repos, r.ID) {
				i.Repos = append(i.Repos, r.ID)
			}
		}
		if fresh {
			st.Installations = append(st.Installations, i)
			s.emitInstallation(i, "created", orText(spec.By, spec.Account))
		}
		made.ID = i.ID
		return nil
	})
	return made, err
}

// A UserSpec describes an account. Without a type it is a User, or a Bot if
// the login ends in [bot].
type UserSpec struct {
	Login string `json:"login"`
	Type  string `json:"type,omitempty"` // User, Bot or Organization
	Name  string `json:"name,omitempty"`
}

// A User is an account.
type User struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
}

// CreateUser creates an account, or finds the one of that login.
func (s *Server) CreateUser(_ context.Context, spec UserSpec) (User, error) {
	var made User
	err := s.change(func(st *state) error {
		if spec.Login == "" {
			return errors.New("create an account: no login given")
		}
		u := st.ensureUser(spec.Login, spec.Type)
		u.Name = orText(spec.Name, u.Name)
		made = User{ID: u.ID, Login: u.Login}
		return nil
	})
	return made, err
}

// A RoleSpec gives an account a role on a repository: none, read, triage,
// write, maintain or admin.
type RoleSpec struct {
	Repo  string `json:"repo"` // owner/name
	Login string `json:"login"`
	Role  string `json:"role"`
}

// SetRole sets a role, and creates the account if need be. Owners are admins
// and bots have no role, whatever is set.
func (s *Server) SetRole(_ context.Context, spec RoleSpec) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		if !slices.Contains(roles, spec.Role) {
			return fmt.Errorf("set a role: %q is none of %s", spec.Role, strings.Join(roles, ", "))
		}
		st.ensureUser(spec.Login, "")
		r.Roles[strings.ToLower(spec.Login)] = spec.Role
		return nil
	})
}

// named finds a repository by owner/name.
func (st *state) named(full string) (*repo, error) {
	owner, name, _ := strings.Cut(full, "/")
	if r := st.repo(owner, name); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("no repository %q", full)
}

// A RepoSpec describes a repository whose first commit on main holds Files, or
// what is in Dir (without .git), or a README if both are empty.
type RepoSpec struct {
	Owner       string            `json:"owner"`
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Public      bool              `json:"public,omitempty"`
	NoDrafts    bool              `json:"no_drafts,omitempty"` // its plan has no draft pull requests
	Files       map[string]string `json:"files,omitempty"`     // a text that begins with #! is executable
	Dir         string            `json:"dir,omitempty"`
}

// A Repo is a repository as its owner sees it.
type Repo struct {
	ID       int64  `json:"id"`
	CloneURL string `json:"clone_url"`
	Page     string `json:"page"`
	Head     string `json:"head"` // commit of main
}

// CreateRepo creates a repository, or finds the one of that name and leaves it
// as it is.
func (s *Server) CreateRepo(ctx context.Context, spec RepoSpec) (Repo, error) {
	files, err := spec.content()
	if err != nil {
		return Repo{}, err
	}
	var made Repo
	err = s.change(func(st *state) error {
		if !validName(spec.Owner) || !validName(spec.Name) {
			return fmt.Errorf("create a repository: %q is no name for one", spec.Owner+"/"+spec.Name)
		}
		r := st.repo(spec.Owner, spec.Name)
		if r == nil {
			st.ensureUser(spec.Owner, "")
			r = &repo{
				ID: st.next(), Owner: spec.Owner, Name: spec.Name, Description: spec.Description, Public: spec.Public, NoDrafts: spec.NoDrafts,
				DefaultBranch: "main", Created: s.now(), Pushed: s.now(), Roles: map[string]string{}, Refs: map[string]string{},
			}
			if err := s.initGit(ctx, r); err != nil {
				return err
			}
			first := treeChange{branch: "main", author: s.authorOf(r.Owner), message: "Initial commit", files: files}
			if err := s.makeCommit(ctx, r, first); err != nil {
				return err
			}
			if r.Refs, err = s.refs(ctx, r); err != nil {
				return err
			}
			st.Repos = append(st.Repos, r)
		}
		page := s.shaper().html(r)
		made = Repo{ID: r.ID, CloneURL: page + ".git", Page: page, Head: r.Refs["refs/heads/main"]}
		return nil
	})
	return made, err
}

// validName keeps names that are safe as a directory.
func validName(name string) bool {
	return strings.Trim(name, ".") != "" && !strings.ContainsFunc(name, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	})
}

// authorOf is how GitHub writes an account into a commit.
func (s *Server) authorOf(login string) pushedAuthor {
	u := s.state.ensureUser(login, "")
	return pushedAuthor{Name: u.Name, Email: fmt.Sprintf("%d+%s@users.noreply.github.com", u.ID, u.Login)}
}

func (spec RepoSpec) content() (map[string]fileBody, error) {
	files := bodies(spec.Files)
	if spec.Dir != "" {
		if err := readDir(spec.Dir, files); err != nil {
			return nil, fmt.Errorf("read the repository's files: %w", err)
		}
	}
	if len(files) == 0 {
		files["README.md"] = fileBody{"100644", []byte("# " + spec.Name + "\n")}
	}
	return files, nil
}

func bodies(texts map[string]string) map[string]fileBody {
	files := map[string]fileBody{}
	for name, text := range texts {
		mode := "100644"
		if strings.HasPrefix(text, "#!") {
			mode = "100755"
		}
		files[name] = fileBody{mode, []byte(text)}
	}
	return files
}

func readDir(dir string, into map[string]fileBody) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && entry.Name() == ".git":
			return fs.SkipDir
		case entry.IsDir():
			return nil
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(path)
			into[filepath.ToSlash(name)] = fileBody{"120000", []byte(target)}
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		mode := "100644"
		if info.Mode()&0o111 != 0 {
			mode = "100755"
		}
		into[filepath.ToSlash(name)] = fileBody{mode, body}
		return err
	})
}
