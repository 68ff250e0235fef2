package eval

import (
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"
)

// TestPairsAreAsManyAsPossible compares with a look at every way to pair.
func TestPairsAreAsManyAsPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left, right := rapid.IntRange(0, 5).Draw(t, "left"), rapid.IntRange(0, 5).Draw(t, "right")
		fits := make([]bool, left*right)
		for i := range fits {
			fits[i] = rapid.Bool().Draw(t, "fits")
		}
		fit := func(l, r int) bool { return fits[l*right+r] }
		of := pair(left, right, fit)
		taken, got := map[int]bool{}, 0
		for l, r := range of {
			if r < 0 {
				continue
			}
			if taken[r] || !fit(l, r) {
				t.Fatalf("%d with %d: %v", l, r, of)
			}
			taken[r], got = true, got+1
		}
		var most func(l int, used int) int
		most = func(l, used int) int {
			if l == left {
				return 0
			}
			best := most(l+1, used)
			for r := range right {
				if fit(l, r) && used&(1<<r) == 0 {
					best = max(best, 1+most(l+1, used|1<<r))
				}
			}
			return best
		}
		if want := most(0, 0); got != want {
			t.Fatalf("%d pairs of %d", got, want)
		}
	})
}

// TestWilsonIsAnInterval holds it to what an interval is.
func TestWilsonIsAnInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := rapid.IntRange(1, 10_000).Draw(t, "of")
		hits := rapid.IntRange(0, of).Draw(t, "hits")
		r, more := wilson(hits, of), wilson(hits*4, of*4)
		if r.Low < 0 || r.High > 1 || r.Low > r.Value || r.High < r.Value {
			t.Fatalf("%+v", r)
		}
		if more.High-more.Low > r.High-r.Low+1e-9 {
			t.Fatalf("four times as many make it wider: %+v %+v", r, more)
		}
	})
}

// FuzzSuite reads what anybody may have written: it is refused, or a suite that says
// what it is.
func FuzzSuite(f *testing.F) {
	f.Add([]byte(suiteText))
	f.Add([]byte("experiment: a\ncases: [{id: a, kind: review, graders: [{grader: finding_match, truth: [{}]}]}]\n"))
	f.Add([]byte("cases: [[], {graders: [x]}]\ntargets: [1]\nvariants: {a: b}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		file := filepath.Join(dir, "suite.yaml")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "one.patch"), []byte(patchText), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "a.txtar"), []byte(fixtureText), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Read(file)
		if err == nil && (s.Experiment == "" || len(s.Cases) == 0 || s.Digest == "" || s.Cases[0].Kind != KindReview) {
			t.Errorf("%+v", s)
		}
	})
}
