package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/app"
	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/finding"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/queue"
)

// menders build three scripts that greet whoever $name is, find that nobody sees to
// an unset name, in each of them, and mend the one that they are asked about.
var menders = follower.but(cast{
	"code_reviewer.json": company["code_reviewer.json"],
	"coder.sh": `for f in one two three; do
	case $request in
	*'reviewer found: '$f.sh*) echo 'echo "hello ${name:?}"' > $f.sh ;;
	*'reviewer found'*) ;;
	*) echo 'echo hello $name' > $f.sh ;;
	esac
done
`,
	"lens.json": `{"findings":[]}`,
	"lens.sh": `all=
for f in one two three; do
	grep -q 'hello $name' $f.sh && all="$all,{\"severity\":\"high\",\"path\":\"$f.sh\",\"start_line\":1,\"quote\":\"echo hello \$name\",\"title\":\"$f.sh takes any name\",\"claim\":\"In $f.sh an unset name goes unnoticed.\",\"failure_scenario\":\"Run it without name set.\"}"
done
case $step in verify-*) [ "${all#*one.sh*two.sh*three.sh}" != "$all" ] || all= ;; esac # of its own, a build sees to the whole
case $step in */correctness/*) answer="{\"findings\":[${all#,}]}" ;; esac
`,
	"review_verifier.sh": `all=
for claim in $(printf '%s' "$request" | tr '{' '\n' | sed -nE 's/.*id[^a-z]+(f[0-9]+)[^a-z]+.*path[^a-z]+([a-z]+)\.sh.*/\1:\2/p'); do
	verdict=rejected
	grep -q 'hello $name' ${claim#*:}.sh && verdict=confirmed
	all="$all,{\"id\":\"${claim%:*}\",\"verdict\":\"$verdict\",\"confidence\":95,\"reason\":\"It was run.\"}"
done
answer="{\"verdicts\":[${all#,}]}"
`,
})

// looks types a command and returns the account of the review that comes of it.
func (s *server) looks(number int, by, body string) report.Review {
	s.Helper()
	before := len(s.jobs(pipeline.KindReview))
	_, err := s.sim.Comment(s.Context(), githubsim.CommentSpec{Repo: fullName, Number: number, By: by, Body: body})
	must(s.T, err)
	until(s.T, time.Minute, body+" starts no review", func() bool { return len(s.jobs(pipeline.KindReview)) > before })
	s.rest()
	all := s.jobs(pipeline.KindReview) // newest first; a follow-up has another one done
	return s.look(all[len(all)-1-before])
}

func (s *server) look(job queue.Job) report.Review {
	s.Helper()
	r, err := pipeline.ReadReview(s.Context(), s.store, job.ID)
	must(s.T, err)
	return r
}

// states are those of the findings of a review, by number.
func states(r report.Review) string {
	all := slices.Clone(r.Findings)
	slices.SortFunc(all, func(a, b finding.Entry) int { return a.Number - b.Number })
	var out []string
	for _, e := range all {
		out = append(out, fmt.Sprintf("%d %s", e.Number, e.State))
	}
	return strings.Join(out, ", ")
}

// resolved are the paths whose threads on a pull request are resolved.
func (s *server) resolvedPaths(number int) (paths []string) {
	s.Helper()
	for _, t := range s.sim.Conversations(fullName, number) {
		if t.ResolvedBy != "" {
			paths = append(paths, t.Path+" by "+t.ResolvedBy)
		}
	}
	slices.Sort(paths)
	return paths
}

// lastBuild is the account of the newest build.
func (s *server) lastBuild() report.Build {
	s.Helper()
	final, err := pipeline.Read(s.Context(), s.store, s.jobs(pipeline.KindBuild)[0].ID)
	must(s.T, err)
	return final
}

