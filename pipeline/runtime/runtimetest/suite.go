// Package runtimetest holds the promises that every agent runtime keeps, as one
// suite of tests. The runtime under test is real; what its agent does is
// scripted by an Act, which each runtime's own test brings about in its own way:
// a program that acts, a model that asks for the act, a recording of it.
package runtimetest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An Act is what the scripted agent does when it is called.
type Act string

// The acts. Where one names an answer, that is the JSON of the output; the test
// of each says what the runtime makes of it.
const (
	EditsFile   Act = "edits a file"              // greeting.txt: "hello" → "hello, world"; {"done":true}
	ReadsFile   Act = "reads a file"              // answers {"word": the content of word.txt}
	RunsCommand Act = "runs a command"            // runs Shout in its directory; {"loud": what that printed}
	Answers     Act = "answers structured output" // {"answer":42}
	IsRepaired  Act = "repairs its output"        // first {"answer":"forty-two"}; on the repair turn {"answer":42}
	CutsOff     Act = "answers half a value"      // {"answer":4

	// IsRefused tries to write greeting.txt, by EDIT, WRITE or a command, though
	// the call grants it READ, GLOB and GREP only; then {"done":false}.
	IsRefused Act = "is refused a tool"

	// The model's API refuses every request, or a program says so in its own way.
	IsLimited  Act = "is told to come back later"  // 429 with Retry-After: RetryAfter
	Overloads  Act = "meets an overload"           // 529
	MeetsFault Act = "meets a fault of the server" // 500

	Stalls   Act = "stalls"                 // says "thinking", then nothing
	Hangs    Act = "hangs, deaf to signals" // runs Case.Hang and waits for it
	Crashes  Act = "crashes"                // says "working", then dies
	Overruns Act = "works on past its time" // says "tick" without end, each time after a little work

	// Floods writes more than the 64 MiB of output that are allowed. An agent
	// whose words go through a model has a command write them and answers {"done":true}.
	Floods Act = "writes without end"

	SpawnsAndWaits Act = "is canceled in mid-tool" // starts Case.Child in a session of its own, says "started", waits

	// Spends does small things without end. Each takes SpentInput and
	// SpentOutput tokens, or 0.01 dollars where the agent knows no model.
	Spends Act = "spends its budget"

	Echoes    Act = "echoes unicode"      // answers {"echo": the prompt}, which is Unicode
	Measures  Act = "takes a long prompt" // answers {"bytes": the prompt's length in bytes}, which is that of LongPrompt
	Remembers Act = "resumes a session"   // first {"ok":true}; in the same session {"word": what the first prompt called the word}
)

// What the acts are about.
const (
	Shout       = "tr a-z A-Z <word.txt | tee loud.txt" // the command of RunsCommand; it prints PLUM
	RetryAfter  = time.Minute                           // the wait that the API of IsLimited asks for
	Budget      = 50_000                                // micro-dollars that Spends may spend
	SpentInput  = 1000
	SpentOutput = 500
	Unicode     = "Grüße 🛶 naïve \u202Eright-to-left\u202C 漢字 \u2028 line\tseparator \"quoted\" back\\slash é"
	Remember    = "The word is quince." // the first prompt of Remembers
	Recall      = "Which word was it?"  // the second; the answer is {"word":"quince"}
)

// LongPrompt is a prompt that no argument list takes: a MiB.
var LongPrompt = strings.Repeat("all work and no play \n", 1<<20/22) + "at all"

// A Case is what a Factory needs to know of one test.
type Case struct {
	Act   Act
	Dir   string // where the agent works
	Home  string
	Child string // for SpawnsAndWaits: a shell command whose process can be told from all others
}

// Hang is a shell command that runs Child, deaf to all signals but the last.
func (c Case) Hang() string { return "trap '' HUP INT TERM; exec " + c.Child }

// A Factory returns the runtime under test, its agent set to do what the case says.
type Factory func(t *testing.T, c Case) runtime.Runtime

// Options fit the suite to a runtime.
type Options struct {
	Except    map[Act]string // acts that cannot be, each with the reason
	Idle      time.Duration  // silence that no healthy call of this runtime reaches; 0 means 2 s
	Many      int            // calls at once in the test of concurrency; 0 means 8
	Childless string         // why the agent starts no process; a cancel then waits for its "started"
	Hintless  string         // why the wait that a provider asks for cannot be known
}

