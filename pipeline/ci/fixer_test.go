package ci

import (
	"testing"

	"github.com/slipway-dev/slipway/pipeline/agent/agenttest"
)

func TestPrompt(t *testing.T) {
	agenttest.Prompt(t, Fixer, Broken{
		Failures: []Report{{Check: "test (1.26, windows)", Evidence: "it failed again when it was re-run", Log: "--- FAIL: TestPath\n    got a\\b, want a/b"}},
		Diff:     "+func path() string { return filepath.Join(\"a\", \"b\") }",
		Earlier:  []Attempt{{Summary: "Skipped the test on Windows.", Cause: "Separators", Refused: []string{"path_test.go: a test is skipped"}}},
	}, 1300)
}

func TestAnswersThatContradictThemselves(t *testing.T) {
	for name, test := range map[string]struct {
		out  Mend
		want int
	}{
		"a fix":                    {Mend{Fixed: true, FilesChanged: []string{"a.go"}, Cause: "Order"}, 0},
		"no fix, with the cause":   {Mend{Cause: "The runner has no Docker."}, 0},
		"fixed, and nothing done":  {Mend{Fixed: true, Cause: "Order"}, 1},
		"no cause":                 {Mend{Fixed: true, FilesChanged: []string{"a.go"}}, 1},
		"neither cause nor change": {Mend{Fixed: true}, 2},
	} {
		if got := Fixer.Check(Broken{}, test.out); len(got) != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}
