package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// A SetupState says what a setup was made for. The zero one is none.
type SetupState struct {
	Line  string `json:"line,omitempty"`
	Locks string `json:"locks,omitempty"` // digest of the lock files, hex
}

// lockFiles decide what a setup installs.
var lockFiles = []string{
	"package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "go.sum", "go.work.sum", "Cargo.lock",
	"requirements.txt", "poetry.lock", "uv.lock", "Pipfile.lock", "Gemfile.lock", "composer.lock",
}

func setupState(line string, tree fs.FS) (SetupState, error) {
	if line == "" {
		return SetupState{}, nil
	}
	digest := sha256.New()
	for _, name := range lockFiles {
		file, err := tree.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return SetupState{}, fmt.Errorf("read the lock file: %w", err)
		}
		info, err := file.Stat()
		if err == nil && info.Mode().IsRegular() {
			_, _ = fmt.Fprintf(digest, "%s %d\n", name, info.Size()) // a hash never fails
			_, err = io.Copy(digest, file)
		}
		_ = file.Close()
		if err != nil {
			return SetupState{}, fmt.Errorf("read the lock file %s: %w", name, err)
		}
	}
	return SetupState{Line: line, Locks: hex.EncodeToString(digest.Sum(nil))}, nil
}
