package review

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

// fixed is csv with one of its two faults mended, and its lines moved.
var fixed = strings.NewReplacer("import", "// Moved down.\n\nimport", "\tw.Flush()\n\treturn nil", "\tw.Flush()\n\treturn w.Error()").Replace(csv)

// rejecting refutes the claims with these titles and confirms the others.
func rejecting(titles ...string) func(Claim) Verdict {
	return func(c Claim) Verdict {
		if slices.Contains(titles, c.Title) {
			return Verdict{Verdict: finding.Rejected, Confidence: 95, Reason: "It is not there."}
		}
		return Verdict{Verdict: finding.Confirmed, Confidence: 90, Reason: "It is there."}
	}
}

func find(t *testing.T, r Result, title string) finding.Entry {
	t.Helper()
	i := slices.IndexFunc(r.Findings, func(e finding.Entry) bool { return e.Title == title })
	if i < 0 {
		t.Fatalf("no finding %q: %v", title, r.Findings)
	}
	return r.Findings[i]
}

func TestReviewAfterAFix(t *testing.T) {
	h, target := change(t)
	crash := remark("critical", "run.go", 4, "return WriteCSV(w, all)", "Run crashes", "Without a writer Run crashes.")
	s := &script{
		remarks: map[string][]Remark{"correctness": {flush, write}, "tests": {noTest}, "security": {crash}},
		fails:   map[string]error{"performance": crashed},
		verdict: rejecting(noTest.Title),
	}
	first, _ := s.must(t, h, target, Options{MinConfidence: 80})
	if len(first.Open) != 3 || len(first.Incomplete) != 1 {
		t.Fatalf("open %v, incomplete %v", first.Open, first.Incomplete)
	}

	next := target
	next.Key, next.Earlier = "verify-2/review", &first
	next.Head = h.commit(files{
		"csv.go": fixed, "new.go": "package export\n\nvar later = 1\n", "go.sum": "x\n",
		"run.go": "package export\n\nfunc Run() error { return nil }\n",
	})
	s = &script{
		remarks: map[string][]Remark{
			"correctness":     {remark("medium", "csv.go", 10, "w.Write(r)", "Error of Write is dropped", "A failed write of a record is ignored.")},
			"maintainability": {remark("low", "new.go", 3, "var later = 1", "Nobody uses it", "later is unused.")},
		},
		verdict: rejecting(flush.Title, crash.Title),
	}
	second, agents := s.must(t, h, next, Options{MinConfidence: 80})

	if want := []string{write.Title, noTest.Title, "Nobody uses it", flush.Title, crash.Title}; !slices.Equal(slices.Sorted(slices.Values(names(second.Findings))), slices.Sorted(slices.Values(want))) {
		t.Errorf("findings %q", names(second.Findings))
	}
	for title, want := range map[string]struct {
		state     finding.State
		verdict   finding.Verdict
		line      int
		agreement int
	}{
		flush.Title:      {finding.Fixed, finding.Confirmed, 12, 1}, // its code moved
		crash.Title:      {finding.Fixed, finding.Confirmed, 4, 1},  // critical, and no quote is needed: its code is gone
		write.Title:      {finding.Open, finding.Confirmed, 10, 1},  // correctness said it twice, and that is one
		noTest.Title:     {finding.New, finding.Rejected, 0, 1},
		"Nobody uses it": {finding.New, finding.Confirmed, 3, 1},
	} {
		f := find(t, second, title)
		if f.State != want.state || f.Verdict != want.verdict || f.StartLine != want.line || f.Agreement != want.agreement {
			t.Errorf("%s is %s, %s, line %d, agreement %d; want %+v", title, f.State, f.Verdict, f.StartLine, f.Agreement, want)
		}
		if e := slices.IndexFunc(first.Findings, func(e finding.Entry) bool { return e.Title == title }); e >= 0 && first.Findings[e].ID != f.ID {
			t.Errorf("%s has another fingerprint", title)
		}
	}
	if want := []string{write.Title, "Nobody uses it"}; !slices.Equal(names(second.Open), want) {
		t.Errorf("open %q", names(second.Open))
	}
	wantManifest := Manifest{
		{Path: "csv.go", Status: "added"}, {Path: "go.sum", Status: "added", Skipped: Lock}, {Path: "new.go", Status: "added"}, {Path: "run.go", Status: "modified"},
	}
	if !reflect.DeepEqual(second.Manifest, wantManifest) {
		t.Errorf("manifest %v", second.Manifest)
	}
	if !reflect.DeepEqual(second.Incomplete, first.Incomplete) {
		t.Errorf("what performance did not look at is still not looked at: %+v", second.Incomplete)
	}
	for _, c := range agents.Calls() {
		if c.Role == LensRole && (!strings.Contains(c.Prompt, "only what changed since") || strings.Contains(c.Prompt, "+func WriteCSV")) {
			t.Errorf("a lens is shown more than what changed:\n%s", c.Prompt)
		}
	}

	// A third review of the same head asks no lens, and what is fixed stays fixed.
	third := next
	third.Key, third.Earlier = "verify-3/review", &second
	again, agents := new(script).must(t, h, third, Options{MinConfidence: 80})
	for _, c := range agents.Calls() {
		if c.Role == LensRole {
			t.Errorf("%s was asked about nothing", c.Step)
		}
	}
	if find(t, again, flush.Title).State != finding.Fixed || find(t, again, "Nobody uses it").State != finding.Open || len(again.Open) != 2 {
		t.Errorf("findings %+v", again.Findings)
	}

	// Brought back, it is a new finding under its old name.
	back := third
	back.Key, back.Earlier, back.Head = "verify-4/review", &again, h.commit(files{"csv.go": csv})
	s = &script{remarks: map[string][]Remark{"correctness": {flush}}}
	last, _ := s.must(t, h, back, Options{})
	if f := find(t, last, flush.Title); f.State != finding.New || f.ID != find(t, first, flush.Title).ID {
		t.Errorf("%+v", f)
	}
}

