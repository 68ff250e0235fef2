package review

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
	"pgregory.net/rapid"
)

// touched lists every changed line of a diff, with its file, number and side.
func touched(text string) (lines []string) {
	for _, f := range parsePatch(text).files {
		for _, h := range f.TextFragments {
			before, after := h.OldPosition, h.NewPosition
			for _, l := range h.Lines {
				switch l.Op {
				case gitdiff.OpDelete:
					lines = append(lines, fmt.Sprintf("%s:%d - %q", f.OldName, before, l.Line))
				case gitdiff.OpAdd:
					lines = append(lines, fmt.Sprintf("%s:%d + %q", f.NewName, after, l.Line))
				}
				if l.Op != gitdiff.OpAdd {
					before++
				}
				if l.Op != gitdiff.OpDelete {
					after++
				}
			}
		}
	}
	return lines
}

// aDiff draws a diff: files that came, went, moved or changed, with hunks of any
// size, some without a newline at the end.
func aDiff(t *rapid.T) string {
	var b strings.Builder
	for i := range rapid.IntRange(0, 5).Draw(t, "files") {
		f := &gitdiff.File{OldName: fmt.Sprintf("dir/f%d.go", i), NewName: fmt.Sprintf("dir/f%d.go", i), OldMode: 0o100644}
		kind := rapid.SampledFrom([]string{"changed", "new", "deleted", "moved", "mode"}).Draw(t, "kind")
		switch kind {
		case "new":
			f.IsNew, f.OldName, f.NewMode, f.OldMode = true, "", 0o100644, 0
		case "deleted":
			f.IsDelete, f.NewName = true, ""
		case "moved":
			f.IsRename, f.NewName, f.Score = true, fmt.Sprintf("to/ü %d.go", i), 90
		case "mode":
			f.NewMode = 0o100755
			b.WriteString(f.String())
			continue
		}
		hunks := 1
		if kind == "changed" || kind == "moved" {
			hunks = rapid.IntRange(1, 4).Draw(t, "hunks")
		}
		before, after := int64(1), int64(1)
		for range hunks {
			gap := int64(rapid.IntRange(10, 50).Draw(t, "gap"))
			if f.IsNew || f.IsDelete {
				gap = 0
			}
			before, after = before+gap, after+gap
			h := &gitdiff.TextFragment{OldPosition: before, NewPosition: after, Comment: "func f()"}
			ops := rapid.SliceOfN(rapid.SampledFrom([]gitdiff.LineOp{gitdiff.OpAdd, gitdiff.OpDelete, gitdiff.OpContext}), 1, 60).Draw(t, "ops")
			ops = append(ops, gitdiff.OpAdd)
			for n, op := range ops {
				switch {
				case f.IsNew:
					op = gitdiff.OpAdd
				case f.IsDelete:
					op = gitdiff.OpDelete
				}
				text := rapid.SampledFrom([]string{"", "x", "+", "-- a", "@@ -1 +1 @@", "diff --git a/x b/x", strings.Repeat("long ", 30)}).Draw(t, "line") + "\n"
				if n == len(ops)-1 && rapid.Bool().Draw(t, "no newline") {
					text = "end"
				}
				h.Lines = append(h.Lines, gitdiff.Line{Op: op, Line: text})
				if op != gitdiff.OpAdd {
					h.OldLines++
				}
				if op != gitdiff.OpDelete {
					h.NewLines++
				}
				switch op {
				case gitdiff.OpAdd:
					h.LinesAdded++
				case gitdiff.OpDelete:
					h.LinesDeleted++
				}
			}
			before, after = before+h.OldLines, after+h.NewLines
			if h.OldLines == 0 {
				h.OldPosition--
			}
			if h.NewLines == 0 {
				h.NewPosition--
			}
			f.TextFragments = append(f.TextFragments, h)
		}
		b.WriteString(f.String())
	}
	return b.String()
}

func TestEveryChangedLineIsInExactlyOneChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := aDiff(t)
		p := parsePatch(text)
		lines := rapid.IntRange(1, 80).Draw(t, "lines of a chunk")
		bytes := rapid.SampledFrom([]int{1, 800, 5000, math.MaxInt}).Draw(t, "bytes of a chunk")
		var got []string
		named := map[string]bool{}
		for i, chunk := range pack(p.files, lines, bytes) {
			shown := parsePatch(chunk)
			if n := changedLines(shown.files...); n > lines {
				t.Errorf("chunk %d has %d changed lines, more than %d", i, n, lines)
			}
			here := touched(chunk)
			if bytes >= 5000 && len(chunk) > bytes {
				t.Errorf("chunk %d has %d bytes, more than %d", i, len(chunk), bytes)
			}
			got = append(got, here...)
			for _, f := range shown.files {
				named[f.OldName+f.NewName] = true
			}
		}
		if want := touched(text); !slices.Equal(got, want) {
			t.Errorf("the chunks have\n%s\nthe diff\n%s", strings.Join(got, ""), strings.Join(want, ""))
		}
		for _, f := range p.files {
			if !named[f.OldName+f.NewName] {
				t.Errorf("%s%s is in no chunk", f.OldName, f.NewName)
			}
		}
	})
}

