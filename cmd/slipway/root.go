package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/queue"
)

// options are the flags that every verb has.
type options struct {
	stateDir string
	config   string
	json     bool
	verbose  bool
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:              "slipway",
		Short:            "From a ticket to a verified draft pull request",
		Long:             "Slipway plans a piece of work, codes it in parallel in isolated git worktrees,\nreviews, merges and verifies it, and opens a draft pull request with the evidence.",
		PersistentPreRun: func(*cobra.Command, []string) { slog.SetDefault(o.logger()) },
		SilenceUsage:     true,
		SilenceErrors:    true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&o.stateDir, "state-dir", "", "where Slipway keeps its store, mirrors and reports (default $SLIPWAY_STATE_DIR or $XDG_STATE_HOME/slipway)")
	flags.StringVar(&o.config, "config", "", "server configuration file (YAML)")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "log what happens to standard error")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(
		newDemo(o), newServe(o), newWorker(o), newBuild(o), newReview(o), newPlan(o), newStatus(o), newList(o),
		newCancel(o), newResume(o), newLogs(o), newReplay(o), newSimulate(o), newEval(o), newPrune(o), newBackup(o), newRestore(o), newDoctor(o), newMCP(), newVersion(), newSim(),
	)
	root.AddCommand(newSayings(o)...)
	return root
}

// oneBuild wants the id of a build as the only argument.
func oneBuild(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s wants the id of one build, and got %d arguments; slipway list shows the builds", cmd.Name(), len(args))
	}
	return nil
}

// load reads the server configuration; the flags win.
func (o *options) load() (config.Server, error) {
	conf, err := config.LoadServer(o.config, os.Environ())
	if err != nil {
		return conf, err
	}
	if o.stateDir != "" {
		conf.StateDir = o.stateDir
	}
	if conf.StateDir, err = filepath.Abs(conf.StateDir); err != nil {
		return conf, err
	}
	return conf, conf.ReadStored()
}

// logger logs to standard error, by default only what a person must know.
func (o *options) logger() *slog.Logger {
	level := slog.LevelError
	if o.verbose {
		level = slog.LevelInfo
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
}

// closingStore is a store that a verb has opened.
type closingStore interface {
	queue.Store
	Close() error
}

// store opens the configured store: Redis where there is an address of one, else
// the embedded one of the state directory.
func (o *options) store(ctx context.Context, conf config.Server) (closingStore, error) {
	if conf.RedisURL != "" {
		store, err := queue.OpenRedis(ctx, queue.RedisOptions{
			URL: conf.RedisURL.Reveal(), Dir: filepath.Join(conf.StateDir, "workers"), Log: o.logger(),
		})
		if err != nil {
			return nil, environment(err)
		}
		return store, nil
	}
	store, err := queue.OpenSQLite(ctx, filepath.Join(conf.StateDir, "store"))
	if err != nil {
		return nil, environment(fmt.Errorf("open the store in %s: %w", conf.StateDir, err))
	}
	return store, nil
}

// withStore runs a verb on the configured store.
func (o *options) withStore(ctx context.Context, do func(store queue.Store, conf config.Server) error) error {
	conf, err := o.load()
	if err != nil {
		return err
	}
	store, err := o.store(ctx, conf)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // what it acknowledged is durable
	return do(store, conf)
}

// What the first Ctrl-C says.
const (
	finishing = "finishing the agent calls that run; press Ctrl-C again to stop them"
	showing   = "stopping the agents to show what is verified; press Ctrl-C again to stop at once and keep the review for resume"
)

// errInterrupted is a second Ctrl-C.
var errInterrupted = errors.New("interrupted")

// interrupts turns Ctrl-C into two steps: the first closes draining and says so,
// the second ends the context.
func interrupts(ctx context.Context, first string) (stopped context.Context, draining <-chan struct{}, done func()) {
	stopped, cancel := context.WithCancelCause(ctx)
	once := make(chan struct{})
	keys := make(chan os.Signal, 2)
	signal.Notify(keys, os.Interrupt, syscall.SIGHUP)
	finished := make(chan struct{})
	go func() {
		drained := false
		for {
			select {
			case <-finished:
				return
			case <-keys:
				if drained {
					cancel(errInterrupted)
					return
				}
				drained = true
				close(once)
				fmt.Fprintln(os.Stderr, "slipway: "+first)
			}
		}
	}()
	return stopped, once, func() {
		signal.Stop(keys)
		close(finished)
		cancel(nil)
	}
}
