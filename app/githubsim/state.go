package githubsim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// state is everything that a restart must find again, except git's objects and
// the bodies of webhooks, which are files of their own. Server.mu guards it.
type state struct {
	Last          int64           `json:"last"` // the highest id given out
	Users         []*user         `json:"users"`
	Apps          []*app          `json:"apps"`
	Pending       []*pendingApp   `json:"pending,omitempty"` // Apps whose manifest was sent
	Installations []*installation `json:"installations"`
	Repos         []*repo         `json:"repos"`
	Tokens        []*token        `json:"tokens"`
	Deliveries    []*delivery     `json:"deliveries"`
	Faults        []*Fault        `json:"faults"`
	Unknown       []string        `json:"unknown"` // requests that no route serves
	Limits        Limits          `json:"limits"`
	Created       []creation      `json:"created"` // content made by Apps in the last hour
}

type user struct {
	ID    int64  `json:"id"`
	Login string `json:"login"`
	Type  string `json:"type"` // User, Bot or Organization
	Name  string `json:"name"`
}

type app struct {
	ID          int64             `json:"id"`
	Slug        string            `json:"slug"`
	Name        string            `json:"name"`
	Owner       string            `json:"owner"`
	Secret      string            `json:"secret"`
	WebhookURL  string            `json:"webhook_url"`
	PrivateKey  string            `json:"private_key"`
	Permissions map[string]string `json:"permissions"`
	Events      []string          `json:"events"`
	Created     time.Time         `json:"created"`
}

func (a *app) bot() string { return a.Slug + "[bot]" }

type installation struct {
	ID      int64     `json:"id"`
	App     int64     `json:"app"`
	Account string    `json:"account"`
	All     bool      `json:"all"`   // every repository of the account
	Repos   []int64   `json:"repos"` // the selected ones otherwise
	Created time.Time `json:"created"`

	Suspended   *time.Time `json:"suspended,omitempty"`
	SuspendedBy string     `json:"suspended_by,omitempty"`
}

func (i *installation) covers(r *repo) bool {
	return strings.EqualFold(i.Account, r.Owner) && (i.All || slices.Contains(i.Repos, r.ID))
}

// A token is remembered by its digest.
type token struct {
	Digest       string            `json:"digest"`
	Installation int64             `json:"installation"`
	Repos        []int64           `json:"repos"` // empty means all of the installation
	Permissions  map[string]string `json:"permissions"`
	Expires      time.Time         `json:"expires"`
}

type repo struct {
	ID            int64             `json:"id"`
	Owner         string            `json:"owner"`
	Name          string            `json:"name"`
	Former        []string          `json:"former,omitempty"` // names that it had
	Description   string            `json:"description"`
	Public        bool              `json:"public"`
	NoDrafts      bool              `json:"no_drafts"`
	DefaultBranch string            `json:"default_branch"`
	Created       time.Time         `json:"created"`
	Pushed        time.Time         `json:"pushed"`
	LastNumber    int               `json:"last_number"`
	Roles         map[string]string `json:"roles"` // by lower-case login
	Labels        []*label          `json:"labels"`
	Threads       []*thread         `json:"threads"`
	Checks        []*check          `json:"checks"`
	Suites        []*suite          `json:"suites"`
	Statuses      []*commitStatus   `json:"statuses"`
	Required      []Requirement     `json:"required"`
	Rules         []Rule            `json:"rules,omitempty"`
	Scripts       []*ciScript       `json:"scripts"`
	Steps         []*ciStep         `json:"steps"`            // of the scripts, still to take
	Refs          map[string]string `json:"refs"`             // what git had when events were last emitted
	Parent        int64             `json:"parent,omitempty"` // of which it is a fork
}

func (r *repo) full() string { return r.Owner + "/" + r.Name }

type label struct {
	ID          int64  `json:"id"`
	Name        string `json:"name"`
	Color       string `json:"color"`
	Description string `json:"description"`
}

// A thread is a ticket, or the conversation of a pull request.
type thread struct {
	ID        int64       `json:"id"`
	Number    int         `json:"number"`
	Title     string      `json:"title"`
	Body      string      `json:"body"`
	Author    string      `json:"author"`
	Closed    *time.Time  `json:"closed"`
	Reason    string      `json:"reason"`
	Labels    []string    `json:"labels"`
	Comments  []*comment  `json:"comments"`
	Reactions []*reaction `json:"reactions"`
	Created   time.Time   `json:"created"`
	Updated   time.Time   `json:"updated"`
	Pull      *pull       `json:"pull"`
}

func (t *thread) state() string {
	if t.Closed != nil {
		return "closed"
	}
	return "open"
}

type comment struct {
	ID        int64       `json:"id"`
	Author    string      `json:"author"`
	Body      string      `json:"body"`
	App       int64       `json:"app"` // the App that wrote it, or 0
	Created   time.Time   `json:"created"`
	Updated   time.Time   `json:"updated"`
	Reactions []*reaction `json:"reactions"`
}

type reaction struct {
	ID      int64     `json:"id"`
	User    string    `json:"user"`
	Content string    `json:"content"`
	Created time.Time `json:"created"`
}

type pull struct {
	ID       int64            `json:"id"`
	Head     string           `json:"head"`
	HeadRepo int64            `json:"head_repo,omitempty"` // a fork; 0: where the pull request is
	HeadSHA  string           `json:"head_sha"`
	Base     string           `json:"base"`
	BaseSHA  string           `json:"base_sha"`
	Draft    bool             `json:"draft"`
	Merged   *time.Time       `json:"merged"`
	MergedBy string           `json:"merged_by"`
	Size     pullSize         `json:"size"`
	Reviews  []*review        `json:"reviews"`
	Comments []*reviewComment `json:"comments"`
}

