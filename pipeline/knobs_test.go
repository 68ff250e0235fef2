package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-dev/slipway/config"
	"github.com/slipway-dev/slipway/pipeline/ci"
	"github.com/slipway-dev/slipway/pipeline/coding"
	"github.com/slipway-dev/slipway/pipeline/forge"
	"github.com/slipway-dev/slipway/pipeline/graph"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/repo"
	"github.com/slipway-dev/slipway/pipeline/report"
	"github.com/slipway-dev/slipway/pipeline/runtime"
)

// A knob is shown to count: what there is to see with one value differs from
// what there is to see with another. Or it is shown elsewhere.
type knob struct {
	shown string                     // file and test that shows it, from the top of the module
	seen  func(w *world) string      // of a build that is configured with a value
	unit  func(c config.Repo) string // of the smallest part that honours it
	want  map[string]string          // by value
}

// calls counts the calls of a role in a build that may end as it likes.
func calls(role string) func(w *world) string {
	return func(w *world) string {
		if _, err := w.run(); err != nil {
			w.t.Fatal(err)
		}
		return fmt.Sprint(w.asked(role))
	}
}

// hiring shows what the crew of a build is bounded by.
func hiring(show func(b *build) any) func(config.Repo) string {
	return func(c config.Repo) string {
		b := &build{Engine: &Engine{Defaults: c}, conf: c, site: &site{clone: &repo.Clone{}}}
		return fmt.Sprint(show(b))
	}
}

// set changes a world before it is seen.
func set(change func(w *world), seen func(w *world) string) func(w *world) string {
	return func(w *world) string {
		change(w)
		return seen(w)
	}
}

func hopelessly(w *world) { w.fails("a") }

// waitsOr is how a build ended, or how long it waits.
func waitsOr(w *world) string {
	b, err := w.run()
	waiting, waits := errors.AsType[*Waiting](err)
	switch {
	case waits:
		return fmt.Sprintf("waits %s", time.Until(waiting.Until).Round(10*time.Second))
	case err != nil:
		w.t.Fatal(err)
	}
	return string(b.State)
}

// inspected is a local forge with one check, which passes on the base and else is
// as it is.
type inspected struct {
	Local
	base               string // commit
	status, conclusion string
}

// CI finds the check.
func (f inspected) CI(_ context.Context, sha, _ string) (forge.CI, error) {
	if sha == f.base {
		f.status, f.conclusion = "completed", "success"
	}
	return forge.CI{SHA: sha, Configured: true, Runs: []forge.CIRun{{
		ID: 1, Name: "test", App: "ci", Suite: 1, SHA: sha, Status: f.status, Conclusion: f.conclusion, Started: time.Now(),
	}}}, nil
}

// underCI lets a build come to wait for a check, and two minutes pass.
func underCI(status, conclusion string) func(w *world) {
	return func(w *world) {
		mirror, err := w.engine.Mirror(w.t.Context(), worldRepo())
		if err != nil {
			w.t.Fatal(err)
		}
		w.forge = inspected{Local{Dir: w.dir, Mirror: mirror}, w.git("rev-parse", "HEAD"), status, conclusion}
		w.when("ci_fixer", func(context.Context, runtime.Call) (any, error) {
			return ci.Mend{Summary: "I cannot tell", Cause: "nobody knows"}, nil
		})
		if _, err := w.run(); err != nil {
			if _, waits := errors.AsType[*Waiting](err); !waits {
				w.t.Fatal(err)
			}
		}
		w.aged = 2 * time.Minute
	}
}

