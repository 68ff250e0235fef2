package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// pullRequest judges the configuration that a pull request wants to change, which
// starts nothing and therefore does not ask whose it is, and reviews pull requests:
// by label, or by itself where the repository wants that.
type pullRequest struct{ *Handlers }

// configCheck is the name of the check run.
const configCheck = "slipway/config"

// Handles lists the events.
func (pullRequest) Handles() []string { return []string{"pull_request"} }

// Handle selects by action.
func (h pullRequest) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	err := h.handle(ctx, deliveryID, payload)
	if errors.Is(err, forge.ErrNoAccess) {
		return nil // nobody typed anything, and there is nowhere to say anything
	}
	return err
}

func (h pullRequest) handle(ctx context.Context, deliveryID string, payload []byte) error {
	e, t, pull, err := h.read(deliveryID, payload)
	if err != nil || e.Installation == nil { // nobody waits for an answer to a webhook that is not the App's
		return err
	}
	switch e.GetAction() {
	case "labeled":
		return h.labeled(ctx, e, t)
	case "closed":
		return h.closedThread(ctx, t.repo, t.ticket.Number, t.by)
	case "opened", "reopened", "synchronize":
		if err := h.judge(ctx, t.repo, pull.Number, pull.HeadSHA); err != nil {
			return err
		}
	case "ready_for_review":
	default:
		return nil
	}
	if pull.Draft || h.deaf(e.Sender) {
		return nil
	}
	return h.automatic(ctx, t, pull)
}

// labeled does what the label stands for. It is consumed whatever becomes of it,
// so that it can be set again.
func (h pullRequest) labeled(ctx context.Context, e github.PullRequestEvent, t trigger) error {
	label := e.GetLabel().GetName()
	if !strings.EqualFold(label, h.Look) {
		return nil
	}
	if err := h.GitHub.Unlabel(ctx, t.repo, t.ticket.Number, label); err != nil {
		return fmt.Errorf("remove the label: %w", err)
	}
	if h.deaf(e.Sender) {
		return nil
	}
	t.typed, t.on = "The label "+code(label), forge.Subject{Ticket: t.ticket.Number}
	return h.run(ctx, t, command.Command{Name: command.Review})
}

func (pullRequest) read(deliveryID string, payload []byte) (e github.PullRequestEvent, t trigger, pull forge.Pull, err error) {
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, t, pull, queue.Never(fmt.Errorf("decode: %w", err))
	}
	if e.Installation == nil {
		return e, t, pull, nil
	}
	r, err := repoOf(e.Repo, e.Installation)
	if err != nil {
		return e, t, pull, err
	}
	p := e.GetPullRequest()
	pull = forge.Pull{
		Number: e.GetNumber(), URL: p.GetHTMLURL(), Draft: p.GetDraft(), State: p.GetState(), Title: p.GetTitle(), Body: p.GetBody(),
		Head: p.GetHead().GetRef(), HeadSHA: p.GetHead().GetSHA(),
	}
	t = trigger{
		delivery: deliveryID, repo: r, by: forge.Person{Login: e.GetSender().GetLogin(), ID: e.GetSender().GetID(), Bot: machine(e.GetSender())},
		ticket: forge.Ticket{
			Number: pull.Number, Title: pull.Title, Body: pull.Body, Author: p.GetUser().GetLogin(), State: pull.State, URL: pull.URL, Pull: true,
			Taken: p.GetUpdatedAt().Time,
		},
	}
	if pull.Number == 0 {
		err = queue.Never(errors.New("pull_request.number is missing"))
	}
	return e, t, pull, err
}

// asks: a label does.
func (h pullRequest) asks(_ context.Context, deliveryID string, payload []byte) (trigger, bool, error) {
	e, t, _, err := h.read(deliveryID, payload)
	label := e.GetLabel().GetName()
	t.typed, t.on = "The label "+code(label), forge.Subject{Ticket: t.ticket.Number}
	return t, err == nil && e.Installation != nil && e.GetAction() == "labeled" && strings.EqualFold(label, h.Look) && !h.deaf(e.Sender), err
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
