package report

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// What models, tickets, file names and logs say lands on pages that notify
// people, close tickets and run HTML. Every such string passes through one of
// the functions of this file: text and para for prose, code and command for
// code spans, fence for logs, quote for whole Markdown documents, and label
// for Mermaid. After them it mentions nobody, refers to and closes no ticket, opens no tag
// and no comment, and cannot leave the table cell, fence or quote it is in.

// hush is put inside a mention, a reference or a tag. It is invisible, and
// GitHub then sees plain text.
const hush = "\u200b"

var (
	mention   = regexp.MustCompile(`@([\pL\pN])`)
	reference = regexp.MustCompile(`#(\pN)`)
	shortRef  = regexp.MustCompile(`(?i)\b(GH)-(\d)`)
	closing   = regexp.MustCompile(`(?i)\b(c|f|r)(lose[sd]?|ix|ixe[sd]|esolve[sd]?)\b([\s:]*\S*?(?:#|https?:|GH-))`)
	listStart = regexp.MustCompile(`^(\d+)([.)])`)
	tagStart  = regexp.MustCompile(`<([A-Za-z/!?])`)
	entity    = regexp.MustCompile(`&([#A-Za-z])`)
	ticks     = regexp.MustCompile("`+")
)

// defuse takes the effect from mentions, ticket references and closing
// keywords, and leaves what a reader sees unchanged.
func defuse(s string) string {
	if !strings.ContainsAny(s, "@#:-") { // nothing below matches without one of them
		return s
	}
	s = mention.ReplaceAllString(s, "@"+hush+"$1")
	// A match ends where its reference starts, so that of two keywords in a row
	// the second needs another pass. Every pass takes one away.
	for closing.MatchString(s) {
		s = closing.ReplaceAllString(s, "$1"+hush+"$2$3")
	}
	s = reference.ReplaceAllString(s, "#"+hush+"$1")
	return shortRef.ReplaceAllString(s, "$1"+hush+"-$2")
}

// scrub drops what a page cannot show: invalid UTF-8, control characters but
// tab and newline, and characters that hide or reorder text.
func scrub(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r >= ' ' && r < 0x7f:
			return r
		case r == '\r', r == utf8.RuneError, unicode.IsControl(r):
			return -1
		case unicode.Is(unicode.Cf, r), r >= 0xE0000 && r <= 0xE0FFF: // zero width, bidi, tags
			return -1
		case r == '\u2028' || r == '\u2029':
			return '\n'
		}
		return r
	}, s)
}

// stripComments removes HTML comments, also an unterminated one.
func stripComments(s string) string {
	for {
		start := strings.Index(s, "<!--")
		if start < 0 {
			return s
		}
		end := strings.Index(s[start+4:], "-->")
		if end < 0 {
			return s[:start]
		}
		s = s[:start] + s[start+4+end+3:]
	}
}

// oneLine is s scrubbed, without comments, on one line of at most limit runes.
func oneLine(s string, limit int) string {
	if most := 4096 + 16*limit; len(s) > most { // far more than will be shown
		s = s[:most]
	}
	return clip(strings.Join(strings.Fields(stripComments(scrub(s))), " "), limit)
}

// clip shortens s to limit runes, the last of them an ellipsis.
func clip(s string, limit int) string {
	if utf8.RuneCountInString(s) <= limit {
		return s
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:limit-1]), " ") + "…"
}

// escape makes s plain text in Markdown and in a table cell.
func escape(s string) string {
	var out strings.Builder
	prev := ' '
	for i, r := range s {
		switch r {
		case '&':
			out.WriteString("&amp;")
		case '<':
			out.WriteString("&lt;")
		case '>':
			out.WriteString("&gt;")
		case '|':
			out.WriteString("&#124;")
		case '\\', '`', '*', '[', ']', '~', '$':
			out.WriteByte('\\')
			out.WriteRune(r)
		case '_':
			next, _ := utf8.DecodeRuneInString(s[i+1:])
			if !alnum(prev) || !alnum(next) { // inside a word it is no emphasis
				out.WriteByte('\\')
			}
			out.WriteByte('_')
		default:
			out.WriteRune(r)
		}
		prev = r
	}
	return out.String()
}

func alnum(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// text is s as plain prose of at most limit runes, for a table cell or the
// middle of a line.
func text(s string, limit int) string { return escape(defuse(oneLine(s, limit))) }

// para is text that may stand at the start of a line.
func para(s string, limit int) string {
	s = text(s, limit)
	if s != "" && strings.ContainsRune("#-+=", rune(s[0])) {
		return `\` + s
	}
	return listStart.ReplaceAllString(s, `$1\$2`)
}

// code is s as a code span.
func code(s string, limit int) string { return span(defuse(oneLine(s, limit))) }

// command is a command line as a code span, exactly as it has to be typed:
// GitHub reads no mention in code.
func command(s string, limit int) string { return span(oneLine(s, limit)) }

// span uses backticks where nothing in s disturbs them, else the element.
func span(s string) string {
	switch {
	case s == "":
		return ""
	case strings.ContainsAny(s, "`|<>&\\"):
		return "<code>" + escape(s) + "</code>"
	}
	return "`" + s + "`"
}

// commit is a short commit id as a code span.
func commit(sha string) string {
	if len(sha) > 10 {
		sha = sha[:10]
	}
	return code(sha, 10)
}

// fence shows the end of a log, at most lines lines of it.
func fence(s string, lines int) string {
	all := strings.Split(strings.TrimRight(scrub(s), "\n "), "\n")
	if left := len(all) - lines; left > 0 {
		all = append([]string{"… " + count(left, "earlier line") + " not shown"}, all[left:]...)
	}
	for i, line := range all {
		all[i] = tagStart.ReplaceAllString(defuse(clip(line, 400)), "<"+hush+"$1")
	}
	body := strings.Join(all, "\n")
	mark := "```"
	for _, run := range ticks.FindAllString(body, -1) {
		if len(run) >= len(mark) {
			mark = run + "`"
		}
	}
	return mark + "text\n" + body + "\n" + mark
}

// quote shows a Markdown document as Markdown inside a block quote, line by
// line: whatever the document opens, the end of the quote closes, so it may
// also be cut after any line.
func quote(s string) []string {
	s = strings.TrimSpace(stripComments(scrub(s)))
	if s == "" {
		return nil
	}
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		line = entity.ReplaceAllString(line, "&"+hush+"$1")
		line = tagStart.ReplaceAllString(defuse(line), "<"+hush+"$1")
		line = strings.ReplaceAll(line, "![", "!"+hush+"[")
		lines[i] = strings.TrimRight("> "+clip(line, 2000), " ")
	}
	return lines
}

// label is s as the text of a Mermaid node: letters, digits and harmless
// punctuation only.
func label(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if alnum(r) || strings.ContainsRune(" .,:-_/+=?!'…"+hush, r) {
			return r
		}
		return ' '
	}, defuse(oneLine(s, limit)))
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "--", "-")
}

// link is a Markdown link, or the bare text where url is no plain web address.
// The text is Markdown already.
func link(text, url string) string {
	if !webAddress.MatchString(url) {
		return text
	}
	return "[" + text + "](" + url + ")"
}

var webAddress = regexp.MustCompile(`^https?://[A-Za-z0-9.:-]+(/[A-Za-z0-9._~%/+=&?#-]*)?$`)
