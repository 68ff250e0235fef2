package repo

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// CheckBranch tells why name cannot be a branch, nil when it can. The rules are
// those of git check-ref-format --branch.
func CheckBranch(name string) error {
	if strings.HasPrefix(name, "-") || name == "HEAD" {
		return fmt.Errorf("branch %q: a name cannot be HEAD or begin with a dash", name)
	}
	return checkFormat("branch", name)
}

// checkRef accepts full ref names only.
func checkRef(name string) error {
	if !strings.HasPrefix(name, "refs/") {
		return fmt.Errorf("ref %q: not a full name, which begins with refs/", name)
	}
	return checkFormat("ref", name)
}

// checkFormat has the rules of git check-ref-format, in code because a process
// for each name costs more than the operation it guards.
func checkFormat(kind, name string) error {
	bad := func(rule string) error { return fmt.Errorf("%s %q: %s", kind, name, rule) }
	switch {
	case name == "":
		return bad("the name is empty")
	case len(name) > 1024:
		return bad("the name is longer than 1024 bytes")
	case name == "@" || strings.Contains(name, "@{"):
		return bad("the name cannot be @ or contain @{")
	case strings.Contains(name, ".."):
		return bad("the name cannot contain two dots in a row")
	case strings.HasSuffix(name, "."):
		return bad("the name cannot end with a dot")
	case !utf8.ValidString(name):
		return bad("the name is not UTF-8")
	case strings.ContainsAny(name, " ~^:?*[\\") || strings.ContainsFunc(name, func(r rune) bool { return r < 32 || r == 127 }):
		return bad("the name cannot contain spaces, control characters or any of ~^:?*[\\")
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasSuffix(part, ".lock") {
			return bad("no part between slashes can be empty, begin with a dot or end with .lock")
		}
	}
	return nil
}

// checkHash accepts a full object name only: what begins with a dash, an
// abbreviation or an expression never reaches git's command line.
func checkHash(s string) error {
	if len(s) != len(zeroHash) || strings.Trim(s, "0123456789abcdef") != "" {
		return fmt.Errorf("%q is not a full commit hash", s)
	}
	return nil
}

// checkRev accepts a full hash or a full ref name.
func checkRev(s ...string) error {
	for _, s := range s {
		if strings.HasPrefix(s, "refs/") {
			if err := checkRef(s); err != nil {
				return err
			}
		} else if err := checkHash(s); err != nil {
			return err
		}
	}
	return nil
}

// short is a hash for people.
func short(hash string) string {
	switch {
	case hash == "":
		return "nothing"
	case len(hash) > 12:
		return hash[:12]
	}
	return hash
}

// dotGit tells whether some file system takes the file name for .git: without
// regard to case, with the characters that HFS+ ignores, with the endings and
// the short name of NTFS. See verify_dotfile, is_hfs_dotgit and is_ntfs_dotgit in git.
func dotGit(name string) bool {
	name = plainName(name)
	return name == ".git" || name == "git~1"
}

// plainName folds a file name the way HFS+ and NTFS do.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200c && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff:
			return -1
		}
		return r
	}, name)
	name, _, _ = strings.Cut(name, ":")
	return strings.ToLower(strings.TrimRight(name, " ."))
}
