package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// The reactions that people see on what they typed.
const (
	seen    = "eyes"
	handled = "rocket"
	refused = "confused"
)

// run asks for the sender's role and does what was typed, or refuses visibly.
func (h *Handlers) run(ctx context.Context, t trigger, cmd command.Command) error {
	spec, ok := command.Of(cmd.Name)
	if !ok {
		return fmt.Errorf("command %q has no role", cmd.Name)
	}
	if cmd.Name == command.Fix {
		return h.followUp(ctx, t, func(ctx context.Context) (*pipeline.Request, error) { return h.fix(ctx, t, cmd) })
	}
	admitted, err := h.admit(ctx, t)
	if err != nil {
		return err
	}
	if admitted.Over && cmd.Name != command.Cancel { // what spends can always be stopped by whoever may
		return h.turnAway(ctx, t, admitted)
	}
	role, err := h.role(ctx, t)
	if err != nil {
		return err
	}
	if t.build, err = h.buildOf(ctx, t); err != nil {
		return err
	}
	allowed := role >= spec.Role
	if !allowed && cmd.Name == command.Cancel {
		if allowed, err = h.started(ctx, t); err != nil {
			return err
		}
	}
	switch {
	case !allowed && admitted.Over:
		return h.turnAway(ctx, t, admitted)
	case !allowed:
		return h.refuse(ctx, t, spec)
	}
	if err := h.react(ctx, t, seen); err != nil {
		return err
	}
	switch cmd.Name {
	case command.Build:
		return h.build(ctx, t, cmd)
	case command.Review:
		return h.review(ctx, t, cmd, role)
	case command.Help:
		return h.answer(ctx, t, handled, helpText(role, h.Chat.Prefix, h.Label, h.Look))
	case command.Config:
		return h.settings(ctx, t)
	case command.Status:
		return h.status(ctx, t)
	case command.Approve:
		if t.ticket.Pull && t.build == "" { // there is no plan to approve
			return h.allow(ctx, t, cmd)
		}
	}
	return h.say(ctx, t, cmd)
}

// role asks GitHub. An answer of another shape than a role is none. GitHub has
// no roles of bots: those that are heard at all count as if they had write.
func (h *Handlers) role(ctx context.Context, t trigger) (forge.Role, error) {
	if t.by.Bot {
		return forge.Write, nil
	}
	role, err := h.GitHub.Role(ctx, t.repo, t.by)
	if err != nil {
		return forge.None, fmt.Errorf("ask for the role of %s in %s: %w", t.by.Login, t.repo, err)
	}
	return role, nil
}

// permitted reports whether a command may be done; if not, that is answered.
func (h *Handlers) permitted(ctx context.Context, t trigger, spec command.Spec) (bool, error) {
	role, heard, err := h.standing(ctx, t)
	if err != nil || !heard {
		return false, err
	}
	if role < spec.Role {
		return false, h.refuse(ctx, t, spec)
	}
	return true, nil
}

// standing is the role of who asks. Who has asked too often is turned away, and not
// heard.
func (h *Handlers) standing(ctx context.Context, t trigger) (role forge.Role, heard bool, err error) {
	admitted, err := h.admit(ctx, t)
	if err != nil {
		return role, false, err
	}
	if admitted.Over {
		return role, false, h.turnAway(ctx, t, admitted)
	}
	role, err = h.role(ctx, t)
	return role, err == nil, err
}

// refuse says which role is needed, once per thread and command.
func (h *Handlers) refuse(ctx context.Context, t trigger, spec command.Spec) error {
	if err := h.comment(ctx, t, h.marker("refused", string(spec.Name)), refusedText(t.typed, spec.Role)); err != nil {
		return err
	}
	return h.react(ctx, t, refused)
}

// correct answers a line that was meant for us and that we cannot read. People
// without a say in the repository get one such answer per thread, so that
// nobody can make the App write at will.
func (h *Handlers) correct(ctx context.Context, t trigger, wrong error) error {
	e, ok := errors.AsType[*command.Error](wrong)
	if !ok {
		return wrong
	}
	role, heard, err := h.standing(ctx, t)
	if err != nil || !heard {
		return err
	}
	if role >= forge.Triage {
		return h.answer(ctx, t, refused, wrongText(e, h.Chat.Prefix))
	}
	if err := h.comment(ctx, t, h.marker("refused", "unknown"), unreadableText(h.Chat.Prefix)); err != nil {
		return err
	}
	return h.react(ctx, t, refused)
}

// status tells how the newest build of the thread stands, and the newest review of
// the pull request.
func (h *Handlers) status(ctx context.Context, t trigger) error {
	var parts []string
	newest, found, err := h.newestBuild(ctx, t)
	if err != nil {
		return err
	}
	if found {
		account, err := h.account(ctx, newest)
		if err != nil {
			return err
		}
		parts = append(parts, report.Status(account))
	}
	look, reviewed, err := h.findReview(ctx, t, queue.Query{})
	if err != nil {
		return err
	}
	if reviewed {
		account, err := h.Reviewed(ctx, look)
		if err != nil {
			return fmt.Errorf("read the account of %s: %w", look.ID, err)
		}
		parts = append(parts, report.ReviewStatus(account))
	}
	if len(parts) == 0 {
		return h.answer(ctx, t, refused, h.noBuildText(t))
	}
	return h.answer(ctx, t, handled, strings.Join(parts, "\n\n"))
}

// settings prints the configuration that a build would get now.
func (h *Handlers) settings(ctx context.Context, t trigger) error {
	all, err := h.Settings(ctx, t.repo)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		return h.answer(ctx, t, refused, brokenText(wrong))
	}
	if err != nil {
		return fmt.Errorf("read the configuration of %s: %w", t.repo, err)
	}
	return h.answer(ctx, t, handled, settingsText(all))
}

