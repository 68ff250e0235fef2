package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/queue"
)

const day = 24 * time.Hour

func newPrune(o *options) *cobra.Command {
	var days int
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what builds and reviews that ended long ago left behind",
		Long: `Prune removes the kept refs, worktrees, homes, transcripts, recordings and artefacts
of builds and reviews that ended more than --days ago, from the state directory. It never
touches one that has not ended. The journal stays: slipway status and logs still tell
what happened, but the kept work of a build is gone, and where a pull request was pushed
over since, its next review looks at everything.

Refs on GitHub and branches of pull requests are left alone.`,
		Example: "  slipway prune --dry-run\n  slipway prune --days 7 --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return o.withStore(ctx, func(store queue.Store, conf config.Server) error {
				keep := conf.Repo.Over(config.Defaults()).Pipeline.KeepRefs
				if cmd.Flags().Changed("days") {
					if days < 0 {
						return fmt.Errorf("--days %d: give a number of at least 0", days)
					}
					keep = time.Duration(days) * day
				}
				found, err := app.Leftovers(ctx, store, conf.StateDir, time.Now().Add(-keep))
				if err != nil {
					return environment(err)
				}
				do := func(l app.Leftover) error { return l.Remove(ctx, store, conf.StateDir) }
				if dryRun {
					do = nil
				}
				if len(found) == 0 && !o.json {
					fmt.Printf("nothing to remove: no build or review that ended more than %d days ago left anything\n", keep/day)
				}
				return o.prune(ctx, found, do)
			})
		},
	}
	cmd.Flags().IntVar(&days, "days", 0, "how long what they left is kept (default pipeline.keep_refs_days, 30)")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be removed")
	return cmd
}

// pruned is one build's line of slipway prune --json.
type pruned struct {
	app.Leftover
	Removed bool `json:"removed"`
}

// prune prints what builds left, each after remove has removed it; nil removes
// nothing.
func (o *options) prune(ctx context.Context, found []app.Leftover, remove func(app.Leftover) error) error {
	for _, l := range found {
		verb := "would go"
		if remove != nil {
			if err := remove(l); err != nil {
				return environment(err)
			}
			verb = "removed"
		}
		if o.json {
			if err := json.NewEncoder(os.Stdout).Encode(pruned{Leftover: l, Removed: remove != nil}); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("%s  ended %s  %s\n", l.Build, l.Ended.Local().Format("2006-01-02 15:04"), verb)
		for _, dir := range l.Directories {
			fmt.Printf("  %s\n", dir)
		}
		for _, ref := range l.Refs {
			fmt.Printf("  %s in %s\n", ref.Name, ref.Mirror)
		}
	}
	return ctx.Err()
}
