package handlers_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

const head = "c0ffeec0ffeec0ffeec0ffeec0ffeec0ffeec0ff"

// asked13 is a comment on the pull request 13, which is a person's.
func asked13(by account, body string) event {
	e := commented(by, body)
	e.Issue.Number, e.Issue.PullRequest = 13, &struct{}{}
	return e
}

func newPullWorld(t *testing.T) *world {
	w := newWorld(t)
	w.untouched = true
	w.hub.pulls = map[int]forge.Pull{13: {Number: 13, State: "open", HeadSHA: head, URL: "https://github.com/o/r/pull/13"}}
	return w
}

// reviews are the requests of the reviews that were queued.
func (w *world) reviews() (all []pipeline.ReviewRequest) {
	w.Helper()
	for _, j := range w.shelf.jobs {
		if j.Kind != pipeline.KindReview {
			continue
		}
		var r pipeline.ReviewRequest
		if err := json.Unmarshal(j.Payload, &r); err != nil {
			w.Fatal(err)
		}
		if j.Key != "o/r#13" || j.Once != "o/r#13@"+head || j.Tenant != "7" || j.ID != r.Review {
			w.Errorf("job %+v", j)
		}
		all = append(all, r)
	}
	return all
}

func TestReviewOnAPullRequest(t *testing.T) {
	w := newPullWorld(t)
	e := asked13(triager, "/review --full --focus security,tests --severity high src/")
	w.deliver("d1", e)
	w.deliver("d1", e)
	got := w.reviews()
	if len(got) != 1 {
		t.Fatalf("%d reviews:\n%s", len(got), w.hub.bodies())
	}
	r := got[0]
	if !r.Full || !slices.Equal(r.Focus, []string{"security", "tests"}) || r.Severity != "high" || !slices.Equal(r.Paths, []string{"src/"}) ||
		r.Pull != 13 || r.By.Login != triager.Login || r.Trigger != (forge.Subject{Ticket: 13, Comment: 555}) || r.Comment.ID == 0 || !strings.Contains(r.Marker, r.Review) {
		t.Errorf("request %+v", r)
	}
	if len(w.hub.comments) != 1 || !strings.Contains(w.hub.comments[0].Body, "review queued") {
		t.Errorf("comments:\n%s", w.hub.bodies())
	}
	w.deliver("d2", asked13(maintainer, "/review"))
	if len(w.reviews()) != 1 || !strings.Contains(w.hub.bodies(), "being reviewed already") {
		t.Errorf("a second one of the same head:\n%s", w.hub.bodies())
	}
	w.shelf.finish()
	w.deliver("d3", asked13(maintainer, "/review"))
	if len(w.reviews()) != 2 || len(w.hub.comments) != 2 {
		t.Errorf("after the first ended: %d reviews, %d comments:\n%s", len(w.reviews()), len(w.hub.comments), w.hub.bodies())
	}
}

func TestReviewThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		by   account
		line string
		pull forge.Pull
		says string
	}{
		"by a reader":            {reader, "/review", forge.Pull{Number: 13, State: "open", HeadSHA: head}, "needs the role **triage**"},
		"to mend, by a triager":  {triager, "/review --fix", forge.Pull{Number: 13, State: "open", HeadSHA: head}, "needs the role **write**"},
		"of a closed one":        {maintainer, "/review", forge.Pull{Number: 13, State: "closed", HeadSHA: head}, "is closed"},
		"of one that is not had": {maintainer, "/review", forge.Pull{Number: 99}, "does not show"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t)
			w.hub.pulls = map[int]forge.Pull{c.pull.Number: c.pull}
			w.deliver("d1", asked13(c.by, c.line))
			if len(w.shelf.jobs) > 0 || !strings.Contains(w.hub.bodies(), c.says) || !slices.Contains(w.hub.reactions[forge.Subject{Ticket: 13, Comment: 555}], "confused") {
				t.Errorf("%d jobs:\n%s", len(w.shelf.jobs), w.hub.bodies())
			}
		})
	}
}

