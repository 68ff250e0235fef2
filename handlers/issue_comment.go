package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// issueComment acts on comments whose first line is a command.
type issueComment struct{ *Handlers }

// Handles lists the events.
func (issueComment) Handles() []string { return []string{"issue_comment"} }

// Handle selects by action: an edited comment never starts work.
func (h issueComment) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	if err := h.restore(ctx, deliveryID, payload); err != nil {
		return err
	}
	t, cmd, wrong, err := h.read(deliveryID, payload)
	switch {
	case err != nil || t.typed == "":
		return err
	case wrong != nil:
		return h.correct(ctx, t, wrong)
	}
	return h.run(ctx, t, cmd)
}

func (h issueComment) asks(_ context.Context, deliveryID string, payload []byte) (trigger, bool, error) {
	t, _, _, err := h.read(deliveryID, payload)
	return t, t.typed != "", err
}

// read returns what was typed, and what is wrong with it. Nothing typed is a
// comment that is not for us.
func (h issueComment) read(deliveryID string, payload []byte) (t trigger, cmd command.Command, wrong, err error) {
	var e github.IssueCommentEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return t, cmd, nil, queue.Never(fmt.Errorf("decode: %w", err))
	}
	author := e.GetComment().GetUser()
	if e.GetAction() != "created" || h.deaf(e.Sender) || h.deaf(author) || h.ours(payload) {
		return t, cmd, nil, nil
	}
	// Two Slipways that list each other would answer each other for ever.
	if machine(author) && strings.Contains(e.GetComment().GetBody(), markerStart) {
		return t, cmd, nil, nil
	}
	cmd, ok, wrong := command.Parse(e.GetComment().GetBody(), h.Chat.Prefix)
	if !ok {
		return t, cmd, nil, nil
	}
	t, err = triggerOf(deliveryID, e.Repo, e.Installation, e.Issue, e.Sender)
	if err != nil {
		return t, cmd, nil, err
	}
	t.on.Comment = e.GetComment().GetID()
	t.ticket.Taken = e.GetComment().GetCreatedAt().Time
	t.typed = code(h.Chat.Prefix + string(cmd.Name))
	return t, cmd, wrong, nil
}

// restore writes the tracking comment of a build at work again when a person
// has deleted it: whoever asked for the build would not see how it goes on.
func (h issueComment) restore(ctx context.Context, deliveryID string, payload []byte) error {
	var e github.IssueCommentEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return queue.Never(fmt.Errorf("decode: %w", err))
	}
	run, marked := h.trackedRun(e.GetComment().GetBody())
	if e.GetAction() != "deleted" || !marked || slugOf(e.GetComment().GetUser()) != strings.ToLower(h.Slug) || machine(e.Sender) {
		return nil // also what we delete ourselves, which is one of two
	}
	t, err := triggerOf(deliveryID, e.Repo, e.Installation, e.Issue, e.Sender)
	if err != nil {
		return err
	}
	jobs, err := h.Jobs.List(ctx, queue.Query{IDs: []string{run}, Kinds: pipeline.Kinds(), Unfinished: true, Limit: 1})
	if err != nil || len(jobs) == 0 {
		return err
	}
	var r pipeline.Request
	if err := json.Unmarshal(jobs[0].Payload, &r); err != nil {
		return fmt.Errorf("read the request of %s: %w", run, err)
	}
	if !same(r.Repo, t.repo) || r.Comment.Ticket != t.ticket.Number {
		return nil
	}
	if admitted, err := h.admit(ctx, t); err != nil || admitted.Over {
		return err
	}
	account, err := h.account(ctx, jobs[0])
	if err != nil {
		return err
	}
	body := queuedText(run, r.By.Login, h.Chat.Prefix)
	if r.Follow != nil {
		body = queuedFollowUpText(run, r.By.Login, "", h.Chat.Prefix)
	}
	if account.State != report.Queued {
		body = report.Comment(account)
	}
	return h.comment(ctx, t, r.Comment.Marker, body)
}

// trackedRun is the run whose tracking comment has that body.
func (h *Handlers) trackedRun(body string) (run string, ok bool) {
	_, rest, found := strings.Cut(body, fmt.Sprintf("%s%d run=", markerStart, h.AppID))
	run, _, ended := strings.Cut(rest, " -->")
	return run, found && ended
}

// ours reports whether the App wrote the comment, in whose name ever.
func (h *Handlers) ours(payload []byte) bool {
	var e struct {
		Comment struct {
			App struct {
				ID int64 `json:"id"`
			} `json:"performed_via_github_app"`
		} `json:"comment"`
	}
	return json.Unmarshal(payload, &e) != nil || e.Comment.App.ID == h.AppID
}