var knobs = map[string]knob{
	"runtime": {
		unit: func(c config.Repo) string {
			var asked []string
			b := &build{conf: c, Engine: &Engine{Runtime: func(_ context.Context, name string) (runtime.Runtime, error) {
				asked = append(asked, name)
				return nil, nil
			}}}
			if _, err := b.targets(context.Background()); err != nil {
				return err.Error()
			}
			return fmt.Sprint(slices.Compact(asked))
		},
		want: map[string]string{"claude_code": "[claude_code]", "replay": "[replay]"},
	},
	"build.label":    {shown: "handlers/handlers_test.go TestALabelQueuesABuildAndIsConsumed"},
	"build.approval": {seen: waitsOr, want: map[string]string{"never": "succeeded", "plan": "waits 72h0m0s"}},
	"build.branch": {
		unit: func(c config.Repo) string {
			b := &build{fold: NewFold(), conf: c, Engine: &Engine{Defaults: config.Defaults()}}
			b.Request.Ticket = forge.Ticket{Number: 7, Title: "The thing"}
			return b.branchName()
		},
		want: map[string]string{`"slipway/{ticket}-{slug}"`: "slipway/7-the-thing", `"bot/{ticket}"`: "bot/7"},
	},
	"review.severity":       {shown: "pipeline/fixing_test.go TestFindingsAreFixedOrStand"},
	"review.min_confidence": {shown: "pipeline/fixing_test.go TestFindingsAreFixedOrStand"},
	"review.label":          {shown: "cmd/slipway/review_flows_test.go TestWhatPeopleSeeOfReviews"},
	"review.auto":           {shown: "handlers/review_test.go TestReviewsByThemselves"},
	"review.max_findings":   {shown: "pipeline/reviewing_test.go TestReviewKnobs"},
	"review.minutes":        {shown: "pipeline/reviewing_test.go TestReviewThatIsNotWholeIsNeverGreen"},

	"limits.usd_per_build": {unit: hiring(func(b *build) any { return b.hire(nil).Budget.Micros }), want: map[string]string{"25": "25000000", "0.5": "500000"}},
	"limits.usd_per_call":  {unit: hiring(func(b *build) any { return b.hire(nil).Budget.PerCall }), want: map[string]string{"2": "2000000", "0.5": "500000"}},
	"limits.usd_per_day":   {shown: "app/daily_test.go TestDailyLimits"},
	"limits.calls_per_day": {shown: "app/daily_test.go TestDailyLimits"},
	"limits.minutes_per_day": {
		unit: hiring(func(b *build) any { return b.hire(nil).Limits.Timeout }), want: map[string]string{"0": "45m0s", "3": "3m0s"},
	},
	"limits.minutes_per_build": {
		seen: set(func(w *world) {
			w.killedBefore("start/issue-01")
			w.aged = 2 * time.Minute
		}, waitsOr),
		want: map[string]string{"1": "timed_out", "240": "succeeded"},
	},
	"limits.max_parallel_issues": {
		seen: func(w *world) string {
			w.issues = []graph.Issue{issue("a", nil), issue("b", nil), issue("c", nil)}
			w.must(report.Succeeded)
			n := 0
			for _, key := range w.log.Keys() {
				if strings.HasSuffix(key, "/kept") && strings.HasPrefix(key, "issue-") {
					break
				}
				if strings.HasPrefix(key, "start/") {
					n++
				}
			}
			return fmt.Sprint(n)
		},
		want: map[string]string{"1": "1", "2": "2"},
	},
	"limits.max_parallel_agents": {shown: "cmd/slipway/knobs_test.go TestAgentsAtATime"},

	"pipeline.max_review_iterations": {
		seen: set(func(w *world) {
			w.ask = func(r *Request) { r.PlanOnly = true }
			w.when("pm", func(context.Context, runtime.Call) (any, error) {
				return plan.PRD{Title: "The thing", Size: "small", AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "it is done", MustHave: true}}}, nil
			})
			w.when("architect", func(context.Context, runtime.Call) (any, error) { return plan.Architecture{Summary: "as ever"}, nil })
			w.when("tech_lead", func(context.Context, runtime.Call) (any, error) {
				return plan.Review{Feedback: "no", Summary: "no"}, nil
			})
		}, calls("architect")),
		want: map[string]string{"0": "1", "2": "3"},
	},
	"pipeline.max_plan_revisions": {shown: "pipeline/gate_test.go TestRevisionsHaveALimit"},
	"pipeline.max_coding_iterations": {
		seen: set(hopelessly, calls("coder")), want: map[string]string{"1": "1", "2": "2"},
	},
	"pipeline.max_advisor_invocations": {
		seen: set(func(w *world) {
			w.fails("a")
			w.advise("a", coding.Decision{Action: coding.RetryApproach, NewApproach: "otherwise"})
		}, calls("issue_advisor")),
		want: map[string]string{"0": "0", "1": "1", "2": "2"},
	},
	"pipeline.max_replans": {
		seen: set(func(w *world) {
			w.fails("a")
			w.replans(ReplanDecision{Action: Continue})
		}, calls("replan")),
		want: map[string]string{"0": "0", "1": "1"},
	},
	"pipeline.max_splits":                   {shown: "pipeline/adapt_test.go TestSplitsThatCannotBe"},
	"pipeline.max_verify_fix_cycles":        {shown: "pipeline/fixing_test.go TestFindingsAreFixedOrStand"},
	"pipeline.max_integration_test_retries": {shown: "pipeline/landing_test.go TestARedCandidateIsMended"},
	"pipeline.max_ci_fix_cycles": {
		seen: set(underCI("completed", "failure"), calls("ci_fixer")), want: map[string]string{"0": "0", "1": "1", "2": "2"},
	},
	"pipeline.ci_wait_seconds": {
		seen: set(underCI("in_progress", ""), waitsOr), want: map[string]string{"60": "needs_human", "1500": "waits 30s"},
	},
	"pipeline.ci_poll_seconds": {
		seen: set(underCI("in_progress", ""), waitsOr), want: map[string]string{"60": "waits 1m0s", "300": "waits 5m0s"},
	},
	"pipeline.agent_timeout_seconds": {
		unit: hiring(func(b *build) any { return b.hire(nil).Limits.Timeout }), want: map[string]string{"60": "1m0s", "2700": "45m0s"},
	},
	"pipeline.agent_max_turns": {
		unit: hiring(func(b *build) any { return b.hire(nil).Limits.MaxTurns }), want: map[string]string{"9": "9", "150": "150"},
	},
	"pipeline.max_agents_per_build": {
		seen: func(w *world) string {
			b, err := w.run()
			if err != nil {
				w.t.Fatal(err)
			}
			return fmt.Sprintf("%s after %d calls", b.State, min(b.AgentCalls, 4))
		},
		want: map[string]string{"3": "needs_human after 3 calls", "5000": "succeeded after 4 calls"},
	},
	"pipeline.max_concurrency":   {shown: "pipeline/delegate_test.go TestConcurrency"},
	"pipeline.approve_subagents": {shown: "pipeline/delegate_test.go TestPermits"},
	"pipeline.max_tasks": {
		seen: set(func(w *world) {
			w.ask = func(r *Request) { r.Fast, r.PlanOnly = true, true }
			w.issues = []graph.Issue{issue("a", nil), issue("b", nil)}
		}, waitsOr),
		want: map[string]string{"1": "failed", "2": "planned"},
	},
	"pipeline.barrier": {shown: "pipeline/landing_test.go TestWhenIssuesLand"},
	"pipeline.enable_replanning": {
		seen: set(func(w *world) {
			w.fails("a")
			w.replans(ReplanDecision{Action: Continue})
		}, calls("replan")),
		want: map[string]string{"false": "0", "true": "1"},
	},
	"pipeline.enable_issue_advisor": {
		seen: set(hopelessly, calls("issue_advisor")), want: map[string]string{"false": "0", "true": "1"},
	},
	"pipeline.enable_integration_testing": {
		seen: set(func(w *world) {
			a := issue("a", nil)
			a.Guidance.TouchesInterfaces = true
			w.issues = []graph.Issue{a, issue("b", nil)}
			w.engine.Defaults.Pipeline.Barrier = "level" // both land at once
			w.when("integration_tester", func(context.Context, runtime.Call) (any, error) {
				return IntegrationResult{Passed: true, Summary: "they fit"}, nil
			})
		}, calls("integration_tester")),
		want: map[string]string{"false": "0", "true": "1"},
	},
	"pipeline.enable_learning": {shown: "pipeline/memory_test.go TestWhatABuildLearnedReachesWhomItConcerns"},
	"pipeline.enable_review":   {seen: set(func(*world) {}, calls("lens")), want: map[string]string{"false": "0", "true": "10"}},
	"pipeline.check_ci": {
		seen: set(underCI("in_progress", ""), waitsOr), want: map[string]string{"false": "succeeded", "true": "waits 30s"},
	},
	"pipeline.failure_abort_ratio": {
		seen: set(func(w *world) {
			w.issues = []graph.Issue{issue("a", nil), issue("b", nil), issue("c", nil), issue("d", nil), issue("e", nil, "d")}
			w.engine.Defaults.Pipeline.EnableIssueAdvisor = false
			for _, name := range []string{"a", "b", "c"} {
				w.code[name] = func(string) error { return errors.New("no idea") }
			}
			over := w.until("issue-03/kept")
			w.when("coder", func(ctx context.Context, c runtime.Call) (any, error) {
				if w.nameOf(c.Step) == "d" { // the last of four to end
					return nil, await(ctx, over)
				}
				return nil, nil
			})
		}, func(w *world) string {
			b, err := w.run()
			if err != nil {
				w.t.Fatal(err)
			}
			return string(w.outcome(b, "e").Outcome)
		}),
		want: map[string]string{"0.5": "skipped", "0.8": "completed"},
	},
	"pipeline.approval_expires_in_hours": {
		seen: set(func(w *world) { w.ask = withApproval }, waitsOr), want: map[string]string{"1": "waits 1h0m0s", "72": "waits 72h0m0s"},
	},
	"pipeline.keep_refs_days": {shown: "cmd/slipway/knobs_test.go TestPruneKeepsRefsAsConfigured"},
}

