package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/spf13/cobra"

	slipway "github.com/slipway-dev/slipway"
	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/queue"
)

// The demo's people and places.
const (
	demoOwner      = "harbour"
	demoRepo       = "tally"
	demoMaintainer = "mira"
	demoSecret     = "demo-webhook-secret" //nolint:gosec // it guards a loopback stand-in
)

func newDemo(o *options) *cobra.Command {
	f := &buildFlags{}
	var once bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "See the whole product on this machine: no account, no key",
		Long: `Demo starts a GitHub stand-in with real git over HTTP, a sample repository with a
ticket, and the server with an embedded store, all on loopback. It labels the
ticket and shows the build until its draft pull request is open. The agents are
recorded ones, unless --runtime names another. It stays up until Ctrl-C, so that
you can look at the pages; with --once it exits by the build's outcome.`,
		Example: "  slipway demo\n  slipway demo --once --json\n  slipway demo --runtime claude_code",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDemo(cmd.Context(), o, f, once) },
	}
	cmd.Flags().BoolVar(&once, "once", false, "exit when the build has ended, by its outcome")
	f.agents(cmd)
	return cmd
}

func runDemo(ctx context.Context, o *options, f *buildFlags, once bool) (err error) {
	ctx, _, done := interrupts(ctx, finishing)
	defer done()
	ctx, stop := context.WithCancel(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer stop()

	conf, err := o.load()
	if err != nil {
		return err
	}
	conf.RedisURL = "" // a demo is no work for anybody else
	if o.stateDir == "" {
		if conf.StateDir, err = os.MkdirTemp("", "slipway-demo-"); err != nil {
			return environment(err)
		}
		defer func() { err = errors.Join(err, os.RemoveAll(conf.StateDir)) }()
	}
	sim, err := startSim(ctx, &parts, filepath.Join(conf.StateDir, "githubsim"))
	if err != nil {
		return environment(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return environment(err)
	}
	ticket, err := furnish(ctx, sim, &conf, "http://"+listener.Addr().String()+"/webhook")
	if err != nil {
		return environment(fmt.Errorf("set up the demo: %w", err))
	}
	engine, err := demoEngine(o, conf, f)
	if err != nil {
		return err
	}
	store, err := o.store(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // what it acknowledged is durable
	server, err := app.New(conf, store, engine, o.logger())
	if err != nil {
		return environment(err)
	}
	serving, drain := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Run(serving, listener) }()
	defer func() { drain(); err = errors.Join(err, <-served) }()

	say(o, "ticket  %s\n", ticket.Page)
	label := githubsim.Labelling{Repo: demoOwner + "/" + demoRepo, Number: ticket.Number, Label: engine.Defaults.Build.Label, By: demoMaintainer}
	if err := sim.Do(ctx, "label", label, nil); err != nil {
		return environment(err)
	}
	final, err := watchDemo(ctx, o, store)
	if err != nil {
		return err
	}
	if final.Pull != nil {
		say(o, "checks  %s#checks\n", final.Pull.URL)
	}
	if !once {
		say(o, "\nLook around; Ctrl-C ends the demo.\n")
		<-ctx.Done()
		return nil
	}
	if code := report.ExitCode(final); code != 0 {
		return &exitError{code: code}
	}
	return nil
}

func say(o *options, format string, args ...any) {
	if !o.json {
		fmt.Printf(format, args...)
	}
}

// startSim starts the stand-in as a process of its own, which ends with ctx.
func startSim(ctx context.Context, parts *sync.WaitGroup, dir string) (githubsim.Remote, error) {
	self, err := os.Executable()
	if err != nil {
		return githubsim.Remote{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return githubsim.Remote{}, err
	}
	out, in := io.Pipe()
	parts.Go(func() {
		_, err := sandbox.Host(ctx, sandbox.Command{
			Args: []string{self, "githubsim", "--dir", dir}, Dir: dir, Env: os.Environ(), Stdout: in, Stderr: os.Stderr,
		})
		in.CloseWithError(errors.Join(err, io.EOF))
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return githubsim.Remote{}, fmt.Errorf("start the GitHub stand-in: %w", err)
	}
	var ready simReady
	if err := json.Unmarshal(line, &ready); err != nil {
		return githubsim.Remote{}, fmt.Errorf("start the GitHub stand-in: %w", err)
	}
	return githubsim.Remote{URL: ready.URL}, nil
}

// furnish makes the App, the repository, its people and the ticket, and puts
// the App's credentials into conf.
func furnish(ctx context.Context, sim githubsim.Remote, conf *config.Server, webhook string) (githubsim.Thread, error) {
	var ticket githubsim.Thread
	sample, err := readSample()
	if err != nil {
		return ticket, err
	}
	var created githubsim.App
	full := demoOwner + "/" + demoRepo
	for _, step := range []struct {
		verb    string
		in, out any
	}{
		{"app", githubsim.AppSpec{Slug: "slipway", Name: "Slipway", Secret: demoSecret, WebhookURL: webhook}, &created},
		{"user", githubsim.UserSpec{Login: demoOwner, Type: "Organization"}, nil},
		{"user", githubsim.UserSpec{Login: demoMaintainer}, nil},
		{"repo", githubsim.RepoSpec{Owner: demoOwner, Name: demoRepo, Description: sample.description, Files: sample.files}, nil},
		{"role", githubsim.RoleSpec{Repo: full, Login: demoMaintainer, Role: "maintain"}, nil},
		{"install", githubsim.InstallSpec{App: "slipway", Account: demoOwner, Repos: []string{demoRepo}}, nil},
		{"ticket", githubsim.TicketSpec{Repo: full, Title: sample.title, Body: sample.body, By: demoMaintainer}, &ticket},
	} {
		if err := sim.Do(ctx, step.verb, step.in, step.out); err != nil {
			return ticket, fmt.Errorf("%s: %w", step.verb, err)
		}
	}
	conf.GitHub = config.GitHub{
		AppID: created.ID, Slug: created.Slug, PrivateKey: config.Secret(created.PrivateKey),
		WebhookSecrets: []config.Secret{config.Secret(created.Secret)},
		BaseURL:        sim.URL + "/",
	}
	return ticket, nil
}

// sample is the demo's repository and its ticket.
type sample struct {
	description, title, body string
	files                    map[string]string
}

// readSample reads the embedded archive: its comment describes the repository,
// the file TICKET.md is the ticket, the rest are the repository's files.
func readSample() (sample, error) {
	text, err := fs.ReadFile(slipway.Files, "testdata/repos/tally.txtar")
	if err != nil {
		return sample{}, err
	}
	archive := txtar.Parse(text)
	s := sample{description: strings.TrimSpace(string(archive.Comment)), files: map[string]string{}}
	for _, f := range archive.Files {
		if f.Name != "TICKET.md" {
			s.files[f.Name] = string(f.Data)
			continue
		}
		title, body, _ := strings.Cut(string(f.Data), "\n")
		s.title, s.body = strings.TrimSpace(strings.TrimPrefix(title, "#")), strings.TrimSpace(body)
	}
	if s.title == "" {
		return s, errors.New("the sample has no TICKET.md")
	}
	return s, nil
}

// demoEngine plays the recorded agents, unless the flags name others.
func demoEngine(o *options, conf config.Server, f *buildFlags) (*pipeline.Engine, error) {
	if f.runtime != "" && f.runtime != "replay" {
		agents, err := f.agentsOf()
		if err != nil {
			return nil, err
		}
		return o.engineFor(conf, agents)
	}
	text, err := fs.ReadFile(slipway.Files, "testdata/agents/tally.txtar")
	if err != nil {
		return nil, err
	}
	recordings, err := runtime.ReadArchive(text)
	if err != nil {
		return nil, fmt.Errorf("read the recorded agents: %w", err)
	}
	engine, err := app.NewEngine(conf, app.Agents{Runtime: "replay", Recordings: recordings}, o.logger())
	return engine, environment(err)
}

// watchDemo shows the build that the label starts until it has ended.
func watchDemo(ctx context.Context, o *options, store queue.Store) (report.Build, error) {
	id := ""
	for id == "" {
		jobs, err := store.List(ctx, queue.Query{Kinds: []string{pipeline.KindBuild}})
		if err != nil {
			return report.Build{}, environment(err)
		}
		if len(jobs) > 0 {
			id = jobs[0].ID
			break
		}
		if err := store.Wait(ctx, pipeline.KindBuild); err != nil {
			return report.Build{}, environment(err)
		}
	}
	v := newView(o, id)
	following, stop := context.WithCancel(ctx)
	defer stop()
	shown := make(chan struct{})
	go func() { defer close(shown); v.follow(following, store) }()
	for {
		jobs, err := store.List(ctx, queue.Query{IDs: []string{id}})
		if err != nil {
			return report.Build{}, environment(err)
		}
		if len(jobs) == 1 && jobs[0].State.Finished() {
			stop()
			<-shown
			if jobs[0].State == queue.Buried {
				return report.Build{}, environment(errors.New(jobs[0].Cause))
			}
			final, err := pipeline.Read(ctx, store, id)
			v.finish(ctx, store, final, "")
			return final, environment(err)
		}
		if err := store.Wait(ctx, pipeline.KindBuild); err != nil {
			stop()
			<-shown
			return report.Build{}, environment(err)
		}
	}
}
