package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// The CI gate: what was pushed waits for the checks that others run on exactly
// that commit. It holds no worker while it waits; a fix is a new commit, which
// is pushed and looked at anew.

func keyCI(sha string) string                 { return "ci-" + sha[:12] } // prefix
func keyCIWait(sha string) string             { return keyCI(sha) + "/waiting" }
func keyCIRerun(sha string, run int64) string { return fmt.Sprintf("%s/rerun-%d", keyCI(sha), run) }
func keyCIJudged(sha string) string           { return keySettled(keyCI(sha)) }
func keyCIFix(sha string, n int) string       { return fmt.Sprintf("%s/fix-%d", keyCI(sha), n) }
func keyCILeft(sha string) string             { return keyCI(sha) + "/left" }
func keyCIPush(sha string) string             { return keyCI(sha) + "/push" }
func keyCIPull(sha string) string             { return keyCI(sha) + "/pull" }

// ciJudged is the last word on the checks of one commit.
type ciJudged struct {
	SHA     string     `json:"sha"`
	Verdict ci.Verdict `json:"verdict"`
}

// ciFixed is an attempt to mend what the checks found. Head is the commit to be
// pushed; it is empty when the attempt was refused.
type ciFixed struct {
	Head    string     `json:"head,omitempty"`
	Attempt ci.Attempt `json:"attempt"`
}

// checksOf is what the journal knows of the checks of one commit.
type checksOf struct {
	sha     string
	pushed  time.Time
	waiting bool
	reruns  []ci.Rerun
	verdict *ci.Verdict
}

