package pipeline

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
)

// The keys of a build's journal, beside those of agents and engine commands.
// After a resume of an ended build every key has the segment in front, g2/ and
// so on, for what ended badly is asked anew.
const (
	keyBegin    = "begin"           // choice, begun
	keyPin      = "pin"             // effect, pinned
	keyInit     = "init"            // effect, initialised
	keyPlan     = "plan/kept"       // effect, plan.Result: the artefacts are written
	keyStop     = "stop"            // choice, stopped: no issue starts any more
	keyResume   = "resume"          // choice, resumed: the first entry of a segment
	keyFinalize = "finalize"        // effect, finalized
	keyBranch   = "publish/branch"  // choice, forge.Branch
	keyPush     = "publish/push"    // effect, pushed
	keyPull     = "publish/pull"    // effect, forge.Pull
	keyPullEnd  = "publish/end"     // effect, forge.Pull: of a build that stopped after it was opened
	keyReview   = "publish/review"  // effect, the address of the review of our own draft
	keyCheck    = "publish/check"   // effect, []forge.Check
	keyComment  = "publish/comment" // effect, commented
	keyDone     = "done"            // effect, ended
)

func keyEstimate(plan string) string { return strings.TrimSuffix(plan, "kept") + "estimate" } // choice, report.Estimate
func keyRevision(n int) string       { return fmt.Sprintf("plan/revision-%d", n) }            // prefix
func keyGate(hash string) string     { return "gate/" + hash[:12] }                           // effect, opened
func keyApproved(hash string) string { return "gate/" + hash[:12] + "/approved" }             // effect, approved
func keyPermit(id string) string     { return "permit/" + id }                                // choice, permitted
func keySignal(id string) string     { return "signal/" + id }                                // choice, heard
func keyStart(issue string) string   { return "start/" + issue }                              // choice, started
func keyGiven(lane string) string    { return keyStop + "/" + lane }                          // choice, given
func keyKept(issue string) string    { return issue + "/kept" }                               // effect, kept
func keySplit(issue string) string   { return "split/" + issue }                              // choice, split
func keyLand(n int) string           { return fmt.Sprintf("land/%04d", n) }                   // choice, landing
func keyAdvanced(land string) string { return land + "/advanced" }                            // effect, advanced
func keyReplan(n int) string         { return fmt.Sprintf("replan-%d", n) }                   // choice, replanning
func keyVerify(round int) string     { return fmt.Sprintf("verify-%d", round) }               // prefix
func keyAdopt(n int) string          { return fmt.Sprintf("publish/adopt-%d", n) }            // effect, adopted
func keyFix(round int) string        { return fmt.Sprintf("fix-%d", round) }                  // effect, fixes

// settled is the last key of something that has a prefix: what came of it.
func keySettled(prefix string) string { return prefix + "/kept" }

var segmented = regexp.MustCompile(`^g([0-9]+)/`)

// cutSegment takes the segment off a key. The first segment has no mark.
func cutSegment(key string) (rest string, segment int) {
	m := segmented.FindStringSubmatch(key)
	if m == nil {
		return key, 1
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return key, 1
	}
	return strings.TrimPrefix(key, m[0]), n
}

// begun is what the build is about, for readers that have only the journal.
type begun struct {
	Build     string `json:"build"`
	Repo      string `json:"repo"`
	Ticket    int    `json:"ticket,omitempty"`
	Title     string `json:"title"`
	Requester string `json:"requester,omitempty"`
	Prefix    string `json:"prefix,omitempty"`  // of commands in comments
	Comment   string `json:"comment,omitempty"` // address of the tracking comment
	Pull      int    `json:"pull,omitempty"`    // of a follow-up: what it goes on with
	Work      Work   `json:"work,omitempty"`    // likewise
	Target    string `json:"target,omitempty"`  // of a contender

	Targets []string `json:"targets,omitempty"` // of a comparison
}

// pinned is the base that the build starts from.
type pinned struct {
	Base      string `json:"base"`                    // branch
	BaseSHA   string `json:"base_sha"`                // commit
	ConfigSHA string `json:"config_sha"`              // the default branch's commit, where the configuration was read
	Owners    string `json:"owners_config,omitempty"` // text of the owner's OwnersFile
	Default   bool   `json:"default"`                 // Base is the default branch
	Standard  string `json:"standard,omitempty"`      // the default branch

	// Of a follow-up.
	Start  string      `json:"start,omitempty"`  // the commit that it goes on from
	Bring  string      `json:"bring,omitempty"`  // the commit of a base that is to be part of it
	Title  string      `json:"title,omitempty"`  // of the pull request
	Before string      `json:"before,omitempty"` // the body that its own pull request had
	Owed   []debt.Item `json:"owed,omitempty"`   // the debt in that body
}

