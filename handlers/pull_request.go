package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/config"
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

// A Proposal is a configuration file as a pull request wants it.
type Proposal struct {
	File      string
	Wrong     *config.Error // nil where it is valid
	Elsewhere bool          // what is wrong stands in the owner's file, which this pull request does not touch
}

// judge says on the commit what is wrong with the configuration that it brings.
func (h *Handlers) judge(ctx context.Context, r forge.Repo, pull int, sha string) error {
	proposals, err := h.Proposed(ctx, r, pull, sha)
	switch {
	case err != nil:
		return fmt.Errorf("read the configuration that %s#%d wants: %w", r, pull, err)
	case len(proposals) == 0:
		return nil
	}
	if _, err := h.GitHub.EnsureCheck(ctx, r, judgement(proposals, sha)); err != nil {
		return fmt.Errorf("say what %s#%d does to the configuration: %w", r, pull, err)
	}
	return nil
}

// judgement is the check run about the files. What is wrong elsewhere is said,
// and is no fault of the commit.
func judgement(proposals []Proposal, sha string) forge.Check {
	check := forge.Check{
		Name: configCheck, HeadSHA: sha, ExternalID: "config:" + sha, Status: "completed", Conclusion: "success",
		Title: "The configuration is valid",
	}
	mistakes, elsewhere := 0, false
	var texts []string
	for _, p := range proposals {
		switch {
		case p.Wrong == nil:
			texts = append(texts, configText(p.File))
		case p.Elsewhere:
			elsewhere = true
			texts = append(texts, elsewhereText(p.File, p.Wrong))
		default:
			mistakes += len(p.Wrong.Problems)
			check.Notes = append(check.Notes, notesOf(p)...)
			texts = append(texts, brokenText(p.Wrong))
		}
	}
	check.Summary = strings.Join(texts, "\n\n")
	switch {
	case mistakes > 0:
		check.Conclusion, check.Title = "failure", problems(mistakes)
	case elsewhere:
		check.Conclusion, check.Title = "neutral", "The owner's configuration is broken"
	}
	return check
}

func problems(n int) string {
	if n == 1 {
		return "1 problem"
	}
	return strconv.Itoa(n) + " problems"
}

// notesOf puts each problem on its line. What is in no line, such as values
// that do not fit those of the server, is on the first.
func notesOf(p Proposal) []forge.Note {
	var out []forge.Note
	for _, wrong := range p.Wrong.Problems {
		out = append(out, forge.Note{
			Path: p.File, Line: max(1, wrong.Line), Level: "failure", Title: printable(wrong.Key, 200), Text: printable(wrong.Text, 4000),
		})
	}
	return out
}
