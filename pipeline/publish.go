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
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// CheckName is the check run that says how the build ended.
const CheckName = "slipway/build"

// publish shows what landed: branch, draft pull request, check run, tracking
// comment. Every effect describes what should be there, so a repeated one
// changes nothing. It returns the account as it was read back.
func (b *build) publish(ctx context.Context) (report.Build, error) {
	if b.holds() {
		return b.hold(ctx)
	}
	final := b.account()
	err := errNothing
	if landedAny(final) || b.goesOn() {
		err = b.pushAs(ctx, keyPush)
	}
	switch {
	case errors.Is(err, errNothing):
	case err != nil:
		return final, err
	default:
		err := b.show(ctx)
		if errors.Is(err, forge.ErrRefused) {
			err = b.refused(ctx, err)
		}
		if err != nil {
			return final, err
		}
	}
	if err := b.answer(ctx); err != nil {
		return final, err
	}
	if err := b.lastWord(ctx, b.account()); err != nil {
		return final, err
	}
	_, err = step.Effect(ctx, b.journal, b.fold.key(keyDone), func(ctx context.Context) (ended, error) {
		page := b.account()
		return b.conclude(page), b.artefact("report.md", []byte(report.Markdown(page)))
	})
	return b.fold.Report(time.Now()), errors.Join(err, b.checkpoint())
}

// refused ends a build of which GitHub refuses a pull request or a check run, with
// what landed on the branch. One may be refused without the other.
func (b *build) refused(ctx context.Context, cause error) error {
	err := b.halt(ctx, stopped{State: report.NeedsHuman, Cause: fmt.Sprintf(
		"GitHub refused: %v; the build's work is on the branch %s", cause, b.account().Branch)})
	if !errors.Is(err, errStopped) {
		return err
	}
	if err := b.check(ctx); !errors.Is(err, forge.ErrRefused) {
		return err
	}
	return nil
}

// errNothing says that there is nothing to show a pull request of.
var errNothing = errors.New("nothing is published")

// conclude says how the build ends.
func (b *build) conclude(r report.Build) ended {
	if b.Request.PlanOnly && b.fold.stopping() == nil {
		return ended{State: report.Planned, Success: true, Summary: "Planned, as asked; nothing was built."}
	}
	return conclude(r, b.fold.stopping())
}