func TestReviewOnAnIssue(t *testing.T) {
	w := newPullWorld(t)
	w.hub.offer(w.hub.pulls[13])
	w.deliver("d1", commented(triager, "/review"))
	if len(w.reviews()) != 1 || !strings.Contains(w.hub.bodies(), "open Slipway pull request of this issue is reviewed: [#13]") {
		t.Errorf("%d reviews:\n%s", len(w.reviews()), w.hub.bodies())
	}

	w = newPullWorld(t)
	w.deliver("d1", commented(triager, "/review"))
	if len(w.shelf.jobs) > 0 || !strings.Contains(w.hub.bodies(), "needs the role **write**") {
		t.Errorf("a triager builds:\n%s", w.hub.bodies())
	}
	w.deliver("d2", commented(maintainer, "/review"))
	w.deliver("d2", commented(maintainer, "/review"))
	if w.request().Ticket.Number != 12 || !strings.Contains(w.hub.bodies(), "did what `/build` does") || len(w.hub.comments) != 3 {
		t.Errorf("without a pull request it is a build, and says so:\n%s", w.hub.bodies())
	}
}

// pullEvent is a pull_request event of 13.
type pullEvent struct {
	Action       string         `json:"action"`
	Number       int            `json:"number"`
	Pull         changeBody     `json:"pull_request"`
	Label        *named         `json:"label,omitempty"`
	Repository   repositoryBody `json:"repository"`
	Sender       account        `json:"sender"`
	Installation *numbered      `json:"installation,omitempty"`
}

type changeBody struct {
	Number int     `json:"number"`
	State  string  `json:"state"`
	Draft  bool    `json:"draft"`
	User   account `json:"user"`
	Head   struct {
		SHA string `json:"sha"`
	} `json:"head"`
}

func (w *world) pulled(id, action string, by account, change func(*pullEvent)) {
	w.Helper()
	like := newEvent(action, by)
	e := pullEvent{Action: action, Number: 13, Repository: like.Repository, Sender: by, Installation: like.Installation}
	e.Pull.Number, e.Pull.State, e.Pull.User, e.Pull.Head.SHA = 13, "open", reader, head
	if change != nil {
		change(&e)
	}
	payload, err := json.Marshal(e)
	if err != nil {
		w.Fatal(err)
	}
	w.handled = id
	if err := w.h.Handle(w.Context(), handlers.Delivery{ID: id, Event: "pull_request", Payload: payload}); err != nil {
		w.Fatal(err)
	}
}

// TestReviewLabel is consumed also where it is refused.
func TestReviewLabel(t *testing.T) {
	for name, c := range map[string]struct {
		by      account
		label   string
		reviews int
		gone    bool
	}{
		"by a triager":       {triager, "slipway:review", 1, true},
		"in other letters":   {triager, "Slipway:Review", 1, true},
		"by a reader":        {reader, "slipway:review", 0, true},
		"by a bot":           {renovate, "slipway:review", 0, true},
		"of something else":  {triager, "bug", 0, false},
		"the one for builds": {triager, "slipway:build", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t)
			w.pulled("d1", "labeled", c.by, func(e *pullEvent) { e.Label = &named{c.label} })
			if len(w.reviews()) != c.reviews || (len(w.hub.unlabeled) == 1) != c.gone {
				t.Errorf("%d reviews, removed %q", len(w.reviews()), w.hub.unlabeled)
			}
		})
	}
}

