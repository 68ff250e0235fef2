package handlers

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// The texts of comments, as Markdown. They are functions of what they are given
// and nothing else. Nothing that a person typed leaves a code span, so it can
// neither mention anybody nor be more than text.

func queuedText(run, login, prefix string) string {
	return fmt.Sprintf("### Slipway: queued\n\n"+
		"A build of this issue is queued for %s. This comment follows it to its end.\n\n"+
		"%s says how it stands · %s stops it and keeps what is finished\n\n"+
		"<sub>run %s</sub>",
		code(login), code(prefix+"status"), code(prefix+"cancel"), code(run))
}

func openBuildText(run, link, prefix string) string {
	return fmt.Sprintf("This issue is being built already: [run %s](%s). No second build was started.\n\n"+
		"%s says how it stands · %s stops it", run, link, code(prefix+"status"), code(prefix+"cancel"))
}

func openPullText(p forge.Pull) string {
	return fmt.Sprintf("This issue has an open Slipway pull request: [#%d](%s). No second build was started.\n\n"+
		"Merge or close it first; then a new build can start.", p.Number, p.URL)
}

func reviewQueuedText(run, login, prefix string) string {
	who := ""
	if login != "" {
		who = " for " + code(login)
	}
	return fmt.Sprintf("### Slipway: review queued\n\n"+
		"A review of this pull request is queued%s. This comment follows it to its end, and those after it.\n\n"+
		"%s says how it stands · %s stops it and keeps what is verified\n\n"+
		"<sub>run %s</sub>",
		who, code(prefix+"status"), code(prefix+"cancel"), code(run))
}

func openReviewText(run, link, prefix string) string {
	return fmt.Sprintf("This commit is being reviewed already: [run %s](%s). No second review was started.\n\n"+
		"%s says how it stands · %s stops it", run, link, code(prefix+"status"), code(prefix+"cancel"))
}

func closedPullText(typed string) string {
	return fmt.Sprintf("%s was not done: the pull request is closed. Reopen it, and do the same again.", typed)
}

func unseenPullText(typed string) string {
	return fmt.Sprintf("%s was not done: GitHub does not show the pull request.", typed)
}

func mendLaterText(open string) string {
	return fmt.Sprintf("The review has ended, and run %s works on this branch. When that has ended, what is still open of the findings is mended.", code(open))
}

func reviewElsewhereText(pull forge.Pull, link string) string {
	return fmt.Sprintf("The open Slipway pull request of this issue is reviewed: [#%d](%s). Its [comment](%s) follows the review.", pull.Number, pull.URL, link)
}

func builtInsteadText(typed, prefix string) string {
	return fmt.Sprintf("This issue has no open Slipway pull request to review, so %s did what %s does: a build of this issue is queued.", typed, code(prefix+"build"))
}

func notOnPullText(typed string) string {
	return fmt.Sprintf("%s builds an issue, and this is a pull request. Type it on the issue.", typed)
}

func refusedText(typed string, need forge.Role) string {
	return fmt.Sprintf("%s needs the role **%s** in this repository. "+
		"Nothing was started; somebody with that role can do the same here.", typed, need)
}

func givenUpText(typed string, cause error) string {
	return fmt.Sprintf("%s could not be handled, and the server gave up: %s\n\n"+
		"What it had begun goes on: ask how it stands before you do the same again, and tell whoever runs this server.", typed, code(cause.Error()))
}

// nothingOpenText answers a command to a build that is not there.
func (h *Handlers) nothingOpenText(t trigger) string {
	if t.build == "" {
		return notOursText(t.typed)
	}
	return nothingOpenText(h.Chat.Prefix)
}

// noBuildText answers a question about builds where there never was one.
func (h *Handlers) noBuildText(t trigger) string {
	if t.build == "" {
		return notOursText(t.typed)
	}
	return noBuildText(h.Chat.Prefix)
}

func notOursText(typed string) string {
	return fmt.Sprintf("%s is about a build, and Slipway did not open this pull request. Type it on the issue that is built.", typed)
}

func nothingOpenText(prefix string) string {
	return fmt.Sprintf("There is no open build of this issue.\n\n"+
		"%s says how the last one ended · %s goes on with it · %s starts one",
		code(prefix+"status"), code(prefix+"resume"), code(prefix+"build"))
}

func nothingEndedText(run, link, prefix string) string {
	return fmt.Sprintf("The build of this issue has not ended: [run %s](%s). There is nothing to resume.\n\n"+
		"%s says how it stands and what it waits for · %s stops it", run, link, code(prefix+"status"), code(prefix+"cancel"))
}

// unwantedText says why a build has no use for a command, and what to type
// instead.
func unwantedText(why string, b report.Build) string {
	b.Ticket = max(b.Ticket, 1) // also one that nobody claimed yet is a ticket's
	var next []string
	for _, c := range report.Choices(b) {
		next = append(next, code(c.Command)+" "+c.Does)
	}
	next = append(next, code(b.Typed("status", ""))+" says how it stands")
	if b.State.Final() {
		next = append(next, code(b.Typed("build", ""))+" starts another")
	}
	return report.Prose(strings.ToUpper(why[:1])+why[1:]) + ".\n\n" + strings.Join(next, " · ")
}

