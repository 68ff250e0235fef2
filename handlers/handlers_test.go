package handlers_test

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

const guid = "72d3162e-cc78-11e3-81ab-4c9367dc0958"

var (
	onComment = forge.Subject{Ticket: 12, Comment: 555}
	onTicket  = forge.Subject{Ticket: 12}
)

type world struct {
	*testing.T
	hub     *hub
	shelf   *shelf
	h       *handlers.Handlers
	account report.Build                 // of any build, once it is claimed
	looked  report.Review                // of any review
	home    forge.Repo                   // of any build, once it was resumed elsewhere
	refusal string                       // of any approval
	decided map[string]handlers.Decision // by delivery and choice
	conf    config.Repo
	broken  error // of the configuration

	findings  []finding.Entry
	beside    []handlers.Proposal // for other files
	untouched bool                // pull requests leave the configuration alone
	handled   string              // the delivery at hand
	between   func()              // what happens after a decision, if anything
}

func newWorld(t *testing.T) *world { return newWorldOf(t, config.Chat{}) }

// newWorldOf is a world where people speak to the App in that way.
func newWorldOf(t *testing.T, chat config.Chat) *world {
	w := &world{conf: config.Defaults(), T: t, hub: newHub(), shelf: newShelf(), decided: map[string]handlers.Decision{}}
	w.looked = report.Review{State: report.ReviewRunning, Pull: 12}
	w.account = report.Build{State: report.Running, Ticket: 12, Title: "Greet by name"}
	w.hub.roles[maintainer.ID] = forge.Write
	w.hub.roles[reader.ID] = forge.Read
	w.hub.roles[triager.ID] = forge.Triage
	var err error
	w.h, err = handlers.New(handlers.Options{
		Jobs: w.shelf, GitHub: w.hub, AppID: 42, Slug: "slipway-test",
		Account: func(_ context.Context, j queue.Job) (report.Build, error) {
			w.account.ID = j.ID
			return w.account, nil
		},
		Reviewed: func(_ context.Context, j queue.Job) (report.Review, error) {
			w.looked.ID = j.ID
			return w.looked, nil
		},
		Home: func(_ context.Context, r pipeline.Request) (forge.Repo, error) {
			return cmp.Or(w.home, r.Repo), nil
		},
		Approval: func(_ context.Context, _ queue.Job, hash string) (string, error) {
			if hash == "" {
				return "an approval names the plan that was read: approve 0123456789ab", nil
			}
			return w.refusal, nil
		},
		Settings: func(context.Context, forge.Repo) ([]config.Setting, error) { return w.conf.Settings(), w.broken },
		Chat:     chat,
		Proposed: w.proposed,
		Findings: func(context.Context, forge.Repo, forge.Pull) ([]finding.Entry, error) { return w.findings, nil },
		Decide: func(ctx context.Context, choice string, decide func(context.Context) (handlers.Decision, error)) (handlers.Decision, error) {
			at := w.handled + " " + choice
			if known, ok := w.decided[at]; ok {
				return known, nil
			}
			d, err := decide(ctx)
			if err == nil {
				w.decided[at] = d
			}
			if choice == "decision" && w.between != nil {
				w.between()
			}
			return d, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// proposed is what a pull request does to the configuration.
func (w *world) proposed(context.Context, forge.Repo, int, string) ([]handlers.Proposal, error) {
	if w.untouched {
		return nil, nil
	}
	p := handlers.Proposal{File: ".github/slipway.yml"}
	if errors.As(w.broken, &p.Wrong) {
		p.Elsewhere = p.Wrong.Origin != p.File
	}
	return append(w.beside, p), nil
}

func (w *world) deliver(id string, e event) {
	w.Helper()
	if err := w.try(id, e); err != nil {
		w.Fatal(err)
	}
}

func (w *world) try(id string, e event) error {
	w.handled = id
	return w.h.Handle(w.Context(), handlers.Delivery{ID: id, Event: e.name(), Payload: e.payload()})
}

// request is the payload of the only job.
func (w *world) request() pipeline.Request {
	w.Helper()
	if len(w.shelf.jobs) != 1 {
		w.Fatalf("%d jobs, want one", len(w.shelf.jobs))
	}
	var r pipeline.Request
	if err := json.Unmarshal(w.shelf.jobs[0].Payload, &r); err != nil {
		w.Fatal(err)
	}
	return r
}

func (w *world) reacted(on forge.Subject, want ...string) {
	w.Helper()
	if got := w.hub.reactions[on]; !slices.Equal(got, want) {
		w.Fatalf("reactions on %+v: %v, want %v", on, got, want)
	}
}

func (w *world) commentsHold(n int, texts ...string) {
	w.Helper()
	if len(w.hub.comments) != n {
		w.Fatalf("%d comments, want %d:\n%s", len(w.hub.comments), n, w.hub.bodies())
	}
	for _, text := range texts {
		if !strings.Contains(w.hub.bodies(), text) {
			w.Fatalf("no %q in\n%s", text, w.hub.bodies())
		}
	}
}

func TestACommentQueuesABuild(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, commented(maintainer, "/build --base next --max-parallel 3 --budget 7.50 --plan-only --fast in French\r\nplease"))
	got := w.request()
	run := pipeline.RunID(guid)
	want := pipeline.Request{
		Build: run,
		Repo:  forge.Repo{Owner: "o", Name: "r", ID: 9, Installation: 7, DefaultBranch: "main"},
		Ticket: forge.Ticket{
			Number: 12, Title: "Greet by name", Body: "It should greet by name.", Author: "visitor",
			State: "open", Labels: []string{"enhancement"}, URL: "https://github.com/o/r/issues/12",
			Taken: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC),
		},
		Text: "in French\nplease", Base: "next", MaxParallel: 3,
		Budget: 7_500_000, PlanOnly: true, Fast: true,
		By:      forge.Person{Login: "mona", ID: 1},
		Trigger: onComment,
		Comment: forge.Comment{
			Ticket: 12, Marker: "<!-- slipway app=42 run=" + run + " -->",
			ID: 100, URL: "https://github.com/o/r/issues/12#issuecomment-100",
		},
		Prefix: "/",
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("request\n%+v, want\n%+v", got, want)
	}
	job := w.shelf.jobs[0]
	if job.ID != run || job.Kind != "build" || job.Key != "o/r#12" || job.Once != "o/r#12" || job.Tenant != "7" {
		t.Fatalf("job %+v", job)
	}
	w.reacted(onComment, "eyes")
	w.commentsHold(1, "queued", run)
	if order := []string{"role", "react eyes", "pull", "comment"}; !slices.Equal(w.hub.calls, order) {
		t.Fatalf("calls %v, want %v", w.hub.calls, order)
	}
}

func TestALabelQueuesABuildAndIsConsumed(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, labeled(maintainer, "Slipway:Build"))
	if r := w.request(); r.Trigger != onTicket || r.By.Login != "mona" || r.Text != "" {
		t.Fatalf("request %+v", r)
	}
	if !slices.Equal(w.hub.unlabeled, []string{"Slipway:Build"}) {
		t.Fatalf("removed %v", w.hub.unlabeled)
	}
	w.reacted(onTicket, "eyes")
	w.commentsHold(1, "queued")
}

func TestWhatStartsNothing(t *testing.T) {
	edited, deleted := commented(maintainer, "/build"), commented(maintainer, "/build")
	edited.Action, deleted.Action = "edited", "deleted"
	opened := labeled(maintainer, "slipway:build")
	opened.Action = "opened"
	pull := labeled(maintainer, "slipway:build")
	pull.Issue.PullRequest = &struct{}{}
	viaUs := commented(maintainer, "/build")
	viaUs.Comment.App = &numbered{42}
	forged := commented(maintainer, "/build")
	forged.Comment.User = account{"slipway-test[bot]", 77, "Bot"}
	unknown := commented(maintainer, "/build")
	unknown.Action = "pinned"
	for name, e := range map[string]event{
		"an edited comment":           edited,
		"a deleted comment":           deleted,
		"an action of another age":    unknown,
		"an issue opened with it":     opened,
		"another label":               labeled(maintainer, "bug"),
		"the label on a pull request": pull,
		"prose":                       commented(maintainer, "what about /build?"),
		"a quote":                     commented(maintainer, "> /build"),
		"another bot's command":       commented(maintainer, "/cc @mona"),
		"the App":                     commented(account{"slipway-test[bot]", 77, "Bot"}, "/build"),
		"the App by its bare name":    commented(account{"Slipway-Test", 77, "User"}, "/build"),
		"an app by its other name":    commented(account{"app/renovate", 78, "User"}, "/build"),
		"a bot by its type":           commented(account{"ci", 79, "Bot"}, "/build"),
		"a bot by its name":           commented(account{"dependabot[bot]", 80, "User"}, "/build"),
		"a bot's unknown command":     commented(account{"dependabot[bot]", 80, "Bot"}, "/biuld"),
		"nobody":                      commented(account{}, "/build"),
		"a person through the App":    viaUs,
		"a bot's comment, relayed":    forged,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for id := range map[int64]bool{77: true, 78: true, 79: true, 80: true} {
				w.hub.roles[id] = forge.Admin
			}
			w.deliver(guid, e)
			if len(w.hub.calls) != 0 || len(w.shelf.jobs) != 0 {
				t.Fatalf("calls %v, %d jobs", w.hub.calls, len(w.shelf.jobs))
			}
		})
	}
}

