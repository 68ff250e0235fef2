package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

var (
	planGate = &report.Gate{
		Kind: report.PlanGate, Hash: "0123456789abcdef",
		Since: time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC), Expires: time.Date(2026, 3, 4, 10, 0, 0, 0, time.UTC),
	}
	questionGate = &report.Gate{Kind: report.QuestionGate, Questions: []string{"Which?"}}
)

// built is a world whose ticket has a build in a state.
func built(t *testing.T, state report.State, gate *report.Gate) *world {
	w := newWorld(t)
	w.deliver("the-build", commented(maintainer, "/build"))
	w.account.State, w.account.Gate = state, gate
	if state.Final() {
		w.shelf.finish()
	}
	clear(w.hub.reactions)
	return w
}

// said are the signals that the world's build got.
func (w *world) said() []queue.Signal { return w.shelf.signals[pipeline.RunID("the-build")] }

// Every command to a build, at every place where the build may stand: it is
// told, or the answer says why not and what to type.
func TestWhatABuildIsTold(t *testing.T) {
	const (
		told    = "" // the build is told, and nothing is written
		nothing = "no open build of this issue"
		never   = "This issue was never built here"
		noPlan  = "No plan of this build waits for an approval"
		noAsk   = "No agent of this build has asked anything"
		notOver = "The build of this issue has not ended"
	)
	for line, c := range map[string]struct {
		kind                                                         string
		said                                                         pipeline.Said
		none, running, approval, answer, ci, failed, succeeded, plan string
	}{
		"/approve 0123456": {
			pipeline.ApproveSignal, pipeline.Said{Hash: "0123456"},
			never, noPlan, told, noPlan, noPlan, nothing, nothing, nothing,
		},
		"/revise smaller": {
			pipeline.ReviseSignal, pipeline.Said{Text: "smaller"},
			never, noPlan, told, noPlan, noPlan, nothing, nothing, nothing,
		},
		"/reject": {
			pipeline.RejectSignal, pipeline.Said{},
			never, noPlan, told, noPlan, noPlan, nothing, nothing, nothing,
		},
		"/reject too large": {
			pipeline.RejectSignal, pipeline.Said{Text: "too large"},
			never, noPlan, told, noPlan, noPlan, nothing, nothing, nothing,
		},
		"/answer the first": {
			pipeline.AnswerSignal, pipeline.Said{Text: "the first"},
			never, noAsk, noAsk, told, noAsk, nothing, nothing, nothing,
		},
		"/steer mind the API": {
			pipeline.SteerSignal, pipeline.Said{Text: "mind the API"},
			never, told, told, told, told, nothing, nothing, nothing,
		},
		"/cancel": {
			pipeline.CancelSignal, pipeline.Said{},
			never, told, told, told, told, nothing, nothing, nothing,
		},
		"/resume": {
			pipeline.ResumeSignal, pipeline.Said{Repo: forge.Repo{Owner: "o", Name: "r", ID: 9, Installation: 7, DefaultBranch: "main"}},
			never, notOver, notOver, notOver, notOver, told, "The build succeeded, so there is nothing to resume", "no more than a plan was asked for",
		},
	} {
		for place, p := range map[string]struct {
			state report.State
			gate  *report.Gate
			want  string
		}{
			"no build":         {"", nil, c.none},
			"at work":          {report.Running, nil, c.running},
			"at the plan gate": {report.WaitingApproval, planGate, c.approval},
			"at a question":    {report.WaitingAnswer, questionGate, c.answer},
			"waits for CI":     {report.WaitingCI, nil, c.ci},
			"failed":           {report.Failed, nil, c.failed},
			"needs a person":   {report.NeedsHuman, nil, c.failed},
			"cancelled":        {report.Canceled, nil, c.failed},
			"timed out":        {report.TimedOut, nil, c.failed},
			"succeeded":        {report.Succeeded, nil, c.succeeded},
			"with debt":        {report.SucceededWithDebt, nil, c.succeeded},
			"only planned":     {report.Planned, nil, c.plan},
		} {
			t.Run(line+" "+place, func(t *testing.T) {
				w := newWorld(t)
				if p.state != "" {
					w = built(t, p.state, p.gate)
				}
				before := len(w.hub.comments)
				for range 2 { // a worker may die after it
					w.deliver(guid, commented(maintainer, line))
					w.account.Gate = nil // the build has heard it
				}
				if p.want != told {
					w.commentsHold(before + 1)
					answer := w.hub.comments[before].Body
					if !strings.Contains(strings.ToLower(answer), strings.ToLower(p.want)) || !strings.Contains(answer, "`/") {
						t.Fatalf("the answer lacks %q or the next command:\n%s", p.want, answer)
					}
					w.reacted(onComment, "eyes", "confused")
					if len(w.said()) > 0 {
						t.Fatalf("told all the same: %+v", w.said())
					}
					return
				}
				w.commentsHold(before)
				w.reacted(onComment, "eyes", "rocket")
				want := queue.Signal{ID: guid, Kind: c.kind, Reopen: c.kind == pipeline.ResumeSignal}
				c.said.By = forge.Person{Login: "mona", ID: 1}
				var said pipeline.Said
				if len(w.said()) != 1 {
					t.Fatalf("signals %+v", w.said())
				}
				got := w.said()[0]
				if err := json.Unmarshal(got.Body, &said); err != nil || said != c.said {
					t.Fatalf("said %+v, want %+v (%v)", said, c.said, err)
				}
				if got.ID != want.ID || got.Kind != want.Kind || got.Reopen != want.Reopen {
					t.Fatalf("signal %+v, want %+v", got, want)
				}
			})
		}
	}
}

