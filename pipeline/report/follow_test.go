package report

import (
	"fmt"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

func afterwards(summary string) Build {
	return Build{
		ID: "b-2", State: Succeeded, Success: true, Title: "Follow-up: Greet", Summary: summary, Ticket: 12, Closes: true, Base: "main",
		Follows: &Follow{Pull: 31, Work: "feedback"},
	}
}

// What the body said stays in it, however many follow-ups come, the newest
// account first.
func TestFollowUpBodyKeepsWhatWasSaid(t *testing.T) {
	owed := []debt.Item{{Type: debt.MissingFeature, Severity: debt.Low, Justification: "no names"}}
	first := WithDebtRecord(PullBody(Build{ID: "b-1", State: SucceededWithDebt, Title: "Greet", Summary: "Adds a greeting.", Debt: owed, PRD: "# What\n\nGreet."}, ""), owed) +
		"\n\n<!-- slipway app=42 ticket=12 as=draft -->"
	b := afterwards("Greets by name.")
	b.Paid = owed
	second := FollowUpBody(b, first)
	third := FollowUpBody(afterwards("Greets warmly."), strings.ReplaceAll(second, "\n", "\r\n")) // as GitHub gives it back
	for _, body := range []string{second, third} {
		if !strings.HasPrefix(body, "Adds a greeting.\n\n**Follow-up:** ") || strings.Contains(body, "slipway app=42") {
			t.Errorf("the body:\n%s", body)
		}
		if items, ok := ReadDebt(body); !ok || len(items) != 0 {
			t.Errorf("debt %+v, %t", items, ok)
		}
	}
	if !strings.Contains(second, "Paid off since") || !strings.Contains(second, "no names") {
		t.Errorf("nothing is said to be paid off:\n%s", second)
	}
	order := []string{"Greets warmly.", "What was said here before", "Greets by name.", "What was said here before", "no names", "<summary>PRD</summary>"}
	at := 0
	for _, text := range order {
		next := strings.Index(third[at:], text)
		if next < 0 {
			t.Fatalf("%q does not follow:\n%s", text, third)
		}
		at += next + len(text)
	}
	if open, shut := strings.Count(third, "<details>"), strings.Count(third, "</details>"); open != shut || strings.Count(third, earlierMark) != 1 {
		t.Errorf("%d details are opened, %d closed", open, shut)
	}
}

func TestFollowUpBodyFits(t *testing.T) {
	body := strings.Repeat("word ", 9_000)
	for i := range 6 {
		body = FollowUpBody(afterwards(fmt.Sprintf("Step %d.", i)), body)
		if n := runes(body); n > bodyLimit {
			t.Fatalf("%d characters", n)
		}
	}
	if _, ok := ReadDebt(body); !ok || !strings.Contains(body, "Step 5.") || !strings.Contains(body, "Step 4.") {
		t.Errorf("the newest accounts are gone:\n%.2000s", body)
	}
	long := strings.Repeat("x\n\n", 30_000)
	if body = FollowUpBody(afterwards("Step."), long); !strings.Contains(body, "Older accounts do not fit here") || runes(body) > bodyLimit {
		t.Errorf("%d characters:\n%.2000s", runes(body), body)
	}
}

func TestTheLeadOfABody(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"a paragraph":           {"Adds a greeting.\nBy name.\n\n## More", "Adds a greeting.\nBy name."},
		"a heading":             {"## What\n\nText", ""},
		"an image of somebody":  {"![x](y)\n\nText", ""},
		"a fence in it":         {"Run\n```\nrm\n\n```", ""},
		"a comment in it":       {"Text <!--\n\nmore", ""},
		"a quote":               {"> Text\n\nmore", ""},
		"escaped as we write":   {`\- Adds` + "\n\nmore", `\- Adds`},
		"nothing":               {"", ""},
		"much more than a lead": {strings.Repeat("long ", 1000), ""},
	} {
		if got := lead(c.body); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestThreadAnswer(t *testing.T) {
	seen := func(c Criterion) Build {
		b := afterwards("x")
		b.Head, b.Cause = "0123456789abcdef", "the budget is spent"
		c.ID = "thread-5"
		b.Verification = &Verification{Criteria: []Criterion{{ID: "thread-4", Passed: true, Verified: true, Commits: []string{"ffff"}}, c}}
		return b
	}
	made := []string{"0123456789abcdef"}
	unpushed := seen(Criterion{Passed: true, Verified: true, Commits: made, Evidence: "e"})
	unpushed.Head = ""
	unjudged := seen(Criterion{})
	unjudged.Verification = nil
	for name, c := range map[string]struct {
		b    Build
		want []string
		done bool
	}{
		"done":              {seen(Criterion{Passed: true, Verified: true, Commits: made, Evidence: "greet.go:3 <b>@mona</b> fixes #3"}), []string{"Addressed in `0123456789`", "greet.go:3"}, true},
		"made, and wrong":   {seen(Criterion{Verified: true, Commits: made, Evidence: "It shouts."}), []string{"`0123456789`", "does **not** do it", "It shouts."}, false},
		"made, and unseen":  {seen(Criterion{Commits: made}), []string{"nobody verified it", "the budget is spent"}, false},
		"not made":          {seen(Criterion{Evidence: "nothing landed"}), []string{"**Not addressed.**", "the budget is spent"}, false},
		"made, not pushed":  {unpushed, []string{"**Not addressed.**"}, false},
		"ended before that": {unjudged, []string{"**Not addressed.**", "the budget is spent"}, false},
	} {
		body, done := ThreadAnswer(c.b, "thread-5")
		for _, want := range c.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: no %q in\n%s", name, want, body)
			}
		}
		if done != c.done || strings.Contains(body, "<b>") || strings.Contains(body, "@mona") || strings.Contains(body, "fixes #3") || !strings.Contains(body, "Build `b-2`") {
			t.Errorf("%s: %t\n%s", name, done, body)
		}
	}
}
