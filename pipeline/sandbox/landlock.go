package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock restricts the thread that asks for it and what it starts, so a second
// start of our own program asks, and then becomes the command.

// landlockArg is the hidden first argument of that second start.
const landlockArg = "sandbox-landlock"

var reexecReady atomic.Bool

// Main belongs at the very start of main and of TestMain. It makes Landlock
// possible, and returns at once unless this process was started by a Box.
func Main() {
	reexecReady.Store(true)
	if len(os.Args) != 2 || os.Args[1] != landlockArg {
		return
	}
	// Landlock and seccomp bind the calling thread, and exec keeps that thread.
	runtime.LockOSThread()
	orders, report := os.NewFile(3, "orders"), os.NewFile(4, "report")
	unix.CloseOnExec(3)
	unix.CloseOnExec(4)
	_, _ = io.WriteString(report, becomeLandlocked(orders).Error())
	os.Exit(1)
}

// landlocked are the orders for the second start.
type landlocked struct {
	Path    string
	Args    []string
	Read    []string
	Write   []string
	Offline bool
}

// useLandlock makes this a landlock box if the kernel and the program have it.
func (b *Box) useLandlock() error {
	if _, err := landlockVersion(); err != nil {
		return err
	}
	if !reexecReady.Load() {
		return errors.New("landlock: this program does not call sandbox.Main at its start")
	}
	b.mode = Landlock
	return nil
}

func (b *Box) runLandlock(ctx context.Context, c Command, cmd *exec.Cmd, v view) (exit Exit, err error) {
	tmp, err := b.privateTemp()
	if err != nil {
		return Exit{}, err
	}
	defer func() {
		if rmErr := os.RemoveAll(tmp); rmErr != nil {
			err = joined(err, fmt.Errorf("remove the temporary directory: %w", rmErr))
		}
	}()
	order := landlocked{Path: cmd.Path, Args: cmd.Args, Read: v.read, Write: append(v.write, tmp), Offline: c.Offline}
	cmd.Env = setEnv(cmd.Env, "TMPDIR", tmp)
	cmd.Path, cmd.Args = "/proc/self/exe", []string{"slipway", landlockArg}
	return supervise(ctx, c, cmd, func(cmd *exec.Cmd) (kin, error) { return b.startLandlocked(cmd, order) })
}

// startLandlocked starts the second start and returns when it has become the
// command, or why it has not.
func (b *Box) startLandlocked(cmd *exec.Cmd, order landlocked) (kin, error) {
	data, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	ordersEnd, orders, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _, _ = ordersEnd.Close(), orders.Close() }()
	report, reportEnd, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open a pipe: %w", err)
	}
	defer func() { _, _ = report.Close(), reportEnd.Close() }()
	cmd.ExtraFiles = []*os.File{ordersEnd, reportEnd}
	family, err := b.noted(cmd, confinedProcess, func() error {
		_, _ = ordersEnd.Close(), reportEnd.Close()
		if _, err := orders.Write(data); err != nil {
			return fmt.Errorf("give orders: %w", err)
		}
		_ = orders.Close()
		// Exec closes its end; before, only a failure is written.
		message, err := io.ReadAll(io.LimitReader(report, 4<<10))
		if err != nil {
			return fmt.Errorf("read the report: %w", err)
		}
		if len(message) > 0 {
			return errors.New(string(message))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("landlock: %w", err)
	}
	return family, nil
}

// becomeLandlocked returns only if it fails.
func becomeLandlocked(orders io.Reader) error {
	var order landlocked
	if err := json.NewDecoder(orders).Decode(&order); err != nil {
		return fmt.Errorf("read the orders: %w", err)
	}
	if err := limit(0); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	if err := restrictFiles(order); err != nil {
		return err
	}
	if order.Offline {
		if err := cutNetwork(); err != nil {
			return err
		}
	}
	// Landlock does not bind capabilities: one of them opens the environment of any
	// process. With no_new_privs even user 0 does not get them back.
	none := [2]unix.CapUserData{}
	if err := unix.Capset(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return fmt.Errorf("start %s: %w", order.Path, syscall.Exec(order.Path, order.Args, os.Environ()))
}

func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock: the kernel does not have it: %w", errno)
	}
	return int(version), nil
}

// The rights of landlock, as the versions of its interface brought them.
const (
	rightsToRead = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	rightsOfV1   = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - 1 // every right up to this, the last of the first version
	// What a rule on something else than a directory may name.
	rightsOnFile = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE |
		unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/ptmx", "/dev/pts"}

func restrictFiles(order landlocked) error {
	version, err := landlockVersion()
	if err != nil {
		return err
	}
	attr := unix.LandlockRulesetAttr{Access_fs: rightsOfV1}
	size := unsafe.Sizeof(attr.Access_fs)
	for since, right := range map[int]uint64{
		2: unix.LANDLOCK_ACCESS_FS_REFER, 3: unix.LANDLOCK_ACCESS_FS_TRUNCATE, 5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
	} {
		if version >= since {
			attr.Access_fs |= right
		}
	}
	if version >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Sizeof(attr)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return fmt.Errorf("make a ruleset: %w", errno)
	}
	rules := ruleset{fd: int(fd), handled: attr.Access_fs}
	for _, path := range slices.Concat(systemDirs, systemFiles, []string{"/proc"}) {
		if err := rules.allow(path, rightsToRead); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, path := range devices {
		if err := rules.allow(path, rightsToRead|rightsOnFile); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	for _, path := range order.Read {
		if err := rules.allow(path, rightsToRead); err != nil {
			return err
		}
	}
	for _, path := range order.Write {
		if slices.Contains(order.Read, path) {
			continue // the same path is read-only
		}
		if err := rules.allow(path, attr.Access_fs); err != nil {
			return err
		}
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return fmt.Errorf("restrict: %w", errno)
	}
	return nil
}

type ruleset struct {
	fd      int
	handled uint64
}

func (r ruleset) allow(path string, rights uint64) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer func() { _ = unix.Close(fd) }()
	var info unix.Stat_t
	if err := unix.Fstat(fd, &info); err != nil {
		return fmt.Errorf("look at %s: %w", path, err)
	}
	rights &= r.handled
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsOnFile
	}
	// The kernel's structure is packed: 12 bytes, which the Go one begins with.
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights, Parent_fd: int32(fd)}
	if _, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0); errno != 0 {
		return fmt.Errorf("allow %s: %w", strings.ToValidUTF8(path, "?"), errno)
	}
	return nil
}
