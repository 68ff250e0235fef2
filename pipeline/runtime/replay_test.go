package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
)

func TestReplayConforms(t *testing.T) {
	runtimetest.Run(t, func(t *testing.T, c runtimetest.Case) runtime.Runtime {
		r, err := runtime.NewReplay(suiteRecordings(t, c.Act), runtime.ReplayOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}, runtimetest.Options{Childless: "a recording starts no process"})
}

// suiteRecordings are what the agent of the suite does, written down by hand,
// but for what is too long for that.
func suiteRecordings(t *testing.T, act runtimetest.Act) []runtime.Recording {
	t.Helper()
	answer := func(output any) []runtime.Recording {
		text, err := json.Marshal(output)
		if err != nil {
			t.Fatal(err)
		}
		return []runtime.Recording{{Step: "suite/coder", Result: runtime.Result{Output: text}}}
	}
	switch act {
	case runtimetest.Echoes:
		return answer(map[string]string{"echo": runtimetest.Unicode})
	case runtimetest.Measures:
		return answer(map[string]int{"bytes": len(runtimetest.LongPrompt)})
	case runtimetest.Floods:
		return []runtime.Recording{{Step: "suite/coder", Events: []runtime.Event{{Kind: runtime.Text, Text: strings.Repeat("x", 65<<20)}}}}
	case runtimetest.Overruns:
		return []runtime.Recording{{Step: "suite/coder", DelayMS: 120_000, Events: slices.Repeat([]runtime.Event{{Kind: runtime.Text, Text: "tick"}}, 6000)}}
	}
	return parse(t, suiteRecording[act])
}

var suiteRecording = map[runtimetest.Act]string{
	runtimetest.EditsFile:      `{"step":"suite/coder","events":[],"result":{"output":{"done":true}},"files":{"greeting.txt":"hello, world\n"}}`,
	runtimetest.ReadsFile:      `{"step":"suite/coder","events":[],"result":{"output":{"word":"plum"}}}`,
	runtimetest.RunsCommand:    `{"step":"suite/coder","events":[{"kind":"tool_call","tool":"BASH"}],"result":{"output":{"loud":"PLUM"}},"files":{"loud.txt":"PLUM\n"}}`,
	runtimetest.Answers:        `{"step":"suite/coder","events":[],"result":{"output":{"answer":42}}}`,
	runtimetest.IsRepaired:     `[{"step":"suite/coder","events":[],"result":{"output":{"answer":"forty-two"}}},{"step":"suite/coder/repair-1","events":[],"result":{"output":{"answer":42}}}]`,
	runtimetest.CutsOff:        `{"step":"suite/coder","events":[],"result":{"text":"{\"answer\":4"}}`,
	runtimetest.IsRefused:      `{"step":"suite/coder","events":[{"kind":"tool_call","tool":"WRITE"}],"result":{"output":{"done":false},"denials":["WRITE"]}}`,
	runtimetest.IsLimited:      `{"step":"suite/coder","events":[],"result":{},"error":{"class":"transient","reason":"status 429","after_ms":60000}}`,
	runtimetest.Overloads:      `{"step":"suite/coder","events":[],"result":{},"error":{"class":"transient","reason":"status 529"}}`,
	runtimetest.MeetsFault:     `{"step":"suite/coder","events":[],"result":{},"error":{"class":"transient","reason":"status 500"}}`,
	runtimetest.Stalls:         `{"step":"suite/coder","delay_ms":120000,"events":[{"kind":"text","text":"thinking"}],"result":{}}`,
	runtimetest.Hangs:          `{"step":"suite/coder","delay_ms":120000,"events":[],"result":{}}`,
	runtimetest.Crashes:        `{"step":"suite/coder","events":[{"kind":"text","text":"working"}],"result":{},"error":{"class":"refused","reason":"exit code 2"}}`,
	runtimetest.SpawnsAndWaits: `{"step":"suite/coder","delay_ms":120000,"events":[{"kind":"text","text":"started"}],"result":{}}`,
	runtimetest.Spends:         `{"step":"suite/coder","events":[],"result":{"stop":"budget","cost_micros":60000},"error":{"class":"refused","reason":"it used up its budget"}}`,
	runtimetest.Remembers:      `[{"step":"suite/coder","events":[],"result":{"output":{"ok":true},"session":"session"}},{"step":"suite/coder/repair-1","events":[],"result":{"output":{"word":"quince"},"session":"session"}}]`,
}

func replay(t *testing.T, recording string) *runtime.Replay {
	t.Helper()
	return replayWith(t, runtime.ReplayOptions{}, recording)
}

func replayWith(t *testing.T, opts runtime.ReplayOptions, recording string) *runtime.Replay {
	t.Helper()
	r, err := runtime.NewReplay(parse(t, recording), opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func parse(t *testing.T, recording string) []runtime.Recording {
	t.Helper()
	recordings, err := runtime.ReadRecordings(fstest.MapFS{"step.json": {Data: []byte(recording)}})
	if err != nil {
		t.Fatal(err)
	}
	return recordings
}

func TestRecordingsThatCannotBePlayedAreRefused(t *testing.T) {
	for _, row := range []struct{ name, recording, want string }{
		{"no step", `{"events":[],"result":{}}`, "names no step"},
		{"a typing mistake", `{"step":"a","event":[]}`, `unknown field "event"`},
		{"two values", `{"step":"a"} {"step":"b"}`, "more than one"},
		{"a path above the directory", `{"step":"a","files":{"../x":""}}`, `"../x" is not inside`},
		{"an absolute path", `{"step":"a","files":{"/etc/x":""}}`, "not inside"},
		{"a deletion above the directory", `{"step":"a","deleted":["a/../../x"]}`, "not inside"},
		{"the directory itself", `{"step":"a","deleted":["."]}`, "not inside"},
		{"a hook of git", `{"step":"a","files":{".git/hooks/pre-commit":""}}`, "belongs to git"},
		{"a hook of git on a file system that folds case", `{"step":"a","files":{"sub/.GIT/config":""}}`, "belongs to git"},
		{"a link that leads out", `{"step":"a","links":{"sub/l":"../../x"}}`, "leads out"},
		{"an absolute link", `{"step":"a","links":{"l":"/etc/passwd"}}`, "leads out"},
		{"an unknown class of failure", `{"step":"a","error":{"class":"odd","reason":"x"}}`, "odd"},
		{"a negative delay", `{"step":"a","delay_ms":-1}`, "negative"},
	} {
		t.Run(row.name, func(t *testing.T) {
			_, err := runtime.ReadRecordings(fstest.MapFS{"dir/step.json": {Data: []byte(row.recording)}})
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "dir/step.json") {
				t.Errorf("ReadRecordings = %v, want an error that names the file and %q", err, row.want)
			}
		})
	}
}

func TestReplayFromAnArchive(t *testing.T) {
	archive := `How this demo goes.
-- README.md --
not a recording
-- issue-01/coder.json --
{"step":"issue-01/coder","events":[],"result":{"output":1},
 "files":{"bin/run.sh":"#!/bin/sh\n","docs/new.md":"new\n"},"executable":["bin/run.sh"],"deleted":["old/only.txt","gone.txt"]}
-- issue-01/coder.files/src/data.json --
{"not": "a recording"}
`
	recordings, err := runtime.ReadArchive([]byte(archive))
	if err != nil {
		t.Fatal(err)
	}
	r, err := runtime.NewReplay(recordings, runtime.ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c := call(t)
	put(t, c.Dir, "old/only.txt", "x")
	put(t, c.Dir, "keep.txt", "kept")
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"bin/run.sh": "-rwxr-xr-x #!/bin/sh\n", "docs/new.md": "-rw-r--r-- new\n", "keep.txt": "-rw-r--r-- kept",
		"src/data.json": "-rw-r--r-- {\"not\": \"a recording\"}\n"}
	if got := look(t, c.Dir); !maps.Equal(got, want) {
		t.Errorf("the tree is %v, want %v", got, want)
	}
	if _, err := os.Stat(filepath.Join(c.Dir, "old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the last deleted file is still there: %v", err)
	}
}

func TestFilesOfAnArchiveAreNotTrusted(t *testing.T) {
	for _, row := range []struct{ name, file, want string }{
		{"of no recording", "b.files/x.go", "no b.json before it"},
		{"outside", "a.files/../x.go", "not inside"},
		{"git's own", "a.files/.git/config", "belongs to git"},
	} {
		_, err := runtime.ReadArchive([]byte("-- a.json --\n{\"step\":\"a\"}\n-- " + row.file + " --\nx\n"))
		if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), row.file) {
			t.Errorf("%s: %v, want an error that names the file and %q", row.name, err, row.want)
		}
	}
}

