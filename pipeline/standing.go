package pipeline

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
)

// Where a build stands, in which segment, at which gate and after which round, as
// its fold knows it. What query.go says of time holds here too.

// working is when the limit on the build's time began to run: with its segment,
// or anew when a person let it go on.
func (f *Fold) working() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return later(f.since, f.letGo)
}

// key is a key in the present segment.
func (f *Fold) key(k string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.segment == 1 {
		return k
	}
	return fmt.Sprintf("g%d/%s", f.segment, k)
}

// nextSegment is a key in the segment after the present one.
func (f *Fold) nextSegment(k string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return fmt.Sprintf("g%d/%s", f.segment+1, k)
}

// hasPlanAt reports whether the plan of that key is the one at hand.
func (f *Fold) hasPlanAt(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan != nil && f.planKey == key
}

// estimateKey is the key of the estimate of the plan at hand. It has no segment:
// what the calls after the plan cost does not make it another plan.
func (f *Fold) estimateKey() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return keyEstimate(f.planKey)
}

// unread says what of the journal could not be read. A build does not go on by
// a state that lacks something.
func (f *Fold) unread() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// isDone reports whether the build's last word is said.
func (f *Fold) isDone() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.end != nil
}

func (f *Fold) hasPlan() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.plan != nil
}

// integrated is the head of the integration branch.
func (f *Fold) integrated() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.head
}

// pinned is the base of the build.
func (f *Fold) pinned() pinned {
	f.mu.Lock()
	defer f.mu.Unlock()
	return *f.pin
}

// template is the repository's pull request template, if it has one.
func (f *Fold) template() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init.Template
}

// segmentNow is the number of the segment: 1, and one more for each resume.
func (f *Fold) segmentNow() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.segment
}

// pullState is how the pull request says that the build ended.
func (f *Fold) pullState() report.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pull == nil {
		return ""
	}
	return f.pull.As
}

// pullText is what the pull request is called by now, or else the text.
func (f *Fold) pullText(or PullText) PullText {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pull == nil {
		return or
	}
	return cmp.Or(f.pull.Text, or)
}

// waiting is the gate that the build is at, or nil.
func (f *Fold) waiting() *report.Gate {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gate
}

// stateNow is what people are told of the build's state.
func (f *Fold) stateNow() report.State { return f.Report(time.Now()).State }

// gateKey is the key under which a gate is opened: a hash may come again.
func (f *Fold) gateKey(hash string) string {
	f.mu.Lock()
	n := f.gates
	f.mu.Unlock()
	return f.key(fmt.Sprintf("%s-%d", keyGate(hash), n+1))
}

// unchecked is the hash that a person approved and nobody checked yet, and the
// key of the check.
func (f *Fold) unchecked() (hash, key string) {
	f.mu.Lock()
	hash, n := f.approval, f.approvals
	f.mu.Unlock()
	if hash == "" {
		return "", ""
	}
	return hash, f.key(fmt.Sprintf("%s-%d", keyApproved(hash), n+1))
}

func (f *Fold) hasApproved(hash string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.approved == hash
}

func (f *Fold) hasHeard(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.heard[id]
}

func (f *Fold) revisions() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.revise)
}

func (f *Fold) answered() []plan.Answer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.answers)
}

// steered is what people said to the running build.
func (f *Fold) steered() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.steering)
}

// round is the round of verification that comes next, or goes on.
func (f *Fold) round() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.fixes) + f.moved + 1
}

// isJudged reports whether the verification of that round is settled.
func (f *Fold) isJudged(round int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verified != nil && f.judged >= round
}

// isVerified reports whether the last word on the criteria is said.
func (f *Fold) isVerified() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.verified != nil && f.verified.Final
}

// unfinished is what the newest verification found open.
func (f *Fold) unfinished() Unfinished {
	f.mu.Lock()
	defer f.mu.Unlock()
	in := Unfinished{PRD: f.plan.PRD}
	for _, c := range f.verified.Verification.Criteria {
		if !c.Passed {
			in.Open = append(in.Open, CriterionResult{PRDID: c.ID, Evidence: c.Evidence, IssueName: c.IssueName})
		}
	}
	for _, c := range f.verified.Verification.Commands {
		in.Evidence.Commands = append(in.Evidence.Commands, evidence.CommandResult{Name: c.Name, Line: c.Line, Passed: c.Passed, Flaky: c.Flaky, Exit: c.Exit, Output: c.Output})
	}
	if r := f.verified.Review; r != nil {
		for _, e := range r.Open {
			in.Findings = append(in.Findings, e.Finding)
		}
	}
	in.Evidence.None = len(in.Evidence.Commands) == 0
	for _, s := range f.order {
		in.Issues = append(in.Issues, Standing{Name: s.issue.Name, Title: s.issue.Title, Outcome: s.outcome()})
		if s.outcome() == report.CompletedWithDebt {
			in.Notes = append(in.Notes, s.debtNote())
		}
	}
	return in
}

// unfixable says why a plan of fixes cannot be carried out.
func (f *Fold) unfixable(p FixPlan) (problems []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, is := range p.FixIssues {
		if len(is.AcceptanceCriteria) == 0 || is.Title == "" || is.Description == "" {
			problems = append(problems, fmt.Sprintf("fix_issues[%d] (%s): title, description and acceptance_criteria are needed", i, is.Name))
		}
		for _, d := range is.DependsOn {
			if !slices.ContainsFunc(p.FixIssues, func(o graph.Issue) bool { return o.Name == d }) {
				problems = append(problems, fmt.Sprintf("fix_issues[%d] (%s): it may depend on other fixes alone, not on %q", i, is.Name, d))
			}
		}
	}
	for i, d := range p.DebtItems {
		if d.Type != debt.UnmetCriterion && d.Type != debt.ReviewFinding || d.Justification == "" || d.Severity.Check() != nil {
			problems = append(problems, fmt.Sprintf("debt_items[%d]: type unmet_acceptance_criterion or review_finding, severity high, medium or low, and a justification are needed", i))
		}
	}
	if len(p.FixIssues)+len(p.DebtItems) == 0 {
		problems = append(problems, "fix_issues and debt_items are both empty: what is open has to be in one of them")
	}
	if len(p.FixIssues) > 0 {
		_, err := f.graph.Apply(graph.Edit{Add: p.FixIssues}, f.state())
		if bad, ok := errors.AsType[*graph.Error](err); ok {
			problems = append(problems, bad.Problems...)
		}
	}
	return problems
}

// adoptions is how often other people's commits were taken in.
func (f *Fold) adoptions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.adopted
}

// written are the commits that the build put on its branch, or may have.
func (f *Fold) written() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(slices.Clone(f.wrote), f.head)
}

// branch is the one that an earlier segment wrote, or nothing.
func (f *Fold) branch() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.published
}

func (f *Fold) isPinned() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pin != nil
}

func (f *Fold) isInitialised() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init != nil
}

// tests are the engine's commands.
func (f *Fold) tests() evidence.Commands {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.init.Commands
}

// reviewed is the newest review of the build's diff, or nil.
func (f *Fold) reviewed() *review.Result {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.review
}
