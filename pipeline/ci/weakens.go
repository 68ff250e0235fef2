package ci

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/repo"
)

// Weakens says why a fix must not be taken: each string is one way in which it
// deletes, skips or weakens a test, or touches what runs them. It fails closed:
// a diff that cannot be read, or that lacks a file of changes, is refused.
//
// It reads lines, not programs. A test, a case or an assertion that is gone
// from one place and stands word for word at another was moved; one that is
// replaced within the same hunk was renamed or rewritten, and whether the new
// one proves as much is for the review: another expected value passes here.
func Weakens(changes []repo.Change, diff string) []string {
	files, preamble, err := gitdiff.Parse(strings.NewReader(diff))
	if err != nil || cutShort(diff) || len(files) == 0 && strings.TrimSpace(preamble) != "" {
		return []string{"the diff cannot be read, so nobody can say that no test is weakened"}
	}
	w := weighing{seen: map[string]bool{}, balance: map[mark]int{}}
	for _, f := range files {
		w.read(f)
	}
	for _, c := range changes {
		w.change(c)
	}
	w.weigh()
	slices.Sort(w.reasons)
	return slices.Compact(w.reasons)
}

// cutShort reports whether the last line is none of a diff: repo.Mirror.Diff
// says in brackets that it left something out.
func cutShort(diff string) bool {
	diff = strings.TrimRight(diff, "\n")
	return strings.HasPrefix(diff[strings.LastIndexByte(diff, '\n')+1:], "[")
}

// A mark is one thing in a test that can be lost: its kind and its words.
type mark struct{ kind, text string }

// A hunk is one stretch of a diff with the marks that it takes and brings.
type hunk struct {
	path        string
	lost, found []mark
}

// A weighing is one call of Weakens.
type weighing struct {
	seen    map[string]bool // paths in the diff
	hunks   []hunk
	balance map[mark]int // brought minus taken, in the whole diff
	reasons []string
}

func (w *weighing) refuse(format string, args ...any) {
	w.reasons = append(w.reasons, fmt.Sprintf(format, args...))
}

// change judges a file as a whole.
func (w *weighing) change(c repo.Change) {
	switch {
	case runsTests(c.Path):
		w.refuse("%s is configuration of the CI: a person has to change it", c.Path)
	case !w.seen[c.Path]:
		w.refuse("%s is changed, and the diff does not show how", c.Path)
	}
}

// read takes in one file of the diff.
func (w *weighing) read(f *gitdiff.File) {
	name := f.NewName
	if f.IsDelete || name == "" {
		name = f.OldName
	}
	for _, n := range []string{f.OldName, f.NewName} { // they differ where it was renamed
		w.seen[n] = true
		if runsTests(n) {
			w.refuse("%s is configuration of the CI: a person has to change it", n)
		}
	}
	switch {
	case f.IsDelete && testData(name):
		w.refuse("%s is deleted, which tests use", name)
	case f.IsRename && testFile(f.OldName) && !testFile(name):
		w.refuse("%s is renamed to %s, which no test runner takes for a test", f.OldName, name)
	}
	l := languageOf(name)
	test := testFile(name)
	held := 0
	for _, fragment := range f.TextFragments {
		h := hunk{path: name}
		inTest := test || l.inline != nil && l.inline.MatchString(text(fragment))
		before := "" // the line above, as the new file has it
		for _, line := range fragment.Lines {
			words := strings.Join(strings.Fields(line.Line), " ")
			switch line.Op {
			case gitdiff.OpDelete:
				h.lost = append(h.lost, l.marks(name, words, inTest)...)
				continue
			case gitdiff.OpAdd:
				h.found = append(h.found, l.marks(name, words, inTest)...)
				if inTest && l.declaration.MatchString(before) && slices.Contains([]string{"return", "return;", "return nil", "pass"}, words) {
					w.refuse("%s: a test returns before it does anything: %q", name, before)
				}
			}
			if words != "" {
				before = words
			}
		}
		w.thresholds(name, fragment)
		w.hunks = append(w.hunks, h)
		held += len(h.lost)
		for _, m := range h.lost {
			w.balance[m]--
		}
		for _, m := range h.found {
			w.balance[m]++
		}
	}
	if f.IsDelete && test && held == 0 { // else it counts what became of its tests
		w.refuse("%s is deleted, which is a test", name)
	}
}

// text is the whole of a fragment, with git's guess of the function around it.
func text(f *gitdiff.TextFragment) string {
	var b strings.Builder
	b.WriteString(f.Comment + "\n")
	for _, l := range f.Lines {
		b.WriteString(l.Line)
	}
	return b.String()
}

// weigh compares what each hunk takes with what it brings, leaving out what was
// only moved.
func (w *weighing) weigh() {
	for _, h := range w.hunks {
		gone, come := w.net(h.lost, -1), w.net(h.found, +1)
		for _, k := range kinds {
			lost, found := of(gone, k.name), of(come, k.name)
			switch {
			case k.brought && len(found) > 0:
				w.refuse("%s: %s: %q", h.path, k.what, found[0].text)
			case !k.brought && len(lost) > len(found):
				w.refuse("%s: %s: %q", h.path, k.what, lost[len(found)].text)
			}
		}
	}
}

// net is the marks of which the whole diff takes more than it brings (sign -1),
// or brings more than it takes (+1).
func (w *weighing) net(marks []mark, sign int) (out []mark) {
	for _, m := range marks {
		if w.balance[m]*sign > 0 {
			out = append(out, m)
		}
	}
	return out
}

func of(marks []mark, kind string) (out []mark) {
	for _, m := range marks {
		if m.kind == kind {
			out = append(out, m)
		}
	}
	return out
}

// thresholds compares the numbers of lines that say how much is enough.
func (w *weighing) thresholds(name string, f *gitdiff.TextFragment) {
	before, after := map[string]float64{}, map[string]float64{}
	for _, line := range f.Lines {
		key, n, ok := threshold(line.Line)
		switch {
		case !ok:
		case line.Op == gitdiff.OpDelete:
			before[key] = n
		case line.Op == gitdiff.OpAdd:
			after[key] = n
		}
	}
	for key, was := range before {
		is, there := after[key]
		most := atMost.MatchString(key)
		switch {
		case !there:
			w.refuse("%s: the threshold %q is gone", name, key)
		case !most && is < was, most && is > was:
			w.refuse("%s: the threshold %q goes from %v to %v", name, key, was, is)
		}
	}
}

// testFile reports whether a test runner takes a path for a test.
func testFile(name string) bool {
	base := path.Base(name)
	return testName.MatchString(base) || testDir.MatchString(path.Dir(name)+"/") && code.MatchString(base)
}