// Run checks every promise on runtimes that factory makes.
func Run(t *testing.T, factory Factory, opts Options) {
	opts = opts.filled()
	for _, row := range []struct {
		act  Act
		test func(t *testing.T, s *stage)
	}{
		{EditsFile, testEdit},
		{ReadsFile, testRead},
		{RunsCommand, testCommand},
		{Answers, testAnswer},
		{IsRepaired, testRepair},
		{CutsOff, testCutOff},
		{IsRefused, testRefusal},
		{IsLimited, testLimit},
		{Overloads, testTransient},
		{MeetsFault, testTransient},
		{Stalls, testStall},
		{Hangs, testHang},
		{Crashes, testCrash},
		{Floods, testFlood},
		{SpawnsAndWaits, testCancel},
		{Overruns, testTimeout},
		{Spends, testBudget},
		{Echoes, testUnicode},
		{Measures, testLongPrompt},
		{Remembers, testResume},
	} {
		if why, excepted := opts.Except[row.act]; excepted {
			t.Logf("%s does not apply: %s", row.act, why)
			continue
		}
		t.Run(string(row.act), func(t *testing.T) { row.test(t, newStage(t, factory, opts, row.act)) })
	}
	t.Run("many at once", func(t *testing.T) { testMany(t, factory, opts) })
	t.Run("is recorded and replayed", func(t *testing.T) { testRecord(t, factory, opts) })
	t.Run("is canceled before it starts", func(t *testing.T) {
		s := newStage(t, factory, opts, Answers)
		gone := errors.New("nobody waits any more")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		if _, err := s.run(ctx, s.call()); !errors.Is(err, gone) {
			t.Errorf("Run = %v, want the cause of the context", err)
		}
	})
}

func (o Options) filled() Options {
	o.Idle = cmp.Or(o.Idle, 2*time.Second)
	o.Many = cmp.Or(o.Many, 8)
	return o
}

// answerSchema asks for {"answer": a whole number}.
const answerSchema = `{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"],"additionalProperties":false}`

// A stage is the runtime, the directory and the listener of one test.
type stage struct {
	t    *testing.T
	opts Options
	c    Case
	r    runtime.Runtime

	emitting atomic.Bool

	mu     sync.Mutex
	events []runtime.Event
	last   time.Time // of the events, or when the run began
	done   bool
}

func newStage(t *testing.T, factory Factory, opts Options, act Act) *stage {
	t.Helper()
	s := &stage{t: t, opts: opts}
	s.c = Case{Act: act, Dir: t.TempDir(), Home: t.TempDir(), Child: childCommand(t)}
	write(t, s.c.Dir, "greeting.txt", "hello\n")
	write(t, s.c.Dir, "word.txt", "plum\n")
	s.r = factory(t, s.c)
	return s
}

// call is the call that the tests start from.
func (s *stage) call() runtime.Call {
	return runtime.Call{
		Step: "suite/coder", Role: "coder", System: "You are tested.", Prompt: "Do what is to be done.",
		Tools: []runtime.Tool{runtime.Read, runtime.Write, runtime.Edit, runtime.Bash, runtime.Glob, runtime.Grep},
		Dir:   s.c.Dir, Home: s.c.Home, MaxTurns: 10, Timeout: patience,
	}
}

// run runs c and holds the listener's side of the contract: one event at a
// time, none after the end.
func (s *stage) run(ctx context.Context, c runtime.Call) (runtime.Result, error) {
	s.t.Helper()
	s.mu.Lock()
	s.done, s.last = false, time.Now()
	s.mu.Unlock()
	res, err := s.r.Run(ctx, c, func(e runtime.Event) {
		if !s.emitting.CompareAndSwap(false, true) {
			s.t.Error("two events at the same time")
			return
		}
		defer s.emitting.Store(false)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.done {
			s.t.Errorf("an event after Run returned: %+v", e)
		}
		s.events, s.last = append(s.events, e), time.Now()
	})
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	return res, err
}

// heard returns the events of a kind.
func (s *stage) heard(kind runtime.EventKind) []runtime.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	var events []runtime.Event
	for _, e := range s.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

