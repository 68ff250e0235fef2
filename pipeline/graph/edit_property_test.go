package graph

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// stood draws where the issues of a graph stand. What has started has its
// dependencies landed, as it is in a build.
func stood(t *rapid.T, g *Graph) map[string]Standing {
	standings := map[string]Standing{}
	for _, level := range g.Levels() {
		for _, name := range level {
			is, _ := g.Issue(name)
			ready := !slices.ContainsFunc(is.DependsOn, func(d string) bool { return standings[d] != Landed })
			if ready {
				standings[name] = rapid.SampledFrom([]Standing{Pending, Busy, Landed, Landed, Dead}).Draw(t, name)
			}
		}
	}
	return standings
}

// someOf draws names, often of issues.
func someOf(t *rapid.T, what string, names []string, most int) []string {
	return rapid.SliceOfN(rapid.SampledFrom(append(slices.Clone(names), "ghost", "new-0", "new-1")), 0, most).Draw(t, what)
}

// Whatever is asked for: what has started stays as it is, nothing is lost that
// was not removed, nothing is left hanging, and no number is given twice.
func TestEditsTouchOnlyWhatWaits(t *testing.T) {
	done, refused := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		_, g := draw(t)
		standings := stood(t, g)
		all := names(g.Issues())
		e := Edit{Remove: someOf(t, "remove", all, 1), Skip: someOf(t, "skip", all, 1)}
		for _, name := range someOf(t, "update", all, 2) {
			u := Issue{Name: name, Title: "other"}
			if rapid.Bool().Draw(t, "re-pointed") {
				u.DependsOn = someOf(t, "to", all, 2)
			}
			e.Update = append(e.Update, u)
		}
		for _, name := range []string{"new-0", "new-1"}[:rapid.IntRange(0, 2).Draw(t, "added")] {
			e.Add = append(e.Add, Issue{Name: name, DependsOn: someOf(t, "below", all, 2)})
		}
		for range rapid.IntRange(0, 1).Draw(t, "waivers") {
			w := Waiver{IssueName: rapid.SampledFrom(all).Draw(t, "waives")}
			if is, _ := g.Issue(w.IssueName); len(is.DependsOn) > 0 {
				w.DependsOn = rapid.SampledFrom(is.DependsOn).Draw(t, "what")
			}
			e.Waive = append(e.Waive, w)
		}
		before := g.Issues()
		out, err := g.Apply(e, State{Of: func(n string) Standing { return standings[n] }, Used: in("")})
		if !reflect.DeepEqual(g.Issues(), before) {
			t.Fatal("the graph before was changed")
		}
		if err != nil {
			refused++
			return
		}
		done++
		last := 0
		for _, was := range before {
			last = max(last, was.Number)
			is, still := out.Issue(was.Name)
			switch removed := slices.Contains(e.Remove, was.Name); {
			case standings[was.Name] != Pending && !reflect.DeepEqual(is, was):
				t.Fatalf("%s had started, and was changed:\n%+v\n%+v", was.Name, was, is)
			case still == removed:
				t.Fatalf("%s: removed %v, still there %v", was.Name, removed, still)
			case still && is.Number != was.Number:
				t.Fatalf("%s had number %d, now %d", was.Name, was.Number, is.Number)
			}
		}
		for _, is := range out.Issues() {
			if _, old := g.Issue(is.Name); !old && (is.Number <= last || !slices.ContainsFunc(e.Add, func(o Issue) bool { return o.Name == is.Name })) {
				t.Fatalf("%s came in, number %d", is.Name, is.Number)
			}
			whole(t, out, is)
		}
	})
	if done == 0 || refused == 0 {
		t.Errorf("%d edits were done and %d refused", done, refused)
	}
}

// whole wants the dependencies of an issue to be there and not to need it.
func whole(t *rapid.T, g *Graph, is Issue) {
	for _, d := range is.DependsOn {
		if _, known := g.Issue(d); !known || d == is.Name || slices.Contains(g.Downstream(is.Name), d) {
			t.Fatalf("%s depends on %s", is.Name, d)
		}
	}
}

// The parts are where the whole was: below all that it needed, above all that
// needed it. The rest is as it was.
func TestPartsAreWhereTheWholeWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, g := draw(t)
		parent := rapid.SampledFrom(g.Issues()).Draw(t, "parent")
		parts := []Issue{{Name: "p0"}, {Name: "p1"}, {Name: "p2"}}[:rapid.IntRange(1, 3).Draw(t, "parts")]
		for i := range parts {
			for _, d := range slices.Concat(names(parts[:i]), parent.DependsOn) {
				if rapid.Bool().Draw(t, "needs") {
					parts[i].DependsOn = append(parts[i].DependsOn, d)
				}
			}
		}
		above, below := g.Downstream(parent.Name), parent.DependsOn
		out, err := g.Split(parent.Name, parts, in(""))
		if err != nil {
			t.Fatal(err)
		}
		if _, still := out.Issue(parent.Name); still {
			t.Fatalf("%s is still there", parent.Name)
		}
		last := g.Issues()[len(g.Issues())-1].Number
		for _, part := range parts {
			is, known := out.Issue(part.Name)
			if !known || is.ParentName != parent.Name || is.Number <= last {
				t.Fatalf("the part %+v", is)
			}
			for _, d := range below {
				if !slices.Contains(is.DependsOn, d) {
					t.Fatalf("%s does not depend on %s", is.Name, d)
				}
			}
			for _, name := range above {
				if !slices.Contains(out.Downstream(is.Name), name) {
					t.Fatalf("%s does not depend on %s", name, is.Name)
				}
			}
		}
		for _, was := range g.Issues() {
			is, _ := out.Issue(was.Name)
			whole(t, out, is)
			if is.DependsOn = was.DependsOn; was.Name != parent.Name && !reflect.DeepEqual(is, was) {
				t.Fatalf("%s was changed:\n%+v\n%+v", was.Name, was, is)
			}
		}
	})
}
