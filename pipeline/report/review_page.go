package report

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// ReviewComment is the tracking comment of a pull request's reviews: one for all
// of them, edited in place.
func ReviewComment(r Review) string {
	p := page{{text: "### " + r.mark() + " Slipway: " + ReviewTitle(r)}, {text: r.numbers()}, {text: r.ending()}}
	if !r.State.Final() {
		p = append(p, stageTable(r.Stages))
	}
	if r.ReviewURL != "" {
		p = append(p, section{text: "Remarks are on the lines of " + link("the review", r.ReviewURL) + "."})
	}
	return append(append(p, r.account()...), section{text: r.footer()}).limited(bodyLimit, runes)
}

// ReviewBody is the text above the remarks on lines: what they are, and what
// stands on no line.
func ReviewBody(r Review) string {
	p := page{{text: "### " + ReviewTitle(r)}, {text: r.ending()}}
	remarks := r.Remarks()
	said := map[string]bool{}
	for _, e := range remarks {
		said[e.ID] = true
	}
	var rest []finding.Entry
	for _, e := range r.News() {
		if !said[e.ID] {
			rest = append(rest, e)
		}
	}
	if len(remarks) > 0 {
		p = append(p, section{text: count(len(remarks), "finding") + " on the lines below."})
	}
	p = append(p, r.findings("### Further findings", rest)...)
	return append(p, section{text: r.footer()}).limited(bodyLimit, runes)
}

// ReviewCheck is what the check run says: title, summary and text, the latter two
// at most 65,535 bytes each.
func ReviewCheck(r Review) (title, summary, body string) {
	head := append(page{{text: r.ending()}, {text: r.numbers()}}, r.findings("### Open findings", r.Open())...)
	head = append(head, r.commands()...)
	rest := append(r.debt(), section{text: r.footer()})
	return ReviewTitle(r), strings.TrimLeft(head.limited(checkLimit, bytes), "\n"), rest.limited(checkLimit, bytes)
}

// ReviewStatus is the answer to /status: where the review stands, in a few lines.
func ReviewStatus(r Review) string {
	return page{
		{text: r.mark() + " **" + ReviewTitle(r) + "**"}, {text: r.numbers()}, {text: r.ending()}, stageTable(r.Stages), {text: r.footer()},
	}.limited(bodyLimit, runes)
}

// ReviewMarkdown is review.md: the whole account, nothing left out.
func ReviewMarkdown(r Review) string {
	p := page{{text: "# " + ReviewTitle(r)}, {text: text(r.Title, 200)}, {text: r.numbers()}, {text: r.ending()}}
	p = append(p, r.account()...)
	return append(p, r.costs(), section{text: r.footer()}).String()
}

// ReviewJSON is the whole account for programs, with what the pages say of it.
func ReviewJSON(r Review) ([]byte, error) {
	open := []int{}
	for _, e := range r.Open() {
		open = append(open, e.Number)
	}
	return json.Marshal(struct {
		Event      string `json:"event"`
		Headline   string `json:"headline"`
		Whole      bool   `json:"whole"`
		Conclusion string `json:"conclusion"`
		Open       []int  `json:"open"` // numbers of findings
		Review
	}{"done", ReviewTitle(r), r.Whole(), ReviewConclusion(r), open, r})
}

// A Remark is a text on lines of a file.
type Remark struct {
	Path        string
	First, Last int
	Old         bool   // they count in the version before the change
	Marker      string // hidden in it, by which it is found again
	Body        string
}

// RemarkMarker is hidden in the remark about a finding.
func RemarkMarker(e finding.Entry) string { return "<!-- slipway finding=" + e.ID + " -->" }

// ReviewFixed is what is answered to the remark about a finding that is gone.
func ReviewFixed(r Review, e finding.Entry) string {
	return page{{text: "Fixed as of " + r.commit(r.Head) + "."}, {text: para(e.Reason, 1000)}}.limited(bodyLimit, runes)
}

