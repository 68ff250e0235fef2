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

// commit is what an image's binary was built from. The linker sets it: what the Go
// tool records depends on which tags a clone has.
var commit string

// version is the commit of an image's binary, else what the Go tool recorded when
// it built this one.
func version() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "(devel)"
	}
	return info.Main.Version
}
