package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// The account names the model that did the work, also where another one was
// asked first.
func TestAccountNamesTheModelThatAnswered(t *testing.T) {
	w := newWorld(t, issue("a", nil))
	w.engine.Only = ""
	w.configure("models: {default: sonnet, coder: 'opus@high | command:spare@none'}")
	w.when("coder", func(_ context.Context, c runtime.Call) (any, error) {
		if c.Model == "opus" {
			return nil, &runtime.Error{Class: runtime.Fatal, Reason: "404: no such model"}
		}
		return nil, nil
	})
	final := w.must(report.Succeeded)
	var asked []string
	for _, c := range w.agents.Calls() {
		if c.Role == "coder" {
			asked = append(asked, c.Model+" "+c.Effort)
		}
	}
	if !slices.Equal(asked, []string{"opus high", "spare none"}) {
		t.Errorf("asked %v", asked)
	}
	for _, line := range final.Costs {
		want := report.Cost{Role: line.Role, Runtime: "claude_code", Model: "sonnet"}
		if line.Role == "coder" {
			want.Runtime, want.Model = "command", "spare"
		}
		if line.Runtime != want.Runtime || line.Model != want.Model {
			t.Errorf("the work of %s is charged to %s of %s", line.Role, line.Model, line.Runtime)
		}
	}
	found, err := filepath.Glob(filepath.Join(w.engine.State, "transcripts", "*", "issue-01", "round-1", "iter-1", "coder.jsonl"))
	if err != nil || len(found) != 1 {
		t.Fatalf("transcripts %v, %v", found, err)
	}
	text, err := os.ReadFile(found[0])
	const want = `{"kind":"notice","text":"claude_code:opus@high: 404: no such model; falling back to command:spare@none"}`
	if err != nil || !strings.Contains(string(text), want) {
		t.Errorf("the transcript does not tell of the fallback: %v\n%s", err, text)
	}
}

// What cannot work is told before anybody is asked.
func TestModelsThatCannotBeHad(t *testing.T) {
	for name, c := range map[string]struct{ models, cause string }{
		"an effort that the runtime lacks": {"coder: sonnet@none", `configuration: models.coder: claude_code has no effort "none"`},
		"a fallback that is not installed": {"coder: 'sonnet | command:spare'", "the agents cannot be run: no program is there"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, issue("a", nil))
			w.engine.Only = ""
			w.engine.Runtime = func(_ context.Context, name string) (runtime.Runtime, error) {
				if name == "command" {
					return nil, errors.New("no program is there")
				}
				return w.agents, nil
			}
			w.configure("models: {" + c.models + "}")
			final, err := w.run()
			if err != nil || final.State != report.NeedsHuman || !strings.Contains(final.Cause, c.cause) {
				t.Errorf("%s: %s, %v", final.State, final.Cause, err)
			}
			if calls := w.agents.Calls(); len(calls) > 0 {
				t.Errorf("%d agents were asked", len(calls))
			}
		})
	}
}