// ReviewRemark is what is said of a finding on its lines.
func ReviewRemark(r Review, e finding.Entry) Remark {
	body := page{
		{text: "**" + severityMark(e.Severity) + " · " + text(e.Title, 200) + "** · finding " + strconv.Itoa(e.Number)},
		{text: para(e.Claim, 1500)},
	}
	if e.FailureScenario != "" {
		body = append(body, section{text: "**It fails so:** " + para(e.FailureScenario, 1500)})
	}
	if e.Suggestion != "" {
		body = append(body, section{text: "**To mend it:** " + para(e.Suggestion, 1000)})
	}
	if block, ok := suggested(e); ok {
		body = append(body, section{text: block})
	}
	if e.Witness != "" {
		body = append(body, section{text: fence(e.Witness, 20)})
	}
	body = append(body, section{text: "<sub>" + text(e.Lens, 60) + " · confidence " + strconv.Itoa(e.Confidence) + "%" + agreed(e) + "</sub>"})
	return Remark{
		Path: e.Path, First: e.Anchor.First, Last: e.Anchor.Last, Old: e.Side == finding.OldSide, Marker: RemarkMarker(e),
		Body: body.limited(bodyLimit, runes),
	}
}

func agreed(e finding.Entry) string {
	if e.Agreement < 2 {
		return ""
	}
	return " · " + strconv.Itoa(e.Agreement) + " lenses agree"
}

// suggested is a block that GitHub offers to commit. It replaces the lines that
// the remark is on, so those have to be exactly the ones that it was written for.
func suggested(e finding.Entry) (block string, ok bool) {
	last := max(e.StartLine, e.EndLine)
	code := strings.Trim(e.Replacement, "\r\n")
	if e.Replacement == "" || e.Side == finding.OldSide || e.Anchor != (finding.Lines{First: e.StartLine, Last: last}) ||
		strings.Contains(code, "```") || scrub(code) != code {
		return "", false
	}
	return "```suggestion\n" + code + "\n```", true
}

// An Annotation is a finding as a check run shows it beside a line.
type Annotation struct {
	Path  string
	Line  int
	Level string // notice, warning or failure
	Title string
	Text  string // plain
}

// ReviewAnnotations are the open findings that have lines in the head.
func ReviewAnnotations(r Review) []Annotation {
	var out []Annotation
	for _, e := range r.Open() {
		if e.Path == "" || e.StartLine == 0 || e.Side == finding.OldSide {
			continue
		}
		level := "warning"
		if blocks(e) {
			level = "failure"
		} else if e.Severity == finding.Low {
			level = "notice"
		}
		out = append(out, Annotation{
			Path: e.Path, Line: e.StartLine, Level: level, Title: oneLine(e.Title, 200),
			Text: oneLine("Finding "+strconv.Itoa(e.Number)+": "+e.Claim, 4000),
		})
	}
	return out
}

// numbers is the line of what it took.
func (r Review) numbers() string {
	if r.State == ReviewQueued {
		return "Waiting for a free worker. This comment follows the review."
	}
	parts := []string{}
	switch {
	case r.Since != "" && r.Since == r.Head:
		parts = append(parts, "Nothing changed since the last review")
	case r.Since != "":
		parts = append(parts, "Only what came after "+r.commit(r.Since))
	}
	parts = append(parts, "Cost: "+dollars(r.CostMicros), count(r.AgentCalls, "agent call"))
	if r.Elapsed > 0 {
		parts = append(parts, lasted(r.Elapsed))
	}
	return strings.Join(parts, " · ")
}

func (r Review) commit(sha string) string {
	if web := r.web(); web != "" && sha != "" {
		return link(commit(sha), web+"/commit/"+sha)
	}
	return commit(sha)
}

// ending is what to read first: what is missing, why, and what to type.
func (r Review) ending() string {
	var parts []string
	if r.Cause != "" {
		parts = append(parts, "**Why:** "+para(r.Cause, 600))
	}
	if r.Moved != "" {
		moved := "**The head moved:** this is about " + r.commit(r.Head) + ", and the pull request is at " + r.commit(r.Moved) + " now."
		if r.Requeued {
			moved += " A review of that is queued."
		}
		parts = append(parts, moved)
	}
	if r.Next != "" {
		parts = append(parts, "**Next:** "+command(r.Next, 300))
	}
	return strings.Join(parts, "\n\n")
}

