package simulate

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/graph"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReadNamesTheFieldThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ plan, want string }{
		"nothing":                {``, "the file is empty"},
		"no object":              {`[]`, "want an object"},
		"a slip in a name":       {`{"name":"p","issues":[{"name":"a"},{"name":"b","codr_ms":1}]}`, `issues[1]: unknown field "codr_ms"`},
		"a text for a time":      {`{"name":"p","issues":[{"name":"a","coder_ms":"1 s"}]}`, "issues[0]: coder_ms: want int64, got string"},
		"a text for a list":      {`{"name":"p","issues":[{"name":"a","depends_on":"b"}]}`, "issues[0]: depends_on"},
		"two plans in a file":    {`{"name":"p","issues":[{"name":"a"}]} {}`, "after the end"},
		"no issues":              {`{"name":"p","issues":[]}`, "issues: want 1 to"},
		"a negative time":        {`{"name":"p","issues":[{"name":"a","reviewer_ms":-1}]}`, "issues[0].reviewer_ms: want 0 to"},
		"a probability of two":   {`{"name":"p","issues":[{"name":"a","fail_probability":2}]}`, "issues[0].fail_probability: want 0 to 1, got 2"},
		"an unknown action":      {`{"name":"p","issues":[{"name":"a","advisor":["give_up"]}]}`, "issues[0].advisor[0]: want one of"},
		"a way out":              {`{"name":"p","issues":[{"name":"a","files":["../x"]}]}`, "issues[0].files[0]: want a path"},
		"git's own directory":    {`{"name":"p","issues":[{"name":"a","files":[".git/config"]}]}`, "issues[0].files[0]: want a path"},
		"a dependency on nobody": {`{"name":"p","issues":[{"name":"a","depends_on":["z"]}]}`, `depends on "z"`},
		"a circle":               {`{"name":"p","issues":[{"name":"a","depends_on":["b"]},{"name":"b","depends_on":["a"]}]}`, "in a circle: a, b"},
		"a name with a space":    {`{"name":"p","issues":[{"name":"a b"}]}`, `issue name "a b"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(strings.NewReader(c.plan))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
		})
	}
	p, err := Read(strings.NewReader(`{"name":"p","seed":3,"issues":[{"name":"a","coder_ms":5,"reviewer_ms":2,"advisor":["split"],"files":["go.txt"]}]}`))
	if err != nil || p.Seed != 3 || p.Issues[0].CoderMS != 5 || p.Issues[0].Advisor[0] != coding.Split {
		t.Errorf("a good plan is read as %+v, %v", p, err)
	}
}

func TestRandomPlansAreTheSameAgain(t *testing.T) {
	for _, n := range []int{1, 12, 200} {
		one, again, other := Random(n, 7), Random(n, 7), Random(n, 8)
		if err := one.check(); err != nil {
			t.Errorf("%d issues: %v", n, err)
		}
		same, differs := true, false
		for i := range one.Issues {
			same = same && one.Issues[i].CoderMS == again.Issues[i].CoderMS && strings.Join(one.Issues[i].DependsOn, " ") == strings.Join(again.Issues[i].DependsOn, " ")
			differs = differs || one.Issues[i].CoderMS != other.Issues[i].CoderMS
		}
		if !same || !differs {
			t.Errorf("%d issues: same seed same plan %v, other seed other plan %v", n, same, differs)
		}
	}
}

func TestScheduleIsTheOneWithoutOverhead(t *testing.T) {
	const s = time.Second
	is := func(n int, work, landing time.Duration, on ...string) task {
		return task{issue: graph.Issue{Name: string(rune('a' + n - 1)), Number: n, DependsOn: on}, work: work, landing: landing}
	}
	failed := is(1, 2*s, 0)
	failed.failed = true
	for name, c := range map[string]struct {
		tasks       []task
		lanes       int
		want, least time.Duration
	}{
		"nothing ran":                           {nil, 8, 0, 0},
		"one after the other in one lane":       {[]task{is(1, 2*s, 0), is(2, 3*s, 0)}, 1, 5 * s, 5 * s},
		"side by side":                          {[]task{is(1, 2*s, 0), is(2, 3*s, 0)}, 2, 3 * s, 3 * s},
		"a chain":                               {[]task{is(1, 2*s, 0), is(2, 3*s, 0, "a")}, 8, 5 * s, 5 * s},
		"the longest path first":                {[]task{is(1, 1*s, 0), is(2, 1*s, 0), is(3, 1*s, 0), is(4, 3*s, 0, "c")}, 2, 4 * s, 4 * s},
		"an order that no other beats by much":  {[]task{is(1, 1*s, 0), is(2, 1*s, 0), is(3, 2*s, 0)}, 2, 3 * s, 2 * s},
		"a merger takes time but no lane":       {[]task{is(1, 2*s, 1*s), is(2, 1*s, 0, "a"), is(3, 2*s, 0)}, 1, 5 * s, 5 * s},
		"a failed one holds its lane":           {[]task{failed, is(2, 3*s, 0)}, 1, 5 * s, 5 * s},
		"landings at one instant are all known": {[]task{is(1, 1*s, 0), is(2, 1*s, 0), is(3, 1*s, 0, "b"), is(4, 1*s, 0, "c")}, 2, 3 * s, 3 * s},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := schedule(c.tasks, c.lanes)
			least, lowErr := lowerBound(c.tasks, c.lanes)
			if err := errors.Join(err, lowErr); err != nil {
				t.Fatal(err)
			}
			if got != c.want || least != c.least {
				t.Errorf("bound %s, lower bound %s; want %s, %s", got, least, c.want, c.least)
			}
		})
	}
}

// quick is a plan of a diamond whose agents hardly take time.
func quick() Plan {
	issue := func(name string, on ...string) Issue {
		return Issue{Name: name, CoderMS: 30, ReviewerMS: 10, DependsOn: on}
	}
	return Plan{Name: "diamond", Issues: []Issue{issue("top"), issue("left", "top"), issue("right", "top"), issue("end", "left", "right")}}
}

func run(t *testing.T, p Plan) Result {
	t.Helper()
	dir := t.TempDir()
	r, err := Run(t.Context(), p, Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	empty(t, dir)
	return r
}

func empty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestAPlanRunsThroughTheEngine(t *testing.T) {
	r := run(t, quick())
	if r.Merges != 4 || r.AgentCalls != 9 { // the ninth writes the words of the pull request
		t.Errorf("%d merges, %d calls", r.Merges, r.AgentCalls)
	}
	if r.BoundMS != 120 || r.LowerBoundMS != 120 || r.MakespanMS < r.BoundMS || r.Ratio < 1 {
		t.Errorf("makespan %d, bound %d, lower bound %d, ratio %v", r.MakespanMS, r.BoundMS, r.LowerBoundMS, r.Ratio)
	}
	if r.OwnCPUMS <= 0 || r.GitCPUMS <= 0 || r.MaxParallel < 1 || r.MaxParallel > 2 {
		t.Errorf("own %d ms, git %d ms, %d at a time", r.OwnCPUMS, r.GitCPUMS, r.MaxParallel)
	}
}

func TestIterationsAndQACostTheirTime(t *testing.T) {
	r := run(t, Plan{Name: "p", Issues: []Issue{
		{Name: "twice", CoderMS: 20, ReviewerMS: 10, Iterations: 2},
		{Name: "flagged", CoderMS: 20, ReviewerMS: 10, QAMS: 30, SynthesizerMS: 5, DependsOn: []string{"twice"}},
	}})
	if r.Merges != 2 || r.AgentCalls != 9 || r.BoundMS != 60+55 {
		t.Errorf("%d merges, %d calls, bound %d ms", r.Merges, r.AgentCalls, r.BoundMS)
	}
}

func TestSharedFilesMeetInTheMerger(t *testing.T) {
	issue := func(name string) Issue {
		return Issue{Name: name, CoderMS: 30, ReviewerMS: 10, MergerMS: 15, Files: []string{"docs/shared.txt"}}
	}
	r := run(t, Plan{Name: "p", Issues: []Issue{issue("one"), issue("two"), issue("three")}})
	mended := 0
	for _, l := range r.Lanes {
		for _, b := range l.Bars {
			if b.Kind == Mending {
				mended++
			}
		}
	}
	if r.Merges != 3 || mended != 2 {
		t.Errorf("%d merges, %d of them by the Merger", r.Merges, mended)
	}
}

func TestWhatFailsIsDecidedByTheSeed(t *testing.T) {
	p := quick()
	p.Issues[1].FailProbability = 1
	r := run(t, p)
	if r.Merges == 4 {
		t.Errorf("an issue whose Coder never gets through has landed")
	}
	a := agents{seed: 5}
	failed := 0
	for i := range 1000 {
		step := "issue-07/round-1/iter-" + word(i+1) + "/coder"
		fails, again := a.fails(Issue{FailProbability: 0.3}, step), a.fails(Issue{FailProbability: 0.3}, step)
		if fails != again {
			t.Fatal("the same step is decided in two ways")
		}
		if fails {
			failed++
		}
	}
	if failed < 240 || failed > 360 {
		t.Errorf("%d of 1000 fail at a probability of 0.3", failed)
	}
}

func TestTheAdvisorFollowsItsScript(t *testing.T) {
	is := Issue{Name: "part", Advisor: []coding.AdvisorAction{coding.RetryApproach, coding.Split}}
	for round, want := range map[int]coding.AdvisorAction{1: coding.RetryApproach, 2: coding.Split, 3: coding.EscalateToReplan} {
		if d := decide(is, round); d.Action != want {
			t.Errorf("after round %d: %s, want %s", round, d.Action, want)
		}
	}
	subs := decide(is, 2).SubIssues
	if _, err := graph.New(subs); err != nil || len(subs) != 2 || subs[0].ParentName != "part" {
		t.Errorf("it splits into %+v: %v", subs, err)
	}
}

func TestAStoppedSimulationGoesOnWhereItWas(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), quick(), Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	defer stop(nil)
	s.agents.heard = func(n int) {
		if n == 4 {
			stop(enough)
		}
	}
	if _, err := s.Run(ctx); !errors.Is(err, enough) {
		t.Fatalf("got %v", err)
	}
	entries, err := s.store.Entries(t.Context(), buildID, 0)
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for _, e := range entries {
		recorded[e.Key] = e.Runtime != ""
	}
	cut := len(s.agents.calls)
	s.agents.heard = nil
	r, err := s.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Merges != 4 || cut != 4 || !recorded["issue-01/round-1/iter-1/code_reviewer"] {
		t.Errorf("%d merges, %d calls before the stop, recorded %v", r.Merges, cut, recorded)
	}
	for _, c := range s.agents.calls[cut:] {
		if recorded[c.step] {
			t.Errorf("%s is in the journal and was asked again", c.step)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	empty(t, dir)
}

func TestAStopLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	ctx, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	p := Random(12, 1)
	if _, err := Run(ctx, p, Options{Dir: dir}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	empty(t, dir)
}

func TestGanttIsADrawing(t *testing.T) {
	ms := time.Millisecond
	r := Result{Name: `a "plan" <of> & co`, MakespanMS: 2600, BoundMS: 2500, Ratio: 1.04, Lanes: []Lane{
		{1, "first", []Bar{{InLane, 0, 900 * ms}, {Coding, 10 * ms, 600 * ms}, {Judging, 610 * ms, 880 * ms}, {Landing, 900 * ms, 950 * ms}}},
		{2, strings.Repeat("long-", 10) + "name", []Bar{{InLane, 950 * ms, 2600 * ms}, {Mending, 2600 * ms, 2600 * ms}}},
	}}
	var got bytes.Buffer
	if err := Gantt(&got, r); err != nil {
		t.Fatal(err)
	}
	texts := ""
	for decoder := xml.NewDecoder(&got); ; {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if text, ok := token.(xml.CharData); ok {
			texts += string(text) + "\n"
		}
	}
	for _, want := range []string{r.Name, "01 first", "02 long-long-", "500ms", "2.5s", "ratio 1.040", "first coder: 590ms", "prefers-color-scheme: dark"} {
		if !strings.Contains(texts, want) {
			t.Errorf("the drawing has no %q", want)
		}
	}
	if err := Gantt(failing{}, r); err == nil {
		t.Error("a full disk is no error")
	}
}

// failing is a file on a full disk.
type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("no space left") }

func TestTheEngineGetsBarrierAndLanes(t *testing.T) {
	s, err := Open(t.Context(), quick(), Options{Dir: t.TempDir(), Barrier: "level", MaxParallelIssues: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	c := s.engine.Defaults
	if c.Pipeline.Barrier != "level" || c.Limits.MaxParallelIssues != 3 {
		t.Errorf("the engine is set to barrier %q and %d issues", c.Pipeline.Barrier, c.Limits.MaxParallelIssues)
	}
}
