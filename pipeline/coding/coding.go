// Package coding is the inner loop: one issue, from its base commit to a commit
// that the engine's commands and a reviewer agree on.
//
// Promises: nothing is approved whose commands fail; a reviewer that does not
// answer approves nothing silently; a change whose last verdict is block is
// never handed on; every compromise leaves as debt.
package coding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

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
	// issue is worked on. It is asked for before each call.
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
	Cause      string            `json:"cause,omitempty"`    // why it is not done
	Criteria   []graph.Criterion `json:"criteria,omitempty"` // the issue's, when they were relaxed
	Dropped    []graph.Criterion `json:"dropped,omitempty"`  // criteria that were given up; each is debt too
	Debt       []debt.Item       `json:"debt,omitempty"`
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

// Run works on the task until it is approved, stuck, or out of iterations. The
// error is one that stops the build; a failed issue is a Result.
func Run(ctx context.Context, crew *agent.Crew, site Site, task Task) (Result, error) {
	l := loop{crew: crew, site: site, task: task, tree: site.Open(task.Issue.Key(), task.Base)}
	l.notes = task.Background().Notes
	for l.iteration = 1; l.iteration <= task.MaxIterations; l.iteration++ {
		done, err := l.iterate(ctx)
		if err != nil {
			return Result{}, err
		}
		if done {
			return l.result(""), nil
		}
		if why := l.stuck(); why != "" {
			return l.result(why), nil
		}
	}
	l.iteration = task.MaxIterations
	return l.result(fmt.Sprintf("not approved after %d iterations; last: %s", task.MaxIterations, firstLine(l.last()))), nil
}

// loop is the state of one issue, owned by Run's goroutine.
type loop struct {
	crew *agent.Crew
	site Site
	task Task
	tree Tree

	notes     []graph.Note
	iteration int
	idle      int      // iterations in a row that changed nothing
	said      []string // the feedback of each iteration
	gaveUp    bool     // the Synthesizer called it stuck
	summary   string
	debt      debt.Ledger // of the approval: what earlier verdicts named was answered by another iteration
}

// unchanged is the feedback to a Coder who did nothing.
const unchanged = "Nothing was changed. Make the change that the issue asks for."

// maxSame is how often the same feedback may come before the loop is stuck.
const maxSame = 3

func (l *loop) key() string {
	return fmt.Sprintf("%s/round-1/iter-%d", l.task.Key, l.iteration)
}

func (l *loop) last() string {
	if len(l.said) == 0 {
		return ""
	}
	return l.said[len(l.said)-1]
}

