package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

// arena is a comparison with its contenders: a world with a queue in it.
type arena struct {
	*world
	board  *board
	jobs   []Request
	logs   map[string]*steptest.Log
	said   map[string][]Signal
	buried map[string]string
}

// board is a forge that remembers what is on it.
type board struct {
	Local
	comments map[string]string // by marker
	drafts   []forge.Draft
}

func (b *board) Ticket(context.Context) (forge.Ticket, error) { return theTicket, nil }

func (b *board) EnsureComment(_ context.Context, c forge.Comment) (forge.Comment, error) {
	b.comments[c.Marker] = c.Body
	return c, nil
}

func (b *board) EnsureDraft(_ context.Context, d forge.Draft) (forge.Pull, error) {
	if !slices.ContainsFunc(b.drafts, func(o forge.Draft) bool { return o.Head == d.Head }) {
		b.drafts = append(b.drafts, d)
	}
	return forge.Pull{Number: 5, URL: "https://github.example/o/r/pull/5", Draft: true, Body: d.Body}, nil
}

var theTicket = forge.Ticket{Number: 7, Title: "The thing", Body: "well"}

// newArena compares the models good and fair; what a model makes names it.
func newArena(t *testing.T, settings string, targets ...string) *arena {
	t.Helper()
	w := newWorld(t, issue("a", nil))
	w.configure("pipeline: {enable_review: false, check_ci: false, max_verify_fix_cycles: 0}\n" + settings)
	mirror, err := w.engine.Mirror(t.Context(), worldRepo())
	if err != nil {
		t.Fatal(err)
	}
	a := &arena{
		world: w, board: &board{Local: Local{Dir: w.dir, Mirror: mirror}, comments: map[string]string{}},
		logs: map[string]*steptest.Log{}, said: map[string][]Signal{}, buried: map[string]string{},
	}
	w.when("coder", func(_ context.Context, c runtime.Call) (any, error) {
		return coding.Submission{FilesChanged: []string{}, Summary: "did it", Complete: true},
			os.WriteFile(filepath.Join(c.Dir, "made.txt"), []byte("by "+c.Model+"\n"), 0o644)
	})
	w.when("pm", func(_ context.Context, c runtime.Call) (any, error) {
		if c.Model == "ill" {
			return nil, &runtime.Error{Class: runtime.Refused, Reason: "the model is ill"}
		}
		return nil, nil
	})
	if targets == nil {
		targets = []string{"codex:good", "native:fair"}
	}
	must(t, a.Start(t.Context(), Request{
		Build: "b-1", Repo: worldRepo(), Ticket: theTicket, By: forge.Person{Login: "mira", ID: 7}, Targets: targets, Budget: 10_000_000,
		Comment: forge.Comment{Ticket: 7, Marker: "<!-- run=b-1 -->"},
	}))
	return a
}

// trivial is a goal of one criterion, with questions.
func trivial(questions ...string) plan.PRD {
	return plan.PRD{
		Title: "The thing", ValidatedDescription: "d", Size: plan.Trivial, Questions: questions,
		AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "the thing is done", MustHave: true}},
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Start queues a build.
func (a *arena) Start(_ context.Context, r Request) error {
	if a.logs[r.Build] == nil {
		a.jobs, a.logs[r.Build] = append(a.jobs, r), &steptest.Log{}
	}
	return nil
}

// Tell says something to a build.
func (a *arena) Tell(_ context.Context, build string, s Signal) error {
	if !slices.ContainsFunc(a.said[build], func(o Signal) bool { return o.ID == s.ID }) {
		a.said[build] = append(a.said[build], s)
	}
	return nil
}

// Entries is the journal of a build.
func (a *arena) Entries(ctx context.Context, build string, after int64) ([]step.Entry, error) {
	return a.logs[build].Entries(ctx, build, after)
}

// GivenUp is why a build is buried.
func (a *arena) GivenUp(_ context.Context, build string) (string, error) { return a.buried[build], nil }

// claim runs a build once.
func (a *arena) claim(r Request) (report.Build, error) {
	a.t.Helper()
	return a.engine.Run(a.t.Context(), Job{
		Request: r, Forge: a.board, Before: a.said[r.Build], Builds: a, Extend: func(context.Context) error { return nil },
		Open: func(ctx context.Context, o step.Options) (*step.Journal, error) {
			return step.Open(ctx, a.logs[r.Build], a.logs[r.Build].Claim(), o)
		},
	})
}

// settle runs every build until nothing moves any more, each claim twice: the
// second finds what a worker left that died right after the first. It returns how
// the comparison stands.
func (a *arena) settle() report.Build {
	a.t.Helper()
	for before := -1; before != a.recorded(); {
		before = a.recorded()
		for i := 0; i < len(a.jobs); i++ {
			for range 2 {
				if _, waits := errors.AsType[*Waiting](a.run(a.jobs[i])); waits {
					break
				}
			}
		}
	}
	b, err := Read(a.t.Context(), a, "b-1")
	must(a.t, err)
	return b
}

