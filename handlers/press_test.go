package handlers_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// A pressedEvent is a check_run or check_suite event.
type pressedEvent struct {
	Action       string         `json:"action"`
	Run          *checkBody     `json:"check_run,omitempty"`
	Suite        *checkBody     `json:"check_suite,omitempty"`
	Requested    *identified    `json:"requested_action,omitempty"`
	Repository   repositoryBody `json:"repository"`
	Sender       account        `json:"sender"`
	Installation *numbered      `json:"installation,omitempty"`
}

type checkBody struct {
	ID         int64    `json:"id,omitempty"`
	Name       string   `json:"name,omitempty"`
	HeadSHA    string   `json:"head_sha"`
	ExternalID string   `json:"external_id,omitempty"`
	Status     string   `json:"status,omitempty"`
	Conclusion string   `json:"conclusion,omitempty"`
	App        numbered `json:"app"`
}

type identified struct {
	Identifier string `json:"identifier"`
}

// pressing is an event of the check run of the world's build.
func pressing(by account, action, button string) pressedEvent {
	like := newEvent(action, by)
	e := pressedEvent{
		Action: action, Repository: like.Repository, Sender: by, Installation: like.Installation,
		Run: &checkBody{Name: "slipway/build", HeadSHA: "c0ffee", ExternalID: pipeline.RunID("the-build") + ":c0ffee", App: numbered{42}},
	}
	if button != "" {
		e.Requested = &identified{button}
	}
	return e
}

func (w *world) press(id string, e pressedEvent) {
	w.Helper()
	if err := w.tryPress(id, e); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryPress(id string, e pressedEvent) error {
	w.Helper()
	w.handled = id
	payload, err := json.Marshal(e)
	if err != nil {
		w.Fatal(err)
	}
	name := "check_run"
	if e.Suite != nil {
		name = "check_suite"
	}
	return w.h.Handle(w.Context(), handlers.Delivery{ID: id, Event: name, Payload: payload})
}

// A button is the command, by whoever pressed it: it is told to the build, or
// the ticket says why not.
func TestAButtonIsACommandOfWhoeverPressedIt(t *testing.T) {
	for name, c := range map[string]struct {
		by             account
		state          report.State
		action, button string
		kind           string // of the signal
		answer         string
	}{
		"GitHub's own Re-run":       {maintainer, report.Failed, "rerequested", "", pipeline.ResumeSignal, ""},
		"Re-run":                    {maintainer, report.NeedsHuman, "requested_action", "Re-run", pipeline.ResumeSignal, ""},
		"Re-run of what runs":       {maintainer, report.WaitingCI, "rerequested", "", "", "has not ended"},
		"Re-run of what succeeded":  {maintainer, report.Succeeded, "rerequested", "", "", "nothing to resume"},
		"Re-run by a reader":        {reader, report.Failed, "rerequested", "", "", "The button `Re-run` needs the role **write**"},
		"Cancel":                    {maintainer, report.WaitingCI, "requested_action", "Cancel", pipeline.CancelSignal, ""},
		"Cancel by a triager":       {triager, report.WaitingCI, "requested_action", "Cancel", "", "The button `Cancel` needs the role **write**"},
		"Cancel of what has ended":  {maintainer, report.Failed, "requested_action", "Cancel", "", "no open build"},
		"a button that is not ours": {maintainer, report.Failed, "requested_action", "Merge", "", ""},
		"a bot":                     {renovate, report.Failed, "rerequested", "", "", ""},
		"the App itself":            {account{"slipway-test[bot]", 77, "Bot"}, report.Failed, "rerequested", "", "", ""},
		"an action of another age":  {maintainer, report.Failed, "created", "", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldAt(t, config.Chat{}, c.state, nil)
			for range 2 { // a worker may die after it
				w.press(guid, pressing(c.by, c.action, c.button))
			}
			kinds := []string{}
			for _, s := range w.said() {
				kinds = append(kinds, s.Kind)
			}
			if want := strings.Fields(c.kind); !slices.Equal(kinds, want) {
				t.Errorf("told %v, want %v", kinds, want)
			}
			if c.answer == "" {
				w.commentsHold(1)
			} else {
				w.commentsHold(2, c.answer)
			}
			if len(w.hub.reactions) > 0 {
				t.Errorf("reactions %v", w.hub.reactions)
			}
		})
	}
}

func TestAButtonOfACheckThatIsNoBuilds(t *testing.T) {
	for name, change := range map[string]func(*pressedEvent){
		"another App's":          func(e *pressedEvent) { e.Run.App = numbered{41} },
		"another repository's":   func(e *pressedEvent) { e.Repository.ID, e.Repository.Name = 10, "elsewhere" },
		"another of that name's": func(e *pressedEvent) { e.Repository.ID = 10 },
		"of an unknown build":    func(e *pressedEvent) { e.Run.ExternalID = "b-000000000000:c0ffee" },
		"of no build":            func(e *pressedEvent) { e.Run.ExternalID = "" },
		"of another name":        func(e *pressedEvent) { e.Run.Name = "slipway/review" },
	} {
		t.Run(name, func(t *testing.T) {
			w := worldAt(t, config.Chat{}, report.Failed, nil)
			e := pressing(maintainer, "rerequested", "")
			change(&e)
			w.press(guid, e)
			w.commentsHold(1)
			if len(w.said()) > 0 {
				t.Errorf("told %+v", w.said())
			}
		})
	}
}

func TestAButtonOfAnOlderBuild(t *testing.T) {
	w := worldAt(t, config.Chat{}, report.Failed, nil)
	w.deliver("the-next", commented(maintainer, "/build"))
	w.press("d1", pressing(maintainer, "rerequested", ""))
	w.commentsHold(3, "has a newer build", pipeline.RunID("the-build"))
	w.press("d2", pressing(reader, "rerequested", ""))
	w.commentsHold(4, "needs the role **write**")
	if len(w.shelf.signals) > 0 {
		t.Errorf("told %+v", w.shelf.signals)
	}
}

