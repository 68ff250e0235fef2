package pipeline

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// redOnce is a forge whose one check is red on the first commit that it is
// asked about, and green on all others.
type redOnce struct {
	Local
	first *string
	check func(forge.Check) error
	draft func() error
}

func (f redOnce) CI(_ context.Context, sha, _ string) (forge.CI, error) {
	if *f.first == "" {
		*f.first = sha
	}
	run := forge.CIRun{ID: 1, Name: "unit", App: "ci", SHA: sha, Status: "completed", Conclusion: "success"}
	if sha == *f.first {
		run.Conclusion = "failure"
	}
	return forge.CI{SHA: sha, Configured: true, Runs: []forge.CIRun{run}}, nil
}

func (f redOnce) EnsureCheck(_ context.Context, c forge.Check) (forge.Check, error) {
	return c, f.check(c)
}

func (f redOnce) EnsureDraft(context.Context, forge.Draft) (forge.Pull, error) {
	return forge.Pull{}, f.draft()
}

// A worker dies between the fix of CI and the pull request that tells of it: the
// next one shows that fix, and does not ask for another.
func TestAFixOfCIIsShownByTheNextClaim(t *testing.T) {
	died := errors.New("the worker died")
	for name, dies := range map[string]struct{ left, told bool }{
		"before it was pushed":              {left: true},
		"before the pull request was right": {told: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, issue("a", nil))
			w.engine.CIGrace = time.Nanosecond
			w.answer = func(_ context.Context, c runtime.Call) (any, error) {
				if c.Role != "ci_fixer" {
					return nil, nil
				}
				if err := os.WriteFile(filepath.Join(c.Dir, "a.txt"), []byte("mended\n"), 0o644); err != nil {
					return nil, err
				}
				return ci.Mend{Summary: "s", Cause: "a.txt was wrong", Fixed: true, FilesChanged: []string{"a.txt"}}, nil
			}
			mirror, err := w.engine.Mirror(t.Context(), worldRepo())
			if err != nil {
				t.Fatal(err)
			}
			first, drafts := "", 0
			w.forge = redOnce{Local: Local{Dir: w.dir, Mirror: mirror}, first: &first,
				check: func(c forge.Check) error {
					if c.Conclusion == "neutral" && c.HeadSHA == first && dies.left {
						dies.left = false
						return died
					}
					return nil
				},
				draft: func() error {
					if drafts++; drafts == 2 && dies.told {
						return died
					}
					return nil
				}}
			if _, err := w.run(); !errors.Is(err, died) {
				t.Fatalf("the first claim: %v", err)
			}
			b := w.must(report.Succeeded)
			if n := w.asked("ci_fixer"); n != 1 {
				t.Errorf("the CI Fixer was asked %d times: %v", n, w.agents.Steps())
			}
			if text := w.file(b, "a.txt"); text != "mended\n" || b.Head == first || b.Verification.Commit != b.Head {
				t.Errorf("published: %q at %s, verified %s, the red commit is %s", text, b.Head, b.Verification.Commit, first)
			}
			if told := w.log.Keys(); !slices.Contains(told, keyCIPull(b.Head)) || w.asked("verifier") != 2 {
				t.Errorf("the Verifier was asked %d times; the journal: %v", w.asked("verifier"), told)
			}
		})
	}
}
