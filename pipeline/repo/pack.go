package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Pack writes every object of the mirror into one file, which it returns; "" where
// there is none. The file holds all that the mirror had when Pack was called, also
// what no ref names and a journal may. It lies in the directory dir, beside what git
// makes with it. git reads each object for it, so that a damaged mirror is an error.
func (m *Mirror) Pack(ctx context.Context, dir string) (file string, err error) {
	objects, err := m.git(ctx, "cat-file", "--batch-all-objects", "--unordered", "--buffer", "--batch-check=%(objectname)")
	if err != nil {
		return "", fmt.Errorf("list the objects of %s: %w", m.dir, err)
	}
	if len(objects) == 0 {
		return "", nil
	}
	// Whoever asks is beside a server at work: no search for a smaller form.
	name, err := line(ctx, call{
		gitDir: m.dir, stdin: bytes.NewReader(objects),
		args: []string{"pack-objects", "--quiet", "--window=0", "--end-of-options", filepath.Join(dir, "pack")},
	})
	if err != nil {
		return "", fmt.Errorf("pack %s: %w", m.dir, err)
	}
	if err := checkHash(name); err != nil {
		return "", fmt.Errorf("pack %s: git names the pack %q: %w", m.dir, name, err)
	}
	return filepath.Join(dir, "pack-"+name+".pack"), nil
}

// Unpack takes in what Pack wrote, which git checks object by object, and then
// makes the refs, all or none. It is for a mirror without any.
func (m *Mirror) Unpack(ctx context.Context, pack io.Reader, refs []Ref) error {
	if _, err := run(ctx, call{gitDir: m.dir, stdin: pack, args: []string{"index-pack", "--stdin"}}); err != nil {
		return fmt.Errorf("unpack into %s: %w", m.dir, err)
	}
	var create bytes.Buffer
	for _, ref := range refs {
		if err := errors.Join(checkRef(ref.Name), checkHash(ref.Commit)); err != nil {
			return fmt.Errorf("make the refs of %s: %w", m.dir, err)
		}
		fmt.Fprintf(&create, "create %s %s\n", ref.Name, ref.Commit)
	}
	if _, err := run(ctx, call{gitDir: m.dir, stdin: &create, args: []string{"update-ref", "--stdin"}}); err != nil {
		return fmt.Errorf("make the refs of %s: %w", m.dir, err)
	}
	return nil
}
