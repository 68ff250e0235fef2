package pipeline

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// gated makes the plan and takes it through its gates: an agent's question, and
// where one is wanted a person's approval. A gate that is shut is a *Waiting; it
// holds no worker.
func (b *build) gated(ctx context.Context) error {
	for {
		err := b.plan(ctx)
		asked, questions := errors.AsType[*plan.Asked](err)
		switch {
		case questions:
			err = b.wait(ctx, report.Gate{Kind: report.QuestionGate, Questions: asked.Questions, Hash: digestOf(asked.Questions)})
		case err == nil && !b.Request.PlanOnly:
			err = b.approve(ctx)
		}
		if !errors.Is(err, errMoved) {
			return err
		}
	}
}

// errMoved says that a person moved the build on while it was looked at.
var errMoved = errors.New("the gate moved")

// approve lets a plan pass that needs no approval or has it.
func (b *build) approve(ctx context.Context) error {
	made := b.fold.result()
	hash := b.planHash(made)
	if b.Request.planned() || b.fold.hasApproved(hash) {
		return nil // who gave the plan has read it
	}
	estimate, err := step.Choose(ctx, b.journal, b.fold.estimateKey(), b.fold.estimate(made, b.conf))
	if err != nil {
		return err
	}
	why := b.gateReason(estimate)
	if why == "" {
		return nil
	}
	if n := len(b.fold.revisions()); n > b.conf.Pipeline.MaxPlanRevisions {
		why = fmt.Sprintf("The plan was revised %d times, which is the limit: approve it, or reject it.", n-1)
	}
	return b.wait(ctx, report.Gate{Kind: report.PlanGate, Hash: hash, Reason: why})
}

// gateReason says why the plan needs an approval, or nothing.
func (b *build) gateReason(estimate report.Estimate) string {
	approval := b.conf.Build.Approval
	if b.Request.Approval != "" {
		approval = b.Request.Approval
	}
	switch limit := int64(b.conf.Limits.USDPerBuild); {
	case approval == "plan":
		return "Nothing is coded before somebody approved the plan."
	case b.Request.Budget == 0 && estimate.Micros > limit: // who named a budget has decided
		return fmt.Sprintf("By the cost of its calls so far the plan needs about $%.2f, and the budget is $%.2f.",
			float64(estimate.Micros)/1e6, float64(limit)/1e6)
	}
	return ""
}

// planHash names what is approved: this plan of this ticket.
func (b *build) planHash(made plan.Result) string {
	return digestOf(struct {
		Title, Body, Text, Goal string
		Plan                    plan.Result
	}{b.Request.Ticket.Title, b.Request.Ticket.Body, b.Request.Text, b.Request.Goal, made})
}

func digestOf(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // only plain values are given
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// wait keeps the build at a gate until somebody answers. It opens the gate,
// which tells people, and checks an approval that came.
func (b *build) wait(ctx context.Context, gate report.Gate) error {
	now := b.fold.waiting()
	if now == nil || now.Hash != gate.Hash {
		gate.Since = time.Now().UTC()
		gate.Expires = gate.Since.Add(b.conf.Pipeline.ApprovalExpiry)
		key := b.fold.gateKey(gate.Hash)
		if _, err := step.Effect(ctx, b.journal, key, func(ctx context.Context) (opened, error) {
			return opened{Gate: gate}, b.announce(ctx, gate)
		}); err != nil {
			return err
		}
		now = &gate
	}
	if stop := b.fold.stopping(); stop != nil {
		return errStopped
	}
	if hash, key := b.fold.unchecked(); hash != "" {
		return b.checkApproval(ctx, hash, key)
	}
	if time.Now().After(now.Expires) {
		what := "approved the plan"
		switch now.Kind {
		case report.QuestionGate:
			what = "answered the question"
		case report.ChoiceGate:
			what = "chose among the targets"
		}
		return b.halt(ctx, stopped{State: report.NeedsHuman, Cause: fmt.Sprintf("nobody %s within %s", what, b.conf.Pipeline.ApprovalExpiry)})
	}
	if b.fold.waiting() == nil {
		return errMoved
	}
	return &Waiting{State: b.fold.stateNow(), Until: now.Expires}
}

// checkApproval looks once more whether what was approved is still what would
// be built.
func (b *build) checkApproval(ctx context.Context, hash, key string) error {
	_, err := step.Effect(ctx, b.journal, key, func(ctx context.Context) (approved, error) {
		refusal, err := b.stale(ctx, b.Forge, b.Request, b.fold.pinned().Base, b.fold.pinned().BaseSHA)
		return approved{Refused: refusal}, err
	})
	if err != nil {
		return err
	}
	if b.fold.hasApproved(hash) {
		return nil
	}
	return errMoved
}

// announce tells people of a gate in a comment of its own, which notifies them.
func (b *build) announce(ctx context.Context, gate report.Gate) error {
	account := b.fold.Report(time.Now())
	account.Gate = &gate
	page := report.PlanPage(account)
	switch gate.Kind {
	case report.QuestionGate:
		page = report.QuestionPage(account)
	case report.ChoiceGate:
		page = report.ComparePage(account)
	}
	if err := b.artefact("gate.md", []byte(page)); err != nil {
		return err
	}
	if b.Request.Comment.Marker == "" {
		return nil // nobody watches a thread: the terminal shows it
	}
	marker := strings.Replace(b.Request.Comment.Marker, " -->", " gate="+gate.Hash[:12]+" -->", 1)
	_, err := b.Forge.EnsureComment(ctx, forge.Comment{Ticket: b.Request.Comment.Ticket, Marker: marker, Body: page})
	if err != nil {
		return fmt.Errorf("tell of the gate: %w", err)
	}
	return nil
}

// What an issue takes where the build has seen nothing of it yet: an Issue
// Writer, and a Coder and a reviewer for one round and a half.
const (
	callsPerIssue        = 4
	callsPerFlaggedIssue = 7
	callsAtTheEnd        = 2
)

// estimate is what a plan will take, at the mean cost and time of the calls that
// planned it. It is a count, no promise.
func (f *Fold) estimate(made plan.Result, conf config.Repo) report.Estimate {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := report.Estimate{Calls: callsAtTheEnd}
	longest := len(made.Levels)
	for _, is := range made.Issues {
		e.Calls += callsPerIssue
		if is.Guidance.NeedsDeeperQA {
			e.Calls += callsPerFlaggedIssue - callsPerIssue
		}
	}
	calls := 0
	for _, n := range f.calls {
		calls += n
	}
	if calls == 0 {
		return e
	}
	e.Micros = f.cost / int64(calls) * int64(e.Calls)
	mean := f.spentTime / time.Duration(calls)
	slots := max(conf.Limits.MaxParallelIssues, 1)
	e.Took = mean * time.Duration(max(longest*callsPerIssue, e.Calls/slots)+callsAtTheEnd)
	return e
}