// A build that is given up, of which the ticket could not be told yet, is resumed
// by whoever sees so elsewhere.
func TestAResumeBeforeTheTicketCouldBeTold(t *testing.T) {
	w := built(t, report.Running, nil)
	w.account.State = report.NeedsHuman
	w.shelf.jobs[len(w.shelf.jobs)-1].Verdict.Cause = "no luck"
	before := len(w.hub.comments)
	w.deliver(guid, commented(maintainer, "/resume"))
	w.commentsHold(before)
	if said := w.said(); len(said) != 1 || !said[0].Reopen {
		t.Errorf("signals %+v", said)
	}
}

// Who may say what: the role counts, whatever the build waits for.
func TestWhoMayTellABuild(t *testing.T) {
	lines := map[string]struct {
		state report.State
		gate  *report.Gate
	}{
		"/approve 0123456": {report.WaitingApproval, planGate},
		"/revise smaller":  {report.WaitingApproval, planGate},
		"/reject":          {report.WaitingApproval, planGate},
		"/answer yes":      {report.WaitingAnswer, questionGate},
		"/steer x":         {report.Running, nil},
		"/cancel":          {report.Running, nil},
		"/resume":          {report.Failed, nil},
	}
	for line, at := range lines {
		for role := forge.None; role <= forge.Admin; role++ {
			t.Run(fmt.Sprintf("%s by %s", line, role), func(t *testing.T) {
				w := built(t, at.state, at.gate)
				w.hub.roles[triager.ID] = role
				w.deliver(guid, commented(triager, line))
				if role >= forge.Write {
					w.reacted(onComment, "eyes", "rocket")
					if len(w.said()) != 1 {
						t.Fatalf("signals %+v", w.said())
					}
					return
				}
				w.reacted(onComment, "confused")
				w.commentsHold(2, "**write**")
				if len(w.said()) > 0 {
					t.Fatalf("signals %+v", w.said())
				}
			})
		}
	}
}

// Only a cancel is also the right of whoever started the build.
func TestWhoeverStartedItMayOnlyCancelIt(t *testing.T) {
	for line, state := range map[string]report.State{"/resume": report.Failed, "/steer x": report.Running} {
		w := built(t, state, nil)
		w.hub.roles[maintainer.ID] = forge.Read
		w.deliver(guid, commented(maintainer, line))
		w.commentsHold(2, "**write**")
		if len(w.said()) > 0 {
			t.Fatalf("%s: signals %+v", line, w.said())
		}
	}
}

