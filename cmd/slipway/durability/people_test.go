package durability_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/app/githubsim"
	"github.com/slipway-dev/slipway/pipeline"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
)

// A bare is the repository behind the stand-in, where the tests act as people
// who have a clone of their own, and see what was pushed.
type bare struct{ dir string }

// watched makes the stand-in's repository refuse every push that rewrites or
// removes a branch, and remember each one that it takes.
func (h *hub) watched(t *testing.T) bare {
	t.Helper()
	b := bare{filepath.Join(h.simDir, "git", owner, repoName+".git")}
	for _, setting := range [][]string{
		{"receive.denyNonFastForwards", "true"}, {"receive.denyDeletes", "true"}, {"core.logAllRefUpdates", "always"},
	} {
		b.git(t, "config", setting[0], setting[1])
	}
	return b
}

func (b bare) git(t *testing.T, args ...string) string {
	t.Helper()
	return git(t, b.dir, args...)
}

// replace puts a commit on main, with one file changed, in the place of a branch:
// what somebody does who works on the same ticket and pushes with force.
func (b bare) replace(t *testing.T, branch, file, text string) (commit string) {
	t.Helper()
	clone := t.TempDir()
	git(t, clone, "clone", "--quiet", "--branch=main", b.dir, ".")
	put(t, filepath.Join(clone, file), text)
	git(t, clone, "add", "--all")
	git(t, clone, "commit", "--quiet", "--message=Mine")
	git(t, clone, "push", "--quiet", "origin", "HEAD:refs/heads/hand-over")
	commit = git(t, clone, "rev-parse", "HEAD")
	b.git(t, "update-ref", "-m", byHand, "refs/heads/"+branch, commit)
	b.git(t, "update-ref", "-d", "refs/heads/hand-over")
	return commit
}

// byHand marks what a person did in the log of a branch.
const byHand = "by mira"

// holds reports whether one commit is in the history of another.
func (b bare) holds(t *testing.T, newer, older string) bool {
	t.Helper()
	return b.git(t, "merge-base", newer, older) == older
}

// unforced checks that each push to a branch was put on top of what was there.
func (b bare) unforced(t *testing.T, branch string) {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(b.dir, "logs", "refs", "heads", filepath.FromSlash(branch)))
	if err != nil {
		t.Fatal(err)
	}
	pushes := 0
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, byHand) {
			continue
		}
		pushes++
		before, after, _ := strings.Cut(line, " ")
		after, _, _ = strings.Cut(after, " ")
		if strings.Trim(before, "0") != "" && !b.holds(t, after, before) {
			t.Errorf("%s was moved from %s to %s, which does not hold it", branch, before, after)
		}
	}
	if pushes == 0 {
		t.Errorf("no push to %s was logged", branch)
	}
}

// dies has the server killed at a place of the build's journal.
func (h *hub) dies(t *testing.T, at string) seen {
	t.Helper()
	h.serve(t, "SLIPWAY_CRASH="+at)
	if len(h.jobs(t, pipeline.KindBuild)) == 0 {
		h.label(t)
	}
	h.server.wait(t, longRun)
	if !h.server.killed() {
		t.Fatalf("it was not killed %s\n%s", at, h.server.said(t))
	}
	return h.build(t)
}

// account is what status says of the build.
func (h *hub) account(t *testing.T) report.Build {
	t.Helper()
	return accountOf(t, start(t, h.state, nil, "status", "--json", h.build(t).job.ID))
}

// commit has the maintainer put a commit on a branch, which begins at main if it
// is new.
func (h *hub) commit(t *testing.T, branch, file, text string) string {
	t.Helper()
	var made githubsim.Commit
	h.do(t, "commit", githubsim.CommitSpec{
		Repo: fullName, Branch: branch, Message: "Mine", Files: map[string]string{file: text}, By: maintainer,
	}, &made)
	return made.SHA
}

