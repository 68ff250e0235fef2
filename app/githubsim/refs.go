package githubsim

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

type objectShape struct {
	Type string `json:"type"`
	SHA  string `json:"sha"`
	URL  string `json:"url"`
}

type refShape struct {
	Ref    string      `json:"ref"`
	NodeID string      `json:"node_id"`
	URL    string      `json:"url"`
	Object objectShape `json:"object"`
}

func (h shaper) ref(r *repo, name, sha string) refShape {
	return refShape{
		Ref: name, NodeID: base64.RawURLEncoding.EncodeToString([]byte(name)), URL: h.api(r) + "/git/" + name,
		Object: objectShape{Type: "commit", SHA: sha, URL: h.api(r) + "/git/commits/" + sha},
	}
}

func escapeSegment(text string) string { return url.PathEscape(text) }

func getRef(c *call) (answer, error) {
	name := "refs/" + c.path["ref"]
	sha := c.repo.Refs[name]
	if sha == "" {
		return answer{}, errNotFound
	}
	return ok(c.shape().ref(c.repo, name, sha))
}

func listMatchingRefs(c *call) (answer, error) {
	out := []refShape{}
	for name, sha := range c.repo.Refs {
		if strings.HasPrefix(name, "refs/"+c.path["ref"]) {
			out = append(out, c.shape().ref(c.repo, name, sha))
		}
	}
	slices.SortFunc(out, func(a, b refShape) int { return strings.Compare(a.Ref, b.Ref) })
	return ok(out)
}

type refRequest struct {
	Ref   string `json:"ref"`
	SHA   string `json:"sha"`
	Force bool   `json:"force"`
}

var (
	refName = regexp.MustCompile(`^refs/(heads|tags)/[^\s~^:?*\[\\]+$`)
	fullSHA = regexp.MustCompile(`^[0-9a-f]{40}$`)
)

func createRef(c *call) (answer, error) {
	in, err := decode[refRequest](c)
	if err != nil {
		return answer{}, err
	}
	switch {
	case !refName.MatchString(in.Ref):
		return answer{}, unprocessable("Reference name must start with 'refs/' and have at least two slashes.")
	case !c.hasCommit(in.SHA):
		return answer{}, unprocessable("Object does not exist")
	case c.repo.Refs[in.Ref] != "":
		return answer{}, unprocessable("Reference already exists")
	}
	if err := c.moveRef(in.Ref, in.SHA, zeroSHA); err != nil {
		return answer{}, unprocessable("Reference update failed")
	}
	return created(c.shape().ref(c.repo, in.Ref, in.SHA))
}

func (c *call) hasCommit(sha string) bool {
	return fullSHA.MatchString(sha) && c.s.resolve(c.ctx, c.repo, sha) == sha
}

// moveRef changes a ref from old to sha and tells of it.
func (c *call) moveRef(name, sha, old string) error {
	if _, err := c.s.git(c.ctx, c.repo, "update-ref", name, sha, old); err != nil {
		return err
	}
	return c.s.settle(c.ctx, c.repo, c.me())
}

func updateRef(c *call) (answer, error) {
	in, err := decode[refRequest](c)
	if err != nil {
		return answer{}, err
	}
	name := "refs/" + c.path["ref"]
	old := c.repo.Refs[name]
	switch {
	case old == "":
		return answer{}, unprocessable("Reference does not exist")
	case !c.hasCommit(in.SHA):
		return answer{}, unprocessable("Object does not exist")
	case !in.Force && !c.s.isAncestor(c.ctx, c.repo, old, in.SHA):
		return answer{}, unprocessable("Update is not a fast forward")
	}
	if err := c.moveRef(name, in.SHA, old); err != nil {
		return answer{}, unprocessable("Reference cannot be updated")
	}
	return ok(c.shape().ref(c.repo, name, in.SHA))
}

func deleteRef(c *call) (answer, error) {
	name := "refs/" + c.path["ref"]
	switch {
	case c.repo.Refs[name] == "":
		return answer{}, unprocessable("Reference does not exist")
	case name == "refs/heads/"+c.repo.DefaultBranch:
		return answer{}, unprocessable("Cannot delete the default branch")
	}
	if _, err := c.s.git(c.ctx, c.repo, "update-ref", "-d", name); err != nil {
		return answer{}, err
	}
	if err := c.s.settle(c.ctx, c.repo, c.me()); err != nil {
		return answer{}, err
	}
	return gone()
}

type signedShape struct {
	Name  string    `json:"name"`
	Email string    `json:"email"`
	Date  time.Time `json:"date"`
}

type linkedSHA struct {
	SHA     string `json:"sha"`
	URL     string `json:"url"`
	HTMLURL string `json:"html_url,omitempty"`
}

