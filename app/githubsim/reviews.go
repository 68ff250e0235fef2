package githubsim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

type reviewShape struct {
	ID          int64         `json:"id"`
	NodeID      string        `json:"node_id"`
	User        *accountShape `json:"user"`
	Body        string        `json:"body"`
	State       string        `json:"state"`
	HTMLURL     string        `json:"html_url"`
	PullURL     string        `json:"pull_request_url"`
	Links       reviewLinks   `json:"_links"`
	SubmittedAt time.Time     `json:"submitted_at"`
	CommitID    string        `json:"commit_id"`
	Association string        `json:"author_association"`
}

type reviewLinks struct {
	Self *hrefShape `json:"self,omitempty"`
	HTML hrefShape  `json:"html"`
	Pull hrefShape  `json:"pull_request"`
}

func (h shaper) review(r *repo, t *thread, v *review) reviewShape {
	url := fmt.Sprintf("%s/pulls/%d", h.api(r), t.Number)
	page := fmt.Sprintf("%s#pullrequestreview-%d", h.threadPage(r, t), v.ID)
	return reviewShape{
		ID: v.ID, NodeID: node("PullRequestReview", v.ID), User: h.account(v.Author), Body: v.Body, State: v.State,
		HTMLURL: page, PullURL: url, Links: reviewLinks{HTML: hrefShape{page}, Pull: hrefShape{url}},
		SubmittedAt: v.Submitted, CommitID: v.Commit, Association: association(r, v.Author),
	}
}

type reviewCommentShape struct {
	URL               string         `json:"url"`
	ReviewID          int64          `json:"pull_request_review_id"`
	ID                int64          `json:"id"`
	NodeID            string         `json:"node_id"`
	DiffHunk          string         `json:"diff_hunk"`
	Path              string         `json:"path"`
	Position          int            `json:"position"`
	OriginalPosition  int            `json:"original_position"`
	CommitID          string         `json:"commit_id"`
	OriginalCommitID  string         `json:"original_commit_id"`
	InReplyTo         int64          `json:"in_reply_to_id,omitempty"`
	User              *accountShape  `json:"user"`
	Body              string         `json:"body"`
	CreatedAt         time.Time      `json:"created_at"`
	UpdatedAt         time.Time      `json:"updated_at"`
	HTMLURL           string         `json:"html_url"`
	PullURL           string         `json:"pull_request_url"`
	Association       string         `json:"author_association"`
	Links             reviewLinks    `json:"_links"`
	StartLine         *int           `json:"start_line"`
	OriginalStartLine *int           `json:"original_start_line"`
	StartSide         *string        `json:"start_side"`
	Line              int            `json:"line"`
	OriginalLine      int            `json:"original_line"`
	Side              string         `json:"side"`
	SubjectType       string         `json:"subject_type"`
	Reactions         reactionsShape `json:"reactions"`
}

func (h shaper) reviewComment(r *repo, t *thread, rc *reviewComment) reviewCommentShape {
	pull := fmt.Sprintf("%s/pulls/%d", h.api(r), t.Number)
	url := fmt.Sprintf("%s/pulls/comments/%d", h.api(r), rc.ID)
	page := fmt.Sprintf("%s#discussion_r%d", h.threadPage(r, t), rc.ID)
	position := max(1, strings.Count(rc.Hunk, "\n"))
	out := reviewCommentShape{
		URL: url, ReviewID: rc.Review, ID: rc.ID, NodeID: node("PullRequestReviewComment", rc.ID), DiffHunk: rc.Hunk,
		Path: rc.Path, Position: position, OriginalPosition: position, CommitID: rc.Commit, OriginalCommitID: rc.Commit,
		InReplyTo: rc.ReplyTo, User: h.account(rc.Author), Body: rc.Body, CreatedAt: rc.Created, UpdatedAt: rc.Created,
		HTMLURL: page, PullURL: pull, Association: association(r, rc.Author),
		Links: reviewLinks{Self: &hrefShape{url}, HTML: hrefShape{page}, Pull: hrefShape{pull}},
		Line:  rc.Line, OriginalLine: rc.Line, Side: rc.Side, SubjectType: "line", Reactions: reactionCounts(url, rc.Reactions),
	}
	if rc.StartLine != 0 {
		out.StartLine, out.OriginalStartLine, out.StartSide = &rc.StartLine, &rc.StartLine, &rc.StartSide
	}
	return out
}

func listReviews(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	out := []reviewShape{}
	for _, v := range t.Pull.Reviews {
		out = append(out, c.shape().review(c.repo, t, v))
	}
	return ok(page(c, out))
}

type reviewRequest struct {
	CommitID string         `json:"commit_id"`
	Body     string         `json:"body"`
	Event    string         `json:"event"`
	Comments []reviewRemark `json:"comments"`
}

