package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Environ is the environment of agents and engine commands: PATH and the locale
// of this process, HOME, a TMPDIR, and what extra adds as KEY=value. Nothing else
// is inherited; a later value of a key replaces an earlier one.
func Environ(home string, extra ...string) []string {
	env := []string{"HOME=" + home, "TMPDIR=/tmp"}
	for _, kv := range os.Environ() {
		key, _, _ := strings.Cut(kv, "=")
		if key == "PATH" || key == "LANG" || strings.HasPrefix(key, "LC_") {
			env = append(env, kv)
		}
	}
	for _, kv := range extra {
		key, value, _ := strings.Cut(kv, "=")
		env = setEnv(env, key, value)
	}
	return env
}

// LookPath finds a program in the PATH of env, or in that of this process when
// env has none. A name with a slash is looked up as it is.
func LookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", fmt.Errorf("look up %s: %w", name, err)
		}
		return name, nil
	}
	path, ok := getEnv(env, "PATH")
	if !ok {
		path = os.Getenv("PATH")
	}
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // relative to a directory that an agent may have filled
		}
		if file := filepath.Join(dir, name); executable(file) == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("look up %s in PATH: %w", name, fs.ErrNotExist)
}

func executable(file string) error {
	info, err := os.Stat(file)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return errors.New("is a directory")
	case info.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}

// program is the path of the program of c, as c will see it.
func (c Command) program() (string, error) {
	name := c.Args[0]
	if strings.Contains(name, "/") && !filepath.IsAbs(name) {
		name = filepath.Join(c.Dir, name)
	}
	return LookPath(name, c.Env)
}

func getEnv(env []string, key string) (string, bool) {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == key {
			return v, true
		}
	}
	return "", false
}

// setEnv returns env with one value of key.
func setEnv(env []string, key, value string) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if !strings.HasPrefix(kv, key+"=") {
			out = append(out, kv)
		}
	}
	return append(out, key+"="+value)
}