type verificationShape struct {
	Verified   bool    `json:"verified"`
	Reason     string  `json:"reason"`
	Signature  *string `json:"signature"`
	Payload    *string `json:"payload"`
	VerifiedAt *string `json:"verified_at"`
}

type gitCommitShape struct {
	URL          string            `json:"url"`
	Author       signedShape       `json:"author"`
	Committer    signedShape       `json:"committer"`
	Message      string            `json:"message"`
	CommentCount int               `json:"comment_count"`
	Tree         linkedSHA         `json:"tree"`
	Verification verificationShape `json:"verification"`
}

type commitShape struct {
	URL         string         `json:"url"`
	SHA         string         `json:"sha"`
	NodeID      string         `json:"node_id"`
	HTMLURL     string         `json:"html_url"`
	CommentsURL string         `json:"comments_url"`
	Commit      gitCommitShape `json:"commit"`
	Author      *accountShape  `json:"author"`
	Committer   *accountShape  `json:"committer"`
	Parents     []linkedSHA    `json:"parents"`
	Stats       *statsShape    `json:"stats,omitempty"`
	Files       []fileShape    `json:"files,omitempty"`
}

type statsShape struct {
	Additions int `json:"additions"`
	Deletions int `json:"deletions"`
	Total     int `json:"total"`
}

func (h shaper) commit(r *repo, info commitInfo) commitShape {
	url := h.api(r) + "/commits/" + info.sha
	out := commitShape{
		URL: url, SHA: info.sha, NodeID: base64.RawURLEncoding.EncodeToString([]byte(info.sha)),
		HTMLURL: h.html(r) + "/commit/" + info.sha, CommentsURL: url + "/comments",
		Author: h.byEmail(info.author.Email), Committer: h.byEmail(info.committer.Email), Parents: []linkedSHA{},
		Commit: gitCommitShape{
			URL:       h.api(r) + "/git/commits/" + info.sha,
			Author:    signedShape{info.author.Name, info.author.Email, info.authored},
			Committer: signedShape{info.committer.Name, info.committer.Email, info.made},
			Message:   info.message, Tree: linkedSHA{SHA: info.tree, URL: h.api(r) + "/git/trees/" + info.tree},
			Verification: verificationShape{Reason: "unsigned"},
		},
	}
	for _, parent := range info.parents {
		out.Parents = append(out.Parents, linkedSHA{parent, h.api(r) + "/commits/" + parent, h.html(r) + "/commit/" + parent})
	}
	return out
}

// byEmail is the account that GitHub attributes a no-reply address to.
func (h shaper) byEmail(email string) *accountShape {
	local, ok := strings.CutSuffix(email, "@users.noreply.github.com")
	if !ok {
		return nil
	}
	if _, login, ok := strings.Cut(local, "+"); ok {
		local = login
	}
	return h.account(local)
}

func (c *call) commitOf(name string) (*commitInfo, error) {
	sha := c.s.resolve(c.ctx, c.repo, name)
	if sha == "" {
		return nil, unprocessable("No commit found for SHA: " + name)
	}
	infos, err := c.s.commits(c.ctx, c.repo, "--max-count=1", sha)
	if err != nil {
		return nil, err
	}
	return &infos[0], nil
}

func getCommit(c *call) (answer, error) {
	info, err := c.commitOf(c.path["ref"])
	if err != nil {
		return answer{}, err
	}
	out := c.shape().commit(c.repo, *info)
	files, err := c.s.diff(c.ctx, c.repo, parentOf(*info), info.sha)
	if err != nil {
		return answer{}, err
	}
	out.Stats = &statsShape{}
	for _, f := range files {
		out.Stats.Additions += f.additions
		out.Stats.Deletions += f.deletions
		out.Files = append(out.Files, c.shape().file(c.repo, info.sha, f))
	}
	out.Stats.Total = out.Stats.Additions + out.Stats.Deletions
	return ok(out)
}

// parentOf is what a commit's diff starts from.
func parentOf(info commitInfo) string {
	if len(info.parents) > 0 {
		return info.parents[0]
	}
	return "4b825dc642cb6eb9a060e54bf8d69288fbee4904" // the empty tree
}

type branchShape struct {
	Name   string      `json:"name"`
	Commit commitShape `json:"commit"`
	Links  struct {
		HTML string `json:"html"`
		Self string `json:"self"`
	} `json:"_links"`
	Protected     bool            `json:"protected"`
	Protection    protectionShape `json:"protection"`
	ProtectionURL string          `json:"protection_url"`
}

type protectionShape struct {
	Enabled  bool           `json:"enabled"`
	Required *requiredShape `json:"required_status_checks,omitempty"`
}

