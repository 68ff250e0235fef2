package native_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/runtime"
	"github.com/slipway-dev/slipway/pipeline/runtime/modeltest"
	"github.com/slipway-dev/slipway/pipeline/runtime/native"
)

// attempt has an agent use tools one after the other in c.Dir and returns what
// came back.
func attempt(t *testing.T, c runtime.Call, uses ...modeltest.Call) []modeltest.Result {
	t.Helper()
	r, model := start(t, func(req modeltest.Request) modeltest.Turn {
		if n := len(req.Results()); n < len(uses) {
			return modeltest.Turn{Calls: []modeltest.Call{uses[n]}}
		}
		return modeltest.Turn{Text: "Done."}
	})
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	requests := model.Requests()
	return requests[len(requests)-1].Results()
}

func TestFileTools(t *testing.T) {
	const (
		fine = ""     // the tool does it
		any  = "\x00" // what comes back does not matter
	)
	files := map[string]string{
		"a.txt":             "one\ntwo\nthree\n",
		"twice.txt":         "x = 1\nx = 1\n",
		"indented.go":       "func f() {\n\treturn\n}\n",
		"windows.txt":       "one\r\ntwo\r\n",
		"wide.txt":          strings.Repeat("w", 5000) + "\nend\n",
		"bare.txt":          "no end of line",
		"empty.txt":         "",
		"binary.bin":        "a\x00b",
		"sub/deep/file.txt": "deep\n",
		".git/config":       "[core]\n",
		"script.sh":         "#!/bin/sh\n",
	}
	for name, row := range map[string]struct {
		tool   string
		in     args
		says   string            // part of the result
		fails  bool              // the model is told that it failed
		leaves map[string]string // what files hold afterwards
	}{
		"reads with numbers":                {"READ", args{"path": "a.txt"}, "     2\ttwo\n", false, nil},
		"reads a range":                     {"READ", args{"path": "a.txt", "offset": 2, "limit": 1}, "     2\ttwo\n(lines 2 to 2 of 3; offset 3 goes on)", false, nil},
		"reads past the end":                {"READ", args{"path": "a.txt", "offset": 9}, "the file has 3 lines; there is no line 9", true, nil},
		"cuts a wide line":                  {"READ", args{"path": "wide.txt"}, "… (5000 bytes in all)\n     2\tend\n", false, nil},
		"reads what has no end":             {"READ", args{"path": "bare.txt"}, "     1\tno end of line\n", false, nil},
		"reads Windows lines":               {"READ", args{"path": "windows.txt"}, "     1\tone\n     2\ttwo\n", false, nil},
		"reads an empty file":               {"READ", args{"path": "empty.txt"}, "(the file is empty)", false, nil},
		"does not show a binary":            {"READ", args{"path": "binary.bin"}, "binary file of 3 bytes", true, nil},
		"does not read a directory":         {"READ", args{"path": "sub"}, "is a directory; GLOB", true, nil},
		"does not wait for a pipe":          {"READ", args{"path": "pipe"}, "no regular file", true, nil},
		"says what a missing file may be":   {"READ", args{"path": "A.TXT"}, "its directory has a.txt", true, nil},
		"says that a directory is missing":  {"READ", args{"path": "no/such.txt"}, "nor does its directory", true, nil},
		"reads by an absolute path":         {"READ", args{"path": "$DIR/a.txt"}, "one", false, nil},
		"does not read above":               {"READ", args{"path": "../outside/secret"}, "outside of the directories", true, nil},
		"does not read /etc":                {"READ", args{"path": "/etc/passwd"}, "outside of the directories", true, nil},
		"does not read through a link":      {"READ", args{"path": "out/secret"}, "escapes", true, nil},
		"reads through a link inside":       {"READ", args{"path": "in/deep/file.txt"}, "deep", false, nil},
		"reads what else it may":            {"READ", args{"path": "$ALSO/notes.txt"}, "notes", false, nil},
		"does not write what it may read":   {"WRITE", args{"path": "$ALSO/notes.txt", "content": "x"}, "read-only", true, nil},
		"writes and makes directories":      {"WRITE", args{"path": "new/dir/b.txt", "content": "b\n"}, "has 1 lines", false, map[string]string{"new/dir/b.txt": "b\n"}},
		"overwrites":                        {"WRITE", args{"path": "a.txt", "content": "z"}, fine, false, map[string]string{"a.txt": "z"}},
		"does not write above":              {"WRITE", args{"path": "../outside/planted", "content": "x"}, "outside of the directories", true, nil},
		"does not write through a link":     {"WRITE", args{"path": "out/planted", "content": "x"}, "leads out", true, nil},
		"does not write where a link ends":  {"WRITE", args{"path": "dangling", "content": "x"}, "link to nowhere", true, nil},
		"does not write through hard links": {"WRITE", args{"path": "hard.txt", "content": "mine"}, fine, false, map[string]string{"hard.txt": "mine", "../outside/secret": "secret\n"}},
		"does not write into .git":          {"WRITE", args{"path": ".git/config", "content": "x"}, "git's own", true, map[string]string{".git/config": "[core]\n"}},
		"does not write into a .GIT":        {"WRITE", args{"path": "sub/.GIT/hooks/x", "content": "x"}, "git's own", true, nil},
		"does not write .git by a link":     {"WRITE", args{"path": "gitlink/config", "content": "x"}, "git's own", true, map[string]string{".git/config": "[core]\n"}},
		"does not write over a directory":   {"WRITE", args{"path": "sub", "content": "x"}, "is a directory", true, nil},
		"does not write the directory":      {"WRITE", args{"path": ".", "content": "x"}, "the directory itself", true, nil},
		"does not write too much":           {"WRITE", args{"path": "big", "content": strings.Repeat("x", 9<<20)}, "more than 8 MiB", true, nil},
		"edits":                             {"EDIT", args{"path": "a.txt", "old": "two\n", "new": "2\n"}, "replaced 1, the first in line 2", false, map[string]string{"a.txt": "one\n2\nthree\n"}},
		"edits everywhere":                  {"EDIT", args{"path": "twice.txt", "old": "1", "new": "2", "all": true}, "replaced 2", false, map[string]string{"twice.txt": "x = 2\nx = 2\n"}},
		"does not guess which":              {"EDIT", args{"path": "twice.txt", "old": "1", "new": "2"}, "2 times, in lines 1, 2", true, map[string]string{"twice.txt": "x = 1\nx = 1\n"}},
		"tells of other white space":        {"EDIT", args{"path": "indented.go", "old": "func f() {\n    return\n}", "new": "x"}, "from line 1 on there is the same text with other white space", true, nil},
		"tells of Windows lines":            {"EDIT", args{"path": "windows.txt", "old": "one\ntwo", "new": "x"}, `end with \r\n`, true, nil},
		"tells where it begins":             {"EDIT", args{"path": "a.txt", "old": "two\nfour", "new": "x"}, "first line is there, in line 2", true, nil},
		"tells that it is not there":        {"EDIT", args{"path": "a.txt", "old": "nine", "new": "x"}, "old is not in the file", true, nil},
		"wants a difference":                {"EDIT", args{"path": "a.txt", "old": "one", "new": "one"}, "the same", true, nil},
		"wants something to replace":        {"EDIT", args{"path": "a.txt", "old": "", "new": "x"}, "old is empty", true, nil},
		"does not edit bytes":               {"EDIT", args{"path": "latin.txt", "old": "caf", "new": "x"}, "not UTF-8", true, nil},
		"keeps the mode":                    {"EDIT", args{"path": "script.sh", "old": "sh\n", "new": "bash\n"}, fine, false, map[string]string{"script.sh": "#!/bin/bash\n"}},
		"misreads its own input":            {"READ", args{"path": 7}, "the input does not fit", true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			c := call(t, dialects[0].model)
			c.Dir = filepath.Join(base, "work")
			also := t.TempDir()
			c.ReadOnlyDirs = []string{also}
			put(t, also, "notes.txt", "notes\n")
			put(t, base, "outside/secret", "secret\n")
			for name, text := range files {
				put(t, c.Dir, name, text)
			}
			put(t, c.Dir, "latin.txt", "caf\xe9")
			for link, to := range map[string]string{"out": "../outside", "in": "sub", "dangling": "../outside/planted", "gitlink": ".git"} {
				if err := os.Symlink(to, filepath.Join(c.Dir, link)); err != nil {
					t.Fatal(err)
				}
			}
			must(t, os.Link(filepath.Join(base, "outside/secret"), filepath.Join(c.Dir, "hard.txt")))
			must(t, syscall.Mkfifo(filepath.Join(c.Dir, "pipe"), 0o644))
			must(t, os.Chmod(filepath.Join(c.Dir, "script.sh"), 0o755))
			for key, value := range row.in {
				if text, ok := value.(string); ok {
					row.in[key] = strings.NewReplacer("$DIR", c.Dir, "$ALSO", also).Replace(text)
				}
			}

			got := attempt(t, c, modeltest.Call{Tool: row.tool, Input: row.in})
			if len(got) != 1 || got[0].IsError != row.fails || row.says != any && !strings.Contains(got[0].Text, row.says) {
				t.Errorf("the tool said %+v, want %q, failed: %v", got, row.says, row.fails)
			}
			for name, want := range row.leaves {
				if text := read(t, c.Dir, name); text != want {
					t.Errorf("%s = %q, want %q", name, text, want)
				}
			}
			for _, outside := range []string{"planted", "config"} {
				if _, err := os.Lstat(filepath.Join(base, "outside", outside)); err == nil {
					t.Errorf("%s was written outside", outside)
				}
			}
			if info, err := os.Stat(filepath.Join(c.Dir, "script.sh")); err != nil || info.Mode().Perm() != 0o755 {
				t.Errorf("script.sh: %v %v", info.Mode(), err)
			}
			if left, _ := filepath.Glob(filepath.Join(c.Dir, ".slipway-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A role that may not write keeps its directory as it is, whatever it was granted.
func TestAReadOnlyCallWritesNothing(t *testing.T) {
	c := call(t, dialects[0].model)
	c.ReadOnly = true
	put(t, c.Dir, "a.txt", "one\n")
	got := attempt(t, c,
		modeltest.Call{Tool: "WRITE", Input: args{"path": "a.txt", "content": "x"}},
		modeltest.Call{Tool: "EDIT", Input: args{"path": "a.txt", "old": "one", "new": "x"}},
		modeltest.Call{Tool: "BASH", Input: args{"command": "echo x >a.txt"}})
	for _, r := range got {
		if !r.IsError {
			t.Errorf("%s said %q", r.Tool, r.Text)
		}
	}
	if text := read(t, c.Dir, "a.txt"); text != "one\n" {
		t.Errorf("a.txt = %q", text)
	}
}

// pixel is a PNG.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// An image reaches the model as one, in the way of each protocol.
func TestImagesAreSeen(t *testing.T) {
	data, err := base64.StdEncoding.DecodeString(pixel)
	must(t, err)
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			wire := record(t)
			r, _ := startAt(t, wire, func(req modeltest.Request) modeltest.Turn {
				if len(req.Results()) == 0 {
					return use("READ", args{"path": "named.txt"})
				}
				return modeltest.Turn{Text: "A dot."}
			})
			c := call(t, d.model)
			put(t, c.Dir, "named.txt", string(data)) // the content says what it is, not the name
			if _, err := r.Run(t.Context(), c, quiet); err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"messages": `"media_type":"image/png"`, "chat": `"url":"data:image/png;base64,` + pixel}[d.name]
			if last := wire.last(); !strings.Contains(last, pixel) || !strings.Contains(last, want) {
				t.Errorf("the model was sent %s", last)
			}
		})
	}
}

func TestBash(t *testing.T) {
	for name, row := range map[string]struct {
		in    args
		says  []string
		fails bool
	}{
		"both streams in order":     {args{"command": "echo out; echo err >&2; echo end"}, []string{"out\nerr\nend\n"}, false},
		"an exit code":              {args{"command": "echo no; exit 3"}, []string{"no\n", "(exit code 3)"}, true},
		"a signal":                  {args{"command": "kill -9 $$"}, []string{"a signal ended it"}, true},
		"too slow":                  {args{"command": "echo begun; sleep 60", "timeout": 1}, []string{"begun", "did not end within 1s"}, true},
		"long output":               {args{"command": "echo first; seq 100000; echo last"}, []string{"first\n1\n", "bytes are left out here", "100000\nlast\n"}, false},
		"output without end":        {args{"command": "yes"}, []string{"more than 16 MiB"}, true},
		"no command":                {args{"command": ""}, []string{"empty"}, true},
		"no key of the provider":    {args{"command": "env; cat /proc/1/environ 2>/dev/null"}, []string{"HOME="}, false},
		"nothing above":             {args{"command": "touch ../planted; cat ../../*/*/secret; true"}, []string{"No such file"}, false},
		"ended with what it began":  {args{"command": "sleep 86411 & echo begun"}, []string{"begun"}, false},
		"ended with its own parent": {args{"command": "kill -9 -1"}, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := call(t, dialects[0].model)
			put(t, c.Dir, "../other/secret", modeltest.Key)
			got := attempt(t, c, modeltest.Call{Tool: "BASH", Input: row.in})
			if len(got) != 1 || got[0].IsError != row.fails {
				t.Fatalf("BASH said %+v", got)
			}
			for _, want := range row.says {
				if !strings.Contains(got[0].Text, want) {
					t.Errorf("BASH said %.500q, want %q", got[0].Text, want)
				}
			}
			if len(got[0].Text) > 40_000 || strings.Contains(got[0].Text, modeltest.Key) {
				t.Errorf("BASH said %d bytes, %.500q", len(got[0].Text), got[0].Text)
			}
			if _, err := os.Lstat(filepath.Join(c.Dir, "../planted")); err == nil {
				t.Error("a command wrote outside")
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), "pgrep", "-f", "sleep 86411").Output(); err == nil {
		t.Errorf("a process was left behind: %s", out)
	}
}

func TestSearch(t *testing.T) {
	files := map[string]string{
		".gitignore":             "*.log\n/build/\nnode_modules\n!keep.log\n",
		"main.go":                "package main\n\nfunc main() {\n\tprintln(\"needle\")\n}\n",
		"lib/lib.go":             "package lib\n// Needle\n",
		"lib/.gitignore":         "gen_*\n!gen_keep.go\n",
		"lib/gen_a.go":           "needle\n",
		"lib/gen_keep.go":        "needle\n",
		"app.log":                "needle\n",
		"keep.log":               "needle\n",
		"build/out.txt":          "needle\n",
		"sub/build/out.txt":      "needle\n",
		"sub/node_modules/x.js":  "needle\n",
		".github/workflows/a.ym": "needle: true\n",
		".git/HEAD":              "needle\n",
		"data.bin":               "needle\x00\n",
		"long.txt":               "needle" + strings.Repeat("-", 2000) + "\n",
		"many.txt":               strings.Repeat("mass\n", 400),
	}
	for name, row := range map[string]struct {
		tool string
		in   args
		want string // the whole result, where it ends with \n one that begins so
	}{
		"names however deep":      {"GLOB", args{"pattern": "*.go"}, "lib/gen_keep.go\nlib/lib.go\nmain.go"},
		"a path":                  {"GLOB", args{"pattern": "lib/*.go"}, "lib/gen_keep.go\nlib/lib.go"},
		"any depth":               {"GLOB", args{"pattern": "**/out.txt"}, "sub/build/out.txt"},
		"alternatives":            {"GLOB", args{"pattern": "{main,nope}.{go,c}"}, "main.go"},
		"in a directory":          {"GLOB", args{"pattern": "*.go", "path": "lib"}, "lib/gen_keep.go\nlib/lib.go"},
		"hidden ones":             {"GLOB", args{"pattern": ".github/**"}, ".github/workflows/a.ym"},
		"an absolute pattern":     {"GLOB", args{"pattern": "$DIR/lib/**/*.go"}, "lib/gen_keep.go\nlib/lib.go"},
		"nothing":                 {"GLOB", args{"pattern": "*.rs"}, "(no file)"},
		"nothing that is ignored": {"GLOB", args{"pattern": "*.log"}, "keep.log"},
		"inside what is ignored":  {"GLOB", args{"pattern": "*", "path": "build"}, "build/out.txt"},
		"no pattern":              {"GLOB", args{"pattern": "[a"}, `"[a" is not a pattern`},

		"lines":                  {"GREP", args{"pattern": "need.e\"?", "glob": "*.go"}, "lib/gen_keep.go:1:needle\nmain.go:4:\tprintln(\"needle\")"},
		"any case":               {"GREP", args{"pattern": "needle", "ignore_case": true, "path": "lib"}, "lib/gen_keep.go:1:needle\nlib/lib.go:2:// Needle"},
		"the files":              {"GREP", args{"pattern": "^needle", "show": "files"}, ".github/workflows/a.ym\nkeep.log\nlib/gen_keep.go\nlong.txt\nsub/build/out.txt"},
		"how many":               {"GREP", args{"pattern": "mass", "show": "count"}, "many.txt:400"},
		"with what is around":    {"GREP", args{"pattern": "needle", "path": "main.go", "context": 1}, "main.go-3-func main() {\nmain.go:4:\tprintln(\"needle\")\nmain.go-5-}"},
		"one file, even ignored": {"GREP", args{"pattern": "needle", "path": "app.log"}, "app.log:1:needle"},
		"no more than some":      {"GREP", args{"pattern": "mass", "limit": 2}, "many.txt:1:mass\nmany.txt:2:mass\n(there is more; these are the first 2 lines)"},
		"not across lines":       {"GREP", args{"pattern": "mass\\nmass"}, "(no match)"},
		"no expression":          {"GREP", args{"pattern": "("}, "the pattern cannot be read"},
		"no way to show":         {"GREP", args{"pattern": "x", "show": "all"}, `show is "all"`},
		"nowhere":                {"GREP", args{"pattern": "x", "path": "nope"}, "nope does not exist"},
		"not outside":            {"GREP", args{"pattern": "x", "path": "/etc"}, "/etc is outside"},
		"a long line":            {"GREP", args{"pattern": "needle-", "path": "long.txt"}, "long.txt:1:needle-----"},
	} {
		t.Run(name, func(t *testing.T) {
			c := call(t, dialects[0].model)
			for name, text := range files {
				put(t, c.Dir, name, text)
			}
			for key, value := range row.in {
				if text, ok := value.(string); ok {
					row.in[key] = strings.ReplaceAll(text, "$DIR", c.Dir)
				}
			}
			got := attempt(t, c, modeltest.Call{Tool: row.tool, Input: row.in})
			if len(got) != 1 || !strings.HasPrefix(got[0].Text, row.want) || !got[0].IsError && len(got[0].Text) > 600 {
				t.Fatalf("%s said %+v, want %q", row.tool, got, row.want)
			}
			if cut := name == "a long line"; !got[0].IsError && got[0].Text != row.want && !cut {
				t.Errorf("%s said %q, want %q", row.tool, got[0].Text, row.want)
			}
		})
	}
}

// What GLOB leaves out is what git leaves out.
func TestIgnoringIsGits(t *testing.T) {
	names := []string{
		"a", "b.txt", "c.log", "dir/a", "dir/b.txt", "dir/sub/a", "dir/sub/c.log", "x/dir/a", "foo/bar/baz", "foo/keep", "foo/deep/keep", "{a}", "a b", "trail ",
		"#hash", "!bang", "x1", "x2", "xy", "deep/one/two/three.c", "deep/three.c", "star*", "é.txt", "foo.d/x", "only/dir", "only2",
	}
	rules := []string{
		"a", "*.log", "/a", "dir/", "dir", "/dir/sub", "dir/sub/", "foo/**", "!foo/keep", "**/a", "**/sub/**", "foo/**/baz", "x[0-9]", "x[!0-9]", "x?",
		"\\#hash", "\\!bang", "#hash", "{a}", "*b", "a b", "trail\\ ", "b.txt  ", "deep/**/three.c", "deep/*/three.c", "star\\*", "*.d", "!*.txt", "*", "!*/", "é.*",
		"only/*", "!only/dir", "**", "foo/*", "!foo/deep", "[", "x[", "/", "//", "dir//", "./a", "***", "foo/", "!foo/",
	}
	git := t.TempDir()
	for _, name := range names {
		put(t, git, name, "x\n")
	}
	runGit := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "core.excludesFile=/dev/null", "-c", "core.quotePath=false", "-C", git}, args...)...)
		out, err := cmd.Output()
		must(t, err)
		return string(out)
	}
	runGit("init", "-q")
	r, model := start(t, func(req modeltest.Request) modeltest.Turn {
		if len(req.Results()) == 0 {
			return use("GLOB", args{"pattern": "**"})
		}
		return modeltest.Turn{Text: "Done."}
	})
	c := call(t, dialects[0].model)
	c.Dir = git
	for i, first := range rules {
		for _, second := range []string{"", rules[(i+1)%len(rules)], rules[(i*7+3)%len(rules)], rules[(i*11+5)%len(rules)]} {
			text := first + "\n" + second + "\n"
			for _, where := range []string{".gitignore", "dir/.gitignore"} {
				put(t, git, where, text)
				want := strings.Split(strings.TrimRight(runGit("ls-files", "--others", "--exclude-standard", "-z"), "\x00"), "\x00")
				slices.Sort(want)
				found := globAll(t, r, model, c)
				if !slices.Equal(found, slices.DeleteFunc(want, func(n string) bool { return n == "" })) {
					t.Errorf("with %q in %s git sees\n%q, GLOB\n%q", text, where, want, found)
				}
				must(t, os.Remove(filepath.Join(git, where)))
			}
		}
	}
}

func globAll(t *testing.T, r *native.Runtime, model *modeltest.Server, c runtime.Call) []string {
	t.Helper()
	if _, err := r.Run(t.Context(), c, quiet); err != nil {
		t.Fatal(err)
	}
	requests := model.Requests()
	text := requests[len(requests)-1].Results()[0].Text
	if text == "(no file)" {
		return nil
	}
	found := strings.Split(text, "\n")
	slices.Sort(found)
	return found
}

// A tree with more than a person reads is cut, and says so.
func TestAListIsBounded(t *testing.T) {
	c := call(t, dialects[0].model)
	for i := range 1100 {
		put(t, c.Dir, fmt.Sprintf("f%04d", i), "")
	}
	got := attempt(t, c, modeltest.Call{Tool: "GLOB", Input: args{"pattern": "*"}})
	if n := bytes.Count([]byte(got[0].Text), []byte("\n")); n != 1000 || !strings.HasSuffix(got[0].Text, "(there are more than 1000)") {
		t.Errorf("GLOB listed %d, and ended %q", n, got[0].Text[len(got[0].Text)-60:])
	}
}
