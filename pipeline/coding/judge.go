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
)

// judge has the newest commit tested and reviewed.
func (r *round) judge(ctx context.Context) (approved bool, err error) {
	tested, err := r.test(ctx, r.key()+"/commands")
	if err != nil {
		return false, err
	}
	diff, err := r.diff(ctx)
	if err != nil {
		return false, err
	}
	change := Change{
		Issue: r.issue, GivenUp: r.givenUp, Spec: r.task.Spec, Summary: r.last.Summary, Diff: diff, Evidence: tested,
		BugPatterns: r.task.Background().Memory.BugPatterns,
	}
	if r.issue.Guidance.NeedsDeeperQA {
		return r.flagged(ctx, change)
	}
	v, err := r.review(ctx, change)
	if err != nil {
		return false, err
	}
	r.rule(v, nil, v)
	if v.Approved && tested.Passed() {
		r.accept()
		return true, nil
	}
	r.fail(feedback(tested, v, nil))
	r.blame(v, nil)
	return false, nil
}

// flagged is the deeper path: QA on a copy of the commit beside the reviewer,
// then a synthesis of both.
func (r *round) flagged(ctx context.Context, change Change) (approved bool, err error) {
	commit := r.tree.Head()
	copied := r.site.Open(fmt.Sprintf("%s-qa-%d", r.issue.Key(), r.iterations), commit)
	var (
		qa            QAResult
		v             ReviewResult
		qaErr, revErr error
		both          sync.WaitGroup
	)
	both.Go(func() { qa, qaErr = agent.Ask(ctx, r.crew, agent.Place{Key: r.key(), Work: copied}, QA, change) })
	both.Go(func() { v, revErr = r.review(ctx, change) })
	both.Wait()
	if err := errors.Join(qaErr, revErr); err != nil {
		return false, err
	}
	tested := change.Evidence
	if copied.Head() != commit {
		// QA's tests go with the issue, so what is judged is the commit with them.
		r.tree.Found(copied.Head())
		if tested, err = r.test(ctx, r.key()+"/commands-qa"); err != nil {
			return false, err
		}
	}
	s, err := agent.Ask(ctx, r.crew, r.place(), Synthesizer, Verdicts{
		Issue: r.issue, GivenUp: r.givenUp, QA: qa, Review: v, Evidence: tested, Earlier: r.said,
	})
	if err != nil {
		return false, err
	}
	// The synthesis decides between opinions. It cannot overrule the commands,
	// a block, or a reviewer who did not approve.
	block := v
	if s.Action == Block && !v.Blocking {
		block.Blocking, block.Summary = true, s.Summary
	}
	r.rule(v, &qa, block)
	if s.Action == Approve && v.Approved && tested.Passed() {
		r.accept()
		if !qa.Passed {
			r.debt.Record(r.untested(qa, "it was approved all the same: "+firstLine(s.Summary)))
		}
		return true, nil
	}
	r.fail(strings.TrimSpace(s.Summary + "\n" + feedback(tested, v, &qa)))
	r.blame(v, &qa)
	if s.Stuck {
		r.ended = "stuck: " + firstLine(r.feedback)
	}
	return false, nil
}

// review asks the reviewer. One who does not answer leaves the commands to
// decide, at the price of debt, but lifts no block.
func (r *round) review(ctx context.Context, change Change) (ReviewResult, error) {
	v, err := agent.Ask(ctx, r.crew, r.place(), Reviewer, change)
	failure, failed := errors.AsType[*agent.Failure](err)
	if !failed {
		return v, err
	}
	v = ReviewResult{
		absent:   true,
		Approved: change.Evidence.Green(),
		Summary:  "The review failed: " + failure.Reason,
		DebtItems: []Shortfall{{
			Type: debt.WaivedReview, Severity: debt.High,
			Justification: "no reviewer read this change: " + failure.Reason, FollowUp: "review it before merging",
		}},
	}
	if r.block != nil {
		v.Approved, v.Blocking, v.Findings = false, true, r.block.Findings
		v.Summary += "; the block before it stands: " + r.block.Summary
	}
	return v, nil
}

// rule keeps what the judges said of the newest commit, and the block, if one
// of them blocks. A reviewer who did not answer lifts none.
func (r *round) rule(v ReviewResult, qa *QAResult, block ReviewResult) {
	r.seen.review, r.seen.qa, r.seen.readAt = &v, qa, r.tree.Head()
	if v.absent && r.block != nil {
		return
	}
	r.block = nil
	if block.Blocking {
		r.block = &block
	}
}

// accept turns what was let pass of the newest commit into debt.
func (w *work) accept() {
	for _, s := range w.seen.review.DebtItems {
		w.debt.Record(s.item(w.issue.Name, debt.High))
	}
	w.debt.Record(EvidenceDebt(w.issue.Name, w.seen.tested)...)
}

// item is the shortfall as debt of an issue.
func (s Shortfall) item(issue string, unrated debt.Severity) debt.Item {
	item := debt.Item{
		Type: s.Type, Severity: s.Severity, IssueName: issue,
		Criterion: s.Criterion, Justification: s.Justification, FollowUp: s.FollowUp,
	}
	if item.Type == "" {
		item.Type = debt.MissingFeature
	}
	if item.Severity == "" {
		item.Severity = unrated
	}
	return item
}

// untested is the debt of a change that QA did not pass.
func (w *work) untested(qa QAResult, but string) debt.Item {
	return debt.Item{
		Type: debt.UnverifiedCriteria, Severity: debt.Medium, IssueName: w.issue.Name,
		Justification: fmt.Sprintf("QA did not pass it (%s); %s", firstLine(qa.Summary), but),
		FollowUp:      "look at what QA reported before merging",
	}
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
