package eval

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/finding"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const (
	fixtureText = "-- a.go --\npackage a\n\nvar x = 1\n"
	patchText   = "diff --git a/a.go b/a.go\n--- a/a.go\n+++ b/a.go\n@@ -1,3 +1,3 @@\n package a\n \n-var x = 1\n+var x = 2\n"
	suiteText   = `experiment: trial
targets:
  - name: fast
    runtime: command
cases:
  - id: one
    kind: review
    fixture: a.txtar
    diff: one.patch
    graders:
      - grader: finding_match
        truth: [{file: a.go, start_line: 3, kind: wrong_default, lens: correctness}]
  - id: clean
    kind: review
    fixture: a.txtar
    diff: one.patch
    graders: [{grader: finding_match, truth: []}]
`
)

// newSuite writes a suite and its files, and returns the suite's path.
func newSuite(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string]string{"suite.yaml": text, "a.txtar": fixtureText, "one.patch": patchText, "empty.txtar": "nothing\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	return filepath.Join(dir, "suite.yaml")
}

// TestSuiteMistakes are what people write and mean something else by.
func TestSuiteMistakes(t *testing.T) {
	if s, err := Read(newSuite(t, suiteText)); err != nil || len(s.Cases) != 2 || s.Cases[0].Files["a.go"] == "" || s.Cases[0].Language() != "Go" || s.Cases[1].Grader.Truth == nil {
		t.Fatalf("a good one: %+v: %v", s, err)
	}
	for name, row := range map[string]struct{ from, to, want string }{
		"a slip of a key":          {"experiment:", "experimnt:", "suite.yaml:1: experimnt: unknown key"},
		"a slip within a case":     {"    fixture: a.txtar\n    diff: one.patch\n    graders:\n", "    fixture: a.txtar\n    dif: x\n    diff: one.patch\n    graders:\n", "suite.yaml:9: dif: unknown key"},
		"a slip within a grader":   {"truth: []}", "truht: []}", "suite.yaml:17: truht: unknown key"},
		"a slip within a truth":    {"start_line: 3", "line: 3", "suite.yaml:12: line: unknown key"},
		"prompts":                  {"cases:", "prompts: [a]\ncases:", "suite.yaml:5: prompts: unknown key"},
		"a word for a number":      {"experiment: trial", "experiment: trial\nrepeat: often", "suite.yaml:2: "},
		"not YAML":                 {"experiment: trial", "experiment: [", "suite.yaml:"},
		"a build":                  {"kind: review", "kind: build", `suite.yaml:6: kind: "build" is not supported; there is: review`},
		"a grader of a person":     {"- grader: finding_match", "- grader: rubric", `suite.yaml:11: grader: "rubric" is not supported; there is: finding_match`},
		"a command as a grader":    {"- grader: finding_match", "- command: go test", `suite.yaml:11: grader: "" is not supported`},
		"no grader":                {"graders: [{grader: finding_match, truth: []}]", "graders: []", "suite.yaml:13: graders: want one, got 0"},
		"two with one id":          {"id: clean", "id: one", `cases: "one" is there twice`},
		"an id with a slash":       {"id: clean", "id: a/b", "suite.yaml:13: id: want up to 64"},
		"a fixture that is none":   {"fixture: a.txtar", "fixture: empty.txtar", "suite.yaml:6: one: fixture: empty.txtar is not a txtar archive"},
		"a file that is not":       {"diff: one.patch", "diff: two.patch", "suite.yaml:6: one: diff: open"},
		"a base of nothing":        {"fixture: a.txtar", "fixture: a.txtar\n    base: main", "suite.yaml:6: base: it is a commit of a repo"},
		"two origins":              {"fixture: a.txtar", "fixture: a.txtar\n    repo: .", "suite.yaml:6: fixture: give a fixture or a repo"},
		"a truth nowhere":          {"start_line: 3", "start_line: 0", "suite.yaml:11: truth: want a file"},
		"a truth that runs back":   {"start_line: 3", "start_line: 3, end_line: 2", "suite.yaml:11: truth: want a file"},
		"more than all":            {"cases:", "threshold: {recall: 1.5}\ncases:", "threshold.recall: want 0 to 1, got 1.5"},
		"money that is none":       {"cases:", "budget_usd: -1\ncases:", "budget_usd: want an amount"},
		"recordings of nobody":     {"runtime: command", "runtime: command\n    recordings: x", "recordings are what runtime replay plays"},
		"replay of nothing":        {"runtime: command", "runtime: replay", "runtime replay wants recordings"},
		"a tolerance below zero":   {"- grader: finding_match", "- grader: finding_match\n        tolerance: -1", "tolerance: want lines, got -1"},
		"an experiment like a dir": {"experiment: trial", "experiment: ../x", `experiment: want a name`},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(suiteText, row.from, row.to, 1)
			if text == suiteText {
				t.Fatal("nothing was replaced")
			}
			if _, err := Read(newSuite(t, text)); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v\nwant %s", err, row.want)
			}
		})
	}
}

