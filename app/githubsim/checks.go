package githubsim

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// GitHub's bounds on a check run.
const (
	maxSummary      = 65535 // bytes; more is refused
	maxCheckText    = 65535 // bytes; more is cut silently
	maxAnnotations  = 50    // in one request
	maxCheckActions = 3
)

type annotation struct {
	Path        string  `json:"path"`
	StartLine   int     `json:"start_line"`
	EndLine     int     `json:"end_line"`
	StartColumn *int    `json:"start_column"`
	EndColumn   *int    `json:"end_column"`
	Level       string  `json:"annotation_level"`
	Title       *string `json:"title"`
	Message     string  `json:"message"`
	RawDetails  *string `json:"raw_details"`
}

type annotationShape struct {
	annotation
	BlobHref string `json:"blob_href"`
}

type checkAction struct {
	Label       string `json:"label"`
	Description string `json:"description"`
	Identifier  string `json:"identifier"`
}

type checkShape struct {
	ID          int64         `json:"id"`
	NodeID      string        `json:"node_id"`
	HeadSHA     string        `json:"head_sha"`
	Name        string        `json:"name"`
	ExternalID  string        `json:"external_id"`
	URL         string        `json:"url"`
	HTMLURL     string        `json:"html_url"`
	DetailsURL  string        `json:"details_url"`
	Status      string        `json:"status"`
	Conclusion  *string       `json:"conclusion"`
	StartedAt   time.Time     `json:"started_at"`
	CompletedAt *time.Time    `json:"completed_at"`
	Output      outputShape   `json:"output"`
	Suite       suiteInCheck  `json:"check_suite"`
	App         *appShape     `json:"app"`
	Pulls       []pullInCheck `json:"pull_requests"`
}

type outputShape struct {
	Title            *string `json:"title"`
	Summary          *string `json:"summary"`
	Text             *string `json:"text"`
	AnnotationsCount int     `json:"annotations_count"`
	AnnotationsURL   string  `json:"annotations_url"`
}

// suiteInCheck is short in REST; webhooks look for more, and an addition to
// the short form is legal.
type suiteInCheck struct {
	ID         int64         `json:"id"`
	NodeID     string        `json:"node_id"`
	HeadBranch *string       `json:"head_branch"`
	HeadSHA    string        `json:"head_sha"`
	Status     string        `json:"status"`
	Conclusion *string       `json:"conclusion"`
	URL        string        `json:"url"`
	App        *appShape     `json:"app"`
	Pulls      []pullInCheck `json:"pull_requests"`
	CreatedAt  time.Time     `json:"created_at"`
	UpdatedAt  time.Time     `json:"updated_at"`
}

type pullInCheck struct {
	ID     int64      `json:"id"`
	Number int        `json:"number"`
	URL    string     `json:"url"`
	Head   endInCheck `json:"head"`
	Base   endInCheck `json:"base"`
}

type endInCheck struct {
	Ref  string      `json:"ref"`
	SHA  string      `json:"sha"`
	Repo repoInCheck `json:"repo"`
}

type repoInCheck struct {
	ID   int64  `json:"id"`
	URL  string `json:"url"`
	Name string `json:"name"`
}

func (h shaper) pullsAt(r *repo, sha string) []pullInCheck {
	out := []pullInCheck{}
	short := repoInCheck{ID: r.ID, URL: h.api(r), Name: r.Name}
	for _, t := range r.Threads {
		if t.Pull != nil && t.Closed == nil && t.Pull.HeadSHA == sha && t.Pull.HeadRepo == 0 { // of forks GitHub tells nothing
			out = append(out, pullInCheck{
				ID: t.Pull.ID, Number: t.Number, URL: fmt.Sprintf("%s/pulls/%d", h.api(r), t.Number),
				Head: endInCheck{t.Pull.Head, t.Pull.HeadSHA, short}, Base: endInCheck{t.Pull.Base, t.Pull.BaseSHA, short},
			})
		}
	}
	return out
}

