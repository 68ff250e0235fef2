package pipeline

import (
	"slices"
	"testing"

	"github.com/slipway-dev/slipway/pipeline/debt"
	"github.com/slipway-dev/slipway/pipeline/evidence"
	"github.com/slipway-dev/slipway/pipeline/plan"
	"github.com/slipway-dev/slipway/pipeline/report"
)

var (
	green = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test", Passed: true}}}
	red   = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test", Exit: 1}}}
	flaky = evidence.Result{Commands: []evidence.CommandResult{{Name: "test", Line: "go test", Passed: true, Flaky: true}}}
)

func judged(id string, passed bool) CriterionResult {
	return CriterionResult{PRDID: id, Passed: passed, Evidence: "seen"}
}

func TestSettle(t *testing.T) {
	prd := plan.PRD{AcceptanceCriteria: []plan.Criterion{{ID: "ac-1", Text: "must", MustHave: true}, {ID: "ac-2", Text: "nice"}}}
	both := []CriterionResult{judged("ac-1", true), judged("ac-2", true)}
	for name, c := range map[string]struct {
		seen   verdict
		passed bool
		debt   []debt.Type
	}{
		"all passed":                {verdict{commit: "c", tested: green, judgement: Judgement{CriteriaResults: both}}, true, nil},
		"commands red":              {verdict{commit: "c", tested: red, judgement: Judgement{CriteriaResults: both}}, false, nil},
		"commands flaky":            {verdict{commit: "c", tested: flaky, judgement: Judgement{CriteriaResults: both}}, true, []debt.Type{debt.UnverifiedCriteria}},
		"no commands":               {verdict{commit: "c", tested: evidence.Result{None: true}, judgement: Judgement{CriteriaResults: both}}, false, []debt.Type{debt.UnverifiedCriteria}},
		"a must-have failed":        {verdict{commit: "c", tested: green, judgement: Judgement{CriteriaResults: []CriterionResult{judged("ac-1", false), judged("ac-2", true)}}}, false, []debt.Type{debt.UnmetCriterion}},
		"a nice-to-have failed":     {verdict{commit: "c", tested: green, judgement: Judgement{CriteriaResults: []CriterionResult{judged("ac-1", true), judged("ac-2", false)}}}, true, []debt.Type{debt.UnmetCriterion}},
		"a must-have passed over":   {verdict{commit: "c", tested: green, judgement: Judgement{CriteriaResults: both[1:]}}, false, []debt.Type{debt.UnverifiedCriteria}},
		"the Verifier was silent":   {verdict{commit: "c", tested: green, unseen: "it crashed"}, false, []debt.Type{debt.UnverifiedCriteria, debt.UnverifiedCriteria}},
		"stopped before it was due": {verdict{unseen: "cancelled"}, false, []debt.Type{debt.UnverifiedCriteria, debt.UnverifiedCriteria}},
	} {
		t.Run(name, func(t *testing.T) {
			got := settle(prd, c.seen, map[string][]string{"ac-1": {"m"}}, map[string]string{"ac-1": "a"})
			var types []debt.Type
			for _, d := range got.Debt {
				types = append(types, d.Type)
			}
			if got.Verification.Passed != c.passed || !slices.Equal(types, c.debt) {
				t.Errorf("passed %v with debt %v, want %v with %v", got.Verification.Passed, types, c.passed, c.debt)
			}
			if first := got.Verification.Criteria[0]; first.IssueName != "a" || !slices.Equal(first.Commits, []string{"m"}) {
				t.Errorf("the criterion is not joined with its issue: %+v", first)
			}
		})
	}
}

