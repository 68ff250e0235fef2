package report

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// What nobody may be made to print: see check below for how each is looked for.
var hostile = map[string]string{
	"a mention":                    "thanks @octocat and @acme/owners",
	"a mention behind a comment":   "@<!-- x -->octocat",
	"a mention as an entity":       "&#64;octocat &commat;octocat",
	"a closing keyword":            "fixes #3, Closes: #4 resolved acme/api#5 fix GH-6",
	"two keywords in a row":        "fixes closes resolves #3",
	"a closing address":            "closes https://github.com/acme/api/issues/3",
	"a comment":                    "a <!-- slipway:run --> b",
	"a comment that never ends":    "a <!-- b",
	"a comment in a comment":       "<!<!-- -->-- x -->",
	"a tag":                        "<script>alert(1)</script><img src=x onerror=y>",
	"an end of details":            "</details></sub>",
	"a table row":                  "a | b | c\n|---|---|---|\n| d |",
	"an escaped pipe":              `a \| b \\| c \`,
	"a fence":                      "```\n````\n~~~\n```mermaid",
	"an open code span":            "`a | b",
	"a heading":                    "# big\n===",
	"a list":                       "1. one\n- two",
	"a picture and a link":         "![x](https://evil.example/p.png) [y](javascript:z)",
	"a diagram that breaks out":    "\"]; click i1 \"javascript:alert(1)\"\nend",
	"bidirectional and zero width": "a\u202eb\u200bc\ufeff\U000E0041",
	"bad UTF-8 and control":        "a\xff\xfe\x00\x1b[31mb",
	"emphasis":                     "**bold** __init__ ~~gone~~ $x$",
	"nothing":                      "",
}

// soaked is a build that says s wherever it can say anything.
func soaked(s string) Build {
	b := failed()
	b.ID, b.Title, b.Summary, b.Repo, b.Requester = s, s, s, s, s
	b.Base, b.BaseSHA, b.Branch, b.Head, b.Cause = s, s, s, s, s
	b.PRD, b.Architecture, b.CommentURL = s, s, s
	b.Notes = []string{s, s}
	b.Stages = []Stage{{Name: s, State: s, Detail: s}}
	b.Issues = []Issue{
		{Number: 1, Name: s, Title: s, Outcome: Completed, RiskRationale: s, Detail: s, Commit: s, Merge: s, Ref: s},
		{Number: 2, Name: s + "2", Title: s, Outcome: Skipped, DependsOn: []string{s, "unknown" + s}, Detail: s},
	}
	b.Debt = []debt.Item{{Type: debt.Type(s), Severity: debt.Severity(s), IssueName: s, Criterion: s, Justification: s, File: s, FollowUp: s}}
	b.Verification = &Verification{
		Commit:   s,
		Criteria: []Criterion{{ID: s, Text: s, Evidence: s, IssueName: s, Commits: []string{s}}},
		Commands: []Command{{Name: s, Line: s, Output: s + "x"}},
	}
	b.Kept = []Ref{{IssueName: s, Ref: s, Commit: s, Why: s}}
	b.Costs = []Cost{{Role: s, Runtime: s, Model: s}}
	b.Checks = []Check{{Name: s, Conclusion: s, HeadSHA: s, URL: s}}
	b.Pull = &Pull{Number: 7, URL: s}
	b.Issues = append(b.Issues, Issue{Number: 3, Name: s + "3", Title: s, ParentName: s, Outcome: FailedNeedsSplit, Files: []string{s, s}, Criteria: []string{s, s}})
	b.Gate = &Gate{Kind: GateKind(s), Hash: s, Reason: s, Questions: []string{s, s}, Since: time.Unix(1, 0), Expires: time.Unix(2, 0)}
	return b
}

