package forge

import "time"

// A Review is what a person said of a pull request at once. A remark that was
// made by itself, and every answer in a thread, is a review of its own.
type Review struct {
	ID        int64     `json:"id"`
	By        Person    `json:"by"`
	State     string    `json:"state"` // commented, approved, changes_requested, dismissed
	Body      string    `json:"body,omitempty"`
	URL       string    `json:"url,omitempty"`
	Submitted time.Time `json:"submitted,omitzero"`
	Threads   []Thread  `json:"threads,omitempty"` // that it began or went on with, whole
}

// A Thread is a conversation about one place in the diff of a pull request. All
// text in it is untrusted.
type Thread struct {
	ID      int64    `json:"id"` // of its first remark, under which answers go
	Path    string   `json:"path"`
	Line    int      `json:"line,omitempty"` // in the new version; 0 where it is gone
	Hunk    string   `json:"hunk,omitempty"` // the diff above the place
	Remarks []Remark `json:"remarks"`        // oldest first
}

// A Remark is one comment in a thread.
type Remark struct {
	ID     int64  `json:"id"`
	Review int64  `json:"review"`
	By     Person `json:"by"`
	Body   string `json:"body"`
}

// An Answer is what the App says in a thread, found again by its marker.
type Answer struct {
	Pull   int    `json:"pull"`
	Thread int64  `json:"thread"`
	Marker string `json:"marker"` // hidden text; EnsureAnswer puts it in the body
	Body   string `json:"body"`
	ID     int64  `json:"id,omitempty"`
	URL    string `json:"url,omitempty"`
}

// A Conversation is a thread that a remark of the App began, as it stands.
type Conversation struct {
	ID       string `json:"id"`
	Body     string `json:"body"` // of the remark, with its marker
	Resolved bool   `json:"resolved,omitempty"`
	By       string `json:"by,omitempty"` // login of the person who resolved it; empty where the App did, or the forge does not say
}
