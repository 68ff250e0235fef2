package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/pipeline/agent"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// checkName is the check run that says how the build ended.
const checkName = "slipway/build"

// publish shows what landed: branch, draft pull request, check run, tracking
// comment. Every effect describes what should be there, so a repeated one
// changes nothing. It returns the account as it was read back.
func (b *build) publish(ctx context.Context) (report.Build, error) {
	final := b.account()
	if landedAny(final) {
		text, err := b.words(ctx, final)
		if err != nil {
			return final, err
		}
		if err := b.push(ctx); err != nil {
			return final, err
		}
		if err := b.draft(ctx, text); err != nil {
			return final, err
		}
		if err := b.check(ctx); err != nil {
			return final, err
		}
	}
	if err := b.lastWord(ctx); err != nil {
		return final, err
	}
	_, err := step.Effect(ctx, b.journal, keyDone, func(ctx context.Context) (ended, error) {
		page := b.account()
		return conclude(page, b.fold.stopping()), b.artefact("report.md", []byte(report.Markdown(page)))
	})
	return b.fold.Report(time.Now()), err
}

// account is the report as it will be when the build has ended.
func (b *build) account() report.Build {
	r := b.fold.Report(time.Now())
	e := conclude(r, b.fold.stopping())
	r.State, r.Success, r.Cause, r.Next = e.State, e.Success, e.Cause, e.Next
	r.Summary = cmp.Or(r.Summary, e.Summary)
	for i, s := range r.Stages {
		switch {
		case s.Name == "publish":
			r.Stages[i].State = "done" // it is what shows this
		case s.State != "done":
			r.Stages[i].State, r.Stages[i].Elapsed = "skipped", 0
		}
	}
	return r
}

func landedAny(r report.Build) bool {
	for _, is := range r.Issues {
		if is.Merge != "" {
			return true
		}
	}
	return false
}

// words are the title and summary of the pull request: an agent's, or ours
// when it did not answer or the build may spend nothing more.
func (b *build) words(ctx context.Context, r report.Build) (PullText, error) {
	ours := PullText{Title: report.PullTitle(r), Summary: r.Summary}
	if b.fold.stopping() != nil || b.crew == nil {
		return ours, nil
	}
	in := Account{PRD: b.fold.result().PRD}
	for _, is := range r.Issues {
		if is.Merge != "" {
			in.Landed = append(in.Landed, is.Title)
		}
	}
	for _, d := range r.Debt {
		in.Debt = append(in.Debt, string(d.Type)+": "+d.Justification)
	}
	text, err := agent.Ask(ctx, b.crew, agent.Place{Key: "publish", Work: nowhere{dir: b.workDir()}}, Git, in)
	if _, failed := errors.AsType[*agent.Failure](err); failed || errors.Is(err, agent.ErrBudget) || errors.Is(err, agent.ErrFatal) {
		b.log.WarnContext(ctx, "the pull request gets its title and summary from counts", "error", err)
		return ours, nil
	}
	return text, err
}

// push puts the head on the branch that the forge keeps for this build.
func (b *build) push(ctx context.Context) error {
	head := b.fold.integrated()
	branch, err := step.Effect(ctx, b.journal, keyBranch, func(ctx context.Context) (forge.Branch, error) {
		return b.Forge.EnsureBranch(ctx, forge.Branch{Name: b.branchName(), Ours: []string{head}})
	})
	if err != nil {
		return fmt.Errorf("settle the branch: %w", err)
	}
	_, err = step.Effect(ctx, b.journal, keyPush, func(ctx context.Context) (pushed, error) {
		if err := b.Extend(ctx); err != nil {
			return pushed{}, err
		}
		remote, err := b.remote(ctx)
		if err != nil {
			return pushed{}, err
		}
		return pushed{Branch: branch.Name, Head: head}, b.mirror.Push(ctx, remote, head, branch.Name, branch.Head)
	})
	if err != nil {
		return fmt.Errorf("push %s: %w", branch.Name, err)
	}
	return nil
}

