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
func (c *conductor) land(ctx context.Context) error {
	key, choice, at := c.fold.opened()
	attempt := attempt{conductor: c, key: key, at: at}
	out, err := attempt.land(ctx, choice.Issues, choice.Base, 1)
	if err != nil {
		return err
	}
	_, err = step.Effect(ctx, c.crew.Journal, keyAdvanced(key), func(ctx context.Context) (advanced, error) {
		return out, c.site.advance(ctx, out.Head, choice.Base)
	})
	return err
}

// attempt is one landing at work.
type attempt struct {
	*conductor
	key string
	at  time.Time
}

// land merges and tests the issues on base. A red candidate of several is
// halved until the culprit stands alone; depth names the merges of one issue
// apart.
func (a attempt) land(ctx context.Context, names []string, base string, depth int) (advanced, error) {
	out := advanced{Head: base}
	untested := len(names) > 1
	for _, name := range names {
		is := a.fold.issue(name)
		merge, cause, err := a.merge(ctx, is, out.Head, depth)
		if err != nil {
			return out, err
		}
		if cause != "" {
			out.Rejected = append(out.Rejected, rejected{Name: name, Cause: cause})
			continue
		}
		untested = untested || a.fold.base(name) != out.Head
		out.Head = merge
		out.Landed = append(out.Landed, landed{Name: name, Merge: merge})
	}
	if len(out.Landed) == 0 || !untested {
		return out, nil
	}
	tested, err := a.test(ctx, out)
	if err != nil {
		return out, err
	}
	if tested.Passed() {
		last := &out.Landed[len(out.Landed)-1]
		last.Debt = coding.EvidenceDebt(last.Name, tested)
		return out, nil
	}
	if len(out.Landed) == 1 {
		culprit := rejected{Name: out.Landed[0].Name, Cause: "merged with the rest, it fails: " + failing(tested)}
		return advanced{Head: base, Rejected: append(out.Rejected, culprit)}, nil
	}
	var merged []string
	for _, l := range out.Landed {
		merged = append(merged, l.Name)
	}
	half := len(merged) / 2
	left, err := a.land(ctx, merged[:half], base, depth+1)
	if err != nil {
		return out, err
	}
	right, err := a.land(ctx, merged[half:], left.Head, depth+1)
	if err != nil {
		return out, err
	}
	return advanced{
		Head:     right.Head,
		Landed:   slices.Concat(left.Landed, right.Landed),
		Rejected: slices.Concat(out.Rejected, left.Rejected, right.Rejected),
	}, nil
}

// test runs the engine's commands on a candidate, named by what it holds.
func (a attempt) test(ctx context.Context, candidate advanced) (evidence.Result, error) {
	var numbers []string
	for _, l := range candidate.Landed {
		numbers = append(numbers, fmt.Sprintf("%02d", a.fold.issue(l.Name).Number))
	}
	key := fmt.Sprintf("%s/%s/commands", a.key, strings.Join(numbers, "+"))
	return step.Do(ctx, a.crew.Journal, key, func(ctx context.Context) (evidence.Result, error) {
		return a.site.test(ctx, "landing", candidate.Head)
	})
}

// merge puts the issue's branch on top of head. A cause says why it cannot.
func (a attempt) merge(ctx context.Context, is graph.Issue, head string, depth int) (commit, cause string, err error) {
	branch := a.fold.commit(is.Name)
	m, err := a.site.merge(ctx, head, branch)
	if err != nil {
		return "", "", err
	}
	shared, err := a.site.shared(ctx, a.fold.base(is.Name), head, branch)
	if err != nil {
		return "", "", err
	}
	tree := m.Tree
	if len(m.Conflicts) > 0 || len(shared) > 0 {
		tree, cause, err = a.resolve(ctx, is, head, m.Tree, m.Conflicts, shared, depth)
		if err != nil || cause != "" {
			return "", cause, err
		}
	}
	message := fmt.Sprintf("Merge issue %02d: %s", is.Number, is.Title)
	commit, err = a.site.commit(ctx, tree, []string{head, branch}, message, a.at)
	return commit, "", err
}

// resolve has the Merger bring two lines of work together: where git found a
// conflict, and also where it merged lines of the same file, which can be
// broken without one. One retry, then the work stays unmerged.
func (a attempt) resolve(ctx context.Context, is graph.Issue, head, tree string, conflicts, shared []string, depth int) (resolved, cause string, err error) {
	start, err := a.site.commit(ctx, tree, []string{head}, "Unresolved merge of issue "+is.Slug(), a.at)
	if err != nil {
		return "", "", err
	}
	diff, err := a.site.Diff(ctx, a.fold.base(is.Name), a.fold.commit(is.Name))
	if err != nil {
		return "", "", err
	}
	in := Overlap{
		PRD: a.fold.result().PRD, Architecture: a.fold.result().Architecture, Issue: is,
		Landed: a.fold.landedOn(shared), Conflicts: conflicts, Shared: shared, Diff: diff,
	}
	for try := 1; try <= 2; try++ {
		key := fmt.Sprintf("%s/merge-%d", is.Key(), depth)
		if try > 1 {
			key += fmt.Sprintf("/try-%d", try)
		}
		tree := a.site.Open(fmt.Sprintf("merge-%02d-%d-%d", is.Number, depth, try), start)
		out, err := agent.Ask(ctx, a.crew, agent.Place{Key: key, Work: tree}, Merger, in)
		failure, failed := errors.AsType[*agent.Failure](err)
		switch {
		case failed:
			cause = failure.Reason
		case err != nil:
			return "", "", err
		case !out.Success:
			cause = "the Merger gave up: " + out.Summary
		default:
			cause, err = a.site.unresolved(ctx, tree.Head(), conflicts)
			if err != nil {
				return "", "", err
			}
		}
		if cause == "" {
			resolved, err := a.site.treeOf(ctx, tree.Head())
			return resolved, "", err
		}
		in.Feedback = cause
	}
	return "", fmt.Sprintf("it conflicts with what landed before (%s) and could not be merged: %s", strings.Join(shared, ", "), cause), nil
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
