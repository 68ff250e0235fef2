package report

import (
	"cmp"
	"regexp"
	"strings"
)

// earlierMark stands above what earlier builds said in the body of a pull request.
const earlierMark = "<!-- slipway earlier -->"

// FollowUpBody is the body of a pull request after a follow-up: what it did and
// found, then folded what the body said before, so that nothing that was said is
// lost. The paragraph that the body began with stays the first. It is below
// GitHub's limit; the oldest accounts give way first.
func FollowUpBody(b Build, before string) string {
	now := PullBody(b, "")
	if lead := lead(before); lead != "" {
		now = lead + "\n\n**Follow-up:** " + now
	}
	room := bodyLimit - runes(WithDebtRecord(now, b.Debt)) - 8
	return WithDebtRecord(strings.TrimRight(now, "\n")+"\n\n"+earlier(before, room), b.Debt)
}

var plainStart = regexp.MustCompile(`^[\pL\pN\\]`)

// lead is the paragraph that a body begins with, if it is plain text.
func lead(body string) string {
	first, _, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(body), "\r\n", "\n"), "\n\n")
	if !plainStart.MatchString(first) || strings.Contains(first, "```") || strings.Contains(first, "<!--") || runes(first) > 2000 {
		return ""
	}
	return first
}

// earlier folds the newest account of a body, with those that it had folded
// below. What does not fit is named and left out.
func earlier(body string, room int) string {
	const missing = "_Older accounts do not fit here._\n"
	newest, older, _ := strings.Cut(strings.ReplaceAll(body, "\r\n", "\n"), earlierMark)
	newest, older = strings.TrimSpace(stripComments(newest)), strings.TrimSpace(stripComments(older))
	if newest == "" && older == "" {
		return ""
	}
	folded := earlierMark + "\n\n<details><summary>What was said here before</summary>\n\n" + newest + "\n\n</details>\n"
	switch {
	case runes(folded)+runes(missing) > room:
		return earlierMark + "\n\n" + missing
	case older == "":
		return folded
	case runes(folded)+runes(older)+2 > room:
		return folded + "\n" + missing
	}
	return folded + "\n" + older + "\n"
}

// paidList tells which debt of before is paid off.
func paidList(b Build) section {
	s := section{text: "### Paid off since\n\n", what: "debt item"}
	for _, it := range b.Paid {
		why := it.Criterion
		if why == "" || it.Justification != "" {
			why = strings.TrimSpace(why + " " + it.Justification)
		}
		s.rows = append(s.rows, "- ~~"+text(string(it.Type), 40)+"~~ "+text(why, 300))
	}
	if len(s.rows) == 0 {
		return section{}
	}
	return s
}

// ThreadAnswer is what is said in a thread of a review about the criterion that
// was made of it, and whether that is what the thread asks for: the commit that
// does it, or why there is none.
func ThreadAnswer(b Build, criterion string) (body string, done bool) {
	c := Criterion{Evidence: b.Cause}
	if b.Verification != nil {
		for _, have := range b.Verification.Criteria {
			if have.ID == criterion {
				c = have
			}
		}
	}
	var commits []string
	for _, sha := range c.Commits {
		commits = append(commits, commitLink(b, sha))
	}
	by, why := strings.Join(commits, " "), c.Evidence
	switch {
	case b.Head == "" || len(commits) == 0:
		body, why = "**Not addressed.**", cmp.Or(b.Cause, why)
	case c.Passed && c.Verified:
		body, done = "Addressed in "+by+".", true
	case c.Verified:
		body = by + " was made for this, and does **not** do it. That is a debt item of the pull request."
	default:
		body = by + " was made for this; **nobody verified it**. That is a debt item of the pull request."
	}
	if why == "" && !done {
		why = b.Cause
	}
	if why = para(why, 600); why != "" {
		body += "\n\n" + why
	}
	return body + "\n\n<sub>Build " + code(b.ID, 80) + "</sub>", done
}
