package review

import (
	"context"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/slipway-dev/slipway/pipeline/repo"
)

// A Path is one changed path and whether it was looked at. A renamed file is
// two: the name that went and the one that came.
type Path struct {
	Path    string      `json:"path"`
	Status  repo.Status `json:"status"`
	Skipped Reason      `json:"skipped,omitempty"` // empty: it was given to the lenses
}

// A Reason says why a path is not reviewed.
type Reason string

// The reasons.
const (
	Generated  Reason = "generated"
	Vendored   Reason = "vendored"
	Lock       Reason = "lock"
	Binary     Reason = "binary"
	TooLarge   Reason = "too large"
	Ignored    Reason = "ignored"
	Unasked    Reason = "not asked for"
	Unreadable Reason = "unreadable"  // git lists it, and its diff does not show it
	Unreached  Reason = "not reached" // no lens got to it
)

// missing are the reasons for which a path is still to be looked at.
var missing = []Reason{Unasked, Unreadable, Unreached}

// A Manifest has every changed path exactly once, by path.
type Manifest []Path

// Reviewed counts the paths that were given to the lenses.
func (m Manifest) Reviewed() (n int) {
	for _, p := range m {
		if p.Skipped == "" {
			n++
		}
	}
	return n
}

// What is too large for a lens: a file of that size, so many changed lines, or
// one line that no person wrote.
const (
	maxFile  = 1 << 20
	maxLines = 4000
	maxLine  = 10 << 10
)

// survey is what a review looks at.
type survey struct {
	manifest Manifest
	changed  []repo.Change   // base to head
	whole    patch           // likewise: where findings may stand
	files    []*gitdiff.File // what is new since the last review, or all
	// incremental says that there is an earlier review that this one goes on from.
	incremental bool
}

// reviewed reports whether a path is one that agents look at.
func (s survey) reviewed(name string) bool {
	i, ok := slices.BinarySearchFunc(s.manifest, name, func(p Path, name string) int { return strings.Compare(p.Path, name) })
	return ok && s.manifest[i].Skipped == ""
}

// look reads the diff and decides what of it is reviewed. After an earlier
// review of the same base that is only what changed since its head.
func look(ctx context.Context, at Site, t Target, o Options) (survey, error) {
	changed, whole, err := read(ctx, at, t.Base, t.Head)
	if err != nil {
		return survey{}, err
	}
	recent, recentChanged := whole, changed
	kept := map[string]Path{}
	s := survey{changed: changed, whole: whole, incremental: t.Earlier != nil && t.Earlier.Base == t.Base && !t.Full}
	if s.incremental {
		if recentChanged, recent, err = read(ctx, at, t.Earlier.Head, t.Head); err != nil {
			return survey{}, err
		}
		for _, p := range t.Earlier.Manifest {
			kept[p.Path] = p
		}
	}
	for _, c := range recentChanged {
		delete(kept, c.Path)
	}

	fresh := slices.DeleteFunc(slices.Clone(changed), func(c repo.Change) bool { _, known := kept[c.Path]; return known })
	reasons, err := reasonsOf(ctx, at, t, o, fresh, recent)
	if err != nil {
		return survey{}, err
	}
	reviewed := map[string]bool{}
	for _, c := range changed {
		p, ok := kept[c.Path]
		if !ok {
			p = Path{Path: c.Path, Skipped: reasons[c.Path]}
			reviewed[c.Path] = p.Skipped == ""
		}
		p.Status = c.Status
		s.manifest = append(s.manifest, p)
	}
	for _, f := range recent.files {
		if reviewed[f.OldName] || reviewed[f.NewName] {
			s.files = append(s.files, f)
		}
	}
	return s, nil
}

func read(ctx context.Context, at Site, base, head string) ([]repo.Change, patch, error) {
	changed, err := at.Changed(ctx, base, head)
	if err != nil {
		return nil, patch{}, fmt.Errorf("list what is to be reviewed: %w", err)
	}
	text, err := at.Patch(ctx, base, head)
	if err != nil {
		return nil, patch{}, fmt.Errorf("read what is to be reviewed: %w", err)
	}
	return changed, parsePatch(text), nil
}

