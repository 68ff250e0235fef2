package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/queue"
)

func TestIssuesLandInTheirOrder(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil, "a", "b"))
	before := w.git("rev-parse", "HEAD")
	b := w.must(report.Succeeded)
	for _, name := range []string{"a", "b", "c"} {
		if w.file(b, name+".txt") != name+"\n" {
			t.Errorf("%s.txt is not on the branch", name)
		}
	}
	if merges := strings.Fields(w.git("log", "--merges", "--first-parent", "--format=%h", b.Branch)); len(merges) != 3 {
		t.Errorf("%d merge commits, want one for each issue", len(merges))
	}
	if body := w.git("log", "-1", "--format=%b", b.Branch); !strings.Contains(body, "Co-authored-by: mira <7+mira@users.noreply.github.com>") {
		t.Errorf("the requester is no co-author:\n%s", body)
	}
	if w.git("rev-parse", "HEAD") != before || w.git("status", "--porcelain") != "" || w.git("branch", "--show-current") != "main" {
		t.Error("the user's checkout was touched")
	}
}

// merged plays a Merger that resolves to the text.
func merged(dir, file, text string) (any, error) {
	return Merged{Success: true, Summary: "both kept"}, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644)
}

func TestConflictGoesToTheMerger(t *testing.T) {
	w := newWorld(t, issue("a", []string{"list"}), issue("b", []string{"list"}))
	w.write("list", "top\n")
	w.commit()
	w.code["a"], w.code["b"] = appendTo("list", "from a"), appendTo("list", "from b")
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role != "merger" {
			return nil, nil
		}
		text, err := os.ReadFile(filepath.Join(c.Dir, "list"))
		if err != nil || !strings.Contains(string(text), "<<<<<<<") {
			t.Errorf("the Merger does not see the conflict: %q %v", text, err)
		}
		return merged(c.Dir, "list", "top\nfrom a\nfrom b\n")
	}
	b := w.must(report.Succeeded)
	if got := w.file(b, "list"); got != "top\nfrom a\nfrom b\n" {
		t.Errorf("list is %q", got)
	}
}

func TestDefectUnmergedBranchIsDeletedAndCountedCompleted(t *testing.T) {
	w := newWorld(t, issue("a", []string{"list"}), issue("b", []string{"list"}))
	w.write("list", "top\n")
	w.commit()
	w.code["a"], w.code["b"] = appendTo("list", "from a"), appendTo("list", "from b")
	tries := 0
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role != "merger" {
			return nil, nil
		}
		if tries++; tries == 2 && !strings.Contains(c.Prompt, "conflict markers remain") {
			t.Error("the second try is not told what was wrong with the first")
		}
		return Merged{Success: true, Summary: "I looked at it"}, nil
	}
	b := w.must(report.SucceededWithDebt)
	lost := w.outcome(b, "b")
	if w.outcome(b, "a").Outcome == report.FailedEscalated {
		lost = w.outcome(b, "a")
	}
	if tries != 2 || lost.Outcome != report.FailedEscalated || lost.Ref == "" {
		t.Fatalf("%d tries, outcome %+v", tries, lost)
	}
	if !slices.ContainsFunc(b.Debt, func(d debt.Item) bool { return d.Type == debt.UnmergedWork && d.IssueName == lost.Name }) {
		t.Errorf("no unmerged_work in %v", b.Debt)
	}
	mirror, err := w.engine.Mirror(t.Context(), worldRepo())
	if err != nil {
		t.Fatal(err)
	}
	if at, err := mirror.Ref(t.Context(), lost.Ref); err != nil || at != lost.Commit {
		t.Errorf("the unmerged work is not kept: %s %v", at, err)
	}
}

func TestWhatIsRedTogetherDoesNotLand(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.write("check.sh", "if [ -e a.txt ] && [ -e b.txt ]; then echo both; exit 1; fi\n")
	w.commit()
	b := w.must(report.SucceededWithDebt)
	outcomes := []report.Outcome{w.outcome(b, "a").Outcome, w.outcome(b, "b").Outcome}
	slices.Sort(outcomes)
	if !slices.Equal(outcomes, []report.Outcome{report.Completed, report.FailedEscalated}) {
		t.Errorf("outcomes %v, want one landed and one not", outcomes)
	}
	if (w.file(b, "a.txt") == "") == (w.file(b, "b.txt") == "") {
		t.Error("the branch holds both or neither")
	}
}

