package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// How a run's processes are known without a pid namespace: by ancestry, session
// and group, and by a mark. A daemon leaves the first three; the mark is inherited
// over every fork, and over every exec that passes the environment on: it is a
// variable that each run has with a value of its own. A hostile process can drop
// it; see marked.strays for what landlock adds. (A resource limit as the mark
// cannot be dropped so easily, but it is set on this whole process for the time
// of a fork, and whatever else of the program forks in that instant bears it.)

// markKey is the variable that holds the mark.
const markKey = "SLIPWAY_RUN"

// marks are those of the running runs, each with the pid of its first process.
var marks = register{live: map[uint64]int{}}

type register struct {
	sync.Mutex
	live map[uint64]int
}

// isRoot reports whether the process is the first one of a run. The caller has
// the lock.
func (r *register) isRoot(pid int) bool {
	for _, root := range r.live {
		if root == pid {
			return true
		}
	}
	return false
}

// becomeReaper makes orphans of our children ours, so that they can be found
// and waited for.
var becomeReaper = sync.OnceValue(func() error {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("become the reaper of orphans: %w", err)
	}
	return nil
})

// startWithMark starts cmd under a new mark, on a thread that the goroutine keeps
// (see supervise). It holds the lock meanwhile: a
// process that has started is known to others as the first one of its run.
// before, if set, is told the mark first.
func startWithMark(cmd *exec.Cmd, before func(mark uint64) error) (uint64, error) {
	if err := becomeReaper(); err != nil {
		return 0, err
	}
	marks.Lock()
	defer marks.Unlock()
	runtime.LockOSThread() // only now: a goroutine that keeps its thread is dear to park
	mark := rand.Uint64()
	for _, taken := marks.live[mark]; mark == 0 || taken; _, taken = marks.live[mark] {
		mark = rand.Uint64()
	}
	if before != nil {
		if err := before(mark); err != nil {
			return 0, err
		}
	}
	cmd.Env = setEnv(cmd.Env, markKey, strconv.FormatUint(mark, 10))
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	marks.live[mark] = cmd.Process.Pid
	return mark, nil
}

func releaseMark(mark uint64) {
	marks.Lock()
	defer marks.Unlock()
	delete(marks.live, mark)
}

// ofALiveRun reports whether a process bears the mark of a run or is the first
// process of one: a dead one shows no mark any more.
func ofALiveRun(pid int, mark uint64) bool {
	marks.Lock()
	defer marks.Unlock()
	_, live := marks.live[mark]
	return live || marks.isRoot(pid)
}

// markOf reads the mark of a process; 0 when it has none, or has gone.
func markOf(pid int) uint64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return 0
	}
	for entry := range bytes.SplitSeq(data, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(markKey+"=")); ok {
			mark, err := strconv.ParseUint(string(value), 10, 64)
			if err != nil {
				return 0 // somebody else's
			}
			return mark
		}
	}
	return 0
}

// What a marked process is, which decides what is certainly its own.
type origin int

const (
	hostProcess     origin = iota
	confinedProcess        // by landlock: no_new_privs is set and cannot be undone
)

// marked is the kin of a process that has no pid namespace.
type marked struct {
	root   proc
	mark   uint64
	origin origin
}

// startMarked starts cmd and returns its kin.
func startMarked(cmd *exec.Cmd, from origin) (*marked, error) {
	mark, err := startWithMark(cmd, nil)
	if err != nil {
		return nil, err
	}
	// It cannot have been waited for yet, so it is in /proc, if only as a zombie.
	root, err := readProc(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		releaseMark(mark)
		return nil, err
	}
	return &marked{root: root, mark: mark, origin: from}, nil
}

// startTrusted is startMarked for a program that nobody else has to find again.
// When it started is known by the clock, a tick early at most: that tells it from
// whoever was there before as well, and spares the reading of its state.
func startTrusted(cmd *exec.Cmd) (*marked, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return nil, fmt.Errorf("read the clock: %w", err)
	}
	mark, err := startWithMark(cmd, nil)
	if err != nil {
		return nil, err
	}
	// A process leads its session and its group; see supervise.
	root := proc{pid: cmd.Process.Pid, start: uint64(now.Nano() / int64(time.Second/ticks))}
	return &marked{root: root, mark: mark, origin: hostProcess}, nil
}

func (m *marked) signal(sig unix.Signal) {
	mine, _ := m.members() // a failure shows in end
	for _, p := range mine {
		p.signal(sig)
	}
}

func (m *marked) end() (time.Duration, error) {
	defer releaseMark(m.mark)
	for range looks {
		if m.alone() {
			return 0, nil
		}
	}
	return killAll(m.members)
}

// looks is how often it is asked whether a run left somebody before every process
// is read: the answer is no where another run ends at that moment.
const looks = 3

