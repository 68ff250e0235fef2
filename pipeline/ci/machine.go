package ci

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// machine finds the words by which a runner or the network says that it, and
// not the code, went wrong. A program under test may complain of a network too,
// so each is the whole message of a runner or of a tool that fetches.
var machine = regexp.MustCompile(`(?i)` +
	`the runner has received a shutdown signal` +
	`|lost communication with the server` +
	`|(hosted|self-hosted) runner[^\n]{0,80}(encountered an error|lost|was not acquired|did not)` +
	`|no runner matching the specified labels` +
	`|no space left on device` +
	`|\boom-?killed\b` +
	`|could not resolve host` +
	`|temporary failure in name resolution` +
	`|tls handshake timeout` +
	`|(fatal: unable to access|npm (err!|error) network|error: failed to download|unable to fetch some archives)` +
	`|toomanyrequests: you have reached your pull rate limit` +
	`|failed to (pull|fetch) [^\n]{0,120}(timeout|timed out|connection reset|503|502)`)

// broken reports whether a bad end says that the machine is the cause, and by
// which sign.
func (j judge) broken(r forge.CIRun) (bool, string) {
	if r.Conclusion != "failure" {
		return true, fmt.Sprintf("it ended as %q, which says nothing of the code", r.Conclusion)
	}
	texts := []string{r.Title, r.Summary, r.Text, j.in.Logs[r.ID]}
	for _, text := range slices.DeleteFunc(texts, func(t string) bool { return t == "" }) {
		if sign := machine.FindString(text); sign != "" {
			return true, fmt.Sprintf("its output names the machine (%q)", sign)
		}
	}
	return false, ""
}
