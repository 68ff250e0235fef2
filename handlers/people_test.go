package handlers_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/handlers"
	"github.com/slipway-dev/slipway/handlers/command"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// atWork are lines that every build's state has a use for, and the state.
var atWork = map[command.Name]struct {
	line  string
	role  forge.Role // the least, as the product says
	state report.State
	gate  *report.Gate
}{
	command.Build:   {"/build", forge.Write, "", nil},
	command.Review:  {"/review", forge.Triage, "", nil},
	command.Fix:     {"/fix ci", forge.Write, "", nil},
	command.Approve: {"/approve 0123456", forge.Write, report.WaitingApproval, planGate},
	command.Revise:  {"/revise smaller", forge.Write, report.WaitingApproval, planGate},
	command.Reject:  {"/reject", forge.Write, report.WaitingApproval, planGate},
	command.Answer:  {"/answer yes", forge.Write, report.WaitingAnswer, questionGate},
	command.Steer:   {"/steer mind the API", forge.Write, report.Running, nil},
	command.Cancel:  {"/cancel", forge.Write, report.Running, nil},
	command.Resume:  {"/resume", forge.Write, report.Failed, nil},
	command.Status:  {"/status", forge.Triage, report.Running, nil},
	command.Config:  {"/config", forge.Read, "", nil},
	command.Help:    {"/help", forge.Read, "", nil},
}

// did are the jobs, signals and comments that came of what was typed last.
func (w *world) did(before int) (work, comments int) {
	for id, s := range w.shelf.signals {
		if id != "" {
			work += len(s)
		}
	}
	for _, j := range w.shelf.jobs {
		if j.ID != "" {
			work++
		}
	}
	return work, len(w.hub.comments) - before
}

func worldAt(t *testing.T, chat config.Chat, state report.State, gate *report.Gate) *world {
	w := newWorldOf(t, chat)
	if state == "" {
		return w
	}
	w.deliver("the-build", commented(maintainer, w.typed("/build")))
	w.account.State, w.account.Gate = state, gate
	if state.Final() {
		w.shelf.finish()
	}
	clear(w.hub.reactions)
	return w
}

// typed is a line with the world's own prefix.
func (w *world) typed(line string) string {
	if w.h.Chat.Prefix == "/" {
		return line
	}
	return w.h.Chat.Prefix + strings.TrimPrefix(line, "/")
}

