package report

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// ReviewState is where a review stands.
type ReviewState string

// The states of a review; from ReviewCompleted on they are final. A partial one
// did not look at all that it should have.
const (
	ReviewQueued    ReviewState = "queued"
	ReviewRunning   ReviewState = "running"
	ReviewCompleted ReviewState = "completed"
	ReviewPartial   ReviewState = "partial"
	ReviewCanceled  ReviewState = "cancelled"
	ReviewFailed    ReviewState = "needs_human" // it could not be done
)

// Final reports whether the review has ended.
func (s ReviewState) Final() bool { return s != ReviewQueued && s != ReviewRunning }

// A Review is everything that is told of a review of one change.
type Review struct {
	ID          string      `json:"review"`
	State       ReviewState `json:"state"`
	Repo        string      `json:"repo"`           // owner/name, or a local path's base name
	Pull        int         `json:"pull,omitempty"` // 0: of a local repository
	Title       string      `json:"title"`          // of the pull request
	URL         string      `json:"url,omitempty"`
	Requester   string      `json:"requester,omitempty"`
	Prefix      string      `json:"prefix,omitempty"`     // of commands in comments; empty means "/"
	Base        string      `json:"base"`                 // branch
	BaseSHA     string      `json:"base_sha"`             // where the change begins
	Head        string      `json:"head"`                 // the commit that was reviewed
	Since       string      `json:"since,omitempty"`      // the head that was reviewed before: only what came after it is new
	Fork        bool        `json:"fork,omitempty"`       // the change is from another repository
	Allowed     string      `json:"allowed_by,omitempty"` // who lets the code of that be run, at this commit
	Moved       string      `json:"moved,omitempty"`      // what the head is meanwhile
	Requeued    bool        `json:"requeued,omitempty"`
	Deferred    bool        `json:"deferred,omitempty"` // what is open is mended when the build that works on the branch has ended
	Cause       string      `json:"cause,omitempty"`    // why it is not whole, one line
	Next        string      `json:"next,omitempty"`     // the command to type now
	Severity    string      `json:"severity"`           // the least that is open
	Confidence  int         `json:"min_confidence"`     // likewise, per cent
	MaxFindings int         `json:"max_findings"`       // remarks on lines

	Findings     []finding.Entry `json:"findings"` // all that was claimed, of earlier reviews too
	Files        []ReviewedFile  `json:"files"`
	Gaps         []Gap           `json:"gaps,omitempty"` // agents that did not do their work
	Agents       int             `json:"agents"`         // that were to look or to verify
	Commands     []Command       `json:"commands,omitempty"`
	BaseCommands []Command       `json:"base_commands,omitempty"`
	Unrun        string          `json:"unrun,omitempty"`        // why no command was run
	Instructions []string        `json:"instructions,omitempty"` // files that steer Slipway and that the change edits; what counts is the base's
	Todos        []ReviewTodo    `json:"todos,omitempty"`        // that the change adds
	Untested     []string        `json:"untested,omitempty"`     // code that it changes, where it touches no test
	Notes        []string        `json:"notes,omitempty"`

	ReviewURL  string        `json:"review_url,omitempty"`
	Costs      []Cost        `json:"costs,omitempty"`
	CostMicros int64         `json:"cost_micros"`
	AgentCalls int           `json:"agent_calls"`
	Stages     []Stage       `json:"stages,omitempty"`
	Started    time.Time     `json:"started,omitzero"`
	Elapsed    time.Duration `json:"elapsed_ns"`
}

// A ReviewedFile is one changed path.
type ReviewedFile struct {
	Path    string `json:"path"`
	Skipped string `json:"skipped,omitempty"` // why nobody looked at it; empty: somebody did
}

// A Gap is an agent that did not do its work.
type Gap struct {
	Agent  string `json:"agent"` // lens, with its part of a large change; or a verifier
	State  string `json:"state"`
	Reason string `json:"reason"`
}

// A ReviewTodo is a note to do something later.
type ReviewTodo struct {
	Path string `json:"path"`
	Line int    `json:"line"`
	Text string `json:"text"`
}

// unseen are the reasons for which a path is not looked at though it should be.
var unseen = []string{"too large", "unreadable", "not asked for", "not reached"}

// Whole reports that the review has ended and nothing that it should have looked
// at is missing.
func (r Review) Whole() bool {
	return r.State == ReviewCompleted && len(r.Gaps) == 0 &&
		!slices.ContainsFunc(r.Files, func(f ReviewedFile) bool { return slices.Contains(unseen, f.Skipped) })
}

// Open are the findings that count: confirmed, severe enough, and there; the
// worst first.
func (r Review) Open() []finding.Entry {
	return r.some(func(e finding.Entry) bool { return e.Counts(finding.Severity(r.Severity), r.Confidence) })
}

// below are confirmed or undecided, and not to be acted on.
func (r Review) below() []finding.Entry {
	return r.some(func(e finding.Entry) bool {
		return e.State.Live() && e.Verdict != finding.Rejected && !e.Counts(finding.Severity(r.Severity), r.Confidence)
	})
}

