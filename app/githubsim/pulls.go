package githubsim

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

type pullShape struct {
	ID                 int64           `json:"id"`
	NodeID             string          `json:"node_id"`
	URL                string          `json:"url"`
	HTMLURL            string          `json:"html_url"`
	DiffURL            string          `json:"diff_url"`
	PatchURL           string          `json:"patch_url"`
	IssueURL           string          `json:"issue_url"`
	CommitsURL         string          `json:"commits_url"`
	ReviewCommentsURL  string          `json:"review_comments_url"`
	ReviewCommentURL   string          `json:"review_comment_url"`
	CommentsURL        string          `json:"comments_url"`
	StatusesURL        string          `json:"statuses_url"`
	Number             int             `json:"number"`
	State              string          `json:"state"`
	Locked             bool            `json:"locked"`
	Title              string          `json:"title"`
	User               *accountShape   `json:"user"`
	Body               *string         `json:"body"`
	Labels             []labelShape    `json:"labels"`
	Milestone          *struct{}       `json:"milestone"`
	ActiveLockReason   *string         `json:"active_lock_reason"`
	CreatedAt          time.Time       `json:"created_at"`
	UpdatedAt          time.Time       `json:"updated_at"`
	ClosedAt           *time.Time      `json:"closed_at"`
	MergedAt           *time.Time      `json:"merged_at"`
	MergeCommitSHA     *string         `json:"merge_commit_sha"`
	Assignee           *accountShape   `json:"assignee"`
	Assignees          []*accountShape `json:"assignees"`
	RequestedReviewers []*accountShape `json:"requested_reviewers"`
	RequestedTeams     []struct{}      `json:"requested_teams"`
	Head               endShape        `json:"head"`
	Base               endShape        `json:"base"`
	Links              pullLinks       `json:"_links"`
	Association        string          `json:"author_association"`
	AutoMerge          *struct{}       `json:"auto_merge"`
	Draft              bool            `json:"draft"`
	*pullDetail
}

// pullDetail is what a list leaves out.
type pullDetail struct {
	Merged         bool          `json:"merged"`
	Mergeable      *bool         `json:"mergeable"`
	Rebaseable     *bool         `json:"rebaseable"`
	MergeableState string        `json:"mergeable_state"`
	MergedBy       *accountShape `json:"merged_by"`
	Comments       int           `json:"comments"`
	ReviewComments int           `json:"review_comments"`
	CanModify      bool          `json:"maintainer_can_modify"`
	Commits        int           `json:"commits"`
	Additions      int           `json:"additions"`
	Deletions      int           `json:"deletions"`
	ChangedFiles   int           `json:"changed_files"`
}

type endShape struct {
	Label string        `json:"label"`
	Ref   string        `json:"ref"`
	SHA   string        `json:"sha"`
	User  *accountShape `json:"user"`
	Repo  endRepo       `json:"repo"`
}

// endRepo has the settings that pull requests show beside the repository.
type endRepo struct {
	*repoShape
	AllowSquash bool `json:"allow_squash_merge"`
	AllowMerge  bool `json:"allow_merge_commit"`
	AllowRebase bool `json:"allow_rebase_merge"`
}

type hrefShape struct {
	Href string `json:"href"`
}

type pullLinks struct {
	Self           hrefShape `json:"self"`
	HTML           hrefShape `json:"html"`
	Issue          hrefShape `json:"issue"`
	Comments       hrefShape `json:"comments"`
	ReviewComments hrefShape `json:"review_comments"`
	ReviewComment  hrefShape `json:"review_comment"`
	Commits        hrefShape `json:"commits"`
	Statuses       hrefShape `json:"statuses"`
}

