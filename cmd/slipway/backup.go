package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/queue"
)

func newBackup(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write what cannot be made anew into one file, also while a server runs",
		Long: `Backup writes the embedded store, the commits of all builds, and their reports and
transcripts into FILE, a tar.gz that only you can read, as they are at one instant.
Servers and builds go on meanwhile. FILE is there when it is whole; one that is there
already is not overwritten. slipway restore puts it into another state directory,
where builds go on as after a crash: what was recorded is not run again.

It is not in it: the App's credentials (github-app.yml), which belong where your
secrets are; the configuration file; clones, homes and caches, which are made anew.

A store in Redis is backed up with Redis: docs/deploy.md says how.`,
		Example: "  slipway backup /var/backups/slipway-2026-01-31.tar.gz\n  slipway backup slipway.tar.gz --state-dir /var/lib/slipway --json",
		Args:    oneFile,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.backUp(cmd.Context(), args[0]) },
	}
}

// oneFile wants the name of a file as the only argument.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("%s wants the name of one file, and got %d arguments; see: slipway %s --help", cmd.Name(), len(args), cmd.Name())
	}
	return nil
}

// backedUp is what slipway backup --json prints.
type backedUp struct {
	File    string    `json:"file"`
	Bytes   int64     `json:"bytes"`
	Taken   time.Time `json:"taken"`
	Files   int       `json:"files"`
	LeftOut []string  `json:"left_out"`
}

func (o *options) backUp(ctx context.Context, file string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	conf, err := o.embedded()
	if err != nil {
		return err
	}
	dir := filepath.Join(conf.StateDir, "store")
	if _, err := os.Stat(filepath.Join(dir, "queue.db")); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no store in %s: name the state directory with --state-dir", conf.StateDir)
	}
	store, err := queue.OpenSQLite(ctx, dir)
	if err != nil {
		return environment(err)
	}
	defer func() { _ = store.Close() }() // it was only read from
	made, err := app.BackUp(ctx, store, conf.StateDir, file, version(), o.progress())
	if err != nil {
		return interrupted(ctx, err)
	}
	info, err := os.Stat(file)
	if err != nil {
		return environment(err)
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(backedUp{
			File: file, Bytes: info.Size(), Taken: made.Taken, Files: len(made.Files), LeftOut: made.LeftOut,
		})
	}
	fmt.Printf("%s  %d files, %d bytes, as of %s\n", file, len(made.Files), info.Size(), made.Taken.Local().Format(time.DateTime))
	sayLeftOut(made.LeftOut)
	return nil
}

// embedded is the configuration of an installation whose store is in the state
// directory.
func (o *options) embedded() (config.Server, error) {
	conf, err := o.load()
	if err == nil && conf.RedisURL != "" {
		err = errors.New("the store is in Redis, as redis_url says: it is backed up and restored with Redis; see docs/deploy.md")
	}
	return conf, err
}

// progress says on a terminal what is being done.
func (o *options) progress() func(string) {
	if o.json || !isTerminal(os.Stderr) {
		return func(string) {}
	}
	return func(what string) { fmt.Fprintln(os.Stderr, "slipway: "+what) }
}

// interrupted tells Ctrl-C from what went wrong on this machine.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return &exitError{code: exitInterrupted, err: errors.New("interrupted; nothing was changed")}
	}
	return environment(err)
}

func sayLeftOut(files []string) {
	for _, name := range files {
		fmt.Printf("not in it: %s, with the App's credentials: keep a copy where your secrets are\n", name)
	}
}