type reviewRemark struct {
	Path      string `json:"path"`
	Body      string `json:"body"`
	Line      int    `json:"line"`
	Side      string `json:"side"`
	StartLine int    `json:"start_line"`
	StartSide string `json:"start_side"`
}

// reviewStates are the states that an event leads to.
var reviewStates = map[string]string{"COMMENT": "COMMENTED", "APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED"}

func createReview(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	in, err := decode[reviewRequest](c)
	if err != nil {
		return answer{}, err
	}
	made, err := c.s.review(c.ctx, c.repo, t, in, c.me())
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().review(c.repo, t, made))
}

// review checks every remark before it keeps any: one line outside the diff
// refuses them all.
func (s *Server) review(ctx context.Context, r *repo, t *thread, in reviewRequest, by string) (*review, error) {
	state, ok := reviewStates[in.Event]
	switch {
	case !ok: // GitHub would keep a pending draft, which nobody but its author sees
		return nil, unprocessable("Unprocessable Entity", "Variable $event of type PullRequestReviewEvent was provided invalid value")
	case in.Event != "APPROVE" && strings.TrimSpace(in.Body) == "" && len(in.Comments) == 0:
		return nil, unprocessable("Unprocessable Entity", "Body can't be blank")
	case in.Event != "COMMENT" && t.Author == by:
		return nil, unprocessable("Unprocessable Entity", "Can not "+strings.ToLower(strings.ReplaceAll(in.Event, "_", " "))+" on your own pull request")
	}
	if err := checkText("PullRequestReview", in.Body); err != nil {
		return nil, err
	}
	if in.CommitID == "" {
		in.CommitID = t.Pull.HeadSHA
	}
	if !s.isAncestor(ctx, r, in.CommitID, t.Pull.HeadSHA) {
		return nil, unprocessable("Unprocessable Entity", "Commit is not part of the pull request")
	}
	at := *t.Pull
	at.HeadSHA = in.CommitID
	files, err := s.changed(ctx, r, &at)
	if err != nil {
		return nil, err
	}
	hunks := make([]string, len(in.Comments))
	for i, remark := range in.Comments {
		if hunks[i], err = place(files, remark); err != nil {
			return nil, err
		}
	}
	made := s.submit(r, t, &review{Author: by, Body: in.Body, State: state, Commit: in.CommitID})
	for i, remark := range in.Comments {
		rc := &reviewComment{
			ID: s.state.next(), Review: made.ID, Author: by, Body: remark.Body, Path: remark.Path, Line: remark.Line,
			Side: orText(remark.Side, "RIGHT"), StartLine: remark.StartLine, Hunk: hunks[i], Commit: in.CommitID, Created: made.Submitted,
		}
		if rc.StartLine != 0 {
			rc.StartSide = orText(remark.StartSide, rc.Side)
		}
		s.remark(r, t, rc)
	}
	return made, nil
}

