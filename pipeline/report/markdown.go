package report

import "time"

// Markdown is report.md: the whole account of a build, nothing left out.
func Markdown(b Build) string {
	p := page{
		{text: "# " + heading(b, 200)},
		{text: b.State.mark() + " **" + headline(b) + "** · " + spent(b)},
		{text: badEnd(b)},
		{text: para(b.Summary, 4000)},
		{text: places(b)},
		compared(b), contenderNotes(b),
		stageTable(b.Stages),
	}
	if b.unchosen() { // whose debt it is nobody has decided
		return append(p, section{text: footer(b)}).String()
	}
	body := account(b)
	body = append(body[:2:2], append(failures(b), body[2:]...)...)
	p = append(p, body...)
	p = append(p, checkTable(b), folded("PRD", b.PRD), folded("Architecture", b.Architecture), section{text: footer(b)})
	return p.String()
}

// Status is the answer to /status: where the build stands, in a few lines.
func Status(b Build) string {
	state := b.State.mark() + " **" + headline(b) + "** · " + spent(b)
	if left := remaining(b); left > 0 {
		state += " · about " + lasted(left) + " left"
	}
	p := append(page{{text: state}, {text: badEnd(b)}}, waiting(b)...)
	if !b.State.Final() {
		p = append(p, section{text: bar(progress(b))})
	}
	p = append(append(p, comparison(b)...), stageTable(b.Stages))
	if t := tally(b.Issues); t != "" {
		p = append(p, section{text: "Issues: " + t + "."})
	}
	p = append(p, section{text: places(b)})
	if b.CommentURL != "" {
		says := "Follow it in the "
		if b.State.Final() {
			says = "The rest is in the "
		}
		p = append(p, section{text: says + link("tracking comment", b.CommentURL) + "."})
	}
	return append(p, section{text: footer(b)}).limited(bodyLimit, runes)
}

// remaining guesses the time left from the pace so far; zero where a guess
// would be worth nothing.
func remaining(b Build) time.Duration {
	done := progress(b)
	if b.State.Final() || b.State.Waiting() || done < 10 || b.Elapsed <= 0 {
		return 0
	}
	return (b.Elapsed / time.Duration(done) * time.Duration(100-done)).Round(time.Minute)
}