// account is everything that was found, and what is missing.
func (r Review) account() page {
	if !r.State.Final() {
		return nil
	}
	p := page{}
	if r.Whole() && len(r.Open()) == 0 {
		p = append(p, section{text: "Nothing to act on was found."})
	}
	p = append(p, r.findings("### Open findings", r.Open())...)
	p = append(p, r.commands()...)
	return append(p, r.debt()...)
}

// findings is a table with the details folded below it.
func (r Review) findings(heading string, some []finding.Entry) page {
	var rows [][]string
	var details []string
	for _, e := range some {
		rows = append(rows, []string{strconv.Itoa(e.Number), severityMark(e.Severity), r.spot(e), text(e.Title, 160), stateWord(e)})
		line := "- **" + strconv.Itoa(e.Number) + "** " + text(e.Claim, 800)
		if e.FailureScenario != "" {
			line += " _It fails so:_ " + text(e.FailureScenario, 800)
		}
		if e.Suggestion != "" {
			line += " _To mend it:_ " + text(e.Suggestion, 500)
		}
		details = append(details, line)
	}
	if len(rows) == 0 {
		return nil
	}
	list := table(heading, "finding", []string{"No.", "Severity", "Where", "What", "State"}, rows)
	list.last = true
	return page{list, {text: "<details><summary>Details</summary>\n\n", rows: details, what: "finding", end: "\n\n</details>"}}
}

func stateWord(e finding.Entry) string {
	if e.Verdict == finding.Uncertain {
		return "not confirmed"
	}
	return text(string(e.State), 20)
}

// commands are the engine's own runs, on head and base.
func (r Review) commands() page {
	if r.Unrun != "" {
		return page{{text: "### Commands\n\nNone was run: " + text(r.Unrun, 400) + "." + r.allowance()}}
	}
	var rows [][]string
	for _, c := range r.Commands {
		before := "not run"
		for _, b := range r.BaseCommands {
			if b.Name == c.Name {
				before = passed(b)
			}
		}
		rows = append(rows, []string{command(c.Line, 160), passed(c), before, lasted(c.Elapsed)})
	}
	p := page{table("### Commands", "command", []string{"Command", "Head", "Base", "Time"}, rows)}
	if r.Allowed != "" {
		p = append(p, section{text: "The code is from a fork, and " + code("@"+r.Allowed, 60) + " let it be run at exactly this commit."})
	}
	for _, e := range r.Open() {
		if e.Lens == commandsLens {
			p = append(p, section{text: fence(e.Witness, 30)})
		}
	}
	return p
}

// allowance says how the code of a fork can be let run. The commit is named whole:
// of a shorter name others could make one, too.
func (r Review) allowance() string {
	if !r.Fork || r.Allowed != "" || r.Head == "" || r.Pull == 0 {
		return ""
	}
	return " Somebody with the role write lets exactly this commit be run by " + command(Build{Ticket: r.Pull, Prefix: r.Prefix}.Typed("approve", r.Head), 120) + "."
}

func passed(c Command) string {
	switch {
	case c.Passed && c.Flaky:
		return "⚠️ flaky"
	case c.Passed:
		return "✅ passed"
	}
	return "❌ failed (" + strconv.Itoa(c.Exit) + ")"
}

// debt is what a reader has to know beside the open findings: what was not
// looked at, what is below the threshold, what is carried over or paid off, what
// the change puts off, and what it leaves untested.
func (r Review) debt() page {
	p := page{r.gaps(), r.skipped()}
	if len(r.Instructions) > 0 {
		s := section{text: "### Instructions that the change edits\n\nWhat counts for this review is how the base has them.\n\n", what: "file"}
		for _, f := range r.Instructions {
			s.rows = append(s.rows, "- "+code(f, 200))
		}
		p = append(p, s)
	}
	p = append(p, r.list("### Below the threshold", r.below()),
		r.list("### Carried over", r.some(func(e finding.Entry) bool {
			return e.State == finding.Open && e.Counts(finding.Severity(r.Severity), r.Confidence)
		})),
		r.list("### Paid off", r.some(func(e finding.Entry) bool { return e.State == finding.Fixed && e.Verdict == finding.Confirmed })),
		r.list("### Dismissed by a person", r.some(func(e finding.Entry) bool { return e.State == finding.Dismissed })))
	todos := section{what: "note"}
	if len(r.Todos) > 0 {
		todos.text = "### Notes for later that the change adds\n\n"
	}
	for _, t := range r.Todos {
		todos.rows = append(todos.rows, "- "+r.spot(finding.Entry{Finding: finding.Finding{Path: t.Path, StartLine: t.Line}})+" "+text(t.Text, 200))
	}
	notes := section{what: "note"}
	for _, n := range r.Notes {
		notes.rows = append(notes.rows, "- "+text(n, 400))
	}
	if len(notes.rows) > 0 {
		notes.text = "### Notes\n\n"
	}
	return append(p, todos, r.untested(), notes)
}

