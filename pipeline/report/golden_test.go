package report

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with testdata/golden/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", "golden", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update writes it anew); got:\n%s", path, got)
	}
}

const (
	base  = "1111111111111111111111111111111111111111"
	head  = "2222222222222222222222222222222222222222"
	merge = "3333333333333333333333333333333333333333"
)

func queued() Build {
	return Build{ID: "b-4711", State: Queued, Title: "Limit requests per client", Repo: "acme/api", Ticket: 12, Requester: "dana", Base: "main"}
}

func running() Build {
	b := queued()
	b.State, b.BaseSHA, b.Branch = Running, base, "slipway/12-limit-requests"
	b.CommentURL = "https://github.com/acme/api/issues/12#issuecomment-99"
	b.Stages = []Stage{
		{Name: "plan", State: "done", Detail: "4 issues", Elapsed: 92 * time.Second},
		{Name: "init", State: "done", Elapsed: 1400 * time.Millisecond},
		{Name: "execute", State: "running"},
		{Name: "verify", State: "pending"},
		{Name: "publish", State: "pending"},
	}
	b.Issues = []Issue{
		{Number: 1, Name: "token-bucket", Title: "Token bucket", Outcome: Completed, Iterations: 1, Merge: merge, CostMicros: 410_000, RiskRationale: "small, pure code"},
		{Number: 2, Name: "middleware", Title: "Middleware for | handlers", Outcome: InProgress, DependsOn: []string{"token-bucket"}, Iterations: 2, Flagged: true, Detail: "coder, round 2", CostMicros: 250_000, RiskRationale: "touches every route"},
		{Number: 3, Name: "config", Title: "Limits in the configuration", Outcome: Landing},
		{Number: 4, Name: "docs", Title: "Say so in the README", Outcome: Pending, DependsOn: []string{"middleware", "config"}},
	}
	b.CostMicros, b.AgentCalls, b.Elapsed = 1_234_567, 9, 754*time.Second
	return b
}

func withDebt() Build {
	b := running()
	b.State, b.Success, b.Head, b.Closes, b.Comments = SucceededWithDebt, true, head, true, 1
	b.Summary = "Adds a token bucket per client and a middleware that answers 429 with Retry-After."
	for i := range b.Stages {
		b.Stages[i].State = "done"
	}
	b.Issues[1].Outcome, b.Issues[1].Detail, b.Issues[1].Merge = CompletedWithDebt, "the header of HTTP/1.0 is missing", merge
	b.Issues[2].Outcome, b.Issues[2].Merge, b.Issues[2].Detail = Completed, merge, ""
	b.Issues[3].Outcome, b.Issues[3].Detail = Skipped, "its dependency did not land in time"
	b.Debt = []debt.Item{
		{Type: debt.SkippedWork, Severity: debt.High, IssueName: "docs", Justification: "never started", FollowUp: "/build docs only"},
		{Type: debt.DroppedCriterion, Severity: debt.Low, IssueName: "middleware", Criterion: "HTTP/1.0 clients get the header", Justification: "no client of this kind is known", File: "middleware/limit.go"},
	}
	b.Verification = &Verification{
		Passed: true, Commit: head,
		Criteria: []Criterion{
			{ID: "AC-1", Text: "The 11th request in a second gets 429", MustHave: true, Passed: true, Verified: true, Evidence: "TestLimit/eleventh", IssueName: "middleware", Commits: []string{merge}},
			{ID: "AC-2", Text: "The README tells of the limits", Passed: true, Evidence: "nobody wrote it", IssueName: "docs"},
		},
		Commands: []Command{
			{Name: "build", Line: "go build ./...", Passed: true, Elapsed: 2300 * time.Millisecond},
			{Name: "test", Line: "go test ./... | tee out.txt", Passed: true, Flaky: true, Elapsed: 14 * time.Second},
		},
	}
	b.Kept = []Ref{{IssueName: "docs", Ref: "refs/slipway/b-4711/04-docs", Commit: base, Why: "unfinished"}}
	b.Costs = []Cost{
		{Role: "coder", Runtime: "claude_code", Model: "sonnet", Calls: 6, Micros: 1_200_000},
		{Role: "qa_synthesizer", Runtime: "claude_code", Model: "haiku", Calls: 3, Micros: 34_567},
	}
	b.Notes = []string{"The lint command was not found and did not run."}
	b.Pull = &Pull{Number: 13, Draft: true, URL: "https://github.com/acme/api/pull/13"}
	b.Checks = []Check{{Name: "slipway/build", Conclusion: "success", HeadSHA: head, URL: "https://github.com/acme/api/runs/5"}}
	b.PRD = "# Limits\n\n- 10 requests a second\n- ask @dana, fixes #12\n\n```go\nvar m map[string]int\n```"
	b.Architecture = "A `Bucket` per client.\n\n<!-- hidden -->\n<b>Locks</b>: one."
	return b
}

func failed() Build {
	b := withDebt()
	b.State, b.Success, b.Closes, b.Pull, b.Checks = Failed, false, false, nil, nil
	b.Cause, b.Next = "the tests are red on the head commit", "/resume"
	b.Verification.Passed = false
	b.Verification.Commands[1].Passed, b.Verification.Commands[1].Exit = false, 1
	b.Verification.Commands[1].Output = "--- FAIL: TestLimit\n    got 200, want 429\n```\nFAIL\n"
	return b
}

