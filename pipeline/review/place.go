package review

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// lines returns a file of a commit by lines, nil where there is none.
func (r *run) lines(ctx context.Context, commit, name string) ([]string, error) {
	key := commit + ":" + name
	if known, ok := r.texts[key]; ok {
		return known, nil
	}
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, "\x00") {
		return nil, nil
	}
	text, err := r.site.File(ctx, commit, name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("look up a finding: %w", err)
	}
	if err == nil {
		r.texts[key] = strings.Split(string(text), "\n")
	} else {
		r.texts[key] = nil
	}
	return r.texts[key], nil
}

// commit is the one that the lines of a side count in.
func (r *run) commit(side finding.Side) string {
	if side == finding.OldSide {
		return r.target.Base
	}
	return r.target.Head
}

// place brings an entry to the lines that its quote is on: agents quote better
// than they count. It reports whether the quote is there; without one the entry
// stays where it claims to be.
func (r *run) place(ctx context.Context, e *finding.Entry) (quoted bool, err error) {
	e.Path = r.known(e.Path)
	if e.EndLine <= e.StartLine {
		e.EndLine = 0
	}
	for _, side := range []finding.Side{e.Side, finding.NewSide, finding.OldSide} {
		text, err := r.lines(ctx, r.commit(side), e.Path)
		if err != nil {
			return false, err
		}
		if first, last, ok := locate(text, e.Quote, e.StartLine); ok {
			e.Side, e.StartLine, e.EndLine, quoted = side, first, 0, true
			if last > first {
				e.EndLine = last
			}
			break
		}
	}
	last := max(e.StartLine, e.EndLine)
	if text, err := r.lines(ctx, r.commit(e.Side), e.Path); err != nil || !exact(text, e.Quote, e.StartLine, last) || e.Side == finding.OldSide {
		e.Replacement = "" // nobody knows what it would replace
	}
	e.Anchor = r.survey.whole.anchor(e.Path, e.Side == finding.OldSide, e.StartLine, last)
	e.Outside = !r.survey.whole.within(e.Path, e.Side == finding.OldSide, e.StartLine, last)
	return quoted, nil
}

// known is the name that git has for a path as an agent writes it: diffs put a/
// or b/ before names, and show unusual letters in quotes and escaped.
func (r *run) known(name string) string {
	if name == "" {
		return ""
	}
	clean := path.Clean(name)
	inDiff := func(n string) bool { return len(r.survey.whole.byName[n]) > 0 }
	if plain, err := strconv.Unquote(`"` + strings.Trim(name, `"`) + `"`); err == nil && inDiff(plain) {
		return plain
	}
	if _, rest, ok := strings.Cut(clean, "/"); ok && !inDiff(clean) && (clean[:2] == "a/" || clean[:2] == "b/") && inDiff(rest) {
		return rest
	}
	return clean
}

// stands reports whether a quote is in the file at the head.
func (r *run) stands(ctx context.Context, name, quote string) (bool, error) {
	text, err := r.lines(ctx, r.target.Head, r.known(name))
	if err != nil {
		return false, err
	}
	_, _, ok := locate(text, quote, 0)
	return ok, nil
}

// exact reports whether the lines first to last are the quote, indentation aside.
func exact(text []string, quote string, first, last int) bool {
	var want []string
	for l := range strings.Lines(strings.Trim(quote, "\r\n")) {
		want = append(want, strings.TrimSpace(l))
	}
	if first < 1 || last > len(text) || len(want) != last-first+1 {
		return false
	}
	at, _, ok := nearest(text[first-1:last], want, 1, func(line, quoted string) bool { return line == quoted })
	return ok && at == 1
}

// minPart is the length from which a quote may be a part of a line.
const minPart = 8

// locate finds a quote in lines, whatever their indentation, nearest to the line
// where it is said to be. Lines count from 1.
func locate(text []string, quote string, near int) (first, last int, ok bool) {
	var want []string
	for l := range strings.Lines(strings.Trim(quote, "\r\n")) {
		want = append(want, strings.TrimSpace(l))
	}
	if strings.TrimSpace(quote) == "" {
		return 0, 0, false
	}
	first, last, ok = nearest(text, want, near, func(line, quoted string) bool { return line == quoted })
	if !ok && len(want) == 1 && len(want[0]) >= minPart {
		first, last, ok = nearest(text, want, near, strings.Contains)
	}
	return first, last, ok
}

// nearest finds lines that fit those wanted, one after the other.
func nearest(text, want []string, near int, fits func(line, quoted string) bool) (first, last int, ok bool) {
	distance := func(line int) int { return max(line-near, near-line) }
	for i := 0; i+len(want) <= len(text); i++ {
		match := true
		for k, w := range want {
			if match = fits(strings.TrimSpace(text[i+k]), w); !match {
				break
			}
		}
		if match && (!ok || distance(i+1) < distance(first)) {
			first, last, ok = i+1, i+len(want), true
		}
	}
	return first, last, ok
}

// declaration finds the name of what a line declares, in the languages that say
// so with a word.
var declaration = regexp.MustCompile(`^\s*(?:(?:export|default|public|private|protected|internal|static|final|abstract|async|pub(?:\([^)]*\))?|unsafe|override|open|data|sealed)\s+)*(?:func|function|def|class|fn|type|struct|interface|impl|trait|enum|module|object|fun)\s+(?:\([^)]*\)\s*)?([\pL_][\pL\pN_.]*)`)

// symbol is the declaration around a line, "" if there is none to be seen: the
// nearest one above that is indented less, or the line itself.
func symbol(text []string, line int) string {
	if line < 1 || line > len(text) {
		return ""
	}
	indent := len(text[line-1]) + 1
	for i := line - 1; i >= 0; i-- {
		l := text[i]
		if strings.TrimSpace(l) == "" {
			continue
		}
		depth := len(l) - len(strings.TrimLeft(l, " \t"))
		if m := declaration.FindStringSubmatch(l); m != nil && depth < indent {
			return m[1]
		}
		indent = min(indent, max(depth, 1))
	}
	return ""
}
