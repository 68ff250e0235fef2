package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// pullRequest judges the configuration that a pull request wants to change.
// Nothing is started and nothing of the pull request counts, so it does not
// matter whose it is.
type pullRequest struct{ *Handlers }

// configCheck is the name of the check run.
const configCheck = "slipway/config"

// Handles lists the events.
func (pullRequest) Handles() []string { return []string{"pull_request"} }

// Handle selects by action: those that come with another commit.
func (h pullRequest) Handle(ctx context.Context, _, _ string, payload []byte) error {
	var e github.PullRequestEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return queue.Never(fmt.Errorf("decode: %w", err))
	}
	if !slices.Contains([]string{"opened", "reopened", "synchronize"}, e.GetAction()) {
		return nil
	}
	if e.Installation == nil {
		return nil // the webhook is not the App's, and nobody waits for an answer
	}
	r, err := repoOf(e.Repo, e.Installation)
	if err != nil {
		return err
	}
	err = h.judge(ctx, r, e.GetNumber(), e.GetPullRequest().GetHead().GetSHA())
	if errors.Is(err, forge.ErrNoAccess) {
		return nil // nobody typed anything, and there is nowhere to say anything
	}
	return err
}

// asks: nobody typed anything.
func (pullRequest) asks(context.Context, string, []byte) (trigger, bool, error) {
	return trigger{}, false, nil
}

// judge says on the commit what is wrong with the configuration that it brings.
func (h *Handlers) judge(ctx context.Context, r forge.Repo, pull int, sha string) error {
	changed, err := h.Proposed(ctx, r, pull, sha)
	wrong, broken := errors.AsType[*config.Error](err)
	switch {
	case err != nil && !broken:
		return fmt.Errorf("read the configuration that %s#%d wants: %w", r, pull, err)
	case !changed:
		return nil
	}
	check := forge.Check{
		Name: configCheck, HeadSHA: sha, ExternalID: "config:" + sha, Status: "completed", Conclusion: "success",
		Title: "The configuration is valid", Summary: configText(pipeline.ConfigFile),
	}
	if broken {
		check.Conclusion, check.Title, check.Summary = "failure", problems(len(wrong.Problems)), brokenText(wrong)
		check.Notes = notesOf(wrong)
	}
	if _, err := h.GitHub.EnsureCheck(ctx, r, check); err != nil {
		return fmt.Errorf("say what %s#%d does to the configuration: %w", r, pull, err)
	}
	return nil
}

func problems(n int) string {
	if n == 1 {
		return "1 problem"
	}
	return strconv.Itoa(n) + " problems"
}

// notesOf puts each problem on its line. What is in no line, such as values
// that do not fit those of the server, is on the first.
func notesOf(wrong *config.Error) []forge.Note {
	var out []forge.Note
	for _, p := range wrong.Problems {
		out = append(out, forge.Note{
			Path: pipeline.ConfigFile, Line: max(1, p.Line), Level: "failure", Title: printable(p.Key, 200), Text: printable(p.Text, 4000),
		})
	}
	return out
}
