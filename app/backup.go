package app

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/queue"
)

// A Backup says what a backup of a state directory holds. It is the last thing in
// the file, which is a tar.gz: without it the file is not whole.
//
// The file has the store as it was at one instant (store/), what every mirror had
// then (packs/: its objects in one file, and its refs), and what people read
// (builds/, transcripts/, recordings/, results/). What that instant's builds were
// at is in it as after a crash. Clones, homes and caches are made anew.
type Backup struct {
	Version int               `json:"version"`
	Program string            `json:"program"` // the version of Slipway that made it
	Taken   time.Time         `json:"taken"`
	LeftOut []string          `json:"left_out"` // files of the state directory that are not in it on purpose
	Files   map[string]string `json:"files"`    // by name in the archive: the SHA-256, in hexadecimal
}

const (
	backupVersion = 1
	backupName    = "backup.json"
	packsDir      = "packs"
	packName      = "objects.pack"
	refsName      = "refs.json"

	// maxInstant bounds how long a backup keeps everybody from recording anything:
	// half of what they wait for a turn at the store.
	maxInstant = 5 * time.Second
)

// What is copied as it is. It tells of builds, and none needs it to go on.
var keptDirectories = []string{"builds", "transcripts", "recordings", "results"}

// BackUp writes a backup of the state directory and its store into a new file,
// which is there when it is whole, and durable. Servers and builds may be at work.
// say hears what is being done.
func BackUp(ctx context.Context, store *queue.SQLite, stateDir, file, program string, say func(string)) (b Backup, err error) {
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		return b, errors.Join(fmt.Errorf("%s is there already, and is not overwritten", file), err)
	}
	scratch, err := os.MkdirTemp(filepath.Dir(file), ".slipway-backup-") // for nobody else to read
	if err != nil {
		return b, fmt.Errorf("make a place for the backup: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	w := &backupWriter{
		store: store, stateDir: stateDir, scratch: scratch, say: say,
		made: Backup{Version: backupVersion, Program: program, LeftOut: []string{}, Files: map[string]string{}},
	}
	whole, err := w.write(ctx)
	if err != nil {
		return b, fmt.Errorf("back up %s: %w", stateDir, err)
	}
	if err := os.Link(whole, file); err != nil { // unlike a rename it never replaces
		return b, fmt.Errorf("put the backup in place: %w", err)
	}
	return w.made, syncDirectory(filepath.Dir(file))
}

// backupWriter makes one backup.
type backupWriter struct {
	store    *queue.SQLite
	stateDir string
	scratch  string
	say      func(string)
	tar      *tar.Writer
	made     Backup
	mirrors  []backedMirror
}

// backedMirror is a mirror with the refs that it had at the instant of the backup.
type backedMirror struct {
	name string // owner/name.git
	refs []repo.Ref
	*repo.Mirror
}

// write returns the finished archive.
func (w *backupWriter) write(ctx context.Context) (name string, err error) {
	out, err := os.OpenFile(filepath.Join(w.scratch, "archive"), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	zip, err := gzip.NewWriterLevel(out, gzip.BestSpeed) // most of it is packed already
	if err != nil {
		return "", err
	}
	w.tar = tar.NewWriter(zip)
	for _, part := range []func(context.Context) error{w.addStore, w.addMirrors, w.addKept, w.addManifest} {
		if err := part(ctx); err != nil {
			return "", err
		}
	}
	return out.Name(), errors.Join(w.tar.Close(), zip.Close(), out.Sync())
}

func (w *backupWriter) addStore(ctx context.Context) error {
	w.say("the store")
	if err := w.openMirrors(ctx); err != nil {
		return err
	}
	copied := filepath.Join(w.scratch, "queue.db")
	blobs, err := w.store.Backup(ctx, copied, func() error {
		w.made.Taken = time.Now()
		return w.readRefs(ctx)
	})
	if err != nil {
		return err
	}
	if err := w.addFile(ctx, "store/queue.db", copied); err != nil {
		return err
	}
	for _, blob := range blobs {
		name := path.Join("store", filepath.ToSlash(blob))
		if err := w.addFile(ctx, name, filepath.Join(w.stateDir, "store", blob)); err != nil {
			return err
		}
		if w.made.Files[name] != path.Base(name) {
			return fmt.Errorf("%s is damaged: it is not what was written", name)
		}
	}
	return os.Remove(copied)
}

func (w *backupWriter) openMirrors(ctx context.Context) error {
	dirs, err := filepath.Glob(filepath.Join(w.stateDir, "mirrors", "*", "*.git"))
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		m, err := repo.Open(ctx, dir)
		if err != nil {
			return err
		}
		w.mirrors = append(w.mirrors, backedMirror{name: path.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir)), Mirror: m})
	}
	return nil
}

