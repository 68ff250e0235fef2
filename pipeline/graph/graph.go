// Package graph is the shape of a build's work: issues, what they depend on,
// and which of them can start. It is pure: no clock, no files, no order that
// comes from a map.
package graph

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// An Issue is one node: a piece of work small enough for one coding loop. The
// planner writes every field but Number. A list that is empty is something else
// than none: an Edit takes it as set.
type Issue struct {
	Name               string      `json:"name"` // lower case words joined by dashes; unique in the build
	Title              string      `json:"title"`
	Description        string      `json:"description"`
	AcceptanceCriteria []Criterion `json:"acceptance_criteria"`
	DependsOn          []string    `json:"depends_on,omitzero"`
	Provides           []string    `json:"provides,omitzero"`
	FilesToCreate      []string    `json:"files_to_create,omitzero"`
	FilesToModify      []string    `json:"files_to_modify,omitzero"`
	Complexity         string      `json:"estimated_complexity,omitempty"`
	TestingStrategy    string      `json:"testing_strategy,omitempty"`
	TargetRepo         string      `json:"target_repo,omitempty"`       // empty: the build's own
	ParentName         string      `json:"parent_issue_name,omitempty"` // of a sub-issue: the issue that was split
	Guidance           Guidance    `json:"guidance"`
	Number             int         `json:"sequence_number,omitempty"` // given once, never re-used
}

// A Criterion is one acceptance criterion of an issue and the criteria of the
// PRD that it serves.
type Criterion struct {
	Text   string   `json:"text"`
	PRDIDs []string `json:"prd_ids"`
}

// Guidance routes an issue through the coding loop.
type Guidance struct {
	NeedsNewTests     bool   `json:"needs_new_tests,omitempty"`
	EstimatedScope    string `json:"estimated_scope,omitempty"` // trivial, small, medium, large
	TouchesInterfaces bool   `json:"touches_interfaces,omitempty"`
	NeedsDeeperQA     bool   `json:"needs_deeper_qa,omitempty"`
	TestingGuidance   string `json:"testing_guidance,omitempty"`
	ReviewFocus       string `json:"review_focus,omitempty"`
	RiskRationale     string `json:"risk_rationale"`
}

// Files returns the files that the issue says it will touch, sorted, once each.
func (i Issue) Files() []string {
	files := slices.Concat(i.FilesToCreate, i.FilesToModify)
	slices.Sort(files)
	return slices.Compact(files)
}

// Key names the issue in journal keys, e.g. issue-07.
func (i Issue) Key() string { return fmt.Sprintf("issue-%02d", i.Number) }

// Slug names the issue in refs and files, e.g. 07-parse-dates.
func (i Issue) Slug() string { return fmt.Sprintf("%02d-%s", i.Number, i.Name) }

// A Conflict is a file that issues which may run together both touch.
type Conflict struct {
	File   string   `json:"file"`
	Issues []string `json:"issues"`
}

// An Error is a plan that is no graph. Its text is meant for the planner.
type Error struct{ Problems []string }

// Error lists the problems.
func (e *Error) Error() string { return "the plan is not usable: " + strings.Join(e.Problems, "; ") }

// A Graph is a checked set of issues. It is read-only after New.
type Graph struct {
	issues     []Issue // by number
	index      map[string]int
	dependents [][]int
	rest       []int // length of the longest path that starts here
	levels     [][]int
	below      [][]bool // below[i][k]: issue k depends on issue i, directly or not
	last       int      // the highest number ever given
}

var safeName = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// New checks issues and numbers those that have no number, by level and within
// a level by name, so that the order of the argument decides nothing. Every
// problem is reported at once, as an *Error.
func New(issues []Issue) (*Graph, error) { return grown(issues, 0) }

