package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// follower plays a build with debt and, where it sees a follow-up, what a person
// asked for there. The first reviewer leaves a debt item behind.
var follower = company.but(cast{
	"code_reviewer.json": `{"approved":true,"blocking":false,"summary":"Good.","debt_items":[
		{"type":"missing_functionality","severity":"low","justification":"It greets nobody by name."}]}`,
	"code_reviewer.sh": `case $request in *'follow-up'*) answer='{"approved":true,"blocking":false,"summary":"Good."}' ;; esac` + "\n",
	"coder.sh": `case $request in
*'follow-up'*) printf '%s\n' 'echo hello there' >> greet.sh ;;
*) echo 'echo hello' > greet.sh ;;
esac
`,
	// It passes whatever it is asked about.
	"verifier.sh": `results=
for id in $(printf '%s' "$request" | grep -oE '(ac|thread|debt|finding)-[0-9]+:|(review|asked): ' | tr -d ': ' | sort -u); do
	results="$results{\"prd_id\":\"$id\",\"passed\":true,\"evidence\":\"greet.sh shows $id\"},"
done
answer="{\"summary\":\"Met.\",\"criteria_results\":[${results%,}]}"
`,
})

// pulled builds the ticket and returns its pull request.
func (s *server) pulled() *github.PullRequest {
	s.Helper()
	final := s.builds()
	if final.Pull == nil {
		s.Fatalf("the build: %s %s", final.State, final.Cause)
	}
	return s.pull(final.Pull.Number)
}

func (s *server) pull(number int) *github.PullRequest {
	s.Helper()
	pull, _, err := s.hub().PullRequests.Get(s.Context(), "harbour", "greeter", number)
	must(s.T, err)
	return pull
}

// reviews gives a review, and returns when everything that came of it is done.
func (s *server) reviews(spec githubsim.ReviewSpec) githubsim.Reviewed {
	s.Helper()
	spec.Repo = fullName
	made, err := s.sim.Review(s.Context(), spec)
	must(s.T, err)
	return made
}

// remarks are the comments in reviews of a pull request.
func (s *server) remarks(number int) []*github.PullRequestComment {
	s.Helper()
	all, _, err := s.hub().PullRequests.ListComments(s.Context(), "harbour", "greeter", number, nil)
	must(s.T, err)
	return all
}

// answers are what Slipway said in a thread.
func (s *server) answers(number int, thread int64) (said []string) {
	s.Helper()
	for _, c := range s.remarks(number) {
		if c.GetInReplyTo() == thread && c.GetUser().GetLogin() == "slipway[bot]" {
			said = append(said, c.GetBody())
		}
	}
	return said
}

// reacted is what Slipway put on a remark, in order.
func (s *server) reacted(remark int64) string {
	s.Helper()
	all, _, err := s.hub().Reactions.ListPullRequestCommentReactions(s.Context(), "harbour", "greeter", remark, nil)
	must(s.T, err)
	var out []string
	for _, r := range all {
		out = append(out, r.GetContent())
	}
	return strings.Join(out, " ")
}

// tracked are the tracking comments on a thread.
func (s *server) tracked(number int) (bodies []string) {
	s.Helper()
	all, _, err := s.hub().Issues.ListComments(s.Context(), "harbour", "greeter", number, nil)
	must(s.T, err)
	for _, c := range all {
		if strings.Contains(c.GetBody(), " run=b-") && !strings.Contains(c.GetBody(), " end=") {
			bodies = append(bodies, c.GetBody())
		}
	}
	return bodies
}

// ends types a command on a pull request and returns the account of the build
// that comes of it.
func (s *server) ends(number int, by, body string) report.Build {
	s.Helper()
	before := len(s.jobs(pipeline.KindBuild))
	c, err := s.sim.Comment(s.Context(), githubsim.CommentSpec{Repo: fullName, Number: number, By: by, Body: body})
	must(s.T, err)
	until(s.T, 2*time.Minute, body+" starts nothing that ends", func() bool {
		builds := s.jobs(pipeline.KindBuild)
		return len(builds) == before+1 && builds[0].State.Finished()
	})
	s.rest()
	final, err := pipeline.Read(s.Context(), s.store, s.jobs(pipeline.KindBuild)[0].ID)
	must(s.T, err)
	if final.State != report.Succeeded {
		s.Fatalf("%s ended as %s: %s; debt %+v; notes %q", body, final.State, final.Cause, final.Debt, final.Notes)
	}
	all, _, err := s.hub().Reactions.ListIssueCommentReactions(s.Context(), "harbour", "greeter", c.ID, nil)
	must(s.T, err)
	if len(all) != 2 || all[0].GetContent() != "eyes" || all[1].GetContent() != "rocket" {
		s.Errorf("reactions on %s: %v", body, all)
	}
	return final
}