// some are findings that fit, the worst first, then by number.
func (r Review) some(fits func(finding.Entry) bool) []finding.Entry {
	var out []finding.Entry
	for _, e := range r.Findings {
		if fits(e) {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b finding.Entry) int {
		switch {
		case a.Severity != b.Severity && a.Severity.AtLeast(b.Severity):
			return -1
		case a.Severity != b.Severity:
			return 1
		}
		return a.Number - b.Number
	})
	return out
}

// News are the open findings that nobody was told of yet.
func (r Review) News() []finding.Entry {
	return slices.DeleteFunc(r.Open(), func(e finding.Entry) bool { return e.Posted })
}

// Remarks are the news that are said on their lines: at most MaxFindings. The rest
// is said in the review's text.
func (r Review) Remarks() []finding.Entry {
	var out []finding.Entry
	for _, e := range r.News() {
		if e.Anchor.Last > 0 && len(out) < r.MaxFindings {
			out = append(out, e)
		}
	}
	return out
}

// reviewed counts the files that somebody looked at.
func (r Review) reviewed() (n int) {
	for _, f := range r.Files {
		if f.Skipped == "" {
			n++
		}
	}
	return n
}

// ReviewTitle is the review on one line: "Reviewed 41 of 43 files, 3 findings".
func ReviewTitle(r Review) string {
	tail := strconv.Itoa(r.reviewed()) + " of " + count(len(r.Files), "file") + ", " + count(len(r.Open()), "finding")
	switch {
	case r.State == ReviewQueued:
		return "Review queued"
	case r.State == ReviewRunning:
		return "Reviewing"
	case r.State == ReviewFailed:
		return "The review could not be done"
	case r.State == ReviewCanceled && len(r.Files) == 0:
		return "Cancelled before anything was reviewed"
	case r.State == ReviewCanceled:
		return "Cancelled: reviewed " + tail
	case !r.Whole():
		return "Partial: reviewed " + tail
	}
	return "Reviewed " + tail
}

// ReviewConclusion is the conclusion of the check run for a final review, and
// empty for one at work. Success is only for one that looked at everything and
// leaves nothing open.
func ReviewConclusion(r Review) string {
	open := r.Open()
	switch {
	case !r.State.Final():
		return ""
	case r.State == ReviewFailed:
		return "action_required"
	case r.State == ReviewCanceled:
		return "cancelled"
	case slices.ContainsFunc(open, blocks):
		return "failure"
	case !r.Whole() || len(open) > 0:
		return "neutral"
	}
	return "success"
}

// blocks reports a finding that nobody should merge with: a critical one, or a
// command that the change broke.
func blocks(e finding.Entry) bool {
	return e.Severity == finding.Critical || e.Lens == commandsLens
}

// commandsLens is the lens of what the engine's own commands show.
const commandsLens = "commands"

// ReviewExit is what a terminal's review exits with: 0 nothing at or above the
// severity failOn is open, empty being any, 1 something is, 3 it could not be done, 4 cancelled, 6 it is not
// whole and nothing is open in what was seen.
func ReviewExit(r Review, failOn string) int {
	switch {
	case r.State == ReviewFailed:
		return 3
	case slices.ContainsFunc(r.Open(), func(e finding.Entry) bool { return e.Severity.AtLeast(finding.Severity(failOn)) }):
		return 1
	case r.State == ReviewCanceled:
		return 4
	case !r.Whole():
		return 6
	}
	return 0
}

// word is how the state is shown before the title.
func (r Review) mark() string {
	switch ReviewConclusion(r) {
	case "success":
		return "✅"
	case "neutral", "action_required":
		return "⚠️"
	case "failure", "cancelled":
		return "❌"
	}
	return "⏳"
}

// web is the repository's page, empty where there is none.
func (r Review) web() string {
	web, _, ok := strings.Cut(r.URL, "/pull/")
	if !ok {
		return ""
	}
	return web
}

// spot is where a finding is, linked to the lines of the reviewed commit where
// there is a page of them.
func (r Review) spot(e finding.Entry) string {
	if e.Path == "" {
		return ""
	}
	name, lines := e.Path, ""
	if e.StartLine > 0 {
		name += ":" + strconv.Itoa(e.StartLine)
		lines = "#L" + strconv.Itoa(e.StartLine)
	}
	if e.EndLine > e.StartLine {
		name += "-" + strconv.Itoa(e.EndLine)
		lines += "-L" + strconv.Itoa(e.EndLine)
	}
	commit := r.Head
	if e.Side == finding.OldSide {
		commit = r.BaseSHA
	}
	if web := r.web(); web != "" {
		return link(code(name, 160), web+"/blob/"+commit+"/"+e.Path+lines)
	}
	return code(name, 160)
}

// severityMark is a severity that is seen at a glance.
func severityMark(s finding.Severity) string {
	switch s {
	case finding.Critical:
		return "🔴 critical"
	case finding.High:
		return "🟠 high"
	case finding.Medium:
		return "🟡 medium"
	}
	return "🔵 " + text(string(s), 10)
}
