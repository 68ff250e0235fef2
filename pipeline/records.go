package pipeline

import (
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// The keys of a build's journal, beside those of agents and engine commands.
const (
	keyBegin    = "begin"           // choice, begun
	keyPin      = "pin"             // effect, pinned
	keyInit     = "init"            // effect, initialised
	keyPlan     = "plan/kept"       // effect, plan.Result: the artefacts are written
	keyStop     = "stop"            // choice, stopped: no issue starts any more
	keyVerify   = "verify-1"        // prefix
	keyJudged   = "verify-1/kept"   // effect, verified
	keyFinalize = "finalize"        // effect, finalized
	keyBranch   = "publish/branch"  // choice, forge.Branch
	keyPush     = "publish/push"    // effect, pushed
	keyPull     = "publish/pull"    // effect, forge.Pull
	keyCheck    = "publish/check"   // effect, []forge.Check
	keyComment  = "publish/comment" // effect, commented
	keyDone     = "done"            // effect, ended
)

func keyStart(issue string) string   { return "start/" + issue }
func keyKept(issue string) string    { return issue + "/kept" }
func keyLand(n int) string           { return fmt.Sprintf("land/%04d", n) }
func keyAdvanced(land string) string { return land + "/advanced" }

// begun is what the build is about, for readers that have only the journal.
type begun struct {
	Build     string `json:"build"`
	Repo      string `json:"repo"`
	Ticket    int    `json:"ticket,omitempty"`
	Title     string `json:"title"`
	Requester string `json:"requester,omitempty"`
}

// pinned is the base that the build starts from.
type pinned struct {
	Base      string `json:"base"`       // branch
	BaseSHA   string `json:"base_sha"`   // commit
	ConfigSHA string `json:"config_sha"` // the default branch's commit, where the configuration was read
	Default   bool   `json:"default"`    // Base is the default branch
}

// initialised is how the work is tested, and what its pull request fills in.
type initialised struct {
	Commands evidence.Commands `json:"commands"`
	Template string            `json:"template,omitempty"` // the repository's pull request template
}

// started is an issue that may begin, and on which commit.
type started struct {
	Base string `json:"base"`
}

// kept is how an issue's loop ended; its last commit is held by Ref.
type kept struct {
	Name   string        `json:"name"`
	Result coding.Result `json:"result"`
	Ref    string        `json:"ref,omitempty"`
}

// landing is the decision to land these issues, in this order, on this commit.
type landing struct {
	Issues []string `json:"issues"`
	Base   string   `json:"base"`
}

// advanced is what came of a landing.
type advanced struct {
	Head     string     `json:"head"` // the integration branch now
	Landed   []landed   `json:"landed,omitempty"`
	Rejected []rejected `json:"rejected,omitempty"`
}

type landed struct {
	Name  string      `json:"name"`
	Merge string      `json:"merge"` // the merge commit
	Debt  []debt.Item `json:"debt,omitempty"`
}

type rejected struct {
	Name  string `json:"name"`
	Cause string `json:"cause"`
}

// stopped ends the execution before its time.
type stopped struct {
	State report.State `json:"state"` // what the build will end as
	Cause string       `json:"cause"`
}

// verified is the judgement of the head.
type verified struct {
	Verification report.Verification `json:"verification"`
	Debt         []debt.Item         `json:"debt,omitempty"`
}

// finalized is what the clean-up did.
type finalized struct {
	Head    string   `json:"head"`
	Removed []string `json:"removed,omitempty"`
	Note    string   `json:"note,omitempty"`
}

type pushed struct {
	Branch string `json:"branch"`
	Head   string `json:"head"`
}

// pulled is the draft pull request; Number is zero where there is no forge.
type pulled struct {
	Pull forge.Pull  `json:"pull"`
	Read bool        `json:"read,omitempty"` // the forge gave the debt back
	Debt []debt.Item `json:"debt,omitempty"` // as it stands in the pull request
}

type checked struct {
	Checks []forge.Check `json:"checks"` // read back
}

type commented struct {
	Comments int `json:"comments"` // how many carry our marker, read back
}

// ended is the final word.
type ended struct {
	State   report.State `json:"state"`
	Success bool         `json:"success"`
	Summary string       `json:"summary"`
	Cause   string       `json:"cause,omitempty"`
	Next    string       `json:"next,omitempty"`
}
