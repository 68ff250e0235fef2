// Package repo is git for builds: a bare mirror that only Slipway writes, and
// disposable clones in which agents work.
//
// The model: a remote's commits are fetched into a Mirror. Each claim of a
// build makes a Clone of it, a full copy that shares no file with the mirror,
// and gives every issue a worktree there. What an agent leaves in a worktree is
// collected as plain files into the mirror, inspected there, merged there and
// pushed from there. The flow back never passes through the clone, so nothing
// that an agent can write is ever read by git as configuration.
//
// Promises: no git process reads the configuration of the machine, of the user
// or of an agent, and none runs a hook, a filter, a monitor or a command of
// theirs; a credential is in a private file only; a branch moves forward or
// not at all, and only from where the caller saw it; what is collected stays in
// the mirror until its ref is removed and the mirror is packed by hand.
//
// A commit or tree is named by its full hash, or by a ref that begins with
// "refs/". All methods may be called at the same time, from several processes.
package repo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// The outcomes that a caller decides on. All others are failures.
var (
	// ErrMoved: a ref is not where the caller saw it; somebody else was first.
	ErrMoved = errors.New("the ref has moved")
	// ErrDenied: the remote did not accept the credential.
	ErrDenied = errors.New("the remote denied access")
	// ErrMissing: the remote has no such repository or branch.
	ErrMissing = errors.New("not found on the remote")
	// ErrUnrelated: two commits have no history in common.
	ErrUnrelated = errors.New("their histories have nothing in common")
)

// Any stands for the old value in SetRef when any value, or none, will do.
const Any = "*"

// A Mirror is a bare repository that belongs to Slipway alone. It must not be
// visible to agents. Its refs are below refs/slipway/: base/ holds branches of
// the remote, the rest belongs to the builds.
type Mirror struct {
	dir     string
	indexed sync.Map // by directory of a worktree: the commit, or the tree, whose index is remembered

	commits memo[commitParts] // of the loose objects that were read
	trees   memo[[]treeEntry]
	lengths memo[int64]
}

// A Ref is a name and the commit that it points to.
type Ref struct{ Name, Commit string }

// Open opens the mirror in dir and makes it when it is missing. Beside dir it
// keeps a lock file, dir + ".lock".
func Open(ctx context.Context, dir string) (*Mirror, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	m := &Mirror{dir: dir}
	if m.complete() {
		return m, nil
	}
	if err := CheckVersion(ctx); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return nil, fmt.Errorf("open mirror: %w", err)
	}
	unlock, err := m.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if m.complete() {
		return m, nil
	}
	if err := m.create(ctx); err != nil {
		return nil, fmt.Errorf("create mirror %s: %w", dir, err)
	}
	return m, nil
}

// complete tells whether every file that create makes is there; the askpass
// program comes last and carries its own version.
func (m *Mirror) complete() bool {
	have, err := os.ReadFile(m.askpassFile())
	return err == nil && string(have) == askpassProgram
}

