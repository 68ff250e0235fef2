package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/review"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// publish says what was found: in one review of the pull request, in the check run
// of exactly the reviewed commit, and in the tracking comment.
func (v *reviewing) publish(ctx context.Context) error {
	for _, effect := range []struct {
		key, what string
		do        func(context.Context) (any, error)
	}{
		{reviewMoved, "look whether the head moved", v.moved},
		{reviewPost, "post the review", v.post},
		{reviewAnswers, "answer what is fixed", v.answer},
		{reviewCheck, "write the check run", v.check},
		{reviewComment, "write the tracking comment", v.lastWord},
		{reviewMend, "queue the follow-up", v.mend},
	} {
		if v.Request.Pull == 0 {
			break // a terminal shows it
		}
		_, err := step.Effect(ctx, v.journal, effect.key, func(ctx context.Context) (any, error) {
			if err := v.Extend(ctx); err != nil {
				return nil, err
			}
			return effect.do(ctx)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", effect.what, err)
		}
	}
	_, err := step.Effect(ctx, v.journal, reviewDone, func(context.Context) (any, error) { return struct{}{}, v.keep() })
	return err
}

// keep writes the account where people find it without GitHub.
func (v *reviewing) keep() error {
	r := v.fold.Report(time.Now())
	sarif, err := report.ReviewSARIF(r)
	if err != nil {
		return fmt.Errorf("write the findings as SARIF: %w", err)
	}
	whole, err := report.ReviewJSON(r)
	if err != nil {
		return fmt.Errorf("write the findings as JSON: %w", err)
	}
	return errors.Join(
		v.artefact(r.ID, "review.md", []byte(report.ReviewMarkdown(r))),
		v.artefact(r.ID, "review.json", whole),
		v.artefact(r.ID, "review.sarif", sarif),
	)
}

// moved looks whether the pull request is still at the commit that was reviewed.
// The first review whose head moved has the new one reviewed; one after that only
// says so, so that a busy branch is not reviewed for ever.
func (v *reviewing) moved(ctx context.Context) (any, error) {
	reviewed := v.fold.pinnedHead()
	now, err := v.Forge.Pull(ctx, v.Request.Pull)
	if err != nil || reviewed == "" || now.HeadSHA == reviewed || now.State == "closed" {
		return reviewMove{}, err
	}
	m := reviewMove{Head: now.HeadSHA}
	if !v.Request.Requeued && v.fold.Report(time.Now()).State != report.ReviewCanceled {
		if err := v.Again(ctx, now.HeadSHA); err != nil {
			return m, fmt.Errorf("queue a review of %s: %w", now.HeadSHA, err)
		}
		m.Requeued = true
	}
	return m, nil
}

// post makes one review of what was not said before. Where there is nothing new,
// there is no review.
func (v *reviewing) post(ctx context.Context) (any, error) {
	r := v.fold.Report(time.Now())
	news := r.News()
	if len(news) == 0 || r.State == report.ReviewCanceled || r.State == report.ReviewFailed {
		return reviewPosted{}, nil
	}
	out := reviewPosted{}
	for _, e := range news {
		out.Said = append(out.Said, e.ID)
	}
	made, err := v.Forge.EnsureReview(ctx, ownReview(r, v.Request.Marker))
	if errors.Is(err, forge.ErrPlaces) {
		return reviewPosted{Unsaid: "GitHub took no remark on lines for this commit; every finding is listed here."}, nil
	}
	out.URL = made.URL
	return out, err
}

// ownReview is what was found as one review of the pull request.
func ownReview(r report.Review, marker string) forge.OwnReview {
	want := forge.OwnReview{Pull: r.Pull, HeadSHA: r.Head, Marker: marker, Body: report.ReviewBody(r)}
	for _, e := range r.Remarks() {
		want.Remarks = append(want.Remarks, forge.OwnRemark(report.ReviewRemark(r, e)))
	}
	return want
}

// post says on the lines of the build's own draft what its last review left open.
// Those are debt too: whoever reads the draft finds them where they are.
func (b *build) post(ctx context.Context) error {
	found := b.fold.reviewed()
	if found == nil || len(found.Open) == 0 || b.Request.follows() {
		return nil
	}
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyReview), func(ctx context.Context) (string, error) {
		own := b.account()
		if own.Pull == nil || own.Pull.Number == 0 {
			return "", nil
		}
		if err := b.Extend(ctx); err != nil {
			return "", err
		}
		r := report.Review{
			ID: own.ID, State: report.ReviewCompleted, Repo: own.Repo, Pull: own.Pull.Number, Title: own.Title, URL: own.Pull.URL, Requester: own.Requester,
			Base: own.Base, BaseSHA: found.Base, Head: found.Head, MaxFindings: b.conf.Review.MaxFindings,
		}
		tellReview(&r, *found)
		made, err := b.Forge.EnsureReview(ctx, ownReview(r, strings.Replace(b.Request.Comment.Marker, " run=", " review=", 1)))
		if errors.Is(err, forge.ErrPlaces) {
			b.log.WarnContext(ctx, "the draft gets no remarks on its lines", "error", err)
			return "", nil // every finding is in its debt table
		}
		return made.URL, err
	})
	if err != nil {
		return fmt.Errorf("review the draft: %w", err)
	}
	return nil
}