func TestAnApprovalThatNamesNoPlanOrAnother(t *testing.T) {
	for name, c := range map[string]struct{ line, refusal, want string }{
		"no hash":             {"/approve", "", "An approval names the plan that was read: approve 0123456789ab"},
		"what is no hash":     {"/approve `@mona`", "", "An approval names the plan that was read: approve 0123456789ab"},
		"another plan's":      {"/approve fedcba9", "the plan that waits has the hash 0123456789ab, not fedcba9", "has the hash 0123456789ab, not fedcba9"},
		"a base that moved":   {"/approve 0123456", "main moved since the plan was made", "Main moved since the plan was made"},
		"a ticket, hostile":   {"/approve 0123456", "<b> @mona fixes #3 moved", "&lt;b&gt; @\u200bmona"},
		"a ticket that moved": {"/approve 0123456", "the ticket was changed since the plan was made", "The ticket was changed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := built(t, report.WaitingApproval, planGate)
			w.refusal = c.refusal
			w.deliver(guid, commented(maintainer, c.line))
			w.commentsHold(2, c.want, "`/approve 0123456789ab`", "`/revise TEXT`", "`/reject [TEXT]`")
			w.reacted(onComment, "eyes", "confused")
			if len(w.said()) > 0 {
				t.Fatalf("signals %+v", w.said())
			}
		})
	}
}

// A worker that dies at any step does it again, and the build, which stands
// elsewhere by then, is told once.
func TestAToldBuildIsNotToldAgain(t *testing.T) {
	for _, step := range []string{"react eyes", "send", "react rocket"} {
		t.Run("after "+step, func(t *testing.T) {
			w := built(t, report.WaitingApproval, planGate)
			if step == "send" {
				w.shelf.failSend = errors.New("killed")
			} else {
				w.hub.failAt = step
			}
			e := commented(maintainer, "/approve 0123456")
			if err := w.try(guid, e); err == nil {
				t.Fatal("the failure was swallowed")
			}
			if len(w.said()) > 0 {
				w.account.State, w.account.Gate = report.Running, nil
			}
			w.deliver(guid, e)
			w.deliver(guid, e)
			w.reacted(onComment, "eyes", "rocket")
			w.commentsHold(1)
			if len(w.said()) != 1 {
				t.Fatalf("signals %+v", w.said())
			}
		})
	}
}

// What happens between the decision and the signal is answered, too.
func TestABuildThatMovesOnMeanwhile(t *testing.T) {
	t.Run("another one overtakes a resume", func(t *testing.T) {
		w := built(t, report.Failed, nil)
		payload, err := json.Marshal(pipeline.Request{Build: "b-other", Comment: forge.Comment{URL: "https://github.com/o/r/issues/12#issuecomment-1"}})
		if err != nil {
			t.Fatal(err)
		}
		w.between = func() {
			w.shelf.jobs = append(w.shelf.jobs, queue.Job{ID: "b-other", Kind: "build", Key: "o/r#12", Once: "o/r#12", Payload: payload})
		}
		w.deliver(guid, commented(maintainer, "/resume"))
		w.commentsHold(2, "b-other", "issuecomment-1")
		w.reacted(onComment, "eyes", "confused")
	})
	t.Run("it ends before it is steered", func(t *testing.T) {
		w := built(t, report.Running, nil)
		w.between = w.shelf.finish
		w.deliver(guid, commented(maintainer, "/steer x"))
		w.commentsHold(2, "no open build of this issue", "`/resume`")
		w.reacted(onComment, "eyes", "confused")
	})
}

