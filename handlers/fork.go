package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"math"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// allow lets the code of a fork's pull request be run, at exactly the commit that
// is named, and has it reviewed so. The name is the whole one: others could push a
// commit whose name begins like it.
func (h *Handlers) allow(ctx context.Context, t trigger, cmd command.Command) error {
	if done, err := h.put(ctx, pipeline.ReviewID(t.delivery)); done || err != nil {
		return err
	}
	pull, found, err := h.GitHub.Pull(ctx, t.repo, t.ticket.Number)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", t.key(), err)
	case !found || !pull.Fork:
		return h.say(ctx, t, cmd)
	case pull.State == "closed":
		return h.answer(ctx, t, refused, closedPullText(t.typed))
	case cmd.Hash != pull.HeadSHA:
		return h.answer(ctx, t, refused, allowText(pull.HeadSHA, h.Chat.Prefix))
	}
	open, _, err := h.queueReview(ctx, t, cmd, pull)
	if err == nil && open.ID != pipeline.ReviewID(t.delivery) {
		return h.answer(ctx, t, refused, openReviewText(open.ID, reviewLink(open, pull), h.Chat.Prefix))
	}
	return err
}

// allowed is whose word lets the head of a fork's pull request be run: of who
// approves it now, or of who did so for an earlier review of the same commit.
func (h *Handlers) allowed(ctx context.Context, t trigger, cmd command.Command, pull forge.Pull) (*pipeline.ReviewAllowance, error) {
	if !pull.Fork {
		return nil, nil
	}
	if cmd.Name == command.Approve {
		return &pipeline.ReviewAllowance{Commit: pull.HeadSHA, By: t.by.Login}, nil
	}
	jobs, err := h.Jobs.List(ctx, queue.Query{Kinds: []string{pipeline.KindReview}, Key: pipeline.ReviewKey(t.repo, pull.Number), Limit: math.MaxInt32})
	if err != nil {
		return nil, fmt.Errorf("look for reviews of #%d: %w", pull.Number, err)
	}
	for _, j := range jobs {
		var r pipeline.ReviewRequest
		if err := json.Unmarshal(j.Payload, &r); err != nil {
			return nil, fmt.Errorf("read the request of %s: %w", j.ID, err)
		}
		if r.Allowed != nil && r.Allowed.Commit == pull.HeadSHA {
			return r.Allowed, nil
		}
	}
	return nil, nil
}

func allowText(head, prefix string) string {
	return fmt.Sprintf("This pull request is from a fork, and its head is %s. Name it whole: %s lets exactly this commit be run, "+
		"in the sandbox, and has it reviewed so. Nothing was done.", code(head), code(prefix+"approve "+head))
}
