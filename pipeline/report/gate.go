package report

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// A Choice is one command that a person may type at a build that waits.
type Choice struct {
	Command string // as it has to be typed, but for the words in capitals
	Does    string // what then happens
}

// Choices are what a person may type at a build that waits, the likeliest
// first: commands of a comment where there is a ticket, else of a terminal.
// They are empty where nothing waits.
func Choices(b Build) []Choice {
	switch {
	case b.choosing():
		var all []Choice
		for _, c := range b.Contenders {
			if c.Choosable() {
				all = append(all, Choice{b.Typed("approve", shortHash(c.Commit)), "opens the draft pull request of what " + code(c.Target, 120) + " made"})
			}
		}
		return append(all, Choice{b.Typed("reject", "[TEXT]"), "ends it without one; the work is kept"})
	case b.State == WaitingApproval && b.Gate != nil:
		return []Choice{
			{b.Typed("approve", shortHash(b.Gate.Hash)), "builds exactly this plan"},
			{b.Typed("revise", "TEXT"), "has the plan made anew, with what you say"},
			{b.Typed("reject", "[TEXT]"), "ends the build; nothing is coded"},
		}
	case b.State == WaitingAnswer && b.Gate != nil:
		return []Choice{
			{b.Typed("answer", "TEXT"), "goes on with what you say"},
			{b.Typed("cancel", ""), "ends the build and keeps what is finished"},
		}
	case b.State.Waiting():
		return []Choice{{b.Typed("cancel", ""), "ends the build and keeps what is finished"}}
	}
	return nil
}

// WaitsFor says in one line of plain text what the build waits for, since when
// and until when; empty where nothing waits.
func WaitsFor(b Build) string {
	what := ""
	switch b.State {
	case WaitingApproval:
		what = "approval of the plan"
		if b.choosing() {
			what = "a choice among the results of " + count(len(b.Contenders), "target")
		} else if b.Gate != nil && b.Gate.Hash != "" {
			what += " " + shortHash(b.Gate.Hash)
		}
	case WaitingAnswer:
		what = "an answer"
		if b.Gate != nil && len(b.Gate.Questions) > 0 {
			what += " to " + count(len(b.Gate.Questions), "question")
		}
	case WaitingCI:
		what = "the checks of what it pushed"
	default:
		return ""
	}
	if b.Gate != nil && !b.Gate.Since.IsZero() {
		what += ", since " + moment(b.Gate.Since)
	}
	if b.Gate != nil && !b.Gate.Expires.IsZero() {
		what += ", until " + moment(b.Gate.Expires)
	}
	return what
}

// choosing reports whether a person is asked to choose a contender.
func (b Build) choosing() bool {
	return b.State == WaitingApproval && b.Gate != nil && b.Gate.Kind == ChoiceGate
}

// Typed is a command as it is typed where the build's people are.
func (b Build) Typed(verb, rest string) string {
	line := "slipway " + verb + " " + b.ID
	if b.Ticket > 0 {
		line = cmp.Or(b.Prefix, "/") + verb
	}
	return strings.TrimSpace(line + " " + rest)
}

// shortHash is as much of a plan's hash as a person types.
func shortHash(hash string) string { return oneLine(hash[:min(12, len(hash))], 12) }

// moment is a point in time for people of all places.
func moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// waiting is what to read first of a build that waits: for what, why, and what
// to type.
func waiting(b Build) page {
	what := WaitsFor(b)
	if what == "" {
		return nil
	}
	p := page{{text: "**Waits for** " + text(what, 200) + ". It holds no worker meanwhile."}}
	if b.Target != "" {
		p = append(p, section{text: "**Target:** " + code(b.Target, 120)})
	}
	if b.Gate != nil && b.Gate.Reason != "" {
		p = append(p, section{text: "**Why:** " + para(b.Gate.Reason, 600)})
	}
	return append(p, questions(b), choices(b))
}

// choices lists what to type.
func choices(b Build) section {
	var lines []string
	for _, c := range Choices(b) {
		lines = append(lines, "- "+command(c.Command, 300)+" "+c.Does)
	}
	return section{text: strings.Join(lines, "\n")}
}

// questions lists what an agent asked.
func questions(b Build) section {
	s := section{what: "question"}
	if b.State != WaitingAnswer || b.Gate == nil {
		return s
	}
	for i, q := range b.Gate.Questions {
		s.rows = append(s.rows, strconv.Itoa(i+1)+". "+para(q, 1500))
	}
	return s
}

