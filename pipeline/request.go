package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/review"
)

// The kinds of the jobs whose payload is a Request. A comparison is at work for
// moments only, and has to be reached while every build that may run does: it is
// of a kind of its own.
const (
	KindBuild      = "build"
	KindComparison = "comparison"
)

// Kinds lists them.
func Kinds() []string { return []string{KindBuild, KindComparison} }

// Kind is that of the request's job.
func (r Request) Kind() string {
	if len(r.Targets) > 0 {
		return KindComparison
	}
	return KindBuild
}

// The kinds of signal that a build understands. The body of each is a Said.
const (
	CancelSignal  = "cancel"
	ApproveSignal = "approve" // the plan whose hash Said.Hash begins
	ReviseSignal  = "revise"  // the plan, by Said.Text
	RejectSignal  = "reject"  // the plan; the build ends
	AnswerSignal  = "answer"  // to an agent's questions
	SteerSignal   = "steer"   // guidance for the next agent turns
	ResumeSignal  = "resume"  // an ended build: what ended badly is asked anew
)

// A Request is the payload of a build job: what was asked, by whom, where, and
// what was true at that instant. Nothing in it changes afterwards; later edits
// of the ticket are not in it.
type Request struct {
	Build       string        `json:"build"` // the run's id; also the job's
	Repo        forge.Repo    `json:"repo,omitzero"`
	Ticket      forge.Ticket  `json:"ticket,omitzero"`         // as it stood at the trigger
	Text        string        `json:"text,omitempty"`          // what followed the command, untrusted
	Goal        string        `json:"goal,omitempty"`          // a local build's ticket
	Base        string        `json:"base,omitempty"`          // branch to start from; empty means the configured or default one
	MaxParallel int           `json:"max_parallel,omitempty"`  // issues at a time; 0 means as configured
	Budget      int64         `json:"budget_micros,omitempty"` // of this build, in micro-dollars; 0 means as configured
	Approval    string        `json:"approval,omitempty"`      // never or plan; empty means as configured
	PlanOnly    bool          `json:"plan_only,omitempty"`     // ends when the plan is shown
	Fast        bool          `json:"fast,omitempty"`          // a plan of one level, coder and reviewer, one verification
	Given       *plan.Result  `json:"given,omitempty"`         // the plan, where nothing is to be planned
	Unverified  bool          `json:"unverified,omitempty"`    // of a given plan: nobody judges the criteria at the end
	By          forge.Person  `json:"by,omitzero"`             // who asked
	Trigger     forge.Subject `json:"trigger,omitzero"`        // what gets the closing reaction
	Comment     forge.Comment `json:"comment,omitzero"`        // the tracking comment: its id and marker
	Prefix      string        `json:"prefix,omitempty"`        // of commands in comments; empty means "/"
	Follow      *Follow       `json:"follow,omitempty"`        // the pull request that the build goes on with
	Targets     []string      `json:"targets,omitempty"`       // each builds the ticket, and a person chooses; none: as configured
	Contender   *Contender    `json:"contender,omitempty"`     // the comparison that the build is a part of
}

// Said is the body of a signal: who said it, and what.
type Said struct {
	By   forge.Person `json:"by,omitzero"`
	Text string       `json:"text,omitempty"` // untrusted
	Hash string       `json:"hash,omitempty"` // the beginning of a plan's hash, at least 7 hex digits
	Repo forge.Repo   `json:"repo,omitzero"`  // of a resume: where the build goes on, as the repository is reached now
}

// RunID names the run that a delivery starts. It depends on the delivery's GUID
// alone, so a delivery that is handled again after a crash finds its own run.
func RunID(delivery string) string {
	sum := sha256.Sum256([]byte(delivery))
	return "b-" + hex.EncodeToString(sum[:6])
}

// Forge is what a build needs of GitHub, for one repository and one ticket. The
// Ensure methods describe what should be there and move to it: called twice
// with the same value, the second call changes nothing.
type Forge interface {
	// Ticket reads the ticket as it is now.
	Ticket(ctx context.Context) (forge.Ticket, error)
	// Credential lets git fetch and push for a short time.
	Credential(ctx context.Context) (forge.Credential, error)
	// OwnersFile is the text of OwnersFile on the default branch of the owner's
	// OwnersRepo; empty where there is none, or the App is not let in.
	OwnersFile(ctx context.Context) ([]byte, error)
	// EnsureBranch settles the branch to publish on: name, or name-2 and so on
	// when a branch is there that is not ours or whose pull request is closed.
	// Head is what the remote has now; it creates nothing.
	EnsureBranch(ctx context.Context, name string, ours func(ctx context.Context, b forge.Branch) (bool, error)) (forge.Branch, error)
	// Pull reads a pull request as it is now.
	Pull(ctx context.Context, number int) (forge.Pull, error)
	// EnsureAnswer makes sure that one comment in a thread of a review carries the
	// marker.
	EnsureAnswer(ctx context.Context, a forge.Answer) (forge.Answer, error)
	review.Threads
	// EnsureDraft makes sure that one open pull request exists for the head.
	EnsureDraft(ctx context.Context, d forge.Draft) (forge.Pull, error)
	// EnsureReview makes sure that one review of a pull request carries the marker.
	// forge.ErrPlaces says that none was made, because of the place of a remark.
	EnsureReview(ctx context.Context, r forge.OwnReview) (forge.OwnReview, error)
	// EnsureComment makes sure that one comment carries the marker.
	EnsureComment(ctx context.Context, c forge.Comment) (forge.Comment, error)
	// EnsureCheck makes sure that one check run has the name and external id.
	EnsureCheck(ctx context.Context, c forge.Check) (forge.Check, error)
	// Checks reads back the App's own check runs on a commit.
	Checks(ctx context.Context, sha string) ([]forge.Check, error)
	// CI reads what is known of the checks that others run on exactly the commit
	// sha, and what the rules of the branch base require.
	CI(ctx context.Context, sha, base string) (forge.CI, error)
	// Rerun makes sure that a completed run was started again. forge.ErrNoRerun
	// says that it cannot be.
	Rerun(ctx context.Context, run forge.CIRun) error
	// CILog is what there is to read of a run that failed: at most 60 KiB,
	// untrusted.
	CILog(ctx context.Context, run forge.CIRun) (string, error)
	// Comments counts the comments on a ticket that carry the marker.
	Comments(ctx context.Context, ticket int, marker string) (int, error)
	// React puts a reaction on a comment, remark or ticket: eyes, rocket, confused.
	React(ctx context.Context, on forge.Subject, content string) error
}

// title is the one line that names the work.
func (r Request) title() string {
	if r.Follow != nil {
		return "Follow-up: " + r.Follow.Pull.Title
	}
	if r.Ticket.Title != "" {
		return r.Ticket.Title
	}
	line, _, _ := strings.Cut(strings.TrimSpace(r.Goal), "\n")
	if runes := []rune(line); len(runes) > 100 {
		line = string(runes[:99]) + "…"
	}
	return line
}
