package repo

import (
	"context"
	"fmt"
	"strings"
)

// MergeBase is where head left the history of base. Two commits with nothing in
// common are ErrUnrelated.
func (m *Mirror) MergeBase(ctx context.Context, base, head string) (string, error) {
	if err := checkRev(base, head); err != nil {
		return "", err
	}
	out, err := m.git(ctx, "merge-base", base, head)
	if code(err) == 1 {
		return "", fmt.Errorf("%s and %s: %w", short(base), short(head), ErrUnrelated)
	}
	if err != nil {
		return "", fmt.Errorf("merge base of %s and %s: %w", short(base), short(head), err)
	}
	return strings.TrimSpace(string(out)), nil
}

// List returns the paths of the files directly in a directory of commit, none
// where there is no such directory.
func (m *Mirror) List(ctx context.Context, commit, dir string) ([]string, error) {
	if err := checkRev(commit); err != nil {
		return nil, err
	}
	out, err := m.git(ctx, "ls-tree", "-z", "--name-only", commit, "--", strings.TrimSuffix(dir, "/")+"/")
	if err != nil {
		return nil, fmt.Errorf("list %s of %s: %w", dir, short(commit), err)
	}
	var paths []string
	for name := range strings.SplitSeq(string(out), "\x00") {
		if name != "" {
			paths = append(paths, name)
		}
	}
	return paths, nil
}