func TestWhatWasOpenStaysOpenUntilSomebodySaysOtherwise(t *testing.T) {
	h, target := change(t)
	s := &script{remarks: map[string][]Remark{"correctness": {flush}}}
	first, _ := s.must(t, h, target, Options{MinConfidence: 80})
	moved := h.commit(files{"run.go": "package export\n"})
	critical := first
	critical.Findings = slices.Clone(first.Findings)
	critical.Findings[0].Severity = finding.Critical
	for name, c := range map[string]struct {
		earlier Result
		said    *script
		state   finding.State
		reason  string
	}{
		"confirmed, less surely":        {first, &script{verdict: func(Claim) Verdict { return Verdict{Verdict: finding.Confirmed, Confidence: 60, Reason: "Perhaps."} }}, finding.Open, "Perhaps."},
		"uncertain":                     {first, &script{verdict: func(Claim) Verdict { return Verdict{Verdict: finding.Uncertain, Reason: "Who knows."} }}, finding.Open, "Who knows."},
		"nobody answered":               {first, &script{fails: map[string]error{"verify-01": crashed}}, finding.Open, "nobody verified it"},
		"refuted":                       {first, &script{verdict: rejecting(flush.Title)}, finding.Fixed, "It is not there."},
		"critical, there, and no quote": {critical, &script{verdict: rejecting(flush.Title)}, finding.Open, "without a quote"},
	} {
		t.Run(name, func(t *testing.T) {
			next := target
			next.Key, next.Head, next.Earlier = "verify-2/review", moved, &c.earlier
			got, _ := c.said.must(t, h, next, Options{MinConfidence: 80})
			f := find(t, got, flush.Title)
			if f.State != c.state || f.Confidence != 90 || !strings.Contains(f.Reason, c.reason) || (len(got.Open) == 1) != (c.state == finding.Open) {
				t.Errorf("%+v, open %v", f, got.Open)
			}
		})
	}
}

func TestAnotherBaseIsReviewedWhole(t *testing.T) {
	h, target := change(t)
	s := &script{remarks: map[string][]Remark{"correctness": {flush}}, fails: map[string]error{"tests": crashed}}
	first, _ := s.must(t, h, target, Options{})
	first.Base = target.Head // as if
	next := target
	next.Key, next.Head, next.Earlier = "verify-2/review", h.commit(files{"run.go": "package export\n"}), &first
	got, agents := new(script).must(t, h, next, Options{})
	if len(got.Incomplete) != 0 || find(t, got, flush.Title).State != finding.Open {
		t.Errorf("incomplete %v, findings %v", got.Incomplete, got.Findings)
	}
	if p := agents.Calls()[0].Prompt; !strings.Contains(p, "+func WriteCSV") || strings.Contains(p, "changed since") {
		t.Errorf("not the whole change:\n%s", p)
	}
}

