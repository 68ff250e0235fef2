package ci

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/sandbox"
)

// git runs git in dir and returns what it printed.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	var out, said bytes.Buffer
	exit, err := sandbox.Host(t.Context(), sandbox.Command{
		Args: append([]string{"git"}, args...), Dir: dir, Stdout: &out, Stderr: &said,
		Env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "GIT_CONFIG_NOSYSTEM=1"},
	})
	if err != nil || exit.Code != 0 {
		t.Fatalf("git %v: %v, exit %d: %s", args, err, exit.Code, said.String())
	}
	return out.String()
}

// difference makes two trees of an archive, whose files are named before/… and
// after/…, and returns what git says of them.
func difference(t *testing.T, archive string) ([]repo.Change, string) {
	t.Helper()
	trees := map[string]string{}
	dir := t.TempDir()
	git(t, dir, "init", "--quiet")
	for _, side := range []string{"before", "after"} {
		work := filepath.Join(dir, side)
		if err := os.MkdirAll(work, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, f := range txtar.Parse([]byte(archive)).Files {
			name, ok := strings.CutPrefix(f.Name, side+"/")
			if !ok {
				continue
			}
			at := filepath.Join(work, name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, f.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		git(t, dir, "--work-tree="+work, "add", "--all", ".")
		trees[side] = strings.TrimSpace(git(t, dir, "write-tree"))
	}
	var changes []repo.Change
	status := map[string]repo.Status{"A": repo.Added, "M": repo.Modified, "D": repo.Deleted}
	for line := range strings.Lines(git(t, dir, "diff-tree", "-r", "--name-status", trees["before"], trees["after"])) {
		kind, name, _ := strings.Cut(strings.TrimSpace(line), "\t")
		changes = append(changes, repo.Change{Status: status[kind], Path: name})
	}
	return changes, git(t, dir, "diff", "--find-renames", trees["before"], trees["after"])
}

// inside is one file before and after.
func inside(name, before, after string) string {
	return "-- before/" + name + " --\n" + before + "\n-- after/" + name + " --\n" + after + "\n"
}

const goTests = `package a

func TestAdd(t *testing.T) {
	if Add(1, 2) != 3 {
		t.Error("1+2")
	}
}

func TestSub(t *testing.T) {
	if Sub(3, 2) != 1 {
		t.Error("3-2")
	}
	require.Equal(t, 0, Sub(1, 1))
}
`

func swap(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

const pyTests = "import pytest\n\ndef test_add():\n    assert add(1, 2) == 3\n\n\n@pytest.mark.parametrize('a', [\n    (1, 2),\n    (2, 3),\n])\ndef test_many(a):\n    assert a[0] < a[1]\n"

const jsTests = "describe('cart', () => {\n  it('adds', () => {\n    expect(add(1, 2)).toBe(3);\n  });\n  it('empties', () => {\n    expect(empty()).toEqual([]);\n    expect(size()).toBe(0);\n  });\n});\n"

const rustLib = "pub fn add(a: u8, b: u8) -> u8 {\n    a + b\n}\n\n#[cfg(test)]\nmod tests {\n    use super::*;\n\n    #[test]\n    fn adds() {\n        assert_eq!(add(1, 2), 3);\n    }\n\n    #[test]\n    fn zero() {\n        assert_eq!(add(0, 0), 0);\n    }\n}\n"

const javaTests = "class CartTest {\n  @Test\n  void adds() {\n    assertEquals(3, Cart.add(1, 2));\n  }\n\n  @Test\n  void empties() {\n    assertTrue(new Cart().isEmpty());\n  }\n}\n"

func TestDiffsThatWeaken(t *testing.T) {
	for name, test := range map[string]struct{ archive, want string }{
		"go: a test file is deleted":        {"-- before/a_test.go --\n" + goTests, "a test is removed"},
		"go: a file of helpers is deleted":  {"-- before/h_test.go --\npackage a\n\nfunc help() {}\n", "is deleted, which is a test"},
		"go: a test is removed":             {inside("a_test.go", goTests, goTests[:strings.Index(goTests, "func TestSub")]), `a test is removed: "func TestSub("`},
		"go: a test no longer has the name": {inside("a_test.go", goTests, swap(goTests, "TestSub", "checkSub")), "a test is removed"},
		"go: an assertion is removed":       {inside("a_test.go", goTests, swap(goTests, "	require.Equal(t, 0, Sub(1, 1))\n", "")), "an assertion is removed"},
		"go: an assertion is commented out": {inside("a_test.go", goTests, swap(goTests, "	require.Equal", "	// require.Equal")), "an assertion is removed"},
		"go: an error becomes a log":        {inside("a_test.go", goTests, swap(goTests, `t.Error("3-2")`, `t.Log("3-2")`)), "an assertion is removed"},
		"go: skipped":                       {inside("a_test.go", goTests, swap(goTests, "	if Sub", "	t.Skip(\"flaky on CI\")\n	if Sub")), "a test is skipped"},
		"go: skipped where CI runs":         {inside("a_test.go", goTests, swap(goTests, "	if Sub", "	if os.Getenv(\"CI\") != \"\" {\n		t.SkipNow()\n	}\n	if Sub")), "a test is skipped"},
		"go: returns at once":               {inside("a_test.go", goTests, swap(goTests, "TestSub(t *testing.T) {\n", "TestSub(t *testing.T) {\n	return\n")), "returns before"},
		"go: built by nobody":               {inside("a_test.go", goTests, "//go:build ignore\n\n"+goTests), "a test is skipped"},
		"go: a case of the table is gone":   {inside("a_test.go", "package a\n\nvar cases = []c{\n	{1, 2, 3},\n	{2, 2, 4},\n}\n", "package a\n\nvar cases = []c{\n	{1, 2, 3},\n}\n"), "a case of a test is removed"},
		"go: a named case is gone":          {inside("a_test.go", "package a\n\nvar cases = map[string]c{\n	\"one\": {1, 2},\n	\"two\": {2, 2},\n}\n", "package a\n\nvar cases = map[string]c{\n	\"one\": {1, 2},\n}\n"), "a case of a test is removed"},
		"go: a golden file is deleted":      {"-- before/testdata/golden/x.txt --\nwanted\n", "is deleted, which tests use"},
		"go: renamed to what is no test":    {"-- before/a_test.go --\n" + goTests + "-- after/a_test.go.off --\n" + goTests, "no test runner"},
		"go: an assertion that cannot fail": {inside("a_test.go", goTests, swap(goTests, "require.Equal(t, 0, Sub(1, 1))", "require.Equal(t, 0, Sub(1, 1))\n	assert.True(t, true)")), "cannot fail"},

		"python: removed":             {inside("tests/test_a.py", pyTests, pyTests[strings.Index(pyTests, "@pytest"):]), "a test is removed"},
		"python: skipped":             {inside("test_a.py", pyTests, swap(pyTests, "def test_add", "@pytest.mark.skip(reason='later')\ndef test_add")), "a test is skipped"},
		"python: expected to fail":    {inside("test_a.py", pyTests, swap(pyTests, "def test_add", "@pytest.mark.xfail\ndef test_add")), "a test is skipped"},
		"python: a parameter is gone": {inside("test_a.py", pyTests, swap(pyTests, "    (2, 3),\n", "")), "a case of a test is removed"},
		"python: assert True":         {inside("test_a.py", pyTests, swap(pyTests, "assert add(1, 2) == 3", "assert True")), "cannot fail"},
		"python: fail_under lowered":  {inside("pyproject.toml", "[tool.coverage.report]\nfail_under = 90\n", "[tool.coverage.report]\nfail_under = 60\n"), "from 90 to 60"},

		"js: it.skip":                  {inside("src/cart.test.ts", jsTests, swap(jsTests, "it('adds'", "it.skip('adds'")), "a test is skipped"},
		"js: xit":                      {inside("cart.spec.js", jsTests, swap(jsTests, "it('adds'", "xit('adds'")), "a test is skipped"},
		"js: only one of them runs":    {inside("cart.spec.js", jsTests, swap(jsTests, "it('adds'", "it.only('adds'")), "a test is skipped"},
		"js: an expectation is gone":   {inside("cart.spec.js", jsTests, swap(jsTests, "    expect(size()).toBe(0);\n", "")), "an assertion is removed"},
		"js: a test is gone":           {inside("__tests__/cart.js", jsTests, swap(jsTests, "  it('adds', () => {\n    expect(add(1, 2)).toBe(3);\n  });\n", "")), "a test is removed"},
		"js: a snapshot is deleted":    {"-- before/__snapshots__/cart.snap --\nx\n", "is deleted, which tests use"},
		"js: the test script succeeds": {inside("package.json", "{\"scripts\": {\n  \"test\": \"jest --coverage\"\n}}\n", "{\"scripts\": {\n  \"test\": \"jest --coverage || true\"\n}}\n"), "made to count as success"},
		"js: the coverage is lowered":  {inside("jest.config.js", "coverageThreshold: {\n  lines: 80,\n}\n", "coverageThreshold: {\n  lines: 10,\n}\n"), "from 80 to 10"},
		"js: more warnings allowed":    {inside("package.json", "\"lint\": \"eslint --max-warnings 0\"\n", "\"lint\": \"eslint --max-warnings 99\"\n"), "from 0 to 99"},

		"rust: removed from the code's own file": {inside("src/lib.rs", rustLib, swap(rustLib, "    #[test]\n    fn zero() {\n        assert_eq!(add(0, 0), 0);\n    }\n", "")), "a test is removed"},
		"rust: ignored":                          {inside("src/lib.rs", rustLib, swap(rustLib, "    fn zero", "    #[ignore]\n    fn zero")), "a test is skipped"},
		"rust: an assertion is gone":             {inside("tests/add.rs", "#[test]\nfn adds() {\n    assert_eq!(1, one());\n    assert!(ok());\n}\n", "#[test]\nfn adds() {\n    assert!(ok());\n}\n"), "an assertion is removed"},

		"java: disabled":           {inside("src/test/java/CartTest.java", javaTests, swap(javaTests, "  void adds", "  @Disabled(\"flaky\")\n  void adds")), "a test is skipped"},
		"java: ignored":            {inside("CartTest.java", javaTests, swap(javaTests, "  void adds", "  @Ignore\n  void adds")), "a test is skipped"},
		"java: no longer a test":   {inside("CartTest.java", javaTests, swap(javaTests, "  @Test\n  void adds", "  void adds")), "a test is removed"},
		"java: an assertion gone":  {inside("CartTest.java", javaTests, swap(javaTests, "    assertTrue(new Cart().isEmpty());\n", "    new Cart();\n")), "an assertion is removed"},
		"java: the build skips it": {inside("Makefile", "test:\n	mvn verify\n", "test:\n	mvn verify -DskipTests\n"), "made to count as success"},

		"shell: || true":               {inside("scripts/check.sh", "#!/bin/sh\nset -e\ngo test ./...\n", "#!/bin/sh\nset -e\ngo test ./... || true\n"), "made to count as success"},
		"shell: exit 0":                {inside("scripts/check.sh", "#!/bin/sh\ngo test ./...\n", "#!/bin/sh\nexit 0\ngo test ./...\n"), "made to count as success"},
		"shell: errors no longer end":  {inside("check.sh", "#!/bin/sh\ngo test ./...\n", "#!/bin/sh\nset +e\ngo test ./...\n"), "made to count as success"},
		"shell: the command is gone":   {inside("check.sh", "#!/bin/sh\ngo vet ./...\ngo test ./...\n", "#!/bin/sh\ngo vet ./...\n"), "a command that tests is removed"},
		"make: the command is an echo": {inside("Makefile", "test:\n	pytest\n", "test:\n	echo ok\n"), "a command that tests is removed"},
		"yaml: continue-on-error":      {inside("tasks/test.yml", "- run: make\n", "- run: make\n  continue-on-error: true\n"), "made to count as success"},
		"yaml: if: false":              {inside("tasks/test.yml", "- run: make\n", "- run: make\n  if: false\n"), "made to count as success"},
		"a workflow is touched":        {inside(".github/workflows/ci.yml", "on: push\n", "on: pull_request\n"), "configuration of the CI"},
		"a workflow is added":          {"-- after/.github/workflows/x.yaml --\non: push\n", "configuration of the CI"},
		"a workflow is moved away":     {"-- before/.github/workflows/ci.yml --\non: push\njobs: {}\n-- after/old/ci.yml --\non: push\njobs: {}\n", ".github/workflows/ci.yml is configuration"},
		"gitlab's file is touched":     {inside(".gitlab-ci.yml", "a: 1\n", "a: 2\n"), "configuration of the CI"},
		"a composite action":           {inside(".github/actions/test/action.yml", "a: 1\n", "a: 2\n"), "configuration of the CI"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes, diff := difference(t, test.archive)
			got := Weakens(changes, diff)
			if !strings.Contains(strings.Join(got, "\n"), test.want) {
				t.Errorf("got %q, want %q in it:\n%s", got, test.want, diff)
			}
		})
	}
}

func TestDiffsThatDoNot(t *testing.T) {
	moved := goTests[strings.Index(goTests, "func TestSub"):]
	for name, archive := range map[string]string{
		"nothing at all":                    "",
		"code alone":                        inside("a.go", "package a\n\nfunc Add(a, b int) int { return a - b }\n", "package a\n\nfunc Add(a, b int) int { return a + b }\n"),
		"a test is added":                   inside("a_test.go", goTests, goTests+"\nfunc TestMul(t *testing.T) {\n	if Mul(2, 2) != 4 {\n		t.Error(\"2*2\")\n	}\n}\n"),
		"a file of tests is added":          "-- after/b_test.go --\n" + goTests,
		"a test is moved to another file":   inside("a_test.go", goTests, strings.TrimSuffix(goTests, moved)) + "-- after/b_test.go --\npackage a\n\n" + moved,
		"a test is moved within its file":   inside("a_test.go", goTests, "package a\n\n"+moved+"\n"+goTests[len("package a\n\n"):strings.Index(goTests, "func TestSub")]),
		"a test is renamed":                 inside("a_test.go", goTests, swap(goTests, "TestSub", "TestSubtract")),
		"a file of tests is renamed":        "-- before/a_test.go --\n" + goTests + "-- after/add_test.go --\n" + goTests,
		"a table moves with its package":    "-- before/x/a_test.go --\n" + goTests + "-- after/y/a_test.go --\n" + goTests,
		"a case is added":                   inside("a_test.go", "package a\n\nvar cases = []c{\n	{1, 2, 3},\n}\n", "package a\n\nvar cases = []c{\n	{1, 2, 3},\n	{2, 2, 4},\n}\n"),
		"an expected value is changed":      inside("a_test.go", goTests, swap(goTests, "require.Equal(t, 0, Sub(1, 1))", "require.Equal(t, 2, Sub(1, -1))")),
		"a message is improved":             inside("a_test.go", goTests, swap(goTests, `t.Error("3-2")`, `t.Errorf("3-2 is %d", Sub(3, 2))`)),
		"an indented assertion":             inside("a_test.go", goTests, swap(goTests, "	require.Equal(t, 0, Sub(1, 1))\n", "	t.Run(\"zero\", func(t *testing.T) {\n		require.Equal(t, 0, Sub(1, 1))\n	})\n")),
		"a skip goes away":                  inside("a_test.go", swap(goTests, "	if Sub", "	t.Skip(\"later\")\n	if Sub"), goTests),
		"a skip moves with its test":        inside("a_test.go", "package a\n", "package a\n\n// c\n") + "-- before/b_test.go --\npackage a\n\nfunc TestX(t *testing.T) {\n	t.Skip(\"no display\")\n}\n-- after/c_test.go --\npackage a\n\nfunc TestX(t *testing.T) {\n	t.Skip(\"no display\")\n}\n",
		"js: a test becomes async":          inside("cart.spec.js", jsTests, swap(jsTests, "it('adds', () =>", "it('adds', async () =>")),
		"js: a helper is extracted":         inside("cart.spec.js", jsTests, "const three = () => add(1, 2);\n"+swap(jsTests, "expect(add(1, 2))", "expect(three())")),
		"python: a test is renamed":         inside("test_a.py", pyTests, swap(pyTests, "test_add", "test_adds_numbers")),
		"python: production code asserts":   inside("a.py", "def f(x):\n    assert x\n    return x\n", "def f(x):\n    return x\n"),
		"rust: code beside the tests":       inside("src/lib.rs", rustLib, swap(rustLib, "    a + b\n", "    a.wrapping_add(b)\n")),
		"rust: a production assertion":      inside("src/main.rs", "fn main() {\n    assert!(ready());\n    run();\n}\n", "fn main() {\n    run();\n}\n"),
		"java: an assertion is made better": inside("CartTest.java", javaTests, swap(javaTests, "assertTrue(new Cart().isEmpty())", "assertEquals(0, new Cart().size())")),
		"shell: a step is added":            inside("check.sh", "#!/bin/sh\ngo test ./...\n", "#!/bin/sh\ngo vet ./...\ngo test ./...\n"),
		"shell: the command gets a flag":    inside("check.sh", "#!/bin/sh\ngo test ./...\n", "#!/bin/sh\ngo test -race ./...\n"),
		"a threshold is raised":             inside("pyproject.toml", "fail_under = 80\n", "fail_under = 85\n"),
		"a function is called skip":         inside("scan.go", "package a\n", "package a\n\nfunc (s *scanner) skip() { s.t.Skip() }\n"),
		"a document speaks of it":           inside("README.md", "a\n", "a\n\nUse `go test ./... || true` and it.skip to see the rest.\n"),
		"a dependency is raised":            inside("go.mod", "module a\n\nrequire b v1.0.0\n", "module a\n\nrequire b v1.1.0\n"),
		"a lock file's checks":              inside("Cargo.toml", "[dependencies]\nserde = \"1.0.1\"\n", "[dependencies]\nserde = \"1.0.2\"\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changes, diff := difference(t, archive)
			if got := Weakens(changes, diff); len(got) > 0 {
				t.Errorf("got %q:\n%s", got, diff)
			}
		})
	}
}

func TestWhatCannotBeReadIsRefused(t *testing.T) {
	_, whole := difference(t, inside("a_test.go", goTests, swap(goTests, "TestSub", "TestSubtract")))
	modified := []repo.Change{{Status: repo.Modified, Path: "a_test.go"}}
	for name, test := range map[string]struct {
		changes []repo.Change
		diff    string
		want    string
	}{
		"cut within a hunk":                          {modified, whole[:len(whole)-20], "cannot be read"},
		"cut after a hunk":                           {modified, whole + "[the diff is longer than 9 bytes and was cut here]\n", "cannot be read"},
		"no diff at all":                             {modified, "I would rather not say.\n", "cannot be read"},
		"an empty diff":                              {modified, "", "does not show how"},
		"a file that it lacks":                       {append(modified, repo.Change{Status: repo.Deleted, Path: "b_test.go"}), whole, "b_test.go is changed, and the diff does not show how"},
		"no list of changes, a workflow in the diff": {nil, "diff --git a/.github/workflows/ci.yml b/.github/workflows/ci.yml\n--- a/.github/workflows/ci.yml\n+++ b/.github/workflows/ci.yml\n@@ -1 +1 @@\n-a\n+b\n", "configuration of the CI"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Weakens(test.changes, test.diff); !strings.Contains(strings.Join(got, "\n"), test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func FuzzWeakens(f *testing.F) {
	f.Add("a_test.go", "diff --git a/a_test.go b/a_test.go\n--- a/a_test.go\n+++ b/a_test.go\n@@ -1 +1 @@\n-t.Error()\n+t.Log()\n")
	f.Add("x", "")
	f.Add("a.snap", "diff --git a/a.snap b/a.snap\ndeleted file mode 100644\nindex 551cebc..0000000\nBinary files a/a.snap and /dev/null differ\n")
	f.Fuzz(func(t *testing.T, name, diff string) {
		reasons := Weakens([]repo.Change{{Status: repo.Modified, Path: name}}, diff)
		if !strings.Contains(diff, name) && len(reasons) == 0 {
			t.Errorf("%q is not in the diff, and it was let through", name)
		}
	})
}
