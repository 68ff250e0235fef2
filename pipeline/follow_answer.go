package pipeline

import (
	"context"
	"fmt"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// answered is what was said in a thread.
type answered struct {
	Answer forge.Answer `json:"answer"`
}

func keyAnswer(thread int64) string { return fmt.Sprintf("publish/answer-%d", thread) } // effect, answered

// answer says in each thread which commit does what was asked, or why none does.
func (b *build) answer(ctx context.Context) error {
	if b.Request.Follow == nil {
		return nil
	}
	if err := b.answerFindings(ctx); err != nil {
		return err
	}
	for _, t := range b.Request.Follow.Threads {
		_, err := step.Effect(ctx, b.journal, b.fold.key(keyAnswer(t.ID)), func(ctx context.Context) (answered, error) {
			if err := b.Extend(ctx); err != nil {
				return answered{}, err
			}
			out, err := answerIn(ctx, b.Forge, b.Request, b.account(), t)
			return answered{out}, err
		})
		if err != nil {
			return fmt.Errorf("answer in a thread of the review: %w", err)
		}
	}
	return nil
}

// answerIn says in one thread what an account has to say there.
func answerIn(ctx context.Context, f Forge, r Request, account report.Build, t forge.Thread) (forge.Answer, error) {
	text, done := report.ThreadAnswer(account, threadCriterion(t))
	out, err := f.EnsureAnswer(ctx, forge.Answer{
		Pull: r.Follow.Pull.Number, Thread: t.ID, Body: text,
		Marker: strings.Replace(r.Comment.Marker, " -->", fmt.Sprintf(" thread=%d -->", t.ID), 1),
	})
	if err != nil {
		return out, err
	}
	out.Body = "" // it is on the forge
	reaction := "rocket"
	if !done {
		reaction = "confused"
	}
	return out, f.React(ctx, forge.Subject{Ticket: r.Follow.Pull.Number, Remark: t.Remarks[len(t.Remarks)-1].ID}, reaction)
}

func keyMended(id string) string { return "publish/finding-" + id } // effect, reviewAnswered

// answerFindings says the same under the remarks about findings. A thread whose
// finding is mended is resolved, where the mending is in the pull request: beside a
// person's it is only proposed.
func (b *build) answerFindings(ctx context.Context) error {
	f := b.Request.Follow
	for i, e := range f.Findings {
		_, err := step.Effect(ctx, b.journal, b.fold.key(keyMended(e.ID)), func(ctx context.Context) (reviewAnswered, error) {
			if err := b.Extend(ctx); err != nil {
				return reviewAnswered{}, err
			}
			refused, err := answerFinding(ctx, b.Forge, b.Request, b.account(), i)
			if refused != "" {
				b.log.WarnContext(ctx, "the thread of a finding stays open", "finding", e.ID, "why", refused)
			}
			return reviewAnswered{Unresolved: refused}, err
		})
		if err != nil {
			return fmt.Errorf("answer to finding %d: %w", e.Number, err)
		}
	}
	return nil
}

// answerFinding says under the remark about one finding what an account has to say
// there. refused is why its thread could not be resolved.
func answerFinding(ctx context.Context, f Forge, r Request, account report.Build, i int) (refused string, err error) {
	e, pull := r.Follow.Findings[i], r.Follow.Pull.Number
	if !e.Posted {
		return "", nil // nobody remarked on it
	}
	text, done := report.ThreadAnswer(account, findingCriterion(i))
	said := forge.Answer{Pull: pull, Body: text, Marker: strings.Replace(r.Comment.Marker, " -->", fmt.Sprintf(" finding=%s -->", e.ID), 1)}
	if !done || !r.follows() {
		return "", f.AnswerRemark(ctx, report.RemarkMarker(e), said)
	}
	s, err := settlerOf(ctx, f, pull, 1)
	if err == nil {
		err = s.settle(ctx, e, said)
	}
	return s.refused, err
}
