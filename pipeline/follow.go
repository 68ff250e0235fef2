package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Follow makes a build a follow-up: it begins at the head of a pull request,
// with whatever people put there, and plans nothing, for others have said what is
// to be done. What comes out goes on top, never in the place, of what is there.
type Follow struct {
	Pull     forge.Pull      `json:"pull"`             // as it stood at the trigger
	Branch   string          `json:"branch,omitempty"` // the pull request's own, which is written; empty: a new one beside it, for a pull request of another
	Work     Work            `json:"work"`
	Threads  []forge.Thread  `json:"threads,omitempty"`
	Findings []finding.Entry `json:"findings,omitempty"`
}

// Work is what a follow-up is asked for.
type Work string

// The kinds of work.
const (
	Feedback  Work = "feedback"  // Follow.Threads, and Request.Text as what was said beside them
	Findings  Work = "findings"  // Follow.Findings
	Asked     Work = "text"      // Request.Text
	FixCI     Work = "ci"        // what fails in the checks of the head
	Conflicts Work = "conflicts" // the base is merged; every follow-up does that where it can
)

// follows reports whether the build goes on with the branch of a pull request.
func (r Request) follows() bool { return r.Follow != nil && r.Follow.Branch != "" }

// planned reports whether the plan is not made by agents.
func (r Request) planned() bool { return r.Given != nil || r.Follow != nil }

// given is the plan that the request holds, or that follows from it.
func (r Request) given() (plan.Result, error) {
	if r.Given != nil {
		return plan.Given(*r.Given)
	}
	return plan.Given(r.Follow.plan(r.Text))
}

// pinPull settles what a follow-up starts from: the head of the pull request as
// it is now.
func (b *build) pinPull(ctx context.Context, remote repo.Remote, p pinned) (pinned, error) {
	f := b.Request.Follow
	pull, err := b.Forge.Pull(ctx, f.Pull.Number)
	if err != nil {
		return p, err
	}
	if pull.State != "open" || pull.Fork {
		return p, fmt.Errorf("pull request #%d: it is closed, or its branch is in another repository: %w", pull.Number, repo.ErrMissing)
	}
	tip, err := b.mirror.Fetch(ctx, remote, pull.Base)
	if err != nil {
		return p, err
	}
	if p.Start, err = b.mirror.Fetch(ctx, remote, pull.Head); err != nil {
		return p, err
	}
	p.Title, p.Default = pull.Title, pull.Base == p.Standard && f.Branch != ""
	if f.Branch != "" {
		p.Base, p.BaseSHA, p.Bring, p.Before = pull.Base, tip, tip, pull.Body
		p.Owed, _ = report.ReadDebt(pull.Body)
		return p, nil
	}
	p.Base, p.BaseSHA = pull.Head, p.Start
	if f.Work == Conflicts {
		p.Bring = tip
	}
	return p, nil
}

// brought is how the base came into the branch of a pull request.
type brought struct {
	Head      string   `json:"head"` // the branch with it, or as it was
	Base      string   `json:"base"` // the commit that was merged
	Conflicts []string `json:"conflicts,omitempty"`
	Cause     string   `json:"cause,omitempty"` // why it was not merged
}

const keyBring = "follow/base" // effect, brought

// bring merges the base where it moved on. What cannot be merged is what
// Conflicts was asked for; other work goes on without it, and says so.
func (b *build) bring(ctx context.Context) error {
	pin, done := b.fold.pinned(), b.fold.bringing()
	if pin.Bring == "" {
		return nil
	}
	if done == nil {
		out, err := b.broughtIn(ctx, pin)
		if err != nil {
			return err
		}
		done = &out
	}
	if done.Cause == "" || b.Request.Follow.Work != Conflicts {
		return nil
	}
	return b.halt(ctx, stopped{State: report.NeedsHuman, Cause: done.Cause})
}

func (b *build) broughtIn(ctx context.Context, pin pinned) (brought, error) {
	out := brought{Head: pin.Start, Base: pin.Bring}
	below, err := b.mirror.IsAncestor(ctx, pin.Bring, pin.Start)
	if err != nil {
		return out, err
	}
	tree := ""
	if !below {
		if tree, err = b.merged(ctx, pin, &out); err != nil {
			return out, err
		}
	}
	return step.Effect(ctx, b.journal, b.fold.key(keyBring), func(ctx context.Context) (brought, error) {
		if tree == "" {
			return out, nil
		}
		var err error
		message := fmt.Sprintf("Merge %s into the branch of #%d", cmp.Or(b.Request.Follow.Pull.Base, pin.Base), b.Request.Follow.Pull.Number)
		if out.Head, err = b.site.commit(ctx, tree, []string{pin.Start, pin.Bring}, message, b.site.now(ctx)); err != nil {
			return out, err
		}
		return out, b.site.hold(ctx, b.site.integration(), out.Head) // a claim before this one may have merged it, too
	})
}

