package command

import "strings"

// nearest finds the command that a word was probably meant to be. See Parse for
// the rule.
func nearest(word string) (Name, bool) {
	if len(word) > 32 {
		return "", false
	}
	for _, s := range specs {
		name := string(s.Name)
		allowed := 1
		if len(name) >= 6 && strings.Trim(word, name) == "" {
			allowed = 2
		}
		if word != "" && word[0] == name[0] && distance(word, name) <= allowed {
			return s.Name, true
		}
	}
	return "", false
}

// distance counts insertions, deletions, substitutions and swaps of neighbours
// (optimal string alignment).
func distance(a, b string) int {
	var before []int // the row before last
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// branchName applies the rules of git-check-ref-format(1) to a branch, and
// GitHub's length.
func branchName(s string) bool {
	if s == "" || len(s) > 244 || s == "@" || strings.HasPrefix(s, "-") || strings.HasSuffix(s, ".") {
		return false
	}
	if strings.Contains(s, "..") || strings.Contains(s, "@{") || strings.ContainsAny(s, " ~^:?*[\\") {
		return false
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return false
		}
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
