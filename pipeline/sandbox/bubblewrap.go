package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tempSize bounds the private /tmp of a box, which is memory.
const tempSize = 4 << 30

// kernelSettings are the parts of /proc that act on the whole host. Bubblewrap
// itself covers only those whose directory looks writable to it, which /proc/sys
// does not to a user 0 without capabilities; the files inside are writable for it.
var kernelSettings = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/mtrr", "/proc/pressure", "/proc/acpi", "/proc/scsi"}

// useBubblewrap makes this a bubblewrap box if it works here: it may be missing,
// or a container may forbid namespaces.
func (b *Box) useBubblewrap() error {
	path, err := LookPath("bwrap", nil)
	if err != nil {
		return err
	}
	// It dies with the thread that forks it; see supervise.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// As pid 1 of its namespace the probe leaves no init process behind.
	args := append(bubblewrapArgs(Command{Dir: "/", Offline: true}, view{read: b.read}), "--as-pid-1", "--", "/bin/sh", "-c", "exit 0")
	cmd := exec.Command(path, args...)
	var message bytes.Buffer
	cmd.Env, cmd.Stderr = []string{}, &message
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start bubblewrap: %w", err)
	}
	defer time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() }).Stop()
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("bubblewrap does not work here: %w: %s", err, bytes.TrimSpace(message.Bytes()))
	}
	b.mode, b.bwrap = Bubblewrap, path
	return nil
}

// bubblewrapArgs are the options for c and v. Mounts go from the outer path to the
// inner one, so that .git, read-only, wins over the writable worktree around it.
func bubblewrapArgs(c Command, v view) []string {
	args := []string{
		"--die-with-parent", "--new-session", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL",
		"--proc", "/proc", "--dev", "/dev", "--size", strconv.Itoa(tempSize), "--tmpfs", "/tmp",
	}
	for _, file := range kernelSettings {
		args = append(args, "--ro-bind-try", file, file)
	}
	if c.Offline {
		args = append(args, "--unshare-net")
	}
	for _, dir := range systemDirs {
		if target, err := os.Readlink(dir); err == nil {
			args = append(args, "--symlink", target, dir)
		} else {
			args = append(args, "--ro-bind-try", dir, dir)
		}
	}
	for _, file := range systemFiles {
		args = append(args, "--ro-bind-try", file, file)
	}
	mounts := map[string][]string{}
	for _, path := range v.write {
		mounts[path] = []string{"--bind", path}
	}
	for _, path := range v.read {
		mounts[path] = []string{"--ro-bind", path}
	}
	for path, source := range v.instead {
		mounts[path] = []string{"--ro-bind", source}
	}
	for _, path := range slices.Sorted(maps.Keys(mounts)) {
		args = append(append(args, mounts[path]...), path)
	}
	return append(args, "--remount-ro", "/", "--chdir", c.Dir)
}

