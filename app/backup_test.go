package app

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/queue"
)

// A lived is a state directory in which something happened.
type lived struct {
	dir    string
	store  *queue.SQLite
	commit string // in the mirror, below no branch
}

func newLived(t *testing.T) lived {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"github-app.yml": "github: {private_key: s3cret}\n", "builds/b-1/report.md": "# Report\n", "transcripts/b-1/plan/pm.jsonl": "{}\n",
		"work/b-1/claim-1/tree/file": "x", "caches/acme/boat/file": "x",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	m, err := repo.Open(t.Context(), filepath.Join(dir, "mirrors", "acme", "boat.git"))
	must(t, err)
	origin := t.TempDir()
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=mira", "-c", "user.email=mira@example.org", "commit", "--quiet", "--allow-empty", "--message=Begin"}} {
		if out, err := exec.Command("git", append([]string{"-C", origin}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	commit, err := m.Fetch(t.Context(), repo.Remote{URL: origin}, "")
	must(t, err)
	must(t, m.SetRef(t.Context(), "refs/slipway/b-1/integration", commit, ""))
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(dir, "store"))
	must(t, err)
	t.Cleanup(func() { must(t, store.Close()) })
	_, _, err = store.Put(t.Context(), queue.Job{ID: "b-1", Kind: "build"})
	must(t, err)
	lease, err := store.Claim(t.Context(), "w", "build")
	must(t, err)
	large := json.RawMessage(`"` + strings.Repeat("x", 64<<10) + `"`)
	_, err = store.Append(t.Context(), lease, queue.Entry{Key: "k", Kind: queue.Call, Outcome: large, Commit: commit})
	must(t, err)
	return lived{dir: dir, store: store, commit: commit}
}

func quiet(string) {}

func (l lived) backUp(t *testing.T) (file string, made Backup) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "backup.tar.gz")
	made, err := BackUp(t.Context(), l.store, l.dir, file, "v1.2.3", quiet)
	must(t, err)
	return file, made
}