// mend has what is open mended, where that was asked for. Of a head that moved the
// next review does.
func (v *reviewing) mend(ctx context.Context) (any, error) {
	r := v.fold.Report(time.Now())
	open := r.Open()
	done := r.State == report.ReviewCompleted || r.State == report.ReviewPartial
	if !v.Request.Fix || !done || r.Moved != "" || len(open) == 0 {
		return reviewMended{}, nil
	}
	deferred, err := v.Mend(ctx, open)
	return reviewMended{Deferred: deferred}, err
}

// externalID names the check run of a review.
func (v *reviewing) externalID(head string) string { return v.Request.Review + ":" + head }

// beginCheck shows that the commit is being reviewed.
func (v *reviewing) beginCheck(ctx context.Context) error {
	if v.Request.Pull == 0 {
		return nil
	}
	_, err := step.Effect(ctx, v.journal, reviewChecking, func(ctx context.Context) (any, error) {
		if err := v.Extend(ctx); err != nil {
			return nil, err
		}
		r := v.fold.Report(time.Now())
		_, err := v.Forge.EnsureCheck(ctx, forge.Check{
			Name: review.CheckName, HeadSHA: r.Head, ExternalID: v.externalID(r.Head), Status: "in_progress",
			Title: report.ReviewTitle(r), Summary: "Agents look at this commit. The comment on the pull request follows them.",
			Started: r.Started, Buttons: []forge.Button{forge.CancelButton},
		})
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("begin the check run: %w", err)
	}
	return nil
}

func (v *reviewing) check(ctx context.Context) (any, error) {
	r := v.fold.Report(time.Now())
	if r.Head == "" {
		return struct{}{}, nil // there is no commit to hold one
	}
	_, err := v.Forge.EnsureCheck(ctx, reviewCheckRun(r, v.externalID(r.Head)))
	return struct{}{}, err
}

// reviewCheckRun is the check run of a review that has ended.
func reviewCheckRun(r report.Review, id string) forge.Check {
	title, summary, text := report.ReviewCheck(r)
	check := forge.Check{
		Name: review.CheckName, HeadSHA: r.Head, ExternalID: id, Status: "completed", Conclusion: report.ReviewConclusion(r),
		Title: title, Summary: summary, Text: text, Started: r.Started, Buttons: []forge.Button{forge.ReviewButton},
	}
	if len(r.Open()) > 0 && !r.Fork {
		check.Buttons = append(check.Buttons, forge.FixButton)
	}
	for _, a := range report.ReviewAnnotations(r) {
		check.Notes = append(check.Notes, forge.Note(a))
	}
	return check
}

// lastWord is the final edit of the tracking comment, and the reaction on what
// started the review.
func (v *reviewing) lastWord(ctx context.Context) (any, error) {
	r := v.fold.Report(time.Now())
	comment := v.Request.Comment
	comment.Body = report.ReviewComment(r)
	if _, err := v.Forge.EnsureComment(ctx, comment); err != nil {
		return nil, err
	}
	return struct{}{}, reactTo(ctx, v.Forge, v.Request, r)
}

func reactTo(ctx context.Context, f review.Forge, req review.Request, r report.Review) error {
	if req.Trigger == (forge.Subject{}) {
		return nil
	}
	reaction := "rocket"
	if r.State == report.ReviewFailed || r.State == report.ReviewCanceled {
		reaction = "confused"
	}
	return f.React(ctx, req.Trigger, reaction)
}

// track makes the comment say how the review stands now.
func (v *reviewing) track(ctx context.Context) {
	comment := v.Request.Comment
	if comment.Marker == "" {
		return
	}
	comment.Body = report.ReviewComment(v.fold.Report(time.Now()))
	if _, err := v.Forge.EnsureComment(ctx, comment); err != nil && ctx.Err() == nil {
		v.log.WarnContext(ctx, "an edit of the tracking comment was dropped", "error", err)
	}
}

// GiveUpReview says in public that no worker takes the review up any more, and why.
func GiveUpReview(ctx context.Context, from Journals, f review.Forge, req review.Request, cause error) error {
	r, err := ReadReview(ctx, from, req.Review)
	if err != nil {
		return err
	}
	r.ID, r.Pull, r.Prefix, r.State = req.Review, req.Pull, req.Prefix, report.ReviewFailed
	r.Cause = "the review was given up: " + cause.Error()
	r.Next = report.Build{Ticket: r.Pull, Prefix: r.Prefix}.Typed("review", "")
	if r.Head != "" {
		if _, err := f.EnsureCheck(ctx, reviewCheckRun(r, req.Review+":"+r.Head)); err != nil {
			return fmt.Errorf("end the check run: %w", err)
		}
	}
	comment := req.Comment
	comment.Body = report.ReviewComment(r)
	if _, err := f.EnsureComment(ctx, comment); err != nil {
		return fmt.Errorf("say that the review is given up: %w", err)
	}
	return reactTo(ctx, f, req, r)
}
