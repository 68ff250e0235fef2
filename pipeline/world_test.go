package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	goleak.VerifyTestMain(m)
}

// world is a whole build but for the model: real git, real commands in a real
// sandbox, a journal in memory, and agents that play a script.
type world struct {
	t      *testing.T
	dir    string // the user's repository
	log    steptest.Log
	engine *Engine
	agents *agenttest.Agents

	issues []graph.Issue
	// code does an issue's work in its worktree; the default writes <name>.txt.
	code map[string]func(dir string) error
	// answer, if it knows the call, wins over everything.
	answer  func(ctx context.Context, c runtime.Call) (any, error)
	signals chan Signal
	before  []Signal         // what was said before the claim
	ask     func(r *Request) // changes what is asked for
	forge   Forge            // in the place of the local one
	day     agent.Day        // what all builds share; nil: no bound
	aged    time.Duration    // how long ago all that is recorded seems to be
	// heard hears the key of every entry, once the build knows it; may be nil.
	heard func(key string)

	reviews int // that asked for changes
}

// check is the repository's test command: green unless a file says otherwise.
const check = `test ! -e red.txt
`

func newWorld(t *testing.T, issues ...graph.Issue) *world {
	t.Helper()
	sandboxtest.Need(t, "bwrap")
	w := &world{
		t: t, dir: t.TempDir(), issues: issues, code: map[string]func(string) error{},
		signals: make(chan Signal),
	}
	w.agents = agenttest.New(w.play)
	w.git("init", "-q", "-b", "main")
	w.write("check.sh", check)
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\n")
	w.commit()
	state := t.TempDir()
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Bubblewrap, StateDir: filepath.Join(state, "sandbox")})
	if err != nil {
		t.Fatal(err)
	}
	w.engine = &Engine{
		State: state, Box: box, Slots: agent.NewSlots(8), Defaults: config.Defaults(), Only: "script",
		Runtime: func(context.Context, string) (runtime.Runtime, error) { return w.agents, nil },
		Log:     slog.New(slog.DiscardHandler),
	}
	return w
}