func (a *arena) run(r Request) error {
	a.t.Helper()
	if a.buried[r.Build] != "" {
		return nil
	}
	_, err := a.claim(r)
	if _, waits := errors.AsType[*Waiting](err); err != nil && !waits {
		a.t.Fatalf("%s: %v", r.Build, err)
	}
	return err
}

func (a *arena) recorded() (n int) {
	for _, log := range a.logs {
		n += len(log.Keys())
	}
	return n
}

// says has a person say something on the ticket.
func (a *arena) says(id, kind string, what Said) {
	a.t.Helper()
	what.By = forge.Person{Login: "mira"}
	w := &world{t: a.t}
	w.say(id, kind, what)
	must(a.t, a.Tell(a.t.Context(), "b-1", w.before[0]))
}

// stands wants the comparison to stand so, and no draft unless one was chosen.
func (a *arena) stands(state report.State) report.Build {
	a.t.Helper()
	b := a.settle()
	if b.State != state {
		a.t.Fatalf("the comparison is %s (%s), want %s: %+v", b.State, b.Cause, state, b.Contenders)
	}
	return b
}

func TestTheChosenResultIsPublished(t *testing.T) {
	a := newArena(t, "limits: {usd_per_build: 6}")
	recordings := t.TempDir()
	a.engine.Record = func(build string, rt runtime.Runtime) runtime.Runtime {
		return runtime.Record(rt, filepath.Join(recordings, build))
	}
	b := a.stands(report.WaitingApproval)
	if b.Gate == nil || b.Gate.Kind != report.ChoiceGate || len(b.Contenders) != 2 || len(a.board.drafts) > 0 || len(a.board.comments) != 2 {
		t.Fatalf("at the gate: %+v, %v, %v", b, a.board.drafts, a.board.comments)
	}
	for i, r := range a.jobs[1:] {
		if row := b.Contenders[i]; r.Budget != 3_000_000 || row.State != report.Succeeded || row.Passed != 1 || row.Added != 1 || row.Files != 1 || a.ref(row.Ref) != row.Commit {
			t.Errorf("%s: %+v, with a budget of %d", row.Target, row, r.Budget)
		}
		if bases := a.logs[r.Build].Keys(); !slices.Contains(bases, "held") || slices.Contains(bases, "publish/push") {
			t.Errorf("%s did %v", r.Build, bases)
		}
	}
	fair := b.Contenders[1]
	a.says("1", ApproveSignal, Said{Hash: "fedcba9"}) // what nobody made
	a.says("2", ApproveSignal, Said{Hash: fair.Commit[:6]})
	a.stands(report.WaitingApproval)
	a.says("3", ApproveSignal, Said{Hash: fair.Commit[:7]})
	a.says("4", ApproveSignal, Said{Hash: b.Contenders[0].Commit}) // too late
	b = a.stands(report.Succeeded)
	if b.ID != "b-1" || b.Head != fair.Commit || !b.Contenders[1].Chosen || b.Contenders[0].Chosen || a.file(b, "made.txt") != "by fair\n" {
		t.Errorf("chosen: %+v", b)
	}
	if len(b.Kept) != 1 || b.Kept[0].Ref != b.Contenders[0].Ref || a.ref(b.Kept[0].Ref) != b.Contenders[0].Commit {
		t.Errorf("kept: %+v", b.Kept)
	}
	if len(a.board.drafts) != 1 || len(a.board.comments) != 3 {
		t.Errorf("%d drafts, comments: %v", len(a.board.drafts), a.board.comments)
	}
	if tracking := a.board.comments["<!-- run=b-1 -->"]; !strings.Contains(tracking, "**`native:fair`**, chosen") || !strings.Contains(tracking, b.Kept[0].Ref) {
		t.Errorf("the tracking comment:\n%s", tracking)
	}
	if n := a.asked("coder"); n != 2 {
		t.Errorf("coders were asked %d times", n)
	}
	if refusal := Refusal(b, ResumeSignal, Said{}); refusal == "" {
		t.Error("it can be resumed")
	}
	chosen := a.jobs[2]
	again := a.replay(filepath.Join(recordings, chosen.Build), func(_ *Engine, job *ReplayJob) {
		var err error
		job.Request = chosen
		job.Entries, err = a.Entries(t.Context(), chosen.Build, 0)
		must(t, err)
	})
	if !again.Same {
		t.Errorf("run again it comes out otherwise: %+v", again)
	}
	if _, err := a.engine.Replay(t.Context(), ReplayJob{Request: a.jobs[0]}); err == nil || !strings.Contains(err.Error(), "is a comparison") {
		t.Errorf("the comparison is run again: %v", err)
	}
}

