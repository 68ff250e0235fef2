package agent_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

func TestMain(m *testing.M) {
	sandbox.Main()
	if len(os.Args) == 3 && os.Args[1] == bridgeArg { // a CLI started it as its MCP server
		if err := runtime.Pipe(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// question and reply are the types of a role made up for the tests.
type question struct{ Text string }

type reply struct {
	Word  string   `json:"word"`
	Count int      `json:"count,omitempty"`
	Sure  *bool    `json:"sure,omitempty"`
	List  []string `json:"list,omitempty"`
	Parts []part   `json:"parts,omitempty"`
}

type part struct {
	Tags []string `json:"tags"`
}

func reader() agent.Role[question, reply] {
	return agent.Role[question, reply]{
		Name: "reader", Tools: []runtime.Tool{runtime.Read},
		Prompt: agent.Parse("reader", `{{define "system"}}Answer by {{schema}}{{end}}{{define "prompt"}}{{data "text" .Text}}{{end}}`),
	}
}

func writer() agent.Role[question, reply] {
	r := reader()
	r.Name, r.Tools = "writer", []runtime.Tool{runtime.Read, runtime.Edit}
	return r
}

// turn is what a scripted agent does in one call.
type turn struct {
	json string // its output; with text empty, also its text
	text string
	cost int64
	err  error
}

// play plays turns one after the other and fails the test when there are no more.
func play(t *testing.T, turns ...turn) *agenttest.Agents {
	var mu sync.Mutex
	return agenttest.New(func(_ context.Context, c runtime.Call, emit func(runtime.Event)) (runtime.Result, error) {
		mu.Lock()
		defer mu.Unlock()
		if len(turns) == 0 {
			t.Errorf("%s was asked once more than the script says", c.Step)
			return runtime.Result{}, &runtime.Error{Class: runtime.Refused, Reason: "end of script"}
		}
		now := turns[0]
		turns = turns[1:]
		emit(runtime.Event{Kind: runtime.Text, Text: now.text + now.json})
		r := runtime.Result{
			Text: now.text + now.json, Session: "s1", CostMicros: now.cost,
			Usage: runtime.Usage{Input: now.cost, Output: now.cost, CacheRead: now.cost, CacheWrite: now.cost},
		}
		if now.json != "" {
			r.Output = json.RawMessage(now.json)
		}
		return r, now.err
	})
}

func transient(after time.Duration) error {
	return &runtime.Error{Class: runtime.Transient, Reason: "overloaded", After: after}
}

var (
	refused = &runtime.Error{Class: runtime.Refused, Reason: "the agent ran out of time"}
	fatal   = &runtime.Error{Class: runtime.Fatal, Reason: "credit balance is too low"}
)

// desk is a Workspace that writes down what is asked of it.
type desk struct {
	commits []string // what Collect returns, in turn
	err     error    // of Collect
	prepare error
	did     []string
}

func (d *desk) Dir() string { return "tree" }

func (d *desk) Prepare(context.Context) error {
	d.did = append(d.did, "prepare")
	return d.prepare
}

func (d *desk) Collect(context.Context) (string, error) {
	d.did = append(d.did, "collect")
	if d.err != nil {
		return "", d.err
	}
	c := d.commits[0]
	d.commits = d.commits[1:]
	return c, nil
}

func (d *desk) Found(commit string) { d.did = append(d.did, "found "+commit) }

func crewOn(t *testing.T, log *steptest.Log, agents runtime.Runtime) *agent.Crew {
	t.Helper()
	return agenttest.Crew(log.Open(t, step.Options{}), agents)
}

func ask(t *testing.T, c *agent.Crew, r agent.Role[question, reply]) (reply, error) {
	t.Helper()
	return agent.Ask(t.Context(), c, agent.Place{Key: "plan", Work: &desk{commits: []string{"c1", "c2", "c3"}}}, r, question{Text: "hello"})
}

func TestGoodAnswers(t *testing.T) {
	yes := true
	for name, c := range map[string]struct {
		json string
		want reply
	}{
		"plain":                       {`{"word":"hi","count":2,"sure":true,"list":["a","b"]}`, reply{Word: "hi", Count: 2, Sure: &yes, List: []string{"a", "b"}}},
		"a scalar where a list is":    {`{"word":"hi","list":"a"}`, reply{Word: "hi", List: []string{"a"}}},
		"an object where a list is":   {`{"word":"hi","parts":{"tags":"x"}}`, reply{Word: "hi", Parts: []part{{Tags: []string{"x"}}}}},
		"null for a list":             {`{"word":"hi","list":null}`, reply{Word: "hi", List: []string{}}},
		"null for a list in a list":   {`{"word":"hi","parts":[{"tags":null}]}`, reply{Word: "hi", Parts: []part{{Tags: []string{}}}}},
		"null for an optional field":  {`{"word":"hi","sure":null,"count":null}`, reply{Word: "hi"}},
		"fields that nobody asked of": {`{"word":"hi","mood":"good","parts":[{"tags":[],"x":{"y":1}}]}`, reply{Word: "hi", Parts: []part{{Tags: []string{}}}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ask(t, crewOn(t, new(steptest.Log), play(t, turn{json: c.json})), reader())
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func TestBadAnswersAreRepaired(t *testing.T) {
	checked := reader()
	checked.Check = func(q question, r reply) []string {
		if r.Word != q.Text {
			return []string{"word has to be " + q.Text, "and nothing else"}
		}
		return nil
	}
	for name, c := range map[string]struct {
		role     agent.Role[question, reply]
		bad      turn
		previous string
		errors   []string // each a part of one error
	}{
		"prose":                {reader(), turn{text: "I think it is hello."}, "I think it is hello.", []string{"no JSON value"}},
		"broken JSON":          {reader(), turn{json: `{"word":`}, `{"word":`, []string{"no JSON value"}},
		"wrong type":           {reader(), turn{json: `{"word":"x","count":"two"}`}, `{"word":"x","count":"two"}`, []string{"count"}},
		"missing field":        {reader(), turn{json: `{"count":2}`}, `{"count":2}`, []string{"word"}},
		"null for a must":      {reader(), turn{json: `{"word":null}`}, `{"word":null}`, []string{"word"}},
		"a list":               {reader(), turn{json: `[{"word":"x"}]`}, `[{"word":"x"}]`, []string{"object"}},
		"what a Check refuses": {checked, turn{json: `{"word":"x"}`}, `{"word":"x"}`, []string{"word has to be hello", "and nothing else"}},
	} {
		t.Run(name, func(t *testing.T) {
			agents := play(t, c.bad, turn{json: `{"word":"hello"}`})
			got, err := ask(t, crewOn(t, new(steptest.Log), agents), c.role)
			if err != nil || got.Word != "hello" {
				t.Fatalf("%+v, %v", got, err)
			}
			if steps := agents.Steps(); !slices.Equal(steps, []string{"plan/reader", "plan/reader/repair-1"}) {
				t.Errorf("steps %v", steps)
			}
			repair := agents.Calls()[1]
			if repair.Session != "s1" || repair.Repair == nil || repair.Repair.Previous != c.previous {
				t.Fatalf("repair turn: session %q, %+v", repair.Session, repair.Repair)
			}
			if len(repair.Repair.Errors) != len(c.errors) {
				t.Fatalf("errors %q", repair.Repair.Errors)
			}
			for i, want := range c.errors {
				if !strings.Contains(repair.Repair.Errors[i], want) {
					t.Errorf("error %q does not say %q", repair.Repair.Errors[i], want)
				}
			}
		})
	}
}

func TestAfterTwoRepairs(t *testing.T) {
	bad := []turn{{text: "one"}, {text: "two"}, {text: "three"}}
	t.Run("without a fallback it is a failure", func(t *testing.T) {
		_, err := ask(t, crewOn(t, new(steptest.Log), play(t, bad...)), reader())
		failure, ok := errors.AsType[*agent.Failure](err)
		if !ok || failure.Key != "plan/reader" || !strings.Contains(failure.Reason, "after 3 turns") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the fallback answers and is told why", func(t *testing.T) {
		r := reader()
		r.Fallback = func(q question, err error) (reply, error) { return reply{Word: q.Text + " " + err.Error()}, nil }
		got, err := ask(t, crewOn(t, new(steptest.Log), play(t, bad...)), r)
		if err != nil || !strings.HasPrefix(got.Word, "hello plan/reader: no valid answer") {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

func TestTransientFailuresAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agents := play(t, turn{err: transient(0), cost: 1}, turn{err: transient(time.Minute), cost: 2}, turn{err: transient(0), cost: 4}, turn{json: `{"word":"hi"}`, cost: 8})
		log := new(steptest.Log)
		crew := crewOn(t, log, agents)
		crew.Limits.Backoff = 2 * time.Second
		start := time.Now()
		got, err := ask(t, crew, reader())
		if err != nil || got.Word != "hi" {
			t.Fatalf("%+v, %v", got, err)
		}
		// 2 s, the provider's minute in place of 4 s, 8 s
		if took, want := time.Since(start), 70*time.Second; took != want {
			t.Errorf("took %v, want %v", took, want)
		}
		e := crew.Journal.Entries()[0]
		if want := (queue.Tokens{Input: 15, Output: 15, CacheRead: 15, CacheWrite: 15}); e.CostMicros != 15 || e.Tokens != want {
			t.Errorf("cost %d, tokens %+v: tries are to be summed", e.CostMicros, e.Tokens)
		}
	})
}

func TestTransientFailuresEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := slices.Repeat([]turn{{err: transient(0)}}, 5)
		_, err := ask(t, crewOn(t, new(steptest.Log), play(t, turns...)), reader())
		failure, ok := errors.AsType[*agent.Failure](err)
		if !ok || failure.Reason != "gave up after 5 tries: overloaded" {
			t.Errorf("error %v", err)
		}
	})
}

func TestRefusedCallIsRecordedAndNotAskedAgain(t *testing.T) {
	log := new(steptest.Log)
	agents := play(t, turn{err: refused, cost: 3})
	for run := range 2 {
		_, err := ask(t, crewOn(t, log, agents), reader())
		if failure, ok := errors.AsType[*agent.Failure](err); !ok || failure.Reason != refused.Reason {
			t.Errorf("run %d: %v", run+1, err)
		}
	}
	if len(agents.Calls()) != 1 {
		t.Errorf("asked %v", agents.Steps())
	}
}

func TestWholeConversationIsReplayed(t *testing.T) {
	log := new(steptest.Log)
	agents := play(t, turn{text: "prose"}, turn{json: `{"word":"hi","list":"a"}`})
	first, err := ask(t, crewOn(t, log, agents), reader())
	if err != nil {
		t.Fatal(err)
	}
	again, err := ask(t, crewOn(t, log, agents), reader())
	if err != nil || !reflect.DeepEqual(first, again) {
		t.Errorf("%+v, %v; first %+v", again, err, first)
	}
}

// A session lives in a directory that a crash takes away, so only the process
// that opened it goes on with it.
func TestRepairAfterACrashStartsANewSession(t *testing.T) {
	log := new(steptest.Log)
	crash := errors.New("crash")
	log.Refuse = func(_ context.Context, e queue.Entry) error {
		if strings.HasSuffix(e.Key, "repair-1") {
			return crash
		}
		return nil
	}
	agents := play(t, turn{text: "prose"}, turn{json: `{"word":"lost"}`}, turn{json: `{"word":"hi"}`})
	if _, err := ask(t, crewOn(t, log, agents), reader()); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	log.Refuse = nil
	got, err := ask(t, crewOn(t, log, agents), reader())
	if err != nil || got.Word != "hi" {
		t.Fatalf("%+v, %v", got, err)
	}
	last := agents.Calls()[2]
	if last.Session != "" || last.Repair == nil || last.Repair.Previous != "prose" {
		t.Errorf("session %q, repair %+v", last.Session, last.Repair)
	}
}

func TestFatalStopsAndRecordsNothing(t *testing.T) {
	log := new(steptest.Log)
	r := reader()
	r.Fallback = func(question, error) (reply, error) { t.Error("fallback"); return reply{}, nil }
	_, err := ask(t, crewOn(t, log, play(t, turn{err: fatal})), r)
	if !errors.Is(err, agent.ErrFatal) || !strings.Contains(err.Error(), fatal.Reason) || len(log.Keys()) != 0 {
		t.Errorf("%v, stored %v", err, log.Keys())
	}
}

func TestErrorOfNoClassIsNotTheAgents(t *testing.T) {
	log := new(steptest.Log)
	broken := errors.New("no such program")
	_, err := ask(t, crewOn(t, log, play(t, turn{err: broken})), reader())
	if !errors.Is(err, broken) || len(log.Keys()) != 0 {
		t.Errorf("%v, stored %v", err, log.Keys())
	}
}

func TestTheCallAndItsEntry(t *testing.T) {
	log := new(steptest.Log)
	agents := play(t, turn{json: `{"word":"hi"}`, cost: 5})
	crew := crewOn(t, log, agents)
	crew.Budget = &agent.Budget{PerCall: 9}
	if _, err := ask(t, crew, reader()); err != nil {
		t.Fatal(err)
	}
	c := agents.Calls()[0]
	if c.Step != "plan/reader" || c.Role != "reader" || c.Model != "model" || c.Dir != "tree" || !c.ReadOnly || c.Home != "home" ||
		c.BudgetMicros != 9 || c.Timeout != crew.Limits.Timeout || c.Idle != crew.Limits.Idle || c.MaxTurns != crew.Limits.MaxTurns {
		t.Errorf("call %+v", c)
	}
	if !strings.Contains(c.System, `"word"`) || !strings.Contains(c.Prompt, "hello") || !json.Valid(c.Schema) {
		t.Errorf("system %q, prompt %q, schema %s", c.System, c.Prompt, c.Schema)
	}
	e := crew.Journal.Entries()[0]
	if e.Kind != queue.Call || e.Runtime != "script" || e.Model != "model" || e.CostMicros != 5 || !strings.HasPrefix(e.Input, "sha256:") {
		t.Errorf("entry %+v", e)
	}
}

// Another program must come to the same digest: it is made of canonical JSON.
func TestTheDigestNamesTheQuestion(t *testing.T) {
	digest := func(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }
	file := digest(`{{define "system"}}Answer by {{schema}}{{end}}{{define "prompt"}}{{data "text" .Text}}{{end}}`)
	agents := play(t, turn{json: `{"word":1}`}, turn{json: `{"word":"hi"}`})
	crew := crewOn(t, new(steptest.Log), agents)
	if _, err := ask(t, crew, reader()); err != nil {
		t.Fatal(err)
	}
	first, again := agents.Calls()[0], agents.Calls()[1]
	head := `{"input":{"Text":"hello"},"model":"model","prompt":"` + file + `",`
	if want := digest(head + `"role":"reader"}`); first.Digest != want {
		t.Errorf("the digest is %s, want %s", first.Digest, want)
	}
	problem, err := json.Marshal(again.Repair.Errors[0])
	if err != nil {
		t.Fatal(err)
	}
	if want := digest(head + `"repair":{"errors":[` + string(problem) + `],"previous":{"word":1}},"role":"reader"}`); again.Digest != want {
		t.Errorf("the digest of the repair turn is %s, want %s", again.Digest, want)
	}
	entries := crew.Journal.Entries()
	if entries[0].Input != first.Digest || entries[1].Input != again.Digest {
		t.Errorf("the journal has %s and %s", entries[0].Input, entries[1].Input)
	}
}
