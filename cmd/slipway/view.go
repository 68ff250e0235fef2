package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// view shows a build's journal as it grows: JSON lines, or text with a live
// last line on a terminal.
type view struct {
	build string
	json  bool
	live  bool
	out   io.Writer
	watch *pipeline.Watch
	after int64
	line  string // the live line as it stands

	mu sync.Mutex // held while something is shown
}

func newView(o *options, build string) *view {
	return &view{build: build, json: o.json, live: !o.json && isTerminal(os.Stdout), out: os.Stdout, watch: pipeline.NewWatch()}
}

func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// follow shows entries until ctx ends.
func (v *view) follow(ctx context.Context, store queue.Store) {
	again(ctx, func() { v.catchUp(ctx, store) })
}

// again looks five times a second until ctx ends: what a person watches.
func again(ctx context.Context, look func()) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		look()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// catchUp shows the entries that are there and not shown yet.
func (v *view) catchUp(ctx context.Context, store queue.Store) {
	entries, err := store.Entries(ctx, v.build, v.after)
	if err != nil {
		return // it shows with the next look, or the build says what is wrong
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, e := range entries {
		v.after = e.Seq
		for _, event := range v.watch.Add(e) {
			v.show(event)
		}
	}
	if v.live {
		v.paint(v.now())
	}
}

func (v *view) show(e pipeline.Event) {
	if v.json {
		v.encode(e)
		return
	}
	if e.State == "pending" {
		return // the live line counts them
	}
	text := ""
	switch e.Event {
	case "phase":
		text = fmt.Sprintf("%-9s %s", e.Key, e.State)
	case "issue":
		text = fmt.Sprintf("  issue   %-28s %s", e.Key, e.State)
		if e.Detail != "" && e.State != "running" {
			text += "  " + oneLine(e.Detail)
		}
	case "debt":
		text = fmt.Sprintf("  debt    %-28s %s", e.State, oneLine(e.Detail))
	case "permit":
		text = fmt.Sprintf("  asks    %s", oneLine(e.Detail))
	case "gate":
		if text = "goes on"; e.State == "waiting" {
			text = "waits for " + oneLine(e.Detail)
		}
	default:
		return
	}
	v.erase()
	fmt.Fprintf(v.out, "%s  %s\n", e.At.Local().Format("15:04:05"), text)
	if e.Event == "permit" {
		for _, command := range e.Type {
			fmt.Fprintf(v.out, "  type    %s\n", oneLine(command))
		}
	}
	if e.Event == "gate" && e.State == "waiting" {
		v.ask(v.watch.Fold.Report(e.At))
	}
}

// slot shows how a subagent stands: each step in JSON, how it ended in text.
func (v *view) slot(e pipeline.SlotEvent) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.json:
		v.encode(e)
	case e.State.Final():
		v.erase()
		fmt.Fprintf(v.out, "%s    asked   %-28s %s  %s\n", e.At.Local().Format("15:04:05"), oneLine(e.Type), e.State, oneLine(e.Error))
	}
}

// ask shows what a person is asked for, and what to type in another terminal,
// since this one stays with the build.
func (v *view) ask(b report.Build) {
	if b.State == report.WaitingApproval {
		for _, is := range b.Issues {
			fmt.Fprintln(v.out, plannedLine(is.Number, is.Name, is.Title, is.DependsOn))
		}
	}
	if b.Gate != nil {
		if b.Gate.Reason != "" {
			fmt.Fprintf(v.out, "  why     %s\n", oneLine(b.Gate.Reason))
		}
		for _, q := range b.Gate.Questions {
			fmt.Fprintf(v.out, "  asked   %s\n", printable(q))
		}
		if e := b.Estimate; e != nil {
			fmt.Fprintf(v.out, "  needs   about %d agent calls, $%s, %s\n", e.Calls, dollars(e.Micros), e.Took.Round(time.Second))
		}
	}
	for _, c := range report.Choices(b) {
		fmt.Fprintf(v.out, "  type    %s\n          %s\n", oneLine(c.Command), c.Does)
	}
}

// now is the live line.
func (v *view) now() string {
	b := v.watch.Fold.Report(time.Now())
	stage := string(b.State)
	for _, s := range b.Stages {
		if s.State == "running" && !b.State.Waiting() {
			stage = s.Name
		}
	}
	landed, running := 0, 0
	for _, is := range b.Issues {
		switch is.Outcome {
		case report.Completed, report.CompletedWithDebt:
			landed++
		case report.InProgress:
			running++
		}
	}
	return fmt.Sprintf("%s · %d/%d issues, %d running · %d calls · $%s · %s",
		stage, landed, len(b.Issues), running, b.AgentCalls, dollars(b.CostMicros), b.Elapsed.Round(time.Second))
}

func (v *view) paint(line string) {
	if line == v.line {
		return
	}
	v.erase()
	fmt.Fprint(v.out, line)
	v.line = line
}

func (v *view) erase() {
	if v.line != "" {
		fmt.Fprint(v.out, "\r\x1b[K")
		v.line = ""
	}
}

func (v *view) encode(value any) {
	text, err := json.Marshal(value)
	if err != nil {
		fmt.Fprintln(os.Stderr, "slipway: print an event:", err)
		return
	}
	fmt.Fprintf(v.out, "%s\n", text)
}

// finish shows what is left and the outcome.
func (v *view) finish(ctx context.Context, store queue.Store, final report.Build, path string) {
	v.catchUp(ctx, store)
	v.erase()
	if v.json {
		v.encode(report.Done(final))
		return
	}
	fmt.Fprintf(v.out, "\n%s: %s\n", final.State, final.Summary)
	if final.Branch != "" {
		fmt.Fprintf(v.out, "branch  %s\n", final.Branch)
	}
	if final.Pull != nil {
		fmt.Fprintf(v.out, "pull    %s\n", final.Pull.URL)
	}
	if path != "" {
		fmt.Fprintf(v.out, "report  %s\n", path)
	}
	if final.Next != "" {
		fmt.Fprintf(v.out, "next    %s\n", final.Next)
	}
}

// printable is text of agents and tickets on one line, without the control
// characters that a terminal would obey.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, strings.Join(strings.Fields(s), " "))
}

func oneLine(s string) string {
	line := printable(s)
	if runes := []rune(line); len(runes) > 100 {
		return string(runes[:99]) + "…"
	}
	return line
}

func dollars(micros int64) string { return fmt.Sprintf("%.2f", float64(micros)/1e6) }
