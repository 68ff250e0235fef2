package coding

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// site is a Site in memory. A commit is its parent's name with the name of the
// worktree behind it.
type site struct {
	outcome func(commit string) evidence.Result // nil: green

	mu     sync.Mutex
	dirty  map[string]bool // worktrees that an agent changed
	tested []string
}

func (s *site) Open(name, commit string) Tree { return &tree{site: s, name: name, head: commit} }

func (s *site) Test(_ context.Context, commit string) (evidence.Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tested = append(s.tested, commit)
	if s.outcome == nil {
		return green, nil
	}
	return s.outcome(commit), nil
}

func (s *site) Diff(_ context.Context, base, head string) (string, error) {
	return fmt.Sprintf("diff %s..%s", base, head), nil
}

func (s *site) edit(dir string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dirty == nil {
		s.dirty = map[string]bool{}
	}
	s.dirty[dir] = true
}

type tree struct {
	site *site
	name string
	head string
}

func (t *tree) Dir() string                   { return t.name }
func (t *tree) Prepare(context.Context) error { return nil }
func (t *tree) Found(commit string)           { t.head = commit }
func (t *tree) Head() string                  { return t.head }

func (t *tree) Collect(context.Context) (string, error) {
	t.site.mu.Lock()
	defer t.site.mu.Unlock()
	if !t.site.dirty[t.name] {
		return t.head, nil
	}
	t.site.dirty[t.name] = false
	return t.head + "+" + t.name, nil
}

var (
	green = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test ./...", Passed: true}}}
	red   = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test ./...", Exit: 1, Output: "--- FAIL: TestX"}}}
	none  = evidence.Result{None: true, LookedAt: []string{"go.mod", "Makefile"}}
	flaky = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test ./...", Passed: true, Flaky: true}}}
)

// answer is what a role answers once.
type answer struct {
	out  any
	edit bool // it changes its worktree
	err  error
}

// script holds the answers of each role in turn; the last one is given again.
type script map[string][]answer

var (
	done     = answer{out: Submission{Summary: "Done.", Complete: true}, edit: true}
	unedited = answer{out: Submission{Summary: "Nothing to do.", Complete: true}}
	gone     = answer{err: &runtime.Error{Class: runtime.Refused, Reason: "it crashed"}}

	approve = answer{out: ReviewResult{Approved: true, Summary: "Good."}}
	block   = answer{out: ReviewResult{Blocking: true, Summary: "It deletes the data."}}

	qaPass = answer{out: QAResult{Passed: true, Summary: "All hold."}, edit: true}
	qaFail = answer{out: QAResult{Summary: "One does not hold.", TestFailures: []TestFailure{{TestName: "TestEmpty", Error: "panic", Expected: "nothing", Actual: "a panic"}}}}
)

func refuse(summary string) answer { return answer{out: ReviewResult{Summary: summary}} }

func decide(a Action, summary string) answer {
	return answer{out: Synthesis{Action: a, Summary: summary}}
}

// bench is a loop with all that it needs, ready to be run again on its journal.
type bench struct {
	site   *site
	script script
	task   Task
	log    *steptest.Log
	agents *agenttest.Agents

	mu     sync.Mutex
	played map[string]answer // by step; a step that is in it already is answered so again
}

func newBench(s script) *bench {
	b := &bench{
		site: &site{}, script: s, log: new(steptest.Log), played: map[string]answer{},
		task: Task{
			Key: "issue-07", Background: func() Background { return Background{} },
			Issue: graph.Issue{Name: "csv-writer", Number: 7, Title: "Write CSV", Description: "Add WriteCSV."},
			Spec:  "## Goal", Base: "base", MaxIterations: 5,
		},
	}
	given := map[string]int{}
	b.agents = agenttest.New(func(_ context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		a, known := b.played[c.Step]
		if !known {
			all := b.script[c.Role]
			if len(all) == 0 {
				return runtime.Result{}, &runtime.Error{Class: runtime.Fatal, Reason: "nobody plays " + c.Role}
			}
			a = all[min(given[c.Role], len(all)-1)]
			given[c.Role]++
			b.played[c.Step] = a
		}
		if a.edit {
			b.site.edit(c.Dir)
		}
		if a.err != nil {
			return runtime.Result{}, a.err
		}
		return agenttest.JSON(a.out), nil
	})
	return b
}

// flagged sends the issue down the path with QA.
func (b *bench) flagged() *bench {
	b.task.Issue.Guidance.NeedsDeeperQA = true
	return b
}

func (b *bench) crew(t *testing.T) *agent.Crew {
	return agenttest.Crew(b.log.Open(t, step.Options{}), b.agents)
}

func (b *bench) run(t *testing.T) Result {
	t.Helper()
	r, err := Run(t.Context(), b.crew(t), b.site, b.task)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// prompts returns the prompts that a role was given.
func (b *bench) prompts(role string) (prompts []string) {
	for _, c := range b.agents.Calls() {
		if c.Role == role {
			prompts = append(prompts, c.Prompt)
		}
	}
	return prompts
}

// advised lets the Issue Advisor be asked so often about an issue with these
// criteria.
func (b *bench) advised(invocations int, criteria ...graph.Criterion) *bench {
	b.task.MaxAdvisorInvocations, b.task.CanSplit, b.task.Issue.AcceptanceCriteria = invocations, true, criteria
	return b
}

// after returns a bench like b that has the first n records of its journal and
// whose agents answer each step as they answered b.
func (b *bench) after(t *testing.T, n int) *bench {
	t.Helper()
	c := newBench(b.script)
	c.site.outcome, c.task, c.played = b.site.outcome, b.task, b.played
	entries, err := b.log.Entries(t.Context(), "job", 0)
	if err != nil {
		t.Fatal(err)
	}
	lease := c.log.Claim()
	for _, e := range entries[:n] {
		if _, err := c.log.Append(t.Context(), lease, e); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func advice(d Decision) answer { return answer{out: d} }

var retry = answer{out: RetryAdvice{ShouldRetry: true, Diagnosis: "It waited for a port.", Strategy: "Run go test ./export only.", ModifiedContext: "The writer is done."}}
