package main

import (
	"context"
	"io/fs"
	"net"
	"slices"
	"testing"
	"time"

	slipway "github.com/slipway-dev/slipway"
	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/app/githubsim/schema"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

// The two issues that change the same lines may land in either order: whoever
// comes second is merged by hand, and the tree is the same. Everything that
// passes between us and GitHub meanwhile is judged by GitHub's descriptions.
func TestDemoEndsAlikeInEitherOrder(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs two whole builds")
	}
	w := newShow(t)
	var trees []string
	for _, c := range []struct{ first, second string }{
		{"filter-entries", "group-totals"},
		{"group-totals", "filter-entries"},
	} {
		b := w.build(c.first, c.second)
		if b.State != report.SucceededWithDebt || !b.Success || len(b.Debt) != 1 {
			t.Fatalf("%s first: %s, success %v, %s, debt %+v", c.first, b.State, b.Success, b.Cause, b.Debt)
		}
		dir := w.clone()
		order := w.lines(dir, "git", "log", "--first-parent", "--reverse", "--format=%H", "origin/main.."+b.Head)
		at := map[string]int{}
		for _, is := range b.Issues {
			at[is.Name] = slices.Index(order, is.Merge)
		}
		if at[c.first] < 0 || at[c.first] > at[c.second] {
			t.Errorf("the order of landing is %v, want %s before %s", at, c.first, c.second)
		}
		trees = append(trees, w.run(dir, "git", "rev-parse", b.Head+"^{tree}"))
	}
	if trees[0] != trees[1] {
		t.Errorf("the trees differ:\n%s", w.run(w.clone(), "git", "diff", trees[0], trees[1]))
	}
}

// A show is the demo in this process, with agents that take no time.
type show struct {
	*hub
	server *githubsim.Server
	store  closingStore
	label  string
	sample sample
	hold   *hold
}

func newShow(t *testing.T) *show {
	t.Helper()
	w := &show{server: schema.Start(t, githubsim.Options{}), hold: &hold{}}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	conf, err := config.LoadServer("", []string{"SLIPWAY_STATE_DIR=" + t.TempDir()})
	must(err)
	t.Cleanup(func() { writable(conf.StateDir) })
	_, err = furnish(t.Context(), githubsim.Remote{URL: w.server.URL()}, &conf, "http://"+listener.Addr().String()+"/webhook")
	must(err)
	w.sample, err = readSample()
	must(err)
	w.hub = newHub(t, w.server.URL())

	o := &options{}
	w.store, err = o.store(t.Context(), conf)
	must(err)
	t.Cleanup(func() { must(w.store.Close()) })
	text, err := fs.ReadFile(slipway.Files, "testdata/agents/tally.txtar")
	must(err)
	recordings, err := runtime.ReadArchive(text)
	must(err)
	for i := range recordings {
		recordings[i].DelayMS = 0
	}
	engine, err := app.NewEngine(conf, app.Agents{Runtime: "replay", Recordings: recordings}, o.logger())
	must(err)
	w.label, w.hold.store = engine.Defaults.Build.Label, w.store
	named := engine.Runtime
	engine.Runtime = func(ctx context.Context, name string) (runtime.Runtime, error) {
		rt, err := named(ctx, name)
		return held{rt, w.hold}, err
	}
	server, err := app.New(conf, w.store, engine, o.logger())
	must(err)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx, listener) }()
	t.Cleanup(func() { stop(); must(<-served) })
	return w
}

// build labels a new ticket and returns how its build ended. The review of the
// second issue waits until the first one has landed.
func (w *show) build(first, second string) report.Build {
	w.Helper()
	full := demoOwner + "/" + demoRepo
	ticket, err := w.server.OpenTicket(w.Context(), githubsim.TicketSpec{Repo: full, Title: w.sample.title, Body: w.sample.body, By: demoMaintainer})
	w.must(err)
	w.hold.first, w.hold.step = first, map[string]string{
		"filter-entries": "issue-02", "group-totals": "issue-03",
	}[second]+"/round-1/iter-1/code_reviewer"
	known, err := w.store.List(w.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}})
	w.must(err)
	_, err = w.server.Label(w.Context(), githubsim.Labelling{Repo: full, Number: ticket.Number, Label: w.label, By: demoMaintainer})
	w.must(err)
	for {
		jobs, err := w.store.List(w.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}})
		w.must(err)
		for _, job := range jobs {
			if slices.ContainsFunc(known, func(k queue.Job) bool { return k.ID == job.ID }) || !job.State.Finished() {
				continue
			}
			if job.State == queue.Buried {
				w.Fatalf("the build is buried: %s", job.Cause)
			}
			b, err := pipeline.Read(w.Context(), w.store, job.ID)
			w.must(err)
			return b
		}
		w.must(w.store.Wait(w.Context(), pipeline.KindBuild))
	}
}

// A hold names a step that waits until an issue has landed. It changes between
// builds only.
type hold struct {
	store queue.Store
	step  string
	first string
}

// held is a runtime under a hold.
type held struct {
	runtime.Runtime
	*hold
}

func (h held) Run(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for c.Step == h.step {
		landed, err := h.landed(ctx)
		if err != nil {
			return runtime.Result{}, err
		}
		if landed {
			break
		}
		select {
		case <-ctx.Done():
			return runtime.Result{}, context.Cause(ctx)
		case <-tick.C:
		}
	}
	return h.Runtime.Run(ctx, c, emit)
}

// landed says whether the first issue has, in the build that runs.
func (h *hold) landed(ctx context.Context) (bool, error) {
	jobs, err := h.store.List(ctx, queue.Query{Kinds: []string{pipeline.KindBuild}, Unfinished: true})
	if err != nil || len(jobs) == 0 {
		return false, err
	}
	b, err := pipeline.Read(ctx, h.store, jobs[0].ID)
	return err == nil && slices.ContainsFunc(b.Issues, func(is report.Issue) bool { return is.Name == h.first && is.Merge != "" }), err
}