func (w *world) git(args ...string) string {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "git", append([]string{"-C", w.dir, "-c", "user.name=u", "-c", "user.email=u@example.com"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

func (w *world) write(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) commit() {
	w.git("add", "-A")
	w.git("commit", "-qm", "start")
}

// configure adds to the repository's configuration.
func (w *world) configure(yaml string) {
	w.t.Helper()
	w.write(".github/slipway.yml", "commands: {test: sh check.sh}\n"+yaml+"\n")
	w.commit()
}

// when has a role answer so; where it answers nothing, what was said before
// counts.
func (w *world) when(role string, answer func(ctx context.Context, c runtime.Call) (any, error)) {
	before := w.answer
	w.answer = func(ctx context.Context, c runtime.Call) (any, error) {
		if c.Role == role {
			if v, err := answer(ctx, c); v != nil || err != nil {
				return v, err
			}
		}
		if before != nil {
			return before(ctx, c)
		}
		return nil, nil
	}
}

// run runs the build on the journal as it stands.
func (w *world) run() (report.Build, error) {
	w.t.Helper()
	mirror, err := w.engine.Mirror(w.t.Context(), worldRepo())
	if err != nil {
		w.t.Fatal(err)
	}
	var on Forge = Local{Dir: w.dir, Mirror: mirror}
	if w.forge != nil {
		on = w.forge
	}
	return w.engine.Run(w.t.Context(), Job{
		Request: w.request(), Forge: on,
		Before: w.before, Signals: w.signals, Day: w.day,
		Extend: func(context.Context) error { return nil },
		Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
			if known := o.Recorded; w.heard != nil {
				o.Recorded = func(e step.Entry) { known(e); w.heard(e.Key) }
			}
			return step.Open(ctx, aged{&w.log, w.aged}, w.log.Claim(), o)
		},
	})
}

// request is what is asked for.
func (w *world) request() Request {
	request := Request{Build: "b-1", Goal: "Do the thing\nwell", Repo: worldRepo(), By: forge.Person{Login: "mira", ID: 7}}
	if w.ask != nil {
		w.ask(&request)
	}
	return request
}

// aged is a log whose entries are found to be older than they are.
type aged struct {
	*steptest.Log
	by time.Duration
}

// Entries returns what was appended after seq.
func (l aged) Entries(ctx context.Context, job string, seq int64) ([]queue.Entry, error) {
	entries, err := l.Log.Entries(ctx, job, seq)
	for i := range entries {
		entries[i].At = entries[i].At.Add(-l.by)
	}
	return entries, err
}

// say sends what a person says to the next claim.
func (w *world) say(id, kind string, what Said) {
	w.t.Helper()
	body, err := json.Marshal(what)
	if err != nil {
		w.t.Fatal(err)
	}
	w.before = append(w.before, Signal{ID: id, Kind: kind, Body: body})
}

// waits runs the build and wants it to wait; it returns the gate.
func (w *world) waits(state report.State) report.Gate {
	w.t.Helper()
	_, err := w.run()
	waiting, ok := errors.AsType[*Waiting](err)
	if !ok || waiting.State != state {
		w.t.Fatalf("the build does not wait as %s: %v\nsteps: %v", state, err, w.log.Keys())
	}
	b, err := Read(w.t.Context(), &w.log, "job")
	if err != nil || b.State != state || b.Gate == nil {
		w.t.Fatalf("readers see %s with gate %v: %v", b.State, b.Gate, err)
	}
	return *b.Gate
}

// must runs the build and wants it to end in the state.
func (w *world) must(state report.State) report.Build {
	w.t.Helper()
	b, err := w.run()
	if err != nil {
		w.t.Fatal(err)
	}
	if b.State != state {
		w.t.Fatalf("the build ended as %s (%s), want %s\nsteps: %v", b.State, b.Cause, state, w.log.Keys())
	}
	return b
}

// issue is a planned issue that touches the files.
func issue(name string, files []string, after ...string) graph.Issue {
	return graph.Issue{
		Name: name, Title: "Do " + name, Description: "Do " + name + ".", DependsOn: after, FilesToModify: files,
		AcceptanceCriteria: []graph.Criterion{{Text: name + " is done", PRDIDs: []string{"ac-1"}}},
		Guidance:           graph.Guidance{RiskRationale: "familiar work"},
	}
}

// play is what the agents do where a test says nothing else: all goes well.
func (w *world) play(ctx context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
	if w.answer != nil {
		if v, err := w.answer(ctx, c); v != nil || err != nil {
			return agenttest.JSON(v), err
		}
	}
	switch c.Role {
	case "pm":
		return agenttest.JSON(plan.PRD{
			Title: "The thing", ValidatedDescription: "d", Size: plan.Trivial,
			AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "the thing is done", MustHave: true}},
		}), nil
	case "sprint_planner":
		return agenttest.JSON(plan.Sprint{Issues: w.issues, Rationale: "r"}), nil
	case "issue_writer":
		return agenttest.JSON(plan.Spec{IssueName: "x", Spec: "do it", Success: true}), nil
	case "coder":
		name := w.nameOf(c.Step)
		work := w.code[name]
		if work == nil {
			work = func(dir string) error { return os.WriteFile(filepath.Join(dir, name+".txt"), []byte(name+"\n"), 0o644) }
		}
		if err := work(c.Dir); err != nil {
			return runtime.Result{}, &runtime.Error{Class: runtime.Refused, Reason: err.Error()}
		}
		return agenttest.JSON(coding.Submission{FilesChanged: []string{}, Summary: "did " + name, Complete: true}), nil
	case "lens":
		return agenttest.JSON(review.Remarks{Findings: []review.Remark{}}), nil
	case "code_reviewer":
		return agenttest.JSON(coding.ReviewResult{Approved: true, Summary: "good"}), nil
	case "verifier":
		return agenttest.JSON(Judgement{Summary: "s", CriteriaResults: []CriterionResult{{PRDID: "ac-1", Passed: true, Evidence: "seen"}}}), nil
	case "git":
		return agenttest.JSON(PullText{Title: "The thing", Summary: "It is done."}), nil
	}
	return runtime.Result{}, &runtime.Error{Class: runtime.Refused, Reason: "nobody plays " + c.Role}
}

