package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// rounds executes the graph and verifies what landed, until nothing is open or
// no round of fixes is left. A fix adds to the build: what landed, what was
// decided and what is owed stays.
func (b *build) rounds(ctx context.Context) error {
	c := &conductor{fold: b.fold, journal: b.journal, conf: b.conf, hands: b, log: b.log}
	for {
		if err := c.run(ctx); err != nil {
			return err
		}
		if b.fold.stopping() != nil {
			return nil // wrapUp verifies what there is
		}
		if again, err := b.round(ctx); err != nil || !again {
			return err
		}
	}
}

// wrapUp verifies and finalizes what landed, where that was not done. A build
// that was cancelled or ran out of time spends nothing more: what it holds is
// published unverified, and says so.
func (b *build) wrapUp(ctx context.Context) error {
	if !b.fold.hasPlan() || b.Request.PlanOnly && b.fold.stopping() == nil {
		return nil
	}
	stop := b.fold.stopping()
	if !b.fold.isVerified() {
		if !stop.mayFinish() {
			return b.judge(ctx, b.fold.round(), verdict{unseen: "the build stopped before it was verified: " + stop.Cause})
		}
		if _, err := b.round(ctx); err != nil {
			return err
		}
	}
	if !stop.mayFinish() {
		return nil
	}
	return b.finalize(ctx)
}

// round verifies the head once, and has fixes added for what is open. It
// reports whether there is something to execute.
func (b *build) round(ctx context.Context) (again bool, err error) {
	if b.fold.isVerified() {
		return false, nil // a claim before this one said the last word
	}
	n := b.fold.round()
	if !b.fold.isJudged(n) {
		v, err := b.verify(ctx, n)
		if err != nil {
			return false, err
		}
		v.fixable = n <= b.conf.Pipeline.MaxVerifyFixCycles && !b.Request.Fast && b.fold.stopping() == nil
		if err := b.judge(ctx, n, v); err != nil {
			return false, err
		}
	}
	if b.fold.isVerified() || b.fold.stopping() != nil {
		return false, nil
	}
	return b.fix(ctx, n)
}

// verdict is what was seen of the finished work.
type verdict struct {
	commit    string
	tested    evidence.Result
	judgement Judgement
	paid      []debt.Item    // of what earlier work owed
	unseen    string         // why nobody judged the criteria; empty when somebody did
	review    *review.Result // nil: nobody was to review it
	unread    string         // why nobody reviewed it though somebody should have
	fixable   bool           // a round of fixes is left
}

// verify runs the engine's commands on the head and has every criterion judged
// with their results at hand.
func (b *build) verify(ctx context.Context, n int) (verdict, error) {
	head, key := b.fold.integrated(), b.fold.key(keyVerify(n))
	tested, err := b.tested(ctx, key+"/commands", head)
	if err != nil {
		return verdict{}, err
	}
	v := verdict{commit: head, tested: tested}
	landed, missing := b.fold.landedIssues()
	switch {
	case len(landed) == 0 && len(b.fold.result().Issues) > 0:
		v.unseen = "nothing landed"
		return v, nil
	case !b.fold.changed(): // and nothing had to
		return v, nil
	}
	if b.Request.Unverified {
		v.unseen = "no verification was asked for"
		return v, nil
	}
	var reviewErr error
	var beside sync.WaitGroup
	beside.Go(func() { v.review, v.unread, reviewErr = b.review(ctx, n, head, tested) })
	judgement, err := b.judgement(ctx, key, head, Finished{Issues: landed, Missing: missing, Notes: b.fold.missed(), Evidence: tested})
	beside.Wait()
	v.paid, v.judgement = payOff(b.fold.before(), judgement)
	failure, failed := errors.AsType[*agent.Failure](err)
	switch {
	case failed:
		v.unseen = "the Verifier did not answer: " + failure.Reason
	case errors.Is(err, agent.ErrBudget), errors.Is(err, agent.ErrFatal):
		v.unseen = err.Error() // what landed is still published
	case err != nil:
		return verdict{}, err
	}
	return v, reviewErr
}