// From findings to commits, on one server: on Slipway's own pull request, on a
// person's, on a fork's, and on tickets.
func TestFindingsBecomeCommits(t *testing.T) {
	t.Parallel()
	s := newServer(t, menders)
	s.commit(map[string]string{".github/slipway.yml": strings.Replace(quick, "enable_review: false", "max_verify_fix_cycles: 0", 1) + "review: {lenses: [correctness]}\n"})
	pull := s.pulled()
	number := pull.GetNumber()

	// What the build itself found, and said on its draft, is not said again.
	remarks := s.remarks(number)
	first := s.looks(number, "mira", "/review")
	if states(first) != "1 open, 2 open, 3 open" || len(remarks) != 3 || len(s.remarks(number)) != 3 {
		t.Fatalf("the first review: %s, %d remarks, then %d", states(first), len(remarks), len(s.remarks(number)))
	}

	// /fix of two: a commit and an answer for each, and both threads resolved.
	final := s.ends(number, "mira", "/fix 1 2")
	if len(final.Issues) != 2 || final.Head != s.pull(number).GetHead().GetSHA() || final.Verification == nil || !final.Verification.Passed {
		t.Fatalf("the follow-up: %d issues, head %s, verified %+v", len(final.Issues), final.Head, final.Verification)
	}
	var commits []string
	for i, e := range first.Findings[:2] {
		said := s.answers(number, remarkOn(remarks, e.Path).GetID())
		if len(said) != 1 || !strings.Contains(said[0], "Addressed in") {
			t.Fatalf("under finding %d: %q", i+1, said)
		}
		for _, is := range final.Issues {
			if strings.Contains(said[0], is.Merge[:7]) {
				commits = append(commits, is.Merge)
			}
		}
	}
	if len(commits) != 2 || commits[0] == commits[1] {
		t.Errorf("the threads are answered with the commits %v", commits)
	}
	mended := []string{first.Findings[0].Path + " by slipway[bot]", first.Findings[1].Path + " by slipway[bot]"}
	slices.Sort(mended)
	if got := s.resolvedPaths(number); !slices.Equal(got, mended) {
		t.Errorf("resolved: %v, want %v", got, mended)
	}

	// A review of the new head comes by itself. Its debt report: open and carried,
	// and paid off.
	second := s.look(s.jobs(pipeline.KindReview)[0])
	if second.Requester != "" || second.Head != final.Head || checksOf(s, s.hub(), final.Head)[pipeline.ReviewCheckName] != "completed/neutral" {
		t.Errorf("the review after the follow-up: of %s, check %v", second.Head, checksOf(s, s.hub(), final.Head))
	}
	if states(second) != "1 fixed, 2 fixed, 3 open" || len(s.remarks(number)) != 5 {
		t.Errorf("the second review: %s, %d remarks", states(second), len(s.remarks(number)))
	}
	page := report.ReviewMarkdown(second)
	for _, part := range []struct{ heading, file string }{
		{"### Open findings", first.Findings[2].Path}, {"### Carried over", first.Findings[2].Path},
		{"### Paid off", first.Findings[0].Path}, {"### Paid off", first.Findings[1].Path},
	} {
		_, below, _ := strings.Cut(page, part.heading)
		if below, _, _ = strings.Cut(below, "\n### "); !strings.Contains(below, part.file) {
			t.Errorf("%s does not list %s:\n%s", part.heading, part.file, page)
		}
	}

	// Who resolves a thread dismisses its finding, and may take that back.
	left := first.Findings[2]
	resolution := githubsim.Resolution{Repo: fullName, Number: number, Comment: remarkOn(remarks, left.Path).GetID(), By: "mira"}
	_, err := s.sim.Resolve(t.Context(), resolution)
	must(t, err)
	third := s.looks(number, "mira", "/review --full")
	if states(third) != "1 fixed, 2 fixed, 3 dismissed" || third.Findings[2].DismissedBy != "mira" || len(third.Open()) != 0 || len(s.remarks(number)) != 5 {
		t.Errorf("after a dismissal: %s, %d remarks", states(third), len(s.remarks(number)))
	}
	resolution.Undo = true
	_, err = s.sim.Resolve(t.Context(), resolution)
	must(t, err)

	// --fix on Slipway's own pull request ends in commits on its branch.
	before := s.pull(number).GetHead().GetSHA()
	s.looks(number, "mira", "/review --fix")
	final = s.lastBuild()
	if final.Follows == nil || final.Pull.Number != number || final.Head == before || final.Head != s.pull(number).GetHead().GetSHA() || len(final.Issues) != 1 {
		t.Errorf("--fix on our own: %s %s, head %s", final.State, final.Cause, final.Head)
	}
	if got := s.resolvedPaths(number); len(got) != 3 {
		t.Errorf("resolved: %v", got)
	}

	// On the ticket of it, /review is one of the pull request.
	fourth := s.looks(s.ticket, "mira", "/review")
	if fourth.Pull != number || states(fourth) != "1 fixed, 2 fixed, 3 fixed" || !strings.Contains(s.last(s.ticket), fmt.Sprintf("#%d", number)) {
		t.Errorf("a review of the ticket is one of #%d: %s\n%s", fourth.Pull, states(fourth), s.last(s.ticket))
	}

	s.prunes(t, first.ID)
	s.fixesBeside(t)
	s.refusesForks(t)

	// On a ticket without a pull request there is nothing to look at: it is built.
	other := s.open("Greet once more")
	builds := len(s.jobs(pipeline.KindBuild))
	_, err = s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: other, By: "mira", Body: "/review"})
	must(t, err)
	until(t, time.Minute, "no build is queued", func() bool { return len(s.jobs(pipeline.KindBuild)) == builds+1 })
	s.rest()
	if final := s.lastBuild(); final.Ticket != other || final.Pull == nil || !strings.Contains(s.all(other), "no open Slipway pull request to review") {
		t.Errorf("a review of a ticket: %+v\n%s", final.Pull, s.all(other))
	}
}