// Every command by everybody: who may is served, who may not is told once which
// role it takes, and a machine is not heard at all.
func TestEveryCommandByEverybody(t *testing.T) {
	for _, spec := range command.All() { // also one that was added since
		if _, tried := atWork[spec.Name]; !tried {
			t.Errorf("nobody tries %s", spec.Name)
		}
	}
	type who struct {
		by   account
		role forge.Role
		app  *numbered // through which it was written
		deaf bool      // nothing comes of it
	}
	everybody := map[string]who{
		"the App":                      {account{"slipway-test[bot]", 77, "Bot"}, forge.Admin, nil, true},
		"the App, as the API has it":   {account{"app/slipway-test", 77, "Bot"}, forge.Admin, nil, true},
		"the App, by its bare name":    {account{"slipway-test", 77, "User"}, forge.Admin, nil, true},
		"the App, by its number":       {account{"mallory", 78, "User"}, forge.Admin, &numbered{42}, true},
		"a bot":                        {account{"dependabot[bot]", 79, "Bot"}, forge.Admin, nil, true},
		"a suspended account":          {account{"gone", 80, "User"}, forge.None, nil, false}, // of which GitHub says none
		"a custom role on read":        {account{"guest", 81, "User"}, forge.Read, nil, false},
		"a custom role on write":       {account{"guest", 82, "User"}, forge.Write, nil, false},
		"somebody through another App": {account{"mona-mobile", 83, "User"}, forge.Write, &numbered{4711}, false},
	}
	for role := forge.None; role <= forge.Admin; role++ {
		everybody[role.String()] = who{account{"somebody", 90 + int64(role), "User"}, role, nil, false}
	}
	for name, at := range atWork {
		if spec, _ := command.Of(name); spec.Role != at.role {
			t.Errorf("%s takes %s, want %s", name, spec.Role, at.role)
		}
		for title, p := range everybody {
			t.Run(string(name)+" by "+title, func(t *testing.T) {
				w := worldAt(t, config.Chat{}, at.state, at.gate)
				w.hub.roles[p.by.ID] = p.role
				if name == command.Review {
					w.hub.offer(forge.Pull{Number: 13, State: "open", HeadSHA: "c0ffee"})
				}
				if name == command.Fix {
					w.hub.pull = &forge.Pull{Number: ourPull, State: "open", Head: "slipway/12-greet", Base: "main"}
				}
				work, _ := w.did(0)
				before := len(w.hub.comments)
				w.hub.calls = nil
				e := commented(p.by, at.line)
				e.Comment.App = p.app
				w.deliver("d1", e)
				if err := w.try("d2", e); err != nil && !waits(err) {
					t.Fatal(err)
				}
				after, comments := w.did(before)
				switch {
				case p.deaf:
					if len(w.hub.calls) > 0 || after != work {
						t.Fatalf("calls %v, %d new jobs and signals", w.hub.calls, after-work)
					}
				case p.role < at.role:
					w.reacted(onComment, "confused")
					if after != work || comments != 1 || !strings.Contains(w.hub.comments[before].Body, "needs the role **"+at.role.String()+"**") {
						t.Fatalf("%d new jobs and signals, %d comments:\n%s", after-work, comments, w.hub.bodies())
					}
				default:
					if strings.Contains(w.hub.bodies(), "needs the role") || !slices.Contains(w.hub.reactions[onComment], "eyes") {
						t.Fatalf("refused: %v\n%s", w.hub.reactions, w.hub.bodies())
					}
					if at.role == forge.Write && after == work {
						t.Fatalf("nothing came of it:\n%s", w.hub.bodies())
					}
				}
			})
		}
	}
}

// How a comment may look around the command, for every command.
func TestEveryCommandInEveryShape(t *testing.T) {
	shapes := map[string]struct {
		shape string // with the line in place of %s
		heard bool
	}{
		"alone":                       {"%s", true},
		"with Windows line ends":      {"%s\r\n", true},
		"blanks behind":               {"%s  \t", true},
		"text behind":                 {"%s now please", true},
		"prose behind":                {"%s\n\nThank you!", true},
		"a quote behind":              {"%s\r\n\r\n> what was said", true},
		"quoted":                      {"> %s", false},
		"quoted without a blank":      {">%s", false},
		"fenced":                      {"```\n%s\n```", false},
		"fenced with tildes":          {"~~~\n%s\n~~~", false},
		"as code":                     {"    %s", false},
		"in a span":                   {"`%s`", false},
		"in the middle of a line":     {"please %s", false},
		"in the second line":          {"Hello\n%s", false},
		"in the second, Windows":      {"Hello\r\n%s", false},
		"after an empty line":         {"\n%s", false},
		"in a list":                   {"- %s", false},
		"in a hidden comment":         {"<!-- %s -->", false},
		"after a hidden comment":      {"<!-- x -->\n%s", false},
		"after a zero-width space":    {"\u200b%s", false},
		"with a right-to-left switch": {"\u202e%s", false},
	}
	for name, at := range atWork {
		for title, s := range shapes {
			for _, action := range []string{"created", "edited"} {
				t.Run(string(name)+" "+title+" "+action, func(t *testing.T) {
					w := worldAt(t, config.Chat{}, at.state, at.gate)
					w.hub.calls = nil
					e := commented(maintainer, fmt.Sprintf(s.shape, at.line))
					e.Action = action
					w.deliver(guid, e)
					if heard := len(w.hub.calls) > 0; heard != (s.heard && action == "created") {
						t.Fatalf("heard %v:\n%s", heard, w.hub.bodies())
					}
					if strings.Contains(w.hub.bodies(), "cannot read this command") {
						t.Fatalf("not understood:\n%s", w.hub.bodies())
					}
				})
			}
		}
	}
}

