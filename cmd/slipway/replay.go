package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/queue"
)

// exitDiffers is the exit code of a replay that came out differently.
const exitDiffers = 1

func newReplay(o *options) *cobra.Command {
	var recordings string
	var strict bool
	cmd := &cobra.Command{
		Use:   "replay BUILD",
		Short: "Run an ended build again from its recordings, and compare every decision",
		Long: `Replay runs a build again in a temporary directory, from its base commit, with
agents that play what was recorded of them, and compares the journals: every key,
every outcome, every commit, and the final tree. No model is asked, no command of
the repository runs and nothing is published: what came from outside is taken
from the build's journal, and so is what timing decided.

A build is recorded where the configuration has record: true, or SLIPWAY_RECORD is
true in the environment, while it runs. With --strict what the agents are asked
must be the same, too: role, prompt file, input and model.

The exit code is 0 where everything came out the same, 1 where something differs,
2 usage, 5 environment.`,
		Example: `  slipway replay b-1a2b3c4d
  slipway replay b-1a2b3c4d --strict --json | jq .differences
  slipway replay b-1a2b3c4d --recordings DIR`,
		Args: oneBuild,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runReplay(cmd.Context(), o, args[0], recordings, strict)
		},
	}
	cmd.Flags().BoolVar(&strict, "strict", false, "what the agents are asked must be the same, too")
	cmd.Flags().StringVar(&recordings, "recordings", "", "a txtar file or a directory of JSON files (default: what the build recorded)")
	return cmd
}

func runReplay(ctx context.Context, o *options, build, recordings string, strict bool) error {
	ctx, _, done := interrupts(ctx, finishing)
	defer done()
	var ended app.EndedBuild
	var conf config.Server
	err := o.withJob(ctx, build, func(store queue.Store, c config.Server, j queue.Job) (err error) {
		conf = c
		ended, err = endedBuild(ctx, store, j)
		return err
	})
	if err != nil {
		return err
	}
	if recordings == "" {
		ended.Recordings, err = app.Recordings(conf, build)
	} else if ended.Recordings, err = readRecordings(recordings); err != nil {
		err = fmt.Errorf("--recordings: %w", err)
	}
	if err != nil {
		return err
	}
	out, err := app.Replay(ctx, conf, ended, strict, o.logger())
	if err != nil {
		return environment(err)
	}
	if err := o.tellReplayed(out); err != nil {
		return err
	}
	if !out.Same {
		return &exitError{code: exitDiffers}
	}
	return nil
}

// endedBuild reads what the store knows of a build that has ended.
func endedBuild(ctx context.Context, store queue.Store, j queue.Job) (app.EndedBuild, error) {
	var b app.EndedBuild
	account, err := pipeline.Read(ctx, store, j.ID)
	if err != nil {
		return b, environment(err)
	}
	if !account.State.Final() {
		return b, fmt.Errorf("build %s has not ended: it is %s; only what has ended can be replayed", j.ID, account.State)
	}
	if b.Entries, err = store.Entries(ctx, j.ID, 0); err != nil {
		return b, environment(err)
	}
	if !isLocal(j) {
		return b, json.Unmarshal(j.Payload, &b.Request)
	}
	var l localBuild
	err = json.Unmarshal(j.Payload, &l)
	b.Request, b.Runtime = l.Request, l.Runtime
	return b, err
}

func (o *options) tellReplayed(r pipeline.Replayed) error {
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(r)
	}
	fmt.Printf("build   %s\nplayed  %d entries: %d answers of agents, %d taken from the journal\n", r.Build, r.Entries, r.Agents, r.Given)
	for _, d := range r.Differences {
		switch d.What {
		case "missing", "new":
			fmt.Printf("%-8s%s\n", d.What, d.Key)
		default:
			fmt.Printf("%-8s%s\n        was %s\n        now %s\n", d.What, d.Key, oneLine(d.Recorded), oneLine(d.Now))
		}
	}
	if r.Left != "" {
		fmt.Printf("left    %s\n", oneLine(r.Left))
	}
	switch {
	case r.Tree != r.TreeNow:
		fmt.Printf("tree    was %s\n        now %s\n", r.Tree, r.TreeNow)
	case r.Tree != "":
		fmt.Printf("tree    %s\n", r.Tree)
	}
	if r.Same {
		fmt.Println("\nsame: every decision came out as it was")
	} else {
		fmt.Printf("\ndiffers: %d entries did not come out as they were\n", len(r.Differences))
	}
	return nil
}
