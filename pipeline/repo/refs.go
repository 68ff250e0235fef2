package repo

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// errAskGit says that a ref can only be moved by git itself.
var errAskGit = errors.New("git has to move the ref")

// moveLoose moves a ref as git does where each is a file of its own: under its
// lock, from where the caller saw it, in one rename. Whatever is not as simple as
// that (packed refs, another format, a lock that is held, a ref that is not where
// it should be) is errAskGit and has changed nothing. It needs no process, and a
// build moves three refs for every issue.
func (m *Mirror) moveLoose(name, new, old string) error {
	for _, other := range []string{"packed-refs", "reftable"} {
		if _, err := os.Lstat(filepath.Join(m.dir, other)); !errors.Is(err, fs.ErrNotExist) {
			return errAskGit
		}
	}
	path := filepath.Join(m.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return errAskGit
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return errAskGit
	}
	moved := false
	defer func() {
		if !moved {
			_ = os.Remove(lock.Name())
		}
	}()
	_, err = lock.WriteString(new + "\n")
	if err = errors.Join(err, lock.Sync(), lock.Close()); err != nil {
		return errAskGit
	}
	switch now, err := os.ReadFile(path); {
	case errors.Is(err, fs.ErrNotExist) && (old == "" || old == Any):
	case err == nil && old != "" && checkHash(strings.TrimSuffix(string(now), "\n")) == nil &&
		(old == Any || strings.TrimSuffix(string(now), "\n") == old):
	default:
		return errAskGit
	}
	if err := os.Rename(lock.Name(), path); err != nil {
		return errAskGit
	}
	moved = true
	return nil
}
