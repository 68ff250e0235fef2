package forge

import (
	"errors"
	"time"
)

// A CI is what the forge knows of the checks of one commit. The App's own check
// runs are not in it: they say what we found, not what the repository found.
type CI struct {
	SHA        string   `json:"sha"`                  // the commit, whole
	Runs       []CIRun  `json:"runs,omitempty"`       // the newest of each name, suite and App
	Required   []string `json:"required,omitempty"`   // names that the rules of the base want to pass
	Configured bool     `json:"configured,omitempty"` // workflow files, suites of other Apps, or required names are there
}

// A CIRun is one check run of another App, or one commit status: that has an ID
// of its own kind, no App and no Suite. Title, Summary and Text are untrusted
// and bounded to some KiB; a forge's CILog reads the whole.
type CIRun struct {
	ID         int64     `json:"id"`
	Name       string    `json:"name"`
	App        string    `json:"app,omitempty"` // slug
	Suite      int64     `json:"suite,omitempty"`
	SHA        string    `json:"sha"`
	Status     string    `json:"status"`               // completed, or anything else while it is not
	Conclusion string    `json:"conclusion,omitempty"` // success, neutral, skipped, failure, cancelled, timed_out, …; only when completed
	URL        string    `json:"url,omitempty"`
	Title      string    `json:"title,omitempty"`
	Summary    string    `json:"summary,omitempty"`
	Text       string    `json:"text,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	Completed  time.Time `json:"completed,omitzero"`
}

// ErrNoRerun says that a run cannot be re-run: by us, or by anybody.
var ErrNoRerun = errors.New("the check cannot be re-run")
