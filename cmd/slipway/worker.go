package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
)

func newWorker(o *options) *cobra.Command {
	f := &buildFlags{}
	var listen, redisURL string
	var slots int
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Work on the builds of a server that keeps them in Redis",
		Long: `Worker works on deliveries and builds beside slipway serve, on the same host or
another, and receives no webhooks itself. It needs the configuration of that
server and its Redis. SIGTERM or Ctrl-C drains: what it works on is handed back
uncharged and goes on elsewhere. With --listen it answers probes: /healthz while the
process does, /readyz while Redis does too.`,
		Example: "  slipway worker --config slipway-server.yml --redis rediss://redis.example.com:6379 --slots 4",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("slots") && (slots < 1 || slots > 64) {
				return fmt.Errorf("--slots %d: want a number from 1 to 64", slots)
			}
			return runWorker(cmd.Context(), o, f, listen, redisURL, slots)
		},
	}
	cmd.Flags().IntVar(&slots, "slots", 0, "builds at a time (default slots.builds of the configuration)")
	cmd.Flags().StringVar(&listen, "listen", "", "host:port of /healthz and /readyz (default: none)")
	redisFlag(cmd, &redisURL)
	f.agents(cmd)
	return cmd
}

func runWorker(ctx context.Context, o *options, f *buildFlags, listen, redisURL string, slots int) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	conf, err := o.loadFor(redisURL)
	if err != nil {
		return err
	}
	if conf.RedisURL == "" {
		return errors.New("a worker needs the Redis of its server: give --redis, or set redis_url in the configuration file, or SLIPWAY_REDIS_URL")
	}
	if slots > 0 {
		conf.Slots.Builds = slots
	}
	return o.withServer(ctx, conf, f, app.NewWorker, func(server *app.App) error {
		said := fmt.Sprintf("slipway: %d builds at a time, state in %s", conf.Slots.Builds, conf.StateDir)
		var probes net.Listener
		if listen != "" {
			if probes, err = net.Listen("tcp", listen); err != nil {
				return fmt.Errorf("listen on %s: %w", listen, err)
			}
			said += fmt.Sprintf(", probes at http://%s", probes.Addr())
		}
		fmt.Fprintln(os.Stderr, said)
		return server.Work(ctx, probes)
	})
}
