package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// land merges the issues of the open landing onto a candidate, tests it, and
// moves the integration branch there. The branch only ever holds what passed.
// Merge commits carry the time of the choice, so a repeated landing makes the
// same commits again.
func (b *build) land(ctx context.Context) error {
	key, choice, at := b.fold.opened()
	attempt := attempt{build: b, key: b.fold.key(key), at: at}
	out, err := attempt.land(ctx, choice.Issues, choice.Base)
	if err != nil {
		return err
	}
	_, err = step.Effect(ctx, b.journal, keyAdvanced(attempt.key), func(ctx context.Context) (advanced, error) {
		return out, b.site.advance(ctx, out.Head, choice.Base)
	})
	b.landed(ctx)
	return err
}

// attempt is one landing at work.
type attempt struct {
	*build
	key string
	at  time.Time
}

// candidate is a merge of issues that is not tested yet.
type candidate struct {
	advanced
	base     string
	untested bool     // what it holds was never tested together
	suspects []string // issues for which the Integration Tester is asked
}

// land merges and tests the issues on base. A red candidate gets attempts to
// mend it; then, if it is of several, it is halved until the culprit stands
// alone.
func (a attempt) land(ctx context.Context, names []string, base string) (advanced, error) {
	c, err := a.merged(ctx, names, base, 1)
	if err != nil || !c.untested {
		return c.advanced, err
	}
	verdict, err := a.try(ctx, &c, a.holding(c))
	for n := 1; err == nil && verdict != "" && n <= a.conf.Pipeline.MaxIntegrationTestRetries; n++ {
		var head string
		if head, err = a.mend(ctx, c, verdict, n); err != nil || head == "" {
			break
		}
		mended := c
		mended.Head = head
		var again string
		if again, err = a.try(ctx, &mended, a.holding(c)+fmt.Sprintf("/mended-%d", n)); err != nil || again == "" {
			return mended.advanced, err
		}
		verdict = again
	}
	if err != nil || verdict == "" {
		return c.advanced, err
	}
	switch {
	case len(c.Landed) == 1:
		return c.reject(verdict), nil
	case len(c.Failing) > 0:
		return a.halves(ctx, c, 2)
	}
	// The commands find no culprit, yet the Integration Tester refuses the whole:
	// what it was asked about stays out.
	rest := slices.DeleteFunc(c.names(), func(n string) bool { return slices.Contains(c.suspects, n) })
	out, err := a.halve(ctx, rest, base, 2)
	for _, name := range c.suspects {
		out.Rejected = append(out.Rejected, rejected{Name: name, Cause: "merged with the rest, it fails: " + verdict})
	}
	out.Rejected = slices.Concat(c.Rejected, out.Rejected)
	return out, err
}

// halve finds culprits by the engine's commands alone.
func (a attempt) halve(ctx context.Context, names []string, base string, depth int) (advanced, error) {
	if len(names) == 0 {
		return advanced{Head: base}, nil
	}
	c, err := a.merged(ctx, names, base, depth)
	if err != nil || !c.untested {
		return c.advanced, err
	}
	tested, err := a.commands(ctx, &c, a.holding(c)+"/commands")
	if err != nil || tested.Passed() {
		return c.advanced, err
	}
	if len(c.Landed) == 1 {
		return c.reject(failing(tested)), nil
	}
	return a.halves(ctx, c, depth+1)
}

// halves lands what of a red candidate does not fail.
func (a attempt) halves(ctx context.Context, c candidate, depth int) (advanced, error) {
	names := c.names()
	left, err := a.halve(ctx, names[:len(names)/2], c.base, depth)
	if err != nil {
		return left, err
	}
	right, err := a.halve(ctx, names[len(names)/2:], left.Head, depth)
	right.Landed = slices.Concat(left.Landed, right.Landed)
	right.Rejected = slices.Concat(c.Rejected, left.Rejected, right.Rejected)
	return right, err
}

func (c candidate) names() (names []string) {
	for _, l := range c.Landed {
		names = append(names, l.Name)
	}
	return names
}

