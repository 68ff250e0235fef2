package report

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// found is a finding on a line of the diff.
func found(number int, severity finding.Severity, path string, line int, title string) finding.Entry {
	return finding.Entry{
		Finding: finding.Finding{Severity: severity, Path: path, StartLine: line, Title: title, Claim: title + " when it is called twice.", Suggestion: "Do not."},
		ID:      fmt.Sprintf("%016x", number), Number: number, Lens: "correctness", Agreement: 2, Verdict: finding.Confirmed, Confidence: 90, State: finding.New,
		FailureScenario: "Call it twice.", Anchor: finding.Lines{First: line, Last: line},
	}
}

func cleanReview() Review {
	return Review{
		ID: "r-4711", State: ReviewCompleted, Repo: "acme/api", Pull: 13, Title: "Limit requests", URL: "https://github.com/acme/api/pull/13", Requester: "dana",
		Base: "main", BaseSHA: base, Head: head, Severity: "medium", Confidence: 80, MaxFindings: 10,
		Files: []ReviewedFile{{Path: "a.go"}, {Path: "b.go"}, {Path: "go.sum", Skipped: "lock"}}, Agents: 11,
		Commands: []Command{{Name: "test", Line: "go test ./... | tee x", Passed: true, Elapsed: 2 * time.Second}},
		Costs:    []Cost{{Role: "lens", Runtime: "claude_code", Model: "sonnet", Calls: 11, Micros: 210_000}}, CostMicros: 210_000, AgentCalls: 11, Elapsed: 95 * time.Second,
	}
}

func withFindings() Review {
	r := cleanReview()
	fix := found(1, finding.High, "a.go", 12, "The lock is not released")
	fix.Replacement = "defer mu.Unlock()"
	broken := found(2, finding.High, "", 0, "go test ./... fails")
	broken.Lens, broken.Anchor, broken.Witness = "commands", finding.Lines{}, "$ go test ./...\n--- FAIL: TestLimit\nexit code 1"
	low := found(3, finding.Low, "b.go", 4, "The name misleads")
	old := found(4, finding.Medium, "b.go", 9, "The check of the tenant is gone")
	old.Side, old.State, old.Posted = finding.OldSide, finding.Open, true
	maybe := found(5, finding.High, "b.go", 20, "It may be slow")
	maybe.Verdict = finding.Uncertain
	mended := found(6, finding.High, "a.go", 30, "A nil map is written to")
	mended.State = finding.Fixed
	closed := found(7, finding.High, "a.go", 31, "Not a fault")
	closed.State = finding.Dismissed
	r.Findings = []finding.Entry{fix, broken, low, old, maybe, mended, closed}
	r.Commands[0].Passed, r.Commands[0].Exit = false, 1
	r.BaseCommands = []Command{{Name: "test", Line: "go test ./... | tee x", Passed: true}}
	r.Since, r.ReviewURL = base, "https://github.com/acme/api/pull/13#pullrequestreview-9"
	r.Instructions = []string{"CLAUDE.md"}
	r.Todos = []ReviewTodo{{Path: "a.go", Line: 7, Text: "TODO: fixes #12, @dana"}}
	r.Untested = []string{"a.go"}
	return r
}

func partialReview() Review {
	r := cleanReview()
	r.State, r.Cause, r.Next = ReviewPartial, "the review ran into its limit of 15m0s", "/review"
	r.Gaps = []Gap{{Agent: "security", State: "timed_out", Reason: "the review ran into its limit of 15m0s"}}
	r.Files[1].Skipped = "too large"
	r.Moved, r.Requeued = merge, true
	r.Commands, r.Unrun, r.Fork = nil, "the change is from a fork, whose code is not executed", true
	return r
}

func failedReview() Review {
	r := cleanReview()
	r.State, r.Cause, r.Next, r.Files, r.Commands = ReviewFailed, "there is no lens \"speling\"", "/review", nil, nil
	return r
}

// page prints everything that is printed of a review.
func everyReviewPage(t *testing.T, r Review) map[string]string {
	t.Helper()
	title, summary, text := ReviewCheck(r)
	sarif, err := ReviewSARIF(r)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := ReviewJSON(r)
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{
		"comment.md": ReviewComment(r), "body.md": ReviewBody(r), "status.md": ReviewStatus(r), "report.md": ReviewMarkdown(r),
		"check.txt":  title + "\n" + ReviewConclusion(r) + "\n\n" + summary + "\n----\n" + text + fmt.Sprintf("\n%+v\n", ReviewAnnotations(r)),
		"sarif.json": string(sarif) + "\n", "account.json": string(whole) + "\n",
	}
	for _, e := range r.Remarks() {
		pages[fmt.Sprintf("remark-%d.md", e.Number)] = ReviewRemark(r, e).Body
	}
	return pages
}