func (h shaper) pull(r *repo, t *thread) pullShape {
	p := t.Pull
	url := fmt.Sprintf("%s/pulls/%d", h.api(r), t.Number)
	page, issue := h.threadPage(r, t), h.threadURL(r, t)
	end := func(in *repo, ref, sha string) endShape {
		return endShape{
			Label: in.Owner + ":" + ref, Ref: ref, SHA: sha, User: h.account(in.Owner),
			Repo: endRepo{repoShape: h.repo(in), AllowSquash: true, AllowMerge: true, AllowRebase: true},
		}
	}
	out := pullShape{
		ID: p.ID, NodeID: node("PullRequest", p.ID), URL: url, HTMLURL: page, DiffURL: page + ".diff", PatchURL: page + ".patch",
		IssueURL: issue, CommitsURL: url + "/commits", ReviewCommentsURL: url + "/comments",
		ReviewCommentURL: h.api(r) + "/pulls/comments{/number}", CommentsURL: issue + "/comments",
		StatusesURL: h.api(r) + "/statuses/" + p.HeadSHA, Number: t.Number, State: t.state(), Title: t.Title,
		User: h.account(t.Author), Body: textOrNull(t.Body), Labels: h.labels(r, t.Labels),
		CreatedAt: t.Created, UpdatedAt: t.Updated, ClosedAt: t.Closed, MergedAt: p.Merged,
		Assignees: []*accountShape{}, RequestedReviewers: []*accountShape{}, RequestedTeams: []struct{}{},
		Head: end(h.st.headRepo(r, p), p.Head, p.HeadSHA), Base: end(r, p.Base, p.BaseSHA), Association: association(r, t.Author), Draft: p.Draft,
	}
	if p.Merged != nil {
		out.MergeCommitSHA = &p.HeadSHA
	}
	out.Links = pullLinks{
		Self: hrefShape{url}, HTML: hrefShape{page}, Issue: hrefShape{issue}, Comments: hrefShape{out.CommentsURL},
		ReviewComments: hrefShape{out.ReviewCommentsURL}, ReviewComment: hrefShape{out.ReviewCommentURL},
		Commits: hrefShape{out.CommitsURL}, Statuses: hrefShape{out.StatusesURL},
	}
	return out
}

// pullWhole is the shape with what a list leaves out.
func (h shaper) pullWhole(r *repo, t *thread) pullShape {
	out, size := h.pull(r, t), t.Pull.Size
	d := &pullDetail{
		Merged: t.Pull.Merged != nil, Mergeable: &size.Clean, MergeableState: "clean", Comments: len(t.Comments),
		ReviewComments: len(t.Pull.Comments), Commits: size.Commits, ChangedFiles: size.Files,
		Additions: size.Additions, Deletions: size.Deletions,
	}
	switch {
	case !size.Clean:
		d.MergeableState = "dirty"
	case t.Pull.Draft:
		d.MergeableState = "draft"
	}
	if t.Pull.MergedBy != "" {
		d.MergedBy = h.account(t.Pull.MergedBy)
	}
	out.pullDetail = d
	return out
}

// measure looks at the commits of a pull request after one of its ends moved.
func (s *Server) measure(ctx context.Context, r *repo, p *pull) error {
	files, err := s.changed(ctx, r, p)
	if err != nil {
		return err
	}
	infos, err := s.commits(ctx, r, p.BaseSHA+".."+p.HeadSHA)
	if err != nil {
		return err
	}
	p.Size = pullSize{Commits: len(infos), Files: len(files), Clean: s.mergeable(ctx, r, p)}
	for _, f := range files {
		p.Size.Additions += f.additions
		p.Size.Deletions += f.deletions
	}
	return nil
}

func (s *Server) mergeable(ctx context.Context, r *repo, p *pull) bool {
	_, err := s.git(ctx, r, "merge-tree", "--write-tree", "--no-messages", p.BaseSHA, p.HeadSHA)
	return err == nil
}

// pullThread is the pull request that the path names.
func (c *call) pullThread() (*thread, error) {
	t := c.repo.thread(int(c.number("pull_number")))
	if t == nil || t.Pull == nil {
		return nil, errNotFound
	}
	return t, nil
}

func listPulls(c *call) (answer, error) {
	state, head, base := c.query("state", "open"), c.query("head", ""), c.query("base", "")
	out := []pullShape{}
	for _, t := range slices.Backward(c.repo.Threads) {
		switch {
		case t.Pull == nil,
			state != "all" && state != t.state(),
			base != "" && base != t.Pull.Base,
			strings.Contains(head, ":") && !strings.EqualFold(head, c.st.headRepo(c.repo, t.Pull).Owner+":"+t.Pull.Head): // without a colon GitHub ignores it
			continue
		}
		out = append(out, c.shape().pull(c.repo, t))
	}
	if c.query("direction", "desc") == "asc" {
		slices.Reverse(out)
	}
	return ok(page(c, out))
}