func orText(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func (s *Server) remark(r *repo, t *thread, rc *reviewComment) {
	t.Pull.Comments = append(t.Pull.Comments, rc)
	h := s.shaper()
	pull := h.pull(r, t)
	s.emit(r, "pull_request_review_comment", event{Action: "created", Comment: h.reviewComment(r, t, rc), Pull: &pull}, rc.Author)
}

// place finds the hunk that a remark stands in, up to its line.
func place(files []fileDiff, remark reviewRemark) (string, error) {
	at := slices.IndexFunc(files, func(f fileDiff) bool { return f.path == remark.Path })
	if at < 0 {
		return "", unprocessable("Unprocessable Entity", "Path could not be resolved")
	}
	if strings.TrimSpace(remark.Body) == "" {
		return "", unprocessable("Unprocessable Entity", "Body can't be blank")
	}
	side := orText(remark.Side, "RIGHT")
	for _, hunk := range files[at].hunks {
		if text, ok := upTo(hunk, side, int64(remark.Line)); ok {
			if remark.StartLine == 0 {
				return text, nil
			}
			if _, ok := upTo(hunk, orText(remark.StartSide, side), int64(remark.StartLine)); ok && remark.StartLine < remark.Line {
				return text, nil
			}
			return "", unprocessable("Unprocessable Entity", "Start line must be part of the same hunk as the line.")
		}
	}
	return "", unprocessable("Unprocessable Entity", "Line could not be resolved")
}

// upTo is the text of a hunk until a line of one side, if the hunk has it.
func upTo(hunk *gitdiff.TextFragment, side string, line int64) (string, bool) {
	var b strings.Builder
	b.WriteString(hunk.Header())
	left, right := hunk.OldPosition, hunk.NewPosition
	for _, l := range hunk.Lines {
		b.WriteString("\n" + strings.TrimSuffix(l.String(), "\n"))
		if side == "RIGHT" && l.Op != gitdiff.OpDelete && right == line || side == "LEFT" && l.Op != gitdiff.OpAdd && left == line {
			return b.String(), true
		}
		if l.Op != gitdiff.OpAdd {
			left++
		}
		if l.Op != gitdiff.OpDelete {
			right++
		}
	}
	return "", false
}

func listReviewComments(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	out := []reviewCommentShape{}
	for _, rc := range t.Pull.Comments {
		out = append(out, c.shape().reviewComment(c.repo, t, rc))
	}
	return ok(page(c, out))
}

func getReview(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	id := c.number("review_id")
	found := find(t.Pull.Reviews, func(v *review) bool { return v.ID == id })
	if found == nil {
		return answer{}, errNotFound
	}
	return ok(c.shape().review(c.repo, t, found))
}

// reviewComment is the comment in a review that the path names.
func (c *call) reviewComment() (*thread, *reviewComment, error) {
	t, found := c.repo.reviewComment(c.number("comment_id"))
	if found == nil {
		return nil, nil, errNotFound
	}
	return t, found, nil
}

func (r *repo) reviewComment(id int64) (*thread, *reviewComment) {
	for _, t := range r.Threads {
		if t.Pull == nil {
			continue
		}
		if found := find(t.Pull.Comments, func(rc *reviewComment) bool { return rc.ID == id }); found != nil {
			return t, found
		}
	}
	return nil, nil
}

func updateReviewComment(c *call) (answer, error) {
	t, found, err := c.reviewComment()
	if err != nil {
		return answer{}, err
	}
	if found.Body, err = commentBody(c); err != nil {
		return answer{}, err
	}
	return ok(c.shape().reviewComment(c.repo, t, found))
}

func deleteReviewComment(c *call) (answer, error) {
	t, found, err := c.reviewComment()
	if err != nil {
		return answer{}, err
	}
	t.Pull.Comments = slices.DeleteFunc(t.Pull.Comments, func(rc *reviewComment) bool { return rc == found })
	return gone()
}

func listReviewCommentReactions(c *call) (answer, error) {
	_, found, err := c.reviewComment()
	if err != nil {
		return answer{}, err
	}
	return listReactions(c, found.Reactions)
}

func createReviewCommentReaction(c *call) (answer, error) {
	_, found, err := c.reviewComment()
	if err != nil {
		return answer{}, err
	}
	return c.react(&found.Reactions)
}

func replyToReview(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	body, err := commentBody(c)
	if err != nil {
		return answer{}, err
	}
	return c.reply(t, c.number("comment_id"), body)
}

// reply answers a comment in its thread.
func (c *call) reply(t *thread, to int64, body string) (answer, error) {
	made := c.s.reply(c.repo, t, to, body, c.me())
	if made == nil {
		return answer{}, errNotFound
	}
	return created(c.shape().reviewComment(c.repo, t, made))
}

// reply writes a comment under another; nil where there is no such. GitHub makes
// a review of its own of each reply, and tells of both.
func (s *Server) reply(r *repo, t *thread, to int64, body, by string) *reviewComment {
	first := find(t.Pull.Comments, func(rc *reviewComment) bool { return rc.ID == to })
	if first == nil {
		return nil
	}
	made := *first
	made.Review = s.submit(r, t, &review{Author: by, State: reviewStates["COMMENT"], Commit: t.Pull.HeadSHA}).ID
	made.ID, made.Author, made.Body, made.Created, made.Reactions = s.state.next(), by, body, s.now(), nil
	if made.ReplyTo == 0 {
		made.ReplyTo = first.ID
	}
	s.remark(r, t, &made)
	return &made
}

// submit keeps a review and tells of it.
func (s *Server) submit(r *repo, t *thread, made *review) *review {
	made.ID, made.Submitted = s.state.next(), s.now()
	t.Pull.Reviews = append(t.Pull.Reviews, made)
	h := s.shaper()
	shape, pull := h.review(r, t, made), h.pull(r, t)
	shape.State = strings.ToLower(shape.State)
	s.emit(r, "pull_request_review", event{Action: "submitted", Review: &shape, Pull: &pull}, made.Author)
	return made
}

type reviewCommentRequest struct {
	reviewRemark
	CommitID  string `json:"commit_id"`
	InReplyTo int64  `json:"in_reply_to"`
}

// createReviewComment answers a comment, or makes a review of one remark.
func createReviewComment(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	in, err := decode[reviewCommentRequest](c)
	if err != nil {
		return answer{}, err
	}
	if in.InReplyTo != 0 {
		body, err := commentBody(c)
		if err != nil {
			return answer{}, err
		}
		return c.reply(t, in.InReplyTo, body)
	}
	review := reviewRequest{CommitID: in.CommitID, Event: "COMMENT", Comments: []reviewRemark{in.reviewRemark}}
	if _, err := c.s.review(c.ctx, c.repo, t, review, c.me()); err != nil {
		return answer{}, err
	}
	return created(c.shape().reviewComment(c.repo, t, t.Pull.Comments[len(t.Pull.Comments)-1]))
}
