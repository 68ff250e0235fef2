package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-github/v60/github"

	"github.com/slipway-dev/slipway/pipeline/debt"
)

// ended is what the tests read of the last line of a --json stream.
type ended struct {
	Event   string `json:"event"`
	State   string `json:"state"`
	Success bool   `json:"success"`
	Build   string `json:"build"`
	Branch  string `json:"branch"`
	Head    string `json:"head"`
	Pull    struct {
		Number int  `json:"number"`
		Draft  bool `json:"draft"`
	} `json:"pull"`
	Issues       map[string]int `json:"issues"`
	Debt         []debt.Item    `json:"debt"`
	Comments     int            `json:"comments"`
	Verification struct {
		Passed   bool `json:"passed"`
		Criteria []struct {
			ID     string `json:"id"`
			Passed bool   `json:"passed"`
		} `json:"criteria"`
	} `json:"verification"`
	Checks []struct {
		Name       string `json:"name"`
		Conclusion string `json:"conclusion"`
		HeadSHA    string `json:"head_sha"`
	} `json:"checks"`
}

// The demo, as a person starts it: a label on a ticket becomes a draft pull
// request that says what is in it and what is not, and whose branch builds.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("it runs a whole build")
	}
	state := t.TempDir()
	t.Cleanup(func() { writable(state) })
	done, steps := runDemoOnce(t, state)
	checkDone(t, done)
	checkSteps(t, steps)

	h := newHub(t, startSimOn(t, filepath.Join(state, "githubsim")))
	checkPull(h, done)
	checkTicket(h)
	checkBranch(h, done)
	if unknown, err := h.sim.Unknown(t.Context()); err != nil || len(unknown) > 0 {
		t.Errorf("requests that GitHub does not know: %q, %v", unknown, err)
	}
}

// runDemoOnce returns the last line and the keys of the steps before it.
func runDemoOnce(t *testing.T, state string) (done ended, steps []string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), slipwayBinary, "demo", "--once", "--json", "--state-dir", state)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("slipway demo: %v\n%s\n%s", err, stdout.Bytes(), stderr.Bytes())
	}
	lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
	for i, line := range lines {
		var step struct {
			Event string `json:"event"`
			Key   string `json:"key"`
		}
		if err := json.Unmarshal(line, &step); err != nil {
			t.Fatalf("line %d is no JSON: %v\n%s", i+1, err, line)
		}
		if step.Event == "call" {
			steps = append(steps, step.Key)
		}
	}
	if err := json.Unmarshal(lines[len(lines)-1], &done); err != nil {
		t.Fatal(err)
	}
	return done, steps
}

func checkDone(t *testing.T, done ended) {
	t.Helper()
	if done.Event != "done" || done.State != "succeeded_with_debt" || !done.Success || !done.Pull.Draft || done.Comments != 1 {
		t.Fatalf("the build ended so: %+v", done)
	}
	if n := done.Issues; n["completed"] != 6 || n["completed_with_debt"] != 1 || n["failed"]+n["skipped"] != 0 {
		t.Errorf("issues %v", n)
	}
	if len(done.Checks) != 1 || done.Checks[0].Name != "slipway/build" || done.Checks[0].Conclusion != "success" || done.Checks[0].HeadSHA != done.Head {
		t.Errorf("checks %+v, head %s", done.Checks, done.Head)
	}
	if len(done.Debt) != 1 || done.Debt[0].Type != debt.MissingFeature || done.Debt[0].IssueName != "csv-writer" {
		t.Errorf("debt %+v", done.Debt)
	}
	if !done.Verification.Passed || len(done.Verification.Criteria) != 9 {
		t.Errorf("verification %+v", done.Verification)
	}
	for _, c := range done.Verification.Criteria {
		if !c.Passed {
			t.Errorf("criterion %s did not pass", c.ID)
		}
	}
}

