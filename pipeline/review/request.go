package review

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/forge"
)

// Kind is the kind of the jobs whose payload is a Request.
const Kind = "review"

// CheckName is the check run that says how a review ended.
const CheckName = "slipway/review"

// A Request is the payload of a review's job: what was asked, by whom, of which
// pull request. A review at a terminal has a Repo and no Pull.
type Request struct {
	Review   string        `json:"review"` // the run's id; also the job's
	Repo     forge.Repo    `json:"repo,omitzero"`
	Pull     int           `json:"pull,omitempty"`
	Full     bool          `json:"full,omitempty"`     // the whole change, also what was reviewed before
	Focus    []string      `json:"focus,omitempty"`    // names of lenses; nil: as configured
	Severity string        `json:"severity,omitempty"` // the least that counts; empty means as configured
	Paths    []string      `json:"paths,omitempty"`    // what is to be looked at, as Options.Only
	Goal     string        `json:"goal,omitempty"`     // what the change is for, where there is no pull request to say it
	Fix      bool          `json:"fix,omitempty"`      // what is open is mended when the review has ended
	Requeued bool          `json:"requeued,omitempty"` // the head moved under a review before this one
	Allowed  *Allowance    `json:"allowed,omitempty"`  // the code of a fork that may be run; nil: none
	By       forge.Person  `json:"by,omitzero"`        // who asked; nobody, where it began by itself
	Trigger  forge.Subject `json:"trigger,omitzero"`   // what gets the closing reaction; nothing, where nobody asked
	Comment  forge.Comment `json:"comment,omitzero"`   // the tracking comment: its id and marker
	Marker   string        `json:"marker,omitempty"`   // hidden in the review that is posted
	Prefix   string        `json:"prefix,omitempty"`   // of commands in comments; empty means "/"
}

// An Allowance lets the code of a fork be run, at exactly one commit.
type Allowance struct {
	Commit string `json:"commit"`
	By     string `json:"by"` // login of somebody who may say so
}

// Key is the queue's key of all reviews of a pull request: they run one at a time.
func Key(r forge.Repo, pull int) string { return fmt.Sprintf("%s#%d", r, pull) }

// Once is the queue's value of which one unfinished review may have: the pull
// request at that head.
func Once(r forge.Repo, pull int, head string) string { return Key(r, pull) + "@" + head }

// MarkerOf is the marker of another run of the same App.
func (r Request) MarkerOf(run string) string { return strings.Replace(r.Marker, r.Review, run, 1) }

// RunID names the review that a delivery starts. It depends on the delivery's
// GUID alone, so a delivery that is handled again after a crash finds its own.
func RunID(delivery string) string {
	sum := sha256.Sum256([]byte("review " + delivery))
	return "r-" + hex.EncodeToString(sum[:6])
}

// Forge is what a review needs of GitHub, for one pull request. The Ensure
// methods describe what should be there and move to it.
type Forge interface {
	// Pull reads the pull request as it is now.
	Pull(ctx context.Context, number int) (forge.Pull, error)
	// Credential lets git fetch for a short time.
	Credential(ctx context.Context) (forge.Credential, error)
	// OwnersFile is the text of the owner's configuration; empty where there is
	// none, or the App is not let in.
	OwnersFile(ctx context.Context) ([]byte, error)
	// EnsureReview makes sure that one review carries the marker. forge.ErrPlaces
	// says that none was made, because of the place of a remark.
	EnsureReview(ctx context.Context, r forge.OwnReview) (forge.OwnReview, error)
	Threads
	// EnsureComment makes sure that one comment carries the marker.
	EnsureComment(ctx context.Context, c forge.Comment) (forge.Comment, error)
	// EnsureCheck makes sure that one check run has the name and external id.
	EnsureCheck(ctx context.Context, c forge.Check) (forge.Check, error)
	// React puts a reaction on a comment or ticket: eyes, rocket, confused.
	React(ctx context.Context, on forge.Subject, content string) error
}

// Threads are the conversations that remarks of the App began.
type Threads interface {
	// AnswerRemark makes sure that our newest remark with that marker has the answer;
	// where there is none any more, there is nothing to do.
	AnswerRemark(ctx context.Context, marker string, a forge.Answer) error
	// Conversations reads them, oldest first. forge.ErrRefused says that it cannot be
	// known how they stand.
	Conversations(ctx context.Context, pull int) ([]forge.Conversation, error)
	// Resolve makes sure that one is resolved.
	Resolve(ctx context.Context, t forge.Conversation) error
}