type pullRequest struct {
	Title *string `json:"title"`
	Body  *string `json:"body"`
	Head  string  `json:"head"`
	Base  string  `json:"base"`
	State *string `json:"state"`
	Draft bool    `json:"draft"`
}

func createPull(c *call) (answer, error) {
	in, err := decode[pullRequest](c)
	if err != nil {
		return answer{}, err
	}
	t, err := c.s.openPull(c.ctx, c.repo, in, c.me())
	if err != nil {
		return answer{}, err
	}
	return created(c.shape().pullWhole(c.repo, t))
}

// openPull checks and opens a pull request between two branches.
func (s *Server) openPull(ctx context.Context, r *repo, in pullRequest, by string) (*thread, error) {
	head, from := in.Head, r
	if owner, branch, ok := strings.Cut(in.Head, ":"); ok {
		if from = s.state.from(r, owner); from == nil {
			return nil, invalid("PullRequest", "head", "invalid", "")
		}
		head = branch
	}
	headSHA, baseSHA := from.Refs["refs/heads/"+head], r.Refs["refs/heads/"+in.Base]
	switch {
	case in.Title == nil || *in.Title == "":
		return nil, invalid("PullRequest", "title", "missing_field", "")
	case headSHA == "":
		return nil, invalid("PullRequest", "head", "invalid", "")
	case baseSHA == "":
		return nil, invalid("PullRequest", "base", "invalid", "")
	}
	if in.Draft && r.NoDrafts {
		return nil, unprocessable("Draft pull requests are not supported in this repository.")
	}
	body := ""
	if in.Body != nil {
		body = *in.Body
	}
	if err := checkText("PullRequest", body); err != nil {
		return nil, err
	}
	open := find(r.Threads, func(t *thread) bool {
		return t.Pull != nil && t.Closed == nil && t.Pull.Head == head && t.Pull.Base == in.Base && s.state.headRepo(r, t.Pull) == from
	})
	if open != nil {
		return nil, invalid("PullRequest", "", "custom", fmt.Sprintf("A pull request already exists for %s:%s.", from.Owner, head))
	}
	if err := s.borrow(ctx, r, from, head); err != nil {
		return nil, err
	}
	if s.isAncestor(ctx, r, headSHA, baseSHA) {
		return nil, invalid("PullRequest", "", "custom", fmt.Sprintf("No commits between %s and %s", in.Base, head))
	}
	p := &pull{ID: s.state.next(), Head: head, HeadSHA: headSHA, Base: in.Base, BaseSHA: baseSHA, Draft: in.Draft}
	if from != r {
		p.HeadRepo = from.ID
	}
	if err := s.measure(ctx, r, p); err != nil {
		return nil, err
	}
	t := s.openThread(r, by, *in.Title, body)
	t.Pull = p
	if err := s.pullRef(ctx, r, t); err != nil {
		return nil, err
	}
	s.emitPull(r, t, event{Action: "opened"}, by)
	return t, nil
}

func getPull(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().pullWhole(c.repo, t))
}

func updatePull(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	in, err := decode[pullRequest](c)
	if err != nil {
		return answer{}, err
	}
	if in.Body != nil {
		if err := checkText("PullRequest", *in.Body); err != nil {
			return answer{}, err
		}
	}
	if in.Base != "" && in.Base != t.Pull.Base {
		sha := c.repo.Refs["refs/heads/"+in.Base]
		if sha == "" {
			return answer{}, invalid("PullRequest", "base", "invalid", "")
		}
		t.Pull.Base, t.Pull.BaseSHA = in.Base, sha
		if err := c.s.measure(c.ctx, c.repo, t.Pull); err != nil {
			return answer{}, err
		}
	}
	if in.State != nil && *in.State == "open" && t.Closed != nil {
		if t.Pull.Merged != nil || c.st.headRepo(c.repo, t.Pull).Refs["refs/heads/"+t.Pull.Head] == "" {
			return answer{}, invalid("PullRequest", "state", "invalid", "state cannot be changed. The pull request cannot be reopened.")
		}
	}
	c.s.edit(c.repo, t, ticketRequest{Title: in.Title, Body: in.Body, State: in.State}, c.me())
	return ok(c.shape().pullWhole(c.repo, t))
}

