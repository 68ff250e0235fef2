package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// ticks is how many there are in a second, on every machine that Linux runs on:
// USER_HZ of the kernel.
const ticks = 100

// A proc is a process as /proc/<pid>/stat shows it (proc_pid_stat(5)).
type proc struct {
	pid     int
	state   byte
	parent  int
	group   int
	session int
	start   uint64 // clock ticks since boot: with pid it names a process for good
}

func readProc(pid int) (proc, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return proc{}, err
	}
	// The second field is the program's name in parentheses and may hold any byte.
	i := bytes.LastIndexByte(data, ')')
	fields := strings.Fields(string(data[i+1:]))
	if i < 0 || len(fields) < 20 {
		return proc{}, fmt.Errorf("read /proc/%d/stat: unknown form", pid)
	}
	p := proc{pid: pid, state: fields[0][0]}
	for field, to := range map[int]*int{1: &p.parent, 2: &p.group, 3: &p.session} {
		if *to, err = strconv.Atoi(fields[field]); err != nil {
			return proc{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
		}
	}
	if p.start, err = strconv.ParseUint(fields[19], 10, 64); err != nil {
		return proc{}, fmt.Errorf("read /proc/%d/stat: %w", pid, err)
	}
	return p, nil
}

// processes lists every process that this one can see. One that ends meanwhile
// is left out.
func processes() ([]proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer func() { _ = dir.Close() }()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []proc
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, err := readProc(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// descendants are the processes below root in all.
func descendants(all []proc, root int) map[int]bool {
	children := map[int][]int{}
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p.pid)
	}
	below := map[int]bool{}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, child := range children[next[0]] {
			if !below[child] {
				below[child] = true
				next = append(next, child)
			}
		}
	}
	return below
}

// gone reports whether the process has ended, be it waited for or not.
func (p proc) gone() bool {
	now, err := readProc(p.pid)
	return err != nil || now.start != p.start || now.state == 'Z' || now.state == 'X'
}

// signal sends sig to exactly this process, never to another that got its pid.
func (p proc) signal(sig unix.Signal) {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return // it has ended
	}
	defer func() { _ = unix.Close(fd) }()
	if now, err := readProc(p.pid); err == nil && now.start == p.start {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
}
