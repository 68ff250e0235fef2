package handlers

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// Commands are read in comments of the conversation. One that was typed in a review
// starts nothing, and is answered where it was typed: on whosever pull request.

// misplaced answers a command in a review, once in each thread; people without a
// say in the repository get one answer on the pull request.
func (h reviews) misplaced(ctx context.Context, deliveryID string, payload []byte) error {
	t, thread, typed, err := h.command(deliveryID, payload)
	if err != nil || !typed {
		return err
	}
	role, heard, err := h.standing(ctx, t)
	if err != nil || !heard {
		return err
	}
	if thread == 0 || role < forge.Triage { // nobody without a say makes the App write in every thread
		if err := h.react(ctx, t, refused); err != nil {
			return err
		}
		return h.comment(ctx, t, h.marker("refused", "misplaced"), misplacedText(t.typed))
	}
	if err := h.react(ctx, t, refused); err != nil {
		return err
	}
	_, err = h.GitHub.EnsureAnswer(ctx, t.repo, forge.Answer{
		Pull: t.ticket.Number, Thread: thread, Marker: h.marker("refused", "misplaced"), Body: misplacedText(t.typed),
	})
	if err != nil {
		return fmt.Errorf("answer in a thread of %s: %w", t.key(), err)
	}
	return nil
}

// command reads what was typed, if it is new and somebody's who is listened to. No
// thread is the text of the review itself.
func (h reviews) command(deliveryID string, payload []byte) (t trigger, thread int64, typed bool, err error) {
	var e reviewEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return t, 0, false, queue.Never(fmt.Errorf("decode: %w", err))
	}
	if !e.isNew() || h.deaf(e.Sender) || h.deaf(e.author()) || e.Pull.GetState() != "open" {
		return t, 0, false, nil
	}
	text := e.Review.GetBody()
	if e.Comment != nil {
		text = e.Comment.GetBody()
	}
	cmd, typed, wrong := command.Parse(text, h.Chat.Prefix)
	if !typed {
		return t, 0, false, nil
	}
	t, err = triggerOf(deliveryID, e.Repo, e.Installation, &github.Issue{Number: e.Pull.Number}, e.author())
	if err != nil {
		return t, 0, false, err
	}
	t.typed = "What was typed in a review"
	if wrong == nil {
		t.typed = code(h.Chat.Prefix + string(cmd.Name))
	}
	t.on = forge.Subject{} // GitHub has no reactions to a review as a whole
	if e.Comment != nil {
		thread = e.Comment.GetInReplyTo()
		if thread == 0 {
			thread = e.Comment.GetID()
		}
		t.on = forge.Subject{Ticket: t.ticket.Number, Remark: e.Comment.GetID()}
	}
	return t, thread, true, nil
}

func misplacedText(typed string) string {
	return fmt.Sprintf("%s is no command here, and nothing was done: commands are the first line of a comment on the pull request itself, "+
		"below the tab Conversation. In a review, say in words what should change.", typed)
}
