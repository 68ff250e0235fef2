package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway"
	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

func newServe(o *options) *cobra.Command {
	f := &buildFlags{}
	var listen, redisURL string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the GitHub App: webhooks and workers in one process",
		Long: `Serve receives GitHub's webhooks and works on builds, with an embedded store in
the state directory, or with the Redis that --redis or redis_url names, which
others may serve and work with too. It needs the credentials of a GitHub App.
Without any it prints a link to a page that creates the App, keeps the
credentials in the state directory, and goes on; where only some are set it says
which are missing. SIGTERM or Ctrl-C drains: builds go on where they were when
serve starts again.`,
		Example: "  slipway serve --config slipway-server.yml\n  SLIPWAY_GITHUB_APP_ID=1 SLIPWAY_GITHUB_PRIVATE_KEY_FILE=key.pem SLIPWAY_GITHUB_WEBHOOK_SECRETS=s3cret slipway serve",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runServe(cmd.Context(), o, f, listen, redisURL) },
	}
	cmd.Flags().StringVar(&listen, "listen", "", "host:port of the webhook endpoint (default from configuration)")
	redisFlag(cmd, &redisURL)
	f.agents(cmd)
	return cmd
}

func redisFlag(cmd *cobra.Command, address *string) {
	cmd.Flags().StringVar(address, "redis", "", "address of the Redis with the store, without a password (default redis_url of the configuration)")
}

func runServe(ctx context.Context, o *options, f *buildFlags, listen, redisURL string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	conf, err := o.loadFor(redisURL)
	if err != nil {
		return err
	}
	if listen != "" {
		conf.Listen = listen
	}
	if conf.GitHub.Unconfigured() {
		if conf, err = o.setUp(ctx, conf); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return o.withServer(ctx, conf, f, app.New, func(server *app.App) error {
		listener, err := net.Listen("tcp", conf.Listen)
		if err != nil {
			return fmt.Errorf("listen on %s: %w", conf.Listen, err)
		}
		fmt.Fprintf(os.Stderr, "slipway: webhooks at http://%s/webhook, state in %s\n", listener.Addr(), conf.StateDir)
		return server.Run(ctx, listener)
	})
}

// loadFor reads the configuration for a store at an address, if one is given.
func (o *options) loadFor(redisURL string) (config.Server, error) {
	conf, err := o.load()
	if err != nil || redisURL == "" {
		return conf, err
	}
	// Everybody on the host reads the arguments of a process.
	if address, err := url.Parse(redisURL); err == nil {
		if _, secret := address.User.Password(); secret || address.Query().Has("sentinel_password") {
			return conf, errors.New("--redis: an address with a password belongs into redis_url of the configuration file, or SLIPWAY_REDIS_URL")
		}
	}
	conf.RedisURL = config.Secret(redisURL)
	return conf, nil
}

// wiring makes a server, or one that only works.
type wiring func(config.Server, queue.Store, *pipeline.Engine, *slog.Logger) (*app.App, error)

// withServer wires a server and has run make use of it.
func (o *options) withServer(ctx context.Context, conf config.Server, f *buildFlags, wire wiring, run func(*app.App) error) error {
	agents, err := f.agentsOf()
	if err != nil {
		return err
	}
	engine, err := o.engineFor(conf, agents)
	if err != nil {
		return err
	}
	store, err := o.store(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // what it acknowledged is durable
	server, err := wire(conf, store, engine, o.logger())
	if missing, ok := errors.AsType[*app.MissingError](err); ok {
		return &exitError{code: exitUsage, err: missing}
	}
	if err != nil {
		return environment(err)
	}
	return environment(run(server))
}

// setUp serves the page that creates the App, on the address where webhooks will
// come, and returns the configuration with it.
func (o *options) setUp(ctx context.Context, conf config.Server) (config.Server, error) {
	manifest, err := manifest()
	if err != nil {
		return conf, err
	}
	listener, err := net.Listen("tcp", conf.Listen)
	if err != nil {
		return conf, environment(fmt.Errorf("listen on %s: %w", conf.Listen, err))
	}
	page := app.NewSetup(conf, manifest, o.logger())
	fmt.Fprintf(os.Stderr, "slipway: no GitHub App is configured. Create one here; the link is good once:\n\n  %s\n\n", page.Link(listener))
	stored, err := page.Run(ctx, listener)
	if err != nil || !stored {
		return conf, environment(err)
	}
	conf.Listen = listener.Addr().String() // where the App was told that we are
	return conf, conf.ReadStored()
}

// manifest is the App's that this binary carries.
func manifest() (app.Manifest, error) {
	file, err := slipway.Files.ReadFile("app.yml")
	if err != nil {
		return app.Manifest{}, err
	}
	return app.ReadManifest(file)
}