// iterate is one turn of coder and judges.
func (l *loop) iterate(ctx context.Context) (done bool, err error) {
	before := l.tree.Head()
	at := agent.Place{Key: l.key(), Work: l.tree}
	sub, err := agent.Ask(ctx, l.crew, at, Coder, Assignment{
		Issue: l.task.Issue, Spec: l.task.Spec, Notes: l.notes, Iteration: l.iteration, Feedback: l.last(),
	})
	if l.tree.Head() == before {
		l.idle++
	} else {
		l.idle = 0
	}
	if failure, ok := errors.AsType[*agent.Failure](err); ok {
		l.fail("The previous attempt gave no usable answer: " + failure.Reason)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.summary = sub.Summary
	if l.tree.Head() == l.task.Base {
		l.fail(unchanged)
		return false, nil
	}
	if !sub.Complete {
		l.fail("You said that the work is not complete: " + sub.Summary + "\nGo on from there.")
		return false, nil
	}
	return l.judge(ctx)
}

func (l *loop) fail(feedback string) { l.said = append(l.said, feedback) }

// judge has the newest commit tested and reviewed.
func (l *loop) judge(ctx context.Context) (approved bool, err error) {
	tested, err := l.test(ctx, "commands")
	if err != nil {
		return false, err
	}
	diff, err := l.site.Diff(ctx, l.task.Base, l.tree.Head())
	if err != nil {
		return false, fmt.Errorf("diff of %s: %w", l.task.Issue.Key(), err)
	}
	change := Change{Issue: l.task.Issue, Spec: l.task.Spec, Summary: l.summary, Diff: diff, Evidence: tested}
	if l.task.Issue.Guidance.NeedsDeeperQA {
		return l.flagged(ctx, change)
	}
	review, err := l.review(ctx, change)
	if err != nil {
		return false, err
	}
	if review.Approved && tested.Passed() {
		l.accept(tested, review)
		return true, nil
	}
	l.fail(feedback(tested, review, nil))
	return false, nil
}

// flagged is the deeper path: QA on a copy of the commit beside the reviewer,
// then a synthesis of both.
func (l *loop) flagged(ctx context.Context, change Change) (approved bool, err error) {
	commit := l.tree.Head()
	copied := l.site.Open(fmt.Sprintf("%s-qa-%d", l.task.Issue.Key(), l.iteration), commit)
	var (
		qa            QAResult
		review        ReviewResult
		qaErr, revErr error
		both          sync.WaitGroup
	)
	both.Go(func() {
		at := agent.Place{Key: l.key(), Work: copied}
		qa, qaErr = agent.Ask(ctx, l.crew, at, QA, change)
	})
	both.Go(func() { review, revErr = l.review(ctx, change) })
	both.Wait()
	if err := errors.Join(qaErr, revErr); err != nil {
		return false, err
	}
	tested, err := change.Evidence, error(nil)
	if copied.Head() != commit {
		// QA's tests go with the issue, so what is judged is the commit with them.
		l.tree.Found(copied.Head())
		if tested, err = l.test(ctx, "commands-qa"); err != nil {
			return false, err
		}
	}
	v := Verdicts{Issue: l.task.Issue, QA: qa, Review: review, Evidence: tested, Earlier: l.said}
	s, err := agent.Ask(ctx, l.crew, agent.Place{Key: l.key(), Work: l.tree}, Synthesizer, v)
	if err != nil {
		return false, err
	}
	// The synthesis decides between opinions. It cannot overrule the commands,
	// a block, or a reviewer who did not approve.
	if s.Action == Approve && review.Approved && tested.Passed() {
		l.accept(tested, review)
		if !qa.Passed {
			l.debt.Record(debt.Item{
				Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: l.task.Issue.Name,
				Justification: fmt.Sprintf("QA did not pass it (%s); it was approved all the same: %s", firstLine(qa.Summary), firstLine(s.Summary)),
				FollowUp:      "look at what QA reported before merging",
			})
		}
		return true, nil
	}
	l.gaveUp = s.Stuck
	l.fail(strings.TrimSpace(s.Summary + "\n" + feedback(tested, review, &qa)))
	return false, nil
}

// review asks the reviewer. One who does not answer leaves the commands to
// decide, at the price of debt.
func (l *loop) review(ctx context.Context, change Change) (ReviewResult, error) {
	r, err := agent.Ask(ctx, l.crew, agent.Place{Key: l.key(), Work: l.tree}, Reviewer, change)
	failure, failed := errors.AsType[*agent.Failure](err)
	if !failed {
		return r, err
	}
	return ReviewResult{
		Approved: change.Evidence.Green(),
		Summary:  "The review failed: " + failure.Reason,
		DebtItems: []Shortfall{{
			Type: debt.WaivedReview, Severity: debt.High,
			Justification: "no reviewer read this change: " + failure.Reason, FollowUp: "review it before merging",
		}},
	}, nil
}

// test runs the engine's commands on the newest commit, once per journal.
func (l *loop) test(ctx context.Context, name string) (evidence.Result, error) {
	commit := l.tree.Head()
	r, err := step.Do(ctx, l.crew.Journal, l.key()+"/"+name, func(ctx context.Context) (evidence.Result, error) {
		return l.site.Test(ctx, commit)
	})
	if err != nil {
		return r, fmt.Errorf("test %s: %w", l.task.Issue.Key(), err)
	}
	return r, nil
}

// accept turns what was let pass into debt.
func (l *loop) accept(tested evidence.Result, review ReviewResult) {
	name := l.task.Issue.Name
	for _, s := range review.DebtItems {
		item := debt.Item{
			Type: s.Type, Severity: s.Severity, IssueName: name,
			Criterion: s.Criterion, Justification: s.Justification, FollowUp: s.FollowUp,
		}
		if item.Type == "" {
			item.Type = debt.MissingFeature
		}
		l.debt.Record(item)
	}
	l.debt.Record(EvidenceDebt(name, tested)...)
}

// EvidenceDebt is what the engine could not see: no command to run, or two
// results on one commit.
func EvidenceDebt(issue string, r evidence.Result) []debt.Item {
	if r.None {
		return []debt.Item{{
			Type: debt.UnverifiedCriteria, Severity: debt.High, IssueName: issue,
			Justification: "no command to build or test with was found; looked at " + strings.Join(r.LookedAt, ", "),
			FollowUp:      "name the commands in .github/slipway.yml",
		}}
	}
	var out []debt.Item
	for _, c := range r.Commands {
		if c.Flaky {
			out = append(out, debt.Item{
				Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: issue,
				Justification: fmt.Sprintf("%q failed and then passed on the same commit", c.Line),
				FollowUp:      "find out why it is not stable",
			})
		}
	}
	return out
}

// stuck says why another iteration would not help, or nothing.
func (l *loop) stuck() string {
	if l.gaveUp {
		return "stuck: " + firstLine(l.last())
	}
	if l.idle >= 2 {
		why := "stuck: two iterations changed nothing"
		if l.last() != unchanged {
			why += "; last: " + firstLine(l.last())
		}
		return why
	}
	same := 0
	for _, s := range l.said {
		if fingerprint(s) == fingerprint(l.last()) {
			same++
		}
	}
	if same >= maxSame {
		return fmt.Sprintf("stuck: the same feedback came %d times: %s", same, firstLine(l.last()))
	}
	return ""
}

func (l *loop) result(cause string) Result {
	out := report.Completed
	switch {
	case cause != "":
		out = report.FailedUnrecoverable
	case len(l.debt.Items()) > 0:
		out = report.CompletedWithDebt
	}
	return Result{
		Outcome: out, Commit: l.tree.Head(), Changed: l.tree.Head() != l.task.Base, Rounds: 1,
		Iterations: l.iteration, Summary: l.summary, Cause: cause, Debt: l.debt.Items(),
	}
}
