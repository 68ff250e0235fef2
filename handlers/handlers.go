// Package handlers turns GitHub's events into work: decode, select by action,
// ask who may, make one call. One file per event; what a command does is in
// build.go, say.go and commands.go, whichever event it came by.
//
// A delivery may be handled twice, because a worker can die after any step.
// Every step is therefore one that changes nothing the second time: the run's
// id and the comment's marker derive from the delivery's GUID, a reaction or a
// label is what it is, and a job with a known id is not put again. What a build
// is told changes the build, so that the second time it would be decided
// otherwise: that decision is recorded before it is acted on.
//
// Authority is asked of GitHub for every command and fails closed: when GitHub
// does not answer, nothing is done and the error goes back to the queue.
package handlers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-github/v60/github"
	"github.com/palantir/go-githubapp/githubapp"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// A Delivery is one webhook as GitHub sent it.
type Delivery struct {
	ID      string // the GUID; a redelivery has the same
	Event   string // X-GitHub-Event
	Payload []byte
}

// Jobs is what the handlers need of the queue.
type Jobs interface {
	Put(ctx context.Context, j queue.Job) (open queue.Job, added bool, err error)
	Send(ctx context.Context, jobID string, s queue.Signal) error
	List(ctx context.Context, q queue.Query) ([]queue.Job, error)
	Take(ctx context.Context, bucket string, n int64, limit queue.Limit) (wait time.Duration, err error)
}

// GitHub is what the handlers need of GitHub.
type GitHub interface {
	// Role is what the person may do in the repository, by the permission API.
	Role(ctx context.Context, r forge.Repo, who forge.Person) (forge.Role, error)
	// React puts a reaction on a comment, remark or ticket.
	React(ctx context.Context, r forge.Repo, on forge.Subject, content string) error
	// EnsureComment makes sure that one comment carries the marker, with this body.
	EnsureComment(ctx context.Context, r forge.Repo, c forge.Comment) (forge.Comment, error)
	// Unlabel removes a label; one that is not there is removed already.
	Unlabel(ctx context.Context, r forge.Repo, ticket int, label string) error
	// Checks reads back the App's own check runs on a commit, oldest first.
	Checks(ctx context.Context, r forge.Repo, sha string) ([]forge.Check, error)
	// EnsureCheck makes sure that one check run has the name and external id.
	EnsureCheck(ctx context.Context, r forge.Repo, c forge.Check) (forge.Check, error)
	// RestateCheck writes once more how a check run has ended, which is what
	// GitHub waits for where it was asked for again.
	RestateCheck(ctx context.Context, r forge.Repo, c forge.Check) error
	// OpenPull finds the App's own open pull request for a ticket.
	OpenPull(ctx context.Context, r forge.Repo, ticket int) (pull forge.Pull, found bool, err error)
	// Pull reads a pull request; it is not found where the number is an issue's.
	Pull(ctx context.Context, r forge.Repo, number int) (pull forge.Pull, found bool, err error)
	// Review reads a review of a pull request, with the threads that it is about.
	Review(ctx context.Context, r forge.Repo, pull int, id int64) (review forge.Review, found bool, err error)
	// EnsureAnswer makes sure that one comment in a thread carries the marker.
	EnsureAnswer(ctx context.Context, r forge.Repo, a forge.Answer) (forge.Answer, error)
	// PullTicket finds the ticket of one of the App's own pull requests.
	PullTicket(ctx context.Context, r forge.Repo, pull int) (ticket int, found bool, err error)
	// Gone says why what is done for a ticket, a pull request or both is for
	// nothing as things are now; its zero value is that it is not. 0 is none.
	Gone(ctx context.Context, r forge.Repo, t forge.Ticket, pull int) (forge.Gone, error)
}