// ci waits for the checks of the pushed commit and has failures of the code
// mended, commit after commit.
func (b *build) ci(ctx context.Context) error {
	for b.conf.Pipeline.CheckCI && b.fold.stopping() == nil {
		at := b.fold.checksNow()
		verdict := at.verdict
		if verdict == nil {
			v, err := b.observe(ctx, at)
			if err != nil {
				return err
			}
			verdict = &v
		}
		code, broken := verdict.Of(ci.Code), verdict.Of(ci.Infrastructure)
		switch {
		case verdict.State == ci.None, verdict.State == ci.Green:
			return nil
		case verdict.State == ci.Red && len(code)+len(broken) == 0:
			return nil // the base has these failures too; the report says so
		case verdict.State == ci.Unclear:
			return b.ciStop(ctx, verdict.Cause)
		case len(code) == 0:
			return b.ciStop(ctx, verdict.Cause)
		case b.fold.ciCycles() >= b.conf.Pipeline.MaxCIFixCycles:
			return b.ciStop(ctx, verdict.Cause)
		}
		if err := b.ciFix(ctx, at.sha, code); err != nil {
			return err
		}
		if err := b.again(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ciStop ends the build for a person to look, with what was tried.
func (b *build) ciStop(ctx context.Context, cause string) error {
	for i, a := range b.fold.ciAttempts() {
		cause += fmt.Sprintf("; attempt %d: %s", i+1, a.Cause)
		if len(a.Refused) > 0 {
			cause += " (refused: " + strings.Join(a.Refused, ", ") + ")"
		}
	}
	err := b.halt(ctx, stopped{State: report.NeedsHuman, Cause: "CI on " + b.fold.checksNow().sha[:12] + ": " + cause})
	if errors.Is(err, errStopped) {
		return nil
	}
	return err
}

// observe looks at the checks once. A verdict that is not final is a *Waiting;
// a final one is recorded.
func (b *build) observe(ctx context.Context, at checksOf) (ci.Verdict, error) {
	for {
		in, err := b.observation(ctx, at)
		if err != nil {
			return ci.Verdict{}, err
		}
		v := ci.Judge(in, ci.Options{Wait: b.conf.Pipeline.CIWait, Poll: b.conf.Pipeline.CIPoll, Grace: b.CIGrace})
		switch v.State {
		case ci.Waiting:
			if err := b.ciWait(ctx, at); err != nil {
				return v, err
			}
			return v, &Waiting{State: report.WaitingCI, Until: v.Again}
		case ci.Repeat:
			for _, run := range v.Repeat {
				again, err := step.Effect(ctx, b.journal, b.fold.key(keyCIRerun(at.sha, run.ID)), func(ctx context.Context) (ci.Rerun, error) {
					out := ci.Rerun{Run: run, At: time.Now().UTC()}
					err := b.Forge.Rerun(ctx, run)
					if errors.Is(err, forge.ErrNoRerun) {
						out.Refused, err = err.Error(), nil
					}
					return out, err
				})
				if err != nil {
					return v, fmt.Errorf("re-run the check %s: %w", run.Name, err)
				}
				at.reruns = append(at.reruns, again)
			}
			continue
		}
		judged, err := step.Effect(ctx, b.journal, b.fold.key(keyCIJudged(at.sha)), func(context.Context) (ciJudged, error) {
			return ciJudged{SHA: at.sha, Verdict: v}, nil
		})
		return judged.Verdict, err
	}
}

// observation is what there is to see of the checks, with logs and the base's
// checks where something failed.
func (b *build) observation(ctx context.Context, at checksOf) (ci.Observation, error) {
	in := ci.Observation{Now: time.Now().UTC(), SHA: at.sha, Pushed: at.pushed, Reruns: at.reruns}
	pin := b.fold.pinned()
	var err error
	if in.Head, err = b.Forge.CI(ctx, at.sha, pin.Base); err != nil {
		return in, fmt.Errorf("read the checks of %s: %w", at.sha[:12], err)
	}
	failed := slices.DeleteFunc(slices.Clone(in.Head.Runs), func(r forge.CIRun) bool {
		return r.Status != "completed" || slices.Contains([]string{"success", "neutral", "skipped"}, r.Conclusion)
	})
	if len(failed) == 0 {
		return in, nil
	}
	if in.Base, err = b.Forge.CI(ctx, pin.BaseSHA, pin.Base); err != nil {
		return in, fmt.Errorf("read the checks of the base: %w", err)
	}
	in.Logs = map[int64]string{}
	for _, r := range failed {
		if in.Logs[r.ID], err = b.Forge.CILog(ctx, r); err != nil {
			return in, fmt.Errorf("read the log of %s: %w", r.Name, err)
		}
	}
	return in, nil
}

// ciWait says once, by the build's own check run, that it waits for the others.
func (b *build) ciWait(ctx context.Context, at checksOf) error {
	return b.ciSay(ctx, keyCIWait(at.sha), at, forge.Check{
		Status: "in_progress",
		Title:  "Waiting for CI", Summary: "The work is pushed; Slipway waits for the other checks of this commit.",
		Buttons: []forge.Button{forge.CancelButton},
	})
}

// ciSay makes the build's own check run on a pushed commit say something, once.
func (b *build) ciSay(ctx context.Context, key string, at checksOf, c forge.Check) error {
	c.Name, c.HeadSHA, c.ExternalID, c.Started = CheckName, at.sha, b.Request.Build+":"+at.sha, at.pushed
	_, err := step.Effect(ctx, b.journal, b.fold.key(key), func(ctx context.Context) (pushed, error) {
		_, err := b.Forge.EnsureCheck(ctx, c)
		return pushed{Head: at.sha}, err
	})
	if err != nil {
		return fmt.Errorf("write the check run of %s: %w", at.sha[:12], err)
	}
	return nil
}

// ciFix has the CI Fixer mend failures of the code. A fix that weakens a test or
// fails the engine's own commands is refused, and counts as an attempt.
func (b *build) ciFix(ctx context.Context, sha string, code []ci.Failure) error {
	n := b.fold.ciCycles() + 1
	key := b.fold.key(keyCI(sha))
	if n > 1 {
		key += fmt.Sprintf("/try-%d", n)
	}
	in := ci.Broken{Earlier: b.fold.ciAttempts()}
	pin := b.fold.pinned()
	parted, err := b.mirror.Parting(ctx, pin.BaseSHA, sha)
	if err != nil {
		return err
	}
	if in.Diff, err = b.site.Diff(ctx, parted, sha); err != nil {
		return err
	}
	for _, f := range code {
		log, err := b.Forge.CILog(ctx, f.Run)
		if err != nil {
			return fmt.Errorf("read the log of %s: %w", f.Run.Name, err)
		}
		in.Failures = append(in.Failures, ci.Report{Check: f.Run.Name, Evidence: f.Evidence, Log: log})
	}
	tree := b.site.Open(treeName("ci", key), sha)
	mend, err := agent.Ask(ctx, b.crew, agent.Place{Key: key, Work: tree}, ci.Fixer, in)
	failure, failed := errors.AsType[*agent.Failure](err)
	out := ciFixed{Attempt: ci.Attempt{Summary: mend.Summary, Cause: mend.Cause}}
	switch {
	case failed:
		out.Attempt.Cause, out.Attempt.Refused = "the CI Fixer did not answer", []string{failure.Reason}
	case errors.Is(err, agent.ErrBudget), errors.Is(err, agent.ErrFatal):
		return b.ciStop(ctx, err.Error())
	case err != nil:
		return err
	case !mend.Fixed || tree.Head() == sha:
		out.Attempt.Refused = []string{"it changed nothing"}
	default:
		if out.Attempt.Refused, err = b.unfit(ctx, key, sha, tree.Head()); err != nil {
			return err
		}
		if len(out.Attempt.Refused) == 0 {
			out.Head = tree.Head()
		}
	}
	_, err = step.Effect(ctx, b.journal, b.fold.key(keyCIFix(sha, n)), func(ctx context.Context) (ciFixed, error) {
		if out.Head == "" {
			return out, nil
		}
		return out, b.site.hold(ctx, b.site.integration(), out.Head)
	})
	return err
}

// unfit says why a fix may not be pushed.
func (b *build) unfit(ctx context.Context, key, old, fixed string) ([]string, error) {
	changes, err := b.mirror.Changed(ctx, old, fixed)
	if err != nil {
		return nil, err
	}
	diff, err := b.mirror.Patch(ctx, old, fixed, maxPatch)
	if err != nil {
		return nil, err
	}
	if why := ci.Weakens(changes, diff); len(why) > 0 {
		return why, nil
	}
	tested, err := b.tested(ctx, key+"/commands", fixed)
	if err != nil || tested.Passed() {
		return nil, err
	}
	return []string{failing(tested)}, nil
}

// gateCI takes what the journal records of the CI gate.
func (f *Fold) gateCI(e step.Entry) error {
	switch part := strings.TrimPrefix(e.Key, first(e.Key)+"/"); {
	case part == "push":
		return f.push(e)
	case part == "pull":
		f.pull = nil
		return json.Unmarshal(e.Outcome, &f.pull)
	case part == "waiting":
		f.ciNow.waiting = true
	case part == "kept":
		var j ciJudged
		err := json.Unmarshal(e.Outcome, &j)
		if j.SHA == f.ciNow.sha {
			f.ciNow.verdict, f.ciNow.waiting = &j.Verdict, false
		}
		return err
	case strings.HasPrefix(part, "rerun-"):
		var r ci.Rerun
		err := json.Unmarshal(e.Outcome, &r)
		f.ciNow.reruns = append(f.ciNow.reruns, r)
		return err
	case strings.HasPrefix(part, "fix-"):
		var x ciFixed
		err := json.Unmarshal(e.Outcome, &x)
		f.ciFixes = append(f.ciFixes, x.Attempt)
		if x.Head != "" {
			f.head, f.verified = x.Head, nil
			f.moved++
		}
		return err
	}
	return nil
}

// push takes a head that was pushed: its checks are looked at anew.
func (f *Fold) push(e step.Entry) error {
	if err := json.Unmarshal(e.Outcome, &f.pushed); err != nil {
		return err
	}
	f.wrote, f.head = append(f.wrote, f.pushed.Head), f.pushed.Head
	f.ciNow = checksOf{sha: f.pushed.Head, pushed: e.At}
	return nil
}

// checksNow is the CI gate of the pushed commit.
func (f *Fold) checksNow() checksOf {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.ciNow
	at.reruns = slices.Clone(at.reruns)
	return at
}

// ciCycles is how often a fix of CI was tried.
func (f *Fold) ciCycles() int { return len(f.ciAttempts()) }

func (f *Fold) ciAttempts() []ci.Attempt {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.ciFixes)
}

// ciNotes tell what the checks of the pushed commit came to.
func (f *Fold) ciNotes() (notes []string) {
	v := f.ciNow.verdict
	if v == nil {
		return nil
	}
	switch v.State {
	case ci.Green:
		notes = append(notes, "CI is green on "+f.ciNow.sha[:12])
	case ci.None:
		notes = append(notes, because("No CI ran on "+f.ciNow.sha[:12], v.Cause))
	}
	for _, x := range v.Failures {
		notes = append(notes, fmt.Sprintf("CI check %s: %s, %s", x.Run.Name, strings.ReplaceAll(string(x.Class), "_", "-"), x.Evidence))
	}
	for i, a := range f.ciFixes {
		note := fmt.Sprintf("CI fix %d: %s", i+1, a.Cause)
		if len(a.Refused) > 0 {
			note += "; refused: " + strings.Join(a.Refused, ", ")
		}
		notes = append(notes, note)
	}
	return notes
}