func TestChunksEndWhereHunksDo(t *testing.T) {
	var b strings.Builder
	for i := range 3 {
		fmt.Fprintf(&b, "diff --git a/f%d b/f%d\n--- a/f%d\n+++ b/f%d\n", i, i, i, i)
		for h := range 3 {
			fmt.Fprintf(&b, "@@ -%d,0 +%d,100 @@\n%s", h*1000, h*1100+1, strings.Repeat("+x\n", 100))
		}
	}
	chunks := cut(parsePatch(b.String()).files)
	var sizes []int
	for _, c := range chunks {
		sizes = append(sizes, changedLines(parsePatch(c).files...))
		for _, f := range parsePatch(c).files {
			for _, h := range f.TextFragments {
				if h.LinesAdded != 100 {
					t.Errorf("a hunk was split: %s", h.Header())
				}
			}
		}
	}
	if !slices.Equal(sizes, []int{400, 400, 100}) {
		t.Errorf("the chunks have %d changed lines", sizes)
	}
}

func TestSmallDiffsAreWhole(t *testing.T) {
	for lines, chunks := range map[int]int{0: 0, 1: 1, smallLines: 1, smallLines + 1: 2, 2*chunkLines + 1: 3} {
		text := fmt.Sprintf("diff --git a/f b/f\nnew file mode 100644\n--- /dev/null\n+++ b/f\n@@ -0,0 +1,%d @@\n%s", lines, strings.Repeat("+x\n", lines))
		if lines == 0 {
			text = ""
		}
		if got := cut(parsePatch(text).files); len(got) != chunks {
			t.Errorf("%d changed lines are in %d parts, want %d", lines, len(got), chunks)
		}
	}
}

func TestWithinTheDiff(t *testing.T) {
	p := parsePatch("diff --git a/f b/g\nsimilarity index 90%\nrename from f\nrename to g\n--- a/f\n+++ b/g\n" +
		"@@ -10,3 +20,4 @@\n a\n-b\n+c\n+d\n e\n@@ -30,1 +41,0 @@\n-x\n" +
		"diff --git a/gone b/gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n")
	for name, c := range map[string]struct {
		path        string
		old         bool
		first, last int
		want        bool
	}{
		"the first line of a hunk":    {"g", false, 20, 20, true},
		"the last":                    {"g", false, 23, 23, true},
		"one before":                  {"g", false, 19, 19, false},
		"one after":                   {"g", false, 24, 24, false},
		"a range that reaches in":     {"g", false, 1, 20, true},
		"a range around it":           {"g", false, 1, 99, true},
		"the file as a whole":         {"g", false, 0, 0, true},
		"removed, counted before":     {"f", true, 30, 30, true},
		"removed, counted after":      {"g", false, 41, 41, false},
		"the new name counted before": {"g", true, 10, 10, false},
		"the old name counted after":  {"f", false, 20, 20, false},
		"a file that is not in it":    {"h", false, 1, 1, false},
		"no file":                     {"", false, 0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := p.within(c.path, c.old, c.first, c.last); got != c.want {
				t.Errorf("within: %v", got)
			}
		})
	}
}

// Whatever stands in a diff, what was understood of it is shown once.
func FuzzCut(f *testing.F) {
	f.Add("diff --git a/f b/f\n--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@ func f() {\n-a\n+b\n c\n\\ No newline at end of file\n", 1)
	f.Add("diff --git \"a/\\303\\274\" \"b/\\303\\274\"\nold mode 100644\nnew mode 100755\n", 400)
	f.Add("diff --git a/x b/x\nBinary files a/x and b/x differ\n", 3)
	f.Fuzz(func(t *testing.T, text string, lines int) {
		p := parsePatch(text)
		lines = max(lines, 1)
		n := 0
		for _, chunk := range pack(p.files, lines, chunkBytes) {
			n += changedLines(parsePatch(chunk).files...)
		}
		if want := changedLines(p.files...); n != want {
			t.Errorf("%d changed lines are shown of %d", n, want)
		}
	})
}
