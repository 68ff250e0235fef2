package durability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/report"
)

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

// An aim says where the next process dies, as SLIPWAY_CRASH has it, from what
// was recorded when the process before began and when it had died. Empty lets
// the build end.
type aim func(began, died seen) string

// atKeys aims at one key after the other, by turns after and before each. A key
// that is passed already, because the order of lenses is another each time, is
// left out.
func atKeys(t *testing.T, keys []string) aim {
	var when, key string
	n := 0
	return func(_, died seen) string {
		if key != "" && died.has(key) != (when == "after") {
			t.Errorf("killed %s %s, which is recorded: %t", when, key, died.has(key))
		}
		for ; n < len(keys); n++ {
			if died.has(keys[n]) {
				continue
			}
			when, key = []string{"after", "before"}[n%2], keys[n]
			n++
			return when + ":" + key
		}
		key = ""
		return ""
	}
}

// atEach aims a few appends further each time: after the n-th, or before it. A
// process that got no further than to the reserve of a call is followed by one
// that may do more, for its call begins with a reserve of its own. In many lanes
// many calls do, and one that completed no step is followed by one that may do
// much more: five of them in a row end a build.
func atEach(when string, n int, in lanes) aim {
	idle := 0
	return func(began, died seen) string {
		if idle++; died.progress() > began.progress() || len(died.entries) == 0 {
			idle = 0
		}
		more := 1<<idle - 1
		if in == oneLane && idle > 0 {
			more = 0
			if strings.HasPrefix(died.entries[len(died.entries)-1].Key, agent.ReserveKey) {
				more = 1
			}
		}
		return fmt.Sprintf("%s:%d", when, n+more)
	}
}

// chain kills one build again and again, until it ends or the aim says that it
// may. It returns the number of kills.
func (term terminal) chain(t *testing.T, next aim) (kills int) {
	t.Helper()
	var began, died seen
	for {
		at := next(began, died)
		p := term.carryOn(t, died, "SLIPWAY_CRASH="+at)
		p.wait(t, longRun)
		if !p.killed() {
			if code := p.cmd.ProcessState.ExitCode(); code != 0 {
				t.Fatalf("exit %d\n%s", code, p.said(t))
			}
			break
		}
		kills++
		began, died = died, term.see(t)
		died.continues(t, began)
	}
	for key, runs := range term.ended(t, "", died).runs {
		if runs > 1+kills {
			t.Errorf("%s ran %d times at %d kills", key, runs, kills)
		}
	}
	return kills
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
func (term terminal) account(t *testing.T) report.Build {
	t.Helper()
	return accountOf(t, term.run(t, nil, "status", "--json", term.see(t).job.ID))
}

func accountOf(t *testing.T, status *process) (b report.Build) {
	t.Helper()
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
func calmOverhaul(t *testing.T) (keys []string, tree, outcome string) {
	t.Helper()
	calm := newTerminal(t, overhaul(oneLane))
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

// TestOverhaulSurvivesKills kills one build again and again. By default it dies
// at one entry of each kind, after and before by turns; with SLIPWAY_SOAK=1 once
// after every entry and once before every one, in one lane and in many.
func TestOverhaulSurvivesKills(t *testing.T) {
	t.Parallel()
	keys, tree, outcome := calmOverhaul(t)
	t.Logf("the undisturbed run has %d entries and ends as\n%s", len(keys), outcome)
	type chain struct {
		name  string
		lanes lanes
		aim   aim
		least int // kills that it has to survive to be worth something
	}
	kinds := oneOfEachKind(keys)
	chains := []chain{
		{"at each kind of entry", oneLane, atKeys(t, kinds), len(kinds) * 3 / 4},
		{"every few entries, in many lanes", manyLanes, atEach("after", 12, manyLanes), len(keys) / 24},
	}
	if soak() {
		chains = append(chains,
			chain{"after each entry", oneLane, atEach("after", 1, oneLane), len(keys) * 9 / 10},
			chain{"before each entry", oneLane, atEach("before", 2, oneLane), len(keys) * 9 / 10},
			chain{"after each entry, in many lanes", manyLanes, atEach("after", 1, manyLanes), len(keys) / 2},
			chain{"before each entry, in many lanes", manyLanes, atEach("before", 2, manyLanes), len(keys) / 2},
		)
	}
	for _, c := range chains {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			term := newTerminal(t, overhaul(c.lanes))
			kills := term.chain(t, c.aim)
			t.Logf("%d kills", kills)
			if kills < c.least {
				t.Errorf("%d kills, want at least %d", kills, c.least)
			}
			term.same(t, tree, outcome)
		})
	}
	t.Run("in the middle of each stage", func(t *testing.T) {
		t.Parallel()
		killInTheMiddle(t).same(t, tree, outcome)
	})
	t.Run("of the server", func(t *testing.T) {
		t.Parallel()
		if got := killServer(t, keys); got != tree {
			t.Errorf("tree %s, want that of the undisturbed run, %s", got, tree)
		}
	})
}

// same checks that a build ended as the undisturbed one.
func (term terminal) same(t *testing.T, tree, outcome string) {
	t.Helper()
	if got := term.published(t, term.see(t)); got != tree {
		t.Errorf("tree %s, want that of the undisturbed run, %s", got, tree)
	}
	if got := result(term.account(t)); got != outcome {
		t.Errorf("it ended as\n%s\nand undisturbed as\n%s", got, outcome)
	}
}

// killInTheMiddle kills an overhaul while the agent of one role after the other
// works, and while the engine's command runs.
func killInTheMiddle(t *testing.T) terminal {
	t.Helper()
	s := overhaul(oneLane)
	term, agents := newTerminal(t, s), s.player(t)
	term.agents = agents.flags()
	var died seen
	die := func(what string, works func() bool) {
		t.Helper()
		p := term.carryOn(t, died)
		eventually(t, longRun, func() string {
			select {
			case <-p.ended:
				t.Fatalf("it ended before %s\n%s", what, p.said(t))
			default:
			}
			if !works() {
				return what + " does not run"
			}
			return ""
		})
		p.kill()
		term.nothingWorks(t)
		began := died
		died = term.see(t)
		died.continues(t, began)
	}
	var asked []string
	held := func(step string) {
		t.Helper()
		agents.hold(t, step)
		die(step, func() bool { return term.asked(t, step) > 0 })
		agents.release(t, step)
		asked = append(asked, step)
	}
	held("plan/pm")
	held("issue-03/issue_writer")
	held("replan-1/replan")
	held("issue-05/round-1/iter-1/coder")
	held("issue-01/round-1/iter-1/coder")
	for _, what := range []string{"the command of an issue", "the command of a landing"} {
		log := term.commandLog(t)
		before := lines(t, log)
		hold := filepath.Join(filepath.Dir(log), "hold")
		put(t, hold, "")
		die(what, func() bool { return lines(t, log) > before })
		if err := os.Remove(hold); err != nil {
			t.Fatal(err)
		}
	}
	held("issue-02/round-1/iter-1/code_reviewer")
	held("issue-02/merge-1/merger")
	held("verify-1/verifier")
	held("verify-1/review/security/lens")
	held("verify-1/fix_generator")
	held("publish/git")
	term.resume(t, died)
	whole := term.ended(t, "", died)
	for _, step := range asked {
		if n := whole.runs[step]; n != 2 {
			t.Errorf("%s ran %d times, want 2: once in vain", step, n)
		}
	}
	return term
}

// asked is how often an agent has begun a step.
func (term terminal) asked(t *testing.T, step string) (n int) {
	t.Helper()
	return asked(t, term.state, step)
}

// asked is how often an agent has begun a step on the host with this state.
func asked(t testing.TB, state, step string) (n int) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(state, "transcripts", "*", filepath.FromSlash(step)+".jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		n += lines(t, path)
	}
	return n
}

