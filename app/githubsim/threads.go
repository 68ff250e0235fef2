package githubsim

import (
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxText is how many characters a comment or a body may have.
const maxText = 65536

// mayThread refuses a token that may touch pull requests only on a ticket.
func (c *call) mayThread(t *thread) error {
	if t.Pull != nil {
		return nil
	}
	if c.r.Method == http.MethodGet && (c.repo.Public || c.may("issues", "read")) {
		return nil
	}
	if c.may("issues", "write") {
		return nil
	}
	return errForbidden
}

// thread is the ticket or pull request that the path names.
func (c *call) thread() (*thread, error) {
	t := c.repo.thread(int(c.number("issue_number")))
	if t == nil {
		return nil, errNotFound
	}
	return t, c.mayThread(t)
}

func (c *call) comment() (*thread, *comment, error) {
	t, found := c.repo.comment(c.number("comment_id"))
	if found == nil {
		return nil, nil, errNotFound
	}
	return t, found, c.mayThread(t)
}

// me is the login under which the caller's App acts.
func (c *call) me() string { return c.app.bot() }

func getThread(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().thread(c.repo, t))
}

func listThreads(c *call) (answer, error) {
	state := c.query("state", "open")
	var wanted []string
	if names := c.query("labels", ""); names != "" {
		wanted = strings.Split(names, ",")
	}
	since, err := sinceOf(c)
	if err != nil {
		return answer{}, err
	}
	out := []threadShape{}
	for _, t := range slices.Backward(c.repo.Threads) {
		if state != "all" && t.state() != state || t.Updated.Before(since) || c.mayThread(t) != nil {
			continue
		}
		if slices.ContainsFunc(wanted, func(name string) bool { return !t.has(name) }) {
			continue
		}
		out = append(out, c.shape().thread(c.repo, t))
	}
	if c.query("sort", "created") == "updated" {
		slices.SortStableFunc(out, func(a, b threadShape) int { return b.UpdatedAt.Compare(a.UpdatedAt) })
	}
	if c.query("direction", "desc") == "asc" {
		slices.Reverse(out)
	}
	return ok(page(c, out))
}

func sinceOf(c *call) (time.Time, error) {
	text := c.query("since", "")
	if text == "" {
		return time.Time{}, nil
	}
	since, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return since, unprocessable("Invalid value for `since`")
	}
	return since, nil
}

func (t *thread) has(label string) bool {
	return slices.ContainsFunc(t.Labels, func(name string) bool { return strings.EqualFold(name, label) })
}

type ticketRequest struct {
	Title       *string  `json:"title"`
	Body        *string  `json:"body"`
	State       *string  `json:"state"`
	StateReason *string  `json:"state_reason"`
	Labels      []string `json:"labels"`
}

func createTicket(c *call) (answer, error) {
	in, err := decode[ticketRequest](c)
	if err != nil {
		return answer{}, err
	}
	if in.Title == nil || strings.TrimSpace(*in.Title) == "" {
		return answer{}, invalid("Issue", "title", "missing_field", "")
	}
	body := ""
	if in.Body != nil {
		body = *in.Body
	}
	if err := checkText("Issue", body); err != nil {
		return answer{}, err
	}
	t := c.s.openThread(c.repo, c.me(), *in.Title, body)
	c.s.emitThread(c.repo, t, "opened", c.me(), nil)
	for _, name := range in.Labels {
		c.s.label(c.repo, t, name, c.me())
	}
	return created(c.shape().thread(c.repo, t))
}

func checkText(resource, text string) error {
	if utf8.RuneCountInString(text) > maxText {
		return invalid(resource, "body", "custom", "body is too long (maximum is 65536 characters)")
	}
	return nil
}

// openThread numbers a new ticket or pull request.
func (s *Server) openThread(r *repo, author, title, body string) *thread {
	r.LastNumber++
	now := s.now()
	t := &thread{ID: s.state.next(), Number: r.LastNumber, Title: title, Body: body, Author: author, Created: now, Updated: now}
	r.Threads = append(r.Threads, t)
	return t
}