func TestReviewsByThemselves(t *testing.T) {
	draft := func(e *pullEvent) { e.Pull.Draft = true }
	for name, c := range map[string]struct {
		auto   bool
		action string
		by     account
		change func(*pullEvent)
		want   int
	}{
		"opened":                    {true, "opened", reader, nil, 1},
		"a draft opened":            {true, "opened", reader, draft, 0},
		"a push to a draft":         {true, "synchronize", reader, draft, 0},
		"ready":                     {true, "ready_for_review", reader, nil, 1},
		"a push":                    {true, "synchronize", reader, nil, 1},
		"opened, and it is not on":  {false, "opened", reader, nil, 0},
		"opened by a bot":           {true, "opened", renovate, nil, 0},
		"an edit of the title":      {true, "edited", reader, nil, 0},
		"opened by the App, itself": {true, "opened", account{"slipway-test[bot]", 77, "Bot"}, nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t)
			w.conf.Review.Auto = c.auto
			w.pulled("d1", c.action, c.by, c.change)
			w.pulled("d1", c.action, c.by, c.change)
			got := w.reviews()
			if len(got) != c.want {
				t.Fatalf("%d reviews, want %d", len(got), c.want)
			}
			if c.want > 0 && (got[0].By != forge.Person{} || got[0].Trigger != forge.Subject{} || len(w.hub.reactions) > 0) {
				t.Errorf("nobody asked, and yet %+v %v", got[0], w.hub.reactions)
			}
		})
	}
}

// TestReviewIsToldOf has a build and a review of one pull request: they are told
// of, and stopped, together.
func TestReviewIsToldOf(t *testing.T) {
	w := newPullWorld(t)
	w.deliver("d0", asked13(maintainer, "/status"))
	w.deliver("d1", asked13(triager, "/review"))
	w.deliver("d2", asked13(triager, "/status"))
	if !strings.Contains(w.hub.bodies(), "**Reviewing**") {
		t.Errorf("status:\n%s", w.hub.bodies())
	}
	w.deliver("d3", asked13(triager, "/cancel")) // who started it may
	review := pipeline.ReviewID("d1")
	if got := w.shelf.signals[review]; len(got) != 1 || got[0].Kind != pipeline.CancelSignal {
		t.Errorf("signals %v:\n%s", got, w.hub.bodies())
	}
	w.shelf.jobs = append(w.shelf.jobs, queue.Job{ID: "b-1", Kind: pipeline.KindBuild, Key: "o/r#12", Once: "o/r#12", State: queue.Running})
	w.hub.tickets = map[int]int{13: 12}
	e := asked13(maintainer, "/cancel")
	e.Issue.User, e.Issue.Body = account{}, nil
	w.deliver("d4", e)
	if len(w.shelf.signals["b-1"]) != 1 || len(w.shelf.signals[review]) != 2 {
		t.Errorf("both are open, and told: %v", w.shelf.signals)
	}
}

func TestReviewEndsWithItsPullRequest(t *testing.T) {
	w := newPullWorld(t)
	w.deliver("d1", asked13(triager, "/review"))
	w.hub.pulls[13] = forge.Pull{Number: 13, State: "open", HeadSHA: "b" + head[1:]}
	w.deliver("d2", asked13(triager, "/review"))
	closed := func(id string) { w.pulled(id, "closed", maintainer, func(e *pullEvent) { e.Pull.State = "closed" }) }
	closed("d3")
	if len(w.shelf.signals) > 0 {
		t.Errorf("it is open again by now, and its reviews were told %v", w.shelf.signals)
	}
	w.hub.gone = map[int]forge.Gone{13: {Why: "its pull request was closed"}}
	closed("d4")
	closed("d4")
	for _, d := range []string{"d1", "d2"} {
		var said pipeline.Said
		got := w.shelf.signals[pipeline.ReviewID(d)]
		if len(got) != 1 || got[0].Kind != pipeline.CancelSignal || json.Unmarshal(got[0].Body, &said) != nil || said.By.Login != maintainer.Login || said.Text != "its pull request was closed" {
			t.Errorf("signals %v", got)
		}
	}
}