func (h *Handlers) account(ctx context.Context, job queue.Job) (report.Build, error) {
	b, err := h.Account(ctx, job)
	if err != nil {
		return b, fmt.Errorf("read the account of %s: %w", job.ID, err)
	}
	b.Prefix = h.Chat.Prefix // what is typed now, whenever the build began
	return b, nil
}

// buildOf is the key of the ticket whose build a command on this thread means:
// the thread itself, or the ticket of one of our own pull requests. The event
// has the pull request's body; where it does not, GitHub is asked.
func (h *Handlers) buildOf(ctx context.Context, t trigger) (string, error) {
	if !t.ticket.Pull {
		return t.key(), nil
	}
	// Anybody can copy the marker, so it counts only where the App wrote it.
	if t.ticket.Author != "" && !strings.EqualFold(t.ticket.Author, h.Slug+"[bot]") {
		return "", nil
	}
	number, found := 0, false
	if t.ticket.Author != "" && t.ticket.Body != "" {
		number, found = forge.MarkedTicket(t.ticket.Body, h.AppID)
	} else {
		var err error
		if number, found, err = h.GitHub.PullTicket(ctx, t.repo, t.ticket.Number); err != nil {
			return "", fmt.Errorf("look for the ticket of %s: %w", t.key(), err)
		}
	}
	if !found {
		return "", nil
	}
	return threadKey(t.repo, number), nil
}

// started reports whether the sender started what is open.
func (h *Handlers) started(ctx context.Context, t trigger) (bool, error) {
	job, open, err := h.openRun(ctx, t)
	if err != nil || !open {
		return false, err
	}
	var r struct {
		By forge.Person `json:"by"`
	}
	if err := json.Unmarshal(job.Payload, &r); err != nil {
		return false, fmt.Errorf("read the request of %s: %w", job.ID, err)
	}
	return r.By.ID == t.by.ID, nil
}

// openRun is what a cancel is for first: the unfinished build, else the unfinished
// review.
func (h *Handlers) openRun(ctx context.Context, t trigger) (job queue.Job, found bool, err error) {
	if t.review == "" {
		if job, found, err = h.openBuild(ctx, t); found || err != nil {
			return job, found, err
		}
	}
	return h.findReview(ctx, t, queue.Query{Unfinished: true})
}

// openBuild finds the unfinished build of the thread.
func (h *Handlers) openBuild(ctx context.Context, t trigger) (queue.Job, bool, error) {
	return h.find(ctx, t, queue.Query{Once: t.build, Unfinished: true})
}

// newestBuild finds the newest build of the thread, open or ended.
func (h *Handlers) newestBuild(ctx context.Context, t trigger) (queue.Job, bool, error) {
	return h.find(ctx, t, queue.Query{Key: t.build})
}

func (h *Handlers) find(ctx context.Context, t trigger, q queue.Query) (queue.Job, bool, error) {
	if t.build == "" { // which would select any build
		return queue.Job{}, false, nil
	}
	q.Kinds, q.Limit = pipeline.Kinds(), 1
	jobs, err := h.Jobs.List(ctx, q)
	if err != nil {
		return queue.Job{}, false, fmt.Errorf("look for builds of %s: %w", t.build, err)
	}
	if len(jobs) == 0 {
		return h.formerly(ctx, t, q)
	}
	return jobs[0], true, nil
}

// formerly finds what the thread's key does not: the newest build of a repository
// that had another name or owner when it was asked for.
func (h *Handlers) formerly(ctx context.Context, t trigger, q queue.Query) (queue.Job, bool, error) {
	q.Once, q.Key, q.Limit = "", "", math.MaxInt32
	jobs, err := h.Jobs.List(ctx, q)
	if err != nil {
		return queue.Job{}, false, fmt.Errorf("look for builds of %s under other names: %w", t.build, err)
	}
	for _, j := range jobs {
		var r pipeline.Request
		if json.Unmarshal(j.Payload, &r) == nil && r.Contender == nil && r.Repo.ID != 0 && r.Repo.ID == t.repo.ID && threadKey(t.repo, r.Ticket.Number) == t.build {
			return j, true, nil
		}
	}
	return queue.Job{}, false, nil
}

// answer writes the one answer of a delivery and closes its reaction.
func (h *Handlers) answer(ctx context.Context, t trigger, reaction, body string) error {
	if err := h.comment(ctx, t, h.runMarker(t), body); err != nil {
		return err
	}
	return h.react(ctx, t, reaction)
}

func (h *Handlers) comment(ctx context.Context, t trigger, marker, body string) error {
	_, err := h.GitHub.EnsureComment(ctx, t.repo, forge.Comment{Ticket: t.ticket.Number, Marker: marker, Body: body})
	if err != nil {
		return fmt.Errorf("answer on %s: %w", t.key(), err)
	}
	return nil
}

func (h *Handlers) react(ctx context.Context, t trigger, content string) error {
	if t.on == (forge.Subject{}) {
		return nil
	}
	if err := h.GitHub.React(ctx, t.repo, t.on, content); err != nil {
		return fmt.Errorf("react with %s on %s: %w", content, t.key(), err)
	}
	return nil
}

// runMarker hides in the one comment that belongs to the delivery: a build's
// tracking comment, or an answer.
func (h *Handlers) runMarker(t trigger) string { return h.marker("run", pipeline.RunID(t.delivery)) }

func (h *Handlers) marker(key, value string) string {
	return fmt.Sprintf("%s%d %s=%s -->", markerStart, h.AppID, key, value)
}

// markerStart begins what every Slipway hides in its comments.
const markerStart = "<!-- slipway app="
