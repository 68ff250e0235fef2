package app

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/queue"
)

// maxManifest bounds the manifest, in bytes: a hundred for each file.
const maxManifest = 64 << 20

// Restore puts what a backup holds into a state directory, which has none of it
// yet, and returns it with the jobs that have not ended. All of it is unpacked aside
// and checked before anything is put in place: the files by their digests, the
// store by SQLite, the mirrors by git.
func Restore(ctx context.Context, file, stateDir string, say func(string)) (b Backup, open []queue.Job, err error) {
	r := &restorer{stateDir: stateDir, say: say}
	if err := r.look(ctx); err != nil {
		return b, nil, err
	}
	if r.scratch, err = os.MkdirTemp(stateDir, ".restore-"); err != nil {
		return b, nil, fmt.Errorf("make a place to restore in: %w", err)
	}
	defer func() { err = errors.Join(err, repo.RemoveAll(context.WithoutCancel(ctx), r.scratch)) }()
	for _, part := range []func() error{
		func() error { b, err = r.unpack(ctx, file); return err },
		func() error { return r.makeMirrors(ctx) },
		func() error { open, err = r.checkStore(ctx); return err },
	} {
		if err := part(); err != nil {
			return b, nil, fmt.Errorf("%s: %w; nothing was restored", file, err)
		}
	}
	if err := r.place(ctx); err != nil {
		return b, nil, fmt.Errorf("restore %s: %w", file, err)
	}
	return b, open, nil
}

type restorer struct {
	stateDir string
	scratch  string // below it, so that what is in it can be moved into place
	say      func(string)
}

// parts are what a backup puts into the state directory beside the store.
func (r *restorer) parts() []string { return append([]string{"mirrors"}, keptDirectories...) }

// look refuses a state directory in which something would be mixed or replaced.
func (r *restorer) look(ctx context.Context) error {
	if err := os.MkdirAll(r.stateDir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	if err := queue.VacantSQLite(ctx, filepath.Join(r.stateDir, "store")); err != nil {
		return err
	}
	for _, name := range r.parts() {
		files, err := os.ReadDir(filepath.Join(r.stateDir, name))
		if err == nil && len(files) > 0 {
			err = fmt.Errorf("%s has %s already, which may be another store's: name an empty directory", r.stateDir, name)
		}
		if gone(err) != nil {
			return err
		}
	}
	return nil
}

// unpack unpacks the archive and checks that it is whole and says so.
func (r *restorer) unpack(ctx context.Context, file string) (b Backup, err error) {
	r.say("unpacking")
	f, err := os.Open(file)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zip, err := gzip.NewReader(f)
	if err != nil {
		return b, fmt.Errorf("it is no backup: %w", err)
	}
	root, err := os.OpenRoot(r.scratch)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	in, sums := tar.NewReader(zip), map[string]string{}
	for {
		header, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return b, errors.New("it is not whole: its end is missing")
		case err != nil:
			return b, fmt.Errorf("it is damaged: %w", err)
		case header.Name == backupName:
			if b, err = readManifest(in, sums); err != nil {
				return b, err
			}
			if _, err := in.Next(); !errors.Is(err, io.EOF) {
				return b, errors.Join(errors.New("it is damaged: something follows its end"), err)
			}
			// What the tar reader leaves is zeros, and behind them the checksum.
			if _, err := io.Copy(io.Discard, zip); err != nil {
				return b, fmt.Errorf("it is damaged: %w", err)
			}
			return b, nil
		}
		if sums[header.Name], err = unpackFile(ctx, root, header, in); err != nil {
			return b, fmt.Errorf("unpack %s: %w", header.Name, err)
		}
	}
}

