package ci

import (
	"path"
	"regexp"
	"strconv"
	"strings"
)

// How paths tell what they are.
var (
	testName = regexp.MustCompile(`(_test\.(go|py|rb|rs|dart|exs)|(^test_.*|^conftest)\.py|[._-](test|spec)\.[cm]?[jt]sx?|(Test|Tests|IT|Spec)\.(java|kt|scala|groovy|cs|swift|php)|_spec\.rb|\.bats)$`)
	testDir  = regexp.MustCompile(`(^|/)(tests?|__tests__|spec|e2e|src/test)/`)
	code     = regexp.MustCompile(`\.(go|py|rb|rs|[cm]?[jt]sx?|java|kt|scala|groovy|cs|swift|php|sh|bash|bats|exs?|c|cc|cpp)$`)
	dataDir  = regexp.MustCompile(`(^|/)(testdata|__snapshots__|fixtures|golden)/`)
	ciFile   = regexp.MustCompile(`(?i)(^|/)(\.github/(workflows|actions)/.*|\.circleci/.*|\.buildkite/.*|\.gitlab-ci\.ya?ml|\.gitlab/ci/.*|\.travis\.yml|\.drone\.ya?ml|\.woodpecker(/.*|\.ya?ml)|\.cirrus\.yml|azure-pipelines.*\.ya?ml|bitbucket-pipelines\.yml|appveyor\.yml|jenkinsfile(\..*)?|\.?codecov\.ya?ml|\.ci/.*)$`)
)

func runsTests(name string) bool { return ciFile.MatchString(name) }
func testData(name string) bool  { return dataDir.MatchString(name) || strings.HasSuffix(name, ".snap") }

// The kinds of mark. Those that are brought do harm where they appear, the
// others where they are gone.
var kinds = []struct {
	name    string
	what    string
	brought bool
}{
	{"test", "a test is removed", false},
	{"case", "a case of a test is removed", false},
	{"assertion", "an assertion is removed", false},
	{"command", "a command that tests is removed", false},
	{"skip", "a test is skipped, or others are", true},
	{"trivial", "an assertion that cannot fail", true},
	{"mute", "a failure is made to count as success", true},
}

// A language says how its tests look, line by line, with single spaces.
type language struct {
	comment     *regexp.Regexp
	declaration *regexp.Regexp // of a test; what it matches is the test's name
	assertion   *regexp.Regexp
	skip        *regexp.Regexp
	inline      *regexp.Regexp // tests stand in files of other code too, where this is near
	attribute   bool           // a line above a function declares it a test, wherever it stands
}

var (
	slashes = regexp.MustCompile(`^(//|/\*|\*)`)
	hashes  = regexp.MustCompile(`^#`)
	never   = regexp.MustCompile(`$.`)

	golang = language{
		comment: slashes, declaration: regexp.MustCompile(`^func (Test|Fuzz|Example|Benchmark)\w*\(|\b[tb]\.Run\("[^"]*"`),
		assertion: regexp.MustCompile(`\b[tbf]b?\.(Error|Fatal|Fail)\w*\(|\b(require|assert|must|is)\.?\w*\(`),
		skip:      regexp.MustCompile(`\b[tbf]b?\.Skip(f|Now)?\(|^//go:build (ignore|never)|testing\.Short\(\)`),
	}
	script = language{
		comment: slashes, declaration: regexp.MustCompile("\\b(it|test|describe|context)(\\.each\\b[^'\"`]*)?\\( ?['\"`][^'\"`]*['\"`]"),
		assertion: regexp.MustCompile(`\bexpect\(|\bassert(\.\w+)*\(|\bshould\.|\.toMatchSnapshot\(|\bt\.(is|deepEqual|true|false|throws\w*)\(`),
		skip:      regexp.MustCompile(`\b(it|test|describe|context|suite)\.(skip|todo|only|fixme|fails)\b|\b[xf](it|describe|test|context)\(|\bthis\.skip\(|\btestPathIgnorePatterns\b|passWithNoTests`),
	}
	python = language{
		comment: hashes, declaration: regexp.MustCompile(`^(async )?def test\w*\(|^class Test\w*`),
		assertion: regexp.MustCompile(`^assert\b|\bself\.(assert\w+|fail)\(|\bpytest\.(raises|warns|fail)\(`),
		skip:      regexp.MustCompile(`\bmark\.(skip|skipif|xfail)\b|\bpytest\.(skip|xfail|importorskip)\(|\bunittest\.(skip|expectedFailure)|\bskipTest\(|^@(skip|expectedFailure)|\b(collect_ignore|__test__ = False)`),
	}
	rust = language{
		comment: slashes, declaration: regexp.MustCompile(`^#\[(\w+::)*(test|rstest|test_case|case|proptest)\b`),
		assertion: regexp.MustCompile(`\b(debug_)?assert(_\w+)?!|\bpanic!\(`),
		skip:      regexp.MustCompile(`#\[ignore\b|#\[cfg\((any\(\)|not\(test\))`),
		inline:    regexp.MustCompile(`#\[(\w+::)*test\b|cfg\(test\)|mod tests`), attribute: true,
	}
	java = language{
		comment: slashes, declaration: regexp.MustCompile(`^(@(Test|ParameterizedTest|RepeatedTest|TestFactory|Theory)\b|\[(Test|Fact|Theory|TestMethod|TestCase)\b)`),
		assertion: regexp.MustCompile(`(?i)\bassert\w*[.(]|\bverify\w*\(|\bfail\(|\bexpected ?=|\bshould\w*[.(]`),
		skip:      regexp.MustCompile(`@(Ignore|Disabled\w*)\b|\bassume(True|False|That|ingThat)?\(|\bAssume\.|\[Ignore\b|\bSkip ?= ?"|enabled ?= ?false`),
		attribute: true,
	}
	ruby = language{
		comment: hashes, declaration: regexp.MustCompile(`^(it|describe|context|specify|test|scenario) ['"][^'"]*['"]|^def test_\w+`),
		assertion: regexp.MustCompile(`\bexpect[ ({]|\bassert\w*[ (]|\brefute\w*[ (]|\.should\b`),
		skip:      regexp.MustCompile(`^(skip|pending)\b|^x(it|describe|context)\b|\bskip: ?true|:skip\b`),
	}
	other = language{comment: hashes, declaration: never, assertion: regexp.MustCompile(`^(assert\w*|\[\[? |test )`), skip: regexp.MustCompile(`^skip\b`)}

	languages = map[string]language{
		".go": golang, ".py": python, ".rs": rust, ".rb": ruby, ".java": java, ".kt": java, ".scala": java, ".groovy": java, ".cs": java,
		".js": script, ".jsx": script, ".ts": script, ".tsx": script, ".mjs": script, ".cjs": script, ".mts": script, ".cts": script,
	}
)

