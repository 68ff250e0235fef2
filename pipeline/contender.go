package pipeline

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// A Contender makes a build one of a comparison's: it runs on one target, and its
// end is to keep what it made. Only one that was chosen publishes.
type Contender struct {
	Of     string `json:"of"`     // the comparison's build
	Target string `json:"target"` // what every role runs on, as config.CheckTarget takes it
	Start  pinned `json:"start"`  // what all contenders start from
}

// The kinds of signal between a comparison and its contenders.
const (
	PublishSignal = "publish" // it was chosen by Said.By
	EndedSignal   = "ended"   // a contender has ended
)

const keyHeld = "held" // effect, held

// held is the end of a contender before anybody chose.
type held struct {
	Ended ended        `json:"ended"`
	Held  *report.Held `json:"held,omitempty"` // nil where nothing landed
}

// holds reports whether the build keeps what it made, instead of publishing it.
func (b *build) holds() bool { return b.Request.Contender != nil && b.fold.chosen().Build == "" }

// hold keeps what the build made, and ends it. People find it by its ref, also
// on the remote.
func (b *build) hold(ctx context.Context) (report.Build, error) {
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyHeld), func(ctx context.Context) (held, error) {
		final := b.account()
		out := held{Ended: b.conclude(final)}
		if !landedAny(final) {
			return out, nil
		}
		head := b.fold.integrated()
		added, deleted, files, err := b.mirror.Stat(ctx, b.fold.pinned().BaseSHA, head)
		if err != nil {
			return out, err
		}
		out.Held = &report.Held{Commit: head, Ref: integrationRef(b.Request.Build), Files: files, Added: added, Deleted: deleted}
		if err := b.Extend(ctx); err != nil {
			return out, err
		}
		if err := b.mirror.Share("refs/slipway/"+b.Request.Build).Push(ctx, b.remote); err != nil {
			b.log.WarnContext(ctx, "what the build made stays on this machine", "error", err)
			return out, ctx.Err()
		}
		out.Held.Shared = true
		return out, b.artefact("report.md", []byte(report.Markdown(final)))
	})
	if err != nil {
		return report.Build{}, fmt.Errorf("keep what the build made: %w", err)
	}
	return b.fold.Report(time.Now()), b.checkpoint()
}

// tellEnded wakes the comparison that the build belongs to.
func (b *build) tellEnded(ctx context.Context) error {
	if b.Request.Contender == nil {
		return nil
	}
	id := fmt.Sprintf("ended/%s/%d", b.Request.Build, b.fold.segmentNow())
	if !b.holds() {
		id += "/published"
	}
	if err := b.Builds.Tell(ctx, b.Request.Contender.Of, Signal{ID: id, Kind: EndedSignal, Body: json.RawMessage(`{}`)}); err != nil {
		return fmt.Errorf("tell the comparison of the end: %w", err)
	}
	return nil
}

// contest is what the journals of comparisons and contenders have beside those of
// other builds.
type contest struct {
	contenders []contender
	rows       []report.Contender  // how they ended, in this segment
	opened     map[string][]string // by build: ids of the signals that let it go on
	held       *held               // of a contender
	chosen     *choice             // of a contender: it was
}

// choice is which contender was chosen, and by whom.
type choice struct{ Build, By string }

// compete takes an entry of theirs.
func (f *Fold) compete(e step.Entry) error {
	switch e.Key {
	case keyContenders:
		return json.Unmarshal(e.Outcome, &f.contest.contenders)
	case keyContest:
		return json.Unmarshal(e.Outcome, &f.contest.rows)
	case keyHeld:
		h := held{}
		err := json.Unmarshal(e.Outcome, &h)
		f.contest.held, f.end = &h, &h.Ended
		return err
	}
	var t told
	if err := json.Unmarshal(e.Outcome, &t); err != nil {
		return err
	}
	if f.contest.opened == nil {
		f.contest.opened = map[string][]string{}
	}
	for _, build := range t.To {
		if t.Opens {
			f.contest.opened[build] = append(f.contest.opened[build], t.Signal)
		}
	}
	return nil
}

// release lets a contender publish: it was chosen.
func (f *Fold) release(h heard, at time.Time) {
	if f.contest.held != nil && f.contest.chosen == nil {
		f.contest.chosen, f.end, f.letGo = &choice{Build: f.begun.Build, By: h.Said.By.Login}, nil, at
	}
}

// choose takes the approval of a commit.
func (f *Fold) choose(h heard) {
	if row, refusal := report.Chosen(f.contest.rows, h.Said.Hash); refusal == "" {
		f.contest.chosen, f.gate = &choice{Build: row.Build, By: h.Said.By.Login}, nil
	}
}

// chosen is the contender that was chosen, or none.
func (f *Fold) chosen() choice {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.contest.chosen == nil {
		return choice{}
	}
	return *f.contest.chosen
}

// homeNow is where the build was resumed last; zero where it never was.
func (f *Fold) homeNow() forge.Repo {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.home
}

// contending are the contenders of a comparison.
func (f *Fold) contending() []contender {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.contest.contenders
}

// opening are the signals that let a contender go on after its end.
func (f *Fold) opening(build string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.contest.opened[build])
}

// compared is the account of a comparison: of the chosen build, or of all together
// where none is.
func (f *Fold) compared(all []standing, now time.Time) report.Build {
	own, chosen := f.Report(now), f.chosen()
	out := own
	live := rowsOf(all)
	for i, s := range all {
		live[i].Chosen = s.build == chosen.Build
		if s.build != chosen.Build {
			continue
		}
		out = s.account
		out.ID, out.CommentURL, out.Started, out.Elapsed = own.ID, own.CommentURL, own.Started, own.Elapsed
		if own.State.Final() {
			out.State, out.Success, out.Summary, out.Cause, out.Next = own.State, own.Success, own.Summary, own.Cause, own.Next
		} else if out.State.Final() {
			out.State, out.Cause, out.Next = report.Running, "", "" // it is about to publish, or to be told of
		}
	}
	if len(own.Contenders) == 0 || chosen.Build != "" {
		out.Contenders = live
	}
	out.CostMicros, out.AgentCalls = 0, 0
	for _, s := range all {
		out.CostMicros += s.account.CostMicros
		out.AgentCalls += s.account.AgentCalls
		if chosen.Build == "" && own.State == report.Running {
			out.Permits = append(out.Permits, s.account.Permits...)
			if s.account.State == report.WaitingAnswer && out.Gate == nil {
				out.State, out.Gate = s.account.State, s.account.Gate
			}
		}
		if h := s.account.Held; h != nil && s.build != chosen.Build {
			out.Kept = append(out.Kept, report.Ref{IssueName: s.target, Ref: h.Ref, Commit: h.Commit, Why: "built, and not chosen"})
		}
	}
	return out
}
