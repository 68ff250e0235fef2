package handlers

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// build queues a build of the ticket, unless one is open or its pull request
// is. The tracking comment comes before the job, so that the job knows it; when
// another delivery wins the race to the queue, the comment becomes the answer
// that points at the winner, and no second tracking comment stays.
func (h *Handlers) build(ctx context.Context, t trigger, cmd command.Command) error {
	run := pipeline.RunID(t.delivery)
	mine, err := h.Jobs.List(ctx, queue.Query{IDs: []string{run}, Limit: 1})
	if err != nil {
		return fmt.Errorf("look for %s: %w", run, err)
	}
	if len(mine) > 0 { // put before a crash; the comment is the build's by now
		return nil
	}
	if t.ticket.Pull {
		return h.answer(ctx, t, refused, notOnPullText(t.typed))
	}
	open, found, err := h.openBuild(ctx, t)
	if err != nil {
		return err
	}
	if found {
		return h.answerOpen(ctx, t, open)
	}
	pull, found, err := h.GitHub.OpenPull(ctx, t.repo, t.ticket.Number)
	if err != nil {
		return fmt.Errorf("look for an open pull request of %s: %w", t.key(), err)
	}
	if found {
		return h.answer(ctx, t, refused, openPullText(pull))
	}
	tracking, err := h.GitHub.EnsureComment(ctx, t.repo, forge.Comment{
		Ticket: t.ticket.Number,
		Marker: h.runMarker(t),
		Body:   queuedText(run, t.by.Login, h.Chat.Prefix),
	})
	if err != nil {
		return fmt.Errorf("create the tracking comment on %s: %w", t.key(), err)
	}
	job, err := h.job(t, cmd, tracking)
	if err != nil {
		return err
	}
	open, _, err = h.Jobs.Put(ctx, job)
	if err != nil {
		return fmt.Errorf("queue the build of %s: %w", t.key(), err)
	}
	if open.ID != run {
		return h.answerOpen(ctx, t, open)
	}
	return nil
}

// job makes the build's job.
func (h *Handlers) job(t trigger, cmd command.Command, tracking forge.Comment) (queue.Job, error) {
	tracking.Body = "" // the build writes its own
	return jobOf(pipeline.Request{
		Build:       pipeline.RunID(t.delivery),
		Repo:        t.repo,
		Ticket:      t.ticket,
		Text:        cmd.Text,
		Base:        cmd.Base,
		MaxParallel: cmd.MaxParallel,
		Budget:      cmd.Budget,
		PlanOnly:    cmd.PlanOnly,
		Fast:        cmd.Fast,
		Targets:     cmd.Targets,
		By:          t.by,
		Trigger:     t.on,
		Comment:     tracking,
		Prefix:      h.Chat.Prefix,
	})
}

// jobOf is the job of a request. Key and Once are the ticket whose branch is
// written.
func jobOf(r pipeline.Request) (queue.Job, error) {
	payload, err := json.Marshal(r)
	if err != nil {
		return queue.Job{}, fmt.Errorf("encode the request: %w", err)
	}
	key := threadKey(r.Repo, r.Ticket.Number)
	return queue.Job{
		ID: r.Build, Kind: r.Kind(), Key: key, Once: key,
		Tenant: strconv.FormatInt(r.Repo.Installation, 10), Payload: payload,
	}, nil
}

// answerOpen points at the build that is open already.
func (h *Handlers) answerOpen(ctx context.Context, t trigger, open queue.Job) error {
	link, err := linkOf(open, t)
	if err != nil {
		return err
	}
	return h.answer(ctx, t, refused, openBuildText(open.ID, link, h.Chat.Prefix))
}

// linkOf is where a build can be followed.
func linkOf(build queue.Job, t trigger) (string, error) {
	var r pipeline.Request
	if err := json.Unmarshal(build.Payload, &r); err != nil {
		return "", fmt.Errorf("read the request of %s: %w", build.ID, err)
	}
	return cmp.Or(r.Comment.URL, t.ticket.URL), nil
}
