package githubsim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The methods of this file are what people do in GitHub's browser. Each creates
// the state and sends the webhook. By is a login; an account that does not
// exist is created.

// Done is the outcome of what has none.
type Done struct{}

// A TicketSpec opens a ticket.
type TicketSpec struct {
	Repo   string   `json:"repo"` // owner/name
	Title  string   `json:"title"`
	Body   string   `json:"body"`
	Labels []string `json:"labels,omitempty"`
	By     string   `json:"by"`
}

// A Thread is a ticket or a pull request.
type Thread struct {
	ID     int64  `json:"id"`
	Number int    `json:"number"`
	Page   string `json:"page"`
}

// OpenTicket opens a ticket.
func (s *Server) OpenTicket(_ context.Context, spec TicketSpec) (Thread, error) {
	var made Thread
	err := s.change(func(st *state) error {
		r, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		st.ensureUser(spec.By, "")
		t := s.openThread(r, spec.By, spec.Title, spec.Body)
		s.emitThread(r, t, "opened", spec.By, nil)
		for _, name := range spec.Labels {
			s.label(r, t, name, spec.By)
		}
		made = Thread{ID: t.ID, Number: t.Number, Page: s.shaper().threadPage(r, t)}
		return nil
	})
	return made, err
}

// on finds a thread and lets fn act on it in somebody's name.
func (s *Server) on(full string, number int, by string, fn func(*repo, *thread) error) error {
	return s.change(func(st *state) error {
		r, err := st.named(full)
		if err != nil {
			return err
		}
		t := r.thread(number)
		if t == nil {
			return fmt.Errorf("no ticket or pull request %s#%d", full, number)
		}
		st.ensureUser(by, "")
		return fn(r, t)
	})
}

// A TicketEdit changes what is not nil.
type TicketEdit struct {
	Repo   string  `json:"repo"`
	Number int     `json:"number"`
	Title  *string `json:"title,omitempty"`
	Body   *string `json:"body,omitempty"`
	State  *string `json:"state,omitempty"` // open or closed
	By     string  `json:"by"`
}

// EditTicket edits, closes or reopens a ticket or pull request.
func (s *Server) EditTicket(_ context.Context, edit TicketEdit) (Done, error) {
	return Done{}, s.on(edit.Repo, edit.Number, edit.By, func(r *repo, t *thread) error {
		s.edit(r, t, ticketRequest{Title: edit.Title, Body: edit.Body, State: edit.State}, edit.By)
		return nil
	})
}

// A Labelling puts a label on a ticket or pull request, or takes it off.
type Labelling struct {
	Repo   string `json:"repo"`
	Number int    `json:"number"`
	Label  string `json:"label"`
	By     string `json:"by"`
}

// Label adds a label, which is created in the repository if need be.
func (s *Server) Label(_ context.Context, l Labelling) (Done, error) {
	return Done{}, s.on(l.Repo, l.Number, l.By, func(r *repo, t *thread) error {
		s.label(r, t, l.Label, l.By)
		return nil
	})
}

// Unlabel removes a label.
func (s *Server) Unlabel(_ context.Context, l Labelling) (Done, error) {
	return Done{}, s.on(l.Repo, l.Number, l.By, func(r *repo, t *thread) error {
		if t.has(l.Label) {
			s.unlabel(r, t, l.Label, l.By)
		}
		return nil
	})
}

// A CommentSpec is a comment to write.
type CommentSpec struct {
	Repo   string `json:"repo"`
	Number int    `json:"number"`
	Body   string `json:"body"`
	By     string `json:"by"`
}

// A Comment is a comment that was written.
type Comment struct {
	ID   int64  `json:"id"`
	Page string `json:"page"`
}

