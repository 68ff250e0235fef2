package pipeline

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// seen is what the repository's test command prints of the files that it tests:
// nothing else in the journal says which tree a result is of.
const seen = "cat *.txt 2>/dev/null | cksum"

// onlyTested wants every commit that the integration branch was moved to by a
// landing to hold just what the commands passed on before. The repository's
// command has to print what it sees.
func (w *world) onlyTested() {
	w.t.Helper()
	entries, err := w.log.Entries(w.t.Context(), "job", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	passed := map[string]bool{}
	moves := 0
	for _, e := range entries {
		key, _ := cutSegment(e.Key)
		switch {
		case strings.HasPrefix(key, "land/") && strings.HasSuffix(key, "/advanced"):
			var a advanced
			if err := json.Unmarshal(e.Outcome, &a); err != nil {
				w.t.Fatal(err)
			}
			if len(a.Landed) == 0 {
				continue
			}
			moves++
			if now := w.print(a.Head); !passed[now] {
				w.t.Errorf("%s moves the branch to what no command has passed on: %s", e.Key, now)
			}
		case strings.Contains(key, "/commands"):
			var r evidence.Result
			if err := json.Unmarshal(e.Outcome, &r); err != nil {
				w.t.Fatal(err)
			}
			if r.Green() {
				passed[strings.TrimSpace(r.Commands[0].Output)] = true
			}
		}
	}
	if moves == 0 {
		w.t.Error("nothing landed")
	}
}

// print is what seen prints on a commit.
func (w *world) print(commit string) string {
	w.t.Helper()
	mirror, err := w.engine.Mirror(w.t.Context(), worldRepo())
	if err != nil {
		w.t.Fatal(err)
	}
	dir := w.t.TempDir()
	if err := mirror.Checkout(w.t.Context(), commit, dir); err != nil {
		w.t.Fatal(err)
	}
	cmd := exec.CommandContext(w.t.Context(), "sh", "-c", seen)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// checks makes the repository's test command print what it sees and then run
// the script, whose last command decides.
func (w *world) checks(script string) {
	w.t.Helper()
	w.write("check.sh", seen+"\n"+script+"\n")
	w.commit()
}

// together makes the issues of a level land at once.
func (w *world) together(more string) {
	w.configure("pipeline: {barrier: level" + more + "}")
}

// advances are the records of what came of each landing.
func (w *world) advances() []advanced { return w.fold().came }

func TestTheIntegrationTestersTestsAreCommittedWithTheMerge(t *testing.T) {
	w := newWorld(t, issue("a", []string{"list"}), issue("b", []string{"list"}))
	w.checks("test ! -e red.txt")
	w.write("list", "top\n")
	w.commit()
	w.code["a"], w.code["b"] = appendTo("list", "from a"), appendTo("list", "from b")
	w.when("merger", func(_ context.Context, c runtime.Call) (any, error) {
		if err := os.WriteFile(filepath.Join(c.Dir, "list"), []byte("top\nfrom a\nfrom b\n"), 0o644); err != nil {
			return nil, err
		}
		return Merged{Success: true, Summary: "both kept", NeedsIntegrationTest: true}, nil
	})
	w.when("integration_tester", func(_ context.Context, c runtime.Call) (any, error) {
		if text, err := os.ReadFile(filepath.Join(c.Dir, "list")); err != nil || string(text) != "top\nfrom a\nfrom b\n" {
			t.Errorf("the Integration Tester sees %q, %v", text, err)
		}
		return IntegrationResult{Passed: true, TestsWritten: []string{"list_test.txt"}, Summary: "they fit"},
			os.WriteFile(filepath.Join(c.Dir, "list_test.txt"), []byte("both\n"), 0o644)
	})
	b := w.must(report.Succeeded)
	if w.file(b, "list_test.txt") == "" {
		t.Error("the tests are not on the branch")
	}
	came := w.advances()
	if last := came[len(came)-1]; !slices.Equal(last.Tests, []string{"list_test.txt"}) || w.asked("integration_tester") != 1 {
		t.Errorf("tests %v after %d calls", last.Tests, w.asked("integration_tester"))
	}
	w.onlyTested()
}

// A merge that is red is mended by the Merger as often as it may; a repair that
// does not help is thrown away.
func TestARedCandidateIsMended(t *testing.T) {
	for name, c := range map[string]struct {
		conf   string
		helps  int // which attempt does
		landed int
		asked  int
	}{
		"at the first attempt":   {", max_integration_test_retries: 1", 1, 2, 1},
		"at the second":          {", max_integration_test_retries: 2", 2, 2, 2},
		"too late":               {", max_integration_test_retries: 1", 2, 1, 1},
		"nobody is to mend it":   {", max_integration_test_retries: 0", 1, 1, 0},
		"as often as by default": {"", 2, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil), issue("b", nil))
			w.checks("test ! -e a.txt || test ! -e b.txt || test -e glue.txt")
			w.together(c.conf)
			tries := 0
			w.when("merger", func(_ context.Context, call runtime.Call) (any, error) {
				if tries++; !strings.Contains(call.Prompt, "exits with 1") {
					t.Error("the Merger is not told what is red")
				}
				file := "useless.txt"
				if tries == c.helps {
					file = "glue.txt"
				}
				return Merged{Success: true, Summary: "glued"}, os.WriteFile(filepath.Join(call.Dir, file), []byte(call.Step), 0o644)
			})
			w.replans(ReplanDecision{Action: Continue})
			b, err := w.run()
			if err != nil {
				t.Fatal(err)
			}
			landed := 0
			for _, is := range b.Issues {
				if is.Merge != "" {
					landed++
					continue
				}
				w.owes(b, debt.UnmergedWork, is.Name, "exits with 1")
				if w.ref(is.Ref) != is.Commit {
					t.Errorf("the work on %s is not kept", is.Name)
				}
			}
			if landed != c.landed || tries != c.asked || (w.file(b, "glue.txt") != "") != (landed == 2) {
				t.Errorf("%d landed after %d attempts, want %d after %d", landed, tries, c.landed, c.asked)
			}
			if w.file(b, "useless.txt") != "" && landed < 2 {
				t.Error("a repair that did not help is on the branch")
			}
			w.onlyTested()
		})
	}
}