// quick leaves out what these tests are not about.
const quick = "commands:\n  test: sh check.sh\npipeline:\n  enable_review: false\n  check_ci: false\n  ci_poll_seconds: 1\n"

// A text, a conflict with the base, red checks and a person's pull request, one
// after the other on one server. Every commit that people put anywhere stays.
func TestFixOnPullRequests(t *testing.T) {
	t.Parallel()
	s := newServer(t, follower.but(cast{
		"code_reviewer.json": company["code_reviewer.json"],
		"merger.sh":          "printf '%s\n' 'echo hi' 'echo hello' 'echo hello there' > greet.sh\n",
		"merger.json":        `{"success":true,"summary":"Both greet.","conflict_resolutions":[{"file":"greet.sh","resolution_strategy":"Both stay."}]}`,
		"ci_fixer.sh":        "echo 'echo mended' >> greet.sh\n",
		"ci_fixer.json":      `{"summary":"It greets.","fixed":true,"files_changed":["greet.sh"],"cause":"It greeted nobody."}`,
	}), func(e *pipeline.Engine) { e.CIGrace = 20 * time.Second }) // for a check that a busy machine is late with
	s.commit(map[string]string{".github/slipway.yml": quick, ".github/workflows/ci.yml": "on: push\njobs: {unit: {runs-on: ubuntu-latest, steps: [{run: pytest}]}}\n"})
	pull := s.pulled()
	number, branch := pull.GetNumber(), pull.GetHead().GetRef()
	onBranch := func(by string, files map[string]string) string {
		made, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: branch, By: by, Message: "By hand", Files: files})
		must(t, err)
		return made.SHA
	}

	final := s.ends(number, "mira", "/fix greet who is there")
	if final.Follows.Work != string(pipeline.Asked) || !strings.Contains(s.pull(number).GetBody(), "greet who is there") {
		t.Errorf("the follow-up: %+v\n%s", final.Follows, s.pull(number).GetBody())
	}

	hand := onBranch("mira", map[string]string{"notes.txt": "by hand\n"})
	s.commit(map[string]string{"greet.sh": "echo hi\n"})
	if s.pull(number).GetMergeable() {
		t.Fatal("the base does not conflict")
	}
	final = s.ends(number, "mira", "/fix conflicts")
	h := newHubOn(s)
	dir := h.clone()
	if parents := h.run(dir, "git", "log", "-1", "--format=%P", final.Head); parents != hand+" "+h.run(dir, "git", "rev-parse", "origin/main") {
		t.Errorf("parents of the merge: %s; want the person's commit and the base", parents)
	}
	if now := s.pull(number); !now.GetMergeable() || now.GetHead().GetSHA() != final.Head || len(final.Issues) != 0 {
		t.Errorf("after the merge: mergeable %t, head %s, want %s", now.GetMergeable(), now.GetHead().GetSHA(), final.Head)
	}
	if again := s.ends(number, "mira", "/fix conflicts"); s.pull(number).GetHead().GetSHA() != final.Head || again.Head != "" {
		t.Errorf("with nothing to merge the branch moved to %s", s.pull(number).GetHead().GetSHA())
	}

	for _, script := range []githubsim.CISpec{{File: "greet.sh", Holds: "mended", Runs: []githubsim.CIRun{{Name: "unit"}}}, red} {
		script.Repo, script.Branch = fullName, ours
		_, err := s.sim.ScriptCI(t.Context(), script)
		must(t, err)
	}
	failing := onBranch("mira", map[string]string{"notes.txt": "by hand, again\n"})
	final = s.ends(number, "mira", "/fix ci")
	checks := checksOf(s, s.hub(), s.pull(number).GetHead().GetSHA())
	if checks["unit"] != "completed/success" || checks["slipway/build"] != "completed/success" || final.Head == failing || final.Head != s.pull(number).GetHead().GetSHA() {
		t.Errorf("checks of %s: %v", final.Head, checks)
	}
	if !strings.Contains(s.pull(number).GetBody(), "CI fix 1: It greeted nobody.") {
		t.Errorf("the body:\n%s", s.pull(number).GetBody())
	}

	_, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{Repo: fullName, Branch: "topic", By: "rita", Message: "Mine", Files: map[string]string{"mine.txt": "1\n"}})
	must(t, err)
	theirs, err := s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Mine", Head: "topic", By: "rita"})
	must(t, err)
	final = s.ends(theirs.Number, "mira", "/fix greet louder")
	beside := s.pull(final.Pull.Number)
	if beside.GetBase().GetRef() != "topic" || !beside.GetDraft() || beside.GetHead().GetRef() != fmt.Sprintf("slipway/review-%d", theirs.Number) {
		t.Errorf("beside a person's pull request: %s onto %s", beside.GetHead().GetRef(), beside.GetBase().GetRef())
	}
	second := s.ends(theirs.Number, "mira", "/fix greet once more")
	if second.Pull.Number != beside.GetNumber() || len(s.tracked(theirs.Number)) != 2 {
		t.Errorf("the second went to #%d, want #%d; %d tracking comments", second.Pull.Number, beside.GetNumber(), len(s.tracked(theirs.Number)))
	}
	out := h.run(h.clone(), "git", "merge-base", "--is-ancestor", "origin/topic", second.Head)
	if out != "" {
		t.Errorf("the person's commits: %s", out)
	}
}

