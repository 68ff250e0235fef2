package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// review queues a review of the pull request as it is now, unless its head is
// being reviewed. On an issue it is one of its open Slipway pull request; without
// one there is nothing to look at yet, and the issue is built.
func (h *Handlers) review(ctx context.Context, t trigger, cmd command.Command, role forge.Role) error {
	if done, err := h.put(ctx, pipeline.ReviewID(t.delivery)); done || err != nil {
		return err
	}
	number := t.ticket.Number
	if !t.ticket.Pull {
		pull, found, err := h.GitHub.OpenPull(ctx, t.repo, number)
		if err != nil {
			return fmt.Errorf("look for an open pull request of %s: %w", t.key(), err)
		}
		if !found {
			return h.buildInstead(ctx, t, cmd, role)
		}
		number = pull.Number
	}
	if cmd.Fix && role < forge.Write {
		return h.refuse(ctx, t, command.Spec{Name: command.Review, Role: forge.Write})
	}
	pull, found, err := h.GitHub.Pull(ctx, t.repo, number)
	switch {
	case err != nil:
		return fmt.Errorf("read pull request %d of %s: %w", number, t.repo, err)
	case !found:
		return h.answer(ctx, t, refused, unseenPullText(t.typed))
	case pull.State == "closed":
		return h.answer(ctx, t, refused, closedPullText(t.typed))
	case cmd.Fix && pull.Fork: // it is reviewed all the same
		if err := h.comment(ctx, t, h.marker("refused", "fix"), forkText(t.typed+" with "+code("--fix"))); err != nil {
			return err
		}
		cmd.Fix = false
	}
	open, tracking, err := h.queueReview(ctx, t, cmd, pull)
	switch {
	case err != nil:
		return err
	case open.ID != pipeline.ReviewID(t.delivery):
		return h.answer(ctx, t, refused, openReviewText(open.ID, reviewLink(open, pull), h.Chat.Prefix))
	case !t.ticket.Pull:
		return h.comment(ctx, t, h.runMarker(t), reviewElsewhereText(pull, tracking.URL))
	}
	return nil
}

// put reports whether the run is in the queue: it was put before a crash.
func (h *Handlers) put(ctx context.Context, run string) (bool, error) {
	mine, err := h.Jobs.List(ctx, queue.Query{IDs: []string{run}, Limit: 1})
	if err != nil {
		return false, fmt.Errorf("look for %s: %w", run, err)
	}
	return len(mine) > 0, nil
}

// buildInstead does what /build does, for whoever may build, and says so.
func (h *Handlers) buildInstead(ctx context.Context, t trigger, cmd command.Command, role forge.Role) error {
	if spec, _ := command.Of(command.Build); role < spec.Role {
		return h.refuse(ctx, t, command.Spec{Name: command.Review, Role: spec.Role})
	}
	if err := h.build(ctx, t, command.Command{Name: command.Build, Text: cmd.Text}); err != nil {
		return err
	}
	done, err := h.put(ctx, pipeline.RunID(t.delivery))
	if err != nil || !done {
		return err // what was there already is answered
	}
	return h.comment(ctx, t, h.marker("instead", pipeline.RunID(t.delivery)), builtInsteadText(t.typed, h.Chat.Prefix))
}

// queueReview puts the job of a review, or returns the one that is there of the
// same head. The tracking comment is one for all reviews of a pull request.
func (h *Handlers) queueReview(ctx context.Context, t trigger, cmd command.Command, pull forge.Pull) (open queue.Job, tracking forge.Comment, err error) {
	once := pipeline.ReviewOnce(t.repo, pull.Number, pull.HeadSHA)
	jobs, err := h.Jobs.List(ctx, queue.Query{Kinds: []string{pipeline.KindReview}, Once: once, Unfinished: true, Limit: 1})
	if err != nil {
		return open, tracking, fmt.Errorf("look for reviews of %s: %w", once, err)
	}
	if len(jobs) > 0 {
		return jobs[0], tracking, nil
	}
	allowed, err := h.allowed(ctx, t, cmd, pull)
	if err != nil {
		return open, tracking, err
	}
	run := pipeline.ReviewID(t.delivery)
	login := t.by.Login
	if t.typed == "" {
		login = "" // nobody asked
	}
	tracking, err = h.GitHub.EnsureComment(ctx, t.repo, forge.Comment{
		Ticket: pull.Number, Marker: h.marker("reviews", strconv.Itoa(pull.Number)), Body: reviewQueuedText(run, login, h.Chat.Prefix),
	})
	if err != nil {
		return open, tracking, fmt.Errorf("create the tracking comment of %s: %w", once, err)
	}
	kept := tracking
	kept.Body = "" // the review writes its own
	request := pipeline.ReviewRequest{
		Review: run, Repo: t.repo, Pull: pull.Number, Full: cmd.Full, Focus: cmd.Focus, Severity: cmd.Severity, Paths: cmd.Paths,
		Fix: cmd.Fix, Allowed: allowed, Trigger: t.on, Comment: kept, Marker: h.marker("review", run), Prefix: h.Chat.Prefix,
	}
	if t.typed != "" {
		request.By = t.by
	}
	payload, err := json.Marshal(request)
	if err != nil {
		return open, tracking, fmt.Errorf("encode the request: %w", err)
	}
	open, _, err = h.Jobs.Put(ctx, queue.Job{
		ID: run, Kind: pipeline.KindReview, Key: pipeline.ReviewKey(t.repo, pull.Number), Once: once,
		Tenant: strconv.FormatInt(t.repo.Installation, 10), Payload: payload,
	})
	if err != nil {
		return open, tracking, fmt.Errorf("queue the review of %s: %w", once, err)
	}
	return open, tracking, nil
}

