package pipeline

import (
	"os"
	"runtime/debug"
)

// collectAt is by how many per cent the heap grows before it is collected. What a
// build keeps is some tens of megabytes; what it uses once is many times that.
const collectAt = 400

// EaseCollector has the garbage collector run less often than Go's default, unless
// the environment says how often (GOGC). It is for main: the whole process has one
// collector.
func EaseCollector() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}