// A review with two threads and a text on the bot's draft becomes one follow-up
// on top of a person's commit; what comes meanwhile is the next one; the same
// delivery again, a reader's review and those of bots are none.
func TestAReviewBecomesAFollowUp(t *testing.T) {
	t.Parallel()
	s := newServer(t, follower)
	s.commit(map[string]string{".github/slipway.yml": quick})
	before := s.pulled()
	number := before.GetNumber()
	made, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: fullName, Branch: before.GetHead().GetRef(), By: "mira", Message: "Say more", Files: map[string]string{"notes.txt": "by hand\n"},
	})
	must(t, err)
	s.commit(map[string]string{"elsewhere.txt": "The base moved on.\n"})
	s.rest()

	// Those who have no say, and those who are not listened to.
	reader := s.reviews(githubsim.ReviewSpec{Number: number, Event: "COMMENT", By: "rita", Remarks: []githubsim.Remark{{Path: "greet.sh", Line: 1, Body: "Louder."}}})
	s.reviews(githubsim.ReviewSpec{Number: number, Event: "COMMENT", By: "other[bot]", Body: "Found 3 problems.", Remarks: []githubsim.Remark{{Path: "greet.sh", Line: 1, Body: "One."}}})
	s.reviews(githubsim.ReviewSpec{Number: number, Event: "COMMENT", By: "slipway[bot]", Body: "I disagree."})
	s.reviews(githubsim.ReviewSpec{Number: number, Event: "APPROVE", By: "mira"})
	s.rest()
	if builds := s.jobs(pipeline.KindBuild); len(builds) != 1 {
		t.Fatalf("%d builds", len(builds))
	}
	if said := s.answers(number, reader.Remarks[0]); len(said) != 1 || !strings.Contains(said[0], "needs the role **write**") || s.reacted(reader.Remarks[0]) != "confused" {
		t.Errorf("the reader is told %q, %s", said, s.reacted(reader.Remarks[0]))
	}

	// The maintainer's, and another that comes while its follow-up is open.
	review := s.reviews(githubsim.ReviewSpec{
		Number: number, Event: "REQUEST_CHANGES", By: "mira", Body: "Greet warmly.",
		Remarks: []githubsim.Remark{{Path: "greet.sh", Line: 1, Body: "Greet who is there."}, {Path: "greet.sh", Line: 1, Body: "And twice."}},
	})
	until(t, time.Minute, "no follow-up was queued", func() bool { return len(s.jobs(pipeline.KindBuild)) == 2 })
	reply, err := s.sim.Reply(t.Context(), githubsim.ReplySpec{Repo: fullName, Number: number, Comment: review.Remarks[1], Body: "Thrice, please.", By: "mira"})
	must(t, err)
	until(t, 3*time.Minute, "the reply does not become a follow-up", func() bool {
		builds := s.jobs(pipeline.KindBuild)
		return len(builds) == 3 && builds[0].State.Finished()
	})
	s.rest()
	var first report.Build
	for i, job := range s.jobs(pipeline.KindBuild)[:2] {
		first, err = pipeline.Read(t.Context(), s.store, job.ID)
		must(t, err)
		if first.State != report.Succeeded || first.Follows == nil || first.Pull.Number != number || first.Branch != before.GetHead().GetRef() {
			t.Fatalf("follow-up %d: %s %s, debt %+v, notes %q", i, first.State, first.Summary, first.Debt, first.Notes)
		}
	}
	if len(first.Paid) != 1 || !strings.Contains(first.Paid[0].Justification, "by name") {
		t.Errorf("paid off: %+v", first.Paid)
	}

	after := s.pull(number)
	h := newHubOn(s)
	dir := h.clone()
	head, branch := after.GetHead().GetSHA(), after.GetHead().GetRef()
	for what, sha := range map[string]string{"the first build's commit": before.GetHead().GetSHA(), "the person's": made.SHA, "the first follow-up's": first.Head} {
		if out := h.run(dir, "git", "merge-base", sha, "origin/"+branch); out != sha {
			t.Errorf("%s is not on the branch any more", what)
		}
	}
	if text := h.run(dir, "git", "show", head+":greet.sh"); strings.Count(text, "hello there") != 2 {
		t.Errorf("greet.sh:\n%s", text)
	}
	if text := h.run(dir, "git", "show", head+":elsewhere.txt"); !strings.Contains(text, "moved on") {
		t.Errorf("the base is not merged: %s", text)
	}

	for i, id := range review.Remarks {
		said := s.answers(number, id)
		if len(said) != 1+i || !strings.Contains(said[0], "Addressed in") || !strings.Contains(said[0], first.Issues[0].Merge[:7]) {
			t.Errorf("thread %d: %q", i, said)
		}
		if got := s.reacted(id); got != "eyes rocket" {
			t.Errorf("reactions on remark %d: %s", i, got)
		}
	}
	if got := s.reacted(reply.ID); got != "eyes rocket" {
		t.Errorf("reactions on the reply: %s", got)
	}
	if all := s.tracked(number); len(all) != 2 || strings.Contains(strings.Join(all, ""), "queued") {
		t.Errorf("tracking comments:\n%s", strings.Join(all, "\n---\n"))
	}
	for _, want := range []string{
		"What was said here before", "**Follow-up:**", "Paid off since", "It greets nobody by name.", fmt.Sprintf("Closes #%d", s.ticket),
		"thread-", "### Debt\n\nNone",
	} {
		if !strings.Contains(after.GetBody(), want) {
			t.Errorf("the body does not say %q:\n%s", want, after.GetBody())
		}
	}
	if items, ok := report.ReadDebt(after.GetBody()); !ok || len(items) != 0 {
		t.Errorf("the debt record: %+v", items)
	}
	if !after.GetDraft() || after.GetTitle() != before.GetTitle() || checksOf(s, s.hub(), head)["slipway/build"] != "completed/success" {
		t.Errorf("the pull request: %s, draft %t, checks %v", after.GetTitle(), after.GetDraft(), checksOf(s, s.hub(), head))
	}

	// The same deliveries once more.
	wrote := len(s.changes())
	for _, d := range s.sim.Deliveries() {
		if strings.HasPrefix(d.Event, "pull_request_review") {
			_, err := s.sim.Redeliver(t.Context(), githubsim.DeliveryRef{ID: d.ID})
			must(t, err)
		}
	}
	s.rest()
	if again := s.changes()[wrote:]; len(again) > 0 || len(s.jobs(pipeline.KindBuild)) != 3 {
		t.Errorf("redelivery wrote %d times, first %s %s", len(again), again[0].URL, again[0].Request)
	}
}

// newHubOn looks at the server's repository with git.
func newHubOn(s *server) *hub {
	s.Helper()
	h := &hub{T: s.T, sim: githubsim.Remote{URL: s.sim.URL()}, cloneURL: s.sim.URL() + "/" + fullName + ".git"}
	h.tokens, h.Client = client(s.T, h.sim, "harbour", "greeter")
	return h
}