// readRefs runs while nobody can record anything: the refs are those of the store.
func (w *backupWriter) readRefs(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxInstant, fmt.Errorf("reading the refs of %d mirrors takes longer than %s, for which all work waits", len(w.mirrors), maxInstant))
	defer cancel()
	for i := range w.mirrors {
		if w.mirrors[i].refs, err = w.mirrors[i].Refs(ctx, "refs/slipway"); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
	}
	return nil
}

// addMirrors comes after the store: what a journal speaks of was in the mirror
// before, and nothing leaves a mirror.
func (w *backupWriter) addMirrors(ctx context.Context) error {
	for _, m := range w.mirrors {
		w.say("mirror " + m.name)
		if err := w.addMirror(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

func (w *backupWriter) addMirror(ctx context.Context, m backedMirror) (err error) {
	dir, err := os.MkdirTemp(w.scratch, "pack-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pack, err := m.Pack(ctx, dir)
	if err != nil || pack == "" {
		return err
	}
	refs, err := json.Marshal(m.refs)
	if err != nil {
		return err
	}
	if err := w.addFile(ctx, path.Join(packsDir, m.name, packName), pack); err != nil {
		return err
	}
	return w.addText(ctx, path.Join(packsDir, m.name, refsName), refs)
}

func (w *backupWriter) addKept(ctx context.Context) error {
	for _, dir := range keptDirectories {
		w.say(dir)
		err := filepath.WalkDir(filepath.Join(w.stateDir, dir), func(file string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return gone(err)
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			text, err := os.ReadFile(file) // whole: builds add to it meanwhile
			if err != nil {
				return gone(err)
			}
			name, err := filepath.Rel(w.stateDir, file)
			if err != nil {
				return err
			}
			return w.addText(ctx, filepath.ToSlash(name), text)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// gone forgives that a file was removed before it was read.
func gone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (w *backupWriter) addManifest(ctx context.Context) error {
	if _, err := os.Lstat(filepath.Join(w.stateDir, config.StoredName)); err == nil {
		w.made.LeftOut = append(w.made.LeftOut, config.StoredName)
	}
	text, err := json.MarshalIndent(w.made, "", "  ")
	if err != nil {
		return err
	}
	return w.add(ctx, backupName, int64(len(text)), bytes.NewReader(text))
}

// addFile adds a file that does not change any more.
func (w *backupWriter) addFile(ctx context.Context, name, file string) (err error) {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return w.addSummed(ctx, name, info.Size(), f)
}

func (w *backupWriter) addText(ctx context.Context, name string, text []byte) error {
	return w.addSummed(ctx, name, int64(len(text)), bytes.NewReader(text))
}

// addSummed adds content that the manifest names with its digest.
func (w *backupWriter) addSummed(ctx context.Context, name string, size int64, content io.Reader) error {
	digest := sha256.New()
	if err := w.add(ctx, name, size, io.TeeReader(content, digest)); err != nil {
		return err
	}
	w.made.Files[name] = hex.EncodeToString(digest.Sum(nil))
	return nil
}

func (w *backupWriter) add(ctx context.Context, name string, size int64, content io.Reader) error {
	if strings.HasPrefix(name, "../") || !fs.ValidPath(name) {
		return fmt.Errorf("%q cannot be the name of a file in a backup", name)
	}
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600, Size: size, ModTime: w.made.Taken})
	if err == nil {
		err = copyAll(ctx, w.tar, content)
	}
	if err != nil {
		return fmt.Errorf("add %s: %w", name, err)
	}
	return nil
}

// copyAll is io.Copy that ends with ctx.
func copyAll(ctx context.Context, to io.Writer, from io.Reader) error {
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, err := io.CopyN(to, from, 1<<20); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
	}
}

func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