func readManifest(in io.Reader, sums map[string]string) (b Backup, err error) {
	text, err := io.ReadAll(io.LimitReader(in, maxManifest))
	if err != nil {
		return b, fmt.Errorf("it is damaged: %w", err)
	}
	if err := json.Unmarshal(text, &b); err != nil {
		return b, fmt.Errorf("it is damaged: %s: %w", backupName, err)
	}
	if b.Version != backupVersion {
		return b, fmt.Errorf("it has version %d, made by slipway %s; this one reads version %d", b.Version, b.Program, backupVersion)
	}
	if maps.Equal(b.Files, sums) {
		return b, nil
	}
	for _, name := range slices.Sorted(maps.Keys(b.Files)) {
		if sums[name] != b.Files[name] {
			return b, fmt.Errorf("it is damaged: %s is not what was written", name)
		}
	}
	return b, errors.New("it is damaged: it has files that nobody wrote")
}

// unpackFile writes one file of the archive, which says nothing that is believed
// but its name, and returns its digest.
func unpackFile(ctx context.Context, root *os.Root, header *tar.Header, in io.Reader) (sum string, err error) {
	top, _, below := strings.Cut(header.Name, "/")
	known := below && (top == "store" || top == packsDir || slices.Contains(keptDirectories, top))
	if header.Typeflag != tar.TypeReg || !fs.ValidPath(header.Name) || !known {
		return "", errors.New("no backup has such a file")
	}
	if err := root.MkdirAll(path.Dir(header.Name), 0o700); err != nil {
		return "", err
	}
	f, err := root.OpenFile(header.Name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	digest := sha256.New()
	err = copyAll(ctx, io.MultiWriter(f, digest), in)
	return hex.EncodeToString(digest.Sum(nil)), err
}

// makeMirrors makes a mirror of each pack.
func (r *restorer) makeMirrors(ctx context.Context) error {
	packs, err := filepath.Glob(filepath.Join(r.scratch, packsDir, "*", "*.git"))
	if err != nil {
		return err
	}
	for _, dir := range packs {
		name := filepath.Join(filepath.Base(filepath.Dir(dir)), filepath.Base(dir))
		r.say("mirror " + name)
		if err := makeMirror(ctx, dir, filepath.Join(r.scratch, "mirrors", name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(filepath.Join(r.scratch, packsDir))
}

func makeMirror(ctx context.Context, from, to string) (err error) {
	text, err := os.ReadFile(filepath.Join(from, refsName))
	if err != nil {
		return err
	}
	var refs []repo.Ref
	if err := json.Unmarshal(text, &refs); err != nil {
		return fmt.Errorf("%s: %w", refsName, err)
	}
	pack, err := os.Open(filepath.Join(from, packName))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pack.Close()) }()
	m, err := repo.Open(ctx, to)
	if err != nil {
		return err
	}
	return m.Unpack(ctx, pack, refs)
}

// checkStore reads the whole store, and returns the jobs that have not ended.
func (r *restorer) checkStore(ctx context.Context) (open []queue.Job, err error) {
	r.say("the store")
	dir := filepath.Join(r.scratch, "store")
	if _, err := os.Stat(filepath.Join(dir, "queue.db")); err != nil {
		return nil, err
	}
	store, err := queue.OpenSQLite(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	if err := store.Check(ctx); err != nil {
		return nil, err
	}
	return store.List(ctx, queue.Query{Unfinished: true, Limit: math.MaxInt32})
}

// place moves everything into place, the store last: until it is there, nobody
// takes up any work.
func (r *restorer) place(ctx context.Context) error {
	root, err := os.Open(r.scratch)
	if err != nil {
		return err
	}
	if err := errors.Join(unix.Syncfs(int(root.Fd())), root.Close()); err != nil {
		return err
	}
	for _, name := range r.parts() {
		if err := os.Rename(filepath.Join(r.scratch, name), filepath.Join(r.stateDir, name)); gone(err) != nil {
			return err
		}
	}
	return queue.InstallSQLite(ctx, filepath.Join(r.scratch, "store"), filepath.Join(r.stateDir, "store"))
}