func TestABotsLabelIsConsumedInSilence(t *testing.T) {
	w := newWorld(t)
	w.deliver(guid, labeled(account{"dependabot[bot]", 80, "Bot"}, "slipway:build"))
	if !slices.Equal(w.hub.calls, []string{"unlabel"}) || len(w.shelf.jobs) != 0 {
		t.Fatalf("calls %v, %d jobs", w.hub.calls, len(w.shelf.jobs))
	}
}

func TestARefusalIsVisibleOncePerThreadAndCommand(t *testing.T) {
	w := newWorld(t)
	w.deliver("d1", commented(reader, "/build"))
	w.deliver("d2", commented(triager, "/build"))
	w.reacted(onComment, "confused")
	w.commentsHold(1, "**write**", "`/build`")
	w.deliver("d3", commented(reader, "/status"))
	w.commentsHold(2, "**triage**")
	w.deliver("d4", labeled(reader, "slipway:build"))
	w.commentsHold(2)
	w.reacted(onTicket, "confused")
	if len(w.hub.unlabeled) != 1 || len(w.shelf.jobs) != 0 {
		t.Fatalf("removed %v, %d jobs", w.hub.unlabeled, len(w.shelf.jobs))
	}
}

func TestAuthorityFailsClosed(t *testing.T) {
	w := newWorld(t)
	w.hub.roleFails = errors.New("GitHub is down")
	for _, body := range []string{"/build", "/cancel", "/status", "/help", "/biuld", "/approve 0123456", "/answer x", "/resume", "/config"} {
		if err := w.try(guid, commented(maintainer, body)); !errors.Is(err, w.hub.roleFails) {
			t.Fatalf("%s: error %v", body, err)
		}
	}
	if len(w.hub.calls) != 0 || len(w.shelf.jobs) != 0 {
		t.Fatalf("calls %v, %d jobs", w.hub.calls, len(w.shelf.jobs))
	}
}

