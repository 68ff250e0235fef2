package native

import (
	"context"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bmatcuk/doublestar/v4"
)

// A rule is a line of a .gitignore file.
// See https://git-scm.com/docs/gitignore#_pattern_format.
type rule struct {
	base     string // the file's directory, with slashes; "." is the root
	pattern  string
	keep     bool // it begins with !
	dirOnly  bool // it ends with /
	anchored bool // it is about a path from base; else about a name, however deep
}

// maxIgnoreFile is more than any such file has that people wrote.
const maxIgnoreFile = 1 << 20

// parseRules reads a .gitignore file of base. A line that cannot be understood
// matches nothing.
func parseRules(base, text string) []rule {
	var rules []rule
	for line := range strings.SplitSeq(text, "\n") {
		line = trimEnd(strings.TrimSuffix(line, "\r"))
		if line == "" || line[0] == '#' {
			continue
		}
		r := rule{base: base}
		line, r.keep = strings.CutPrefix(line, "!")
		line, r.dirOnly = strings.CutSuffix(line, "/")
		r.anchored = strings.Contains(line, "/")
		line = strings.TrimPrefix(line, "/")
		if inside, ok := strings.CutSuffix(line, "/**"); ok {
			line = inside + "/**/*" // what is in it, not itself
		}
		// Braces are letters here, and alternatives to the matcher.
		r.pattern = strings.NewReplacer(`\{`, `\{`, `\}`, `\}`, `{`, `\{`, `}`, `\}`).Replace(line)
		if r.pattern != "" {
			rules = append(rules, r)
		}
	}
	return rules
}

// trimEnd removes spaces at the end, but not one that is escaped.
func trimEnd(line string) string {
	for strings.HasSuffix(line, " ") && !strings.HasSuffix(line, `\ `) {
		line = line[:len(line)-1]
	}
	return line
}

func (r rule) matches(name string, dir bool) bool {
	if r.dirOnly && !dir {
		return false
	}
	if !r.anchored {
		name = path.Base(name)
	} else if r.base != "." {
		name = strings.TrimPrefix(name, r.base+"/")
	}
	ok, err := doublestar.Match(r.pattern, name)
	return ok && err == nil
}

// ignored says whether rules leave a path out; the last that matches decides.
// The directories above are known not to be ignored.
func ignored(rules []rule, name string, dir bool) bool {
	for _, r := range slices.Backward(rules) {
		if r.matches(name, dir) {
			return !r.keep
		}
	}
	return false
}

// walk visits the files below start, in the order of their names, without those
// that git ignores and without .git. Links are not followed. It ends when visit
// returns false.
func (r root) walk(ctx context.Context, start string, visit func(name string) bool) error {
	start = filepath.ToSlash(start)
	var rules []rule
	for _, dir := range above(start) {
		rules = append(rules, r.rules(dir)...)
	}
	_, err := r.walkIn(ctx, start, rules, visit)
	return err
}

// above lists the directories on the way to dir, the root first, dir excepted.
func above(dir string) []string {
	if dir == "." {
		return nil
	}
	dirs := []string{"."}
	for i, c := range dir {
		if c == '/' {
			dirs = append(dirs, dir[:i])
		}
	}
	return dirs
}

// rules reads the .gitignore file of a directory; without one there are none.
func (r root) rules(dir string) []rule {
	f, _, err := r.openFile(path.Join(dir, ".gitignore"))
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := readAll(f, maxIgnoreFile)
	if err != nil {
		return nil
	}
	return parseRules(dir, string(text))
}

func (r root) walkIn(ctx context.Context, dir string, rules []rule, visit func(name string) bool) (more bool, err error) {
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	entries, err := fs.ReadDir(r.FS(), dir)
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".gitignore" }) {
		rules = append(slices.Clip(rules), r.rules(dir)...)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		switch {
		case e.Name() == ".git" || ignored(rules, name, e.IsDir()):
		case e.IsDir():
			if more, err := r.walkIn(ctx, name, rules, visit); err != nil || !more {
				return false, err
			}
		case e.Type().IsRegular() && !visit(name):
			return false, nil
		}
	}
	return true, nil
}