// reasonsOf says of changed paths why they are not reviewed; of those that are it
// says nothing.
func reasonsOf(ctx context.Context, at Site, t Target, o Options, changed []repo.Change, diff patch) (map[string]Reason, error) {
	reasons := map[string]Reason{}
	unread := map[string][]string{} // paths that have to be looked into, by commit
	for _, c := range changed {
		if reasons[c.Path] = reasonOf(o, c, diff.byName[c.Path]); reasons[c.Path] != "" {
			continue
		}
		// The version that was there before says whether a file is generated: a change
		// cannot take itself out of its review by a comment. Only a new file has no other.
		commit := t.Base
		if c.Status == repo.Added {
			commit = t.Head
		}
		unread[commit] = append(unread[commit], c.Path)
	}
	for commit, paths := range unread {
		for some := range slices.Chunk(paths, readAtOnce) {
			texts, err := at.Files(ctx, commit, some)
			if err != nil {
				return nil, fmt.Errorf("read what is to be reviewed: %w", err)
			}
			for i, text := range texts { // of a submodule there is none
				if generatedMark.Match(text[:min(len(text), 4<<10)]) {
					reasons[some[i]] = Generated
				}
			}
		}
	}
	return reasons, nil
}

// readAtOnce bounds how many files are in memory, each of at most maxFile.
const readAtOnce = 64

// reasonOf is what path, size and diff of a change say.
func reasonOf(o Options, c repo.Change, files []*gitdiff.File) Reason {
	switch {
	case matches(o.Ignore, c.Path):
		return Ignored
	case len(o.Only) > 0 && !matches(o.Only, c.Path):
		return Unasked
	case slices.ContainsFunc(strings.Split(path.Dir(c.Path), "/"), func(dir string) bool { return slices.Contains(vendorDirs, dir) }):
		return Vendored
	case slices.Contains(lockFiles, path.Base(c.Path)):
		return Lock
	case generatedName.MatchString(c.Path):
		return Generated
	case len(files) == 0:
		return Unreadable
	case slices.ContainsFunc(files, func(f *gitdiff.File) bool { return f.IsBinary }):
		return Binary
	case max(c.Old, c.New) > maxFile || changedLines(files...) > maxLines || slices.ContainsFunc(files, hasLongLine):
		return TooLarge
	}
	return ""
}

// matches reports whether a pattern of path.Match fits the path, its last part,
// or a directory above it. As all three are tried, **/ in front and /** behind
// say nothing more.
func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		pattern = strings.TrimPrefix(strings.TrimSuffix(strings.TrimSuffix(pattern, "/"), "/**"), "**/")
		if ok, _ := path.Match(pattern, path.Base(name)); ok {
			return true
		}
		for p := name; p != "." && p != "/"; p = path.Dir(p) {
			if ok, _ := path.Match(pattern, p); ok {
				return true
			}
		}
	}
	return false
}

func hasLongLine(f *gitdiff.File) bool {
	for _, h := range f.TextFragments {
		for _, l := range h.Lines {
			if len(l.Line) > maxLine {
				return true
			}
		}
	}
	return false
}

var vendorDirs = []string{"vendor", "node_modules", "bower_components", "third_party", "Pods"}

// lockFiles hold what a tool resolved.
var lockFiles = []string{
	"go.sum", "go.work.sum", "package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb",
	"Cargo.lock", "poetry.lock", "uv.lock", "pdm.lock", "Pipfile.lock", "Gemfile.lock", "composer.lock", "mix.lock", "pubspec.lock",
	"Podfile.lock", "Package.resolved", "packages.lock.json", "gradle.lockfile", "flake.lock", ".terraform.lock.hcl",
}

var (
	generatedName = regexp.MustCompile(`\.(pb|pb\.gw|gen|generated|g|freezed)\.(go|cc|h|ts|js|dart|cs)$|_pb2(_grpc)?\.pyi?$|(^|/)zz_generated|_generated\.go$|\.min\.(js|css)$|\.(js|css)\.map$`)
	generatedMark = regexp.MustCompile(`(?m)^\W*(Code generated .* DO NOT EDIT|@generated\b|<auto-generated\b)`)
)
