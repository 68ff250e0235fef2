package main

import (
	"encoding/json"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// newBenchPull is a directory as ReviewBench mounts it at /work: the checkout at
// the head, at no branch and without the contents that neither checkout nor diff
// needed, whose base went on after the head left it; the diff with three dots; and
// what the pull request says of itself.
func newBenchPull(t *testing.T) (dir, base, head string, env []string) {
	t.Helper()
	dir = t.TempDir()
	origin := newRepo(t, map[string]string{"pool.go": "package pool\n\nfunc a() {}\n\nfunc check() {}\n\nfunc b() {}\n", "old.go": "package pool\n"})
	git(t, origin, "checkout", "--quiet", "-b", "feature")
	write(t, origin, map[string]string{"pool.go": "package pool\n\nfunc a() {}\n\nfunc b() { a() }\n"})
	must(t, os.Remove(filepath.Join(origin, "old.go")))
	git(t, origin, "commit", "--quiet", "--all", "--message=Call a")
	git(t, origin, "checkout", "--quiet", "main")
	write(t, origin, map[string]string{"README.md": "# Pool\n"})
	git(t, origin, "add", "--all")
	git(t, origin, "commit", "--quiet", "--message=Go on")
	base, head = git(t, origin, "rev-parse", "main"), git(t, origin, "rev-parse", "feature")

	checkout := filepath.Join(dir, "repo")
	git(t, origin, "config", "uploadpack.allowFilter", "true")
	git(t, origin, "clone", "--quiet", "--no-checkout", "--filter=blob:none", "file://"+origin, checkout)
	git(t, checkout, "checkout", "--quiet", "--detach", head)
	pull, err := json.Marshal(map[string]any{
		"repo": "https://github.com/acme/pool", "pr_number": 1938, "base": base, "head": head, "nwo": "acme/pool", "title": "Call a", "body": "b needs what a does.",
	})
	must(t, err)
	write(t, dir, map[string]string{
		"pr/diff.patch": git(t, checkout, "diff", base+"..."+head) + "\n", "pr/pr.json": string(pull),
	})
	must(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
	return dir, base, head, []string{
		"RB_NWO=acme/pool", "RB_PR_NUMBER=1938", "RB_BASE=" + base, "RB_HEAD=" + head, "RB_AGENT=my-reviewer", "RB_OUT=" + filepath.Join(dir, "out", "findings.json"),
	}
}

// benchCritics find a fault on a line of the head, one on a line that was removed,
// one of the change as a whole, and one in a file that is no more.
const benchCritics = `-- correctness.json --
{"step": "review/correctness/lens", "events": [], "result": {"output": {"findings": [
 {"severity": "high", "path": "pool.go", "start_line": 5, "title": "a may block", "claim": "b waits for a.", "failure_scenario": "Call b twice."},
 {"severity": "high", "path": "pool.go", "start_line": 5, "side": "old", "quote": "func check() {}", "title": "check is gone", "claim": "Nobody looks any more."},
 {"severity": "high", "title": "No migration", "claim": "Callers are not told of the release."},
 {"severity": "high", "path": "old.go", "start_line": 1, "side": "old", "title": "old.go is needed", "claim": "Something imports this file."}]}}}
-- verifier.json --
{"step": "review/verify-01/review_verifier", "events": [], "result": {"output": {"verdicts": [
 {"id": "f1", "verdict": "confirmed", "confidence": 95, "reason": "Yes."}, {"id": "f2", "verdict": "confirmed", "confidence": 95, "reason": "Yes."},
 {"id": "f3", "verdict": "confirmed", "confidence": 95, "reason": "Yes."}, {"id": "f4", "verdict": "confirmed", "confidence": 95, "reason": "Yes."}]}}}
-- audit.json --
{"step": "review/audit/lens", "events": [], "result": {"output": {"findings": []}}}
`

// TestReviewBench answers a pull request of the benchmark, and the answer passes the
// checks of its AGENT_CONTRACT.md, scripts/try-agent.sh and scripts/harbor/verify.ts.
func TestReviewBench(t *testing.T) {
	t.Parallel()
	dir, base, head, env := newBenchPull(t)
	temp := t.TempDir()
	term := newTerminal(t, append(env, "TMPDIR="+temp, "RB_CONFIG_MODEL=some-model")...)
	write(t, term.state, map[string]string{"critics.txtar": benchCritics, "nobody.txtar": ""})
	args := []string{"review", "--reviewbench", dir, "--runtime", "replay", "--focus", "correctness"}
	before := git(t, filepath.Join(dir, "repo"), "status", "--porcelain", "--branch")
	got := term.slipway(append(args, "--recordings", filepath.Join(term.state, "critics.txtar"))...)
	if got.code != 0 || !strings.Contains(got.err, "model=some-model") || strings.Count(got.err, "was left out") != 2 {
		t.Fatalf("exit %d: %s%s", got.code, got.out, got.err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "findings.json"))
	must(t, err)
	var answer struct {
		PR struct {
			Repo       string
			Base, Head string
			PR_number  int
		}
		Agent    string
		Findings []struct {
			File, Message, Producer string
			Start_line, End_line    int
		}
	}
	must(t, json.Unmarshal(text, &answer))
	if answer.PR.Head != head || answer.PR.Base != base || answer.PR.PR_number != 1938 || answer.PR.Repo != "https://github.com/acme/pool" || answer.Agent != "my-reviewer" {
		t.Errorf("%+v", answer)
	}
	for _, f := range answer.Findings {
		if f.File == "" || path.Clean(f.File) != f.File || path.IsAbs(f.File) || f.Start_line < 1 || f.End_line < f.Start_line || f.Message == "" || f.Producer != "my-reviewer" {
			t.Errorf("the benchmark refuses %+v", f)
		}
	}
	if len(answer.Findings) != 2 || answer.Findings[0].Message != "a may block\n\nb waits for a.\n\nCall b twice." || answer.Findings[0].Start_line != 5 ||
		answer.Findings[1].Start_line != 5 || !strings.HasPrefix(answer.Findings[1].Message, "check is gone") {
		t.Errorf("%s", text)
	}
	if after := git(t, filepath.Join(dir, "repo"), "status", "--porcelain", "--branch"); after != before {
		t.Errorf("the checkout was changed: %s", after)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}

	must(t, os.Remove(filepath.Join(dir, "out", "findings.json")))
	none := term.slipway(append(args, "--recordings", filepath.Join(term.state, "nobody.txtar"))...)
	if _, err := os.Stat(filepath.Join(dir, "out", "findings.json")); none.code != 3 || err == nil || !strings.Contains(none.err, "the review could not be done") {
		t.Errorf("nobody answered, and it exits with %d and %v: %s", none.code, err, none.err)
	}
}

// TestReviewBenchMistakes are directories that are not what the contract says.
func TestReviewBenchMistakes(t *testing.T) {
	t.Parallel()
	dir, base, head, env := newBenchPull(t)
	whole, err := os.ReadFile(filepath.Join(dir, "pr", "pr.json"))
	must(t, err)
	rest := strings.Join(env, "\n")
	for name, row := range map[string]struct {
		files map[string]string // over those that are there; empty: removed
		env   string            // likewise of the environment, as OLD=>NEW
		args  []string
		code  int
		want  string
	}{
		"no RB_OUT":                 {nil, "RB_OUT=>X=", nil, 2, "RB_OUT is not set"},
		"nowhere to write":          {nil, "/out/=>/nowhere/", nil, 2, "RB_OUT: there is no directory"},
		"no pr.json":                {map[string]string{"pr/pr.json": ""}, "", nil, 2, "has no file pr.json"},
		"a pr.json that is none":    {map[string]string{"pr/pr.json": "{"}, "", nil, 2, "pr.json: unexpected end"},
		"no number":                 {map[string]string{"pr/pr.json": strings.Replace(string(whole), "1938", "0", 1)}, "", nil, 2, "pr_number is 0"},
		"a short hash":              {map[string]string{"pr/pr.json": strings.Replace(string(whole), head, head[:8], 1)}, "", nil, 2, "want whole hashes"},
		"no diff.patch":             {map[string]string{"pr/diff.patch": ""}, "", nil, 2, "has no file diff.patch"},
		"a diff of nothing":         {map[string]string{"pr/diff.patch": "\n"}, "", nil, 2, "diff.patch changes no file"},
		"a diff of something else":  {map[string]string{"pr/diff.patch": "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"}, "", nil, 5, "diff.patch changes x, and the commits in pr.json do not"},
		"another number":            {nil, "1938=>7", nil, 2, "RB_PR_NUMBER is 7, and pr.json says 1938"},
		"another head":              {nil, "RB_HEAD=" + head + "=>RB_HEAD=" + base, nil, 2, "RB_HEAD is " + base},
		"a head that is not there":  {map[string]string{"pr/pr.json": strings.Replace(string(whole), head, strings.Repeat("a", 40), 1)}, "RB_HEAD=" + head + "=>X=", nil, 5, "the head in pr.json is aaaa"},
		"a base that is not there":  {map[string]string{"pr/pr.json": strings.Replace(string(whole), base, strings.Repeat("b", 40), 1)}, "RB_BASE=" + base + "=>X=", nil, 5, "has no commit bbbb"},
		"no checkout":               {map[string]string{"repo": ""}, "", nil, 2, "has no folder repo or checkout"},
		"a checkout without git":    {map[string]string{"repo/.git": ""}, "", nil, 5, "is not a git repository"},
		"a repository of one's own": {nil, "", []string{"--repo", "."}, 2, "leave out --repo"},
	} {
		t.Run(name, func(t *testing.T) {
			for file, text := range row.files {
				kept := filepath.Join(t.TempDir(), "kept")
				must(t, os.Rename(filepath.Join(dir, file), kept))
				defer func() {
					must(t, os.RemoveAll(filepath.Join(dir, file)))
					must(t, os.Rename(kept, filepath.Join(dir, file)))
				}()
				if text != "" {
					write(t, dir, map[string]string{file: text})
				}
			}
			given := rest
			if old, replaced, ok := strings.Cut(row.env, "=>"); ok {
				given = strings.Replace(given, old, replaced, 1)
			}
			term := newTerminal(t, strings.Split(given, "\n")...)
			got := term.slipway(append([]string{"review", "--reviewbench", dir, "--runtime", "command", "--agent-command", "/bin/false"}, row.args...)...)
			if got.code != row.code || !strings.Contains(got.err, row.want) {
				t.Errorf("exit %d, want %d: %s\nwant %s", got.code, row.code, got.err, row.want)
			}
		})
	}
}
