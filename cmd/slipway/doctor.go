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
	f := &buildFlags{}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look at how things are set up here",
		Long: `Doctor looks at how things are set up and says what would not work, each with
what to do about it: git and the sandbox, the store, the runtimes that a build
would ask, and the GitHub App: its key, its permissions and events beside those
of its manifest, who installed it, and whether its webhooks arrive. It changes
nothing on GitHub and asks no model. Rules of a repository that would refuse a
branch are not looked at.

The exit code is 0 when all is well or there are no more than warnings, and 3
when there is a problem.`,
		Example: "  slipway doctor\n  slipway doctor --config slipway-server.yml --json\n  slipway doctor models",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.doctor(cmd.Context(), f) },
	}
	f.runtimes(cmd)
	cmd.AddCommand(newDoctorModels(o))
	return cmd
}

func (o *options) doctor(ctx context.Context, f *buildFlags) error {
	local, err := f.agentsOf()
	if err != nil {
		return err
	}
	conf, err := o.load()
	if err != nil {
		return err
	}
	found := o.examine(ctx, conf, local)
	ill := false
	for _, d := range found {
		ill = ill || d.State == app.Problem
		if o.json {
			if err := json.NewEncoder(os.Stdout).Encode(d); err != nil {
				return err
			}
			continue
		}
		fmt.Printf("%-8s %s: %s\n", d.State, printable(d.About), printable(d.Text))
		if d.Fix != "" {
			fmt.Printf("         → %s\n", printable(d.Fix))
		}
	}
	if ill {
		return &exitError{code: exitNeedsHuman}
	}
	return nil
}

// examine looks at this machine, and with its store at GitHub.
func (o *options) examine(ctx context.Context, conf config.Server, local localBuild) []app.Diagnosis {
	var out []app.Diagnosis
	engine, err := o.engineFor(conf, local)
	if err != nil {
		out = append(out, app.Diagnosis{About: "sandbox", State: app.Problem, Text: err.Error(), Fix: "install bubblewrap; docs/configuration.md says what the key sandbox takes"})
	} else {
		out = append(out, app.Examine(ctx, conf, engine)...)
	}
	well, fix := "the store in "+conf.StateDir+" opens", "let state_dir be a directory on a local disk that this account may write"
	if conf.RedisURL != "" {
		well, fix = "the Redis of redis_url answers, and may do what is needed", "docs/deploy.md, \"Redis\", has the addresses, the settings and the rights of the user"
	}
	store, err := o.openStore(ctx, conf, func(text string) {
		out = append(out, app.Diagnosis{About: "store", State: app.Warning, Text: text, Fix: fix})
	})
	if err != nil {
		return append(out, app.Diagnosis{About: "store", State: app.Problem, Text: err.Error(), Fix: fix})
	}
	defer func() { _ = store.Close() }() // nothing was put
	out = append(out, app.Diagnosis{About: "store", State: app.Well, Text: well})
	manifest, err := manifest()
	if err != nil {
		return append(out, app.Diagnosis{About: "app", State: app.Problem, Text: err.Error(), Fix: "build slipway anew"})
	}
	return append(out, app.Diagnose(ctx, conf, store, manifest, o.logger())...)
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
