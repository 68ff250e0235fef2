package githubsim

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// The events that a delivery may carry. Fields that an event lacks are nil.
type event struct {
	Action       string               `json:"action,omitempty"`
	Number       int                  `json:"number,omitempty"`
	Before       string               `json:"before,omitempty"`
	After        string               `json:"after,omitempty"`
	Changes      *changesShape        `json:"changes,omitempty"`
	Issue        *threadShape         `json:"issue,omitempty"`
	Label        *labelShape          `json:"label,omitempty"`
	Comment      any                  `json:"comment,omitempty"` // commentShape or reviewCommentShape
	Pull         *pullShape           `json:"pull_request,omitempty"`
	Review       *reviewShape         `json:"review,omitempty"`
	Check        *checkShape          `json:"check_run,omitempty"`
	Suite        *suiteShape          `json:"check_suite,omitempty"`
	Requested    *requestedShape      `json:"requested_action,omitempty"`
	Push         *pushShape           `json:"-"`
	Zen          string               `json:"zen,omitempty"`
	HookID       int64                `json:"hook_id,omitempty"`
	Hook         *hookShape           `json:"hook,omitempty"`
	Repositories []installedRepo      `json:"repositories,omitempty"`
	Added        *[]installedRepo     `json:"repositories_added,omitempty"`
	Removed      []installedRepo      `json:"repositories_removed,omitempty"`
	Selection    string               `json:"repository_selection,omitempty"`
	Requester    json.RawMessage      `json:"requester,omitempty"` // of a removal null
	Repository   *repoShape           `json:"repository,omitempty"`
	Sender       *accountShape        `json:"sender,omitempty"`
	Installation *installationInEvent `json:"installation,omitempty"`
}

// installationInEvent is short in most events and whole in installation's own.
type installationInEvent struct {
	ID     int64  `json:"id"`
	NodeID string `json:"node_id"`
	*installationShape
}

type changesShape struct {
	Title *fromShape `json:"title,omitempty"`
	Body  *fromShape `json:"body,omitempty"`

	Repository *renamedShape `json:"repository,omitempty"`
}

type fromShape struct {
	From string `json:"from"`
}

type requestedShape struct {
	Identifier string `json:"identifier"`
}

type installedRepo struct {
	ID       int64  `json:"id"`
	NodeID   string `json:"node_id"`
	Name     string `json:"name"`
	FullName string `json:"full_name"`
	Private  bool   `json:"private"`
}

type hookShape struct {
	Type      string     `json:"type"`
	ID        int64      `json:"id"`
	Name      string     `json:"name"`
	Active    bool       `json:"active"`
	Events    []string   `json:"events"`
	Config    hookConfig `json:"config"`
	UpdatedAt time.Time  `json:"updated_at"`
	CreatedAt time.Time  `json:"created_at"`
	AppID     int64      `json:"app_id"`
}

type hookConfig struct {
	ContentType string `json:"content_type"`
	InsecureSSL string `json:"insecure_ssl"`
	Secret      string `json:"secret"`
	URL         string `json:"url"`
}

type pushShape struct {
	Ref        string               `json:"ref"`
	Before     string               `json:"before"`
	After      string               `json:"after"`
	Created    bool                 `json:"created"`
	Deleted    bool                 `json:"deleted"`
	Forced     bool                 `json:"forced"`
	BaseRef    *string              `json:"base_ref"`
	Compare    string               `json:"compare"`
	Commits    []pushedCommit       `json:"commits"`
	HeadCommit *pushedCommit        `json:"head_commit"`
	Pusher     pushedBy             `json:"pusher"`
	Repository *repoShape           `json:"repository"`
	Sender     *accountShape        `json:"sender"`
	Install    *installationInEvent `json:"installation"`
}

type pushedBy struct {
	Name  string  `json:"name"`
	Email *string `json:"email"`
}

type pushedCommit struct {
	ID        string       `json:"id"`
	TreeID    string       `json:"tree_id"`
	Distinct  bool         `json:"distinct"`
	Message   string       `json:"message"`
	Timestamp time.Time    `json:"timestamp"`
	URL       string       `json:"url"`
	Author    pushedAuthor `json:"author"`
	Committer pushedAuthor `json:"committer"`
	Added     []string     `json:"added"`
	Removed   []string     `json:"removed"`
	Modified  []string     `json:"modified"`
}

