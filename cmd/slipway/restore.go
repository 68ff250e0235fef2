package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/queue"
)

func newRestore(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup into a state directory that has no work in it",
		Long: `Restore puts what slipway backup wrote into the state directory, and lists what was
under way. All of it is checked before anything is put in place. It is refused where
there is a store with a job in it, or one that a process has open.

Builds go on as after a crash: steps that were recorded before the backup are not run
again, those after it are. The server that the backup is from must not run any more:
two that work on the same tickets would each do everything.`,
		Example: "  slipway restore /var/backups/slipway-2026-01-31.tar.gz --state-dir /var/lib/slipway\n  slipway restore slipway.tar.gz --json",
		Args:    oneFile,
		RunE:    func(cmd *cobra.Command, args []string) error { return o.restore(cmd.Context(), args[0]) },
	}
}

// restored is what slipway restore --json prints.
type restored struct {
	StateDir string     `json:"state_dir"`
	Taken    time.Time  `json:"taken"`
	LeftOut  []string   `json:"left_out"`
	Open     []openWork `json:"open"`
}

// openWork is a job that had not ended, and how it goes on.
type openWork struct {
	ID   string `json:"id"`
	Kind string `json:"kind"`
	Next string `json:"next"`
}

func (o *options) restore(ctx context.Context, file string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	conf, err := o.embedded()
	if err != nil {
		return err
	}
	from, jobs, err := app.Restore(ctx, file, conf.StateDir, o.progress())
	if err != nil {
		return interrupted(ctx, err)
	}
	out := restored{StateDir: conf.StateDir, Taken: from.Taken, LeftOut: from.LeftOut, Open: []openWork{}}
	for _, j := range jobs {
		out.Open = append(out.Open, openWork{ID: j.ID, Kind: j.Kind, Next: next(j)})
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(out)
	}
	fmt.Printf("%s is as it was at %s; what happened since is unknown to it\n", out.StateDir, out.Taken.Local().Format(time.DateTime))
	for _, w := range out.Open {
		fmt.Printf("%s  %s\n", w.ID, w.Next)
	}
	sayLeftOut(out.LeftOut)
	return nil
}

// next says how an open job goes on after a restore.
func next(j queue.Job) string {
	if !isLocal(j) {
		return "goes on when slipway serve runs"
	}
	var local localBuild
	if err := json.Unmarshal(j.Payload, &local); err != nil {
		return "cannot go on: " + err.Error()
	}
	for _, path := range append([]string{local.Dir, local.Recordings}, local.Readable...) {
		if path == "" {
			continue
		}
		if _, err := os.Stat(path); err != nil {
			return fmt.Sprintf("cannot go on before this can be had here: %s", strings.TrimPrefix(err.Error(), "stat "))
		}
	}
	return "goes on with: slipway resume " + j.ID
}