func TestHalvingFindsTheCulpritOfFour(t *testing.T) {
	for _, culprit := range []string{"b", "c", "d"} {
		t.Run(culprit, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil))
			w.checks("test ! -e " + culprit + ".txt || test $(ls [abcd].txt | wc -l) = 1")
			w.together(", max_integration_test_retries: 0")
			w.replans(ReplanDecision{Action: Continue})
			b := w.must(report.SucceededWithDebt)
			for _, is := range b.Issues {
				want := report.Completed
				if is.Name == culprit {
					want = report.FailedEscalated
				}
				if is.Outcome != want {
					t.Errorf("%s is %s, want %s", is.Name, is.Outcome, want)
				}
			}
			if n := w.asked("merger") + w.asked("integration_tester"); n != 0 {
				t.Errorf("%d agents were asked", n)
			}
			w.onlyTested()
		})
	}
}

// What is asked about the whole by the Integration Tester and is red after its
// own tests does not land with them.
func TestTestsThatFailKeepTheirSubjectOut(t *testing.T) {
	a := issue("a", nil)
	a.Guidance.TouchesInterfaces = true
	w := newWorld(t, a, issue("b", nil))
	w.checks("test ! -e red.txt")
	w.together(", max_integration_test_retries: 0")
	w.when("integration_tester", func(_ context.Context, c runtime.Call) (any, error) {
		return IntegrationResult{Passed: true, TestsWritten: []string{"red.txt"}, Summary: "they fit, I say"},
			os.WriteFile(filepath.Join(c.Dir, "red.txt"), nil, 0o644)
	})
	w.replans(ReplanDecision{Action: Continue})
	b := w.must(report.SucceededWithDebt)
	if w.file(b, "red.txt") != "" || w.file(b, "a.txt") != "" && w.file(b, "b.txt") != "" {
		t.Error("what is red with its tests landed all the same")
	}
	w.onlyTested()
}

// a works until b has landed: a landing does not wait for other lanes, and
// stops none. With barriers it waits, and costs no other call.
func TestWhenIssuesLand(t *testing.T) {
	calls := map[string]int{}
	for barrier, want := range map[string][][]string{"none": {{"b"}, {"a"}, {"c"}}, "level": {{"a", "b"}, {"c"}}} {
		w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil, "a"))
		w.checks("true")
		w.configure("pipeline: {barrier: " + barrier + "}")
		other := w.until("land/0001/advanced")
		if barrier == "level" {
			other = w.until("issue-02/kept")
		}
		w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
			if w.nameOf(c.Step) == "a" {
				return nil, await(ctx, other)
			}
			return nil, nil
		})
		b := w.must(report.Succeeded)
		var got [][]string
		for _, a := range w.advances() {
			var names []string
			for _, l := range a.Landed {
				names = append(names, l.Name)
			}
			got = append(got, names)
		}
		if !slices.EqualFunc(got, want, slices.Equal) {
			t.Errorf("barrier %s: landed %v, want %v", barrier, got, want)
		}
		calls[barrier] = b.AgentCalls
		w.onlyTested()
	}
	if calls["none"] != calls["level"] {
		t.Errorf("agent calls by barrier: %v", calls)
	}
}
