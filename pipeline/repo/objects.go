package repo

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
	return gitDir + "/objects/" + hash[:2] + "/" + hash[2:]
}

// loose is an open loose object.
type loose struct {
	kind   string
	size   int64
	file   rawFile
	stream *inflater // at the content
}

func (l loose) close() {
	l.file.close()
	inflaters.Put(l.stream)
}

// An inflater reads a zlib stream, and then another one.
type inflater struct {
	*bufio.Reader // of the plain text
	zlib          io.Reader
	packed        *bufio.Reader
}

// They are for further use: an inflater is 40 KB, a deflater more than half a
// megabyte, and a build needs thousands.
var (
	inflaters sync.Pool
	deflaters = sync.Pool{New: func() any { return &deflater{} }}
)

func inflate(from io.Reader) (*inflater, error) {
	if used, ok := inflaters.Get().(*inflater); ok {
		used.packed.Reset(from)
		err := used.zlib.(zlib.Resetter).Reset(used.packed, nil) // as zlib.NewReader promises
		used.Reset(used.zlib)
		return used, err
	}
	packed := bufio.NewReader(from)
	stream, err := zlib.NewReader(packed)
	if err != nil {
		return nil, err
	}
	return &inflater{bufio.NewReader(stream), stream, packed}, nil
}

// openLoose opens an object by its full hash. Any error means that git is to be
// asked, which then says what is wrong.
func openLoose(gitDir, hash string) (loose, error) {
	if checkHash(hash) != nil {
		return loose{}, errNotLoose
	}
	file, err := open(loosePath(gitDir, hash), unix.O_RDONLY, 0)
	if err != nil {
		return loose{}, errNotLoose
	}
	stream, err := inflate(file)
	if err == nil {
		label, labelErr := stream.ReadSlice(0)
		kind, digits, _ := strings.Cut(strings.TrimSuffix(string(label), "\x00"), " ")
		size, sizeErr := strconv.ParseInt(digits, 10, 64)
		if labelErr == nil && sizeErr == nil && size >= 0 {
			return loose{kind, size, file, stream}, nil
		}
	}
	file.close()
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
	body := make([]byte, l.size)
	if _, err := io.ReadFull(l.stream, body); err != nil {
		return nil, errNotLoose
	}
	if _, err := l.stream.ReadByte(); !errors.Is(err, io.EOF) { // the checksum comes with the end
		return nil, errNotLoose
	}
	return body, nil
}

// isKind tells whether the mirror holds an object of that kind.
func (m *Mirror) isKind(ctx context.Context, hash, kind string) bool {
	if kind == commitKind && m.commits.knows(hash) || kind == treeKind && m.trees.knows(hash) {
		return true
	}
	if l, err := openLoose(m.dir, hash); err == nil {
		l.close()
		return l.kind == kind
	}
	out, err := line(ctx, call{gitDir: m.dir, args: []string{"cat-file", "-t", hash}})
	return err == nil && out == kind
}

// A deflater makes zlib streams, one after the other.
type deflater struct {
	*zlib.Writer
	packed bytes.Buffer
}

// pack is the zlib stream of parts. It is valid until the next call.
func (d *deflater) pack(parts ...[]byte) (_ []byte, err error) {
	d.packed.Reset()
	if d.Writer == nil {
		if d.Writer, err = zlib.NewWriterLevel(&d.packed, zlib.BestSpeed); err != nil { // as git does
			return nil, err
		}
	}
	d.Reset(&d.packed)
	for _, part := range parts {
		if _, err := d.Write(part); err != nil {
			return nil, err
		}
	}
	err = d.Close()
	return d.packed.Bytes(), err
}

// writeLoose makes an object durable and returns its hash, as git does it: whole
// under another name first, so that no reader sees a part of it.
func writeLoose(gitDir, kind string, body []byte) (hash string, err error) {
	head := fmt.Appendf(nil, "%s %d\x00", kind, len(body))
	sum := sha1.New() // git's name for it, not a guard against forgery
	_, _ = sum.Write(head)
	_, _ = sum.Write(body)
	hash = hex.EncodeToString(sum.Sum(nil))
	path := loosePath(gitDir, hash)
	if unix.Access(path, unix.F_OK) == nil {
		return hash, nil
	}
	stream := deflaters.Get().(*deflater)
	defer deflaters.Put(stream)
	packed, err := stream.pack(head, body)
	if err != nil {
		return "", err
	}
	return hash, writeWhole(path, packed, durable)
}

// readCommit returns the parts of a loose commit.
func readCommit(gitDir, hash string) (c commitParts, err error) {
	body, err := readLoose(gitDir, hash, commitKind)
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(body)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch {
		case key == "tree" && c.tree == "":
			c.tree = value
		case key == "parent":
			c.parents = append(c.parents, value)
		default: // the author follows, and no further parent
			if checkHash(c.tree) != nil {
				return commitParts{}, errNotLoose
			}
			return c, nil
		}
	}
	return commitParts{}, errNotLoose
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
func (m *Mirror) looseChanges(old, new, below string) (changes []entry, err error) {
	before, err := m.entries(old)
	if err != nil {
		return nil, err
	}
	after, err := m.entries(new)
	if err != nil {
		return nil, err
	}
	for was, is := range differing(before, after) {
		name := cmp.Or(was.name, is.name)
		if wasTree, isTree := subtree(was), subtree(is); wasTree != isTree {
			deeper, err := m.looseChanges(wasTree, isTree, below+name+"/")
			if err != nil {
				return nil, err
			}
			changes = append(changes, deeper...)
		}
		if e, changed := fileChange(was, is); changed {
			e.path = below + name
			changes = append(changes, e)
		}
	}
	return changes, nil
}

// differing pairs the entries of two trees, and leaves the equal ones out. What
// only one of them has is paired with nothing, and so is a file where the other
// has a tree.
func differing(before, after []treeEntry) iter.Seq2[treeEntry, treeEntry] {
	return func(yield func(was, is treeEntry) bool) {
		for len(before) > 0 || len(after) > 0 {
			var was, is treeEntry
			order := byPlace(before, after)
			if order <= 0 {
				was, before = before[0], before[1:]
			}
			if order >= 0 {
				is, after = after[0], after[1:]
			}
			if was != is && !yield(was, is) {
				return
			}
		}
	}
}

// byPlace compares the first entries by where they stand in a tree: git sorts
// the name of a tree as if a slash followed. Nothing comes last.
func byPlace(before, after []treeEntry) int {
	switch {
	case len(before) == 0:
		return 1
	case len(after) == 0:
		return -1
	}
	a, b := before[0], after[0]
	n := min(len(a.name), len(b.name))
	if order := strings.Compare(a.name[:n], b.name[:n]); order != 0 {
		return order
	}
	return cmp.Compare(a.at(n), b.at(n))
}

// at is the byte of the entry's name as git sorts it.
func (e treeEntry) at(i int) byte {
	switch {
	case i < len(e.name):
		return e.name[i]
	case e.mode == modeTree:
		return '/'
	}
	return 0
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