// A link in the worktree must not carry a write out of it.
func TestReplayDoesNotWriteThroughLinks(t *testing.T) {
	outside := t.TempDir()
	put(t, outside, "target.txt", "untouched")
	for _, row := range []struct {
		name, recording string
		fails           bool
	}{
		{"a file where a link stands", `{"step":"issue-01/coder","files":{"link.txt":"new"}}`, false},
		{"a file below a linked directory", `{"step":"issue-01/coder","files":{"dir/target.txt":"new"}}`, true},
		{"a deletion below a linked directory", `{"step":"issue-01/coder","deleted":["dir/target.txt"]}`, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			c := call(t)
			link(t, filepath.Join(outside, "target.txt"), filepath.Join(c.Dir, "link.txt"))
			link(t, outside, filepath.Join(c.Dir, "dir"))
			_, err := replay(t, row.recording).Run(t.Context(), c, quiet)
			if (err != nil) != row.fails {
				t.Errorf("Run = %v, want a failure: %v", err, row.fails)
			}
			if got := look(t, outside); got["target.txt"] != "-rw-r--r-- untouched" {
				t.Errorf("outside of the directory: %v", got)
			}
		})
	}
}

func TestReplayNamesTheStepThatIsMissing(t *testing.T) {
	_, err := replay(t, `{"step":"issue-02/coder"}`).Run(t.Context(), call(t), quiet)
	failure, ok := errors.AsType[*runtime.Error](err)
	if !ok || failure.Class != runtime.Refused || !strings.Contains(failure.Reason, "issue-01/coder") {
		t.Errorf("Run = %v, want a refusal that names issue-01/coder", err)
	}
}

