package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// A Decision is what becomes of a command that speaks to a build: a signal and
// the job that gets it, or the answer that says why there is none.
type Decision struct {
	Job    string       `json:"job,omitempty"`
	Also   string       `json:"also,omitempty"` // a job that gets the same signal
	Signal queue.Signal `json:"signal,omitzero"`
	Answer string       `json:"answer,omitempty"` // Markdown
	Over   bool         `json:"over,omitempty"`   // one command more than this person may type now

	FollowUp *pipeline.Request `json:"follow_up,omitempty"` // what is to be queued
}

// signals are the commands that speak to a build, and how it is told.
var signals = map[command.Name]string{
	command.Approve: pipeline.ApproveSignal,
	command.Revise:  pipeline.ReviseSignal,
	command.Reject:  pipeline.RejectSignal,
	command.Answer:  pipeline.AnswerSignal,
	command.Steer:   pipeline.SteerSignal,
	command.Cancel:  pipeline.CancelSignal,
	command.Resume:  pipeline.ResumeSignal,
}

// say tells a build of the thread what was typed. The decision whether to is
// recorded: a build that heard the command stands elsewhere, and a worker that
// died in between would then refuse what was done.
func (h *Handlers) say(ctx context.Context, t trigger, cmd command.Command) error {
	d, err := h.Decide(ctx, "decision", func(ctx context.Context) (Decision, error) { return h.decide(ctx, t, cmd) })
	if err != nil {
		return err
	}
	if d.Job == "" {
		return h.answer(ctx, t, refused, d.Answer)
	}
	err = h.Jobs.Send(ctx, d.Job, d.Signal)
	switch {
	case err == nil:
		if err := h.sendAlso(ctx, d); err != nil {
			return err
		}
		return h.react(ctx, t, handled)
	case errors.Is(err, queue.ErrFinished), errors.Is(err, queue.ErrUnknown): // it ended since
		return h.answer(ctx, t, refused, h.nothingOpenText(t))
	case errors.Is(err, queue.ErrOpen): // another was started since
		open, found, ferr := h.openBuild(ctx, t)
		if ferr == nil && found {
			return h.answerOpen(ctx, t, open)
		}
		err = errors.Join(err, ferr)
	}
	return fmt.Errorf("signal %s: %w", d.Job, err)
}

// sendAlso tells the other job, unless it ended since.
func (h *Handlers) sendAlso(ctx context.Context, d Decision) error {
	if d.Also == "" {
		return nil
	}
	if err := h.Jobs.Send(ctx, d.Also, d.Signal); err != nil && !errors.Is(err, queue.ErrFinished) {
		return fmt.Errorf("signal %s: %w", d.Also, err)
	}
	return nil
}

// decide finds the build that is meant and asks whether it has a use for the
// command as it stands.
func (h *Handlers) decide(ctx context.Context, t trigger, cmd command.Command) (Decision, error) {
	job, refusal, err := h.meant(ctx, t, cmd)
	if err != nil || refusal != "" {
		return Decision{Answer: refusal}, err
	}
	if cmd.Name != command.Cancel && cmd.Name != command.Steer { // these two are taken at any time
		refusal, err = h.unwanted(ctx, job, cmd)
		if err != nil || refusal != "" {
			return Decision{Answer: refusal}, err
		}
	}
	said := pipeline.Said{By: t.by, Text: cmd.Text, Hash: cmd.Hash}
	if cmd.Name == command.Approve {
		said.Text = "" // it holds the hash again, and maybe a thank you
	}
	if cmd.Name == command.Resume {
		said.Repo = t.repo
	}
	body, err := json.Marshal(said)
	if err != nil {
		return Decision{}, fmt.Errorf("encode the signal: %w", err)
	}
	d := Decision{Job: job.ID, Signal: queue.Signal{
		ID: t.delivery, Kind: signals[cmd.Name], Body: body, Reopen: cmd.Name == command.Resume,
	}}
	if cmd.Name == command.Cancel { // a build and a review of one pull request stop together
		look, open, err := h.findReview(ctx, t, queue.Query{Unfinished: true})
		if err != nil {
			return d, err
		}
		if open && look.ID != job.ID {
			d.Also = look.ID
		}
	}
	return d, nil
}

// meant is the build that a command is for: the open one, or, to resume, the
// one that ended last or that is given up though nobody could be told yet.
func (h *Handlers) meant(ctx context.Context, t trigger, cmd command.Command) (job queue.Job, refusal string, err error) {
	job, found, err := h.openBuild(ctx, t)
	if cmd.Name == command.Cancel {
		job, found, err = h.openRun(ctx, t)
	}
	switch {
	case err != nil:
		return job, "", err
	case found && (cmd.Name != command.Resume || job.Verdict.Cause != ""):
		return job, "", nil
	case found:
		link, err := linkOf(job, t)
		return job, nothingEndedText(job.ID, link, h.Chat.Prefix), err
	}
	switch job, found, err = h.newestBuild(ctx, t); {
	case err == nil && !found:
		refusal = h.noBuildText(t)
	case err == nil && cmd.Name != command.Resume:
		refusal = h.nothingOpenText(t)
	}
	return job, refusal, err
}

// unwanted says why the build has no use for the command, or nothing.
func (h *Handlers) unwanted(ctx context.Context, job queue.Job, cmd command.Command) (refusal string, err error) {
	account, err := h.account(ctx, job)
	if err != nil {
		return "", err
	}
	why := pipeline.Refusal(account, signals[cmd.Name], pipeline.Said{Hash: cmd.Hash, Text: cmd.Text})
	if why == "" && cmd.Name == command.Approve {
		if why, err = h.Approval(ctx, job, cmd.Hash); err != nil {
			return "", fmt.Errorf("judge the approval of %s: %w", job.ID, err)
		}
	}
	if why == "" {
		return "", nil
	}
	return unwantedText(why, account), nil
}
