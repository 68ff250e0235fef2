// Package forge is GitHub in our words: the values that pass between the
// pipeline, the handlers and whatever speaks to GitHub. It holds no behaviour
// that needs a network.
package forge

import (
	"errors"
	"strconv"
	"time"
)

// ErrLater says that nothing was done because the forge, or our own pace, wants
// whoever asked to come back later. Such an error is no failure, and no reason to
// try again at once.
var ErrLater = errors.New("the forge wants to be asked later")

// ErrNoAccess says that GitHub does not let the App into a repository. Of one that
// it was in before, no repetition helps. Of a new installation it may only be too
// early: GitHub sends its webhooks before all of GitHub knows it.
var ErrNoAccess = errors.New("GitHub does not let the App into the repository")

// ErrRefused says that the forge understood what it was asked and does not do it:
// for want of a permission, by a rule, or because what it is about is not there.
// To ask again would end alike; a person has to look.
var ErrRefused = errors.New("the forge refused")

// A Repo names a repository and how the App reaches it.
type Repo struct {
	Owner         string `json:"owner"`
	Name          string `json:"name"`
	ID            int64  `json:"id,omitempty"`
	Installation  int64  `json:"installation,omitempty"`
	DefaultBranch string `json:"default_branch,omitempty"`
}

// String is owner/name.
func (r Repo) String() string { return r.Owner + "/" + r.Name }

// A Ticket is a GitHub issue as it stood when it was read.
type Ticket struct {
	Number int       `json:"number"`
	Title  string    `json:"title"`
	Body   string    `json:"body"`
	Author string    `json:"author"`
	State  string    `json:"state"` // open or closed
	Labels []string  `json:"labels,omitempty"`
	URL    string    `json:"url"`
	Pull   bool      `json:"pull,omitempty"` // it is a pull request's thread
	Taken  time.Time `json:"taken,omitzero"` // when this snapshot was made
}

// A Person is a GitHub account.
type Person struct {
	Login string `json:"login"`
	ID    int64  `json:"id"`
	Bot   bool   `json:"bot,omitempty"`
}

// NoReply is the address that GitHub attributes to the account without
// disclosing its own.
func (p Person) NoReply() string {
	return strconv.FormatInt(p.ID, 10) + "+" + p.Login + "@users.noreply.github.com"
}

// Role is what a person may do in a repository, least first.
type Role int

// The roles of GitHub's permission API, in ascending order.
const (
	None Role = iota
	Read
	Triage
	Write
	Maintain
	Admin
)

// String is GitHub's name of the role.
func (r Role) String() string {
	return [...]string{"none", "read", "triage", "write", "maintain", "admin"}[r]
}

// A Credential lets git reach a repository for a short time.
type Credential struct {
	URL   string // what git fetches from and pushes to, without user or secret
	User  string
	Token string
	// CAFile has the certificates, in PEM, that URL is trusted by; empty means
	// those of the system.
	CAFile string
}

// A Branch is a head that a build writes.
type Branch struct {
	Name string `json:"name"`
	Head string `json:"head,omitempty"` // what the remote has; empty when it has no such branch
}

// A Draft is a draft pull request that should exist for Head against Base.
type Draft struct {
	Head  string `json:"head"` // branch name
	Base  string `json:"base"`
	Title string `json:"title"`
	Body  string `json:"body"`
}

// A Pull is a pull request as the forge has it.
type Pull struct {
	Number  int    `json:"number"`
	URL     string `json:"url"`
	Draft   bool   `json:"draft"`
	State   string `json:"state"`
	Head    string `json:"head"`     // branch name
	HeadSHA string `json:"head_sha"` // commit
	Title   string `json:"title"`
	Body    string `json:"body"`
	Base    string `json:"base,omitempty"`   // branch name
	Fork    bool   `json:"fork,omitempty"`   // Head is in another repository, or in none any more
	Ref     string `json:"ref,omitempty"`    // what git fetches to have HeadSHA; empty is GitHub's own ref of the pull request
	Ticket  int    `json:"ticket,omitempty"` // for which the App opened it; 0 where somebody else did
}

