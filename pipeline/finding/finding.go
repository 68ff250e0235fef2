// Package finding is one thing that a reviewer found wrong, and what a review
// makes of it: a fault that is told apart from others by its fingerprint, judged
// by others than those who raised it, and followed until it is fixed.
package finding

import "fmt"

// A Severity grades a finding.
type Severity string

// The severities, worst first.
const (
	Critical Severity = "critical"
	High     Severity = "high"
	Medium   Severity = "medium"
	Low      Severity = "low"
)

// Known reports that s is one of the four.
func (s Severity) Known() bool { return s.rank() <= Low.rank() }

// AtLeast reports that s is as severe as bound, or more. What is no severity
// ranks below low, so an empty bound lets everything pass.
func (s Severity) AtLeast(bound Severity) bool { return s.rank() <= bound.rank() }

func (s Severity) rank() int {
	switch s {
	case Critical:
		return 0
	case High:
		return 1
	case Medium:
		return 2
	case Low:
		return 3
	default:
		return 4
	}
}

// A Finding is one fault at one place, as an agent names it.
type Finding struct {
	Severity   Severity `json:"severity"`
	Path       string   `json:"path,omitempty"`
	StartLine  int      `json:"start_line,omitempty"` // from 1; 0 is the file as a whole
	Title      string   `json:"title"`
	Claim      string   `json:"claim,omitempty"` // what goes wrong and when
	Suggestion string   `json:"suggestion,omitempty"`
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