// Mend queues a follow-up build of what a review left open, as its asker wanted. It
// is one for each review. Where another build works on the branch it is deferred,
// and that is said: ReviewAfter takes it up when that build has ended.
func (h *Handlers) Mend(ctx context.Context, r pipeline.ReviewRequest, open []finding.Entry) (deferred bool, err error) {
	t := trigger{
		delivery: r.Review, repo: r.Repo, by: r.By, typed: code(h.Chat.Prefix + "review --fix"),
		ticket: forge.Ticket{Number: r.Pull, Pull: true},
	}
	if done, err := h.put(ctx, pipeline.RunID(t.delivery)); done || err != nil {
		return false, err
	}
	f, ticket, refusal, err := h.followed(ctx, t)
	if err != nil {
		return false, err
	}
	if refusal != "" {
		return false, h.answer(ctx, t, refused, refusal)
	}
	f.Work, f.Findings = pipeline.Findings, open
	request, err := h.request(ctx, t, *f, ticket, r.Pull, "")
	if err != nil {
		return false, err
	}
	job, err := jobOf(*request)
	if err != nil {
		return false, err
	}
	put, _, err := h.Jobs.Put(ctx, job)
	if err != nil {
		return false, fmt.Errorf("queue the follow-up on %s: %w", t.key(), err)
	}
	if put.ID == job.ID {
		return false, nil
	}
	return true, h.comment(ctx, t, h.runMarker(t), mendLaterText(put.ID))
}