// After its own Re-run GitHub shows the check as waiting until it is written to:
// whoever pressed, and whatever comes of it, it is shown as it stands. A check
// that has not ended waits anyway, and after a button of ours nothing does.
func TestACheckThatIsAskedForAgainDoesNotWaitForEver(t *testing.T) {
	for name, c := range map[string]struct {
		by             account
		action, button string
		status         string
		restated       bool
	}{
		"by a maintainer":   {maintainer, "rerequested", "", "completed", true},
		"by a reader":       {reader, "rerequested", "", "completed", true},
		"of what runs":      {maintainer, "rerequested", "", "in_progress", false},
		"a button of ours":  {maintainer, "requested_action", "Re-run", "completed", false},
		"by a bot":          {renovate, "rerequested", "", "completed", false},
		"when it completed": {maintainer, "completed", "", "completed", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldAt(t, config.Chat{}, report.Failed, nil)
			e := pressing(c.by, c.action, c.button)
			e.Run.ID, e.Run.Status = 31, c.status
			if c.status == "completed" {
				e.Run.Conclusion = "failure"
			}
			w.press(guid, e)
			var want []forge.Check
			if c.restated {
				want = []forge.Check{{ID: 31, Name: "slipway/build", HeadSHA: "c0ffee", ExternalID: e.Run.ExternalID, Status: "completed", Conclusion: "failure"}}
			}
			if !reflect.DeepEqual(w.hub.restated, want) {
				t.Errorf("restated %+v, want %+v", w.hub.restated, want)
			}
		})
	}
}

// Re-run all checks runs each of ours again, as it is now: the configuration is
// judged anew and the build goes on.
func TestAllChecksAreRunAgain(t *testing.T) {
	w := worldAt(t, config.Chat{}, report.Failed, nil)
	run := pipeline.RunID("the-build") + ":c0ffee"
	w.hub.checks = []forge.Check{
		{Name: "slipway/build", HeadSHA: "c0ffee", ExternalID: "b-000000000000:c0ffee"}, // an older one
		{Name: "slipway/config", HeadSHA: "c0ffee", ExternalID: "config:c0ffee", Conclusion: "failure"},
		{Name: "slipway/build", HeadSHA: "c0ffee", ExternalID: run, Status: "completed", Conclusion: "failure"},
	}
	e := pressing(maintainer, "rerequested", "")
	e.Run, e.Suite = nil, &checkBody{HeadSHA: "c0ffee", App: numbered{42}}
	w.press(guid, e)
	if len(w.said()) != 1 || w.said()[0].Kind != pipeline.ResumeSignal {
		t.Errorf("told %+v", w.said())
	}
	if last := w.hub.checks[len(w.hub.checks)-1]; len(w.hub.checks) != 4 || last.Name != "slipway/config" || last.Conclusion != "success" {
		t.Errorf("checks %+v", w.hub.checks)
	}
	if len(w.hub.restated) != 1 || w.hub.restated[0].ExternalID != run {
		t.Errorf("restated %+v", w.hub.restated)
	}
	e.Suite.App = numbered{41}
	w.press("another", e)
	if len(w.said()) != 1 {
		t.Errorf("another App's suite: %+v", w.said())
	}
}

// A tracking comment that a person deletes comes back while the build is at
// work, in the words of the present; nothing else that is deleted does.
func TestADeletedTrackingComment(t *testing.T) {
	ours := account{"slipway-test[bot]", 77, "Bot"}
	marker := "<!-- slipway app=42 run=" + pipeline.RunID("the-build") + " -->"
	for name, c := range map[string]struct {
		state      report.State
		by, author account
		body       string
		back       bool
	}{
		"at work":                   {report.Running, maintainer, ours, "Slipway\n\n" + marker, true},
		"not begun":                 {report.Queued, maintainer, ours, "Slipway\n\n" + marker, true},
		"at a gate":                 {report.WaitingApproval, reader, ours, "Slipway\n\n" + marker, true},
		"of a build that ended":     {report.Failed, maintainer, ours, "Slipway\n\n" + marker, false},
		"deleted by the App":        {report.Running, ours, ours, "Slipway\n\n" + marker, false},
		"deleted by a bot":          {report.Running, renovate, ours, "Slipway\n\n" + marker, false},
		"a person's, with a marker": {report.Running, maintainer, reader, "> Slipway\n\n" + marker, false},
		"another answer of ours":    {report.Running, maintainer, ours, "<!-- slipway app=42 refused=build -->", false},
		"another App's run":         {report.Running, maintainer, ours, strings.Replace(marker, "42", "41", 1), false},
		"an unknown run":            {report.Running, maintainer, ours, "<!-- slipway app=42 run=b-000000000000 -->", false},
		"a command":                 {report.Running, maintainer, maintainer, "/cancel", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := worldAt(t, config.Chat{}, c.state, nil)
			w.hub.comments = nil
			e := commented(c.author, c.body)
			e.Action, e.Sender = "deleted", c.by
			w.deliver("d1", e)
			w.deliver("d1", e)
			if !c.back {
				w.commentsHold(0)
				return
			}
			w.commentsHold(1, "`"+pipeline.RunID("the-build")+"`")
			if got := w.hub.comments[0]; got.Marker != marker || got.Ticket != 12 {
				t.Errorf("comment %+v", got)
			}
			if len(w.said()) > 0 || len(w.hub.reactions) > 0 {
				t.Errorf("signals %+v, reactions %v", w.said(), w.hub.reactions)
			}
		})
	}
}
