package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/step"
)

// artefacts are files that no change should carry, as .gitignore spells them.
// The list holds only what is never source.
var artefacts = []string{
	"node_modules/", "__pycache__/", ".pytest_cache/", ".venv/", ".DS_Store",
	"*.pyc", "*.test", "*.orig", "*.rej", "coverage.out", ".coverage",
}

// finalize removes build artefacts that agents committed. It never blocks: a
// clean-up on which the commands fail is thrown away and noted.
func (b *build) finalize(ctx context.Context) error {
	_, err := step.Effect(ctx, b.journal, b.fold.key(keyFinalize), func(ctx context.Context) (finalized, error) {
		head := b.fold.integrated()
		out := finalized{Head: head}
		patterns, files, err := b.strays(ctx, head)
		if err != nil || len(files) == 0 {
			return out, err
		}
		commit, err := b.clean(ctx, head, patterns, files)
		if err != nil {
			out.Note = fmt.Sprintf("build artefacts were left in place: %v", err)
			return out, ctx.Err()
		}
		tested, err := b.site.test(ctx, "verify", commit)
		if err != nil {
			return out, err
		}
		if !tested.Passed() {
			out.Note = "build artefacts were left in place: without them " + failing(tested)
			return out, nil
		}
		return finalized{Head: commit, Removed: files}, b.site.advance(ctx, commit, head)
	})
	return err
}

// strays returns the artefacts that the build added, and their patterns.
func (b *build) strays(ctx context.Context, head string) (patterns, files []string, err error) {
	changed, err := b.mirror.Changed(ctx, b.fold.ground(), head)
	if err != nil {
		return nil, nil, err
	}
	for _, c := range changed {
		if c.Status != repo.Added {
			continue
		}
		if i := slices.IndexFunc(artefacts, func(p string) bool { return isArtefact(c.Path, p) }); i >= 0 {
			files = append(files, c.Path)
			if !slices.Contains(patterns, artefacts[i]) {
				patterns = append(patterns, artefacts[i])
			}
		}
	}
	return patterns, files, nil
}

func isArtefact(file, pattern string) bool {
	if dir, ok := strings.CutSuffix(pattern, "/"); ok {
		return slices.Contains(strings.Split(path.Dir(file), "/"), dir)
	}
	match, err := path.Match(pattern, path.Base(file))
	return err == nil && match
}

// clean makes the commit without the files, and with patterns in .gitignore
// that it lacks.
func (b *build) clean(ctx context.Context, head string, patterns, files []string) (string, error) {
	t := b.site.Open("finalize", head)
	if err := t.Prepare(ctx); err != nil {
		return "", err
	}
	root, err := os.OpenRoot(t.Dir())
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }() // nothing is written through it afterwards
	for _, f := range files {
		if err := root.Remove(f); err != nil {
			return "", err
		}
	}
	old, err := root.ReadFile(".gitignore")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text := string(old)
	for _, p := range patterns {
		if slices.Contains(strings.Split(text, "\n"), p) {
			continue
		}
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += p + "\n"
	}
	if text != string(old) {
		if err := root.WriteFile(".gitignore", []byte(text), 0o644); err != nil {
			return "", err
		}
	}
	return t.Collect(ctx)
}
