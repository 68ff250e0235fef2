package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/bradleyfalzon/ghinstallation/v2"
	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// A flow is what one maintainer does with one ticket, told as it happens: after
// each step follows all that Slipway wrote since the step before, to the byte but
// for what differs each time. Each has an account of its own, so that no flow
// waits for another's turn to write, and a person to greet, by whom the agents
// know it.
type flow struct {
	*testing.T
	*server
	owner  string
	name   string // of the repository
	hub    *github.Client
	tokens *ghinstallation.Transport // for git
	ticket int
	told   strings.Builder
	seen   map[string]string // what GitHub showed at the last look
}

// newFlow sets a repository up, with these settings of its own, and a ticket.
func (s *server) newFlow(t *testing.T, who string, spec githubsim.RepoSpec, settings string) *flow {
	t.Helper()
	f := &flow{T: t, server: s, owner: strings.ToLower(who) + "-inc", name: "greeter", seen: map[string]string{}}
	spec.Owner, spec.Name = f.owner, f.name
	files := checked(green)
	files[".github/slipway.yml"] += settings
	maps.Copy(files, spec.Files)
	spec.Files = files
	_, err := s.sim.CreateUser(t.Context(), githubsim.UserSpec{Login: f.owner, Type: "Organization"})
	must(t, err)
	_, err = s.sim.CreateRepo(t.Context(), spec)
	must(t, err)
	for login, role := range map[string]string{"mira": "write", "rita": "read"} {
		_, err := s.sim.SetRole(t.Context(), githubsim.RoleSpec{Repo: f.repo(), Login: login, Role: role})
		must(t, err)
	}
	f.tokens, f.hub = client(t, githubsim.Remote{URL: s.sim.URL()}, f.owner, f.name)
	opened, err := s.sim.OpenTicket(t.Context(), githubsim.TicketSpec{Repo: f.repo(), Title: "Greet " + who, Body: "By name.", By: "mira"})
	must(t, err)
	f.ticket = opened.Number
	return f
}

func (f *flow) repo() string { return f.owner + "/" + f.name }

// says comments on the ticket.
func (f *flow) says(by, body string) {
	f.Helper()
	fmt.Fprintf(&f.told, "# %s says %q\n\n", by, body)
	_, err := f.sim.Comment(f.Context(), githubsim.CommentSpec{Repo: f.repo(), Number: f.ticket, By: by, Body: body})
	must(f.T, err)
}

// asks is says, and returns when it was answered.
func (f *flow) asks(by, body string) {
	f.Helper()
	f.says(by, body)
	f.until("answer to "+body, f.answered)
	f.look()
}

// answered reports whether the last thing that a person said has its reaction.
func (f *flow) answered() bool {
	f.Helper()
	said := slices.DeleteFunc(f.comments(), func(c *github.IssueComment) bool { return c.GetUser().GetLogin() == "slipway[bot]" })
	if len(said) == 0 {
		return true
	}
	put := f.reactions(said[len(said)-1].GetID())
	return strings.Contains(put, "rocket") || strings.Contains(put, "confused")
}

func (f *flow) until(what string, done func() bool) {
	f.Helper()
	until(f.T, 3*time.Minute, "there is no "+what, done)
}

// comes returns when the newest build stands so, and nobody works on it.
func (f *flow) comes(state report.State) (b report.Build) {
	f.Helper()
	f.until(string(state), func() bool {
		builds := f.builds()
		if len(builds) == 0 || builds[0].State != queue.Parked && !builds[0].State.Finished() {
			return false
		}
		var err error
		b, err = pipeline.Read(f.Context(), f.store, builds[0].ID)
		must(f.T, err)
		if b.State.Final() && !f.answered() {
			return false
		}
		if b.State.Final() && b.State != state && f.builds()[0].State.Finished() { // what was said since may have resumed it
			f.Fatalf("the build ends as %s: %s", b.State, b.Cause)
		}
		return b.State == state
	})
	f.look()
	return b
}