func updateThread(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	in, err := decode[ticketRequest](c)
	if err != nil {
		return answer{}, err
	}
	if in.Body != nil {
		if err := checkText("Issue", *in.Body); err != nil {
			return answer{}, err
		}
	}
	c.s.edit(c.repo, t, in, c.me())
	if in.Labels != nil {
		for _, name := range slices.Clone(t.Labels) {
			if !slices.ContainsFunc(in.Labels, func(n string) bool { return strings.EqualFold(n, name) }) {
				c.s.unlabel(c.repo, t, name, c.me())
			}
		}
		for _, name := range in.Labels {
			c.s.label(c.repo, t, name, c.me())
		}
	}
	return ok(c.shape().thread(c.repo, t))
}

// edit changes title, body and state, with an event for each kind of change.
func (s *Server) edit(r *repo, t *thread, in ticketRequest, by string) {
	changes := changesShape{}
	if in.Title != nil && *in.Title != t.Title {
		changes.Title, t.Title = &fromShape{t.Title}, *in.Title
	}
	if in.Body != nil && *in.Body != t.Body {
		changes.Body, t.Body = &fromShape{t.Body}, *in.Body
	}
	t.Updated = s.now()
	if changes != (changesShape{}) {
		s.emitEdited(r, t, changes, by)
	}
	if in.State != nil && *in.State != t.state() {
		reason := "completed"
		if in.StateReason != nil {
			reason = *in.StateReason
		}
		s.setState(r, t, *in.State, reason, by)
	}
}

// setState closes or reopens a thread.
func (s *Server) setState(r *repo, t *thread, state, reason, by string) {
	action := "reopened"
	t.Closed, t.Reason, t.Updated = nil, "", s.now()
	if state == "closed" {
		now := s.now()
		t.Closed, t.Reason, action = &now, reason, "closed"
	}
	s.emitThread(r, t, action, by, nil)
}

func listLabels(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	return ok(page(c, c.shape().labels(c.repo, t.Labels)))
}

func addLabels(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	var names []string
	if strings.HasPrefix(strings.TrimSpace(string(c.body)), "[") {
		names, err = decode[[]string](c)
	} else {
		var in ticketRequest
		in, err = decode[ticketRequest](c)
		names = in.Labels
	}
	if err != nil {
		return answer{}, err
	}
	for _, name := range names {
		c.s.label(c.repo, t, name, c.me())
	}
	return ok(c.shape().labels(c.repo, t.Labels))
}

// label puts a label on a thread, creating it in the repository if need be.
func (s *Server) label(r *repo, t *thread, name, by string) {
	if t.has(name) {
		return
	}
	l := r.label(name)
	if l == nil {
		l = &label{ID: s.state.next(), Name: name, Color: "ededed"}
		r.Labels = append(r.Labels, l)
	}
	t.Labels = append(t.Labels, l.Name)
	t.Updated = s.now()
	s.emitThread(r, t, "labeled", by, l)
}

func removeLabel(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	if !t.has(c.path["name"]) {
		return answer{}, &apiError{Status: http.StatusNotFound, Message: "Label does not exist"}
	}
	c.s.unlabel(c.repo, t, c.path["name"], c.me())
	return ok(c.shape().labels(c.repo, t.Labels))
}

func (s *Server) unlabel(r *repo, t *thread, name, by string) {
	t.Labels = slices.DeleteFunc(t.Labels, func(n string) bool { return strings.EqualFold(n, name) })
	t.Updated = s.now()
	s.emitThread(r, t, "unlabeled", by, r.label(name))
}

func listComments(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	since, err := sinceOf(c)
	if err != nil {
		return answer{}, err
	}
	out := []commentShape{}
	for _, found := range t.Comments {
		if !found.Updated.Before(since) {
			out = append(out, c.shape().comment(c.repo, t, found))
		}
	}
	return ok(page(c, out))
}

type commentRequest struct {
	Body string `json:"body"`
}

