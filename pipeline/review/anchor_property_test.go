package review

import (
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
	"pgregory.net/rapid"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// TestAnchorsAreInOneHunk draws diffs and lines that a model may name: what a
// remark is put on is part of those lines and of one hunk, and lines that are in
// no hunk get none.
func TestAnchorsAreInOneHunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &gitdiff.File{OldName: "a.go", NewName: "b.go"}
		before, after := int64(0), int64(0)
		for range rapid.IntRange(0, 6).Draw(t, "hunks") {
			gap := rapid.Int64Range(1, 40).Draw(t, "gap")
			h := &gitdiff.TextFragment{
				OldPosition: before + gap, NewPosition: after + gap,
				OldLines: rapid.Int64Range(0, 12).Draw(t, "old"), NewLines: rapid.Int64Range(0, 12).Draw(t, "new"),
			}
			before, after = h.OldPosition+h.OldLines, h.NewPosition+h.NewLines
			f.TextFragments = append(f.TextFragments, h)
		}
		p := patch{files: []*gitdiff.File{f}, byName: map[string][]*gitdiff.File{"a.go": {f}, "b.go": {f}}}
		old := rapid.Bool().Draw(t, "side")
		name := "b.go"
		if old {
			name = "a.go"
		}
		first := rapid.IntRange(0, 300).Draw(t, "first")
		last := first + rapid.IntRange(0, 30).Draw(t, "length")
		at := p.anchor(name, old, first, last)
		hunkOf := func(line int) int {
			for i, h := range f.TextFragments {
				from, n := h.NewPosition, h.NewLines
				if old {
					from, n = h.OldPosition, h.OldLines
				}
				if int64(line) >= from && int64(line) < from+n {
					return i
				}
			}
			return -1
		}
		if at == (finding.Lines{}) {
			for line := first; first > 0 && line <= last; line++ {
				if hunkOf(line) >= 0 {
					t.Fatalf("line %d is in a hunk, and there is no anchor", line)
				}
			}
			return
		}
		if at.First < first || at.Last > last || at.First > at.Last {
			t.Fatalf("%+v is no part of %d-%d", at, first, last)
		}
		for line := at.First; line <= at.Last; line++ {
			if hunkOf(line) < 0 || hunkOf(line) != hunkOf(at.First) {
				t.Fatalf("line %d of %+v is in another hunk, or in none", line, at)
			}
		}
		if p.anchor("other.go", old, first, last) != (finding.Lines{}) {
			t.Fatal("another file has an anchor")
		}
	})
}
