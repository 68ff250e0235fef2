package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline"
)

// A build of three issues, two of them side by side, one of which needs a second
// turn of its Coder. The agents also know a secret, and say it.
func TestReplayOfABuild(t *testing.T) {
	t.Parallel()
	const secret = "hunter2-hunter2"
	term, repo := newTerminal(t, "SLIPWAY_RECORD=true", "MODEL_API_KEY="+secret), newRepo(t, checked(green))
	parts := company.but(cast{
		"sprint_planner.json": planned(`{"name":"add-hello"}`, `{"name":"add-bye"}`, `{"name":"add-all","depends_on":["add-hello","add-bye"]}`),
		"coder.sh": "issue=${step%%/*}\necho \"echo $issue\" > $issue.sh\n" +
			"printf '{\"type\":\"text\",\"text\":\"the key is " + secret + " in %s\"}\\n' \"$PWD\"\n",
		"code_reviewer.sh": "case $step in issue-02/round-1/iter-1/*) answer='{\"approved\":false,\"blocking\":false,\"summary\":\"Say it louder.\"}';; esac\n",
	})
	_, built := parts.on(term, repo)
	if built.State != "succeeded" || built.Issues.Completed != 3 {
		t.Fatalf("built: %+v", built)
	}
	recordings := filepath.Join(term.state, "recordings", built.Build)
	recorded := readAll(t, recordings)
	if len(recorded) < 15 {
		t.Errorf("%d calls are recorded", len(recorded))
	}
	for name, text := range recorded {
		if strings.Contains(text, secret) || strings.Contains(text, term.state) {
			t.Errorf("%s shows a secret or a path of this machine:\n%s", name, text)
		}
	}
	if !strings.Contains(recorded["issue-01/round-1/iter-1/coder.json"], "the key is [secret] in .") {
		t.Errorf("the Coder is recorded as %s", recorded["issue-01/round-1/iter-1/coder.json"])
	}

	was := lookAt(t, repo)
	for _, flags := range [][]string{{"--json"}, {"--json", "--strict"}} {
		end, got := term.replay(built.Build, flags...)
		if end.code != 0 || !got.Same || len(got.Differences) > 0 || got.Tree == "" || got.Tree != git(t, repo, "rev-parse", built.Head+"^{tree}") {
			t.Errorf("replay %v: exit %d, %+v\n%s", flags, end.code, got, end.err)
		}
	}
	if end := term.slipway("replay", built.Build); end.code != 0 || !strings.Contains(end.out, "same: every decision") {
		t.Errorf("replay: exit %d\n%s%s", end.code, end.out, end.err)
	}
	if again := readAll(t, recordings); len(again) != len(recorded) {
		t.Errorf("a replay recorded something: %d files, %d before", len(again), len(recorded))
	}
	was.untouched(t)

	t.Run("with a Coder who wrote something else", func(t *testing.T) {
		path := filepath.Join(recordings, "issue-01", "round-1", "iter-1", "coder.json")
		text := recorded["issue-01/round-1/iter-1/coder.json"]
		if err := os.WriteFile(path, []byte(strings.Replace(text, "echo issue-01", "echo other", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		end, got := term.replay(built.Build, "--json")
		if end.code != exitDiffers || got.Same || got.Tree == got.TreeNow || !differs(got, "issue-01/round-1/iter-1/coder", "commit") {
			t.Errorf("exit %d, %+v\n%s", end.code, got, end.err)
		}
		if text := term.slipway("replay", built.Build); text.code != exitDiffers || !strings.Contains(text.out, "issue-01/round-1/iter-1/coder") || !strings.Contains(text.out, "differs:") {
			t.Errorf("replay: exit %d\n%s%s", text.code, text.out, text.err)
		}
	})
	t.Run("without recordings", func(t *testing.T) {
		if err := os.RemoveAll(recordings); err != nil {
			t.Fatal(err)
		}
		if end := term.slipway("replay", built.Build); end.code != 2 || !strings.Contains(end.err, "SLIPWAY_RECORD=true") {
			t.Errorf("exit %d: %s", end.code, end.err)
		}
	})
}

func TestOnlyWhatEndedIsReplayed(t *testing.T) {
	t.Parallel()
	term, repo := newTerminal(t), newRepo(t, checked(green))
	r := company.but(cast{"coder.sh": "while :; do sleep 1; done\n"}).start(term, repo)
	if end := term.slipway("replay", r.build); end.code != 2 || !strings.Contains(end.err, "has not ended") {
		t.Errorf("exit %d: %s", end.code, end.err)
	}
	if end := term.slipway("cancel", r.build); end.code != 0 {
		t.Errorf("cancel: exit %d: %s", end.code, end.err)
	}
	r.wait()
}

func (t *terminal) replay(build string, flags ...string) (typed, pipeline.Replayed) {
	t.Helper()
	end := t.slipway(append([]string{"replay", build}, flags...)...)
	var got pipeline.Replayed
	if err := json.Unmarshal([]byte(end.out), &got); err != nil {
		t.Errorf("replay: exit %d, %v\n%s%s", end.code, err, end.out, end.err)
	}
	return end, got
}

func differs(r pipeline.Replayed, key, what string) bool {
	for _, d := range r.Differences {
		if d.Key == key && d.What == what {
			return true
		}
	}
	return false
}

// readAll returns the files below dir, by their path.
func readAll(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
