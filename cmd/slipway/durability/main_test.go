// Package durability_test kills the real binary, built with the crashpoint tag,
// and looks at what is left when it has run to its end again. Nothing is
// scripted but the agents: processes, git, the store, the sandbox and HTTP are
// real.
//
// A chain kills one build again and again until it has ended; a matrix kills many
// builds once each. By default a fixed sample of the places runs, in which every
// kind of journal entry is; with SLIPWAY_SOAK=1 every place does.
package durability_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if state := os.Getenv(intakeState); state != "" {
		fmt.Fprintln(os.Stderr, takeIn(state))
		os.Exit(1)
	}
	flag.Parse()
	// Most tests wait most of the time, for the second that lies between two
	// writes to GitHub: more of them than processors is right.
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(withScratch(func() int {
		code := m.Run()
		if err := goleak.Find(); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return code
	}))
}

// scratch holds the binary while the tests run.
var scratch string

func withScratch(run func() int) int {
	var err error
	if scratch, err = os.MkdirTemp("", "slipway-durability-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	return run()
}

// soak reports whether all rows are to run, however long they take.
func soak() bool { return os.Getenv("SLIPWAY_SOAK") == "1" }

// binary is slipway with crash points, built once.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "slipway")
	out, err := exec.Command("go", "build", "-tags", "crashpoint", "-o", path, "github.com/slipway-dev/slipway/cmd/slipway").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build slipway: %w\n%s", err, out)
	}
	return path, nil
})

// A process is one run of the binary.
type process struct {
	cmd    *exec.Cmd
	stdout *os.File
	stderr *os.File
	ended  chan struct{}
	err    error // of Wait; after ended is closed
}

// start runs the binary with a state directory. What it prints goes to files,
// so that it never waits for a reader. It is killed when the test ends.
func start(t testing.TB, state string, env []string, args ...string) *process {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(path, args...), ended: make(chan struct{})}
	home := t.TempDir()
	p.cmd.Dir = home
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "SLIPWAY_STATE_DIR=" + state}, env...)
	for _, out := range []**os.File{&p.stdout, &p.stderr} {
		if *out, err = os.CreateTemp(home, "out-"); err != nil {
			t.Fatal(err)
		}
	}
	p.cmd.Stdout, p.cmd.Stderr = p.stdout, p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		p.kill()
		_ = errors.Join(p.stdout.Close(), p.stderr.Close()) // they were only written
	})
	return p
}

// kill is kill -9, and waits for the end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}

// signal sends one to a process that runs.
func (p *process) signal(t testing.TB, s os.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// wait returns the exit code, -1 for a process that a signal ended.
func (p *process) wait(t testing.TB, atMost time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(atMost):
		t.Fatalf("%v still runs after %s\n%s", p.cmd.Args, atMost, p.said(t))
		return 0
	}
}

// killed reports that SIGKILL ended the process.
func (p *process) killed() bool {
	status, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGKILL
}

// said is everything that the process printed.
func (p *process) said(t testing.TB) string {
	t.Helper()
	var all strings.Builder
	for _, f := range []*os.File{p.stdout, p.stderr} {
		text, err := os.ReadFile(f.Name())
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}

// eventually waits until fn answers nothing, and fails with its last answer.
func eventually(t testing.TB, atMost time.Duration, fn func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), atMost)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		problem := fn()
		if problem == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("after %s: %s", atMost, problem)
		case <-tick.C:
		}
	}
}

// alive lists the processes that have to do with a directory: by their command
// line, their environment or where they are.
func alive(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range entries {
		if strings.Trim(e.Name(), "0123456789") != "" || e.Name() == fmt.Sprint(os.Getpid()) {
			continue
		}
		proc := filepath.Join("/proc", e.Name())
		// A process may end while it is looked at: then there is nothing to read.
		line, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(proc, "environ"))
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		if strings.Contains(string(line)+string(environ)+cwd, dir) {
			found = append(found, e.Name()+" "+strings.ReplaceAll(string(line), "\x00", " "))
		}
	}
	return found
}

// noneAlive waits until no process has to do with a directory.
func noneAlive(t *testing.T, dir string, atMost time.Duration) {
	t.Helper()
	eventually(t, atMost, func() string {
		if found := alive(t, dir); len(found) > 0 {
			return "these processes are left:\n" + strings.Join(found, "\n")
		}
		return ""
	})
}

// git runs git and returns what it printed.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_AUTHOR_NAME=mira", "GIT_AUTHOR_EMAIL=mira@example.org", "GIT_COMMITTER_NAME=mira", "GIT_COMMITTER_EMAIL=mira@example.org",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}
