// Package report is the one account of a build. A Build is a fold of the
// journal; the tracking comment, the check run, the draft pull request, the
// done-event and report.md are all printed from it by pure functions, so they
// cannot disagree.
package report

import (
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// A State is where a build stands.
type State string

// The states of a build; from Succeeded on they are final. A waiting build holds
// no worker.
const (
	Queued            State = "queued"
	Running           State = "running"
	WaitingApproval   State = "waiting_approval" // of its plan
	WaitingAnswer     State = "waiting_answer"   // to an agent's question
	WaitingCI         State = "waiting_ci"       // for the checks of what it pushed
	Succeeded         State = "succeeded"
	SucceededWithDebt State = "succeeded_with_debt"
	Failed            State = "failed"
	TimedOut          State = "timed_out"
	Canceled          State = "cancelled"
	NeedsHuman        State = "needs_human"
	Planned           State = "planned" // no more than a plan was asked for
)

// Final reports whether the build has ended.
func (s State) Final() bool { return s != Queued && s != Running && !s.Waiting() }

// Waiting reports whether the build waits for a person or for CI.
func (s State) Waiting() bool { return s == WaitingApproval || s == WaitingAnswer || s == WaitingCI }

// Outcome is where an issue stands.
type Outcome string

// The outcomes of an issue; Pending and InProgress are not final.
const (
	Pending             Outcome = "pending"
	InProgress          Outcome = "running"
	Landing             Outcome = "landing"
	Completed           Outcome = "completed"
	CompletedWithDebt   Outcome = "completed_with_debt"
	FailedNeedsSplit    Outcome = "failed_needs_split" // its sub-issues took its place
	FailedEscalated     Outcome = "failed_escalated"
	FailedUnrecoverable Outcome = "failed_unrecoverable"
	Skipped             Outcome = "skipped"
)

// A Build is everything that is told of a build.
type Build struct {
	ID        string `json:"build"`
	State     State  `json:"state"`
	Success   bool   `json:"success"` // every must-have criterion passed on the published commit
	Title     string `json:"title"`   // one line, from the ticket or the PRD
	Summary   string `json:"summary"` // one paragraph
	Repo      string `json:"repo"`    // owner/name, or a local path's base name
	Ticket    int    `json:"ticket,omitempty"`
	Closes    bool   `json:"closes,omitempty"` // the base is the default branch: a closing keyword works
	Requester string `json:"requester,omitempty"`
	Prefix    string `json:"prefix,omitempty"` // of commands in comments; empty means "/"
	Base      string `json:"base"`             // branch
	BaseSHA   string `json:"base_sha"`         // commit that the build started from
	Branch    string `json:"branch"`           // what is published; empty before
	Head      string `json:"head"`             // commit of Branch; empty before
	Cause     string `json:"cause,omitempty"`  // why it ended badly, one line
	Next      string `json:"next,omitempty"`   // the command to type now

	Gate         *Gate         `json:"gate,omitempty"`     // what a waiting build waits for
	Estimate     *Estimate     `json:"estimate,omitempty"` // of the plan, once there is one
	Stages       []Stage       `json:"stages"`
	Issues       []Issue       `json:"issues"`
	Batches      []Batch       `json:"batches,omitempty"` // of subagents at work now; only the process that runs the build knows
	Permits      []Permit      `json:"permits,omitempty"` // subagents that wait for a person's word, the oldest first
	Debt         []debt.Item   `json:"debt"`
	Verification *Verification `json:"verification,omitempty"`
	Kept         []Ref         `json:"kept,omitempty"` // work that did not merge
	Costs        []Cost        `json:"costs,omitempty"`
	Notes        []string      `json:"notes,omitempty"` // things to know that are no debt

	Contenders []Contender `json:"contenders,omitempty"` // of a comparison: a build on each target
	Target     string      `json:"target,omitempty"`     // of a contender: what every role runs on
	Held       *Held       `json:"held,omitempty"`       // of a contender: what it made

	Follows *Follow     `json:"follows,omitempty"` // what a follow-up goes on with
	Paid    []debt.Item `json:"paid,omitempty"`    // of earlier debt, by what a follow-up did

	Pull       *Pull   `json:"pull,omitempty"`
	Checks     []Check `json:"checks,omitempty"`
	CommentURL string  `json:"comment_url,omitempty"`
	Comments   int     `json:"comments"`

	PRD          string `json:"prd,omitempty"`          // Markdown, shown collapsed
	Architecture string `json:"architecture,omitempty"` // likewise

	CostMicros int64         `json:"cost_micros"` // millionths of a US dollar
	AgentCalls int           `json:"agent_calls"`
	Started    time.Time     `json:"started,omitzero"`
	Elapsed    time.Duration `json:"elapsed_ns"`
}

// A Gate is where the build waits for a person.
type Gate struct {
	Kind      GateKind  `json:"kind"`
	Hash      string    `json:"hash,omitempty"`      // of the plan, 64 hex digits; an approval names at least 7 of them
	Reason    string    `json:"reason,omitempty"`    // why there is a gate, one sentence
	Questions []string  `json:"questions,omitempty"` // of an agent
	Since     time.Time `json:"since"`
	Expires   time.Time `json:"expires"`
}

// GateKind says what a person is asked for.
type GateKind string

// The kinds of gate.
const (
	PlanGate     GateKind = "plan"
	QuestionGate GateKind = "question"
	ChoiceGate   GateKind = "choice" // among what several targets made
)

// An Estimate is what a plan will take: counted from its issues, with the cost
// and time of calls as configured or seen so far.
type Estimate struct {
	Calls  int           `json:"calls"`
	Micros int64         `json:"micros"` // millionths of a US dollar
	Took   time.Duration `json:"took_ns"`
}

// A Stage is one phase of the build: plan, init, execute, verify, finalize, publish.
type Stage struct {
	Name    string        `json:"name"`
	State   string        `json:"state"` // pending, running, done, failed, skipped
	Detail  string        `json:"detail,omitempty"`
	Elapsed time.Duration `json:"elapsed_ns,omitempty"`
}

// An Issue is one node of the build's graph.
type Issue struct {
	Number        int           `json:"number"`
	Name          string        `json:"name"`
	Title         string        `json:"title"`
	Outcome       Outcome       `json:"outcome"`
	DependsOn     []string      `json:"depends_on,omitempty"`
	Flagged       bool          `json:"flagged,omitempty"` // took the deeper QA path
	RiskRationale string        `json:"risk_rationale,omitempty"`
	Iterations    int           `json:"iterations"`
	Detail        string        `json:"detail,omitempty"` // what it is doing, or why it ended so
	Commit        string        `json:"commit,omitempty"` // the issue's own head
	Merge         string        `json:"merge,omitempty"`  // the merge commit that landed it
	Ref           string        `json:"ref,omitempty"`    // where its work is kept
	CostMicros    int64         `json:"cost_micros,omitempty"`
	Elapsed       time.Duration `json:"elapsed_ns,omitempty"`
	ParentName    string        `json:"parent_issue_name,omitempty"` // of a sub-issue: the issue that was split
	Files         []string      `json:"files,omitempty"`             // that the plan expects it to touch
	Criteria      []string      `json:"criteria,omitempty"`          // its acceptance criteria as they stand
}

// A Batch is what an agent has asked subagents to do.
type Batch struct {
	Call  string `json:"call"` // journal key of the agent's call
	Batch string `json:"batch"`
	Slots []Slot `json:"slots"`
}

// A Slot is one subagent of a batch.
type Slot struct {
	Seq   int    `json:"seq"` // of the event that tells this
	Type  string `json:"subagent_type"`
	State string `json:"state"` // as pipeline/batch names it
	Error string `json:"error,omitempty"`
}

// A Permit is asked for by an agent that wants to start a subagent.
type Permit struct {
	ID          string `json:"id"` // what an answer names: 12 hex digits
	Call        string `json:"call"`
	Slot        int    `json:"slot"`
	Type        string `json:"subagent_type"`
	Description string `json:"description"`
}

// Verification is the judgement of the published commit.
type Verification struct {
	Passed   bool        `json:"passed"`
	Commit   string      `json:"commit"`
	Criteria []Criterion `json:"criteria"`
	Commands []Command   `json:"commands"`
}

// A Criterion is one acceptance criterion of the PRD and what was seen of it.
type Criterion struct {
	ID        string   `json:"id"`
	Text      string   `json:"text"`
	MustHave  bool     `json:"must_have"`
	Passed    bool     `json:"passed"`
	Verified  bool     `json:"verified"` // false: nobody could say
	Evidence  string   `json:"evidence"`
	IssueName string   `json:"issue_name,omitempty"`
	Commits   []string `json:"commits,omitempty"` // merge commits of the issues that serve it
}

// A Command is an engine command and how it ended.
type Command struct {
	Name    string        `json:"name"` // setup, build, test, lint
	Line    string        `json:"line"`
	Passed  bool          `json:"passed"`
	Flaky   bool          `json:"flaky,omitempty"` // two runs on the same commit differed
	Exit    int           `json:"exit"`
	Output  string        `json:"output,omitempty"` // the end of it
	Elapsed time.Duration `json:"elapsed_ns"`
}

// A Ref is kept work.
type Ref struct {
	IssueName string `json:"issue_name"`
	Ref       string `json:"ref"`
	Commit    string `json:"commit"`
	Why       string `json:"why"`
}

// A Cost sums the agent calls of one role on one model.
type Cost struct {
	Role    string `json:"role"`
	Runtime string `json:"runtime"`
	Model   string `json:"model"`
	Calls   int    `json:"calls"`
	Micros  int64  `json:"micros"`
}

// A Pull is the draft pull request as read back from the forge.
type Pull struct {
	Number int    `json:"number"`
	Draft  bool   `json:"draft"`
	URL    string `json:"url"`
}

// A Follow is the pull request that a follow-up goes on with, and what for.
type Follow struct {
	Pull int    `json:"pull"`
	Work string `json:"work"` // feedback, findings, text, ci or conflicts
}

// A Check is a check run as read back from the forge.
type Check struct {
	Name       string `json:"name"`
	Conclusion string `json:"conclusion"`
	HeadSHA    string `json:"head_sha"`
	URL        string `json:"url,omitempty"`
}
