package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// A call is one run of git.
type call struct {
	gitDir string   // "" only where git needs no repository
	tree   string   // work tree, "" for none
	index  string   // index file, "" for the git directory's own
	env    []string // beside the common environment
	stdin  io.Reader
	max    int         // bytes of output kept, 0 means maxOutput
	config [][2]string // over the common settings
	args   []string
}

const (
	maxOutput = 256 << 20
	maxStderr = 16 << 10
	zeroHash  = "0000000000000000000000000000000000000000"
)

// errLong ends a call whose output exceeds its bound.
var errLong = errors.New("git wrote more than was asked for")

// settings overrule what a repository's own configuration may say. The mirror's
// and the clones' are written by us; a user's local repository is not.
var settings = [][2]string{
	{"core.hooksPath", "/dev/null"},
	{"core.fsmonitor", ""},
	{"core.attributesFile", "/dev/null"},
	{"core.excludesFile", "/dev/null"},
	{"core.quotePath", "false"},
	{"core.untrackedCache", "false"},
	{"core.splitIndex", "false"},
	{"core.filesRefLockTimeout", "3000"},
	{"core.packedRefsTimeout", "3000"},
	{"core.fsync", "objects,derived-metadata,reference"}, // a journaled commit survives a power cut
	{"core.fsyncMethod", "batch"},
	{"credential.helper", ""},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"http.lowSpeedLimit", "1000"}, // a stalled server is given up after a minute
	{"http.lowSpeedTime", "60"},
	{"protocol.ext.allow", "never"},
	{"submodule.recurse", "false"},
	{"fetch.recurseSubmodules", "false"},
	{"transfer.credentialsInUrl", "die"},
	{"init.defaultBranch", "main"},
}

// usual is the environment of most calls, and for which PATH.
var usual atomic.Pointer[struct {
	path string
	env  []string
}]

// environment is all that git inherits, in a slice of the caller's own.
func environment(over [][2]string) []string {
	path := os.Getenv("PATH")
	if last := usual.Load(); len(over) == 0 && last != nil && last.path == path {
		return slices.Clone(last.env)
	}
	env := makeEnvironment(path, over)
	if len(over) == 0 {
		usual.Store(&struct {
			path string
			env  []string
		}{path, slices.Clone(env)})
	}
	return env
}

// makeEnvironment has the identity of every commit's committer.
func makeEnvironment(path string, over [][2]string) []string {
	settings := slices.Concat(settings, over) // the last of a key counts
	env := []string{
		"PATH=" + path,
		"HOME=/nonexistent",
		"LC_ALL=C",
		"TZ=UTC",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ALLOW_PROTOCOL=file:http:https",
		"GIT_LITERAL_PATHSPECS=1",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_AUTHOR_NAME=" + bot.Name,
		"GIT_AUTHOR_EMAIL=" + bot.Email,
		"GIT_COMMITTER_NAME=" + bot.Name,
		"GIT_COMMITTER_EMAIL=" + bot.Email,
		"GIT_CONFIG_COUNT=" + strconv.Itoa(len(settings)),
	}
	for i, s := range settings {
		n := strconv.Itoa(i)
		env = append(env, "GIT_CONFIG_KEY_"+n+"="+s[0], "GIT_CONFIG_VALUE_"+n+"="+s[1])
	}
	return env
}

// run runs git and returns its output. A non-zero exit is a *failure; output
// beyond the bound ends git and is errLong, with what was read so far. Where
// another git holds a lock, it waits for its turn.
func run(ctx context.Context, c call) ([]byte, error) {
	for try := 0; ; try++ {
		out, err := runOnce(ctx, c)
		f, failed := errors.AsType[*failure](err)
		if !failed || c.stdin != nil || try == maxTurns {
			return out, err
		}
		lock := heldLock(f.text, c.gitDir)
		if lock == "" {
			return out, err
		}
		if waited := outlive(ctx, lock); waited != nil {
			return out, errors.Join(err, waited)
		}
	}
}

const (
	// A git that was killed leaves its lock file, and would keep a ref from moving
	// ever again. A live one of ours holds a lock for milliseconds.
	lockAge = 10 * time.Second
	// maxTurns is how often a call steps back for another one.
	maxTurns = 5
)

var lockText = regexp.MustCompile(`Unable to create '(.+\.lock)': File exists`)

