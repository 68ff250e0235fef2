package pipeline

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// What a build learns, and who says it.
const (
	convention = "tests stand beside the code"   // a's Coder
	offer      = "a.Open(name string) error"     // likewise
	fault      = "It leaves the file open"       // a's reviewer, of the first iteration
	failure    = "the library cannot do this"    // f's Issue Advisor
	steering   = "use no floating-point numbers" // a person
)

// learns is a build of a, of b, which needs it, of f, which fails after that, and
// of z, whose second iteration comes when all is learned.
func learns(t *testing.T, conf string) *world {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"), issue("f", nil, "b"), issue("z", nil))
	w.configure(conf)
	failed := w.until("issue-04/kept")
	w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
		switch w.nameOf(c.Step) {
		case "a":
		case "z":
			return nil, await(ctx, failed)
		default:
			return nil, nil
		}
		return coding.Submission{
			FilesChanged: []string{"a.txt"}, Summary: "did a", Complete: true, Learnings: []string{convention}, Interfaces: []string{offer},
		}, os.WriteFile(filepath.Join(c.Dir, "a.txt"), []byte(c.Step), 0o644)
	})
	w.when("code_reviewer", func(_ context.Context, c runtime.Call) (any, error) {
		switch {
		case w.nameOf(c.Step) == "a" && strings.Contains(c.Step, "/iter-1/"):
			return coding.ReviewResult{Summary: "no", Findings: []finding.Finding{{Severity: finding.High, Path: "lib/a.txt", Title: fault, Claim: "It is never closed."}}}, nil
		case w.nameOf(c.Step) == "f", w.nameOf(c.Step) == "z" && strings.Contains(c.Step, "/iter-1/"):
			return coding.ReviewResult{Summary: "not like this"}, nil
		}
		return nil, nil
	})
	w.advise("f", coding.Decision{Action: coding.EscalateToReplan, EscalationReason: failure})
	w.replans(ReplanDecision{Action: Continue})
	return w
}

// hears counts the prompts of a role for an issue in which a text is.
func (w *world) hears(role, issue, text string) (n int) {
	for _, p := range w.prompts(role, issue) {
		if strings.Contains(p, text) {
			n++
		}
	}
	return n
}

func TestWhatABuildLearnedReachesWhomItConcerns(t *testing.T) {
	knows := map[string]map[string]bool{ // role/issue: what it is told
		"coder/a":         {convention: false, offer: false, failure: false},
		"coder/b":         {convention: true, offer: true, fault: true, failure: false},
		"code_reviewer/b": {convention: false, offer: false, fault: true},
		"coder/f":         {convention: true, offer: false, fault: true},
		"coder/z":         {convention: true, offer: false, fault: true, failure: true}, // at its second iteration
		"code_reviewer/z": {convention: false, fault: true, failure: false},
		"replan/":         {failure: true},
	}
	for name, c := range map[string]struct {
		conf    string
		killed  string // the entry that is refused once; empty: none
		learned bool
	}{
		"by default":                      {"", "", true},
		"killed before b begins":          {"", "start/issue-03", true},
		"killed while z is told":          {"", "issue-02/round-1/iter-1/coder", true},
		"nobody is to learn":              {"pipeline: {enable_learning: false}", "", false},
		"nobody is to learn, and a crash": {"pipeline: {enable_learning: false}", "issue-02/round-1/iter-1/coder", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := learns(t, c.conf)
			if c.killed != "" {
				w.killedBefore(c.killed)
			}
			w.must(report.SucceededWithDebt)
			for whom, what := range knows {
				role, issue, _ := strings.Cut(whom, "/")
				if len(w.prompts(role, issue)) == 0 {
					t.Fatalf("%s was not asked", whom)
				}
				for text, want := range what {
					if role == "replan" && text == failure {
						continue // it is told of what failed in any case
					}
					if told := w.hears(role, issue, text) > 0; told != (want && c.learned) {
						t.Errorf("%s is told %q: %v", whom, text, told)
					}
				}
			}
			if told := w.hears("replan", "", "build health") > 0; told != c.learned {
				t.Errorf("the Replanner is told how the build stands: %v", told)
			}
		})
	}
}

// What a person says while a works reaches the next call of a's Coder, those of
// b and the Replanner, once each, also where it is delivered twice or the
// process dies around the record of it.
func TestSteeringReachesTheNextPrompt(t *testing.T) {
	for name, killed := range map[string]string{
		"heard": "", "the record of it is lost": "signal/s-1", "killed right after it": "issue-01/round-1/iter-1/coder", "killed much later": "start/issue-03",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := learns(t, "")
			said := Signal{ID: "s-1", Kind: SteerSignal, Body: []byte(`{"text":"` + steering + `"}`)}
			recorded := w.until("signal/s-1")
			w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
				if c.Step != "issue-01/round-1/iter-1/coder" || len(w.before) > 0 {
					return nil, nil
				}
				w.signals <- said
				return nil, await(ctx, recorded)
			})
			if killed != "" {
				w.killedBefore(killed)
				w.before = []Signal{said, said} // the queue keeps it until somebody has heard it, and may say it again
			}
			w.must(report.SucceededWithDebt)
			for _, whom := range []string{"coder/a", "coder/b", "coder/z", "issue_advisor/f", "replan/"} {
				role, issue, _ := strings.Cut(whom, "/")
				prompts := w.prompts(role, issue)
				if last := prompts[len(prompts)-1]; strings.Count(last, steering) != 1 {
					t.Errorf("%s is told %d times", whom, strings.Count(last, steering))
				}
			}
			if n := w.hears("code_reviewer", "", steering); n != 0 {
				t.Errorf("%d reviewers were told", n)
			}
		})
	}
}