// alone reports that the first process, which has ended, left nobody behind; false
// also stands for "cannot tell". It spares most runs the reading of all processes.
//
// Whoever a run left has an ancestor that became our child when its own parent
// ended. The kernel gives orphans to the first thread of their reaper, so that
// ancestor is among that thread's children. Children that are the first process of
// a run came there by a fork: an orphan is none.
func (m *marked) alone() bool {
	if err := unix.Kill(-m.root.pid, 0); !errors.Is(err, unix.ESRCH) {
		return false // its group has members
	}
	children, err := adopted()
	if err != nil || !areRoots(children) {
		return false
	}
	// The kernel may leave one out when another is waited for during the reading.
	return !slices.ContainsFunc(children, func(pid int) bool { return unix.Kill(pid, 0) != nil })
}

// childList is the kernel's list of the children of this process's first thread.
// It is read anew from its beginning each time: every run asks for it.
var childList = sync.OnceValues(func() (int, error) {
	self := os.Getpid()
	return unix.Open(fmt.Sprintf("/proc/%d/task/%d/children", self, self), unix.O_RDONLY|unix.O_CLOEXEC, 0)
})

// adopted are the processes that are children of the first thread. An error also
// stands for a kernel without the list, and for one that is too long.
func adopted() (pids []int, err error) {
	file, err := childList()
	if err != nil {
		return nil, err
	}
	var buf [4096]byte
	n, err := unix.Pread(file, buf[:], 0)
	if err != nil {
		return nil, err
	}
	if n == len(buf) {
		return nil, errors.New("the list of children is too long")
	}
	for field := range strings.FieldsSeq(string(buf[:n])) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// areRoots reports whether each of the processes is the first one of a live run.
func areRoots(pids []int) bool {
	marks.Lock()
	defer marks.Unlock()
	for _, pid := range pids {
		if !marks.isRoot(pid) {
			return false
		}
	}
	return true
}

// members are the processes of the run that exist now.
func (m *marked) members() ([]proc, error) {
	all, err := processes()
	if err != nil {
		return nil, err
	}
	below := descendants(all, m.root.pid)
	var mine []proc
	for _, p := range all {
		if p.start < m.root.start || p.pid == os.Getpid() {
			continue
		}
		if below[p.pid] || p.group == m.root.pid || p.session == m.root.pid || strayed(p) || m.strays(p) {
			mine = append(mine, p)
		}
	}
	return mine, nil
}

// strayed reports whether p is a dead orphan of ours, of this run or another. It
// shows no mark, and who it left behind may have started behind the reader's back:
// it is waited for by whoever sees it first, and then there is another round.
func strayed(p proc) bool {
	if p.state != 'Z' || p.parent != os.Getpid() || ofALiveRun(p.pid, 0) {
		return false
	}
	return p.session != ownSession()
}

// ownSession is the session of this process, in which are the children that no
// run started.
func ownSession() int {
	session, err := unix.Getsid(0)
	if err != nil {
		return 0 // the kernel's: no child has it, and the call does not fail for oneself
	}
	return session
}

// strays reports whether p left its ancestors but is of this run. A landlocked
// process may have changed its mark to hide. It is an orphan of ours then, cannot
// gain privileges, and bears the mark of no run: no honest process is like that.
func (m *marked) strays(p proc) bool {
	mark := markOf(p.pid)
	for range 3 {
		if mark != 0 || p.parent != os.Getpid() || p.session == ownSession() {
			break
		}
		if now, err := readProc(p.pid); err == nil && strayed(now) {
			return true // it has died meanwhile
		}
		// In the middle of an exec there is no environment to read.
		time.Sleep(time.Millisecond)
		mark = markOf(p.pid)
	}
	if mark == m.mark {
		return true
	}
	if m.origin != confinedProcess || p.parent != os.Getpid() || ofALiveRun(p.pid, mark) {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	return err == nil && bytes.Contains(status, []byte("\nNoNewPrivs:\t1\n"))
}

// killAll kills what members lists and waits for those that have become our
// children, until there is nothing to list. A list is no snapshot: a process may
// start behind the reader's back. But its parent is listed then, dead or alive, and
// so there is another round. It gives up on a process that the kernel holds.
func killAll(members func() ([]proc, error)) (cpu time.Duration, err error) {
	self := os.Getpid()
	pause := time.Millisecond
	for deadline := time.Now().Add(5 * time.Second); ; pause = min(2*pause, 50*time.Millisecond) {
		found, err := members()
		var left []int
		for _, p := range found {
			switch {
			case p.state != 'Z' && p.state != 'X':
				left = append(left, p.pid)
				p.signal(unix.SIGKILL)
			case p.parent == self:
				left = append(left, p.pid)
				cpu += waitFor(p.pid)
			}
		}
		if err == nil && len(left) == 0 {
			return cpu, nil
		}
		if time.Now().After(deadline) {
			return cpu, errors.Join(fmt.Errorf("sandbox: processes %v do not end", left), err)
		}
		time.Sleep(pause)
	}
}

// waitFor takes an adopted child that has ended out of the process table.
func waitFor(pid int) time.Duration {
	var usage unix.Rusage
	if got, err := unix.Wait4(pid, nil, unix.WNOHANG, &usage); err != nil || got != pid {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
