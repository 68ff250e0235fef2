package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// A terminal is where somebody types: a state directory and an environment.
type terminal struct {
	*testing.T
	state string
	env   []string
}

func newTerminal(t *testing.T, env ...string) *terminal {
	t.Helper()
	home := t.TempDir()
	return &terminal{T: t, state: t.TempDir(), env: append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}, env...)}
}

// typed is how a command line ended.
type typed struct {
	code     int
	out, err string
	took     time.Duration
}

// slipway runs the binary to its end.
func (t *terminal) slipway(args ...string) typed {
	t.Helper()
	cmd := t.command(args...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	start := time.Now()
	failed := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](failed); failed != nil && !exited {
		t.Fatal(failed)
	}
	return typed{code: cmd.ProcessState.ExitCode(), out: out.String(), err: err.String(), took: time.Since(start)}
}

func (t *terminal) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), slipwayBinary, append([]string{"--state-dir", t.state}, args...)...)
	cmd.Env, cmd.Dir = t.env, t.state
	return cmd
}

// done is the last line of slipway build --json, as it is promised: its fields
// and no others.
type done struct {
	Event   string `json:"event"`
	State   string `json:"state"`
	Success bool   `json:"success"`
	Summary string `json:"summary"`
	Build   string `json:"build"`
	Branch  string `json:"branch"`
	Head    string `json:"head"`
	Pull    *struct {
		Number int    `json:"number"`
		Draft  bool   `json:"draft"`
		URL    string `json:"url"`
	} `json:"pull"`
	Issues struct {
		Completed         int `json:"completed"`
		CompletedWithDebt int `json:"completed_with_debt"`
		Failed            int `json:"failed"`
		Skipped           int `json:"skipped"`
	} `json:"issues"`
	Debt   []debt.Item `json:"debt"`
	Checks []struct {
		Name       string `json:"name"`
		Conclusion string `json:"conclusion"`
		HeadSHA    string `json:"head_sha"`
	} `json:"checks"`
	Comments     int `json:"comments"`
	Verification struct {
		Passed   bool `json:"passed"`
		Criteria []struct {
			ID        string `json:"id"`
			Passed    bool   `json:"passed"`
			Evidence  string `json:"evidence"`
			IssueName string `json:"issue_name"`
		} `json:"criteria"`
	} `json:"verification"`
	CostUSD    float64 `json:"cost_usd"`
	AgentCalls int     `json:"agent_calls"`
	ElapsedMS  int64   `json:"elapsed_ms"`
}

// doneFields are there in every done event, in this order.
var doneFields = []string{
	"event", "state", "success", "summary", "build", "branch", "head", "pull", "issues", "debt", "checks",
	"comments", "verification", "cost_usd", "agent_calls", "elapsed_ms",
}

// line is any line of the stream before the last.
type line struct {
	Event, Key, State, Detail, Role, Build string
	At                                     time.Time
}

// build runs slipway build --json, and judges its stream: every line parses,
// the last is the done event with exactly its fields.
func (t *terminal) build(args ...string) (typed, done) {
	t.Helper()
	end := t.slipway(append([]string{"build", "--json"}, args...)...)
	d, _ := t.stream(end)
	return end, d
}

func (t *terminal) stream(end typed) (done, []line) {
	t.Helper()
	var d done
	lines := strings.Split(strings.TrimSpace(end.out), "\n")
	last := lines[len(lines)-1]
	in := json.NewDecoder(strings.NewReader(last))
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil || d.Event != "done" {
		t.Fatalf("exit %d; the last line is no done event: %v\n%s\n%s", end.code, err, last, end.err)
	}
	if names := fieldsOf(t, last); !slices.Equal(names, doneFields) {
		t.Errorf("the done event has the fields\n%v, want\n%v", names, doneFields)
	}
	var events []line
	for _, text := range lines[:len(lines)-1] {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("a line of the stream does not parse: %v\n%s", err, text)
		}
		if l.Event == "" || l.Event == "done" || l.Key == "" && l.Event != "debt" || l.Build != d.Build || l.At.IsZero() {
			t.Errorf("a line of the stream lacks event, key, build or time: %s", text)
		}
		events = append(events, l)
	}
	return d, events
}

// fieldsOf lists the names at the top of a JSON object, in their order.
func fieldsOf(t *terminal, object string) (names []string) {
	t.Helper()
	in := json.NewDecoder(strings.NewReader(object))
	if _, err := in.Token(); err != nil {
		t.Fatal(err)
	}
	for in.More() {
		name, err := in.Token()
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprint(name))
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

// report is the build's report.md.
func (t *terminal) report(build string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(t.state, "builds", build, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// ended fails unless the build ended so, with a summary that holds want.
func (t *terminal) ended(end typed, d done, code int, state string, want ...string) {
	t.Helper()
	if end.code != code || d.State != state {
		t.Fatalf("exit %d, state %s; want %d, %s\nsummary: %s\ndebt: %+v\n%s", end.code, d.State, code, state, d.Summary, d.Debt, end.err)
	}
	for _, w := range want {
		if !strings.Contains(d.Summary, w) {
			t.Errorf("the summary does not say %q: %s", w, d.Summary)
		}
		if page := plain(t.report(d.Build)); !strings.Contains(page, w) {
			t.Errorf("report.md does not say %q:\n%s", w, page)
		}
	}
}

// plain is Markdown without the backslashes that keep its text from being markup.
func plain(markdown string) string { return strings.ReplaceAll(markdown, `\`, "") }

// owes fails unless the build has the debt, with a justification that holds why.
func (t *terminal) owes(d done, kind debt.Type, severity debt.Severity, issue, why string) {
	t.Helper()
	for _, item := range d.Debt {
		if item.Type == kind && item.Severity == severity && item.IssueName == issue && strings.Contains(item.Justification, why) {
			return
		}
	}
	t.Errorf("no %s debt %s of issue %q that says %q in %+v", severity, kind, issue, why, d.Debt)
}