func (h shaper) check(r *repo, k *check) checkShape {
	url := fmt.Sprintf("%s/check-runs/%d", h.api(r), k.ID)
	page := fmt.Sprintf("%s/runs/%d", h.html(r), k.ID)
	out := checkShape{
		ID: k.ID, NodeID: node("CheckRun", k.ID), HeadSHA: k.HeadSHA, Name: k.Name, ExternalID: k.ExternalID, URL: url,
		HTMLURL: page, DetailsURL: orText(k.DetailsURL, page), Status: k.Status, Conclusion: textOrNull(k.Conclusion),
		StartedAt: k.Started, CompletedAt: k.Completed, App: h.app(h.st.app(k.App)), Pulls: h.pullsAt(r, k.HeadSHA),
		Output: outputShape{
			Title: textOrNull(k.Title), Summary: textOrNull(k.Summary), Text: textOrNull(k.Text),
			AnnotationsCount: len(k.Annotations), AnnotationsURL: url + "/annotations",
		},
	}
	out.Suite = h.suite(r, r.suite(k.Suite))
	return out
}

func (h shaper) suite(r *repo, s *suite) suiteInCheck {
	status, conclusion := suiteOutcome(r, s)
	return suiteInCheck{
		ID: s.ID, NodeID: node("CheckSuite", s.ID), HeadBranch: h.branchAt(r, s.HeadSHA), HeadSHA: s.HeadSHA, Status: status,
		Conclusion: conclusion, URL: fmt.Sprintf("%s/check-suites/%d", h.api(r), s.ID), App: h.app(h.st.app(s.App)), Pulls: h.pullsAt(r, s.HeadSHA),
		CreatedAt: s.Created, UpdatedAt: s.Created,
	}
}

