package native

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// A place is what one agent reaches: its directory, and those that it may read.
// Every file is opened through os.Root, so neither .. nor a link leads out.
type place struct {
	dir      string
	roots    []root // the first is that of dir
	readOnly bool
	home     string
	box      *sandbox.Box
	writable []string
	readable []string
}

// A root is one directory, opened.
type root struct {
	*os.Root
	dir  string // as the call named it
	real string // without links
}

// open opens the directories of a call.
func open(c runtime.Call, box *sandbox.Box) (*place, error) {
	p := &place{dir: c.Dir, readOnly: c.ReadOnly, home: c.Home, box: box, writable: runtime.Writable(c), readable: c.ReadOnlyDirs}
	for _, dir := range append([]string{c.Dir}, c.ReadOnlyDirs...) {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			var opened *os.Root
			if opened, err = os.OpenRoot(real); err == nil {
				p.roots = append(p.roots, root{Root: opened, dir: filepath.Clean(dir), real: real})
				continue
			}
		}
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *place) close() {
	for _, r := range p.roots {
		_ = r.Close() // it was only read
	}
}

// find says in which root a path of the model is, and where. A relative path is
// one in the agent's directory.
func (p *place) find(path string) (root, string, error) {
	if path == "" {
		path = "."
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(p.dir, path)
	}
	path = filepath.Clean(path)
	for _, r := range p.roots {
		for _, dir := range []string{r.dir, r.real} {
			if rel, err := filepath.Rel(dir, path); err == nil && filepath.IsLocal(rel) {
				return r, rel, nil
			}
		}
	}
	return root{}, "", fmt.Errorf("%s is outside of the directories that you may use: %s", path, strings.Join(p.shown(), ", "))
}

func (p *place) shown() []string {
	var dirs []string
	for _, r := range p.roots {
		dirs = append(dirs, r.dir)
	}
	return dirs
}

// name is how the model is told of a file: relative in its directory, absolute
// elsewhere.
func (p *place) name(r root, rel string) string {
	if r.dir == p.roots[0].dir {
		return rel
	}
	return filepath.Join(r.dir, rel)
}

// openFile opens a regular file for reading.
func (p *place) openFile(path string) (*os.File, fs.FileInfo, error) {
	r, rel, err := p.find(path)
	if err != nil {
		return nil, nil, err
	}
	return r.openFile(rel)
}

// openFile does not wait for the other end of a pipe.
func (r root) openFile(rel string) (*os.File, fs.FileInfo, error) {
	f, err := r.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, r.explain(rel, err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
	case info.IsDir():
		err = fmt.Errorf("%s is a directory; GLOB lists what is in it", rel)
	case !info.Mode().IsRegular():
		err = fmt.Errorf("%s is no regular file", rel)
	default:
		return f, info, nil
	}
	_ = f.Close() // nothing was read
	return nil, nil, err
}

// explain says of a missing file which ones there are that might be meant.
func (r root) explain(rel string, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, dirErr := fs.ReadDir(r.FS(), filepath.ToSlash(filepath.Dir(rel)))
	if dirErr != nil {
		return fmt.Errorf("%s does not exist, nor does its directory", rel)
	}
	var like []string
	base := strings.ToLower(filepath.Base(rel))
	stem := strings.TrimSuffix(base, filepath.Ext(base))
	for _, e := range entries {
		name := strings.ToLower(e.Name())
		if name == base || stem != "" && strings.HasPrefix(name, stem) || strings.HasSuffix(name, base) {
			like = append(like, e.Name())
		}
	}
	if len(like) == 0 {
		return fmt.Errorf("%s does not exist", rel)
	}
	return fmt.Errorf("%s does not exist; its directory has %s", rel, strings.Join(like[:min(len(like), 5)], ", "))
}

// target returns where a path may be written: in the agent's directory, no link
// on the way, not in .git.
func (p *place) target(path string) (root, string, error) {
	r, rel, err := p.find(path)
	switch {
	case err != nil:
		return root{}, "", err
	case r.dir != p.roots[0].dir || p.readOnly:
		return root{}, "", fmt.Errorf("%s is read-only for you", path)
	}
	if rel, err = r.resolve(rel); err != nil {
		return root{}, "", err
	}
	if rel == "." {
		return root{}, "", fmt.Errorf("%s is the directory itself", path)
	}
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if strings.EqualFold(part, ".git") {
			return root{}, "", fmt.Errorf("%s is git's own; it is not written by hand", path)
		}
	}
	return r, rel, nil
}

// resolve follows the links of a path, of which the last parts need not exist
// yet.
func (r root) resolve(rel string) (string, error) {
	var missing []string
	for at := filepath.Join(r.real, rel); ; at = filepath.Dir(at) {
		real, err := filepath.EvalSymlinks(at)
		if errors.Is(err, fs.ErrNotExist) && at != r.real {
			if info, err := os.Lstat(at); err == nil && info.Mode().Type() == fs.ModeSymlink {
				return "", fmt.Errorf("%s is a link to nowhere", rel)
			}
			missing = append(missing, filepath.Base(at))
			continue
		}
		if err != nil {
			return "", err
		}
		slices.Reverse(missing)
		out, err := filepath.Rel(r.real, filepath.Join(append([]string{real}, missing...)...))
		if err != nil || !filepath.IsLocal(out) {
			return "", fmt.Errorf("%s leads out of the directory", rel)
		}
		return out, nil
	}
}

// replace writes a file as a whole: beside it first, so that no half of it is
// ever seen and nothing is written through a hard link.
func (r root) replace(rel string, data []byte) error {
	mode := fs.FileMode(0o644)
	switch info, err := r.Lstat(rel); {
	case err == nil && info.IsDir():
		return fmt.Errorf("%s is a directory", rel)
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%s is no regular file", rel)
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if err := r.MkdirAll(filepath.Dir(rel), 0o755); err != nil {
		return err
	}
	beside := filepath.Join(filepath.Dir(rel), ".slipway-"+rand.Text())
	f, err := r.OpenFile(beside, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = r.Rename(beside, rel)
	}
	if err != nil {
		return errors.Join(err, r.Remove(beside))
	}
	return nil
}

// readAll reads a file of at most limit bytes.
func readAll(f *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("the file has more than %d MiB", limit>>20)
	}
	return data, nil
}
