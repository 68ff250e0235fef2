package graph

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// chain builds issues from "b:a,x" (b depends on a and x).
func chain(specs ...string) (issues []Issue) {
	for _, s := range specs {
		name, deps, _ := strings.Cut(s, ":")
		is := Issue{Name: name}
		if deps != "" {
			is.DependsOn = strings.Split(deps, ",")
		}
		issues = append(issues, is)
	}
	return issues
}

func TestBadPlansAreNamedAtOnce(t *testing.T) {
	numbered := func(n ...int) (issues []Issue) {
		for i, n := range n {
			issues = append(issues, Issue{Name: fmt.Sprintf("i%d", i), Number: n})
		}
		return issues
	}
	for name, c := range map[string]struct {
		issues []Issue
		want   []string // each a part of one problem
	}{
		"nothing":              {nil, []string{"no issues"}},
		"itself":               {chain("a:a"), []string{"circle: a"}},
		"circle of two":        {chain("a:b", "b:a"), []string{"circle: a, b"}},
		"circle with hangers":  {chain("root", "a:b,root", "b:a", "after:b", "last:after"), []string{"circle: a, b"}},
		"two circles":          {chain("a:b", "b:a", "c:d", "d:c"), []string{"circle: a, b, c, d"}},
		"unknown":              {chain("a:ghost"), []string{`"a" depends on "ghost"`}},
		"twice":                {chain("a", "a"), []string{`"a" is used twice`}},
		"upper case":           {chain("Alpha"), []string{`"Alpha"`}},
		"path":                 {chain("../etc"), []string{`"../etc"`}},
		"option":               {chain("-rf"), []string{`"-rf"`}},
		"line break":           {chain("a\nb"), []string{`"a\nb"`}},
		"empty name":           {chain(""), []string{`""`}},
		"too long":             {chain(strings.Repeat("a", 61)), []string{"at most 60"}},
		"number twice":         {numbered(1, 2, 1), []string{`"i0" and "i2" have the same number 1`}},
		"number below one":     {numbered(-1), []string{"-1"}},
		"several things wrong": {chain("a:x", "B", "a"), []string{`"B"`, `"a" is used twice`, `"a" depends on "x"`}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(c.issues)
			bad, ok := errors.AsType[*Error](err)
			if !ok {
				t.Fatalf("error %v, want *Error", err)
			}
			if len(bad.Problems) != len(c.want) {
				t.Fatalf("problems %q, want %d", bad.Problems, len(c.want))
			}
			for i, want := range c.want {
				if !strings.Contains(bad.Problems[i], want) {
					t.Errorf("problem %q does not say %q", bad.Problems[i], want)
				}
			}
			if !strings.Contains(err.Error(), bad.Problems[0]) {
				t.Errorf("the error hides its problems: %v", err)
			}
		})
	}
}

func TestDiamond(t *testing.T) {
	g := mustNew(t, chain("join:left,right", "right:root", "left:root", "root", "alone"))
	if want := [][]string{{"alone", "root"}, {"left", "right"}, {"join"}}; !reflect.DeepEqual(g.Levels(), want) {
		t.Errorf("levels %v, want %v", g.Levels(), want)
	}
	if got := names(g.Issues()); !slices.Equal(got, []string{"alone", "root", "left", "right", "join"}) {
		t.Errorf("by number %v", got)
	}
	if got := g.Downstream("root"); !slices.Equal(got, []string{"left", "right", "join"}) {
		t.Errorf("downstream of root: %v", got)
	}
	if got := g.Downstream("ghost"); got != nil {
		t.Errorf("downstream of an unknown issue: %v", got)
	}
	is, ok := g.Issue("join")
	if !ok || is.Number != 5 || is.Key() != "issue-05" || is.Slug() != "05-join" {
		t.Errorf("join: %v %+v", ok, is)
	}
	if _, ok := g.Issue("ghost"); ok {
		t.Error("an unknown issue was found")
	}
}

