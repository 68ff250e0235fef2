package graph

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// standing has issues stand as the lists of names say; the others are pending.
func standing(busy, landed, dead, used string) State {
	return State{
		Of: func(name string) Standing {
			switch {
			case in(busy)(name):
				return Busy
			case in(landed)(name):
				return Landed
			case in(dead)(name):
				return Dead
			}
			return Pending
		},
		Used: in(used),
	}
}

// drawn is a graph as "a b:a" by number.
func drawn(g *Graph) string {
	var parts []string
	for _, is := range g.Issues() {
		part := is.Name
		if len(is.DependsOn) > 0 {
			part += ":" + strings.Join(is.DependsOn, ",")
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, " ")
}

// refuses wants an *Error with these problems, each named by a part of it.
func refuses(t *testing.T, err error, want []string) {
	t.Helper()
	bad, ok := errors.AsType[*Error](err)
	if !ok {
		t.Fatalf("error %v, want *Error", err)
	}
	if len(bad.Problems) != len(want) {
		t.Fatalf("problems %q, want %q", bad.Problems, want)
	}
	for i, part := range want {
		if !strings.Contains(bad.Problems[i], part) {
			t.Errorf("problem %q does not say %q", bad.Problems[i], part)
		}
	}
}

func TestEdit(t *testing.T) {
	// landed a, running b, failed c; waiting d and, after it, e; f waits for c.
	before := chain("a", "b", "c", "d:a", "e:d", "f:c")
	state := standing("b", "a", "c", "gone")
	depends := func(name string, on ...string) Issue { return Issue{Name: name, DependsOn: on} }
	none := []string{}
	for name, c := range map[string]struct {
		edit   Edit
		want   string   // the graph, empty: refused
		refuse []string // each a part of one problem
	}{
		"nothing":                  {edit: Edit{}, want: "a b c d:a f:c e:d"},
		"remove a leaf":            {edit: Edit{Remove: []string{"e"}}, want: "a b c d:a f:c"},
		"remove and re-point":      {edit: Edit{Remove: []string{"d"}, Update: []Issue{depends("e", "a")}}, want: "a b c f:c e:a"},
		"remove two":               {edit: Edit{Remove: []string{"d", "e"}}, want: "a b c f:c"},
		"skip what others need":    {edit: Edit{Skip: []string{"d"}}, want: "a b c d:a f:c e:d"},
		"take dependencies away":   {edit: Edit{Update: []Issue{{Name: "f", DependsOn: none}}}, want: "a b c d:a f e:d"},
		"update keeps what is not": {edit: Edit{Update: []Issue{{Name: "e", Title: "T"}}}, want: "a b c d:a f:c e:d"},
		"wait for what runs":       {edit: Edit{Update: []Issue{depends("f", "b")}}, want: "a b c d:a f:b e:d"},
		"build on what landed":     {edit: Edit{Update: []Issue{depends("f", "a")}}, want: "a b c d:a f:a e:d"},
		"waive a failure":          {edit: Edit{Waive: []Waiver{{"f", "c"}}}, want: "a b c d:a f:c e:d"},
		"waive what is skipped":    {edit: Edit{Skip: []string{"d"}, Waive: []Waiver{{"e", "d"}}}, want: "a b c d:a f:c e:d"},
		"depend on a waived failure": {
			edit: Edit{Update: []Issue{depends("d", "c")}, Waive: []Waiver{{"d", "c"}}}, want: "a b c d:c f:c e:d",
		},
		"add in the place of a failure": {
			edit: Edit{Add: []Issue{depends("c-again", "a")}, Update: []Issue{depends("f", "c-again")}}, want: "a b c d:a f:c-again e:d c-again:a",
		},
		"add with a waiver": {
			edit: Edit{Add: []Issue{depends("new", "c")}, Waive: []Waiver{{"new", "c"}}}, want: "a b c d:a f:c e:d new:c",
		},
		"a number is not the planner's": {edit: Edit{Add: []Issue{{Name: "new", Number: 1}}}, want: "a b c d:a f:c e:d new"},

		"remove an unknown one":     {edit: Edit{Remove: []string{"ghost"}}, refuse: []string{`remove "ghost": there is no such issue`}},
		"remove what runs":          {edit: Edit{Remove: []string{"b"}}, refuse: []string{`remove "b": it has started or ended`}},
		"remove what landed":        {edit: Edit{Remove: []string{"a"}}, refuse: []string{`remove "a": it has started`, `"d" still depends on "a"`}},
		"remove what failed":        {edit: Edit{Remove: []string{"c"}}, refuse: []string{`remove "c": it has started`, `"f" still depends on "c"`}},
		"remove what is needed":     {edit: Edit{Remove: []string{"d"}}, refuse: []string{`"e" still depends on "d", which is removed`}},
		"skip what runs":            {edit: Edit{Skip: []string{"b"}}, refuse: []string{`skip "b": it has started`}},
		"skip an unknown one":       {edit: Edit{Skip: []string{"ghost"}}, refuse: []string{`skip "ghost": there is no such issue`}},
		"update what runs":          {edit: Edit{Update: []Issue{{Name: "b", Title: "T"}}}, refuse: []string{`update "b": it has started`}},
		"update what landed":        {edit: Edit{Update: []Issue{{Name: "a", Title: "T"}}}, refuse: []string{`update "a": it has started`}},
		"update what failed":        {edit: Edit{Update: []Issue{{Name: "c", Title: "T"}}}, refuse: []string{`update "c": it has started`}},
		"update an unknown one":     {edit: Edit{Update: []Issue{{Name: "ghost"}}}, refuse: []string{`update "ghost": there is no such issue`}},
		"update twice":              {edit: Edit{Update: []Issue{{Name: "e"}, {Name: "e"}}}, refuse: []string{`update "e": it is changed twice`}},
		"update what is removed":    {edit: Edit{Remove: []string{"e"}, Update: []Issue{{Name: "e"}}}, refuse: []string{`update "e": it is changed twice`}},
		"update what is skipped":    {edit: Edit{Skip: []string{"e"}, Update: []Issue{{Name: "e"}}}, refuse: []string{`update "e": it is changed twice`}},
		"depend on a failure":       {edit: Edit{Update: []Issue{depends("e", "c")}}, refuse: []string{`"e" depends on "c", which will not land`}},
		"depend on what is skipped": {edit: Edit{Skip: []string{"d"}, Update: []Issue{depends("e", "d")}}, refuse: []string{`"e" depends on "d", which will not land`}},
		"depend on what is removed": {edit: Edit{Remove: []string{"f"}, Update: []Issue{depends("e", "f")}}, refuse: []string{`"e" still depends on "f"`}},
		"depend on an unknown one":  {edit: Edit{Update: []Issue{depends("e", "ghost")}}, refuse: []string{`"e" depends on "ghost", which is not in the plan`}},
		"make a circle":             {edit: Edit{Update: []Issue{depends("d", "e")}}, refuse: []string{"circle: d, e"}},
		"depend on itself":          {edit: Edit{Update: []Issue{depends("d", "d")}}, refuse: []string{"circle: d"}},
		"add a name in the graph":   {edit: Edit{Add: []Issue{{Name: "e"}}}, refuse: []string{`add "e": the name was used before`}},
		"add a name that left it":   {edit: Edit{Add: []Issue{{Name: "gone"}}}, refuse: []string{`add "gone": the name was used before`}},
		"add a name twice":          {edit: Edit{Add: []Issue{{Name: "new"}, {Name: "new"}}}, refuse: []string{`"new" is used twice`}},
		"add a hostile name":        {edit: Edit{Add: []Issue{{Name: "../x"}}}, refuse: []string{`"../x"`}},
		"add below a failure":       {edit: Edit{Add: []Issue{depends("new", "c")}}, refuse: []string{`"new" depends on "c", which will not land`}},
		"add what is removed":       {edit: Edit{Remove: []string{"e"}, Add: []Issue{{Name: "e"}}}, refuse: []string{`add "e": the name was used before`}},
		"waive for what runs":       {edit: Edit{Waive: []Waiver{{"b", "c"}}}, refuse: []string{`waive "b": it is no issue that waits`}},
		"waive for an unknown one":  {edit: Edit{Waive: []Waiver{{"ghost", "c"}}}, refuse: []string{`waive "ghost": it is no issue that waits`}},
		"waive for what is removed": {edit: Edit{Remove: []string{"f"}, Waive: []Waiver{{"f", "c"}}}, refuse: []string{`waive "f": it is no issue that waits`}},
		"waive for what is skipped": {edit: Edit{Skip: []string{"f"}, Waive: []Waiver{{"f", "c"}}}, refuse: []string{`waive "f": it is no issue that waits`}},
		"waive what is not needed":  {edit: Edit{Waive: []Waiver{{"e", "c"}}}, refuse: []string{`waive "e": it does not depend on "c"`}},
		"waive what may land":       {edit: Edit{Waive: []Waiver{{"e", "d"}}}, refuse: []string{`waive "e": "d" has not failed`}},
		"waive what landed":         {edit: Edit{Waive: []Waiver{{"d", "a"}}}, refuse: []string{`waive "d": "a" has not failed`}},
		"everything that is wrong": {
			edit:   Edit{Remove: []string{"ghost"}, Skip: []string{"b"}, Update: []Issue{{Name: "a"}}, Add: []Issue{{Name: "gone"}}, Waive: []Waiver{{"e", "d"}}},
			refuse: []string{`remove "ghost"`, `skip "b"`, `update "a"`, `add "gone"`, `waive "e"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustNew(t, before)
			was := drawn(g)
			out, err := g.Apply(c.edit, state)
			if c.want == "" {
				refuses(t, err, c.refuse)
			} else if err != nil {
				t.Fatal(err)
			} else if got := drawn(out); got != c.want {
				t.Errorf("the graph is %q, want %q", got, c.want)
			}
			if got := drawn(g); got != was {
				t.Errorf("the graph before is now %q", got)
			}
		})
	}
}

func TestEditThatLeavesNothing(t *testing.T) {
	_, err := mustNew(t, chain("a")).Apply(Edit{Remove: []string{"a"}}, standing("", "", "", ""))
	refuses(t, err, []string{"no issues"})
}

func TestUpdateReplacesWhatIsSet(t *testing.T) {
	whole := Issue{
		Name: "a", Title: "t", Description: "d", AcceptanceCriteria: []Criterion{{Text: "c"}}, DependsOn: []string{"z"}, Provides: []string{"p"},
		FilesToCreate: []string{"n"}, FilesToModify: []string{"m"}, Complexity: "small", TestingStrategy: "s", TargetRepo: "r", ParentName: "q",
		Guidance: Guidance{ReviewFocus: "f"}, Number: 2,
	}
	other := Issue{
		Name: "a", Title: "T", Description: "D", AcceptanceCriteria: []Criterion{{Text: "C"}}, DependsOn: []string{}, Provides: []string{},
		FilesToCreate: []string{}, FilesToModify: []string{"M"}, Complexity: "large", TestingStrategy: "S", TargetRepo: "R", ParentName: "Q",
		Guidance: Guidance{ReviewFocus: "F"}, Number: 9,
	}
	all := other
	all.TargetRepo, all.ParentName, all.Number = "r", "q", 2 // these are not the Replanner's
	for name, c := range map[string]struct{ update, want Issue }{
		"nothing is set":    {Issue{Name: "a"}, whole},
		"everything is set": {other, all},
	} {
		t.Run(name, func(t *testing.T) {
			g, err := mustNew(t, []Issue{whole, {Name: "z", Number: 1}}).Apply(Edit{Update: []Issue{c.update}}, standing("", "", "", ""))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := g.Issue("a"); !reflect.DeepEqual(got, c.want) {
				t.Errorf("\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	before := chain("a", "b", "whole:a,b", "after:whole,b", "last:after,whole")
	for name, c := range map[string]struct {
		parent string
		parts  []Issue
		want   string
		refuse []string
	}{
		"two beside each other": {"whole", chain("x", "y"), "a b after:b,x,y last:after,x,y x:a,b y:a,b", nil},
		"one after the other":   {"whole", chain("y:x", "x"), "a b after:b,y,x last:after,y,x x:a,b y:x,a,b", nil},
		"one that needs less":   {"whole", chain("x:b"), "a b after:b,x last:after,x x:b,a", nil},
		"a leaf":                {"last", chain("x", "y"), "a b whole:a,b after:whole,b x:after,whole y:after,whole", nil},
		"a number of its own":   {"last", []Issue{{Name: "x", Number: 3}}, "a b whole:a,b after:whole,b x:after,whole", nil},

		"no parts":                     {"whole", nil, "", []string{`split "whole": there are no sub-issues`}},
		"an unknown parent":            {"ghost", chain("x"), "", []string{`split "ghost": there is no such issue`}},
		"the parent's name":            {"whole", chain("whole", "x"), "", []string{`"whole": the name was used before`}},
		"a name in the graph":          {"whole", chain("x", "last"), "", []string{`"last": the name was used before`}},
		"a name that left it":          {"whole", chain("gone"), "", []string{`"gone": the name was used before`}},
		"a name twice":                 {"whole", chain("x", "x"), "", []string{`"x" is used twice`}},
		"a hostile name":               {"whole", chain("x;rm"), "", []string{`"x;rm"`}},
		"what depends on the parent":   {"whole", chain("x:after"), "", []string{`"x" depends on "after", which is neither beside it nor a dependency of "whole"`}},
		"the parent itself":            {"whole", chain("x:whole"), "", []string{`"x" depends on "whole"`}},
		"an unknown dependency":        {"whole", chain("x:ghost"), "", []string{`"x" depends on "ghost"`}},
		"a circle":                     {"whole", chain("x:y", "y:x"), "", []string{"circle: x, y"}},
		"itself":                       {"whole", chain("x:x"), "", []string{"circle: x"}},
		"several things that are none": {"whole", chain("last", "x:ghost"), "", []string{`"last": the name`, `"x" depends on "ghost"`}},
	} {
		t.Run(name, func(t *testing.T) {
			g := mustNew(t, before)
			was := drawn(g)
			out, err := g.Split(c.parent, c.parts, in("gone"))
			if got := drawn(g); got != was {
				t.Errorf("the graph before is now %q", got)
			}
			if c.want == "" {
				refuses(t, err, c.refuse)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := drawn(out); got != c.want {
				t.Errorf("the graph is %q, want %q", got, c.want)
			}
			for _, part := range c.parts {
				if is, _ := out.Issue(part.Name); is.ParentName != c.parent || is.Number <= 5 {
					t.Errorf("%s has the parent %q and the number %d", is.Name, is.ParentName, is.Number)
				}
			}
		})
	}
}

func TestNumbersOfIssuesThatLeftAreNotGivenAgain(t *testing.T) {
	free := standing("", "", "", "")
	g := mustNew(t, chain("a", "b", "c"))
	for _, edit := range []Edit{{Remove: []string{"c"}}, {Add: []Issue{{Name: "d"}}}, {Remove: []string{"d"}}, {Add: []Issue{{Name: "e"}}}} {
		var err error
		if g, err = g.Apply(edit, free); err != nil {
			t.Fatal(err)
		}
	}
	g, err := g.Split("e", chain("f", "g"), in(""))
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for _, is := range g.Issues() {
		numbers = append(numbers, is.Number)
	}
	if !slices.Equal(numbers, []int{1, 2, 6, 7}) {
		t.Errorf("the numbers are %v: 3, 4 and 5 were given to c, d and e", numbers)
	}
}

// A decision is read from its record: an update that takes all dependencies away
// has to do so there too.
func TestAnEmptyListIsRecorded(t *testing.T) {
	for name, is := range map[string]Issue{
		"none":  {Name: "a"},
		"empty": {Name: "a", DependsOn: []string{}, Provides: []string{}, FilesToCreate: []string{}, FilesToModify: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := json.Marshal(is)
			var read Issue
			if err = errors.Join(err, json.Unmarshal(text, &read)); err != nil || !reflect.DeepEqual(read, is) {
				t.Errorf("%+v became %+v: %v", is, read, err)
			}
		})
	}
}
