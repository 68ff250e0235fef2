package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

const examples = "../../docs/examples"

// What docs/examples/README.md says is typed as it stands there, with --json
// behind it.
func TestExampleInTheReadme(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "node", "npm")
	page, err := os.ReadFile(filepath.Join(examples, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(blocks) != 2 {
		t.Fatalf("the page has %d shell blocks, want the set-up and the command", len(blocks))
	}
	setup, command := blocks[0][1], strings.TrimSpace(blocks[1][1])
	if strings.Contains(command, "\n") {
		t.Errorf("more than one command to try it: %s", command)
	}
	term := newTerminal(t,
		"SLIPWAY_STATE_DIR="+t.TempDir(), "TMPDIR="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com")
	term.state = strings.TrimPrefix(term.env[2], "SLIPWAY_STATE_DIR=")
	term.env[0] = "PATH=" + filepath.Dir(slipwayBinary) + ":" + os.Getenv("PATH")

	repoFile := filepath.Join(t.TempDir(), "repo")
	sh := func(script string) typed {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
		cmd.Dir, cmd.Env = "../..", term.env
		var out, failed strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &failed
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v\n%s%s", err, &out, &failed)
		}
		return typed{out: out.String(), err: failed.String()}
	}
	sh(setup + "printf '%s' \"$repo\" > " + repoFile)
	text, err := os.ReadFile(repoFile)
	if err != nil {
		t.Fatal(err)
	}
	repo := string(text)
	write(t, repo, map[string]string{"README.md": "# Mine\n"})
	git(t, repo, "add", "README.md")
	git(t, repo, "commit", "--quiet", "--message=Describe it")
	was := lookAt(t, repo)

	end := sh("repo=" + repo + "\n" + command + " --json")
	d, events := term.stream(end)
	term.ended(end, d, 0, "succeeded")
	if !d.Success || !d.Verification.Passed || d.Issues.Completed != 1 || len(d.Debt) > 0 {
		t.Errorf("done: %+v", d)
	}
	if len(d.Verification.Criteria) != 1 || !d.Verification.Criteria[0].Passed || d.Verification.Criteria[0].IssueName != "add-greet" {
		t.Errorf("verification: %+v", d.Verification)
	}
	if !strings.HasSuffix(d.Branch, "-greet-people-by-name") || git(t, repo, "rev-parse", d.Branch) != d.Head {
		t.Errorf("branch %s, head %s", d.Branch, d.Head)
	}
	if got := git(t, repo, "diff", "--name-only", "main", d.Branch); got != "greet.mjs\ngreet.test.mjs" {
		t.Errorf("the branch changes %q", got)
	}
	was.untouched(t)

	// The engine ran the tests itself, on the issue's commit and on the head.
	for _, key := range []string{"issue-01/round-1/iter-1/commands", "verify-1/commands"} {
		if !slices.ContainsFunc(events, func(l line) bool { return l.Key == key && l.Role == "engine" }) {
			t.Errorf("the stream does not tell of %s", key)
		}
	}
	report := term.report(d.Build)
	if !regexp.MustCompile(`(?m)^.*npm test.*passed`).MatchString(plain(report)) {
		t.Errorf("report.md does not say that npm test passed:\n%s", report)
	}
	status := term.slipway("status", d.Build, "--json")
	if !strings.Contains(status.out, `"line":"npm test","passed":true,"exit":0`) {
		t.Errorf("status does not say that npm test passed: %s", status.out)
	}
	said := term.slipway("logs", d.Build, "issue-01/round-1/iter-1/coder")
	if said.code != 0 || !strings.Contains(said.out, "I am the coder.") || !strings.Contains(said.out, "greet.mjs") {
		t.Errorf("the transcript: %d %s%s", said.code, said.out, said.err)
	}
}
