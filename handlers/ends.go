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

// What a build is about can go while it is open: the ticket is closed, the App
// uninstalled, the repository taken from it. Events say so in any order, days
// late, or not at all. They are therefore no more than a reason to look: what
// GitHub says now decides, and Reconcile looks without a reason.

// Reconcile cancels the open builds whose ticket, pull request, repository or
// installation is gone. A build that a person resumes after that goes on: it is
// cancelled once for each time that something goes.
func (h *Handlers) Reconcile(ctx context.Context) error {
	return h.reconcile(ctx, forge.Person{}, func(pipeline.Request) bool { return true })
}

// reconcile is Reconcile for some builds, after somebody did something.
func (h *Handlers) reconcile(ctx context.Context, by forge.Person, some func(pipeline.Request) bool) error {
	open, err := h.Jobs.List(ctx, queue.Query{Kinds: []string{pipeline.KindBuild}, Unfinished: true, Limit: math.MaxInt32})
	if err != nil {
		return fmt.Errorf("look for open builds: %w", err)
	}
	var failed []error
	for _, j := range open {
		var r pipeline.Request
		if err := json.Unmarshal(j.Payload, &r); err != nil {
			failed = append(failed, fmt.Errorf("read the request of %s: %w", j.ID, err))
		} else if r.Contender == nil && some(r) { // a comparison hands on to its own
			failed = append(failed, h.endIfGone(ctx, j, r, by))
		}
	}
	return errors.Join(failed...)
}

// endIfGone cancels one build if there is nothing left to build for.
func (h *Handlers) endIfGone(ctx context.Context, j queue.Job, r pipeline.Request, by forge.Person) error {
	account, err := h.account(ctx, j)
	if err != nil {
		return err
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
		return fmt.Errorf("see where %s is: %w", j.ID, err)
	}
	gone, err := h.GitHub.Gone(ctx, at, r.Ticket, pull)
	if err != nil {
		return fmt.Errorf("see whether %s is still wanted: %w", j.ID, err)
	}
	if gone.Why == "" {
		return nil
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

// closed looks at the builds of a ticket that was closed.
func (h *Handlers) closed(ctx context.Context, e github.IssuesEvent) error {
	owner, name, _ := strings.Cut(e.GetRepo().GetFullName(), "/")
	at := forge.Repo{Owner: owner, Name: name, ID: e.GetRepo().GetID()}
	return h.reconcile(ctx, person(e.Sender), func(r pipeline.Request) bool {
		return same(r.Repo, at) && r.Ticket.Number == e.GetIssue().GetNumber()
	})
}

// access looks at builds after something happened to an installation or to a
// repository.
type access struct{ *Handlers }

// Handles lists the events.
func (access) Handles() []string {
	return []string{"installation", "installation_repositories", "repository"}
}

// Handle looks at the builds of the repository, or of all in the installation.
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
	return h.reconcile(ctx, person(e.Sender), func(r pipeline.Request) bool {
		if e.Repository != nil {
			return r.Repo.ID == e.Repository.GetID()
		}
		return r.Repo.Installation == e.Installation.GetID()
	})
}

func (access) asks(context.Context, string, []byte) (trigger, bool, error) {
	return trigger{}, false, nil
}

func person(u *github.User) forge.Person { return forge.Person{Login: u.GetLogin(), ID: u.GetID()} }
