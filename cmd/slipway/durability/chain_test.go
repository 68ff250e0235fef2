package durability_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// A kill is a place in a journal at which a process dies. The key is a pattern.
type kill struct{ when, key string }

// env makes a process die there.
func (k kill) env() []string { return []string{"SLIPWAY_CRASH=" + k.when + ":" + k.key} }

// kinds are what is different in kind of two keys: their numbers, and which
// lens or call it is, are not.
var kinds = []struct {
	of *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`^` + agent.ReserveKey + `.*`), "budget"},
	{regexp.MustCompile(`/review/[a-z_]+/lens$`), "/review/lens"},
	{regexp.MustCompile(`[0-9]+(\+[0-9]+)*`), "N"},
}

// commit is what differs from one run to the next in a key of the CI gate.
var commit = regexp.MustCompile(`^ci-[0-9a-f]{12}`)

// oneOfEachKind are the first keys of their kind.
func oneOfEachKind(keys []string) (first []string) {
	known := map[string]bool{}
	for _, key := range keys {
		kind := key
		for _, k := range kinds {
			kind = k.of.ReplaceAllString(kind, k.to)
		}
		if !known[kind] {
			known[kind] = true
			first = append(first, key)
		}
	}
	return first
}

// chain kills one build at one place after the other, each resume a bit
// further, and lets it end. A place that is passed already, because the order of
// lenses is another each time, is left out.
func (term terminal) chain(t *testing.T, kills []kill) (n int) {
	t.Helper()
	var dead seen
	for _, k := range kills {
		if dead.has(k.key) {
			continue
		}
		p := term.carryOn(t, dead, k.env()...)
		p.wait(t, longRun)
		now := term.see(t)
		now.continues(t, dead)
		if !p.killed() {
			t.Fatalf("it was not killed %s %s, which is recorded: %t\n%s", k.when, k.key, now.has(k.key), p.said(t))
		}
		if now.has(k.key) != (k.when == "after") {
			t.Errorf("killed %s %s, which is recorded: %t", k.when, k.key, now.has(k.key))
		}
		dead = now
		n++
	}
	term.resume(t, dead)
	term.ended(t, "", dead)
	for key, runs := range term.see(t).runs {
		if runs > 1+n {
			t.Errorf("%s ran %d times at %d kills", key, runs, n)
		}
	}
	return n
}

// carryOn begins the build, or goes on where the last process died.
func (term terminal) carryOn(t *testing.T, dead seen, env ...string) *process {
	t.Helper()
	if dead.job.ID == "" {
		return term.build(t, env...)
	}
	return term.run(t, env, "resume", "--json", dead.job.ID)
}

// account is what status says of the build.
func (term terminal) account(t *testing.T) (b report.Build) {
	t.Helper()
	status := start(t, term.state, nil, "status", "--json", term.see(t).job.ID)
	if code := status.wait(t, 20*time.Second); code != 0 {
		t.Fatalf("status: exit %d\n%s", code, status.said(t))
	}
	if err := json.Unmarshal([]byte(status.said(t)), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// result is what has to be the same of two builds, whatever was killed: how it
// ended, each issue's outcome, each criterion and each debt item.
func result(b report.Build) string {
	lines := []string{fmt.Sprintf("%s success=%t %s", b.State, b.Success, b.Summary)}
	for _, is := range b.Issues {
		lines = append(lines, fmt.Sprintf("issue %02d %s: %s", is.Number, is.Name, is.Outcome))
	}
	for _, c := range b.Verification.Criteria {
		lines = append(lines, fmt.Sprintf("criterion %s passed=%t by %s", c.ID, c.Passed, c.IssueName))
	}
	for _, d := range b.Debt {
		lines = append(lines, fmt.Sprintf("debt %+v", d))
	}
	slices.Sort(lines[1:]) // issues may land in another order
	return strings.Join(lines, "\n")
}

// stages are what has to have happened in an overhaul for its crash tests to
// mean anything.
var stages = []string{
	"plan/rev-1/tech_lead", "issue-03/round-1/iter-1/retry_advisor", "issue-03/round-1/issue_advisor", "replan-1/replan",
	"issue-05/round-1/iter-1/qa_synthesizer", "split/issue-04", "issue-02/merge-1/merger", "verify-1/review/lenses",
	"verify-1/review/verify-01/review_verifier", "verify-1/fix_generator", "issue-08/round-1/iter-1/coder", "verify-2/kept", "done",
}

// calmOverhaul is an undisturbed run: its keys, tree and result.
func calmOverhaul(t *testing.T, n lanes) (keys []string, tree, outcome string) {
	t.Helper()
	calm := newTerminal(t, overhaul(n))
	p := calm.carryOn(t, seen{})
	if code := p.wait(t, longRun); code != 0 {
		t.Fatalf("undisturbed: exit %d\n%s", code, p.said(t))
	}
	whole := calm.see(t)
	for _, key := range stages {
		if !whole.has(key) {
			t.Errorf("%s did not happen", key)
		}
	}
	if !slices.ContainsFunc(whole.keys(), func(key string) bool { return strings.HasSuffix(key, "/integration_tester") }) {
		t.Error("the Integration Tester was not asked")
	}
	calm.clean(t, whole)
	for _, key := range whole.keys() {
		keys = append(keys, commit.ReplaceAllString(key, "ci-*"))
	}
	return keys, calm.published(t, whole), result(calm.account(t))
}

// TestOverhaulSurvivesKillAfterKill kills one build at one journal entry after
// the other. By default that is one entry of each kind, after and before by
// turns; with SLIPWAY_SOAK=1 it is every entry: once after each, once before.
func TestOverhaulSurvivesKillAfterKill(t *testing.T) {
	t.Parallel()
	keys, tree, outcome := calmOverhaul(t, oneLane)
	t.Logf("the undisturbed run has %d entries and ends as\n%s", len(keys), outcome)
	chains := map[string][]kill{}
	if soak() {
		for _, key := range keys {
			for _, when := range []string{"before", "after"} {
				chains[when+" each"] = append(chains[when+" each"], kill{when, key})
			}
		}
	} else {
		for i, key := range oneOfEachKind(keys) {
			chains["at each kind"] = append(chains["at each kind"], kill{[]string{"after", "before"}[i%2], key})
		}
	}
	for name, kills := range chains {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal(t, overhaul(oneLane))
			n := term.chain(t, kills)
			t.Logf("%d kills of %d", n, len(kills))
			if got := term.published(t, term.see(t)); got != tree {
				t.Errorf("tree %s, want that of the undisturbed run, %s", got, tree)
			}
			if got := result(term.account(t)); got != outcome {
				t.Errorf("it ended as\n%s\nand undisturbed as\n%s", got, outcome)
			}
		})
	}
}
