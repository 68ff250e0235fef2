package handlers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// hub is a GitHub that holds state: what it is told, it keeps.
type hub struct {
	roles     map[int64]forge.Role
	comments  []forge.Comment
	reactions map[forge.Subject][]string
	unlabeled []string
	checks    []forge.Check
	restated  []forge.Check
	pull      *forge.Pull
	tickets   map[int]int        // of pull requests
	gone      map[int]forge.Gone // by ticket
	calls     []string
	pulls     map[int]forge.Pull
	reviews   map[int64]forge.Review
	answers   []forge.Answer
	failAt    string // the call that fails, once
	roleFails error
}

func newHub() *hub {
	return &hub{roles: map[int64]forge.Role{}, reactions: map[forge.Subject][]string{}}
}

func (g *hub) called(name string) error {
	g.calls = append(g.calls, name)
	if g.failAt == name {
		g.failAt = ""
		return fmt.Errorf("%s: connection reset", name)
	}
	return nil
}

func (g *hub) Role(_ context.Context, _ forge.Repo, who forge.Person) (forge.Role, error) {
	if g.roleFails != nil {
		return forge.Admin, g.roleFails
	}
	return g.roles[who.ID], g.called("role")
}

func (g *hub) React(_ context.Context, _ forge.Repo, on forge.Subject, content string) error {
	if !slices.Contains(g.reactions[on], content) {
		g.reactions[on] = append(g.reactions[on], content)
	}
	return g.called("react " + content)
}

func (g *hub) EnsureComment(_ context.Context, _ forge.Repo, c forge.Comment) (forge.Comment, error) {
	for i, have := range g.comments {
		if have.Ticket == c.Ticket && have.Marker == c.Marker {
			g.comments[i].Body = c.Body
			return g.comments[i], g.called("comment")
		}
	}
	c.ID = int64(100 + len(g.comments))
	c.URL = fmt.Sprintf("https://github.com/o/r/issues/%d#issuecomment-%d", c.Ticket, c.ID)
	g.comments = append(g.comments, c)
	return c, g.called("comment")
}

func (g *hub) Unlabel(_ context.Context, _ forge.Repo, _ int, label string) error {
	g.unlabeled = append(g.unlabeled, label)
	return g.called("unlabel")
}

func (g *hub) Checks(context.Context, forge.Repo, string) ([]forge.Check, error) {
	return g.checks, g.called("checks")
}

func (g *hub) EnsureCheck(_ context.Context, _ forge.Repo, c forge.Check) (forge.Check, error) {
	g.checks = append(g.checks, c)
	return c, g.called("check")
}

func (g *hub) RestateCheck(_ context.Context, _ forge.Repo, c forge.Check) error {
	g.restated = append(g.restated, c)
	return g.called("restate")
}

func (g *hub) OpenPull(context.Context, forge.Repo, int) (forge.Pull, bool, error) {
	if g.pull == nil {
		return forge.Pull{}, false, g.called("pull")
	}
	return *g.pull, true, g.called("pull")
}

func (g *hub) PullTicket(_ context.Context, _ forge.Repo, pull int) (int, bool, error) {
	ticket, ok := g.tickets[pull]
	return ticket, ok, g.called("pull ticket")
}

// offer opens a pull request of ours.
func (g *hub) offer(p forge.Pull) {
	g.pull, g.pulls = &p, map[int]forge.Pull{p.Number: p}
}

func (g *hub) Pull(_ context.Context, _ forge.Repo, number int) (forge.Pull, bool, error) {
	pull, ok := g.pulls[number]
	return pull, ok, g.called("read pull")
}

func (g *hub) Review(_ context.Context, _ forge.Repo, _ int, id int64) (forge.Review, bool, error) {
	review, ok := g.reviews[id]
	return review, ok, g.called("review")
}

func (g *hub) EnsureAnswer(_ context.Context, _ forge.Repo, a forge.Answer) (forge.Answer, error) {
	for _, have := range g.answers {
		if have.Thread == a.Thread && have.Marker == a.Marker {
			return have, g.called("answer")
		}
	}
	g.answers = append(g.answers, a)
	return a, g.called("answer")
}

func (g *hub) Gone(_ context.Context, _ forge.Repo, t forge.Ticket, pull int) (forge.Gone, error) {
	return g.gone[cmp.Or(t.Number, pull)], g.called("gone")
}

// shelf is a queue as far as the handlers need one.
type shelf struct {
	jobs     []queue.Job
	signals  map[string][]queue.Signal
	racer    *queue.Job // put by somebody else right before the next Put
	failPut  error      // once
	sendErr  error
	failSend error // once, after the signal was taken
	taken    map[string]int64
}

func newShelf() *shelf {
	return &shelf{signals: map[string][]queue.Signal{}, taken: map[string]int64{}}
}

func (s *shelf) Put(_ context.Context, j queue.Job) (queue.Job, bool, error) {
	if s.failPut != nil {
		err := s.failPut
		s.failPut = nil
		return queue.Job{}, false, err
	}
	if s.racer != nil {
		s.jobs = append(s.jobs, *s.racer)
		s.racer = nil
	}
	for _, have := range s.jobs {
		if have.ID == j.ID || (j.Once != "" && have.Once == j.Once && !have.State.Finished()) {
			return have, false, nil
		}
	}
	j.State = queue.Queued
	s.jobs = append(s.jobs, j)
	return j, true, nil
}