func TestAComparisonHasNothingToChooseFrom(t *testing.T) {
	for name, c := range map[string]struct {
		settings string
		targets  []string
		do       func(a *arena)
		state    report.State
		cause    string
	}{
		"it is cancelled before it began": {"", nil, func(a *arena) { a.says("1", CancelSignal, Said{}) }, report.Canceled, "cancelled by mira"},
		"it is cancelled at work": {"", nil, func(a *arena) {
			_ = a.run(a.jobs[0])
			a.says("1", CancelSignal, Said{})
		}, report.Canceled, "cancelled by mira"},
		"every target fails": {"", []string{"codex:ill", "native:ill"}, func(*arena) {}, report.Failed,
			"no target came to a result: codex:ill: plan/pm: the model is ill; native:ill: plan/pm: the model is ill"},
		"plans want an approval": {"build: {approval: plan}", nil, func(*arena) {}, report.NeedsHuman, "leave --targets out, or set build.approval to never"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, c.settings, c.targets...)
			c.do(a)
			a.ends(c.state, c.cause, 2) // the tracking comment, and the word of the end
		})
	}
}

// ends wants the comparison to end without a choice, with so many comments in
// all, and what was made to be kept.
func (a *arena) ends(state report.State, cause string, comments int) {
	a.t.Helper()
	b := a.stands(state)
	if !strings.Contains(b.Cause, cause) || b.Next != "/resume" {
		a.t.Errorf("it ends with %q, next %q", b.Cause, b.Next)
	}
	if len(a.board.drafts) > 0 || len(a.board.comments) != comments {
		a.t.Errorf("%d drafts, comments: %v", len(a.board.drafts), a.board.comments)
	}
	for _, row := range b.Contenders {
		if row.Commit != "" && a.ref(row.Ref) != row.Commit || !row.State.Final() {
			a.t.Errorf("%s is %s, and what it made is not kept", row.Target, row.State)
		}
	}
}

// A comparison that ended without a choice goes on where it was: what ended badly
// is asked anew, what was built stays, and the gate opens again.
func TestAComparisonIsResumed(t *testing.T) {
	a := newArena(t, "", "codex:good", "native:ill")
	a.stands(report.WaitingApproval)
	a.says("1", RejectSignal, Said{Text: "Neither will do."})
	a.ends(report.Canceled, "every result was rejected by mira: Neither will do.", 3)

	a.when("pm", func(context.Context, runtime.Call) (any, error) { // who was ill is well again
		return trivial(), nil
	})
	a.engine.Defaults.Pipeline.ApprovalExpiry = time.Nanosecond
	a.says("2", ResumeSignal, Said{})
	a.ends(report.NeedsHuman, "nobody chose among the targets within 1ns", 5)

	a.engine.Defaults.Pipeline.ApprovalExpiry = time.Hour
	a.says("3", ResumeSignal, Said{})
	a.stands(report.WaitingApproval)
	a.says("4", CancelSignal, Said{})
	a.ends(report.Canceled, "cancelled by mira", 7)

	a.says("5", ResumeSignal, Said{})
	b := a.stands(report.WaitingApproval)
	if n := a.asked("coder"); n != 2 || b.Contenders[1].State != report.Succeeded {
		t.Errorf("coders were asked %d times: %+v", n, b.Contenders)
	}
	a.says("6", ApproveSignal, Said{Hash: b.Contenders[1].Commit})
	if b = a.stands(report.Succeeded); a.file(b, "made.txt") != "by ill\n" || len(a.board.drafts) != 1 {
		t.Errorf("chosen: %+v", b)
	}
}

func TestAContenderThatIsGivenUpIsARow(t *testing.T) {
	a := newArena(t, "")
	_ = a.run(a.jobs[0])
	a.buried[a.jobs[2].Build] = "its worker crashed 5 times in a row"
	b := a.stands(report.WaitingApproval)
	if row := b.Contenders[1]; row.State != report.NeedsHuman || !strings.Contains(row.Cause, "crashed 5 times") || row.Choosable() {
		t.Errorf("%+v", row)
	}
}

// A question of one contender is a question of the comparison.
func TestAQuestionOfAContender(t *testing.T) {
	a := newArena(t, "")
	a.when("pm", func(_ context.Context, c runtime.Call) (any, error) {
		if c.Model == "fair" && !strings.Contains(c.Prompt, "formally") {
			return trivial("How?"), nil
		}
		return nil, nil
	})
	b := a.stands(report.WaitingAnswer)
	if b.Gate == nil || !slices.Equal(b.Gate.Questions, []string{"How?"}) || Refusal(b, AnswerSignal, Said{}) != "" {
		t.Errorf("%+v", b)
	}
	a.says("1", AnswerSignal, Said{Text: "formally"})
	a.stands(report.WaitingApproval)
	for marker, text := range a.board.comments {
		if strings.Contains(text, "a question about") && (!strings.Contains(text, "`native:fair`") || strings.Contains(marker, "run=b-1 ")) {
			t.Errorf("the question is asked so: %s %s", marker, text)
		}
	}
}
