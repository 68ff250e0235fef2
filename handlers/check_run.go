package handlers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/queue"
)

// checkRun acts on the buttons of the App's check runs, GitHub's own Re-run
// among them. Pressing one is typing the command on the build's ticket, with
// the authority of whoever pressed.
type checkRun struct{ *Handlers }

// checkSuite acts on GitHub's button that runs all checks of the App again.
type checkSuite struct{ *Handlers }

// pressed are the commands behind the buttons.
var pressed = map[string]command.Name{
	forge.RerunButton.Name:  command.Resume,
	forge.CancelButton.Name: command.Cancel,
	forge.FixButton.Name:    command.Fix,
}

// Handles lists the events.
func (checkRun) Handles() []string { return []string{"check_run"} }

// Handles lists the events.
func (checkSuite) Handles() []string { return []string{"check_suite"} }

// Handle selects by action and button.
func (h checkRun) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	p, button, err := h.read(deliveryID, payload)
	if err != nil || button == "" {
		return err
	}
	if err := h.restate(ctx, p); err != nil {
		return err
	}
	return h.press(ctx, p, button)
}

func (h checkRun) asks(ctx context.Context, deliveryID string, payload []byte) (trigger, bool, error) {
	p, button, err := h.read(deliveryID, payload)
	if err != nil || button == "" {
		return trigger{}, false, err
	}
	if run, ok := reviewOf(p.check); ok {
		return h.reviewBehind(ctx, p, run, button)
	}
	_, t, found, err := h.buildBehind(ctx, p, button)
	return t, found, err
}

// Handle selects by action.
func (h checkSuite) Handle(ctx context.Context, _, deliveryID string, payload []byte) error {
	var e github.CheckSuiteEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return queue.Never(fmt.Errorf("decode: %w", err))
	}
	if e.GetAction() != "rerequested" || h.deaf(e.Sender) || e.GetCheckSuite().GetApp().GetID() != h.AppID {
		return nil
	}
	p, err := pressOf(deliveryID, e.Repo, e.Installation, e.Sender)
	if err != nil {
		return err
	}
	p.again = true
	checks, err := h.GitHub.Checks(ctx, p.repo, e.GetCheckSuite().GetHeadSHA())
	if err != nil {
		return fmt.Errorf("list the check runs of %s: %w", e.GetCheckSuite().GetHeadSHA(), err)
	}
	newest := map[string]forge.Check{} // by name: what was checked again counts
	for _, c := range checks {
		newest[c.Name] = c
	}
	for _, name := range []string{configCheck, pipeline.CheckName, pipeline.ReviewCheckName} {
		if p.check = newest[name]; p.check.Name == "" {
			continue
		}
		if err := h.restate(ctx, p); err != nil {
			return err
		}
		if err := h.press(ctx, p, forge.RerunButton.Name); err != nil {
			return err
		}
	}
	return nil
}

// asks: which build it is, is only known from GitHub.
func (checkSuite) asks(context.Context, string, []byte) (trigger, bool, error) {
	return trigger{}, false, nil
}

// A checkRunEvent is what counts of one. go-github's own wants every date in it
// to be as GitHub documents, which those of other Apps' runs are not always.
type checkRunEvent struct {
	Action string `json:"action"`
	Run    struct {
		ID         int64  `json:"id"`
		Name       string `json:"name"`
		HeadSHA    string `json:"head_sha"`
		ExternalID string `json:"external_id"`
		Status     string `json:"status"`
		Conclusion string `json:"conclusion"` // empty as long as it has not ended
		App        struct {
			ID int64 `json:"id"`
		} `json:"app"`
	} `json:"check_run"`
	Requested struct {
		Identifier string `json:"identifier"`
	} `json:"requested_action"`
	Repo         *github.Repository   `json:"repository"`
	Installation *github.Installation `json:"installation"`
	Sender       *github.User         `json:"sender"`
}

// A press is a button of a check run that somebody pressed.
type press struct {
	delivery string
	repo     forge.Repo
	by       forge.Person
	check    forge.Check
	again    bool // by GitHub's own Re-run, after which GitHub waits for word of the check
}

// read returns the button, and none where nobody pressed one of ours.
func (h checkRun) read(deliveryID string, payload []byte) (p press, button string, err error) {
	var e checkRunEvent
	if err := json.Unmarshal(payload, &e); err != nil {
		return p, "", queue.Never(fmt.Errorf("decode: %w", err))
	}
	if h.deaf(e.Sender) || e.Run.App.ID != h.AppID {
		return p, "", nil
	}
	switch e.Action {
	case "rerequested":
		button = forge.RerunButton.Name
	case "requested_action":
		button = e.Requested.Identifier
	}
	if pressed[button] == "" {
		return p, "", nil
	}
	p, err = pressOf(deliveryID, e.Repo, e.Installation, e.Sender)
	p.again = e.Action == "rerequested"
	p.check = forge.Check{
		ID: e.Run.ID, Name: e.Run.Name, HeadSHA: e.Run.HeadSHA, ExternalID: e.Run.ExternalID,
		Status: e.Run.Status, Conclusion: e.Run.Conclusion,
	}
	return p, button, err
}

