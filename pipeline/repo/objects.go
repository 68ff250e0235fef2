package repo

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
)

// Reading and writing single objects of the mirror without a git process. What
// builds make lies there as loose objects, one file each, whose form is fixed: a
// zlib stream of "<kind> <size>\0" and the content, named by the SHA-1 of that (see
// "Object Storage" in the book Pro Git). Whoever finds no loose object asks git,
// which knows packs too.

// The kinds of object that are read or written here.
const (
	commitKind = "commit"
	treeKind   = "tree"
)

// emptyTree is the tree without files, which git knows without having it.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// errNotLoose says that git has to be asked.
var errNotLoose = errors.New("no loose object")

// maxLoose bounds the content of an object that is read whole.
const maxLoose = 32 << 20

func loosePath(gitDir, hash string) string {
	return filepath.Join(gitDir, "objects", hash[:2], hash[2:])
}

// loose is an open loose object.
type loose struct {
	kind   string
	size   int64
	body   io.Reader
	file   *os.File
	stream inflater
}

func (l loose) close() {
	_ = l.file.Close() // it was only read
	inflaters.Put(l.stream)
}

// An inflater reads a zlib stream, and then another one.
type inflater interface {
	io.Reader
	zlib.Resetter
}

// They are for further use: an inflater is 40 KB, a deflater more than half a
// megabyte, and a build needs thousands.
var (
	inflaters sync.Pool
	deflaters = sync.Pool{New: func() any { return zlib.NewWriter(nil) }}
)

func inflate(from io.Reader) (inflater, error) {
	if used, ok := inflaters.Get().(inflater); ok {
		return used, used.Reset(from, nil)
	}
	fresh, err := zlib.NewReader(from)
	if err != nil {
		return nil, err
	}
	return fresh.(inflater), nil // as zlib.NewReader promises
}

// openLoose opens an object by its full hash. Any error means that git is to be
// asked, which then says what is wrong.
func openLoose(gitDir, hash string) (loose, error) {
	if checkHash(hash) != nil {
		return loose{}, errNotLoose
	}
	file, err := os.Open(loosePath(gitDir, hash))
	if err != nil {
		return loose{}, errNotLoose
	}
	stream, err := inflate(file)
	if err == nil {
		var head [32]byte
		n, _ := io.ReadFull(stream, head[:]) // a short object ends here
		label, rest, found := bytes.Cut(head[:n], []byte{0})
		kind, digits, _ := strings.Cut(string(label), " ")
		size, parseErr := strconv.ParseInt(digits, 10, 64)
		if found && parseErr == nil && size >= 0 {
			return loose{kind, size, io.MultiReader(bytes.NewReader(bytes.Clone(rest)), stream), file, stream}, nil
		}
	}
	_ = file.Close()
	return loose{}, errNotLoose
}

// readLoose returns the content of a loose object of that kind.
func readLoose(gitDir, hash, kind string) ([]byte, error) {
	l, err := openLoose(gitDir, hash)
	if err != nil {
		return nil, err
	}
	defer l.close()
	if l.kind != kind || l.size > maxLoose {
		return nil, errNotLoose
	}
	body, err := io.ReadAll(io.LimitReader(l.body, l.size+1))
	if err != nil || int64(len(body)) != l.size {
		return nil, errNotLoose
	}
	return body, nil
}

// isKind tells whether the repository holds an object of that kind.
func isKind(ctx context.Context, gitDir, hash, kind string) bool {
	if l, err := openLoose(gitDir, hash); err == nil {
		l.close()
		return l.kind == kind
	}
	out, err := line(ctx, call{gitDir: gitDir, args: []string{"cat-file", "-t", hash}})
	return err == nil && out == kind
}

// writeLoose makes an object durable and returns its hash, as git does it: whole
// under another name first, so that no reader sees a part of it.
func writeLoose(gitDir, kind string, body []byte) (hash string, err error) {
	whole := append(fmt.Appendf(nil, "%s %d\x00", kind, len(body)), body...)
	sum := sha1.Sum(whole) // git's name for it, not a guard against forgery
	hash = hex.EncodeToString(sum[:])
	path := loosePath(gitDir, hash)
	if _, err := os.Stat(path); err == nil {
		return hash, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "tmp_obj_")
	if err != nil {
		return "", err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	stream := deflaters.Get().(*zlib.Writer)
	defer deflaters.Put(stream)
	stream.Reset(file)
	_, err = stream.Write(whole)
	if err = errors.Join(err, stream.Close(), file.Chmod(0o444), file.Sync(), file.Close()); err != nil {
		return "", err
	}
	return hash, os.Rename(file.Name(), path)
}

// commitParts are the tree and the parents of a loose commit.
func commitParts(gitDir, hash string) (tree string, parents []string, err error) {
	body, err := readLoose(gitDir, hash, commitKind)
	if err != nil {
		return "", nil, err
	}
	for line := range strings.Lines(string(body)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "tree" && tree == "":
			tree = value
		case key == "parent":
			parents = append(parents, value)
		default: // the author follows, and no further parent
			if checkHash(tree) != nil {
				return "", nil, errNotLoose
			}
			return tree, parents, nil
		}
	}
	return "", nil, errNotLoose
}

