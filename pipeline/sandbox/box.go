package sandbox

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Mode is how a Box confines.
type Mode string

// The modes. Bubblewrap gives a process its own view of the files, its own
// process ids and, on demand, no network. Landlock, for hosts where bubblewrap is
// missing or forbidden, is weaker: the host's processes and the names of its files
// remain visible, and a Readable path inside a Writable one stays writable.
// None confines nothing; it is for those who have a sandbox around Slipway.
const (
	Auto       Mode = "auto" // Bubblewrap if it works, else Landlock if it works, else an error
	Bubblewrap Mode = "bubblewrap"
	Landlock   Mode = "landlock"
	None       Mode = "none"
)

// Options say what a Box is.
type Options struct {
	Mode     Mode     // empty is Auto
	StateDir string   // for the notes on running processes; needed by Landlock and None
	ReadOnly []string // what every command may read, beside the system and the toolchains found in PATH
}

// A Box runs commands confined. It may be used by many at once.
type Box struct {
	mode  Mode
	state string
	read  []string // toolchains and Options.ReadOnly
	bwrap string   // the program
}

// New makes a Box, and fails where its mode does not work on this host.
func New(o Options) (*Box, error) {
	b := &Box{mode: cmp.Or(o.Mode, Auto), state: o.StateDir}
	extra, err := existing(o.ReadOnly)
	if err != nil {
		return nil, fmt.Errorf("sandbox: read-only directories: %w", err)
	}
	b.read = append(toolchains(), extra...)
	switch b.mode {
	case Auto:
		bwrapErr := b.useBubblewrap()
		if bwrapErr == nil {
			break
		}
		if err := b.useLandlock(); err != nil {
			return nil, fmt.Errorf("no sandbox works on this host (install bubblewrap, or accept the risk with \"sandbox: none\"): %w", errors.Join(bwrapErr, err))
		}
		slog.Warn("sandbox: using landlock, which hides less than bubblewrap", "reason", bwrapErr)
	case Bubblewrap:
		err = b.useBubblewrap()
	case Landlock:
		err = b.useLandlock()
	case None:
		slog.Warn("sandbox: none: agents and commands run UNCONFINED, with every right of this user, on this host's files and network")
	default:
		err = fmt.Errorf("sandbox: unknown mode %q (want %s, %s, %s or %s)", b.mode, Auto, Bubblewrap, Landlock, None)
	}
	if err != nil {
		return nil, err
	}
	if b.mode != Bubblewrap && !filepath.IsAbs(b.state) {
		return nil, fmt.Errorf("sandbox: mode %s needs an absolute state directory, got %q", b.mode, b.state)
	}
	return b, nil
}

// Mode is the mode in use, never Auto.
func (b *Box) Mode() Mode { return b.mode }

// Run runs c confined. It keeps the promises of Host; beside Env the program has
// PWD and, under landlock, a TMPDIR of its own. A path of c that does not exist, or
// that leads through a symbolic link inside a writable directory, is an error.
// Under Bubblewrap /tmp is private and ends with the run.
func (b *Box) Run(ctx context.Context, c Command) (Exit, error) {
	if !filepath.IsAbs(c.Dir) {
		return Exit{}, fmt.Errorf("sandbox: the working directory %q is not an absolute path", c.Dir)
	}
	if len(c.Instead) > 0 && b.mode != Bubblewrap {
		return Exit{}, fmt.Errorf("sandbox: mode %s cannot show one file in place of another", b.mode)
	}
	c.Env = setEnv(c.Env, "PWD", c.Dir)
	cmd, err := command(c)
	if err != nil {
		return Exit{}, err
	}
	if b.mode == None {
		return supervise(ctx, c, cmd, func(cmd *exec.Cmd) (kin, error) {
			return b.noted(cmd, hostProcess, func() error { return limit(cmd.Process.Pid) })
		})
	}
	v, err := b.view(c, cmd.Path)
	if err != nil {
		return Exit{}, err
	}
	if b.mode == Landlock {
		return b.runLandlock(ctx, c, cmd, v)
	}
	return b.runBubblewrap(ctx, c, cmd, v)
}

// The limits of confined processes. There is none on address space: the run times
// of Go and JavaScript reserve far more than they use.
const (
	maxOpenFiles = 1 << 16
	maxFileSize  = 8 << 30
)

var limits = map[int]uint64{
	unix.RLIMIT_NOFILE: maxOpenFiles,
	unix.RLIMIT_FSIZE:  maxFileSize,
	unix.RLIMIT_CORE:   0,
}

// limit sets the limits of a process; 0 is this one. Children inherit them.
func limit(pid int) error {
	for resource, most := range limits {
		var now unix.Rlimit
		if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
			return fmt.Errorf("read a limit: %w", err)
		}
		most = min(most, now.Max)
		if err := unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil); err != nil {
			return fmt.Errorf("set a limit: %w", err)
		}
	}
	return nil
}

// privateTemp makes the TMPDIR of one run where /tmp cannot be private.
func (b *Box) privateTemp() (string, error) {
	dir := filepath.Join(b.state, "tmp")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make a temporary directory: %w", err)
	}
	tmp, err := os.MkdirTemp(dir, "run-")
	if err != nil {
		return "", fmt.Errorf("make a temporary directory: %w", err)
	}
	return tmp, nil
}