// An OwnReview is one of ours that should exist on a pull request, found again by
// its marker.
type OwnReview struct {
	Pull    int         `json:"pull"`
	HeadSHA string      `json:"head_sha"` // the commit that it is about
	Marker  string      `json:"marker"`   // hidden text that names the run; EnsureReview puts it in the body
	Body    string      `json:"body"`
	Remarks []OwnRemark `json:"remarks,omitempty"`
	ID      int64       `json:"id,omitempty"`
	URL     string      `json:"url,omitempty"`
}

// An OwnRemark is a text on lines of one hunk of a pull request's diff.
type OwnRemark struct {
	Path  string `json:"path"`
	First int    `json:"first"`         // from 1
	Last  int    `json:"last"`          // inclusive
	Old   bool   `json:"old,omitempty"` // the lines count in the version before the change
	Body  string `json:"body"`
}

// ErrPlaces says that the forge takes none of a review's remarks, because it does
// not have the place of one of them.
var ErrPlaces = errors.New("the forge does not have the place of a remark")

// A Comment is one comment on a ticket, found again by its marker.
type Comment struct {
	Ticket int    `json:"ticket"`
	Marker string `json:"marker"` // hidden text that names the run; EnsureComment puts it in the body
	Body   string `json:"body"`
	ID     int64  `json:"id,omitempty"`
	URL    string `json:"url,omitempty"`
}

// A Check is a check run on one commit, found again by Name and ExternalID.
type Check struct {
	Name       string    `json:"name"`
	HeadSHA    string    `json:"head_sha"`
	ExternalID string    `json:"external_id"`          // <run>:<sha>
	Status     string    `json:"status"`               // queued, in_progress, completed
	Conclusion string    `json:"conclusion,omitempty"` // success, neutral, failure, …; only when completed
	Title      string    `json:"title"`
	Summary    string    `json:"summary"`
	Text       string    `json:"text,omitempty"`
	DetailsURL string    `json:"details_url,omitempty"`
	Started    time.Time `json:"started,omitzero"`
	Completed  time.Time `json:"completed,omitzero"`
	ID         int64     `json:"id,omitempty"`
	URL        string    `json:"url,omitempty"`

	Notes   []Note   `json:"notes,omitempty"`   // on lines of the commit's files; none is ever taken back
	Buttons []Button `json:"buttons,omitempty"` // at most 3
}

// A Button is one that a check run shows beside GitHub's own Re-run.
type Button struct {
	Name  string `json:"name"`  // how the App hears of it, and what it says: at most 20 characters
	About string `json:"about"` // at most 40 characters
}

// The buttons that there are.
var (
	CancelButton = Button{"Cancel", "Stop the build, keep what is finished"}
	RerunButton  = Button{"Re-run", "Go on with the build from where it ended"}
	ReviewButton = Button{"Re-run", "Review the pull request again"} // of a review: GitHub's own button has this name
	FixButton    = Button{"Fix findings", "Have what reviewers found mended"}
)

// A Note is a remark on one line of a file, shown beside it.
type Note struct {
	Path  string `json:"path"`
	Line  int    `json:"line"`  // from 1
	Level string `json:"level"` // notice, warning or failure
	Title string `json:"title,omitempty"`
	Text  string `json:"text"` // plain text
}

// Gone is why there is nothing left to build for, in a few words, and since when
// if that is known.
type Gone struct {
	Why   string
	Since time.Time
}

// A Subject is what a reaction is put on: a comment, a remark of a review, or
// the ticket itself when both are zero.
type Subject struct {
	Ticket  int   `json:"ticket"`
	Comment int64 `json:"comment,omitempty"`
	Remark  int64 `json:"remark,omitempty"`
}
