package report

import (
	"strconv"
	"strings"
)

// GitHub refuses a comment or a pull request body above 65,536 characters. The
// difference is room for the hidden marker that the forge adds.
const bodyLimit = 65_536 - 512

// Comment is the tracking comment: the same comment from the first word that a
// build is queued to its end, edited in place. It is below GitHub's limit for
// any build: first the diagram goes, then finished issues become counts, then
// the table ends early and names how many issues it does not show.
func Comment(b Build) string {
	full := commentPage(b, b.Issues, diagram(b.Issues), "")
	if out := full.String(); runes(out) <= bodyLimit {
		return out
	}
	plain := commentPage(b, b.Issues, "", "")
	if out := plain.String(); runes(out) <= bodyLimit {
		return out
	}
	var open, finished []Issue
	for _, is := range b.Issues {
		if is.Outcome.Final() {
			finished = append(finished, is)
		} else {
			open = append(open, is)
		}
	}
	counts := ""
	if len(finished) > 0 {
		counts = "Finished and not listed: " + tally(finished) + "."
	}
	return commentPage(b, open, "", counts).limited(bodyLimit, runes)
}

// EndPage is the comment that says how a build ended, to those who wait for it:
// the head of the tracking comment, which has the rest.
func EndPage(b Build) string {
	rest := ""
	if b.CommentURL != "" {
		rest = "The rest is in the " + link("tracking comment", b.CommentURL) + "."
	}
	return page{
		{text: "### " + b.State.mark() + " Slipway: " + heading(b, 200)},
		{text: stateLine(b)}, {text: badEnd(b)}, {text: places(b)}, compared(b), {text: rest},
	}.limited(bodyLimit, runes)
}

func commentPage(b Build, listed []Issue, drawing, counts string) page {
	p := page{
		{text: "### " + b.State.mark() + " Slipway: " + heading(b, 200)},
		{text: stateLine(b)},
		{text: badEnd(b)},
	}
	p = append(p, waiting(b)...)
	if !b.State.Final() {
		p = append(p, section{text: bar(progress(b))})
	}
	if b.State == Running {
		p = append(p, section{text: estimate(b)})
	}
	p = append(p, section{text: places(b)})
	p = append(p, comparison(b)...)
	p = append(p,
		stageTable(b.Stages),
		commentIssues(b, listed),
		section{text: counts},
		subagents(b.Batches), permits(b),
	)
	if drawing != "" {
		p = append(p, section{text: "<details><summary>Issue graph</summary>\n\n" + drawing + "\n\n</details>"})
	}
	return append(p, notes(b, 5), section{text: footer(b)})
}

func stateLine(b Build) string {
	out := "**" + headline(b) + "**"
	if b.State == Queued {
		return out + " · waiting for a free worker. This comment follows the build."
	}
	return out + " · " + spent(b)
}

func stageTable(stages []Stage) section {
	const most = 12 // a build has six
	var rows [][]string
	for _, s := range stages {
		rows = append(rows, []string{text(s.Name, 30), stageState(s.State), text(s.Detail, 160), lasted(s.Elapsed)})
	}
	if len(rows) > most {
		rows = rows[:most]
	}
	return table("", "stage", []string{"Stage", "State", "", "Time"}, rows)
}

func stageState(state string) string {
	marks := map[string]string{"done": "✅ ", "running": "⏳ ", "failed": "❌ ", "skipped": "⏭ "}
	return marks[state] + text(state, 20)
}

func commentIssues(b Build, listed []Issue) section {
	known := numbers(b.Issues)
	var rows [][]string
	for _, is := range byNumber(listed) {
		cost := ""
		if is.CostMicros > 0 {
			cost = dollars(is.CostMicros)
		}
		rows = append(rows, []string{
			strconv.Itoa(is.Number), text(nameOf(is), 80) + partOf(is, known), outcomeOf(is, b.Issues),
			waitsFor(is, known), cost, text(is.Detail, 120),
		})
	}
	return table("", "issue", []string{"No.", "Issue", "State", "After", "Cost", ""}, rows)
}

// nameOf is what people call an issue: its title, or its name without one.
func nameOf(is Issue) string {
	if is.Title == "" {
		return is.Name
	}
	return is.Title
}

// outcomeOf is where an issue stands; of one that was split, what took its place.
func outcomeOf(is Issue, all []Issue) string {
	out := strings.TrimSpace(is.Outcome.mark() + " " + is.Outcome.word())
	if is.Outcome != FailedNeedsSplit {
		return out
	}
	var parts []string
	for _, sub := range byNumber(all) {
		if sub.ParentName == is.Name {
			parts = append(parts, strconv.Itoa(sub.Number))
		}
	}
	if len(parts) == 0 {
		return out
	}
	return out + " into " + several(parts, func(n string) string { return n }, ", ")
}

// partOf says of a sub-issue which issue it is a part of.
func partOf(is Issue, known map[string]int) string {
	if is.ParentName == "" {
		return ""
	}
	if n, ok := known[is.ParentName]; ok {
		return " (part of " + strconv.Itoa(n) + ")"
	}
	return " (part of " + text(is.ParentName, 40) + ")"
}

func notes(b Build, most int) section {
	s := section{what: "note"}
	for i, note := range b.Notes {
		if i == most {
			s.cut = len(b.Notes) - most
		}
		s.rows = append(s.rows, "- "+para(note, 300))
	}
	return s
}

// footer says which build a page tells of.
func footer(b Build) string {
	parts := []string{"Build " + code(b.ID, 80)}
	if b.Base != "" {
		base := "base " + code(b.Base, 120)
		if b.BaseSHA != "" {
			base += " at " + commitLink(b, b.BaseSHA)
		}
		parts = append(parts, base)
	}
	if b.Requester != "" {
		parts = append(parts, "asked for by "+text(b.Requester, 60))
	}
	return "<sub>" + strings.Join(parts, " · ") + "</sub>"
}