// A treeEntry is one line of a tree.
type treeEntry struct{ mode, name, hash string }

const modeTree = "040000"

// readTree returns the entries of a loose tree in its order.
func readTree(gitDir, hash string) ([]treeEntry, error) {
	body, err := readLoose(gitDir, hash, treeKind)
	if err != nil {
		return nil, err
	}
	var entries []treeEntry
	for len(body) > 0 {
		mode, rest, ok := bytes.Cut(body, []byte(" "))
		name, rest, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(rest) < sha1.Size {
			return nil, errNotLoose
		}
		entries = append(entries, treeEntry{plainMode(string(mode)), string(name), hex.EncodeToString(rest[:sha1.Size])})
		body = rest[sha1.Size:]
	}
	return entries, nil
}

// plainMode is a mode as git shows it: six digits, and of a file no more than
// whether it can be executed.
func plainMode(mode string) string {
	switch n, err := strconv.ParseUint(mode, 8, 32); {
	case err != nil:
		return mode
	case n&0o170000 == 0o100000 && n&0o100 != 0:
		return "100755"
	case n&0o170000 == 0o100000:
		return "100644"
	default:
		return fmt.Sprintf("%06o", n)
	}
}

// looseChanges lists what differs between two trees, below a path. Only what
// differs is read; "" is the tree without files.
func looseChanges(gitDir, old, new, below string) (changes []entry, err error) {
	before, err := namedEntries(gitDir, old)
	if err != nil {
		return nil, err
	}
	after, err := namedEntries(gitDir, new)
	if err != nil {
		return nil, err
	}
	differ := func(name string, was, is treeEntry) error {
		if was == is {
			return nil
		}
		wasTree, isTree := subtree(was), subtree(is)
		if wasTree != isTree {
			deeper, err := looseChanges(gitDir, wasTree, isTree, below+name+"/")
			if err != nil {
				return err
			}
			changes = append(changes, deeper...)
		}
		if e, changed := fileChange(was, is); changed {
			e.path = below + name
			changes = append(changes, e)
		}
		return nil
	}
	for name, was := range before {
		if err := differ(name, was, after[name]); err != nil {
			return nil, err
		}
	}
	for name, is := range after {
		if _, known := before[name]; !known {
			if err := differ(name, treeEntry{}, is); err != nil {
				return nil, err
			}
		}
	}
	return changes, nil
}

func namedEntries(gitDir, tree string) (map[string]treeEntry, error) {
	if tree == "" || tree == emptyTree {
		return nil, nil
	}
	entries, err := readTree(gitDir, tree)
	if err != nil {
		return nil, err
	}
	named := make(map[string]treeEntry, len(entries))
	for _, e := range entries {
		named[e.name] = e
	}
	return named, nil
}

// subtree is the tree that an entry names, "" when it is none.
func subtree(e treeEntry) string {
	if e.mode == modeTree {
		return e.hash
	}
	return ""
}

// fileChange is the change of an entry as far as it is no tree.
func fileChange(was, is treeEntry) (e entry, changed bool) {
	const noMode = "000000"
	e = entry{oldMode: noMode, newMode: noMode, oldHash: zeroHash, newHash: zeroHash}
	wasFile, isFile := was.mode != "" && was.mode != modeTree, is.mode != "" && is.mode != modeTree
	if wasFile {
		e.oldMode, e.oldHash = was.mode, was.hash
	}
	if isFile {
		e.newMode, e.newHash = is.mode, is.hash
	}
	switch {
	case wasFile && isFile && was.mode[:3] != is.mode[:3]:
		e.status = "T"
	case wasFile && isFile:
		e.status = "M"
	case wasFile:
		e.status = "D"
	case isFile:
		e.status = "A"
	}
	return e, wasFile || isFile
}