type pushedAuthor struct {
	Name  string `json:"name"`
	Email string `json:"email"`
}

// emit queues an event of a repository for every App that listens. The caller
// holds mu and commits.
func (s *Server) emit(r *repo, name string, e event, by string) {
	h := s.shaper()
	e.Repository, e.Sender = h.repo(r), h.account(by)
	for _, i := range s.state.Installations {
		a := s.state.app(i.App)
		if !i.covers(r) || !slices.Contains(a.Events, name) && !forOwner(name, e.Action) {
			continue
		}
		if forOwner(name, e.Action) && (e.Check != nil && e.Check.App.ID != a.ID || e.Suite != nil && e.Suite.App.ID != a.ID) {
			continue
		}
		e.Installation = &installationInEvent{ID: i.ID, NodeID: node("Installation", i.ID)}
		s.post(a, i, r, name, e)
	}
}

// forOwner tells the events that the App of a check run or suite gets unasked,
// and no other App gets.
func forOwner(name, action string) bool {
	return name == "check_run" && (action == "rerequested" || action == "requested_action") ||
		name == "check_suite" && action == "rerequested"
}

func (s *Server) post(a *app, i *installation, r *repo, name string, e event) {
	var document any = e
	if e.Push != nil {
		push := *e.Push
		push.Repository, push.Sender, push.Install = e.Repository, e.Sender, e.Installation
		document = push
	}
	payload, err := json.Marshal(document)
	if err == nil {
		err = s.enqueue(a, i, r, name, e.Action, payload)
	}
	if err != nil {
		s.log.Error("webhook lost", "event", name, "error", err)
	}
}

// emitThread tells of a ticket, or of a pull request where the thread is one.
func (s *Server) emitThread(r *repo, t *thread, action, by string, l *label) {
	h := s.shaper()
	e := event{Action: action}
	if l != nil {
		shape := h.label(r, l)
		e.Label = &shape
	}
	if t.Pull != nil {
		s.emitPull(r, t, e, by)
		return
	}
	shape := h.thread(r, t)
	e.Issue = &shape
	s.emit(r, "issues", e, by)
}

func (s *Server) emitEdited(r *repo, t *thread, changes changesShape, by string) {
	e := event{Action: "edited", Changes: &changes}
	if t.Pull != nil {
		s.emitPull(r, t, e, by)
		return
	}
	shape := s.shaper().thread(r, t)
	e.Issue = &shape
	s.emit(r, "issues", e, by)
}

func (s *Server) emitPull(r *repo, t *thread, e event, by string) {
	shape := s.shaper().pullWhole(r, t)
	e.Number, e.Pull = t.Number, &shape
	s.emit(r, "pull_request", e, by)
}

func (s *Server) emitComment(r *repo, t *thread, c *comment, action, by, before string) {
	h := s.shaper()
	issue := h.thread(r, t)
	e := event{Action: action, Issue: &issue, Comment: h.comment(r, t, c)}
	if action == "edited" {
		e.Changes = &changesShape{Body: &fromShape{before}}
	}
	s.emit(r, "issue_comment", e, by)
}

func (s *Server) emitCheck(r *repo, c *check, action, by string, requested *requestedShape) {
	shape := s.shaper().check(r, c)
	s.emit(r, "check_run", event{Action: action, Check: &shape, Requested: requested}, by)
}

func (s *Server) emitSuite(ctx context.Context, r *repo, u *suite, action, by string) error {
	infos, err := s.commits(ctx, r, "--max-count=1", u.HeadSHA)
	if err != nil {
		return err
	}
	shape := s.shaper().suiteWhole(r, u, infos[0])
	s.emit(r, "check_suite", event{Action: action, Suite: &shape}, by)
	return nil
}

func (s *Server) emitPing(a *app) {
	s.post(a, nil, nil, "ping", event{
		Zen: "Keep it logically awesome.", HookID: a.ID,
		Hook: &hookShape{
			Type: "App", ID: a.ID, Name: "web", Active: true, Events: listOf(a.Events), AppID: a.ID,
			Config:    hookConfig{ContentType: "json", InsecureSSL: "0", Secret: "********", URL: a.WebhookURL},
			UpdatedAt: a.Created, CreatedAt: a.Created,
		},
	})
}

func compareURL(page, before, after string) string {
	return fmt.Sprintf("%s/compare/%.12s...%.12s", page, before, after)
}
