package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/app/githubsim"
)

// simReady is the one line that the stand-in prints when it listens.
type simReady struct {
	URL string `json:"url"`
}

// newSim runs the GitHub stand-in as a process of its own, as the demo and the
// tests want it: GitHub does not die when Slipway does.
func newSim() *cobra.Command {
	var opts githubsim.Options
	cmd := &cobra.Command{
		Use:    "githubsim --dir DIR",
		Short:  "Run the GitHub stand-in that the demo uses",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := githubsim.Open(opts)
			if err != nil {
				return environment(err)
			}
			defer func() { _ = server.Close() }() // its state needs no closing
			return environment(server.Run(cmd.Context(), func(url string) {
				text, err := json.Marshal(simReady{URL: url})
				if err != nil {
					fmt.Fprintln(os.Stderr, "slipway:", err)
					return
				}
				fmt.Printf("%s\n", text)
			}))
		},
	}
	cmd.Flags().StringVar(&opts.Dir, "dir", "", "directory of its state")
	cmd.Flags().StringVar(&opts.Addr, "addr", "127.0.0.1:0", "where it listens")
	return cmd
}