// pages prints everything that can be printed of a build.
func pages(b Build, template string) map[string]string {
	title, summary, text := CheckOutput(b)
	approval, question, local := b, b, b
	approval.State, question.State = WaitingApproval, WaitingAnswer
	local.State, local.Ticket = WaitingApproval, 0
	return map[string]string{
		"plan": PlanPage(approval), "plan at a terminal": PlanPage(local), "question": QuestionPage(question),
		"comment at a gate": Comment(approval), "comment at a question": Comment(question), "status at a gate": Status(approval),
		"prose":   Prose(b.Cause),
		"comment": Comment(b), "end": EndPage(b), "title": PullTitle(b), "report": Markdown(b),
		"pull":   strings.Replace(PullBody(b, template), "\n\nCloses #12\n\n", "\n\n", 1), // the one that is meant
		"status": Status(b), "check title": title, "check summary": summary, "check text": text,
	}
}

var (
	anyMention  = regexp.MustCompile(`@[A-Za-z0-9]`)
	anyTicket   = regexp.MustCompile(`(?i)(?:^|[^&])#\d|\bGH-\d`)
	anyClosing  = regexp.MustCompile(`(?i)\b(?:close[sd]?|fix|fixe[sd]|resolve[sd]?)\b[\s:]*(?:[\w.-]+/[\w.-]+)?(?:#|https?:|GH-)`)
	ourTags     = regexp.MustCompile(`</?(?:details|summary|sub|code)>`)
	otherTag    = regexp.MustCompile(`<[A-Za-z/!?]`)
	anyEntity   = regexp.MustCompile(`&(?:#[0-9xX]|commat|num)`)
	codeSpans   = regexp.MustCompile("`[^`\n]*`|<code>.*?</code>")
	linkTargets = regexp.MustCompile(`\]\((https?://[^)\s]*)\)`)
)

// check fails where a page does what a stranger's text told it to.
func check(t interface{ Errorf(string, ...any) }, name, page string) {
	fits(t, name, page)
	if !utf8.ValidString(page) {
		t.Errorf("%s: invalid UTF-8", name)
	}
	if strings.Contains(page, "<!--") {
		t.Errorf("%s: an HTML comment:\n%.3000s", name, page)
	}
	prose := codeSpans.ReplaceAllString(page, "")
	prose = linkTargets.ReplaceAllString(prose, "]")
	for what, re := range map[string]*regexp.Regexp{"mention": anyMention, "ticket reference": anyTicket, "closing keyword": anyClosing} {
		if found := re.FindString(prose); found != "" {
			t.Errorf("%s: a %s %q:\n%.3000s", name, what, found, page)
		}
	}
	if name == "title" || name == "check title" { // GitHub renders no Markdown there
		return
	}
	if found := otherTag.FindString(ourTags.ReplaceAllString(prose, "")); found != "" {
		t.Errorf("%s: a tag %q:\n%.3000s", name, found, page)
	}
	columns, fence := 0, ""
	opened := 0
	for i, line := range strings.Split(page, "\n") {
		mark := ticks.FindString(line)
		switch {
		case fence != "":
			if line == fence {
				fence = ""
			}
			continue
		case len(mark) >= 3 && strings.HasPrefix(line, mark):
			fence = mark
			continue
		case strings.Contains(codeSpans.ReplaceAllString(line, ""), "!["):
			t.Errorf("%s, line %d: a picture: %s", name, i+1, line)
		case anyEntity.MatchString(strings.ReplaceAll(codeSpans.ReplaceAllString(line, ""), "&#124;", "")):
			t.Errorf("%s, line %d: an entity: %s", name, i+1, line)
		case !strings.HasPrefix(line, "|"):
			columns = 0
		case columns == 0:
			columns = strings.Count(line, "|")
		case strings.Count(line, "|") != columns:
			t.Errorf("%s, line %d: %d bars in a table of %d:\n%s", name, i+1, strings.Count(line, "|"), columns, line)
		}
		opened += strings.Count(line, "<details>") - strings.Count(line, "</details>")
		if opened < 0 {
			t.Errorf("%s, line %d closes what it did not open", name, i+1)
		}
	}
	if fence != "" || opened != 0 {
		t.Errorf("%s: left open: fence %q, details %d:\n%.3000s", name, fence, opened, page)
	}
}

