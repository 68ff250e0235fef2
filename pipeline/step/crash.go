//go:build crashpoint

package step

import (
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
)

// appends counts the journal appends of this process.
var appends atomic.Int64

// crashBefore and crashAfter kill the process like kill -9 around its n-th
// append, when SLIPWAY_CRASH is "before:n" or "after:n". Only binaries built
// with the crashpoint tag, those of the crash tests, have them.
func crashBefore() int64 {
	n := appends.Add(1)
	crash("before", n)
	return n
}

func crashAfter(n int64) { crash("after", n) }

func crash(when string, n int64) {
	if os.Getenv("SLIPWAY_CRASH") != fmt.Sprintf("%s:%d", when, n) {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing may happen after this point
}