func TestButtonsOfAReviewsCheck(t *testing.T) {
	press := func(w *world, id string, by account, action, button string) {
		e := pressing(by, action, button)
		e.Run.Name, e.Run.ExternalID = pipeline.ReviewCheckName, pipeline.ReviewID("d1")+":"+head
		w.press(id, e)
	}
	w := newPullWorld(t)
	w.deliver("d1", asked13(triager, "/review"))
	press(w, "d2", maintainer, "requested_action", "Cancel")
	if len(w.shelf.signals[pipeline.ReviewID("d1")]) != 1 {
		t.Errorf("Cancel: %v\n%s", w.shelf.signals, w.hub.bodies())
	}
	w.shelf.finish()
	press(w, "d3", reader, "rerequested", "")
	if len(w.reviews()) != 1 || !strings.Contains(w.hub.bodies(), "needs the role **triage**") {
		t.Errorf("Re-run by a reader:\n%s", w.hub.bodies())
	}
	press(w, "d4", triager, "rerequested", "")
	if got := w.reviews(); len(got) != 2 || !got[1].Full {
		t.Errorf("Re-run: %+v\n%s", got, w.hub.bodies())
	}
}

// TestReviewThatMends hands what is open on to a follow-up, once; a fork is only
// reviewed.
func TestReviewThatMends(t *testing.T) {
	w := newPullWorld(t)
	w.deliver("d1", asked13(maintainer, "/review --fix"))
	r := w.reviews()[0]
	if !r.Fix {
		t.Fatalf("request %+v", r)
	}
	open := []finding.Entry{{Finding: finding.Finding{Title: "A fault"}, ID: "1", Number: 4}}
	for range 2 {
		if deferred, err := w.h.Mend(t.Context(), r, open); err != nil || deferred {
			t.Fatal(deferred, err)
		}
	}
	builds, err := w.shelf.List(t.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}})
	if err != nil || len(builds) != 1 || builds[0].Once != "o/r#13" {
		t.Fatalf("%v, %d builds:\n%s", err, len(builds), w.hub.bodies())
	}
	var b pipeline.Request
	if err := json.Unmarshal(builds[0].Payload, &b); err != nil || b.Follow == nil || b.Follow.Work != pipeline.Findings || len(b.Follow.Findings) != 1 || b.By.Login != maintainer.Login {
		t.Errorf("%v, request %+v", err, b)
	}
	again := r
	again.Review = "r-2"
	if deferred, err := w.h.Mend(t.Context(), again, open); err != nil || !deferred || !strings.Contains(w.hub.bodies(), "works on this branch") {
		t.Errorf("beside an open build: %v\n%s", err, w.hub.bodies())
	}

	w = newPullWorld(t)
	w.hub.pulls[13] = forge.Pull{Number: 13, State: "open", HeadSHA: head, Fork: true}
	w.deliver("d1", asked13(maintainer, "/review --fix"))
	if got := w.reviews(); len(got) != 1 || got[0].Fix || !strings.Contains(w.hub.bodies(), "is in a fork") {
		t.Errorf("a fork: %+v\n%s", got, w.hub.bodies())
	}
}

