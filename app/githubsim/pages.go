package githubsim

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/extension"
)

//go:embed pages.html
var pagesHTML string

var pages = template.Must(template.New("").Parse(pagesHTML))

// markdown renders what people wrote. Raw HTML stays out.
var markdown = goldmark.New(goldmark.WithExtensions(extension.GFM))

// A view is a page to show: a template and what fills it.
type view struct {
	template string
	data     any
}

// restRoots begin the paths of the REST interface, which no owner may have as
// a name.
var restRoots = []string{"app", "app-manifests", "apps", "installation", "orgs", "rate_limit", "repos", "user", "users"}

// servePage shows a page if the path is one's. A browser that asks for another
// gets a plain 404: only clients of the interface make an unknown route.
func (s *Server) servePage(w http.ResponseWriter, r *http.Request) bool {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if slices.Contains(restRoots, parts[0]) {
		return false
	}
	if len(parts) == 5 && parts[2] == "pull" && parts[4] == "checks" {
		http.Redirect(w, r, strings.TrimSuffix(r.URL.Path, "/checks")+"#checks", http.StatusSeeOther)
		return true
	}
	if parts[0] == "favicon.ico" { // browsers ask unasked
		w.WriteHeader(http.StatusNoContent)
		return true
	}
	show, err := s.page(r.Context(), parts)
	if refusal, ok := errors.AsType[*apiError](err); ok {
		if !strings.Contains(r.Header.Get("Accept"), "text/html") && len(parts) < 2 {
			return false
		}
		http.Error(w, refusal.Message, refusal.Status)
		return true
	}
	var out bytes.Buffer
	if err == nil {
		err = pages.ExecuteTemplate(&out, show.template, show.data)
	}
	if err != nil {
		s.log.Error("page not shown", "path", r.URL.Path, "error", err)
		http.Error(w, "the page could not be shown", http.StatusInternalServerError)
		return true
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(out.Bytes()) // a client that went away misses it
	return true
}

// page finds what a path shows.
func (s *Server) page(ctx context.Context, parts []string) (view, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(parts) == 1 && parts[0] == "" {
		var names []string
		for _, r := range s.state.Repos {
			names = append(names, r.full())
		}
		return view{"index", names}, nil
	}
	if len(parts) < 2 {
		return view{}, errNotFound
	}
	r := s.state.repo(parts[0], parts[1])
	switch {
	case r == nil:
		return view{}, errNotFound
	case len(parts) == 2, len(parts) == 3 && (parts[2] == "issues" || parts[2] == "pulls"):
		return view{"repo", s.repoPage(r)}, nil
	case len(parts) == 4 && parts[2] == "commit":
		return s.commitPage(ctx, r, parts[3])
	}
	if len(parts) < 4 {
		return view{}, errNotFound
	}
	number, err := strconv.Atoi(parts[3])
	if err != nil {
		return view{}, errNotFound
	}
	if len(parts) == 4 && parts[2] == "runs" {
		return s.checkPage(r, int64(number))
	}
	t := r.thread(number)
	switch {
	case t == nil || parts[2] != "issues" && parts[2] != "pull":
		return view{}, errNotFound
	case len(parts) == 4:
		return s.threadPage(ctx, r, t)
	case len(parts) == 5 && parts[4] == "files" && t.Pull != nil:
		return s.filesPage(ctx, r, t)
	}
	return view{}, errNotFound
}

type repoView struct {
	Name           string
	Tickets, Pulls []threadHead
}

type threadHead struct {
	URL, Title, Author, State, Tone string
	Number                          int
}

func head(r *repo, t *thread) threadHead {
	h := threadHead{Title: t.Title, Author: t.Author, Number: t.Number, URL: fmt.Sprintf("/%s/issues/%d", r.full(), t.Number), State: "Open", Tone: "good"}
	if t.Closed != nil {
		h.State, h.Tone = "Closed", "bad"
	}
	if t.Pull == nil {
		return h
	}
	h.URL = fmt.Sprintf("/%s/pull/%d", r.full(), t.Number)
	switch {
	case t.Pull.Merged != nil:
		h.State, h.Tone = "Merged", "good"
	case t.Closed == nil && t.Pull.Draft:
		h.State, h.Tone = "Draft", "busy"
	}
	return h
}

func (s *Server) repoPage(r *repo) repoView {
	v := repoView{Name: r.full()}
	for _, t := range slices.Backward(r.Threads) {
		if t.Pull != nil {
			v.Pulls = append(v.Pulls, head(r, t))
		} else {
			v.Tickets = append(v.Tickets, head(r, t))
		}
	}
	return v
}

type threadView struct {
	threadHead
	Repo     string
	Labels   []string
	Opening  said
	Comments []said
	Pull     *pullView
}

type pullView struct {
	Head, Base, Size string
	Checks           []checkLine
	Commits          []commitLine
	Reviews          []said
}

type checkLine struct{ Name, Title, Outcome, Tone, URL string }

type commitLine struct{ Short, Subject, Author, URL string }

// said is something that somebody wrote.
type said struct {
	Anchor, Author, When, Note, Reactions string
	Bot, Edited                           bool
	Body                                  template.HTML
}

func (s *Server) said(anchor, author string, at time.Time, body string) (said, error) {
	var html bytes.Buffer
	if err := markdown.Convert([]byte(body), &html); err != nil {
		return said{}, fmt.Errorf("render Markdown: %w", err)
	}
	u := s.state.user(author)
	return said{
		Anchor: anchor, Author: author, When: at.Format("2 Jan 2006 15:04"), Bot: u != nil && u.Type == "Bot",
		Body: template.HTML(html.String()), // goldmark escaped it and left raw HTML out
	}, nil
}

var reactionSigns = map[string]string{
	"+1": "👍", "-1": "👎", "laugh": "😄", "confused": "😕", "heart": "❤️", "hooray": "🎉", "rocket": "🚀", "eyes": "👀",
}

func reactionsLine(all []*reaction) string {
	counts := map[string]int{}
	for _, r := range all {
		counts[r.Content]++
	}
	var words []string
	for _, content := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%s %s %d", reactionSigns[content], content, counts[content]))
	}
	return strings.Join(words, " · ")
}

