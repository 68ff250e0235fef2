package sandbox_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// family prints "ready" when a child, and one that left the session, sleep.
func family(nap string) string {
	return "sleep " + nap + " & setsid sleep " + nap + " & " +
		"until [ $(grep -lsxz '[" + nap[:1] + "]" + nap[1:] + "' /proc/[0-9]*/cmdline | wc -l) -ge 2 ]; do :; done; echo ready; wait; sleep 100"
}

func kill(t *testing.T, p *os.Process) {
	t.Helper()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func TestDieWithParentBwrap(t *testing.T) {
	s := newSetting(t, sandbox.Bubblewrap)
	nap := nap()
	worker := startWorker(t, sandbox.Bubblewrap, s, family(nap))
	pids := sleepers(t, nap)
	if len(pids) != 2 {
		t.Fatalf("%v sleep, want two", pids)
	}
	kill(t, worker)
	for _, pid := range pids {
		awaitEnd(t, pid, 5*time.Second)
	}
}

func TestTheProgramItselfDiesWithTheWorker(t *testing.T) {
	inBoxes(t, []sandbox.Mode{sandbox.Landlock, sandbox.None}, func(t *testing.T, s *setting) {
		worker := startWorker(t, s.box.Mode(), s, "echo $$ > pid; echo ready; exec sleep "+nap())
		pid, err := strconv.Atoi(strings.TrimSpace(read(t, s.work+"/pid")))
		if err != nil {
			t.Fatal(err)
		}
		kill(t, worker)
		awaitEnd(t, pid, 5*time.Second)
	})
}

func TestReapAfterTheWorkerDied(t *testing.T) {
	inBoxes(t, []sandbox.Mode{sandbox.Landlock, sandbox.None}, func(t *testing.T, s *setting) {
		nap := nap()
		worker := startWorker(t, s.box.Mode(), s, family(nap))
		pids := sleepers(t, nap)
		if len(pids) != 2 {
			t.Fatalf("%v sleep, want two", pids)
		}
		if err := s.box.Reap(t.Context()); err != nil || len(sleepers(t, nap)) != 2 {
			t.Fatalf("it reaped from a living worker: %v", err)
		}
		kill(t, worker)
		if err := s.box.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := sleepers(t, nap); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
		if notes, err := filepath.Glob(s.state + "/processes/*"); err != nil || len(notes) > 0 {
			t.Errorf("notes are left: %v %v", notes, err)
		}
	})
}

// A worker that dies while bubblewrap makes a box may leave a process that waits
// for ever. It is in the way of nobody, but the next worker ends it.
func TestReapAfterTheWorkerDiedAtTheStartOfABox(t *testing.T) {
	s := newSetting(t, sandbox.Bubblewrap)
	nap := nap()
	left := func() int {
		boxes, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, file := range boxes {
			if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), nap) && strings.HasPrefix(string(line), "bwrap") {
				n++
			}
		}
		return n
	}
	order := strings.Join([]string{string(sandbox.Bubblewrap), s.work, s.state, "sleep " + nap}, "\n")
	for range 20 {
		worker := exec.Command(os.Args[0])
		worker.Env = append(os.Environ(), workerEnv+"="+order)
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		for left() == 0 { // the note is written, the box is being made
			runtime.Gosched()
		}
		_ = worker.Process.Kill()
		_ = worker.Wait() // it was killed
		if err := s.box.Reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		if notes, err := filepath.Glob(s.state + "/processes/*"); err != nil || len(notes) > 0 {
			t.Errorf("notes are left: %v %v", notes, err)
		}
		if n := left(); n > 0 {
			t.Fatalf("%d processes are left", n)
		}
	}
}

func TestReapSparesAPidThatWasTakenByAnother(t *testing.T) {
	s := newSetting(t, sandbox.None)
	ready := make(chan struct{})
	c := s.sh("echo ready; read line; exit 7")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	c.Stdin, c.Stdout = r, &lineWriter{want: "ready", seen: ready}
	code := make(chan int)
	go func() {
		exit, _ := s.box.Run(t.Context(), c)
		code <- exit.Code
	}()
	<-ready
	notes, err := filepath.Glob(s.state + "/processes/*.json")
	if err != nil || len(notes) != 1 {
		t.Fatalf("notes: %v %v", notes, err)
	}
	// The note of a worker long dead, whose process had the same pid.
	stale := editNote(t, read(t, notes[0]))
	write(t, s.state+"/processes/stale.json", stale)
	if err := s.box.Reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.state + "/processes/stale.json"); err == nil {
		t.Error("the stale note is left")
	}
	_, _ = w.WriteString("go on\n")
	_ = w.Close()
	if got := <-code; got != 7 {
		t.Errorf("the process ended with %d, want its own end", got)
	}
}
