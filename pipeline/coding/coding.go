// Package coding is the work on one issue, from its base commit to a commit
// that the engine's commands and a reviewer agree on. It goes in rounds: each
// is a bounded loop of Coder, commands and judges. After one that ends without
// approval the Issue Advisor decides: another round, parts in the issue's
// place, acceptance with debt, or escalation.
//
// Promises: nothing is approved whose commands fail; a reviewer that does not
// answer approves nothing silently; a change whose last verdict is block is
// never handed on; a new round has a fresh budget and all the work of those
// before it; every compromise leaves as debt.
package coding

import (
	"context"
	"fmt"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// Site is where an issue is worked on.
type Site interface {
	// Open names a worktree at a commit, made when a call needs it; name tells the worktrees of one issue apart.
	Open(name, commit string) Tree
	// Test runs the engine's commands on a clean checkout of the commit.
	Test(ctx context.Context, commit string) (evidence.Result, error)
	// Diff is the text of what head changes, bounded for a prompt.
	Diff(ctx context.Context, base, head string) (string, error)
}

// A Tree is a worktree that calls change.
type Tree interface {
	agent.Workspace
	Head() string // the newest collected commit, at first the one it was opened at
}

// A Task is one issue to be coded.
type Task struct {
	Key                   string // prefix of its journal keys, such as issue-07
	Issue                 graph.Issue
	Spec                  string
	Base                  string // commit
	MaxIterations         int    // of one round; a retry starts a new one
	MaxAdvisorInvocations int    // 0: the Issue Advisor is not asked
	CanSplit              bool   // a sub-issue cannot be split again
	// Background is what the build knows at this moment: it may grow while the
	// issue is worked on. It is asked for before each call, from one goroutine.
	Background func() Background
}

// Background is what a call is told beside its issue.
type Background struct {
	Notes    []graph.Note // what issues upstream left open or failed to deliver
	Memory   Memory
	Steering []string // what people said to the running build, oldest first
}

// A Result is how the work on an issue ended. Outcome is one of completed,
// completed_with_debt, failed_needs_split, failed_escalated and
// failed_unrecoverable.
type Result struct {
	Outcome    report.Outcome    `json:"outcome"`
	Commit     string            `json:"commit"` // the last collected commit, whatever the outcome
	Changed    bool              `json:"changed"`
	Iterations int               `json:"iterations"` // of all rounds
	Rounds     int               `json:"rounds"`
	Summary    string            `json:"summary"`
	Cause      string            `json:"cause,omitempty"`      // why it is not done
	Criteria   []graph.Criterion `json:"criteria,omitempty"`   // the issue's, when they were relaxed
	Dropped    []graph.Criterion `json:"dropped,omitempty"`    // criteria that were given up; each is debt too
	Debt       []debt.Item       `json:"debt,omitempty"`       // of work that may land, and of a split
	SubIssues  []graph.Issue     `json:"sub_issues,omitempty"` // of failed_needs_split
	Advice     []Advice          `json:"advice,omitempty"`     // every decision of the Issue Advisor, in order
	Blocked    bool              `json:"blocked,omitempty"`    // the last verdict was block

	Files       []string `json:"files,omitempty"`        // as the Coder named them
	Learnings   []string `json:"learnings,omitempty"`    // of the last submission
	Interfaces  []string `json:"interfaces,omitempty"`   // likewise
	TestSummary string   `json:"test_summary,omitempty"` // likewise
	Faults      []Fault  `json:"faults,omitempty"`       // what was found wrong on the way
}

// A Fault is what commands or judges found wrong in one iteration.
type Fault struct {
	Pattern string   `json:"pattern"`           // one line, without what changes from run to run
	Modules []string `json:"modules,omitempty"` // directories
}

// Done reports whether the issue's commit may land.
func (r Result) Done() bool {
	return r.Outcome == report.Completed || r.Outcome == report.CompletedWithDebt
}

// Run works on the task, round after round as the Issue Advisor decides, until
// it is approved or given up. The error is one that stops the build; a failed
// issue is a Result.
func Run(ctx context.Context, crew *agent.Crew, site Site, task Task) (Result, error) {
	w := &work{crew: crew, site: site, task: task, issue: task.Issue, tree: site.Open(task.Issue.Key(), task.Base)}
	for {
		w.rounds++
		r := &round{work: w}
		approved, err := r.run(ctx)
		if err != nil {
			return Result{}, err
		}
		if approved {
			return w.completed(), nil
		}
		if len(w.advice) >= task.MaxAdvisorInvocations {
			return w.result(report.FailedUnrecoverable, r.ended), nil
		}
		decision, err := w.consult(ctx, r.ended)
		if err != nil {
			return Result{}, err
		}
		if result, ended := w.follow(decision); ended {
			return result, nil
		}
	}
}

// work is the state of one issue over all its rounds, owned by Run's goroutine.
type work struct {
	crew *agent.Crew
	site Site
	task Task
	tree Tree

	rounds     int
	iterations int         // of all rounds
	issue      graph.Issue // the task's, with its criteria as they stand
	last       Submission
	feedback   string // to the next Coder
	seen       sight
	block      *ReviewResult // the last verdict, if it is a block
	faults     []Fault

	tried      []Tried
	advice     []Advice
	directions []string // to the Coder, of each decision to try again
	relaxed    bool
	givenUp    []string // texts of criteria that are no longer asked for
	dropped    []graph.Criterion
	conceded   []debt.Item // one for each criterion that was relaxed or dropped
	debt       debt.Ledger // of the approval: what earlier verdicts named was answered by another iteration
}

// sight is what is known of the change: what was seen last, and on which commit.
type sight struct {
	tested   evidence.Result
	testedAt string // empty: never
	review   *ReviewResult
	readAt   string // commit that the review and QA are about
	qa       *QAResult
}

// key names the journal entries of the present round.
func (w *work) key() string { return fmt.Sprintf("%s/round-%d", w.task.Key, w.rounds) }

// changed reports whether there is any work.
func (w *work) changed() bool { return w.tree.Head() != w.task.Base }

// diff is the text of the work so far.
func (w *work) diff(ctx context.Context) (string, error) {
	if !w.changed() {
		return "", nil
	}
	text, err := w.site.Diff(ctx, w.task.Base, w.tree.Head())
	if err != nil {
		return "", fmt.Errorf("diff of %s: %w", w.task.Issue.Key(), err)
	}
	return text, nil
}

// test runs the engine's commands on the newest commit, once per journal.
func (w *work) test(ctx context.Context, key string) (evidence.Result, error) {
	commit := w.tree.Head()
	r, err := step.Do(ctx, w.crew.Journal, key, func(ctx context.Context) (evidence.Result, error) {
		return w.site.Test(ctx, commit)
	})
	if err != nil {
		return r, fmt.Errorf("test %s: %w", w.task.Issue.Key(), err)
	}
	w.seen.tested, w.seen.testedAt = r, commit
	return r, nil
}

// completed is the result of work that may land: whatever was let pass on the
// way is its debt.
func (w *work) completed() Result {
	var all debt.Ledger
	all.Record(w.conceded...)
	all.Record(w.debt.Items()...)
	r := w.result(report.Completed, "")
	r.Debt = all.Items()
	if len(r.Debt) > 0 {
		r.Outcome = report.CompletedWithDebt
	}
	return r
}

// result is where the work stands. What was conceded is debt of work that
// lands, not of work that fails: there the whole issue is.
func (w *work) result(outcome report.Outcome, cause string) Result {
	r := Result{
		Outcome: outcome, Commit: w.tree.Head(), Changed: w.changed(), Iterations: w.iterations, Rounds: w.rounds,
		Summary: w.last.Summary, Cause: cause, Dropped: w.dropped, Advice: w.advice, Blocked: w.block != nil,
		Files: w.last.FilesChanged, Learnings: w.last.Learnings, Interfaces: w.last.Interfaces,
		TestSummary: w.last.TestSummary, Faults: w.faults,
	}
	if w.relaxed {
		r.Criteria = w.issue.AcceptanceCriteria
	}
	return r
}