// account is the report as it will be when the build has ended.
func (b *build) account() report.Build {
	r := b.fold.Report(time.Now())
	e := b.conclude(r)
	r.State, r.Success, r.Cause, r.Next = e.State, e.Success, e.Cause, e.Next
	r.Summary = cmp.Or(r.Summary, e.Summary)
	for i, s := range r.Stages {
		switch {
		case s.Name == "publish" && r.Head != "":
			r.Stages[i].State = "done" // it is what shows this
		case s.State == "failed" || s.State == "stopped":
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

// goesOn reports whether a follow-up has something to show without an issue that
// landed: the base, or what CI is asked about.
func (b *build) goesOn() bool {
	f := b.Request.Follow
	return f != nil && b.fold.hasPlan() && (b.fold.changed() || f.Work == FixCI && b.fold.stopping().mayFinish())
}

// words are the title and summary of the pull request: an agent's, or ours
// when it did not answer, or what was said before where the build may spend
// nothing more.
func (b *build) words(ctx context.Context, r report.Build) (PullText, error) {
	ours := PullText{Title: report.PullTitle(r), Summary: r.Summary}
	if !b.fold.stopping().mayFinish() || b.crew == nil {
		return b.fold.pullText(ours), nil
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
	text, err := agent.Ask(ctx, b.crew, agent.Place{Key: b.fold.key("publish"), Work: nowhere{dir: b.workDir()}}, Git, in)
	if _, failed := errors.AsType[*agent.Failure](err); failed || errors.Is(err, agent.ErrBudget) || errors.Is(err, agent.ErrFatal) {
		b.log.WarnContext(ctx, "the pull request gets its title and summary from counts", "error", err)
		return ours, nil
	}
	return text, err
}

// pushAs puts the head on the branch that the forge keeps for this build. What
// other people pushed there meanwhile becomes part of the head first; nothing of
// theirs is rewritten.
func (b *build) pushAs(ctx context.Context, key string) error {
	branch, err := step.Effect(ctx, b.journal, b.fold.key(keyBranch), func(ctx context.Context) (forge.Branch, error) {
		if b.Request.follows() { // the pull request is open, so it is ours to write
			return forge.Branch{Name: b.Request.Follow.Branch}, nil
		}
		return b.Forge.EnsureBranch(ctx, b.branchName(), b.ours)
	})
	if err != nil {
		return fmt.Errorf("settle the branch: %w", err)
	}
	for {
		_, err = step.Effect(ctx, b.journal, b.fold.key(key), func(ctx context.Context) (pushed, error) {
			return b.pushOnce(ctx, branch.Name)
		})
		if !errors.Is(err, errTheirs) && !errors.Is(err, repo.ErrMoved) {
			break
		}
		if err := b.adopt(ctx, branch.Name); err != nil {
			return err
		}
	}
	if errors.Is(err, errClosed) {
		if err = b.halt(ctx, stopped{State: report.Canceled, Cause: errClosed.Error()}); errors.Is(err, errStopped) {
			return errNothing
		}
	}
	if err != nil {
		return fmt.Errorf("push %s: %w", branch.Name, err)
	}
	return nil
}

// errTheirs says that the branch holds commits of other people that the head
// does not include.
var errTheirs = errors.New("the branch has commits of other people")

func (b *build) pushOnce(ctx context.Context, branch string) (pushed, error) {
	head := b.fold.integrated()
	out := pushed{Branch: branch, Head: head}
	if err := b.Extend(ctx); err != nil {
		return out, err
	}
	if err := b.stillOpen(ctx); err != nil {
		return out, err
	}
	remote, err := b.remote(ctx)
	if err != nil {
		return out, err
	}
	seen, err := b.mirror.RemoteHead(ctx, remote, branch)
	if err != nil || seen == head {
		return out, err
	}
	if seen != "" {
		included := b.mirror.Has(ctx, seen)
		if included {
			included, err = b.mirror.IsAncestor(ctx, seen, head)
		}
		if err != nil {
			return out, err
		}
		if !included {
			return out, errTheirs
		}
	}
	return out, b.mirror.Push(ctx, remote, head, branch, seen)
}

// ours reports whether a branch of the remote was written by this build: it is
// at one of its commits, or at one that people put on top of one.
func (b *build) ours(ctx context.Context, branch forge.Branch) (bool, error) {
	remote, err := b.remote(ctx)
	if err != nil {
		return false, err
	}
	seen, err := b.mirror.Fetch(ctx, remote, branch.Name)
	if err != nil {
		return false, err
	}
	for _, mine := range b.fold.written() {
		if mine == seen {
			return true, nil
		}
		if below, err := b.mirror.IsAncestor(ctx, mine, seen); err != nil || below {
			return below, err
		}
	}
	return false, nil
}

// adopt makes what other people pushed to the branch part of the head, and
// looks at the result anew: what was verified was another commit.
func (b *build) adopt(ctx context.Context, branch string) error {
	n := b.fold.adoptions() + 1
	took, err := step.Effect(ctx, b.journal, b.fold.key(keyAdopt(n)), func(ctx context.Context) (adopted, error) {
		remote, err := b.remote(ctx)
		if err != nil {
			return adopted{}, err
		}
		theirs, err := b.mirror.Fetch(ctx, remote, branch)
		if err != nil {
			return adopted{}, err
		}
		return b.include(ctx, theirs)
	})
	if err != nil {
		return fmt.Errorf("take in what was pushed to %s: %w", branch, err)
	}
	if len(took.Conflicts) > 0 {
		err := b.halt(ctx, stopped{State: report.NeedsHuman, Cause: fmt.Sprintf(
			"%s holds commits of other people that conflict with the build's in %s; the build's work is kept at %s",
			branch, strings.Join(took.Conflicts, ", "), b.site.integration())})
		if errors.Is(err, errStopped) {
			return errNothing
		}
		return err
	}
	v := verdict{unseen: "other people's commits were added after the build had stopped"}
	if b.fold.stopping().mayFinish() {
		if v, err = b.verify(ctx, b.fold.round()); err != nil {
			return err
		}
	}
	return b.judge(ctx, b.fold.round(), v)
}

// include merges their commit with the head: theirs alone where it has the head
// in it.
func (b *build) include(ctx context.Context, theirs string) (adopted, error) {
	head := b.fold.integrated()
	out := adopted{Head: theirs, Theirs: theirs}
	if below, err := b.mirror.IsAncestor(ctx, head, theirs); err != nil || below {
		return out, errors.Join(err, b.site.hold(ctx, b.site.integration(), theirs))
	}
	m, err := b.mirror.Merge(ctx, theirs, head)
	if err != nil {
		return out, err
	}
	if len(m.Conflicts) > 0 {
		return adopted{Head: head, Theirs: theirs, Conflicts: m.Conflicts}, nil // neither side may be dropped
	}
	out.Head, err = b.site.commit(ctx, m.Tree, []string{theirs, head}, "Merge what was pushed to the branch meanwhile", time.Now())
	return out, errors.Join(err, b.site.hold(ctx, b.site.integration(), out.Head))
}

func (b *build) draft(ctx context.Context, key string, text PullText) error {
	_, err := step.Effect(ctx, b.journal, b.fold.key(key), func(ctx context.Context) (pulled, error) {
		if err := b.Extend(ctx); err != nil {
			return pulled{}, err
		}
		if err := b.stillOpen(ctx); errors.Is(err, errClosed) {
			return pulled{}, nil // another in its place is what nobody asked for
		} else if err != nil {
			return pulled{}, err
		}
		r := b.account()
		r.Title, r.Summary = text.Title, text.Summary
		want := forge.Draft{Head: r.Branch, Base: r.Base, Title: report.PullTitle(r)}
		if pin := b.fold.pinned(); b.Request.follows() {
			want.Title, want.Body = pin.Title, report.FollowUpBody(r, pin.Before)
		} else {
			want.Body = report.WithDebtRecord(report.PullBody(r, b.fold.template()), r.Debt)
		}
		pull, err := b.Forge.EnsureDraft(ctx, want)
		if err != nil {
			return pulled{}, err
		}
		out := pulled{Pull: pull, Text: text, As: r.State}
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
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyCheck), func(ctx context.Context) (checked, error) {
		if err := b.Extend(ctx); err != nil {
			return checked{}, err
		}
		r := b.account()
		want := checkOf(r)
		if seen := b.fold.reviewed(); seen != nil && len(seen.Open) > 0 && r.Pull != nil {
			want.Buttons = append(want.Buttons, forge.FixButton)
		}
		if _, err := b.Forge.EnsureCheck(ctx, want); err != nil {
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

// checkOf is the check run of a build that has ended.
func checkOf(r report.Build) forge.Check {
	title, summary, text := report.CheckOutput(r)
	var buttons []forge.Button
	if Refusal(r, ResumeSignal, Said{}) == "" {
		buttons = []forge.Button{forge.RerunButton}
	}
	return forge.Check{
		Name: CheckName, HeadSHA: r.Head, ExternalID: r.ID + ":" + r.Head,
		Status: "completed", Conclusion: report.Conclusion(r),
		Title: title, Summary: summary, Text: text, Started: r.Started, Buttons: buttons,
	}
}

// lastWord is the final edit of the tracking comment, and the reaction on what
// started the build. For a contender its comparison speaks.
func (b *build) lastWord(ctx context.Context, r report.Build) error {
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyComment), func(ctx context.Context) (commented, error) {
		if b.Request.Contender != nil {
			return commented{}, nil
		}
		if err := b.Extend(ctx); err != nil {
			return commented{}, err
		}
		comment := b.Request.Comment
		comment.Body = report.Comment(r)
		if r.State == report.Planned {
			comment.Body = report.PlanPage(r)
		}
		if _, err := b.Forge.EnsureComment(ctx, comment); err != nil {
			return commented{}, err
		}
		if err := notify(ctx, b.Forge, b.Request.Comment, fmt.Sprintf("end=%d", b.fold.segmentNow()), r); err != nil {
			return commented{}, err
		}
		reaction := "rocket"
		if report.ExitCode(r) != 0 {
			reaction = "confused"
		}
		if b.Request.Trigger != (forge.Subject{}) { // else each thread has its own
			if err := b.Forge.React(ctx, b.Request.Trigger, reaction); err != nil {
				return commented{}, err
			}
		}
		n, err := b.Forge.Comments(ctx, comment.Ticket, comment.Marker)
		return commented{Comments: n}, err
	})
	if err != nil {
		return fmt.Errorf("write the last word: %w", err)
	}
	return nil
}

// notify tells the end of a build in a comment of its own: an edit of the
// tracking comment notifies nobody.
func notify(ctx context.Context, f Forge, tracking forge.Comment, end string, r report.Build) error {
	if tracking.Marker == "" {
		return nil // nobody watches a thread
	}
	_, err := f.EnsureComment(ctx, forge.Comment{
		Ticket: tracking.Ticket, Marker: strings.Replace(tracking.Marker, " -->", " "+end+" -->", 1), Body: report.EndPage(r),
	})
	if err != nil {
		return fmt.Errorf("tell of the end: %w", err)
	}
	return nil
}

// branchName fills the configured template, or for a build without a ticket
// names the build.
func (b *build) branchName() string {
	if name := b.fold.branch(); name != "" {
		return name // of an earlier segment
	}
	if f := b.Request.Follow; f != nil {
		return "slipway/review-" + strconv.Itoa(f.Pull.Number)
	}
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
