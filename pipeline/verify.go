package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// wrapUp verifies and finalizes what landed. A build that was stopped spends
// nothing more: what it holds is published unverified, and says so.
func (b *build) wrapUp(ctx context.Context) error {
	if !b.fold.hasPlan() {
		return nil
	}
	if s := b.fold.stopping(); s != nil && s.State != report.Failed {
		return b.judge(ctx, verdict{unseen: "the build stopped before it was verified: " + s.Cause})
	}
	v, err := b.verify(ctx)
	if err != nil {
		return err
	}
	if err := b.judge(ctx, v); err != nil {
		return err
	}
	return b.finalize(ctx)
}

// verdict is what was seen of the finished work.
type verdict struct {
	commit    string
	tested    evidence.Result
	judgement Judgement
	unseen    string // why nobody judged the criteria; empty when somebody did
}

// verify runs the engine's commands on the head and has every criterion judged
// with their results at hand.
func (b *build) verify(ctx context.Context) (verdict, error) {
	head := b.fold.integrated()
	tested, err := step.Do(ctx, b.journal, keyVerify+"/commands", func(ctx context.Context) (evidence.Result, error) {
		return b.site.test(ctx, "verify", head)
	})
	if err != nil {
		return verdict{}, fmt.Errorf("run the commands on the head: %w", err)
	}
	v := verdict{commit: head, tested: tested}
	landed, missing := b.fold.landedIssues()
	if len(landed) == 0 {
		v.unseen = "nothing landed"
		return v, nil
	}
	if b.Request.Unverified {
		v.unseen = "no verification was asked for"
		return v, nil
	}
	at := agent.Place{Key: keyVerify, Work: b.site.Open("verify", head)}
	v.judgement, err = agent.Ask(ctx, b.crew, at, Verifier, Finished{
		PRD: b.fold.result().PRD, Issues: landed, Missing: missing, Evidence: tested,
	})
	failure, failed := errors.AsType[*agent.Failure](err)
	switch {
	case failed:
		v.unseen = "the Verifier did not answer: " + failure.Reason
	case errors.Is(err, agent.ErrBudget), errors.Is(err, agent.ErrFatal):
		v.unseen = err.Error() // what landed is still published
	case err != nil:
		return verdict{}, err
	}
	return v, nil
}

// judge joins what was seen with the criteria of the PRD and keeps it.
func (b *build) judge(ctx context.Context, v verdict) error {
	commits, serving := b.fold.merges()
	out := settle(b.fold.result().PRD, v, commits, serving)
	_, err := step.Effect(ctx, b.journal, keyJudged, func(context.Context) (verified, error) {
		text, err := json.MarshalIndent(out.Verification, "", "  ")
		if err != nil {
			return out, fmt.Errorf("keep the verification: %w", err)
		}
		return out, b.artefact("verification.json", text)
	})
	return err
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
	return out
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
	case landed == 0:
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
		e.Next = nextCommand(r)
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

// nextCommand is what to type after a bad end.
func nextCommand(r report.Build) string {
	if r.Ticket > 0 {
		return "/build"
	}
	return "slipway build --repo DIR --goal TEXT"
}

// summarize is the account in one paragraph, from counts alone.
func summarize(r report.Build, e ended, landed int) string {
	var parts []string
	if len(r.Issues) > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d issues landed", landed, len(r.Issues)))
	}
	if v := r.Verification; v != nil {
		passed := 0
		for _, c := range v.Criteria {
			if c.Passed {
				passed++
			}
		}
		parts = append(parts, fmt.Sprintf("%d of %d acceptance criteria passed", passed, len(v.Criteria)))
	}
	if n := len(r.Debt); n == 1 {
		parts = append(parts, "1 debt item")
	} else if n > 1 {
		parts = append(parts, fmt.Sprintf("%d debt items", n))
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
