package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// withJob runs a verb on the build of that id.
func (o *options) withJob(ctx context.Context, id string, do func(store queue.Store, conf config.Server, j queue.Job) error) error {
	return o.withStore(ctx, func(store queue.Store, conf config.Server) error {
		jobs, err := store.List(ctx, queue.Query{IDs: []string{id}})
		if err != nil {
			return environment(err)
		}
		if len(jobs) == 0 {
			return fmt.Errorf("no build %s here; slipway list shows those that are", id)
		}
		return do(store, conf, jobs[0])
	})
}

func newStatus(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "status BUILD",
		Short:   "Show where a build stands, also one that another process runs",
		Example: "  slipway status b-1a2b3c4d\n  slipway status b-1a2b3c4d --json",
		Args:    oneBuild,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return o.withJob(ctx, args[0], func(store queue.Store, _ config.Server, j queue.Job) error {
				if isReview(j) {
					return o.reviewStatus(ctx, store, j)
				}
				b, err := app.Account(ctx, store, j)
				if err != nil {
					return environment(err)
				}
				if o.json {
					return json.NewEncoder(os.Stdout).Encode(b)
				}
				fmt.Println(report.Status(b))
				if j.Cause != "" && !b.State.Final() {
					fmt.Printf("\nqueue: %s, %s\n", j.State, j.Cause)
				}
				return nil
			})
		},
	}
}

// listed is one line of slipway list --json.
type listed struct {
	Build   string       `json:"build"`
	State   report.State `json:"state"`
	Repo    string       `json:"repo"`
	Ticket  int          `json:"ticket,omitempty"`
	Title   string       `json:"title"`
	Cost    report.USD   `json:"cost_usd"`
	Created time.Time    `json:"created"`
}

func newList(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List builds, newest first",
		Example: "  slipway list\n  slipway list --json | jq -r 'select(.state==\"running\").build'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			return o.withStore(ctx, func(store queue.Store, _ config.Server) error {
				jobs, err := store.List(ctx, queue.Query{Kinds: append(pipeline.Kinds(), pipeline.KindReview, "local/")})
				if err != nil {
					return environment(err)
				}
				table := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
				for _, j := range jobs {
					line, err := lineOf(ctx, store, j)
					if err != nil {
						return err
					}
					if o.json {
						if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
							return err
						}
						continue
					}
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\t$%s\n", line.Build, line.State, j.Created.Local().Format("2006-01-02 15:04"), oneLine(line.Title), dollars(int64(line.Cost)))
				}
				return table.Flush()
			})
		},
	}
}

// lineOf is a job as a line of the list.
func lineOf(ctx context.Context, store queue.Store, j queue.Job) (listed, error) {
	if isReview(j) {
		return listedReview(ctx, store, j)
	}
	b, err := app.Account(ctx, store, j)
	line := listed{Build: j.ID, State: b.State, Repo: b.Repo, Ticket: b.Ticket, Title: b.Title, Cost: report.USD(b.CostMicros), Created: j.Created}
	return line, environment(err)
}

func newCancel(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "cancel BUILD",
		Short:   "Stop a build; what it finished is kept and published",
		Example: "  slipway cancel b-1a2b3c4d",
		Args:    oneBuild,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return o.withJob(ctx, args[0], func(store queue.Store, _ config.Server, j queue.Job) error {
				return o.send(ctx, store, j, pipeline.CancelSignal, pipeline.Said{})
			})
		},
	}
}

func newResume(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "resume BUILD",
		Short: "Go on with a build of this terminal that was interrupted, waits or ended badly",
		Long: `Resume goes on where the build's journal ends: finished agent calls are not
repeated. Of a build that failed, was cancelled or needed a person, what ended
badly is asked anew. It is for builds that slipway build started; a server
resumes its own.`,
		Example: "  slipway resume b-1a2b3c4d",
		Args:    oneBuild,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			var local localBuild
			err := o.withJob(ctx, args[0], func(store queue.Store, _ config.Server, j queue.Job) error {
				if isReview(j) && j.State.Finished() {
					return fmt.Errorf("review %s has ended; see: slipway status %s", j.ID, j.ID)
				}
				if !isLocal(j) {
					return fmt.Errorf("build %s belongs to a server, which resumes it by itself", j.ID)
				}
				if j.State.Finished() {
					if err := reopen(ctx, store, j); err != nil {
						return err
					}
				}
				return json.Unmarshal(j.Payload, &local)
			})
			if err != nil {
				return err
			}
			if local.Review != nil {
				return o.runReview(ctx, local)
			}
			return o.runLocal(ctx, local)
		},
	}
}

// reopen puts an ended build that something is left of back in the queue.
func reopen(ctx context.Context, store queue.Store, j queue.Job) error {
	account, err := app.Account(ctx, store, j)
	if err != nil {
		return environment(err)
	}
	if why := pipeline.Refusal(account, pipeline.ResumeSignal, pipeline.Said{}); why != "" {
		return fmt.Errorf("build %s has ended: %s; see: slipway status %s", j.ID, why, j.ID)
	}
	return environment(store.Send(ctx, j.ID, newSignal(pipeline.ResumeSignal, json.RawMessage(`{}`))))
}

func newLogs(o *options) *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:     "logs BUILD [KEY]",
		Short:   "Show a build's steps, or the transcript of one agent call",
		Long:    "Logs prints the build's journal as it was written. With a KEY, such as\nissue-01/round-1/iter-1/coder, it prints what that agent said and did.",
		Example: "  slipway logs b-1a2b3c4d --follow\n  slipway logs b-1a2b3c4d issue-01/round-1/iter-1/coder",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				args = args[:1] // the KEY may be left out
			}
			return oneBuild(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return o.withJob(ctx, args[0], func(store queue.Store, conf config.Server, j queue.Job) error {
				if len(args) == 2 {
					return printTranscript(conf.StateDir, j.ID, args[1])
				}
				if isReview(j) {
					return o.logReview(ctx, store, j, follow)
				}
				v := newView(o, j.ID)
				v.live = v.live && follow
				v.catchUp(ctx, store)
				for follow && !j.State.Finished() && !v.watch.Fold.Report(time.Now()).State.Final() {
					if err := store.Wait(ctx, queue.SignalsOf(j.ID)); err != nil {
						return nil //nolint:nilerr // Ctrl-C ends following; that is no failure
					}
					v.catchUp(ctx, store)
				}
				v.erase()
				return nil
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on until the build ends")
	return cmd
}

func printTranscript(stateDir, build, key string) error {
	root, err := os.OpenRoot(filepath.Join(stateDir, "transcripts", build))
	if err != nil {
		return fmt.Errorf("build %s has no transcripts here: %w", build, err)
	}
	defer func() { _ = root.Close() }() // it was only read from
	text, err := root.ReadFile(filepath.FromSlash(key) + ".jsonl")
	if err != nil {
		return fmt.Errorf("no transcript of %s: %w", key, err)
	}
	_, err = os.Stdout.Write(text)
	return err
}
