package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// workerEnv makes the test binary a worker that runs one command in a box, for
// tests that kill it: "mode dir state script".
const workerEnv = "SANDBOX_TEST_WORKER"

func TestMain(m *testing.M) {
	sandbox.Main()
	if order := os.Getenv(workerEnv); order != "" {
		worker(order)
		return
	}
	goleak.VerifyTestMain(m)
}

func worker(order string) {
	part := strings.SplitN(order, "\n", 4)
	box, err := sandbox.New(sandbox.Options{Mode: sandbox.Mode(part[0]), StateDir: part[2]})
	if err == nil {
		_, err = box.Run(context.Background(), sandbox.Command{
			Args: []string{"sh", "-c", part[3]}, Dir: part[1], Writable: []string{part[1]},
			Env: sandbox.Environ(part[1]), Stdout: os.Stdout, Stderr: os.Stderr,
		})
	}
	fmt.Fprintln(os.Stderr, "worker ended:", err)
	os.Exit(1)
}

// inBoxes runs a test in every mode that the host has. The subtests bear the name
// of what they need.
func inBoxes(t *testing.T, modes []sandbox.Mode, test func(t *testing.T, s *setting)) {
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) { test(t, newSetting(t, mode)) })
	}
}

var (
	confining = []sandbox.Mode{sandbox.Bubblewrap, sandbox.Landlock}
	all       = []sandbox.Mode{sandbox.Bubblewrap, sandbox.Landlock, sandbox.None}
)

// A setting is a box with a writable work directory, a store that it must not
// see, and a state directory.
type setting struct {
	box                *sandbox.Box
	work, store, state string
	stdout, stderr     bytes.Buffer
}

func newSetting(t *testing.T, mode sandbox.Mode) *setting {
	t.Helper()
	if mode == sandbox.Bubblewrap {
		sandboxtest.Need(t, "bwrap")
	}
	root := t.TempDir()
	s := &setting{work: filepath.Join(root, "work"), store: filepath.Join(root, "store"), state: filepath.Join(root, "state")}
	for _, dir := range []string{s.work, s.store, s.state} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(s.store, "secret"), "the store")
	var err error
	s.box, err = sandbox.New(sandbox.Options{Mode: mode, StateDir: s.state})
	if mode == sandbox.Landlock && errors.Is(err, unix.ENOSYS) && os.Getenv("CI") != "true" {
		t.Skip("needs a kernel with landlock")
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sh is a command for a shell in the work directory.
func (s *setting) sh(script string) sandbox.Command {
	s.stdout.Reset()
	s.stderr.Reset()
	return sandbox.Command{
		Args: []string{"sh", "-c", script}, Dir: s.work, Writable: []string{s.work}, Env: sandbox.Environ(s.work),
		Stdout: &s.stdout, Stderr: &s.stderr, Grace: 200 * time.Millisecond, Timeout: time.Minute,
	}
}

// run runs a script that must end by itself.
func (s *setting) run(t *testing.T, c sandbox.Command) sandbox.Exit {
	t.Helper()
	exit, err := s.box.Run(t.Context(), c)
	if err != nil {
		t.Fatalf("%v\nstderr: %s", err, s.stderr.String())
	}
	return exit
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var naps int

// nap is a sleep that can be told from every other on the host.
func nap() string {
	naps++
	return fmt.Sprintf("%d.%d", 100000+os.Getpid(), naps)
}

// untilSleeping is shell text that waits until somebody sleeps for that nap. The
// brackets keep grep from finding itself.
func untilSleeping(nap string) string {
	return "until grep -qsxz '[" + nap[:1] + "]" + nap[1:] + "' /proc/[0-9]*/cmdline; do :; done"
}

// sleepers are the pids of the processes that sleep for that nap, or are about to.
func sleepers(t *testing.T, nap string) []int {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, line := range lines {
		data, err := os.ReadFile(line)
		if err != nil || !strings.HasSuffix(string(data), "sleep\x00"+nap+"\x00") {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(line)))
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// awaitEnd waits for the end of a process that is not our child.
func awaitEnd(t *testing.T, pid int, most time.Duration) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	for deadline := time.Now().Add(most); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(time.Until(deadline).Milliseconds()))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			t.Fatalf("process %d still exists after %s", pid, most)
		}
		return
	}
}

// lineWriter closes seen when what it wants has come.
type lineWriter struct {
	want string
	seen chan<- struct{}
	text strings.Builder
}

func (w *lineWriter) Write(p []byte) (int, error) {
	before := strings.Contains(w.text.String(), w.want)
	w.text.Write(p)
	if !before && strings.Contains(w.text.String(), w.want) {
		close(w.seen)
	}
	return len(p), nil
}

// startWorker starts the test binary as a worker and returns when its script has
// printed "ready".
func startWorker(t *testing.T, mode sandbox.Mode, s *setting, script string) *os.Process {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	order := strings.Join([]string{string(mode), s.work, s.state, script}, "\n")
	process, err := os.StartProcess("/proc/self/exe", []string{"worker"}, &os.ProcAttr{
		Env: append(os.Environ(), workerEnv+"="+order), Files: []*os.File{nil, w, os.Stderr},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if process.Kill() == nil { // the test failed before it came to that
			_, _ = process.Wait()
		}
	})
	_ = w.Close()
	if line, err := bufio.NewReader(r).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the worker said %q: %v", line, err)
	}
	return process
}