// Options configure the handlers.
type Options struct {
	Jobs   Jobs
	GitHub GitHub
	// Account tells where a build stands now.
	Account func(ctx context.Context, build queue.Job) (report.Build, error)
	// Reviewed tells where a review stands now.
	Reviewed func(ctx context.Context, review queue.Job) (report.Review, error)
	// Home is the repository of a build as it is reached now.
	Home func(ctx context.Context, r pipeline.Request) (forge.Repo, error)
	// Approval says why the plan that waits cannot be approved by that hash, in
	// plain words, or nothing.
	Approval func(ctx context.Context, build queue.Job, hash string) (refusal string, err error)
	// Settings are the values that count in a repository now. A *config.Error
	// says what is wrong with its file.
	Settings func(ctx context.Context, r forge.Repo) ([]config.Setting, error)
	// Proposed judges each configuration file that a pull request changes, at the
	// commit; 0 is one that is known to change them.
	Proposed func(ctx context.Context, r forge.Repo, pull int, sha string) ([]Proposal, error)
	// Findings are what the last review of a pull request left open, in the order
	// in which they were shown; none where nobody reviewed it.
	Findings func(ctx context.Context, r forge.Repo, pull forge.Pull) ([]finding.Entry, error)
	// Decide returns what decide decided the first time that the delivery at
	// hand got to the choice of that name, also if the worker died since.
	Decide func(ctx context.Context, choice string, decide func(context.Context) (Decision, error)) (Decision, error)

	AppID int64
	Slug  string      // the App's name in its own comments' author, slug[bot]
	Label string      // that acts as /build; "slipway:build" when empty
	Look  string      // the label that acts as /review; "slipway:review" when empty
	Chat  config.Chat // an empty prefix is "/"
}

// Handlers handles the deliveries of an App.
type Handlers struct {
	Options
	events map[string]event
}

// An event is one of GitHub's. asks reads a delivery of it: who typed what, or
// that nothing was.
type event interface {
	githubapp.EventHandler
	asks(ctx context.Context, deliveryID string, payload []byte) (t trigger, ok bool, err error)
}

// New returns the handlers, or says which option is missing.
func New(o Options) (*Handlers, error) {
	switch {
	case o.Jobs == nil || o.GitHub == nil || o.Account == nil || o.Reviewed == nil || o.Home == nil || o.Approval == nil || o.Settings == nil || o.Proposed == nil ||
		o.Findings == nil || o.Decide == nil:
		return nil, errors.New("handlers: Jobs, GitHub, Account, Reviewed, Home, Approval, Settings, Proposed, Findings and Decide are needed")
	case o.AppID == 0 || o.Slug == "":
		return nil, errors.New("handlers: the App's id and slug are needed to leave its own comments alone")
	}
	if slices.ContainsFunc(o.Chat.Bots, func(name string) bool { return strings.EqualFold(name, o.Slug) }) {
		return nil, fmt.Errorf("handlers: chat.bots: %s is this App itself, which would answer itself", o.Slug)
	}
	if o.Chat.Prefix == "" {
		o.Chat.Prefix = "/"
	}
	if o.Label == "" {
		o.Label = "slipway:build"
	}
	if o.Look == "" {
		o.Look = "slipway:review"
	}
	h := &Handlers{Options: o, events: map[string]event{}}
	for _, e := range []event{issues{h}, issueComment{h}, pullRequest{h}, reviews{h}, checkRun{h}, checkSuite{h}, access{h}} {
		for _, name := range e.Handles() {
			h.events[name] = e
		}
	}
	return h, nil
}

// Events lists the events that are acted on.
func (h *Handlers) Events() []string { return slices.Sorted(maps.Keys(h.events)) }

// Handle does what a delivery asks for. An event or action that means nothing
// to us is no error.
func (h *Handlers) Handle(ctx context.Context, d Delivery) error {
	e, ok := h.events[d.Event]
	if !ok {
		return nil
	}
	if err := e.Handle(ctx, d.Event, d.ID, d.Payload); err != nil {
		return fmt.Errorf("handle %s %s: %w", d.Event, d.ID, err)
	}
	return nil
}