// PlanPage is the comment that shows a plan: the issues in their order, what
// they will take, and, where the build waits for it, how to approve exactly
// this plan. It is below GitHub's limit for any plan: first the documents give
// way, then files and criteria are only counted, then the table ends early and
// names how many issues it does not show.
func PlanPage(b Build) string {
	if b.Gate != nil && b.Gate.Kind == PlanGate {
		b.State = WaitingApproval // also while the gate is being shut
	}
	whole := planPage(b, planTable(b))
	if out := whole.String(); runes(out) <= bodyLimit {
		return out
	}
	undocumented := b
	undocumented.PRD, undocumented.Architecture = "", ""
	if runes(planPage(undocumented, planTable(b)).String()) <= bodyLimit-minDocuments {
		return whole.limited(bodyLimit, runes)
	}
	return planPage(b, planCounts(b)).limited(bodyLimit, runes)
}

func planPage(b Build, issues section) page {
	title := "### " + b.State.mark() + " Slipway: the plan of " + heading(b, 200)
	if b.State == WaitingApproval {
		title += " waits for approval"
	}
	p := page{{text: title}}
	if b.State == WaitingApproval {
		p = append(p, waiting(b)...)
	}
	p = append(p, section{text: estimate(b)}, issues)
	if len(b.Debt) > 0 {
		p = append(p, debtTable(b.Debt))
	}
	return append(p, folded("PRD", b.PRD), folded("Architecture", b.Architecture), notes(b, 20), section{text: footer(b)})
}

// QuestionPage is the comment that shows what an agent asks, and how to answer.
func QuestionPage(b Build) string {
	if b.Gate != nil && b.Gate.Kind == QuestionGate {
		b.State = WaitingAnswer // also while the gate is being shut
	}
	p := page{{text: "### " + b.State.mark() + " Slipway: a question about " + heading(b, 200)}}
	p = append(p, waiting(b)...)
	return append(p, section{text: footer(b)}).limited(bodyLimit, runes)
}

// estimate is the line of numbers of a plan that was not built yet.
func estimate(b Build) string {
	if b.Estimate == nil {
		return ""
	}
	e := *b.Estimate
	parts := []string{count(e.Calls, "agent call"), dollars(e.Micros)}
	if e.Took > 0 {
		parts = append(parts, lasted(e.Took))
	}
	return "**Estimate:** about " + strings.Join(parts, " · ") + ". Spent so far: " + dollars(b.CostMicros) + "."
}

func planTable(b Build) section {
	known := numbers(b.Issues)
	var rows [][]string
	for _, is := range byNumber(b.Issues) {
		path := "short path"
		if is.Flagged {
			path = "deeper QA"
		}
		if why := text(is.RiskRationale, 160); why != "" {
			path += ": " + why
		}
		rows = append(rows, []string{
			strconv.Itoa(is.Number), text(nameOf(is), 160) + partOf(is, known), waitsFor(is, known),
			several(is.Files, func(f string) string { return code(f, 120) }, ", "),
			several(is.Criteria, func(c string) string { return text(c, 240) }, "; "),
			path,
		})
	}
	s := table("### "+count(len(b.Issues), "issue")+", each as soon as what it comes after has landed", "issue",
		[]string{"No.", "Issue", "After", "Files", "Done when", "Checked by, and why"}, rows)
	s.last = true
	return s
}

// planCounts is the table of a plan whose files and criteria do not fit.
func planCounts(b Build) section {
	known := numbers(b.Issues)
	var rows [][]string
	for _, is := range byNumber(b.Issues) {
		rows = append(rows, []string{
			strconv.Itoa(is.Number), text(nameOf(is), 60) + partOf(is, known), waitsFor(is, known),
			strconv.Itoa(len(is.Files)), strconv.Itoa(len(is.Criteria)),
		})
	}
	s := table("### "+count(len(b.Issues), "issue")+", each as soon as what it comes after has landed\n\n"+
		"_Files and criteria do not fit here and are only counted._", "issue",
		[]string{"No.", "Issue", "After", "Files", "Criteria"}, rows)
	s.last = true
	return s
}

// several joins the first of many short texts and counts the rest.
func several(all []string, each func(string) string, sep string) string {
	const most = 8
	var out []string
	for i, one := range all {
		if i == most {
			out = append(out, "and "+strconv.Itoa(len(all)-most)+" more")
			break
		}
		out = append(out, each(one))
	}
	return strings.Join(out, sep)
}

// Prose is a sentence from elsewhere as Markdown that does nothing but be read.
func Prose(s string) string { return para(s, 600) }
