package handlers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// reviews acts on what people say in reviews of the App's own pull requests. One
// review is one follow-up with all its threads: GitHub tells of the review and of
// each comment in it, in any order, and whichever is heard first takes the whole.
type reviews struct{ *Handlers }

// feedbackSpec is who may start a follow-up by a review.
var feedbackSpec = command.Spec{Name: "feedback", Role: forge.Write}

// Handles lists the events.
func (reviews) Handles() []string {
	return []string{"pull_request_review", "pull_request_review_comment"}
}

// Handle selects by action: what is new. Edits and dismissals start nothing.
func (h reviews) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	if err := h.misplaced(ctx, deliveryID, payload); err != nil {
		return err
	}
	e, t, ok, err := h.read(payload)
	if err != nil || !ok {
		return err
	}
	mine, err := h.Jobs.List(ctx, queue.Query{IDs: []string{pipeline.RunID(t.delivery)}, Limit: 1})
	if err != nil {
		return fmt.Errorf("look for the follow-up of %s: %w", deliveryID, err)
	}
	if len(mine) > 0 { // another event of the review was first
		return nil
	}
	return h.followUp(ctx, t, func(ctx context.Context) (*pipeline.Request, error) { return h.feedback(ctx, t, e) })
}

func (h reviews) asks(_ context.Context, _ string, payload []byte) (trigger, bool, error) {
	_, t, ok, err := h.read(payload)
	return t, ok, err
}

// reviewEvent is what both events have.
type reviewEvent struct {
	Action       string                     `json:"action"`
	Review       *github.PullRequestReview  `json:"review"`
	Comment      *github.PullRequestComment `json:"comment"`
	Pull         *github.PullRequest        `json:"pull_request"`
	Repo         *github.Repository         `json:"repository"`
	Installation *github.Installation       `json:"installation"`
	Sender       *github.User               `json:"sender"`
}

// isNew reports whether something was said. Edits and dismissals say nothing.
func (e reviewEvent) isNew() bool {
	return e.Comment != nil && e.Action == "created" || e.Review != nil && e.Action == "submitted"
}

// author and review are of what was said.
func (e reviewEvent) author() *github.User {
	if e.Comment != nil {
		return e.Comment.User
	}
	return e.Review.GetUser()
}

func (e reviewEvent) review() int64 {
	if e.Comment != nil {
		return e.Comment.GetPullRequestReviewID()
	}
	return e.Review.GetID()
}

// read returns what was said, if it is new, somebody's who is listened to, and on
// an open pull request of the App's.
func (h reviews) read(payload []byte) (e reviewEvent, t trigger, ok bool, err error) {
	if err := json.Unmarshal(payload, &e); err != nil {
		return e, t, false, queue.Never(fmt.Errorf("decode: %w", err))
	}
	if !e.isNew() || h.deaf(e.Sender) || h.deaf(e.author()) || e.review() == 0 {
		return e, t, false, nil
	}
	// Anybody can copy the marker, so it counts only where the App wrote it.
	number, marked := forge.MarkedTicket(e.Pull.GetBody(), h.AppID)
	if !marked || number == 0 || slugOf(e.Pull.GetUser()) != strings.ToLower(h.Slug) || !machine(e.Pull.GetUser()) || e.Pull.GetState() != "open" {
		return e, t, false, nil
	}
	// The run is the review's, by whichever event it is heard of.
	once := fmt.Sprintf("%s#%d/review/%d", e.Repo.GetFullName(), e.Pull.GetNumber(), e.review())
	t, err = triggerOf(once, e.Repo, e.Installation, &github.Issue{
		Number: e.Pull.Number, Title: e.Pull.Title, Body: e.Pull.Body, User: e.Pull.User, State: e.Pull.State, HTMLURL: e.Pull.HTMLURL,
		PullRequestLinks: &github.PullRequestLinks{},
	}, e.author())
	if err != nil {
		return e, t, false, err
	}
	t.typed, t.build = "What was said in a review", threadKey(t.repo, number)
	if e.Comment != nil {
		t.on.Remark, t.ticket.Taken = e.Comment.GetID(), e.Comment.GetCreatedAt().Time
	} else {
		t.ticket.Taken = e.Review.GetSubmittedAt().Time
	}
	return e, t, true, nil
}

