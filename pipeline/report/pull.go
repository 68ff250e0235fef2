package report

import (
	"regexp"
	"strconv"
	"strings"
)

// Room in the body, in characters: for a template at most, for the collapsed
// documents at least.
const (
	maxTemplate  = 16_000
	minDocuments = 2_000
)

// PullTitle is the title of the pull request: plain text, since GitHub renders
// none there but reads mentions and references.
func PullTitle(b Build) string {
	if title := defuse(oneLine(b.Title, 200)); title != "" {
		return title
	}
	if b.Ticket > 0 {
		return "Work on ticket " + strconv.Itoa(b.Ticket)
	}
	return "Slipway build " + oneLine(b.ID, 80)
}

// PullBody is the body of the draft pull request, below GitHub's limit for any
// build: the collapsed documents give way first, then the longest tables, the
// debt table last; each says what it left out. A non-empty template is the
// repository's own and is filled in at the end.
func PullBody(b Build, template string) string {
	p := page{{text: para(b.Summary, 2000)}}
	if b.Closes && b.Ticket > 0 {
		p = append(p, section{text: "Closes #" + strconv.Itoa(b.Ticket)})
	}
	p = append(p, section{text: b.State.mark() + " **" + headline(b) + "** · " + spent(b)}, section{text: badEnd(b)})
	p = append(p, account(b)...)
	p = append(p, section{text: footer(b)})
	documents := page{folded("PRD", b.PRD), folded("Architecture", b.Architecture)}

	// The template is printed whole or not at all, since it may open what only
	// its end closes. The documents get what account and template leave, and
	// at least enough to say that they are not here.
	rest := fillIn(template, b)
	if runes(rest) > maxTemplate {
		rest = "_The repository's pull request template does not fit here._"
	}
	main := p.limited(bodyLimit-minDocuments-runes(rest), runes)
	shown := documents.limited(bodyLimit-runes(main)-runes(rest)-8, runes)
	var parts []string
	for _, part := range []string{main, shown, rest} {
		if part = strings.TrimRight(part, "\n"); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n\n") + "\n"
}

// account is the body of evidence: the same sections in the same order in the
// pull request and in report.md.
func account(b Build) page {
	return page{
		requirementTable(b), commandTable(b), issueTable(b), debtTable(b.Debt), paidList(b),
		skippedList(b), keptTable(b), costTable(b), notes(b, 20),
	}
}

// What a template asks for under a heading, and what a build has to say there.
var templateHeadings = []struct {
	heading *regexp.Regexp
	answer  func(Build) string
}{
	{regexp.MustCompile(`(?i)\b(test|verif|evidence)`), func(b Build) string {
		if b.Verification == nil || len(b.Verification.Commands) == 0 {
			return "Slipway ran no commands on this change."
		}
		return "See the commands that Slipway ran, above."
	}},
	{regexp.MustCompile(`(?i)\b(issue|ticket|related|closes|fixes)`), func(b Build) string {
		if b.Ticket == 0 {
			return ""
		}
		return "#" + strconv.Itoa(b.Ticket)
	}},
	{regexp.MustCompile(`(?i)\b(description|summary|overview|what|changes?|purpose|motivation|why)\b`), func(b Build) string {
		return para(b.Summary, 2000)
	}},
	{regexp.MustCompile(`(?i)\b(risk|limitation|debt|follow)`), func(b Build) string {
		return "Debt: " + debtCount(b.Debt) + "."
	}},
}

var blankLines = regexp.MustCompile(`\n[ \t]*\n([ \t]*\n)+`)

var headingLine = regexp.MustCompile(`^ {0,3}#{1,6}\s+(.+)$`)

// fillIn is the repository's template with an answer under each heading that
// asks for something the build knows, each answer once. The rest of the
// template stays as it is for the person who marks the draft ready.
func fillIn(template string, b Build) string {
	template = strings.TrimSpace(stripComments(scrub(template)))
	if template == "" {
		return ""
	}
	used := make([]bool, len(templateHeadings))
	out := []string{"---", ""}
	fenced := false
	for line := range strings.SplitSeq(blankLines.ReplaceAllString(template, "\n\n"), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		}
		out = append(out, defuse(line))
		found := headingLine.FindStringSubmatch(line)
		if found == nil || fenced {
			continue
		}
		for i, h := range templateHeadings {
			if used[i] || !h.heading.MatchString(found[1]) {
				continue
			}
			if answer := h.answer(b); answer != "" {
				out = append(out, "", answer)
			}
			used[i] = true
			break
		}
	}
	return strings.Join(out, "\n")
}
