package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// ownChecks is how the names of the App's own checks begin.
const ownChecks = "slipway/"

// maxCIText bounds the summary and the text of a run in a forge.CI, which goes
// into a build's journal at every look.
const maxCIText = 4 << 10

var wholeSHA = regexp.MustCompile(`^[0-9a-f]{40,64}$`)

// CI reads what is known of the checks of exactly one commit, and which checks
// the rules of the base branch require. What cannot be read is an error, never
// an absence; only a plan without rulesets counts as one that has none.
func (r *Repository) CI(ctx context.Context, sha, base string) (forge.CI, error) {
	if !wholeSHA.MatchString(sha) || base == "" {
		return forge.CI{}, fmt.Errorf("read the checks of %q against %q: a whole commit id and a branch are needed", sha, base)
	}
	ci := forge.CI{SHA: sha}
	runs, err := r.othersRuns(ctx, sha)
	if err != nil {
		return forge.CI{}, err
	}
	statuses, err := r.statuses(ctx, sha)
	if err != nil {
		return forge.CI{}, err
	}
	ci.Runs = slices.Concat(runs, statuses)
	rules, err := r.required(ctx, base)
	if err != nil {
		return forge.CI{}, err
	}
	ci.Required = rules.names
	ci.Configured = len(ci.Runs) > 0 || len(ci.Required) > 0 || rules.workflows
	for _, sign := range []func(context.Context, string) (bool, error){r.hasWorkflows, r.hasSuites} {
		if !ci.Configured {
			if ci.Configured, err = sign(ctx, sha); err != nil {
				return forge.CI{}, err
			}
		}
	}
	return ci, nil
}

// othersRuns lists the newest check runs of other Apps, oldest first.
func (r *Repository) othersRuns(ctx context.Context, sha string) ([]forge.CIRun, error) {
	all, err := r.checks.checkRuns(ctx, sha, github.ListCheckRunsOptions{Filter: github.String("latest")})
	if err != nil {
		return nil, err
	}
	var out []forge.CIRun
	for _, c := range all {
		if c.GetApp().GetID() != r.app.o.AppID && c.GetHeadSHA() == sha {
			out = append(out, runOf(c))
		}
	}
	return out, nil
}

func runOf(c *github.CheckRun) forge.CIRun {
	return forge.CIRun{
		ID: c.GetID(), Name: c.GetName(), App: cmp.Or(c.GetApp().GetSlug(), "unknown"), Suite: c.GetCheckSuite().GetID(), SHA: c.GetHeadSHA(),
		Status: c.GetStatus(), Conclusion: c.GetConclusion(), URL: cmp.Or(c.GetHTMLURL(), c.GetDetailsURL()),
		Title:   short(c.GetOutput().GetTitle(), maxCIText),
		Summary: short(c.GetOutput().GetSummary(), maxCIText), Text: short(c.GetOutput().GetText(), maxCIText),
		Started: c.GetStartedAt().Time, Completed: c.GetCompletedAt().Time,
	}
}

