package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/batch"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// pin fetches both sides and settles what is compared: the head as it is now
// with the commit at which it left its base. Configuration is the default
// branch's, lenses and instructions are the base's.
func (v *reviewing) pin(ctx context.Context) (reviewPinned, error) {
	pull, err := v.Forge.Pull(ctx, v.Request.Pull)
	if err != nil {
		return reviewPinned{}, err
	}
	cred, err := v.Forge.Credential(ctx)
	if err != nil {
		return reviewPinned{}, fmt.Errorf("get a credential for git: %w", err)
	}
	remote := repo.Remote{URL: cred.URL, User: cred.User, Token: cred.Token}
	owners, err := v.Forge.OwnersFile(ctx)
	if err != nil {
		return reviewPinned{}, err
	}
	p := reviewPinned{Pull: pull, Owners: string(owners)}
	if p.BaseTip, err = v.mirror.Fetch(ctx, remote, pull.Base); err != nil {
		return p, err
	}
	if p.Pull.HeadSHA, err = v.mirror.Fetch(ctx, remote, headRef(pull)); err != nil {
		return p, err
	}
	if p.BaseSHA, err = v.mirror.MergeBase(ctx, p.BaseTip, p.Pull.HeadSHA); err != nil {
		return p, err
	}
	p.ConfigSHA = p.BaseTip
	if v.Request.Pull > 0 { // a local repository's checked-out branch is not a default branch
		if p.ConfigSHA, err = v.mirror.Fetch(ctx, remote, ""); err != nil {
			return p, err
		}
	}
	if a := v.Request.Allowed; pull.Fork && a != nil && a.Commit == p.Pull.HeadSHA {
		p.Allowed = a.By
	}
	// A later review begins where this one ends, also after a force push.
	if err = v.mirror.SetRef(ctx, "refs/slipway/"+v.Request.Review+"/head", p.Pull.HeadSHA, repo.Any); err != nil {
		return p, err
	}
	if p.Earlier, err = v.Earlier(ctx, pull); err != nil {
		return p, err
	}
	return p, v.consult(ctx, &p)
}

func headRef(p forge.Pull) string {
	if p.Ref != "" {
		return p.Ref
	}
	return fmt.Sprintf("refs/pull/%d/head", p.Number)
}

// commandsRun is what the engine's commands show: on the head, and, where they
// fail there, on the base. Of a fork nothing is executed, unless a maintainer
// allowed that commit. They have a third of
// the review's time, so that they cannot keep the agents from theirs.
func (v *reviewing) commandsRun(ctx context.Context) (reviewEvidence, error) {
	return step.Do(ctx, v.journal, reviewCommands, func(ctx context.Context) (reviewEvidence, error) {
		pin := v.fold.pinned()
		if pin.inert() {
			return reviewEvidence{Unrun: "the change is from a fork, whose code is not executed"}, nil
		}
		limited, cancel := context.WithTimeoutCause(ctx, v.conf.Review.Timeout/3, errSlowCommands)
		defer cancel()
		go func() {
			select {
			case <-v.over:
				cancel()
			case <-limited.Done():
			}
		}()
		out := reviewEvidence{}
		var err error
		out.Head, err = v.site.test(limited, "head", pin.Pull.HeadSHA)
		if err == nil && !out.Head.Passed() {
			out.Base = new(evidence.Result)
			*out.Base, err = v.site.test(limited, "base", pin.BaseSHA)
		}
		switch {
		case ctx.Err() != nil:
			return out, context.Cause(ctx)
		case limited.Err() != nil:
			why := fmt.Sprintf("they did not end within %s", v.conf.Review.Timeout/3)
			if s := v.fold.stopping(); s != nil {
				why = s.Cause
			}
			return reviewEvidence{Unrun: why, Late: true}, nil
		case err != nil:
			return out, fmt.Errorf("run the commands: %w", err)
		case out.Head.None:
			out.Unrun = "none is configured, and none was found"
		}
		return out, nil
	})
}

var errSlowCommands = errors.New("the commands took too long")

// change is what is reviewed. Where the last review was not whole, a lens is new to
// the pull request, or its commits are gone, all is looked at again.
func (v *reviewing) change(ctx context.Context, seen reviewEvidence, lenses []review.Lens) (review.Target, error) {
	pin := v.fold.pinned()
	t := review.Target{
		Key: "review", Base: pin.BaseSHA, Head: pin.Pull.HeadSHA, Goal: strings.TrimSpace(pin.Pull.Title + "\n\n" + pin.Pull.Body),
		Evidence: seen.Head, Before: seen.Base, Earlier: pin.Earlier, Full: v.Request.Full,
		Dismissed: pin.Dismissed, Reopened: pin.Reopened,
	}
	if v.Request.Pull == 0 {
		t.Goal = v.Request.Goal // two branches ask for nothing
	}
	if e := pin.Earlier; e != nil && (!e.Whole() || !e.LookedBy(lenses) || !v.mirror.Has(ctx, e.Head)) {
		t.Full = true
	}
	guide, err := v.mirror.File(ctx, pin.BaseTip, guideFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return t, err
	}
	t.Guide = string(guide[:min(len(guide), maxGuide)])
	return t, nil
}

// guideFile is where a repository says how it wants to be reviewed.
const guideFile = "REVIEW.md"

// maxGuide bounds what of it the agents are told, in bytes.
const maxGuide = 16 << 10

// options say who looks, and at what. A lens that does not exist is the asker's
// mistake, and ends the review.
func (v *reviewing) options(ctx context.Context) (review.Options, error) {
	c, r := v.conf.Review, v.Request
	all, err := v.lenses(ctx)
	if err != nil {
		return review.Options{}, err
	}
	wanted := r.Focus
	if len(wanted) == 0 {
		wanted = c.Lenses
	}
	lenses, err := review.Choose(all, wanted)
	if err != nil {
		return review.Options{}, &initError{what: "the review cannot begin", err: err}
	}
	o := review.Options{
		Lenses: lenses, MaxConcurrency: max(1, min(v.conf.Pipeline.MaxConcurrency, v.Defaults.Pipeline.MaxConcurrency)),
		Ignore: v.conf.Paths.Ignore, Only: r.Paths, Severity: finding.Severity(c.Severity), MinConfidence: c.MinConfidence,
		Audit: true, Inert: v.fold.pinned().inert(), Emit: v.emit,
		Over: review.Stop{Closed: v.over, Why: func() string {
			if s := v.fold.stopping(); s != nil {
				return s.Cause
			}
			return "the review was stopped"
		}},
	}
	if r.Severity != "" {
		o.Severity = finding.Severity(r.Severity)
	}
	return o, nil
}

// emit tells who listens how a slot stands.
func (v *reviewing) emit(e batch.Event) {
	if v.Heard != nil {
		v.Heard(NewSlotEvent(v.Request.Review, e))
	}
}

// lenses are the default ones and the repository's own, by the base's word.
func (v *reviewing) lenses(ctx context.Context) ([]review.Lens, error) {
	all := review.Lenses()
	files, err := v.mirror.List(ctx, v.fold.pinned().BaseTip, review.LensDir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !strings.HasSuffix(f, ".md") {
			continue
		}
		text, err := v.mirror.File(ctx, v.fold.pinned().BaseTip, f)
		if err != nil {
			return nil, err
		}
		l, err := review.Own(f, string(text))
		if err != nil {
			return nil, &config.Error{Origin: f, Problems: []config.Problem{{Text: err.Error()}}}
		}
		all = append(all, l)
	}
	return all, nil
}