// A knob that is accepted is honoured: each has a row, and each row shows what
// it changes.
func TestEachKnobChangesSomething(t *testing.T) {
	for _, s := range config.Defaults().Settings() {
		if _, ok := knobs[s.Key]; !ok {
			t.Errorf("nothing shows that %s changes anything", s.Key)
		}
	}
	for key, k := range knobs {
		if config.Defaults().Origin(key) == "" {
			t.Errorf("%s is no knob", key)
		}
		t.Run(key, func(t *testing.T) {
			if k.shown != "" {
				file, test, _ := strings.Cut(k.shown, " ")
				text, err := os.ReadFile(filepath.Join("..", file))
				if err != nil || !strings.Contains(string(text), "func "+test+"(t *testing.T)") {
					t.Errorf("there is no %s in %s: %v", test, file, err)
				}
				return
			}
			if len(k.want) < 2 {
				t.Fatal("two values are needed to show a difference")
			}
			for value, want := range k.want {
				t.Run(value, func(t *testing.T) {
					t.Parallel()
					section, name, _ := strings.Cut(key, ".")
					yaml := fmt.Sprintf("%s: {%s: %s}", section, name, value)
					if name == "" {
						yaml = section + ": " + value
					}
					var got string
					if k.unit != nil {
						parsed, err := config.Parse([]byte(yaml), "f.yml")
						if err != nil {
							t.Fatal(err)
						}
						got = k.unit(parsed.Over(config.Defaults()))
					} else {
						w := newWorld(t, issue("a", nil))
						w.configure(yaml)
						got = k.seen(w)
					}
					if got != want {
						t.Errorf("with %s there is %q to see, want %q", value, got, want)
					}
				})
			}
		})
	}
}
