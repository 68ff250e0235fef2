package githubsim

import (
	"fmt"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The REST side of other Apps' checks: jobs of github-actions, re-requests,
// commit statuses, and what rules require.

type emptyShape struct{}

// rerequestCheck tells the App of a check run to run it again. GitHub lets an
// App do so with its own only.
func rerequestCheck(c *call) (answer, error) {
	k, err := c.check()
	switch {
	case err != nil:
		return answer{}, err
	case k.App != c.app.ID:
		return answer{}, errForbidden
	case k.Status != "completed":
		return answer{}, unprocessable("This check run is not rerequestable")
	}
	c.s.rerequest(c.repo, k, c.me())
	return created(emptyShape{})
}

// job finds the check run of a job.
func (c *call) job() (*check, error) {
	id := c.number("job_id")
	k := find(c.repo.Checks, func(k *check) bool { return k.ID == id && c.st.app(k.App).Slug == actionsApp })
	if k == nil {
		return nil, errNotFound
	}
	return k, nil
}

type jobShape struct {
	ID          int64      `json:"id"`
	NodeID      string     `json:"node_id"`
	Run         int64      `json:"run_id"`
	RunURL      string     `json:"run_url"`
	HeadSHA     string     `json:"head_sha"`
	Workflow    *string    `json:"workflow_name"`
	Branch      *string    `json:"head_branch"`
	Name        string     `json:"name"`
	URL         string     `json:"url"`
	HTMLURL     string     `json:"html_url"`
	Status      string     `json:"status"`
	Conclusion  *string    `json:"conclusion"`
	CreatedAt   time.Time  `json:"created_at"`
	StartedAt   time.Time  `json:"started_at"`
	CompletedAt *time.Time `json:"completed_at"`
	CheckURL    string     `json:"check_run_url"`
	Labels      []string   `json:"labels"`
	Runner      *int64     `json:"runner_id"`
	RunnerName  *string    `json:"runner_name"`
	Group       *int64     `json:"runner_group_id"`
	GroupName   *string    `json:"runner_group_name"`
}

// getJob shows a job. A workflow run has the id of its check suite here.
func getJob(c *call) (answer, error) {
	k, err := c.job()
	if err != nil {
		return answer{}, err
	}
	h := c.shape()
	shape := h.check(c.repo, k)
	url := fmt.Sprintf("%s/actions/jobs/%d", h.api(c.repo), k.ID)
	return ok(jobShape{
		ID: k.ID, NodeID: shape.NodeID, Run: k.Suite, RunURL: fmt.Sprintf("%s/actions/runs/%d", h.api(c.repo), k.Suite), HeadSHA: k.HeadSHA,
		Branch: h.branchAt(c.repo, k.HeadSHA), Name: k.Name, URL: url, HTMLURL: shape.HTMLURL, Status: k.Status, Conclusion: shape.Conclusion,
		CreatedAt: k.Started, StartedAt: k.Started, CompletedAt: k.Completed, CheckURL: shape.URL, Labels: []string{},
	})
}

// rerunFailedJobs runs the newest attempts of a workflow run again that did not
// succeed, unless one of its jobs still runs.
func rerunFailedJobs(c *call) (answer, error) {
	id := c.number("run_id")
	s := find(c.repo.Suites, func(s *suite) bool { return s.ID == id && c.st.app(s.App).Slug == actionsApp })
	if s == nil {
		return answer{}, errNotFound
	}
	if status, _ := suiteOutcome(c.repo, s); status != "completed" {
		return answer{}, &apiError{Status: http.StatusForbidden, Message: "This workflow is already running"}
	}
	seen := map[string]bool{}
	for _, k := range slices.Backward(slices.Clone(c.repo.Checks)) {
		if k.Suite != s.ID || seen[k.Name] {
			continue
		}
		seen[k.Name] = true
		if k.Conclusion == "success" {
			continue
		}
		if err := c.s.repeat(c.ctx, c.repo, k); err != nil {
			return answer{}, err
		}
	}
	return created(emptyShape{})
}

const logRoot = "/_logs/"

// getJobLog sends the client to where the log is kept, which asks for no token.
func getJobLog(c *call) (answer, error) {
	k, err := c.job()
	if err != nil {
		return answer{}, err
	}
	if k.Status != "completed" {
		return answer{}, errNotFound
	}
	c.location = fmt.Sprintf("%s%s%d", c.shape().base, logRoot, k.ID)
	return answer{status: http.StatusFound}, nil
}

// serveLog is the other host, on which a token must not be seen.
func (s *Server) serveLog(w http.ResponseWriter, r *http.Request, id string) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || r.Header.Get("Authorization") != "" {
		http.Error(w, "a signed address takes no other credential", http.StatusBadRequest)
		return
	}
	log, found := "", false
	s.mu.Lock()
	for _, r := range s.state.Repos {
		if k := find(r.Checks, func(k *check) bool { return k.ID == n }); k != nil {
			log, found = k.Log, true
		}
	}
	s.mu.Unlock()
	if !found {
		http.Error(w, "no such log", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(log)) // a client that went away misses it
}

type statusShape struct {
	ID          int64     `json:"id"`
	NodeID      string    `json:"node_id"`
	URL         string    `json:"url"`
	State       string    `json:"state"`
	Context     string    `json:"context"`
	Description *string   `json:"description"`
	TargetURL   *string   `json:"target_url"`
	AvatarURL   *string   `json:"avatar_url"`
	CreatedAt   time.Time `json:"created_at"`
	UpdatedAt   time.Time `json:"updated_at"`
}

// getStatus combines the newest status of each context.
func getStatus(c *call) (answer, error) {
	info, err := c.commitOf(c.path["ref"])
	if err != nil {
		return answer{}, err
	}
	h := c.shape()
	out := []statusShape{}
	state := "success"
	for _, x := range slices.Backward(c.repo.Statuses) {
		if x.SHA != info.sha || slices.ContainsFunc(out, func(o statusShape) bool { return o.Context == x.Context }) {
			continue
		}
		out = append(out, statusShape{
			ID: x.ID, NodeID: node("StatusContext", x.ID), URL: h.api(c.repo) + "/statuses/" + x.SHA, State: x.State, Context: x.Context,
			Description: textOrNull(x.Description), CreatedAt: x.Created, UpdatedAt: x.Updated,
		})
		switch {
		case x.State == "error" || x.State == "failure":
			state = "failure"
		case x.State == "pending" && state == "success":
			state = "pending"
		}
	}
	if len(out) == 0 {
		state = "pending"
	}
	return ok(struct {
		State      string        `json:"state"`
		Statuses   []statusShape `json:"statuses"`
		SHA        string        `json:"sha"`
		Total      int           `json:"total_count"`
		Repository *repoShape    `json:"repository"`
		CommitURL  string        `json:"commit_url"`
		URL        string        `json:"url"`
	}{state, page(c, out), info.sha, len(out), h.repo(c.repo), h.api(c.repo) + "/commits/" + info.sha, h.api(c.repo) + "/commits/" + info.sha + "/status"})
}

type requiredShape struct {
	Contexts []string          `json:"contexts"`
	Checks   []requiredContext `json:"checks"`
}

type requiredContext struct {
	Context string `json:"context"`
	App     *int64 `json:"app_id"`
}

// requiredBy collects what rules of a kind require of a branch.
func (r *repo) requiredBy(kind RuleKind, branch string) (out []requiredContext) {
	for _, q := range r.Required {
		if q.Branch != branch || q.By != kind {
			continue
		}
		for _, name := range q.Names {
			c := requiredContext{Context: name}
			if q.App != 0 {
				c.App = &q.App
			}
			out = append(out, c)
		}
	}
	return out
}

// protection is what a branch says of its own.
func (h shaper) protection(r *repo, branch string) protectionShape {
	checks := r.requiredBy(ByProtection, branch)
	if len(checks) == 0 {
		return protectionShape{}
	}
	required := &requiredShape{Contexts: []string{}, Checks: checks}
	for _, c := range checks {
		required.Contexts = append(required.Contexts, c.Context)
	}
	return protectionShape{Enabled: true, Required: required}
}

type ruleShape struct {
	Type       string          `json:"type"`
	Parameters *ruleParameters `json:"parameters,omitempty"`
	SourceType string          `json:"ruleset_source_type"`
	Source     string          `json:"ruleset_source"`
	Ruleset    int64           `json:"ruleset_id"`
}

type ruleParameters struct {
	Checks      []ruleCheck `json:"required_status_checks,omitempty"`
	Strict      *bool       `json:"strict_required_status_checks_policy,omitempty"`
	MaxFileSize int         `json:"max_file_size,omitempty"` // megabytes
	Operator    string      `json:"operator,omitempty"`
	Pattern     string      `json:"pattern,omitempty"`
	Negate      *bool       `json:"negate,omitempty"`
}

type ruleCheck struct {
	Context string `json:"context"`
	App     *int64 `json:"integration_id,omitempty"`
}

// listRules lists what rulesets say of a branch, which need not exist.
func listRules(c *call) (answer, error) {
	out := []ruleShape{}
	if checks := c.repo.requiredBy(ByRuleset, strings.TrimSuffix(c.path["branch"], "/")); len(checks) > 0 {
		loose := false
		rule := ruleShape{Type: "required_status_checks", SourceType: "Repository", Source: c.repo.full(), Ruleset: c.repo.ID}
		rule.Parameters = &ruleParameters{Strict: &loose}
		for _, check := range checks {
			rule.Parameters.Checks = append(rule.Parameters.Checks, ruleCheck(check))
		}
		newer := ruleShape{Type: "max_file_size", Parameters: &ruleParameters{MaxFileSize: 100}, SourceType: "Repository", Source: c.repo.full(), Ruleset: c.repo.ID}
		out = append(out, newer, rule)
	}
	for _, r := range c.repo.Rules {
		if matched, err := path.Match(r.Branch, strings.TrimSuffix(c.path["branch"], "/")); err != nil || !matched {
			continue
		}
		rule := ruleShape{Type: r.Type, SourceType: "Repository", Source: c.repo.full(), Ruleset: c.repo.ID}
		if r.Pattern != "" {
			rule.Parameters = &ruleParameters{Operator: r.Operator, Pattern: r.Pattern, Negate: new(bool)}
		}
		out = append(out, rule)
	}
	return ok(page(c, out))
}
