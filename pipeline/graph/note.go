package graph

import "fmt"

// A Note tells the issues downstream what they cannot take for granted.
type Note struct {
	FromIssue string   `json:"from_issue"`
	Kind      NoteKind `json:"kind"`
	Expected  string   `json:"expected,omitempty"`
	Delivered string   `json:"delivered,omitempty"`
	Items     []string `json:"items,omitempty"`
	Ref       string   `json:"ref,omitempty"` // where the work is kept
}

// NoteKind says whether a note comes from debt or from a failure.
type NoteKind string

// The kinds of note.
const (
	DebtNote    NoteKind = "debt"
	FailureNote NoteKind = "failure"
)

// String is the note on one line.
func (n Note) String() string {
	return fmt.Sprintf("%s (%s): expected %s; delivered %s; %v", n.FromIssue, n.Kind, n.Expected, n.Delivered, n.Items)
}
