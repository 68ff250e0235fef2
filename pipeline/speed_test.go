package pipeline_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/queue"
)

// What the engine may take for itself, agents and their time apart. A benchmark
// reports each measure beside its share of the bound: above 1 is too slow.
const (
	boundStart   = time.Second            // from the plan to the first Coder, with 500 issues
	boundOwnCPU  = 50 * time.Millisecond  // of this process, for one agent call
	boundGitCPU  = 250 * time.Millisecond // of git, for one agent call
	boundLanding = time.Second            // from the choice to the advanced branch, for one issue
	boundEntry   = time.Millisecond       // to take one journal entry into the account of 500 issues
)

// within reports a measure and its share of a bound.
func within(b *testing.B, name string, got, bound time.Duration) {
	b.Helper()
	b.ReportMetric(float64(got.Microseconds())/1000, name+"-ms")
	b.ReportMetric(float64(got)/float64(bound), name+"/bound")
}

// BenchmarkFirstCoder is how long a build of 500 issues takes from the last
// word of the planner to the first Coder's start.
func BenchmarkFirstCoder(b *testing.B) {
	var total time.Duration
	for b.Loop() {
		total += firstCoder(b, 500)
	}
	within(b, "start", total/time.Duration(b.N), boundStart)
}

// BenchmarkBuild runs a build of 12 independent issues whose agents take no
// time, and reports what one agent call and one landing cost.
func BenchmarkBuild(b *testing.B) {
	var self, git, landing time.Duration
	calls, landed := 0, 0
	for b.Loop() {
		s := newStage(b, issues(12, 0))
		selfBefore, gitBefore := used(b, syscall.RUSAGE_SELF), used(b, syscall.RUSAGE_CHILDREN)
		final := s.run(b, nil)
		self += used(b, syscall.RUSAGE_SELF) - selfBefore
		git += used(b, syscall.RUSAGE_CHILDREN) - gitBefore
		calls += final.AgentCalls
		for _, is := range final.Issues {
			if is.Merge == "" {
				b.Fatalf("issue %s is %s: %s", is.Name, is.Outcome, is.Detail)
			}
		}
		n, took := s.landings(b)
		landed, landing = landed+n, landing+took
	}
	within(b, "own-cpu/call", self/time.Duration(calls), boundOwnCPU)
	within(b, "git-cpu/call", git/time.Duration(calls), boundGitCPU)
	within(b, "landing", landing/time.Duration(landed), boundLanding)
}

// BenchmarkWatch is what following a build of 500 issues costs for each entry.
func BenchmarkWatch(b *testing.B) {
	entries := bigJournal(b, 500)
	for b.Loop() {
		watch := pipeline.NewWatch()
		for _, e := range entries {
			watch.Add(e)
		}
	}
	within(b, "entry", b.Elapsed()/time.Duration(b.N*len(entries)), boundEntry)
}

func TestBigBuildStartsAndIsTold(t *testing.T) {
	if took := firstCoder(t, 500); took > 10*boundStart {
		t.Errorf("the first Coder started %s after the plan", took)
	}
}

func TestPagesOfABigBuildFit(t *testing.T) {
	fold := pipeline.NewFold()
	for i, e := range bigJournal(t, 500) {
		fold.Add(e)
		if i%250 == 0 {
			fits(t, "comment", report.Comment(fold.Report(e.At)))
		}
	}
	final := fold.Report(time.Now())
	if n := len(final.Issues); n != 500 {
		t.Fatalf("the account has %d issues", n)
	}
	for _, is := range final.Issues {
		if is.Outcome != report.Completed {
			t.Fatalf("issue %s is %s", is.Name, is.Outcome)
		}
	}
	fits(t, "comment", report.Comment(final))
	fits(t, "pull request", report.PullBody(final, strings.Repeat("a template\n", 200)))
}

// fits wants text that GitHub takes as one comment or body.
func fits(t testing.TB, what, text string) {
	t.Helper()
	if n := utf8.RuneCountInString(text); n == 0 || n > 65_536 {
		t.Errorf("the %s has %d characters", what, n)
	}
}

// firstCoder runs a build until the first Coder is asked, cancels it, and
// returns the time between the plan and that.
func firstCoder(t testing.TB, n int) time.Duration {
	s := newStage(t, issues(n, 10))
	var once sync.Once
	var took time.Duration
	signals := make(chan pipeline.Signal, 1)
	s.coder = func(ctx context.Context) {
		once.Do(func() {
			took = time.Since(s.planned)
			signals <- pipeline.Signal{ID: "1", Kind: pipeline.CancelSignal, Body: json.RawMessage(`{}`)}
		})
		<-ctx.Done()
	}
	final := s.run(t, signals)
	if final.State != report.Canceled || took == 0 {
		t.Fatalf("the build is %s: %s", final.State, final.Cause)
	}
	if len(s.forge.comments) == 0 {
		t.Error("nothing was told of the build")
	}
	for _, text := range s.forge.comments {
		fits(t, "comment", text)
	}
	return took
}

