// Package runtimetest holds the promises that every agent runtime keeps, as one
// suite of tests. The runtime under test is real; what its agent does is
// scripted by an Act, which each runtime's own test brings about in its own way:
// a program that acts, a model that asks for the act, a recording of it.
package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// An Act is what the scripted agent does when it is called.
type Act string

// The acts. Where one names an answer, that is the JSON of the output.
const (
	EditsFile      Act = "edits a file"              // greeting.txt: "hello" → "hello, world"; {"done":true}
	ReadsFile      Act = "reads a file"              // answers {"word": the content of word.txt}
	Answers        Act = "answers structured output" // {"answer":42}
	IsRepaired     Act = "repairs its output"        // first {"answer":"forty-two"}; on the repair turn {"answer":42}
	CutsOff        Act = "answers half a value"      // {"answer":4
	Stalls         Act = "stalls"                    // says "thinking", then nothing
	Hangs          Act = "hangs past its time"       // says "tick" without end
	Crashes        Act = "crashes"                   // says "working", then dies
	Floods         Act = "writes without end"        // more than the 64 MiB of output that are allowed
	SpawnsAndWaits Act = "is canceled in mid-run"    // starts Case.Child in a session of its own, says "started", waits
	Echoes         Act = "echoes unicode"            // answers {"echo": the prompt}
	Measures       Act = "takes a long prompt"       // answers {"bytes": the prompt's length in bytes}
)

// A Case is what a Factory needs to know of one test.
type Case struct {
	Act   Act
	Dir   string // where the agent works
	Home  string
	Child string // for SpawnsAndWaits: a shell command whose process can be told from all others
}

// A Factory returns the runtime under test, its agent set to do what the case says.
type Factory func(t *testing.T, c Case) runtime.Runtime

// Options fit the suite to a runtime.
type Options struct {
	Except map[Act]string // acts that do not apply, each with the reason
	Idle   time.Duration  // silence that no healthy call of this runtime reaches; 0 means 2 s
	Many   int            // calls at once in the test of concurrency; 0 means 8
}

// Run checks every promise on runtimes that factory makes.
func Run(t *testing.T, factory Factory, opts Options) {
	if opts.Idle == 0 {
		opts.Idle = 2 * time.Second
	}
	if opts.Many == 0 {
		opts.Many = 8
	}
	for _, row := range []struct {
		act  Act
		test func(t *testing.T, s *stage)
	}{
		{EditsFile, testEdit},
		{ReadsFile, testRead},
		{Answers, testAnswer},
		{IsRepaired, testRepair},
		{CutsOff, testCutOff},
		{Stalls, testStall},
		{Hangs, testHang},
		{Crashes, testCrash},
		{Floods, testFlood},
		{SpawnsAndWaits, testCancel},
		{Echoes, testUnicode},
		{Measures, testLongPrompt},
	} {
		if why, excepted := opts.Except[row.act]; excepted {
			t.Logf("%s does not apply: %s", row.act, why)
			continue
		}
		t.Run(string(row.act), func(t *testing.T) { row.test(t, newStage(t, factory, opts, row.act)) })
	}
	t.Run("many at once", func(t *testing.T) { testMany(t, factory, opts) })
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

// answerSchema asks for {"answer": a whole number}.
const answerSchema = `{"type":"object","properties":{"answer":{"type":"integer"}},"required":["answer"],"additionalProperties":false}`

// A stage is the runtime, the directory and the listener of one test.
type stage struct {
	t    *testing.T
	opts Options
	c    Case
	r    runtime.Runtime

	mu     sync.Mutex
	events []runtime.Event
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
		Dir:   s.c.Dir, Home: s.c.Home, MaxTurns: 10, Timeout: time.Minute,
	}
}

// run runs c and holds the listener's side of the contract: one event at a
// time, none after the end.
func (s *stage) run(ctx context.Context, c runtime.Call) (runtime.Result, error) {
	s.t.Helper()
	s.mu.Lock()
	s.done = false
	s.mu.Unlock()
	res, err := s.r.Run(ctx, c, func(e runtime.Event) {
		if !s.mu.TryLock() {
			s.t.Error("two events at the same time")
			return
		}
		defer s.mu.Unlock()
		if s.done {
			s.t.Errorf("an event after Run returned: %+v", e)
		}
		s.events = append(s.events, e)
	})
	s.mu.Lock()
	s.done = true
	s.mu.Unlock()
	return res, err
}

// said returns the text of all text events.
func (s *stage) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var text strings.Builder
	for _, e := range s.events {
		if e.Kind == runtime.Text {
			text.WriteString(e.Text)
		}
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

func testStall(t *testing.T, s *stage) {
	c := s.call()
	c.Idle = s.opts.Idle
	start := time.Now()
	_, err := s.run(t.Context(), c)
	wantClass(t, err, runtime.Transient)
	if took := time.Since(start); took > s.opts.Idle+8*time.Second {
		t.Errorf("it took %s to notice a silence of %s", took, s.opts.Idle)
	}
	if !strings.Contains(s.said(), "thinking") {
		t.Errorf("what was said before is lost: %q", s.said())
	}
}

func testHang(t *testing.T, s *stage) {
	c := s.call()
	c.Timeout = 2 * s.opts.Idle
	start := time.Now()
	_, err := s.run(t.Context(), c)
	wantClass(t, err, runtime.Refused)
	if took := time.Since(start); took > c.Timeout+8*time.Second {
		t.Errorf("it took %s to end a call of %s", took, c.Timeout)
	}
}

func testCrash(t *testing.T, s *stage) {
	_, err := s.run(t.Context(), s.call())
	wantClass(t, err, runtime.Refused)
	if !strings.Contains(s.said(), "working") {
		t.Errorf("what was said before is lost: %q", s.said())
	}
}

func testFlood(t *testing.T, s *stage) {
	_, err := s.run(t.Context(), s.call())
	wantClass(t, err, runtime.Refused)
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
	waitForChild(t, s.c.Child, ended)
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

func testUnicode(t *testing.T, s *stage) {
	c := s.call()
	c.Prompt = "Grüße 🛶 naïve \u202Eright-to-left\u202C 漢字 \u2028 line\tseparator \"quoted\" back\\slash é"
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
	c.Prompt = strings.Repeat("all work and no play \n", 1<<20/22) + "at all"
	res, err := s.run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantOutput(t, res, fmt.Sprintf(`{"bytes":%d}`, len(c.Prompt)))
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
