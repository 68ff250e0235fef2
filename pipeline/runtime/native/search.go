package native

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

const (
	maxFound    = 1000     // files that GLOB lists
	grepLines   = 250      // lines that GREP shows unless told
	maxGrepLine = 500      // bytes that it shows of one line
	maxSearched = 16 << 20 // bytes of a file that is searched
	maxContext  = 50       // lines around a match
)

const globText = `Lists files by a pattern such as **/*.go or cmd/*/main.{go,md}. A pattern without a slash is one for names, however deep. Files that git
ignores are left out.`

type globInputs struct {
	Pattern string `json:"pattern" jsonschema:"what the paths look like"`
	Path    string `json:"path,omitempty" jsonschema:"the directory to look in; yours unless told"`
}

func glob(ctx context.Context, p *place, in globInputs) result {
	if filepath.IsAbs(in.Pattern) {
		in.Path, in.Pattern = doublestar.SplitPattern(in.Pattern)
	}
	if !doublestar.ValidatePattern(in.Pattern) {
		return failed("%q is not a pattern", in.Pattern)
	}
	r, start, err := p.find(in.Path)
	if err != nil {
		return failed("%v", err)
	}
	var found []string
	err = r.walk(ctx, start, func(name string) bool {
		if globs(in.Pattern, start, name) {
			found = append(found, p.name(r, name))
		}
		return len(found) <= maxFound
	})
	switch {
	case err != nil:
		return failed("%v", err)
	case len(found) == 0:
		return result{text: "(no file)"}
	case len(found) > maxFound:
		found[maxFound] = fmt.Sprintf("(there are more than %d)", maxFound)
	}
	return result{text: strings.Join(found, "\n")}
}

// globs says whether a pattern that counts from start matches a file.
func globs(pattern, start, name string) bool {
	if !strings.Contains(pattern, "/") {
		name = path.Base(name)
	} else if start = filepath.ToSlash(start); start != "." {
		name = strings.TrimPrefix(name, start+"/")
	}
	ok, err := doublestar.Match(strings.TrimPrefix(pattern, "./"), name)
	return ok && err == nil
}

const grepText = `Searches files for a regular expression (RE2, as Go and ripgrep have it), line by line. Files that git ignores and binary ones are left
out, unless path names one file. Shows path:line:text.`

type grepInputs struct {
	Pattern    string `json:"pattern" jsonschema:"the regular expression"`
	Path       string `json:"path,omitempty" jsonschema:"a directory or a file; your directory unless told"`
	Glob       string `json:"glob,omitempty" jsonschema:"search only files like this, as for GLOB"`
	IgnoreCase bool   `json:"ignore_case,omitempty" jsonschema:"upper and lower case are the same"`
	Context    int    `json:"context,omitempty" jsonschema:"lines to show before and after each match"`
	Show       string `json:"show,omitempty" jsonschema:"lines (unless told), files or count"`
	Limit      int    `json:"limit,omitempty" jsonschema:"how many lines of output; 250 unless told"`
}

func grep(ctx context.Context, p *place, in grepInputs) result {
	expression := in.Pattern
	if in.IgnoreCase {
		expression = "(?i)" + expression
	}
	re, err := regexp.Compile(expression)
	if err != nil {
		return failed("the pattern cannot be read: %v", err)
	}
	if in.Show != "" && in.Show != "lines" && in.Show != "files" && in.Show != "count" {
		return failed("show is %q; it may be lines, files or count", in.Show)
	}
	r, start, err := p.find(in.Path)
	if err != nil {
		return failed("%v", err)
	}
	s := search{re: re, in: in, limit: cmp.Or(max(in.Limit, 0), grepLines)}
	info, err := r.Stat(start)
	switch {
	case err != nil:
		return failed("%v", r.explain(start, err))
	case info.IsDir():
		err = r.walk(ctx, start, func(name string) bool {
			return in.Glob != "" && !globs(in.Glob, start, name) || s.file(r, name, p.name(r, name))
		})
	default:
		s.file(r, start, p.name(r, start))
	}
	if err != nil {
		return failed("%v", err)
	}
	return s.result()
}

// A search is one use of GREP.
type search struct {
	re      *regexp.Regexp
	in      grepInputs
	limit   int
	out     []string
	more    bool
	skipped int // files that are too large
}

func (s *search) result() result {
	lines := s.out
	if len(lines) == 0 {
		lines = []string{"(no match)"}
	}
	if s.more {
		lines = append(lines, fmt.Sprintf("(there is more; these are the first %d lines)", s.limit))
	}
	if s.skipped > 0 {
		lines = append(lines, fmt.Sprintf("(%d files of more than %d MiB were not searched)", s.skipped, maxSearched>>20))
	}
	return result{text: strings.Join(lines, "\n")}
}

// file searches one file and returns whether there is room for more.
func (s *search) file(r root, name, shown string) bool {
	f, info, err := r.openFile(name)
	if err != nil {
		return true // gone, or not to be read: the others count
	}
	defer func() { _ = f.Close() }() // it was only read
	if info.Size() > maxSearched {
		s.skipped++
		return true
	}
	data, err := readAll(f, maxSearched)
	if err != nil || bytes.IndexByte(data[:min(len(data), 8<<10)], 0) >= 0 {
		return true
	}
	switch s.in.Show {
	case "files":
		if matchesLine(s.re, data) {
			return s.add(shown)
		}
		return true
	case "count":
		if n := countLines(s.re, data); n > 0 {
			return s.add(fmt.Sprintf("%s:%d", shown, n))
		}
		return true
	}
	return s.lines(data, shown)
}

func (s *search) add(line string) bool {
	if len(s.out) == s.limit {
		s.more = true
		return false
	}
	s.out = append(s.out, line)
	return true
}

func matchesLine(re *regexp.Regexp, data []byte) bool {
	for line := range bytes.Lines(data) {
		if re.Match(bytes.TrimRight(line, "\r\n")) {
			return true
		}
	}
	return false
}

func countLines(re *regexp.Regexp, data []byte) int {
	n := 0
	for line := range bytes.Lines(data) {
		if re.Match(bytes.TrimRight(line, "\r\n")) {
			n++
		}
	}
	return n
}

// lines adds the lines of a file that match, and those around them. Where two
// groups do not touch, -- stands between them.
func (s *search) lines(data []byte, name string) bool {
	around := min(max(s.in.Context, 0), maxContext)
	var before []string // the last lines that were not shown
	number, after, shown := 0, 0, 0
	for line := range bytes.Lines(data) {
		number++
		text := bytes.TrimRight(line, "\r\n")
		hit := s.re.Match(text)
		switch {
		case hit:
			if around > 0 && len(s.out) > 0 && shown < number-len(before)-1 && !s.add("--") {
				return false
			}
			for _, b := range before {
				if !s.add(b) {
					return false
				}
			}
			before, after = nil, around
		case after > 0:
			after--
		case around > 0:
			if before = append(before, grepLine(name, number, text, '-')); len(before) > around {
				before = before[1:]
			}
			continue
		default:
			continue
		}
		mark := byte('-')
		if hit {
			mark = ':'
		}
		if !s.add(grepLine(name, number, text, mark)) {
			return false
		}
		shown = number
	}
	return true
}

func grepLine(name string, number int, text []byte, mark byte) string {
	return fmt.Sprintf("%s%c%d%c%s", name, mark, number, mark, clip(string(text), maxGrepLine))
}