func TestStrictReplayComparesInputs(t *testing.T) {
	r := replayWith(t, runtime.ReplayOptions{Strict: true}, `{"step":"issue-01/coder","input_digest":"sha256:1","result":{"output":1}}`)
	c := call(t)
	c.Digest = "sha256:1"
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Errorf("the same input: %v", err)
	}
	c.Digest = "sha256:2"
	if _, err := r.Run(t.Context(), c, quiet); err == nil || !strings.Contains(err.Error(), "recorded sha256:1, now sha256:2") {
		t.Errorf("another input: %v", err)
	}
}

func TestReplayRefusesToChangeWhatIsReadOnly(t *testing.T) {
	c := call(t)
	c.ReadOnly = true
	_, err := replay(t, `{"step":"issue-01/coder","files":{"a":"b"}}`).Run(t.Context(), c, quiet)
	if err == nil || len(look(t, c.Dir)) != 0 {
		t.Errorf("Run = %v, tree %v", err, look(t, c.Dir))
	}
}

// A step that failed once and then went well is a list; the last one stays.
func TestReplayPlaysTheTurnsOfAStepInOrder(t *testing.T) {
	r := replay(t, `[{"step":"issue-01/coder","error":{"class":"transient","reason":"overloaded"}},{"step":"issue-01/coder","result":{"output":2}}]`)
	_, err := r.Run(t.Context(), call(t), quiet)
	if failure, ok := errors.AsType[*runtime.Error](err); !ok || failure.Class != runtime.Transient {
		t.Errorf("first: %v, want a transient failure", err)
	}
	for range 2 {
		if res, err := r.Run(t.Context(), call(t), quiet); err != nil || string(res.Output) != "2" {
			t.Errorf("then: %s, %v", res.Output, err)
		}
	}
}

func TestReplayTakesItsTime(t *testing.T) {
	c := call(t)
	r := replay(t, `{"step":"issue-01/coder","delay_ms":3000,"events":[{"kind":"text","text":"a"},{"kind":"text","text":"b"}],"result":{"output":1}}`)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var at []time.Duration
		if _, err := r.Run(t.Context(), c, func(runtime.Event) { at = append(at, time.Since(start)) }); err != nil {
			t.Fatal(err)
		}
		at = append(at, time.Since(start))
		if want := []time.Duration{0, 1500 * time.Millisecond, 3 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("events and end at %v, want %v", at, want)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		_, err := r.Run(ctx, c, func(runtime.Event) { cancel(gone) }) // in the middle of the delay that follows
		if !errors.Is(err, gone) || time.Since(start) != 0 {
			t.Errorf("Run = %v after %s, want the cause at once", err, time.Since(start))
		}
	})
}

