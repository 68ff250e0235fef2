package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

func newPlan(o *options) *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "plan --repo DIR (--goal TEXT | --goal-file FILE)",
		Short: "Plan a goal and stop there",
		Long:  "Plan runs the planning agents alone and prints the issues in the order in which\nthey can run. With --json it prints the whole plan as one object.",
		Example: `  slipway plan --repo . --goal "Add a --version flag"
  slipway plan --repo . --goal-file ticket.md --json > plan.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runPlan(cmd.Context(), o, f) },
	}
	f.goals(cmd)
	f.agents(cmd)
	return cmd
}

func runPlan(ctx context.Context, o *options, f *buildFlags) error {
	local, err := f.local()
	if err != nil {
		return err
	}
	var made plan.Result
	kept := ""
	err = o.withStore(ctx, func(store queue.Store, conf config.Server) error {
		dir := filepath.Join(conf.StateDir, "builds", local.Request.Build)
		kept = filepath.Join(dir, "plan")
		quiet := newView(o, local.Request.Build)
		quiet.out, quiet.live = os.Stderr, false
		var account report.Build
		err := o.claimLocal(ctx, conf, store, local, quiet.follow, func(ctx context.Context, c app.Claim) (err error) {
			c.Subagents = quiet.slot
			made, account, err = c.Plan(ctx)
			return err
		})
		if err == nil && account.State != report.Planned {
			quiet.finish(ctx, store, account, filepath.Join(dir, "report.md"))
			return &exitError{code: report.ExitCode(account)}
		}
		return err
	})
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(made)
	}
	fmt.Printf("%s\n\n", made.PRD.Title)
	for _, is := range made.Issues {
		fmt.Println(plannedLine(is.Number, is.Name, is.Title, is.DependsOn))
	}
	fmt.Printf("\nplan  %s\n", kept)
	return nil
}

// plannedLine is one issue of a plan.
func plannedLine(number int, name, title string, dependsOn []string) string {
	after := ""
	if len(dependsOn) > 0 {
		after = "  after " + strings.Join(dependsOn, ", ")
	}
	return fmt.Sprintf("%02d  %-30s %s%s", number, oneLine(name), oneLine(title), after)
}