// TestReviewAfterABuild ends a build on a pull request that was reviewed.
func TestReviewAfterABuild(t *testing.T) {
	const earlier = "beefbeefbeefbeefbeefbeefbeefbeefbeefbeef"
	open := finding.Entry{Finding: finding.Finding{Title: "A fault", Severity: finding.High}, ID: "1", Number: 4, Verdict: finding.Confirmed, State: finding.Open}
	for name, c := range map[string]struct {
		typed    string        // before; empty: nobody had it reviewed
		looked   report.Review // what came of that
		change   func(*world)
		reviewed bool // it is reviewed
		fix      bool // and mended after that
		mended   bool // it is mended at once
	}{
		"it pushed":                          {typed: "/review", looked: report.Review{Head: earlier}, reviewed: true},
		"it pushed, and --fix waits":         {typed: "/review --fix", looked: report.Review{Head: earlier, Deferred: true}, reviewed: true, fix: true},
		"it pushed, and --fix was done":      {typed: "/review --fix", looked: report.Review{Head: earlier}, reviewed: true},
		"it pushed nothing":                  {typed: "/review", looked: report.Review{Head: head}},
		"it pushed nothing, and --fix waits": {typed: "/review --fix", looked: report.Review{Head: head, Deferred: true, Findings: []finding.Entry{open}}, mended: true},
		"nobody had it reviewed":             {},
		"it is closed":                       {typed: "/review", looked: report.Review{Head: earlier}, change: func(w *world) { w.hub.pulls[13] = forge.Pull{Number: 13, State: "closed", HeadSHA: head} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t)
			if c.typed != "" {
				w.deliver("d1", asked13(maintainer, c.typed))
			}
			w.shelf.finish()
			w.looked = c.looked
			if c.change != nil {
				c.change(w)
			}
			before := len(w.reviews())
			build := pipeline.Request{Build: "b-1", Ticket: forge.Ticket{Number: 12}, Follow: &pipeline.Follow{Pull: w.hub.pulls[13], Branch: "b"}}
			for range 2 {
				if err := w.h.ReviewAfter(t.Context(), forge.Repo{Owner: "o", Name: "r", ID: 3, Installation: 7}, build, report.Build{Head: head}); err != nil {
					t.Fatal(err)
				}
			}
			all := w.reviews()
			if got := len(all) > before; got != c.reviewed || len(all) > before+1 {
				t.Fatalf("%d reviews, before %d:\n%s", len(all), before, w.hub.bodies())
			}
			if c.reviewed && (all[before].Fix != c.fix || all[before].By.Login == maintainer.Login != c.fix || all[before].Full) {
				t.Errorf("the review: %+v", all[before])
			}
			builds, err := w.shelf.List(t.Context(), queue.Query{Kinds: []string{pipeline.KindBuild}})
			if err != nil || len(builds) > 0 != c.mended || len(builds) > 1 {
				t.Errorf("%d builds, %v", len(builds), err)
			}
		})
	}
}

// TestAForksCommitIsAllowed has the head of a fork's pull request named, by people
// with and without a say, whole and in part.
func TestAForksCommitIsAllowed(t *testing.T) {
	for name, c := range map[string]struct {
		by    account
		typed string
		says  string // instead of a review
	}{
		"by a maintainer": {maintainer, "/approve " + head, ""},
		"in capitals":     {maintainer, "/approve " + strings.ToUpper(head) + " thanks", ""},
		"in part":         {maintainer, "/approve " + head[:12], "Name it whole"},
		"another commit":  {maintainer, "/approve " + strings.Repeat("0", 40), "Name it whole"},
		"none":            {maintainer, "/approve", "Name it whole"},
		"by a triager":    {triager, "/approve " + head, "needs the role **write**"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPullWorld(t)
			w.hub.pulls[13] = forge.Pull{Number: 13, State: "open", HeadSHA: head, Fork: true}
			for range 2 {
				w.deliver("d1", asked13(c.by, c.typed))
			}
			got := w.reviews()
			if c.says != "" {
				if len(got) != 0 || !strings.Contains(w.hub.bodies(), c.says) {
					t.Errorf("%d reviews:\n%s", len(got), w.hub.bodies())
				}
				return
			}
			if len(got) != 1 || got[0].Allowed == nil || *got[0].Allowed != (pipeline.ReviewAllowance{Commit: head, By: maintainer.Login}) {
				t.Fatalf("%+v\n%s", got, w.hub.bodies())
			}
			w.shelf.finish()
			w.deliver("d2", asked13(triager, "/review"))
			if got = w.reviews(); len(got) != 2 || got[1].Allowed == nil || got[1].Allowed.By != maintainer.Login || got[1].By.Login != triager.Login {
				t.Errorf("the next review of the commit: %+v", got)
			}
			w.shelf.finish()
			w.hub.pulls[13] = forge.Pull{Number: 13, State: "open", HeadSHA: strings.Replace(head, "c", "d", 1), Fork: true}
			w.deliver("d3", asked13(maintainer, "/review"))
			var last pipeline.ReviewRequest
			if err := json.Unmarshal(w.shelf.jobs[len(w.shelf.jobs)-1].Payload, &last); err != nil || last.Allowed != nil {
				t.Errorf("another commit: %+v, %v", last, err)
			}
		})
	}
}