// GiveUp says on the thread that a delivery was not handled, and why nobody
// tries any more. One that did queue its build is the build's.
func (h *Handlers) GiveUp(ctx context.Context, d Delivery, cause error) error {
	e, ok := h.events[d.Event]
	if !ok {
		return nil
	}
	t, ok, err := e.asks(ctx, d.ID, d.Payload)
	if err != nil || !ok {
		return err
	}
	mine, err := h.Jobs.List(ctx, queue.Query{IDs: []string{pipeline.RunID(t.delivery), pipeline.ReviewID(t.delivery)}, Limit: 1})
	if err != nil {
		return fmt.Errorf("look for the build of %s: %w", d.ID, err)
	}
	if len(mine) > 0 {
		return nil
	}
	role, err := h.role(ctx, t)
	if err != nil || role < forge.Triage {
		return err // of people without a say nothing was lost
	}
	return h.answer(ctx, t, refused, givenUpText(t.typed, cause))
}

// A trigger is one thing that a person did on a thread.
type trigger struct {
	delivery string // what the run's id is made of: the GUID, or the review
	repo     forge.Repo
	ticket   forge.Ticket
	by       forge.Person
	build    string        // key of the ticket whose build is meant; empty on a pull request that is none of ours
	review   string        // id of the review that alone is meant; empty: the thread's
	on       forge.Subject // what gets the reactions; nothing where a button was pressed
	typed    string        // how to speak of it: `/build`, or the label
}

// key names the thread in the queue.
func (t trigger) key() string { return threadKey(t.repo, t.ticket.Number) }

// threadKey is owner/repo#n.
func threadKey(r forge.Repo, number int) string { return r.String() + "#" + strconv.Itoa(number) }

// triggerOf reads what events of a thread have in common. What is missing now
// will be missing the next time.
func triggerOf(delivery string, repo *github.Repository, install *github.Installation, issue *github.Issue, sender *github.User) (trigger, error) {
	r, err := repoOf(repo, install)
	if err != nil {
		return trigger{}, err
	}
	t := trigger{
		delivery: delivery,
		repo:     r,
		ticket:   ticketOf(issue),
		by:       forge.Person{Login: sender.GetLogin(), ID: sender.GetID(), Bot: machine(sender)},
		on:       forge.Subject{Ticket: issue.GetNumber()},
	}
	switch {
	case t.ticket.Number == 0:
		return trigger{}, queue.Never(errors.New("issue.number is missing"))
	case t.by.Login == "" || t.by.ID == 0:
		return trigger{}, queue.Never(errors.New("sender: login and id are missing"))
	}
	return t, nil
}

// same reports whether two values name one repository, which may have had another
// name or owner in between. Its id stays; what has none is known by its name.
func same(a, b forge.Repo) bool {
	if a.ID != 0 && b.ID != 0 {
		return a.ID == b.ID
	}
	return strings.EqualFold(a.String(), b.String())
}

// repoOf reads where an event is from.
func repoOf(repo *github.Repository, install *github.Installation) (forge.Repo, error) {
	r := forge.Repo{
		Owner:         repo.GetOwner().GetLogin(),
		Name:          repo.GetName(),
		ID:            repo.GetID(),
		Installation:  install.GetID(),
		DefaultBranch: repo.GetDefaultBranch(),
	}
	switch {
	case r.Owner == "" || r.Name == "":
		return r, queue.Never(errors.New("repository: owner and name are missing"))
	case r.Installation == 0:
		return r, queue.Never(errors.New("installation.id is missing"))
	}
	return r, nil
}

// ticketOf takes the snapshot of a ticket out of an event, which holds it as it
// stood at the trigger; asking GitHub would let later edits in.
func ticketOf(issue *github.Issue) forge.Ticket {
	t := forge.Ticket{
		Number: issue.GetNumber(),
		Title:  issue.GetTitle(),
		Body:   issue.GetBody(),
		Author: issue.GetUser().GetLogin(),
		State:  issue.GetState(),
		URL:    issue.GetHTMLURL(),
		Pull:   issue.IsPullRequest(),
		Taken:  issue.GetUpdatedAt().Time,
	}
	for _, l := range issue.Labels {
		t.Labels = append(t.Labels, l.GetName())
	}
	return t
}