// grown is New after numbers up to last were given, also to issues that are no
// longer there.
func grown(issues []Issue, last int) (*Graph, error) {
	g := &Graph{issues: slices.Clone(issues), index: map[string]int{}, last: last}
	slices.SortStableFunc(g.issues, func(a, b Issue) int { return strings.Compare(a.Name, b.Name) })
	var bad Error
	numbered := map[int]string{}
	if len(issues) == 0 {
		bad.Problems = append(bad.Problems, "it has no issues")
	}
	for i, is := range g.issues {
		if !safeName.MatchString(is.Name) || len(is.Name) > 60 {
			bad.Problems = append(bad.Problems, fmt.Sprintf("issue name %q: use at most 60 of a-z, 0-9 and single dashes", is.Name))
		}
		if _, twice := g.index[is.Name]; twice {
			bad.Problems = append(bad.Problems, fmt.Sprintf("issue name %q is used twice", is.Name))
		}
		g.index[is.Name] = i
		if is.Number < 0 {
			bad.Problems = append(bad.Problems, fmt.Sprintf("issue %q has the number %d: numbers start at 1", is.Name, is.Number))
		}
		if other, twice := numbered[is.Number]; twice {
			bad.Problems = append(bad.Problems, fmt.Sprintf("issues %q and %q have the same number %d", other, is.Name, is.Number))
		}
		if is.Number > 0 {
			numbered[is.Number] = is.Name
		}
	}
	for _, is := range g.issues {
		for _, d := range is.DependsOn {
			if _, known := g.index[d]; !known {
				bad.Problems = append(bad.Problems, fmt.Sprintf("issue %q depends on %q, which is not in the plan", is.Name, d))
			}
		}
	}
	if len(bad.Problems) == 0 {
		if cycle := g.sort(); cycle != nil {
			bad.Problems = append(bad.Problems, "these issues depend on each other in a circle: "+strings.Join(cycle, ", "))
		}
	}
	if len(bad.Problems) > 0 {
		return nil, &bad
	}
	g.number()
	g.link()
	return g, nil
}

// sort fills levels by Kahn's algorithm. If there is a cycle it returns the
// names of the issues on cycles and between them.
func (g *Graph) sort() (cycle []string) {
	placed := make([]bool, len(g.issues))
	for left := len(g.issues); left > 0; {
		var level []int
		for i, is := range g.issues {
			if !placed[i] && !slices.ContainsFunc(is.DependsOn, func(d string) bool { return !placed[g.index[d]] }) {
				level = append(level, i)
			}
		}
		if level == nil {
			return g.stuck(placed)
		}
		for _, i := range level {
			placed[i] = true
		}
		left -= len(level)
		g.levels = append(g.levels, level)
	}
	return nil
}

// stuck returns the names of the issues that are not placed, without those that
// merely wait for a cycle.
func (g *Graph) stuck(placed []bool) (names []string) {
	for trimmed := true; trimmed; {
		trimmed = false
		needed := make([]bool, len(g.issues))
		for i, is := range g.issues {
			if !placed[i] {
				for _, d := range is.DependsOn {
					needed[g.index[d]] = true
				}
			}
		}
		for i := range g.issues {
			if !placed[i] && !needed[i] {
				placed[i], trimmed = true, true
			}
		}
	}
	for i, is := range g.issues {
		if !placed[i] {
			names = append(names, is.Name)
		}
	}
	return names
}

// number gives the issues without a number the next free ones and puts the
// issues in that order.
func (g *Graph) number() {
	for _, is := range g.issues {
		g.last = max(g.last, is.Number)
	}
	for _, level := range g.levels {
		for _, i := range level {
			if g.issues[i].Number == 0 {
				g.last++
				g.issues[i].Number = g.last
			}
		}
	}
	slices.SortFunc(g.issues, func(a, b Issue) int { return cmp.Compare(a.Number, b.Number) })
	for i, is := range g.issues {
		g.index[is.Name] = i
	}
	g.levels = nil
	g.sort()
}

