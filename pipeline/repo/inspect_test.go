package repo

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// rawTree writes a tree that no git command would make.
func rawTree(t *testing.T, m *Mirror, mode, name, object string) string {
	t.Helper()
	hash := ok[[]byte](t)(hex.DecodeString(object))
	return writeObject(t, m, "tree", fmt.Sprintf("%s %s\x00%s", mode, name, hash))
}

func writeObject(t *testing.T, m *Mirror, kind, content string) string {
	t.Helper()
	cmd := exec.Command("git", "--git-dir="+m.dir, "hash-object", "-w", "--literally", "--stdin", "-t", kind)
	cmd.Env, cmd.Stdin = []string{"PATH=" + os.Getenv("PATH")}, strings.NewReader(content)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func violation(t *testing.T, err error, path, rule string) {
	t.Helper()
	v, is := errors.AsType[*Violation](err)
	if !is {
		t.Fatalf("got %v, want a violation", err)
	}
	if v.Path != path || !strings.Contains(v.Error(), rule) {
		t.Errorf("got %v (path %q), want path %q and %q", v, v.Path, path, rule)
	}
}

func TestInspectRefusesTrees(t *testing.T) {
	const own, out, module = "git's own directory on some systems", "leads out of its place", "submodule"
	m := ok[*Mirror](t)(Open(t.Context(), t.TempDir()+"/mirror")) // its objects are broken on purpose: no fsck
	target := writeObject(t, m, "blob", "target")
	root := ok[string](t)(m.CommitTree(t.Context(), rawTree(t, m, "100644", "f", target), nil, Commit{Message: "root"}))
	for name, row := range map[string]struct {
		mode string
		path []string // one name for each level
		rule string   // "" when it is fine
	}{
		"a plain file":          {"100644", []string{"a", "b"}, ""},
		"dots in names":         {"100644", []string{"..a", "...", "b..", ".gitx", "git", ".github"}, ""},
		"git's files":           {"100644", []string{".gitignore"}, ""},
		".git":                  {"100644", []string{".git"}, own},
		".git below":            {"100644", []string{"a", ".git", "hooks", "x"}, own},
		".GIT":                  {"100644", []string{".GIT", "config"}, own},
		".gIt":                  {"100644", []string{".gIt"}, own},
		"git~1":                 {"100644", []string{"git~1", "config"}, own},
		"GIT~1":                 {"100644", []string{"GIT~1"}, own},
		".git with a dot":       {"100644", []string{".git.", "config"}, own},
		".git with a space":     {"100644", []string{".git ", "config"}, own},
		".git with a stream":    {"100644", []string{".git::$INDEX_ALLOCATION", "config"}, own},
		".git for HFS+":         {"100644", []string{".gi\u200dt", "config"}, own},
		"by backslash":          {"100644", []string{"a\\.git\\config"}, own},
		"..":                    {"100644", []string{"..", "..", "x"}, out},
		".. below":              {"100644", []string{"a", "..", "x"}, out},
		"a dot":                 {"100644", []string{".", "x"}, out},
		".. by backslash":       {"100644", []string{"..\\..\\x"}, out},
		"a slash in a name":     {"100644", []string{"../../x"}, out},
		"an absolute name":      {"100644", []string{"/etc/passwd"}, "empty part"},
		"a gitlink":             {"160000", []string{"sub"}, module},
		"a gitlink for .git":    {"160000", []string{".git"}, own},
		"a linked .gitmodules":  {"120000", []string{".gitmodules"}, "git's own files"},
		"a linked .GITIGNORE":   {"120000", []string{"a", ".GITIGNORE"}, "git's own files"},
		"a linked, called .git": {"120000", []string{".git"}, own},
	} {
		t.Run(name, func(t *testing.T) {
			object, mode := target, row.mode
			if mode == "160000" {
				object = strings.Repeat("5", 40)
			}
			for i := len(row.path) - 1; i >= 0; i-- {
				object, mode = rawTree(t, m, mode, row.path[i], object), "40000"
			}
			head := ok[string](t)(m.CommitTree(t.Context(), object, []string{root}, Commit{Message: "hostile"}))
			err := m.Inspect(t.Context(), root, head, Limits{})
			if row.rule == "" {
				must(t, err)
				return
			}
			violation(t, err, strings.Join(row.path, "/"), row.rule)
		})
	}
}

func TestInspectFollowsLinks(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	for name, row := range map[string]struct{ link, target, rule string }{
		"beside":                       {"a/l", "b", ""},
		"below":                        {"l", "a/b/c", ""},
		"up to the top":                {"a/b/l", "../../f", ""},
		"up within":                    {"a/b/l", "../x", ""},
		"the top itself":               {"a/l", "..", ""},
		"nowhere yet":                  {"l", "missing", ""},
		"with dots":                    {"a/l", "./../b/./c", ""},
		"absolute":                     {"l", "/etc/passwd", "leaves"},
		"out":                          {"l", "../x", "leaves"},
		"far out":                      {"a/b/l", "../../../x", "leaves"},
		"out and in again":             {"l", "../repo/f", "leaves"},
		"out behind a name":            {"l", "a/../../x", ".. after a name"},
		"out behind what may be links": {"z", "s/t/u/..", ".. after a name"},
		"into .git":                    {"l", ".git/config", "git's own directory"},
		"into .GIT of the top":         {"a/l", "../.GIT/hooks/x", "git's own directory"},
		"out for Windows":              {"l", "..\\..\\x", "leaves"},
		"longer than a path":           {"l", strings.Repeat("a/", 3000) + "b", "too long"},
		"a target with a line end":     {"a/l", "../\n/x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			target := writeObject(t, m, "blob", row.target)
			parts := strings.Split(row.link, "/")
			tree, mode := target, "120000"
			for i := len(parts) - 1; i >= 0; i-- {
				tree, mode = rawTree(t, m, mode, parts[i], tree), "40000"
			}
			head := ok[string](t)(m.CommitTree(t.Context(), tree, []string{base}, Commit{Message: "link"}))
			err := m.Inspect(t.Context(), base, head, Limits{})
			if row.rule == "" {
				must(t, err)
				return
			}
			violation(t, err, row.link, row.rule)
		})
	}
}