// builds are those of the ticket, the newest first.
func (f *flow) builds() []queue.Job {
	f.Helper()
	jobs, err := f.store.List(f.Context(), queue.Query{Kinds: pipeline.Kinds(), Key: fmt.Sprintf("%s#%d", f.repo(), f.ticket)})
	must(f.T, err)
	return jobs
}

// look tells what is new on GitHub.
func (f *flow) look() {
	f.Helper()
	now := f.shown()
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if now[key] != f.seen[key] {
			fmt.Fprintf(&f.told, "## %s\n\n%s\n\n", key[strings.Index(key, " ")+1:], abridged(strings.TrimRight(now[key], "\n")))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.seen)) {
		if _, still := now[key]; !still {
			fmt.Fprintf(&f.told, "## gone: %s\n\n", key[strings.Index(key, " ")+1:])
		}
	}
	f.seen = now
}

// abridged leaves out the middle of what is far too long to be read.
func abridged(text string) string {
	lines := strings.Split(text, "\n")
	const head, tail = 60, 40
	if left := len(lines) - head - tail; left > tail {
		lines = slices.Concat(lines[:head], []string{fmt.Sprintf("(%d lines in between)", left)}, lines[head+left:])
	}
	return strings.Join(lines, "\n")
}

// shown is all that there is to see of Slipway. The keys begin with a word to
// sort them by.
func (f *flow) shown() map[string]string {
	f.Helper()
	all := map[string]string{}
	issue, _, err := f.hub.Issues.Get(f.Context(), f.owner, f.name, f.ticket)
	must(f.T, err)
	for _, l := range issue.Labels {
		all["0 label"] += l.GetName() + "\n"
	}
	reactions, _, err := f.hub.Reactions.ListIssueReactions(f.Context(), f.owner, f.name, f.ticket, nil)
	must(f.T, err)
	if len(reactions) > 0 {
		all["0 reactions to the ticket"] = contents(reactions)
	}
	for _, c := range f.comments() {
		if by := c.GetUser().GetLogin(); by == "slipway[bot]" {
			all[fmt.Sprintf("2-%09d comment of %s", c.GetID(), by)] = c.GetBody()
		} else if put := f.reactions(c.GetID()); put != "" {
			all[fmt.Sprintf("1-%09d reactions to %q of %s", c.GetID(), c.GetBody(), by)] = put
		}
	}
	pulls, _, err := f.hub.PullRequests.List(f.Context(), f.owner, f.name, &github.PullRequestListOptions{State: "all"})
	must(f.T, err)
	for _, p := range pulls {
		f.pull(all, p)
	}
	return all
}

// pull is what there is to see of a pull request, its checks and its commits.
func (f *flow) pull(all map[string]string, p *github.PullRequest) {
	f.Helper()
	n, head := p.GetNumber(), p.GetHead().GetSHA()
	all[fmt.Sprintf("3 pull request %d", n)] = fmt.Sprintf("%s\n%s ← %s at %s, draft: %t", p.GetTitle(), p.GetBase().GetRef(), p.GetHead().GetRef(), head, p.GetDraft())
	all[fmt.Sprintf("4 body of pull request %d", n)] = p.GetBody()
	f.checks(all, head, "")
	f.said(all, n)
	for sha := head; sha != p.GetBase().GetSHA(); {
		c, _, err := f.hub.Repositories.GetCommit(f.Context(), f.owner, f.name, sha, nil)
		must(f.T, err)
		all[fmt.Sprintf("6 commits of pull request %d", n)] += fmt.Sprintf("%s by %s <%s>\n\n%s\n\n", sha, c.GetCommit().GetAuthor().GetName(), c.GetCommit().GetAuthor().GetEmail(), c.GetCommit().GetMessage())
		if sha != head {
			f.checks(all, sha, " of an earlier commit "+sha[:10])
		}
		sha = c.Parents[len(c.Parents)-1].GetSHA() // into what was merged
	}
}