// reject is the candidate without its only issue.
func (c candidate) reject(why string) advanced {
	culprit := rejected{Name: c.Landed[0].Name, Cause: "merged with the rest, it fails: " + why}
	return advanced{Head: c.base, Rejected: append(c.Rejected, culprit), Passing: c.Passing, Failing: c.Failing}
}

// merged merges the issues onto base one after the other; depth names the
// merges of one issue apart.
func (a attempt) merged(ctx context.Context, names []string, base string, depth int) (candidate, error) {
	c := candidate{advanced: advanced{Head: base}, base: base, untested: len(names) > 1}
	for _, name := range names {
		is := a.fold.issue(name)
		merge, asks, cause, err := a.merge(ctx, is, c.Head, depth)
		if err != nil {
			return c, err
		}
		if cause != "" {
			c.Rejected = append(c.Rejected, rejected{Name: name, Cause: cause})
			continue
		}
		c.untested = c.untested || a.fold.base(name) != c.Head
		c.Head = merge
		c.Landed = append(c.Landed, landed{Name: name, Merge: merge})
		if asks || is.Guidance.TouchesInterfaces {
			c.suspects = append(c.suspects, name)
		}
	}
	c.untested = c.untested && len(c.Landed) > 0
	return c, nil
}

// holding names a candidate by the landing and the issues that it holds.
func (a attempt) holding(c candidate) string {
	var numbers []string
	for _, name := range c.names() {
		numbers = append(numbers, fmt.Sprintf("%02d", a.fold.issue(name).Number))
	}
	return a.key + "/" + strings.Join(numbers, "+")
}

// commands runs the engine's commands on the candidate.
func (a attempt) commands(ctx context.Context, c *candidate, key string) (evidence.Result, error) {
	tested, err := step.Do(ctx, a.journal, key, func(ctx context.Context) (evidence.Result, error) {
		return a.site.test(ctx, "landing", c.Head)
	})
	if err != nil {
		return tested, err
	}
	c.Passing, c.Failing = nil, nil
	for _, cmd := range tested.Commands {
		if cmd.Passed {
			c.Passing = append(c.Passing, cmd.Name)
		} else {
			c.Failing = append(c.Failing, cmd.Name)
		}
	}
	last := &c.Landed[len(c.Landed)-1]
	last.Debt = coding.EvidenceDebt(last.Name, tested)
	return tested, nil
}

// try tests the candidate: by the engine's commands, and by the Integration
// Tester where the Merger asks for it or interfaces were touched. The verdict
// says what is wrong, or nothing.
func (a attempt) try(ctx context.Context, c *candidate, key string) (verdict string, err error) {
	tested, err := a.commands(ctx, c, key+"/commands")
	if err != nil || !tested.Passed() {
		return failing(tested), err
	}
	if len(c.suspects) == 0 || !a.conf.Pipeline.EnableIntegrationTesting || a.Request.Fast {
		return "", nil
	}
	in := Integration{PRD: a.fold.result().PRD, Architecture: a.fold.result().Architecture, Evidence: tested}
	for _, name := range c.names() {
		in.Issues = append(in.Issues, a.fold.issue(name))
	}
	if in.Diff, err = a.site.Diff(ctx, c.base, c.Head); err != nil {
		return "", err
	}
	tree := a.site.Open(treeName("test", key), c.Head)
	out, err := agent.Ask(ctx, a.crew, agent.Place{Key: key, Work: tree}, IntegrationTester, in)
	switch {
	case errors.Is(err, agent.ErrBudget):
		return "nobody tested it: " + err.Error(), nil // what was not tested does not land
	case err != nil:
		return "", err
	case !out.Passed:
		return "the Integration Tester did not pass it: " + out.Verdict(), nil
	}
	if tree.Head() != c.Head { // its tests go with what they test, once they pass
		with := *c
		with.Head = tree.Head()
		if tested, err = a.commands(ctx, &with, key+"/commands-tests"); err != nil || !tested.Passed() {
			return failing(tested), err
		}
		with.Tests = out.TestsWritten
		*c = with
	}
	return "", nil
}

