package report

import (
	"strings"
	"testing"
	"time"
)

const other = "2222222444444444444444444444444444444444"

// contest is a comparison of three targets: one result without fault, one with
// debt, and none.
func contest() Build {
	b := queued()
	b.State, b.BaseSHA, b.CommentURL = WaitingApproval, base, "https://github.com/acme/api/issues/12#issuecomment-99"
	b.CostMicros, b.AgentCalls, b.Elapsed = 3_456_789, 41, 34*time.Minute
	b.Gate = &Gate{
		Kind: ChoiceGate, Hash: planHash,
		Since: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Expires: time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC),
	}
	good, gone := withDebt(), needsHuman()
	good.ID, good.Debt, good.State = "b-1", nil, Succeeded
	good.Held = &Held{Commit: head, Ref: "refs/slipway/b-1/integration", Shared: true, Files: 7, Added: 210, Deleted: 14}
	owing := withDebt()
	owing.ID = "b-2"
	owing.Held = &Held{Commit: other, Ref: "refs/slipway/b-2/integration", Files: 1, Added: 90}
	gone.ID = "b-3"
	b.Contenders = []Contender{
		NewContender("claude_code", good), NewContender("open_code:openai/gpt-5@high", owing), NewContender("codex", gone),
	}
	return b
}

func TestGoldenOfAComparison(t *testing.T) {
	golden(t, "compare.md", ComparePage(contest()))
	golden(t, "comment-compare.md", Comment(contest()))
	golden(t, "status-compare.md", Status(contest()))
	golden(t, "status-compare-terminal.md", Status(typedAt(contest())))

	running := contest()
	running.State, running.Gate = Running, nil
	running.Contenders[1].State, running.Contenders[1].Progress, running.Contenders[1].Held = Running, 40, Held{}
	golden(t, "comment-compare-running.md", Comment(running))

	lost := contest()
	lost.State, lost.Gate, lost.Contenders = Failed, nil, lost.Contenders[2:]
	lost.Cause, lost.Next = "no target came to a result: codex: "+lost.Contenders[0].Cause, "/resume"
	golden(t, "end-compare.md", EndPage(lost))
	golden(t, "report-compare.md", Markdown(lost))

	chosen := withDebt()
	chosen.Contenders = contest().Contenders
	chosen.Contenders[1].Chosen = true
	golden(t, "comment-compare-chosen.md", Comment(chosen))
}

func TestChosen(t *testing.T) {
	same := contest().Contenders
	same[1].Commit = head
	const both = "it is 222222222222 for claude_code, or 222222244444 for open_code:openai/gpt-5@high"
	for name, c := range map[string]struct {
		all         []Contender
		hash, build string
		refusal     string
	}{
		"twelve digits":       {contest().Contenders, head[:12], "b-1", ""},
		"all, in capitals":    {contest().Contenders, " " + strings.ToUpper(other) + " ", "b-2", ""},
		"two that are one":    {same, head[:7], "b-1", ""},
		"nothing":             {contest().Contenders, "", "", "an approval names the commit of the result that is chosen: " + both},
		"too few digits":      {contest().Contenders, other[:6], "", "no result begins with 222222: " + both},
		"digits of two":       {contest().Contenders, other[:7], "", "more than one result begins with 2222222: " + both},
		"what nobody made":    {contest().Contenders, "fedcba9", "", "no result begins with fedcba9: " + both},
		"where there is none": {contest().Contenders[2:], head, "", "no result begins with"},
	} {
		t.Run(name, func(t *testing.T) {
			got, refusal := Chosen(c.all, c.hash)
			if got.Build != c.build || !strings.HasPrefix(refusal, c.refusal) || (refusal == "") != (c.refusal == "") {
				t.Errorf("got %q, %q", got.Build, refusal)
			}
		})
	}
}