// feedback is the follow-up that a review asks for, or nothing.
func (h reviews) feedback(ctx context.Context, t trigger, e reviewEvent) (*pipeline.Request, error) {
	review, found, err := h.GitHub.Review(ctx, t.repo, t.ticket.Number, e.review())
	if err != nil {
		return nil, fmt.Errorf("read a review of %s: %w", t.key(), err)
	}
	if !found || review.State == "dismissed" || review.By.ID != t.by.ID {
		return nil, nil
	}
	text, threads := h.asked(review)
	if text == "" && len(threads) == 0 {
		return nil, nil
	}
	if allowed, err := h.heard(ctx, t, e, text); err != nil || !allowed {
		return nil, err
	}
	pull, found, err := h.GitHub.Pull(ctx, t.repo, t.ticket.Number)
	if err != nil || !found || pull.State != "open" || pull.Ticket == 0 {
		return nil, err
	}
	// The reactions go to what was said. GitHub has none for a review as a whole:
	// the pull request stands in for one without remarks.
	t.on = forge.Subject{Ticket: t.ticket.Number}
	on := []forge.Subject{t.on}
	if len(threads) > 0 {
		t.on, on = forge.Subject{}, nil
		for _, thread := range threads {
			on = append(on, forge.Subject{Ticket: t.ticket.Number, Remark: thread.Remarks[len(thread.Remarks)-1].ID})
		}
	}
	for _, subject := range on {
		if err := h.GitHub.React(ctx, t.repo, subject, seen); err != nil {
			return nil, fmt.Errorf("react on %s: %w", t.key(), err)
		}
	}
	f := pipeline.Follow{Pull: pull, Branch: pull.Head, Work: pipeline.Feedback, Threads: threads}
	return h.request(ctx, t, f, pull.Ticket, pull.Number, text)
}

// heard reports whether the reviewer may start a follow-up. Others are told so,
// once in each thread: where the remark is, or on the pull request for what was
// said beside all remarks.
func (h reviews) heard(ctx context.Context, t trigger, e reviewEvent, text string) (bool, error) {
	role, err := h.role(ctx, t)
	if err != nil {
		return false, err
	}
	if role >= feedbackSpec.Role {
		admitted, err := h.admit(ctx, t)
		if err == nil && admitted.Over {
			err = h.turnAway(ctx, t, admitted)
		}
		return err == nil && !admitted.Over, err
	}
	if e.Comment == nil {
		if text == "" {
			return false, nil // each remark is told of by an event of its own
		}
		return false, h.refuse(ctx, t, feedbackSpec)
	}
	if err := h.react(ctx, t, refused); err != nil {
		return false, err
	}
	thread := e.Comment.GetInReplyTo()
	if thread == 0 {
		thread = e.Comment.GetID()
	}
	_, err = h.GitHub.EnsureAnswer(ctx, t.repo, forge.Answer{
		Pull: t.ticket.Number, Thread: thread, Marker: h.marker("refused", "feedback"), Body: refusedText(t.typed, feedbackSpec.Role),
	})
	if err != nil {
		return false, fmt.Errorf("answer in a thread of %s: %w", t.key(), err)
	}
	return false, nil
}

// asked is what a review asks for: its text, unless it approves, and its threads
// up to its own last remark. Of the others in a thread only the App's own answers
// stay: nobody was asked whether theirs count. What is a command, or comes from
// another Slipway, asks for nothing.
func (h *Handlers) asked(review forge.Review) (text string, threads []forge.Thread) {
	if review.State != "approved" && h.isFeedback(review.By, review.Body) {
		text = strings.TrimSpace(review.Body)
	}
	for _, t := range review.Threads {
		last := -1
		kept := slices.DeleteFunc(slices.Clone(t.Remarks), func(r forge.Remark) bool {
			ours := r.By.Bot && strings.EqualFold(r.By.Login, h.Slug+"[bot]")
			return !ours && (r.By.ID != review.By.ID || !h.isFeedback(r.By, r.Body))
		})
		for i, r := range kept {
			if r.Review == review.ID && r.By.ID == review.By.ID {
				last = i
			}
		}
		if last >= 0 {
			t.Remarks = kept[:last+1]
			threads = append(threads, t)
		}
	}
	return text, threads
}

// isFeedback reports whether a text asks for a change.
func (h *Handlers) isFeedback(by forge.Person, text string) bool {
	if strings.TrimSpace(text) == "" || by.Bot && strings.Contains(text, markerStart) {
		return false
	}
	_, typed, _ := command.Parse(text, h.Chat.Prefix)
	return !typed
}