func (s *shelf) Send(_ context.Context, id string, sig queue.Signal) error {
	if s.sendErr != nil {
		return s.sendErr
	}
	if slices.ContainsFunc(s.signals[id], func(have queue.Signal) bool { return have.ID == sig.ID }) {
		return nil
	}
	at := slices.IndexFunc(s.jobs, func(j queue.Job) bool { return j.ID == id })
	switch {
	case at < 0:
		return queue.ErrUnknown
	case s.jobs[at].State.Finished() && !sig.Reopen:
		return queue.ErrFinished
	case s.jobs[at].State.Finished() && slices.ContainsFunc(s.jobs, func(j queue.Job) bool { return j.Once == s.jobs[at].Once && !j.State.Finished() }):
		return queue.ErrOpen
	case s.jobs[at].State.Finished():
		s.jobs[at].State = queue.Queued
	}
	s.signals[id] = append(s.signals[id], sig)
	err := s.failSend
	s.failSend = nil
	return err
}

func (s *shelf) List(_ context.Context, q queue.Query) ([]queue.Job, error) {
	var out []queue.Job
	for _, j := range slices.Backward(s.jobs) {
		if (len(q.IDs) == 0 || slices.Contains(q.IDs, j.ID)) &&
			(len(q.Kinds) == 0 || slices.Contains(q.Kinds, j.Kind)) &&
			(q.Once == "" || q.Once == j.Once) && (q.Key == "" || q.Key == j.Key) &&
			(!q.Unfinished || !j.State.Finished()) && len(out) < cmp.Or(q.Limit, 100) {
			out = append(out, j)
		}
	}
	return out, nil
}

// Take counts for ever: no window ends in a test.
func (s *shelf) Take(_ context.Context, bucket string, n int64, limit queue.Limit) (time.Duration, error) {
	if s.taken[bucket]+n > limit[0].Max {
		return limit[0].Per, nil
	}
	s.taken[bucket] += n
	return 0, nil
}

func (s *shelf) finish() {
	for i := range s.jobs {
		s.jobs[i].State = queue.Done
	}
}

// The payloads below have the fields that GitHub's have, as far as they are read.

type account struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	Type  string `json:"type"`
}

type event struct {
	Action       string         `json:"action"`
	Issue        issueBody      `json:"issue"`
	Label        *named         `json:"label,omitempty"`
	Comment      *commentBody   `json:"comment,omitempty"`
	Repository   repositoryBody `json:"repository"`
	Sender       account        `json:"sender"`
	Installation *numbered      `json:"installation,omitempty"`
}

type issueBody struct {
	Number      int       `json:"number"`
	Title       string    `json:"title"`
	Body        *string   `json:"body"`
	State       string    `json:"state"`
	URL         string    `json:"html_url"`
	User        account   `json:"user"`
	Labels      []named   `json:"labels"`
	UpdatedAt   string    `json:"updated_at"`
	PullRequest *struct{} `json:"pull_request,omitempty"`
}

type commentBody struct {
	ID        int64     `json:"id"`
	Body      string    `json:"body"`
	User      account   `json:"user"`
	CreatedAt string    `json:"created_at"`
	App       *numbered `json:"performed_via_github_app"`
}

type repositoryBody struct {
	ID            int64   `json:"id"`
	Name          string  `json:"name"`
	FullName      string  `json:"full_name"`
	Owner         account `json:"owner"`
	DefaultBranch string  `json:"default_branch"`
}

type named struct {
	Name string `json:"name"`
}

type numbered struct {
	ID int64 `json:"id"`
}

var (
	maintainer = account{"mona", 1, "User"}
	reader     = account{"visitor", 2, "User"}
	triager    = account{"sorter", 3, "User"}
)

func newEvent(action string, by account) event {
	text := "It should greet by name."
	return event{
		Action: action,
		Issue: issueBody{
			Number: 12, Title: "Greet by name", Body: &text, State: "open",
			URL: "https://github.com/o/r/issues/12", User: reader,
			Labels: []named{{"enhancement"}}, UpdatedAt: "2026-03-01T10:00:00Z",
		},
		Repository:   repositoryBody{ID: 9, Name: "r", FullName: "o/r", Owner: account{"o", 8, "Organization"}, DefaultBranch: "main"},
		Sender:       by,
		Installation: &numbered{7},
	}
}

func labeled(by account, label string) event {
	e := newEvent("labeled", by)
	e.Label = &named{label}
	e.Issue.Labels = append(e.Issue.Labels, *e.Label)
	return e
}

func commented(by account, body string) event {
	e := newEvent("created", by)
	e.Comment = &commentBody{ID: 555, Body: body, User: by, CreatedAt: "2026-03-01T11:00:00Z"}
	return e
}

func (e event) payload() []byte {
	raw, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return raw
}

// name is the event's name at GitHub.
func (e event) name() string {
	if e.Comment != nil {
		return "issue_comment"
	}
	return "issues"
}

func (g *hub) bodies() string {
	var all []string
	for _, c := range g.comments {
		all = append(all, c.Body)
	}
	return strings.Join(all, "\n---\n")
}
