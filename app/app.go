// Package app is the server: webhooks in, builds out. New wires everything in
// one function; Run serves until its context ends.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/app/github"
	"github.com/slipway-dev/slipway/app/inbox"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// App is one server process.
type App struct {
	conf     config.Server
	store    queue.Store
	engine   *pipeline.Engine
	hub      *github.App
	handlers *handlers.Handlers
	inbox    http.Handler
	sweep    *sweep
	log      *slog.Logger
}

// New wires the server. It refuses to start without the App's credentials.
func New(conf config.Server, store queue.Store, engine *pipeline.Engine, log *slog.Logger) (*App, error) {
	if missing := conf.Missing(); len(missing) > 0 {
		return nil, &MissingError{Credentials: missing}
	}
	var secrets []string
	for _, s := range conf.GitHub.WebhookSecrets {
		secrets = append(secrets, s.Reveal())
	}
	in, err := inbox.New(store, secrets, log)
	if err != nil {
		return nil, err
	}
	a, err := NewWorker(conf, store, engine, log)
	if err == nil {
		a.inbox = in
	}
	return a, err
}

// NewWorker wires a server that receives no webhooks: it is for Work.
func NewWorker(conf config.Server, store queue.Store, engine *pipeline.Engine, log *slog.Logger) (*App, error) {
	if missing := conf.MissingApp(); len(missing) > 0 {
		return nil, &MissingError{Credentials: missing}
	}
	key, err := conf.GitHub.Key()
	if err != nil {
		return nil, err
	}
	hub, err := github.New(github.Options{
		AppID: conf.GitHub.AppID, PrivateKey: []byte(key.Reveal()),
		BaseURL: conf.GitHub.BaseURL, CAFile: conf.GitHub.CAFile, Limits: store, Log: log,
	})
	if err != nil {
		return nil, fmt.Errorf("set up the GitHub client: %w", err)
	}
	a := &App{conf: conf, store: store, engine: engine, hub: hub, log: log}
	a.handlers, err = handlers.New(handlers.Options{
		Jobs: store, GitHub: hub, Account: a.account, Reviewed: a.reviewed, Home: a.home, Approval: a.approval, Settings: a.settings, Proposed: a.proposed,
		Findings: a.findings, Decide: a.decide,
		AppID: conf.GitHub.AppID, Slug: conf.GitHub.Slug, Label: engine.Defaults.Build.Label, Look: engine.Defaults.Review.Label, Chat: conf.Chat,
	})
	if err != nil {
		return nil, err
	}
	a.sweep = &sweep{hub: hub, store: store, events: a.handlers.Events(), log: log, oldest: time.Now()}
	return a, nil
}

// Sweep asks GitHub once to send again what never reached the inbox, and returns
// how many webhooks that were. Run does so at its start and every few minutes.
func (a *App) Sweep(ctx context.Context) (asked int, err error) { return a.sweep.once(ctx) }

// MissingError lists the credentials that a server lacks, each with the way to
// set it.
type MissingError struct{ Credentials []string }

// Error is the list.
func (e *MissingError) Error() string {
	text := "the GitHub App is not configured:"
	for _, c := range e.Credentials {
		text += "\n  - " + c
	}
	return text
}

// Handler serves the webhook endpoint and the probes.
func (a *App) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/webhook", a.inbox)
	a.addProbes(mux)
	return mux
}

// serverOf bounds what a client may take its time with.
func serverOf(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
}

