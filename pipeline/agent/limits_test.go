package agent_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
)

func askAt(ctx context.Context, c *agent.Crew, key string, work agent.Workspace, r agent.Role[question, reply]) (reply, error) {
	return agent.Ask(ctx, c, agent.Place{Key: key, Work: work}, r, question{Text: "hello"})
}

func TestSlotsCapTheAgentsAtWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		working, most := 0, 0
		agents := agenttest.New(func(ctx context.Context, _ runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
			mu.Lock()
			working++
			most = max(most, working)
			mu.Unlock()
			<-time.After(time.Second)
			mu.Lock()
			working--
			mu.Unlock()
			return agenttest.JSON(reply{Word: "hi"}), nil
		})
		crew := crewOn(t, new(steptest.Log), agents)
		crew.Slots = agent.NewSlots(3)
		start := time.Now()
		var all sync.WaitGroup
		for _, key := range strings.Split("abcdefg", "") {
			all.Go(func() {
				if _, err := askAt(t.Context(), crew, key, agenttest.Desk{}, reader()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if most != 3 || time.Since(start) != 3*time.Second {
			t.Errorf("%d at once, took %v", most, time.Since(start))
		}
	})
}

func TestDrainingStartsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		draining, release := make(chan struct{}), make(chan struct{})
		agents := agenttest.New(func(_ context.Context, c runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
			if c.Step == "failing/reader" {
				return runtime.Result{}, transient(time.Hour)
			}
			<-release
			return agenttest.JSON(reply{Word: "hi"}), nil
		})
		log := new(steptest.Log)
		crew := crewOn(t, log, agents)
		crew.Slots, crew.Draining = agent.NewSlots(2), draining
		var all sync.WaitGroup
		for key, want := range map[string]error{"running": nil, "failing": agent.ErrDraining} {
			all.Go(func() {
				if _, err := askAt(t.Context(), crew, key, agenttest.Desk{}, reader()); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", key, err, want)
				}
			})
		}
		synctest.Wait() // both slots are taken
		all.Go(func() {
			if _, err := askAt(t.Context(), crew, "waiting", agenttest.Desk{}, reader()); !errors.Is(err, agent.ErrDraining) {
				t.Errorf("waiting: %v", err)
			}
		})
		synctest.Wait()
		close(draining)
		synctest.Wait()
		if _, err := askAt(t.Context(), crew, "late", agenttest.Desk{}, reader()); !errors.Is(err, agent.ErrDraining) {
			t.Errorf("late: %v", err)
		}
		close(release)
		all.Wait()
		if keys := log.Keys(); len(keys) != 1 || keys[0] != "running/reader" {
			t.Errorf("stored %v", keys)
		}
	})
}

func TestCancelReturnsItsCauseAndRecordsNothing(t *testing.T) {
	stop := errors.New("the maintainer said /cancel")
	for name, answer := range map[string]error{
		"the runtime says so":           context.Canceled,
		"the runtime calls it refused":  refused,
		"the runtime calls it overload": transient(0),
	} {
		t.Run(name, func(t *testing.T) {
			log := new(steptest.Log)
			ctx, cancel := context.WithCancelCause(t.Context())
			agents := agenttest.New(func(ctx context.Context, _ runtime.Call, _ func(runtime.Event)) (runtime.Result, error) {
				cancel(stop)
				<-ctx.Done()
				return runtime.Result{}, answer
			})
			d := &desk{commits: []string{"c1"}}
			_, err := askAt(ctx, crewOn(t, log, agents), "one", d, writer())
			if !errors.Is(err, stop) || len(log.Keys()) != 0 {
				t.Errorf("%v, stored %v", err, log.Keys())
			}
			if strings.Join(d.did, ", ") != "prepare" {
				t.Errorf("the worktree saw %v", d.did)
			}
		})
	}
	t.Run("while it waits for a slot", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(stop)
		agents := play(t)
		for range 20 { // a free slot and a cancelled ctx are both ready: chance must not decide
			if _, err := askAt(ctx, crewOn(t, new(steptest.Log), agents), "one", agenttest.Desk{}, reader()); !errors.Is(err, stop) {
				t.Fatalf("error %v", err)
			}
		}
	})
	t.Run("while it waits for another try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, stop)
			defer cancel()
			_, err := askAt(ctx, crewOn(t, new(steptest.Log), play(t, turn{err: transient(time.Hour)})), "one", agenttest.Desk{}, reader())
			if !errors.Is(err, stop) {
				t.Errorf("error %v", err)
			}
		})
	})
}