// create makes the mirror aside and moves it into place, so that a crash leaves
// either none or a whole one.
func (m *Mirror) create(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(m.dir, "HEAD")); errors.Is(err, fs.ErrNotExist) {
		tmp, err := os.MkdirTemp(filepath.Dir(m.dir), ".new-mirror-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tmp) }() // gone already when all went well
		if _, err := run(ctx, call{
			env: []string{"GIT_DEFAULT_REF_FORMAT=files"}, args: []string{"init", "--quiet", "--bare", "--template=", "--", tmp},
		}); err != nil {
			return err
		}
		if err := os.Rename(tmp, m.dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(m.private(), 0o700); err != nil {
		return err
	}
	tmp := filepath.Join(m.private(), ".askpass.new")
	if err := os.WriteFile(tmp, []byte(askpassProgram), 0o700); err != nil {
		return err
	}
	return os.Rename(tmp, m.askpassFile())
}

// private is the part of the mirror's directory that git does not know.
func (m *Mirror) private() string { return filepath.Join(m.dir, "slipway") }

// lock excludes other goroutines and processes that create or fetch.
func (m *Mirror) lock(ctx context.Context) (unlock func(), err error) {
	return lockFile(ctx, m.dir+".lock")
}

// git runs git on the mirror.
func (m *Mirror) git(ctx context.Context, args ...string) ([]byte, error) {
	return run(ctx, call{gitDir: m.dir, args: args})
}

// Has tells whether the mirror holds commit. False also stands for "cannot
// tell": the caller then makes it anew.
func (m *Mirror) Has(ctx context.Context, commit string) bool {
	return has(ctx, m.dir, commit)
}

func has(ctx context.Context, gitDir, commit string) bool {
	if checkRev(commit) != nil {
		return false
	}
	if _, err := readLoose(gitDir, commit, commitKind); err == nil {
		return true // whole, by its size and checksum
	}
	_, err := run(ctx, call{gitDir: gitDir, args: []string{"cat-file", "-e", commit + "^{commit}"}})
	return err == nil
}

// Ref returns the commit of the ref name, "" when there is none.
func (m *Mirror) Ref(ctx context.Context, name string) (string, error) {
	if err := checkRef(name); err != nil {
		return "", err
	}
	refs, err := m.Refs(ctx, name)
	for _, r := range refs {
		if r.Name == name {
			return r.Commit, err
		}
	}
	return "", err
}

// Refs lists the refs at and below prefix, sorted by name. A prefix ends where
// a part of the name ends: "refs/slipway/b1", not "refs/slipway/b".
func (m *Mirror) Refs(ctx context.Context, prefix string) ([]Ref, error) {
	prefix = strings.TrimSuffix(prefix, "/")
	if err := checkRef(prefix); err != nil {
		return nil, err
	}
	out, err := m.git(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "--", prefix)
	if err != nil {
		return nil, fmt.Errorf("list refs %s: %w", prefix, err)
	}
	var refs []Ref
	for line := range strings.Lines(string(out)) {
		commit, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		refs = append(refs, Ref{Name: name, Commit: commit})
	}
	return refs, nil
}

// SetRef moves the ref name to the commit new if it is at old: "" means that it
// must not exist, Any that it may be anywhere. An empty new removes the ref. A
// ref that is at new already is a success, so that a repeated call converges;
// any other place is ErrMoved. name is below refs/slipway/.
func (m *Mirror) SetRef(ctx context.Context, name, new, old string) error {
	if err := checkRef(name); err != nil {
		return err
	}
	if !strings.HasPrefix(name, "refs/slipway/") {
		return fmt.Errorf("ref %s: not below refs/slipway/", name)
	}
	args := []string{"update-ref", "--no-deref", name, new}
	if new == "" {
		args = []string{"update-ref", "--no-deref", "-d", name}
	} else if err := checkHash(new); err != nil {
		return err
	}
	switch old {
	case Any:
	case "":
		args = append(args, zeroHash)
	default:
		if err := checkHash(old); err != nil {
			return err
		}
		args = append(args, old)
	}
	if new != "" && m.isKind(ctx, new, commitKind) && m.moveLoose(name, new, old) == nil {
		return nil
	}
	if new == "" && old == "" {
		args = args[:0] // git takes no zero hash here; the look below decides
	}
	var err error
	if len(args) > 0 {
		if _, err = m.git(ctx, args...); err == nil {
			return nil
		}
	}
	now, refErr := m.Ref(ctx, name)
	switch {
	case refErr != nil:
		return errors.Join(err, refErr)
	case now == new:
		return nil
	case old != Any && now != old:
		return fmt.Errorf("set %s to %s: it is at %s, not at %s: %w", name, short(new), short(now), short(old), ErrMoved)
	}
	return fmt.Errorf("set %s to %s: %w", name, short(new), err)
}

// sweep removes what crashed processes left in a private directory.
func sweep(dir string, age time.Duration) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return // nothing there yet
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > age {
			_ = os.RemoveAll(filepath.Join(dir, e.Name())) // the next sweep tries again
		}
	}
}