// issues plans n of them: each in its own file and, where shared is not 0, in
// one of so many shared ones, after two of the issues 16 and 17 before it.
func issues(n, shared int) []graph.Issue {
	var out []graph.Issue
	for i := range n {
		is := graph.Issue{
			Name: fmt.Sprintf("part-%03d", i), Title: fmt.Sprintf("Build part %d of the whole", i), Description: strings.Repeat("What to do. ", 20),
			AcceptanceCriteria: []graph.Criterion{{Text: "It is there", PRDIDs: []string{"ac-1"}}},
			FilesToCreate:      []string{fmt.Sprintf("part-%03d.txt", i)},
			Guidance:           graph.Guidance{RiskRationale: "small and apart"},
		}
		if shared > 0 {
			is.FilesToModify = []string{fmt.Sprintf("shared-%d.txt", i%shared)}
			for _, back := range []int{16, 17} {
				if i >= back {
					is.DependsOn = append(is.DependsOn, fmt.Sprintf("part-%03d", i-back))
				}
			}
		}
		out = append(out, is)
	}
	return out
}

// A stage is one build with a real repository and store, and agents that
// answer at once.
type stage struct {
	engine *pipeline.Engine
	store  *queue.SQLite
	forge  *told
	goal   pipeline.Request

	issues  []graph.Issue
	planned time.Time                 // when the planner answered
	coder   func(ctx context.Context) // runs before a Coder answers; may be nil
}

// told is a local forge that remembers what it was to say.
type told struct {
	pipeline.Local
	mu       sync.Mutex
	comments []string
}

func (f *told) EnsureComment(ctx context.Context, c forge.Comment) (forge.Comment, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.comments = append(f.comments, c.Body)
	return f.Local.EnsureComment(ctx, c)
}

func newStage(t testing.TB, issues []graph.Issue) *stage {
	t.Helper()
	state, user := t.TempDir(), t.TempDir()
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"}, {"-c", "user.name=u", "-c", "user.email=u@example.com", "commit", "-q", "--allow-empty", "-m", "Begin"},
	} {
		if out, err := exec.Command("git", append([]string{"-C", user}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(state, "store"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.None, StateDir: filepath.Join(state, "sandbox")})
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{store: store, issues: issues}
	agents := agenttest.New(s.play)
	s.engine = &pipeline.Engine{
		State: state, Box: box, Slots: agent.NewSlots(8), Only: "script", Defaults: config.Defaults(), Log: slog.New(slog.DiscardHandler),
		Runtime: func(context.Context, string) (runtime.Runtime, error) { return agents, nil },
	}
	s.goal = pipeline.Request{
		Build: "b-1", Repo: forge.Repo{Owner: "o", Name: "r"}, Goal: "Build the whole", Comment: forge.Comment{Marker: "run b-1"},
	}
	mirror, err := s.engine.Mirror(t.Context(), s.goal.Repo)
	if err != nil {
		t.Fatal(err)
	}
	s.forge = &told{Local: pipeline.Local{Dir: user, Mirror: mirror}}
	return s
}

// run runs the build to its end.
func (s *stage) run(t testing.TB, signals <-chan pipeline.Signal) report.Build {
	t.Helper()
	if _, _, err := s.store.Put(t.Context(), queue.Job{ID: "b-1", Kind: pipeline.KindBuild}); err != nil {
		t.Fatal(err)
	}
	lease, err := s.store.Claim(t.Context(), "w", pipeline.KindBuild)
	if err != nil {
		t.Fatal(err)
	}
	final, err := s.engine.Run(t.Context(), pipeline.Job{
		Request: s.goal, Forge: s.forge, Signals: signals, Extend: func(context.Context) error { return nil },
		Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
			return step.Open(ctx, s.store, lease, o)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return final
}

// landings counts what landed and adds up how long that took.
func (s *stage) landings(t testing.TB) (n int, took time.Duration) {
	t.Helper()
	entries, err := s.store.Entries(t.Context(), "b-1", 0)
	if err != nil {
		t.Fatal(err)
	}
	chosen := map[string]time.Time{}
	for _, e := range entries {
		key, advanced := strings.CutSuffix(e.Key, "/advanced")
		switch {
		case !strings.HasPrefix(e.Key, "land/"):
		case advanced:
			var out struct{ Landed []json.RawMessage }
			if err := json.Unmarshal(e.Outcome, &out); err != nil {
				t.Fatal(err)
			}
			n, took = n+len(out.Landed), took+e.At.Sub(chosen[key])
		default:
			chosen[key] = e.At
		}
	}
	return n, took
}

// play answers as each role would on a day when all goes well.
func (s *stage) play(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
	switch c.Role {
	case plan.ProductManager.Name:
		return agenttest.JSON(plan.PRD{
			Title: "The whole", Size: plan.Trivial, AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "Every part is there", MustHave: true}},
		}), nil
	case plan.SprintPlanner.Name:
		answer := agenttest.JSON(plan.Sprint{Issues: s.issues, Rationale: "One part each."})
		s.planned = time.Now()
		return answer, nil
	case plan.IssueWriter.Name:
		return agenttest.JSON(plan.Spec{Spec: "Write the file.", Success: true}), nil
	case coding.Coder.Name:
		if s.coder != nil {
			s.coder(ctx)
			return runtime.Result{}, context.Cause(ctx)
		}
		name := "done-" + strings.Split(c.Step, "/")[0]
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(c.Step), 0o644); err != nil {
			return runtime.Result{}, err
		}
		return agenttest.JSON(coding.Submission{FilesChanged: []string{name}, Summary: "Written.", Complete: true}), nil
	case coding.Reviewer.Name:
		return agenttest.JSON(coding.ReviewResult{Approved: true, Summary: "Good."}), nil
	case pipeline.Verifier.Name:
		return agenttest.JSON(pipeline.Judgement{
			CriteriaResults: []pipeline.CriterionResult{{PRDID: "ac-1", Passed: true, Evidence: "the files"}}, Summary: "All there.",
		}), nil
	case pipeline.Git.Name:
		return agenttest.JSON(pipeline.PullText{Title: "Build the whole", Summary: "All parts."}), nil
	}
	return runtime.Result{}, &runtime.Error{Class: runtime.Fatal, Reason: "nobody plays " + c.Role}
}