// checks are the newest check runs on a commit.
func (f *flow) checks(all map[string]string, commit, of string) {
	f.Helper()
	runs, _, err := f.hub.Checks.ListCheckRunsForRef(f.Context(), f.owner, f.name, commit, nil)
	must(f.T, err)
	for _, r := range runs.CheckRuns {
		if r.GetApp().GetSlug() != "slipway" {
			continue
		}
		out := r.GetOutput()
		all["5 check run "+r.GetName()+of] = fmt.Sprintf("on %s, external id %s: %s, %s\n\n%s\n\n%s\n\n%s%s",
			r.GetHeadSHA(), r.GetExternalID(), r.GetStatus(), r.GetConclusion(), out.GetTitle(), out.GetSummary(), out.GetText(), f.annotations(r))
	}
}

// annotations are what a check run says beside lines.
func (f *flow) annotations(r *github.CheckRun) (told string) {
	f.Helper()
	if r.GetOutput().GetAnnotationsCount() == 0 {
		return ""
	}
	all, _, err := f.hub.Checks.ListCheckRunAnnotations(f.Context(), f.owner, f.name, r.GetID(), nil)
	must(f.T, err)
	for _, a := range all {
		told += fmt.Sprintf("\n\nbeside %s:%d, as %s: %s\n%s", a.GetPath(), a.GetStartLine(), a.GetAnnotationLevel(), a.GetTitle(), a.GetMessage())
	}
	return told
}

// said are the reviews of a pull request and the remarks in them. Of an answer in a
// thread GitHub makes a review without a text of its own.
func (f *flow) said(all map[string]string, pull int) {
	f.Helper()
	reviews, _, err := f.hub.PullRequests.ListReviews(f.Context(), f.owner, f.name, pull, nil)
	must(f.T, err)
	for _, r := range reviews {
		if r.GetUser().GetLogin() == "slipway[bot]" && r.GetBody() != "" {
			all[fmt.Sprintf("7-%09d review, %s", r.GetID(), r.GetState())] = fmt.Sprintf("of %s\n\n%s", r.GetCommitID(), r.GetBody())
		}
	}
	remarks, _, err := f.hub.PullRequests.ListComments(f.Context(), f.owner, f.name, pull, nil)
	must(f.T, err)
	for _, m := range remarks {
		place, what := fmt.Sprintf("%s:%d", m.GetPath(), m.GetLine()), "remark"
		if m.StartLine != nil {
			place = fmt.Sprintf("%s:%d-%d", m.GetPath(), m.GetStartLine(), m.GetLine())
		}
		if m.InReplyTo != nil {
			what = "answer in the thread"
		}
		key := fmt.Sprintf("8-%09d %s at %s, %s", m.GetID(), what, place, m.GetSide())
		if m.GetUser().GetLogin() == "slipway[bot]" {
			all[key] = m.GetBody()
		} else if put, _, err := f.hub.Reactions.ListPullRequestCommentReactions(f.Context(), f.owner, f.name, m.GetID(), nil); err == nil && len(put) > 0 {
			all[fmt.Sprintf("8-%09d reactions to %q of %s", m.GetID(), m.GetBody(), m.GetUser().GetLogin())] = contents(put)
		}
	}
}

func (f *flow) comments() []*github.IssueComment {
	f.Helper()
	all, _, err := f.hub.Issues.ListComments(f.Context(), f.owner, f.name, f.ticket, &github.IssueListCommentsOptions{ListOptions: github.ListOptions{PerPage: 100}})
	must(f.T, err)
	return all
}

func (f *flow) reactions(comment int64) string {
	f.Helper()
	all, _, err := f.hub.Reactions.ListIssueCommentReactions(f.Context(), f.owner, f.name, comment, nil)
	must(f.T, err)
	return contents(all)
}

func contents(all []*github.Reaction) string {
	var words []string
	for _, r := range all {
		words = append(words, r.GetContent()+" of "+r.GetUser().GetLogin())
	}
	return strings.Join(words, "\n")
}