// mend has the Merger repair a red candidate. An empty head is no repair.
func (a attempt) mend(ctx context.Context, c candidate, verdict string, try int) (head string, err error) {
	diff, err := a.site.Diff(ctx, c.base, c.Head)
	if err != nil {
		return "", err
	}
	in := Overlap{
		PRD: a.fold.result().PRD, Architecture: a.fold.result().Architecture,
		Issue: a.fold.issue(c.Landed[len(c.Landed)-1].Name), Diff: diff, Broken: verdict,
	}
	for _, name := range c.names()[:len(c.Landed)-1] {
		in.Landed = append(in.Landed, a.fold.issue(name))
	}
	key := fmt.Sprintf("%s/mend-%d", a.holding(c), try)
	tree := a.site.Open(treeName("mend", key), c.Head)
	out, err := agent.Ask(ctx, a.crew, agent.Place{Key: key, Work: tree}, Merger, in)
	if _, failed := errors.AsType[*agent.Failure](err); failed || errors.Is(err, agent.ErrBudget) {
		return "", nil
	}
	if err != nil || !out.Success || tree.Head() == c.Head {
		return "", err
	}
	return tree.Head(), nil
}

// treeName makes the name of a worktree of a key.
func treeName(what, key string) string {
	return what + "-" + strings.NewReplacer("/", "-", "+", "-").Replace(key)
}

// merge puts the issue's branch on top of head. A cause says why it cannot;
// asks, that the Merger wants the result tested.
func (a attempt) merge(ctx context.Context, is graph.Issue, head string, depth int) (commit string, asks bool, cause string, err error) {
	branch := a.fold.commit(is.Name)
	m, err := a.site.merge(ctx, head, branch)
	if err != nil {
		return "", false, "", err
	}
	shared, err := a.site.shared(ctx, a.fold.base(is.Name), head, branch)
	if err != nil {
		return "", false, "", err
	}
	tree := m.Tree
	if len(m.Conflicts) > 0 || len(shared) > 0 {
		tree, asks, cause, err = a.resolve(ctx, is, head, m.Tree, m.Conflicts, shared, depth)
		if err != nil || cause != "" {
			return "", false, cause, err
		}
	}
	message := fmt.Sprintf("Merge issue %02d: %s", is.Number, is.Title)
	commit, err = a.site.commit(ctx, tree, []string{head, branch}, message, a.at)
	return commit, asks, "", err
}

// resolve has the Merger bring two lines of work together: where git found a
// conflict, and also where it merged lines of the same file, which can be
// broken without one. One retry, then the work stays unmerged.
func (a attempt) resolve(ctx context.Context, is graph.Issue, head, tree string, conflicts, shared []string, depth int) (resolved string, asks bool, cause string, err error) {
	start, err := a.site.commit(ctx, tree, []string{head}, "Unresolved merge of issue "+is.Slug(), a.at)
	if err != nil {
		return "", false, "", err
	}
	diff, err := a.site.Diff(ctx, a.fold.base(is.Name), a.fold.commit(is.Name))
	if err != nil {
		return "", false, "", err
	}
	in := Overlap{
		PRD: a.fold.result().PRD, Architecture: a.fold.result().Architecture, Issue: is,
		Landed: a.fold.landedOn(shared), Conflicts: conflicts, Shared: shared, Diff: diff,
	}
	resolved, asks, cause, err = a.reconcile(ctx, a.fold.key(fmt.Sprintf("%s/merge-%d", is.Key(), depth)), start, in)
	if cause != "" {
		cause = fmt.Sprintf("it conflicts with what landed before (%s) and could not be merged: %s", strings.Join(shared, ", "), cause)
	}
	return resolved, asks, cause, err
}

// failing names the commands that failed.
func failing(r evidence.Result) string {
	var lines []string
	for _, c := range r.Commands {
		if !c.Passed {
			lines = append(lines, fmt.Sprintf("%q exits with %d", c.Line, c.Exit))
		}
	}
	return strings.Join(lines, ", ")
}
