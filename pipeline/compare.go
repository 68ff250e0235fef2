package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A comparison is a build whose work is done by others: its contenders, one for
// each target, which are builds like any other but for their end, at which they
// keep what they made. When all have ended it shows them side by side, and a
// person chooses. The chosen one then publishes. It is the comparison that people
// see and speak to: it has the ticket, the tracking comment and the gate, and
// hands on to its contenders what is said.

// Builds is what a comparison needs of the queue.
type Builds interface {
	Journals
	// Start queues a build; one that is there stays as it is.
	Start(ctx context.Context, r Request) error
	// Tell sends a signal to a build, once for each id. A build that has ended
	// hears only what lets it go on.
	Tell(ctx context.Context, build string, s Signal) error
	// GivenUp is why the queue has buried a build, or empty.
	GivenUp(ctx context.Context, build string) (cause string, err error)
}

// glance is how often a comparison looks how its builds stand. That they have
// ended is told at once.
const glance = 20 * time.Second

// The keys of a comparison's journal, beside those that it shares with builds.
const (
	keyContenders = "contenders" // effect, []contender: their builds are queued
	keyContest    = "contest"    // choice, []report.Contender: how they ended, of which one is to be chosen
)

func keyTold(signal string) string { return "told/" + signal } // effect, told

// contender is one build of a comparison.
type contender struct {
	Build  string `json:"build"`
	Target string `json:"target"`
}

// told is a signal that was handed on. Where it lets builds go on that had ended,
// they have not until they have heard it.
type told struct {
	Signal string   `json:"signal"`
	To     []string `json:"to,omitempty"`
	Opens  bool     `json:"opens,omitempty"`
}

// comparison is one claim of a comparison at work.
type comparison struct{ *build }

// compare takes a comparison to its end, or to what it waits for next.
func (e *Engine) compare(ctx context.Context, job Job) (report.Build, error) {
	b, _, err := e.open(ctx, job)
	if err != nil {
		return report.Build{}, err
	}
	c := comparison{b}
	for _, s := range job.Before {
		if err := c.hear(ctx, s); err != nil {
			return report.Build{}, err
		}
	}
	if !c.fold.isDone() {
		if err := c.run(ctx); err != nil {
			return report.Build{}, err
		}
		if err := c.conclude(ctx); err != nil {
			return report.Build{}, err
		}
	}
	return c.account(ctx)
}

// run returns when nothing is left to wait for. A comparison that waits says how
// it stands.
func (c comparison) run(ctx context.Context) error {
	for {
		err := c.advance(ctx)
		if cause := stopCause(err); cause != nil {
			err = c.halt(ctx, *cause)
		}
		switch _, waits := errors.AsType[*Waiting](err); {
		case errors.Is(err, errStopped), errors.Is(err, errMoved):
			continue
		case waits:
			return errors.Join(err, c.show(ctx))
		}
		return err
	}
}

// advance does what can be done now.
func (c comparison) advance(ctx context.Context) error {
	if c.fold.stopping() == nil {
		if err := c.begin(ctx); err != nil {
			return err
		}
	}
	if err := c.handOn(ctx); err != nil {
		return err
	}
	all, err := c.stand(ctx)
	if err != nil {
		return err
	}
	switch {
	case slices.ContainsFunc(all, func(s standing) bool { return s.open }):
		return &Waiting{State: report.Running, Until: time.Now().Add(glance)}
	case c.fold.stopping() != nil, c.fold.chosen().Build != "":
		return nil
	}
	return c.choose(ctx, all)
}

// begin pins what all contenders start from and queues them, each with an equal
// share of the budget.
func (c comparison) begin(ctx context.Context) error {
	if !c.fold.isPinned() {
		_, err := step.Effect(ctx, c.journal, c.fold.key(keyPin), func(ctx context.Context) (pinned, error) {
			return thrice(ctx, c.log, c.pin)
		})
		if err != nil {
			return err
		}
	}
	if err := c.configure(ctx); err != nil {
		return err
	}
	if c.conf.Build.Approval == "plan" {
		return c.halt(ctx, stopped{State: report.NeedsHuman, Cause: "--targets makes a plan for each target, and build.approval is plan, which has one approved: leave --targets out, or set build.approval to never"})
	}
	_, err := step.Effect(ctx, c.journal, keyContenders, func(ctx context.Context) ([]contender, error) {
		var out []contender
		for _, target := range c.Request.Targets {
			r := c.contend(target)
			if err := c.Builds.Start(ctx, r); err != nil {
				return nil, fmt.Errorf("queue the build on %s: %w", target, err)
			}
			out = append(out, contender{Build: r.Build, Target: target})
		}
		return out, nil
	})
	return err
}

// contend is what the contender on a target is asked.
func (c comparison) contend(target string) Request {
	r := c.Request
	budget := int64(c.conf.Limits.USDPerBuild)
	if r.Budget > 0 {
		budget = min(budget, r.Budget)
	}
	r.Build, r.Targets = RunID(c.Request.Build+" "+target), nil
	r.Contender = &Contender{Of: c.Request.Build, Target: target, Start: c.fold.pinned()}
	r.Budget = max(budget/int64(len(c.Request.Targets)), 1)
	r.Trigger, r.Comment.ID = forge.Subject{}, 0
	r.Comment.Marker = strings.Replace(r.Comment.Marker, c.Request.Build, r.Build, 1)
	return r
}