func (h shaper) branchAt(r *repo, sha string) *string {
	var names []string
	for name, at := range r.Refs {
		if branch, ok := strings.CutPrefix(name, "refs/heads/"); ok && at == sha {
			names = append(names, branch)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return &names[0]
}

// suiteOutcome is complete when every run is, and as bad as the worst. Of runs
// with one name the newest counts. A suite without runs waits for its App, and
// so does one that was asked for again, until its App writes to a run of it.
func suiteOutcome(r *repo, s *suite) (status string, conclusion *string) {
	if s.Again {
		return "queued", nil
	}
	worst, order := "success", []string{"success", "neutral", "skipped", "cancelled", "timed_out", "action_required", "failure"}
	status = "queued"
	for k := range newest(r, s) {
		if status = "completed"; k.Status != "completed" {
			return "in_progress", nil
		}
		if slices.Index(order, k.Conclusion) > slices.Index(order, worst) {
			worst = k.Conclusion
		}
	}
	if status == "queued" {
		return status, nil
	}
	return status, &worst
}

// newest are the runs of a suite that count: the newest of each name.
func newest(r *repo, s *suite) iter.Seq[*check] {
	return func(yield func(*check) bool) {
		seen := map[string]bool{}
		for _, k := range slices.Backward(r.Checks) {
			if k.Suite != s.ID || seen[k.Name] {
				continue
			}
			if seen[k.Name] = true; !yield(k) {
				return
			}
		}
	}
}

type checkRequest struct {
	Name        *string       `json:"name"`
	HeadSHA     string        `json:"head_sha"`
	DetailsURL  *string       `json:"details_url"`
	ExternalID  *string       `json:"external_id"`
	Status      string        `json:"status"`
	StartedAt   *time.Time    `json:"started_at"`
	Conclusion  string        `json:"conclusion"`
	CompletedAt *time.Time    `json:"completed_at"`
	Output      *checkOutput  `json:"output"`
	Actions     []checkAction `json:"actions"`
}

type checkOutput struct {
	Title       *string      `json:"title"`
	Summary     *string      `json:"summary"`
	Text        *string      `json:"text"`
	Annotations []annotation `json:"annotations"`
}

var (
	checkStatuses    = []string{"queued", "in_progress", "completed", "waiting", "requested", "pending"}
	checkConclusions = []string{"action_required", "cancelled", "failure", "neutral", "success", "skipped", "timed_out", "stale"}
)

// validate applies GitHub's bounds.
func (in checkRequest) validate() error {
	if in.Status != "" && !slices.Contains(checkStatuses, in.Status) {
		return invalid("CheckRun", "status", "invalid", "")
	}
	if in.Conclusion != "" && !slices.Contains(checkConclusions, in.Conclusion) {
		return invalid("CheckRun", "conclusion", "invalid", "")
	}
	if in.Status == "completed" && in.Conclusion == "" {
		return unprocessable("Invalid request.\n\nMissing required property: conclusion.")
	}
	if len(in.Actions) > maxCheckActions {
		return unprocessable("Invalid request.\n\nNo more than 3 items are allowed in actions.")
	}
	for _, a := range in.Actions {
		for _, field := range []struct {
			name, text string
			most       int
		}{{"label", a.Label, 20}, {"description", a.Description, 40}, {"identifier", a.Identifier, 20}} {
			if n := utf8.RuneCountInString(field.text); n == 0 || n > field.most {
				return unprocessable(fmt.Sprintf("Invalid request.\n\nactions.%s must have 1 to %d characters.", field.name, field.most))
			}
		}
	}
	if in.Output == nil {
		return nil
	}
	switch {
	case in.Output.Summary == nil:
		return unprocessable("Invalid request.\n\nMissing required property: output.summary.")
	case len(*in.Output.Summary) > maxSummary:
		return invalid("CheckRun", "summary", "custom", "summary exceeds a maximum bytesize of 65535")
	case len(in.Output.Annotations) > maxAnnotations:
		return unprocessable("Invalid request.\n\nNo more than 50 items are allowed in output.annotations.")
	}
	for _, a := range in.Output.Annotations {
		if a.Path == "" || a.StartLine < 1 || a.EndLine < a.StartLine || a.Message == "" || !slices.Contains([]string{"notice", "warning", "failure"}, a.Level) {
			return unprocessable("Invalid request.\n\nAn annotation is not valid.")
		}
	}
	return nil
}

// apply writes a valid request over a check run. An output replaces the whole
// one before it, except that annotations are added.
func (in checkRequest) apply(k *check, now time.Time) {
	if in.Name != nil {
		k.Name = *in.Name
	}
	if in.DetailsURL != nil {
		k.DetailsURL = *in.DetailsURL
	}
	if in.ExternalID != nil {
		k.ExternalID = *in.ExternalID
	}
	if in.StartedAt != nil {
		k.Started = in.StartedAt.UTC()
	}
	if in.Status != "" {
		k.Status = in.Status
	}
	if in.Conclusion != "" {
		k.Status, k.Conclusion = "completed", in.Conclusion
	}
	if k.Status != "completed" {
		k.Conclusion, k.Completed = "", nil
	}
	if k.Status == "completed" && (k.Completed == nil || in.CompletedAt != nil) {
		k.Completed = &now
		if in.CompletedAt != nil {
			at := in.CompletedAt.UTC()
			k.Completed = &at
		}
	}
	if in.Actions != nil {
		k.Actions = in.Actions
	}
	if o := in.Output; o != nil {
		title := ""
		if o.Title != nil {
			title = *o.Title
		}
		k.Title, k.Summary, k.Text = title, *o.Summary, ""
		if o.Text != nil {
			k.Text = cut(*o.Text, maxCheckText)
		}
		k.Annotations = append(k.Annotations, o.Annotations...)
	}
}

// cut shortens text to at most n bytes, on a character's border.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func createCheck(c *call) (answer, error) {
	in, err := decode[checkRequest](c)
	if err != nil {
		return answer{}, err
	}
	if in.Name == nil || *in.Name == "" {
		return answer{}, unprocessable("Invalid request.\n\nMissing required property: name.")
	}
	if !c.hasCommit(in.HeadSHA) {
		return answer{}, unprocessable("No commit found for SHA: " + in.HeadSHA)
	}
	if err := in.validate(); err != nil {
		return answer{}, err
	}
	now := c.s.now()
	s := find(c.repo.Suites, func(s *suite) bool { return s.App == c.app.ID && s.HeadSHA == in.HeadSHA })
	if s == nil {
		s = &suite{ID: c.st.next(), App: c.app.ID, HeadSHA: in.HeadSHA, Created: now}
		c.repo.Suites = append(c.repo.Suites, s)
	}
	s.Again = false
	k := &check{ID: c.st.next(), App: c.app.ID, Suite: s.ID, HeadSHA: in.HeadSHA, Status: "queued", Started: now}
	in.apply(k, now)
	c.repo.Checks = append(c.repo.Checks, k)
	c.s.emitCheck(c.repo, k, "created", c.me(), nil)
	if k.Status == "completed" {
		c.s.emitCheck(c.repo, k, "completed", c.me(), nil)
	}
	return created(c.shape().check(c.repo, k))
}

func (r *repo) suite(id int64) *suite {
	return find(r.Suites, func(s *suite) bool { return s.ID == id })
}

func (c *call) check() (*check, error) {
	id := c.number("check_run_id")
	k := find(c.repo.Checks, func(k *check) bool { return k.ID == id })
	if k == nil {
		return nil, errNotFound
	}
	return k, nil
}

func getCheck(c *call) (answer, error) {
	k, err := c.check()
	if err != nil {
		return answer{}, err
	}
	return ok(c.shape().check(c.repo, k))
}

func updateCheck(c *call) (answer, error) {
	k, err := c.check()
	if err != nil {
		return answer{}, err
	}
	in, err := decode[checkRequest](c)
	if err != nil {
		return answer{}, err
	}
	if k.App != c.app.ID {
		return answer{}, &apiError{Status: errForbidden.Status, Message: "Invalid app_id `" + fmt.Sprint(c.app.ID) + "` - check run can only be modified by the GitHub App that created it."}
	}
	if err := in.validate(); err != nil {
		return answer{}, err
	}
	before := k.Status
	in.apply(k, c.s.now())
	c.repo.suite(k.Suite).Again = false
	if before != "completed" && k.Status == "completed" {
		c.s.emitCheck(c.repo, k, "completed", c.me(), nil)
	}
	return ok(c.shape().check(c.repo, k))
}

func listAnnotations(c *call) (answer, error) {
	k, err := c.check()
	if err != nil {
		return answer{}, err
	}
	out := []annotationShape{}
	for _, a := range k.Annotations {
		out = append(out, annotationShape{a, c.shape().html(c.repo) + "/blob/" + k.HeadSHA + "/" + escapePath(a.Path)})
	}
	return ok(page(c, out))
}

// listChecks lists the runs of a commit, newest first. Without filter=all only
// the newest run of each name and App counts.
func listChecks(c *call) (answer, error) {
	info, err := c.commitOf(c.path["ref"])
	if err != nil {
		return answer{}, err
	}
	out := []checkShape{}
	seen := map[string]bool{}
	for _, k := range slices.Backward(c.repo.Checks) {
		if k.HeadSHA != info.sha || c.query("check_name", k.Name) != k.Name || c.query("status", k.Status) != k.Status ||
			c.query("app_id", fmt.Sprint(k.App)) != fmt.Sprint(k.App) {
			continue
		}
		same := fmt.Sprint(k.App, " ", k.Name)
		if seen[same] && c.query("filter", "latest") == "latest" {
			continue
		}
		seen[same] = true
		out = append(out, c.shape().check(c.repo, k))
	}
	return ok(struct {
		Total int          `json:"total_count"`
		Runs  []checkShape `json:"check_runs"`
	}{len(out), page(c, out)})
}

type suiteShape struct {
	suiteInCheck
	Before       *string           `json:"before"`
	After        string            `json:"after"`
	HeadCommit   simpleCommitShape `json:"head_commit"`
	Repository   *repoShape        `json:"repository"`
	LatestChecks int               `json:"latest_check_runs_count"`
	ChecksURL    string            `json:"check_runs_url"`
}

type simpleCommitShape struct {
	ID        string       `json:"id"`
	TreeID    string       `json:"tree_id"`
	Message   string       `json:"message"`
	Timestamp time.Time    `json:"timestamp"`
	Author    pushedAuthor `json:"author"`
	Committer pushedAuthor `json:"committer"`
}

func (h shaper) suiteWhole(r *repo, s *suite, at commitInfo) suiteShape {
	short := h.suite(r, s)
	runs := 0
	for _, k := range r.Checks {
		if k.Suite == s.ID {
			runs++
		}
	}
	return suiteShape{
		suiteInCheck: short, After: s.HeadSHA, Repository: h.repo(r), LatestChecks: runs, ChecksURL: short.URL + "/check-runs",
		HeadCommit: simpleCommitShape{at.sha, at.tree, at.message, at.made, at.author, at.committer},
	}
}

func listSuites(c *call) (answer, error) {
	info, err := c.commitOf(c.path["ref"])
	if err != nil {
		return answer{}, err
	}
	out := []suiteShape{}
	h := c.shape()
	for _, s := range c.repo.Suites {
		if s.HeadSHA == info.sha {
			out = append(out, h.suiteWhole(c.repo, s, *info))
		}
	}
	return ok(struct {
		Total  int          `json:"total_count"`
		Suites []suiteShape `json:"check_suites"`
	}{len(out), page(c, out)})
}