func (s *Server) threadPage(ctx context.Context, r *repo, t *thread) (view, error) {
	opening, err := s.said("opening", t.Author, t.Created, t.Body)
	if err != nil {
		return view{}, err
	}
	opening.Reactions = reactionsLine(t.Reactions)
	v := threadView{threadHead: head(r, t), Repo: r.full(), Labels: t.Labels, Opening: opening}
	for _, c := range t.Comments {
		one, err := s.said(fmt.Sprintf("issuecomment-%d", c.ID), c.Author, c.Created, c.Body)
		if err != nil {
			return view{}, err
		}
		one.Edited, one.Reactions = c.Updated.After(c.Created), reactionsLine(c.Reactions)
		v.Comments = append(v.Comments, one)
	}
	if t.Pull != nil {
		if v.Pull, err = s.pullPart(ctx, r, t); err != nil {
			return view{}, err
		}
	}
	return view{"thread", v}, nil
}

func (s *Server) pullPart(ctx context.Context, r *repo, t *thread) (*pullView, error) {
	p := t.Pull
	v := &pullView{Head: p.Head, Base: p.Base, Size: sizeLine(p.Size.Files, p.Size.Additions, p.Size.Deletions)}
	for _, k := range slices.Backward(r.Checks) {
		if k.HeadSHA == p.HeadSHA {
			outcome, tone := outcomeOf(k)
			v.Checks = append(v.Checks, checkLine{k.Name, k.Title, outcome, tone, fmt.Sprintf("/%s/runs/%d", r.full(), k.ID)})
		}
	}
	infos, err := s.commits(ctx, r, p.BaseSHA+".."+p.HeadSHA)
	if err != nil {
		return nil, err
	}
	for _, info := range slices.Backward(infos) {
		subject, _, _ := strings.Cut(info.message, "\n")
		v.Commits = append(v.Commits, commitLine{info.sha[:10], subject, info.author.Name, "/" + r.full() + "/commit/" + info.sha})
	}
	for _, one := range p.Reviews {
		body := one.Body
		if body == "" {
			body = "*No text.*"
		}
		text, err := s.said(fmt.Sprintf("pullrequestreview-%d", one.ID), one.Author, one.Submitted, body)
		if err != nil {
			return nil, err
		}
		text.Note = strings.ToLower(strings.ReplaceAll(one.State, "_", " "))
		v.Reviews = append(v.Reviews, text)
		for _, rc := range p.Comments {
			if rc.Review != one.ID {
				continue
			}
			remark, err := s.remarkSaid(rc)
			if err != nil {
				return nil, err
			}
			v.Reviews = append(v.Reviews, remark)
		}
	}
	return v, nil
}