// checkSteps looks for what the demo is there to show: one fix, deeper QA, a
// merge of two issues that changed the same lines, and a finding of the review
// that is mended and looked at again.
func checkSteps(t *testing.T, steps []string) {
	t.Helper()
	var fixes, merges, qa, judged []string
	lenses := map[string]int{} // by round
	for _, key := range steps {
		switch {
		case strings.HasSuffix(key, "/lens"):
			lenses[key[:len("verify-1")]]++
		case strings.HasSuffix(key, "/review_verifier"), strings.HasSuffix(key, "/fix_generator"), strings.HasPrefix(key, "issue-07/"):
			judged = append(judged, key)
		case strings.HasSuffix(key, "/iter-2/coder"):
			fixes = append(fixes, key)
		case strings.HasSuffix(key, "/merger"):
			merges = append(merges, key)
		case strings.HasSuffix(key, "/qa"), strings.HasSuffix(key, "/qa_synthesizer"):
			qa = append(qa, key)
		case strings.Contains(key, "/repair-"), strings.Contains(key, "/iter-3/"):
			t.Errorf("unexpected: %s", key)
		}
	}
	if !slices.Equal(fixes, []string{"issue-04/round-1/iter-2/coder"}) || len(qa) != 2 {
		t.Errorf("fixes %v, QA %v", fixes, qa)
	}
	if len(merges) != 1 || merges[0] != "issue-02/merge-1/merger" && merges[0] != "issue-03/merge-1/merger" {
		t.Errorf("merges %v", merges)
	}
	// Lenses that read file by file get the first diff, which is long, in two.
	if lenses["verify-1"] != 17 || lenses["verify-2"] != 10 {
		t.Errorf("answers of lenses: %v", lenses)
	}
	if want := []string{
		"verify-1/review/verify-01/review_verifier", "verify-1/fix_generator", "issue-07/issue_writer", "issue-07/round-1/iter-1/coder",
		"issue-07/round-1/iter-1/commands", "issue-07/round-1/iter-1/code_reviewer", "verify-2/review/verify-01/review_verifier",
	}; !slices.Equal(judged, want) {
		t.Errorf("what came of the review: %q", judged)
	}
}

// checkPull holds what GitHub shows against what the terminal said.
func checkPull(h *hub, done ended) {
	h.Helper()
	pulls, _, err := h.PullRequests.List(h.Context(), demoOwner, demoRepo, &github.PullRequestListOptions{State: "all"})
	h.must(err)
	if len(pulls) != 1 {
		h.Fatalf("%d pull requests", len(pulls))
	}
	pull := pulls[0]
	if pull.GetNumber() != done.Pull.Number || !pull.GetDraft() || pull.GetState() != "open" || pull.GetHead().GetSHA() != done.Head ||
		pull.GetHead().GetRef() != done.Branch || pull.GetBase().GetRef() != "main" {
		h.Errorf("pull request %d: draft %v, %s, %s at %s into %s", pull.GetNumber(), pull.GetDraft(), pull.GetState(),
			pull.GetHead().GetRef(), pull.GetHead().GetSHA(), pull.GetBase().GetRef())
	}
	if !slices.Contains(strings.Split(pull.GetBody(), "\n"), "Closes #1") {
		h.Error("the pull request does not close its ticket")
	}
	checks, _, err := h.Checks.ListCheckRunsForRef(h.Context(), demoOwner, demoRepo, done.Head, nil)
	h.must(err)
	if len(checks.CheckRuns) != 1 {
		h.Fatalf("%d check runs", len(checks.CheckRuns))
	}
	check := checks.CheckRuns[0]
	if check.GetName() != "slipway/build" || check.GetStatus() != "completed" || check.GetConclusion() != "success" ||
		check.GetHeadSHA() != done.Head || check.GetExternalID() != done.Build+":"+done.Head {
		h.Errorf("check run %s: %s, %s, %s, %s", check.GetName(), check.GetStatus(), check.GetConclusion(), check.GetHeadSHA(), check.GetExternalID())
	}
	if !strings.Contains(check.GetOutput().GetTitle(), "1 debt item") {
		h.Errorf("the check run's title does not count the debt: %q", check.GetOutput().GetTitle())
	}
	for _, d := range done.Debt {
		row := fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", d.Type, d.Severity, d.IssueName, d.Criterion, d.Justification, d.FollowUp)
		for place, text := range map[string]string{"pull request": pull.GetBody(), "check run": check.GetOutput().GetSummary()} {
			if strings.Count(text, row) != 1 || strings.Count(text, "| "+string(d.Type)+" |") != len(done.Debt) {
				h.Errorf("the %s does not have the debt of the last line:\n%s\nin\n%s", place, row, text)
			}
		}
	}
}

