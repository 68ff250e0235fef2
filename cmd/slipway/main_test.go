package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// slipwayBinary is the command as people run it, built from this tree.
var slipwayBinary string

func TestMain(m *testing.M) {
	sandbox.Main() // tests that run the engine in this process start it again
	os.Exit(testMain(m))
}

func testMain(m *testing.M) int {
	dir, err := os.MkdirTemp("", "slipway-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	slipwayBinary = filepath.Join(dir, "slipway")
	if out, err := exec.Command("go", "build", "-o", slipwayBinary, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the command: %v\n%s", err, out)
		return 1
	}
	// Most tests wait for processes, limits and clocks most of the time: more of
	// them than processors is right.
	flag.Parse()
	if err := flag.Set("test.parallel", "4"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}