// judgement asks the Verifier about each criterion, and about the debt that
// earlier work left.
func (b *build) judgement(ctx context.Context, key, head string, in Finished) (Judgement, error) {
	in.PRD = b.fold.result().PRD
	in.PRD.AcceptanceCriteria = slices.Concat(in.PRD.AcceptanceCriteria, owing(b.fold.before()))
	if len(in.PRD.AcceptanceCriteria) == 0 {
		return Judgement{}, nil
	}
	at := agent.Place{Key: key, Work: b.site.Open(treeName("verify", key), head)}
	return agent.Ask(ctx, b.crew, at, Verifier, in)
}

// tested runs the engine's commands on a commit of the integration branch.
func (b *build) tested(ctx context.Context, key, commit string) (evidence.Result, error) {
	r, err := step.Do(ctx, b.journal, key, func(ctx context.Context) (evidence.Result, error) {
		return b.site.test(ctx, "verify", commit)
	})
	if err != nil {
		return r, fmt.Errorf("run the commands on %.12s: %w", commit, err)
	}
	return r, nil
}

// review has the build's own diff reviewed by the lenses. What keeps them from
// it is told and becomes debt; it does not stop the build.
func (b *build) review(ctx context.Context, n int, head string, tested evidence.Result) (*review.Result, string, error) {
	if !b.conf.Pipeline.EnableReview || b.Request.Fast {
		return nil, "", nil
	}
	if stop := b.fold.stopping(); stop != nil {
		return nil, "the build had stopped: " + stop.Cause, nil
	}
	prd := b.fold.result().PRD
	target := review.Target{
		Key: b.fold.key(keyVerify(n)) + "/review", Base: b.fold.ground(), Head: head,
		Goal: prd.Title + "\n\n" + prd.ValidatedDescription, Evidence: tested, Earlier: b.fold.reviewed(),
	}
	for _, c := range prd.AcceptanceCriteria {
		target.Criteria = append(target.Criteria, c.Text)
	}
	out, err := review.Run(ctx, b.crew, reviewSite{b.site}, target, review.Options{
		Severity: finding.Severity(b.conf.Review.Severity), MinConfidence: b.conf.Review.MinConfidence,
		MaxConcurrency: b.concurrency(), Emit: b.live.hear,
	})
	if errors.Is(err, agent.ErrBudget) || errors.Is(err, agent.ErrFatal) {
		return nil, err.Error(), nil
	}
	if err != nil {
		return nil, "", err
	}
	return &out, "", nil
}

// reviewDebt is what a review leaves open: findings that count, and lenses that
// did not look.
func reviewDebt(v verdict) (items []debt.Item) {
	if v.unread != "" {
		items = append(items, debt.Item{
			Type: debt.WaivedReview, Severity: debt.High, Justification: "the build's diff was not reviewed: " + v.unread,
			FollowUp: "review it before merging",
		})
	}
	if v.review == nil {
		return items
	}
	for _, f := range v.review.Open {
		item := debt.Item{
			Type: debt.ReviewFinding, Severity: debt.Severity(f.Severity), File: f.Path,
			Justification: because(f.Title, f.Claim), FollowUp: f.Suggestion,
		}
		if f.Severity == finding.Critical {
			item.Severity = debt.High
		}
		if f.StartLine > 0 {
			item.File = fmt.Sprintf("%s:%d", f.Path, f.StartLine)
		}
		items = append(items, item)
	}
	for _, gap := range v.review.Incomplete {
		what := "the lens " + gap.Lens + " did not look at the build's diff: "
		if gap.Lens == "" {
			what = "findings of the review were not verified: "
		}
		items = append(items, debt.Item{Type: debt.WaivedReview, Severity: debt.Medium, Justification: what + gap.Reason})
	}
	return items
}