func TestConclude(t *testing.T) {
	landed := []report.Issue{{Name: "a", Merge: "m", Outcome: report.Completed}}
	none := []report.Issue{{Name: "a", Outcome: report.FailedUnrecoverable, Detail: "stuck"}}
	proof := func(passed, met bool) *report.Verification {
		return &report.Verification{
			Passed:   met,
			Commands: []report.Command{{Line: "go test", Passed: passed}},
			Criteria: []report.Criterion{{ID: "ac-1", MustHave: true, Passed: met}},
		}
	}
	owed := []debt.Item{{Type: debt.MissingFeature, Severity: debt.Low}}
	for name, c := range map[string]struct {
		build   report.Build
		stop    *stopped
		state   report.State
		success bool
	}{
		"all well":                       {report.Build{Issues: landed, Verification: proof(true, true)}, nil, report.Succeeded, true},
		"debt of other kinds":            {report.Build{Issues: landed, Verification: proof(true, true), Debt: owed}, nil, report.SucceededWithDebt, true},
		"a criterion unmet":              {report.Build{Issues: landed, Verification: proof(true, false), Debt: owed}, nil, report.SucceededWithDebt, false},
		"commands red":                   {report.Build{Issues: landed, Verification: proof(false, false)}, nil, report.Failed, false},
		"nothing landed":                 {report.Build{Issues: none, Verification: proof(true, false)}, nil, report.Failed, false},
		"no plan":                        {report.Build{}, &stopped{State: report.Failed, Cause: "pm: no answer"}, report.Failed, false},
		"cancelled with work landed":     {report.Build{Issues: landed, Verification: proof(true, true)}, &stopped{State: report.Canceled, Cause: "by mira"}, report.Canceled, false},
		"out of time":                    {report.Build{Issues: landed}, &stopped{State: report.TimedOut, Cause: "limit"}, report.TimedOut, false},
		"out of budget":                  {report.Build{Issues: none}, &stopped{State: report.NeedsHuman, Cause: "budget"}, report.NeedsHuman, false},
		"given up but something to show": {report.Build{Issues: landed, Verification: proof(true, false), Debt: owed}, &stopped{State: report.Failed, Cause: "4 of 5"}, report.SucceededWithDebt, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := conclude(c.build, c.stop)
			if got.State != c.state || got.Success != c.success {
				t.Errorf("%s, success %v; want %s, %v", got.State, got.Success, c.state, c.success)
			}
			if bad := c.state != report.Succeeded && c.state != report.SucceededWithDebt; bad && (got.Cause == "" || got.Next == "" || got.Summary == "") {
				t.Errorf("a bad end needs cause, next command and summary: %+v", got)
			}
		})
	}
}

func TestSlug(t *testing.T) {
	for text, want := range map[string]string{
		"Add a --version flag": "add-a-version-flag",
		"Ünïcode, only":        "n-code-only",
		"日本語":                  "work",
		"":                     "work",
		"Filters, monthly totals and CSV for the quarterly report":  "filters-monthly-totals-and-csv-for-the",
		"exactly forty characters of words here12":                  "exactly-forty-characters-of-words-here12",
		"averyveryveryveryveryveryveryverylongsinglewordwithoutend": "averyveryveryveryveryveryveryverylongsin",
		"../../etc/passwd":         "etc-passwd",
		"--upload-pack=touch /tmp": "upload-pack-touch-tmp",
	} {
		if got := slug(text); got != want || len(got) > 40 {
			t.Errorf("%q is %q, want %q", text, got, want)
		}
	}
}

func TestIsArtefact(t *testing.T) {
	for file, want := range map[string]bool{
		"node_modules/a/b.js": true, "web/node_modules/x.js": true, "node_modules.md": false,
		"pkg/__pycache__/a.pyc": true, "a.pyc": true, "cmd/slipway.test": true, "a_test.go": false,
		"coverage.out": true, "docs/coverage.md": false, ".DS_Store": true, "src/main.orig": true,
	} {
		got := slices.ContainsFunc(artefacts, func(p string) bool { return isArtefact(file, p) })
		if got != want {
			t.Errorf("%s: %v, want %v", file, got, want)
		}
	}
}
