// Package slipway holds the files that the binary carries: the manifest of the
// GitHub App, the demo's repository and ticket, and the recorded agents that
// work on it. They are txtar archives, because a directory with a go.mod of its
// own, dot-files or symbolic links would be left out without a word.
package slipway

import "embed"

// Files is everything embedded: app.yml, testdata/repos and testdata/agents.
//
//go:embed app.yml testdata/repos/*.txtar testdata/agents/*.txtar
var Files embed.FS
