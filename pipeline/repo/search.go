package repo

import (
	"bytes"
	"context"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// refuseNested looks for anything below dir that git could take for a
// repository. A nested one could hold a monitor or a filter that git would run
// to learn its state.
//
// It reads every directory at every collect, so it asks the kernel for names
// and types alone.
func refuseNested(ctx context.Context, dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return &Violation{Rule: "the worktree is not a directory any more"}
	}
	buf := listings.Get().(*[]byte)
	defer listings.Put(buf)
	for left := []string{dir}; len(left) > 0; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		at := left[len(left)-1]
		left = left[:len(left)-1]
		err := eachName(at, *buf, func(name []byte, kind byte) error {
			if couldBeGit(name) && dotGit(string(name)) {
				return judgeGit(dir, filepath.Join(at, string(name)))
			}
			if kind == unix.DT_UNKNOWN { // a file system that does not tell
				info, err := os.Lstat(filepath.Join(at, string(name)))
				if err != nil {
					return err
				}
				if info.IsDir() {
					kind = unix.DT_DIR
				}
			}
			if kind == unix.DT_DIR {
				left = append(left, at+"/"+string(name))
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// couldBeGit spares most names the folding of dotGit, which never changes a
// first character in ASCII but for its case.
func couldBeGit(name []byte) bool {
	return name[0] >= 0x80 || name[0] == '.' || name[0] == 'g' || name[0] == 'G'
}

// judgeGit accepts what has one of git's names only as the worktree's own.
func judgeGit(dir, path string) error {
	if path == filepath.Join(dir, ".git") {
		return checkOwnGit(path)
	}
	rel, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	return &Violation{Path: filepath.ToSlash(rel), Rule: "a repository inside the worktree is not allowed"}
}

// checkOwnGit accepts a top .git only as the file that Clone.Worktree made.
func checkOwnGit(path string) error {
	replaced := &Violation{Path: ".git", Rule: "the worktree's .git file was replaced"}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return replaced
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	want := "gitdir: " + adminDir(filepath.Dir(path)) + "\n"
	have := make([]byte, len(want)+1)
	if n, _ := f.Read(have); string(have[:n]) != want {
		return replaced
	}
	return nil
}

// listings are buffers for the kernel's lists of names.
var listings = sync.Pool{New: func() any { buf := make([]byte, 64<<10); return &buf }}

// Where in linux_dirent64 its length, its type and its name are: getdents(2).
const (
	entryLength = 16
	entryKind   = 18
	entryName   = 19
)

// eachName calls fn with the names in a directory, and with what each of them is.
// The directory itself must be none by a link.
func eachName(dir string, buf []byte, fn func(name []byte, kind byte) error) error {
	f, err := open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.close()
	for {
		n, err := again(func() (int, error) { return unix.Getdents(int(f), buf) })
		if err != nil {
			return &os.PathError{Op: "read directory", Path: dir, Err: err}
		}
		if n == 0 {
			return nil
		}
		for rest := buf[:n]; len(rest) > entryName; {
			entry := rest[:binary.NativeEndian.Uint16(rest[entryLength:])]
			rest = rest[len(entry):]
			name, _, _ := bytes.Cut(entry[entryName:], []byte{0})
			if string(name) == "." || string(name) == ".." {
				continue
			}
			if err := fn(name, entry[entryKind]); err != nil {
				return err
			}
		}
	}
}