func needsHuman() Build {
	b := running()
	b.State, b.Cause, b.Next = NeedsHuman, "the budget of $25.00 is spent; it resets at 00:00 UTC", "/resume --budget 40"
	b.Issues[1].Outcome, b.Issues[2].Outcome, b.Issues[3].Outcome = FailedEscalated, Completed, FailedUnrecoverable
	return b
}

const planHash = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// waitingApproval is a build at its plan gate.
func waitingApproval() Build {
	b := running()
	b.State, b.Branch = WaitingApproval, ""
	b.Stages[2].State = "pending"
	for i := range b.Issues {
		is := &b.Issues[i]
		is.Outcome, is.Merge, is.CostMicros, is.Iterations, is.Detail = Pending, "", 0, 0, ""
	}
	b.Issues[0].Files, b.Issues[0].Criteria = []string{"limit/bucket.go", "limit/bucket_test.go"}, []string{"a bucket refills at its rate", "an empty bucket says how long to wait"}
	b.Issues[1].Files, b.Issues[1].Criteria = []string{"server/routes.go"}, []string{"the 11th request in a second gets 429 | Retry-After"}
	b.Gate = &Gate{
		Kind: PlanGate, Hash: planHash, Reason: "build.approval is plan",
		Since: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Expires: time.Date(2026, 3, 4, 12, 0, 0, 0, time.FixedZone("CET", 7200)),
	}
	b.Estimate = &Estimate{Calls: 23, Micros: 3_150_000, Took: 26 * time.Minute}
	b.PRD, b.Architecture = "# Limits\n\n- 10 requests a second", "A `Bucket` per client."
	return b
}

// waitingAnswer is a build whose product manager asks something.
func waitingAnswer() Build {
	b := waitingApproval()
	b.State, b.Issues, b.PRD, b.Architecture = WaitingAnswer, nil, "", ""
	b.Gate.Kind, b.Gate.Hash, b.Estimate = QuestionGate, "", nil
	b.Gate.Reason = "the work depends on what only a person can say"
	b.Gate.Questions = []string{"Is a client an address or an account?", "What is the limit of <b>paying</b> clients?"}
	return b
}

// waitingCI is a build that pushed and waits for the checks of the repository.
func waitingCI() Build {
	b := withDebt()
	b.State, b.Gate = WaitingCI, nil
	return b
}

// split is a build that goes on with the parts of an issue.
func split() Build {
	b := running()
	b.Issues[1].Outcome, b.Issues[1].Detail = FailedNeedsSplit, "too large for one loop"
	b.Issues[3].DependsOn = []string{"limit-header", "limit-answer", "config"}
	b.Issues = append(b.Issues,
		Issue{Number: 5, Name: "limit-header", Title: "Read the client", ParentName: "middleware", Outcome: InProgress, DependsOn: []string{"token-bucket"}},
		Issue{Number: 6, Name: "limit-answer", Title: "Answer 429", ParentName: "middleware", Outcome: Pending, DependsOn: []string{"limit-header"}},
	)
	return b
}

// typedAt is the build at a terminal.
func typedAt(b Build) Build {
	b.Ticket, b.Requester, b.CommentURL, b.Pull = 0, "", "", nil
	return b
}

func TestGoldenOfWhatWaits(t *testing.T) {
	for name, b := range map[string]Build{"approval": waitingApproval(), "answer": waitingAnswer(), "ci": waitingCI()} {
		t.Run(name, func(t *testing.T) {
			golden(t, "comment-waiting-"+name+".md", Comment(b))
			golden(t, "status-waiting-"+name+".md", Status(b))
			golden(t, "status-waiting-"+name+"-terminal.md", Status(typedAt(b)))
		})
	}
	golden(t, "plan-terminal.md", PlanPage(typedAt(waitingApproval())))
	for _, state := range []State{WaitingApproval, Running} { // which it is while the gate is being shut
		plan, question := waitingApproval(), waitingAnswer()
		plan.State, question.State = state, state
		golden(t, "plan.md", PlanPage(plan))
		golden(t, "question.md", QuestionPage(question))
	}
	shown := waitingApproval()
	shown.State, shown.Gate = Planned, nil
	golden(t, "plan-no-gate.md", PlanPage(shown))
}

func TestGoldenOfASplit(t *testing.T) {
	golden(t, "comment-split.md", Comment(split()))
	golden(t, "report-split.md", Markdown(split()))
}

func TestGolden(t *testing.T) {
	builds := map[string]Build{
		"queued": queued(), "running": running(), "with-debt": withDebt(), "failed": failed(), "needs-human": needsHuman(),
	}
	const template = "<!-- Tell us -->\n## Description\n\n<!-- what -->\n\n## How was it tested?\n\n## Related issues\n\n- [ ] I asked @acme/owners\n"
	for name, b := range builds {
		t.Run(name, func(t *testing.T) {
			golden(t, "comment-"+name+".md", Comment(b))
			golden(t, "status-"+name+".md", Status(b))
			if !b.State.Final() {
				return
			}
			golden(t, "end-"+name+".md", EndPage(b))
			golden(t, "pull-"+name+".md", "# "+PullTitle(b)+"\n\n"+PullBody(b, template))
			golden(t, "report-"+name+".md", Markdown(b))
			title, summary, text := CheckOutput(b)
			golden(t, "check-"+name+".md", Conclusion(b)+": "+title+"\n\n==== summary\n\n"+summary+"\n==== text\n\n"+text)
			event, err := json.MarshalIndent(Done(b), "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "done-"+name+".json", string(event)+"\n")
		})
	}
}