// said returns the text of all text events.
func (s *stage) said() string {
	var text strings.Builder
	for _, e := range s.heard(runtime.Text) {
		text.WriteString(e.Text)
	}
	return text.String()
}

func testEdit(t *testing.T, s *stage) {
	res, err := s.run(t.Context(), s.call())
	if err != nil {
		t.Fatal(err)
	}
	if got := read(t, s.c.Dir, "greeting.txt"); got != "hello, world\n" {
		t.Errorf("greeting.txt = %q", got)
	}
	wantOutput(t, res, `{"done":true}`)
}

func testRead(t *testing.T, s *stage) {
	c := s.call()
	c.ReadOnly = true
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"word":"plum"}`)
}

func testAnswer(t *testing.T, s *stage) {
	c := s.call()
	c.Schema = json.RawMessage(answerSchema)
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"answer":42}`)
}

// testRepair lets a runtime that checks the schema itself fail the first turn;
// what fits must come from the second at the latest.
func testRepair(t *testing.T, s *stage) {
	c := s.call()
	c.Schema = json.RawMessage(answerSchema)
	res, err := s.run(t.Context(), c)
	if err != nil {
		wantClass(t, err, runtime.Refused)
	} else {
		wantOutput(t, res, `{"answer":"forty-two"}`)
	}
	c.Step += "/repair-1"
	c.Session = res.Session
	c.Prompt = "The answer does not fit: answer is no integer."
	c.Repair = &runtime.Repair{Previous: string(res.Output), Errors: []string{"answer is no integer"}}
	res, err = s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"answer":42}`)
}

// testCutOff: half a value is no value, and a piece of it is none either.
func testCutOff(t *testing.T, s *stage) {
	res, err := s.run(t.Context(), s.call())
	if err != nil {
		wantClass(t, err, runtime.Refused)
	}
	if res.Output != nil {
		t.Errorf("Output = %s, want none", res.Output)
	}
}

// testCommand: what a command of the agent does happens in the directory, what
// it prints reaches the agent, and the listener hears of the call.
func testCommand(t *testing.T, s *stage) {
	res, err := s.run(t.Context(), s.call())
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"loud":"PLUM"}`)
	if got := read(t, s.c.Dir, "loud.txt"); got != "PLUM\n" {
		t.Errorf("loud.txt = %q", got)
	}
	if len(s.heard(runtime.ToolCall)) == 0 {
		t.Error("no event tells of the command")
	}
}

