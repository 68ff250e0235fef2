package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
)

// A remark on lines begins a thread. A person who resolves it dismisses the
// finding, for as long as its code is as it was; a finding that is fixed has its
// thread resolved by us. Neither is worth a review: what the forge refuses of it is
// told of, and the review goes on.

// consult sees what people did with the threads of the last review's findings.
func (v *reviewing) consult(ctx context.Context, p *reviewPinned) error {
	if p.Earlier == nil || !slices.ContainsFunc(p.Earlier.Findings, func(e finding.Entry) bool { return e.Posted }) {
		return nil
	}
	threads, err := v.Forge.Conversations(ctx, v.Request.Pull)
	if errors.Is(err, forge.ErrRefused) {
		v.log.WarnContext(ctx, "it is not known which threads are resolved", "error", err)
		p.Unheard = "GitHub does not tell which threads of earlier findings are resolved: whatever people dismissed there counts as open."
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range p.Earlier.Findings {
		t, found := threadOf(threads, e)
		switch {
		case !found:
		case e.State == finding.Dismissed && !t.Resolved:
			p.Reopened = append(p.Reopened, e.ID)
		case e.State.Live() && t.Resolved && t.By != "":
			p.Dismissed = append(p.Dismissed, review.Dismissal{ID: e.ID, By: t.By})
		}
	}
	return nil
}

// threadOf is the newest thread about a finding.
func threadOf(threads []forge.Conversation, e finding.Entry) (forge.Conversation, bool) {
	for _, t := range slices.Backward(threads) {
		if strings.Contains(t.Body, report.RemarkMarker(e)) {
			return t, true
		}
	}
	return forge.Conversation{}, false
}

// answer says under the remarks about findings which this review saw fixed that
// they are, and resolves their threads. One that is resolved was settled before.
func (v *reviewing) answer(ctx context.Context) (any, error) {
	r, earlier := v.fold.Report(time.Now()), v.fold.earlier()
	fixed := slices.DeleteFunc(slices.Clone(r.Findings), func(e finding.Entry) bool {
		return e.State != finding.Fixed || !e.Posted || !slices.ContainsFunc(earlier, func(o finding.Entry) bool { return o.ID == e.ID && o.State.Live() })
	})
	s, err := settlerOf(ctx, v.Forge, v.Request.Pull, len(fixed))
	if err != nil {
		return nil, err
	}
	for _, e := range fixed {
		err := s.settle(ctx, e, forge.Answer{
			Pull: v.Request.Pull, Marker: fmt.Sprintf("<!-- slipway fixed=%s by=%s -->", e.ID, v.Request.Review), Body: report.ReviewFixed(r, e),
		})
		if err != nil {
			return nil, err
		}
	}
	return reviewAnswered{Unresolved: s.refused}, nil
}

// A settler answers and resolves threads about findings.
type settler struct {
	forge   review.Threads
	threads []forge.Conversation
	refused string // what is told of a thread that the forge did not let it resolve
}

// settlerOf reads how the threads of a pull request stand, where there is anything
// to settle.
func settlerOf(ctx context.Context, f review.Threads, pull, fixed int) (*settler, error) {
	s := &settler{forge: f}
	if fixed == 0 {
		return s, nil
	}
	var err error
	s.threads, err = f.Conversations(ctx, pull)
	return s, s.soften(err)
}

// settle answers the thread of a finding that is fixed, unless it is resolved, and
// resolves it.
func (s *settler) settle(ctx context.Context, e finding.Entry, a forge.Answer) error {
	t, found := threadOf(s.threads, e)
	if found && t.Resolved {
		return nil
	}
	if err := s.forge.AnswerRemark(ctx, report.RemarkMarker(e), a); err != nil || !found {
		return err
	}
	return s.soften(s.forge.Resolve(ctx, t))
}

// soften makes a note of a refusal.
func (s *settler) soften(err error) error {
	if errors.Is(err, forge.ErrRefused) {
		s.refused = "GitHub does not let Slipway resolve the threads of findings that are fixed: " + err.Error() + "."
		return nil
	}
	return err
}
