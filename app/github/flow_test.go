package github_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// office is everything between a webhook and a queued build: the inbox, the
// store on disk, and a worker that handles one delivery at a time.
type office struct {
	*world
	store *queue.SQLite
	h     *handlers.Handlers
}

func newOffice(t *testing.T) *office {
	w := newWorld(t)
	o := &office{world: w}
	var err error
	o.store, err = queue.OpenSQLite(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, o.store.Close()) })
	in, err := inbox.New(o.store, []string{"hook secret"}, slog.New(slog.DiscardHandler))
	must(t, err)
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	registered, err := w.sim.CreateApp(t.Context(), githubsim.AppSpec{Slug: "slipway-test", Secret: "hook secret", WebhookURL: server.URL})
	must(t, err)
	o.h, err = handlers.New(handlers.Options{
		Jobs: o.store, GitHub: w.app, AppID: registered.ID, Slug: registered.Slug,
		Account: func(ctx context.Context, j queue.Job) (report.Build, error) { return pipeline.Read(ctx, o.store, j.ID) },
		Home: func(ctx context.Context, r pipeline.Request) (forge.Repo, error) {
			return pipeline.Home(ctx, o.store, r)
		},
		Approval: func(context.Context, queue.Job, string) (string, error) { return "", nil },
		Settings: func(context.Context, forge.Repo) ([]config.Setting, error) { return nil, nil },
		Proposed: func(context.Context, forge.Repo, int, string) ([]handlers.Proposal, error) { return nil, nil },
		Findings: func(context.Context, forge.Repo, forge.Pull) ([]finding.Entry, error) { return nil, nil },
		Reviewed: func(context.Context, queue.Job) (report.Review, error) { return report.Review{}, nil },
		Decide: func(ctx context.Context, _ string, decide func(context.Context) (handlers.Decision, error)) (handlers.Decision, error) {
			return decide(ctx)
		},
	})
	must(t, err)
	for login, role := range map[string]string{"mona": "write", "visitor": "read"} {
		_, err := w.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: "o/r", Login: login, Role: role})
		must(t, err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.sim.Deliver(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return o
}

// work handles deliveries until every webhook that GitHub has sent is settled.
func (o *office) work() {
	o.Helper()
	for {
		lease, err := o.store.Claim(o.Context(), "w1", inbox.Kind)
		if errors.Is(err, queue.ErrEmpty) {
			if o.quiet() {
				return
			}
			o.wait()
			continue
		}
		must(o.T, err)
		must(o.T, o.handle(lease.Job))
		must(o.T, o.store.Done(o.Context(), lease))
	}
}

// wait returns when a delivery may have come, and soon at the latest: a webhook
// that is sent again and known already rings no bell.
func (o *office) wait() {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), 50*time.Millisecond)
	defer cancel()
	if err := o.store.Wait(ctx, inbox.Kind); err != nil && ctx.Err() == nil {
		o.Fatal(err)
	}
}

// quiet reports whether every webhook was sent and every delivery settled.
func (o *office) quiet() bool {
	o.Helper()
	sent := 0
	for _, d := range o.sim.Deliveries() {
		if d.Pending {
			return false
		}
		sent++
	}
	jobs, err := o.store.List(o.Context(), queue.Query{Kinds: []string{inbox.Kind}, Unfinished: true})
	must(o.T, err)
	return sent > 0 && len(jobs) == 0
}

func (o *office) handle(job queue.Job) error {
	var d inbox.Delivery
	if err := json.Unmarshal(job.Payload, &d); err != nil {
		return err
	}
	return o.h.Handle(o.Context(), handlers.Delivery{ID: job.ID, Event: d.Event, Payload: d.Body})
}

func (o *office) builds() []queue.Job {
	o.Helper()
	jobs, err := o.store.List(o.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}})
	must(o.T, err)
	return jobs
}

func (o *office) says(by, body string) {
	o.Helper()
	_, err := o.sim.Comment(o.Context(), githubsim.CommentSpec{Repo: "o/r", Number: o.ticket, Body: body, By: by})
	must(o.T, err)
}