// testRefusal: a tool that the role does not have changes nothing, its refusal
// can be seen afterwards, and the agent goes on.
func testRefusal(t *testing.T, s *stage) {
	c := s.call()
	c.Tools, c.ReadOnly = []runtime.Tool{runtime.Read, runtime.Glob, runtime.Grep}, true
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"done":false}`)
	if got := read(t, s.c.Dir, "greeting.txt"); got != "hello\n" {
		t.Errorf("greeting.txt = %q: the tool was not refused", got)
	}
	refused := slices.ContainsFunc(s.heard(runtime.ToolResult), func(e runtime.Event) bool { return refusal.MatchString(e.Text) })
	if len(res.Denials) == 0 && !refused {
		t.Errorf("nobody learns of the refusal: no denials, and the results of tools are %+v", s.heard(runtime.ToolResult))
	}
}

// refusal is how systems and programs say that something may not be.
var refusal = regexp.MustCompile(`(?i)denied|refused|read-only|not permitted|no such tool|unavailable|not available|rejected`)

// testLimit: a wait that is longer than the agent may be silent is the caller's
// to wait; the slot of the call is free at once.
func testLimit(t *testing.T, s *stage) {
	start := time.Now()
	err := s.fail()
	wantClass(t, err, runtime.Transient)
	if took := time.Since(start); took >= RetryAfter {
		t.Errorf("the call sat the wait out: %s", took)
	}
	if s.opts.Hintless != "" {
		t.Logf("the provider's hint is lost: %s", s.opts.Hintless)
		return
	}
	if failure, ok := errors.AsType[*runtime.Error](err); ok && failure.After < RetryAfter {
		t.Errorf("After = %s, want the provider's %s", failure.After, RetryAfter)
	}
}

func testTransient(t *testing.T, s *stage) { wantClass(t, s.fail(), runtime.Transient) }

// fail runs a call whose model refuses it, with time for a runtime's own few tries.
func (s *stage) fail() error {
	c := s.call()
	c.Idle = max(10*time.Second, s.opts.Idle)
	_, err := s.run(s.t.Context(), c)
	return err
}

func testStall(t *testing.T, s *stage) {
	c := s.call()
	c.Idle = s.opts.Idle
	_, err := s.run(t.Context(), c)
	wantClass(t, err, runtime.Transient)
	if took := time.Since(s.last); took > s.opts.Idle+8*time.Second {
		t.Errorf("it took %s to notice a silence of %s", took, s.opts.Idle)
	}
	if !strings.Contains(s.said(), "thinking") {
		t.Errorf("what was said before is lost: %q", s.said())
	}
}

// testHang: a process that ignores being asked to end is ended.
func testHang(t *testing.T, s *stage) {
	c := s.call()
	c.Timeout = 2 * s.opts.Idle
	start := time.Now()
	ended := make(chan error, 1)
	go func() {
		_, err := s.run(t.Context(), c)
		ended <- err
	}()
	if s.opts.Childless == "" {
		waitForChild(t, s.c.Child, ended)
	}
	wantClass(t, <-ended, runtime.Refused)
	if took := time.Since(start); took > c.Timeout+8*time.Second {
		t.Errorf("it took %s to end a call of %s", took, c.Timeout)
	}
	if left := children(t, s.c.Child); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
}

// testTimeout: the wall clock ends also a call that is never silent.
func testTimeout(t *testing.T, s *stage) {
	c := s.call()
	c.Timeout, c.MaxTurns = 2*s.opts.Idle, 1000
	start := time.Now()
	_, err := s.run(t.Context(), c)
	wantClass(t, err, runtime.Refused)
	if took := time.Since(start); took < c.Timeout || took > c.Timeout+8*time.Second {
		t.Errorf("it took %s to end a call of %s", took, c.Timeout)
	}
	if !strings.Contains(s.said(), "tick") {
		t.Errorf("what was said before is lost: %q", s.said())
	}
}

// testBudget: the ceiling ends the call, and what it cost is known. The ceiling
// may be passed by what was under way when it was reached, and by no more.
func testBudget(t *testing.T, s *stage) {
	c := s.call()
	c.BudgetMicros, c.MaxTurns = Budget, 1000
	res, err := s.run(t.Context(), c)
	wantClass(t, err, runtime.Refused)
	if !strings.Contains(err.Error(), "budget") || res.Stop != "budget" {
		t.Errorf("stopped by %q with %v, want the budget", res.Stop, err)
	}
	if res.CostMicros == 0 || res.CostMicros > 2*Budget {
		t.Errorf("it cost %d of %d", res.CostMicros, Budget)
	}
}

func testCrash(t *testing.T, s *stage) {
	_, err := s.run(t.Context(), s.call())
	wantClass(t, err, runtime.Refused)
	if !strings.Contains(s.said(), "working") {
		t.Errorf("what was said before is lost: %q", s.said())
	}
}

// testFlood: what is too much ends the call, or is cut before it reaches anyone.
func testFlood(t *testing.T, s *stage) {
	res, err := s.run(t.Context(), s.call())
	if err != nil {
		wantClass(t, err, runtime.Refused)
		return
	}
	wantOutput(t, res, `{"done":true}`)
	total := len(res.Text)
	for _, e := range s.events {
		total += len(e.Text) + len(e.Input)
	}
	if total > 1<<20 {
		t.Errorf("%d bytes reached the listener", total)
	}
}

func testCancel(t *testing.T, s *stage) {
	stop := errors.New("somebody said stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan error, 1)
	go func() {
		_, err := s.run(ctx, s.call())
		ended <- err
	}()
	s.waitUntilStarted(ended)
	cancel(stop)
	select {
	case err := <-ended:
		if !errors.Is(err, stop) {
			t.Errorf("Run = %v, want the cause of the context", err)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("Run goes on five seconds after it was canceled")
	}
	if left := children(t, s.c.Child); len(left) > 0 {
		t.Errorf("processes are left behind: %v", left)
	}
}

// waitUntilStarted returns when the agent is in the middle of its work.
func (s *stage) waitUntilStarted(ended chan error) {
	s.t.Helper()
	if s.opts.Childless == "" {
		waitForChild(s.t, s.c.Child, ended)
		return
	}
	s.t.Logf("there is no process to see: %s", s.opts.Childless)
	why := await("the agent did not say that it started", ended, func() bool { return strings.Contains(s.said(), "started") })
	if why != "" {
		s.t.Fatal(why)
	}
}

func testUnicode(t *testing.T, s *stage) {
	c := s.call()
	c.Prompt = Unicode
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Echo string `json:"echo"`
	}
	if err := json.Unmarshal(res.Output, &got); err != nil {
		t.Fatalf("%v in %s", err, res.Output)
	}
	if got.Echo != c.Prompt {
		t.Errorf("echo = %q, want %q", got.Echo, c.Prompt)
	}
}

func testLongPrompt(t *testing.T, s *stage) {
	c := s.call()
	c.Prompt = LongPrompt
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, fmt.Sprintf(`{"bytes":%d}`, len(c.Prompt)))
}

// testResume: a call that names the session of another knows what was said there.
func testResume(t *testing.T, s *stage) {
	c := s.call()
	c.Prompt = Remember
	first, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, first, `{"ok":true}`)
	if first.Session == "" {
		t.Fatal("the first call names no session")
	}
	c.Step += "/repair-1"
	c.Session, c.Prompt = first.Session, Recall
	second, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, second, `{"word":"quince"}`)
}

// testMany runs calls side by side on one runtime each with its own directory.
func testMany(t *testing.T, factory Factory, opts Options) {
	var calls sync.WaitGroup
	for range opts.Many {
		s := newStage(t, factory, opts, EditsFile)
		calls.Go(func() {
			res, err := s.run(t.Context(), s.call())
			if err != nil {
				t.Error(err)
				return
			}
			if got := read(t, s.c.Dir, "greeting.txt"); got != "hello, world\n" {
				t.Errorf("greeting.txt = %q", got)
			}
			wantOutput(t, res, `{"done":true}`)
		})
	}
	calls.Wait()
}

// testRecord: what an agent did is written down without a path of this machine,
// and played to the same end in another directory.
func testRecord(t *testing.T, factory Factory, opts Options) {
	live, again := newStage(t, factory, opts, EditsFile), newStage(t, factory, opts, EditsFile)
	dir := t.TempDir()
	live.r = runtime.Record(live.r, dir)
	c := live.call()
	c.Digest = "sha256:asked"
	was, err := live.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, dir, filepath.FromSlash(c.Step)+".json")
	for _, place := range []string{live.c.Dir, live.c.Home} {
		if strings.Contains(text, place) {
			t.Errorf("the recording names %s:\n%s", place, text)
		}
	}
	recordings, err := runtime.ReadRecordings(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if again.r, err = runtime.NewReplay(recordings, runtime.ReplayOptions{Strict: true}); err != nil {
		t.Fatal(err)
	}
	c.Dir, c.Home = again.c.Dir, again.c.Home
	res, err := again.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, `{"done":true}`)
	if got := read(t, c.Dir, "greeting.txt"); got != "hello, world\n" {
		t.Errorf("greeting.txt = %q", got)
	}
	if res.Usage != was.Usage || res.CostMicros != was.CostMicros || len(again.events) != len(live.events) {
		t.Errorf("played %+v with %d events, want %+v with %d", res, len(again.events), was, len(live.events))
	}
}

// wantOutput compares JSON by meaning.
func wantOutput(t *testing.T, res runtime.Result, want string) {
	t.Helper()
	if canonical(res.Output) != canonical([]byte(want)) {
		t.Errorf("Output = %s, want %s (text %.500q)", res.Output, want, res.Text)
	}
}

func canonical(text []byte) string {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return fmt.Sprintf("no JSON: %s", text)
	}
	sorted, err := json.Marshal(value)
	if err != nil {
		return err.Error()
	}
	return string(sorted)
}

func wantClass(t *testing.T, err error, want runtime.Class) {
	t.Helper()
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok {
		t.Fatalf("Run = %v, want a %s *runtime.Error", err, want)
	}
	if failure.Class != want {
		t.Errorf("Run failed as %s (%v), want %s", failure.Class, err, want)
	}
	if failure.Reason == "" {
		t.Error("the failure gives no reason")
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}