// prunes finds what a review left, and removes it.
func (s *server) prunes(t *testing.T, review string) {
	t.Helper()
	for _, want := range []int{1, 0} {
		all, err := app.Leftovers(t.Context(), s.store, s.conf.StateDir, time.Now().Add(time.Hour))
		must(t, err)
		at := slices.IndexFunc(all, func(l app.Leftover) bool { return l.Build == review })
		if at >= 0 != (want == 1) {
			t.Fatalf("what %s left is in %+v", review, all)
		}
		if at < 0 {
			continue
		}
		if l := all[at]; len(l.Refs) != 1 || !slices.Contains(l.Directories, "builds/"+review) {
			t.Errorf("%+v", l)
		}
		must(t, all[at].Remove(t.Context(), s.store, s.conf.StateDir))
	}
}

// fixesBeside has a person's pull request reviewed and mended beside it.
func (s *server) fixesBeside(t *testing.T) {
	t.Helper()
	_, err := s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: fullName, Branch: "topic", By: "rita", Message: "Mine", Files: map[string]string{"one.sh": "echo hello $name\n"},
	})
	must(t, err)
	theirs, err := s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Mine", Head: "topic", By: "rita"})
	must(t, err)
	s.looks(theirs.Number, "mira", "/review --fix")
	final := s.lastBuild()
	if final.Pull == nil {
		t.Fatalf("beside a person's: %s %s", final.State, final.Cause)
	}
	beside := s.pull(final.Pull.Number)
	if !beside.GetDraft() || beside.GetBase().GetRef() != "topic" || beside.GetHead().GetRef() != fmt.Sprintf("slipway/review-%d", theirs.Number) ||
		beside.GetCommits() == 0 || !strings.Contains(beside.GetBody(), "### Debt") {
		t.Errorf("beside a person's: %s onto %s, %d commits\n%s", beside.GetHead().GetRef(), beside.GetBase().GetRef(), beside.GetCommits(), beside.GetBody())
	}
	remark := s.remarks(theirs.Number)[0]
	if said := s.answers(theirs.Number, remark.GetID()); len(said) != 1 || !strings.Contains(said[0], "Addressed in") || len(s.resolvedPaths(theirs.Number)) != 0 {
		t.Errorf("their thread, which stays open until they merge it: %q, resolved %v", said, s.resolvedPaths(theirs.Number))
	}
}

