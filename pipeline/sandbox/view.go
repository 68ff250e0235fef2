package sandbox

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// systemDirs are read-only in every box, where they exist.
var systemDirs = []string{
	"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store",
}

// systemFiles are the parts of /etc that programs need: names, certificates,
// locale, the linker's and the toolchains' settings. Nothing that may hold a
// credential is among them (npmrc, pip.conf, netrc).
var systemFiles = []string{
	"/etc/alternatives", "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/ca-certificates.conf",
	"/etc/crypto-policies", "/etc/debian_version", "/etc/fonts", "/etc/gai.conf", "/etc/group", "/etc/host.conf", "/etc/hosts",
	"/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/locale.alias", "/etc/localtime", "/etc/magic",
	"/etc/maven", "/etc/mime.types", "/etc/nsswitch.conf", "/etc/os-release", "/etc/passwd", "/etc/pki/ca-trust",
	"/etc/pki/tls/certs", "/etc/protocols", "/etc/resolv.conf", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf",
	"/etc/terminfo", "/etc/timezone",
}

// A view is what one command sees beside the system: clean, absolute, existing
// paths. Where the two overlap, the longer path decides; the same path is read-only.
type view struct {
	read    []string
	write   []string
	instead map[string]string // path → what is shown there
}

func (b *Box) view(c Command, program string) (view, error) {
	var v view
	var err error
	if v.write, err = existing(c.Writable); err != nil {
		return view{}, fmt.Errorf("sandbox: writable: %w", err)
	}
	if v.read, err = existing(c.Readable); err != nil {
		return view{}, fmt.Errorf("sandbox: readable: %w", err)
	}
	dir, err := existing([]string{c.Dir})
	if err != nil {
		return view{}, fmt.Errorf("sandbox: working directory: %w", err)
	}
	for _, path := range slices.Concat(v.read, v.write, dir) {
		if err := v.refuseLinks(path); err != nil {
			return view{}, err
		}
	}
	if err := v.replace(c.Instead, dir[0]); err != nil {
		return view{}, fmt.Errorf("sandbox: instead: %w", err)
	}
	v.read = append(v.read, b.read...)
	if !slices.ContainsFunc(v.write, func(w string) bool { return within(w, dir[0]) }) {
		v.read = append(v.read, dir[0])
	}
	if !v.shows(program) {
		v.read = append(v.read, program)
	}
	return v, nil
}

// refuseLinks refuses a path that an earlier run could have turned into a link to
// somewhere else: mounting it would follow the link on the host.
func (v view) refuseLinks(path string) error {
	for _, w := range v.write {
		if path == w || !within(w, path) {
			continue
		}
		for at := path; at != w; at = filepath.Dir(at) {
			info, err := os.Lstat(at)
			if err != nil {
				return fmt.Errorf("sandbox: %w", err)
			}
			if info.Mode().Type() == fs.ModeSymlink {
				return fmt.Errorf("sandbox: %s is a symbolic link inside the writable directory %s", at, w)
			}
		}
	}
	return nil
}

func (v view) shows(path string) bool {
	return slices.ContainsFunc(slices.Concat(systemDirs, v.read, v.write), func(dir string) bool { return within(dir, path) })
}

// existing cleans paths and refuses what cannot be shown.
func existing(paths []string) ([]string, error) {
	var out []string
	for _, path := range paths {
		clean := filepath.Clean(path)
		if !filepath.IsAbs(clean) || clean == "/" {
			return nil, fmt.Errorf("%q is not an absolute path below /", path)
		}
		if _, err := os.Stat(clean); err != nil {
			return nil, err
		}
		out = append(out, clean)
	}
	return out, nil
}

// replace cleans the paths of Instead and refuses what cannot be shown, a
// symbolic link among them: what it leads to would be covered, and not the link.
func (v *view) replace(instead map[string]string, dir string) error {
	v.instead = map[string]string{}
	shown := slices.Concat(v.read, v.write, []string{dir})
	for path, source := range instead {
		pair, err := existing([]string{path, source})
		if err != nil {
			return err
		}
		for at := pair[0]; at != "/" && !slices.Contains(shown, at); at = filepath.Dir(at) {
			info, err := os.Lstat(at)
			if err != nil {
				return err
			}
			if info.Mode().Type() == fs.ModeSymlink {
				return fmt.Errorf("%s is a symbolic link", at)
			}
		}
		v.instead[pair[0]] = pair[1]
	}
	return nil
}

// within reports whether path is dir or below it; both are clean.
func within(dir, path string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// toolchains finds the toolchains of this process's PATH that live outside the
// system directories, as version managers place them.
func toolchains() []string {
	home, _ := os.UserHomeDir()
	var roots []string
	for _, name := range []string{"go", "node", "npm", "python3"} {
		path, err := LookPath(name, nil)
		if err != nil {
			continue
		}
		real, err := filepath.EvalSymlinks(path)
		if err != nil {
			continue
		}
		for _, file := range []string{path, real} {
			root := toolRoot(file, home)
			if root != "" && !slices.ContainsFunc(roots, func(r string) bool { return within(r, root) }) {
				roots = append(roots, root)
			}
		}
	}
	return roots
}

// toolRoot is what to show so that the program in file works: of root/bin/program
// the root. Of a place that holds more than a toolchain it is the file alone.
func toolRoot(file, home string) string {
	if (view{}).shows(file) {
		return ""
	}
	root := filepath.Dir(filepath.Dir(file))
	shared := []string{".local", ".config", ".cache", ".cargo"} // credentials and key rings live there
	if within(root, home) || filepath.Dir(root) == "/" || filepath.Dir(root) == home && slices.Contains(shared, filepath.Base(root)) {
		return file
	}
	return root
}
