package review

import (
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

// The sizes of what one lens is shown.
const (
	smallLines = 500      // changed lines of a diff that is shown whole
	chunkLines = 400      // changed lines of a chunk of a larger one
	chunkBytes = 60 << 10 // of either
)

// A patch is a parsed diff: its files in git's order, and by each of their
// names. A file that became something else, as a symbolic link does, is in it
// twice.
type patch struct {
	files  []*gitdiff.File
	byName map[string][]*gitdiff.File
}

// parsePatch reads what it can: the files before a place that cannot be read
// are good, and those after it are missing, which the manifest will tell.
func parsePatch(text string) patch {
	p := patch{byName: map[string][]*gitdiff.File{}}
	p.files, _, _ = gitdiff.Parse(strings.NewReader(text))
	for _, f := range p.files {
		f.OldOIDPrefix, f.NewOIDPrefix = "", "" // git's names of contents tell a reader nothing
		for _, name := range slices.Compact([]string{f.OldName, f.NewName}) {
			if name != "" { // a new file has no old name
				p.byName[name] = append(p.byName[name], f)
			}
		}
	}
	return p
}

// within reports whether the lines first to last of a file touch a hunk. A file
// as a whole, line 0, is in the diff if any of it is.
func (p patch) within(path string, old bool, first, last int) bool {
	for _, f := range p.byName[path] {
		if old && f.OldName != path || !old && f.NewName != path {
			continue
		}
		if first == 0 {
			return true
		}
		for _, h := range f.TextFragments {
			from, n := h.NewPosition, h.NewLines
			if old {
				from, n = h.OldPosition, h.OldLines
			}
			if int64(first) < from+n && int64(last) >= from {
				return true
			}
		}
	}
	return false
}

// anchor are the lines, of those from first to last, that are in the first hunk
// which has any of them.
func (p patch) anchor(path string, old bool, first, last int) finding.Lines {
	for _, f := range p.byName[path] {
		if old && f.OldName != path || !old && f.NewName != path {
			continue
		}
		for _, h := range f.TextFragments {
			from, n := h.NewPosition, h.NewLines
			if old {
				from, n = h.OldPosition, h.OldLines
			}
			at := finding.Lines{First: max(first, int(from)), Last: min(last, int(from+n)-1)}
			if first > 0 && at.First <= at.Last {
				return at
			}
		}
	}
	return finding.Lines{}
}

// changedLines counts what was added and removed.
func changedLines(files ...*gitdiff.File) (n int) {
	for _, f := range files {
		for _, h := range f.TextFragments {
			n += int(h.LinesAdded + h.LinesDeleted)
		}
	}
	return n
}

// cut makes texts of files for one lens each: one, if all is small, else chunks.
// Every changed line is in exactly one of them.
func cut(files []*gitdiff.File) []string {
	if whole := pack(files, smallLines, chunkBytes); len(whole) <= 1 {
		return whole
	}
	return pack(files, chunkLines, chunkBytes)
}

// pack fills texts with hunks, in order, up to so many changed lines and bytes. A
// hunk that exceeds them alone is split; a file without hunks, as one that only
// got another mode, is its header. A single line may exceed bytes.
func pack(files []*gitdiff.File, lines, bytes int) []string {
	var texts []string
	var open []*gitdiff.File // what the next text shows
	usedLines, usedBytes := 0, 0
	flush := func() {
		if len(open) > 0 {
			texts = append(texts, render(open))
		}
		open, usedLines, usedBytes = nil, 0, 0
	}
	for _, f := range files {
		bare := *f
		bare.TextFragments = nil
		head := len(bare.String()) + 2*(len(f.OldName)+len(f.NewName)) + 64
		if len(f.TextFragments) == 0 {
			if usedBytes+head > bytes {
				flush()
			}
			open, usedBytes = append(open, &bare), usedBytes+head
			continue
		}
		var last *gitdiff.File // f's part of the open text
		for _, h := range f.TextFragments {
			for _, piece := range split(h, lines, bytes-head) {
				n, size := int(piece.LinesAdded+piece.LinesDeleted), len(piece.String())
				if last == nil {
					size += head
				}
				if usedLines+n > lines || usedBytes+size > bytes {
					if last != nil {
						size += head
					}
					flush()
					last = nil
				}
				if last == nil {
					again := bare
					last = &again
					open = append(open, last)
				}
				last.TextFragments = append(last.TextFragments, piece)
				usedLines, usedBytes = usedLines+n, usedBytes+size
			}
		}
	}
	flush()
	return texts
}

func render(files []*gitdiff.File) string {
	var b strings.Builder
	for _, f := range files {
		b.WriteString(f.String())
	}
	return b.String()
}

// split cuts a hunk into hunks of at most so many changed lines and bytes, each
// with the numbers of its own lines.
func split(h *gitdiff.TextFragment, lines, bytes int) []*gitdiff.TextFragment {
	if int(h.LinesAdded+h.LinesDeleted) <= lines && len(h.String()) <= bytes {
		return []*gitdiff.TextFragment{h}
	}
	// The lines that come next on each side. A side without lines is given the
	// number of the line before it.
	before, after := h.OldPosition, h.NewPosition
	if h.OldLines == 0 {
		before++
	}
	if h.NewLines == 0 {
		after++
	}
	fresh := func() *gitdiff.TextFragment {
		return &gitdiff.TextFragment{Comment: h.Comment, OldPosition: before, NewPosition: after}
	}
	var pieces []*gitdiff.TextFragment
	piece, size := fresh(), 0
	flush := func() {
		if piece.LinesAdded+piece.LinesDeleted == 0 {
			return // context alone: it is part of the next piece, or of none
		}
		if piece.OldLines == 0 {
			piece.OldPosition--
		}
		if piece.NewLines == 0 {
			piece.NewPosition--
		}
		pieces = append(pieces, piece)
		piece, size = fresh(), 0
	}
	for _, line := range h.Lines {
		changed := line.Op != gitdiff.OpContext
		if changed && int(piece.LinesAdded+piece.LinesDeleted) == lines || size+len(line.Line) > bytes-len(h.Header())-64 {
			flush()
		}
		piece.Lines = append(piece.Lines, line)
		size += len(line.Line) + 1
		if line.Op != gitdiff.OpAdd {
			piece.OldLines++
			before++
		}
		if line.Op != gitdiff.OpDelete {
			piece.NewLines++
			after++
		}
		switch line.Op {
		case gitdiff.OpAdd:
			piece.LinesAdded++
		case gitdiff.OpDelete:
			piece.LinesDeleted++
		}
	}
	flush()
	return pieces
}