// statuses lists the newest commit status of each context in the words of check
// runs.
func (r *Repository) statuses(ctx context.Context, sha string) ([]forge.CIRun, error) {
	var out []forge.CIRun
	err := r.checks.call(ctx, "list the statuses of "+sha, func(ctx context.Context, c *github.Client) error {
		out = nil
		opts := &github.ListOptions{PerPage: 100}
		for {
			page, resp, err := c.Repositories.GetCombinedStatus(ctx, r.repo.Owner, r.repo.Name, sha, opts)
			if err != nil {
				return err
			}
			if page.GetSHA() != sha {
				return fmt.Errorf("GitHub answered for %s", page.GetSHA())
			}
			for _, s := range page.Statuses {
				out = append(out, statusOf(sha, s))
			}
			if resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	return out, err
}

func statusOf(sha string, s *github.RepoStatus) forge.CIRun {
	run := forge.CIRun{
		ID: s.GetID(), Name: s.GetContext(), SHA: sha, URL: s.GetTargetURL(), Title: short(s.GetDescription(), maxCIText),
		Status: "completed", Conclusion: s.GetState(), Started: s.GetCreatedAt().Time, Completed: s.GetUpdatedAt().Time,
	}
	switch s.GetState() {
	case "pending":
		run.Status, run.Conclusion, run.Completed = "in_progress", "", time.Time{}
	case "error":
		run.Conclusion = "failure"
	}
	return run
}

// wanted is what the rules of a branch say of checks.
type wanted struct {
	names     []string // sorted, without our own
	workflows bool     // workflows are required whose jobs the rules do not name
}

// required asks the rulesets and the branch protection. Reading the protection
// itself would take the permission to administer; what the branch says of it
// does not.
func (r *Repository) required(ctx context.Context, base string) (wanted, error) {
	var w wanted
	rules, err := r.rules(ctx, base)
	if err != nil {
		return w, err
	}
	add := func(name string, app int64) {
		if app != r.app.o.AppID && !strings.HasPrefix(name, ownChecks) {
			w.names = append(w.names, name)
		}
	}
	for _, rule := range rules {
		w.workflows = w.workflows || rule.Type == "workflows"
		if rule.Type == "required_status_checks" {
			for _, check := range rule.Parameters.Checks {
				add(check.Context, check.Integration)
			}
		}
	}
	protection, err := r.protection(ctx, base)
	if err != nil {
		return w, err
	}
	apps := map[string]int64{}
	for _, check := range protection.Checks {
		apps[check.Context] = check.App
	}
	for _, name := range protection.Contexts {
		add(name, apps[name])
	}
	slices.Sort(w.names)
	w.names = slices.Compact(w.names)
	return w, nil
}

// A branchRule is the part of a rule that is of interest. The client's own type
// refuses the whole answer when it holds a kind of rule that is newer than it.
type branchRule struct {
	Type       string `json:"type"`
	Source     string `json:"ruleset_source"` // owner, or owner/name
	Parameters struct {
		Operator string `json:"operator"`
		Pattern  string `json:"pattern"`
		Negate   bool   `json:"negate"`
		Checks   []struct {
			Context     string `json:"context"`
			Integration int64  `json:"integration_id"`
		} `json:"required_status_checks"`
	} `json:"parameters"`
}

// rules lists the rules that apply to a branch.
// https://docs.github.com/rest/repos/rules#get-rules-for-a-branch
func (r *Repository) rules(ctx context.Context, branch string) ([]branchRule, error) {
	var all []branchRule
	err := r.checks.call(ctx, "read the rules of "+branch, func(ctx context.Context, c *github.Client) error {
		all = nil
		for next := 1; next != 0; {
			var page []branchRule
			resp, err := r.read(ctx, c, fmt.Sprintf("rules/branches/%s?per_page=100&page=%d", url.PathEscape(branch), next), &page)
			if err != nil {
				if refusesRulesets(err) {
					return nil
				}
				return err
			}
			all, next = append(all, page...), resp.NextPage
		}
		return nil
	})
	return all, err
}

// refusesRulesets recognises the plans and servers that have none.
func refusesRulesets(err error) bool {
	return status(err) == http.StatusNotFound || status(err) == http.StatusForbidden && mentions(err, "upgrade to")
}

// A branchProtection is what a branch says of its protection.
type branchProtection struct {
	Contexts []string `json:"contexts"`
	Checks   []struct {
		Context string `json:"context"`
		App     int64  `json:"app_id"`
	} `json:"checks"`
}

func (r *Repository) protection(ctx context.Context, branch string) (branchProtection, error) {
	var have struct {
		Protection struct {
			Required branchProtection `json:"required_status_checks"`
		} `json:"protection"`
	}
	err := r.checks.call(ctx, "read the protection of "+branch, func(ctx context.Context, c *github.Client) error {
		_, err := r.read(ctx, c, "branches/"+url.PathEscape(branch), &have)
		return err
	})
	return have.Protection.Required, err
}

// read gets what the client has no fitting type for; rest is below the
// repository.
func (r *Repository) read(ctx context.Context, c *github.Client, rest string, into any) (*github.Response, error) {
	req, err := c.NewRequest(http.MethodGet, fmt.Sprintf("repos/%s/%s/%s", r.repo.Owner, r.repo.Name, rest), nil)
	if err != nil {
		return nil, err
	}
	return c.Do(ctx, req, into)
}

// hasWorkflows reports whether a commit holds workflow files.
func (r *Repository) hasWorkflows(ctx context.Context, sha string) (found bool, err error) {
	err = r.checks.call(ctx, "look for workflows in "+sha, func(ctx context.Context, c *github.Client) error {
		_, files, _, err := c.Repositories.GetContents(ctx, r.repo.Owner, r.repo.Name, ".github/workflows", &github.RepositoryContentGetOptions{Ref: sha})
		if status(err) == http.StatusNotFound {
			return nil
		}
		found = slices.ContainsFunc(files, func(f *github.RepositoryContent) bool {
			ext := path.Ext(f.GetName())
			return ext == ".yml" || ext == ".yaml"
		})
		return err
	})
	return found, err
}

// hasSuites reports whether another App has a check suite on a commit. GitHub
// opens one for every App that might check, so it is no more than a sign.
func (r *Repository) hasSuites(ctx context.Context, sha string) (found bool, err error) {
	err = r.checks.call(ctx, "list the check suites of "+sha, func(ctx context.Context, c *github.Client) error {
		opts := &github.ListCheckSuiteOptions{ListOptions: github.ListOptions{PerPage: 100}}
		for {
			page, resp, err := c.Checks.ListCheckSuitesForRef(ctx, r.repo.Owner, r.repo.Name, sha, opts)
			if err != nil {
				return err
			}
			found = slices.ContainsFunc(page.CheckSuites, func(s *github.CheckSuite) bool { return s.GetApp().GetID() != r.app.o.AppID })
			if found || resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	return found, err
}

// actionsApp is the slug of GitHub Actions. The id of one of its check runs is
// that of the job.
const actionsApp = "github-actions"

// Rerun makes sure that a completed run was started again: it asks for it,
// unless a newer attempt is there. The error is forge.ErrNoRerun where GitHub
// refuses.
//
// GitHub lets an App re-request its own check runs only, so of other Apps' runs
// nearly none can be re-run but the jobs of GitHub Actions, and those with the
// permission actions: write, which the App may not have. Of a workflow run all
// jobs that failed start again together: one by one, each would have to wait for
// the end of the one before.
// https://docs.github.com/rest/checks/runs#rerequest-a-check-run
func (r *Repository) Rerun(ctx context.Context, run forge.CIRun) error {
	if run.App == "" {
		return fmt.Errorf("status %s in %s: %w", run.Name, r.repo, forge.ErrNoRerun)
	}
	if again, err := r.runsAgain(ctx, run); err != nil || again {
		return err
	}
	err := r.rerun(ctx, run)
	switch code := status(err); {
	case run.App == actionsApp && mentions(err, "already running"): // with another job of its workflow
		return nil
	case code == http.StatusForbidden, code == http.StatusNotFound, code == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %s", forge.ErrNoRerun, whyNot(err))
	case !uncertain(err):
		return err
	}
	again, looked := r.runsAgain(ctx, run)
	if again {
		return nil
	}
	return errors.Join(err, looked)
}

// whyNot is GitHub's reason in its own words, or in ours where people can do
// something about it.
func whyNot(err error) string {
	if mentions(err, "permissions requested are not granted") {
		return "the App has no permission actions: write"
	}
	e, _ := errors.AsType[*github.ErrorResponse](err)
	return e.Message
}

func (r *Repository) rerun(ctx context.Context, run forge.CIRun) error {
	what := fmt.Sprintf("re-run %s (%d)", run.Name, run.ID)
	if run.App != actionsApp {
		return r.checks.call(ctx, what, func(ctx context.Context, c *github.Client) error {
			_, err := c.Checks.ReRequestCheckRun(ctx, r.repo.Owner, r.repo.Name, run.ID)
			return err
		})
	}
	var workflow int64
	err := r.checks.call(ctx, fmt.Sprintf("read job %d", run.ID), func(ctx context.Context, c *github.Client) error {
		job, _, err := c.Actions.GetWorkflowJobByID(ctx, r.repo.Owner, r.repo.Name, run.ID)
		workflow = job.GetRunID()
		return err
	})
	if err != nil {
		return err
	}
	g := &group{app: r.app, repo: r.repo, may: rerunMay}
	defer g.close(ctx)
	return g.do(ctx, what, func(ctx context.Context, c *github.Client) error {
		_, err := c.Actions.RerunFailedJobsByID(ctx, r.repo.Owner, r.repo.Name, workflow)
		return err
	})
}

// runsAgain reports whether there is something newer than a completed run.
func (r *Repository) runsAgain(ctx context.Context, run forge.CIRun) (bool, error) {
	have, err := r.checks.checkRuns(ctx, run.SHA, github.ListCheckRunsOptions{CheckName: &run.Name, Filter: github.String("latest")})
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(have, func(c *github.CheckRun) bool {
		return c.GetCheckSuite().GetID() == run.Suite && c.GetName() == run.Name &&
			(c.GetID() > run.ID || c.GetID() == run.ID && (c.GetStatus() != "completed" || c.GetCompletedAt().After(run.Completed)))
	}), nil
}

// short cuts text to at most n bytes, on a character's border.
func short(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
