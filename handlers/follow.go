package handlers

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// A follow-up is a build that goes on with an open pull request. One that is
// wanted while another build of the ticket is open comes right after it: until
// then its delivery waits, which no worker does, so that nothing is lost and the
// branch is never written by two.

// waitsFor is how often a delivery that waits for a build looks whether it ended.
const waitsFor = 5 * time.Second

// followUp queues what decide wants, if anything. What was decided the first time
// stays, however often the delivery looks again.
func (h *Handlers) followUp(ctx context.Context, t trigger, decide func(context.Context) (*pipeline.Request, error)) error {
	d, err := h.Decide(ctx, "follow-up", func(ctx context.Context) (Decision, error) {
		r, err := decide(ctx)
		return Decision{FollowUp: r}, err
	})
	if err != nil || d.FollowUp == nil {
		return err
	}
	job, err := jobOf(*d.FollowUp)
	if err != nil {
		return err
	}
	open, _, err := h.Jobs.Put(ctx, job)
	if err != nil {
		return fmt.Errorf("queue the follow-up on %s: %w", t.key(), err)
	}
	if open.ID != job.ID {
		return queue.Later(time.Now().Add(waitsFor), nil)
	}
	return nil
}

// fix is what the command asks for, or nothing where that was answered.
func (h *Handlers) fix(ctx context.Context, t trigger, cmd command.Command) (*pipeline.Request, error) {
	spec, _ := command.Of(cmd.Name)
	if allowed, err := h.permitted(ctx, t, spec); err != nil || !allowed {
		return nil, err
	}
	if err := h.react(ctx, t, seen); err != nil {
		return nil, err
	}
	f, ticket, refusal, err := h.followed(ctx, t)
	if err == nil && refusal == "" {
		refusal, err = h.fill(ctx, t, f, cmd.Text)
	}
	if err != nil || refusal != "" {
		if err == nil {
			err = h.answer(ctx, t, refused, refusal)
		}
		return nil, err
	}
	text := ""
	if f.Work == pipeline.Asked {
		text = cmd.Text
	}
	on := f.Pull.Number
	if t.ticket.Pull {
		on = t.ticket.Number
	}
	return h.request(ctx, t, *f, ticket, on, text)
}

// request makes the follow-up's request, with the tracking comment on a thread.
func (h *Handlers) request(ctx context.Context, t trigger, f pipeline.Follow, ticket, on int, text string) (*pipeline.Request, error) {
	run := pipeline.RunID(t.delivery)
	waits := ""
	open, found, err := h.find(ctx, trigger{build: threadKey(t.repo, ticket)}, queue.Query{Once: threadKey(t.repo, ticket), Unfinished: true})
	if err != nil {
		return nil, err
	}
	if found && open.ID != run {
		waits = open.ID
	}
	tracking, err := h.GitHub.EnsureComment(ctx, t.repo, forge.Comment{
		Ticket: on, Marker: h.runMarker(t), Body: queuedFollowUpText(run, t.by.Login, waits, h.Chat.Prefix),
	})
	if err != nil {
		return nil, fmt.Errorf("create the tracking comment on #%d: %w", on, err)
	}
	tracking.Body, f.Pull.Body = "", "" // the build reads and writes its own
	return &pipeline.Request{
		Build: run, Repo: t.repo, By: t.by, Trigger: t.on, Comment: tracking, Prefix: h.Chat.Prefix, Text: text, Follow: &f,
		Ticket: forge.Ticket{Number: ticket, Title: f.Pull.Title, URL: f.Pull.URL, State: f.Pull.State, Taken: t.ticket.Taken},
	}, nil
}

// followed finds the pull request that is meant, and the ticket whose branch is
// written: the App's own pull request, also one that it opened beside a person's,
// or a new branch beside a person's.
func (h *Handlers) followed(ctx context.Context, t trigger) (f *pipeline.Follow, ticket int, refusal string, err error) {
	var theirs forge.Pull
	if t.ticket.Pull {
		pull, found, err := h.GitHub.Pull(ctx, t.repo, t.ticket.Number)
		switch {
		case err != nil:
			return nil, 0, "", fmt.Errorf("read %s: %w", t.key(), err)
		case !found || pull.State != "open":
			return nil, 0, closedText(t.typed), nil
		case pull.Ticket > 0:
			return &pipeline.Follow{Pull: pull, Branch: pull.Head}, pull.Ticket, "", nil
		case pull.Fork:
			return nil, 0, forkText(t.typed), nil
		}
		theirs = pull
	}
	ours, found, err := h.GitHub.OpenPull(ctx, t.repo, t.ticket.Number)
	switch {
	case err != nil:
		return nil, 0, "", fmt.Errorf("look for an open pull request of %s: %w", t.key(), err)
	case found:
		return &pipeline.Follow{Pull: ours, Branch: ours.Head}, t.ticket.Number, "", nil
	case !t.ticket.Pull:
		return nil, 0, noPullText(t.typed, h.Chat.Prefix), nil
	}
	return &pipeline.Follow{Pull: theirs}, t.ticket.Number, "", nil
}