// mostUntested bounds how many files are named that lack a test.
const mostUntested = 20

// untested names code that the change touches without a test.
func (r Review) untested() section {
	if len(r.Untested) == 0 {
		return section{}
	}
	s := section{text: "### Tests that the change lacks\n\nIt changes code and no test:\n\n", what: "file"}
	for _, f := range r.Untested[:min(len(r.Untested), mostUntested)] {
		s.rows = append(s.rows, "- "+code(f, 200))
	}
	if more := len(r.Untested) - mostUntested; more > 0 {
		s.rows = append(s.rows, "- and "+count(more, "other file"))
	}
	return s
}

func (r Review) list(heading string, some []finding.Entry) section {
	if len(some) == 0 {
		return section{}
	}
	s := section{text: heading + "\n\n", what: "finding"}
	for _, e := range some {
		line := "- **" + strconv.Itoa(e.Number) + "** " + text(string(e.Severity), 10)
		if at := r.spot(e); at != "" {
			line += " " + at
		}
		line += " " + text(e.Title, 160)
		if e.Verdict == finding.Uncertain {
			line += " (not confirmed)"
		}
		if e.State == finding.Dismissed && e.DismissedBy != "" {
			line += ", dismissed by " + code("@"+e.DismissedBy, 60) // as code it notifies nobody
		}
		s.rows = append(s.rows, line)
	}
	return s
}

// gaps is who did not do its work. What was not looked at is told before
// anything that was not found.
func (r Review) gaps() section {
	var rows [][]string
	heading, agents := "### Not looked at: ", 0
	for _, g := range r.Gaps {
		if g.Agent != commandsLens {
			agents++
		}
		rows = append(rows, []string{text(g.Agent, 80), text(strings.ReplaceAll(g.State, "_", " "), 20), text(g.Reason, 240)})
	}
	switch {
	case agents == 0:
		heading += "the commands did not end"
	case agents == len(r.Gaps):
		heading += count(agents, "agent") + " of " + strconv.Itoa(r.Agents) + " did not finish"
	default:
		heading += count(agents, "agent") + " of " + strconv.Itoa(r.Agents) + " did not finish, and the commands did not end"
	}
	s := table(heading, "agent", []string{"Agent", "State", "Why"}, rows)
	s.last = true
	return s
}

// skipped counts the files that nobody looked at, by reason, and names them.
func (r Review) skipped() section {
	s := section{what: "file"}
	for _, f := range r.Files {
		if f.Skipped != "" {
			s.rows = append(s.rows, "- "+code(f.Path, 200)+" "+text(f.Skipped, 60))
		}
	}
	if len(s.rows) == 0 {
		return section{}
	}
	s.text = "<details><summary>" + count(len(s.rows), "file") + " skipped</summary>\n\n"
	s.end = "\n\n</details>"
	return s
}

func (r Review) costs() section {
	return costTable(Build{Costs: r.Costs, AgentCalls: r.AgentCalls, CostMicros: r.CostMicros})
}

func (r Review) footer() string {
	parts := []string{"Review " + code(r.ID, 80)}
	if r.Head != "" {
		parts = append(parts, "of "+r.commit(r.Head))
	}
	if r.BaseSHA != "" {
		parts = append(parts, "against "+code(r.Base, 120)+" at "+r.commit(r.BaseSHA))
	}
	if r.Requester != "" {
		parts = append(parts, "asked for by "+text(r.Requester, 60))
	}
	return "<sub>" + strings.Join(parts, " · ") + "</sub>"
}
