package main

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// critics review a change of greet.sh: one lens finds a fault, and nobody can
// refute it.
var critics = cast{
	"lens.json": `{"findings":[]}`,
	"lens.sh": `grep -q 'hello $name' greet.sh && case $step in */correctness/*) answer='{"findings":[{"severity":"high","path":"greet.sh","start_line":9,` +
		`"quote":"echo hello $name","title":"An unset name is not noticed","claim":"Without a name it greets nobody.",` +
		`"failure_scenario":"Run it without name set."}]}';; esac
`,
	"review_verifier.json": `{"verdicts":[{"id":"f1","verdict":"confirmed","confidence":95,"reason":"It does."}]}`,
	"review_verifier.sh": `grep -q 'hello $name' greet.sh || answer='{"verdicts":[{"id":"f1","verdict":"rejected","confidence":95,"reason":"It stops now."}]}'
`,
}

// newChange is a repository whose branch feature, which is checked out, changes
// greet.sh.
func newChange(t *testing.T, script string) string {
	t.Helper()
	dir := newRepo(t, checked(green))
	git(t, dir, "checkout", "--quiet", "-b", "feature")
	write(t, dir, map[string]string{"greet.sh": "# greets\necho hello $name\n", "check.sh": script})
	git(t, dir, "add", "--all")
	git(t, dir, "commit", "--quiet", "--message=Greet")
	return dir
}

// TestReviewAtATerminal is one review shown in three ways, and its exit codes.
func TestReviewAtATerminal(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	repo := newChange(t, green)
	before := git(t, repo, "status", "--porcelain", "--branch") + git(t, repo, "for-each-ref")
	_, flags := critics.hire(t)
	sarif := filepath.Join(t.TempDir(), "findings.sarif")
	args := append([]string{"review", "--repo", repo, "--base", "main"}, flags...)

	shown := term.slipway(append(args, "--sarif", sarif)...)
	if shown.code != 1 {
		t.Errorf("exit %d: %s", shown.code, shown.err)
	}
	for _, want := range []string{
		"Reviewed 1 of 1 file, 1 finding\n", "  1  high      greet.sh:2\n     An unset name is not noticed\n", "lenses    done", "correctness", "report  ",
	} {
		if !strings.Contains(shown.out, want) {
			t.Errorf("%q is not in\n%s", want, shown.out)
		}
	}
	if after := git(t, repo, "status", "--porcelain", "--branch") + git(t, repo, "for-each-ref"); after != before {
		t.Errorf("the repository was changed:\n%s\n%s", before, after)
	}
	var log struct {
		Version string
		Runs    []struct {
			Results []struct{ RuleID, Level string }
		}
	}
	text, err := os.ReadFile(sarif)
	if err == nil {
		err = json.Unmarshal(text, &log)
	}
	if err != nil || log.Version != "2.1.0" || len(log.Runs) != 1 || len(log.Runs[0].Results) != 1 || log.Runs[0].Results[0].Level != "error" {
		t.Errorf("%v: %s", err, text)
	}

	lines := term.slipway(append(args, "--json", "--fail-on", "critical")...)
	all := strings.Split(strings.TrimSpace(lines.out), "\n")
	var last struct {
		Event, Headline, Conclusion, Review string
		Whole                               bool
		Open                                []int
		Findings                            []struct{ Number int }
	}
	for _, line := range all {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
	}
	if lines.code != 0 || last.Event != "done" || !last.Whole || len(last.Open) != 1 || last.Conclusion != "neutral" {
		t.Errorf("exit %d, %+v", lines.code, last)
	}
	if status := term.slipway("status", last.Review); !strings.Contains(status.out, "Reviewed 1 of 1 file, 1 finding") {
		t.Errorf("status: %s%s", status.out, status.err)
	}
	if list := term.slipway("list"); strings.Count(list.out, "Reviewed 1 of 1 file, 1 finding") != 2 {
		t.Errorf("list:\n%s", list.out)
	}
	if logs := term.slipway("logs", last.Review); !strings.Contains(logs.out, "publish   done") {
		t.Errorf("logs:\n%s", logs.out)
	}
	if again := term.slipway("resume", last.Review); again.code == 0 || !strings.Contains(again.err, "has ended") {
		t.Errorf("resume: %d %s", again.code, again.err)
	}
}

