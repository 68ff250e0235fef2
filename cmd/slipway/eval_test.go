package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/eval"
	"github.com/slipway-dev/slipway/pipeline/results"
)

var evalAll = flag.Bool("eval-all", false, "run every case of the planted faults, not each fifth")

const planted = "../../testdata/review/suite.yaml"

// TestPlantedFaults reviews planted faults with answers that were written by hand,
// right ones and wrong ones. What each of them has to be graded as was written down
// with it; nothing here says how good a model is.
func TestPlantedFaults(t *testing.T) {
	t.Parallel()
	suite, err := eval.Read(planted)
	must(t, err)
	want := readExpected(t)
	if len(want) != len(suite.Cases) {
		t.Errorf("%d cases, and it is known of %d what is expected", len(suite.Cases), len(want))
	}
	if !*evalAll {
		var some []eval.Case
		for i := 0; i < len(suite.Cases); i += 5 {
			some = append(some, suite.Cases[i])
		}
		suite.Cases = some
	}
	suite.MaxConcurrency = 2
	var total [3]int
	for _, c := range suite.Cases {
		for i, n := range want[c.ID] {
			total[i] += n
		}
	}
	conf, err := config.LoadServer("", []string{"SLIPWAY_STATE_DIR=" + t.TempDir()})
	must(t, err)
	log := (&options{}).logger()
	all, err := app.Evaluation{Suite: suite, Options: eval.Options{
		Root: t.TempDir(), EvalPath: "suite.yaml",
		Heard: func(p eval.Progress) {
			got := [3]int{len(p.Grading.Matches), len(p.Grading.Missed), len(p.Grading.False)}
			if p.Row.State == results.InfraError || got != want[p.Row.TestID] {
				t.Errorf("%s %s: %v found, missed, false, want %v; %s", p.Row.TestID, p.Row.State, got, want[p.Row.TestID], p.Row.Cause)
			}
		},
	}}.Run(t.Context(), conf, log)
	must(t, err)
	o := all[0].Overall
	if got := [3]int{o.TruePositives, o.FalseNegatives, o.FalsePositives}; got != total || !all[0].Complete {
		t.Errorf("%v found, missed, false, want %v", got, total)
	}
	t.Logf("\n%s", all[0].Text())
}

// readExpected reads what is to be found, missed and falsely claimed, by case.
func readExpected(t *testing.T) map[string][3]int {
	t.Helper()
	text, err := os.ReadFile("../../testdata/review/expected.txt")
	must(t, err)
	want := map[string][3]int{}
	for line := range strings.Lines(string(text)) {
		var id string
		var n [3]int
		_, err := fmt.Sscan(line, &id, &n[0], &n[1], &n[2])
		must(t, err)
		want[id] = n
	}
	return want
}

// smallSuite is two cases with recorded answers: a fault that is found, and a
// change without one. The recordings of the second take the delay.
func smallSuite(t *testing.T, more string, delayMS int) string {
	t.Helper()
	dir := t.TempDir()
	quiet := func(step string, delay int) string {
		return fmt.Sprintf("-- %[1]s.json --\n{\"step\": \"review/%[1]s/lens\", \"delay_ms\": %[2]d, \"events\": [], \"result\": {\"output\": {\"findings\": []}}}\n", step, delay)
	}
	write(t, dir, map[string]string{
		"suite.yaml": more + `experiment: small
targets: [{name: recorded, runtime: replay, recordings: answers}]
max_concurrency: 1
variants: [{name: one lens, config: {review: {lenses: [correctness]}}}]
cases:
  - id: bound
    kind: review
    fixture: r.txtar
    diff: one.patch
    graders: [{grader: finding_match, truth: [{file: r.go, start_line: 3, kind: off_by_one, lens: correctness}]}]
  - id: clean
    kind: review
    fixture: r.txtar
    diff: one.patch
    graders: [{grader: finding_match, truth: []}]
`,
		"r.txtar":   "-- r.go --\npackage r\n\nconst limit = 10\n",
		"one.patch": "diff --git a/r.go b/r.go\n--- a/r.go\n+++ b/r.go\n@@ -1,3 +1,3 @@\n package r\n \n-const limit = 10\n+const limit = 9\n",
		"answers/bound.txtar": "-- correctness.json --\n" + `{"step": "review/correctness/lens", "events": [], "result": {"output": {"findings": [{"severity": "high", "path": "r.go", "start_line": 3,
			"title": "One too few", "claim": "The limit hunter22 is one too low."}]}}}` + "\n-- verifier.json --\n" +
			`{"step": "review/verify-01/review_verifier", "events": [], "result": {"output": {"verdicts": [{"id": "f1", "verdict": "confirmed", "confidence": 95, "reason": "It is."}]}}}` + "\n",
		"answers/shared.txtar": quiet("correctness", delayMS) + quiet("audit", 0),
	})
	return filepath.Join(dir, "suite.yaml")
}