// What did not end is counted as what it is: the commands are no agent.
func TestReviewCountsWhatDidNotFinish(t *testing.T) {
	lens, commands := Gap{Agent: "security", State: "cancelled"}, Gap{Agent: "commands", State: "timed_out"}
	for want, gaps := range map[string][]Gap{
		"### Not looked at: 1 agent of 12 did not finish\n":                               {lens},
		"### Not looked at: the commands did not end\n":                                   {commands},
		"### Not looked at: 1 agent of 12 did not finish, and the commands did not end\n": {commands, lens},
	} {
		if got := ReviewMarkdown(Review{State: ReviewPartial, Agents: 12, Gaps: gaps}); !strings.Contains(got, want) {
			t.Errorf("want %q:\n%s", want, got)
		}
	}
}

func TestReviewPages(t *testing.T) {
	queued := Review{ID: "r-4711", State: ReviewQueued, Pull: 13}
	running := cleanReview()
	running.State, running.Files, running.Commands = ReviewRunning, nil, nil
	running.Stages = []Stage{{Name: "fetch", State: "done"}, {Name: "lenses", State: "running", Detail: "3 answered"}, {Name: "publish", State: "pending"}}
	for name, r := range map[string]Review{"clean": cleanReview(), "findings": withFindings(), "partial": partialReview(), "failed": failedReview(), "queued": queued, "running": running} {
		for page, text := range everyReviewPage(t, r) {
			if name != "findings" && (strings.HasSuffix(page, ".json") || page == "body.md" || page == "report.md") {
				continue // said by the others
			}
			golden(t, "review-"+name+"-"+page, text)
		}
	}
}

func TestReviewConclusions(t *testing.T) {
	only := func(change func(*finding.Entry)) Review {
		r, e := cleanReview(), found(1, finding.Medium, "a.go", 3, "A fault")
		change(&e)
		r.Findings = []finding.Entry{e}
		return r
	}
	late := cleanReview()
	late.State = ReviewCanceled
	tooLarge := cleanReview()
	tooLarge.Files[0].Skipped = "too large"
	for name, c := range map[string]struct {
		r          Review
		conclusion string
		exit       int
	}{
		"nothing found":               {cleanReview(), "success", 0},
		"a finding":                   {only(func(*finding.Entry) {}), "neutral", 1},
		"a critical one":              {only(func(e *finding.Entry) { e.Severity = finding.Critical }), "failure", 1},
		"a command that broke":        {only(func(e *finding.Entry) { e.Lens = "commands" }), "failure", 1},
		"one below the threshold":     {only(func(e *finding.Entry) { e.Severity = finding.Low }), "success", 0},
		"one that nobody is sure of":  {only(func(e *finding.Entry) { e.Confidence = 40 }), "success", 0},
		"one that is fixed":           {only(func(e *finding.Entry) { e.State = finding.Fixed }), "success", 0},
		"one that a person dismissed": {only(func(e *finding.Entry) { e.State = finding.Dismissed }), "success", 0},
		"partial":                     {partialReview(), "neutral", 6},
		"a file too large":            {tooLarge, "neutral", 6},
		"cancelled":                   {late, "cancelled", 4},
		"not done":                    {failedReview(), "action_required", 3},
	} {
		t.Run(name, func(t *testing.T) {
			if got, exit := ReviewConclusion(c.r), ReviewExit(c.r, ""); got != c.conclusion || exit != c.exit {
				t.Errorf("%s, exit %d", got, exit)
			}
		})
	}
	if got := ReviewExit(only(func(*finding.Entry) {}), "high"); got != 0 {
		t.Errorf("a medium finding with --fail-on high: exit %d", got)
	}
	many := cleanReview()
	many.Files = make([]ReviewedFile, 43)
	many.Files[0].Skipped, many.Files[1].Skipped = "lock", "binary"
	many.Findings = []finding.Entry{found(1, "high", "a", 1, "a"), found(2, "high", "a", 2, "b"), found(3, "high", "a", 3, "c")}
	if got := ReviewTitle(many); got != "Reviewed 41 of 43 files, 3 findings" {
		t.Errorf("title %q", got)
	}
}