// fits fails where GitHub would refuse a page, or cut it in silence.
func fits(t interface{ Errorf(string, ...any) }, name, page string) {
	switch name {
	case "comment", "pull", "status", "plan", "plan at a terminal", "question", "comment at a gate", "comment at a question", "status at a gate":
		if n := runes(page); n > 65_536 {
			t.Errorf("%s has %d characters", name, n)
		}
	case "check summary", "check text":
		if len(page) > 65_535 {
			t.Errorf("%s has %d bytes", name, len(page))
		}
	}
}

func TestHostileText(t *testing.T) {
	for name, s := range hostile {
		t.Run(name, func(t *testing.T) {
			for _, s := range []string{s, strings.Repeat(s+" ", 400)} {
				b := soaked(s)
				for page, out := range pages(b, "") {
					check(t, page, out)
				}
				fits(t, "pull", PullBody(b, s))
			}
		})
	}
}

// What people see of harmless text is the text.
func TestTextIsKept(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"plain words":            {"Limit requests", "Limit requests"},
		"a name with underlines": {"failed_work", "failed_work"},
		"a dunder":               {"__init__", `\_\_init\_\_`},
		"code":                   {"`x`", "\\`x\\`"},
		"a comparison":           {"a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"},
		"two lines":              {"a\n  b", "a b"},
		"a heading at the start": {"# a", `\# a`},
		"a list at the start":    {"2. a", `2\. a`},
		"a keyword alone":        {"This fixes the parser", "This fixes the parser"},
		"other scripts":          {"限流 für alle", "限流 für alle"},
		"too long":               {strings.Repeat("ä", 60), strings.Repeat("ä", 49) + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := para(c.in, 50); got != c.want {
				t.Errorf("para(%q) = %q, want %q", c.in, got, c.want)
			}
		})
	}
}

func TestCommandIsKeptAsTyped(t *testing.T) {
	if got := command("npm test -w @acme/x", 100); got != "`npm test -w @acme/x`" {
		t.Errorf("got %s", got)
	}
}

// big is a build of n issues with titles as long and as hostile as they come.
func big(n int, state Outcome) Build {
	b := withDebt()
	b.Issues, b.Debt = nil, nil
	long := "<@octocat|`fixes #1`> " + strings.Repeat("a|long<title ", 80)
	for i := 1; i <= n; i++ {
		is := Issue{
			Number: i, Name: "issue-" + strconv.Itoa(i), Title: long, Outcome: state, Detail: long, RiskRationale: long, Iterations: 3, Merge: merge,
			Files: slices.Repeat([]string{long}, 20), Criteria: slices.Repeat([]string{long}, 20),
		}
		if i > 1 {
			is.DependsOn = []string{"issue-" + strconv.Itoa(i-1), "issue-" + strconv.Itoa(i/2)}
		}
		b.Issues = append(b.Issues, is)
		b.Debt = append(b.Debt, debt.Item{Type: debt.FailedWork, Severity: debt.High, IssueName: is.Name, Justification: long})
		b.Verification.Criteria = append(b.Verification.Criteria, Criterion{ID: "AC-" + strconv.Itoa(i), Text: long, Evidence: long})
	}
	b.PRD = strings.Repeat("A requirement, in a line of its own.\n", 5000)
	b.Architecture = "```go\n" + b.PRD
	return b
}

func TestLimits(t *testing.T) {
	for name, b := range map[string]Build{
		"500 issues, none finished": big(500, Pending),
		"500 issues, all finished":  big(500, Completed),
	} {
		t.Run(name, func(t *testing.T) {
			if strings.HasPrefix(name, "500 issues, none") {
				b.State = Running
			}
			template := strings.Repeat("## Description\n", 200)
			_, summary, text := CheckOutput(b)
			for page, out := range map[string]string{
				"comment": Comment(b), "status": Status(b), "check summary": summary, "check text": text,
				"pull": strings.Replace(PullBody(b, template), "Closes #12", "", 1),
			} {
				check(t, page, out)
			}
		})
	}
}

