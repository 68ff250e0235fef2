package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// waits is a foreground on the only job of a store of its own.
func waits(t *testing.T) (*foreground, context.Context) {
	t.Helper()
	store, err := queue.OpenSQLite(t.Context(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	_, _, err = store.Put(t.Context(), queue.Job{ID: "b-1", Kind: "local/b-1"})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	return &foreground{store: store, build: "b-1", stop: stop}, ctx
}

func (f *foreground) reaches(t *testing.T, want queue.State) {
	t.Helper()
	until(t, 10*time.Second, "the job is not "+string(want), func() bool {
		state, err := f.state(t.Context())
		must(t, err)
		return state == want
	})
}

// A build that waits costs nothing, goes on when it is told something, and the
// terminal stays with it meanwhile.
func TestForegroundOfABuildThatWaits(t *testing.T) {
	t.Parallel()
	fg, ctx := waits(t)
	var runs atomic.Int32
	ended := make(chan error, 1)
	go func() {
		ended <- fg.run(ctx, func(context.Context, *queue.Task) error {
			if runs.Add(1) < 3 {
				return queue.Later(time.Time{}, nil)
			}
			return nil
		})
	}()
	for said := range 2 {
		fg.reaches(t, queue.Parked)
		for range 3 { // each is over after a second, whether something happened or not
			must(t, fg.store.Wait(ctx, "local/another"))
		}
		if n := int(runs.Load()); n != said+1 {
			t.Fatalf("it ran %d times, and was told something %d times", n, said)
		}
		must(t, fg.store.Send(ctx, "b-1", queue.Signal{ID: string(rune('a' + said)), Kind: "steer"}))
	}
	if err := <-ended; err != nil || runs.Load() != 3 {
		t.Errorf("after %d runs: %v", runs.Load(), err)
	}
	fg.reaches(t, queue.Done)
}

// A second terminal finds the build waiting and waits, too.
func TestForegroundBeginsWithABuildThatWaits(t *testing.T) {
	t.Parallel()
	fg, ctx := waits(t)
	lease, err := fg.store.Claim(ctx, "the first", fg.kind())
	must(t, err)
	must(t, fg.store.Park(ctx, lease, time.Time{}, nil))
	ended := make(chan error, 1)
	go func() { ended <- fg.run(ctx, func(context.Context, *queue.Task) error { return nil }) }()
	must(t, fg.store.Wait(ctx, "local/another"))
	select {
	case err := <-ended:
		t.Fatalf("it did not wait: %v", err)
	default:
	}
	must(t, fg.store.Send(ctx, "b-1", queue.Signal{ID: "a", Kind: "steer"}))
	must(t, <-ended)
}

func TestForegroundOfABuildThatAnotherProcessRuns(t *testing.T) {
	t.Parallel()
	fg, ctx := waits(t)
	_, err := fg.store.Claim(ctx, "the first", fg.kind())
	must(t, err)
	if err := fg.run(ctx, nil); !errors.Is(err, queue.ErrEmpty) {
		t.Errorf("run = %v", err)
	}
}

// Ctrl-C hands a waiting build back at once: there is nothing to finish.
func TestForegroundIsInterrupted(t *testing.T) {
	t.Parallel()
	fg, ctx := waits(t)
	draining := make(chan struct{})
	ended, minded := make(chan error, 1), make(chan struct{})
	go func() {
		ended <- fg.run(ctx, func(context.Context, *queue.Task) error { return queue.Later(time.Time{}, nil) })
	}()
	fg.reaches(t, queue.Parked)
	until(t, 10*time.Second, "it does not rest", fg.resting.Load)
	go func() {
		defer close(minded)
		fg.mind(ctx, draining)
	}()
	close(draining)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("run = %v", err)
	}
	<-minded
	if state, err := fg.state(t.Context()); err != nil || state != queue.Parked || fg.elsewhere.Load() {
		t.Errorf("the job is %s, %v", state, err)
	}
}

// A build that ended elsewhere is not waited for.
func TestForegroundOfABuildThatEndsElsewhere(t *testing.T) {
	t.Parallel()
	fg, ctx := waits(t)
	lease, err := fg.store.Claim(ctx, "another", fg.kind())
	must(t, err)
	fg.resting.Store(true)
	minded := make(chan struct{})
	go func() {
		defer close(minded)
		fg.mind(ctx, nil)
	}()
	must(t, fg.store.Done(ctx, lease))
	<-minded
	if !fg.elsewhere.Load() || ctx.Err() == nil {
		t.Error("it was not noticed")
	}
}

// What a person reads at a terminal where a build waits.
func TestViewOfABuildThatWaits(t *testing.T) {
	plan := report.Build{
		ID: "b-1", State: report.WaitingApproval, Issues: []report.Issue{
			{Number: 1, Name: "first", Title: "A \x1b[31mred\x07 title"}, {Number: 2, Name: "second", Title: "B", DependsOn: []string{"first"}},
		},
		Gate:     &report.Gate{Kind: report.PlanGate, Hash: "0123456789abcdef", Reason: "approval is plan"},
		Estimate: &report.Estimate{Calls: 9, Micros: 1_500_000, Took: 90 * time.Second},
	}
	question := report.Build{
		ID: "b-1", State: report.WaitingAnswer,
		Gate: &report.Gate{Kind: report.QuestionGate, Questions: []string{"Which\nof them?\x1b]0;title\x07"}},
	}
	for name, c := range map[string]struct {
		b    report.Build
		want string
	}{
		"a plan": {plan, `01  first                          A [31mred title
02  second                         B  after first
  why     approval is plan
  needs   about 9 agent calls, $1.50, 1m30s
  type    slipway approve b-1 0123456789ab
          builds exactly this plan
  type    slipway revise b-1 TEXT
          has the plan made anew, with what you say
  type    slipway reject b-1 [TEXT]
          ends the build; nothing is coded
`},
		"a question": {question, `  asked   Which of them?]0;title
  type    slipway answer b-1 TEXT
          goes on with what you say
  type    slipway cancel b-1
          ends the build and keeps what is finished
`},
		"at work": {report.Build{ID: "b-1", State: report.Running}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			(&view{out: &out}).ask(c.b)
			if out.String() != c.want || strings.Contains(out.String(), "\x1b") {
				t.Errorf("got\n%s\nwant\n%s", out.String(), c.want)
			}
		})
	}
}