// A suggestion is offered only for exactly the lines that it was written for.
func TestSuggestionBlocks(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*finding.Entry)
		want   bool
	}{
		"of its lines":            {func(*finding.Entry) {}, true},
		"without new code":        {func(e *finding.Entry) { e.Replacement = "" }, false},
		"of lines half outside":   {func(e *finding.Entry) { e.EndLine = 5; e.Anchor.Last = 4 }, false},
		"of removed lines":        {func(e *finding.Entry) { e.Side = finding.OldSide }, false},
		"that ends its own block": {func(e *finding.Entry) { e.Replacement = "x\n```\n@mona" }, false},
		"with hidden characters":  {func(e *finding.Entry) { e.Replacement = "x\u202ey" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := found(1, finding.High, "a.go", 3, "A fault")
			e.Replacement = "\tdefer mu.Unlock()"
			c.change(&e)
			if got := strings.Contains(ReviewRemark(cleanReview(), e).Body, "```suggestion\n"); got != c.want {
				t.Errorf("offered: %v", got)
			}
		})
	}
}

// Nothing that is open is lost: it is on its lines, or in the text of the review,
// or was said before; and whatever models write, no page mentions or closes.
func TestNothingOpenIsLost(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := cleanReview()
		r.MaxFindings = rapid.IntRange(0, 5).Draw(t, "max")
		severities := []finding.Severity{finding.Critical, finding.High, finding.Medium, finding.Low}
		for i := range rapid.IntRange(0, 12).Draw(t, "findings") {
			e := found(i+1, rapid.SampledFrom(severities).Draw(t, "severity"), "a.go", i+1, fmt.Sprintf("Fault%dx", i))
			if rapid.Bool().Draw(t, "outside") {
				e.Anchor = finding.Lines{}
			}
			e.Posted = rapid.Bool().Draw(t, "posted")
			e.State = rapid.SampledFrom([]finding.State{finding.New, finding.Open, finding.Fixed, finding.Dismissed}).Draw(t, "state")
			r.Findings = append(r.Findings, e)
		}
		remarks, body := r.Remarks(), ReviewBody(r)
		if len(remarks) > r.MaxFindings {
			t.Fatalf("%d remarks", len(remarks))
		}
		for _, e := range r.Open() {
			onLine := slices.ContainsFunc(remarks, func(o finding.Entry) bool { return o.ID == e.ID })
			inText := strings.Contains(body, e.Title)
			said := 0
			for _, where := range []bool{onLine, inText, e.Posted} {
				if where {
					said++
				}
			}
			if said != 1 {
				t.Fatalf("%s is said %d times: line %v, text %v, before %v", e.Title, said, onLine, inText, e.Posted)
			}
			if !strings.Contains(ReviewComment(r), e.Title) {
				t.Fatalf("%s is not in the comment", e.Title)
			}
		}
	})
}

func TestReviewPagesAreDefusedAndBounded(t *testing.T) {
	evil := "@mona fixes #3 <b>x</b> <!-- | `\u202e\n# big"
	r := withFindings()
	for i := range 3000 {
		e := found(100+i, finding.High, "dir/"+evil, i+1, evil)
		e.FailureScenario, e.Suggestion, e.Witness = evil, evil, strings.ReplaceAll(evil, "\n", " ") // a log keeps its lines, inside a fence
		r.Findings = append(r.Findings, e)
		r.Files = append(r.Files, ReviewedFile{Path: fmt.Sprintf("%d%s", i, evil), Skipped: evil})
	}
	r.Title, r.Cause, r.Next, r.Requester, r.Untested = evil, evil, "/review", evil, []string{evil}
	r.Gaps, r.Notes, r.Todos = []Gap{{evil, evil, evil}}, []string{evil}, []ReviewTodo{{evil, 1, evil}}
	for name, text := range everyReviewPage(t, r) {
		if strings.HasSuffix(name, ".json") {
			if !json.Valid([]byte(text)) {
				t.Errorf("%s is no JSON", name)
			}
			continue
		}
		if name == "check.txt" {
			_, summary, body := ReviewCheck(r)
			if len(summary) > checkLimit || len(body) > checkLimit {
				t.Errorf("check: %d and %d bytes", len(summary), len(body))
			}
			text = summary + body
		} else if name != "report.md" && runes(text) > bodyLimit {
			t.Errorf("%s has %d characters", name, runes(text))
		}
		for _, bad := range []string{"@mona", "fixes #3", "<b>", "<!--", "\u202e", "\n# big"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s holds %q", name, bad)
			}
		}
	}
}
