package main

import (
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// bridge is the command line that makes this program the MCP server of a CLI.
func bridge() []string {
	program, err := os.Executable()
	if err != nil {
		return nil // agents of CLIs have no agent tool then
	}
	return []string{program, "mcp", "--socket"}
}

func newMCP() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the agent tool to a coding CLI (MCP on stdin and stdout)",
		Long: `Mcp is the MCP server through which an agent of Claude Code, OpenCode or Codex
asks subagents: one tool, agent, that takes one task or a list of tasks and runs
them at the same time. Slipway puts it into the configuration of every CLI that
it starts; nobody needs to type it. It ends with the agent call it belongs to.`,
		Example: "  slipway mcp --socket /tmp/slipway-mcp-123/s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if socket == "" {
				return errors.New("--socket is missing: slipway mcp is started by the agents of a build, which name theirs")
			}
			if err := runtime.Pipe(cmd.Context(), socket, os.Stdin, os.Stdout); err != nil {
				return environment(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "where the agent call that this belongs to listens")
	return cmd
}
