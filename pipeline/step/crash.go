//go:build crashpoint

package step

import (
	"os"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
)

// appends counts the journal appends of this process.
var appends atomic.Int64

// crashBefore and crashAfter kill the process like kill -9 around its n-th
// append, or around that of a key, when SLIPWAY_CRASH is "before:n", "after:n",
// "before:key" or "after:key", where the key is a pattern of path.Match. Only
// binaries built with the crashpoint tag, those of the crash tests, have them.
func crashBefore(key string) int64 {
	n := appends.Add(1)
	crash("before", key, n)
	return n
}

func crashAfter(key string, n int64) { crash("after", key, n) }

func crash(when, key string, n int64) {
	place, named := strings.CutPrefix(os.Getenv("SLIPWAY_CRASH"), when+":")
	if !named {
		return
	}
	if match, err := path.Match(place, key); place != strconv.FormatInt(n, 10) && (err != nil || !match) {
		return
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {} // the signal is on its way; nothing may happen after this point
}