// A plan of any length keeps what a person needs to answer it.
func TestPlanPageOfManyIssues(t *testing.T) {
	b := big(500, Pending)
	b.State, b.Debt, b.Gate, b.Estimate = WaitingApproval, nil, waitingApproval().Gate, waitingApproval().Estimate
	out := PlanPage(b)
	check(t, "plan", out)
	rows := len(regexp.MustCompile(`(?m)^\| \d+ \|`).FindAllString(out, -1))
	m := regexp.MustCompile(`_(\d+) more issues are not shown here\._`).FindStringSubmatch(out)
	if m == nil || rows < 300 || m[1] != strconv.Itoa(500-rows) || !strings.Contains(out, "only counted") {
		t.Errorf("%d rows of 500, and left out: %v", rows, m)
	}
	for _, want := range []string{"`/approve 0123456789ab`", "`/revise TEXT`", "`/reject [TEXT]`", "about 23 agent calls", "until 2026-03-04 10:00 UTC"} {
		if !strings.Contains(out, want) {
			t.Errorf("the page lacks %q:\n%.2000s", want, out)
		}
	}
	b = waitingAnswer()
	b.Gate.Questions = slices.Repeat([]string{strings.Repeat("why? ", 400)}, 100)
	out = QuestionPage(b)
	check(t, "question", out)
	if !strings.Contains(out, "`/answer TEXT`") || !strings.Contains(out, "more questions are not shown here") {
		t.Errorf("the question page is cut badly:\n%.1000s", out)
	}
}

// Commands are typed where the build's people are, and only where they help.
func TestChoices(t *testing.T) {
	for name, c := range map[string]struct {
		b     Build
		first string // command
		waits string
	}{
		"a plan on a ticket":       {waitingApproval(), "/approve 0123456789ab", "approval of the plan 0123456789ab, since 2026-03-01 10:00 UTC, until 2026-03-04 10:00 UTC"},
		"a plan at a terminal":     {typedAt(waitingApproval()), "slipway approve b-4711 0123456789ab", "approval of the plan 0123456789ab, since 2026-03-01 10:00 UTC, until 2026-03-04 10:00 UTC"},
		"a question on a ticket":   {waitingAnswer(), "/answer TEXT", "an answer to 2 questions, since 2026-03-01 10:00 UTC, until 2026-03-04 10:00 UTC"},
		"a question at a terminal": {typedAt(waitingAnswer()), "slipway answer b-4711 TEXT", "an answer to 2 questions, since 2026-03-01 10:00 UTC, until 2026-03-04 10:00 UTC"},
		"CI":                       {waitingCI(), "/cancel", "the checks of what it pushed"},
		"a gate nobody described":  {Build{ID: "b-1", State: WaitingApproval}, "slipway cancel b-1", "approval of the plan"},
		"a build at work":          {running(), "", ""},
		"one that ended":           {needsHuman(), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			first := ""
			if all := Choices(c.b); len(all) > 0 {
				first = all[0].Command
			}
			if waits := WaitsFor(c.b); first != c.first || waits != c.waits {
				t.Errorf("type %q, waits for %q; want %q, %q", first, waits, c.first, c.waits)
			}
		})
	}
}

func TestCommentDegradesInOrder(t *testing.T) {
	small := Comment(running())
	if !strings.Contains(small, "```mermaid") {
		t.Error("a small build has no diagram")
	}
	open := big(500, Pending)
	open.State = Running
	out := Comment(open)
	if strings.Contains(out, "mermaid") {
		t.Error("500 issues are drawn")
	}
	shown := strings.Count(out, "&lt;@")
	m := regexp.MustCompile(`_(\d+) more issues are not shown here\._`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("the comment does not say how many issues it leaves out:\n%s", out[len(out)-500:])
	}
	left, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	rows := len(regexp.MustCompile(`(?m)^\| \d+ \|`).FindAllString(out, -1))
	if rows+left != 500 || rows < 50 || shown < rows {
		t.Errorf("%d rows and %d left out of 500", rows, left)
	}
	closed := big(500, Completed)
	closed.Issues[7].Outcome = InProgress
	closed.State = Running
	out = Comment(closed)
	if !strings.Contains(out, "Finished and not listed: 499 completed.") || !strings.Contains(out, "| 8 |") {
		t.Errorf("finished issues are not counted:\n%.2000s", out)
	}
}