func (s *Server) remarkSaid(rc *reviewComment) (said, error) {
	text, err := s.said(fmt.Sprintf("discussion_r%d", rc.ID), rc.Author, rc.Created, rc.Body)
	text.Note = fmt.Sprintf("%s:%d", rc.Path, rc.Line)
	return text, err
}

func outcomeOf(k *check) (outcome, tone string) {
	if k.Status != "completed" {
		return strings.ReplaceAll(k.Status, "_", " "), "busy"
	}
	tones := map[string]string{"success": "good", "failure": "bad", "timed_out": "bad", "cancelled": "bad", "action_required": "busy"}
	return strings.ReplaceAll(k.Conclusion, "_", " "), orText(tones[k.Conclusion], "dim")
}

func sizeLine(files, additions, deletions int) string {
	changed := "files"
	if files == 1 {
		changed = "file"
	}
	return fmt.Sprintf("%d %s, +%d −%d", files, changed, additions, deletions)
}

type diffView struct {
	Title, Repo, Back, Size string
	Files                   []diffFile
}

type diffFile struct {
	Path, Status         string
	Additions, Deletions int
	Lines                []diffLine
	Remarks              []said
}

type diffLine struct{ Kind, Text string }

func (s *Server) filesPage(ctx context.Context, r *repo, t *thread) (view, error) {
	files, err := s.changed(ctx, r, t.Pull)
	if err != nil {
		return view{}, err
	}
	v := newDiffView(fmt.Sprintf("%s #%d", t.Title, t.Number), r, head(r, t).URL, files)
	for _, rc := range t.Pull.Comments {
		at := slices.IndexFunc(v.Files, func(f diffFile) bool { return f.Path == rc.Path })
		if at < 0 {
			continue
		}
		remark, err := s.remarkSaid(rc)
		if err != nil {
			return view{}, err
		}
		v.Files[at].Remarks = append(v.Files[at].Remarks, remark)
	}
	return view{"diff", v}, nil
}

func newDiffView(title string, r *repo, back string, files []fileDiff) diffView {
	v := diffView{Title: title, Repo: r.full(), Back: back}
	additions, deletions := 0, 0
	for _, f := range files {
		additions += f.additions
		deletions += f.deletions
		one := diffFile{Path: f.path, Status: f.status, Additions: f.additions, Deletions: f.deletions}
		if len(f.hunks) > 0 {
			for line := range strings.SplitSeq(f.patch(), "\n") {
				one.Lines = append(one.Lines, diffLine{kindOf(line), line})
			}
		}
		v.Files = append(v.Files, one)
	}
	v.Size = sizeLine(len(files), additions, deletions)
	return v
}

func kindOf(line string) string {
	switch {
	case strings.HasPrefix(line, "@@"):
		return "at"
	case strings.HasPrefix(line, "+"):
		return "add"
	case strings.HasPrefix(line, "-"):
		return "del"
	}
	return "same"
}

func (s *Server) commitPage(ctx context.Context, r *repo, name string) (view, error) {
	sha := s.resolve(ctx, r, name)
	if sha == "" {
		return view{}, errNotFound
	}
	infos, err := s.commits(ctx, r, "--max-count=1", sha)
	if err != nil {
		return view{}, err
	}
	files, err := s.diff(ctx, r, parentOf(infos[0]), sha)
	if err != nil {
		return view{}, err
	}
	subject, _, _ := strings.Cut(infos[0].message, "\n")
	return view{"diff", newDiffView(subject, r, "/"+r.full(), files)}, nil
}

type checkView struct {
	Name, Repo, Back, SHA, Title, Outcome, Tone string
	Summary, Text                               template.HTML
	Annotations                                 []annotation
}

func (s *Server) checkPage(r *repo, id int64) (view, error) {
	k := find(r.Checks, func(k *check) bool { return k.ID == id })
	if k == nil {
		return view{}, errNotFound
	}
	v := checkView{Name: k.Name, Repo: r.full(), SHA: k.HeadSHA, Title: k.Title, Annotations: k.Annotations}
	v.Outcome, v.Tone = outcomeOf(k)
	summary, err := s.said("", "", k.Started, k.Summary)
	if err != nil {
		return view{}, err
	}
	text, err := s.said("", "", k.Started, k.Text)
	if err != nil {
		return view{}, err
	}
	v.Summary, v.Text = summary.Body, text.Body
	for _, t := range r.Threads {
		if t.Pull != nil && t.Pull.HeadSHA == k.HeadSHA {
			v.Back = head(r, t).URL + "#checks"
		}
	}
	return view{"check", v}, nil
}