// judge joins what was seen with the criteria of the PRD and keeps it.
func (b *build) judge(ctx context.Context, n int, v verdict) error {
	commits, serving := b.fold.merges()
	out := settle(b.fold.result().PRD, v, commits, serving)
	_, err := step.Effect(ctx, b.journal, b.fold.key(keySettled(keyVerify(n))), func(context.Context) (verified, error) {
		text, err := json.MarshalIndent(out.Verification, "", "  ")
		if err != nil {
			return out, fmt.Errorf("keep the verification: %w", err)
		}
		return out, b.artefact("verification.json", text)
	})
	return errors.Join(err, b.checkpoint())
}

// fix turns what a verification found open into issues, which are coded like
// all others.
func (b *build) fix(ctx context.Context, n int) (again bool, err error) {
	diff, err := b.site.Diff(ctx, b.fold.ground(), b.fold.integrated())
	if err != nil {
		return false, err
	}
	in := b.fold.unfinished()
	in.Diff, in.Left, in.check = diff, b.conf.Pipeline.MaxVerifyFixCycles-n, b.fold.unfixable
	key := b.fold.key(keyVerify(n))
	at := agent.Place{Key: key, Work: b.site.Open(treeName("fix", key), b.fold.integrated())}
	plan, err := agent.Ask(ctx, b.crew, at, FixGenerator, in)
	failure, failed := errors.AsType[*agent.Failure](err)
	out := fixes{Issues: plan.FixIssues, Debt: plan.DebtItems}
	switch {
	case failed:
		out = fixes{Note: "the Fix Generator did not answer: " + failure.Reason}
	case err != nil:
		return false, err
	}
	_, err = step.Effect(ctx, b.journal, b.fold.key(keyFix(n)), func(context.Context) (fixes, error) { return out, nil })
	return len(out.Issues) > 0, err
}

// settle is the matrix of criteria: each passed, failed or unverified, and each
// that is not passed a debt. It fails closed: no verdict is no pass, and with
// no command run nothing counts as seen.
func settle(prd plan.PRD, v verdict, commits map[string][]string, serving map[string]string) verified {
	out := verified{Verification: report.Verification{Passed: true, Commit: v.commit, Commands: commandsOf(v.tested)}}
	byID := map[string]CriterionResult{}
	for _, r := range v.judgement.CriteriaResults {
		byID[r.PRDID] = r
	}
	for _, c := range prd.AcceptanceCriteria {
		line := report.Criterion{ID: c.ID, Text: c.Text, MustHave: c.MustHave, IssueName: serving[c.ID], Commits: commits[c.ID]}
		severity := debt.High
		if !c.MustHave {
			severity = debt.Low
		}
		item := debt.Item{Severity: severity, IssueName: line.IssueName, Criterion: c.ID}
		judged, ok := byID[c.ID]
		switch {
		case v.unseen != "" || !ok:
			line.Evidence = v.unseen
			if v.unseen == "" {
				line.Evidence = "the Verifier said nothing about it"
			}
			item.Type, item.Justification = debt.UnverifiedCriteria, fmt.Sprintf("%s was not verified: %s", c.Text, line.Evidence)
		default:
			line.Passed, line.Verified, line.Evidence = judged.Passed, true, judged.Evidence
			item.Type, item.Justification = debt.UnmetCriterion, fmt.Sprintf("%s: %s", c.Text, judged.Evidence)
		}
		if !line.Passed {
			out.Debt = append(out.Debt, item)
			out.Verification.Passed = out.Verification.Passed && !c.MustHave
		}
		out.Verification.Criteria = append(out.Verification.Criteria, line)
	}
	if v.unseen == "" || v.commit != "" {
		out.Debt = append(out.Debt, coding.EvidenceDebt("", v.tested)...)
	}
	if !v.tested.Green() {
		out.Verification.Passed = false
	}
	out.Review, out.Paid = v.review, v.paid
	out.Debt = append(out.Debt, reviewDebt(v)...)
	out.Final = !v.fixable || !open(v)
	return out
}