// Whatever the prefix is, every text offers what works.
func TestAnotherPrefixIsInEveryText(t *testing.T) {
	for _, prefix := range []string{"/slipway ", "@slipway "} {
		for name, at := range atWork {
			t.Run(prefix+string(name), func(t *testing.T) {
				w := worldAt(t, config.Chat{Prefix: prefix}, at.state, at.gate)
				for id, line := range []string{at.line, "/status", "/resume", "/answer x", "/approve abc", "/biuld", "/build --fats"} {
					w.deliver(fmt.Sprint(id), commented(maintainer, w.typed(line)))
				}
				w.deliver("stranger", commented(reader, w.typed("/build")))
				if len(w.hub.comments) < 4 || !strings.Contains(w.hub.bodies(), "`"+prefix) {
					t.Fatalf("comments:\n%s", w.hub.bodies())
				}
				for _, s := range command.All() {
					if strings.Contains(w.hub.bodies(), "`/"+string(s.Name)) {
						t.Errorf("offers `/%s`:\n%s", s.Name, w.hub.bodies())
					}
				}
				if len(w.shelf.jobs) > 0 && !strings.Contains(string(w.shelf.jobs[0].Payload), `"prefix":"`+prefix+`"`) {
					t.Errorf("the build does not know: %s", w.shelf.jobs[0].Payload)
				}
			})
		}
	}
}

func TestConfigPrintsEachValueAndItsOrigin(t *testing.T) {
	w := newWorld(t)
	own, err := config.Parse([]byte("limits: {usd_per_build: 3}\ncommands: {test: 'make | tee log'}\n"), ".github/slipway.yml")
	if err != nil {
		t.Fatal(err)
	}
	w.conf = own.Over(config.Defaults())
	w.deliver("d1", commented(reader, "/config"))
	w.commentsHold(1, "| `limits.usd_per_build` | `3` | `.github/slipway.yml` |", "| `commands.test` | `make \\| tee log` |", "| `build.label` | `slipway:build` | `default` |")
	w.reacted(onComment, "eyes", "rocket")
	for _, s := range w.conf.Settings() {
		if !strings.Contains(w.hub.bodies(), "| `"+s.Key+"` |") {
			t.Errorf("no %s", s.Key)
		}
	}
	_, w.broken = config.Parse([]byte("limits:\n  usd_per_biuld: '<b>@mona</b>'\n"), ".github/slipway.yml")
	w.deliver("d2", commented(reader, "/config"))
	w.commentsHold(2, "line 2: `limits.usd_per_biuld`: unknown key", "no build starts before it is mended")
	w.broken = errors.New("GitHub is down")
	if err := w.try("d3", commented(reader, "/config")); !errors.Is(err, w.broken) {
		t.Errorf("error %v", err)
	}
	w.commentsHold(2)
}