func commentBody(c *call) (string, error) {
	in, err := decode[commentRequest](c)
	if err != nil {
		return "", err
	}
	if strings.TrimSpace(in.Body) == "" {
		return "", invalid("IssueComment", "body", "missing_field", "")
	}
	return in.Body, checkText("IssueComment", in.Body)
}

func createComment(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	body, err := commentBody(c)
	if err != nil {
		return answer{}, err
	}
	made := c.s.comment(c.repo, t, c.me(), body, c.app.ID)
	return created(c.shape().comment(c.repo, t, made))
}

// comment writes a comment; app is 0 for a person's.
func (s *Server) comment(r *repo, t *thread, author, body string, app int64) *comment {
	now := s.now()
	made := &comment{ID: s.state.next(), Author: author, Body: body, App: app, Created: now, Updated: now}
	t.Comments = append(t.Comments, made)
	t.Updated = now
	s.emitComment(r, t, made, "created", author, "")
	return made
}

func getComment(c *call) (answer, error) {
	t, found, err := c.comment()
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().comment(c.repo, t, found))
}

func updateComment(c *call) (answer, error) {
	t, found, err := c.comment()
	if err != nil {
		return answer{}, err
	}
	body, err := commentBody(c)
	if err != nil {
		return answer{}, err
	}
	c.s.editComment(c.repo, t, found, body, c.me())
	return ok(c.shape().comment(c.repo, t, found))
}

func (s *Server) editComment(r *repo, t *thread, edited *comment, body, by string) {
	before := edited.Body
	edited.Body, edited.Updated = body, s.now()
	s.emitComment(r, t, edited, "edited", by, before)
}

func deleteComment(c *call) (answer, error) {
	t, found, err := c.comment()
	if err != nil {
		return answer{}, err
	}
	c.s.deleteComment(c.repo, t, found, c.me())
	return gone()
}

func (s *Server) deleteComment(r *repo, t *thread, deleted *comment, by string) {
	t.Comments = slices.DeleteFunc(t.Comments, func(other *comment) bool { return other == deleted })
	s.emitComment(r, t, deleted, "deleted", by, "")
}

var reactionContents = []string{"+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes"}

func listThreadReactions(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	return listReactions(c, t.Reactions)
}

func listCommentReactions(c *call) (answer, error) {
	_, found, err := c.comment()
	if err != nil {
		return answer{}, err
	}
	return listReactions(c, found.Reactions)
}

func listReactions(c *call, all []*reaction) (answer, error) {
	out := []reactionShape{}
	for _, r := range all {
		if content := c.query("content", r.Content); content == r.Content {
			out = append(out, c.shape().reaction(r))
		}
	}
	return ok(page(c, out))
}

func createThreadReaction(c *call) (answer, error) {
	t, err := c.thread()
	if err != nil {
		return answer{}, err
	}
	return c.react(&t.Reactions)
}

func createCommentReaction(c *call) (answer, error) {
	_, found, err := c.comment()
	if err != nil {
		return answer{}, err
	}
	return c.react(&found.Reactions)
}

// react adds the caller's reaction; one that stands already is answered 200.
func (c *call) react(all *[]*reaction) (answer, error) {
	in, err := decode[struct {
		Content string `json:"content"`
	}](c)
	if err != nil {
		return answer{}, err
	}
	made, fresh, err := c.s.react(all, c.me(), in.Content)
	if err != nil {
		return answer{}, err
	}
	if !fresh {
		return ok(c.shape().reaction(made))
	}
	return created(c.shape().reaction(made))
}

// react adds a reaction, or finds the one that stands.
func (s *Server) react(all *[]*reaction, by, content string) (made *reaction, fresh bool, err error) {
	if !slices.Contains(reactionContents, content) {
		return nil, false, invalid("Reaction", "content", "invalid", "")
	}
	if old := find(*all, func(r *reaction) bool { return r.User == by && r.Content == content }); old != nil {
		return old, false, nil
	}
	made = &reaction{ID: s.state.next(), User: by, Content: content, Created: s.now()}
	*all = append(*all, made)
	return made, true, nil
}