// Comment writes a comment on a ticket or pull request.
func (s *Server) Comment(_ context.Context, spec CommentSpec) (Comment, error) {
	var made Comment
	err := s.on(spec.Repo, spec.Number, spec.By, func(r *repo, t *thread) error {
		if err := checkText("IssueComment", spec.Body); err != nil {
			return err
		}
		c := s.comment(r, t, spec.By, spec.Body, 0)
		made = Comment{ID: c.ID, Page: s.shaper().comment(r, t, c).HTMLURL}
		return nil
	})
	return made, err
}

// A CommentEdit changes a comment; DeleteComment does not look at Body.
type CommentEdit struct {
	Repo string `json:"repo"`
	ID   int64  `json:"id"`
	Body string `json:"body,omitempty"`
	By   string `json:"by"`
}

func (s *Server) onComment(edit CommentEdit, fn func(*repo, *thread, *comment)) error {
	return s.change(func(st *state) error {
		r, err := st.named(edit.Repo)
		if err != nil {
			return err
		}
		t, c := r.comment(edit.ID)
		if c == nil {
			return fmt.Errorf("no comment %d in %s", edit.ID, edit.Repo)
		}
		st.ensureUser(edit.By, "")
		fn(r, t, c)
		return nil
	})
}

// EditComment changes the text of a comment.
func (s *Server) EditComment(_ context.Context, edit CommentEdit) (Done, error) {
	return Done{}, s.onComment(edit, func(r *repo, t *thread, c *comment) { s.editComment(r, t, c, edit.Body, edit.By) })
}

// DeleteComment removes a comment.
func (s *Server) DeleteComment(_ context.Context, edit CommentEdit) (Done, error) {
	return Done{}, s.onComment(edit, func(r *repo, t *thread, c *comment) { s.deleteComment(r, t, c, edit.By) })
}

// A CommitSpec commits files to a branch, which starts at the default branch
// if it is new.
type CommitSpec struct {
	Repo    string            `json:"repo"`
	Branch  string            `json:"branch"`
	Message string            `json:"message"`
	Files   map[string]string `json:"files,omitempty"` // a text that begins with #! is executable
	Deleted []string          `json:"deleted,omitempty"`
	By      string            `json:"by"`
}

// A Commit is a commit that was made.
type Commit struct {
	SHA string `json:"sha"`
}

// Commit commits and pushes.
func (s *Server) Commit(ctx context.Context, spec CommitSpec) (Commit, error) {
	var made Commit
	err := s.change(func(st *state) error {
		r, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		parent := r.Refs["refs/heads/"+spec.Branch]
		if parent == "" {
			parent = r.Refs["refs/heads/"+r.DefaultBranch]
		}
		err = s.makeCommit(ctx, r, treeChange{
			branch: spec.Branch, parent: parent, author: s.authorOf(spec.By), message: spec.Message,
			files: bodies(spec.Files), deleted: spec.Deleted,
		})
		if err != nil {
			return err
		}
		if err := s.settle(ctx, r, spec.By); err != nil {
			return err
		}
		made.SHA = r.Refs["refs/heads/"+spec.Branch]
		return nil
	})
	return made, err
}

// A PullSpec opens a pull request between two branches of a repository, or from a
// fork of it.
type PullSpec struct {
	Repo  string `json:"repo"`
	Title string `json:"title"`
	Body  string `json:"body"`
	Head  string `json:"head"` // branch, or owner:branch of a fork
	Base  string `json:"base"`
	Draft bool   `json:"draft,omitempty"`
	By    string `json:"by"`
}

// OpenPull opens a pull request.
func (s *Server) OpenPull(ctx context.Context, spec PullSpec) (Thread, error) {
	var made Thread
	err := s.change(func(st *state) error {
		r, err := st.named(spec.Repo)
		if err != nil {
			return err
		}
		st.ensureUser(spec.By, "")
		t, err := s.openPull(ctx, r, pullRequest{Title: &spec.Title, Body: &spec.Body, Head: spec.Head, Base: orText(spec.Base, r.DefaultBranch), Draft: spec.Draft}, spec.By)
		if err != nil {
			return fmt.Errorf("open a pull request: %w", err)
		}
		made = Thread{ID: t.ID, Number: t.Number, Page: s.shaper().threadPage(r, t)}
		return nil
	})
	return made, err
}