// commandLog is where the engine's command notes its runs; there has to be one.
func (term terminal) commandLog(t *testing.T) string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(term.state, "caches", "*", "*", "go-build", "runs"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("logs of the command: %v, %v; want one", logs, err)
	}
	return logs[0]
}

// nothingWorks waits until what a dead worker had started is gone.
func (term terminal) nothingWorks(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Second, func() string {
		for _, found := range alive(t, term.state) {
			if !strings.Contains(found, "--block-fd") { // a box that was being made; resume ends it
				return "this process outlived its worker: " + found
			}
		}
		return ""
	})
}

// killServer kills a server while it works on an overhaul, each time a bit
// further, and returns the tree of the one pull request that comes out.
func killServer(t *testing.T, keys []string) (tree string) {
	t.Helper()
	keys = oneOfEachKind(keys)
	if !soak() {
		keys = slices.DeleteFunc(keys, func(key string) bool {
			return !strings.HasPrefix(key, "publish/") && !slices.Contains(stages, key)
		})
	}
	h := newHub(t, overhaul(oneLane))
	next := atKeys(t, keys)
	var died seen
	kills := 0
	for {
		at := next(seen{}, died)
		h.serve(t, "SLIPWAY_CRASH="+at)
		if kills == 0 {
			h.label(t)
		}
		if at == "" {
			break
		}
		h.server.wait(t, longRun)
		if !h.server.killed() {
			t.Fatalf("it was not killed %s\n%s", at, h.server.said(t))
		}
		kills++
		began := died
		died = h.build(t)
		died.continues(t, began)
	}
	h.rest(t)
	t.Logf("%d kills at %d places", kills, len(keys))
	return h.complete(t, died)
}
