package repo

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Writing the trees of an index without a git process, from the index as git add
// left it: its version 2 has one form, and its extension TREE says which trees are
// as they were (see gitformat-index(5)). Whatever is not as simple as that is left
// to git.

// errOtherIndex says that git has to write the trees.
var errOtherIndex = errors.New("not an index of version 2 without conflicts")

// indexEntry is a file in an index.
type indexEntry struct {
	mode uint32
	hash []byte
	path string
	stat []byte // what was known of the file, with the mode in it
}

// knownTree is what an index remembers of a tree.
type knownTree struct {
	name    string
	entries int // files in it and below; negative when it has changed
	hash    []byte
	below   []*knownTree
}

// writeTree makes the trees of an index durable. It returns the hash of the top and
// the index as git read-tree would make it of that: it says nothing of the files but
// what they hold.
func (m *Mirror) writeTree(index string) (tree string, blank []byte, err error) {
	text, err := os.ReadFile(index)
	if err != nil {
		return "", nil, err
	}
	entries, known, err := readIndex(text)
	if err != nil {
		return "", nil, err
	}
	hash, n, err := m.writeBelow("", entries, known)
	if err == nil && n != len(entries) {
		err = errOtherIndex // its list is not in order
	}
	for _, e := range entries {
		clear(e.stat[:entryMode])
		clear(e.stat[entryMode+4:])
	}
	sum := sha1.Sum(text[:len(text)-sha1.Size])
	copy(text[len(text)-sha1.Size:], sum[:])
	return hex.EncodeToString(hash), text, err
}

// writeBelow writes the tree of the first entries, those that begin with dir, and
// says how many they are.
func (m *Mirror) writeBelow(dir string, entries []indexEntry, known *knownTree) (hash []byte, n int, err error) {
	if known != nil && known.entries > 0 && known.entries <= len(entries) {
		return known.hash, known.entries, nil
	}
	var body []byte
	for n < len(entries) {
		e := entries[n]
		name, below := strings.CutPrefix(e.path, dir)
		if !below {
			break
		}
		mode, hash, used := e.mode, e.hash, 1
		if part, _, deeper := strings.Cut(name, "/"); deeper {
			name, mode = part, 0o40000
			if hash, used, err = m.writeBelow(dir+part+"/", entries[n:], known.at(part)); err != nil {
				return nil, 0, err
			}
		}
		body = append(fmt.Appendf(body, "%o %s\x00", mode, name), hash...)
		n += used
	}
	written, err := writeLoose(m.dir, treeKind, body)
	if err != nil {
		return nil, 0, err
	}
	hash, err = hex.DecodeString(written)
	return hash, n, err
}

// at is the tree of that name in t; t may be nil.
func (t *knownTree) at(name string) *knownTree {
	if t != nil {
		for _, b := range t.below {
			if b.name == name {
				return b
			}
		}
	}
	return nil
}

// The parts of an index, in bytes.
const (
	indexHead   = 12 // DIRC, version, number of entries
	entryMode   = 24 // after times, device and inode
	entryHash   = 40
	entryFlags  = entryHash + sha1.Size
	entryPath   = entryFlags + 2
	entryFixed  = 0xf000 // of the flags: valid, extended, stage
	entryAssume = 0x8000 // of them the one that says nothing about the tree
	extension   = 8      // name and size
)

// readIndex takes an index apart.
func readIndex(text []byte) (entries []indexEntry, known *knownTree, err error) {
	if len(text) < indexHead+sha1.Size || string(text[:4]) != "DIRC" || binary.BigEndian.Uint32(text[4:]) != 2 {
		return nil, nil, errOtherIndex
	}
	count := int(binary.BigEndian.Uint32(text[8:]))
	rest := text[indexHead : len(text)-sha1.Size] // a checksum ends it
	if count > len(rest)/entryPath {
		return nil, nil, errOtherIndex
	}
	entries = make([]indexEntry, 0, count)
	for range count {
		if len(rest) < entryPath || binary.BigEndian.Uint16(rest[entryFlags:])&entryFixed&^entryAssume != 0 {
			return nil, nil, errOtherIndex
		}
		end := bytes.IndexByte(rest[entryPath:], 0)
		size := (entryPath + end + 8) &^ 7 // one to eight NUL
		if end <= 0 || size > len(rest) {
			return nil, nil, errOtherIndex
		}
		entries = append(entries, indexEntry{
			mode: binary.BigEndian.Uint32(rest[entryMode:]), hash: rest[entryHash:entryFlags], path: string(rest[entryPath : entryPath+end]),
			stat: rest[:entryHash],
		})
		rest = rest[size:]
	}
	for len(rest) >= extension {
		size := int(binary.BigEndian.Uint32(rest[4:]))
		if rest[0] < 'A' || rest[0] > 'Z' || size > len(rest)-extension { // others change what the entries mean
			return nil, nil, errOtherIndex
		}
		if string(rest[:4]) == "TREE" {
			if known, _, err = readKnown(rest[extension : extension+size]); err != nil {
				return nil, nil, err
			}
		}
		rest = rest[extension+size:]
	}
	return entries, known, nil
}

// readKnown reads one tree of the extension TREE, with those below it: its name,
// NUL, how many entries, how many trees, and its hash unless it has changed.
func readKnown(text []byte) (t *knownTree, rest []byte, err error) {
	name, rest, ok := bytes.Cut(text, []byte{0})
	numbers, rest, ok2 := bytes.Cut(rest, []byte("\n"))
	first, second, ok3 := strings.Cut(string(numbers), " ")
	count, countErr := strconv.Atoi(first)
	below, belowErr := strconv.Atoi(second)
	if !ok || !ok2 || !ok3 || countErr != nil || belowErr != nil {
		return nil, nil, errOtherIndex
	}
	t = &knownTree{name: string(name), entries: count}
	if count >= 0 {
		if len(rest) < sha1.Size {
			return nil, nil, errOtherIndex
		}
		t.hash, rest = rest[:sha1.Size], rest[sha1.Size:]
	}
	for range below {
		var b *knownTree
		if b, rest, err = readKnown(rest); err != nil {
			return nil, nil, err
		}
		t.below = append(t.below, b)
	}
	return t, rest, nil
}