// pull is the one pull request.
func (h *hub) pull(t *testing.T) thing {
	t.Helper()
	var pulls []thing
	h.get(t, "/pulls?state=all", &pulls)
	if len(pulls) != 1 || !pulls[0].Draft || pulls[0].State != "open" {
		t.Fatalf("pull requests %+v, want one open draft", pulls)
	}
	return pulls[0]
}

// calmTree is the tree that an undisturbed build of a script makes.
func calmTree(t *testing.T, s script) string {
	t.Helper()
	term := newTerminal(t, s)
	p := term.build(t)
	if code := p.wait(t, longRun); code != 0 {
		t.Fatalf("undisturbed: exit %d\n%s", code, p.said(t))
	}
	return term.published(t, term.see(t))
}

// TestBaseMovesWhileTheBuildIsDead has main go on while a killed build waits to be
// taken up. The build stays on the commit that it began with.
func TestBaseMovesWhileTheBuildIsDead(t *testing.T) {
	t.Parallel()
	want := calmTree(t, pair())
	h := newHub(t, pair())
	watched := h.watched(t)
	begin := watched.git(t, "rev-parse", "main")
	var main string
	var died seen
	for i, at := range []string{"after:pin", "after:land/0001/advanced", "before:publish/push", "after:publish/pull"} {
		began := died
		died = h.dies(t, at)
		died.continues(t, began)
		main = h.commit(t, "main", "list.txt", fmt.Sprintf("main goes on, %d\n", i))
	}
	h.serve(t)
	h.rest(t)
	if got := h.complete(t, died); got != want {
		t.Errorf("tree %s, want %s", got, want)
	}
	head := h.pull(t).Head.SHA
	if got := watched.git(t, "merge-base", head, "main"); got != begin {
		t.Errorf("the work begins at %s, want where main was at first, %s", got, begin)
	}
	if got := watched.git(t, "rev-parse", "main"); got != main {
		t.Errorf("main is at %s, want %s", got, main)
	}
	watched.unforced(t, h.pull(t).Head.Ref)
}

// TestSomebodyPushesWhileTheBuildIsDead has a person work on the build's branch
// between a kill and the resume. Their commit stays, the build's stays, and what
// is said to be verified is what holds both.
func TestSomebodyPushesWhileTheBuildIsDead(t *testing.T) {
	t.Parallel()
	const file, text = "mine.txt", "mine\n"
	onTop := func(t *testing.T, h *hub, _ bare, branch string) string { return h.commit(t, branch, file, text) }
	instead := func(t *testing.T, _ *hub, b bare, branch string) string { return b.replace(t, branch, file, text) }
	for _, c := range []struct {
		name string
		at   string   // where the build dies before
		then []string // and where after
		push func(t *testing.T, h *hub, b bare, branch string) string
	}{
		{"a branch of that name, before the first push", "after:publish/branch", nil, onTop},
		{"on top of a push that is recorded", "after:publish/push", nil, onTop},
		{"on top of a push that is not recorded, and it dies again while it takes that in", "before:publish/push", []string{"before:publish/adopt-1", "after:publish/adopt-1", "before:publish/push"}, onTop},
		{"in the place of a push that is recorded", "after:publish/push", nil, instead},
		{"in the place of a push that is not recorded, and it dies again", "before:publish/push", []string{"before:publish/adopt-1", "after:publish/adopt-1", "after:verify-2/kept", "before:publish/push"}, instead},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, pair())
			watched, died, theirs := h.interrupted(t, c.at, c.then, c.push)
			branch := died.branch(t)
			h.complete(t, died)

			head, account := h.pull(t).Head, h.account(t)
			if head.Ref != branch || !watched.holds(t, head.SHA, theirs) {
				t.Errorf("%s is at %s, which does not hold the person's commit %s", head.Ref, head.SHA, theirs)
			}
			if got := watched.git(t, "show", head.SHA+":list.txt"); got != "first\nalpha\nbeta\nlast" {
				t.Errorf("the build's work is not in the head: %q", got)
			}
			if got := watched.git(t, "show", head.SHA+":"+file); got+"\n" != text {
				t.Errorf("the person's work is not in the head: %q", got)
			}
			if account.Head != head.SHA || account.Verification.Commit != head.SHA {
				t.Errorf("the report is of %s and its verification of %s; the head is %s", account.Head, account.Verification.Commit, head.SHA)
			}
			watched.unforced(t, branch)
		})
	}
}