// refusesForks has a fork's pull request reviewed, and neither mended nor run, until
// somebody allows its commit.
func (s *server) refusesForks(t *testing.T) {
	t.Helper()
	_, err := s.sim.Fork(t.Context(), githubsim.ForkSpec{Repo: fullName, Owner: "eve"})
	must(t, err)
	_, err = s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: "eve/greeter", Branch: "better", By: "eve", Message: "Better", Files: map[string]string{"two.sh": "echo hello $name\n"},
	})
	must(t, err)
	theirs, err := s.sim.OpenPull(t.Context(), githubsim.PullSpec{Repo: fullName, Title: "Better", Head: "eve:better", By: "eve"})
	must(t, err)
	builds := len(s.jobs(pipeline.KindBuild))
	r := s.looks(theirs.Number, "mira", "/review --fix")
	if len(s.jobs(pipeline.KindBuild)) != builds || !strings.Contains(s.all(theirs.Number), "is in a fork, where Slipway may not write") {
		t.Errorf("--fix on a fork's:\n%s", s.all(theirs.Number))
	}
	if states(r) != "1 new" || len(s.remarks(theirs.Number)) != 1 || len(r.Commands) != 0 || !strings.Contains(r.Unrun, "fork") {
		t.Errorf("the fork's review: %s, commands %v, %q", states(r), r.Commands, r.Unrun)
	}

	lets := "/approve " + r.Head
	if !strings.Contains(report.ReviewMarkdown(r), lets) {
		t.Errorf("it is not said how to let it be run:\n%s", report.ReviewMarkdown(r))
	}
	reviews := len(s.jobs(pipeline.KindReview))
	for by, typed := range map[string]string{"mira": lets[:len(lets)-20], "rita": lets} {
		_, err = s.sim.Comment(t.Context(), githubsim.CommentSpec{Repo: fullName, Number: theirs.Number, By: by, Body: typed})
		must(t, err)
	}
	s.rest()
	if said := s.all(theirs.Number); len(s.jobs(pipeline.KindReview)) != reviews || !strings.Contains(said, "Name it whole") || !strings.Contains(said, "needs the role **write**") {
		t.Errorf("half a name, and a reader's word:\n%s", said)
	}
	allowed := s.looks(theirs.Number, "mira", lets)
	if len(allowed.Commands) == 0 || allowed.Unrun != "" || allowed.Allowed != "mira" || !strings.Contains(report.ReviewMarkdown(allowed), "let it be run at exactly this commit") {
		t.Errorf("allowed: commands %v, %q\n%s", allowed.Commands, allowed.Unrun, report.ReviewMarkdown(allowed))
	}
	_, err = s.sim.Commit(t.Context(), githubsim.CommitSpec{
		Repo: "eve/greeter", Branch: "better", By: "eve", Message: "And this", Files: map[string]string{"check.sh": "touch owned\n"},
	})
	must(t, err)
	if next := s.looks(theirs.Number, "mira", "/review"); next.Head == r.Head || len(next.Commands) != 0 || next.Allowed != "" {
		t.Errorf("the next commit: %s, commands %v, allowed by %q", next.Head, next.Commands, next.Allowed)
	}
}

func remarkOn(all []*github.PullRequestComment, path string) *github.PullRequestComment {
	for _, m := range all {
		if m.GetPath() == path && m.GetInReplyTo() == 0 {
			return m
		}
	}
	return nil
}

// all is everything that we said on a thread, last what we said last.
func (s *server) all(number int) string {
	s.Helper()
	comments, _, err := s.hub().Issues.ListComments(s.Context(), "harbour", "greeter", number, nil)
	must(s.T, err)
	var said []string
	for _, c := range comments {
		if c.GetUser().GetLogin() == "slipway[bot]" {
			said = append(said, c.GetBody())
		}
	}
	return strings.Join(said, "\n----\n")
}

func (s *server) last(number int) string {
	all := strings.Split(s.all(number), "\n----\n")
	return all[len(all)-1]
}
