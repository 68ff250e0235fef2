package step_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/step"
	"github.com/slipway-dev/slipway/pipeline/step/steptest"
	"github.com/slipway-dev/slipway/queue"
)

// outcome is what the tests record: it names its commit and has a field that
// JSON does not keep.
type outcome struct {
	Text   string
	At     time.Time
	hidden string
	commit string
}

func (o outcome) Record(e *queue.Entry) { e.Commit, e.CostMicros = o.commit, 7 }

func says(text string) func(context.Context) (string, error) {
	return func(context.Context) (string, error) { return text, nil }
}

func never(t *testing.T) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		t.Error("a recorded step ran again")
		return "again", nil
	}
}

func TestRecordedStepNeverRunsAgain(t *testing.T) {
	log := new(steptest.Log)
	first := log.Open(t, step.Options{})
	if got, err := step.Do(t.Context(), first, "plan/pm", says("answer")); got != "answer" || err != nil {
		t.Fatalf("first run: %q, %v", got, err)
	}
	for name, j := range map[string]*step.Journal{"same journal": first, "reopened": log.Open(t, step.Options{})} {
		if got, err := step.Do(t.Context(), j, "plan/pm", never(t)); got != "answer" || err != nil {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if keys := log.Keys(); !slices.Equal(keys, []string{"plan/pm"}) {
		t.Errorf("stored %v", keys)
	}
}

func TestErrorIsNotRecorded(t *testing.T) {
	log := new(steptest.Log)
	j := log.Open(t, step.Options{})
	broken := errors.New("disk full")
	if _, err := step.Do(t.Context(), j, "k", func(context.Context) (string, error) { return "half", broken }); !errors.Is(err, broken) {
		t.Fatalf("error %v, want the function's own", err)
	}
	if len(log.Keys()) != 0 {
		t.Errorf("stored %v", log.Keys())
	}
	if got, err := step.Do(t.Context(), j, "k", says("whole")); got != "whole" || err != nil {
		t.Errorf("after the error: %q, %v", got, err)
	}
}

func TestFirstAndLaterRunsSeeTheSameOutcome(t *testing.T) {
	log := new(steptest.Log)
	made := outcome{Text: "a<b", At: time.Now(), hidden: "not kept"}
	run := func(context.Context) (outcome, error) { return made, nil }
	first, err := step.Do(t.Context(), log.Open(t, step.Options{}), "k", run)
	if err != nil {
		t.Fatal(err)
	}
	later, err := step.Do(t.Context(), log.Open(t, step.Options{}), "k", run)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(first, later) || first.Text != "a<b" || first.hidden != "" {
		t.Errorf("first %+v, later %+v", first, later)
	}
}

func TestEntryKnowsKindCommitAndCost(t *testing.T) {
	log := new(steptest.Log)
	j := log.Open(t, step.Options{})
	commit := func(context.Context) (outcome, error) { return outcome{commit: "c1"}, nil }
	if _, err := step.Do(t.Context(), j, "call", commit); err != nil {
		t.Fatal(err)
	}
	if _, err := step.Effect(t.Context(), j, "push", says("done")); err != nil {
		t.Fatal(err)
	}
	if got := j.Entry("call").Commit; got != "c1" {
		t.Errorf("commit %q", got)
	}
	got := j.Entries()
	if len(got) != 2 || got[0].Kind != queue.Call || got[0].CostMicros != 7 || got[1].Kind != queue.Effect {
		t.Errorf("entries %+v", got)
	}
	if _, ok, err := step.Get[string](j, "nothing"); ok || err != nil {
		t.Errorf("an unknown key: %v, %v", ok, err)
	}
}

func TestRecordOfALostCommitRunsAgainAndTheNewestWins(t *testing.T) {
	log := new(steptest.Log)
	gone := map[string]bool{}
	options := step.Options{Has: func(_ context.Context, commit string) bool { return !gone[commit] }}
	make := func(commit string) func(context.Context) (outcome, error) {
		return func(context.Context) (outcome, error) { return outcome{Text: commit, commit: commit}, nil }
	}
	for i, commit := range []string{"c1", "c2", "c3"} {
		got, err := step.Do(t.Context(), log.Open(t, options), "coder", make(commit))
		if err != nil || got.Text != commit {
			t.Fatalf("run %d: %q, %v", i+1, got.Text, err)
		}
		if commit != "c3" {
			gone[commit] = true
		}
	}
	if want := []string{"coder", "coder@2", "coder@3"}; !slices.Equal(log.Keys(), want) {
		t.Errorf("stored %v, want %v", log.Keys(), want)
	}
	j := log.Open(t, options)
	got, _, err := step.Get[outcome](j, "coder")
	if err != nil || got.Text != "c3" || len(j.Entries()) != 1 || j.Entries()[0].Key != "coder" {
		t.Errorf("got %q, %v; entries %+v", got.Text, err, j.Entries())
	}
	clear(gone) // the old commits were found again: the newest record still wins
	if got, _, err := step.Get[outcome](log.Open(t, options), "coder"); err != nil || got.Text != "c3" {
		t.Errorf("with all commits back: %q, %v", got.Text, err)
	}
}

func TestOneKeyAtATime(t *testing.T) {
	j := new(steptest.Log).Open(t, step.Options{})
	inside, release := make(chan struct{}), make(chan struct{})
	var first sync.WaitGroup
	first.Go(func() {
		_, err := step.Do(t.Context(), j, "k", func(context.Context) (string, error) {
			close(inside)
			<-release
			return "one", nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	if _, err := step.Do(t.Context(), j, "k", never(t)); err == nil || !strings.Contains(err.Error(), "running already") {
		t.Errorf("second caller: %v", err)
	}
	close(release)
	first.Wait()
	if got, err := step.Do(t.Context(), j, "k", never(t)); got != "one" || err != nil {
		t.Errorf("after the first: %q, %v", got, err)
	}
}

func TestFinishedWorkIsRecordedAfterCancel(t *testing.T) {
	log := new(steptest.Log)
	ctx, cancel := context.WithCancel(t.Context())
	got, err := step.Do(ctx, log.Open(t, step.Options{}), "k", func(context.Context) (string, error) {
		cancel()
		return "paid for", nil
	})
	if got != "paid for" || err != nil || !slices.Equal(log.Keys(), []string{"k"}) {
		t.Errorf("%q, %v, stored %v", got, err, log.Keys())
	}
}

func TestLostLeaseRecordsNothing(t *testing.T) {
	log := new(steptest.Log)
	told := 0
	stale := log.Open(t, step.Options{Recorded: func(queue.Entry) { told++ }})
	log.Claim() // somebody else has the job
	if _, err := step.Do(t.Context(), stale, "k", says("late")); !errors.Is(err, queue.ErrLost) {
		t.Errorf("error %v, want ErrLost", err)
	}
	if len(log.Keys()) != 0 || told != 0 || len(stale.Entries()) != 0 {
		t.Errorf("stored %v, told %d, kept %v", log.Keys(), told, stale.Entries())
	}
}

func TestChoicesComeInTheirOrder(t *testing.T) {
	log := new(steptest.Log)
	j := log.Open(t, step.Options{})
	for _, key := range []string{"start/issue-02", "start/issue-01", "land/0001"} {
		if _, err := step.Choose(t.Context(), j, key, key); err != nil {
			t.Fatal(err)
		}
		if _, err := step.Do(t.Context(), j, "call/"+key, says("")); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := step.Choose(t.Context(), j, "land/0001", "another"); got != "land/0001" || err != nil {
		t.Errorf("a choice was made twice: %q, %v", got, err)
	}
	for name, j := range map[string]*step.Journal{"same journal": j, "reopened": log.Open(t, step.Options{})} {
		var keys []string
		for _, e := range j.Choices() {
			keys = append(keys, e.Key)
		}
		if want := []string{"start/issue-02", "start/issue-01", "land/0001"}; !slices.Equal(keys, want) {
			t.Errorf("%s: %v, want %v", name, keys, want)
		}
	}
}

// slow is a Log that lets others go first between storing and saying so.
type slow struct{ steptest.Log }

func (l *slow) Append(ctx context.Context, lease *queue.Lease, e queue.Entry) (int64, error) {
	seq, err := l.Log.Append(ctx, lease, e)
	for range 20 {
		runtime.Gosched()
	}
	return seq, err
}

// Many goroutines record at once; everybody who listens hears the order of the
// log, and nothing before it is durable.
func TestEverybodySeesTheOrderOfTheLog(t *testing.T) {
	log := &slow{}
	var told []queue.Entry // calls do not overlap, so no lock: the race detector watches
	j, err := step.Open(t.Context(), log, log.Claim(), step.Options{Recorded: func(e queue.Entry) {
		told = append(told, e)
		if !slices.Contains(log.Keys(), e.Key) {
			t.Errorf("%s was told before it was stored", e.Key)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			if _, err := step.Choose(t.Context(), j, fmt.Sprintf("start/%d", i), i); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	keys := func(entries []queue.Entry) (keys []string) {
		for _, e := range entries {
			keys = append(keys, e.Key)
		}
		return keys
	}
	if stored := log.Keys(); !slices.Equal(keys(told), stored) || !slices.Equal(keys(j.Choices()), stored) {
		t.Errorf("stored %v\ntold   %v\nkept   %v", stored, keys(told), keys(j.Choices()))
	}
	var found []queue.Entry
	log.Open(t, step.Options{Recorded: func(e queue.Entry) { found = append(found, e) }})
	if !slices.Equal(keys(found), log.Keys()) {
		t.Errorf("at Open: %v", keys(found))
	}
}

func TestBrokenRecordIsAnError(t *testing.T) {
	log := new(steptest.Log)
	if _, err := log.Append(t.Context(), log.Claim(), queue.Entry{Key: "k", Outcome: json.RawMessage(`{"a":1}`)}); err != nil {
		t.Fatal(err)
	}
	if _, err := step.Do(t.Context(), log.Open(t, step.Options{}), "k", never(t)); err == nil {
		t.Error("an object was read as a string")
	}
}

func TestStoreThatFailsFailsTheStep(t *testing.T) {
	full := errors.New("disk full")
	log := &steptest.Log{Refuse: func(context.Context, queue.Entry) error { return full }}
	j := log.Open(t, step.Options{})
	if _, err := step.Do(t.Context(), j, "k", says("x")); !errors.Is(err, full) {
		t.Errorf("error %v", err)
	}
	log.Refuse = nil
	if got, err := step.Do(t.Context(), j, "k", says("y")); got != "y" || err != nil {
		t.Errorf("when the store is back: %q, %v", got, err)
	}
}