// pullSize is what git says of the commits of a pull request.
type pullSize struct {
	Commits   int  `json:"commits"`
	Files     int  `json:"files"`
	Additions int  `json:"additions"`
	Deletions int  `json:"deletions"`
	Clean     bool `json:"clean"` // merges without conflict
}

type review struct {
	ID        int64     `json:"id"`
	Author    string    `json:"author"`
	Body      string    `json:"body"`
	State     string    `json:"state"`
	Commit    string    `json:"commit"`
	Submitted time.Time `json:"submitted"`
}

type reviewComment struct {
	ID        int64     `json:"id"`
	Review    int64     `json:"review"`
	ReplyTo   int64     `json:"reply_to"`
	Author    string    `json:"author"`
	Body      string    `json:"body"`
	Path      string    `json:"path"`
	Line      int       `json:"line"`
	Side      string    `json:"side"`
	StartLine int       `json:"start_line"`
	StartSide string    `json:"start_side"`
	Hunk      string    `json:"hunk"`
	Commit    string    `json:"commit"`
	Created   time.Time `json:"created"`

	Reactions []*reaction `json:"reactions"`

	ResolvedBy string `json:"resolved_by,omitempty"` // of the first in a thread: who resolved that
}

type suite struct {
	ID      int64     `json:"id"`
	App     int64     `json:"app"`
	HeadSHA string    `json:"head_sha"`
	Created time.Time `json:"created"`
	Again   bool      `json:"again,omitempty"` // asked for again; nothing was written to it since
}

type check struct {
	ID          int64         `json:"id"`
	App         int64         `json:"app"`
	Suite       int64         `json:"suite"`
	Name        string        `json:"name"`
	HeadSHA     string        `json:"head_sha"`
	ExternalID  string        `json:"external_id"`
	DetailsURL  string        `json:"details_url"`
	Status      string        `json:"status"`
	Conclusion  string        `json:"conclusion"`
	Started     time.Time     `json:"started"`
	Completed   *time.Time    `json:"completed"`
	Title       string        `json:"title"`
	Summary     string        `json:"summary"`
	Text        string        `json:"text"`
	Annotations []annotation  `json:"annotations"`
	Actions     []checkAction `json:"actions"`
	Script      int64         `json:"script"` // that runs it, or 0
	Entry       int           `json:"entry"`  // of the script's runs
	Attempt     int           `json:"attempt"`
	Log         string        `json:"log"`
}

// creation is one content-creating request, for the secondary limit.
type creation struct {
	Installation int64     `json:"installation"`
	At           time.Time `json:"at"`
}

// load reads the state of an earlier process; none is an empty state.
func load(dir string) (*state, error) {
	st := &state{Last: 1000}
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state: %w", err)
	}
	if err := json.Unmarshal(raw, st); err != nil {
		return nil, fmt.Errorf("parse the state: %w", err)
	}
	return st, nil
}

// save makes the state durable before anyone is told of the change.
func (s *Server) save() error {
	raw, err := json.Marshal(s.state)
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	return writeFile(filepath.Join(s.dir, "state.json"), raw)
}

// writeFile replaces path whole: a reader, or a restart, sees the old bytes or
// the new ones.
func writeFile(path string, raw []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	_, err = f.Write(raw)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", filepath.Base(path), err), os.Remove(f.Name()))
	}
	return nil
}

func (st *state) next() int64 {
	st.Last++
	return st.Last
}

func (st *state) user(login string) *user {
	for _, u := range st.Users {
		if strings.EqualFold(u.Login, login) {
			return u
		}
	}
	return nil
}

// ensureUser finds an account or creates it. GitHub's rule tells bots by name.
func (st *state) ensureUser(login, kind string) *user {
	if u := st.user(login); u != nil {
		return u
	}
	if kind == "" {
		kind = "User"
		if strings.HasSuffix(login, "[bot]") {
			kind = "Bot"
		}
	}
	u := &user{ID: st.next(), Login: login, Type: kind, Name: login}
	st.Users = append(st.Users, u)
	return u
}

func (st *state) repo(owner, name string) *repo {
	for _, r := range st.Repos {
		if strings.EqualFold(r.Owner, owner) && strings.EqualFold(r.Name, name) {
			return r
		}
	}
	return nil
}

func (st *state) app(id int64) *app {
	return find(st.Apps, func(a *app) bool { return a.ID == id })
}

func (st *state) installation(id int64) *installation {
	return find(st.Installations, func(i *installation) bool { return i.ID == id })
}

func (r *repo) thread(number int) *thread {
	return find(r.Threads, func(t *thread) bool { return t.Number == number })
}

// comment finds a comment and the thread that it stands on.
func (r *repo) comment(id int64) (*thread, *comment) {
	for _, t := range r.Threads {
		if c := find(t.Comments, func(c *comment) bool { return c.ID == id }); c != nil {
			return t, c
		}
	}
	return nil, nil
}

func (r *repo) label(name string) *label {
	return find(r.Labels, func(l *label) bool { return strings.EqualFold(l.Name, name) })
}

// find returns the first element that satisfies ok, or nil.
func find[T any](all []*T, ok func(*T) bool) *T {
	if i := slices.IndexFunc(all, ok); i >= 0 {
		return all[i]
	}
	return nil
}
