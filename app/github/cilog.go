package github

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Bounds of what CILog gives and takes, in bytes.
const (
	maxLog     = 60 << 10 // the whole
	maxSaid    = 20 << 10 // the run's output and its annotations in it
	maxJobRead = 64 << 20 // of a job's log, of which the end is kept
)

// CILog is what there is to read of a failure, at most 60 KiB: the run's output,
// its annotations, and of a job of GitHub Actions the end of the log. What
// GitHub does not give to the App, or has no more, is left out, and a line says
// so. The text is untrusted.
func (r *Repository) CILog(ctx context.Context, run forge.CIRun) (string, error) {
	if run.App == "" {
		return short(strings.TrimSpace(run.Title+"\n"+run.URL), maxLog), nil
	}
	said, err := r.said(ctx, run)
	if err != nil {
		return "", err
	}
	text := short(said, maxSaid)
	if len(text) < len(said) {
		text += "\n[cut here]\n"
	}
	if run.App != actionsApp {
		return strings.TrimSpace(text), nil
	}
	log, err := r.jobLog(ctx, run.ID, maxLog-len(text)-len(logHead))
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(text + log), nil
}

const logHead = "\nThe log of the job, its end:\n"

// said is the run's own output, then its annotations.
func (r *Repository) said(ctx context.Context, run forge.CIRun) (string, error) {
	var b strings.Builder
	err := r.checks.call(ctx, fmt.Sprintf("read check run %d", run.ID), func(ctx context.Context, c *github.Client) error {
		b.Reset()
		have, _, err := c.Checks.GetCheckRun(ctx, r.repo.Owner, r.repo.Name, run.ID)
		if err != nil {
			return err
		}
		for _, part := range []string{have.GetOutput().GetTitle(), have.GetOutput().GetSummary(), have.GetOutput().GetText()} {
			if part != "" {
				b.WriteString(part + "\n")
			}
		}
		opts := &github.ListOptions{PerPage: 100}
		for b.Len() < maxSaid {
			page, resp, err := c.Checks.ListCheckRunAnnotations(ctx, r.repo.Owner, r.repo.Name, run.ID, opts)
			if err != nil {
				return err
			}
			for _, a := range page {
				fmt.Fprintf(&b, "%s:%d: %s: %s\n", a.GetPath(), a.GetStartLine(), a.GetAnnotationLevel(), a.GetMessage())
			}
			if resp.NextPage == 0 {
				break
			}
			opts.Page = resp.NextPage
		}
		return nil
	})
	return b.String(), err
}

// jobLog is the end of a job's log, at most max bytes.
func (r *Repository) jobLog(ctx context.Context, job int64, max int) (string, error) {
	var from *url.URL
	err := r.checks.call(ctx, fmt.Sprintf("ask for the log of job %d", job), func(ctx context.Context, c *github.Client) error {
		at, resp, err := c.Actions.GetWorkflowJobLogs(ctx, r.repo.Owner, r.repo.Name, job, 1)
		switch {
		case resp != nil && (resp.StatusCode == http.StatusForbidden || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone):
			return nil
		case err == nil && (at.Scheme != "https" && at.Scheme != "http" || at.Host == ""):
			return errors.New("GitHub named no address")
		}
		from = at
		return err
	})
	if err != nil {
		return "", err
	}
	if from == nil {
		return "\nGitHub does not give the log of this job.\n", nil
	}
	log, err := r.fetchLog(ctx, from, max)
	if err != nil {
		return "", fmt.Errorf("read the log of job %d in %s: %w", job, r.repo, err)
	}
	return logHead + log, nil
}

// fetchLog reads a log from where GitHub keeps it. The address is signed and
// belongs to another host: our token must not go there, and the address, which
// lets anybody in, must not be in an error.
func (r *Repository) fetchLog(ctx context.Context, from *url.URL, max int) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from.String(), nil)
	if err != nil {
		return "", errors.New("GitHub named an address that is none")
	}
	req.Header.Set("User-Agent", r.app.o.UserAgent)
	resp, err := (&http.Client{Transport: r.app.web}).Do(req)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return "", err
	}
	defer closeResponse(resp)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("status %d", resp.StatusCode)
	}
	end := &tail{max: max}
	if _, err := io.Copy(end, io.LimitReader(resp.Body, maxJobRead)); err != nil {
		return "", err
	}
	return strings.ToValidUTF8(string(end.kept), "\uFFFD"), nil
}

// A tail keeps the end of what is written to it.
type tail struct {
	max  int
	kept []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.max; over > 0 {
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}
