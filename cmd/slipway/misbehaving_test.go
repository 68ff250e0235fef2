package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
)

// An agent that fails in one of the ways of programs is repaired, asked again,
// or fails its part with a reason that people can read. None of these leaves
// the build hanging.
func TestMisbehavingAgents(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		cast  cast
		code  int
		state string
		why   string // in the summary
		keys  []string
	}{
		"crashes, and works the next time": {
			cast: cast{"coder.sh": "case $step in */iter-1/*) kill -9 $$;; esac\n" + company["coder.sh"]},
			code: 0, state: "succeeded", keys: []string{"issue-01/round-1/iter-1/coder", "issue-01/round-1/iter-2/coder"},
		},
		"crashes every time": {
			cast: cast{"coder.sh": "echo 'out of cheese' >&2; exit 3\n"},
			code: 1, state: "failed", why: "the agent's program ended with exit code 3: out of cheese",
		},
		"dies by a signal every time": {
			cast: cast{"coder.sh": "kill -9 $$\n"},
			code: 1, state: "failed", why: "the agent's program ended with a signal",
		},
		"prints half a JSON value, and works the next time": {
			cast: cast{"coder.sh": `case $step in */iter-1/*) printf '{"type":"result","output":{"summ'; exit 0;; esac` + "\n" + company["coder.sh"]},
			code: 0, state: "succeeded", keys: []string{"issue-01/round-1/iter-2/coder"},
		},
		"prints half a JSON value every time": {
			cast: cast{"pm.sh": `printf '{"type":"result","output":{"title"'; exit 0` + "\n"},
			code: 1, state: "failed", why: `plan/pm: the agent's program ended without a {"type":"result"} line`,
		},
		"answers with the wrong type, and is repaired": {
			cast: cast{"code_reviewer.sh": `case $request in *'"repair":null'*) answer='{"approved":"yes","blocking":false,"summary":"Good."}';; esac` + "\n"},
			code: 0, state: "succeeded", keys: []string{"issue-01/round-1/iter-1/code_reviewer", "issue-01/round-1/iter-1/code_reviewer/repair-1"},
		},
		"answers with the wrong type every time": {
			cast: cast{"pm.sh": `answer='{"title":7}'` + "\n"},
			code: 1, state: "failed", why: "plan/pm: no valid answer after 3 turns: ", keys: []string{"plan/pm", "plan/pm/repair-1", "plan/pm/repair-2"},
		},
		"plans a circle every time": {
			cast: cast{"sprint_planner.json": planned(`{"name":"a","depends_on":["b"]}`, `{"name":"b","depends_on":["a"]}`)},
			code: 1, state: "failed", why: "depend on each other in a circle: a, b",
		},
		"asks to be run again": {
			cast: cast{"pm.sh": "[ -e \"$HOME/asked\" ] || { touch \"$HOME/asked\"; exit 75; }\n"},
			code: 0, state: "succeeded", keys: []string{"plan/pm"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			term, repo := newTerminal(t), newRepo(t, checked(green))
			end, d := company.but(row.cast).on(term, repo)
			term.ended(end, d, row.code, row.state, row.why)
			_, events := term.stream(end)
			for _, key := range row.keys {
				if !slices.ContainsFunc(events, func(l line) bool { return l.Event == "call" && l.Key == key }) {
					t.Errorf("the stream tells of no call %s", key)
				}
			}
		})
	}
}

// Whatever a hanging agent started is gone when its time is over, also what
// took a session of its own.
func TestHangingAgentIsStoppedWithItsProcesses(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "bwrap", "setsid")
	files := checked(green)
	files[".github/slipway.yml"] += "pipeline:\n  agent_timeout_seconds: 3\n"
	term, repo := newTerminal(t), newRepo(t, files)
	sleep := sleeper()
	end, d := company.but(cast{"coder.sh": "setsid " + sleep + " &\n" + sleep + "\n"}).on(term, repo)
	if left := running(t, sleep); len(left) > 0 {
		t.Errorf("still there at the end: %v", left)
	}
	term.ended(end, d, 1, "failed", "the agent did not finish within 3s")
	if end.took > time.Minute {
		t.Errorf("it took %s", end.took)
	}
}

func TestCancelStopsARunningBuild(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "bwrap", "setsid")
	term, repo := newTerminal(t), newRepo(t, checked(green))
	sleep := sleeper()
	run := company.but(cast{"coder.sh": "setsid " + sleep + " &\n" + sleep + "\n"}).start(term, repo)
	waitFor(t, sleep)
	start := time.Now()
	if sent := term.slipway("cancel", run.build); sent.code != 0 || !strings.Contains(sent.out, run.build) {
		t.Fatalf("cancel: %d %s%s", sent.code, sent.out, sent.err)
	}
	end := run.wait()
	if left := running(t, sleep); len(left) > 0 {
		t.Errorf("still there at the end: %v", left)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s to stop", took)
	}
	d, _ := term.stream(end)
	term.ended(end, d, 4, "cancelled", "cancelled")
	again := term.slipway("cancel", run.build)
	if again.code != 2 || !strings.Contains(again.err, "has ended already") {
		t.Errorf("cancel of an ended build: %d %s", again.code, again.err)
	}
}

// A build whose process was killed leaves no agent behind, and goes on from
// its journal.
func TestResumeAfterAKill(t *testing.T) {
	t.Parallel()
	sandboxtest.Need(t, "bwrap", "setsid")
	term, repo := newTerminal(t), newRepo(t, checked(green))
	sleep := sleeper()
	run := company.but(cast{"coder.sh": "[ -e \"$here/awake\" ] || { setsid " + sleep + " & " + sleep + "; }\n" + company["coder.sh"]}).start(term, repo)
	waitFor(t, sleep)
	run.kill()
	gone(t, sleep)
	write(t, run.cast, map[string]string{"awake": ""})
	end := term.slipway("resume", run.build, "--json")
	d, events := term.stream(end)
	term.ended(end, d, 0, "succeeded")
	if d.AgentCalls != companyCalls {
		t.Errorf("%d agent calls, want %d: %+v", d.AgentCalls, companyCalls, events)
	}
	if again := term.slipway("resume", run.build); again.code != 2 || !strings.Contains(again.err, "has ended") {
		t.Errorf("resume of an ended build: %d %s", again.code, again.err)
	}
	term.sound(repo)
}

var sleepers atomic.Int64

// sleeper is a command that outlives any test and that no other process runs.
func sleeper() string { return fmt.Sprintf("sleep 86398.%d%05d", os.Getpid(), sleepers.Add(1)) }

// running lists the processes that run command.
func running(t testing.TB, command string) (found []string) {
	t.Helper()
	want := append(bytes.ReplaceAll([]byte(command), []byte(" "), []byte{0}), 0)
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if got, err := os.ReadFile(name); err == nil && bytes.Equal(got, want) {
			found = append(found, name)
		}
	}
	return found
}

// waitFor returns when command runs twice: in the agent's session and in its own.
func waitFor(t testing.TB, command string) {
	t.Helper()
	until(t, 30*time.Second, "the agent does not run", func() bool { return len(running(t, command)) == 2 })
}

// gone returns when nothing runs command, which has to be within five seconds.
func gone(t testing.TB, command string) {
	t.Helper()
	until(t, 5*time.Second, "the agent's processes are still there", func() bool { return len(running(t, command)) == 0 })
}

func until(t testing.TB, limit time.Duration, otherwise string, is func() bool) {
	t.Helper()
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	late := time.After(limit)
	for !is() {
		select {
		case <-look.C:
		case <-late:
			t.Fatalf("after %s: %s", limit, otherwise)
		}
	}
}