func TestFailedIssueSkipsItsDependentsAndTheRestIsPublished(t *testing.T) {
	w := newWorld(t, issue("bad", nil), issue("good", nil), issue("needs-bad", nil, "bad"))
	w.code["bad"] = func(dir string) error { return os.WriteFile(filepath.Join(dir, "red.txt"), nil, 0o644) }
	b := w.must(report.SucceededWithDebt)
	if got := w.outcome(b, "bad"); got.Outcome != report.FailedEscalated || got.Ref == "" {
		t.Errorf("bad: %+v", got)
	}
	if got := w.outcome(b, "needs-bad"); got.Outcome != report.Skipped || !strings.Contains(got.Detail, "bad") {
		t.Errorf("needs-bad: %+v", got)
	}
	if w.file(b, "good.txt") == "" || w.file(b, "red.txt") != "" {
		t.Error("the wrong things were published")
	}
	var types []string
	for _, d := range b.Debt {
		types = append(types, string(d.Type))
	}
	if !slices.Contains(types, string(debt.FailedWork)) || !slices.Contains(types, string(debt.SkippedWork)) {
		t.Errorf("debt %v", types)
	}
}

func TestPanicFailsItsIssueAlone(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil))
	w.code["a"] = func(string) error { panic("boom") }
	b := w.must(report.SucceededWithDebt)
	if got := w.outcome(b, "a"); got.Outcome != report.FailedUnrecoverable || !strings.Contains(got.Detail, "boom") {
		t.Errorf("a: %+v", got)
	}
	if w.file(b, "b.txt") == "" {
		t.Error("b did not land")
	}
}

func TestHopelessBuildStopsEarly(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil), issue("e", nil))
	for _, name := range []string{"a", "b", "c", "d"} {
		w.code[name] = func(string) error { return errors.New("no idea") }
	}
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\nlimits: {max_parallel_issues: 1}\npipeline: {enable_issue_advisor: false}\n")
	w.commit()
	b := w.must(report.Failed)
	if !strings.Contains(b.Cause, "4 of 4 issues failed") {
		t.Errorf("cause %q", b.Cause)
	}
	if got := w.outcome(b, "e"); got.Outcome != report.Skipped {
		t.Errorf("e: %+v", got)
	}
}

func TestCancelKeepsWhatLanded(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role != "coder" || w.nameOf(c.Step) != "b" {
			return nil, nil
		}
		w.signals <- Signal{ID: "s", Kind: CancelSignal, Body: []byte(`{"by":{"login":"mira"}}`)}
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b := w.must(report.Canceled)
	if w.file(b, "a.txt") == "" {
		t.Error("what landed was not published")
	}
	if b.Cause != "cancelled by mira" || b.Success {
		t.Errorf("cause %q, success %v", b.Cause, b.Success)
	}
	for _, c := range w.agents.Calls() {
		if c.Role == "verifier" || c.Role == "git" {
			t.Errorf("%s was asked after the cancel", c.Role)
		}
	}
}

func TestFatalProviderErrorStopsTheBuildAndPublishes(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		if c.Role == "coder" && w.nameOf(c.Step) == "b" {
			return nil, &runtime.Error{Class: runtime.Fatal, Reason: "401: the key is not valid"}
		}
		return nil, nil
	}
	b := w.must(report.NeedsHuman)
	if !strings.Contains(b.Cause, "the key is not valid") || w.file(b, "a.txt") == "" {
		t.Errorf("cause %q", b.Cause)
	}
}

func TestBudgetStopsBeforeTheNextCall(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\nlimits: {usd_per_build: 0.05, usd_per_call: 0.02}\n")
	w.commit()
	w.engine.Runtime = func(context.Context, string) (runtime.Runtime, error) {
		return agenttest.New(func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
			r, err := w.play(ctx, c, emit)
			if c.Role == "coder" || c.Role == "code_reviewer" || c.Role == "issue_writer" {
				r.CostMicros = 20_000 // planning is free, so that the plan seems to be affordable
			}
			return r, err
		}), nil
	}
	b := w.must(report.NeedsHuman)
	if !strings.Contains(b.Cause, "budget") || b.CostMicros > 50_000 {
		t.Errorf("cause %q after %d micro-dollars", b.Cause, b.CostMicros)
	}
}