func TestASecondBuildIsAnsweredWithTheLink(t *testing.T) {
	w := newWorld(t)
	w.deliver("first", labeled(maintainer, "slipway:build"))
	w.deliver("second", commented(maintainer, "/build"))
	if w.request().Build != pipeline.RunID("first") {
		t.Fatalf("job %+v", w.shelf.jobs[0])
	}
	w.commentsHold(2, w.hub.comments[0].URL)
	if got := w.hub.comments[1].Body; !strings.Contains(got, "built already") || strings.Contains(got, "queued") {
		t.Fatalf("second comment %s", got)
	}
	w.reacted(onComment, "eyes", "confused")

	w.shelf.finish()
	w.deliver("third", commented(maintainer, "/build"))
	if len(w.shelf.jobs) != 2 {
		t.Fatalf("a finished build blocks the next: %d jobs", len(w.shelf.jobs))
	}
}

func TestALostRaceLeavesNoSecondTrackingComment(t *testing.T) {
	w := newWorld(t)
	payload, _ := json.Marshal(pipeline.Request{Build: "b-other", Comment: forge.Comment{URL: "https://github.com/o/r/issues/12#issuecomment-1"}})
	w.shelf.racer = &queue.Job{ID: "b-other", Kind: "build", Key: "o/r#12", Once: "o/r#12", Payload: payload}
	w.deliver(guid, commented(maintainer, "/build"))
	if len(w.shelf.jobs) != 1 || w.shelf.jobs[0].ID != "b-other" {
		t.Fatalf("jobs %+v", w.shelf.jobs)
	}
	w.commentsHold(1, "b-other", "issuecomment-1")
	if strings.Contains(w.hub.bodies(), "queued") {
		t.Fatalf("still a tracking comment:\n%s", w.hub.bodies())
	}
}

