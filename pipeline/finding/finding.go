// Package finding is one thing that a reviewer found wrong.
package finding

import "fmt"

// A Finding is one fault at one place.
type Finding struct {
	Severity   string `json:"severity"` // critical, high, medium, low
	Path       string `json:"path,omitempty"`
	StartLine  int    `json:"start_line,omitempty"`
	Title      string `json:"title"`
	Claim      string `json:"claim,omitempty"` // what goes wrong and when
	Suggestion string `json:"suggestion,omitempty"`
}

// String is the finding on one line, place first.
func (f Finding) String() string {
	place := ""
	if f.Path != "" {
		place = f.Path + ": "
		if f.StartLine > 0 {
			place = fmt.Sprintf("%s:%d: ", f.Path, f.StartLine)
		}
	}
	text := place + f.Title
	if f.Claim != "" {
		text += ": " + f.Claim
	}
	return text
}
