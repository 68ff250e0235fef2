package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Status says what happened to a file. A renamed one is deleted and added.
type Status string

// The kinds of change.
const (
	Added    Status = "added"
	Modified Status = "modified"
	Deleted  Status = "deleted"
	Retyped  Status = "retyped" // a file became a symbolic link, or the like
)

// A Change is one file that differs between two commits.
type Change struct {
	Status Status
	Path   string
	Old    int64 // bytes before; 0 when it was not there
	New    int64 // bytes after; 0 when it is gone
}

// entry is a changed path with its modes and objects.
type entry struct {
	oldMode, newMode string
	oldHash, newHash string
	status, path     string
}

// before and after are the file's objects, "" where there is none: the commit
// of a submodule is not in this repository.
func (e entry) before() string { return object(e.oldMode, e.oldHash) }
func (e entry) after() string  { return object(e.newMode, e.newHash) }

func object(mode, hash string) string {
	if mode == modeModule || hash == zeroHash {
		return ""
	}
	return hash
}

const (
	modeLink   = "120000"
	modeModule = "160000"
)

// Tree returns the tree of commit.
func (m *Mirror) Tree(ctx context.Context, commit string) (string, error) {
	if err := checkRev(commit); err != nil {
		return "", err
	}
	if c, err := m.parts(commit); err == nil {
		return c.tree, nil
	}
	tree, err := line(ctx, call{gitDir: m.dir, args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", commit + "^{tree}"}})
	if err != nil {
		return "", fmt.Errorf("tree of %s: the mirror has no such commit: %w", commit, err)
	}
	return tree, nil
}

// Time returns when commit was made.
func (m *Mirror) Time(ctx context.Context, commit string) (time.Time, error) {
	if err := checkRev(commit); err != nil {
		return time.Time{}, err
	}
	text, err := line(ctx, call{gitDir: m.dir, args: []string{"show", "--no-patch", "--format=%ct", "--end-of-options", commit}})
	if err != nil {
		return time.Time{}, fmt.Errorf("time of %s: %w", short(commit), err)
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of %s: %w", short(commit), err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// IsAncestor tells whether old is commit or in its history.
func (m *Mirror) IsAncestor(ctx context.Context, old, commit string) (bool, error) {
	if err := checkRev(old, commit); err != nil {
		return false, err
	}
	_, err := m.git(ctx, "merge-base", "--is-ancestor", old, commit)
	if code(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// Changed lists the files that differ between two commits, by path.
func (m *Mirror) Changed(ctx context.Context, base, head string) ([]Change, error) {
	if err := checkRev(base, head); err != nil {
		return nil, err
	}
	entries, err := m.differences(ctx, base, head)
	if err != nil {
		return nil, fmt.Errorf("changes %s..%s: %w", short(base), short(head), err)
	}
	var objects []string
	for _, e := range entries {
		objects = append(objects, e.before(), e.after())
	}
	size, err := m.sizes(ctx, objects)
	if err != nil {
		return nil, err
	}
	var changes []Change
	for _, e := range entries {
		c := Change{Path: e.path, Old: size[e.before()], New: size[e.after()]}
		switch e.status {
		case "A":
			c.Status = Added
		case "D":
			c.Status = Deleted
		case "T":
			c.Status = Retyped
		default:
			c.Status = Modified
		}
		changes = append(changes, c)
	}
	return changes, nil
}

// differences lists the files that differ between two commits, by path.
func (m *Mirror) differences(ctx context.Context, base, head string) ([]entry, error) {
	old, oldErr := m.parts(base)
	new, newErr := m.parts(head)
	if oldErr == nil && newErr == nil {
		if entries, err := m.looseChanges(old.tree, new.tree, ""); err == nil {
			slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
			return entries, nil
		}
	}
	out, err := m.git(ctx, "diff-tree", "-r", "-z", "--raw", "--no-abbrev", "--no-renames", base, head)
	if err != nil {
		return nil, err
	}
	return parseRaw(out)
}

// Top returns the names at the top of commit, of files and directories.
func (m *Mirror) Top(ctx context.Context, commit string) ([]string, error) {
	if err := checkRev(commit); err != nil {
		return nil, err
	}
	var names []string
	if c, err := m.parts(commit); err == nil {
		if entries, err := m.entries(c.tree); err == nil {
			for _, e := range entries {
				names = append(names, e.name)
			}
			return names, nil
		}
	}
	out, err := m.git(ctx, "ls-tree", "-z", "--name-only", commit)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", short(commit), err)
	}
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names, nil
}

// parseRaw reads the output of --raw -z: ":modes hashes status" NUL path NUL.
func parseRaw(out []byte) ([]entry, error) {
	var entries []entry
	for len(out) > 0 {
		head, rest, ok := bytes.Cut(out, []byte{0})
		f := strings.Fields(strings.TrimPrefix(string(head), ":"))
		path, rest, ok2 := bytes.Cut(rest, []byte{0})
		if !ok || !ok2 || len(f) != 5 || head[0] != ':' {
			return nil, fmt.Errorf("read git's list of changes: unexpected %q", head)
		}
		entries = append(entries, entry{oldMode: f[0], newMode: f[1], oldHash: f[2], newHash: f[3], status: f[4], path: string(path)})
		out = rest
	}
	return entries, nil
}

// sizes looks up the sizes of objects by their hash; "" is skipped.
func (m *Mirror) sizes(ctx context.Context, objects []string) (map[string]int64, error) {
	size := map[string]int64{}
	var ask []string
	for _, hash := range objects {
		if _, known := size[hash]; known || hash == "" {
			continue
		}
		size[hash] = 0
		if n, err := m.size(hash); err == nil {
			size[hash] = n
			continue
		}
		ask = append(ask, hash)
	}
	if len(ask) == 0 {
		return size, nil
	}
	out, err := run(ctx, call{
		gitDir: m.dir, stdin: strings.NewReader(strings.Join(ask, "\n") + "\n"),
		args: []string{"cat-file", "--batch-check=%(objectname) %(objectsize)"},
	})
	if err != nil {
		return nil, err
	}
	for l := range strings.Lines(string(out)) {
		hash, n, _ := strings.Cut(strings.TrimSuffix(l, "\n"), " ")
		if size[hash], err = strconv.ParseInt(n, 10, 64); err != nil {
			return nil, fmt.Errorf("size of %s: %s", hash, n)
		}
	}
	return size, nil
}

// Diff returns the changes between two commits as text for a prompt, at most
// max bytes of it; where it was cut, its last line says so.
func (m *Mirror) Diff(ctx context.Context, base, head string, max int) (string, error) {
	out, cut, err := m.diff(ctx, base, head, max)
	if err != nil {
		return "", err
	}
	if cut {
		out = out[:bytes.LastIndexByte(out, '\n')+1]
		out = fmt.Appendf(out, "[the diff is longer than %d bytes and was cut here]\n", max)
	}
	return strings.ToValidUTF8(string(out), "\uFFFD"), nil
}

// Patch is Diff for programs: one that is longer than max is an error.
func (m *Mirror) Patch(ctx context.Context, base, head string, max int) (string, error) {
	out, cut, err := m.diff(ctx, base, head, max)
	if err == nil && cut {
		err = fmt.Errorf("diff %s..%s: it is longer than %d bytes", short(base), short(head), max)
	}
	return string(out), err
}

// Stat counts the lines and files that differ between two commits. Lines are
// counted of text alone.
func (m *Mirror) Stat(ctx context.Context, base, head string) (added, deleted, files int, err error) {
	if err := checkRev(base, head); err != nil {
		return 0, 0, 0, err
	}
	out, err := m.git(ctx, "diff-tree", "-r", "-z", "--numstat", "--no-renames", base, head)
	if err != nil {
		return 0, 0, 0, fmt.Errorf("count %s..%s: %w", short(base), short(head), err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		plus, rest, found := strings.Cut(line, "\t")
		if !found {
			continue
		}
		minus, _, _ := strings.Cut(rest, "\t")
		files++
		if plus == "-" { // a binary file
			continue
		}
		more, errPlus := strconv.Atoi(plus)
		less, errMinus := strconv.Atoi(minus)
		if err := errors.Join(errPlus, errMinus); err != nil {
			return 0, 0, 0, fmt.Errorf("count %s..%s: unexpected %q", short(base), short(head), line)
		}
		added, deleted = added+more, deleted+less
	}
	return added, deleted, files, nil
}

func (m *Mirror) diff(ctx context.Context, base, head string, max int) (out []byte, cut bool, err error) {
	if err := checkRev(base, head); err != nil {
		return nil, false, err
	}
	if max <= 0 {
		return nil, false, errors.New("diff: the bound must be above zero")
	}
	out, err = run(ctx, call{gitDir: m.dir, max: max, args: []string{
		"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--find-renames", "--submodule=short", "--end-of-options", base, head,
	}})
	if cut = errors.Is(err, errLong); err != nil && !cut {
		return nil, false, fmt.Errorf("diff %s..%s: %w", short(base), short(head), err)
	}
	return out, cut, nil
}

// File returns the content of the file path in commit, of a symbolic link its
// target. One that is not there is fs.ErrNotExist.
func (m *Mirror) File(ctx context.Context, commit, path string) ([]byte, error) {
	files, err := m.Files(ctx, commit, []string{path})
	if err != nil {
		return nil, err
	}
	if files[0] == nil {
		return nil, fmt.Errorf("%s in %s: %w", path, short(commit), fs.ErrNotExist)
	}
	return files[0], nil
}

// Files returns the contents of paths in the order given, nil for those that
// are no files in commit.
func (m *Mirror) Files(ctx context.Context, commit string, paths []string) ([][]byte, error) {
	if err := checkRev(commit); err != nil {
		return nil, err
	}
	specs := make([]string, len(paths))
	for i, p := range paths {
		if !fs.ValidPath(p) || p == "." || strings.Contains(p, "\x00") {
			return nil, fmt.Errorf("path %q: not a path of a repository", p)
		}
		specs[i] = commit + ":" + p
	}
	return m.blobs(ctx, specs)
}

// blobs returns the contents of what specs name, nil for what is no file.
func (m *Mirror) blobs(ctx context.Context, specs []string) ([][]byte, error) {
	if len(specs) == 0 {
		return nil, nil
	}
	out, err := run(ctx, call{
		gitDir: m.dir, stdin: strings.NewReader(strings.Join(specs, "\x00") + "\x00"),
		args: []string{"cat-file", "--batch", "-z"},
	})
	if err != nil {
		return nil, fmt.Errorf("read files: %w", err)
	}
	blobs := make([][]byte, len(specs))
	for i, spec := range specs {
		if rest, missing := bytes.CutPrefix(out, []byte(spec+" missing\n")); missing {
			out = rest
			continue
		}
		head, rest, _ := bytes.Cut(out, []byte("\n"))
		f := strings.Fields(string(head))
		if len(f) != 3 {
			return nil, fmt.Errorf("read %s: unexpected %q", spec, head)
		}
		n, err := strconv.Atoi(f[2])
		if err != nil || n < 0 || len(rest) < n+1 {
			return nil, fmt.Errorf("read %s: git's answer is cut short", spec)
		}
		if f[1] == "blob" {
			blobs[i] = rest[:n:n]
		}
		out = rest[n+1:]
	}
	return blobs, nil
}