// What a program did to a tree, a recording of it does again.
func TestRecordingReplaysToTheSameTree(t *testing.T) {
	const secret = "sk-recorded-1234"
	script := `cat >/dev/null
echo '{"type":"text","text":"in '"$PWD and $HOME"' with '"$MODEL_KEY"'"}'
echo '{"type":"tool_call","name":"EDIT","input":{"z":"'"$PWD"'/a.txt","a":1}}'
printf 'changed\n' > a.txt
rm gone/b.txt
mkdir -p new/deep && printf '#!/bin/sh\necho "%s"\n' hi > new/deep/run && chmod 755 new/deep/run
printf '\377\000' > blob
ln -s a.txt link
mkdir kind && printf file > kind/inner
rm swap && mkdir swap && echo inner > swap/inner
echo key > .git/never
echo "$MODEL_KEY" > leak.txt
echo '{"type":"usage","input_tokens":5,"cost_usd":0.25}'
echo '{"type":"result","output":{"z":1,"a":2},"session":"'"$(cat session)"'"}'`
	prepare := func(session string) runtime.Call {
		c := call(t)
		for name, text := range map[string]string{
			"a.txt": "before\n", "same.txt": "same", "gone/b.txt": "b", "swap": "a file", ".git/HEAD": "ref", "session": "same",
		} {
			put(t, c.Dir, name, text)
		}
		put(t, c.Home, "session", session)
		c.Digest = "sha256:input"
		return c
	}
	inner, err := runtime.NewCommand(runtime.CommandOptions{
		Args: []string{"sh", "-c", strings.ReplaceAll(script, "$(cat session)", "$(cat $HOME/session)")},
		Env:  []string{"MODEL_KEY=" + secret}, Box: box(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	record := func(session string) (text, dir string, tree map[string]string) {
		dir = t.TempDir()
		c := prepare(session)
		if _, err := runtime.Record(inner, dir, secret).Run(t.Context(), c, quiet); err != nil {
			t.Fatal(err)
		}
		recorded, err := os.ReadFile(filepath.Join(dir, "issue-01", "coder.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(recorded), dir, look(t, c.Dir)
	}
	text, dir, want := record("first-session")
	again, _, _ := record("other-session")
	if text != again {
		t.Errorf("two recordings of the same work differ:\n%s\n%s", text, again)
	}
	if strings.Contains(text, secret) {
		t.Errorf("the recording holds the secret:\n%s", text)
	}

	recordings, err := runtime.ReadRecordings(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	r, err := runtime.NewReplay(recordings, runtime.ReplayOptions{Strict: true})
	if err != nil {
		t.Fatal(err)
	}
	c := prepare("third-session")
	var events []string
	res, err := r.Run(t.Context(), c, func(e runtime.Event) { events = append(events, fmt.Sprint(e.Kind, " ", e.Text, string(e.Input))) })
	if err != nil {
		t.Fatal(err)
	}
	want["leak.txt"] = "-rw-r--r-- [secret]\n" // the one difference that is meant
	delete(want, ".git/never")
	if got := look(t, c.Dir); !maps.Equal(got, want) {
		t.Errorf("replayed to\n%v, want\n%v", got, want)
	}
	if res.CostMicros != 250_000 || res.Usage.Input != 5 || compact(t, res.Output) != `{"a":2,"z":1}` {
		t.Errorf("result = %+v", res)
	}
	if len(events) != 3 || events[0] != "text in . and ~ with [secret]" || !strings.Contains(events[1], `"./a.txt"`) {
		t.Errorf("events = %q", events)
	}
}

func TestRecorderKeepsFailuresAndRepeatedCalls(t *testing.T) {
	inner := replay(t, `[{"step":"issue-01/coder","error":{"class":"transient","reason":"overloaded"}},{"step":"issue-01/coder","result":{"output":2}}]`)
	dir := t.TempDir()
	rec := runtime.Record(inner, dir)
	for range 2 {
		_, _ = rec.Run(t.Context(), call(t), quiet) // the first is to fail
	}
	recordings, err := runtime.ReadRecordings(os.DirFS(dir))
	if err != nil {
		t.Fatal(err)
	}
	if len(recordings) != 2 || recordings[0].Error == nil || recordings[0].Error.Class != runtime.Transient || string(recordings[1].Result.Output) != "2" {
		t.Errorf("recordings = %+v", recordings)
	}
}

func compact(t *testing.T, text json.RawMessage) string {
	t.Helper()
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		t.Fatal(err)
	}
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func put(t *testing.T, dir, name, text string) {
	t.Helper()
	full := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

// look returns the files of dir: path → mode and content.
func look(t *testing.T, dir string) map[string]string {
	t.Helper()
	tree := make(map[string]string)
	err := filepath.WalkDir(dir, func(full string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, full)
		if err != nil {
			return err
		}
		if entry.Type() == fs.ModeSymlink {
			target, err := os.Readlink(full)
			tree[name] = "-> " + target
			return err
		}
		content, err := os.ReadFile(full)
		tree[name] = info.Mode().String() + " " + string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}