func (g *Graph) link() {
	g.dependents = make([][]int, len(g.issues))
	for i, is := range g.issues {
		for _, d := range is.DependsOn {
			g.dependents[g.index[d]] = append(g.dependents[g.index[d]], i)
		}
	}
	g.rest = make([]int, len(g.issues))
	g.below = make([][]bool, len(g.issues))
	for _, level := range slices.Backward(g.levels) {
		for _, i := range level {
			longest, below := 0, make([]bool, len(g.issues))
			for _, d := range g.dependents[i] {
				longest = max(longest, g.rest[d])
				below[d] = true
				for k, under := range g.below[d] {
					below[k] = below[k] || under
				}
			}
			g.rest[i], g.below[i] = longest+1, below
		}
	}
}

// Issues returns the issues by number.
func (g *Graph) Issues() []Issue { return slices.Clone(g.issues) }

// Issue returns the issue with that name.
func (g *Graph) Issue(name string) (Issue, bool) {
	i, ok := g.index[name]
	if !ok {
		return Issue{}, false
	}
	return g.issues[i], true
}

// Levels returns names such that every issue depends on earlier levels alone.
func (g *Graph) Levels() [][]string {
	out := make([][]string, len(g.levels))
	for l, level := range g.levels {
		for _, i := range level {
			out[l] = append(out[l], g.issues[i].Name)
		}
	}
	return out
}

// Frontier returns the issues that may start: not started, every dependency
// met. The one with the longest remaining path comes first, then the one
// that shares fewest files with what is running, then the lower number. What is
// running has started.
func (g *Graph) Frontier(started, running func(name string) bool, met func(name, dependency string) bool) []Issue {
	type candidate struct{ at, shared int }
	busy := map[string]bool{}
	var ready []candidate
	for i := range g.issues { // asked at every choice, so without a copy of each
		is := &g.issues[i]
		switch {
		case !started(is.Name):
			if !slices.ContainsFunc(is.DependsOn, func(d string) bool { return !met(is.Name, d) }) {
				ready = append(ready, candidate{at: i})
			}
		case running(is.Name):
			for _, f := range is.Files() {
				busy[f] = true
			}
		}
	}
	for i, c := range ready {
		for _, f := range g.issues[c.at].Files() {
			if busy[f] {
				ready[i].shared++
			}
		}
	}
	slices.SortFunc(ready, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(g.rest[b.at], g.rest[a.at]), cmp.Compare(a.shared, b.shared), cmp.Compare(a.at, b.at))
	})
	out := make([]Issue, len(ready))
	for i, c := range ready {
		out[i] = g.issues[c.at]
	}
	return out
}

// Downstream returns the names of all issues that depend on name, directly or
// not, by number.
func (g *Graph) Downstream(name string) []string {
	i, ok := g.index[name]
	if !ok {
		return nil
	}
	var out []string
	for k, under := range g.below[i] {
		if under {
			out = append(out, g.issues[k].Name)
		}
	}
	return out
}

// Lineage returns the name and the names of all issues that it depends on,
// directly or not, by number.
func (g *Graph) Lineage(name string) []string {
	k, ok := g.index[name]
	if !ok {
		return []string{name}
	}
	var out []string
	for i, below := range g.below {
		if i == k || below[k] {
			out = append(out, g.issues[i].Name)
		}
	}
	return out
}

// Conflicts returns the files that two issues touch of which neither depends
// on the other, sorted by file.
func (g *Graph) Conflicts() []Conflict {
	touch := map[string][]int{}
	for i, is := range g.issues {
		for _, f := range is.Files() {
			touch[f] = append(touch[f], i)
		}
	}
	var out []Conflict
	for file, who := range touch {
		if len(who) < 2 {
			continue
		}
		together := map[int]bool{}
		for a, i := range who {
			for _, k := range who[a+1:] {
				if !g.below[i][k] && !g.below[k][i] {
					together[i], together[k] = true, true
				}
			}
		}
		c := Conflict{File: file}
		for _, i := range who {
			if together[i] {
				c.Issues = append(c.Issues, g.issues[i].Name)
			}
		}
		if c.Issues != nil {
			out = append(out, c)
		}
	}
	slices.SortFunc(out, func(a, b Conflict) int { return strings.Compare(a.File, b.File) })
	return out
}
