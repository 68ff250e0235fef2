package report

import (
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// A page is Markdown made of sections. It can be printed under a limit: then
// long lists lose rows, and say how many.
type page []section

// A section is a text, a list of lines that may be shortened, and an end.
type section struct {
	text string   // printed always
	rows []string // whole lines: of a table, or of a quoted document
	what string   // what one row is, for "3 more issues are not shown"
	end  string   // printed always, after the rows
	last bool     // keeps its rows while any other section has some
	cut  int      // rows that are not printed
}

// limited prints the page in at most limit units of size. The longest list
// gives way first, by a quarter at a time; the sections' fixed texts are short
// by construction.
func (p page) limited(limit int, size func(string) int) string {
	out := p.String()
	over := size(out) - limit
	if over <= 0 {
		return out
	}
	p = append(page(nil), p...)
	weights := make([]int, len(p)) // of the rows still printed
	for i, s := range p {
		for _, row := range s.rows[:len(s.rows)-s.cut] {
			weights[i] += size(row) + 1
		}
	}
	for over > 0 {
		longest, most := -1, 0
		for i, s := range p {
			weight := weights[i]
			if s.last {
				weight = (weight + 15) / 16
			}
			if weight > most {
				longest, most = i, weight
			}
		}
		if longest < 0 {
			break
		}
		s := &p[longest]
		if s.cut == 0 {
			over += size("\n\n_" + more(len(s.rows), s.what) + "._")
		}
		end := len(s.rows) - s.cut
		for range max(1, end/4) {
			end--
			weights[longest] -= size(s.rows[end]) + 1
			over -= size(s.rows[end]) + 1
		}
		s.cut = len(s.rows) - end
	}
	return cutLines(p.String(), limit, size)
}

// String prints the whole page, sections parted by blank lines.
func (p page) String() string {
	var parts []string
	for _, s := range p {
		if part := s.String(); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "\n\n") + "\n"
}

func (s section) String() string {
	out := s.text
	if shown := s.rows[:len(s.rows)-s.cut]; len(shown) > 0 {
		out += strings.Join(shown, "\n")
	}
	if s.cut > 0 {
		out = strings.TrimRight(out, "\n") + "\n\n_" + more(s.cut, s.what) + "._"
	}
	return out + s.end
}

func more(n int, what string) string {
	if n == 1 {
		return "1 more " + what + " is not shown here"
	}
	return strconv.Itoa(n) + " more " + plural(n, what) + " are not shown here"
}

// cutLines keeps whole lines of s within limit, closes a fence that it cut
// open, and ends with a line that says so.
func cutLines(s string, limit int, size func(string) int) string {
	if size(s) <= limit {
		return s
	}
	const notice = "\n_The rest is cut: it does not fit here._\n"
	const reserve = 64 // the notice, and the end of a fence
	var out strings.Builder
	used, open := 0, ""
	for line := range strings.Lines(s) {
		if used+size(line) > limit-reserve {
			break
		}
		used += size(line)
		out.WriteString(line)
		if mark := ticks.FindString(line); len(mark) >= 3 && len(mark) <= 16 && strings.HasPrefix(line, mark) {
			if open == "" {
				open = mark
			} else if strings.TrimSpace(line) == open {
				open = ""
			}
		}
	}
	if open != "" {
		out.WriteString(open + "\n")
	}
	return out.String() + notice
}

// runes is the size that GitHub limits comments and pull requests by.
func runes(s string) int { return utf8.RuneCountInString(s) }

// bytes is the size that GitHub limits check runs by.
func bytes(s string) int { return len(s) }

// table is a section with a heading line, a header and rows.
func table(heading, what string, header []string, rows [][]string) section {
	if len(rows) == 0 {
		return section{}
	}
	s := section{what: what}
	if heading != "" {
		s.text = heading + "\n\n"
	}
	s.text += row(header) + "\n" + "|" + strings.Repeat("---|", len(header)) + "\n"
	for _, cells := range rows {
		s.rows = append(s.rows, row(cells))
	}
	return s
}

func row(cells []string) string { return "| " + strings.Join(cells, " | ") + " |" }

// Count is "1 issue", "2 issues", "no issues".
func Count(n int, what string) string { return count(n, what) }

func count(n int, what string) string {
	if n == 0 {
		return "no " + plural(n, what)
	}
	return strconv.Itoa(n) + " " + plural(n, what)
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return what
	case strings.HasSuffix(what, "criterion"):
		return strings.TrimSuffix(what, "on") + "a"
	}
	return what + "s"
}

// dollars prints micro-dollars for people: whole cents, and more places only
// where a cent is too coarse.
func dollars(micros int64) string {
	sign := ""
	if micros < 0 {
		sign, micros = "-", -micros
	}
	if micros > 0 && micros < 10_000 {
		return sign + "$" + strings.TrimRight("0."+pad(micros, 6), "0")
	}
	cents := (micros + 5_000) / 10_000
	return sign + "$" + strconv.FormatInt(cents/100, 10) + "." + pad(cents%100, 2)
}

func pad(n int64, width int) string {
	s := strconv.FormatInt(n, 10)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

// lasted prints a duration for people.
func lasted(d time.Duration) string {
	switch d = max(d, 0); {
	case d == 0:
		return ""
	case d < 10*time.Second:
		tenths := max(1, d.Round(100*time.Millisecond)/(100*time.Millisecond))
		return strconv.FormatInt(int64(tenths/10), 10) + "." + strconv.FormatInt(int64(tenths%10), 10) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Seconds())) + "s"
	case d < time.Hour:
		return strconv.Itoa(int(d.Minutes())) + "m " + pad(int64(d.Seconds())%60, 2) + "s"
	}
	return strconv.Itoa(int(d.Hours())) + "h " + pad(int64(d.Minutes())%60, 2) + "m"
}