// interrupted lets the server die at one place of the journal, a person push
// meanwhile, and the server die again at each of then, and brings the build to
// its end. It returns the last death and what the person pushed.
func (h *hub) interrupted(t *testing.T, at string, then []string, push func(*testing.T, *hub, bare, string) string) (watched bare, died seen, theirs string) {
	t.Helper()
	watched, died = h.watched(t), h.dies(t, at)
	theirs = push(t, h, watched, died.branch(t))
	for _, at := range then {
		began := died
		died = h.dies(t, at)
		died.continues(t, began)
	}
	h.serve(t)
	h.rest(t)
	return watched, died, theirs
}

// TestSomebodyPushesAConflict has the person's commit change the lines that the
// build changed. That is for people to settle: both are kept, and named.
func TestSomebodyPushesAConflict(t *testing.T) {
	t.Parallel()
	const file, text = "list.txt", "first\nmine\nlast\n"
	want := calmTree(t, pair())
	for _, c := range []struct {
		name string
		at   string
		then []string
		push func(t *testing.T, h *hub, b bare, branch string) string
	}{
		{"before the first push", "after:publish/branch", nil,
			func(t *testing.T, h *hub, _ bare, branch string) string { return h.commit(t, branch, file, text) }},
		{"in the place of a push, and it dies again", "before:publish/push", []string{"after:publish/adopt-1", "after:stop"},
			func(t *testing.T, _ *hub, b bare, branch string) string { return b.replace(t, branch, file, text) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := newHub(t, pair())
			watched, died, theirs := h.interrupted(t, c.at, c.then, c.push)
			branch := died.branch(t)
			whole, account := h.build(t), h.account(t)
			whole.continues(t, died)
			ref := "refs/slipway/" + whole.job.ID + "/integration"
			if account.State != report.NeedsHuman || account.Success {
				t.Errorf("it ended %s, success %t", account.State, account.Success)
			}
			for _, named := range []string{branch, file, ref} {
				if !strings.Contains(account.Cause, named) {
					t.Errorf("the cause does not name %s: %s", named, account.Cause)
				}
			}
			var comments []thing
			h.get(t, fmt.Sprintf("/issues/%d/comments", h.ticket.Number), &comments)
			if len(comments) != 2 || !strings.Contains(comments[0].Body, ref) || !strings.Contains(comments[1].Body, " end=1 -->") {
				t.Errorf("comments %+v, want one that names %s and one that tells the end", comments, ref)
			}
			if got := watched.git(t, "rev-parse", branch); got != theirs {
				t.Errorf("%s is at %s, want where the person put it, %s", branch, got, theirs)
			}
			mirror := filepath.Join(h.state, "mirrors", owner, repoName+".git")
			if got := git(t, mirror, "rev-parse", ref+"^{tree}"); got != want {
				t.Errorf("the build's work is kept as %s, want %s", got, want)
			}
			noneAlive(t, h.state, 5*time.Second)
		})
	}
}

// branch is the name that the build settled for its branch.
func (s seen) branch(t *testing.T) string {
	t.Helper()
	for _, e := range s.entries {
		if e.Key == "publish/branch" {
			var b forge.Branch
			if err := json.Unmarshal(e.Outcome, &b); err != nil {
				t.Fatal(err)
			}
			return b.Name
		}
	}
	t.Fatal("no branch is settled")
	return ""
}