func TestPullBodyKeepsDebtLongest(t *testing.T) {
	b := big(60, Completed)
	out := PullBody(b, "")
	for _, want := range []string{
		"### Debt: 60 debt items (60 high)", "more lines are not shown here", "more issues are not shown here", "Closes #12",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the body lacks %q", want)
		}
	}
	if strings.Contains(out, "debt items are not shown") {
		t.Error("debt gave way although the issue table still has rows")
	}
}

func TestTemplateThatDoesNotFitIsNamed(t *testing.T) {
	out := PullBody(withDebt(), strings.Repeat("<details>\nlong\n", 5000))
	if !strings.Contains(out, "template does not fit here") || strings.Contains(out, "long\n") {
		t.Error("a template that is too long must be left out whole, and named")
	}
}

func TestCheckTextIsCutAtALine(t *testing.T) {
	in := "# ä\n````text\n" + strings.Repeat("ääää\n", 100)
	out := cutLines(in, 200, bytes)
	if len(out) > 200 || !utf8.ValidString(out) {
		t.Fatalf("%d bytes, valid %v", len(out), utf8.ValidString(out))
	}
	if !strings.HasSuffix(out, "ääää\n````\n\n_The rest is cut: it does not fit here._\n") {
		t.Errorf("got %q", out)
	}
	if whole := "a\nb"; cutLines(whole, 10, bytes) != whole {
		t.Error("what fits is changed")
	}
}

func TestConclusionAndExitCode(t *testing.T) {
	for name, c := range map[string]struct {
		b          Build
		conclusion string
		exit       int
	}{
		"succeeded":                  {Build{State: Succeeded, Success: true}, "success", 0},
		"succeeded with debt":        {Build{State: SucceededWithDebt, Success: true}, "success", 0},
		"a criterion is open":        {Build{State: SucceededWithDebt}, "neutral", 0},
		"another commit was judged":  {Build{State: Succeeded, Success: true, Head: "b", Verification: &Verification{Commit: "a"}}, "neutral", 0},
		"failed":                     {Build{State: Failed}, "failure", 1},
		"timed out":                  {Build{State: TimedOut}, "timed_out", 6},
		"cancelled":                  {Build{State: Canceled}, "cancelled", 4},
		"needs a person":             {Build{State: NeedsHuman}, "action_required", 3},
		"failed, success by mistake": {Build{State: Failed, Success: true}, "failure", 1},
		"a state that nobody knows":  {Build{State: "odd", Success: true}, "failure", 1},
		"still running":              {Build{State: Running, Success: true}, "", 1},
		"waits for approval":         {Build{State: WaitingApproval, Success: true}, "", 1},
		"waits for an answer":        {Build{State: WaitingAnswer}, "", 1},
		"waits for CI":               {Build{State: WaitingCI, Success: true}, "", 1},
		"only planned":               {Build{State: Planned, Success: true}, "neutral", 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Conclusion(c.b); got != c.conclusion {
				t.Errorf("conclusion %q, want %q", got, c.conclusion)
			}
			if got := ExitCode(c.b); got != c.exit {
				t.Errorf("exit %d, want %d", got, c.exit)
			}
		})
	}
}

func TestDoneHasListsAndExactMoney(t *testing.T) {
	for micros, want := range map[int64]string{0: "0", 1: "0.000001", 100_000: "0.1", 1_250_000: "1.25", 30_000_000: "30", -2_500_000: "-2.5"} {
		out, err := json.Marshal(Done(Build{CostMicros: micros}))
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{`"cost_usd":` + want + ",", `"debt":[]`, `"checks":[]`, `"pull":null`, `"verification":{"passed":false,"criteria":[]}`} {
			if !strings.Contains(string(out), part) {
				t.Errorf("%s lacks %s", out, part)
			}
		}
	}
}