// open reports whether a verification found something that a fix could mend. A
// criterion that nobody judged is not known to be unmet.
func open(v verdict) bool {
	unmet := slices.ContainsFunc(v.judgement.CriteriaResults, func(r CriterionResult) bool { return !r.Passed })
	found := v.review != nil && len(v.review.Open) > 0
	return found || v.unseen == "" && (unmet || !v.tested.Passed())
}

func commandsOf(r evidence.Result) []report.Command {
	var out []report.Command
	for _, c := range r.Commands {
		out = append(out, report.Command{
			Name: c.Name, Line: c.Line, Passed: c.Passed, Flaky: c.Flaky, Exit: c.Exit, Output: c.Output, Elapsed: c.Elapsed,
		})
	}
	return out
}

// conclude says how the build ends, by the table in the specification.
func conclude(r report.Build, stop *stopped) ended {
	landed := 0
	for _, is := range r.Issues {
		if is.Merge != "" {
			landed++
		}
	}
	red := ""
	unmet := 0
	if v := r.Verification; v != nil {
		for _, c := range v.Commands {
			if !c.Passed {
				red = fmt.Sprintf("%q fails on the head", c.Line)
			}
		}
		for _, c := range v.Criteria {
			if !c.Passed {
				unmet++
			}
		}
	}
	e := ended{State: report.SucceededWithDebt, Success: r.Verification != nil && r.Verification.Passed}
	switch {
	case stop != nil && stop.State != report.Failed:
		e.State, e.Success, e.Cause = stop.State, false, stop.Cause
	case landed == 0 && (len(r.Issues) > 0 || r.Follows == nil): // a follow-up may have nothing to code
		e.State, e.Success, e.Cause = report.Failed, false, nothingLanded(r)
		if stop != nil {
			e.Cause = stop.Cause
		}
	case red != "":
		e.State, e.Success, e.Cause = report.Failed, false, red
	case len(r.Debt) == 0 && unmet == 0:
		e.State = report.Succeeded
	case stop != nil:
		e.Cause = stop.Cause
	}
	if e.Cause != "" {
		e.Next = r.Typed("resume", "") // after a bad end
	}
	e.Summary = summarize(r, e, landed)
	return e
}

// nothingLanded says why, by the first issue that failed.
func nothingLanded(r report.Build) string {
	for _, is := range r.Issues {
		if is.Outcome == report.FailedUnrecoverable || is.Outcome == report.FailedEscalated {
			return fmt.Sprintf("no issue landed; %s: %s", is.Name, is.Detail)
		}
	}
	return "no issue landed"
}

// summarize is the account in one paragraph, from counts alone.
func summarize(r report.Build, e ended, landed int) string {
	var parts []string
	if len(r.Issues) > 0 {
		parts = append(parts, fmt.Sprintf("%d of %s landed", landed, report.Count(len(r.Issues), "issue")))
	}
	if v := r.Verification; v != nil {
		passed := 0
		for _, c := range v.Criteria {
			if c.Passed {
				passed++
			}
		}
		parts = append(parts, fmt.Sprintf("%d of %s passed", passed, report.Count(len(v.Criteria), "acceptance criterion")))
	}
	if n := len(r.Debt); n > 0 {
		parts = append(parts, report.Count(n, "debt item"))
	}
	switch {
	case e.Cause != "" && len(parts) == 0:
		return "Nothing was built: " + e.Cause + "."
	case e.Cause != "":
		parts = append(parts, e.Cause)
	}
	text := strings.Join(parts, ", ")
	if text == "" {
		return ""
	}
	return strings.ToUpper(text[:1]) + text[1:] + "."
}