func TestALabelAndACommentBecomeOneBuild(t *testing.T) {
	o := newOffice(t)
	_, err := o.sim.Label(t.Context(), githubsim.Labelling{Repo: "o/r", Number: o.ticket, Label: "slipway:build", By: "mona"})
	must(t, err)
	o.says("mona", "/build --max-parallel 2 quickly")
	o.says("visitor", "/build")
	o.work()

	builds := o.builds()
	if len(builds) != 1 || builds[0].State != queue.Queued || builds[0].Once != "o/r#1" {
		t.Fatalf("builds %+v", builds)
	}
	var r pipeline.Request
	must(t, json.Unmarshal(builds[0].Payload, &r))
	if r.Ticket.Title != "Greet by name" || r.Ticket.Body != "As asked." || r.By.Login != "mona" || r.Repo != o.repo {
		t.Fatalf("request %+v", r)
	}
	repository := o.build()
	if n, err := repository.Comments(t.Context(), o.ticket, r.Comment.Marker); err != nil || n != 1 {
		t.Fatalf("%d tracking comments, %v", n, err)
	}
	ticket, err := repository.Ticket(t.Context())
	must(t, err)
	if len(ticket.Labels) != 0 {
		t.Fatalf("labels %v", ticket.Labels)
	}
	var bodies []string
	for _, e := range o.seen("POST", "/issues/{issue_number}/comments") {
		bodies = append(bodies, string(e.Request))
	}
	if all := strings.Join(bodies, "\n"); len(bodies) != 3 || !strings.Contains(all, r.Comment.URL) || !strings.Contains(all, "**write**") {
		t.Fatalf("comments\n%s", all)
	}

	// GitHub sends everything again; nothing happens twice.
	o.forget()
	for _, d := range o.sim.Deliveries() {
		_, err := o.sim.Redeliver(t.Context(), githubsim.DeliveryRef{ID: d.ID})
		must(t, err)
	}
	o.work()
	for _, e := range o.seen("POST", "") {
		if strings.HasPrefix(e.Route, "/repos/") {
			t.Fatalf("a redelivery wrote: %s", e.Route)
		}
	}
	if again := o.builds(); len(again) != 1 {
		t.Fatalf("%d builds", len(again))
	}
}

func TestADeliveryHandledTwiceWritesOnce(t *testing.T) {
	o := newOffice(t)
	o.says("mona", "/build")
	o.work()
	before := len(o.seen("POST", "/issues/{issue_number}/comments"))
	deliveries, err := o.store.List(t.Context(), queue.Query{Kinds: []string{inbox.Kind}})
	must(t, err)
	for _, d := range deliveries {
		must(t, o.handle(d)) // as after a crash before it was settled
	}
	if got := len(o.seen("POST", "/issues/{issue_number}/comments")); before != 1 || got != 1 || len(o.builds()) != 1 {
		t.Fatalf("%d, then %d comments; %d builds", before, got, len(o.builds()))
	}
}

func TestCancelReachesTheBuild(t *testing.T) {
	o := newOffice(t)
	o.says("mona", "/build")
	o.work()
	o.says("mona", "/cancel")
	o.says("mona", "/status")
	o.work()
	lease, err := o.store.Claim(t.Context(), "w2", pipeline.KindBuild)
	must(t, err)
	signals, err := o.store.Extend(t.Context(), lease)
	must(t, err)
	if len(signals) != 1 || signals[0].Kind != pipeline.CancelSignal || !strings.Contains(string(signals[0].Body), `"mona"`) {
		t.Fatalf("signals %+v", signals)
	}
	must(t, o.store.Done(t.Context(), lease))
}

// staff runs a worker on the deliveries until the test ends.
func (o *office) staff() {
	w := &queue.Worker{
		Store: o.store, Name: "w3", Log: slog.New(slog.DiscardHandler),
		Slots: []queue.Slot{{Kinds: []string{inbox.Kind}, Run: func(_ context.Context, t *queue.Task) error { return o.handle(t.Job) }}},
	}
	ctx, stop := context.WithCancel(o.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	o.Cleanup(func() {
		stop()
		must(o.T, <-done)
	})
}

// until waits for a delivery to be in a state, and returns it. An empty id is
// any delivery.
func (o *office) until(id string, state queue.State) queue.Job {
	o.Helper()
	ctx, cancel := context.WithTimeout(o.Context(), 20*time.Second)
	defer cancel()
	for {
		jobs, err := o.store.List(ctx, queue.Query{Kinds: []string{inbox.Kind}})
		must(o.T, err)
		for _, j := range jobs {
			if j.State == state && (id == "" || id == j.ID) {
				return j
			}
		}
		o.wait()
	}
}

func TestARateLimitParksTheDelivery(t *testing.T) {
	o := newOffice(t)
	o.fault(githubsim.Fault{Kind: githubsim.FaultTooMany, Method: "POST", Path: "/repos/o/r/issues", Times: 1, RetryAfter: 2})
	o.staff()
	o.says("mona", "/build")
	parked := o.until("", queue.Parked)
	if !strings.Contains(parked.Cause, "rate limit") {
		t.Fatalf("cause %q", parked.Cause)
	}
	o.until(parked.ID, queue.Done)
	if len(o.builds()) != 1 {
		t.Fatalf("%d builds", len(o.builds()))
	}
}

func TestADeliveryWithoutAnInstallationIsGivenUp(t *testing.T) {
	o := newOffice(t)
	payload, err := json.Marshal(inbox.Delivery{Event: "issue_comment", Body: json.RawMessage(
		`{"action":"created","issue":{"number":1},"comment":{"body":"/build","user":{"login":"mona","id":1}},` +
			`"repository":{"name":"r","owner":{"login":"o"}},"sender":{"login":"mona","id":1}}`)})
	must(t, err)
	_, _, err = o.store.Put(t.Context(), queue.Job{ID: "d1", Kind: inbox.Kind, Payload: payload})
	must(t, err)
	o.staff()
	if buried := o.until("d1", queue.Buried); !strings.Contains(buried.Cause, "installation.id is missing") || buried.Retries != 0 {
		t.Fatalf("buried %+v", buried)
	}
}