func TestArtefactsAreCleanedUp(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.code["a"] = func(dir string) error {
		return errors.Join(
			os.WriteFile(filepath.Join(dir, "a.txt"), nil, 0o644),
			os.MkdirAll(filepath.Join(dir, "node_modules", "x"), 0o755),
			os.WriteFile(filepath.Join(dir, "node_modules", "x", "i.js"), nil, 0o644),
		)
	}
	b := w.must(report.Succeeded)
	files := w.git("ls-tree", "-r", "--name-only", b.Branch)
	if strings.Contains(files, "node_modules") || w.file(b, ".gitignore") != "node_modules/\n" {
		t.Errorf("files:\n%s\n.gitignore: %q", files, w.file(b, ".gitignore"))
	}
}

// What a coder leaves in its home must not be there when its reviewer starts.
func TestRolesDoNotShareAHome(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.must(report.Succeeded)
	roles := map[string]string{}
	for _, c := range w.agents.Calls() {
		if other, taken := roles[c.Home]; taken && other != c.Role {
			t.Errorf("%s and %s have the home %s", other, c.Role, c.Home)
		}
		roles[c.Home] = c.Role
	}
	if len(roles) < 5 {
		t.Errorf("only %d homes were seen", len(roles))
	}
}

func TestBrokenConfigurationIsNamed(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.write(".github/slipway.yml", "runtime: replay\nlimitz: {}\n")
	w.commit()
	b := w.must(report.NeedsHuman)
	if !strings.Contains(b.Cause, ".github/slipway.yml:2") {
		t.Errorf("cause %q does not name the line", b.Cause)
	}
}

func TestDebtOfADependencyReachesTheNextCoder(t *testing.T) {
	w := newWorld(t, issue("a", nil), issue("b", nil, "a"))
	told := false
	w.answer = func(_ context.Context, c runtime.Call) (any, error) {
		switch name := w.nameOf(c.Step); {
		case c.Role == "code_reviewer" && name == "a":
			return coding.ReviewResult{Approved: true, Summary: "good", DebtItems: []coding.Shortfall{{Severity: debt.Low, Justification: "no retry on a full disk"}}}, nil
		case c.Role == "coder" && name == "b":
			told = strings.Contains(c.Prompt, "no retry on a full disk")
		}
		return nil, nil
	}
	b := w.must(report.SucceededWithDebt)
	if !told {
		t.Error("the coder of b was not told of a's debt")
	}
	if len(b.Debt) != 1 || !b.Success {
		t.Errorf("debt %v, success %v", b.Debt, b.Success)
	}
}

// TestLostLeaseAtEveryStep stops the journal after each number of entries in
// turn, as a lost lease would, and goes on with a new claim.
func TestLostLeaseAtEveryStep(t *testing.T) {
	first := newWorld(t, issue("a", nil))
	whole := first.must(report.Succeeded)
	tree := first.git("rev-parse", whole.Branch+"^{tree}")
	for n, key := range first.log.Keys() {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, issue("a", nil))
			left := n
			w.log.Refuse = func(context.Context, queue.Entry) error {
				if left--; left < 0 {
					return queue.ErrLost
				}
				return nil
			}
			if _, err := w.run(); !errors.Is(err, queue.ErrLost) {
				t.Fatalf("%v, want ErrLost", err)
			}
			before, asked := w.log.Keys(), len(w.agents.Steps())
			w.log.Refuse = nil
			b := w.must(report.Succeeded)
			if got := w.git("rev-parse", b.Branch+"^{tree}"); got != tree {
				t.Errorf("the tree is %s, want %s", got, tree)
			}
			for _, again := range w.agents.Steps()[asked:] {
				if slices.Contains(before, again) {
					t.Errorf("%s was asked again", again)
				}
			}
		})
	}
}

// A claim that is lost right after the Fix Generator had nothing to fix leaves a
// last word on the criteria: the next claim does not judge them again.
func TestTheLastVerificationIsNotRepeated(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.verdicts(false, true)
	w.fixes(FixPlan{DebtItems: []debt.Item{{Type: debt.UnmetCriterion, Severity: debt.High, Criterion: "ac-1", Justification: "out of reach"}}, Summary: "none"})
	w.log.Refuse = func(context.Context, queue.Entry) error {
		if slices.Contains(w.log.Keys(), keyFix(1)) {
			return queue.ErrLost
		}
		return nil
	}
	if _, err := w.run(); !errors.Is(err, queue.ErrLost) {
		t.Fatalf("%v, want ErrLost", err)
	}
	w.log.Refuse = nil
	b := w.must(report.SucceededWithDebt)
	if n := len(w.prompts("verifier", "")); n != 1 || b.Success {
		t.Errorf("the Verifier was asked %d times, and success is %v\nsteps: %v", n, b.Success, w.log.Keys())
	}
	w.owes(b, debt.UnmetCriterion, "", "out of reach")
}