func (b *build) draft(ctx context.Context, text PullText) error {
	_, err := step.Effect(ctx, b.journal, keyPull, func(ctx context.Context) (pulled, error) {
		if err := b.Extend(ctx); err != nil {
			return pulled{}, err
		}
		r := b.account()
		r.Title, r.Summary = text.Title, text.Summary
		pull, err := b.Forge.EnsureDraft(ctx, forge.Draft{
			Head: r.Branch, Base: r.Base, Title: report.PullTitle(r),
			Body: report.WithDebtRecord(report.PullBody(r, b.fold.template()), r.Debt),
		})
		if err != nil {
			return pulled{}, err
		}
		out := pulled{Pull: pull}
		out.Debt, out.Read = report.ReadDebt(pull.Body)
		out.Pull.Body = "" // it is on the forge; the journal needs no copy
		return out, nil
	})
	if err != nil {
		return fmt.Errorf("open the draft pull request: %w", err)
	}
	return nil
}

func (b *build) check(ctx context.Context) error {
	_, err := step.Effect(ctx, b.journal, keyCheck, func(ctx context.Context) (checked, error) {
		if err := b.Extend(ctx); err != nil {
			return checked{}, err
		}
		r := b.account()
		title, summary, text := report.CheckOutput(r)
		_, err := b.Forge.EnsureCheck(ctx, forge.Check{
			Name: checkName, HeadSHA: r.Head, ExternalID: r.ID + ":" + r.Head,
			Status: "completed", Conclusion: report.Conclusion(r),
			Title: title, Summary: summary, Text: text, Started: r.Started,
		})
		if err != nil {
			return checked{}, err
		}
		back, err := b.Forge.Checks(ctx, r.Head)
		return checked{Checks: back}, err
	})
	if err != nil {
		return fmt.Errorf("write the check run: %w", err)
	}
	return nil
}

// lastWord is the final edit of the tracking comment, and the reaction on what
// started the build.
func (b *build) lastWord(ctx context.Context) error {
	_, err := step.Effect(ctx, b.journal, keyComment, func(ctx context.Context) (commented, error) {
		if err := b.Extend(ctx); err != nil {
			return commented{}, err
		}
		r := b.account()
		comment := b.Request.Comment
		comment.Body = report.Comment(r)
		if _, err := b.Forge.EnsureComment(ctx, comment); err != nil {
			return commented{}, err
		}
		reaction := "rocket"
		if report.ExitCode(r) != 0 {
			reaction = "confused"
		}
		if err := b.Forge.React(ctx, b.Request.Trigger, reaction); err != nil {
			return commented{}, err
		}
		n, err := b.Forge.Comments(ctx, comment.Ticket, comment.Marker)
		return commented{Comments: n}, err
	})
	if err != nil {
		return fmt.Errorf("write the last word: %w", err)
	}
	return nil
}

// branchName fills the configured template, or for a build without a ticket
// names the build.
func (b *build) branchName() string {
	slug := slug(b.Request.title())
	if b.Request.Ticket.Number == 0 {
		return "slipway/" + b.Request.Build + "-" + slug
	}
	name := cmp.Or(b.conf.Build.Branch, b.Defaults.Build.Branch)
	return strings.NewReplacer("{ticket}", strconv.Itoa(b.Request.Ticket.Number), "{slug}", slug).Replace(name)
}

var unsafe = regexp.MustCompile(`[^a-z0-9]+`)

// slug is text as a part of a branch name: at most 40 of a-z, 0-9 and dashes.
func slug(text string) string {
	s := strings.Trim(unsafe.ReplaceAllString(strings.ToLower(text), "-"), "-")
	if len(s) > 40 {
		words := s[:41] // one more: a cut between two words keeps both
		if end := strings.LastIndexByte(words, '-'); end > 0 {
			words = words[:end]
		}
		s = strings.Trim(words[:min(len(words), 40)], "-")
	}
	return cmp.Or(s, "work")
}

// nowhere is the workspace of a role without tools: it works on its input.
type nowhere struct{ dir string }

func (n nowhere) Dir() string                   { return n.dir }
func (n nowhere) Prepare(context.Context) error { return nil }
func (n nowhere) Collect(context.Context) (string, error) {
	return "", errors.New("a role without tools collects nothing")
}
func (n nowhere) Found(string) {}
