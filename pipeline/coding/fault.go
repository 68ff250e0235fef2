package coding

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/evidence"
)

// blame keeps what commands and judges found wrong with the newest commit.
func (r *round) blame(v ReviewResult, qa *QAResult) {
	what := wrong(r.seen.tested, v, qa)
	if what == "" {
		return // nobody found a fault: one who judges was missing
	}
	modules := directories(v, qa)
	if len(modules) == 0 {
		modules = parents(r.last.FilesChanged)
	}
	r.faults = append(r.faults, Fault{Pattern: pattern(what), Modules: modules})
}

// wrong is the first thing that is: what was run comes before what was said.
func wrong(tested evidence.Result, v ReviewResult, qa *QAResult) string {
	for _, c := range tested.Commands {
		if !c.Passed {
			return c.Line + ": " + telling(c.Output)
		}
	}
	switch {
	case !v.absent && !v.Approved && len(v.Findings) > 0:
		return v.Findings[0].Title
	case !v.absent && !v.Approved:
		return v.Summary
	case qa == nil || qa.Passed || qa.absent:
		return ""
	case len(qa.TestFailures) > 0:
		return qa.TestFailures[0].TestName + ": " + qa.TestFailures[0].Error
	}
	return qa.Summary
}

// trouble is how the line of an output that matters often reads.
var trouble = regexp.MustCompile(`(?i)\b(fail|failed|failure|error|panic|fatal|exception|undefined)\b`)

// telling is the first line of an output that names a failure, or else the first.
func telling(output string) string {
	for line := range strings.Lines(output) {
		if trouble.MatchString(line) {
			return strings.TrimSpace(line)
		}
	}
	return firstLine(output)
}

// maxPattern bounds a pattern, in characters: it is shown to every Coder.
const maxPattern = 200

// pattern is the first line of a text without what changes from run to run.
func pattern(s string) string {
	line := []rune(constant(firstLine(s)))
	return string(line[:min(len(line), maxPattern)])
}

// directories are those of the files that the judges named.
func directories(v ReviewResult, qa *QAResult) []string {
	var files []string
	for _, f := range v.Findings {
		files = append(files, f.Path)
	}
	if qa != nil {
		for _, f := range qa.TestFailures {
			files = append(files, f.File)
		}
	}
	return parents(files)
}

// parents are the directories of the files, sorted, once each.
func parents(files []string) []string {
	var dirs []string
	for _, f := range files {
		if f != "" {
			dirs = append(dirs, path.Dir(f))
		}
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}
