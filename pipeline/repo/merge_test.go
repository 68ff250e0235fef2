package repo

import (
	"strings"
	"testing"
)

func TestMerge(t *testing.T) {
	base := files{"a": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "b": "b\n", "bin": "\x00\x01\x02", "dir/long": strings.Repeat("line\n", 50), "ünï\nx": "1\n"}
	m, root := newMirror(t, base)
	for name, row := range map[string]struct {
		ours, theirs files
		conflicts    []string
		want         files // some files of the result; "" means gone
		markers      []string
	}{
		"apart":                {files{"x": "x"}, files{"y": "y"}, nil, files{"x": "x", "y": "y"}, nil},
		"far lines of a file":  {files{"a": "0\n2\n3\n4\n5\n6\n7\n8\n9\n"}, files{"a": "1\n2\n3\n4\n5\n6\n7\n8\n0\n"}, nil, files{"a": "0\n2\n3\n4\n5\n6\n7\n8\n0\n"}, nil},
		"the same change":      {files{"b": "c\n"}, files{"b": "c\n"}, nil, files{"b": "c\n"}, nil},
		"nothing of theirs":    {files{"b": "c\n"}, files{}, nil, files{"b": "c\n"}, nil},
		"the same line":        {files{"b": "ours\n"}, files{"b": "theirs\n"}, []string{"b"}, nil, []string{"b"}},
		"deleted and modified": {files{"b": ""}, files{"b": "theirs\n"}, []string{"b"}, files{"b": "theirs\n"}, nil},
		"modified and deleted": {files{"b": "ours\n"}, files{"b": ""}, []string{"b"}, files{"b": "ours\n"}, nil},
		"added twice":          {files{"n": "ours\n"}, files{"n": "theirs\n"}, []string{"n"}, nil, []string{"n"}},
		"binary":               {files{"bin": "\x00ours"}, files{"bin": "\x00theirs"}, []string{"bin"}, files{"bin": "\x00ours"}, nil},
		"mode and content":     {files{"b": "#!/bin/sh\nb\n"}, files{"a": "0\n"}, nil, files{"b": "#!/bin/sh\nb\n", "a": "0\n"}, nil},
		"renamed and modified": {files{"dir/long": "", "dir/new": strings.Repeat("line\n", 50)}, files{"dir/long": strings.Repeat("line\n", 50) + "end\n"}, nil,
			files{"dir/long": "", "dir/new": strings.Repeat("line\n", 50) + "end\n"}, nil},
		"link and file": {files{"b": "-> a"}, files{"b": "theirs\n"}, []string{"b"}, nil, nil},
		"hard name":     {files{"ünï\nx": "2\n"}, files{"ünï\nx": "3\n"}, []string{"ünï\nx"}, nil, []string{"ünï\nx"}},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := commit(t, m, root, row.ours), commit(t, m, root, row.theirs)
			got := ok[Merge](t)(m.Merge(t.Context(), ours, theirs))
			if name == "link and file" { // git renames one of the two; which is not ours to say
				if len(got.Conflicts) == 0 {
					t.Error("no conflict")
				}
				return
			}
			equalList(t, "conflicts", got.Conflicts, row.conflicts)
			merged := ok[string](t)(m.CommitTree(t.Context(), got.Tree, []string{ours, theirs}, Commit{Message: "Merge", Time: when}))
			for path, want := range row.want {
				content, err := m.File(t.Context(), merged, path)
				if (err != nil) != (want == "") {
					t.Errorf("%s: %v", path, err)
				}
				equal(t, path, string(content), want)
			}
			equalList(t, "markers", ok[[]string](t)(m.Markers(t.Context(), merged, got.Conflicts)), row.markers)
			for _, side := range []string{ours, theirs} {
				equal(t, "descends", ok[bool](t)(m.IsAncestor(t.Context(), side, merged)), true)
			}
		})
	}
}

func TestMergeKeepsAModeChange(t *testing.T) {
	m, root := newMirror(t, files{"run": "echo\n", "f": "1\n"})
	user := userRepo(t, files{})
	userGit(t, user, "fetch", "-q", m.dir, "refs/slipway/base/main")
	userGit(t, user, "checkout", "-q", "FETCH_HEAD")
	userGit(t, user, "update-index", "--chmod=+x", "run")
	userGit(t, user, "commit", "-q", "-m", "executable")
	userGit(t, user, "branch", "exec")
	ours := ok[string](t)(m.Fetch(t.Context(), Remote{URL: user}, "exec"))
	theirs := commit(t, m, root, files{"run": "echo hello\n"})
	got := ok[Merge](t)(m.Merge(t.Context(), ours, theirs))
	equalList(t, "conflicts", got.Conflicts, nil)
	if line := userGit(t, m.dir, "ls-tree", got.Tree, "run"); !strings.HasPrefix(line, "100755") {
		t.Error(line)
	}
	equal(t, "content", userGit(t, m.dir, "cat-file", "blob", got.Tree+":run"), "echo hello")
}

func TestMergeOfStrangers(t *testing.T) {
	m, a := newMirror(t, files{"a": "1"})
	tree := ok[string](t)(m.Tree(t.Context(), a))
	b := ok[string](t)(m.CommitTree(t.Context(), tree, nil, Commit{Message: "another root"}))
	if _, err := m.Merge(t.Context(), a, b); err == nil {
		t.Error("merged histories that share nothing")
	}
	equal(t, "ancestor", ok[bool](t)(m.IsAncestor(t.Context(), a, b)), false)
}

func TestMarkers(t *testing.T) {
	for name, row := range map[string]struct {
		file, text string
		want       bool
	}{
		"none":                          {"a.go", "package a\n", false},
		"empty":                         {"a.go", "", false},
		"a whole conflict":              {"a.go", "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n", true},
		"only the end":                  {"a.go", "b\n>>>>>>> theirs\n", true},
		"only the base":                 {"a.go", "||||||| 1234567\n", true},
		"only the middle":               {"a.go", "a\n=======\nb\n", true},
		"a title in a text":             {"a.md", "A title\n=======\n", false},
		"a conflict in a text":          {"a.md", "<<<<<<< HEAD\n", true},
		"with the line ends of Windows": {"a.go", "<<<<<<< HEAD\r\n", true},
		"without a name":                {"a.go", "<<<<<<<", true},
		"longer":                        {"a.go", "<<<<<<<<\n========\n>>>>>>>>\n", false},
		"shorter":                       {"a.go", "<<<<<<\n", false},
		"indented":                      {"a.go", " <<<<<<< x\n", false},
		"shift operators":               {"a.c", "x <<<<<<< y\n", false},
	} {
		if got := hasMarkers(row.file, []byte(row.text)); got != row.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}