func TestWorkspace(t *testing.T) {
	good := turn{json: `{"word":"hi"}`}
	unsafe := &agent.Rejected{Reason: "a nested .git directory"}
	full := errors.New("no space left on device")
	for name, c := range map[string]struct {
		role    agent.Role[question, reply]
		turns   []turn
		err     error // of Collect
		first   string
		again   string // on a second run over the same journal
		failure string
	}{
		"a reader leaves nothing":            {role: reader(), turns: []turn{good}, first: "prepare"},
		"a writer leaves a commit":           {role: writer(), turns: []turn{good}, first: "prepare, collect, found c1", again: "found c1"},
		"each turn leaves its own":           {role: writer(), turns: []turn{{text: "prose"}, good}, first: "prepare, collect, found c1, prepare, collect, found c2", again: "found c1, found c2"},
		"also one that failed":               {role: writer(), turns: []turn{{err: refused}}, first: "prepare, collect, found c1", again: "found c1", failure: refused.Reason},
		"what cannot be kept is refused":     {role: writer(), turns: []turn{good}, err: unsafe, first: "prepare, collect", failure: "what the agent left was refused: a nested .git directory"},
		"a disk that is full is tried again": {role: writer(), turns: []turn{good}, err: full, first: "prepare, collect, collect, collect", failure: "what the agent left could not be collected: no space left on device"},
	} {
		t.Run(name, func(t *testing.T) {
			log := new(steptest.Log)
			agents := play(t, c.turns...)
			for run, want := range []string{c.first, c.again} {
				d := &desk{commits: []string{"c1", "c2"}, err: c.err}
				_, err := askAt(t.Context(), crewOn(t, log, agents), "one", d, c.role)
				failure, failed := errors.AsType[*agent.Failure](err)
				if failed != (c.failure != "") || failed && failure.Reason != c.failure || !failed && err != nil {
					t.Errorf("run %d: %v", run+1, err)
				}
				if got := strings.Join(d.did, ", "); got != want {
					t.Errorf("run %d: the worktree saw %q, want %q", run+1, got, want)
				}
			}
			if writes := c.role.Name == "writer"; agents.Calls()[0].ReadOnly == writes {
				t.Errorf("ReadOnly is %v", !writes)
			}
		})
	}
}

func TestTranscripts(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		crew := crewOn(t, new(steptest.Log), play(t, turn{text: "first try", err: transient(0)}, turn{text: "prose"}, turn{json: `{"word":"hi"}`}))
		crew.Transcripts = dir
		if _, err := ask(t, crew, reader()); err != nil {
			t.Fatal(err)
		}
	})
	for name, want := range map[string][]string{"plan/reader.jsonl": {"first try", "prose"}, "plan/reader/repair-1.jsonl": {"hi"}} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		if len(lines) != len(want) {
			t.Fatalf("%s has %d lines", name, len(lines))
		}
		for i := range want {
			if !strings.Contains(lines[i], want[i]) {
				t.Errorf("%s line %d: %s", name, i+1, lines[i])
			}
		}
	}
}

func TestUnknownRoleIsAnError(t *testing.T) {
	log := new(steptest.Log)
	crew := agenttest.Crew(log.Open(t, step.Options{}), play(t))
	none := errors.New("no runtime is configured")
	crew.Target = func(string) (agent.Target, error) { return agent.Target{}, none }
	if _, err := ask(t, crew, reader()); !errors.Is(err, none) || len(log.Keys()) != 0 {
		t.Errorf("%v, stored %v", err, log.Keys())
	}
}
