package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
)

// exitNeedsHuman is that of a build which a person has to help: configuration
// of the repository that is wrong, or agents that cannot be run.
const exitNeedsHuman = 3

func newDoctor(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "doctor models",
		Short:   "Look at how things are set up here",
		Long:    "Doctor looks at how things are set up here and says what would not work.",
		Example: "  slipway doctor models",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("doctor wants to know what to look at: slipway doctor models")
		},
	}
	cmd.AddCommand(newDoctorModels(o))
	return cmd
}

func newDoctorModels(o *options) *cobra.Command {
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "models [--repo DIR]",
		Short: "Show which model answers for each role, and whether it can be run here",
		Long: `Models shows who answers for each role: the runtime, whether it can be run here,
the model, how hard it thinks, its price in US dollars per million tokens where
that is known, and which key of which file says so. A fallback stands below, on a
line of its own. No model is asked.

With --repo it is what a build of that repository would go by now: the file
.github/slipway.yml as it is committed on the branch that is checked out, over
the server's configuration. Without, it is the server's alone.

The exit code is 0 when every runtime can be run, 3 when one cannot or the
repository's file is wrong, 2 when the server's file or the command line is.`,
		Example: `  slipway doctor models
  slipway doctor models --repo . --config slipway.yml
  slipway doctor models --repo . --runtime command --agent-command 'python3 agent.py' --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.doctorModels(cmd.Context(), f) },
	}
	cmd.Flags().StringVar(&f.repo, "repo", "", "a repository, whose own configuration counts too")
	f.runtimes(cmd)
	return cmd
}

func (o *options) doctorModels(ctx context.Context, f *buildFlags) error {
	local, err := f.agentsOf()
	if err != nil {
		return err
	}
	if f.repo != "" {
		if local.Dir, err = findRepo(f.repo); err != nil {
			return err
		}
	}
	conf, err := o.load()
	if err != nil {
		return err
	}
	engine, err := o.engineFor(conf, local)
	if err != nil {
		return err
	}
	repo, err := configurationOf(ctx, engine, local.Dir)
	if err != nil {
		return err
	}
	rows, err := app.Models(ctx, conf, engine, repo)
	if err != nil {
		return err
	}
	ill := false
	for i, row := range rows {
		if f.runtime != "" && row.Key == "runtime" {
			rows[i].Origin = "--runtime"
		}
		ill = ill || slices.ContainsFunc(row.Targets, func(t app.ModelTarget) bool { return !t.Runs })
	}
	if err := o.printModels(rows); err != nil {
		return err
	}
	if ill {
		return &exitError{code: exitNeedsHuman}
	}
	return nil
}

// configurationOf is what a build of the repository in dir goes by, and without
// a dir what every repository does that says nothing itself.
func configurationOf(ctx context.Context, engine *pipeline.Engine, dir string) (config.Repo, error) {
	if dir == "" {
		if engine.Only != "" {
			return engine.Defaults, nil
		}
		return engine.Defaults, engine.Defaults.Check()
	}
	name := localRepo(dir)
	mirror, err := engine.Mirror(ctx, name)
	if err != nil {
		return config.Repo{}, environment(err)
	}
	repo, err := engine.Configuration(ctx, pipeline.Local{Dir: dir, Mirror: mirror}, name)
	if wrong, ok := errors.AsType[*config.Error](err); ok {
		return repo, &exitError{code: exitNeedsHuman, err: wrong}
	}
	return repo, environment(err)
}

// printModels prints an object for each role, or a table and below it what
// keeps a runtime from being run.
func (o *options) printModels(rows []app.RoleModel) error {
	if o.json {
		for _, row := range rows {
			if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
				return err
			}
		}
		return nil
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "ROLE\tRUNTIME\tRUNS HERE\tMODEL\tEFFORT\tIN\tOUT\tFROM")
	problems := map[string]string{}
	var ill []string
	for _, row := range rows {
		for i, t := range row.Targets {
			who, from := row.Role, row.Key+", "+row.Origin
			switch {
			case i > 0:
				who, from = "  else", ""
			case row.Key == "runtime" && row.Origin == "default":
				from = "runtime default"
			case row.Key == "runtime":
				from = "runtime default, " + row.Origin
			}
			printTarget(table, who, from, t)
			if !t.Runs && problems[t.Runtime] == "" {
				problems[t.Runtime] = t.Problem
				ill = append(ill, t.Runtime)
			}
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, name := range ill {
		fmt.Printf("\n%s cannot be run here: %s\n", name, printable(problems[name]))
	}
	return nil
}

func printTarget(out io.Writer, who, from string, t app.ModelTarget) {
	runs, in, outgo := "yes", "–", "–"
	if !t.Runs {
		runs = "no"
	}
	if t.Price != nil {
		in, outgo = "$"+config.Micros(t.Price.Input).String(), "$"+config.Micros(t.Price.Output).String()
	}
	fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", who, t.Runtime, runs,
		cmp.Or(printable(t.Model), "its own"), cmp.Or(t.Effort, "–"), in, outgo, printable(from))
}
