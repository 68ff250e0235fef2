package report

import (
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// What the pull request, the check run and report.md share.

func requirementTable(b Build) section {
	if b.Verification == nil {
		return section{}
	}
	var rows [][]string
	for _, c := range b.Verification.Criteria {
		var commits []string
		for i, sha := range c.Commits {
			if i == 5 {
				commits = append(commits, "and "+strconv.Itoa(len(c.Commits)-i)+" more")
				break
			}
			commits = append(commits, commitLink(b, sha))
		}
		kind := "must have"
		if !c.MustHave {
			kind = "nice to have"
		}
		rows = append(rows, []string{
			text(c.ID, 40), text(c.Text, 300), kind, criterionState(c), strings.Join(commits, " "),
			text(c.IssueName, 60), text(c.Evidence, 400),
		})
	}
	return table("### Requirements", "requirement",
		[]string{"Id", "Requirement", "", "Result", "Commit", "Issue", "Evidence"}, rows)
}

func criterionState(c Criterion) string {
	switch {
	case !c.Verified:
		return "⚠️ not verified"
	case c.Passed:
		return "✅ passed"
	}
	return "❌ not met"
}

func commandTable(b Build) section {
	if b.Verification == nil {
		return section{}
	}
	var rows [][]string
	for _, c := range b.Verification.Commands {
		result := "✅ passed"
		if !c.Passed {
			result = "❌ exit " + strconv.Itoa(c.Exit)
		}
		if c.Flaky {
			result += ", flaky"
		}
		rows = append(rows, []string{text(c.Name, 40), command(c.Line, 300), result, lasted(c.Elapsed)})
	}
	title := "### Commands that Slipway ran"
	if b.Verification.Commit != "" {
		title += " on " + commit(b.Verification.Commit)
	}
	return table(title, "command", []string{"", "Command", "Result", "Time"}, rows)
}

// failures shows the end of the output of commands that failed.
func failures(b Build) []section {
	if b.Verification == nil {
		return nil
	}
	var out []section
	for _, c := range b.Verification.Commands {
		if !c.Passed && strings.TrimSpace(c.Output) != "" {
			out = append(out, section{text: "#### Output of " + command(c.Line, 300) + "\n\n" + fence(c.Output, 40)})
		}
		if len(out) == 4 { // setup, build, test, lint
			break
		}
	}
	return out
}

func issueTable(b Build) section {
	known := numbers(b.Issues)
	var rows [][]string
	for _, is := range byNumber(b.Issues) {
		path := "short path"
		if is.Flagged {
			path = "deeper QA"
		}
		if why := text(is.RiskRationale, 240); why != "" {
			path += ": " + why
		}
		outcome := outcomeOf(is, b.Issues)
		if why := text(is.Detail, 200); why != "" {
			outcome += ": " + why
		}
		rows = append(rows, []string{
			strconv.Itoa(is.Number), text(nameOf(is), 160) + partOf(is, known), outcome, waitsFor(is, known),
			strconv.Itoa(is.Iterations), commitLink(b, is.Merge), path,
		})
	}
	return table("### Issues", "issue",
		[]string{"No.", "Issue", "Outcome", "After", "Rounds", "Merge", "Checked by, and why"}, rows)
}

func debtTable(items []debt.Item) section {
	if len(items) == 0 {
		return section{text: "### Debt\n\nNone: nothing was waived, dropped, left unmerged or left unverified."}
	}
	var rows [][]string
	for _, it := range items {
		why := text(it.Justification, 400)
		if it.File != "" {
			why = strings.TrimSpace(why + " " + code(it.File, 160))
		}
		rows = append(rows, []string{
			text(string(it.Type), 40), text(string(it.Severity), 10),
			text(it.IssueName, 80), text(it.Criterion, 200), why, text(it.FollowUp, 240),
		})
	}
	s := table("### Debt: "+debtCount(items), "debt item",
		[]string{"Type", "Severity", "Issue", "Criterion", "Why", "Follow-up"}, rows)
	s.last = true
	return s
}

func keptTable(b Build) section {
	var rows [][]string
	for _, r := range b.Kept {
		rows = append(rows, []string{text(r.IssueName, 80), code(r.Ref, 200), commit(r.Commit), text(r.Why, 240)})
	}
	return table("### Kept work that did not merge", "ref", []string{"Issue", "Ref", "Commit", "Why"}, rows)
}

func skippedList(b Build) section {
	s := section{text: "### Skipped work\n\n", what: "skipped issue"}
	for _, is := range byNumber(b.Issues) {
		if is.Outcome != Skipped {
			continue
		}
		line := "- " + strconv.Itoa(is.Number) + " " + text(nameOf(is), 160)
		if why := text(is.Detail, 240); why != "" {
			line += ": " + why
		}
		s.rows = append(s.rows, line)
	}
	if len(s.rows) == 0 {
		return section{}
	}
	return s
}

func costTable(b Build) section {
	var rows [][]string
	for _, c := range b.Costs {
		model := text(c.Model, 80)
		if model == "" {
			model = "default"
		}
		rows = append(rows, []string{text(c.Role, 40), text(c.Runtime, 40), model, strconv.Itoa(c.Calls), dollars(c.Micros)})
	}
	if len(rows) > 0 {
		rows = append(rows, []string{"**all**", "", "", strconv.Itoa(b.AgentCalls), "**" + dollars(b.CostMicros) + "**"})
	}
	return table("### Cost", "cost line", []string{"Role", "Runtime", "Model", "Calls", "Cost"}, rows)
}

func checkTable(b Build) section {
	var rows [][]string
	for _, c := range b.Checks {
		rows = append(rows, []string{link(text(c.Name, 80), c.URL), text(c.Conclusion, 30), commit(c.HeadSHA)})
	}
	return table("### Check runs", "check run", []string{"Check", "Conclusion", "Commit"}, rows)
}

// folded is a Markdown document behind a click.
func folded(title, document string) section {
	rows := quote(document)
	if len(rows) == 0 {
		return section{}
	}
	return section{
		text: "<details><summary>" + title + "</summary>\n\n", rows: rows,
		what: "line", end: "\n\n</details>",
	}
}