func languageOf(name string) language {
	if l, known := languages[path.Ext(name)]; known {
		return l
	}
	return other
}

var (
	// A row of a table of cases: a literal in a list, or behind its name.
	row = regexp.MustCompile("^(([\"'`][^\"'`]*[\"'`]|\\w+): ?(\\w+ ?)?)?[{(\\[].*[})\\]],?$|^@(CsvSource|ValueSource)|^[\"'][^\"']*[\"'],$")

	trivial = regexp.MustCompile(`(?i)\bassert(_?true|\.true|!)?[( ] ?(t, ?)?(true|1|1 ?==? ?1) ?([),;]|$)|expect\((true|1)\)\.to(be(truthy)?|equal)\((true|1)?\)|\bassert(\.?_?(equals?|eq))!?\((t, ?)?(1, ?1|true, ?true)\)`)

	// What makes a command succeed that failed, wherever commands stand.
	mute = regexp.MustCompile(`\|\| ?(true|:|exit 0|echo\b)|^exit 0$|^set \+e\b|; ?(true|exit 0)["' ]*,?$|continue-on-error: ?true|^(- )?if: ?(false|\$\{\{ ?false ?\}\})|allow_failure: ?true|fail_ci_if_error: ?false|--deselect|--ignore[= ]|-k ['"]?not |\s-skip[= ]|--exclude-task|-DskipTests|-Dmaven\.test\.skip|-x test\b|--no-verify|--passWithNoTests|testFailureIgnore>?true|ignoreFailures ?= ?true`)

	command = regexp.MustCompile(`\b(go (test|vet)|npm (run )?test|yarn (run )?test|pnpm (run )?test|npx (jest|vitest|mocha)|pytest|tox|nox|cargo (test|clippy)|mvn\b.*(test|verify)|gradlew?\b.*(test|check)|make (test|check|lint)|golangci-lint run|bats|rspec|rake test|ctest|dotnet test|ruff|mypy|eslint|tsc)\b`)

	// The files whose lines are commands: scripts, build files, and what YAML
	// and package.json hand to a shell.
	commands = regexp.MustCompile(`(?i)(\.(sh|bash|bats|ya?ml|mk|toml|ini|cfg|gradle|kts|just)|(^|/)(makefile|justfile|rakefile|taskfile\.ya?ml|package\.json|pom\.xml|dockerfile|noxfile\.py|tox\.ini))$`)
)

// marks are what a line of a file holds of a test, in a test; elsewhere only
// what mutes failures, and tests that stand in other code.
func (l language) marks(file, words string, inTest bool) (out []mark) {
	if words == "" {
		return nil
	}
	add := func(kind, text string) { out = append(out, mark{kind, text}) }
	if commands.MatchString(file) && !hashes.MatchString(words) {
		if mute.MatchString(words) {
			add("mute", words)
		}
		if command.MatchString(words) {
			add("command", words)
		}
	}
	if l.skip.MatchString(words) && (inTest || l.attribute || strings.HasPrefix(words, "//go:build")) {
		add("skip", words)
	}
	if l.comment.MatchString(words) && !strings.HasPrefix(words, "#[") {
		return out
	}
	if name := l.declaration.FindString(words); name != "" && (inTest || l.attribute) {
		add("test", name)
		return out
	}
	if !inTest {
		return out
	}
	switch {
	case trivial.MatchString(words):
		add("trivial", words)
	case l.assertion.MatchString(words):
		add("assertion", words)
	case row.MatchString(words):
		add("case", words)
	}
	return out
}

// atMost are the thresholds that bound from above.
var atMost = regexp.MustCompile(`(?i)max|allowed|warnings|retries`)

var level = regexp.MustCompile(`(?i)((?:--?)?["']?(?:[\w.-]*(?:threshold|fail[_-]under|min(?:imum)?[_-]?coverage|coverage|max[_-]?warnings)[\w.-]*|branches|functions|lines|statements|minimum)["']?)(?:>| ?[:=] ?| )["']?(\d+(?:\.\d+)?)%?`)

// threshold reads a line that says how much is enough: of what, and the number.
func threshold(line string) (key string, n float64, ok bool) {
	m := level.FindStringSubmatch(line)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.ParseFloat(m[2], 64)
	return strings.Trim(m[1], `"'`), n, err == nil
}
