package runtime_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/runtimetest"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// actVariable makes the test binary an agent program: it names what to do.
const actVariable = "SLIPWAY_TEST_AGENT"

// pipeArg makes the test binary the MCP server of a CLI.
const pipeArg = "pipe-for-a-test"

func TestMain(m *testing.M) {
	sandbox.Main()
	if len(os.Args) == 3 && os.Args[1] == pipeArg {
		if err := runtime.Pipe(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if act := os.Getenv(actVariable); act != "" {
		os.Exit(agent(act))
	}
	goleak.VerifyTestMain(m)
}

// agentRequest is what an agent program is told, as its authors read the
// protocol: not the type that the runtime writes it with.
type agentRequest struct {
	Version int      `json:"version"`
	Step    string   `json:"step"`
	Role    string   `json:"role"`
	System  string   `json:"system"`
	Prompt  string   `json:"prompt"`
	Tools   []string `json:"tools"`
	Dir     string   `json:"dir"`
	Session string   `json:"session"`
	Repair  *struct {
		Previous string   `json:"previous"`
		Errors   []string `json:"errors"`
	} `json:"repair"`
}

// agent is a program that speaks the protocol of the command runtime and does
// one of the acts of the suite.
func agent(act string) int {
	say := func(format string, args ...any) { fmt.Printf(format+"\n", args...) }
	answer := func(output any) int {
		text, err := json.Marshal(map[string]any{"type": "result", "output": output, "session": "s1"})
		if err != nil {
			return 1
		}
		say("%s", text)
		return 0
	}
	var req agentRequest
	if err := json.NewDecoder(bufio.NewReader(os.Stdin)).Decode(&req); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	act, command, _ := strings.Cut(act, "|")
	switch runtimetest.Act(act) {
	case runtimetest.EditsFile:
		say(`{"type":"tool_call","name":"EDIT","input":{"path":"greeting.txt"}}`)
		if err := os.WriteFile("greeting.txt", []byte("hello, world\n"), 0o644); err != nil {
			return 1
		}
		return answer(map[string]bool{"done": true})
	case runtimetest.ReadsFile:
		word, err := os.ReadFile("word.txt")
		if err != nil {
			return 1
		}
		return answer(map[string]string{"word": strings.TrimSpace(string(word))})
	case runtimetest.RunsCommand:
		say(`{"type":"tool_call","name":"BASH"}`)
		printed, err := exec.Command("sh", "-c", runtimetest.Shout).Output()
		if err != nil {
			return 1
		}
		return answer(map[string]string{"loud": strings.TrimSpace(string(printed))})
	case runtimetest.Answers:
		return answer(map[string]int{"answer": 42})
	case runtimetest.IsRepaired:
		if req.Repair == nil {
			return answer(map[string]string{"answer": "forty-two"})
		}
		if req.Session != "s1" || req.Repair.Errors[0] == "" || !strings.Contains(req.Repair.Previous, "forty-two") {
			fmt.Fprintf(os.Stderr, "a repair turn without what it needs: %+v\n", req)
			return 1
		}
		return answer(map[string]int{"answer": 42})
	case runtimetest.CutsOff:
		say(`{"type":"result","output":{"answer":4`)
		return 0
	case runtimetest.IsRefused:
		say(`{"type":"tool_call","name":"WRITE","input":{"path":"greeting.txt"}}`)
		if err := os.WriteFile("greeting.txt", []byte("planted\n"), 0o644); err != nil {
			text, _ := json.Marshal(err.Error())
			say(`{"type":"tool_result","name":"WRITE","text":%s,"denied":true}`, text)
		}
		return answer(map[string]bool{"done": false})
	case runtimetest.IsLimited:
		say(`{"type":"retry","text":"status 429","after_seconds":%g}`, runtimetest.RetryAfter.Seconds())
		return 75
	case runtimetest.Overloads, runtimetest.MeetsFault:
		fmt.Fprintln(os.Stderr, act)
		return 75
	case runtimetest.Stalls:
		say(`{"type":"text","text":"thinking"}`)
		select {}
	case runtimetest.Hangs:
		_ = exec.Command("sh", "-c", command).Run()
	case runtimetest.Overruns:
		for range time.Tick(20 * time.Millisecond) {
			say(`{"type":"text","text":"tick"}`)
		}
	case runtimetest.Spends:
		for range time.Tick(time.Millisecond) {
			say(`{"type":"usage","cost_usd":0.01}`)
		}
	case runtimetest.Crashes:
		say(`{"type":"text","text":"working"}`)
		panic("the agent has a fault")
	case runtimetest.Floods:
		block := strings.Repeat("x", 1<<20)
		for {
			fmt.Print(block)
		}
	case runtimetest.SpawnsAndWaits:
		cmd := exec.Command("sh", "-c", command)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := cmd.Start(); err != nil {
			return 1
		}
		say(`{"type":"text","text":"started"}`)
		_ = cmd.Wait()
		return 0
	case runtimetest.Echoes:
		return answer(map[string]string{"echo": req.Prompt})
	case runtimetest.Measures:
		return answer(map[string]int{"bytes": len(req.Prompt)})
	case runtimetest.Remembers:
		session := filepath.Join(os.Getenv("HOME"), "s1")
		if req.Session == "" {
			if err := os.WriteFile(session, []byte(req.Prompt), 0o600); err != nil {
				return 1
			}
			return answer(map[string]bool{"ok": true})
		}
		before, err := os.ReadFile(filepath.Join(os.Getenv("HOME"), req.Session))
		if err != nil || req.Prompt != runtimetest.Recall {
			return 1
		}
		_, word, _ := strings.Cut(string(before), "The word is ")
		return answer(map[string]string{"word": strings.TrimSuffix(word, ".")})
	}
	fmt.Fprintf(os.Stderr, "unknown act %q\n", act)
	return 1
}

// box returns a sandbox as a worker has it.
func box(t *testing.T) *sandbox.Box {
	t.Helper()
	return boxOf(t, sandbox.Auto)
}

func boxOf(t *testing.T, mode sandbox.Mode) *sandbox.Box {
	t.Helper()
	b, err := sandbox.New(sandbox.Options{Mode: mode, StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// self returns the path of the test binary.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// program returns the command runtime whose program does act in b.
func program(t *testing.T, b *sandbox.Box, act string) *runtime.Command {
	t.Helper()
	r, err := runtime.NewCommand(runtime.CommandOptions{
		Args: []string{self(t)}, Env: []string{actVariable + "=" + act, "GORACE=atexit_sleep_ms=0"}, Readable: []string{self(t)}, Box: b,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// shell returns the command runtime whose program is a shell script.
func shell(t *testing.T, script string, secrets ...string) *runtime.Command {
	t.Helper()
	r, err := runtime.NewCommand(runtime.CommandOptions{Args: []string{"sh", "-c", script}, Secrets: secrets, Box: box(t)})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