func TestInspectLooksAtEveryCommit(t *testing.T) {
	m, base := newMirror(t, files{"f": "1", "old": "-> /etc/passwd"})
	ctx := t.Context()
	bad := commit(t, m, base, files{"l": "-> /etc/passwd"})
	hidden := commit(t, m, bad, files{"l": ""})
	violation(t, m.Inspect(ctx, base, hidden, Limits{}), "l", "leaves")
	must(t, m.Inspect(ctx, bad, hidden, Limits{})) // what is there already is not added

	side := commit(t, m, base, files{"g": "2"})
	got := ok[Merge](t)(m.Merge(ctx, side, hidden))
	merged := ok[string](t)(m.CommitTree(ctx, got.Tree, []string{side, hidden}, Commit{Message: "merge"}))
	violation(t, m.Inspect(ctx, base, merged, Limits{}), "l", "leaves")

	evil := commit(t, m, side, files{"evil": "-> ../x"})
	clean := commit(t, m, base, files{"h": "3"})
	merged = ok[string](t)(m.CommitTree(ctx, ok[string](t)(m.Tree(ctx, evil)), []string{side, clean}, Commit{Message: "a merge that adds of its own"}))
	violation(t, m.Inspect(ctx, base, merged, Limits{}), "evil", "leaves")
	must(t, m.Inspect(ctx, base, base, Limits{}))
}

func TestInspectCaps(t *testing.T) {
	m, base := newMirror(t, files{"f": "1"})
	ctx := t.Context()
	many := files{}
	for i := range 10_001 {
		many[fmt.Sprintf("d%d/f%d", i%100, i)] = "same"
	}
	head := commit(t, m, base, many)
	violation(t, m.Inspect(ctx, base, head, Limits{}), "", "touches 10001 files; 10000 are allowed")
	must(t, m.Inspect(ctx, base, head, Limits{Files: 10_001, Bytes: 4})) // equal contents count once

	big := commit(t, m, base, files{"big": strings.Repeat("x", 1001)})
	gone := commit(t, m, big, files{"big": ""})
	violation(t, m.Inspect(ctx, base, gone, Limits{Bytes: 1000}), "", "adds 1001 bytes of files; 1000 are allowed")
	must(t, m.Inspect(ctx, big, gone, Limits{Bytes: 1}))
	if err := m.Inspect(ctx, base, strings.Repeat("6", 40), Limits{}); err == nil {
		t.Error("an unknown commit passed")
	}
	if err := m.Inspect(ctx, "--output=x", head, Limits{}); err == nil {
		t.Error("an option passed")
	}
}