func getBranch(c *call) (answer, error) {
	name := c.path["branch"]
	sha := c.repo.Refs["refs/heads/"+name]
	if sha == "" {
		return answer{}, &apiError{Status: http.StatusNotFound, Message: "Branch not found"}
	}
	info, err := c.commitOf(sha)
	if err != nil {
		return answer{}, err
	}
	h := c.shape()
	out := branchShape{Name: name, Commit: h.commit(c.repo, *info)}
	out.Links.HTML, out.Links.Self = h.html(c.repo)+"/tree/"+name, h.api(c.repo)+"/branches/"+name
	out.ProtectionURL = out.Links.Self + "/protection"
	out.Protection = h.protection(c.repo, name)
	out.Protected = out.Protection.Enabled
	return ok(out)
}

type contentShape struct {
	Type        string       `json:"type"`
	Name        string       `json:"name"`
	Path        string       `json:"path"`
	SHA         string       `json:"sha"`
	Size        int64        `json:"size"`
	URL         string       `json:"url"`
	HTMLURL     string       `json:"html_url"`
	GitURL      string       `json:"git_url"`
	DownloadURL *string      `json:"download_url"`
	Encoding    string       `json:"encoding,omitempty"`
	Content     *string      `json:"content,omitempty"`
	Links       contentLinks `json:"_links"`
}

type contentLinks struct {
	Self string `json:"self"`
	Git  string `json:"git"`
	HTML string `json:"html"`
}

// getContents reads a file or lists a directory of a commit.
func getContents(c *call) (answer, error) {
	ref := c.query("ref", c.repo.DefaultBranch)
	sha := c.s.resolve(c.ctx, c.repo, ref)
	if sha == "" {
		return answer{}, &apiError{Status: http.StatusNotFound, Message: "No commit found for the ref " + ref}
	}
	name := strings.Trim(path.Clean("/"+c.path["path"]), "/")
	kind, err := c.s.git(c.ctx, c.repo, "cat-file", "-t", sha+":"+name)
	if err != nil {
		return answer{}, errNotFound
	}
	if strings.TrimSpace(kind) == "blob" {
		entries, err := c.tree(sha, name)
		if err != nil || len(entries) != 1 {
			return answer{}, errors.Join(errNotFound, err)
		}
		body, err := c.s.git(c.ctx, c.repo, "cat-file", "blob", sha+":"+name)
		if err != nil {
			return answer{}, err
		}
		text := base64.StdEncoding.EncodeToString([]byte(body))
		out := entries[0]
		out.Encoding, out.Content = "base64", &text
		return ok(out)
	}
	if name != "" {
		name += "/"
	}
	entries, err := c.tree(sha, name)
	if err != nil {
		return answer{}, err
	}
	return ok(entries)
}

func (c *call) tree(sha, name string) ([]contentShape, error) {
	args := []string{"ls-tree", "-z", "--long", "--full-tree", sha}
	if name != "" {
		args = append(args, "--", name)
	}
	out, err := c.s.git(c.ctx, c.repo, args...)
	if err != nil {
		return nil, err
	}
	all := []contentShape{}
	h := c.shape()
	for line := range strings.SplitSeq(out, "\x00") {
		head, file, ok := strings.Cut(line, "\t")
		f := strings.Fields(head)
		if !ok || len(f) != 4 {
			continue
		}
		size, _ := strconv.ParseInt(f[3], 10, 64) // "-" for a directory
		kind := map[string]string{"tree": "dir", "commit": "submodule"}[f[1]]
		if kind == "" {
			kind = "file"
		}
		url := h.api(c.repo) + "/contents/" + escapePath(file) + "?ref=" + sha
		page := h.html(c.repo) + "/blob/" + sha + "/" + escapePath(file)
		git := h.api(c.repo) + "/git/blobs/" + f[2]
		e := contentShape{
			Type: kind, Name: path.Base(file), Path: file, SHA: f[2], Size: size, URL: url, HTMLURL: page, GitURL: git,
			Links: contentLinks{Self: url, Git: git, HTML: page},
		}
		if kind == "file" {
			raw := h.html(c.repo) + "/raw/" + sha + "/" + escapePath(file)
			e.DownloadURL = &raw
		}
		all = append(all, e)
	}
	return all, nil
}

func escapePath(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = escapeSegment(parts[i])
	}
	return strings.Join(parts, "/")
}

// gitHTTPBackend finds the program that serves git over HTTP.
func (s *Server) gitHTTPBackend(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gitHTTP != "" {
		return s.gitHTTP, nil
	}
	var out strings.Builder
	exit, err := sandbox.Host(ctx, sandbox.Command{Args: []string{"git", "--exec-path"}, Dir: s.dir, Env: s.gitEnv(), Stdout: &out})
	if err != nil {
		return "", err
	}
	program := path.Join(strings.TrimSpace(out.String()), "git-http-backend")
	if _, err := os.Stat(program); err != nil || exit.Code != 0 {
		return "", fmt.Errorf("find git http-backend: %w", err)
	}
	s.gitHTTP = program
	return program, nil
}
