package finding

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"
)

// An Entry is a finding with all that a review knows of it. Its JSON is one
// flat object.
type Entry struct {
	Finding
	ID              string  `json:"id"`               // Fingerprint; unique within one review
	Number          int     `json:"number,omitempty"` // what people call it, from 1; it stays the same in later reviews. 0: nobody is told of it
	Lens            string  `json:"lens"`
	EndLine         int     `json:"end_line,omitempty"` // inclusive; 0 where StartLine is
	Side            Side    `json:"side,omitempty"`
	Quote           string  `json:"quote,omitempty"` // the code that is meant
	FailureScenario string  `json:"failure_scenario,omitempty"`
	Witness         string  `json:"witness,omitempty"` // what was run and what it showed
	Agreement       int     `json:"agreement"`         // lenses that raised it, each by itself
	Verdict         Verdict `json:"verdict"`
	Confidence      int     `json:"confidence"`       // in the verdict, per cent
	Reason          string  `json:"reason,omitempty"` // for the verdict
	State           State   `json:"state"`
	Outside         bool    `json:"outside_diff,omitempty"` // its lines are in no hunk of the diff
	Anchor          Lines   `json:"anchor,omitzero"`        // those of its lines, in one hunk, that a remark can be put on
	Replacement     string  `json:"replacement,omitempty"`  // what to write in the place of exactly its lines, which Quote is
	Posted          bool    `json:"posted,omitempty"`       // a remark on its lines was written
	DismissedBy     string  `json:"dismissed_by,omitempty"` // login of the person who closed it
}

// Lines are lines of one version of a file, both ends inclusive. The zero value
// is none.
type Lines struct {
	First int `json:"first"`
	Last  int `json:"last"`
}

// Side says which version of a file the lines of an entry count in.
type Side string

// The sides. The zero value is the new version.
const (
	NewSide Side = ""
	OldSide Side = "old" // the lines were removed
)

// A Verdict is what came of the attempt to refute a finding.
type Verdict string

// The verdicts.
const (
	Confirmed Verdict = "confirmed"
	Rejected  Verdict = "rejected"
	Uncertain Verdict = "uncertain" // also when nobody could be asked
)

// A State is where an entry is in its life.
type State string

// The states.
const (
	New   State = "new"   // this review raised it
	Open  State = "open"  // an earlier review raised it, and it is still there
	Fixed State = "fixed" // an earlier review raised it, and it is gone
	// Dismissed: a person closed it, and its code is as it was then.
	Dismissed State = "dismissed"
	// Superseded: a person closed it, and its code has changed since. What is
	// wrong there now is another finding.
	Superseded State = "superseded"
)

// Live reports that what was found is there, as far as is known.
func (s State) Live() bool { return s == New || s == Open }

// Counts reports that an entry is to be acted on: confirmed with enough
// confidence, severe enough, and there.
func (e Entry) Counts(severity Severity, minConfidence int) bool {
	return e.Verdict == Confirmed && e.State.Live() && e.Confidence >= minConfidence && e.Severity.AtLeast(severity)
}

// Fingerprint names a fault by where it is and what is said of it, not by its
// line: code that moves keeps its findings. Symbol is the declaration around
// the place, "" if there is none.
func Fingerprint(path, symbol, claim string) string {
	sum := sha256.Sum256([]byte(path + "\x00" + symbol + "\x00" + strings.Join(Words(claim), " ")))
	return hex.EncodeToString(sum[:8])
}

// Words are the words of a claim that carry meaning: in lower case, sorted, each
// once, without numbers.
func Words(claim string) []string {
	words := strings.FieldsFunc(strings.ToLower(claim), func(r rune) bool { return !unicode.IsLetter(r) && r != '_' })
	words = slices.DeleteFunc(words, func(w string) bool { return len(w) < 2 || filler[w] })
	slices.Sort(words)
	return slices.Compact(words)
}

// filler says nothing about a fault.
var filler = map[string]bool{
	"an": true, "and": true, "are": true, "as": true, "at": true, "be": true, "by": true, "can": true, "for": true, "from": true,
	"has": true, "if": true, "in": true, "is": true, "it": true, "its": true, "line": true, "lines": true, "of": true, "on": true,
	"or": true, "so": true, "that": true, "the": true, "then": true, "there": true, "this": true, "to": true, "was": true,
	"when": true, "which": true, "will": true, "with": true,
}
