package github

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// maxOutput is how many bytes GitHub takes in a check's summary and in its text;
// of the text it drops the rest in silence.
const maxOutput = 65535

// maxNotes is how many annotations GitHub takes in one request.
const maxNotes = 50

// EnsureCheck makes sure that one check run has the name and the external id,
// with this state and output.
//
// Check runs cannot be removed. Should two workers have created the same one,
// both are kept in the same state: GitHub counts the newest of a name, so to
// conclude the spare one as skipped would turn a failing commit green. The
// oldest is the one that is returned.
func (r *Repository) EnsureCheck(ctx context.Context, want forge.Check) (forge.Check, error) {
	if err := checkable(want); err != nil {
		return forge.Check{}, err
	}
	have, err := r.same(ctx, want)
	if err != nil {
		return forge.Check{}, err
	}
	if len(have) == 0 {
		if have, err = r.createCheck(ctx, want); err != nil {
			return forge.Check{}, err
		}
	}
	for i, c := range have {
		noted := c.GetOutput().GetAnnotationsCount()
		if !differs(c, want) && noted >= len(want.Notes) {
			continue
		}
		if have[i], err = r.editCheck(ctx, c.GetID(), want, noted); err != nil {
			return forge.Check{}, err
		}
		for noted += maxNotes; noted < len(want.Notes); noted += maxNotes { // they are added to those before
			if have[i], err = r.editCheck(ctx, c.GetID(), want, noted); err != nil {
				return forge.Check{}, err
			}
		}
	}
	want.ID, want.URL = have[0].GetID(), have[0].GetHTMLURL()
	return want, nil
}

// Checks reads back the App's check runs on a commit, oldest first.
func (r *Repository) Checks(ctx context.Context, sha string) ([]forge.Check, error) {
	runs, err := r.checkRuns(ctx, sha, r.own(nil))
	if err != nil {
		return nil, err
	}
	out := make([]forge.Check, len(runs))
	for i, c := range runs {
		out[i] = forge.Check{
			Name: c.GetName(), HeadSHA: c.GetHeadSHA(), ExternalID: c.GetExternalID(), Status: c.GetStatus(), Conclusion: c.GetConclusion(),
			Title: c.GetOutput().GetTitle(), Summary: c.GetOutput().GetSummary(), Text: c.GetOutput().GetText(),
			DetailsURL: c.GetDetailsURL(), Started: c.GetStartedAt().Time, Completed: c.GetCompletedAt().Time,
			ID: c.GetID(), URL: c.GetHTMLURL(),
		}
	}
	return out, nil
}

// checkable applies GitHub's rules before GitHub does, or does not.
func checkable(c forge.Check) error {
	switch {
	case c.Name == "" || c.HeadSHA == "" || c.ExternalID == "":
		return errors.New("check: name, head_sha and external_id are needed")
	case (c.Status == "completed") != (c.Conclusion != ""):
		return errors.New("check conclusion: needed when the status is completed, and only then")
	case c.Title == "" || c.Summary == "":
		return errors.New("check: title and summary are needed")
	case len(c.Summary) > maxOutput:
		return fmt.Errorf("check summary: %d bytes, at most %d", len(c.Summary), maxOutput)
	case len(c.Text) > maxOutput:
		return fmt.Errorf("check text: %d bytes, at most %d", len(c.Text), maxOutput)
	}
	return nil
}

// same lists our check runs with the name and external id, oldest first.
func (r *Repository) same(ctx context.Context, want forge.Check) ([]*github.CheckRun, error) {
	runs, err := r.checkRuns(ctx, want.HeadSHA, r.own(&want.Name))
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(runs, func(c *github.CheckRun) bool {
		return c.GetExternalID() != want.ExternalID || c.GetName() != want.Name
	}), nil
}

// own selects all our check runs of a name; nil: of any.
func (r *Repository) own(name *string) github.ListCheckRunsOptions {
	return github.ListCheckRunsOptions{CheckName: name, Filter: github.String("all"), AppID: &r.app.o.AppID}
}

// checkRuns lists check runs of a commit, oldest first.
func (d desk) checkRuns(ctx context.Context, sha string, opts github.ListCheckRunsOptions) ([]*github.CheckRun, error) {
	var all []*github.CheckRun
	err := d.call(ctx, "list the check runs of "+sha, func(ctx context.Context, c *github.Client) error {
		all = nil
		opts.ListOptions = github.ListOptions{PerPage: 100}
		for {
			page, resp, err := c.Checks.ListCheckRunsForRef(ctx, d.repo.Owner, d.repo.Name, sha, &opts)
			if err != nil {
				return err
			}
			all = append(all, page.CheckRuns...)
			if resp.NextPage == 0 {
				return nil
			}
			opts.Page = resp.NextPage
		}
	})
	slices.SortFunc(all, func(a, b *github.CheckRun) int { return cmp.Compare(a.GetID(), b.GetID()) })
	return all, err
}