func at(path string, lines ...int) finding.Entry {
	e := finding.Entry{Finding: finding.Finding{Path: path, StartLine: lines[0]}, Lens: "correctness"}
	if len(lines) > 1 {
		e.EndLine = lines[1]
	}
	return e
}

// TestGrade says what names a fault and what does not.
func TestGrade(t *testing.T) {
	truth := []Truth{{File: "a.go", StartLine: 10, EndLine: 12, Kind: "race", Lens: "correctness"}}
	zero := 0
	old := at("a.go", 10)
	old.Side = finding.OldSide
	for name, row := range map[string]struct {
		match              FindingMatch
		open               []finding.Entry
		right, wrong, miss int
		again              int
	}{
		"on it":                          {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 11)}, 1, 0, 0, 0},
		"around it":                      {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 2, 40)}, 1, 0, 0, 0},
		"two lines before":               {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 8)}, 1, 0, 0, 0},
		"two lines after":                {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 14)}, 1, 0, 0, 0},
		"three lines after":              {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 15)}, 0, 1, 1, 0},
		"exactly, where that is asked":   {FindingMatch{Truth: truth, Tolerance: &zero}, []finding.Entry{at("a.go", 9)}, 0, 1, 1, 0},
		"in another file":                {FindingMatch{Truth: truth}, []finding.Entry{at("b.go", 11)}, 0, 1, 1, 0},
		"of the file as a whole":         {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 0)}, 0, 1, 1, 0},
		"on a line that was removed":     {FindingMatch{Truth: truth}, []finding.Entry{old}, 0, 1, 1, 0},
		"twice":                          {FindingMatch{Truth: truth}, []finding.Entry{at("a.go", 10), at("a.go", 12)}, 1, 1, 0, 1},
		"nothing":                        {FindingMatch{Truth: truth}, nil, 0, 0, 1, 0},
		"nothing, and nothing was there": {FindingMatch{}, nil, 0, 0, 0, 0},
		"something that is not there":    {FindingMatch{}, []finding.Entry{at("a.go", 1)}, 0, 1, 0, 0},
		"by the wrong lens":              {FindingMatch{Truth: []Truth{{File: "a.go", StartLine: 10, Kind: "race", Lens: "tests"}}, SameLens: true}, []finding.Entry{at("a.go", 10)}, 0, 1, 1, 0},
		// The first finding fits both faults and the second only one: who pairs them as
		// they come finds one.
		"two faults side by side": {FindingMatch{Truth: []Truth{{File: "a.go", StartLine: 10, Kind: "a"}, {File: "a.go", StartLine: 13, Kind: "b"}}},
			[]finding.Entry{at("a.go", 12), at("a.go", 9)}, 2, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := row.match.Grade(row.open, "Go")
			again := 0
			for _, c := range g.False {
				if c.Again {
					again++
				}
			}
			if len(g.Matches) != row.right || len(g.False) != row.wrong || len(g.Missed) != row.miss || again != row.again || g.Passed != (row.wrong+row.miss == 0) {
				t.Errorf("%+v", g)
			}
		})
	}
}

// TestIntervals compares with values that others published: Wilson's for 8 of 10 is
// in many text books, and the ends are those of Brown, Cai and DasGupta (2001).
func TestIntervals(t *testing.T) {
	for _, row := range []struct {
		hits, of  int
		low, high float64
	}{{8, 10, 0.4902, 0.9433}, {0, 10, 0, 0.2775}, {10, 10, 0.7225, 1}, {81, 263, 0.2553, 0.3662}} {
		got := wilson(row.hits, row.of)
		if math.Abs(got.Low-row.low) > 5e-4 || math.Abs(got.High-row.high) > 5e-4 {
			t.Errorf("%d of %d: %+v, want %.4f to %.4f", row.hits, row.of, got, row.low, row.high)
		}
	}
	if wilson(0, 0) != nil || bootstrap(nil) != nil {
		t.Error("an estimate of nothing")
	}
	var all []Grading
	for i := range 40 { // each third case is missed, each fifth has a false alarm
		g := Grading{Language: "Go"}
		if i%3 == 0 {
			g.Missed = make([]Truth, 1)
		} else {
			g.Matches = make([]Match, 1)
		}
		if i%5 == 0 {
			g.False = make([]Claim, 1)
		}
		all = append(all, g)
	}
	first, second := bootstrap(all), bootstrap(all)
	if *first != *second {
		t.Errorf("two intervals of the same: %+v %+v", first, second)
	}
	// 26 found, 14 missed, 8 false: F1 is 52/74. The interval has to be around it and
	// about as wide as 40 cases allow.
	if math.Abs(first.Value-52.0/74) > 1e-12 || first.Low >= first.Value || first.High <= first.Value || first.High-first.Low < 0.1 || first.High-first.Low > 0.4 {
		t.Errorf("%+v", first)
	}
	sure := bootstrap([]Grading{{Matches: make([]Match, 1)}, {Matches: make([]Match, 1)}})
	if *sure != (Range{1, 1, 1}) {
		t.Errorf("%+v", sure)
	}
}