// One more than a person may type is answered, those that follow are not; what
// spends can be stopped all the same, by whoever may.
func TestWhoTypesTooMuch(t *testing.T) {
	w := newWorldOf(t, config.Chat{PerHour: 3})
	w.deliver("d1", commented(maintainer, "/build"))
	w.deliver("d1", commented(maintainer, "/build")) // again, which is one
	w.deliver("d2", commented(maintainer, "/status"))
	w.deliver("d3", commented(maintainer, "/biuld"))
	w.commentsHold(3)
	clear(w.hub.reactions)
	w.deliver("d4", commented(maintainer, "/status"))
	w.commentsHold(4, "more than 3 commands within an hour")
	w.reacted(onComment, "confused")
	w.hub.calls = nil
	w.deliver("d5", commented(maintainer, "/status"))
	w.deliver("d6", commented(maintainer, "/stauts"))
	w.deliver("d7", labeled(maintainer, "slipway:build"))
	if !slices.Equal(w.hub.calls, []string{"unlabel"}) {
		t.Fatalf("calls %v", w.hub.calls)
	}
	w.deliver("d4", commented(maintainer, "/status")) // a worker died after the answer
	w.commentsHold(4)

	w.deliver("d8", commented(maintainer, "/cancel"))
	w.commentsHold(4)
	if work, _ := w.did(0); work != 2 {
		t.Fatalf("not cancelled: %+v", w.shelf.signals)
	}
	w.deliver("r1", commented(triager, "/status"))
	w.commentsHold(5) // of another person nothing was counted

	for i := range 5 {
		w.deliver(fmt.Sprintf("x%d", i), commented(reader, "/cancel"))
	}
	w.commentsHold(7, "needs the role **write**", "`/cancel` was not done: `visitor` typed more than 3")
}

var renovate = account{"renovate[bot]", 95, "Bot"}

// A bot on the list starts builds, so many a day; and never what another Slipway
// wrote, so that two of them cannot talk to each other.
func TestABotOnTheList(t *testing.T) {
	chat := config.Chat{Bots: []string{"renovate"}, BotsPerDay: 2}
	w := newWorldOf(t, chat)
	w.deliver("d1", commented(renovate, "/build"))
	if by := w.request().By; by.Login != renovate.Login || !by.Bot {
		t.Fatalf("asked for by %+v", by)
	}
	w.reacted(onComment, "eyes")
	w.deliver("d2", labeled(renovate, "slipway:build"))
	w.commentsHold(2, "being built already")
	w.deliver("d3", commented(renovate, "/status"))
	w.commentsHold(3, "more than 2 commands within a day")
	w.hub.calls = nil
	w.deliver("d4", commented(renovate, "/status"))
	if len(w.hub.calls) > 0 {
		t.Fatalf("calls %v", w.hub.calls)
	}
	for name, e := range map[string]event{
		"another bot":                       commented(account{"dependabot[bot]", 80, "Bot"}, "/build"),
		"the App":                           commented(account{"slipway-test[bot]", 77, "Bot"}, "/build"),
		"a Slipway on the list":             commented(renovate, "/build\n\n<!-- slipway app=41 run=b-0123456789ab -->"),
		"a Slipway on the list, unreadable": commented(renovate, "/biuld\n\n<!-- slipway app=41 run=b-0123456789ab -->"),
		"somebody who is called like a bot": commented(account{"renovate", 96, "User"}, "/nothing"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, chat)
			w.deliver(guid, e)
			if len(w.hub.calls) > 0 || len(w.shelf.jobs) > 0 {
				t.Fatalf("calls %v, %d jobs", w.hub.calls, len(w.shelf.jobs))
			}
		})
	}
	t.Run("a person who has a bot's name has a person's role", func(t *testing.T) {
		w := newWorldOf(t, chat)
		w.deliver(guid, commented(account{"renovate", 96, "User"}, "/build"))
		w.commentsHold(1, "needs the role **write**")
	})
	t.Run("a person may quote a Slipway", func(t *testing.T) {
		w := newWorldOf(t, chat)
		w.deliver(guid, commented(maintainer, "/build\n\n> done <!-- slipway app=41 run=b-0123456789ab -->"))
		w.request()
	})
	t.Run("no cap is no bot", func(t *testing.T) {
		w := newWorldOf(t, config.Chat{Bots: []string{"renovate"}})
		w.deliver(guid, commented(renovate, "/build"))
		if len(w.shelf.jobs) > 0 {
			t.Fatalf("%d jobs", len(w.shelf.jobs))
		}
	})
	t.Run("the App itself cannot be listed", func(t *testing.T) {
		o := w.h.Options
		o.Chat.Bots = []string{"slipway-test"}
		if _, err := handlers.New(o); err == nil || !strings.Contains(err.Error(), "this App itself") {
			t.Fatalf("error %v", err)
		}
	})
}