func TestAnOpenPullRequestIsAnsweredWithItsLink(t *testing.T) {
	w := newWorld(t)
	w.hub.pull = &forge.Pull{Number: 31, URL: "https://github.com/o/r/pull/31"}
	w.deliver(guid, commented(maintainer, "/build"))
	w.commentsHold(1, "[#31](https://github.com/o/r/pull/31)")
	if len(w.shelf.jobs) != 0 {
		t.Fatalf("%d jobs", len(w.shelf.jobs))
	}
}

func TestABuildOfAPullRequestIsAnswered(t *testing.T) {
	w := newWorld(t)
	e := commented(maintainer, "/build")
	e.Issue.PullRequest = &struct{}{}
	w.deliver(guid, e)
	w.commentsHold(1, "this is a pull request")
	if len(w.shelf.jobs) != 0 {
		t.Fatalf("%d jobs", len(w.shelf.jobs))
	}
}

// Whatever step a worker died after, handling the delivery again ends with one
// job and one comment, and does not touch the comment once the build owns it.
func TestADeliveryHandledAgainChangesNothing(t *testing.T) {
	for _, step := range []string{"unlabel", "role", "react eyes", "pull", "comment", "put"} {
		t.Run("after "+step, func(t *testing.T) {
			w := newWorld(t)
			if step == "put" {
				w.shelf.failPut = errors.New("disk full")
			} else {
				w.hub.failAt = step
			}
			e := labeled(maintainer, "slipway:build")
			if err := w.try(guid, e); err == nil {
				t.Fatal("the failure was swallowed")
			}
			w.deliver(guid, e)
			w.request()
			w.commentsHold(1, "queued")
			w.hub.comments[0].Body = "the build's own words"
			w.deliver(guid, e)
			w.shelf.finish()
			w.deliver(guid, e)
			w.request()
			w.commentsHold(1, "the build's own words")
			w.reacted(onTicket, "eyes")
		})
	}
}

func TestADeliveryThatIsGivenUpIsAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		event    event
		on       forge.Subject
		comments int
	}{
		"a command":                {commented(maintainer, "/build"), onComment, 1},
		"a command with a mistake": {commented(maintainer, "/build --max-parallel many"), onComment, 1},
		"the label":                {labeled(maintainer, "slipway:build"), onTicket, 1},
		"another label":            {labeled(maintainer, "bug"), onTicket, 0},
		"a comment of no concern":  {commented(maintainer, "nice"), onComment, 0},
		"somebody who has no say":  {commented(reader, "/build"), onComment, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			err := w.h.GiveUp(t.Context(), handlers.Delivery{ID: guid, Event: row.event.name(), Payload: row.event.payload()}, errors.New("its worker crashed"))
			if err != nil {
				t.Fatal(err)
			}
			w.commentsHold(row.comments)
			if row.comments > 0 {
				w.commentsHold(1, "could not be handled")
				w.reacted(row.on, "confused")
			}
		})
	}
	t.Run("one whose build is queued", func(t *testing.T) {
		w := newWorld(t)
		e := commented(maintainer, "/build")
		w.deliver(guid, e)
		if err := w.h.GiveUp(t.Context(), handlers.Delivery{ID: guid, Event: e.name(), Payload: e.payload()}, errors.New("its worker crashed")); err != nil {
			t.Fatal(err)
		}
		w.commentsHold(1, "queued")
	})
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	w.deliver("d0", commented(maintainer, "/cancel"))
	w.commentsHold(1, "never built")
	w.deliver("d1", commented(maintainer, "/build"))
	w.deliver("d2", commented(maintainer, "/cancel"))
	w.deliver("d2", commented(maintainer, "/cancel"))
	signals := w.shelf.signals[pipeline.RunID("d1")]
	if len(signals) != 1 || signals[0].ID != "d2" || signals[0].Kind != pipeline.CancelSignal || signals[0].Reopen {
		t.Fatalf("signals %+v", signals)
	}
	var body pipeline.Said
	if err := json.Unmarshal(signals[0].Body, &body); err != nil || body.By.Login != "mona" {
		t.Fatalf("body %s: %v", signals[0].Body, err)
	}
	w.commentsHold(2)
	w.shelf.sendErr = queue.ErrFinished
	w.deliver("d3", commented(maintainer, "/cancel"))
	w.commentsHold(3)
}