// heldLock finds in git's words the lock of gitDir that it met.
func heldLock(text, gitDir string) string {
	match := lockText.FindStringSubmatch(text)
	if match == nil || gitDir == "" || !strings.HasPrefix(match[1], gitDir+"/") {
		return ""
	}
	return match[1]
}

// outlive waits until a lock is gone, or so old that a dead git left it, and
// then removes it.
func outlive(ctx context.Context, lock string) error {
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		info, err := os.Lstat(lock)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if time.Since(info.ModTime()) >= lockAge {
			if err := os.Remove(lock); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-look.C:
		}
	}
}

func runOnce(ctx context.Context, c call) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	git, err := program()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w", c.args[0], err)
	}
	args := []string{git}
	if c.gitDir != "" {
		args = append(args, "--git-dir="+c.gitDir)
	}
	env := append(environment(c.config), c.env...)
	if c.tree != "" {
		args = append(args, "--work-tree="+c.tree)
	}
	if c.index != "" {
		env = append(env, "GIT_INDEX_FILE="+c.index)
	}
	if c.max == 0 {
		c.max = maxOutput
	}
	dir := c.gitDir
	if dir == "" {
		dir = "/"
	}
	out := &bounded{max: c.max, full: func() { cancel(errLong) }}
	msg := &bounded{max: maxStderr, full: func() {}}
	exit, err := sandbox.Host(ctx, sandbox.Command{
		Args: append(args, c.args...), Dir: dir, Env: env, Stdin: c.stdin,
		Stdout: out, Stderr: msg, MaxOutput: 4 * maxOutput, // the bounds here are tighter and cut cleanly
	})
	switch {
	case err != nil:
		located.Store(nil) // it may have been replaced: the next call looks anew
		return out.buf.Bytes(), fmt.Errorf("git %s: %w", c.args[0], err)
	case exit.Code != 0:
		return out.buf.Bytes(), &failure{verb: c.args[0], code: exit.Code, text: strings.TrimSpace(msg.buf.String())}
	}
	return out.buf.Bytes(), nil
}

// located is where git was found last, and in which PATH.
var located atomic.Pointer[struct{ path, file string }]

// program is git's file. A look through PATH for each of the thousands of calls of
// a build would be a dozen system calls.
func program() (string, error) {
	path := os.Getenv("PATH")
	if last := located.Load(); last != nil && last.path == path {
		return last.file, nil
	}
	file, err := sandbox.LookPath("git", []string{"PATH=" + path})
	if err == nil {
		located.Store(&struct{ path, file string }{path, file})
	}
	return file, err
}

// line runs git and returns its output without the line end.
func line(ctx context.Context, c call) (string, error) {
	out, err := run(ctx, c)
	return strings.TrimSuffix(string(out), "\n"), err
}

// A failure is a git that ended with a non-zero code.
type failure struct {
	verb string
	code int
	text string
}

func (f *failure) Error() string {
	if f.text == "" {
		return fmt.Sprintf("git %s ended with %d", f.verb, f.code)
	}
	return fmt.Sprintf("git %s: %s", f.verb, f.text)
}

// code is git's exit code in err, 0 when err is nil, -1 when git did not get that far.
func code(err error) int {
	if err == nil {
		return 0
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return -1
}

// A bounded writer keeps the first max bytes and calls full for the rest. The
// buffer is not embedded: its ReadFrom would pass the bound by.
type bounded struct {
	buf  bytes.Buffer
	max  int
	full func()
}

func (b *bounded) Write(p []byte) (int, error) {
	if rest := b.max - b.buf.Len(); len(p) > rest {
		b.buf.Write(p[:rest])
		b.full()
	} else {
		b.buf.Write(p)
	}
	return len(p), nil
}

// lockFile takes an exclusive lock on a file, which goes with its holder's life.
func lockFile(ctx context.Context, path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("wait for %s: %w", path, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// CheckVersion refuses a git without merge-tree --write-tree, or none at all.
func CheckVersion(ctx context.Context) error {
	out, err := line(ctx, call{args: []string{"version"}})
	if err != nil {
		return err
	}
	var major, minor int
	if _, err := fmt.Sscanf(out, "git version %d.%d", &major, &minor); err != nil {
		return fmt.Errorf("read git's version from %q: %w", out, err)
	}
	if major < 2 || major == 2 && minor < 38 {
		return fmt.Errorf("%s is too old: 2.38 or newer is needed", out)
	}
	return nil
}