// On the thread of one of the App's own pull requests a command means the build
// of its ticket, and the answer is where it was typed.
func TestACommandOnOurOwnPullRequest(t *testing.T) {
	ours := account{"slipway-test[bot]", 77, "Bot"}
	marked := "Greets.\n\n" + forge.PullMarker(42, 12) + "as=draft -->"
	for name, c := range map[string]struct {
		author account
		body   string
		calls  int // to GitHub, for the ticket
		found  bool
	}{
		"ours":                     {ours, marked, 0, true},
		"ours, with no body":       {ours, "", 1, true},
		"of an event that is bare": {account{}, marked, 1, true},
		"somebody's copy":          {maintainer, marked, 0, false},
		"somebody's own":           {maintainer, "", 0, false},
		"another App's":            {account{"other[bot]", 78, "Bot"}, marked, 0, false},
		"ours, edited":             {ours, "Greets.", 0, false},
	} {
		for _, line := range []string{"/cancel", "/steer x", "/status"} {
			t.Run(line+" "+name, func(t *testing.T) {
				w := built(t, report.Running, nil)
				w.hub.tickets = map[int]int{31: 12}
				w.hub.calls = nil
				e := commented(maintainer, line)
				e.Issue.Number, e.Issue.User, e.Issue.Body, e.Issue.PullRequest = 31, c.author, &c.body, &struct{}{}
				w.deliver(guid, e)
				asked := 0
				for _, call := range w.hub.calls {
					if call == "pull ticket" {
						asked++
					}
				}
				if asked != c.calls {
					t.Errorf("GitHub was asked %d times for the ticket, want %d", asked, c.calls)
				}
				on := forge.Subject{Ticket: 31, Comment: 555}
				if !c.found {
					w.reacted(on, "eyes", "confused")
					w.commentsHold(2, "Slipway did not open this pull request")
					if len(w.said()) > 0 {
						t.Fatalf("signals %+v", w.said())
					}
					return
				}
				w.reacted(on, "eyes", "rocket")
				if line == "/status" {
					w.commentsHold(2, "`"+pipeline.RunID("the-build")+"`")
					if got := w.hub.comments[1].Ticket; got != 31 {
						t.Fatalf("answered on #%d", got)
					}
					return
				}
				if len(w.said()) != 1 {
					t.Fatalf("signals %+v", w.said())
				}
			})
		}
	}
}

// A failure to find out is no permission, and no answer.
func TestWhatCannotBeFoundOutIsTriedAgain(t *testing.T) {
	w := built(t, report.Running, nil)
	w.hub.failAt = "pull ticket"
	e := commented(maintainer, "/cancel")
	empty := ""
	e.Issue.Number, e.Issue.User, e.Issue.Body, e.Issue.PullRequest = 31, account{}, &empty, &struct{}{}
	if err := w.try(guid, e); err == nil {
		t.Fatal("the failure was swallowed")
	}
	w.commentsHold(1)
	if len(w.said()) > 0 || len(w.hub.reactions) > 0 {
		t.Fatalf("signals %+v, reactions %v", w.said(), w.hub.reactions)
	}
}

// A build is known by the number of its repository, whose name and owner change,
// as does the App's installation. It goes on where it was resumed.
func TestABuildInARepositoryThatMoved(t *testing.T) {
	elsewhere := func(e event) event {
		e.Repository = repositoryBody{ID: 9, Name: "new", FullName: "p/new", Owner: account{"p", 80, "Organization"}, DefaultBranch: "trunk"}
		e.Installation = &numbered{70}
		return e
	}
	w := built(t, report.Running, nil)
	w.deliver("d1", elsewhere(commented(maintainer, "/build")))
	w.commentsHold(2, "being built already", pipeline.RunID("the-build"))
	w.deliver("d2", elsewhere(commented(maintainer, "/cancel")))
	if said := w.said(); len(said) != 1 || said[0].Kind != pipeline.CancelSignal {
		t.Fatalf("signals %+v", said)
	}
	w.account.State = report.Failed
	w.shelf.finish()
	w.deliver("d3", elsewhere(commented(maintainer, "/status")))
	w.commentsHold(3, "Failed")
	w.press("d4", func() pressedEvent {
		e := pressing(maintainer, "requested_action", "Re-run")
		moved := elsewhere(newEvent("", maintainer))
		e.Repository, e.Installation = moved.Repository, moved.Installation
		return e
	}())
	w.shelf.finish()
	w.deliver("d5", elsewhere(commented(maintainer, "/resume")))
	said := w.said()
	if len(said) != 3 {
		t.Fatalf("signals %+v", said)
	}
	want := forge.Repo{Owner: "p", Name: "new", ID: 9, Installation: 70, DefaultBranch: "trunk"}
	for _, s := range said[1:] {
		var heard pipeline.Said
		if err := json.Unmarshal(s.Body, &heard); err != nil || s.Kind != pipeline.ResumeSignal || heard.Repo != want {
			t.Errorf("signal %s %s, want a resume in %+v", s.Kind, s.Body, want)
		}
	}
	another := elsewhere(commented(maintainer, "/resume"))
	another.Repository.ID = 10
	w.deliver("d6", another)
	w.commentsHold(4, "never built here")
}