// TestReviewFindsWhatTheCommandsShow has no agent that finds anything: the
// repository's own test fails on the branch, and not on its base.
func TestReviewFindsWhatTheCommandsShow(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	_, flags := critics.but(cast{"lens.sh": ""}).hire(t)
	got := term.slipway(append([]string{"review", "--repo", newChange(t, "echo broken >&2; exit 3\n"), "--base", "main", "--focus", "tests"}, flags...)...)
	for _, want := range []string{"sh check.sh fails", "passes on the base and fails on the head", "| exit code 3"} {
		if got.code != 1 || !strings.Contains(got.out, want) {
			t.Errorf("exit %d, %q is not in\n%s%s", got.code, want, got.out, got.err)
		}
	}
}

// TestReviewInterrupted presses Ctrl-C while a lens hangs: what is verified is
// shown, and that it is not all.
func TestReviewInterrupted(t *testing.T) {
	t.Parallel()
	term := newTerminal(t)
	_, flags := critics.but(cast{"lens.sh": "case $step in */tests/*) sleep 100;; esac\n"}).hire(t)
	cmd := term.command(append([]string{"review", "--json", "--repo", newChange(t, green), "--base", "main", "--focus", "correctness,tests"}, flags...)...)
	pipe, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	pressed, last := false, ""
	for lines := bufio.NewScanner(pipe); lines.Scan(); {
		last = lines.Text()
		if !pressed && strings.Contains(last, `"subagent_type":"correctness"`) && strings.Contains(last, `"state":"completed"`) {
			pressed = true
			must(t, cmd.Process.Signal(os.Interrupt))
		}
	}
	_ = cmd.Wait() // the code says how
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(last, `"state":"cancelled"`) || !strings.Contains(last, `"agent":"tests"`) {
		t.Errorf("exit %d, pressed %v:\n%s", code, pressed, last)
	}
}

// TestReviewUsage is what a person got wrong.
func TestReviewUsage(t *testing.T) {
	t.Parallel()
	repo := newRepo(t, checked(green))
	for name, row := range map[string]struct {
		args []string
		want string
	}{
		"no repository":            {[]string{"--base", "main"}, "--repo is required"},
		"no base":                  {[]string{"--repo", repo}, "--base is required"},
		"an unknown severity":      {[]string{"--repo", repo, "--base", "main", "--severity", "bad"}, "--severity bad: give critical"},
		"an unknown bound":         {[]string{"--repo", repo, "--base", "main", "--fail-on", "bad"}, "--fail-on bad: give critical"},
		"a directory that is none": {[]string{"--repo", repo, "--base", "main", "--sarif", "no/such/dir/x.sarif"}, "--sarif"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := newTerminal(t).slipway(append([]string{"review"}, row.args...)...)
			if got.code != 2 || !strings.Contains(got.err, row.want) {
				t.Errorf("exit %d: %s, want %q", got.code, got.err, row.want)
			}
		})
	}
	_, flags := critics.hire(t)
	gone := newTerminal(t).slipway(append([]string{"review", "--repo", repo, "--base", "no-such-branch"}, flags...)...)
	if gone.code != 3 || !strings.Contains(gone.out, "no-such-branch") {
		t.Errorf("a base that is not there: exit %d, %s%s", gone.code, gone.out, gone.err)
	}
	slip := newTerminal(t).slipway(append([]string{"review", "--repo", repo, "--base", "main", "--focus", "speling"}, flags...)...)
	if slip.code != 3 || !strings.Contains(slip.out, `no lens "speling"`) {
		t.Errorf("a lens that is not there: exit %d, %s%s", slip.code, slip.out, slip.err)
	}
}