// A PullRef is a pull request that somebody acts on.
type PullRef struct {
	Repo   string `json:"repo"`
	Number int    `json:"number"`
	By     string `json:"by"`
}

// Merge merges a pull request with a merge commit.
func (s *Server) Merge(ctx context.Context, ref PullRef) (Commit, error) {
	var made Commit
	err := s.on(ref.Repo, ref.Number, ref.By, func(r *repo, t *thread) error {
		if t.Pull == nil || t.Closed != nil {
			return fmt.Errorf("merge: %s#%d is no open pull request", ref.Repo, ref.Number)
		}
		p := t.Pull
		tree, err := s.git(ctx, r, "merge-tree", "--write-tree", "--no-messages", p.BaseSHA, p.HeadSHA)
		if err != nil {
			return fmt.Errorf("merge %s#%d: %w", ref.Repo, ref.Number, err)
		}
		by := s.authorOf(ref.By)
		message := fmt.Sprintf("Merge pull request #%d from %s/%s", t.Number, r.Owner, p.Head)
		sha, err := s.git(ctx, r, "-c", "user.name="+by.Name, "-c", "user.email="+by.Email,
			"commit-tree", strings.TrimSpace(tree), "-p", p.BaseSHA, "-p", p.HeadSHA, "-m", message)
		if err != nil {
			return err
		}
		made.SHA = strings.TrimSpace(sha)
		if _, err := s.git(ctx, r, "update-ref", "refs/heads/"+p.Base, made.SHA, p.BaseSHA); err != nil {
			return err
		}
		return s.settle(ctx, r, ref.By)
	})
	return made, err
}

// A Press is a button of a check run that somebody pressed. Without an action
// it is GitHub's own Re-run.
type Press struct {
	Repo   string `json:"repo"`
	Check  int64  `json:"check"`
	Action string `json:"action,omitempty"` // identifier
	By     string `json:"by"`
}

// PressButton tells the App of a check run that its button was pressed. A run
// of a scripted CI is run again.
func (s *Server) PressButton(ctx context.Context, press Press) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(press.Repo)
		if err != nil {
			return err
		}
		k := find(r.Checks, func(k *check) bool { return k.ID == press.Check })
		if k == nil {
			return fmt.Errorf("no check run %d in %s", press.Check, press.Repo)
		}
		st.ensureUser(press.By, "")
		if press.Action == "" {
			s.rerequest(r, k, press.By)
			if k.Script != 0 {
				return s.repeat(ctx, r, k)
			}
			return nil
		}
		for _, a := range k.Actions {
			if a.Identifier == press.Action {
				s.emitCheck(r, k, "requested_action", press.By, &requestedShape{press.Action})
				return nil
			}
		}
		return fmt.Errorf("check run %d has no button %q", press.Check, press.Action)
	})
}

// rerequest asks the App of a check run for it again. The run stays as it is;
// its suite waits until the App has written to it.
func (s *Server) rerequest(r *repo, k *check, by string) {
	r.suite(k.Suite).Again = true
	s.emitCheck(r, k, "rerequested", by, nil)
}

// A Rerun is GitHub's own button that runs all checks of a commit again.
type Rerun struct {
	Repo string `json:"repo"`
	SHA  string `json:"sha"`
	By   string `json:"by"`
}