// tells compares the story with the golden one.
func (f *flow) tells() {
	f.Helper()
	got := strings.TrimRight(normal(f.told.String(), f.sim.URL()), "\n") + "\n"
	file := filepath.Join("testdata", "golden", strings.ReplaceAll(strings.ToLower(filepath.Base(f.Name())), "_", "-")+".md")
	if *update {
		must(f.T, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	must(f.T, err)
	if got == string(want) {
		return
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	for i := range min(len(is), len(was)) {
		if is[i] != was[i] {
			f.Fatalf("%s:%d: got\n%s\nwant\n%s\n\nthe whole story:\n%s", file, i+1, is[i], was[i], got)
		}
	}
	f.Fatalf("%s: got\n%s", file, got)
}

// What differs each time: who the numbers belong to is told all the same.
var volatile = []struct {
	pattern *regexp.Regexp
	name    string // in its place, with %d where the first is told from the second
}{
	{regexp.MustCompile(`\bb-[0-9a-f]{12}\b`), "b-BUILD%d"},
	{regexp.MustCompile(`\br-[0-9a-f]{12}\b`), "r-REVIEW%d"},
	{regexp.MustCompile(`#pullrequestreview-\d+`), "#pullrequestreview-ID"},
	{regexp.MustCompile(`\b[0-9a-f]{10,64}\b`), "HASH%d"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?Z| UTC)`), "DATE"},
	{regexp.MustCompile(`(?m)^(\| (?:plan|init|execute|verify|finalize|publish) \| (?:✅ done|⏳ running|stopped) \|[^|]*\|).*$`), "$1 TIME |"},
	{regexp.MustCompile(`\b(\d+h \d\dm|\d+m \d\ds|\d+\.\ds|\d+s)\b`), "TIME"},
	{regexp.MustCompile(`#issuecomment-\d+`), "#issuecomment-ID"},
	{regexp.MustCompile(`<!-- slipway app=\d+`), "<!-- slipway app=APP"},
	{regexp.MustCompile(`\b\d+\+(mira|stranger)@`), "ID+$1@"},
}

// normal puts names in the place of what differs each time.
func normal(story, url string) string {
	story = strings.ReplaceAll(story, url, "https://github.example")
	for _, v := range volatile {
		known := map[string]int{}
		story = v.pattern.ReplaceAllStringFunc(story, func(found string) string {
			if !strings.Contains(v.name, "%d") {
				return v.pattern.ReplaceAllString(found, v.name)
			}
			key := found[:10] // a commit is the same, however much of its name is shown
			if known[key] == 0 {
				known[key] = len(known) + 1
			}
			return fmt.Sprintf(v.name, known[key])
		})
	}
	return story
}

// greeters play every flow: they know by whom to greet how to behave.
var greeters = company.but(cast{
	"who.sh": `for who in Anna Bert Carla Dora Emil Frida Gustav Hanna Ida Jakob Lena; do
	case $request in *"Greet $who"*) break ;; esac
done
`,
	"pm.json": "",
	"pm.sh": `. "$here/who.sh"
more= ask=
case $who in
Dora) case $request in *'Good day'*) ;; *) ask=',"questions":["Formally, or as a friend?"]' ;; esac ;;
Emil) more=',{"id":"ac-2","text":"It explains itself with --help","must_have":false}' ;;
Hanna) exec sleep 600 ;;
Ida) [ ! -f "$here/ill" ] || { echo 'the model is ill' >&2; exit 1; } ;;
Lena) case $(field model) in ill) echo 'the model is ill' >&2; exit 1 ;; esac ;;
esac
answer='{"title":"Greet '$who'","validated_description":"greet.sh greets '$who' by name.","size":"trivial","acceptance_criteria":[{"id":"ac-1","text":"greet.sh greets '$who'","must_have":true}'$more']'$ask'}'
`,
	"sprint_planner.json": "",
	"sprint_planner.sh": `. "$here/who.sh"
issue() { printf '{"name":"%s","title":"%s","description":"Do it.","depends_on":[%s],"guidance":{"risk_rationale":"A new file."},"acceptance_criteria":[{"text":"It is there.","prd_ids":["ac-1"]}]}' "$@"; }
issues=$(issue greet "Greet $who" '')
case $who in
Anna) issues=$issues,$(issue explain "Greet $who: explain it" '"greet"') ;;
Jakob)
	for n in $(seq 2 500); do issues=$issues,$(issue "greet-$n" "Greet $who for the $n. time" "\"greet\""); done ;;
esac
answer='{"rationale":"Small steps.","issues":['$issues']}'
`,
	"coder.sh": `case $request in
*'Greet Lena'*) echo "echo hello from $(field model)" > greet.sh ;;
*': explain it'*) echo 'Run greet.sh.' > USAGE.md; answer='{"files_changed":["USAGE.md"],"summary":"Explained it.","complete":true}' ;;
*) echo 'echo hello' > greet.sh ;;
esac
`,
	"verifier.json": "",
	"verifier.sh": `. "$here/who.sh"
met=true more=
case $who in
Emil) more=',{"prd_id":"ac-2","passed":false,"evidence":"greet.sh takes no arguments","issue_name":"greet"}' ;;
Frida) met=false ;;
Lena) [ "$(field model)" = opus ] || met=false ;;
esac
answer='{"summary":"Looked at.","criteria_results":[{"prd_id":"ac-1","passed":'$met',"evidence":"greet.sh:1","issue_name":"greet"}'$more']}'
`,
	"git.json": "",
	"git.sh":   ". \"$here/who.sh\"\nanswer='{\"title\":\"Greet '$who'\",\"summary\":\"Adds greet.sh, which greets '$who'.\"}'\n",
})

// What people see on GitHub, from the signed delivery to the last byte; here on
// GitHub Enterprise Server, which shows the same.
func TestWhatPeopleSee(t *testing.T) {
	t.Parallel()
	s := newShoreOn(t, githubsim.Options{Enterprise: true})
	s.conf.Slots.Builds = 8
	s.serve(greeters, func(e *pipeline.Engine) { e.CIGrace = time.Second })
	var flows sync.WaitGroup
	for name, c := range map[string]struct {
		who      string
		repo     githubsim.RepoSpec
		settings string
		story    func(f *flow)
	}{
		"built by label": {"Anna", githubsim.RepoSpec{Files: map[string]string{
			".github/pull_request_template.md": "## What changes\n\n## How it was tested\n\n- [ ] I read the contributing guide\n",
		}}, "", func(f *flow) {
			f.told.WriteString("# mira puts the label slipway:build on the ticket\n\n")
			_, err := s.sim.Label(f.Context(), githubsim.Labelling{Repo: f.repo(), Number: f.ticket, Label: "slipway:build", By: "mira"})
			must(f.T, err)
			f.comes(report.Succeeded)
		}},
		"built by comment": {"Bert", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			f.says("mira", "/build\r\n\r\nPlease, and soon.\r\n")
			f.comes(report.Succeeded)
			f.asks("mira", "/build")
			f.asks("mira", "/status")
			f.asks("mira", "/resume")
		}},
		"nothing is built": {"Konrad", githubsim.RepoSpec{}, "", func(f *flow) {
			f.asks("rita", "/build")
			f.asks("rita", "/biuld")
			f.asks("rita", "/help")
			f.asks("mira", "/biuld")
			f.asks("mira", "/build --budget lots")
			f.asks("mira", "/steer be nice")
		}},
		"plan gate": {"Carla", githubsim.RepoSpec{}, unreviewed + "build: {approval: plan}\n", func(f *flow) {
			f.says("mira", "/build")
			hash := f.comes(report.WaitingApproval).Gate.Hash[:12]
			f.asks("mira", "/approve fedcba9")
			tracking := slices.IndexFunc(f.comments(), func(c *github.IssueComment) bool { return strings.Contains(c.GetBody(), "### ⏳ Slipway: Greet") })
			f.told.WriteString("# mira deletes the tracking comment\n\n")
			gone := f.comments()[tracking].GetID()
			_, err := s.sim.DeleteComment(f.Context(), githubsim.CommentEdit{Repo: f.repo(), ID: gone, By: "mira"})
			must(f.T, err)
			f.until("comment in its place", func() bool {
				all := f.comments()
				last := all[len(all)-1]
				return last.GetID() > gone && strings.Contains(last.GetBody(), "### ⏳ Slipway: Greet")
			})
			f.look()
			f.says("mira", "/approve "+hash)
			f.comes(report.Succeeded)
		}},
		"question": {"Dora", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			f.says("mira", "/build --plan-only")
			f.comes(report.WaitingAnswer)
			f.says("mira", "/answer Formally: Good day.")
			f.comes(report.Planned)
		}},
		"with debt where drafts are refused": {"Emil", githubsim.RepoSpec{NoDrafts: true}, unreviewed, func(f *flow) {
			f.says("mira", "/build")
			f.comes(report.SucceededWithDebt)
		}},
		"criteria open": {"Frida", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			f.says("mira", "/build")
			f.comes(report.SucceededWithDebt)
		}},
		"needs a person": {"Gustav", githubsim.RepoSpec{Files: map[string]string{
			".github/workflows/ci.yml": "on: push\njobs: {unit: {runs-on: ubuntu-latest, steps: [{run: pytest}]}}\n",
		}}, unreviewed + "  max_ci_fix_cycles: 0\n  ci_poll_seconds: 1\n", func(f *flow) {
			script := red
			script.Repo, script.Branch = f.repo(), ours
			_, err := s.sim.ScriptCI(f.Context(), script)
			must(f.T, err)
			f.says("mira", "/build")
			f.comes(report.NeedsHuman)
		}},
		"cancelled": {"Hanna", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			f.says("mira", "/build")
			f.until("agent at work", func() bool {
				build := f.builds()
				return len(build) == 1 && slices.Contains(s.keys(build[0].ID, "init"), "init")
			})
			f.says("mira", "/cancel")
			f.comes(report.Canceled)
		}},
		"failed and resumed": {"Ida", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			ill := filepath.Join(s.cast, "ill") // while it is there, so is one of the models
			must(f.T, os.WriteFile(ill, nil, 0o600))
			f.says("mira", "/build")
			f.comes(report.Failed)
			must(f.T, os.Remove(ill))
			f.says("mira", "/resume")
			f.comes(report.Succeeded)
		}},
		"targets": {"Lena", githubsim.RepoSpec{}, unreviewed, func(f *flow) {
			f.says("mira", "/build --targets claude_code:opus,open_code:small@high,codex:ill")
			rows := f.comes(report.WaitingApproval).Contenders
			f.asks("rita", "/approve "+rows[0].Commit[:12])
			f.asks("mira", "/approve fedcba9")
			f.asks("mira", "/status")
			f.says("mira", "/approve "+rows[0].Commit[:12])
			f.comes(report.Succeeded)
		}},
		"500 issues": {"Jakob", githubsim.RepoSpec{}, unreviewed + "build: {approval: plan}\n", func(f *flow) {
			f.says("mira", "/build")
			f.comes(report.WaitingApproval)
			for _, c := range f.comments() {
				if n := utf8.RuneCountInString(c.GetBody()); n > 65_536 {
					f.Errorf("a comment has %d characters", n)
				}
			}
			f.says("mira", "/reject That is too much.")
			f.comes(report.Canceled)
		}},
	} {
		flows.Go(func() { // however few cores there are: they wait for clocks
			t.Run(name, func(t *testing.T) {
				f := s.newFlow(t, c.who, c.repo, c.settings)
				c.story(f)
				f.tells()
			})
		})
	}
	flows.Wait()
}

// unreviewed settings leave out what the flows do not tell of, which takes time.
const unreviewed = "pipeline:\n  enable_review: false\n  max_verify_fix_cycles: 0\n"
