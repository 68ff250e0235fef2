//go:build !crashpoint

package step

// crashBefore and crashAfter are where crash tests stop the process; see crash.go.
func crashBefore(string) int64 { return 0 }

func crashAfter(string, int64) {}