// RerunChecks asks every App that has check runs on a commit for them again.
// Those of a scripted CI are run again.
func (s *Server) RerunChecks(ctx context.Context, again Rerun) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		r, err := st.named(again.Repo)
		if err != nil {
			return err
		}
		st.ensureUser(again.By, "")
		asked := false
		for _, u := range r.Suites {
			runs := slices.Collect(newest(r, u))
			if u.HeadSHA != again.SHA || len(runs) == 0 {
				continue
			}
			asked, u.Again = true, true
			if err := s.emitSuite(ctx, r, u, "rerequested", again.By); err != nil {
				return err
			}
			for _, k := range runs {
				if k.Script == 0 {
					continue
				}
				if err := s.repeat(ctx, r, k); err != nil {
					return err
				}
			}
		}
		if !asked {
			return fmt.Errorf("no checks on %s in %s", again.SHA, again.Repo)
		}
		return nil
	})
}

// A ReviewSpec is a review that a person gives.
type ReviewSpec struct {
	Repo    string   `json:"repo"`
	Number  int      `json:"number"`
	Event   string   `json:"event"` // COMMENT, APPROVE or REQUEST_CHANGES
	Body    string   `json:"body"`
	Remarks []Remark `json:"remarks,omitempty"`
	By      string   `json:"by"`
}

// A Remark is a comment on a line of the diff, on its right side.
type Remark struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Body string `json:"body"`
}

// Reviewed is a review that was given, with its remarks in their order.
type Reviewed struct {
	ID      int64   `json:"id"`
	Remarks []int64 `json:"remarks"`
}

// Review reviews a pull request.
func (s *Server) Review(ctx context.Context, spec ReviewSpec) (Reviewed, error) {
	var made Reviewed
	err := s.on(spec.Repo, spec.Number, spec.By, func(r *repo, t *thread) error {
		if t.Pull == nil {
			return fmt.Errorf("review: %s#%d is no pull request", spec.Repo, spec.Number)
		}
		in := reviewRequest{Body: spec.Body, Event: spec.Event}
		for _, remark := range spec.Remarks {
			in.Comments = append(in.Comments, reviewRemark{Path: remark.Path, Line: remark.Line, Body: remark.Body})
		}
		given, err := s.review(ctx, r, t, in, spec.By)
		if err != nil {
			return err
		}
		made.ID = given.ID
		for _, rc := range t.Pull.Comments {
			if rc.Review == given.ID {
				made.Remarks = append(made.Remarks, rc.ID)
			}
		}
		return nil
	})
	return made, err
}

// A Resolution settles the thread that a comment of a review began, or opens it
// again.
type Resolution struct {
	Repo    string `json:"repo"`
	Number  int    `json:"number"`
	Comment int64  `json:"comment"`
	By      string `json:"by"`
	Undo    bool   `json:"undo,omitempty"`
}

// Resolve settles a thread of a review. The App did not ask to be told.
func (s *Server) Resolve(_ context.Context, spec Resolution) (Done, error) {
	return Done{}, s.on(spec.Repo, spec.Number, spec.By, func(r *repo, t *thread) error {
		_, first := r.reviewComment(spec.Comment)
		if first == nil || first.ReplyTo != 0 {
			return fmt.Errorf("resolve: comment %d begins no thread of %s#%d", spec.Comment, spec.Repo, spec.Number)
		}
		first.ResolvedBy = spec.By
		if spec.Undo {
			first.ResolvedBy = ""
		}
		return nil
	})
}

// A Conversation is a thread of a review, by the comment that began it.
type Conversation struct {
	Comment    int64  `json:"comment"`
	Path       string `json:"path"`
	ResolvedBy string `json:"resolved_by,omitempty"` // login; empty while it is open
}

// Conversations lists the threads of a pull request's reviews, oldest first.
func (s *Server) Conversations(full string, number int) (all []Conversation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.state.named(full)
	if err != nil {
		return nil
	}
	t := r.thread(number)
	if t == nil || t.Pull == nil {
		return nil
	}
	for _, rc := range t.Pull.Comments {
		if rc.ReplyTo == 0 {
			all = append(all, Conversation{Comment: rc.ID, Path: rc.Path, ResolvedBy: rc.ResolvedBy})
		}
	}
	return all
}

