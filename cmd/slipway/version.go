package main

import (
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  slipway version",
		Args:    cobra.NoArgs,
		Run:     func(*cobra.Command, []string) { fmt.Println("slipway", version()) },
	}
}

// version is what the Go tool recorded when it built this binary.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
