package pipeline

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// code takes one issue from its base to its last commit. Only what stops the
// whole build is an error; a panic fails the issue.
func (b *build) code(ctx context.Context, is graph.Issue) (err error) {
	defer func() {
		if r := recover(); r != nil {
			b.log.ErrorContext(ctx, "panic in an issue's lane", "issue", is.Name, "panic", r, "stack", string(debug.Stack()))
			err = b.keep(ctx, is, coding.Result{
				Outcome: report.FailedUnrecoverable, Commit: b.fold.base(is.Name), Cause: fmt.Sprintf("internal error: %v", r),
			})
		}
	}()
	defer b.site.settling.Go(func() { b.site.settle(ctx, is.Key()) }) // nobody waits for it
	here := b.site.of(is)
	spec, err := b.spec(ctx, here, is)
	if err != nil {
		return err
	}
	if b.Request.Fast {
		is.Guidance.NeedsDeeperQA = false
	}
	result, err := coding.Run(ctx, b.crew, here, coding.Task{
		Key: b.fold.key(is.Key()), Issue: is, Spec: spec, Base: b.fold.base(is.Name),
		MaxIterations: b.conf.Pipeline.MaxCodingIterations, MaxAdvisorInvocations: b.advice(),
		CanSplit:   is.ParentName == "" && b.conf.Pipeline.MaxSplits > 0,
		Background: func() coding.Background { return b.background(is.Name) },
	})
	if err != nil {
		return err
	}
	return b.keep(ctx, is, result)
}

// advice is how often the Issue Advisor may be asked about one issue.
func (b *build) advice() int {
	if !b.conf.Pipeline.EnableIssueAdvisor {
		return 0
	}
	return b.conf.Pipeline.MaxAdvisorInvocations
}

// background is what the build knows at this moment that an issue should.
func (b *build) background(name string) coding.Background {
	bg := coding.Background{Notes: b.fold.notes(name), Steering: b.fold.steered()}
	if b.conf.Pipeline.EnableLearning {
		bg.Memory = b.fold.known(name)
	}
	return bg
}

// spec is what the Coder is told of the issue beside its plan.
func (b *build) spec(ctx context.Context, here *issueSite, is graph.Issue) (string, error) {
	if b.Request.planned() || b.Request.Fast {
		return "", nil
	}
	draft := plan.Draft{
		Issue: is, PRD: b.fold.result().PRD, Architecture: b.fold.result().Architecture, Neighbours: b.fold.neighbours(is.Name),
	}
	at := agent.Place{Key: b.fold.key(is.Key()), Work: here.Open(is.Key()+"-spec", b.fold.base(is.Name))}
	out, err := agent.Ask(ctx, b.crew, at, plan.IssueWriter, draft)
	return out.Spec, err
}

// keep records how the work ended and holds its last commit by a ref, landed or
// not.
func (b *build) keep(ctx context.Context, is graph.Issue, r coding.Result) error {
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyKept(is.Key())), func(ctx context.Context) (kept, error) {
		k := kept{Name: is.Name, Result: r}
		if r.Changed {
			k.Ref = b.site.ref(b.fold.key(is.Slug()))
			if err := b.site.hold(ctx, k.Ref, r.Commit); err != nil {
				return k, err
			}
		}
		return k, nil
	})
	return err
}

// checkpoint writes the state for readers. Nobody resumes from it: that is the
// journal's.
func (b *build) checkpoint() error {
	b.paper.Lock()
	defer b.paper.Unlock()
	began := time.Now()
	text, err := b.fold.document()
	err = errors.Join(err, b.artefact("state.json", text))
	b.paper.next = time.Now().Add(documentShare * time.Since(began))
	return err
}

// paper is the state document on the disk. Its owner is who holds the lock.
type paper struct {
	sync.Mutex
	next time.Time // when it may be written for another landing
	due  bool      // somebody waits to write it
}

// documentShare is how many times longer than it takes to write the document the
// landings have none: it tells of all issues, and where many land in a second
// each would write it for nobody.
const documentShare = 50

// landed sees to it that the document tells of a landing: at once, or with the
// landings of the next moments. ctx ends when the graph is done.
func (b *build) landed(ctx context.Context) {
	b.paper.Lock()
	defer b.paper.Unlock()
	if b.paper.due {
		return
	}
	b.paper.due = true
	rest := time.NewTimer(time.Until(b.paper.next))
	b.site.settling.Go(func() {
		defer rest.Stop()
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		b.paper.Lock()
		b.paper.due = false
		b.paper.Unlock()
		if err := b.checkpoint(); err != nil { // the next end of a phase fails of it, if it lasts
			b.log.WarnContext(ctx, "the state document is not up to date", "error", err)
		}
	})
}
