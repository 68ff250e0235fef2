package durability_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/queue"
)

// longRun is longer than any run of a small build takes.
const longRun = 2 * time.Minute

// A terminal is one person's repository and state directory.
type terminal struct {
	repo, state string
	config      string   // file of what the repository does not say
	agents      []string // flags that say who they are
	status      string   // git status before anything ran
}

func newTerminal(t *testing.T, s script) terminal {
	t.Helper()
	term := terminal{
		repo: t.TempDir(), state: t.TempDir(), config: filepath.Join(t.TempDir(), "slipway.yml"),
		agents: []string{"--runtime", "replay", "--recordings", s.write(t)},
	}
	put(t, term.config, s.server)
	for name, text := range s.files() {
		put(t, filepath.Join(term.repo, name), text)
	}
	git(t, term.repo, "init", "--quiet", "--initial-branch=main")
	git(t, term.repo, "add", "--all")
	git(t, term.repo, "commit", "--quiet", "--message=Begin")
	// Work of the person's own, which a build must not touch.
	for name, text := range map[string]string{"list.txt": "mine\n", "notes.txt": "mine\n"} {
		put(t, filepath.Join(term.repo, name), text)
	}
	term.status = term.look(t)
	return term
}

// put writes a file.
func put(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// look is what the person sees of the checkout.
func (term terminal) look(t *testing.T) string {
	t.Helper()
	list, err := os.ReadFile(filepath.Join(term.repo, "list.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return git(t, term.repo, "status", "--porcelain=v2", "--branch", "--untracked-files=all") + "\n" +
		git(t, term.repo, "worktree", "list") + "\n" + string(list)
}

// run starts the binary in this terminal.
func (term terminal) run(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return start(t, term.state, env, append(args, "--config", term.config)...)
}

// build starts the build.
func (term terminal) build(t *testing.T, env ...string) *process {
	t.Helper()
	return term.run(t, env, append([]string{"build", "--json", "--repo", term.repo, "--goal", goal}, term.agents...)...)
}

// seen is what can be known of a build while no process works on it.
type seen struct {
	job     queue.Job
	entries []queue.Entry
	runs    map[string]int      // how often each agent call was started
	tests   map[string][]string // what the engine's command was run on, by whose evidence it was
}

func (term terminal) see(t *testing.T) seen {
	t.Helper()
	store := openStore(t, term.state)
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	jobs, err := store.List(t.Context(), queue.Query{})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("jobs %v, %v; want one", jobs, err)
	}
	return look(t, store, term.state, jobs[0])
}

func openStore(t testing.TB, state string) *queue.SQLite {
	t.Helper()
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(state, "store"))
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// look reads what is known of a build's job.
func look(t testing.TB, store queue.Store, state string, job queue.Job) seen {
	t.Helper()
	s := seen{job: job, runs: map[string]int{}, tests: map[string][]string{}}
	var err error
	if s.entries, err = store.Entries(t.Context(), job.ID, 0); err != nil {
		t.Fatal(err)
	}
	transcripts := filepath.Join(state, "transcripts", job.ID)
	for _, e := range s.entries {
		if e.Runtime == "" {
			continue // no agent's
		}
		var a agent.Answer
		if err := json.Unmarshal(e.Outcome, &a); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(a.Failure, "there is no recording") {
			t.Errorf("an agent was asked that the script does not have: %s: %s", e.Key, a.Failure)
		}
		s.runs[e.Key] = lines(t, filepath.Join(transcripts, filepath.FromSlash(e.Key)+".jsonl"))
	}
	logs, err := filepath.Glob(filepath.Join(state, "caches", "*", "*", "go-build", "runs"))
	if err != nil || len(logs) > 1 {
		t.Fatalf("%v, %v", logs, err)
	}
	for _, log := range logs {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			home, on, _ := strings.Cut(strings.TrimSpace(line), " ")
			s.tests[home] = append(s.tests[home], on)
		}
	}
	return s
}

// progress is how many calls and effects are recorded.
func (s seen) progress() (n int) {
	for _, e := range s.entries {
		if e.Kind != queue.Choice {
			n++
		}
	}
	return n
}

func lines(t testing.TB, path string) int {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

// has reports whether a key is recorded; it may be a pattern.
func (s seen) has(pattern string) bool {
	return slices.ContainsFunc(s.keys(), func(key string) bool {
		match, err := path.Match(pattern, key)
		return err == nil && match
	})
}

func (s seen) keys() (keys []string) {
	for _, e := range s.entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// TestBuildSurvivesKillAroundEveryAppend is the crash matrix of a terminal's
// build. An undisturbed run says how many entries the journal gets and which
// tree comes out. Then a build each is killed before and after every append and
// resumed: every eighth of these by default, all of them with SLIPWAY_SOAK=1.
func TestBuildSurvivesKillAroundEveryAppend(t *testing.T) {
	t.Parallel()
	calm := newTerminal(t, fleet())
	p := calm.build(t)
	if code := p.wait(t, longRun); code != 0 {
		t.Fatalf("undisturbed: exit %d\n%s", code, p.said(t))
	}
	whole := calm.see(t)
	tree := calm.published(t, whole)
	calm.clean(t, whole)
	type row struct {
		n    int
		when string
	}
	var rows []row
	for i, e := range whole.entries {
		if !strings.HasPrefix(e.Key, agent.ReserveKey) { // before a reserve is after what went before
			rows = append(rows, row{i + 1, "before"})
		}
		rows = append(rows, row{i + 1, "after"})
	}
	if !soak() {
		sample := rows[:0]
		for i := 0; i < len(rows); i += 8 {
			sample = append(sample, rows[i])
		}
		rows = sample
	}
	t.Logf("%d rows", len(rows))
	atOnce(t, 3, rows, func(r row) {
		t.Run(fmt.Sprintf("%s_%02d_%s", r.when, r.n, whole.entries[r.n-1].Key), func(t *testing.T) {
			term := newTerminal(t, fleet())
			p := term.build(t, fmt.Sprintf("SLIPWAY_CRASH=%s:%d", r.when, r.n))
			p.wait(t, longRun)
			dead := term.see(t)
			if !p.killed() {
				// Issues that land together take fewer entries than one by one.
				if len(dead.entries) >= r.n {
					t.Fatalf("it was not killed, and has %d entries\n%s", len(dead.entries), p.said(t))
				}
			} else {
				if r.when == "before" && len(dead.entries) != r.n-1 || len(dead.entries) > r.n {
					t.Errorf("killed %s append %d with %d entries", r.when, r.n, len(dead.entries))
				}
				term.resume(t, dead)
			}
			term.complete(t, tree, dead)
		})
	})
}

// resume goes on to the end.
func (term terminal) resume(t *testing.T, dead seen) {
	t.Helper()
	p := term.run(t, nil, "resume", "--json", dead.job.ID)
	if code := p.wait(t, longRun); code != 0 {
		t.Fatalf("resume: exit %d\n%s", code, p.said(t))
	}
}

// complete checks a build that has ended after one kill at most, as ended does.
func (term terminal) complete(t *testing.T, tree string, dead seen) {
	t.Helper()
	whole := term.ended(t, tree, dead)
	for key, n := range whole.runs {
		if len(dead.entries) > 0 && n > 2 {
			t.Errorf("%s ran %d times at one kill", key, n)
		}
	}
}

// ended checks a build that has ended: its tree, unless that is empty, and that
// what was in the journal of the dead is there unchanged and did not run again.
func (term terminal) ended(t *testing.T, tree string, dead seen) seen {
	t.Helper()
	whole := term.see(t)
	if whole.job.State != queue.Done {
		t.Errorf("the job is %s: %s", whole.job.State, whole.job.Cause)
	}
	if got := term.published(t, whole); tree != "" && got != tree {
		t.Errorf("tree %s, want that of the undisturbed run, %s", got, tree)
	}
	whole.continues(t, dead)
	term.clean(t, whole)
	return whole
}

// continues checks that the journal goes on where that of the dead ended: no key
// twice, nothing changed, and no recorded call ran again.
func (s seen) continues(t *testing.T, dead seen) {
	t.Helper()
	keys := s.keys()
	if again := slices.Compact(slices.Sorted(slices.Values(keys))); len(again) != len(keys) {
		t.Errorf("keys are recorded twice: %v", keys)
	}
	for i, e := range dead.entries {
		if i >= len(s.entries) || s.entries[i].Key != e.Key || string(s.entries[i].Outcome) != string(e.Outcome) {
			t.Errorf("entry %d, %s, was changed", i+1, e.Key)
			continue
		}
		if e.Runtime != "" && s.runs[e.Key] != dead.runs[e.Key] {
			t.Errorf("%s was recorded and ran again", e.Key)
		}
	}
	recorded := map[string]int{}
	for _, e := range dead.entries {
		recorded[evidenceOf(e.Key)]++
	}
	for home, n := range recorded {
		// One that was interrupted is the last that is not recorded.
		on := distinct(dead.tests[home])
		for _, files := range on[:min(n, len(on))] {
			if count(s.tests[home], files) != count(dead.tests[home], files) {
				t.Errorf("a command of %s was recorded and ran again", home)
			}
		}
	}
}

// distinct leaves out what was there before.
func distinct(all []string) (first []string) {
	for _, s := range all {
		if !slices.Contains(first, s) {
			first = append(first, s)
		}
	}
	return first
}

func count(all []string, one string) (n int) {
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// evidenceOf says in whose home directory the engine's commands of a key run, for
// those that run there once on a commit.
func evidenceOf(key string) string {
	prefix, ok := strings.CutSuffix(key, "/commands")
	first, _, _ := strings.Cut(prefix, "/")
	switch {
	case !ok || first == "land":
		return ""
	case strings.HasPrefix(first, "verify-"):
		return "engine-verify" // each round on another commit
	}
	return "engine-" + first
}

// published returns the tree of the one branch that the build made.
func (term terminal) published(t *testing.T, s seen) string {
	t.Helper()
	branch := "slipway/" + s.job.ID + "-list-the-ships"
	if got := git(t, term.repo, "for-each-ref", "--format=%(refname)"); got != "refs/heads/main\nrefs/heads/"+branch {
		t.Errorf("refs\n%s\nwant main and %s", got, branch)
	}
	return git(t, term.repo, "rev-parse", branch+"^{tree}")
}

// clean checks that nothing is left but what is kept on purpose, and that the
// person's checkout is as it was.
func (term terminal) clean(t *testing.T, s seen) {
	t.Helper()
	if got := term.look(t); got != term.status {
		t.Errorf("the checkout was\n%s\nand is\n%s", term.status, got)
	}
	for _, dir := range []string{"work", "homes"} {
		if _, err := os.Stat(filepath.Join(term.state, dir, s.job.ID)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s of the build is left: %v", dir, err)
		}
	}
	if _, err := os.Stat(filepath.Join(term.state, "builds", s.job.ID, "report.md")); err != nil {
		t.Error(err)
	}
	noneAlive(t, term.state, 2*time.Second)
}