// fill says what the follow-up is to do, by the text of the command.
func (h *Handlers) fill(ctx context.Context, t trigger, f *pipeline.Follow, text string) (refusal string, err error) {
	numbers, listed := findingNumbers(text)
	switch {
	case strings.EqualFold(text, string(pipeline.FixCI)):
		f.Work = pipeline.FixCI
		if f.Branch == "" {
			return notOursCIText(t.typed), nil
		}
		return "", nil
	case strings.EqualFold(text, string(pipeline.Conflicts)):
		f.Work = pipeline.Conflicts
		return "", nil
	case !listed && text != "":
		f.Work = pipeline.Asked
		return "", nil
	}
	f.Work = pipeline.Findings
	all, err := h.Findings(ctx, t.repo, f.Pull)
	if err != nil {
		return "", fmt.Errorf("look for findings on #%d: %w", f.Pull.Number, err)
	}
	if len(all) == 0 {
		return noFindingsText(t.typed, h.Chat.Prefix), nil
	}
	if !listed {
		f.Findings = all
		return "", nil
	}
	for _, n := range numbers {
		i := findingAt(all, n)
		if i < 0 {
			return noFindingText(n, all), nil
		}
		f.Findings = append(f.Findings, all[i])
	}
	return "", nil
}

// findingAt is where the finding is that people call by the number, or -1.
func findingAt(all []finding.Entry, number int) int {
	for i, e := range all {
		if numberOf(e, i) == number {
			return i
		}
	}
	return -1
}

// numberOf is what people call a finding: its own number, or its place in the list
// where it has none.
func numberOf(e finding.Entry, i int) int { return cmp.Or(e.Number, i+1) }

// findingNumbers are the numbers in a text that holds nothing else.
func findingNumbers(text string) (numbers []int, ok bool) {
	for _, field := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == ',' || r == '\n' || r == '\t' }) {
		n, err := strconv.Atoi(strings.TrimPrefix(field, "#"))
		if err != nil {
			return nil, false
		}
		if !slices.Contains(numbers, n) {
			numbers = append(numbers, n)
		}
	}
	return numbers, len(numbers) > 0
}

func queuedFollowUpText(run, login, waits, prefix string) string {
	when, cancels := "is queued", "stops it and keeps what is finished"
	if waits != "" {
		when = "comes right after run " + code(waits) + ", which is open,"
		cancels = "stops the open run, and then this one begins"
	}
	return fmt.Sprintf("### Slipway: queued\n\n"+
		"A follow-up on this pull request %s for %s. This comment follows it to its end.\n\n"+
		"%s says how it stands · %s %s\n\n"+
		"<sub>run %s</sub>",
		when, code(login), code(prefix+"status"), code(prefix+"cancel"), cancels, code(run))
}

func closedText(typed string) string {
	return fmt.Sprintf("%s works on open pull requests, and this one is closed. Nothing was done.", typed)
}

func forkText(typed string) string {
	return fmt.Sprintf("%s was not done: the branch of this pull request is in a fork, where Slipway may not write. "+
		"Push the branch to this repository, or take the findings over by hand.", typed)
}

func noPullText(typed, prefix string) string {
	return fmt.Sprintf("%s works on a pull request, and Slipway has none open for this issue.\n\n%s starts a build", typed, code(prefix+"build"))
}

func notOursCIText(typed string) string {
	return fmt.Sprintf("%s mends the CI of pull requests that Slipway opened, and this is another's. Say what is to be changed instead; "+
		"that comes as a pull request against this branch.", typed)
}

func noFindingsText(typed, prefix string) string {
	return fmt.Sprintf("%s applies findings, and no review of this pull request left any open.\n\n"+
		"%s mends CI · %s merges the base · %s and a text does what it says",
		typed, code(prefix+"fix ci"), code(prefix+"fix conflicts"), code(prefix+"fix"))
}

func noFindingText(n int, all []finding.Entry) string {
	var b strings.Builder
	fmt.Fprintf(&b, "There is no finding %d. Nothing was done. The open findings are:\n", n)
	const most = 30
	for i, e := range all[:min(len(all), most)] {
		fmt.Fprintf(&b, "\n%d. %s", numberOf(e, i), codeOf(cmp.Or(e.String(), e.ID), 160))
	}
	if len(all) > most {
		fmt.Fprintf(&b, "\n\nand %d more", len(all)-most)
	}
	return b.String()
}