// Run serves on the listener and works on jobs until ctx ends, then drains.
func (a *App) Run(ctx context.Context, listener net.Listener) error {
	server := serverOf(a.Handler())
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	worked := make(chan error, 1)
	go func() { worked <- a.worker().Run(working) }()
	var duties sync.WaitGroup
	duties.Go(func() { a.sweep.run(working) })
	duties.Go(func() { a.reconcile(working) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
		stop(err)
		served <- nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(err, shut(closing, server))
	if serr := <-served; serr != nil && !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	err = errors.Join(err, <-worked)
	stop(nil)
	duties.Wait()
	a.hub.Close(closing)
	return err
}

// shut stops serving when all answers are given or ctx ends. Then it cuts what is
// left: browsers keep connections open on which they have not asked anything yet.
func shut(ctx context.Context, server *http.Server) error {
	err := server.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return server.Close()
	}
	return err
}

// Work works on jobs until ctx ends, then drains. It answers probes on a listener,
// until it has drained, and serves nothing else; nil: no probes.
func (a *App) Work(ctx context.Context, probes net.Listener) error {
	mux := http.NewServeMux()
	a.addProbes(mux)
	server := serverOf(mux)
	var serving sync.WaitGroup
	if probes != nil {
		serving.Go(func() {
			if err := server.Serve(probes); !errors.Is(err, http.ErrServerClosed) {
				a.log.ErrorContext(ctx, "probes are not answered any more", "error", err)
			}
		})
	}
	err := a.worker().Run(ctx)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	a.hub.Close(closing)
	err = errors.Join(err, shut(closing, server))
	serving.Wait()
	return err
}

// worker runs deliveries and comparisons, which take moments, reviews, which take
// minutes, and builds, which take hours, in slots of their own.
func (a *App) worker() *queue.Worker {
	host, err := os.Hostname()
	if err != nil {
		host = "host"
	}
	return &queue.Worker{
		Store: a.store, Name: fmt.Sprintf("%s-%d-%d", host, os.Getpid(), time.Now().UnixNano()), Log: a.log,
		Slots: []queue.Slot{
			a.patient(queue.Slot{Kinds: []string{inbox.Kind}, N: a.conf.Slots.Deliveries, Run: a.deliver, GivenUp: a.giveUpDelivery}),
			a.patient(queue.Slot{Kinds: []string{pipeline.KindBuild}, N: a.conf.Slots.Builds, Run: a.build, GivenUp: a.giveUp}),
			a.patient(queue.Slot{Kinds: []string{pipeline.KindComparison}, N: a.conf.Slots.Deliveries, Run: a.build, GivenUp: a.giveUp}),
			a.patient(queue.Slot{Kinds: []string{review.Kind}, N: a.conf.Slots.Reviews, Run: a.review, GivenUp: a.giveUpReview}),
		},
	}
}

// whileAway is how long a job waits that failed while GitHub was away.
const whileAway = 10 * time.Second

// patient is the slot of jobs that wait for GitHub while it is away, however long
// that takes: that is no failure of theirs, and nobody could be told. They write
// there only as long as they are this worker's.
func (a *App) patient(s queue.Slot) queue.Slot {
	wait := func(ctx context.Context, err error) error {
		if err == nil || queue.Decided(err) || ctx.Err() != nil || !a.hub.Away(ctx) {
			return err
		}
		return queue.Turn(time.Now().Add(whileAway), fmt.Errorf("GitHub is away: %w", err))
	}
	run, givenUp := s.Run, s.GivenUp
	s.Run = func(ctx context.Context, t *queue.Task) error { return wait(ctx, run(github.Fenced(ctx, t.Extend), t)) }
	s.GivenUp = func(ctx context.Context, t *queue.Task, cause error) error {
		return wait(ctx, givenUp(github.Fenced(ctx, t.Extend), t, cause))
	}
	return s
}

// deliver handles one webhook.
func (a *App) deliver(ctx context.Context, t *queue.Task) error {
	d, err := delivery(t.Job)
	if err != nil {
		return err
	}
	return a.handlers.Handle(context.WithValue(ctx, deliveryTask{}, t), d)
}

// deliveryTask is the key under which a context carries the task of the
// delivery that is being handled.
type deliveryTask struct{}

// decide records what a delivery's handler decides in the delivery's journal,
// as a choice of that name, before it is acted on.
func (a *App) decide(ctx context.Context, choice string, decide func(context.Context) (handlers.Decision, error)) (handlers.Decision, error) {
	task, ok := ctx.Value(deliveryTask{}).(*queue.Task)
	if !ok {
		return handlers.Decision{}, errors.New("decide: no delivery is being handled")
	}
	journal, err := step.Open(ctx, a.store, task.Lease(), step.Options{})
	if err != nil {
		return handlers.Decision{}, fmt.Errorf("open the delivery's journal: %w", err)
	}
	if known, ok, err := step.Get[handlers.Decision](journal, choice); ok || err != nil {
		return known, err
	}
	decided, err := decide(ctx)
	if err != nil {
		return decided, err
	}
	return step.Choose(ctx, journal, choice, decided)
}

// giveUpDelivery says on the thread that a webhook is buried.
func (a *App) giveUpDelivery(ctx context.Context, t *queue.Task, cause error) error {
	d, err := delivery(t.Job)
	if err != nil {
		return err
	}
	return a.handlers.GiveUp(ctx, d, cause)
}

func delivery(job queue.Job) (handlers.Delivery, error) {
	var d inbox.Delivery
	if err := json.Unmarshal(job.Payload, &d); err != nil {
		return handlers.Delivery{}, queue.Never(fmt.Errorf("read the delivery: %w", err))
	}
	return handlers.Delivery{ID: job.ID, Event: d.Event, Payload: d.Body}, nil
}

// build runs one build.
func (a *App) build(ctx context.Context, t *queue.Task) error {
	req, err := request(t.Job)
	if err != nil {
		return err
	}
	at := resumedAt(t, req)
	hub := a.hub.ForRepo(at, req.Ticket.Number)
	defer hub.Close(context.WithoutCancel(ctx))
	final, err := Claim{Engine: a.engine, Store: a.store, Task: t, Request: req, Forge: hub}.Build(ctx)
	if err != nil {
		return shutOut(err)
	}
	if err := a.handlers.ReviewAfter(ctx, at, req, final); err != nil {
		return shutOut(err) // the build has ended, which the next claim sees at once
	}
	a.log.InfoContext(ctx, "build ended", "build", req.Build, "state", final.State, "cost_micros", final.CostMicros)
	return nil
}

// resumedAt is where a claimed build's repository is reached. A resume that brought
// the claim about is in no journal yet.
func resumedAt(t *queue.Task, req pipeline.Request) forge.Repo {
	return pipeline.Resumed(req, sentBefore(t))
}

// giveUp says on the ticket that a build is buried.
func (a *App) giveUp(ctx context.Context, t *queue.Task, cause error) error {
	req, err := request(t.Job)
	if err != nil {
		return err
	}
	hub := a.hub.ForRepo(resumedAt(t, req), req.Ticket.Number)
	defer hub.Close(context.WithoutCancel(ctx))
	if err := pipeline.GiveUp(ctx, a.store, hub, req, cause); err != nil {
		return shutOut(err)
	}
	final, err := Account(ctx, a.store, t.Job)
	if err != nil {
		return err
	}
	return shutOut(a.handlers.ReviewAfter(ctx, resumedAt(t, req), req, final))
}

// account is where a build stands now.
func (a *App) account(ctx context.Context, job queue.Job) (report.Build, error) {
	return Account(ctx, a.store, job)
}

// home is where the repository of a build is reached now.
func (a *App) home(ctx context.Context, req pipeline.Request) (forge.Repo, error) {
	return pipeline.Home(ctx, a.store, req)
}

// Account is where a build stands now, by its journal and by the queue.
func Account(ctx context.Context, store queue.Store, job queue.Job) (report.Build, error) {
	b, err := pipeline.Read(ctx, store, job.ID)
	switch {
	case err != nil:
	case job.State == queue.Buried:
		b = pipeline.GivenUp(b, job.Cause)
	case job.Verdict.Cause != "":
		b = pipeline.GivenUp(b, job.Verdict.Cause)
	}
	return b, err
}

// settings are the values that a build of the repository would get now.
func (a *App) settings(ctx context.Context, r forge.Repo) ([]config.Setting, error) {
	hub := a.hub.ForRepo(r, 0)
	defer hub.Close(context.WithoutCancel(ctx))
	files, err := filesOf(ctx, hub, r)
	if err != nil {
		return nil, err
	}
	return effective(a.engine, files)
}

// filesOf are those that configure a repository now.
func filesOf(ctx context.Context, hub *github.Repository, r forge.Repo) (pipeline.Files, error) {
	files := pipeline.Files{Owner: r.Owner}
	var err error
	if files.Own, err = fileOrNone(ctx, hub, pipeline.ConfigFile, ""); err != nil {
		return files, err
	}
	files.Owners, err = hub.OwnersFile(ctx)
	return files, err
}

// fileOrNone is empty where the repository has no such file.
func fileOrNone(ctx context.Context, hub *github.Repository, name, ref string) ([]byte, error) {
	text, err := hub.File(ctx, name, ref)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return text, err
}

// approval says why the plan of a build cannot be approved by that hash.
func (a *App) approval(ctx context.Context, job queue.Job, hash string) (refusal string, err error) {
	req, err := request(job)
	if err != nil {
		return "", err
	}
	at, err := pipeline.Home(ctx, a.store, req)
	if err != nil {
		return "", err
	}
	hub := a.hub.ForRepo(at, req.Ticket.Number)
	defer hub.Close(context.WithoutCancel(ctx))
	return a.engine.Approval(ctx, a.store, hub, req, hash)
}

func request(job queue.Job) (pipeline.Request, error) {
	var req pipeline.Request
	if err := json.Unmarshal(job.Payload, &req); err != nil {
		return req, queue.Never(fmt.Errorf("read the build's request: %w", err))
	}
	return req, nil
}

// shutOut turns the loss of a repository into the end of its build: the handlers
// were in it when they queued the build, so it is not that GitHub does not know
// the installation yet.
func shutOut(err error) error {
	if errors.Is(err, forge.ErrNoAccess) {
		return queue.Never(err)
	}
	return err
}