// from is the commit on which the work begins.
func (p pinned) from() string { return cmp.Or(p.Start, p.BaseSHA) }

// initialised is how the work is tested, and what its pull request fills in.
type initialised struct {
	Commands evidence.Commands `json:"commands"`
	Template string            `json:"template,omitempty"` // the repository's pull request template
}

// heard is a signal, recorded once whatever it does.
type heard struct {
	Kind string `json:"kind"`
	Said Said   `json:"said"`
}

// opened is a gate at which the build waits.
type opened struct {
	Gate report.Gate `json:"gate"`
}

// approved is what came of an approval: nothing is refused when it counts.
type approved struct {
	Refused string `json:"refused,omitempty"`
}

// resumed begins the next segment of an ended build.
type resumed struct {
	Signal string       `json:"signal"`
	By     forge.Person `json:"by,omitzero"`
	Repo   forge.Repo   `json:"repo,omitzero"` // as in Said
}

// started is an issue that may begin, and on which commit.
type started struct {
	Base string `json:"base"`
}

// kept is how the work on an issue ended; its last commit is held by Ref.
type kept struct {
	Name   string        `json:"name"`
	Result coding.Result `json:"result"`
	Ref    string        `json:"ref,omitempty"`
}

// split is the decision to put an issue's sub-issues in its place, or why not.
type split struct {
	Refused string `json:"refused,omitempty"`
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
	Passing  []string   `json:"passing,omitempty"` // commands that passed when it was tested last
	Failing  []string   `json:"failing,omitempty"`
	Tests    []string   `json:"tests,omitempty"` // that the Integration Tester wrote
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

// replanning is the decision to deal with these failures. Asked says whether
// the Replanner is, or the rule for when it is not counts.
type replanning struct {
	Failed []string `json:"failed"`
	Asked  bool     `json:"asked"`
}

// replanned is what was decided about failures.
type replanned struct {
	Failed   []string       `json:"failed"`
	Decision ReplanDecision `json:"decision"`
	Note     string         `json:"note,omitempty"` // why the rule decided
}

// fixes are the issues that are to mend what a verification found.
type fixes struct {
	Issues []graph.Issue `json:"issues,omitempty"`
	Debt   []debt.Item   `json:"debt,omitempty"`
	Note   string        `json:"note,omitempty"` // why there are none
}

// stopped ends the execution before its time.
type stopped struct {
	State  report.State `json:"state"` // what the build will end as
	Cause  string       `json:"cause"`
	Budget bool         `json:"budget,omitempty"` // it is spent, but for what was set aside for the end
}

// mayFinish reports whether what runs goes on to its end, and agents are asked
// about what landed: not after a cancel, when the time is up, or when no agent
// would answer.
func (s *stopped) mayFinish() bool { return s == nil || s.State == report.Failed || s.Budget }

// given is a lane that ended because the budget did.
type given struct {
	Cause string `json:"cause"`
}

// verified is the judgement of the head.
type verified struct {
	Verification report.Verification `json:"verification"`
	Debt         []debt.Item         `json:"debt,omitempty"` // if nothing more is done about it
	Final        bool                `json:"final"`          // no fixes are tried
	Review       *review.Result      `json:"review,omitempty"`
	Paid         []debt.Item         `json:"paid,omitempty"` // of what earlier work owed
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

// adopted is how commits that other people pushed came into the head.
type adopted struct {
	Head      string   `json:"head"`
	Theirs    string   `json:"theirs"`              // the commit that Head includes
	Conflicts []string `json:"conflicts,omitempty"` // files; Head is what it was
}

// pulled is the draft pull request; Number is zero where there is no forge.
type pulled struct {
	Pull forge.Pull   `json:"pull"`
	Text PullText     `json:"text,omitzero"`  // its title and summary
	As   report.State `json:"as,omitempty"`   // how it says that the build ended
	Read bool         `json:"read,omitempty"` // the forge gave the debt back
	Debt []debt.Item  `json:"debt,omitempty"` // as it stands in the pull request
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