func (b *Box) runBubblewrap(ctx context.Context, c Command, cmd *exec.Cmd, v view) (Exit, error) {
	options := append([]string{"bwrap", "--json-status-fd", "3", "--block-fd", "4"}, bubblewrapArgs(c, v)...)
	cmd.Args = slices.Concat(options, []string{"--", cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Dir = b.bwrap, "/"
	var box *namespace
	exit, err := supervise(ctx, c, cmd, func(cmd *exec.Cmd) (kin, error) {
		var err error
		box, err = b.startNamespace(cmd)
		return box, err
	})
	if err != nil {
		return exit, err
	}
	switch {
	case box.code == nil && exit.Code >= 0:
		return exit, fmt.Errorf("sandbox: bubblewrap failed to set up the box for %s: exit code %d, its message is in the error output", c.Args[0], exit.Code)
	case exit.Code > 128 && exit.Code <= 128+64: // how bubblewrap, like a shell, shows a signal
		exit.Code = -1
	}
	return exit, nil
}

// namespace is the kin of a bubblewrap: the processes of a pid namespace, whose
// first process ends when all of them have.
type namespace struct {
	outer  int // bubblewrap itself, on our side
	mark   uint64
	status *os.File
	docs   *json.Decoder
	first  proc   // pid 1 of the box, by our count; zero while there is none
	fd     int    // its pidfd
	code   *int   // how the program ended; nil if it never started
	note   string // file
}

// startNamespace starts bubblewrap, which waits before it starts the program until
// the limits are set. A bubblewrap that fails is no error here: it ends by itself.
//
// A bubblewrap that is killed between the fork of the box's pid 1 and its word to
// go on leaves that process waiting for ever, bound to nobody yet. Hence the note,
// which is there before the fork.
func (b *Box) startNamespace(cmd *exec.Cmd) (*namespace, error) {
	status, statusEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _ = statusEnd.Close() }()
	blockEnd, block, err := os.Pipe()
	if err != nil {
		_ = status.Close()
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _, _ = blockEnd.Close(), block.Close() }()
	cmd.ExtraFiles = []*os.File{statusEnd, blockEnd}
	n := &namespace{status: status, docs: json.NewDecoder(status)}
	n.mark, err = startWithMark(cmd, func(mark uint64) (err error) {
		if b.state != "" {
			n.note, err = b.write(note{Mark: mark})
		}
		return err
	})
	if err != nil {
		_ = status.Close()
		return nil, errors.Join(err, n.forget())
	}
	_ = statusEnd.Close()
	n.outer = cmd.Process.Pid
	if err := n.open(); err != nil {
		_ = cmd.Process.Kill() // does nothing to one that has failed already
		return n, nil
	}
	_, _ = block.Write([]byte{1})
	return n, nil
}

// open finds pid 1 of the box and limits it.
func (n *namespace) open() error {
	_ = n.status.SetReadDeadline(time.Now().Add(10 * time.Second))
	var started struct {
		Child int `json:"child-pid"`
	}
	if err := n.docs.Decode(&started); err != nil {
		return fmt.Errorf("read the state of bubblewrap: %w", err)
	}
	fd, err := unix.PidfdOpen(started.Child, 0)
	if err != nil {
		return fmt.Errorf("open pid 1 of the box: %w", err)
	}
	first, err := readProc(started.Child)
	if err == nil && first.parent != n.outer {
		err = errors.New("pid 1 of the box is not a child of bubblewrap")
	}
	if err == nil {
		err = limit(started.Child)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	n.first, n.fd = first, fd
	return nil
}

func (n *namespace) signal(sig unix.Signal) {
	all, err := processes()
	if err != nil || n.first.pid == 0 {
		return
	}
	// Not bubblewrap itself: its end would be SIGKILL for the others.
	below := descendants(all, n.first.pid)
	for _, p := range all {
		if below[p.pid] {
			p.signal(sig)
		}
	}
}

func (n *namespace) end() (time.Duration, error) {
	defer releaseMark(n.mark)
	defer func() { _ = n.status.Close() }()
	if n.first.pid == 0 {
		cpu, err := n.killMarked()
		return cpu, errors.Join(err, n.forget())
	}
	defer func() { _ = unix.Close(n.fd) }()
	_ = unix.PidfdSendSignal(n.fd, unix.SIGKILL, nil, 0) // fails only when it has ended
	if err := n.await(5 * time.Second); err != nil {
		return 0, err
	}
	var ended struct {
		Code *int `json:"exit-code"`
	}
	_ = n.status.SetReadDeadline(time.Now().Add(time.Second))
	if err := n.docs.Decode(&ended); err == nil {
		n.code = ended.Code
	}
	// Bubblewrap does not wait for it. It is our child by now and has the CPU time
	// of everything that ran in the box.
	return waitFor(n.first.pid), n.forget()
}

// killMarked ends a box whose pid 1 is not known, if there is one.
func (n *namespace) killMarked() (time.Duration, error) {
	if n.mark == 0 {
		return 0, nil
	}
	unknown := marked{root: proc{pid: nobody}, mark: n.mark}
	return killAll(unknown.members)
}

// forget removes the note: nothing is left to reap.
func (n *namespace) forget() error {
	if n.note == "" {
		return nil
	}
	return remove(n.note)
}

// await waits for the end of pid 1, which the kernel delays until every process
// of the namespace has ended.
func (n *namespace) await(most time.Duration) error {
	for deadline := time.Now().Add(most); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return fmt.Errorf("sandbox: the processes of box %d do not end", n.first.pid)
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(n.fd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if ready > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for the box: %w", err)
		}
	}
}
