package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// reviewView shows a review's journal as it grows, as view does a build's.
type reviewView struct {
	view
	fold   *pipeline.ReviewFold
	stages map[string]string
}

func newReviewView(o *options, id string) *reviewView {
	return &reviewView{
		view: view{build: id, json: o.json, live: !o.json && isTerminal(os.Stdout), out: os.Stdout},
		fold: pipeline.NewReviewFold(), stages: map[string]string{},
	}
}

// A reviewEvent is one line of a review's --json stream. The last is the whole
// account.
type reviewEvent struct {
	Event  string     `json:"event"` // phase or call
	At     time.Time  `json:"at"`
	Review string     `json:"review"`
	Key    string     `json:"key"`
	State  string     `json:"state"`
	Model  string     `json:"model,omitempty"`
	Cost   report.USD `json:"cost_usd,omitzero"`
	Took   int64      `json:"took_ms,omitempty"`
}

// follow shows entries until ctx ends.
func (v *reviewView) follow(ctx context.Context, store queue.Store) {
	again(ctx, func() { v.catchUp(ctx, store) })
}

// catchUp shows the entries that are there and not shown yet.
func (v *reviewView) catchUp(ctx context.Context, store queue.Store) {
	entries, err := store.Entries(ctx, v.build, v.after)
	if err != nil {
		return // it shows with the next look, or the review says what is wrong
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range entries {
		v.after = e.Seq
		v.fold.Add(e)
		if v.json && e.Runtime != "" {
			v.encode(reviewEvent{
				Event: "call", At: e.At, Review: v.build, Key: e.Key, State: "done", Model: e.Model,
				Cost: report.USD(e.CostMicros), Took: e.Duration.Milliseconds(),
			})
		}
		v.phases(e.At)
	}
	if r := v.fold.Report(time.Now()); v.live && !r.State.Final() {
		v.paint(fmt.Sprintf("%s · %d calls · $%s · %s", v.running(r), r.AgentCalls, dollars(r.CostMicros), r.Elapsed.Round(time.Second)))
	}
}

func (v *reviewView) running(r report.Review) string {
	for _, s := range r.Stages {
		if s.State == "running" {
			return strings.TrimSpace(s.Name + " " + s.Detail)
		}
	}
	return string(r.State)
}

// phases shows what changed of them.
func (v *reviewView) phases(at time.Time) {
	for _, s := range v.fold.Report(at).Stages {
		if v.stages[s.Name] == s.State || s.State == "pending" {
			continue
		}
		v.stages[s.Name] = s.State
		if v.json {
			v.encode(reviewEvent{Event: "phase", At: at, Review: v.build, Key: s.Name, State: s.State})
			continue
		}
		v.erase()
		fmt.Fprintf(v.out, "%s  %-9s %s\n", at.Local().Format("15:04:05"), s.Name, s.State)
	}
}

// slot shows how an agent ended; in JSON each step.
func (v *reviewView) slot(e pipeline.SlotEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.json:
		v.encode(e)
	case e.State.Final():
		v.erase()
		fmt.Fprintf(v.out, "%s    %-28s %s  %s\n", time.Now().Format("15:04:05"), oneLine(e.Type), e.State, oneLine(e.Error))
	}
}

// finish shows what was found.
func (v *reviewView) finish(ctx context.Context, store queue.Store, r report.Review, path string) error {
	v.catchUp(ctx, store)
	v.erase()
	if v.json {
		text, err := report.ReviewJSON(r)
		fmt.Fprintf(v.out, "%s\n", text)
		return err
	}
	fmt.Fprintf(v.out, "\n%s\n", report.ReviewTitle(r))
	for _, e := range r.Open() {
		fmt.Fprintf(v.out, "\n%3d  %-8s  %s\n", e.Number, e.Severity, oneLine(place(e.Path, e.StartLine)))
		for _, text := range []string{e.Title, e.Claim, e.FailureScenario, e.Suggestion} {
			if text != "" {
				fmt.Fprintf(v.out, "     %s\n", printable(text))
			}
		}
		for line := range strings.Lines(tail(e.Witness, 12)) {
			fmt.Fprintf(v.out, "     | %s\n", printable(line))
		}
	}
	for _, g := range r.Gaps {
		fmt.Fprintf(v.out, "\nnot looked at: %s %s, %s\n", printable(g.Agent), g.State, oneLine(g.Reason))
	}
	if r.Cause != "" {
		fmt.Fprintf(v.out, "\nwhy     %s\n", printable(r.Cause))
	}
	fmt.Fprintf(v.out, "\nreport  %s\n", path)
	if r.Next != "" {
		fmt.Fprintf(v.out, "next    %s\n", r.Next)
	}
	return nil
}

// place is where a finding is.
func place(path string, line int) string {
	switch {
	case path == "":
		return "the change as a whole"
	case line == 0:
		return path
	}
	return fmt.Sprintf("%s:%d", path, line)
}

// tail is the last lines of a text.
func tail(text string, lines int) string {
	all := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "")
}