// handOn tells contenders what people said to the comparison, and the chosen one
// that it is.
func (c comparison) handOn(ctx context.Context) error {
	for _, s := range c.Before {
		if s.Kind == EndedSignal {
			continue
		}
		if err := c.tell(ctx, s); err != nil {
			return err
		}
	}
	chosen := c.fold.chosen()
	if chosen.Build == "" {
		return nil
	}
	body, err := json.Marshal(Said{By: forge.Person{Login: chosen.By}, Repo: c.fold.homeNow()})
	if err != nil {
		return fmt.Errorf("encode the signal: %w", err)
	}
	return c.tell(ctx, Signal{ID: "publish/" + chosen.Build, Kind: PublishSignal, Body: body})
}

// tell hands a signal on, once.
func (c comparison) tell(ctx context.Context, s Signal) error {
	_, err := step.Effect(ctx, c.journal, keyTold(s.ID), func(ctx context.Context) (told, error) {
		out := told{Signal: s.ID, Opens: s.Kind == ResumeSignal || s.Kind == PublishSignal}
		all, err := c.stand(ctx)
		for _, to := range all {
			switch chosen := c.fold.chosen().Build; {
			case chosen != "" && chosen != to.build:
			case s.Kind == ResumeSignal && Refusal(to.account, ResumeSignal, Said{}) != "": // it did what it was to do
			default:
				out.To = append(out.To, to.build)
				err = errors.Join(err, c.Builds.Tell(ctx, to.build, s))
			}
		}
		return out, err
	})
	if err != nil {
		return fmt.Errorf("hand on the signal %s: %w", s.ID, err)
	}
	return nil
}

// standing is how a contender stands.
type standing struct {
	build, target string
	account       report.Build
	open          bool // it has not ended
}

// stand looks how all contenders stand.
func (c comparison) stand(ctx context.Context) (all []standing, err error) {
	for _, one := range c.fold.contending() {
		fold, begun, err := folded(ctx, c.Builds, one.Build)
		if err != nil {
			return nil, err
		}
		s := standing{build: one.Build, target: one.Target, account: accountOf(fold, begun, one.Build)}
		s.open = !fold.isDone() || slices.ContainsFunc(c.fold.opening(one.Build), func(id string) bool { return !fold.hasHeard(id) })
		cause, err := c.Builds.GivenUp(ctx, one.Build)
		if err != nil {
			return nil, err
		}
		if cause != "" {
			s.account, s.open = GivenUp(s.account, cause), false
		}
		all = append(all, s)
	}
	return all, nil
}

// choose has a person choose one of what there is. Where there is nothing to
// choose from the comparison has failed.
func (c comparison) choose(ctx context.Context, all []standing) error {
	rows, err := step.Choose(ctx, c.journal, c.fold.key(keyContest), rowsOf(all))
	if err != nil {
		return err
	}
	commits, causes := []string{}, []string{}
	for _, r := range rows {
		commits = append(commits, r.Commit)
		causes = append(causes, r.Target+": "+r.Cause)
	}
	if !slices.ContainsFunc(rows, report.Contender.Choosable) {
		return c.halt(ctx, stopped{State: report.Failed, Cause: "no target came to a result: " + strings.Join(causes, "; ")})
	}
	return c.wait(ctx, report.Gate{Kind: report.ChoiceGate, Hash: digestOf([]any{c.fold.segmentNow(), commits})})
}

func rowsOf(all []standing) (rows []report.Contender) {
	for _, s := range all {
		rows = append(rows, report.NewContender(s.target, s.account))
	}
	return rows
}

// account is the comparison with its contenders as they stand.
func (c comparison) account(ctx context.Context) (report.Build, error) {
	all, err := c.stand(ctx)
	if err != nil {
		return report.Build{}, err
	}
	return c.fold.compared(all, time.Now()), nil
}

// show makes the tracking comment say how the comparison stands. That is dropped
// where it does not work: the next one says more.
func (c comparison) show(ctx context.Context) error {
	now, err := c.account(ctx)
	if err != nil || c.Request.Comment.Marker == "" {
		return err
	}
	comment := c.Request.Comment
	comment.Body = report.Comment(now)
	if _, err := c.Forge.EnsureComment(ctx, comment); err != nil && ctx.Err() == nil {
		c.log.WarnContext(ctx, "an edit of the tracking comment was dropped", "error", err)
	}
	return nil
}

// conclude says how the comparison ended: as the chosen build did, or without
// one.
func (c comparison) conclude(ctx context.Context) error {
	all, err := c.stand(ctx)
	if err != nil {
		return err
	}
	final := c.fold.compared(all, time.Now())
	end := c.ending(all)
	final.State, final.Success, final.Summary, final.Cause, final.Next = end.State, end.Success, end.Summary, end.Cause, end.Next
	if err := c.lastWord(ctx, final); err != nil {
		return err
	}
	_, err = step.Effect(ctx, c.journal, c.fold.key(keyDone), func(context.Context) (ended, error) {
		return end, c.artefact("report.md", []byte(report.Markdown(final)))
	})
	return err
}

func (c comparison) ending(all []standing) ended {
	for _, s := range all {
		if a := s.account; s.build == c.fold.chosen().Build {
			return ended{State: a.State, Success: a.Success, Summary: a.Summary, Cause: a.Cause, Next: a.Next}
		}
	}
	stop := c.fold.stopping()
	return ended{
		State: stop.State, Cause: stop.Cause, Next: c.fold.Report(time.Now()).Typed("resume", ""),
		Summary: "Of the builds on " + strings.Join(c.Request.Targets, ", ") + " none was published.",
	}
}