func TestWhoeverStartedItMayCancelIt(t *testing.T) {
	w := newWorld(t)
	w.deliver("d1", commented(maintainer, "/build"))
	w.deliver("d2", commented(triager, "/cancel"))
	w.commentsHold(2, "**write**")
	if len(w.shelf.signals) != 0 {
		t.Fatalf("signals %+v", w.shelf.signals)
	}
	w.hub.roles[maintainer.ID] = forge.Read // demoted since
	w.deliver("d3", commented(maintainer, "/cancel"))
	if len(w.shelf.signals[pipeline.RunID("d1")]) != 1 {
		t.Fatalf("signals %+v", w.shelf.signals)
	}
}

func TestStatus(t *testing.T) {
	w := newWorld(t)
	w.deliver("d0", commented(triager, "/status"))
	w.commentsHold(1, "never built")
	w.deliver("d1", commented(maintainer, "/build"))
	w.shelf.finish()
	w.deliver("d2", commented(triager, "/status"))
	w.commentsHold(3, "Running", "`"+pipeline.RunID("d1")+"`")
	w.reacted(onComment, "eyes", "confused", "rocket")
	w.account.State, w.account.Gate = report.WaitingApproval, planGate
	w.deliver("d3", commented(triager, "/status"))
	w.commentsHold(4, "**Waits for** approval of the plan 0123456789ab", "`/approve 0123456789ab`", "until 2026-03-04 10:00 UTC")
}

func TestHelpListsWhatThisPersonMayRun(t *testing.T) {
	w := newWorld(t)
	w.deliver("d1", commented(reader, "/help"))
	w.commentsHold(1, "**read**", "`/help`")
	if strings.Contains(w.hub.bodies(), "/build") || strings.Contains(w.hub.bodies(), "/status") {
		t.Fatalf("offers what is refused:\n%s", w.hub.bodies())
	}
	w.deliver("d2", commented(maintainer, "/help"))
	w.commentsHold(2, "`/build [--plan-only] [--budget USD] [--base BRANCH] [--max-parallel N] [--targets A,B] [--fast] [text]`", "`/approve HASH`", "`/cancel`")
}

func TestWhatCannotBeReadIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.deliver("d1", commented(maintainer, "/build --max-parallel `@mona`"))
	w.commentsHold(1, "**--max-parallel** `@mona`: must be a whole number from 1 to 64")
	w.deliver("d2", commented(maintainer, "/biuld"))
	w.commentsHold(2, "did you mean build?")
	w.reacted(onComment, "confused")
	for _, id := range []string{"d3", "d4", "d5"} {
		w.deliver(id, commented(reader, "/biuld "+id))
	}
	w.commentsHold(3)
	if len(w.shelf.jobs) != 0 {
		t.Fatalf("%d jobs", len(w.shelf.jobs))
	}
}

func TestADeliveryThatLacksAFieldNamesIt(t *testing.T) {
	bare := commented(maintainer, "/build")
	bare.Installation = nil
	homeless := commented(maintainer, "/build")
	homeless.Repository = repositoryBody{}
	for want, e := range map[string]event{"installation.id": bare, "repository": homeless} {
		w := newWorld(t)
		if err := w.try(guid, e); err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v, want %q", err, want)
		}
	}
	w := newWorld(t)
	if err := w.h.Handle(t.Context(), handlers.Delivery{ID: guid, Event: "issues", Payload: []byte("[")}); err == nil {
		t.Fatal("a broken payload was taken")
	}
	if err := w.h.Handle(t.Context(), handlers.Delivery{ID: guid, Event: "ping", Payload: []byte("[")}); err != nil {
		t.Fatalf("an event of no interest: %v", err)
	}
}
