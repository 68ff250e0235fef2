//go:build !linux

package queue

// refuseNetwork knows the file systems of Linux only.
func refuseNetwork(string) error { return nil }