type fileShape struct {
	SHA         string  `json:"sha"`
	Filename    string  `json:"filename"`
	Status      string  `json:"status"`
	Additions   int     `json:"additions"`
	Deletions   int     `json:"deletions"`
	Changes     int     `json:"changes"`
	BlobURL     string  `json:"blob_url"`
	RawURL      string  `json:"raw_url"`
	ContentsURL string  `json:"contents_url"`
	Patch       *string `json:"patch,omitempty"`
	Previous    string  `json:"previous_filename,omitempty"`
}

// A fileDiff is one file of a diff.
type fileDiff struct {
	path, previous, status, blob string
	additions, deletions         int
	hunks                        []*gitdiff.TextFragment
}

func (f fileDiff) patch() string {
	var b strings.Builder
	for _, hunk := range f.hunks {
		b.WriteString(hunk.String())
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// changed is the diff of a pull request: from where it left its base.
func (s *Server) changed(ctx context.Context, r *repo, p *pull) ([]fileDiff, error) {
	base, err := s.git(ctx, r, "merge-base", p.BaseSHA, p.HeadSHA)
	if err != nil {
		return nil, err
	}
	return s.diff(ctx, r, strings.TrimSpace(base), p.HeadSHA)
}

func (s *Server) diff(ctx context.Context, r *repo, before, after string) ([]fileDiff, error) {
	out, err := s.git(ctx, r, "diff", "--find-renames", "--full-index", "--no-color", "--no-ext-diff", before, after, "--")
	if err != nil {
		return nil, err
	}
	files, _, err := gitdiff.Parse(strings.NewReader(out))
	if err != nil {
		return nil, fmt.Errorf("parse a diff: %w", err)
	}
	var all []fileDiff
	for _, f := range files {
		d := fileDiff{path: f.NewName, status: "modified", blob: f.NewOIDPrefix, hunks: f.TextFragments}
		switch {
		case f.IsNew:
			d.status = "added"
		case f.IsDelete:
			d.path, d.blob, d.status = f.OldName, f.OldOIDPrefix, "removed"
		case f.IsRename:
			d.previous, d.status = f.OldName, "renamed"
		}
		for _, hunk := range f.TextFragments {
			d.additions += int(hunk.LinesAdded)
			d.deletions += int(hunk.LinesDeleted)
		}
		all = append(all, d)
	}
	return all, nil
}

func (h shaper) file(r *repo, commit string, f fileDiff) fileShape {
	name := escapePath(f.path)
	out := fileShape{
		SHA: f.blob, Filename: f.path, Status: f.status, Additions: f.additions, Deletions: f.deletions,
		Changes: f.additions + f.deletions, BlobURL: h.html(r) + "/blob/" + commit + "/" + name,
		RawURL: h.html(r) + "/raw/" + commit + "/" + name, ContentsURL: h.api(r) + "/contents/" + name + "?ref=" + commit,
		Previous: f.previous,
	}
	if len(f.hunks) > 0 {
		patch := f.patch()
		out.Patch = &patch
	}
	return out
}

func listFiles(c *call) (answer, error) {
	t, err := c.pullThread()
	if err != nil {
		return answer{}, err
	}
	files, err := c.s.changed(c.ctx, c.repo, t.Pull)
	if err != nil {
		return answer{}, err
	}
	if len(files) > 3000 {
		return answer{}, &apiError{Status: http.StatusNotAcceptable, Message: "Sorry, the diff exceeded the maximum number of files."}
	}
	out := []fileShape{}
	for _, f := range files {
		out = append(out, c.shape().file(c.repo, t.Pull.HeadSHA, f))
	}
	return ok(page(c, out))
}