func TestPeopleReadMoneyAndTime(t *testing.T) {
	for micros, want := range map[int64]string{0: "$0.00", 500: "$0.0005", 9_999: "$0.009999", 10_000: "$0.01", 1_005_000: "$1.01", 12_345_678: "$12.35"} {
		if got := dollars(micros); got != want {
			t.Errorf("dollars(%d) = %s, want %s", micros, got, want)
		}
	}
	for d, want := range map[time.Duration]string{0: "", time.Millisecond: "0.1s", 9990 * time.Millisecond: "10.0s", 59 * time.Second: "59s", 61 * time.Second: "1m 01s", 125 * time.Minute: "2h 05m"} {
		if got := lasted(d); got != want {
			t.Errorf("lasted(%s) = %s, want %s", d, got, want)
		}
	}
}

// One ledger: every surface counts the same items, of any build.
func TestDebtCountsAgree(t *testing.T) {
	item := rapid.Custom(func(t *rapid.T) debt.Item {
		return debt.Item{
			Type:          rapid.SampledFrom([]debt.Type{debt.DroppedCriterion, debt.FailedWork, debt.WaivedReview, debt.ReviewFinding}).Draw(t, "type"),
			Severity:      rapid.SampledFrom([]debt.Severity{debt.High, debt.Medium, debt.Low}).Draw(t, "severity"),
			IssueName:     rapid.String().Draw(t, "issue"),
			Justification: rapid.String().Draw(t, "why"),
		}
	})
	counted := regexp.MustCompile(`(?m)^### Debt: (\d+) debt item`)
	titled := regexp.MustCompile(`(\d+) debt items?$`)
	rapid.Check(t, func(t *rapid.T) {
		b := withDebt()
		b.State = rapid.SampledFrom([]State{Succeeded, SucceededWithDebt, Failed, Canceled, NeedsHuman}).Draw(t, "state")
		b.Debt = rapid.SliceOfN(item, 0, 40).Draw(t, "debt")
		title, summary, _ := CheckOutput(b)
		want := strconv.Itoa(len(b.Debt))
		for name, page := range map[string]string{"pull": PullBody(b, ""), "check": summary, "report": Markdown(b)} {
			m := counted.FindStringSubmatch(page)
			switch {
			case len(b.Debt) == 0 && m == nil && strings.Contains(page, "### Debt\n\nNone"):
			case m == nil || m[1] != want:
				t.Fatalf("%s counts %v, want %s", name, m, want)
			}
			_, section, _ := strings.Cut(page, "### Debt")
			section, _, _ = strings.Cut(section, "\n###")
			if rows := strings.Count(section, "\n| ") - min(1, len(b.Debt)); rows != len(b.Debt) {
				t.Fatalf("%s has %d rows, want %s:\n%s", name, rows, want, section)
			}
		}
		for name, line := range map[string]string{"check title": title, "comment": regexp.MustCompile(`\*\*(.*?)\*\*`).FindStringSubmatch(Comment(b))[1]} {
			m := titled.FindStringSubmatch(line)
			if (len(b.Debt) == 0) != (m == nil) || m != nil && m[1] != want {
				t.Fatalf("%s says %q, want %s", name, line, want)
			}
		}
		if n := len(Done(b).Debt); n != len(b.Debt) {
			t.Fatalf("the done-event has %d, want %s", n, want)
		}
	})
}

func FuzzPages(f *testing.F) {
	for _, s := range hostile {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, s, template string) {
		b := soaked(s)
		for page, out := range pages(b, "") {
			check(t, page, out)
		}
		body := PullBody(b, template)
		fits(t, "pull", body)
		if strings.Contains(body, "<!--") || !utf8.ValidString(body) {
			t.Errorf("the template broke the body: %q", body)
		}
	})
}

func ExampleDone() {
	out, _ := json.Marshal(Done(Build{State: Succeeded, Success: true, CostMicros: 1_500_000}).CostUSD)
	fmt.Println(string(out))
	// Output: 1.5
}
