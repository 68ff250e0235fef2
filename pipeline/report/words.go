package report

import (
	"slices"
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// word is how a state is called on a page.
func (s State) word() string {
	switch s {
	case SucceededWithDebt:
		return "Succeeded with debt"
	case TimedOut:
		return "Timed out"
	case NeedsHuman:
		return "Needs a person"
	case WaitingApproval:
		return "Waiting for approval of the plan"
	case WaitingAnswer:
		return "Waiting for an answer"
	case WaitingCI:
		return "Waiting for CI"
	case "":
		return "Unknown"
	}
	words := oneLine(strings.ReplaceAll(string(s), "_", " "), 40)
	return strings.ToUpper(words[:min(1, len(words))]) + words[min(1, len(words)):]
}

func (s State) mark() string {
	switch s {
	case Succeeded, Planned:
		return "✅"
	case SucceededWithDebt, NeedsHuman:
		return "⚠️"
	case Failed, TimedOut, Canceled:
		return "❌"
	}
	return "⏳"
}

// bad reports whether the build ended without what was asked for, so that its
// cause and the next command are the first thing to read.
func (s State) bad() bool {
	return s.Final() && s != Succeeded && s != SucceededWithDebt && s != Planned
}

func (o Outcome) word() string {
	switch o {
	case CompletedWithDebt:
		return "completed with debt"
	case FailedEscalated:
		return "failed, escalated"
	case FailedNeedsSplit:
		return "split"
	case FailedUnrecoverable:
		return "failed"
	}
	return text(strings.ReplaceAll(string(o), "_", " "), 40)
}

func (o Outcome) mark() string {
	switch o {
	case Completed:
		return "✅"
	case CompletedWithDebt:
		return "⚠️"
	case FailedEscalated, FailedUnrecoverable:
		return "❌"
	case Skipped, FailedNeedsSplit:
		return "⏭"
	case InProgress, Landing:
		return "⏳"
	}
	return ""
}

// landed reports whether the issue's work is on the branch.
func (o Outcome) landed() bool { return o == Completed || o == CompletedWithDebt }

// failed reports whether the issue ended without its work on the branch,
// other than by being skipped.
func (o Outcome) failed() bool { return o == FailedEscalated || o == FailedUnrecoverable }

// Final reports whether the issue has ended.
func (o Outcome) Final() bool {
	return o.landed() || o.failed() || o == Skipped || o == FailedNeedsSplit
}

// tally counts issues by outcome, in the order people want to read.
func tally(issues []Issue) string {
	var parts []string
	for _, o := range []Outcome{Completed, CompletedWithDebt, FailedEscalated, FailedUnrecoverable, FailedNeedsSplit, Skipped, Landing, InProgress, Pending} {
		n := 0
		for _, is := range issues {
			if is.Outcome == o {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+o.word())
		}
	}
	return strings.Join(parts, ", ")
}

// landedOf says how much of the plan is on the branch: "6 issues landed", or
// "3 of 7 issues landed".
func landedOf(b Build) string {
	n, all := 0, 0
	for _, is := range b.Issues {
		if is.Outcome != FailedNeedsSplit { // its sub-issues are counted
			all++
		}
		if is.Outcome.landed() {
			n++
		}
	}
	if n == all {
		return count(n, "issue") + " landed"
	}
	return strconv.Itoa(n) + " of " + count(all, "issue") + " landed"
}

// debtCount is the number of debt items, with their severities:
// "3 debt items (1 high, 2 low)".
func debtCount(items []debt.Item) string {
	out := count(len(items), "debt item")
	var parts []string
	for _, severity := range []debt.Severity{debt.High, debt.Medium, debt.Low} {
		n := 0
		for _, it := range items {
			if it.Severity == severity {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, strconv.Itoa(n)+" "+string(severity))
		}
	}
	if len(parts) == 0 {
		return out
	}
	return out + " (" + strings.Join(parts, ", ") + ")"
}

// headline is the one line that a state comes down to: "Succeeded with debt: 6
// issues landed, 1 debt item".
func headline(b Build) string {
	state := b.State.word()
	if b.State == SucceededWithDebt && !b.Success {
		state += ", criteria open"
	}
	if b.choosing() {
		return "Waiting for a choice: " + count(len(b.Contenders), "target")
	}
	if len(b.Issues) == 0 && (!b.State.Final() || len(b.Contenders) > 0) {
		return state
	}
	if b.State == Planned || b.State == WaitingApproval {
		return state + ": " + count(len(b.Issues), "issue")
	}
	var parts []string
	if b.Follows == nil || len(b.Issues) > 0 { // else there was nothing to code
		parts = append(parts, landedOf(b))
	}
	if len(b.Debt) > 0 {
		parts = append(parts, count(len(b.Debt), "debt item"))
	}
	if len(parts) == 0 {
		return state
	}
	return state + ": " + strings.Join(parts, ", ")
}

// progress is the share of the build that is behind it, in per cent: every
// stage weighs the same, and the running execute stage counts by its issues.
func progress(b Build) int {
	if b.State.Final() {
		return 100
	}
	if len(b.Stages) == 0 {
		return together(b.Contenders)
	}
	done := 0.0
	for _, s := range b.Stages {
		switch {
		case s.State == "done" || s.State == "skipped" || s.State == "failed":
			done++
		case s.State == "running" && s.Name == "execute" && len(b.Issues) > 0:
			finished := 0
			for _, is := range b.Issues {
				if is.Outcome.Final() {
					finished++
				}
			}
			done += float64(finished) / float64(len(b.Issues))
		}
	}
	return int(100 * done / float64(len(b.Stages)))
}

// together is the progress of all contenders.
func together(all []Contender) int {
	sum := 0
	for _, c := range all {
		sum += c.Progress
	}
	return sum / max(len(all), 1)
}

func bar(percent int) string {
	const width = 20
	full := percent * width / 100
	return "`" + strings.Repeat("█", full) + strings.Repeat("░", width-full) + "` " + strconv.Itoa(percent) + "%"
}

// web is the repository's page, taken from an address that GitHub gave us;
// empty where there is none, so that nothing is linked that may not exist.
func (b Build) web() string {
	if b.Pull != nil {
		if base, _, ok := strings.Cut(b.Pull.URL, "/pull/"); ok {
			return base
		}
	}
	for _, part := range []string{"/issues/", "/pull/"} {
		if base, _, ok := strings.Cut(b.CommentURL, part); ok {
			return base
		}
	}
	return ""
}

func branchLink(b Build) string {
	if b.Branch == "" {
		return ""
	}
	name := code(b.Branch, 250)
	if web := b.web(); web != "" {
		return link(name, web+"/tree/"+b.Branch)
	}
	return name
}

func commitLink(b Build, sha string) string {
	if web := b.web(); web != "" && sha != "" {
		return link(commit(sha), web+"/commit/"+sha)
	}
	return commit(sha)
}

func pullLink(b Build) string {
	if b.Pull == nil {
		return ""
	}
	kind := "pull request"
	if b.Pull.Draft {
		kind = "draft pull request"
	}
	return link(kind+" "+strconv.Itoa(b.Pull.Number), b.Pull.URL)
}

// places is the line of links: branch, commit, pull request.
func places(b Build) string {
	var parts []string
	if branch := branchLink(b); branch != "" {
		if b.Head != "" {
			branch += " at " + commitLink(b, b.Head)
		}
		parts = append(parts, "Branch: "+branch)
	}
	if pull := pullLink(b); pull != "" {
		parts = append(parts, "Result: "+pull)
	}
	return strings.Join(parts, " · ")
}

// spent is the line of numbers: cost, calls, time.
func spent(b Build) string {
	cost := "Cost: "
	if !b.State.Final() {
		cost = "Cost so far: "
	}
	parts := []string{cost + dollars(b.CostMicros), count(b.AgentCalls, "agent call")}
	if b.Elapsed > 0 {
		parts = append(parts, lasted(b.Elapsed))
	}
	return strings.Join(parts, " · ")
}

// badEnd is what to read first when a build ended badly: why, and what to type.
// Empty for every other build that has neither.
func badEnd(b Build) string {
	var parts []string
	if b.Cause != "" || b.State.bad() {
		cause := para(b.Cause, 600)
		if cause == "" {
			cause = "no cause was recorded"
		}
		parts = append(parts, "**Why:** "+cause)
	}
	if b.Next != "" {
		parts = append(parts, "**Next:** "+command(b.Next, 300))
	}
	return strings.Join(parts, "\n\n")
}

// heading is the build's title, safe after a heading mark.
func heading(b Build, limit int) string {
	if title := text(b.Title, limit); title != "" {
		return title
	}
	return "build " + code(b.ID, 80)
}

// numbers maps issue names to their numbers.
func numbers(issues []Issue) map[string]int {
	out := make(map[string]int, len(issues))
	for _, is := range issues {
		out[is.Name] = is.Number
	}
	return out
}

// byNumber returns the issues in the order of their numbers.
func byNumber(issues []Issue) []Issue {
	out := slices.Clone(issues)
	slices.SortStableFunc(out, func(a, b Issue) int { return a.Number - b.Number })
	return out
}