func (r *Repository) createCheck(ctx context.Context, want forge.Check) ([]*github.CheckRun, error) {
	failed := r.call(ctx, "create check run "+want.Name, func(ctx context.Context, c *github.Client) error {
		opts := github.CreateCheckRunOptions{
			Name: want.Name, HeadSHA: want.HeadSHA, ExternalID: &want.ExternalID, Status: &want.Status,
			Conclusion: unlessEmpty(want.Conclusion), DetailsURL: unlessEmpty(want.DetailsURL), Output: outputOf(want, 0), Actions: buttonsOf(want),
		}
		if !want.Started.IsZero() {
			opts.StartedAt = &github.Timestamp{Time: want.Started}
		}
		if !want.Completed.IsZero() {
			opts.CompletedAt = &github.Timestamp{Time: want.Completed}
		}
		_, _, err := c.Checks.CreateCheckRun(ctx, r.repo.Owner, r.repo.Name, opts)
		return err
	})
	if failed != nil && !uncertain(failed) {
		return nil, failed
	}
	have, err := r.same(ctx, want)
	switch {
	case err != nil:
		return nil, errors.Join(failed, err)
	case len(have) > 0:
		return have, nil
	case failed != nil:
		return nil, failed
	default:
		return nil, fmt.Errorf("check run %s in %s: it was created and cannot be found", want.Name, r.repo)
	}
}

func (r *Repository) editCheck(ctx context.Context, id int64, want forge.Check, noted int) (have *github.CheckRun, err error) {
	err = r.call(ctx, fmt.Sprintf("edit check run %d", id), func(ctx context.Context, c *github.Client) error {
		opts := github.UpdateCheckRunOptions{
			Name: want.Name, ExternalID: &want.ExternalID, Status: &want.Status,
			Conclusion: unlessEmpty(want.Conclusion), DetailsURL: unlessEmpty(want.DetailsURL), Output: outputOf(want, noted),
		}
		if !want.Completed.IsZero() {
			opts.CompletedAt = &github.Timestamp{Time: want.Completed}
		}
		// Unlike go-github's own call this one also takes buttons away.
		path := fmt.Sprintf("repos/%s/%s/check-runs/%d", r.repo.Owner, r.repo.Name, id)
		req, err := c.NewRequest(http.MethodPatch, path, struct {
			github.UpdateCheckRunOptions
			Actions []*github.CheckRunAction `json:"actions"`
		}{opts, buttonsOf(want)})
		if err != nil {
			return err
		}
		have = new(github.CheckRun)
		_, err = c.Do(ctx, req, have)
		return err
	})
	return have, err
}

func differs(have *github.CheckRun, want forge.Check) bool {
	return have.GetStatus() != want.Status || have.GetConclusion() != want.Conclusion ||
		(want.DetailsURL != "" && have.GetDetailsURL() != want.DetailsURL) ||
		have.GetOutput().GetTitle() != want.Title ||
		!sameText(have.GetOutput().GetSummary(), want.Summary) || !sameText(have.GetOutput().GetText(), want.Text)
}

// outputOf is a check's output with the notes that come after the first noted.
func outputOf(c forge.Check, noted int) *github.CheckRunOutput {
	out := &github.CheckRunOutput{Title: &c.Title, Summary: &c.Summary, Text: unlessEmpty(c.Text)}
	rest := c.Notes[min(noted, len(c.Notes)):]
	for _, n := range rest[:min(maxNotes, len(rest))] {
		out.Annotations = append(out.Annotations, &github.CheckRunAnnotation{
			Path: &n.Path, StartLine: &n.Line, EndLine: &n.Line, AnnotationLevel: &n.Level, Title: unlessEmpty(n.Title), Message: &n.Text,
		})
	}
	return out
}

// buttonsOf is never nil: no buttons is a state like any other.
func buttonsOf(c forge.Check) []*github.CheckRunAction {
	out := []*github.CheckRunAction{}
	for _, b := range c.Buttons {
		out = append(out, &github.CheckRunAction{Label: b.Name, Description: b.About, Identifier: b.Name})
	}
	return out
}

func unlessEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