// nothingIn fails for every name in a directory beside the allowed ones.
func nothingIn(t *testing.T, dir string, but ...string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, f := range files {
		if !slices.Contains(but, f.Name()) {
			t.Errorf("%s is left in %s", f.Name(), dir)
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	l := newLived(t)
	file, made := l.backUp(t)
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v; want that only its owner reads it", info.Mode(), err)
	}
	nothingIn(t, filepath.Dir(file), filepath.Base(file))
	if !slices.Equal(made.LeftOut, []string{"github-app.yml"}) {
		t.Errorf("left out: %v", made.LeftOut)
	}
	if text := string(unzip(t, file)); strings.Contains(text, "s3cret") {
		t.Error("the App's key is in it")
	}
	there := filepath.Join(t.TempDir(), "state")
	back, open, err := Restore(t.Context(), file, there, quiet)
	must(t, err)
	if !back.Taken.Equal(made.Taken) || len(open) != 1 || open[0].ID != "b-1" {
		t.Errorf("restored: %v, open %v", back.Taken, open)
	}
	nothingIn(t, there, "store", "mirrors", "builds", "transcripts")
	nothingIn(t, filepath.Join(there, "mirrors", "acme"), "boat.git", "boat.git.lock")
	for _, name := range []string{"builds/b-1/report.md", "transcripts/b-1/plan/pm.jsonl"} {
		was, err := os.ReadFile(filepath.Join(l.dir, name))
		must(t, err)
		if now, err := os.ReadFile(filepath.Join(there, name)); err != nil || !bytes.Equal(was, now) {
			t.Errorf("%s: %q, %v", name, now, err)
		}
	}
	m, err := repo.Open(t.Context(), filepath.Join(there, "mirrors", "acme", "boat.git"))
	must(t, err)
	if at, err := m.Ref(t.Context(), "refs/slipway/b-1/integration"); err != nil || at != l.commit {
		t.Errorf("the ref is at %q, %v", at, err)
	}
	store, err := queue.OpenSQLite(t.Context(), filepath.Join(there, "store"))
	must(t, err)
	defer func() { must(t, store.Close()) }()
	was, err := l.store.Entries(t.Context(), "b-1", 0)
	must(t, err)
	if now, err := store.Entries(t.Context(), "b-1", 0); err != nil || len(now) != 1 || !bytes.Equal(now[0].Outcome, was[0].Outcome) {
		t.Errorf("the journal: %d entries, %v", len(now), err)
	}
}

func TestABackupThatIsNotMadeLeavesNothing(t *testing.T) {
	l := newLived(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.tar.gz")
	for _, part := range []string{"the store", "mirror acme/boat.git", "builds"} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := BackUp(ctx, l.store, l.dir, file, "v1", func(what string) {
			if what == part {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %s: %v", part, err)
		}
		nothingIn(t, dir)
	}
	must(t, os.WriteFile(file, []byte("precious"), 0o600))
	if _, err := BackUp(t.Context(), l.store, l.dir, file, "v1", quiet); err == nil || !strings.Contains(err.Error(), "is not overwritten") {
		t.Errorf("over another file: %v", err)
	}
	if text, err := os.ReadFile(file); string(text) != "precious" {
		t.Errorf("the other file is %q, %v", text, err)
	}
	blobs, err := filepath.Glob(filepath.Join(l.dir, "store", "blobs", "*", "*"))
	must(t, err)
	must(t, os.WriteFile(blobs[0], []byte("damaged"), 0o600))
	if _, err := BackUp(t.Context(), l.store, l.dir, filepath.Join(dir, "other"), "v1", quiet); err == nil || !strings.Contains(err.Error(), "is damaged") {
		t.Errorf("of a damaged store: %v", err)
	}
	nothingIn(t, dir, "backup.tar.gz")
}

func TestWhatIsNotRestored(t *testing.T) {
	l := newLived(t)
	file, _ := l.backUp(t)
	whole, err := os.ReadFile(file)
	must(t, err)
	plain := unzip(t, file)
	for name, row := range map[string]struct {
		file []byte
		want string
	}{
		"another file":        {[]byte("hello"), "it is no backup"},
		"a file that was cut": {whole[:len(whole)/2], "unexpected EOF"},
		"a file without end":  {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool { return h.Name != backupName })), "it is not whole"},
		"a lost file":         {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool { return !strings.HasPrefix(h.Name, "builds/") })), "builds/b-1/report.md is not what was written"},
		"a changed file":      {zipped(t, bytes.Replace(plain, []byte("# Report\n"), []byte("# Reward\n"), 1)), "builds/b-1/report.md is not what was written"},
		"a file of nobody": {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool {
			h.Name = strings.Replace(h.Name, "report", "repost", 1)
			return true
		})), "is damaged"},
		"one from above": {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool { h.Name = strings.Replace(h.Name, "builds/", "../", 1); return true })), "no backup has such a file"},
		"one of another place": {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool {
			h.Name = strings.Replace(h.Name, "builds/", "homes/", 1)
			return true
		})), "no backup has such a file"},
		"a link": {zipped(t, retar(t, plain, func(h *tar.Header, _ []byte) bool {
			if strings.HasPrefix(h.Name, "builds/") {
				h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, "/etc/passwd", 0
			}
			return true
		})), "no backup has such a file"},
		"a later version": {zipped(t, bytes.Replace(plain, []byte(`"version": 1`), []byte(`"version": 9`), 1)), "it has version 9, made by slipway v1.2.3"},
	} {
		bad := filepath.Join(t.TempDir(), "bad.tar.gz")
		must(t, os.WriteFile(bad, row.file, 0o600))
		there := filepath.Join(t.TempDir(), "state")
		if _, _, err := Restore(t.Context(), bad, there, quiet); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
		nothingIn(t, there)
	}
	if _, _, err := Restore(t.Context(), file, l.dir, quiet); err == nil || !strings.Contains(err.Error(), "with 1 jobs, which is not replaced") {
		t.Errorf("over a store: %v", err)
	}
	mixed := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(mixed, "mirrors", "acme"), 0o700))
	if _, _, err := Restore(t.Context(), file, mixed, quiet); err == nil || !strings.Contains(err.Error(), "has mirrors already") {
		t.Errorf("beside mirrors: %v", err)
	}
	for _, part := range []string{"unpacking", "mirror acme/boat.git", "the store"} {
		ctx, cancel := context.WithCancel(t.Context())
		there := filepath.Join(t.TempDir(), "state")
		_, _, err := Restore(ctx, file, there, func(what string) {
			if what == part {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("interrupted at %s: %v", part, err)
		}
		nothingIn(t, there)
	}
}

func unzip(t *testing.T, file string) []byte {
	t.Helper()
	f, err := os.Open(file)
	must(t, err)
	defer func() { must(t, f.Close()) }()
	zip, err := gzip.NewReader(f)
	must(t, err)
	text, err := io.ReadAll(zip)
	must(t, err)
	return text
}

func zipped(t *testing.T, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(text)
	must(t, errors.Join(err, zip.Close()))
	return out.Bytes()
}

// retar writes an archive anew, with what change keeps and how it leaves it.
func retar(t *testing.T, archive []byte, change func(h *tar.Header, content []byte) (keep bool)) []byte {
	t.Helper()
	var out bytes.Buffer
	in, to := tar.NewReader(bytes.NewReader(archive)), tar.NewWriter(&out)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			must(t, to.Close())
			return out.Bytes()
		}
		must(t, err)
		content, err := io.ReadAll(in)
		must(t, err)
		if !change(h, content) {
			continue
		}
		must(t, to.WriteHeader(h))
		_, err = to.Write(content[:h.Size])
		must(t, err)
	}
}