// merged is the tree of head and base. Where git finds conflicts the Merger
// resolves them; where it does not, the tree is empty and out says why.
func (b *build) merged(ctx context.Context, pin pinned, out *brought) (tree string, err error) {
	m, err := b.site.merge(ctx, pin.Start, pin.Bring)
	if err != nil || len(m.Conflicts) == 0 {
		return m.Tree, err
	}
	out.Conflicts = m.Conflicts
	at, err := b.mirror.Time(ctx, pin.Start)
	if err != nil {
		return "", err
	}
	start, err := b.site.commit(ctx, m.Tree, []string{pin.Start}, "Unresolved merge of the base", at)
	if err != nil {
		return "", err
	}
	in := Overlap{
		PRD: b.fold.result().PRD, Architecture: b.fold.result().Architecture, Conflicts: m.Conflicts,
		Issue: graph.Issue{
			Name: "base", Title: "What the base holds by now",
			Description: "Other work landed on the base of the pull request since its branch left it. All of it stays.",
		},
	}
	parted, err := b.mirror.Parting(ctx, pin.Start, pin.Bring)
	if err != nil {
		return "", err
	}
	if in.Diff, err = b.site.Diff(ctx, parted, pin.Bring); err != nil {
		return "", err
	}
	tree, _, cause, err := b.reconcile(ctx, b.fold.key("follow/merge"), start, in)
	if cause != "" {
		out.Cause = fmt.Sprintf("the branch conflicts with its base in %s: %s", strings.Join(m.Conflicts, ", "), cause)
	}
	return tree, err
}

// reconcile has the Merger make a tree with two lines of work right. One retry,
// then the cause says why it could not.
func (b *build) reconcile(ctx context.Context, place, start string, in Overlap) (resolved string, asks bool, cause string, err error) {
	for try := 1; try <= 2; try++ {
		key := place
		if try > 1 {
			key += fmt.Sprintf("/try-%d", try)
		}
		tree := b.site.Open(treeName("merge", key), start)
		out, err := agent.Ask(ctx, b.crew, agent.Place{Key: key, Work: tree}, Merger, in)
		failure, failed := errors.AsType[*agent.Failure](err)
		switch {
		case failed:
			cause = failure.Reason
		case errors.Is(err, agent.ErrBudget):
			cause = err.Error()
		case err != nil:
			return "", false, "", err
		case !out.Success:
			cause = "the Merger gave up: " + out.Summary
		default:
			cause, err = b.site.unresolved(ctx, tree.Head(), in.Conflicts)
			if err != nil {
				return "", false, "", err
			}
		}
		if cause == "" {
			resolved, err := b.site.treeOf(ctx, tree.Head())
			return resolved, out.NeedsIntegrationTest, "", err
		}
		in.Feedback = cause
	}
	return "", false, cause, nil
}

// bringing is how the base came in, or nil as long as nobody tried.
func (f *Fold) bringing() *brought {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.brought
}

// ground is the commit against which the build's own change is seen: where it
// began, or the base that it took in.
func (f *Fold) ground() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.brought; b != nil && b.Cause == "" && b.Head != f.pin.Start {
		return b.Base
	}
	return f.pin.from()
}

// changed reports whether there is anything that its pull request does not hold
// yet.
func (f *Fold) changed() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head != f.pin.from()
}

// before is the debt that the pull request had when the follow-up began.
func (f *Fold) before() []debt.Item {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pin == nil {
		return nil
	}
	return f.pin.Owed
}

// unmerged is the debt of a base that could not be brought in.
func (f *Fold) unmerged() (items []debt.Item) {
	if b := f.brought; b != nil && b.Cause != "" {
		items = append(items, debt.Item{
			Type: debt.UnmergedWork, Severity: debt.High, Justification: b.Cause, FollowUp: "fix conflicts, or merge the base by hand",
		})
	}
	return items
}

// errClosed says that the pull request that a follow-up writes is not open.
var errClosed = errors.New("its pull request was closed meanwhile")

// stillOpen looks before each push.
func (b *build) stillOpen(ctx context.Context) error {
	if !b.Request.follows() {
		return nil
	}
	pull, err := b.Forge.Pull(ctx, b.Request.Follow.Pull.Number)
	if err == nil && pull.State != "open" {
		err = errClosed
	}
	return err
}

// maxOwed is how many debt items of before are looked at again.
const maxOwed = 20

// owing are the debt items of before as criteria to judge, which nobody has to
// meet.
func owing(items []debt.Item) (criteria []plan.Criterion) {
	for i, it := range items[:min(len(items), maxOwed)] {
		criteria = append(criteria, plan.Criterion{
			ID:   fmt.Sprintf("debt-%d", i+1),
			Text: strings.TrimSpace(fmt.Sprintf("This debt of earlier work is paid off by now (%s): %s %s %s", it.Type, it.Criterion, it.Justification, it.File)),
		})
	}
	return criteria
}

// payOff takes the verdicts on debt of before out of a judgement, and returns
// what is paid off.
func payOff(items []debt.Item, j Judgement) (paid []debt.Item, rest Judgement) {
	rest = Judgement{Summary: j.Summary}
	criteria := owing(items)
	for _, r := range j.CriteriaResults {
		at := -1
		for i, c := range criteria {
			if c.ID == r.PRDID {
				at = i
			}
		}
		switch {
		case at < 0:
			rest.CriteriaResults = append(rest.CriteriaResults, r)
		case r.Passed:
			paid = append(paid, items[at])
		}
	}
	return paid, rest
}