// checkTicket looks at the ticket: seen, label taken, one comment, and the end.
func checkTicket(h *hub) {
	h.Helper()
	ticket, _, err := h.Issues.Get(h.Context(), demoOwner, demoRepo, 1)
	h.must(err)
	if len(ticket.Labels) != 0 || ticket.GetState() != "open" {
		h.Errorf("the ticket is %s with the labels %v", ticket.GetState(), ticket.Labels)
	}
	reactions, _, err := h.Reactions.ListIssueReactions(h.Context(), demoOwner, demoRepo, 1, nil)
	h.must(err)
	var seen []string
	for _, r := range reactions {
		seen = append(seen, r.GetUser().GetLogin()+" "+r.GetContent())
	}
	slices.Sort(seen)
	if want := []string{"slipway[bot] eyes", "slipway[bot] rocket"}; !slices.Equal(seen, want) {
		h.Errorf("reactions %q, want %q", seen, want)
	}
	comments, _, err := h.Issues.ListComments(h.Context(), demoOwner, demoRepo, 1, nil)
	h.must(err)
	if len(comments) != 2 || comments[0].GetUser().GetLogin() != "slipway[bot]" {
		h.Fatalf("%d comments on the ticket, want one that tracked the build and one that tells its end", len(comments))
	}
	if body := comments[1].GetBody(); !strings.Contains(body, "Succeeded with debt") || !strings.Contains(body, " end=1 -->") {
		h.Errorf("the end is told so:\n%s", body)
	}
	if body := comments[0].GetBody(); !strings.Contains(body, "Succeeded with debt") || !strings.Contains(body, "/pull/2") {
		h.Errorf("the tracking comment does not say the end:\n%s", body)
	}
}

// checkBranch clones the branch, builds it, and reads its history.
func checkBranch(h *hub, done ended) {
	h.Helper()
	dir := h.clone()
	h.run(dir, "git", "checkout", "--quiet", done.Branch)
	if head := h.run(dir, "git", "rev-parse", "HEAD"); head != done.Head {
		h.Errorf("the branch is at %s, want %s", head, done.Head)
	}
	h.run(dir, "go", "build", "./...")
	h.run(dir, "go", "vet", "./...")
	h.run(dir, "go", "test", "./...")
	if unformatted := h.run(dir, "gofmt", "-l", "."); unformatted != "" {
		h.Errorf("not formatted: %s", unformatted)
	}
	if out := h.run(dir, "go", "run", ".", "--by", "month", "--format", "csv", "--category", "groceries", "testdata/spring.ledger"); out != "month,entries,total\n2024-03,2,60.50\n2024-04,1,37.95" {
		h.Errorf("what was asked for prints\n%s", out)
	}

	first := h.lines(dir, "git", "log", "--first-parent", "--format=%H", "origin/main..HEAD")
	merges := h.lines(dir, "git", "log", "--first-parent", "--merges", "--format=%s", "origin/main..HEAD")
	if len(first) != 7 || len(merges) != 7 {
		h.Errorf("%d commits on the branch itself, %d of them merges; want one merge for each of 7 issues", len(first), len(merges))
	}
	slices.Sort(merges)
	for i, subject := range merges {
		if !strings.HasPrefix(subject, fmt.Sprintf("Merge issue %02d: ", i+1)) {
			h.Errorf("merge %d is %q", i+1, subject)
		}
	}
	for _, commit := range h.lines(dir, "git", "log", "--format=%h %(trailers:key=Co-authored-by,valueonly,separator=%x2C)", "origin/main..HEAD") {
		if _, by, _ := strings.Cut(commit, " "); !strings.HasPrefix(by, demoMaintainer+" <") || !strings.HasSuffix(by, "+"+demoMaintainer+"@users.noreply.github.com>") {
			h.Errorf("commit %s does not name who asked for it", commit)
		}
	}
}

// startSimOn starts the stand-in again on the state that the demo left.
func startSimOn(t *testing.T, dir string) (url string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), slipwayBinary, "githubsim", "--dir", dir)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may be gone with the test's context
		_, _ = io.Copy(io.Discard, out)         // until it has closed it
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var ready simReady
	if err := json.Unmarshal(line, &ready); err != nil {
		t.Fatal(err)
	}
	return ready.URL
}

// writable lets a directory be removed whose files a tool made read-only.
func writable(dir string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return nil
	})
}
