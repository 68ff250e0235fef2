package main

import (
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

const green = "test ! -e broken\n"

func TestBuildOfOneIssue(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	was := lookAt(t, repo)
	end, d := company.on(term, repo)
	term.ended(end, d, 0, "succeeded")
	if !d.Success || !d.Verification.Passed || d.Issues.Completed != 1 || len(d.Debt) > 0 || d.AgentCalls != companyCalls || d.CostUSD < 0.01699 || d.CostUSD > 0.01701 {
		t.Errorf("done: %+v", d)
	}
	if !strings.HasPrefix(d.Branch, "slipway/"+d.Build) || git(t, repo, "rev-parse", d.Branch) != d.Head {
		t.Errorf("branch %s is not at %s", d.Branch, d.Head)
	}
	if got := git(t, repo, "show", d.Branch+":greet.sh"); got != "echo hello" {
		t.Errorf("greet.sh = %q", got)
	}
	was.untouched(t)
	term.sound(repo)
}

func TestBuildWithoutATestCommand(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, map[string]string{"README.md": "# Greeter\n"})
	end, d := company.on(term, repo)
	term.ended(end, d, 0, "succeeded_with_debt")
	if d.Success || d.Verification.Passed || d.Issues.CompletedWithDebt != 1 || d.Head == "" {
		t.Errorf("done: %+v", d)
	}
	term.owes(d, debt.UnverifiedCriteria, debt.High, "add-greet", "no command to build or test with was found")
}

func TestBuildWithAReviewerWhoNeverAnswers(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	end, d := company.but(cast{"code_reviewer.sh": "echo 'I am ill' >&2; exit 1\n"}).on(term, repo)
	term.ended(end, d, 0, "succeeded_with_debt")
	if !d.Success || d.Issues.CompletedWithDebt != 1 {
		t.Errorf("done: %+v", d)
	}
	term.owes(d, debt.WaivedReview, debt.High, "add-greet", "I am ill")
}

// One issue breaks the tests for good. What needs it is skipped, the rest lands
// and is published.
func TestBuildWithTestsThatFailForever(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	end, d := company.but(cast{
		"sprint_planner.json": planned(`{"name":"breaks"}`, `{"name":"needs-it","depends_on":["breaks"]}`, `{"name":"alone"}`),
		"coder.sh": `case $step in
issue-02/*) echo "$step" > broken ;;
*) echo "$step" > "${step%%/*}.txt" ;;
esac
`,
		"verifier.json": `{"summary":"Half.","criteria_results":[{"prd_id":"ac-1","passed":false,"evidence":"it is not there","issue_name":"breaks"}]}`,
	}).on(term, repo)
	term.ended(end, d, 0, "succeeded_with_debt")
	if d.Success || d.Verification.Passed || d.Issues.Completed != 1 || d.Issues.Failed != 1 || d.Issues.Skipped != 1 {
		t.Errorf("done: %+v", d)
	}
	term.owes(d, debt.FailedWork, debt.High, "breaks", "sh check.sh")
	term.owes(d, debt.SkippedWork, debt.High, "needs-it", "breaks")
	term.owes(d, debt.UnmetCriterion, debt.High, "alone", "it is not there")
	tree := git(t, repo, "ls-tree", "-r", "--name-only", d.Branch)
	if strings.Contains(tree, "broken") || !strings.Contains(tree, "issue-01") || strings.Contains(tree, "issue-03") {
		t.Errorf("published:\n%s", tree)
	}
	for _, item := range d.Debt {
		if !strings.Contains(plain(term.report(d.Build)), item.Justification[:20]) {
			t.Errorf("report.md does not print %+v", item)
		}
	}
}

func TestBuildThatLandsNothing(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked("false\n"))
	was := lookAt(t, repo)
	end, d := company.on(term, repo)
	term.ended(end, d, 1, "failed", "no issue landed; add-greet: ")
	if d.Success || d.Branch != "" || d.Head != "" || d.Issues.Failed != 1 {
		t.Errorf("done: %+v", d)
	}
	term.owes(d, debt.FailedWork, debt.High, "add-greet", "sh check.sh")
	was.untouched(t)
}

func TestBuildWithABrokenConfiguration(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ file, want string }{
		"an unknown key":  {"commands:\n  test: sh check.sh\n  tset: x\n", ".github/slipway.yml:3: commands.tset: unknown key"},
		"a wrong type":    {"limits:\n  usd_per_build: lots\n", ".github/slipway.yml:2: limits.usd_per_build: "},
		"not YAML at all": {"commands: [\n", ".github/slipway.yml:"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := checked(green)
			files[".github/slipway.yml"] = row.file
			term, repo := newTerminal(t), newRepo(t, files)
			end, d := company.on(term, repo)
			term.ended(end, d, 3, "needs_human", row.want)
			if d.AgentCalls != 0 || d.Branch != "" {
				t.Errorf("done: %+v", d)
			}
		})
	}
}