func TestResumeFromAnyPrefixOfTheJournal(t *testing.T) {
	h, target := change(t)
	s := &script{
		remarks: map[string][]Remark{"correctness": {flush, write}, "tests": {noTest}, "security": {flush}},
		fails:   map[string]error{"performance": crashed, "intent": agent.ErrBudget},
		verdict: rejecting(noTest.Title),
	}
	var full steptest.Log
	want, _, err := s.review(t, &full, h, target, Options{})
	if err != nil {
		t.Fatal(err)
	}
	entries, err := full.Entries(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(want.Incomplete) != 2 || len(entries) != 9+1+1+1 { // nine lenses answered or crashed, their end, a verifier, its end
		t.Fatalf("%d entries, incomplete %v", len(entries), want.Incomplete)
	}
	for n := range len(entries) + 1 {
		var log steptest.Log
		lease := log.Claim()
		recorded := map[string]bool{}
		for _, e := range entries[:n] {
			if _, err := log.Append(t.Context(), lease, e); err != nil {
				t.Fatal(err)
			}
			recorded[e.Key] = true
		}
		got, agents, err := s.review(t, &log, h, target, Options{})
		if err != nil {
			t.Fatalf("after %d entries: %v", n, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("after %d entries:\ngot  %+v\nwant %+v", n, got, want)
		}
		for _, asked := range agents.Steps() {
			if recorded[asked] {
				t.Errorf("after %d entries %s was asked again", n, asked)
			}
		}
		if n > 9 && slices.ContainsFunc(agents.Calls(), func(c runtime.Call) bool { return c.Role == LensRole }) {
			t.Errorf("after %d entries, with the lenses' end recorded, one was asked again: %q", n, agents.Steps())
		}
	}
}

// still is a site that was read before: it needs no git.
type still struct {
	changed []repo.Change
	patch   string
	files   map[string]string
}

func (s still) Changed(context.Context, string, string) ([]repo.Change, error) { return s.changed, nil }
func (s still) Patch(context.Context, string, string) (string, error)          { return s.patch, nil }
func (s still) Desk(string, string) agent.Workspace                            { return agenttest.Desk{} }
func (s still) File(_ context.Context, _, path string) ([]byte, error) {
	text, ok := s.files[path]
	if !ok {
		return nil, os.ErrNotExist
	}
	return []byte(text), nil
}

func (s still) Files(ctx context.Context, commit string, paths []string) (all [][]byte, err error) {
	for _, p := range paths {
		text, _ := s.File(ctx, commit, p) // nil where there is none
		all = append(all, text)
	}
	return all, nil
}

var small = still{
	changed: []repo.Change{{Status: repo.Added, Path: "a.go", New: 10}},
	patch:   "diff --git a/a.go b/a.go\nnew file mode 100644\n--- /dev/null\n+++ b/a.go\n@@ -0,0 +1 @@\n+package a\n",
	files:   map[string]string{"a.go": "package a\n"},
}

// A lens that took too long the first time could answer the second: it is not
// given the chance, or everything that was built on its silence would change.
func TestTimeOutIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{
			remarks: map[string][]Remark{"security": {remark("high", "a.go", 1, "", "Late", "Too late.")}, "tests": {remark("low", "a.go", 1, "", "In time", "Soon.")}},
			before: func(ctx context.Context, slot string) {
				wait := time.Minute
				if slot == "security" {
					wait = time.Hour
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			},
		}
		var log steptest.Log
		target := Target{Base: "base", Head: "head"}
		first, _, err := s.review(t, &log, small, target, Options{Timeout: 10 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		accounted(t, first)
		if !slices.Equal(names(first.Findings), []string{"In time"}) || first.Receipt.TimedOut != 1 || first.Clean() ||
			len(first.Incomplete) != 1 || first.Incomplete[0].State != batch.TimedOut || first.Incomplete[0].Lens != "security" {
			t.Errorf("%+v", first)
		}
		s.before = nil
		second, agents, err := s.review(t, &log, small, target, Options{Timeout: 10 * time.Minute})
		if err != nil || !reflect.DeepEqual(second, first) || len(agents.Calls()) != 0 {
			t.Errorf("%v, %q\n%+v", err, agents.Steps(), second)
		}
	})
}

func TestWhatStopsTheBuildRecordsNoEnd(t *testing.T) {
	for name, c := range map[string]struct {
		stop func(*agent.Crew, context.CancelCauseFunc)
		want error
	}{
		"draining": {func(c *agent.Crew, _ context.CancelCauseFunc) {
			drain := make(chan struct{})
			close(drain)
			c.Draining = drain
		}, agent.ErrDraining},
		"cancelled": {func(_ *agent.Crew, cancel context.CancelCauseFunc) { cancel(errCancel) }, errCancel},
		"a full disk": {func(c *agent.Crew, _ context.CancelCauseFunc) {
			c.Home = func(string) (string, error) { return "", errDisk }
		}, errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			var log steptest.Log
			ctx, cancel := context.WithCancelCause(t.Context())
			crew := agenttest.Crew(log.Open(t, step.Options{}), agenttest.New(new(script).play))
			c.stop(crew, cancel)
			if _, err := Run(ctx, crew, small, Target{Key: key, Base: "base", Head: "head"}, Options{}); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			cancel(nil)
			if keys := log.Keys(); len(keys) != 0 {
				t.Errorf("recorded %q", keys)
			}
		})
	}
}

// Calls that run when the process is about to stop are paid for: they end, and
// are kept.
func TestDrainingLetsRunningLensesEnd(t *testing.T) {
	var log steptest.Log
	drain, begun, refused := make(chan struct{}), make(chan struct{}, 2), make(chan struct{})
	s := &script{before: func(ctx context.Context, _ string) {
		if begun <- struct{}{}; len(begun) == 2 {
			close(drain)
			return
		}
		select { // one runs on until another was refused
		case <-refused:
		case <-ctx.Done():
		}
	}}
	var once sync.Once
	emit := func(e batch.Event) {
		if e.State == batch.Failed {
			once.Do(func() { close(refused) })
		}
	}
	agents := agenttest.New(s.play)
	crew := agenttest.Crew(log.Open(t, step.Options{}), agents)
	crew.Draining = drain
	_, err := Run(t.Context(), crew, small, Target{Key: key, Base: "base", Head: "head"}, Options{MaxConcurrency: 2, Emit: emit})
	if !errors.Is(err, agent.ErrDraining) {
		t.Errorf("%v", err)
	}
	if kept := log.Keys(); len(kept) != 2 || len(agents.Calls()) != 2 {
		t.Errorf("kept %q of %q", kept, agents.Steps())
	}
}

var errCancel, errDisk = errors.New("/cancel"), errors.New("no space left on device")

// workplace is a real worktree of a clone.
type workplace struct {
	agenttest.Desk
	clone *repo.Clone
	name  string
	head  string
	ready bool // guarded by the review, which makes it once at a time
	made  int
}

func (w *workplace) Dir() string { return w.clone.Dir(w.name) }

func (w *workplace) Prepare(ctx context.Context) error {
	if w.ready {
		return nil
	}
	w.ready, w.made = true, w.made+1
	_, err := w.clone.Worktree(ctx, w.name, w.head)
	return err
}

// shared gives all agents one worktree.
type shared struct {
	*history
	place *workplace
}

func (s *shared) Desk(name, commit string) agent.Workspace {
	s.place.name, s.place.head = name, commit
	return s.place
}

func TestAllAgentsReadOneWorktreeAtTheHead(t *testing.T) {
	h, target := change(t)
	clone, err := h.mirror.Clone(t.Context(), filepath.Join(t.TempDir(), "clone"))
	if err != nil {
		t.Fatal(err)
	}
	site := &shared{h, &workplace{clone: clone}}
	s := &script{remarks: map[string][]Remark{"correctness": {flush}}}
	_, agents := s.must(t, site, target, Options{})
	dirs := map[string]bool{}
	for _, c := range agents.Calls() {
		dirs[c.Dir] = true
	}
	for dir := range maps.Keys(dirs) {
		if text, err := os.ReadFile(filepath.Join(dir, "csv.go")); err != nil || string(text) != csv {
			t.Errorf("%q, %v", text, err)
		}
	}
	if len(dirs) != 1 || site.place.made != 1 {
		t.Errorf("%d directories, made %d times", len(dirs), site.place.made)
	}
}
