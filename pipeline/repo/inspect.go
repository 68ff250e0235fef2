package repo

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Limits bound what a push may add. A zero field means the default.
type Limits struct {
	Files int   // distinct paths; default 10,000
	Bytes int64 // of distinct file contents over all new commits; default 100 MiB
}

const (
	defaultFiles = 10_000
	defaultBytes = 100 << 20
	maxTarget    = 4096 // bytes of a symbolic link's target
)

// Inspect looks at everything that a push of head adds to base: each commit's
// own changes, as what a later commit removes is pushed too. The first rule
// that is broken is a *Violation: a name that some file system takes for .git
// or for a way out, a submodule that was added or moved, a symbolic link that
// leaves the repository, too much of it all.
func (m *Mirror) Inspect(ctx context.Context, base, head string, lim Limits) error {
	if err := checkRev(base, head); err != nil {
		return err
	}
	if lim.Files <= 0 {
		lim.Files = defaultFiles
	}
	if lim.Bytes <= 0 {
		lim.Bytes = defaultBytes
	}
	entries, err := m.additions(ctx, base, head)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e entry) bool { return e.status == "D" })
	if err := inspectNames(entries, lim.Files); err != nil {
		return err
	}
	var objects []string
	for _, e := range entries {
		objects = append(objects, e.after())
	}
	size, err := m.sizes(ctx, objects)
	if err != nil {
		return err
	}
	var total int64
	for _, n := range size {
		total += n
	}
	if total > lim.Bytes {
		return &Violation{Rule: fmt.Sprintf("the change adds %d bytes of files; %d are allowed", total, lim.Bytes)}
	}
	return m.inspectLinks(ctx, entries, size)
}

// additions lists what each commit that a push of head adds to base changes.
func (m *Mirror) additions(ctx context.Context, base, head string) ([]entry, error) {
	if c, err := m.parts(head); err == nil && len(c.parents) == 1 && c.parents[0] == base {
		return m.differences(ctx, base, head) // one commit, which is what collecting makes
	}
	// Against the first parent a merge shows all that it brings.
	out, err := m.git(ctx, "log", "-z", "--raw", "--format=", "--no-abbrev", "--no-renames", "--root", "--no-show-signature",
		"--no-ext-diff", "--no-textconv", "--diff-merges=first-parent", "--end-of-options", head, "^"+base)
	if errors.Is(err, errLong) {
		return nil, &Violation{Rule: "the change is too large to be inspected"}
	}
	if err != nil {
		return nil, fmt.Errorf("inspect %s..%s: %w", short(base), short(head), err)
	}
	return parseRaw(out)
}

func inspectNames(entries []entry, max int) error {
	paths := map[string]bool{}
	for _, e := range entries {
		paths[e.path] = true
		if rule := badPath(e.path); rule != "" {
			return &Violation{Path: e.path, Rule: rule}
		}
		if e.newMode == modeModule {
			return &Violation{Path: e.path, Rule: "a submodule must not be added or moved"}
		}
		if e.newMode == modeLink && gitFile(e.path) {
			return &Violation{Path: e.path, Rule: "git's own files must not be symbolic links"}
		}
	}
	if len(paths) > max {
		return &Violation{Rule: fmt.Sprintf("the change touches %d files; %d are allowed", len(paths), max)}
	}
	return nil
}

// badPath looks at each part of a path, also as a system sees it that
// separates with backslashes.
func badPath(path string) string {
	for part := range strings.FieldsFuncSeq(path, func(r rune) bool { return r == '\\' || r == '/' }) {
		switch {
		case dotGit(part):
			return "the name stands for git's own directory on some systems"
		case part == "." || part == "..":
			return "the path leads out of its place"
		}
	}
	if strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.Contains(path, "//") || path == "" {
		return "the path has an empty part"
	}
	return ""
}

// gitFile tells whether git reads the file wherever it lies.
func gitFile(path string) bool {
	switch plainName(path[strings.LastIndexByte(path, '/')+1:]) {
	case ".gitmodules", ".gitattributes", ".gitignore", ".mailmap":
		return true
	}
	return false
}

func (m *Mirror) inspectLinks(ctx context.Context, entries []entry, size map[string]int64) error {
	var links []entry
	var hashes []string
	for _, e := range entries {
		if e.newMode != modeLink {
			continue
		}
		if size[e.newHash] > maxTarget {
			return &Violation{Path: e.path, Rule: "the symbolic link's target is too long"}
		}
		links, hashes = append(links, e), append(hashes, e.newHash)
	}
	targets, err := m.blobs(ctx, hashes)
	if err != nil {
		return err
	}
	for i, e := range links {
		if rule := badTarget(e.path, string(targets[i])); rule != "" {
			return &Violation{Path: e.path, Rule: rule}
		}
	}
	return nil
}

// badTarget follows a link by its text alone. Leading ".." climb from the real
// directory of the link and are counted; after them the way only goes down,
// and whatever link it meets there went through the same check. A ".." after
// a name could climb from anywhere that name leads, and is refused.
func badTarget(link, target string) string {
	const leaves = "the symbolic link leaves the repository"
	if target == "" || strings.HasPrefix(target, "/") || strings.ContainsAny(target, "\\\x00") {
		return leaves
	}
	depth, down := strings.Count(link, "/"), false
	for part := range strings.SplitSeq(target, "/") {
		switch {
		case part == "" || part == ".":
		case part != "..":
			if down = true; dotGit(part) {
				return "the symbolic link leads into git's own directory"
			}
		case down:
			return "the symbolic link's target has .. after a name"
		default:
			if depth--; depth < 0 {
				return leaves
			}
		}
	}
	return ""
}