// TestEvalAtATerminal is interrupted within its second case, taken up, and judged
// by a threshold.
func TestEvalAtATerminal(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	term := newTerminal(t, "TMPDIR="+temp, "MY_API_KEY=hunter22")
	suite := smallSuite(t, "threshold: {precision: 1, recall: 1}\n", 100_000)
	cmd := term.command("eval", "--json", suite)
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	var done struct {
		Event    string
		Complete bool
		Counts   struct{ Runs, Missing int }
		Overall  struct{ True_positives int }
		Bundle   string
	}
	rows := 0
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		must(t, json.Unmarshal(lines.Bytes(), &done))
		if done.Event == "row" {
			rows++
			must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait() // the code says how
	if code := cmd.ProcessState.ExitCode(); code != 130 || rows != 1 || done.Event != "done" || done.Complete || done.Counts.Runs != 1 || done.Counts.Missing != 1 {
		t.Errorf("exit %d after %d rows: %+v", code, rows, done)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}

	quick := smallSuite(t, "", 0)
	must(t, os.Rename(filepath.Join(filepath.Dir(quick), "answers", "shared.txtar"), filepath.Join(filepath.Dir(suite), "answers", "shared.txtar")))
	got := term.slipway("eval", "--resume", suite)
	for _, want := range []string{"small · recorded · one lens", "precision  1.000 [0.207, 1.000]   1 right, 0 wrong", "2 runs passed, 0 did not, 0 are missing"} {
		if got.code != 0 || !strings.Contains(got.out, want) {
			t.Errorf("exit %d, %q is not in\n%s%s", got.code, want, got.out, got.err)
		}
	}
	if !strings.Contains(got.err, "   1/1  passed       clean") {
		t.Errorf("progress: %s", got.err)
	}
	bundle := filepath.Join(term.state, "results", done.Bundle)
	index, err := os.ReadFile(filepath.Join(bundle, "index.jsonl"))
	if must(t, err); strings.Count(string(index), "\n") != 2 {
		t.Errorf("%s", index)
	}
	outcomes, err := filepath.Glob(filepath.Join(bundle, "bound--*", "run-1", "outcome.json"))
	must(t, err)
	text, err := os.ReadFile(outcomes[0])
	if must(t, err); strings.Contains(string(text), "hunter22") || !strings.Contains(string(text), "The limit [MY_API_KEY] is one too low.") {
		t.Errorf("a key of the environment is in the bundle, or something else is not: %s", text)
	}

	// The second case is one of a repository now, and its change is not clean.
	repo := newRepo(t, map[string]string{"r.go": "package r\n\nconst limit = 10\n"})
	text, err = os.ReadFile(suite)
	must(t, err)
	_, second, _ := strings.Cut(string(text), "- id: clean")
	other := strings.NewReplacer("fixture: r.txtar", "repo: "+repo+"\n    base: main", "truth: []", "truth: [{file: r.go, start_line: 1, kind: race}]").Replace(second)
	must(t, os.WriteFile(suite, []byte(strings.Replace(string(text), second, other, 1)), 0o600))
	cmd = term.command("eval", suite)
	cmd.Dir = repo
	out, _ := cmd.CombinedOutput() // the code says how
	if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(string(out), "threshold  recall 0.500 is below 1.000") {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if status := git(t, repo, "status", "--porcelain"); status != "" {
		t.Errorf("git sees the results: %s", status)
	}
	if _, err := os.Stat(filepath.Join(repo, ".slipway", "results", "small")); err != nil {
		t.Error(err)
	}
}

// TestEvalMistakes is what a person got wrong.
func TestEvalMistakes(t *testing.T) {
	t.Parallel()
	term, suite := newTerminal(t), smallSuite(t, "", 0)
	_, hired := cast{"lens.json": `{"findings":[]}`}.hire(t)
	for name, row := range map[string]struct {
		args []string
		code int
		want string
	}{
		"no suite":               {nil, 2, "eval wants one suite file"},
		"a suite that is not":    {[]string{"nowhere.yaml"}, 2, "nowhere.yaml"},
		"an unknown key":         {[]string{smallSuite(t, "colour: blue\n", 0)}, 2, "suite.yaml:1: colour: unknown key"},
		"an unknown case":        {[]string{suite, "--case", "x"}, 2, `there is no case "x"`},
		"an unknown target":      {[]string{suite, "--target", "x"}, 2, `there is no target "x"; there are: recorded`},
		"an unknown runtime":     {[]string{suite, "--runtime", "x"}, 2, "--runtime: "},
		"a model of nobody":      {[]string{suite, "--model", "x"}, 2, "--model wants --runtime"},
		"two ways to go on":      {[]string{suite, "--resume", "--rerun-failed"}, 2, "give one of them"},
		"nothing to go on with":  {[]string{suite, "--resume", "--results", t.TempDir()}, 5, "there is no evaluation at all of small"},
		"a run and no way":       {[]string{suite, "--run", "x"}, 2, "give --resume"},
		"a case of an old one":   {[]string{suite, "--resume", "--case", "clean"}, 2, "for a new evaluation"},
		"a variant with a slip":  {[]string{strings.Replace(suite, "suite.yaml", "slip.yaml", 1)}, 2, "one lens:1: reviw: unknown key"},
		"recordings of nobody":   {[]string{suite, "--runtime", "replay", "--recordings", t.TempDir()}, 6, "there is no recording of bound"},
		"money for one call":     {append([]string{suite, "--budget", "0.001"}, hired...), 6, "budget_usd is $0.001"},
		"money that is none":     {[]string{suite, "--budget", "-1"}, 2, "--budget -1: want an amount"},
		"a case recorded twice":  {[]string{suite, "--repeat", "2", "--record", t.TempDir()}, 2, "a case is recorded once"},
		"replay without a thing": {[]string{suite, "--runtime", "replay"}, 2, "--recordings is required"},
	} {
		t.Run(name, func(t *testing.T) {
			if strings.Contains(strings.Join(row.args, " "), "slip.yaml") {
				text, err := os.ReadFile(suite)
				must(t, err)
				must(t, os.WriteFile(row.args[0], []byte(strings.Replace(string(text), "review: {lenses", "reviw: {lenses", 1)), 0o600))
			}
			if got := term.slipway(append([]string{"eval"}, row.args...)...); got.code != row.code || !strings.Contains(got.err, row.want) {
				t.Errorf("exit %d, want %d: %s%s\nwant %q", got.code, row.code, got.out, got.err, row.want)
			}
		})
	}
}
