package repo

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// A Stage is a repository of changes that are on no branch of anybody's: the
// files of an archive, or trees of a repository that is somewhere else, and
// patches on them. Each is a ref, to be fetched like a branch of a remote. What
// a stage was made of is only read.
type Stage struct{ mirror *Mirror }

// OpenStage opens the stage in dir and makes it when it is missing.
func OpenStage(ctx context.Context, dir string) (*Stage, error) {
	m, err := Open(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Stage{m}, nil
}

// Dir is where others fetch from.
func (s *Stage) Dir() string { return s.mirror.dir }

// Files makes a commit of files, by path, and puts the ref there.
func (s *Stage) Files(ctx context.Context, ref string, files map[string]string) (commit string, err error) {
	dir, err := os.MkdirTemp("", "slipway-stage-")
	if err != nil {
		return "", fmt.Errorf("stage files: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary directory
	if err := writeFiles(dir, files); err != nil {
		return "", fmt.Errorf("stage files: %w", err)
	}
	return s.indexed(ctx, ref, nil, func(index string) error {
		_, err := run(ctx, call{gitDir: s.mirror.dir, tree: dir, index: index, args: []string{"add", "--all", "--force"}})
		return err
	})
}

func writeFiles(dir string, files map[string]string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // nothing is buffered
	for name, text := range files {
		if !fs.ValidPath(name) || badPath(name) != "" {
			return fmt.Errorf("%q is not the path of a file in a repository", name)
		}
		if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := root.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Apply makes a commit of base with the patch on it and puts the ref there. A
// patch that does not apply exactly is an error with git's reason.
func (s *Stage) Apply(ctx context.Context, ref, base string, patch []byte) (commit string, err error) {
	if err := checkHash(base); err != nil {
		return "", err
	}
	return s.indexed(ctx, ref, []string{base}, func(index string) error {
		if _, err := run(ctx, call{gitDir: s.mirror.dir, index: index, args: []string{"read-tree", base}}); err != nil {
			return err
		}
		_, err := run(ctx, call{gitDir: s.mirror.dir, index: index, stdin: bytes.NewReader(patch), args: []string{"apply", "--cached", "--whitespace=nowarn", "-"}})
		return err
	})
}

// indexed commits what fill puts into an index.
func (s *Stage) indexed(ctx context.Context, ref string, parents []string, fill func(index string) error) (string, error) {
	ix, err := s.mirror.newIndex()
	if err != nil {
		return "", err
	}
	defer ix.discard()
	if err := fill(ix.path); err != nil {
		return "", fmt.Errorf("stage %s: %w", ref, err)
	}
	tree, err := line(ctx, call{gitDir: s.mirror.dir, index: ix.path, config: eachSynced, args: []string{"write-tree"}})
	if err != nil {
		return "", fmt.Errorf("stage %s: %w", ref, err)
	}
	return s.commit(ctx, ref, tree, parents)
}

func (s *Stage) commit(ctx context.Context, ref, tree string, parents []string) (string, error) {
	commit, err := s.mirror.CommitTree(ctx, tree, parents, Commit{Message: "Stage " + ref})
	if err == nil {
		err = s.mirror.SetRef(ctx, ref, commit, Any)
	}
	if err != nil {
		return "", fmt.Errorf("stage %s: %w", ref, err)
	}
	return commit, nil
}

// Changed lists the paths that differ between two commits of the stage.
func (s *Stage) Changed(ctx context.Context, base, head string) ([]Change, error) {
	return s.mirror.Changed(ctx, base, head)
}

// A Source is somebody's repository that a Stage takes trees from.
type Source struct{ dir, gitDir, objects string }

// OpenSource finds the git directory of a checkout or of a bare repository.
func OpenSource(ctx context.Context, dir string) (Source, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Source{}, err
	}
	s := Source{dir: dir, gitDir: filepath.Join(dir, ".git")}
	if _, err := os.Stat(s.gitDir); err != nil {
		s.gitDir = dir
	}
	s.objects, err = line(ctx, call{gitDir: s.gitDir, args: []string{"rev-parse", "--path-format=absolute", "--git-path", "objects"}})
	if err != nil {
		return Source{}, fmt.Errorf("%s is not a git repository: %w", dir, err)
	}
	return s, nil
}

// Commit is the full hash of what rev names.
func (s Source) Commit(ctx context.Context, rev string) (string, error) {
	hash, err := line(ctx, call{gitDir: s.gitDir, args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", rev + "^{commit}"}})
	if err != nil {
		return "", fmt.Errorf("%s has no commit %s", s.dir, rev)
	}
	return hash, nil
}

// MergeBase is where head left the history of base, as the source knows it.
func (s Source) MergeBase(ctx context.Context, base, head string) (string, error) {
	return (&Mirror{dir: s.gitDir}).MergeBase(ctx, base, head)
}

// Take makes a commit of the tree of a source's commit and puts the ref there.
// Its objects are not copied: the source has to stay where it is. A parent is a
// commit of the stage; empty: there is none.
func (s *Stage) Take(ctx context.Context, ref string, from Source, commit, parent string) (string, error) {
	if err := checkHash(commit); err != nil {
		return "", err
	}
	if err := s.borrow(from.objects); err != nil {
		return "", fmt.Errorf("stage %s: %w", ref, err)
	}
	tree, err := line(ctx, call{gitDir: s.mirror.dir, args: []string{"rev-parse", "--verify", "--quiet", "--end-of-options", commit + "^{tree}"}})
	if err != nil {
		return "", fmt.Errorf("stage %s: %s has no tree of %s: %w", ref, from.dir, short(commit), err)
	}
	var parents []string
	if parent != "" {
		parents = []string{parent}
	}
	return s.commit(ctx, ref, tree, parents)
}

// borrow lets git find the objects of another repository.
func (s *Stage) borrow(objects string) error {
	file := filepath.Join(s.mirror.dir, "objects", "info", "alternates")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	known, err := os.ReadFile(file)
	if err == nil && bytes.Contains(append([]byte("\n"), known...), []byte("\n"+objects+"\n")) {
		return nil
	}
	return os.WriteFile(file, append(known, objects+"\n"...), 0o644)
}