// bigJournal is the journal of a build in which n issues landed, each after a
// spec, a Coder and a reviewer.
func bigJournal(t testing.TB, n int) []step.Entry {
	t.Helper()
	planned := issues(n, 10)
	shape, err := graph.New(planned)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var entries []step.Entry
	add := func(key string, outcome any, role bool) {
		text, err := json.Marshal(outcome)
		if err != nil {
			t.Fatal(err)
		}
		at = at.Add(time.Second)
		e := step.Entry{Seq: int64(len(entries) + 1), Key: key, Outcome: text, At: at}
		if role {
			e.Runtime, e.Model, e.CostMicros = "claude_code", "sonnet", 1000
		}
		entries = append(entries, e)
	}
	type fields map[string]string // of outcomes whose types are the pipeline's own
	add("begin", fields{"build": "b-1", "repo": "o/r", "title": "The whole"}, false)
	add("pin", fields{"base": "main", "base_sha": strings.Repeat("a", 40)}, false)
	add("init", fields{}, false)
	add("plan/kept", plan.Result{
		PRD:    plan.PRD{Title: "The whole", AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "Every part is there", MustHave: true}}},
		Issues: shape.Issues(), Levels: shape.Levels(),
	}, false)
	for i, is := range shape.Issues() {
		commit := fmt.Sprintf("%040d", is.Number)
		add("start/"+is.Key(), fields{"base": commit}, false)
		add(is.Key()+"/issue_writer", plan.Spec{Success: true}, true)
		add(is.Key()+"/round-1/iter-1/coder", coding.Submission{Complete: true}, true)
		add(is.Key()+"/round-1/iter-1/code_reviewer", coding.ReviewResult{Approved: true}, true)
		add(is.Key()+"/kept", struct {
			Name   string        `json:"name"`
			Result coding.Result `json:"result"`
			Ref    string        `json:"ref"`
		}{is.Name, coding.Result{Outcome: report.Completed, Commit: commit, Changed: true, Iterations: 1, Summary: strings.Repeat("Done. ", 30)}, "refs/slipway/b-1/" + is.Slug()}, false)
		land := fmt.Sprintf("land/%04d", i+1)
		add(land, struct {
			Issues []string `json:"issues"`
			Base   string   `json:"base"`
		}{[]string{is.Name}, commit}, false)
		add(land+"/advanced", struct {
			Head   string   `json:"head"`
			Landed []fields `json:"landed"`
		}{commit, []fields{{"name": is.Name, "merge": commit}}}, false)
	}
	return entries
}

// used is the CPU time of this process or of the children that it waited for.
func used(t testing.TB, who int) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
