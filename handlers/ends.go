package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// What a build or a review is about can go while it is open: the ticket or pull
// request is closed, the App uninstalled, the repository taken from it. Events say
// so in any order, days late, or not at all. They are therefore no more than a
// reason to look: what GitHub says now decides, and Reconcile looks without a reason.

// Reconcile cancels the open builds and reviews whose ticket, pull request,
// repository or installation is gone. A build that a person resumes after that goes
// on: it is cancelled once for each time that something goes.
func (h *Handlers) Reconcile(ctx context.Context) error {
	return h.reconcile(ctx, forge.Person{}, func(about) bool { return true })
}

// about is what an open run is for. Number is the thread's.
type about struct {
	repo   forge.Repo
	number int
}

// reconcile is Reconcile for some runs, after somebody did something.
func (h *Handlers) reconcile(ctx context.Context, by forge.Person, some func(about) bool) error {
	open, err := h.Jobs.List(ctx, queue.Query{Kinds: append(pipeline.Kinds(), pipeline.KindReview), Unfinished: true, Limit: math.MaxInt32})
	if err != nil {
		return fmt.Errorf("look for what is open: %w", err)
	}
	var failed []error
	for _, j := range open {
		failed = append(failed, h.endIfGone(ctx, j, by, some))
	}
	return errors.Join(failed...)
}

// endIfGone cancels one run, if it is one of some and there is nothing left to do it for.
func (h *Handlers) endIfGone(ctx context.Context, j queue.Job, by forge.Person, some func(about) bool) error {
	look := h.buildGone
	if j.Kind == pipeline.KindReview {
		look = h.reviewGone
	}
	gone, err := look(ctx, j, some)
	if err != nil || gone.Why == "" {
		return err
	}
	body, err := json.Marshal(pipeline.Said{By: by, Text: gone.Why})
	if err != nil {
		return fmt.Errorf("encode the signal: %w", err)
	}
	once := fmt.Sprintf("gone/%s/%d", gone.Why, gone.Since.Unix())
	err = h.Jobs.Send(ctx, j.ID, queue.Signal{ID: once, Kind: pipeline.CancelSignal, Body: body})
	if err != nil && !errors.Is(err, queue.ErrFinished) { // it ended since
		return fmt.Errorf("cancel %s: %w", j.ID, err)
	}
	return nil
}

// buildGone says why there is nothing left to build for.
func (h *Handlers) buildGone(ctx context.Context, j queue.Job, some func(about) bool) (forge.Gone, error) {
	var r pipeline.Request
	if err := json.Unmarshal(j.Payload, &r); err != nil {
		return forge.Gone{}, fmt.Errorf("read the request of %s: %w", j.ID, err)
	}
	if r.Contender != nil || !some(about{r.Repo, r.Ticket.Number}) { // a comparison hands on to its own
		return forge.Gone{}, nil
	}
	account, err := h.account(ctx, j)
	if err != nil {
		return forge.Gone{}, err
	}
	pull := 0
	if r.Follow != nil {
		pull = r.Follow.Pull.Number
	}
	if account.Pull != nil {
		pull = account.Pull.Number
	}
	at, err := h.Home(ctx, r)
	if err != nil {
		return forge.Gone{}, fmt.Errorf("see where %s is: %w", j.ID, err)
	}
	return h.gone(ctx, j, at, r.Ticket, pull)
}

// reviewGone says why there is nothing left to review.
func (h *Handlers) reviewGone(ctx context.Context, j queue.Job, some func(about) bool) (forge.Gone, error) {
	var r pipeline.ReviewRequest
	if err := json.Unmarshal(j.Payload, &r); err != nil {
		return forge.Gone{}, fmt.Errorf("read the request of %s: %w", j.ID, err)
	}
	if !some(about{r.Repo, r.Pull}) {
		return forge.Gone{}, nil
	}
	return h.gone(ctx, j, r.Repo, forge.Ticket{}, r.Pull)
}

func (h *Handlers) gone(ctx context.Context, j queue.Job, at forge.Repo, t forge.Ticket, pull int) (forge.Gone, error) {
	gone, err := h.GitHub.Gone(ctx, at, t, pull)
	if err != nil {
		return gone, fmt.Errorf("see whether %s is still wanted: %w", j.ID, err)
	}
	return gone, nil
}

// closedThread looks at what is open for a ticket or pull request that was closed.
func (h *Handlers) closedThread(ctx context.Context, r forge.Repo, number int, by forge.Person) error {
	return h.reconcile(ctx, by, func(a about) bool { return same(a.repo, r) && a.number == number })
}

// closed looks at the builds of a ticket that was closed.
func (h *Handlers) closed(ctx context.Context, e github.IssuesEvent) error {
	owner, name, _ := strings.Cut(e.GetRepo().GetFullName(), "/")
	return h.closedThread(ctx, forge.Repo{Owner: owner, Name: name, ID: e.GetRepo().GetID()}, e.GetIssue().GetNumber(), person(e.Sender))
}

// access looks at what is open after something happened to an installation or to a
// repository.
type access struct{ *Handlers }

// Handles lists the events.
func (access) Handles() []string {
	return []string{"installation", "installation_repositories", "repository"}
}

// Handle looks at what is open in the repository, or in all of the installation.
// Who was given more access, or renamed nothing, ends nothing.
func (h access) Handle(ctx context.Context, _, _ string, payload []byte) error {
	var e struct {
		Repository   *github.Repository   `json:"repository"`
		Installation *github.Installation `json:"installation"`
		Sender       *github.User         `json:"sender"`
	}
	if err := json.Unmarshal(payload, &e); err != nil {
		return queue.Never(fmt.Errorf("decode: %w", err))
	}
	return h.reconcile(ctx, person(e.Sender), func(a about) bool {
		if e.Repository != nil {
			return a.repo.ID == e.Repository.GetID()
		}
		return a.repo.Installation == e.Installation.GetID()
	})
}

func (access) asks(context.Context, string, []byte) (trigger, bool, error) {
	return trigger{}, false, nil
}

func person(u *github.User) forge.Person { return forge.Person{Login: u.GetLogin(), ID: u.GetID()} }
