package eval

import (
	"github.com/slipway-dev/slipway/pipeline/finding"
)

// A Grading is how what was found compares with what is there.
type Grading struct {
	Grader    string  `json:"grader"`
	Tolerance int     `json:"tolerance"`
	Language  string  `json:"language"`
	Passed    bool    `json:"passed"` // everything was found, and nothing else
	Matches   []Match `json:"matches"`
	Missed    []Truth `json:"missed"`
	False     []Claim `json:"false"` // findings that are no truth, or one that was found already
}

// A Match is a truth and the finding that names it.
type Match struct {
	Truth Truth `json:"truth"`
	Claim Claim `json:"claim"`
}

// A Claim is what a grading keeps of a finding.
type Claim struct {
	Number    int    `json:"number"`
	Lens      string `json:"lens"`
	File      string `json:"file"`
	StartLine int    `json:"start_line"`
	EndLine   int    `json:"end_line,omitempty"`
	Title     string `json:"title"`
	// Again says that it names a truth that another finding names: a person would
	// have to read it all the same, so it is a false one.
	Again bool `json:"again,omitempty"`
}

// Grade compares the open findings of a review with the truth. A finding names a
// truth of the same file when their lines are at most the tolerance apart. As many
// truths as possible are matched; each finding and each truth at most once.
func (f FindingMatch) Grade(open []finding.Entry, language string) Grading {
	tolerance := DefaultTolerance
	if f.Tolerance != nil {
		tolerance = *f.Tolerance
	}
	g := Grading{Grader: GraderFindings, Tolerance: tolerance, Language: language, Matches: []Match{}, Missed: []Truth{}, False: []Claim{}}
	named := func(truth, entry int) bool {
		t, e := f.Truth[truth], open[entry]
		return e.Path == t.File && e.Side == finding.NewSide && (!f.SameLens || e.Lens == t.Lens) && e.StartLine > 0 &&
			e.StartLine <= t.last()+tolerance && max(e.StartLine, e.EndLine) >= t.StartLine-tolerance
	}
	of := pair(len(f.Truth), len(open), named)
	taken := map[int]bool{}
	for i, t := range f.Truth {
		if of[i] < 0 {
			g.Missed = append(g.Missed, t)
			continue
		}
		taken[of[i]] = true
		g.Matches = append(g.Matches, Match{t, claimOf(open[of[i]])})
	}
	for k, e := range open {
		if taken[k] {
			continue
		}
		c := claimOf(e)
		for i := range f.Truth {
			c.Again = c.Again || named(i, k)
		}
		g.False = append(g.False, c)
	}
	g.Passed = len(g.Missed) == 0 && len(g.False) == 0
	return g
}

func claimOf(e finding.Entry) Claim {
	return Claim{Number: e.Number, Lens: e.Lens, File: e.Path, StartLine: e.StartLine, EndLine: e.EndLine, Title: e.Title}
}

// pair matches as many of the left with one each of the right as fit, by
// augmenting paths. It returns for each of the left its right one, or -1.
func pair(left, right int, fits func(l, r int) bool) []int {
	of, by := make([]int, left), make([]int, right)
	for i := range of {
		of[i] = -1
	}
	for i := range by {
		by[i] = -1
	}
	var seen []bool
	var augment func(l int) bool
	augment = func(l int) bool {
		for r := range right {
			if seen[r] || !fits(l, r) {
				continue
			}
			seen[r] = true
			if by[r] < 0 || augment(by[r]) {
				of[l], by[r] = r, l
				return true
			}
		}
		return false
	}
	for l := range left {
		seen = make([]bool, right)
		augment(l)
	}
	return of
}