// A ReplySpec answers a comment of a review in its thread.
type ReplySpec struct {
	Repo    string `json:"repo"`
	Number  int    `json:"number"`
	Comment int64  `json:"comment"`
	Body    string `json:"body"`
	By      string `json:"by"`
}

// Reply answers a comment of a review.
func (s *Server) Reply(_ context.Context, spec ReplySpec) (Comment, error) {
	var made Comment
	err := s.on(spec.Repo, spec.Number, spec.By, func(r *repo, t *thread) error {
		if t.Pull == nil {
			return fmt.Errorf("reply: %s#%d is no pull request", spec.Repo, spec.Number)
		}
		reply := s.reply(r, t, spec.Comment, spec.Body, spec.By)
		if reply == nil {
			return fmt.Errorf("no comment %d in a review of %s#%d", spec.Comment, spec.Repo, spec.Number)
		}
		made = Comment{ID: reply.ID, Page: s.shaper().reviewComment(r, t, reply).HTMLURL}
		return nil
	})
	return made, err
}

// A ReactionSpec is a reaction on a comment, or on the ticket itself when
// Comment is zero.
type ReactionSpec struct {
	Repo    string `json:"repo"`
	Number  int    `json:"number"`
	Comment int64  `json:"comment,omitempty"`
	Content string `json:"content"`
	By      string `json:"by"`
}

// React adds a reaction.
func (s *Server) React(_ context.Context, spec ReactionSpec) (Done, error) {
	return Done{}, s.on(spec.Repo, spec.Number, spec.By, func(r *repo, t *thread) error {
		all := &t.Reactions
		if spec.Comment != 0 {
			c := find(t.Comments, func(c *comment) bool { return c.ID == spec.Comment })
			if c == nil {
				return fmt.Errorf("no comment %d on %s#%d", spec.Comment, spec.Repo, spec.Number)
			}
			all = &c.Reactions
		}
		_, _, err := s.react(all, spec.By, spec.Content)
		return err
	})
}

// AddFault makes something go wrong from now on.
func (s *Server) AddFault(_ context.Context, f Fault) (Fault, error) {
	err := s.change(func(st *state) error {
		f.ID = st.next()
		added := f
		st.Faults = append(st.Faults, &added)
		return nil
	})
	return f, err
}

// ClearFaults ends all faults; what was held is answered.
func (s *Server) ClearFaults(context.Context, Done) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		st.Faults = nil
		close(s.cleared)
		s.cleared = make(chan struct{})
		return nil
	})
}

// SetLimits sets the secondary limits on creating content.
func (s *Server) SetLimits(_ context.Context, l Limits) (Done, error) {
	return Done{}, s.change(func(st *state) error { st.Limits, st.Created = l, nil; return nil })
}

// ExpireTokens makes every installation token as old as can be.
func (s *Server) ExpireTokens(context.Context, Done) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		for _, t := range st.Tokens {
			t.Expires = time.Unix(0, 0)
		}
		return nil
	})
}

// Deliveries lists every attempt to send a webhook, also those that wait.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Delivery{}
	for _, d := range s.state.Deliveries {
		out = append(out, Delivery{
			ID: d.ID, GUID: d.GUID, Event: d.Event, Action: d.Action, Redelivery: d.Redelivery,
			Pending: d.Sent == nil, Status: d.Status, StatusCode: d.Code,
		})
	}
	return out
}

// A DeliveryRef names an attempt by its id.
type DeliveryRef struct {
	ID int64 `json:"id"`
}

// Redeliver sends a webhook again, with the same GUID and body.
func (s *Server) Redeliver(_ context.Context, ref DeliveryRef) (Done, error) {
	return Done{}, s.change(func(st *state) error {
		d := find(st.Deliveries, func(d *delivery) bool { return d.ID == ref.ID })
		if d == nil {
			return fmt.Errorf("no delivery %d", ref.ID)
		}
		s.again(d)
		return nil
	})
}
