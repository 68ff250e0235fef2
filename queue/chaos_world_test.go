package queue_test

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox/sandboxtest"
	"golang.org/x/sys/unix"
)

const worldMark = "SLIPWAY_QUEUE_TEST_WORLD" // set: this process is in namespaces of its own

// inWorld reports whether the test runs in namespaces of its own, where it may
// make networks and disks. If not, it runs the test there, with these flags of
// ours, and its result is this one's. What is left of a world ends with it: its
// test is the first process there.
func inWorld(t *testing.T, flags ...string) bool {
	t.Helper()
	if os.Getenv(worldMark) != "" {
		return true
	}
	sandboxtest.Need(t, "ip", "nsenter", "redis-server")
	args := []string{"-test.run", "^" + t.Name() + "$", "-test.v"}
	if deadline, is := t.Deadline(); is {
		args = append(args, "-test.timeout", (time.Until(deadline) - 3*time.Second).String()) // it says first where it hangs
	}
	for _, name := range flags {
		args = append(args, "-"+name, flag.Lookup(name).Value.String())
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), worldMark+"=1", "TMPDIR="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}},
		Pdeathsig:   syscall.SIGKILL,
	}
	said, tell := io.Pipe()
	cmd.Stdout, cmd.Stderr = tell, tell
	runtime.LockOSThread() // the world ends with the thread that made it
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		missing(t, err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- cmd.Wait()
		_ = tell.Close() // always nil
	}()
	for lines := bufio.NewScanner(said); lines.Scan(); {
		t.Log(lines.Text())
	}
	if err := <-ended; err != nil {
		t.Errorf("in namespaces of its own: %v", err)
	}
	return false
}

// missing skips a test that may not make namespaces, as sandboxtest.Need does
// one that lacks a program.
func missing(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "true" && (errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC)) {
		t.Skipf("needs user namespaces: %v", err)
	}
	t.Fatalf("make namespaces: %v", err)
}

// A world has a network in the form of a star: this process and Redis are in
// the middle, and each host is at the end of a link of its own.
type world struct{ t *testing.T }

func newWorld(t *testing.T) world {
	t.Helper()
	w := world{t}
	if err := unix.Mount("tmpfs", "/run", "tmpfs", 0, ""); err != nil { // where ip keeps its names
		t.Fatal(err)
	}
	w.ip("link set lo up")
	return w
}

// addHost makes host n and its link.
func (w world) addHost(n int) {
	for _, line := range []string{
		"netns add host%[1]d",
		"link add link%[1]d type veth peer name eth0 netns host%[1]d",
		"addr add 10.77.%[1]d.1/24 dev link%[1]d",
		"link set link%[1]d up",
		"-n host%[1]d addr add 10.77.%[1]d.2/24 dev eth0",
		"-n host%[1]d link set eth0 up",
	} {
		w.ip(fmt.Sprintf(line, n))
	}
}

// middle is the address of the middle, seen from a host.
func (w world) middle(host int) string { return fmt.Sprintf("10.77.%d.1", host) }

// on is a command that runs on a host; its process is the command's.
func (w world) on(host int, program string) *exec.Cmd {
	return exec.Command("nsenter", fmt.Sprintf("--net=/run/netns/host%d", host), program)
}

// A cut is a way in which a link fails.
type cut struct{ name, begin, end string }

var cuts = []cut{
	{"hosts whose link is down", "-n host%[1]d link set eth0 down", "-n host%[1]d link set eth0 up"}, // and are told
	{"hosts cut off", "link set link%[1]d down", "link set link%[1]d up"},                            // and nobody is told
	// Redis sends to somebody who does not exist, and hears all.
	{"hosts that hear nothing", "neigh replace 10.77.%[1]d.2 lladdr 02:00:00:00:00:ff nud permanent dev link%[1]d", "neigh del 10.77.%[1]d.2 dev link%[1]d"},
}

// ip runs ip(8).
func (w world) ip(line string) {
	w.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
		w.t.Errorf("ip %s: %v: %s", line, err, out)
	}
}

// A disk is small and can be full.
type disk struct {
	t   *testing.T
	dir string
}

// newDisk mounts a file system in memory, for that many bytes and some files.
func newDisk(t *testing.T, size int) disk {
	t.Helper()
	d := disk{t, t.TempDir()}
	if err := unix.Mount("tmpfs", d.dir, "tmpfs", 0, fmt.Sprintf("size=%d,nr_inodes=40", size)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(d.dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return d
}

// fill leaves no room for a byte or for another file.
func (d disk) fill() {
	var err error
	for i := 0; err == nil; i++ {
		var f *os.File
		if f, err = os.Create(filepath.Join(d.dir, fmt.Sprint("ballast-", i))); err == nil {
			_, _ = io.Copy(f, zeros{}) // until there is no room
			err = f.Close()
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		d.t.Errorf("fill a disk: %v", err)
	}
}

// empty makes room again.
func (d disk) empty() {
	files, err := filepath.Glob(filepath.Join(d.dir, "ballast-*"))
	for _, f := range files {
		err = errors.Join(err, os.Remove(f))
	}
	if err != nil {
		d.t.Errorf("empty a disk: %v", err)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