func pressOf(delivery string, repo *github.Repository, install *github.Installation, sender *github.User) (press, error) {
	r, err := repoOf(repo, install)
	if err != nil {
		return press{}, err
	}
	p := press{delivery: delivery, repo: r, by: forge.Person{Login: sender.GetLogin(), ID: sender.GetID(), Bot: machine(sender)}}
	if p.by.Login == "" || p.by.ID == 0 {
		return press{}, queue.Never(errors.New("sender: login and id are missing"))
	}
	return p, nil
}

// press does what the button of the check run stands for.
func (h *Handlers) press(ctx context.Context, p press, button string) error {
	if p.check.Name == configCheck {
		return h.judge(ctx, p.repo, 0, p.check.HeadSHA)
	}
	if run, ok := reviewOf(p.check); ok {
		return h.pressReview(ctx, p, run, button)
	}
	build, t, found, err := h.buildBehind(ctx, p, button)
	if err != nil || !found {
		return err
	}
	cmd := command.Command{Name: pressed[button]}
	if t.build, err = h.buildOf(ctx, t); err != nil {
		return err
	}
	if cmd.Name == command.Fix { // what is newer once it waits is no reason any more
		return h.followUp(ctx, t, func(ctx context.Context) (*pipeline.Request, error) {
			if passed, err := h.passedOver(ctx, t, cmd, build.ID); err != nil || passed {
				return nil, err
			}
			return h.fix(ctx, t, cmd)
		})
	}
	if passed, err := h.passedOver(ctx, t, cmd, build.ID); err != nil || passed {
		return err
	}
	return h.run(ctx, t, cmd)
}

// passedOver reports whether the build is not the ticket's last one, which is
// answered.
func (h *Handlers) passedOver(ctx context.Context, t trigger, cmd command.Command, build string) (bool, error) {
	newest, found, err := h.newestBuild(ctx, t)
	if err != nil || !found || newest.ID == build {
		return false, err
	}
	return true, h.passOver(ctx, t, cmd, build)
}

// reviewOf is the review that a check run is of.
func reviewOf(c forge.Check) (run string, ok bool) {
	run, _, _ = strings.Cut(c.ExternalID, ":")
	return run, c.Name == pipeline.ReviewCheckName && run != ""
}

// pressReview does what a button of a review's check run stands for. Re-run looks
// at everything again: who presses it was not content with what is there.
func (h *Handlers) pressReview(ctx context.Context, p press, run, button string) error {
	t, found, err := h.reviewBehind(ctx, p, run, button)
	if err != nil || !found {
		return err
	}
	cmd := command.Command{Name: pressed[button]}
	if cmd.Name == command.Resume {
		cmd, t.review = command.Command{Name: command.Review, Full: true}, ""
	}
	return h.run(ctx, t, cmd)
}

// restate lets GitHub show again how a check run has ended, whatever becomes of
// the press: a build that goes on writes to it only when it ends. It comes first,
// so that it never undoes what the build writes.
func (h *Handlers) restate(ctx context.Context, p press) error {
	if !p.again || p.check.Status != "completed" {
		return nil
	}
	if err := h.GitHub.RestateCheck(ctx, p.repo, p.check); err != nil {
		return fmt.Errorf("restate %s on %s: %w", p.check.Name, p.check.HeadSHA, err)
	}
	return nil
}

// passOver answers whoever pressed a button of a build that another followed;
// people without a say are told what everybody is told.
func (h *Handlers) passOver(ctx context.Context, t trigger, cmd command.Command, build string) error {
	spec, _ := command.Of(cmd.Name)
	if allowed, err := h.permitted(ctx, t, spec); err != nil || !allowed {
		return err
	}
	return h.answer(ctx, t, refused, olderText(t.typed, build, h.Chat.Prefix))
}

// buildBehind finds the build that wrote a check run, and makes the press a
// command on its ticket.
func (h *Handlers) buildBehind(ctx context.Context, p press, button string) (build queue.Job, t trigger, found bool, err error) {
	run, _, _ := strings.Cut(p.check.ExternalID, ":")
	if run == "" || p.check.Name != pipeline.CheckName {
		return build, t, false, nil
	}
	jobs, err := h.Jobs.List(ctx, queue.Query{IDs: []string{run}, Kinds: []string{pipeline.KindBuild}, Limit: 1})
	if err != nil || len(jobs) == 0 {
		return build, t, false, err
	}
	var r pipeline.Request
	if err := json.Unmarshal(jobs[0].Payload, &r); err != nil {
		return build, t, false, fmt.Errorf("read the request of %s: %w", run, err)
	}
	if !same(r.Repo, p.repo) || r.Ticket.Number == 0 {
		return build, t, false, nil
	}
	if r.Contender != nil { // the ticket's build is the comparison
		jobs, err = h.Jobs.List(ctx, queue.Query{IDs: []string{r.Contender.Of}, Kinds: []string{pipeline.KindComparison}, Limit: 1})
		if err != nil || len(jobs) == 0 {
			return build, t, false, err
		}
	}
	return jobs[0], trigger{
		delivery: p.delivery, repo: p.repo, ticket: r.Ticket, by: p.by, typed: "The button " + code(button),
	}, true, nil
}
