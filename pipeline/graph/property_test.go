package graph

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyGraph draws issues that depend on earlier ones and share a few files, in
// any order, some of them with numbers already.
func anyGraph(t *rapid.T) []Issue {
	n := rapid.IntRange(1, 25).Draw(t, "issues")
	numbers := rapid.Permutation(slices.Collect(upward(3*n))).Draw(t, "numbers")
	issues := make([]Issue, n)
	for i := range issues {
		issues[i] = Issue{Name: fmt.Sprintf("i%d", i)}
		for d := range i {
			if rapid.IntRange(0, 4).Draw(t, "depends") == 0 {
				issues[i].DependsOn = append(issues[i].DependsOn, issues[d].Name)
			}
		}
		for f := range 4 {
			if rapid.IntRange(0, 3).Draw(t, "touches") == 0 {
				issues[i].FilesToModify = append(issues[i].FilesToModify, fmt.Sprintf("f%d", f))
			}
		}
		if rapid.Bool().Draw(t, "numbered") {
			issues[i].Number = numbers[i]
		}
	}
	return rapid.Permutation(issues).Draw(t, "order")
}

// upward yields 1 to n.
func upward(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := 1; i <= n && yield(i); i++ {
		}
	}
}

func draw(t *rapid.T) ([]Issue, *Graph) {
	issues := anyGraph(t)
	g, err := New(issues)
	if err != nil {
		t.Fatal(err)
	}
	return issues, g
}

func TestLevelsRespectDependencies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issues, g := draw(t)
		level := map[string]int{}
		for l, names := range g.Levels() {
			for _, name := range names {
				if _, twice := level[name]; twice {
					t.Fatalf("%s is in two levels", name)
				}
				level[name] = l
			}
		}
		if len(level) != len(issues) {
			t.Fatalf("%d of %d issues have a level", len(level), len(issues))
		}
		for _, is := range issues {
			deepest := -1
			for _, d := range is.DependsOn {
				deepest = max(deepest, level[d])
			}
			if level[is.Name] != deepest+1 {
				t.Fatalf("%s is in level %d, its deepest dependency in %d", is.Name, level[is.Name], deepest)
			}
		}
	})
}

func TestNumbersAreUniqueAndStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issues, g := draw(t)
		seen := map[int]bool{}
		for _, is := range g.Issues() {
			if is.Number < 1 || seen[is.Number] {
				t.Fatalf("number %d of %s is used twice or no number", is.Number, is.Name)
			}
			seen[is.Number] = true
		}
		for _, is := range issues {
			if got, _ := g.Issue(is.Name); is.Number != 0 && got.Number != is.Number {
				t.Fatalf("%s had number %d, now %d", is.Name, is.Number, got.Number)
			}
		}
		again, err := New(g.Issues())
		if err != nil || !reflect.DeepEqual(again.Issues(), g.Issues()) {
			t.Fatalf("numbering again changes the issues: %v", err)
		}
	})
}

func TestOrderOfTheInputDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issues, g := draw(t)
		other, err := New(rapid.Permutation(issues).Draw(t, "another order"))
		if err != nil {
			t.Fatal(err)
		}
		none := func(string) bool { return false }
		if !reflect.DeepEqual(g.Issues(), other.Issues()) || !reflect.DeepEqual(g.Levels(), other.Levels()) ||
			!reflect.DeepEqual(g.Conflicts(), other.Conflicts()) ||
			!reflect.DeepEqual(g.Frontier(none, none, needs(none)), other.Frontier(none, none, needs(none))) {
			t.Fatal("two orders of the same issues give two graphs")
		}
	})
}

func TestOrderOfABadInputDecidesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issues := anyGraph(t)
		for range rapid.IntRange(1, 3).Draw(t, "faults") {
			at := rapid.IntRange(0, len(issues)-1).Draw(t, "at")
			fault := rapid.SampledFrom([]string{"ghost", issues[0].Name, issues[at].Name}).Draw(t, "needs")
			issues[at].DependsOn = append(slices.Clone(issues[at].DependsOn), fault)
		}
		_, one := New(issues)
		_, two := New(rapid.Permutation(issues).Draw(t, "another order"))
		if !reflect.DeepEqual(one, two) {
			t.Fatalf("%v\n%v", one, two)
		}
	})
}

// A whole build: whatever lands in whatever order, nothing starts before its
// dependencies, the longest remaining path goes first, everything gets its turn.
func TestFrontierLeadsThroughTheGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		issues, g := draw(t)
		started, landed := map[string]bool{}, map[string]bool{}
		running := func(name string) bool { return started[name] && !landed[name] }
		for len(landed) < len(issues) {
			ready := g.Frontier(func(n string) bool { return started[n] }, running, needs(func(n string) bool { return landed[n] }))
			for i, is := range ready {
				for _, d := range is.DependsOn {
					if !landed[d] {
						t.Fatalf("%s may start, but %s has not landed", is.Name, d)
					}
				}
				if started[is.Name] {
					t.Fatalf("%s may start twice", is.Name)
				}
				if i > 0 && longest(g, ready[i-1].Name) < longest(g, is.Name) {
					t.Fatalf("%s comes before %s, which has the longer path", ready[i-1].Name, is.Name)
				}
			}
			for _, is := range ready[:min(len(ready), rapid.IntRange(1, 3).Draw(t, "slots"))] {
				started[is.Name] = true
			}
			var busy []string
			for _, is := range g.Issues() {
				if running(is.Name) {
					busy = append(busy, is.Name)
				}
			}
			if len(busy) == 0 {
				t.Fatalf("nothing runs and nothing may start, %d of %d landed", len(landed), len(issues))
			}
			landed[rapid.SampledFrom(busy).Draw(t, "lands")] = true
		}
	})
}

// longest counts the issues of the longest path that starts at name, the plain way.
func longest(g *Graph, name string) int {
	n := 0
	for _, is := range g.Issues() {
		if slices.Contains(is.DependsOn, name) {
			n = max(n, longest(g, is.Name))
		}
	}
	return n + 1
}

// reaches says whether to depends on from, the plain way.
func reaches(g *Graph, from, to string) bool {
	is, _ := g.Issue(to)
	return slices.ContainsFunc(is.DependsOn, func(d string) bool { return d == from || reaches(g, from, d) })
}

func TestConflictsAreExactlyTheUnorderedPairs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, g := draw(t)
		want := map[string]bool{}
		for _, a := range g.Issues() {
			for _, b := range g.Issues() {
				if a.Name == b.Name || reaches(g, a.Name, b.Name) || reaches(g, b.Name, a.Name) {
					continue
				}
				for _, f := range a.Files() {
					if slices.Contains(b.Files(), f) {
						want[f+" "+a.Name] = true
					}
				}
			}
		}
		got := map[string]bool{}
		for _, c := range g.Conflicts() {
			for _, name := range c.Issues {
				got[c.File+" "+name] = true
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("conflicts %v, want %v", got, want)
		}
	})
}

func TestDownstreamIsWhatReaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, g := draw(t)
		for _, a := range g.Issues() {
			for _, b := range g.Issues() {
				if slices.Contains(g.Downstream(a.Name), b.Name) != reaches(g, a.Name, b.Name) {
					t.Fatalf("downstream of %s: %v", a.Name, g.Downstream(a.Name))
				}
			}
		}
	})
}