func noBuildText(prefix string) string {
	return fmt.Sprintf("This issue was never built here.\n\n%s starts a build", code(prefix+"build"))
}

func wrongText(e *command.Error, prefix string) string {
	var b strings.Builder
	b.WriteString("I cannot read this command, and did nothing.\n\n**" + e.Field + "**")
	if e.Value != "" {
		b.WriteString(" " + code(e.Value))
	}
	fmt.Fprintf(&b, ": %s.\n\n%s lists the commands that you may run", e.Rule, code(prefix+"help"))
	return b.String()
}

func unreadableText(prefix string) string {
	return fmt.Sprintf("I cannot read this command, and did nothing.\n\n%s lists the commands that you may run", code(prefix+"help"))
}

func helpText(role forge.Role, prefix, label, look string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Your role in this repository is **%s**. With it you may type, as the first line of a comment:\n\n"+
		"| command | what it does |\n| --- | --- |\n", role)
	held := 0
	for _, s := range command.All() {
		if role < s.Role {
			held++
			continue
		}
		fmt.Fprintf(&b, "| `%s%s` | %s |\n", prefix, strings.ReplaceAll(s.Usage, "|", `\|`), s.Help)
	}
	if build, _ := command.Of(command.Build); role >= build.Role {
		fmt.Fprintf(&b, "\nThe label %s on an issue does the same as %s.\n", code(label), code(prefix+"build"))
	}
	if review, _ := command.Of(command.Review); role >= review.Role {
		fmt.Fprintf(&b, "\nThe label %s on a pull request does the same as %s.\n", code(look), code(prefix+"review"))
	}
	if held > 0 {
		fmt.Fprintf(&b, "\nMore commands (%d) need a higher role.\n", held)
	}
	return strings.TrimRight(b.String(), "\n")
}

// settingsText is a table of effective values.
func settingsText(all []config.Setting) string {
	var b strings.Builder
	b.WriteString("What counts for builds of this repository now. Its own file is `.github/slipway.yml` on the default branch; " +
		"below it count `slipway.yml` of the owner's repository `.github`, then the server. What stands in no line is left out or detected.\n\n| key | value | from |\n| --- | --- | --- |\n")
	for _, s := range all {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(s.Key), cell(s.Value), cell(s.Origin))
	}
	return strings.TrimRight(b.String(), "\n")
}

// brokenText lists what is wrong with a configuration.
func brokenText(wrong *config.Error) string {
	const most = 50
	var b strings.Builder
	fmt.Fprintf(&b, "%s cannot be read, and no build starts before it is mended:\n", code(wrong.Origin))
	for i, p := range wrong.Problems {
		if i == most {
			fmt.Fprintf(&b, "\n- and %d more", len(wrong.Problems)-most)
			break
		}
		b.WriteString("\n- ")
		if p.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", p.Line)
		}
		if p.Key != "" {
			b.WriteString(code(p.Key) + ": ")
		}
		b.WriteString(report.Prose(p.Text))
	}
	return b.String()
}

// configText is what a check says of a configuration that is valid.
func configText(file string) string {
	return fmt.Sprintf("With this commit the configuration is valid. What counts is %s as it stands on the default branch.", code(file))
}

// elsewhereText is what a check says of a configuration that is valid but does
// not count, because the owner's cannot be read.
func elsewhereText(file string, wrong *config.Error) string {
	return fmt.Sprintf("With this commit %s is valid. What it lies over is not, and was not changed here: %s", code(file), brokenText(wrong))
}

// olderText says that a check run's build is not the ticket's last one.
func olderText(typed, run, prefix string) string {
	return fmt.Sprintf("%s was pressed on the check of run %s, and this issue has a newer build. Nothing was done.\n\n%s says how the newer one stands",
		typed, code(run), code(prefix+"status"))
}

// overText says that a person typed too much for now.
func overText(t trigger, limit queue.Rate) string {
	span := "an hour"
	if limit.Per == perDay {
		span = "a day"
	}
	return fmt.Sprintf("%s was not done: %s typed more than %d commands within %s, which is the most that this server takes from one account. "+
		"Do it again later; until then further commands of this account get no answer.", t.typed, code(t.by.Login), limit.Max, span)
}

// cell is a text of any origin in a code span of a table.
func cell(s string) string {
	return strings.ReplaceAll(codeOf(strings.ReplaceAll(s, "\n", " "), 400), "|", `\|`)
}

// code sets a short text in a code span that it cannot leave.
func code(s string) string { return codeOf(s, 80) }

func codeOf(s string, longest int) string {
	if text := strings.TrimSpace(printable(strings.ReplaceAll(s, "`", ""), longest)); text != "" {
		return "`" + text + "`"
	}
	return "(empty)"
}

// printable is the beginning of a text without what cannot be seen.
func printable(s string, longest int) string {
	var b strings.Builder
	n := 0
	for _, r := range s {
		if !unicode.IsPrint(r) {
			continue
		}
		if n == longest {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
		n++
	}
	return b.String()
}
