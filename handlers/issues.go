package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/queue"
)

// issues acts on the labels that build and review, and on the end of a ticket.
type issues struct{ *Handlers }

// Handles lists the events.
func (issues) Handles() []string { return []string{"issues"} }

// Handle selects by action.
func (h issues) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	e, t, ok, err := h.read(deliveryID, payload)
	if err == nil && e.GetAction() == "closed" {
		return h.closed(ctx, e)
	}
	if err != nil || !ok {
		return err
	}
	// The label is consumed whatever becomes of it, so that it can be set again.
	if err := h.GitHub.Unlabel(ctx, t.repo, t.ticket.Number, e.GetLabel().GetName()); err != nil {
		return fmt.Errorf("remove the label: %w", err)
	}
	if h.deaf(e.Sender) {
		return nil
	}
	name := command.Build
	if strings.EqualFold(e.GetLabel().GetName(), h.Look) {
		name = command.Review
	}
	return h.run(ctx, t, command.Command{Name: name})
}

func (h issues) asks(_ context.Context, deliveryID string, payload []byte) (trigger, bool, error) {
	e, t, ok, err := h.read(deliveryID, payload)
	return t, ok && !h.deaf(e.Sender), err
}

func (h issues) read(deliveryID string, payload []byte) (e github.IssuesEvent, t trigger, ok bool, err error) {
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, t, false, queue.Never(fmt.Errorf("decode: %w", err))
	}
	label := e.GetLabel().GetName()
	if e.GetAction() != "labeled" || e.GetIssue().IsPullRequest() || !strings.EqualFold(label, h.Label) && !strings.EqualFold(label, h.Look) {
		return e, t, false, nil
	}
	t, err = triggerOf(deliveryID, e.Repo, e.Installation, e.Issue, e.Sender)
	t.typed = "The label " + code(label)
	return e, t, err == nil, err
}