// proposes is a pull_request event.
type proposes struct {
	Action       string         `json:"action"`
	Number       int            `json:"number"`
	PullRequest  any            `json:"pull_request"`
	Repository   repositoryBody `json:"repository"`
	Sender       account        `json:"sender"`
	Installation *numbered      `json:"installation,omitempty"`
}

func (w *world) propose(action string) {
	w.Helper()
	like := newEvent("", reader)
	payload, err := json.Marshal(proposes{
		Action: action, Number: 31, Repository: like.Repository, Sender: reader, Installation: like.Installation,
		PullRequest: map[string]any{"number": 31, "head": map[string]string{"sha": "c0ffee"}},
	})
	if err != nil {
		w.Fatal(err)
	}
	if err := w.h.Handle(w.Context(), handlers.Delivery{ID: guid, Event: "pull_request", Payload: payload}); err != nil {
		w.Fatal(err)
	}
}

func TestAConfigurationThatAPullRequestBrings(t *testing.T) {
	for action, judged := range map[string]bool{"opened": true, "reopened": true, "synchronize": true, "closed": false, "edited": false, "labeled": false} {
		w := newWorld(t)
		w.propose(action)
		if (len(w.hub.checks) == 1) != judged {
			t.Errorf("%s: checks %+v", action, w.hub.checks)
		}
	}
	w := newWorld(t)
	w.propose("opened")
	if c := w.hub.checks[0]; c.Name != "slipway/config" || c.HeadSHA != "c0ffee" || c.ExternalID != "config:c0ffee" || c.Conclusion != "success" || len(c.Notes) > 0 {
		t.Errorf("a good one: %+v", c)
	}
	_, w.broken = config.Parse([]byte("limits:\n  usd_per_biuld: 3\n\nruntime: \"\\u202e@mona\"\n"), ".github/slipway.yml")
	w.propose("synchronize")
	c := w.hub.checks[1]
	want := []forge.Note{
		{Path: ".github/slipway.yml", Line: 2, Level: "failure", Title: "limits.usd_per_biuld"},
		{Path: ".github/slipway.yml", Line: 4, Level: "failure", Title: "runtime"},
	}
	if c.Conclusion != "failure" || c.Title != "2 problems" || len(c.Notes) != len(want) {
		t.Fatalf("a bad one: %+v", c)
	}
	for i, n := range c.Notes {
		if n.Text == "" || strings.ContainsRune(n.Text, '\u202e') {
			t.Errorf("text %q", n.Text)
		}
		if n.Text = ""; n != want[i] {
			t.Errorf("note %+v, want %+v", n, want[i])
		}
	}
	_, w.broken = config.Parse([]byte("wrong: 1\n"), "slipway.yml of harbour/.github")
	w.propose("synchronize")
	if c := w.hub.checks[2]; c.Conclusion != "neutral" || len(c.Notes) > 0 || !strings.Contains(c.Summary, "`slipway.yml of harbour/.github` cannot be read") {
		t.Errorf("a mistake that stands elsewhere: %+v", c)
	}
	_, err := config.Parse([]byte("wrong: 1\n"), "slipway.yml")
	w.beside = []handlers.Proposal{{File: "slipway.yml"}}
	if !errors.As(err, &w.beside[0].Wrong) {
		t.Fatal(err)
	}
	w.propose("synchronize")
	if c := w.hub.checks[3]; c.Conclusion != "failure" || c.Title != "1 problem" || len(c.Notes) != 1 || c.Notes[0].Path != "slipway.yml" {
		t.Errorf("two files: %+v", c)
	}
	w.untouched = true
	w.propose("synchronize")
	if len(w.hub.checks) != 4 {
		t.Errorf("one that leaves it alone: %+v", w.hub.checks[4:])
	}
}