// ReviewAfter does what waited for a build to end. What it pushed to a pull request
// that had been reviewed is reviewed: by that the check is on the new head, and the
// ledger knows what is paid off. What a review with --fix left to be mended until
// then is mended: as the new review sees it, or, where nothing was pushed, as it is.
func (h *Handlers) ReviewAfter(ctx context.Context, at forge.Repo, r pipeline.Request, final report.Build) error {
	numbers := []int{r.Ticket.Number} // where the build is beside a person's pull request, that is the person's
	if r.Follow != nil {
		numbers = append(numbers, r.Follow.Pull.Number)
	} else if final.Pull != nil {
		numbers = append(numbers, final.Pull.Number)
	}
	slices.Sort(numbers)
	for _, number := range slices.Compact(numbers) {
		t := trigger{delivery: fmt.Sprintf("after %s on %d", r.Build, number), repo: at, ticket: forge.Ticket{Number: number, Pull: true}}
		if err := h.reviewAfter(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (h *Handlers) reviewAfter(ctx context.Context, t trigger) error {
	if done, err := h.put(ctx, pipeline.ReviewID(t.delivery)); done || err != nil {
		return err
	}
	last, reviewed, err := h.findReview(ctx, t, queue.Query{})
	if err != nil || !reviewed || !last.State.Finished() { // one at work sees for itself that the head moved
		return err
	}
	var asked pipeline.ReviewRequest
	if err := json.Unmarshal(last.Payload, &asked); err != nil {
		return fmt.Errorf("read the request of %s: %w", last.ID, err)
	}
	seen, err := h.Reviewed(ctx, last)
	if err != nil {
		return fmt.Errorf("read the account of %s: %w", last.ID, err)
	}
	pull, found, err := h.GitHub.Pull(ctx, t.repo, t.ticket.Number)
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", t.key(), err)
	case !found || pull.State != "open":
		return nil
	case pull.HeadSHA == seen.Head && seen.Deferred:
		_, err := h.Mend(ctx, asked, seen.Open())
		return err
	case pull.HeadSHA == seen.Head || seen.Head == "":
		return nil
	}
	cmd := command.Command{Name: command.Review}
	if seen.Deferred { // its asker asked
		cmd.Fix, t.by, t.typed = true, asked.By, code(h.Chat.Prefix+"review --fix")
	}
	_, _, err = h.queueReview(ctx, t, cmd, pull)
	return err
}

// reviewLink is where a review can be followed.
func reviewLink(review queue.Job, pull forge.Pull) string {
	var r pipeline.ReviewRequest
	if json.Unmarshal(review.Payload, &r) != nil || r.Comment.URL == "" {
		return pull.URL
	}
	return r.Comment.URL
}

// automatic reviews a pull request by itself where the repository wants that.
func (h *Handlers) automatic(ctx context.Context, t trigger, pull forge.Pull) error {
	wanted, err := h.reviewsByItself(ctx, t.repo)
	if err != nil || !wanted {
		return err
	}
	admitted, err := h.admit(ctx, t)
	if err != nil || admitted.Over {
		return err // a push is no command that waits for an answer
	}
	if done, err := h.put(ctx, pipeline.ReviewID(t.delivery)); done || err != nil {
		return err
	}
	_, _, err = h.queueReview(ctx, t, command.Command{Name: command.Review}, pull)
	return err
}

// reviewsByItself reports whether review.auto is on. A configuration that cannot
// be read is told of elsewhere, and starts nothing.
func (h *Handlers) reviewsByItself(ctx context.Context, r forge.Repo) (bool, error) {
	all, err := h.Settings(ctx, r)
	if _, wrong := errors.AsType[*config.Error](err); wrong {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the configuration of %s: %w", r, err)
	}
	return slices.ContainsFunc(all, func(s config.Setting) bool { return s.Key == "review.auto" && s.Value == "true" }), nil
}

// findReview finds the newest review of the pull request that fits the query, or
// the one that alone is meant.
func (h *Handlers) findReview(ctx context.Context, t trigger, q queue.Query) (queue.Job, bool, error) {
	if !t.ticket.Pull {
		return queue.Job{}, false, nil
	}
	q.Kinds, q.Key, q.Limit = []string{pipeline.KindReview}, pipeline.ReviewKey(t.repo, t.ticket.Number), 1
	if t.review != "" {
		q.IDs = []string{t.review}
	}
	jobs, err := h.Jobs.List(ctx, q)
	if err != nil {
		return queue.Job{}, false, fmt.Errorf("look for reviews of %s: %w", t.key(), err)
	}
	if len(jobs) == 0 {
		return h.reviewFormerly(ctx, t, q)
	}
	return jobs[0], true, nil
}

// reviewFormerly finds the newest review of a repository that had another name or
// owner when it was asked for.
func (h *Handlers) reviewFormerly(ctx context.Context, t trigger, q queue.Query) (queue.Job, bool, error) {
	q.Key, q.Limit = "", math.MaxInt32
	jobs, err := h.Jobs.List(ctx, q)
	if err != nil {
		return queue.Job{}, false, fmt.Errorf("look for reviews of %s under other names: %w", t.key(), err)
	}
	for _, j := range jobs {
		var r pipeline.ReviewRequest
		if json.Unmarshal(j.Payload, &r) == nil && r.Pull == t.ticket.Number && same(r.Repo, t.repo) {
			return j, true, nil
		}
	}
	return queue.Job{}, false, nil
}

// reviewBehind finds the review that wrote a check run, and makes the press a
// command on its pull request.
func (h *Handlers) reviewBehind(ctx context.Context, p press, run, button string) (t trigger, found bool, err error) {
	jobs, err := h.Jobs.List(ctx, queue.Query{IDs: []string{run}, Kinds: []string{pipeline.KindReview}, Limit: 1})
	if err != nil || len(jobs) == 0 {
		return t, false, err
	}
	var r pipeline.ReviewRequest
	if err := json.Unmarshal(jobs[0].Payload, &r); err != nil {
		return t, false, fmt.Errorf("read the request of %s: %w", run, err)
	}
	if !same(r.Repo, p.repo) {
		return t, false, nil
	}
	return trigger{
		delivery: p.delivery, repo: p.repo, ticket: forge.Ticket{Number: r.Pull, Pull: true}, by: p.by,
		review: run, typed: "The button " + code(button),
	}, true, nil
}
