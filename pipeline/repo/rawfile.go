package repo

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A rawFile is a file descriptor and nothing more. What package os adds (the
// poller, a finalizer) costs as much as the few bytes that are read or written
// here, and a build does so hundreds of thousands of times.
type rawFile int

// open is open(2).
func open(path string, flags int, mode uint32) (rawFile, error) {
	fd, err := again(func() (int, error) { return unix.Open(path, flags|unix.O_CLOEXEC, mode) })
	if err != nil {
		return -1, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return rawFile(fd), nil
}

func (f rawFile) Read(p []byte) (int, error) {
	n, err := again(func() (int, error) { return unix.Read(int(f), p) })
	switch {
	case err != nil:
		return 0, fmt.Errorf("read: %w", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

func (f rawFile) Write(p []byte) (written int, err error) {
	for written < len(p) {
		n, err := again(func() (int, error) { return unix.Write(int(f), p[written:]) })
		if err != nil {
			return written, fmt.Errorf("write: %w", err)
		}
		written += n
	}
	return written, nil
}

func (f rawFile) sync() error {
	_, err := again(func() (int, error) { return 0, unix.Fsync(int(f)) })
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// close is for a file that was only read, or is durable already.
func (f rawFile) close() { _ = unix.Close(int(f)) }

// again repeats a call that a signal interrupted.
func again(call func() (int, error)) (int, error) {
	for {
		if n, err := call(); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// durability is whether a file has to outlive a power cut.
type durability bool

const (
	durable durability = true
	passing durability = false
)

// create makes a file that must not exist, and its directory when that is missing.
func create(path string, mode uint32) (rawFile, error) {
	const flags = unix.O_CREAT | unix.O_EXCL | unix.O_WRONLY
	f, err := open(path, flags, mode)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return -1, err
		}
		f, err = open(path, flags, mode)
	}
	return f, err
}

// writeWhole puts a read-only file into place under another name first, so that
// no reader sees a part of it.
func writeWhole(path string, content []byte, keep durability) error {
	tmp := fmt.Sprintf("%s/tmp_obj_%x", filepath.Dir(path), rand.Uint64())
	f, err := create(tmp, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && keep == durable {
		err = f.sync()
	}
	f.close()
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		_ = os.Remove(tmp) // else a git gc does it
		return fmt.Errorf("write %s: %w", filepath.Base(path), err)
	}
	return nil
}