// fold is the state of the build as its journal tells it now.
func (w *world) fold() *Fold {
	entries, err := w.log.Entries(w.t.Context(), "job", 0)
	if err != nil {
		w.t.Error(err)
	}
	f := NewFold()
	for _, e := range entries {
		f.Add(e)
	}
	if f.err != nil {
		w.t.Errorf("the journal cannot be read: %v", f.err)
	}
	return f
}

// priced makes each call cost so many micro-dollars.
func (w *world) priced(micros func(c runtime.Call) int64) {
	agents := w.agents
	w.engine.Runtime = func(context.Context, string) (runtime.Runtime, error) {
		return agenttest.New(func(ctx context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
			r, err := agents.Run(ctx, c, emit)
			r.CostMicros = micros(c)
			return r, err
		}), nil
	}
}

// until hears of appends to the journal: the channel is closed when one whose
// key ends so is about to be stored.
func (w *world) until(suffix string) <-chan struct{} {
	seen := make(chan struct{})
	var once sync.Once
	before := w.log.Refuse
	w.log.Refuse = func(ctx context.Context, e queue.Entry) error {
		if strings.HasSuffix(e.Key, suffix) {
			once.Do(func() { close(seen) })
		}
		if before != nil {
			return before(ctx, e)
		}
		return nil
	}
	return seen
}

// await waits for an event or the end of a call.
func await(ctx context.Context, event <-chan struct{}) error {
	select {
	case <-event:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// nameOf is the issue that a step belongs to.
func (w *world) nameOf(key string) string {
	key, _ = cutSegment(key)
	if s := w.fold().byKey[first(key)]; s != nil {
		return s.issue.Name
	}
	return ""
}

// prompts are those that a role was given for an issue, in order.
func (w *world) prompts(role, issue string) (texts []string) {
	for _, c := range w.agents.Calls() {
		if c.Role == role && (issue == "" || w.nameOf(c.Step) == issue) {
			texts = append(texts, c.Prompt)
		}
	}
	return texts
}

// owes wants an item of debt of that type about the issue.
func (w *world) owes(b report.Build, kind debt.Type, issue, text string) {
	w.t.Helper()
	for _, d := range b.Debt {
		if d.Type == kind && d.IssueName == issue && strings.Contains(d.Justification+d.Criterion, text) {
			return
		}
	}
	w.t.Errorf("no %s about %s with %q in %+v", kind, issue, text, b.Debt)
}

// ref is the commit that the mirror holds at a ref, or "".
func (w *world) ref(name string) string {
	w.t.Helper()
	mirror, err := w.engine.Mirror(w.t.Context(), worldRepo())
	if err != nil {
		w.t.Fatal(err)
	}
	sha, err := mirror.Ref(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return sha
}

func (w *world) outcome(b report.Build, name string) report.Issue {
	w.t.Helper()
	for _, is := range b.Issues {
		if is.Name == name {
			return is
		}
	}
	w.t.Fatalf("no issue %s in %v", name, b.Issues)
	return report.Issue{}
}

// file is a file on the published branch, or "" when it is not there.
func (w *world) file(b report.Build, name string) string {
	w.t.Helper()
	text, err := exec.CommandContext(w.t.Context(), "git", "-C", w.dir, "show", b.Branch+":"+name).Output()
	if err != nil {
		return ""
	}
	return string(text)
}

// appendTo is the work of an issue that adds a line to a file.
func appendTo(file, line string) func(dir string) error {
	return func(dir string) error {
		old, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return os.WriteFile(filepath.Join(dir, file), fmt.Appendf(old, "%s\n", line), 0o644)
	}
}

func worldRepo() forge.Repo { return forge.Repo{Owner: "local", Name: "r"} }