func TestNumbersAreKeptAndNewOnesComeAfter(t *testing.T) {
	g := mustNew(t, []Issue{{Name: "new"}, {Name: "old", Number: 7, DependsOn: []string{"older"}}, {Name: "older", Number: 3}})
	got := map[string]int{}
	for _, is := range g.Issues() {
		got[is.Name] = is.Number
	}
	if want := map[string]int{"older": 3, "old": 7, "new": 8}; !reflect.DeepEqual(got, want) {
		t.Errorf("numbers %v, want %v", got, want)
	}
}

func TestFrontier(t *testing.T) {
	issues := chain("long", "mid:long", "end:mid", "short", "busy", "free", "after:short")
	for i, is := range issues {
		switch is.Name {
		case "busy":
			issues[i].FilesToModify = []string{"main.go", "go.mod"}
		case "free":
			issues[i].FilesToModify = []string{"other.go"}
		case "short":
			issues[i].FilesToCreate = []string{"main.go"}
		}
	}
	g := mustNew(t, issues)
	for name, c := range map[string]struct{ started, landed, running, want string }{
		"at the start the longest path first":   {"", "", "", "long short busy free"},
		"then fewest shared files":              {"long short", "", "long short", "free busy"},
		"a dependency that ran is not landed":   {"long short", "", "", "busy free"},
		"a landed one sets its dependents free": {"long", "long", "", "short mid busy free"},
		"when all started":                      {"long mid end short busy free after", "long", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := strings.Join(names(g.Frontier(in(c.started), in(c.running), needs(in(c.landed)))), " ")
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestConflicts(t *testing.T) {
	file := func(is Issue, files ...string) Issue { is.FilesToModify = files; return is }
	is := chain("a", "b:a", "c:b", "d", "e")
	g := mustNew(t, []Issue{
		file(is[0], "shared.go", "chain.go"), file(is[1], "chain.go"), file(is[2], "chain.go", "shared.go", "shared.go"),
		file(is[3], "shared.go", "z.go"), file(is[4], "z.go", "own.go"),
	})
	want := []Conflict{
		{File: "shared.go", Issues: []string{"a", "d", "c"}}, // a before c, but d beside both
		{File: "z.go", Issues: []string{"d", "e"}},
	}
	if got := g.Conflicts(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestFiveHundredIssues(t *testing.T) {
	issues := make([]Issue, 500)
	for i := range issues {
		issues[i] = Issue{Name: fmt.Sprintf("i%d", i), FilesToModify: []string{"main.go", fmt.Sprintf("f%d.go", i%7)}}
		for _, back := range []int{20, 21, 40} {
			if i >= back {
				issues[i].DependsOn = append(issues[i].DependsOn, fmt.Sprintf("i%d", i-back))
			}
		}
	}
	start := time.Now()
	g := mustNew(t, issues)
	conflicts := g.Conflicts()
	if len(conflicts) != 8 || len(conflicts[7].Issues) != 500 {
		t.Errorf("%d conflicts, %d issues in the last", len(conflicts), len(conflicts[7].Issues))
	}
	for landed := 0; landed < 500; {
		ready := g.Frontier(upTo(landed), in(""), needs(upTo(landed)))
		if len(ready) == 0 {
			t.Fatalf("nothing can start with %d landed", landed)
		}
		landed += len(ready)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
}

// upTo has landed the first n issues of TestFiveHundredIssues.
func upTo(n int) func(string) bool {
	return func(name string) bool {
		var i int
		_, err := fmt.Sscanf(name, "i%d", &i)
		return err == nil && i < n
	}
}

func TestNoteIsOneLine(t *testing.T) {
	n := Note{FromIssue: "api", Kind: FailureNote, Expected: "Parse", Delivered: "nothing", Items: []string{"no tests"}}
	if got, want := n.String(), "api (failure): expected Parse; delivered nothing; [no tests]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func mustNew(t testing.TB, issues []Issue) *Graph {
	t.Helper()
	g, err := New(issues)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func names(issues []Issue) (names []string) {
	for _, is := range issues {
		names = append(names, is.Name)
	}
	return names
}

func in(list string) func(string) bool {
	return func(name string) bool { return slices.Contains(strings.Fields(list), name) }
}

// needs is met where the dependency is.
func needs(landed func(string) bool) func(name, dependency string) bool {
	return func(_, dependency string) bool { return landed(dependency) }
}
