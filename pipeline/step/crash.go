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
// append, or around the one of a key, when SLIPWAY_CRASH is "before:n",
// "after:n", "before:key" or "after:key". Only binaries built with the
// crashpoint tag, those of the crash tests, have them.
func crashBefore(key string) int64 {
	n := appends.Add(1)
	crash("before", key, n)
	return n
}

func crashAfter(key string, n int64) { crash("after", key, n) }

func crash(when, key string, n int64) {
	at := os.Getenv("SLIPWAY_CRASH")
	if at != fmt.Sprintf("%s:%d", when, n) && at != when+":"+key {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing may happen after this point
}
